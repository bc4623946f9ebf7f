"""A value as the text with the fewest tokens that decodes to it: compact JSON, or JSON whose rows stand as tables.

A table by itself is its text. In a document, the first line is the JSON of what is around the tables, behind a `#`,
with `"#1"` in place of the first; or that is an object written as a table without lines. The tables follow, each
behind its number. JSON never begins with `#`.
"""

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import msgspec

from deltamcp.results.tables import untable
from deltamcp.results.tables.cells import ITEM, KEY, KEYS, position
from deltamcp.results.tables.table import Table, object_table, table
from deltamcp.tokens import count
from deltamcp.values import JSON
from deltamcp.wire import jsonrpc

LEGEND = "Tables: a=x*y: x, cell, y; {b}: column b; &: lookup."
"""What a model should have read before its first table."""

_DEEPEST = 40
_LEAST = 300
"""Characters of JSON from which on another form is worth a reader's while."""
_SMALL = 100
"""Characters of JSON below which no table is tried."""
_EFFORT = 6
"""How many times the value's own size is looked at on the search for tables."""
_PLACE = 6
"""Tokens a table's number takes, here and there."""
_CLEARLY = 0.95
"""What a table inside a value costs of its JSON, at most: for less it is not worth looking elsewhere."""
_SCALARS = frozenset({str, int, float})
_NESTED_ROWS = 4

_json = msgspec.json.Decoder().decode


class Encoded(NamedTuple):
    text: str
    form: Literal["json", "table"]


def encode(value: JSON, *, tables: bool = True, dictionary: bool = True, model: str | float = "o200k") -> Encoded:
    """The value as text. `dictionary` lets tables state values that repeat once, in the head.

    Raises:
        ValueError: the value holds something JSON cannot say.
    """
    compact = jsonrpc.encode(value).decode()
    if not tables or compact[0] not in "[{" or len(compact) < _LEAST:
        return Encoded(compact, "json")
    mark = next((mark for mark in ("#", "##", "###") if f'"{mark}' not in compact), None)
    if mark is None:
        return Encoded(compact, "json")
    search = _Search(mark, dictionary, model, len(compact))
    made = _document(_json(compact), search)
    if made is None or search.count(made) >= search.count(compact):
        return Encoded(compact, "json")
    return Encoded(made, "table")


def _document(value: Any, search: "_Search") -> str | None:
    skeleton = search.without(value)
    tables = search.tables()
    if isinstance(skeleton, str):
        *_, last = search.found.values()
        text = "\n".join([last.text, *tables[:-1]])
        plain = object_table(value) if isinstance(value, dict) else None
        return text if plain is None or search.count(text) <= search.count(plain) else plain
    text = "#" + jsonrpc.encode(skeleton).decode()
    plain = object_table(skeleton) if isinstance(skeleton, dict) and skeleton else None
    if plain is not None and search.count(plain) < _CLEARLY * search.count(text):
        return "\n".join([plain, *tables])
    return "\n".join([text, *tables]) if tables else None


class _Found(NamedTuple):
    text: str
    cost: int


