"""Writer of delta texts: writes one change to a line, for a model to read and for `parser` to parse.

status=Done                    sets a member
-owner.email                   removes a member
title~"draft">"final"          replaces a piece of a string
owner login=ann, id=7          changes members of a member
web like db port=80            adds a member: a copy of another, with changes
users[id]                      changes a table whose rows are named by `id`; in `users[]`, by their index in the base
 17 status=Done                 changes members of a row
 -5                             removes a row
 +{"id":8,"status":"New"}       appends a row; `+3 ` inserts it at index 3, `+ like 7 id=8` appends a changed copy
 >17 0                          moves a row to an index
log~                           changes a text by its lines
 12-14                          replaces lines 12 to 14 by the lines that follow; `12+` inserts them after line 12
 +a new line                    a new line; without a line number, or after `$`, it is appended
*"ann">"bob"                   first replaces a piece in every string
[base]                         first makes the base the only item of a list
base[3]                        first keeps only one item of the base, which is a list
={"a":1}                       replaces the whole value; no other line follows
"""

import re
from collections.abc import Iterable

import msgspec

from deltamcp.deltas.edits import (
    END,
    Copy,
    Edit,
    Hunk,
    LineEdits,
    MemberEdits,
    PickItem,
    Put,
    ReplaceEverywhere,
    RowEdits,
    Splices,
    WrapInList,
)
from deltamcp.values import JSON

_is_bare_name = re.compile(r"[A-Za-z0-9_$@/][A-Za-z0-9_$@/:-]*…?").fullmatch
_needs_quotes = re.compile(
    r'\A(?:|true|false|null|-?[0-9][0-9.eE+-]*|["{\[].*|like .*)\Z|\A\s|\s\Z|["\x00-\x1f,\x85\u2028\u2029]', re.DOTALL
).search


def write_edit(edit: Edit) -> str:
    """Returns the text of an edit of a whole value."""
    lines: list[str] = []
    while isinstance(edit, ReplaceEverywhere | WrapInList | PickItem):
        lines.append(_prefix_line(edit))
        if edit.edit is None:
            return "\n".join(lines)
        edit = edit.edit
    match edit:
        case MemberEdits():
            _write_members(edit, 0, lines)
        case RowEdits():
            _write_rows("", edit, -1, lines)
        case LineEdits(hunks):
            _write_hunks(hunks, 0, lines)
        case Splices():
            lines.append(_pieces_text(edit))
        case Put(new):
            lines.append(f"={to_json(new)}")
        case Copy():
            raise ValueError("the whole value has no sibling to copy")
    return "\n".join(lines)


def _prefix_line(edit: ReplaceEverywhere | WrapInList | PickItem) -> str:
    """Returns the line of an edit that changes the whole base before the rest."""
    match edit:
        case ReplaceEverywhere(old, new):
            return f"*{to_json(old)}>{to_json(new)}"
        case WrapInList():
            return "[base]"
        case PickItem(place):
            return f"base[{place}]"


def format_value(value: JSON) -> str:
    """Returns a value as it stands on a line: a string without quotes if it is bare, JSON otherwise."""
    return value if isinstance(value, str) and is_bare(value) else to_json(value)


def is_bare(text: str) -> bool:
    """Returns whether a string needs no quotes, because the parser cannot take it for anything else."""
    return not _needs_quotes(text)


def to_json(value: JSON) -> str:
    """Encodes a value as JSON text."""
    return msgspec.json.encode(value).decode()


def format_name(name: str) -> str:
    """Returns the name of a member or a row, quoted if it needs quotes."""
    return name if _is_bare_name(name) else to_json(name)


def _write_members(edit: MemberEdits, depth: int, lines: list[str]) -> None:
    indent = " " * depth
    lines += [f"{indent}-{format_name(name)}" for name in edit.removed]
    for member, change in edit.edits.items():
        _write_change(format_name(member), change, depth, lines)


