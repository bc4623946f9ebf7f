"""Encodes a value as the text with the fewest tokens, compact JSON or JSON with tables, and decodes that text.

A value that is one table is written as that table. In a document with several tables, the first line is a `#` and the
JSON around the tables, with `"#1"` in place of the first table; or it is an object, written as a table without lines.
The tables follow, each after its number. JSON never begins with `#`, so a reader can tell the forms apart.
"""

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import msgspec

from deltamcp.results.tables import table_reader
from deltamcp.results.tables.table_writer import as_table, table_texts, write_object_table
from deltamcp.tokens import count
from deltamcp.values import JSON
from deltamcp.wire import jsonrpc
from deltamcp.wire.message_bounds import count_values
from deltamcp.work import Work, unlimited_work

LEGEND_MARK = "Table: "
"""Begins a legend."""
_FORMS = (
    (re.compile(r"\?[.,\t=\n]|\?\Z"), "a?: absent where empty"),
    (re.compile(r"[^,\t\n=*&]\[\](?:[.,\t=?\n]|\Z)"), "a[]: item of list a, empty: []; #rows:items"),
    (re.compile(r"[,\t]\."), ".b: prefix as before"),
    (re.compile(r"=(?:[^*,\t\n]+\*|\*[^,\t\n])"), "a=x*y: x, cell, y"),
    (re.compile(r"=\*(?:[,\t\n]|\Z)"), "a=*: text"),
    (re.compile(r"\{[^{}\n]+\}"), "{b}: column b"),
    (re.compile(r"(?:^|[,\t])&|\n&"), "&: lookup"),
)
"""The forms of a head, with the words that explain them."""
_EMPTY_CELL = re.compile(r"[,\t](?=[,\t]|$)|^(?=[,\t])", re.MULTILINE)
_MAX_HEAD_CHARS = 20_000
_MAX_ROW_CHARS = 20_000
"""An empty cell is looked for in so many characters of the rows."""


def legend_of(words: Sequence[str]) -> str:
    """Returns the line with the words that explain tables; empty if there are none."""
    return f"{LEGEND_MARK}{'; '.join(words)}" if words else ""


def table_legend(text: str) -> str:
    """Returns a line that explains the forms in the tables of a text; empty if they need no words."""
    return legend_of(table_words(text))


def table_words(text: str) -> tuple[str, ...]:
    """Returns the words that explain each of the forms in the tables of a text."""
    heads: list[str] = []
    rows: list[str] = []
    shown = heads
    for block in text.split("\n\n"):
        # A table begins after the rows of the one before it, and its head ends with an empty line.
        before, mark, head = f"\n{block}".rpartition("\n#") if shown is rows else ("", "", block)
        if shown is rows:
            rows.append(before if mark else block)
        if mark or shown is heads:
            heads.append(head)
        shown = rows
    lines = "\n".join(heads)[:_MAX_HEAD_CHARS].split("\n")
    found = "\n".join(line for line in lines if not line.startswith(("#{", "#[")))
    words = [word for form, word in _FORMS if form.search(found)]
    if _EMPTY_CELL.search("\n".join(rows)[:_MAX_ROW_CHARS]):
        words.insert(0, "empty cell: null")
    return tuple(words)


_MAX_DEPTH = 40
_MIN_CHARS = 300
"""Shorter JSON is sent as JSON."""
_MIN_TABLE_CHARS = 100
"""Parts with shorter JSON are not tried as tables."""
_EFFORT_FACTOR = 6
"""The search for tables encodes at most this many times the value's size."""
_PLACEHOLDER_TOKENS = 6
"""Tokens that a table's number takes in the document and before the table."""
_MAX_TABLE_SHARE = 0.95
"""The share of its JSON's tokens that a table inside a value may cost; a smaller saving does not justify a table."""
_CHARS_PER_STEP = 4
"""Characters of JSON that are searched for tables in the time of a step."""
_MIN_NESTED_ROWS = 4

