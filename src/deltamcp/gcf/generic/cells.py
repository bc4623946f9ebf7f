"""Values as cells: which of them nest, and how a whole column of them is written at once."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from deltamcp.gcf.errors import GcfError
from deltamcp.gcf.scalars import INT64_MAX, INT64_MIN, format_key, format_number, format_scalar, quote_if_needed

SCALAR, OBJECT, ARRAY, MISSING = range(4)
NULL_TYPE = type(None)


MAX_MEMO = 10_000
"""How many strings are remembered. Measured: beyond that, looking one up costs more than writing it again."""

_STRINGS, _INTEGERS = {str}, {int}
_SCALARS = {str, int, float, bool, NULL_TYPE}


class AbsentCell:
    """The type of the cell that a row does not have."""


ABSENT = AbsentCell()


class ValueKinds(dict[type, int]):
    """The kind of a value by its type; a type that JSON does not know is refused."""

    def __init__(self) -> None:
        super().__init__({str: SCALAR, int: SCALAR, float: SCALAR, bool: SCALAR, NULL_TYPE: SCALAR})
        self.update({dict: OBJECT, list: ARRAY, tuple: ARRAY, AbsentCell: MISSING})

    def __missing__(self, value_type: type) -> int:
        for base in (dict, list, tuple, str, int, float):
            if issubclass(value_type, base):
                self[value_type] = self[base]
                return self[base]
        raise GcfError("unsupported_value", f"{value_type.__name__} is no JSON value")


class StringMemo(dict[str, str]):
    """Strings as they are written."""

    def __missing__(self, text: str) -> str:
        if len(self) > MAX_MEMO:
            self.clear()
        self[text] = written = quote_if_needed(text)
        return written


class KeyMemo(dict[str, str]):
    """Keys as they are written."""

    def __missing__(self, name: str) -> str:
        self[name] = written = format_key(name)
        return written


class CellFormatters(dict[type, Callable[[Any], str]]):
    """How a cell is written, by its type; what nests is `^` (SPEC 7.4.4)."""

    def __init__(self, texts: StringMemo, kinds: ValueKinds) -> None:
        super().__init__({str: texts.__getitem__, int: format_number, float: format_number})
        self.update({bool: {True: "true", False: "false"}.__getitem__, NULL_TYPE: {None: "-"}.__getitem__})
        self[AbsentCell] = {ABSENT: "~"}.__getitem__
        self._kinds = kinds

    def __missing__(self, value_type: type) -> Callable[[Any], str]:
        self[value_type] = form = format_scalar if self._kinds[value_type] == SCALAR else _nested_marker
        return form


def _nested_marker(_: Any) -> str:
    return "^"


class CellWriter:
    """Writes cells, and remembers what it wrote for the next of the same text or type."""

    def __init__(self) -> None:
        self.kinds = ValueKinds()
        self.texts = StringMemo()
        self.names = KeyMemo()
        self.formatters = CellFormatters(self.texts, self.kinds)

    def kinds_of(self, values: Iterable[Any]) -> set[int]:
        """The kinds that occur among `values`."""
        types = set(map(type, values))
        return {SCALAR} if types and types <= _SCALARS else {self.kinds[of] for of in types}

    def format_column(self, values: Sequence[Any]) -> list[str]:
        """Every value as a cell."""
        types = set(map(type, values))
        if types == _STRINGS:
            return list(map(self.texts.__getitem__, values))
        if types == _INTEGERS and min(values) >= INT64_MIN and max(values) <= INT64_MAX:
            return list(map(str, values))
        forms = self.formatters
        if AbsentCell in types:
            cells = ["~"] * len(values)
            for place, value in enumerate(values):
                if value is not ABSENT:
                    cells[place] = forms[type(value)](value)
            return cells
        return [forms[type(value)](value) for value in values]
