"""Edits as text, one change to a line: what a model reads, and `read` reads back.

status=Done                    a member set
-owner.email                   a member gone
title~"draft">"final"          a piece of a string
owner login=ann, id=7          members of a member
web like db port=80            a new member, a copy of another but for what follows
users[id]                      a table, its rows by their `id`; by their place in the base as `users[]`
 17 status=Done                 a row's members
 -5                             a row gone
 +{"id":8,"status":"New"}       a row at the end; `+3 ` before a row is its place, `+ like 7 id=8` a copy
 >17 0                          a row moved to a place
log~                           a text, by its lines
 12-14                          lines 12 to 14 become those that follow, `12+` what follows line 12
 +a new line                    by itself, or behind `$`: at the end
*"ann">"bob"                   before the rest, a piece of every string
[base]                         before the rest, the base becomes the one item of a list
base[3]                        before the rest, of the base, a list, only one item stays
={"a":1}                       by itself: everything is new
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
    """The lines of an edit of a whole value."""
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
            raise ValueError("nothing stands beside the whole")
    return "\n".join(lines)


def _prefix_line(edit: ReplaceEverywhere | WrapInList | PickItem) -> str:
    """What is done to a whole base before the rest."""
    match edit:
        case ReplaceEverywhere(old, new):
            return f"*{to_json(old)}>{to_json(new)}"
        case WrapInList():
            return "[base]"
        case PickItem(place):
            return f"base[{place}]"


def format_value(value: JSON) -> str:
    """A value on a line: a string as it is where nothing else reads so, JSON otherwise."""
    return value if isinstance(value, str) and is_bare(value) else to_json(value)


def is_bare(text: str) -> bool:
    """Whether a string can stand as it is, because nothing else reads so."""
    return not _needs_quotes(text)


def to_json(value: JSON) -> str:
    """As JSON."""
    return msgspec.json.encode(value).decode()


def format_name(name: str) -> str:
    """A member's name, or a row's."""
    return name if _is_bare_name(name) else to_json(name)


def _write_members(edit: MemberEdits, depth: int, lines: list[str]) -> None:
    indent = " " * depth
    lines += [f"{indent}-{format_name(gone)}" for gone in edit.removed]
    for member, change in edit.edits.items():
        _write_change(format_name(member), change, depth, lines)


def _write_change(head: str, edit: Edit, depth: int, lines: list[str]) -> None:
    """One or more lines, the first beginning with `head`."""
    indent = " " * depth
    short = _inline_change(head, edit)
    if short is not None:
        lines.append(indent + short)
        return
    match edit:
        case Copy(source, then):
            assert then is not None, "a mere copy is told inline"
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
    """A member's or row's members: on its line if they fit there, on lines of their own otherwise."""
    assert isinstance(edit, MemberEdits), "what is copied is an object"
    items = _inline_items(edit)
    if items is not None:
        lines.append(f"{' ' * depth}{head} {', '.join(items)}")
        return
    lines.append(" " * depth + head)
    _write_members(edit, depth + 1, lines)


def _inline_items(edit: MemberEdits) -> list[str] | None:
    """Changes that share a line; None where one of them needs lines of its own."""
    items = [f"-{format_name(gone)}" for gone in edit.removed]
    for member, change in edit.edits.items():
        item = _inline_change(format_name(member), change)
        if item is None:
            return None
        items.append(item)
    return items


def _inline_change(head: str, edit: Edit) -> str | None:
    """A change that ends where it says, so that others may follow; None where it has to have the line."""
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
    """A single line of a row goes on the table's own."""
    inner: list[str] = []
    indent = " " * (depth + 1)
    if edit.removed:
        inner.append(indent + " ".join(f"-{format_name(gone)}" for gone in edit.removed))
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
                head_of = f"+{at} like {format_name(source)}"
                if then is None:
                    inner.append(indent + head_of)
                else:
                    _write_nested_members(head_of, then, depth + 1, inner)
    opened = f"{' ' * max(depth, 0)}{head}[{'' if edit.key is None else format_name(edit.key)}]"
    if len(inner) == 1:
        lines.append(f"{opened} {inner[0].lstrip(' ')}")
    else:
        lines += (opened, *inner)


def _separator(new: JSON) -> str:
    """Between a plus and a value that is no object or list, which may begin with a digit."""
    return "" if isinstance(new, dict | list) else " "


def _write_hunks(hunks: Iterable[Hunk], depth: int, lines: list[str]) -> None:
    indent = " " * depth
    ends = True  # whether new lines would not be taken for those of the hunk before
    for start, stop, new in hunks:
        where = f"{start}+" if start == stop else str(stop) if start + 1 == stop else f"{start + 1}-{stop}"
        if isinstance(new, Splices):
            lines.append(f"{indent}{where} {_pieces_text(new)}")
        else:
            if start != END or not ends:
                lines.append(indent + ("$" if start == END else where))
            lines += [f"{indent}+{line}" for line in new]
        ends = isinstance(new, Splices)
