"""Plans how a table writes each column: as a constant, as a template with or without cells, or as plain cells."""

from typing import Any

from deltamcp.results.tables.flat_rows import ABSENT, ABSENT_PARENT, FlatRows
from deltamcp.results.tables.syntax import (
    PLACEHOLDER,
    ColumnPath,
    ColumnReference,
    TemplatePart,
    is_json,
    json_text,
    looks_like_json,
    write_template,
)
from deltamcp.results.tables.templates import TemplateSource, find_template
from deltamcp.work import Work

_ROWS_PER_STEP = 16
"""Cells of a column that are compared in the time of a step."""


class PlannedColumn:
    """One column and how a table writes it."""

    __slots__ = ("absent", "cells", "parts", "path", "texts", "typed", "values")

    def __init__(self, path: ColumnPath, values: list[Any]) -> None:
        self.path = path
        self.values = values
        self.absent = False
        self.parts: list[TemplatePart] | None = None
        self.cells: list[Any] | None = None
        """The values to write row by row, null and absent included; None for a column without cells."""
        self.texts: list[str | None] | None = None
        """The values as text for references from other columns; None where others cannot refer to the column."""
        self.typed = False


class Plan:
    """How a table writes each column of flat rows."""

    def __init__(self, flat: FlatRows, work: Work) -> None:
        self.flat = flat
        self.work = work
        self.row_count = flat.row_count
        self.columns = [PlannedColumn(path, values) for path, values in flat.columns.items()]
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
        template = find_template(texts, self._template_sources(texts, text_rows, full), self.work)
        if template.cells is None and self._is_derivable(column, template.parts, full):
            column.parts, column.cells = template.parts, None
            return
        if template.cells is None:
            template = find_template(texts, [], self.work)
        self._plan_affixes(column, template.parts, template.cells or texts, text_rows, texts)

    def _template_sources(self, texts: list[str], text_rows: list[int], full: bool) -> list[TemplateSource]:
        first, first_row = texts[0], text_rows[0]
        sources = []
        for source in self.sources[:-1]:
            assert source.texts is not None
            self.work.scan(len(first))
            source_first = source.texts[first_row]
            if source_first is None or source_first not in first:
                continue
            self.work.spend(1 + self.row_count // _ROWS_PER_STEP)
            source_texts = source.texts if full else [source.texts[row] for row in text_rows]
            if None not in source_texts:
                sources.append(TemplateSource(source.path, source_texts, source.typed))  # type: ignore[arg-type]
        return sources

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

    def ensure_groups_visible(self) -> None:
        """Give every row that has an optional group a cell in the group that is not empty."""
        for group in sorted(self.flat.optional_groups, key=len, reverse=True):
            below = [column for column in self.columns if column.path[: len(group)] == group]
            rows = [row for row, value in enumerate(self.flat.optional_groups[group]) if isinstance(value, dict)]
            shown = [column.cells for column in below if column.cells is not None]
            if all(any(_has_value(cells[row]) for cells in shown) for row in rows):
                continue
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
