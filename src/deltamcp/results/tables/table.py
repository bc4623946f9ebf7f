"""Rows as a table: what the rows share stands once in the head, what they do not is a line each.

    #id,name=Dr *,user?.login,.id,&1    the columns of the lines, `*` where the cell stands in a text
    url=https://example.com/{id}        columns without cells: made of others,
    user.type,.kind=User                or constant
    &1,body                             columns looked up: by a number that stands in the lines,
    0,a long text that repeats
    &user.login,.mail                   or by another column
    jo,jo@example.com
                                        an empty line, and then the rows
    7,Who,jo,12,0

Cells, names and templates are as `cells` says.
"""

from collections.abc import Sequence
from typing import NamedTuple

from deltamcp.results.tables.cells import (
    OBJECT,
    Namer,
    Part,
    Path,
    Reference,
    cell,
    is_json,
    looks_like_json,
    plain,
    reference,
    text_of,
    write_template,
)
from deltamcp.results.tables.flatten import ABSENT, OUTSIDE, flatten
from deltamcp.results.tables.lookups import Lookup, lookups
from deltamcp.results.tables.plan import Column, Plan
from deltamcp.results.tables.templates import parted
from deltamcp.values import JSON

_WORTH_A_REFERENCE = 6
"""Characters of a constant that others may refer to."""
_LOOKED_AT = 400
"""Characters of a text in which such a constant is looked for."""
_COMMAS = 0.1
"""Texts with a comma per line from which on tabs cost less than quotes."""


class Table(NamedTuple):
    """A table is its head and its lines, joined by line breaks; so are its head and the first of its lines."""

    head: str
    lines: list[str]


def table(rows: Sequence[dict[str, JSON]], dictionary: bool = True) -> Table | None:
    """The rows as a table, None where they make none. With `dictionary`, values that repeat stand once in the head.

    Raises:
        ValueError: the rows hold something JSON cannot say.
    """
    flat = flatten(rows) if len(rows) > 1 else None
    if flat is None:
        return None
    plan = Plan(flat)
    plan.show_groups()
    return _Writer(plan).table(dictionary)


def object_table(value: dict[str, JSON]) -> str | None:
    """One object as the head of a table without lines."""
    flat = flatten([value])
    return None if flat is None else "\n".join([OBJECT, *_Writer(Plan(flat)).definitions(), ""])


