"""Cell tokens: splits a line into cells, and parses their values (SPEC 2.1)."""

import re
from dataclasses import dataclass
from typing import Any

from deltamcp.gcf.errors import GcfError
from deltamcp.gcf.generic.cells import ABSENT, MAX_MEMO
from deltamcp.gcf.generic.schema import parse_columns
from deltamcp.gcf.scalars import IS_NUMBER, parse_number, parse_quoted, parse_scalar

_QUOTED = r'"[^"\\]*(?:\\.[^"\\]*)*"'
_DECLARED_MARKER = re.compile(rf'\^\{{(?:{_QUOTED}|[^"}}|])*+\}}(?=\||\Z)')
_CELL_PATTERNS = {
    mark: re.compile(rf'[ \t]*({_QUOTED}[ \t]*|{_DECLARED_MARKER.pattern}|[^" \t\{mark}][^\{mark}]*|)\{mark}')
    for mark in "|,"
}


@dataclass(frozen=True)
class AttachmentMarker:
    """The cell of a value that is written under its row. `names` are the value's fields, if the cell declares them."""

    names: list[str] | None = None


_NULL = "-"
_MARKERS = {"~": ABSENT, "^": AttachmentMarker()}


class TokenValues(dict[str, Any]):
    """The values of tokens, parsed once each. `~` and `^` have markers as values, which the reader takes or refuses."""

    def __missing__(self, token: str) -> Any:
        if len(self) > MAX_MEMO:
            self.clear()
        self[token] = value = _parse_token(token)
        return value


def _parse_token(token: str) -> Any:
    if token[:1] not in '"-~^tf0123456789 \t' and token[-1] not in " \t":
        return token
    token = token.strip(" \t")
    if token[:1].isdigit() or token[:1] == "-":
        return parse_number(token) if IS_NUMBER(token) else None if token == _NULL else token
    if token in _MARKERS:
        return _MARKERS[token]
    if token[:2] == "^{" and token[-1] == "}":
        columns, end = parse_columns(token, 1)
        if end != len(token):
            raise GcfError("trailing_characters", "text goes on after the fields of an attachment")
        return AttachmentMarker([column.name for column in columns])
    return parse_scalar(token)


def split_cells(line: str, mark: str) -> list[str]:
    """Split a line into its cells. Quoted cells keep their quotes."""
    if '"' not in line:
        return line.split(mark)
    cells: list[str] = _CELL_PATTERNS[mark].findall(line + mark)
    if sum(map(len, cells)) + len(cells) == len(line) + 1:
        return cells
    return list(_scan_cells(line, mark))


def _scan_cells(line: str, mark: str) -> Any:
    """Yield the cells of a line that no encoder writes, or raise the error that it has."""
    start = 0
    while True:
        while line[start : start + 1] in (" ", "\t"):
            start += 1
        if line[start : start + 1] == '"':
            _, end = parse_quoted(line, start)
            cell = line[start:end]
            while line[end : end + 1] in (" ", "\t"):
                end += 1
            if line[end : end + 1] not in ("", mark):
                raise GcfError("trailing_characters", "text goes on after the closing quote")
        elif declared := _DECLARED_MARKER.match(line, start):
            cell, end = declared.group(), declared.end()
        else:
            end = line.find(mark, start)
            end = len(line) if end < 0 else end
            cell = line[start:end]
        yield cell
        if end >= len(line):
            return
        start = end + 1