def _write_change(head: str, edit: Edit, depth: int, lines: list[str]) -> None:
    """Writes a change as one or more lines, the first beginning with `head`."""
    indent = " " * depth
    short = _inline_change(head, edit)
    if short is not None:
        lines.append(indent + short)
        return
    match edit:
        case Copy(source, then):
            assert then is not None, "a copy without changes is written inline"
            _write_nested_members(f"{head} like {format_name(source)}", then, depth, lines)
        case LineEdits(hunks):
            lines.append(f"{indent}{head}~")
            _write_hunks(hunks, depth + 1, lines)
        case RowEdits():
            _write_rows(head, edit, depth, lines)
        case MemberEdits():
            _write_nested_members(head, edit, depth, lines)
        case _:
            raise ValueError("not an edit of a part")


def _write_nested_members(head: str, edit: Edit, depth: int, lines: list[str]) -> None:
    """Writes the changes within a member or row: on its line if all are inline, on lines of their own otherwise."""
    assert isinstance(edit, MemberEdits), "only objects are copied with changes"
    items = _inline_items(edit)
    if items is not None:
        lines.append(f"{' ' * depth}{head} {', '.join(items)}")
        return
    lines.append(" " * depth + head)
    _write_members(edit, depth + 1, lines)


def _inline_items(edit: MemberEdits) -> list[str] | None:
    """Returns the changes that share a line; None if one of them needs lines of its own."""
    items = [f"-{format_name(name)}" for name in edit.removed]
    for member, change in edit.edits.items():
        item = _inline_change(format_name(member), change)
        if item is None:
            return None
        items.append(item)
    return items


def _inline_change(head: str, edit: Edit) -> str | None:
    """Returns a change after which others can follow on the line; None if it needs the line for itself."""
    match edit:
        case Put(new):
            return f"{head}={format_value(new)}"
        case Splices():
            return f"{head}~{_pieces_text(edit)}"
        case Copy(source, None):
            return f"{head} like {format_name(source)}"
        case MemberEdits(edits, removed) if len(edits) + len(removed) == 1:
            if removed:
                return f"-{head}.{format_name(removed[0])}"
            [(member, change)] = edits.items()
            return None if isinstance(change, Copy) else _inline_change(f"{head}.{format_name(member)}", change)
    return None


def _pieces_text(edit: Splices) -> str:
    return " ".join(f"{to_json(old)}>{to_json(new)}" for old, new in edit.pieces)


def _write_rows(head: str, edit: RowEdits, depth: int, lines: list[str]) -> None:
    """Writes the changes of a table; a single line goes on the table's own line."""
    inner: list[str] = []
    indent = " " * (depth + 1)
    if edit.removed:
        inner.append(indent + " ".join(f"-{format_name(name)}" for name in edit.removed))
    for row, change in edit.edits.items():
        if isinstance(change, MemberEdits):
            _write_nested_members(format_name(row), change, depth + 1, inner)
        else:
            _write_change(format_name(row), change, depth + 1, inner)
    for index, placed in edit.placed:
        at = "" if index is None else str(index)
        match placed:
            case str():
                inner.append(f"{indent}>{format_name(placed)} {at}".rstrip(" "))
            case Put(new):
                inner.append(f"{indent}+{at}{' ' * bool(at) or _separator(new)}{format_value(new)}")
            case Copy(source, then):
                row_head = f"+{at} like {format_name(source)}"
                if then is None:
                    inner.append(indent + row_head)
                else:
                    _write_nested_members(row_head, then, depth + 1, inner)
    table_head = f"{' ' * max(depth, 0)}{head}[{'' if edit.key is None else format_name(edit.key)}]"
    if len(inner) == 1:
        lines.append(f"{table_head} {inner[0].lstrip(' ')}")
    else:
        lines += (table_head, *inner)


def _separator(new: JSON) -> str:
    """Returns what separates a plus from a row: a space before a scalar, which may begin with a digit."""
    return "" if isinstance(new, dict | list) else " "


def _write_hunks(hunks: Iterable[Hunk], depth: int, lines: list[str]) -> None:
    indent = " " * depth
    separate = True  # whether the parser does not take new lines for those of the previous hunk
    for start, stop, new in hunks:
        line_numbers = f"{start}+" if start == stop else str(stop) if start + 1 == stop else f"{start + 1}-{stop}"
        if isinstance(new, Splices):
            lines.append(f"{indent}{line_numbers} {_pieces_text(new)}")
        else:
            if start != END or not separate:
                lines.append(indent + ("$" if start == END else line_numbers))
            lines += [f"{indent}+{line}" for line in new]
        separate = isinstance(new, Splices)
