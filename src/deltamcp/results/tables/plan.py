"""Columns by what can be said of them once: that they are constant, or what their texts are made of."""

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


class PlannedColumn:
    """How one column is written: by its cells, or without any by a template or a constant."""

    __slots__ = ("absent", "cells", "parts", "path", "texts", "typed", "values")

    def __init__(self, path: ColumnPath, values: list[Any]) -> None:
        self.path = path
        self.values = values
        self.absent = False
        self.parts: list[TemplatePart] | None = None
        self.cells: list[Any] | None = None
        """What is to be written row by row, null and nothing included; None where there are no cells."""
        self.texts: list[str | None] | None = None
        """The values as references give them; None where it can be no reference."""
        self.typed = False


class Plan:
    """How each column of flat rows is best said."""

    def __init__(self, flat: FlatRows) -> None:
        self.flat = flat
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
                texts.append((max(len(one) for one in column.values if isinstance(one, str)), number, column))
            elif inner == {int}:
                self._plan_numbers(column)
        # What a text is made of is shorter than it: in this order no two columns can refer to each other.
        for _, _, column in sorted(texts, key=lambda one: one[:2]):
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
            if source.typed and source.values == column.values and not column.absent:
                column.parts, column.cells = [ColumnReference(source.path)], None
                return
        column.texts, column.typed = texts, True
        self.sources.append(column)

    def _plan_template(self, column: PlannedColumn) -> None:
        values = column.values
        at = [row for row, value in enumerate(values) if isinstance(value, str)]
        full = len(at) == self.row_count
        texts: list[str] = values if full else [values[row] for row in at]
        column.texts = values if full else [value if isinstance(value, str) else None for value in values]
        self.sources.append(column)
        found = find_template(texts, self._template_sources(texts, at, full))
        if found.cells is None and self._is_derivable(column, found.parts, full):
            column.parts, column.cells = found.parts, None
            return
        if found.cells is None:
            found = find_template(texts, [])
        self._plan_affixes(column, found.parts, found.cells or texts, at, texts)

    def _template_sources(self, texts: list[str], at: list[int], full: bool) -> list[TemplateSource]:
        first, first_row = texts[0], at[0]
        near = []
        for source in self.sources[:-1]:
            known = source.texts
            assert known is not None
            if (one := known[first_row]) is None or one not in first:
                continue
            held = known if full else [known[row] for row in at]
            if None not in held:
                near.append(TemplateSource(source.path, held, source.typed))  # type: ignore[arg-type]
        return near

    def _is_derivable(self, column: PlannedColumn, parts: list[TemplatePart], full: bool) -> bool:
        """Whether a template without cells is right everywhere: where the column has no text, a reference has none."""
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
        self, column: PlannedColumn, parts: list[TemplatePart], cells: list[str], at: list[int], texts: list[str]
    ) -> None:
        saved = sum(map(len, texts)) - sum(map(len, cells))
        written = sum(len(part) if isinstance(part, str) else 3 for part in parts)
        if saved <= written + 4 or not _is_writable(parts):
            if not any(map(looks_like_json, texts)):
                return
            parts, cells = [PLACEHOLDER], texts
        column.parts = parts
        column.cells = list(column.values)
        for row, text in zip(at, cells, strict=True):
            column.cells[row] = text

    def ensure_groups_visible(self) -> None:
        """Every row in which an optional group is there has a cell in it that is not empty."""
        for group in sorted(self.flat.optional_groups, key=len, reverse=True):
            below = [column for column in self.columns if column.path[: len(group)] == group]
            there = [row for row, value in enumerate(self.flat.optional_groups[group]) if isinstance(value, dict)]
            shown = [column.cells for column in below if column.cells is not None]
            if all(any(_has_value(cells[row]) for cells in shown) for row in there):
                continue
            always = [column for column in below if all(_has_value(column.values[row]) for row in there)]
            self._force_cells(min(always, key=lambda column: len(str(column.values[there[0]]))))
        if not any(column.cells is not None for column in self.columns):
            self._force_cells(self.columns[0])  # so that there are lines

    def _force_cells(self, column: PlannedColumn) -> None:
        if column in self.constants:
            self.constants.remove(column)
        column.parts, column.cells = None, column.values


def _is_writable(parts: list[TemplatePart]) -> bool:
    return all(part.isprintable() for part in parts if isinstance(part, str))


def _has_value(value: Any) -> bool:
    return value is not None and value is not ABSENT and value is not ABSENT_PARENT
