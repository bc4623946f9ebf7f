"""An OpenAPI document as it was written, JSON or YAML, with its references and the place of each value."""

import functools
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple
from urllib.parse import unquote, urldefrag, urljoin

import msgspec

from deltamcp.errors import ConfigurationError, Fault
from deltamcp.limits import Limits
from deltamcp.results.document import pointer
from deltamcp.values import JSON
from deltamcp.wire.message_bounds import MessageBoundError, check_json

MAX_BYTES = 64 * 1024 * 1024
"""The largest document. Microsoft Graph's, one of the largest there are, has 35 MB as YAML."""
MAX_VALUES = 4_000_000
"""The most values of a document; Microsoft Graph's has some two million, which take 500 MB."""
_BOUNDS = msgspec.structs.replace(Limits(), values=MAX_VALUES, depth=200)
_MAX_REFERENCES = 32
"""References that each lead to the next one."""
_MAX_IDENTIFIED = 1_000_000
"""The values that are searched for `$id` and `$anchor`."""
_EXTERNAL = re.compile(rb'"\$ref"\s*:\s*"([^"#\\][^"\\]*)"')
_ANCHOR = re.compile(r"(?<=[\s\[{,:-])&([^\s,\[\]{}&*!]+)(?=\s|$)")
_ALIAS = re.compile(r"(?<=[\s\[{,:-])\*([^\s,\[\]{}&*!]+)(?=[\s,\]}]|$)")
_TAG = "!anchor-"
_MARK = "\ue0a1"
"""A character for private use: what begins with it stands for an alias."""
_MARKED = re.compile(f"{_MARK}([^{_MARK}]+){_MARK}|{_TAG}(?=[^\\s,\\[\\]{{}}])")
_MERGE = "<<"
_NUMBER = re.compile(r"[-+]?(?:0|[1-9][0-9]*)")
_CONSTANTS = {"": None, "~": None, "null": None, "true": True, "false": False}


class Version(NamedTuple):
    """What a version of the specification has."""

    text: str
    """As the document writes it."""
    is_swagger: bool = False
    """Whether it is Swagger 2.0."""
    old_schemas: bool = False
    """Whether schemas are a dialect of their own, before JSON Schema 2020-12."""
    methods: tuple[str, ...] = ()
    """The keys of a path item that are operations."""


_METHODS_2 = ("get", "put", "post", "delete", "options", "head", "patch")
_METHODS_3 = (*_METHODS_2, "trace")
VERSIONS: Mapping[str, Version] = {
    "2.0": Version("2.0", True, True, _METHODS_2),
    "3.0": Version("3.0", False, True, _METHODS_3),
    "3.1": Version("3.1", False, False, _METHODS_3),
    "3.2": Version("3.2", False, False, (*_METHODS_3, "query")),
}


class ReferenceFaultError(Exception):
    """A reference leads nowhere, or to where it may not lead; the text is a sentence without full stop."""


class Found(NamedTuple):
    """A value of a document."""

    value: Any
    base: str
    """The address of the document that has it, which relative references begin from; empty for the main one."""
    reference: str
    """The last reference that led to it, as an absolute one; empty if none did."""


class OpenApiDocument:
    """A document, and those that it refers to as far as they have been read."""

    def __init__(self, content: JSON, address: str = "", others: Mapping[str, JSON] | None = None) -> None:
        """
        Args:
            address: Where the document is from, for its relative servers and references; empty if that is not known.
            others: The documents that it refers to, by their addresses without fragment.

        Raises:
            ConfigurationError: it is no OpenAPI document, or of an unknown version.
        """
        if not isinstance(content, dict):
            raise ConfigurationError(
                "The document is no OpenAPI document: it must be an object with openapi or swagger."
            )
        self.content: dict[str, JSON] = content
        self.version: Version = _read_version(content)
        own = content.get("$self")  # OpenAPI 3.2, 4.1.1
        self.address: str = urljoin(address, own) if isinstance(own, str) else address
        self._documents: dict[str, JSON] = {**(others or {}), "": content}
        if self.address:
            self._documents.setdefault(urldefrag(self.address).url, content)
        self._found: dict[tuple[str, str], Found] = {}

    def follow(self, value: Any, base: str = "") -> Found:
        """Returns a value, or what it refers to if it is a reference.

        Raises:
            ReferenceFaultError: it leads nowhere, in a circle, or to where nobody allowed it to lead.
        """
        found = Found(value, base, "")
        for _ in range(_MAX_REFERENCES):
            reference = found.value.get("$ref") if isinstance(found.value, dict) else None
            if not isinstance(reference, str):
                return found
            found = self.resolve(reference, found.base)
        raise ReferenceFaultError(f"the reference {_show(found.reference)} leads in a circle")

    def resolve(self, reference: str, base: str = "") -> Found:
        """Returns what a reference leads to, which may be another reference.

        Raises:
            ReferenceFaultError: it leads nowhere, or to where nobody allowed it to lead.
        """
        key = (base, reference)
        known = self._found.get(key)
        if known is None:
            known = self._found[key] = self._resolve(reference, base)
        return known

    def _resolve(self, reference: str, base: str) -> Found:
        if reference.startswith("#"):
            address, fragment = base, reference[1:]
        else:
            address, _, fragment = self.absolute(reference, base).partition("#")
            if self.address and address == urldefrag(self.address).url:
                address = ""
        absolute = f"{address}#{fragment}"
        if address not in self._documents:
            identified = self._identified.get(address)
            if identified is None:
                raise ReferenceFaultError(f"the reference {_show(reference)} leads to a document that is not read")
            start, address = identified
        else:
            start = self._documents[address]
        if fragment and not fragment.startswith("/"):
            anchored = self._identified.get(f"{address}#{fragment}") or self._identified.get(f"#{fragment}")
            if anchored is None:
                raise ReferenceFaultError(f"the reference {_show(reference)} leads nowhere")
            return Found(anchored[0], anchored[1], absolute)
        return Found(_value_at(start, fragment, reference), address, absolute)

    def absolute(self, reference: str, base: str) -> str:
        """Returns the address of a relative one."""
        try:
            return urljoin(base or self.address, reference)
        except ValueError:
            return reference

    @functools.cached_property
    def _identified(self) -> dict[str, tuple[Any, str]]:
        """The schemas that have an `$id` or an `$anchor`, with the document that they are in."""
        found: dict[str, tuple[Any, str]] = {}
        for address, content in self._documents.items():
            pending: list[Any] = [content]
            for _ in range(_MAX_IDENTIFIED):
                if not pending:
                    break
                node = pending.pop()
                if isinstance(node, dict):
                    for key, prefix in (("$id", ""), ("$anchor", "#"), ("$dynamicAnchor", "#")):
                        name = node.get(key)
                        if isinstance(name, str):
                            text = f"#{name}" if prefix else self.absolute(name, address)
                            found.setdefault(text.rstrip("#") if not prefix else text, (node, address))
                    pending += node.values()
                elif isinstance(node, list):
                    pending += node
        return found

    @property
    def title(self) -> str:
        return _text(self._info.get("title"))

    @property
    def description(self) -> str:
        return _text(self._info.get("description")) or _text(self._info.get("summary"))

    @property
    def api_version(self) -> str:
        """The version of the API, not of the specification."""
        version = self._info.get("version")
        return str(version) if isinstance(version, str | int | float) else ""

    @property
    def _info(self) -> dict[str, Any]:
        info = self.content.get("info")
        return info if isinstance(info, dict) else {}

    def components(self, kind: str) -> Iterator[tuple[str, Found]]:
        """Yields the components of a kind by their names, such as `securitySchemes`."""
        parent = self.content if self.version.is_swagger else self.content.get("components")
        members = parent.get(kind) if isinstance(parent, dict) else None
        for name, value in members.items() if isinstance(members, dict) else ():
            try:
                yield name, self.follow(value)
            except ReferenceFaultError:
                continue


