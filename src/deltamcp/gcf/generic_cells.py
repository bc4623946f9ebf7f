"""Cells: tells scalars from values that nest, and formats whole columns of values at once."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from deltamcp.gcf.scalars import (
    INT64_MAX,
    INT64_MIN,
    GcfError,
    format_key,
    format_number,
    format_scalar,
    quote_if_needed,
)

SCALAR, OBJECT, ARRAY, MISSING = range(4)
NULL_TYPE = type(None)


MAX_MEMO = 10_000
"""Strings that a memo holds. Measured: beyond that, a lookup costs more than formatting the string again."""

_STRINGS, _INTEGERS = {str}, {int}
_SCALARS = {str, int, float, bool, NULL_TYPE}


class AbsentCell:
    """The type of `ABSENT`, the value of a cell that a row does not have."""


ABSENT = AbsentCell()


class ValueKinds(dict[type, int]):
    """The kind of a value by its type. A type that JSON does not have raises `GcfError`."""

    def __init__(self) -> None:
        super().__init__({str: SCALAR, int: SCALAR, float: SCALAR, bool: SCALAR, NULL_TYPE: SCALAR})
        self.update({dict: OBJECT, list: ARRAY, tuple: ARRAY, AbsentCell: MISSING})

    def __missing__(self, value_type: type) -> int:
        for base in (dict, list, tuple, str, int, float):
            if issubclass(value_type, base):
                self[value_type] = self[base]
                return self[base]
        raise GcfError("unsupported_value", f"{value_type.__name__} is not a JSON value")


class StringMemo(dict[str, str]):
    """Formatted strings, by the string."""

    def __missing__(self, text: str) -> str:
        if len(self) > MAX_MEMO:
            self.clear()
        self[text] = written = quote_if_needed(text)
        return written


class KeyMemo(dict[str, str]):
    """Formatted keys, by the key."""

    def __missing__(self, name: str) -> str:
        self[name] = written = format_key(name)
        return written


class CellFormatters(dict[type, Callable[[Any], str]]):
    """Functions that format a cell, by the type of its value. A nested value becomes `^` (SPEC 7.4.4)."""

    def __init__(self, texts: StringMemo, kinds: ValueKinds) -> None:
        super().__init__({str: texts.__getitem__, int: format_number, float: format_number})
        self.update({bool: {True: "true", False: "false"}.__getitem__, NULL_TYPE: {None: "-"}.__getitem__})
        self[AbsentCell] = {ABSENT: "~"}.__getitem__
        self._kinds = kinds

    def __missing__(self, value_type: type) -> Callable[[Any], str]:
        self[value_type] = formatter = format_scalar if self._kinds[value_type] == SCALAR else _nested_marker
        return formatter


def _nested_marker(_: Any) -> str:
    return "^"


class CellWriter:
    """Formats cells, and remembers formatted strings and the formatters of types."""

    def __init__(self) -> None:
        self.kinds: ValueKinds = ValueKinds()
        self.texts: StringMemo = StringMemo()
        self.names: KeyMemo = KeyMemo()
        self.formatters: CellFormatters = CellFormatters(self.texts, self.kinds)

    def kinds_of(self, values: Iterable[Any]) -> set[int]:
        """Returns the kinds that occur among `values`."""
        types = set(map(type, values))
        return {SCALAR} if types and types <= _SCALARS else {self.kinds[value_type] for value_type in types}

    def format_column(self, values: Sequence[Any]) -> list[str]:
        """Formats every value as a cell."""
        types = set(map(type, values))
        if types == _STRINGS:
            return list(map(self.texts.__getitem__, values))
        if types == _INTEGERS and min(values) >= INT64_MIN and max(values) <= INT64_MAX:
            return list(map(str, values))
        formatters = self.formatters
        if AbsentCell in types:
            cells = ["~"] * len(values)
            for place, value in enumerate(values):
                if value is not ABSENT:
                    cells[place] = formatters[type(value)](value)
            return cells
        return [formatters[type(value)](value) for value in values]
