"""What an upstream says of an item: its hash, and what differs between two, for a person. Pure: does no I/O.

The hash ignores the order of keys and of what JSON Schema treats as a set, what the operator says that an upstream
varies, and numbers that were seen to vary.
"""

import itertools
import json
import re
import unicodedata
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

import msgspec
from msgspec import Struct

from deltamcp.catalog.text.clean_text import json_text, visible, visible_line
from deltamcp.errors import UsageError
from deltamcp.results import document
from deltamcp.values import JSON
from deltamcp.wire.canonical import encode_canonical, sha256_digest

_SCHEMAS = ("inputSchema", "outputSchema")
"""The members of a definition that are schemas."""
_SUBSCHEMAS = frozenset(
    {
        *("items", "additionalItems", "additionalProperties", "unevaluatedItems", "unevaluatedProperties"),
        *("contains", "propertyNames", "not", "if", "then", "else", "contentSchema"),
    }
)
_SUBSCHEMA_MAPS = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
_SUBSCHEMA_SETS = frozenset({"anyOf", "oneOf", "allOf"})
_VALUE_SETS = frozenset({"required", "enum", "type", "examples"})
_NUMBER = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,9})?)?(?:Z|[+-][0-9]{2}:?[0-9]{2})?"
    r"|[0-9]+(?:[.,:/-][0-9]+)*"
)
"""A time as RFC 3339 writes it, or digits with separators: nothing that a model could follow. Letters can be words,
hexadecimal digits too."""
_MAX_NUMBER_CHARS = 40
_ID = re.compile(r"\b(?:[0-9a-f]{8,64}|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})\b", re.IGNORECASE)
_WORD = re.compile(r"\w+")
_IGNORED = "…"
_WIDTH = 70
"""The columns of a part of a text: with what precedes it, a line is on one row of a terminal."""
_MAX_LINES = 10_000
"""The lines that a person may be expected to read."""
_PLAIN_KEY = re.compile(r"[A-Za-z0-9_$-]+")
"""A key that needs no quotes: no two paths are written alike."""
_PLAIN_NAME = re.compile(r"[A-Za-z0-9_./-]+")


class Variance(Struct, frozen=True):
    """What of an upstream's lists does not count, by JSON pointers into them, such as `/tools/search/description`."""

    ignored: Sequence[str] = ()
    """Values that do not count at all; `*` stands for any name, `**` for any number of them."""
    numbers: Collection[str] = ()
    """Texts and numbers of which the digits do not count."""


def definition_hash(place: str, definition: JSON, variance: Variance) -> str:
    """Returns the hash of a definition; `place` is its JSON pointer in the lists of its upstream."""
    form = definition_form(place, definition, variance)
    try:
        return sha256_digest(encode_canonical(form))
    except ValueError:  # a number that no double can hold, or half of a character
        return sha256_digest(json.dumps(form, sort_keys=True).encode())
    except RecursionError:
        return sha256_digest(msgspec.json.encode(form, order="sorted"))


def definition_form(place: str, definition: JSON, variance: Variance) -> JSON:
    """Returns a definition in the form in which those that say the same are equal; one that is nested too deeply for
    that counts as it is written."""
    try:
        return _Form(variance).of(place, definition)
    except RecursionError:
        return definition


def is_identical(definition: JSON, other: JSON) -> bool:
    """Returns whether two definitions are the same JSON but for the order of keys; to Python, true is equal to 1."""
    try:
        return msgspec.json.encode(definition, order="sorted") == msgspec.json.encode(other, order="sorted")
    except ValueError:  # half of a character
        return json.dumps(definition, sort_keys=True) == json.dumps(other, sort_keys=True)


def varying_numbers(place: str, definition: JSON, other: JSON) -> Iterator[str]:
    """Yields the pointers of the texts and numbers in which two listings of one process differ by digits only."""
    for difference in _differences(place, definition, other):
        if _without_numbers(difference.one) == _without_numbers(difference.two):
            yield difference.place


