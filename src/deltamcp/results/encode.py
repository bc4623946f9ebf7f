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

from deltamcp.results.tables import table_reader
from deltamcp.results.tables.syntax import ITEM_COLUMN, KEY_COLUMN, KEYS_COLUMN, position_column
from deltamcp.results.tables.table_writer import TextTable, write_object_table, write_table
from deltamcp.tokens import count
from deltamcp.values import JSON
from deltamcp.wire import jsonrpc

TABLE_LEGEND = "Tables: a=x*y: x, cell, y; {b}: column b; &: lookup."
"""What a model should have read before its first table."""

_MAX_DEPTH = 40
_MIN_CHARS = 300
"""Characters of JSON from which on another form is worth a reader's while."""
_MIN_TABLE_CHARS = 100
"""Characters of JSON below which no table is tried."""
_EFFORT_FACTOR = 6
"""How many times the value's own size is looked at on the search for tables."""
_PLACEHOLDER_TOKENS = 6
"""Tokens a table's number takes, here and there."""
_MAX_TABLE_SHARE = 0.95
"""What a table inside a value costs of its JSON, at most: for less it is not worth looking elsewhere."""
_SCALAR_TYPES = frozenset({str, int, float})
_MIN_NESTED_ROWS = 4

_decode_json = msgspec.json.Decoder().decode


class EncodedText(NamedTuple):
    text: str
    form: Literal["json", "table"]


def encode(value: JSON, *, tables: bool = True, dictionary: bool = True, model: str | float = "o200k") -> EncodedText:
    """The value as text. `dictionary` lets tables state values that repeat once, in the head.

    Raises:
        ValueError: the value holds something JSON cannot say.
    """
    compact = jsonrpc.encode(value).decode()
    if not tables or compact[0] not in "[{" or len(compact) < _MIN_CHARS:
        return EncodedText(compact, "json")
    mark = next((mark for mark in ("#", "##", "###") if f'"{mark}' not in compact), None)
    if mark is None:
        return EncodedText(compact, "json")
    search = _TableSearch(mark, dictionary, model, len(compact))
    made = _document_text(_decode_json(compact), search)
    if made is None or search.count(made) >= search.count(compact):
        return EncodedText(compact, "json")
    return EncodedText(made, "table")


def _document_text(value: Any, search: "_TableSearch") -> str | None:
    skeleton = search.extract_tables(value)
    tables = search.table_texts()
    if isinstance(skeleton, str):
        *_, last = search.found_tables.values()
        text = "\n".join([last.text, *tables[:-1]])
        plain = write_object_table(value) if isinstance(value, dict) else None
        return text if plain is None or search.count(text) <= search.count(plain) else plain
    text = "#" + jsonrpc.encode(skeleton).decode()
    plain = write_object_table(skeleton) if isinstance(skeleton, dict) and skeleton else None
    if plain is not None and search.count(plain) < _MAX_TABLE_SHARE * search.count(text):
        return "\n".join([plain, *tables])
    return "\n".join([text, *tables]) if tables else None


class _FoundTable(NamedTuple):
    text: str
    cost: int


