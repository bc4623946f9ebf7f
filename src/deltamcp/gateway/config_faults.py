"""The faults of a configuration, each with its line."""

import re
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType, inspect

from deltamcp.catalog.search.words import MIN_SIMILARITY, SimilarNames
from deltamcp.errors import ConfigurationError
from deltamcp.hosts import files, jsonc_edit
from deltamcp.hosts.hosts import SERVER_KEYS
from deltamcp.hosts.installation import decode

_HEADER = re.compile(r"\s*\[+([^\[\]]+)\]+\s*(?:#.*)?$")
_KEY = re.compile(r"""\s*((?:[\w-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[\w-]+|"[^"]*"|'[^']*'))*)\s*=""")

Place = tuple[str, ...]


class ConfigFaults:
    """Collects faults, and raises them together."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._faults: list[tuple[Place, str]] = []

    def add(self, place: Place, predicate: str) -> None:
        """Adds a fault: what the key at a place does wrong, as the rest of a sentence."""
        self._faults.append((place, f"{'.'.join(place)} {predicate}."))

    def add_unknown(self, place: Place, known: Iterable[str]) -> None:
        """Adds that there is no such key, with those that may have been meant."""
        names = sorted(known)
        ranked = SimilarNames(names).rank(place[-1], 1)
        hint = f"did you mean {ranked[0][0]}?" if ranked[0][1] >= MIN_SIMILARITY else f"there are {', '.join(names)}."
        self._faults.append((place, f"{'.'.join(place)} is no key; {hint}"))

    def convert(self, place: Place, value: Any, type_: Any) -> Any | UnsetType:
        """Returns a value of the file in its type; UNSET, and adds a fault, if it is none."""
        info = inspect.type_info(type_)
        if value is False and _accepts_none(info) and not _accepts_bool(info):
            return None
        try:
            return msgspec.convert(value, type_)
        except msgspec.ValidationError:
            self.add(place, f"must be {phrase(info)}")
            return UNSET

    def raise_all(self) -> None:
        """
        Raises:
            ConfigurationError: there are faults; the text tells all of them.
        """
        if not self._faults:
            return
        lines = _find_lines(self._path.read_text(encoding="utf-8"))
        told = [(_line_of(place, lines), sentence) for place, sentence in self._faults]
        if len(told) == 1:
            raise ConfigurationError(f"{self._path}, line {told[0][0]}: {told[0][1]}")
        listed = [f"  line {line}: {sentence}" for line, sentence in sorted(told)]
        raise ConfigurationError(f"{self._path} has {len(told)} faults:", listed)


def _accepts_none(info: inspect.Type) -> bool:
    return isinstance(info, inspect.UnionType) and info.includes_none


def _accepts_bool(info: inspect.Type) -> bool:
    return any(isinstance(one, inspect.BoolType) for one in getattr(info, "types", (info,)))


def phrase(info: inspect.Type) -> str:
    """Returns the type of a value in words, as faults and the reference name it."""
    match info:
        case inspect.UnionType():
            names = [phrase(one) for one in info.types if not isinstance(one, inspect.NoneType)]
            return " or ".join([*names, *["false"] * (info.includes_none and not _accepts_bool(info))])
        case inspect.BoolType():
            return "true or false"
        case inspect.IntType() | inspect.FloatType():
            noun = "a whole number" if isinstance(info, inspect.IntType) else "a number"
            low = f" above {info.gt:g}" if info.gt is not None else f" from {info.ge:g}" if info.ge is not None else ""
            return noun + low
        case inspect.LiteralType():
            return f"one of {', '.join(map(str, info.values))}"
        case inspect.ListType() | inspect.VarTupleType():
            return "a list of texts"
        case inspect.DictType():
            return "a table of texts" if isinstance(info.value_type, inspect.StrType) else "a table"
        case _:
            return "text"


def _find_lines(text: str) -> dict[Place, int]:
    """Returns the line of each key and table that begins one, by its path."""
    lines: dict[Place, int] = {}
    table: Place = ()
    for number, line in enumerate(text.splitlines(), 1):
        if header := _HEADER.match(line):
            table = _parse_key(header[1])
            lines.setdefault(table, number)
        elif key := _KEY.match(line):
            lines.setdefault((*table, *_parse_key(key[1])), number)
    return lines


def _parse_key(text: str) -> Place:
    """Returns the parts of a dotted key; none of a line that only looks like one, within a text of several lines."""
    try:
        node: Any = tomllib.loads(f"{text} = 0")
    except tomllib.TOMLDecodeError:
        return ()
    parts: Place = ()
    while isinstance(node, dict):
        ((name, node),) = node.items()
        parts += (name,)
    return parts


def _line_of(place: Place, lines: dict[Place, int]) -> int:
    """Returns the line of a key, or of the nearest table around it that begins a line."""
    while place:
        if place in lines:
            return lines[place]
        place = place[:-1]
    return 1


def entry_line(path: Path, name: str) -> int:
    """Returns the line at which the entry of a server begins in a file, in whatever format; 1 if it is not found."""
    try:
        text = decode(path.read_bytes())
        if path.suffix == ".toml":
            lines = _find_lines(text)
            return next((lines[key, name] for key in ("servers", "mcp_servers") if (key, name) in lines), 1)
        document = jsonc_edit.parse(text)
        for key in " ".join(SERVER_KEYS).split():
            for servers in files.find_server_maps(document, key):
                place = jsonc_edit.find_object(text, servers.keys)
                for member in place.members if place is not None else ():
                    if member.name == name:
                        return text.count("\n", 0, member.start) + 1
    except (OSError, ConfigurationError):  # it was changed or removed since
        pass
    return 1
