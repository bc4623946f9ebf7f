"""Writes rows as a text table: the head has what the rows share, and each row has a line with the rest.

    #1 id,name=Dr *,user?.login,.id,&1  the number and the columns of the lines; `*` is the place of the cell in a text
    url=https://example.com/{id}        columns without cells: derived from other columns,
    user.type,.kind=User                or constant
    &1,body                             columns that are looked up: by a number in the lines,
    0,a long text that repeats
    &user.login,.mail                   or by another column
    jo,jo@example.com
                                        an empty line, and then the rows
    7,Who,jo,12,0

A table of one column may have its cells in one line. `#2:3 id,files[].name` has 2 rows with 3 files together, and a
line for each of these; without `id` it has a line for each list.

`syntax` describes cells, names and templates.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from deltamcp.results.tables.item_rows import find_item_rows, split_by_sizes
from deltamcp.results.tables.plan import Plan, PlannedColumn, flatten, is_word_boundary
from deltamcp.results.tables.syntax import (
    ABSENT_PARENT,
    ITEM_COLUMN,
    KEY_COLUMN,
    KEYS_COLUMN,
    OBJECT_HEAD,
    ColumnPath,
    ColumnReference,
    HeadWriter,
    TemplatePart,
    looks_like_json,
    position_column,
    reference_text,
    write_cells,
    write_constant,
    write_template,
)
from deltamcp.values import JSON
from deltamcp.work import Work

_SCALAR_TYPES = frozenset({str, int, float})
_CONSTANT_TYPES = frozenset({int, float, bool})
_MIN_ROWS = 4
_MAX_LOOKUPS = 6
_CELLS_PER_STEP = 8
"""Cells of two columns that are compared in the time of a step."""
_SAMPLE_ROWS = 100
_CHARS_PER_TOKEN = 3.2
"""Average characters of a token in a cell."""
_MIN_LOOKUP_SAVING = 16
_MIN_MEMBER_SAVING = 10
_MIN_NUMBERED_SAVING = 40
"""Tokens that a lookup, a member of it and a numbered lookup must save, to be worth the model's effort."""
_MIN_NUMBERED_CHARS = 12
"""Cells that are shorter on average are not replaced by numbers, so that a line stays readable."""
_NAME_BONUS_TOKENS = 1.5
"""Tokens per line that a key may cost more if it is a name rather than a number."""


class Lookup(NamedTuple):
    """Columns whose cells move from the rows into the head."""

    key: int | None
    """The number of the key column; None where the rows have the number of the lookup's line instead."""
    members: list[int]
    cells: Sequence[str]
    """The cells that stay in the rows: those of the key column, or numbers."""
    lines: dict[str, tuple[str, ...]]
    """The cells of the members, by the cell that stays in the rows."""


def find_lookups(columns: list[list[str]], work: Work) -> list[Lookup]:
    """Returns the lookups that save tokens, given the cells of all columns."""
    size = len(columns[0])
    if size < _MIN_ROWS:
        return []
    distinct = [len(set(cells)) for cells in columns]
    keys = {
        key: _determined_columns(columns, distinct, key, work)
        for key, values in enumerate(distinct)
        if values * 2 <= size
    }
    lookups: list[Lookup] = []
    while keys and len(lookups) < _MAX_LOOKUPS:
        gain, numbered, key = max(_gain(columns[key], key, determined) for key, determined in keys.items())
        if gain <= 0:
            break
        members = [number for number in keys[key] if number != key or numbered]
        lookups.append(_make_lookup(columns, key, members, numbered))
        used = {key, *members}
        keys = {
            other: {number: saved for number, saved in determined.items() if number not in used}
            for other, determined in keys.items()
            if other not in used
        }
    return lookups