def reordered_texts(place: str, definition: JSON, other: JSON) -> list[str]:
    """Returns the pointers of the texts whose words are in another order, if two definitions differ in nothing else.

    Ids in hexadecimal digits do not count: servers make another one at every start.
    """
    differences = list(_differences(place, definition, other))
    return [one.place for one in differences] if all(map(_is_reordered, differences)) else []


class _Difference(NamedTuple):
    place: str
    one: JSON
    two: JSON


def _differences(place: str, one: JSON, two: JSON) -> Iterator[_Difference]:
    """Yields the values in which two definitions differ; None stands for one that is missing."""
    if isinstance(one, dict) and isinstance(two, dict):
        for key in sorted(one.keys() | two.keys()):
            yield from _differences(pointer(place, key), one.get(key), two.get(key))
    elif isinstance(one, list) and isinstance(two, list):
        for index, (child, other) in enumerate(itertools.zip_longest(one, two)):
            yield from _differences(pointer(place, str(index)), child, other)
    elif one != two or isinstance(one, bool) is not isinstance(two, bool):
        yield _Difference(place, one, two)


def _is_reordered(difference: _Difference) -> bool:
    texts = difference.one, difference.two
    words = [sorted(_WORD.findall(_ID.sub("0", text))) if isinstance(text, str) else None for text in texts]
    return words[0] is not None and words[0] == words[1]


def pointer(place: str, *names: str) -> str:
    """Returns the JSON pointer (RFC 6901) of what is at names within a place."""
    return place + document.pointer(*names)


def _without_numbers(value: JSON) -> JSON:
    if isinstance(value, str):
        return _NUMBER.sub(lambda found: "0" if len(found[0]) <= _MAX_NUMBER_CHARS else found[0], value)
    return 0 if isinstance(value, int | float) and not isinstance(value, bool) else value


class _Form:
    """Writes definitions so that those that say the same are equal."""

    def __init__(self, variance: Variance) -> None:
        self._ignored = re.compile("|".join(map(_pattern, variance.ignored))) if variance.ignored else None
        self._numbers = frozenset(variance.numbers)

    def of(self, place: str, definition: JSON) -> JSON:
        if not isinstance(definition, dict):
            return self._value(place, definition)
        return {
            key: (self._schema if key in _SCHEMAS else self._value)(pointer(place, key), value)
            for key, value in definition.items()
        }

    def _value(self, place: str, value: JSON) -> JSON:
        if self._ignored is not None and self._ignored.fullmatch(place):
            return _IGNORED
        if isinstance(value, dict):
            return {key: self._value(pointer(place, key), child) for key, child in value.items()}
        if isinstance(value, list):
            return [self._value(pointer(place, str(index)), child) for index, child in enumerate(value)]
        return _without_numbers(value) if place in self._numbers else value

    def _schema(self, place: str, schema: JSON) -> JSON:
        if not isinstance(schema, dict) or (self._ignored is not None and self._ignored.fullmatch(place)):
            return self._value(place, schema)
        return {key: self._keyword(pointer(place, key), key, value) for key, value in schema.items()}

    def _keyword(self, place: str, key: str, value: JSON) -> JSON:
        if key in _SUBSCHEMAS and isinstance(value, dict):
            return self._schema(place, value)
        if key in _SUBSCHEMA_MAPS and isinstance(value, dict):
            return {name: self._schema(pointer(place, name), child) for name, child in value.items()}
        if key in _SUBSCHEMA_SETS and isinstance(value, list):
            return _in_order([self._schema(pointer(place, str(index)), child) for index, child in enumerate(value)])
        if key in ("prefixItems", "items") and isinstance(value, list):
            return [self._schema(pointer(place, str(index)), child) for index, child in enumerate(value)]
        if key == "dependentRequired" and isinstance(value, dict):
            return {name: self._keyword(pointer(place, name), "required", child) for name, child in value.items()}
        form = self._value(place, value)
        return _in_order(form) if key in _VALUE_SETS and isinstance(form, list) else form


def _in_order(values: list[JSON]) -> list[JSON]:
    return sorted(values, key=lambda value: json.dumps(value, sort_keys=True))


