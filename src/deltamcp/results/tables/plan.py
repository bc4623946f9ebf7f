"""Plans how rows become a table: flat columns, each as a constant, as a template with or without cells, or as cells."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from deltamcp.results.tables.syntax import (
    ABSENT,
    ABSENT_PARENT,
    PLACEHOLDER,
    AbsentKey,
    AbsentParent,
    ColumnPath,
    ColumnReference,
    TemplatePart,
    is_json,
    json_text,
    looks_like_json,
    position_column,
    write_template,
)
from deltamcp.values import JSON
from deltamcp.work import CHARS_PER_STEP, Work

_MAX_REFERENCES = 4
_TEXTS_PER_STEP = 8
"""Texts of a column that are compared in the time of a step."""
_MIN_IDENTIFIER_RUN = 8
"""A prefix may end within a word only after this many letters: a long run is the beginning of an identifier."""


class TemplateSource(NamedTuple):
    """A column that the templates of other columns may refer to."""

    path: ColumnPath
    texts: Sequence[str]
    typed: bool
    """Whether the values are numbers, which a template alone would read as text."""


class ColumnTemplate(NamedTuple):
    """The template that the texts of a column follow."""

    parts: list[TemplatePart]
    cells: list[str] | None
    """The text for `*` in each row; None where the template has no `*`."""


def find_template(values: Sequence[str], likely: Sequence[TemplateSource], work: Work) -> ColumnTemplate:
    """Returns the template of the values: literals, references to likely sources, and at most one `*` for the rest."""
    rest: Sequence[str] = values
    left: list[TemplatePart] = []
    right: list[TemplatePart] = []
    for _ in range(_MAX_REFERENCES):
        found = _leading_reference(rest, likely, work)
        if found is None:
            break
        literal, source = found
        left += [literal] * bool(literal) + [ColumnReference(source.path)]
        rest = [text[len(literal) + len(known) :] for text, known in zip(rest, source.texts, strict=True)]
    prefix = common_prefix(rest)
    prefix = prefix[: _whole_words_length(prefix, rest)]
    rest = [text[len(prefix) :] for text in rest] if prefix else rest
    left += [prefix] * bool(prefix)
    for _ in range(_MAX_REFERENCES):
        found = _trailing_reference(rest, likely, work)
        if found is None:
            break
        literal, source = found
        right = [ColumnReference(source.path), *[literal] * bool(literal), *right]
        rest = [text[: len(text) - len(literal) - len(known)] for text, known in zip(rest, source.texts, strict=True)]
    suffix = common_prefix([text[::-1] for text in rest])
    suffix = suffix[: _whole_words_length(suffix, [text[::-1] for text in rest])][::-1]
    if suffix:
        rest = [text[: -len(suffix)] for text in rest]
        right.insert(0, suffix)
    if any(rest):
        return ColumnTemplate([*left, PLACEHOLDER, *right], list(rest))
    return ColumnTemplate(_merge_literals([*left, *right]), None)


def _merge_literals(parts: list[TemplatePart]) -> list[TemplatePart]:
    merged: list[TemplatePart] = []
    for part in parts:
        if isinstance(part, str) and merged and isinstance(merged[-1], str):
            merged[-1] += part
        else:
            merged.append(part)
    return merged


def _leading_reference(
    rest: Sequence[str], likely: Sequence[TemplateSource], work: Work
) -> tuple[str, TemplateSource] | None:
    if not likely:
        return None
    first, reach = rest[0], len(common_prefix(rest))
    for source in likely:
        for at in _find_positions(first, source.texts[0], reach):
            work.spend()
            if not is_word_boundary(first, at) or not is_word_boundary(first, at + len(source.texts[0])):
                continue
            work.spend(len(rest) // _TEXTS_PER_STEP)
            if all(text.startswith(known, at) for text, known in zip(rest, source.texts, strict=True)):
                return first[:at], source
    return None


def _trailing_reference(
    rest: Sequence[str], likely: Sequence[TemplateSource], work: Work
) -> tuple[str, TemplateSource] | None:
    if not likely:
        return None
    first = rest[0]
    for source in likely:
        at = first.rfind(source.texts[0])
        if at < 0 or not is_word_boundary(first, at) or not is_word_boundary(first, at + len(source.texts[0])):
            continue
        work.spend(1 + len(rest) // _TEXTS_PER_STEP)
        tail = first[at + len(source.texts[0]) :]
        if all(text.endswith(known + tail) for text, known in zip(rest, source.texts, strict=True)):
            return tail, source
    return None


def _find_positions(text: str, part: str, reach: int) -> Iterator[int]:
    at = text.find(part)
    while 0 <= at <= reach:
        yield at
        at = text.find(part, at + 1)


def is_word_boundary(text: str, at: int) -> bool:
    """Whether no word or number continues across a position."""
    if at == 0 or at == len(text):
        return True
    before, after = text[at - 1], text[at]
    return not (before.isalpha() and after.isalpha()) and not (before.isdigit() and after.isdigit())


def common_prefix(texts: Sequence[str]) -> str:
    low, high = min(texts), max(texts)
    if low == high:
        return low
    for at, character in enumerate(low):
        if character != high[at]:
            return low[:at]
    return low


def _whole_words_length(prefix: str, texts: Sequence[str]) -> int:
    """Returns the length of a common prefix after which no word or number is cut."""
    end = len(prefix)
    if not prefix or not prefix[-1].isalnum():
        return end
    same = str.isdigit if prefix[-1].isdigit() else str.isalpha
    if not any(same(text[end : end + 1]) for text in texts):
        return end
    start = end
    while start and same(prefix[start - 1]):
        start -= 1
    return end if end - start >= _MIN_IDENTIFIER_RUN else start


MAX_COLUMNS = 400
MAX_MEMBERS = 2000
"""The limit for a table of one object, whose columns are not compared with each other."""
MAX_DEPTH = 8
MAX_POSITIONED_ITEMS = 3
_CELLS_PER_STEP = 8
"""Cells of a column that are made or compared in the time of a step."""


class FlatRows(NamedTuple):
    """Rows as columns of values, and the groups that the columns form."""

    row_count: int
    columns: dict[ColumnPath, list[Any]]
    optional_groups: dict[ColumnPath, list[Any]]
    """Values of the groups that are null or absent in some rows."""
    group_copies: dict[ColumnPath, ColumnPath]
    """Groups that equal another group in every row, with the path of that group."""
    key_order: list[ColumnPath]
    """Columns, groups and copies in the order of the keys in the rows."""


def flatten(rows: Sequence[dict[str, JSON]], work: Work) -> FlatRows | None:
    """Returns the rows as columns; None where the rows are empty or have too few keys in common."""
    flat = FlatRows(len(rows), {}, {}, {}, [])
    groups: list[tuple[ColumnPath, list[Any]]] = []
    if not _add_columns(flat, groups, (), list(rows), work) or not flat.columns:
        return None
    return flat


def _add_columns(
    flat: FlatRows, groups: list[tuple[ColumnPath, list[Any]]], above: ColumnPath, values: list[Any], work: Work
) -> bool:
    keys = _all_keys(values)
    if keys is None:
        return False
    for key in keys:
        below = [value.get(key, ABSENT) if type(value) is dict else ABSENT_PARENT for value in values]
        path = (*above, key)
        flat.key_order.append(path)
        if not _add_group(flat, groups, path, below, work):
            flat.columns[path] = below
            if len(flat.columns) > (MAX_COLUMNS if flat.row_count > 1 else MAX_MEMBERS):
                return False
    return True


def _all_keys(values: list[Any]) -> list[str] | None:
    """Returns the keys of all objects; None where the objects have on average less than a third of them."""
    objects = [value for value in values if type(value) is dict]
    first = objects[0].keys()
    if all(value.keys() == first for value in objects):
        return list(first)
    keys: dict[str, None] = {}
    member_count = 0
    for value in objects:
        keys.update(dict.fromkeys(value))
        member_count += len(value)
        if len(keys) > MAX_COLUMNS:
            return None
    return list(keys) if member_count * 3 >= len(keys) * len(objects) else None


def _add_group(
    flat: FlatRows, groups: list[tuple[ColumnPath, list[Any]]], path: ColumnPath, members: list[Any], work: Work
) -> bool:
    """Adds an object of the rows as a group of columns; return whether it is one."""
    values = _key_by_position(members) if flat.row_count == 1 else members
    kinds = set(map(type, values))
    if dict not in kinds or len(path) > MAX_DEPTH or not kinds <= {dict, type(None), AbsentKey, AbsentParent}:
        return False
    if AbsentKey in kinds and type(None) in kinds:
        return False
    optional = AbsentKey in kinds or type(None) in kinds
    if optional and not _has_present_key(values):
        return False
    objects = [value for value in values if type(value) is dict]
    if not any(objects) or _all_keys(objects) is None:
        return False
    if AbsentKey not in kinds and AbsentParent not in kinds:
        for other, others in groups:
            work.spend(1 + len(members) // _CELLS_PER_STEP)
            if others[0] == members[0] and others == members and json_text(others) == json_text(members):
                flat.group_copies[path] = other
                return True
        groups.append((path, members))
    column_count, key_count = len(flat.columns), len(flat.key_order)
    if optional:
        flat.optional_groups[path] = values
    if _add_columns(flat, groups, path, values, work):
        return True
    for added in list(flat.columns)[column_count:]:
        del flat.columns[added]
    for added in flat.key_order[key_count:]:
        flat.optional_groups.pop(added, None)
        flat.group_copies.pop(added, None)
    del flat.key_order[key_count:]
    flat.optional_groups.pop(path, None)
    groups[:] = [group for group in groups if group[0][: len(path)] != path]
    return False


def _key_by_position(values: list[Any]) -> list[Any]:
    """Returns a list of few objects, in a table of one object, as an object whose keys are positions."""
    items = values[0]
    if (
        type(items) is not list
        or not 0 < len(items) <= MAX_POSITIONED_ITEMS
        or any(type(item) is not dict for item in items)
    ):
        return values
    return [{position_column(at): item for at, item in enumerate(items)}]


def _has_present_key(values: list[Any]) -> bool:
    """Whether a key has a plain value in every object, so that its cell shows whether a row has the object."""
    objects = [value for value in values if type(value) is dict]
    return any(
        all(value.get(key) is not None and type(value.get(key)) is not dict for value in objects) for key in objects[0]
    )


_ROWS_PER_STEP = 16
"""Cells of a column that are compared in the time of a step."""


class PlannedColumn:
    """One column and how a table writes it."""

    __slots__ = ("absent", "cells", "parts", "path", "texts", "typed", "values")

    def __init__(self, path: ColumnPath, values: list[Any]) -> None:
        self.path: ColumnPath = path
        self.values: list[Any] = values
        self.absent: bool = False
        self.parts: list[TemplatePart] | None = None
        self.cells: list[Any] | None = None
        """The values to write row by row, null and absent included; None for a column without cells."""
        self.texts: list[str | None] | None = None
        """The values as text for references from other columns; None where others cannot refer to the column."""
        self.typed: bool = False


class Plan:
    """How a table writes each column of flat rows."""

    def __init__(self, flat: FlatRows, work: Work) -> None:
        self.flat = flat
        self.work = work
        self.row_count: int = flat.row_count
        self.columns: list[PlannedColumn] = [PlannedColumn(path, values) for path, values in flat.columns.items()]
        self.constants: list[PlannedColumn] = []
        self.sources: list[PlannedColumn] = []
        texts: list[tuple[int, int, PlannedColumn]] = []
        for number, column in enumerate(self.columns):
            kinds = set(map(type, column.values))
            column.absent = type(ABSENT) in kinds
            if self._add_if_constant(column, kinds):
                continue
            column.cells = column.values
            inner = kinds - {type(ABSENT), type(ABSENT_PARENT), type(None)}
            if inner == {str} and not (column.absent and type(None) in kinds):
                texts.append((max(len(value) for value in column.values if isinstance(value, str)), number, column))
            elif inner == {int}:
                self._plan_numbers(column)
        # A column can only refer to columns with shorter texts, so no two columns refer to each other.
        for _, _, column in sorted(texts, key=lambda entry: entry[:2]):
            self._plan_template(column)
        if self.row_count > 1:  # a single row has a group or not
            for group in sorted(flat.optional_groups, key=len, reverse=True):
                self._ensure_visible(group)

    def _add_if_constant(self, column: PlannedColumn, kinds: set[type]) -> bool:
        values = column.values
        inner = kinds - {type(ABSENT_PARENT)}
        if len(inner) != 1 or column.absent:
            return False
        if len(inner) != len(kinds):
            values = [value for value in values if value is not ABSENT_PARENT]
        first = values[0]
        if values.count(first) != len(values):
            return False
        if isinstance(first, list | dict) and len(set(map(json_text, values))) != 1:
            return False
        if isinstance(first, float) and len(set(map(json_text, values))) != 1:  # 0.0 and -0.0
            return False
        self.constants.append(column)
        return True

    def _plan_numbers(self, column: PlannedColumn) -> None:
        texts = [str(value) if isinstance(value, int) else None for value in column.values]
        for source in self.sources:
            self.work.spend(1 + self.row_count // _ROWS_PER_STEP)
            if source.typed and source.values == column.values and not column.absent:
                column.parts, column.cells = [ColumnReference(source.path)], None
                return
        column.texts, column.typed = texts, True
        self.sources.append(column)

    def _plan_template(self, column: PlannedColumn) -> None:
        values = column.values
        text_rows = [row for row, value in enumerate(values) if isinstance(value, str)]
        full = len(text_rows) == self.row_count
        texts: list[str] = values if full else [values[row] for row in text_rows]
        column.texts = values if full else [value if isinstance(value, str) else None for value in values]
        self.sources.append(column)
        template = find_template(texts, self._likely_sources(texts, text_rows, full), self.work)
        if template.cells is None and self._is_derivable(column, template.parts, full):
            column.parts, column.cells = template.parts, None
            return
        if template.cells is None:
            template = find_template(texts, [], self.work)
        self._plan_affixes(column, template.parts, template.cells or texts, text_rows, texts)

    def _likely_sources(self, texts: list[str], text_rows: list[int], full: bool) -> list[TemplateSource]:
        """Returns the sources whose texts are part of the texts in three sample rows, longest first."""
        sample = {0, len(texts) // 2, len(texts) - 1}
        in_sample = [(texts[place], text_rows[place]) for place in sample]
        likely: list[TemplateSource] = []
        steps = len(self.sources) * (1 + sum(len(text) for text, _ in in_sample) // CHARS_PER_STEP)
        for source in self.sources[:-1]:
            assert source.texts is not None
            if not all((known := source.texts[row]) and known in text for text, row in in_sample):
                continue
            steps += 1 + self.row_count // _ROWS_PER_STEP
            source_texts = source.texts if full else [source.texts[row] for row in text_rows]
            if None not in source_texts:
                likely.append(TemplateSource(source.path, source_texts, source.typed))  # type: ignore[arg-type]
        self.work.spend(steps)
        return sorted(likely, key=lambda source: -len(source.texts[0]))

    def _is_derivable(self, column: PlannedColumn, parts: list[TemplatePart], full: bool) -> bool:
        """Whether a template without cells gives the right value in every row.

        In rows without a text, a referenced column must lack a text too.
        """
        by_path = {source.path: source for source in self.sources}
        used = [by_path[part.path] for part in parts if isinstance(part, ColumnReference)]
        if not used or (len(parts) == 1 and used[0].typed) or not _is_writable(parts):
            return False
        if is_json(write_template(parts, column.path, (), "\n")):
            return False
        return full or all(
            any(source.texts[row] is None for source in used)  # type: ignore[index]
            for row, value in enumerate(column.values)
            if value is None or value is ABSENT
        )

    def _plan_affixes(
        self, column: PlannedColumn, parts: list[TemplatePart], cells: list[str], text_rows: list[int], texts: list[str]
    ) -> None:
        saved = sum(map(len, texts)) - sum(map(len, cells))
        written = sum(len(part) if isinstance(part, str) else 3 for part in parts)
        if saved <= written + 4 or not _is_writable(parts):
            if not any(map(looks_like_json, texts)):
                return
            parts, cells = [PLACEHOLDER], texts
        column.parts = parts
        column.cells = list(column.values)
        for row, text in zip(text_rows, cells, strict=True):
            column.cells[row] = text

    def _ensure_visible(self, group: ColumnPath) -> None:
        """Gives every row that has an optional group a cell in the group that is not empty."""
        below = [column for column in self.columns if column.path[: len(group)] == group]
        rows = [row for row, value in enumerate(self.flat.optional_groups[group]) if isinstance(value, dict)]
        shown = [column.cells for column in below if column.cells is not None]
        if all(any(_has_value(cells[row]) for cells in shown) for row in rows):
            return
        always = [column for column in below if all(_has_value(column.values[row]) for row in rows)]
        self._force_cells(min(always, key=lambda column: len(str(column.values[rows[0]]))))

    def _force_cells(self, column: PlannedColumn) -> None:
        if column in self.constants:
            self.constants.remove(column)
        column.parts, column.cells = None, column.values


def _is_writable(parts: list[TemplatePart]) -> bool:
    return all(part.isprintable() for part in parts if isinstance(part, str))


def _has_value(value: Any) -> bool:
    return value is not None and value is not ABSENT and value is not ABSENT_PARENT