def external_addresses(data: bytes) -> list[str]:
    """Returns the relative or absolute addresses, without fragments, that the references of JSON lead to."""
    found = (match[1].partition(b"#")[0].decode(errors="replace") for match in _EXTERNAL.finditer(data))
    return list(dict.fromkeys(found))


def place(*names: str | int) -> str:
    """Writes a place of the document as faults show it."""
    return f"#{pointer(*names)}"


def _read_version(content: dict[str, Any]) -> Version:
    given = content.get("swagger", content.get("openapi"))
    text = str(given) if isinstance(given, str | int | float) and not isinstance(given, bool) else ""
    row = VERSIONS.get(".".join(text.split(".")[:2]) if "swagger" not in content else text[:3])
    if row is None or row.is_swagger != ("swagger" in content):
        if not text:
            raise ConfigurationError(
                "The document is no OpenAPI document: it must have openapi or swagger with its version."
            )
        known = ", ".join(VERSIONS)
        raise ConfigurationError(
            f"The document is of version {text[:20]!r}; the versions that can be read are {known}."
        )
    return row._replace(text=text)


def _value_at(start: Any, fragment: str, reference: str) -> Any:
    value = start
    for name in fragment.split("/")[1:]:
        key = unquote(name).replace("~1", "/").replace("~0", "~")
        if isinstance(value, dict) and key in value:
            value = value[key]
        elif isinstance(value, list) and key.isdigit() and int(key[:9]) < len(value):
            value = value[int(key[:9])]
        else:
            raise ReferenceFaultError(f"the reference {_show(reference)} leads nowhere")
    return value


def _show(reference: str) -> str:
    return repr(reference if len(reference) <= 120 else f"{reference[:119]}…")


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def parse_document(data: bytes) -> JSON:
    """Parses a document, which may be JSON or YAML.

    Raises:
        ConfigurationError: it is neither, or too large.
    """
    if len(data) > MAX_BYTES:
        raise ConfigurationError(f"The document has more than {MAX_BYTES >> 20} MiB; cut it into several.")
    text = data.lstrip(b"\xef\xbb\xbf \t\r\n")
    if text[:1] not in (b"{", b"["):
        return parse_yaml(data, MAX_VALUES)
    try:
        check_json(text, _BOUNDS)
        parsed: JSON = msgspec.json.decode(text)
    except MessageBoundError as error:
        what = "values" if error.fault is Fault.TOO_LARGE else "levels"
        raise ConfigurationError(f"The document has too many {what}; cut it into several.") from None
    except (ValueError, RecursionError) as error:
        try:
            return parse_yaml(data, MAX_VALUES)  # YAML may begin with `{` too
        except ConfigurationError:
            raise ConfigurationError(f"The document is no JSON: {error}.") from None
    return parsed


def parse_yaml(data: bytes, max_values: int) -> JSON:
    """Parses YAML 1.2 as JSON: names become texts, aliases are shared and not copied, merge keys are merged.

    The parser copies what an alias stands for, so that 300 bytes can become a terabyte. Anchors and aliases are
    therefore written as tags and texts before it reads them, and put in their places afterwards.

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


def _plain(value: Any) -> Any:
    """Returns a value that lost its type because it has a tag: the parser leaves such scalars as texts."""
    if not isinstance(value, str):
        return value
    if value in _CONSTANTS:
        return _CONSTANTS[value]
    return int(value) if _NUMBER.fullmatch(value) and len(value) < 20 else value