class _Writer:
    def __init__(self, plan: Plan) -> None:
        self.plan, self.flat = plan, plan.flat
        self.namer = Namer(self.flat.optional)
        paths = {column.path for column in plan.columns} | self.flat.copies.keys()
        self.known = paths | {path[:end] for path in paths for end in range(1, len(path))}
        self.order = {column.path: number for number, column in enumerate(plan.constants)}
        self.constants: dict[str, Path] = {}
        self.beside: dict[tuple[Path, str], Path] = {}
        """What others may refer to, by its text; and by where it is too, because near names are short."""
        for column in plan.constants:
            text = column.values[0]
            if isinstance(text, str) and len(text) >= _WORTH_A_REFERENCE and OUTSIDE not in column.values:
                self.constants.setdefault(text, column.path)
                self.beside.setdefault((column.path[:-1], text), column.path)
        self.lengths: dict[str, list[int]] = {}
        """How long those with a beginning are, longest first."""
        for beginning, length in sorted({(text[:_WORTH_A_REFERENCE], -len(text)) for text in self.constants}):
            self.lengths.setdefault(beginning, []).append(-length)

    def table(self, dictionary: bool) -> Table | None:
        celled = [column for column in self.plan.columns if column.cells is not None]
        if len(celled) == 1:
            return self._one_column(celled[0])
        delimiter = _delimiter(celled)
        texts = [_texts(column, delimiter) for column in celled]
        found = lookups(texts) if dictionary else []
        moved = {member for lookup in found for member in lookup.members}
        kept = [number for number in range(len(celled)) if number not in moved]
        numbered = [(f"&{number}", lookup.cells) for number, lookup in enumerate(found, 1) if lookup.key is None]
        if len(kept) + len(numbered) == 1:  # a single column has its own rules
            found, numbered, kept = [], [], list(range(len(celled)))
        names = [*(self._named(celled[number], delimiter) for number in kept), *(name for name, _ in numbered)]
        head = ["#" + delimiter.join(names), *self.definitions()]
        for number, lookup in enumerate(found, 1):
            head += self._looked_up(number, lookup, celled, delimiter)
        cells = [*(texts[number] for number in kept), *(cells for _, cells in numbered)]
        return Table("\n".join(head) + "\n", list(map(delimiter.join, zip(*cells, strict=True))))

    def _one_column(self, column: Column) -> Table | None:
        """Nothing needs a delimiter then, and no line may be empty."""
        if column.absent or None in column.values:
            return None
        head = ["#" + self._named(column, ","), *self.definitions(), ""]
        return Table("\n".join(head), _texts(column, "\t"))

    def _named(self, column: Column, delimiter: str) -> str:
        name = self.namer.name(column.path, column.absent)
        return name if column.parts is None else f"{name}={self._template(column.parts, column.path, delimiter)}"

    def _looked_up(self, number: int, lookup: Lookup, celled: list[Column], delimiter: str) -> list[str]:
        key = str(number) if lookup.key is None else self.namer.key(celled[lookup.key].path)
        names = [self._named(celled[member], delimiter) for member in lookup.members]
        return [
            "&" + delimiter.join([key, *names]),
            *(delimiter.join([text, *members]) for text, members in lookup.lines.items()),
        ]

    def definitions(self) -> list[str]:
        """A line for each column without cells; constants beside each other that are the same share one."""
        order = {path: number for number, path in enumerate(self.flat.order)}
        lines: dict[tuple[Path, str], list[Path]] = {}
        for path, values in self.flat.optional.items():
            if None in values:
                lines.setdefault((path[:-1], "null"), []).append(path)
        for column in self.plan.constants:
            lines.setdefault((column.path[:-1], self._constant(column)), []).append(column.path)
        for column in self.plan.columns:
            if column.cells is None and column.parts is not None:
                lines[column.path, self._template(column.parts, column.path)] = [column.path]
        for path, source in self.flat.copies.items():
            lines[path, self._template([Reference(source)], path)] = [path]
        absent = {column.path for column in self.plan.columns if column.absent}
        return [
            ",".join(self.namer.name(path, path in absent) for path in paths) + "=" + text
            for (_, text), paths in sorted(lines.items(), key=lambda line: order[line[1][0]])
        ]

    def _constant(self, column: Column) -> str:
        value = next(value for value in column.values if value is not OUTSIDE)
        if not isinstance(value, str):
            return text_of(value)
        if looks_like_json(value) or plain(value, "\n") != value:
            return text_of(value)
        text = self._template([value], column.path)
        return text_of(value) if is_json(text) else text

    def _template(self, parts: list[Part], of: Path, delimiter: str = "\n") -> str:
        """Literals become references where constants say the same."""
        made: list[Part] = []
        for part in parts:
            if isinstance(part, str) and len(part) >= _WORTH_A_REFERENCE:
                made += self._refer(part, of)
            else:
                made.append(part)
        return write_template(made, of, self.known, delimiter)

    def _refer(self, literal: str, of: Path) -> list[Part]:
        """The literal, or a reference to the longest constant in it with what is before and behind."""
        best, start, end = of, 0, 0
        for at in range(min(len(literal) - _WORTH_A_REFERENCE + 1, _LOOKED_AT)):
            for length in self.lengths.get(literal[at : at + _WORTH_A_REFERENCE], ()):
                if length <= end - start:
                    break
                if at + length > len(literal):
                    continue
                other = self._stated(literal[at : at + length], literal, of)
                if other is not None and parted(literal, at) and parted(literal, at + length):
                    best, start, end = other, at, at + length
        if start == end:
            return [literal]
        return [*[literal[:start]] * (start > 0), Reference(best), *[literal[end:]] * (end < len(literal))]

    def _stated(self, text: str, literal: str, of: Path) -> Path | None:
        """The constant that says a text in so few words that it is worth it."""
        for other in (self.beside.get((of[:-1], text)), self.constants.get(text)):
            if other is None or len(reference(other, of[:-1])) + 4 > len(text):
                continue
            # Of two that are the same, the first is stated.
            if text != literal or self.order[other] < self.order.get(of, len(self.order)):
                return other
        return None


def _delimiter(celled: list[Column]) -> str:
    commas = sum("," in value for column in celled for value in column.cells or () if isinstance(value, str))
    return "\t" if commas > len(celled[0].values) * _COMMAS else ","


def _texts(column: Column, delimiter: str) -> list[str]:
    cells = column.cells
    assert cells is not None
    null = "null" if column.absent else ""
    if column.parts is not None:
        return [plain(value, delimiter) if isinstance(value, str) else "" for value in cells]
    return [
        null if value is None else "" if value is ABSENT or value is OUTSIDE else cell(value, delimiter)
        for value in cells
    ]
