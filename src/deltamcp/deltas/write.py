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
    Everywhere,
    Hunk,
    Lines,
    Listed,
    Members,
    Picked,
    Put,
    Rows,
    Splices,
)
from deltamcp.values import JSON

_name = re.compile(r"[A-Za-z0-9_$@/][A-Za-z0-9_$@/:-]*…?").fullmatch
_not_bare = re.compile(
    r'\A(?:|true|false|null|-?[0-9][0-9.eE+-]*|["{\[].*|like .*)\Z|\A\s|\s\Z|["\x00-\x1f,\x85\u2028\u2029]', re.DOTALL
).search


def write(edit: Edit) -> str:
    """The lines of an edit of a whole value."""
    lines: list[str] = []
    while isinstance(edit, Everywhere | Listed | Picked):
        lines.append(_first(edit))
        if edit.edit is None:
            return "\n".join(lines)
        edit = edit.edit
    match edit:
        case Members():
            _members(edit, 0, lines)
        case Rows():
            _rows("", edit, -1, lines)
        case Lines(hunks):
            _hunks(hunks, 0, lines)
        case Splices():
            lines.append(_pieces(edit))
        case Put(new):
            lines.append(f"={quoted(new)}")
        case Copy():
            raise ValueError("nothing stands beside the whole")
    return "\n".join(lines)


def _first(edit: Everywhere | Listed | Picked) -> str:
    """What is done to a whole base before the rest."""
    match edit:
        case Everywhere(old, new):
            return f"*{quoted(old)}>{quoted(new)}"
        case Listed():
            return "[base]"
        case Picked(place):
            return f"base[{place}]"


def value(of: JSON) -> str:
    """A value on a line: a string as it is where nothing else reads so, JSON otherwise."""
    return of if isinstance(of, str) and is_bare(of) else quoted(of)


def is_bare(text: str) -> bool:
    """Whether a string can stand as it is, because nothing else reads so."""
    return not _not_bare(text)


def quoted(of: JSON) -> str:
    """As JSON."""
    return msgspec.json.encode(of).decode()


def name(of: str) -> str:
    """A member's name, or a row's."""
    return of if _name(of) else quoted(of)


def _members(edit: Members, depth: int, lines: list[str]) -> None:
    indent = " " * depth
    lines += [f"{indent}-{name(gone)}" for gone in edit.removed]
    for member, change in edit.edits.items():
        _change(name(member), change, depth, lines)


def _change(head: str, edit: Edit, depth: int, lines: list[str]) -> None:
    """One or more lines, the first beginning with `head`."""
    indent = " " * depth
    short = _inline(head, edit)
    if short is not None:
        lines.append(indent + short)
        return
    match edit:
        case Copy(source, then):
            assert then is not None, "a mere copy is told inline"
            _open(f"{head} like {name(source)}", then, depth, lines)
        case Lines(hunks):
            lines.append(f"{indent}{head}~")
            _hunks(hunks, depth + 1, lines)
        case Rows():
            _rows(head, edit, depth, lines)
        case Members():
            _open(head, edit, depth, lines)
        case _:
            raise ValueError("not an edit of a part")


def _open(head: str, edit: Edit, depth: int, lines: list[str]) -> None:
    """A member's or row's members: on its line if they fit there, on lines of their own otherwise."""
    assert isinstance(edit, Members), "what is copied is an object"
    items = _items(edit)
    if items is not None:
        lines.append(f"{' ' * depth}{head} {', '.join(items)}")
        return
    lines.append(" " * depth + head)
    _members(edit, depth + 1, lines)


def _items(edit: Members) -> list[str] | None:
    """Changes that share a line; None where one of them needs lines of its own."""
    items = [f"-{name(gone)}" for gone in edit.removed]
    for member, change in edit.edits.items():
        item = _inline(name(member), change)
        if item is None:
            return None
        items.append(item)
    return items


def _inline(head: str, edit: Edit) -> str | None:
    """A change that ends where it says, so that others may follow; None where it has to have the line."""
    match edit:
        case Put(new):
            return f"{head}={value(new)}"
        case Splices():
            return f"{head}~{_pieces(edit)}"
        case Copy(source, None):
            return f"{head} like {name(source)}"
        case Members(edits, removed) if len(edits) + len(removed) == 1:
            if removed:
                return f"-{head}.{name(removed[0])}"
            [(member, change)] = edits.items()
            return None if isinstance(change, Copy) else _inline(f"{head}.{name(member)}", change)
    return None


def _pieces(edit: Splices) -> str:
    return " ".join(f"{quoted(old)}>{quoted(new)}" for old, new in edit.pieces)


def _rows(head: str, edit: Rows, depth: int, lines: list[str]) -> None:
    """A single line of a row goes on the table's own."""
    inner: list[str] = []
    indent = " " * (depth + 1)
    if edit.removed:
        inner.append(indent + " ".join(f"-{name(gone)}" for gone in edit.removed))
    for row, change in edit.edits.items():
        if isinstance(change, Members):
            _open(name(row), change, depth + 1, inner)
        else:
            _change(name(row), change, depth + 1, inner)
    for index, placed in edit.placed:
        at = "" if index is None else str(index)
        match placed:
            case str():
                inner.append(f"{indent}>{name(placed)} {at}".rstrip(" "))
            case Put(new):
                inner.append(f"{indent}+{at}{' ' * bool(at) or _apart(new)}{value(new)}")
            case Copy(source, then):
                head_of = f"+{at} like {name(source)}"
                if then is None:
                    inner.append(indent + head_of)
                else:
                    _open(head_of, then, depth + 1, inner)
    opened = f"{' ' * max(depth, 0)}{head}[{'' if edit.key is None else name(edit.key)}]"
    if len(inner) == 1:
        lines.append(f"{opened} {inner[0].lstrip(' ')}")
    else:
        lines += (opened, *inner)


def _apart(new: JSON) -> str:
    """Between a plus and a value that is no object or list, which may begin with a digit."""
    return "" if isinstance(new, dict | list) else " "


def _hunks(hunks: Iterable[Hunk], depth: int, lines: list[str]) -> None:
    indent = " " * depth
    ends = True  # whether new lines would not be taken for those of the hunk before
    for start, stop, new in hunks:
        where = f"{start}+" if start == stop else str(stop) if start + 1 == stop else f"{start + 1}-{stop}"
        if isinstance(new, Splices):
            lines.append(f"{indent}{where} {_pieces(new)}")
        else:
            if start != END or not ends:
                lines.append(indent + ("$" if start == END else where))
            lines += [f"{indent}+{line}" for line in new]
        ends = isinstance(new, Splices)