_decode_json = msgspec.json.Decoder().decode


class EncodedText(NamedTuple):
    """A value as text, the form of that text, and the words that explain it where it needs some."""

    text: str
    form: Literal["json", "table"]
    words: tuple[str, ...] = ()
    legend: str = ""
    """The line with these words."""


def encode(
    value: JSON,
    *,
    tables: bool = True,
    dictionary: bool = True,
    model: str | float = "o200k",
    work: Work | None = None,
) -> EncodedText:
    """Encodes a value as text. With `dictionary`, a table may have values that repeat once, in its head.

    `work` counts the steps; without it the value is one's own, and there is no limit.

    Raises:
        ValueError: the value contains something that JSON cannot represent.
    """
    compact = jsonrpc.encode(value).decode()
    work = unlimited_work() if work is None else work
    work.scan(len(compact))
    if not tables or compact[0] not in "[{" or len(compact) < _MIN_CHARS:
        return EncodedText(compact, "json")
    mark = next((mark for mark in ("#", "##", "###") if f'"{mark}' not in compact), None)
    if mark is None:
        return EncodedText(compact, "json")
    work.spend(len(compact) // _CHARS_PER_STEP)
    search = _TableSearch(mark, dictionary, model, len(compact), work)
    text = _document_text(_decode_json(compact), compact, search)
    if text is None:
        return EncodedText(compact, "json")
    words = table_words(text)
    legend = legend_of(words)
    explained = search.count(text) + (search.count(f"\n[{legend}]") if words else 0)
    is_shorter = explained < search.count(compact)
    return EncodedText(text, "table", words, legend) if is_shorter else EncodedText(compact, "json")


def _document_text(value: Any, json: str, search: "_TableSearch") -> str | None:
    skeleton = search.extract_tables(value, json)
    tables = search.table_texts()
    if isinstance(skeleton, str):
        *_, last = search.found_tables.values()
        text = "\n".join([last.text, *tables[:-1]])
        plain = write_object_table(value, search.work) if isinstance(value, dict) else None
        return text if plain is None or search.count(text) <= search.count(plain) else plain
    text = "#" + jsonrpc.encode(skeleton).decode()
    plain = write_object_table(skeleton, search.work) if isinstance(skeleton, dict) and skeleton else None
    if plain is not None and search.count(plain) < _MAX_TABLE_SHARE * search.count(text):
        return "\n".join([plain, *tables])
    return "\n".join([text, *tables]) if tables else None


class _FoundTable(NamedTuple):
    text: str
    cost: int


class _TableSearch:
    """Replaces the tables in a value with placeholders, and collects the tables."""

    def __init__(self, mark: str, dictionary: bool, model: str | float, size: int, work: Work) -> None:
        self.mark, self.dictionary, self.model, self.work = mark, dictionary, model, work
        self.effort = _EFFORT_FACTOR * size + 1000
        self.found_tables: dict[str, _FoundTable] = {}
        """Tables by their JSON, in the order of their numbers."""
        self._counts: dict[str, int] = {}

    def count(self, text: str) -> int:
        if text not in self._counts:
            self._counts[text] = count(text, self.model)
        return self._counts[text]

    def table_texts(self) -> list[str]:
        return [f"{self.mark}{number} {found.text[1:]}" for number, found in enumerate(self.found_tables.values(), 1)]

    def extract_tables(self, value: Any, json: str, depth: int = 0) -> Any:
        """Returns the value with a placeholder for each table in it; only a placeholder where it is one table."""
        self.effort -= len(json)
        if len(json) < _MIN_TABLE_CHARS or self.effort < 0:
            return value
        if json in self.found_tables:
            self.work.spend(len(self.found_tables))
            return f"{self.mark}{list(self.found_tables).index(json) + 1}"
        texts, before = table_texts(value, self.dictionary, self.work), len(self.found_tables)
        text = min(texts, key=self.count) if len(texts) > 1 else "".join(texts)
        if not 0 < len(text) < len(json):
            return self._extract_inside(value, depth)
        best = _FoundTable(text, self.count(text) + _PLACEHOLDER_TOKENS * bool(depth))
        limit = self.count(json) * (_MAX_TABLE_SHARE if depth else 1)
        if text.count("},{") < _MIN_NESTED_ROWS:
            return self._place_table(json, best) if best.cost < limit else self._extract_inside(value, depth)
        inner = self._extract_inside(value, depth)
        limit = min(limit, self.count(jsonrpc.encode(inner).decode()) + self._cost_since(before))
        table = as_table(inner, self.dictionary, self.work) if len(self.found_tables) > before else None
        if table is not None:
            text = table.text
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
            return {key: self._extract_below(child, depth + 1) for key, child in value.items()}
        return [self._extract_below(child, depth + 1) for child in value]

    def _extract_below(self, value: Any, depth: int) -> Any:
        if depth > _MAX_DEPTH or not isinstance(value, dict | list):
            return value
        return self.extract_tables(value, jsonrpc.encode(value).decode(), depth)

    def _place_table(self, json: str, found: _FoundTable) -> str:
        self.found_tables[json] = found
        return f"{self.mark}{len(self.found_tables)}"

    def _cost_since(self, before: int) -> int:
        self.work.spend(1 + len(self.found_tables) // 16)
        return sum(found.cost for found in list(self.found_tables.values())[before:])


# Reading

_TABLE_NUMBER = re.compile(r"(#+[0-9]+) ")
_NOTE = re.compile(rf"\n\[(?:handle [\w-]+\.|{LEGEND_MARK})[^\n]*\]\Z")
"""What may be below a table: no line of one begins so, because a cell with a bracket is JSON."""


def decode(text: str, work: Work | None = None) -> JSON:
    """Decodes a text that `encode` wrote; the handle of the result and the legend of a table may be below it.

    `work` counts the values that the text stands for; without it the text is one's own, and there is no limit.

    Raises:
        ValueError: the text is neither JSON nor a document with tables.
        WorkLimitError: the value is too large.
    """
    try:
        if text.startswith("#"):
            text = _NOTE.sub("", text)
            return _EncodedTextReader(unlimited_work() if work is None else work).read(text.split("\n"))
        if work is not None:
            work.spend(count_values(text.encode(errors="replace")))
        return table_reader.read_json(text)
    except (AssertionError, LookupError, RecursionError) as error:
        raise ValueError(f"not a table: {error}") from None


class _EncodedTextReader:
    """Reads a document, and puts its tables where their numbers are."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._tables: dict[str, tuple[JSON, int]] = {}
        """Each table with the number of its values; several places may share it, and each counts."""
        self._values = 0

    def read(self, lines: list[str]) -> JSON:
        starts = [number for number, line in enumerate(lines) if line.startswith("#")]
        first, *others = (lines[start:end] for start, end in pairwise([*starts, len(lines)]))
        for other in others:
            name = _TABLE_NUMBER.match(other[0])
            if name is None:
                raise ValueError("a table has no number")
            table = table_reader.read_table(["#" + other[0][name.end() :], *other[1:]], self._work)
            self._values = 0
            self._tables[name[1]] = self._fill(table, 0), self._values
        is_table = first[0][1:2] not in ("{", "[")
        value = table_reader.read_table(first, self._work) if is_table else table_reader.read_json(first[0][1:])
        return self._fill(value, 0) if self._tables else value

    def _fill(self, value: JSON, depth: int) -> JSON:
        if isinstance(value, str):
            table, values = self._tables.get(value, (value, 1))
            self._count(values)
            return table
        self._count(1)
        if depth > _MAX_DEPTH:
            return value
        if isinstance(value, dict):
            return {key: self._fill(child, depth + 1) for key, child in value.items()}
        if isinstance(value, list):
            return [self._fill(child, depth + 1) for child in value]
        return value

    def _count(self, values: int) -> None:
        self._values += values
        self._work.spend(values)