def _determined_columns(columns: list[list[str]], distinct: list[int], key: int, work: Work) -> dict[int, float]:
    """Returns the columns that have one cell per cell of the key, the key included, with the tokens a lookup saves."""
    savings: dict[int, float] = {}
    cells = columns[key]
    row_by_cell = {cell: row for row, cell in enumerate(cells)}
    sample = cells[:_SAMPLE_ROWS]
    sample_distinct = len(set(sample))
    for number, others in enumerate(columns):
        if distinct[number] > distinct[key]:
            continue
        work.spend(1 + len(sample) // _CELLS_PER_STEP)
        if len(set(zip(sample, others, strict=False))) > sample_distinct:
            continue
        work.spend(len(cells) // _CELLS_PER_STEP)
        if len(cells) > _SAMPLE_ROWS and len(set(zip(cells, others, strict=True))) > distinct[key]:
            continue
        saved_chars = sum(map(len, others)) - sum(len(others[row]) for row in row_by_cell.values())
        saved = saved_chars / _CHARS_PER_TOKEN + len(cells) - len(row_by_cell)
        if number == key or saved >= _MIN_MEMBER_SAVING:
            savings[number] = saved
    return savings


def _gain(cells: list[str], key: int, savings: dict[int, float]) -> tuple[float, bool, int]:
    """Returns the tokens saved beyond the minimum, whether the lookup's lines are numbered, and the key."""
    size, lines = len(cells), set(cells)
    members = sum(savings.values()) - savings[key]
    named = members - sum(map(len, lines)) / _CHARS_PER_TOKEN - len(lines) - _MIN_LOOKUP_SAVING
    numbered = members + savings[key] - 2 * size - 2 * len(lines) - _MIN_NUMBERED_SAVING
    if sum(map(len, cells)) >= _MIN_NUMBERED_CHARS * size and numbered > 1.3 * named:
        return numbered, True, key
    if named > 0 and not any(map(looks_like_json, lines)):
        named += _NAME_BONUS_TOKENS * size
    return (named if members else 0.0), False, key


def _make_lookup(columns: list[list[str]], key: int, members: list[int], numbered: bool) -> Lookup:
    cells: Sequence[str] = columns[key]
    if numbered:
        number = {cell: str(place) for place, cell in enumerate(dict.fromkeys(cells))}
        cells = [number[cell] for cell in cells]
    lines: dict[str, tuple[str, ...]] = {}
    for row, cell in enumerate(cells):
        if cell not in lines:
            lines[cell] = tuple(columns[member][row] for member in members)
    return Lookup(None if numbered else key, members, cells, lines)


_MIN_REFERENCE_CHARS = 6
"""Other columns do not refer to shorter constants."""
_MAX_SEARCHED_CHARS = 400
"""The writer looks for constants in this many characters at the beginning of a text."""
_MAX_COMMAS_PER_LINE = 0.1
"""With more texts per line that contain a comma, tabs cost less than quotes."""
_ROW_COUNT = re.compile("#[0-9]+")


_MAX_CELL_CHARS_IN_LINE = 40
"""Longer cells of a single column have lines of their own, so that a model sees where each begins."""


class TextTable(NamedTuple):
    """The head and the lines of a table, which are joined by line breaks."""

    head: str
    lines: list[str]
    """A line for each row; none if the head has all that the rows have."""
    is_single: bool = False
    """Whether the lines are cells of one column, so that several may stand in a line."""

    @property
    def text(self) -> str:
        """The table; the cells of a single column in one line where that can be read."""
        return "\n".join([self.head, *([",".join(self.lines)] if self.fits_line else self.lines)])

    @property
    def fits_line(self) -> bool:
        """Whether the cells of a single column may stand in one line."""
        return self.is_single and all(
            0 < len(cell) <= _MAX_CELL_CHARS_IN_LINE and "," not in cell for cell in self.lines
        )


def as_table(value: Any, dictionary: bool, work: Work) -> TextTable | None:
    """Returns a list or an object as one table, whatever the table costs; None where it is not tabular."""
    if len(value) < 2:
        return None
    kinds = set(map(type, value.values() if isinstance(value, dict) else value))
    if isinstance(value, list):
        if kinds == {dict}:
            return write_table(value, dictionary, work)
        if kinds == {list} and len(set(map(len, value))) == 1:
            return write_table(
                [{position_column(at): item for at, item in enumerate(row)} for row in value], dictionary, work
            )
        is_constant = len(kinds) == 1 and kinds <= _CONSTANT_TYPES and value.count(value[0]) == len(value)
        if kinds != {str} and not is_constant:
            return None
        return write_table([{ITEM_COLUMN: item} for item in value], dictionary, work)
    if kinds == {dict}:
        return write_table([{KEY_COLUMN: key, **row} for key, row in value.items()], dictionary, work)
    if kinds == {list}:
        return write_table(list(_list_member_rows(value)), dictionary, work)
    return (
        write_table([{KEY_COLUMN: key, ITEM_COLUMN: item} for key, item in value.items()], dictionary, work)
        if kinds <= _SCALAR_TYPES
        else None
    )


def table_texts(value: Any, dictionary: bool, work: Work) -> list[str]:
    """Returns the texts of the tables that a value may be: of its rows, and of the items of its rows' lists."""
    table = as_table(value, dictionary, work)
    texts = [] if table is None else [table.text]
    if isinstance(value, list) and len(value) > 1 and all(type(row) is dict for row in value):
        items = write_item_table(value, dictionary, work)
        texts += [] if items is None else [items.text]
    return texts


def _list_member_rows(value: dict[str, list[JSON]]) -> Iterator[dict[str, JSON]]:
    for key, items in value.items():
        if not items:
            yield {KEYS_COLUMN: key}
        for item in items:
            yield {KEYS_COLUMN: key, ITEM_COLUMN: item}


def write_table(rows: Sequence[dict[str, JSON]], dictionary: bool, work: Work) -> TextTable | None:
    """Writes rows as a table; None where they are not tabular. With `dictionary`, repeated values go into the head.

    Raises:
        ValueError: the rows contain something that JSON cannot represent.
    """
    flat = flatten(rows, work) if len(rows) > 1 else None
    if flat is None:
        return None
    return _TableWriter(Plan(flat, work), work).write(dictionary)


def write_item_table(rows: Sequence[dict[str, JSON]], dictionary: bool, work: Work) -> TextTable | None:
    """Writes rows with a list each as a table with a line for each item; None where they would not come back.

    Lists of one column that are alone in their rows have a line each.
    """
    found = find_item_rows(rows, work)
    if found is None:
        return None
    counts = f"{len(rows)}:{sum(found.sizes)}"
    if found.have_others:
        table = write_table(found.rows, dictionary, work)
        return None if table is None else table._replace(head=_with_counts(table.head, counts), is_single=False)
    table = write_table([row for row in found.rows if row], dictionary, work)
    if table is None or not table.fits_line:
        return None
    return TextTable(
        _with_counts(table.head, counts), [",".join(cells) for cells in split_by_sizes(table.lines, found.sizes)]
    )


def _with_counts(head: str, counts: str) -> str:
    """Returns the head of a table with other counts of its rows."""
    return _ROW_COUNT.sub(f"#{counts}", head, count=1)


def write_object_table(value: dict[str, JSON], work: Work) -> str | None:
    """Writes one object as the head of a table without lines; None where the object is not tabular."""
    flat = flatten([value], work)
    if flat is None:
        return None
    return _TableWriter(Plan(flat, work), work).write_head(OBJECT_HEAD)


class _TableWriter:
    def __init__(self, plan: Plan, work: Work) -> None:
        self.plan, self.flat, self.work = plan, plan.flat, work
        paths = {column.path for column in plan.columns} | self.flat.group_copies.keys()
        self.known_paths = paths | {path[:end] for path in paths for end in range(1, len(path))}
        self.constants = {
            column.path: next(value for value in column.values if value is not ABSENT_PARENT)
            for column in plan.constants
        }
        self.constant_order = {path: number for number, path in enumerate(self.constants)}
        self.constant_paths: dict[str, ColumnPath] = {}
        """Constants that other columns may refer to, by their text."""
        self.constants_by_parent: dict[tuple[ColumnPath, str], ColumnPath] = {}
        """The same by parent and text, because a reference within the same parent is shorter."""
        for column in plan.constants:
            text = column.values[0]
            if isinstance(text, str) and len(text) >= _MIN_REFERENCE_CHARS and ABSENT_PARENT not in column.values:
                self.constant_paths.setdefault(text, column.path)
                self.constants_by_parent.setdefault((column.path[:-1], text), column.path)
        self.constant_lengths: dict[str, list[int]] = {}
        """The lengths of the constants by their first characters, longest first."""
        for beginning, length in sorted({(text[:_MIN_REFERENCE_CHARS], -len(text)) for text in self.constant_paths}):
            self.constant_lengths.setdefault(beginning, []).append(-length)

    def write(self, dictionary: bool) -> TextTable | None:
        count = f"#{self.flat.row_count}"  # a model counts rows by eye, and badly
        columns = [column for column in self.plan.columns if column.cells is not None]
        if not columns:
            return TextTable(self.write_head(count), [])
        if len(columns) == 1:  # a table without delimiters, in which no line may be empty
            only = columns[0]
            if only.absent or None in only.values:
                return None
            return TextTable(
                self.write_head(count, columns),
                write_cells(only.cells or (), only.parts is not None, False, "\t"),
                is_single=True,
            )
        delimiter = _choose_delimiter(columns)
        texts = [write_cells(one.cells or (), one.parts is not None, one.absent, delimiter) for one in columns]
        lookups = find_lookups(texts, self.work) if dictionary else []
        moved = {member for lookup in lookups for member in lookup.members}
        staying = [number for number in range(len(columns)) if number not in moved]
        numbered = [lookup.cells for lookup in lookups if lookup.key is None]
        if len(staying) + len(numbered) == 1:  # a single column has a syntax of its own
            lookups, numbered, staying = [], [], list(range(len(columns)))
        cells = [*(texts[number] for number in staying), *numbered]
        head = self.write_head(count, [columns[number] for number in staying], delimiter, lookups, columns)
        return TextTable(head, list(map(delimiter.join, zip(*cells, strict=True))))

    def write_head(
        self,
        count: str,
        shown: Sequence[PlannedColumn] = (),
        delimiter: str = ",",
        lookups: Sequence[Lookup] = (),
        columns: Sequence[PlannedColumn] = (),
    ) -> str:
        """Writes the head: the columns that lines have, those without cells, and the lookups.

        Args:
            columns: All columns with cells, to which the lookups refer by number.
        """
        templates = self._templates()
        derived = self._derived_texts(templates)
        absent = {column.path for column in self.plan.columns if column.absent}
        names = HeadWriter(self.flat.optional_groups, absent, templates, self.known_paths)
        first = [names.write_column(column.path, delimiter) for column in shown]
        first += [f"&{number}" for number, lookup in enumerate(lookups, 1) if lookup.key is None]
        head = [f"{count} {delimiter.join(first)}" if first else count]
        head += [",".join(map(names.write_name, paths)) + "=" + text for paths, text in derived]
        for number, lookup in enumerate(lookups, 1):
            key = str(number) if lookup.key is None else names.write_lookup_key(columns[lookup.key].path)
            members = [names.write_column(columns[member].path, delimiter) for member in lookup.members]
            head.append("&" + delimiter.join([key, *members]))
            head += (delimiter.join([text, *cells]) for text, cells in lookup.lines.items())
        return "\n".join(head) + "\n"

    def _templates(self) -> dict[ColumnPath, list[TemplatePart]]:
        """Returns the templates of columns, with references in place of literals that contain the text of a constant.

        A constant text and a group that equals another one are templates, too.
        """
        given = {column.path: column.parts for column in self.plan.columns if column.parts is not None}
        given |= {path: [value] for path, value in self.constants.items() if isinstance(value, str)}
        given |= {path: [ColumnReference(source)] for path, source in self.flat.group_copies.items()}
        templates: dict[ColumnPath, list[TemplatePart]] = {}
        for path, parts in given.items():
            templates[path] = []
            for part in parts:
                if isinstance(part, str) and len(part) >= _MIN_REFERENCE_CHARS:
                    templates[path] += self._insert_reference(part, path)
                else:
                    templates[path].append(part)
        return templates

    def _derived_texts(self, templates: Mapping[ColumnPath, list[TemplatePart]]) -> list[tuple[list[ColumnPath], str]]:
        """Returns the columns without cells, each with its text; equal constants of one parent stand together."""
        order = {path: number for number, path in enumerate(self.flat.key_order)}
        lines: dict[tuple[ColumnPath, str], list[ColumnPath]] = {}
        for path, values in self.flat.optional_groups.items():
            if None in values:
                lines.setdefault((path[:-1], "null"), []).append(path)
        for path, value in self.constants.items():
            text = write_constant(value, templates.get(path, ()), path, self.known_paths)
            lines.setdefault((path[:-1], text), []).append(path)
        derived = [column.path for column in self.plan.columns if column.cells is None and column.parts is not None]
        for path in (*derived, *self.flat.group_copies):
            lines[path, write_template(templates[path], path, self.known_paths, "\n")] = [path]
        return [(paths, text) for (_, text), paths in sorted(lines.items(), key=lambda line: order[line[1][0]])]

    def _insert_reference(self, literal: str, column_path: ColumnPath) -> list[TemplatePart]:
        """Returns the literal, split around a reference to the longest constant in it, if it contains any."""
        best, start, end = column_path, 0, 0
        for at in range(min(len(literal) - _MIN_REFERENCE_CHARS + 1, _MAX_SEARCHED_CHARS)):
            for length in self.constant_lengths.get(literal[at : at + _MIN_REFERENCE_CHARS], ()):
                self.work.scan(length)
                if length <= end - start:
                    break
                if at + length > len(literal):
                    continue
                other = self._find_constant(literal[at : at + length], literal, column_path)
                if other is not None and is_word_boundary(literal, at) and is_word_boundary(literal, at + length):
                    best, start, end = other, at, at + length
        if start == end:
            return [literal]
        return [*[literal[:start]] * (start > 0), ColumnReference(best), *[literal[end:]] * (end < len(literal))]

    def _find_constant(self, text: str, literal: str, column_path: ColumnPath) -> ColumnPath | None:
        """Returns the path of the constant with a text, where a reference to it is shorter than the text."""
        for other in (self.constants_by_parent.get((column_path[:-1], text)), self.constant_paths.get(text)):
            if other is None or len(reference_text(other, column_path[:-1])) + 4 > len(text):
                continue
            # Of two equal constants, the second refers to the first.
            if text != literal or self.constant_order[other] < self.constant_order.get(
                column_path, len(self.constant_order)
            ):
                return other
        return None


def _choose_delimiter(columns: list[PlannedColumn]) -> str:
    commas = sum("," in value for column in columns for value in column.cells or () if isinstance(value, str))
    return "\t" if commas > len(columns[0].values) * _MAX_COMMAS_PER_LINE else ","
