"""Values as cells: which of them nest, and how a whole column of them is written at once."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from deltamcp.gcf.errors import GcfError
from deltamcp.gcf.scalars import INT64_MAX, INT64_MIN, bare_or_quoted, key, number, scalar

SCALAR, OBJECT, ARRAY, MISSING = range(4)
NULLS = type(None)


MEMO = 10_000
"""How many strings are remembered. Measured: beyond that, looking one up costs more than writing it again."""

_STRINGS, _INTEGERS = {str}, {int}
_SCALARS = {str, int, float, bool, NULLS}


class Absent:
    """The type of the cell that a row does not have."""


ABSENT = Absent()


class Kinds(dict[type, int]):
    """The kind of a value by its type; a type that JSON does not know is refused."""

    def __init__(self) -> None:
        super().__init__({str: SCALAR, int: SCALAR, float: SCALAR, bool: SCALAR, NULLS: SCALAR})
        self.update({dict: OBJECT, list: ARRAY, tuple: ARRAY, Absent: MISSING})

    def __missing__(self, of: type) -> int:
        for base in (dict, list, tuple, str, int, float):
            if issubclass(of, base):
                self[of] = self[base]
                return self[base]
        raise GcfError("unsupported_value", f"{of.__name__} is no JSON value")


class Texts(dict[str, str]):
    """Strings as they are written."""

    def __missing__(self, text: str) -> str:
        if len(self) > MEMO:
            self.clear()
        self[text] = written = bare_or_quoted(text)
        return written


class Names(dict[str, str]):
    """Keys as they are written."""

    def __missing__(self, name: str) -> str:
        self[name] = written = key(name)
        return written


class Forms(dict[type, Callable[[Any], str]]):
    """How a cell is written, by its type; what nests is `^` (SPEC 7.4.4)."""

    def __init__(self, texts: Texts, kinds: Kinds) -> None:
        super().__init__({str: texts.__getitem__, int: number, float: number})
        self.update({bool: {True: "true", False: "false"}.__getitem__, NULLS: {None: "-"}.__getitem__})
        self[Absent] = {ABSENT: "~"}.__getitem__
        self._kinds = kinds

    def __missing__(self, of: type) -> Callable[[Any], str]:
        self[of] = form = scalar if self._kinds[of] == SCALAR else _nests
        return form


def _nests(_: Any) -> str:
    return "^"


class Cells:
    """Writes cells, and remembers what it wrote for the next of the same text or type."""

    def __init__(self) -> None:
        self.kinds = Kinds()
        self.texts = Texts()
        self.names = Names()
        self.forms = Forms(self.texts, self.kinds)

    def kinds_of(self, values: Iterable[Any]) -> set[int]:
        """The kinds that occur among `values`."""
        types = set(map(type, values))
        return {SCALAR} if types and types <= _SCALARS else {self.kinds[of] for of in types}

    def column(self, values: Sequence[Any]) -> list[str]:
        """Every value as a cell."""
        types = set(map(type, values))
        if types == _STRINGS:
            return list(map(self.texts.__getitem__, values))
        if types == _INTEGERS and min(values) >= INT64_MIN and max(values) <= INT64_MAX:
            return list(map(str, values))
        forms = self.forms
        if Absent in types:
            cells = ["~"] * len(values)
            for place, value in enumerate(values):
                if value is not ABSENT:
                    cells[place] = forms[type(value)](value)
            return cells
        return [forms[type(value)](value) for value in values]