class _Search:
    """Tables taken out of a value, and what stands in their places."""

    def __init__(self, mark: str, dictionary: bool, model: str | float, size: int) -> None:
        self.mark, self.dictionary, self.model = mark, dictionary, model
        self.effort = _EFFORT * size + 1000
        self.found: dict[str, _Found] = {}
        """By their JSON, in the order of their numbers."""
        self._counted: dict[str, int] = {}

    def count(self, text: str) -> int:
        if text not in self._counted:
            self._counted[text] = count(text, self.model)
        return self._counted[text]

    def tables(self) -> list[str]:
        return [f"{self.mark}{number} {found.text[1:]}" for number, found in enumerate(self.found.values(), 1)]

    def without(self, value: Any, depth: int = 0) -> Any:
        """The value with marks for the tables in it; a mark, where it is one."""
        if depth > _DEEPEST or not isinstance(value, dict | list):
            return value
        json = jsonrpc.encode(value).decode()
        self.effort -= len(json)
        if len(json) < _SMALL or self.effort < 0:
            return value
        if json in self.found:
            return f"{self.mark}{list(self.found).index(json) + 1}"
        made = as_table(value, self.dictionary)
        text, before = "" if made is None else _joined(made), len(self.found)
        if not 0 < len(text) < len(json):
            return self._inside(value, depth)
        best = _Found(text, self.count(text) + _PLACE * bool(depth))
        limit = self.count(json) * (_CLEARLY if depth else 1)
        if text.count("},{") < _NESTED_ROWS:
            return self._placed(json, best) if best.cost < limit else self._inside(value, depth)
        inner = self._inside(value, depth)
        limit = min(limit, self.count(jsonrpc.encode(inner).decode()) + self._cost(before))
        made = as_table(inner, self.dictionary) if len(self.found) > before else None
        if made is not None:
            text = _joined(made)
            cost = self.count(text) + _PLACE * bool(depth) + self._cost(before)
            if cost < _CLEARLY * best.cost and cost < limit:
                return self._placed(json, _Found(text, cost - self._cost(before)))
        if best.cost < limit:
            for inside in list(self.found)[before:]:
                del self.found[inside]
            return self._placed(json, best)
        return inner

    def _inside(self, value: Any, depth: int) -> Any:
        if isinstance(value, dict):
            return {key: self.without(child, depth + 1) for key, child in value.items()}
        return [self.without(child, depth + 1) for child in value]

    def _placed(self, json: str, found: _Found) -> str:
        self.found[json] = found
        return f"{self.mark}{len(self.found)}"

    def _cost(self, before: int) -> int:
        return sum(found.cost for found in list(self.found.values())[before:])


def as_table(value: Any, dictionary: bool) -> Table | None:
    """A list or an object as one table, whatever it would cost; None where it makes none."""
    if len(value) < 2:
        return None
    kinds = set(map(type, value.values() if isinstance(value, dict) else value))
    if isinstance(value, list):
        if kinds == {dict}:
            return table(value, dictionary)
        if kinds == {list} and len(set(map(len, value))) == 1:
            return table([{position(at): item for at, item in enumerate(row)} for row in value], dictionary)
        return table([{ITEM: item} for item in value], dictionary) if kinds == {str} else None
    if kinds == {dict}:
        return table([{KEY: key, **row} for key, row in value.items()], dictionary)
    if kinds == {list}:
        return table(list(_members(value)), dictionary)
    return table([{KEY: key, ITEM: item} for key, item in value.items()], dictionary) if kinds <= _SCALARS else None


def _members(value: dict[str, list[JSON]]) -> Iterator[dict[str, JSON]]:
    for key, items in value.items():
        if not items:
            yield {KEYS: key}
        for item in items:
            yield {KEYS: key, ITEM: item}


def _joined(one: Table) -> str:
    return "\n".join([one.head, *one.lines])


# Reading

_NUMBERED = re.compile(r"(#+[0-9]+) ")


def decode(text: str) -> JSON:
    """The value a text stands for.

    Raises:
        ValueError: it is neither JSON nor of tables.
    """
    try:
        return _read(text.split("\n")) if text.startswith("#") else untable.read_json(text)
    except (AssertionError, LookupError, RecursionError) as error:
        raise ValueError(f"no table: {error}") from None


def _read(lines: list[str]) -> JSON:
    starts = [number for number, line in enumerate(lines) if line.startswith("#")]
    first, *others = (lines[start:end] for start, end in pairwise([*starts, len(lines)]))
    tables: dict[str, JSON] = {}
    for other in others:
        name = _NUMBERED.match(other[0])
        if name is None:
            raise ValueError("a table without a number")
        tables[name[1]] = _filled(untable.read(["#" + other[0][name.end() :], *other[1:]]), tables)
    if first[0][1:2] not in ("{", "["):
        return _filled(untable.read(first), tables)
    return _filled(untable.read_json(first[0][1:]), tables)


def _filled(value: JSON, tables: dict[str, JSON], depth: int = 0) -> JSON:
    if isinstance(value, str):
        return tables.get(value, value)
    if depth > _DEEPEST or not tables:
        return value
    if isinstance(value, dict):
        return {key: _filled(child, tables, depth + 1) for key, child in value.items()}
    if isinstance(value, list):
        return [_filled(child, tables, depth + 1) for child in value]
    return value
