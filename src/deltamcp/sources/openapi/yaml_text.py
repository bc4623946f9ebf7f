"""YAML 1.2 as JSON: names become texts, aliases are shared and not copied, merge keys are merged.

The parser copies what an alias stands for, so that 300 bytes can become a terabyte. Anchors and aliases are therefore
written as tags and texts before it reads them, and put in their places afterwards.
"""

import math
import re
from typing import Any

from deltamcp.errors import ConfigurationError
from deltamcp.values import JSON

_ANCHOR = re.compile(r"(?<=[\s\[{,:-])&([^\s,\[\]{}&*!]+)(?=\s|$)")
_ALIAS = re.compile(r"(?<=[\s\[{,:-])\*([^\s,\[\]{}&*!]+)(?=[\s,\]}]|$)")
_TAG = "!anchor-"
_MARK = "\ue0a1"
"""A character for private use: what begins with it stands for an alias."""
_MARKED = re.compile(f"{_MARK}([^{_MARK}]+){_MARK}|{_TAG}(?=[^\\s,\\[\\]{{}}])")
_MERGE = "<<"


def parse_yaml(data: bytes, max_values: int) -> JSON:
    """Parses a document of YAML.

    Raises:
        ConfigurationError: it is no YAML, or has more than `max_values` values with aliases counted once for each use.
    """
    try:
        import yaml12  # 20 ms to import, and most documents are JSON
    except ImportError:
        raise ConfigurationError("A document in YAML needs a package: pip install py-yaml12.") from None
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ConfigurationError("The document is no text in UTF-8.") from None
    names = {found[1] for found in _ANCHOR.finditer(text)} if "&" in text else set()
    if names:
        text = _ANCHOR.sub(lambda found: f"{_TAG}{found[1]}", text)
        text = _ALIAS.sub(lambda found: f"{_MARK}{found[1]}{_MARK}" if found[1] in names else found[0], text)
    try:
        parsed = yaml12.parse_yaml(text)
    except (ValueError, RecursionError) as error:
        reason = str(error).removeprefix("YAML parse error: ").partition("\n")[0][:200]
        raise ConfigurationError(f"The document is no YAML: {reason}.") from None
    return _Reader(yaml12.Yaml, max_values, bool(names)).read(parsed)


class _Reader:
    """Makes JSON of what the parser returns."""

    def __init__(self, tagged: Any, max_values: int, has_aliases: bool) -> None:
        self._tagged = tagged
        self._left = max_values
        self._has_aliases = has_aliases
        self._anchored: dict[str, tuple[Any, int]] = {}
        """The value of each anchor, and how many values are in it."""

    def read(self, value: Any) -> JSON:
        self._left -= 1
        if self._left < 0:
            raise ConfigurationError("The document has too many values; cut it into several.")
        if isinstance(value, self._tagged):
            return self._read_tagged(value)
        match value:
            case str():
                return self._read_text(value) if self._has_aliases else value
            case dict():
                return self._read_object(value)
            case list():
                return [self.read(item) for item in value]
            case float():
                return value if math.isfinite(value) else str(value)
            case None | bool() | int():
                return value
            case _:
                return str(value)

    def _read_tagged(self, value: Any) -> JSON:
        tag = value.tag or ""
        if not tag.startswith(_TAG):
            return self.read(value.value)
        before = self._left
        read = self.read(_plain(value.value))
        self._anchored[tag.removeprefix(_TAG)] = (read, before - self._left)
        return read

    def _read_text(self, text: str) -> JSON:
        found = _MARKED.fullmatch(text)
        if found is not None and found[1] in self._anchored:
            shared, values = self._anchored[found[1]]
            self._left -= values
            return shared
        # What looks like an alias inside of a text is a part of it.
        return _MARKED.sub(lambda match: f"*{match[1]}" if match[1] else "&", text)

    def _read_object(self, value: dict[Any, Any]) -> dict[str, JSON]:
        made: dict[str, JSON] = {}
        for key, member in value.items():
            read = self.read(member)
            if key == _MERGE and isinstance(read, dict | list):
                for part in read if isinstance(read, list) else [read]:
                    made = {**part, **made} if isinstance(part, dict) else made
            else:
                made[self._name(key)] = read
        return made

    def _name(self, key: Any) -> str:
        if isinstance(key, self._tagged):
            key = key.value
        if isinstance(key, str):
            return str(self._read_text(key)) if self._has_aliases else key
        return str(key).lower() if key is None or isinstance(key, bool) else str(key)


_NUMBER = re.compile(r"[-+]?(?:0|[1-9][0-9]*)")
_CONSTANTS = {"": None, "~": None, "null": None, "true": True, "false": False}


def _plain(value: Any) -> Any:
    """Returns a value that lost its type because it has a tag: the parser leaves such scalars as texts."""
    if not isinstance(value, str):
        return value
    if value in _CONSTANTS:
        return _CONSTANTS[value]
    return int(value) if _NUMBER.fullmatch(value) and len(value) < 20 else value