class _TableSearch:
    """Tables taken out of a value, and what stands in their places."""

    def __init__(self, mark: str, dictionary: bool, model: str | float, size: int) -> None:
        self.mark, self.dictionary, self.model = mark, dictionary, model
        self.effort = _EFFORT_FACTOR * size + 1000
        self.found_tables: dict[str, _FoundTable] = {}
        """By their JSON, in the order of their numbers."""
        self._counts: dict[str, int] = {}

    def count(self, text: str) -> int:
        if text not in self._counts:
            self._counts[text] = count(text, self.model)
        return self._counts[text]

    def table_texts(self) -> list[str]:
        return [f"{self.mark}{number} {found.text[1:]}" for number, found in enumerate(self.found_tables.values(), 1)]

    def extract_tables(self, value: Any, depth: int = 0) -> Any:
        """The value with marks for the tables in it; a mark, where it is one."""
        if depth > _MAX_DEPTH or not isinstance(value, dict | list):
            return value
        json = jsonrpc.encode(value).decode()
        self.effort -= len(json)
        if len(json) < _MIN_TABLE_CHARS or self.effort < 0:
            return value
        if json in self.found_tables:
            return f"{self.mark}{list(self.found_tables).index(json) + 1}"
        made = as_table(value, self.dictionary)
        text, before = "" if made is None else _table_text(made), len(self.found_tables)
        if not 0 < len(text) < len(json):
            return self._extract_inside(value, depth)
        best = _FoundTable(text, self.count(text) + _PLACEHOLDER_TOKENS * bool(depth))
        limit = self.count(json) * (_MAX_TABLE_SHARE if depth else 1)
        if text.count("},{") < _MIN_NESTED_ROWS:
            return self._place_table(json, best) if best.cost < limit else self._extract_inside(value, depth)
        inner = self._extract_inside(value, depth)
        limit = min(limit, self.count(jsonrpc.encode(inner).decode()) + self._cost_since(before))
        made = as_table(inner, self.dictionary) if len(self.found_tables) > before else None
        if made is not None:
            text = _table_text(made)
            cost = self.count(text) + _PLACEHOLDER_TOKENS * bool(depth) + self._cost_since(before)
            if cost < _MAX_TABLE_SHARE * best.cost and cost < limit:
                return self._place_table(json, _FoundTable(text, cost - self._cost_since(before)))
        if best.cost < limit:
            for inside in list(self.found_tables)[before:]:
                del self.found_tables[inside]
            return self._place_table(json, best)
        return inner

    def _extract_inside(self, value: Any, depth: int) -> Any:
        if isinstance(value, dict):
            return {key: self.extract_tables(child, depth + 1) for key, child in value.items()}
        return [self.extract_tables(child, depth + 1) for child in value]

    def _place_table(self, json: str, found: _FoundTable) -> str:
        self.found_tables[json] = found
        return f"{self.mark}{len(self.found_tables)}"

    def _cost_since(self, before: int) -> int:
        return sum(found.cost for found in list(self.found_tables.values())[before:])


def as_table(value: Any, dictionary: bool) -> TextTable | None:
    """A list or an object as one table, whatever it would cost; None where it makes none."""
    if len(value) < 2:
        return None
    kinds = set(map(type, value.values() if isinstance(value, dict) else value))
    if isinstance(value, list):
        if kinds == {dict}:
            return write_table(value, dictionary)
        if kinds == {list} and len(set(map(len, value))) == 1:
            return write_table(
                [{position_column(at): item for at, item in enumerate(row)} for row in value], dictionary
            )
        return write_table([{ITEM_COLUMN: item} for item in value], dictionary) if kinds == {str} else None
    if kinds == {dict}:
        return write_table([{KEY_COLUMN: key, **row} for key, row in value.items()], dictionary)
    if kinds == {list}:
        return write_table(list(_list_member_rows(value)), dictionary)
    return (
        write_table([{KEY_COLUMN: key, ITEM_COLUMN: item} for key, item in value.items()], dictionary)
        if kinds <= _SCALAR_TYPES
        else None
    )


def _list_member_rows(value: dict[str, list[JSON]]) -> Iterator[dict[str, JSON]]:
    for key, items in value.items():
        if not items:
            yield {KEYS_COLUMN: key}
        for item in items:
            yield {KEYS_COLUMN: key, ITEM_COLUMN: item}


def _table_text(one: TextTable) -> str:
    return "\n".join([one.head, *one.lines])


# Reading

_TABLE_NUMBER = re.compile(r"(#+[0-9]+) ")


def decode(text: str) -> JSON:
    """The value a text stands for.

    Raises:
        ValueError: it is neither JSON nor of tables.
    """
    try:
        return _read_document(text.split("\n")) if text.startswith("#") else table_reader.read_json(text)
    except (AssertionError, LookupError, RecursionError) as error:
        raise ValueError(f"no table: {error}") from None


def _read_document(lines: list[str]) -> JSON:
    starts = [number for number, line in enumerate(lines) if line.startswith("#")]
    first, *others = (lines[start:end] for start, end in pairwise([*starts, len(lines)]))
    tables: dict[str, JSON] = {}
    for other in others:
        name = _TABLE_NUMBER.match(other[0])
        if name is None:
            raise ValueError("a table without a number")
        tables[name[1]] = _fill_tables(table_reader.read_table(["#" + other[0][name.end() :], *other[1:]]), tables)
    if first[0][1:2] not in ("{", "["):
        return _fill_tables(table_reader.read_table(first), tables)
    return _fill_tables(table_reader.read_json(first[0][1:]), tables)


def _fill_tables(value: JSON, tables: dict[str, JSON], depth: int = 0) -> JSON:
    if isinstance(value, str):
        return tables.get(value, value)
    if depth > _MAX_DEPTH or not tables:
        return value
    if isinstance(value, dict):
        return {key: _fill_tables(child, tables, depth + 1) for key, child in value.items()}
    if isinstance(value, list):
        return [_fill_tables(child, tables, depth + 1) for child in value]
    return value