def _pattern(glob: str) -> str:
    """Returns the regular expression of a JSON pointer with globs."""
    parts = re.split(r"(\*\*|\*)", glob)
    return "".join({"**": ".*", "*": "[^/]*"}.get(part, re.escape(part)) for part in parts)


class UnreadableDiffError(UsageError):
    """A difference is too long to be read, and so to be approved."""


def diff_lines(old: JSON, new: JSON) -> list[str]:
    """Returns lines that begin with `-` for what was, and with `+` for what is; others are the same in both.

    Each has `path: value`, or, of a long text, `| ` and a part of it. A definition cannot imitate a line: what could
    end one is escaped, keys that are no plain words are quoted, and no line is longer than a row of a terminal.

    Raises:
        UnreadableDiffError: there are too many lines.
    """
    before, after = ({} if value is None else dict(_values(value)) for value in (old, new))
    lines: list[str] = []
    for path in sorted({*before, *after}):
        lines += _changed_rows(before.get(path, []), after.get(path, []))
        if len(lines) > _MAX_LINES:
            raise UnreadableDiffError(
                f"What changed has more than {_MAX_LINES:,} lines, which nobody reads, so that it cannot be approved; "
                'on_changed = "accept" of its server takes it as it is.'
            )
    return lines


def _changed_rows(before: list[str], after: list[str]) -> Iterator[str]:
    if before == after:
        return
    if before[:1] == after[:1]:  # the path of a text of several lines
        yield f" {before[0]}"
        before, after = before[1:], after[1:]
    if len(before) + len(after) > _MAX_LINES:  # to compare them takes too long
        yield from (f"-{row}" for row in before)
        yield from (f"+{row}" for row in after)
        return
    import difflib  # 1 ms, for those alone who look at a difference

    compared = difflib.unified_diff(before, after, n=1, lineterm="")
    yield from (row for row in compared if not row.startswith(("---", "+++", "@@")))


def name_text(name: str) -> str:
    """Writes a name on one line, so that it looks like nothing else: quoted unless it is a plain word."""
    return name if _PLAIN_NAME.fullmatch(name) else json_text(name)


def _key_text(key: str) -> str:
    return key if _PLAIN_KEY.fullmatch(key) else json_text(key)


def _values(value: JSON, path: str = "") -> Iterator[tuple[str, list[str]]]:
    """Yields each value by its path, in rows that begin with a space: one, or the path and the parts of a text."""
    if isinstance(value, dict) and value:
        for key, child in value.items():
            yield from _values(child, f"{path}.{_key_text(key)}" if path else _key_text(key))
        return
    if isinstance(value, list) and any(isinstance(item, dict | list) for item in value):
        for index, item in enumerate(value):
            yield from _values(item, f"{path}[{index}]")
        return
    is_text = isinstance(value, str) and "\n" in value
    row = f" {path}: {json_text(value)}"
    if not is_text and _end_of_part(row, 0) == len(row):
        yield path, [row]
        return
    first, *others = _parts(f"{path}:")
    rows = [f" {first}", *(f"   > {part}" for part in others)]
    for line in visible(value).split("\n") if isinstance(value, str) else [json_text(value)]:
        rows += (f"   | {part}" for part in _parts(visible_line(line)))
    yield path, rows


def _parts(line: str) -> list[str]:
    """Divides a line into parts that fit a row of a terminal, at a space where there is one."""
    parts: list[str] = []
    start = 0
    while (end := _end_of_part(line, start)) < len(line):
        space = line.rfind(" ", start + 1, end)
        end = end if space < 0 else space + 1
        parts.append(line[start:end])
        start = end
    return [*parts, line[start:]]


def _end_of_part(line: str, start: int) -> int:
    """Returns where a part that begins at `start` ends because it would be wider than a row."""
    columns = 0
    for place in range(start, len(line)):
        columns += 2 if unicodedata.east_asian_width(line[place]) in "WF" else 1
        if columns > _WIDTH:
            return place
    return len(line)
