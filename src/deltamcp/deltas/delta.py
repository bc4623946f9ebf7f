"""Two states of a value in, a text of the changes out; a base and that text in, the new state out."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from deltamcp.deltas import strings
from deltamcp.deltas.diff import Made, diff, likest
from deltamcp.deltas.edits import (
    DeltaError,
    Edit,
    Everywhere,
    Lines,
    Listed,
    Members,
    Picked,
    Put,
    Rows,
    Splices,
    apply,
    called,
    everywhere,
)
from deltamcp.deltas.read import read
from deltamcp.deltas.root import root_of
from deltamcp.deltas.write import quoted, write
from deltamcp.values import JSON

_head = re.compile(r"Changed(?:; full: .*| since [0-9a-f]+, now [0-9a-f]+:)").fullmatch
"""The line above the changes in a reply (`results.outcome.changed`); no delta begins so."""
_REPEATED = 3
"""Strings in which the same piece changes, from which on it is said once for all."""
_CLEARLY = 0.8
"""Of the characters that takes otherwise, at most."""
_MOST_CHARS = 20_000
"""Of changes that are looked at twice."""
_ASTRAY = 3
"""Places where a piece stands for each where it changes, at most: the others would have to be changed back."""


def delta(base: JSON, new: JSON, keys: Iterable[str] = (), *, plain: bool = False) -> str:
    """The changes from `base` to `new`; "" where there are none. It is a text of its own: `write` tells how it reads.

    Args:
        keys: members that tell rows of a table apart; found where rows have such a member without.
        plain: for a reader who may not have seen all of the base: nothing is told by what was there before.
    """
    keys = tuple(keys)
    made = (None if plain else _singled(base, new, keys)) or diff(base, new, keys, plain=plain)
    if made is None:
        return ""
    return write(made[0] if plain else _repeated(base, new, keys, made))


def applied(base: JSON, text: str, root: str | None = None) -> JSON:
    """What `delta` told of, made again from the base.

    Args:
        text: as it was sent, or without the line above the changes.
        root: of what it must give, as a reply's `_meta` tells it.

    Raises:
        DeltaError: it is not a delta of this base, or gives something else.
    """
    head, _, rest = text.partition("\n")
    if _head(head):
        text = rest
    try:
        made = apply(base, read(text, base)) if text else base
    except DeltaError:
        raise
    except (ValueError, RecursionError) as error:
        raise DeltaError(f"the delta cannot be read: {type(error).__name__}") from None
    if root is not None and root_of(made) != root:
        raise DeltaError("the delta was made for another base")
    return made


def _singled(base: Any, new: Any, keys: tuple[str, ...]) -> Made | None:
    """Where one thing becomes a list of its kind, or a list one of its items."""
    if type(base) is dict and type(new) is list:
        made = diff([base], new, keys)
        return (Listed(None), 6) if made is None else _unless_whole(Listed(made[0]), made)
    if type(base) is list and type(new) is dict and (place := likest(new, base)) is not None:
        made = diff(base[place], new, keys)
        return (Picked(place, None), 8) if made is None else _unless_whole(Picked(place, made[0]), made)
    return None


def _unless_whole(edit: Edit, made: Made) -> Made | None:
    return None if isinstance(made[0], Put) else (edit, made[1] + 8)


def _repeated(base: JSON, new: JSON, keys: tuple[str, ...], made: Made) -> Edit:
    """The same with a piece that changes in many strings told first, if that is shorter."""
    edit, cost = made
    if cost > _MOST_CHARS:
        return edit
    counted = Counter(_pieces(base, edit))
    for (old, text), times in counted.most_common(1):
        if times < _REPEATED or len(text) > 10 * len(old) or quoted(base).count(quoted(old)[1:-1]) > _ASTRAY * times:
            continue
        changed = everywhere(base, old, text)
        rest = diff(changed, new, keys)
        if rest is None:
            return Everywhere(old, text, None)
        if not isinstance(rest[0], Put) and rest[1] + len(old) + len(text) < _CLEARLY * cost:
            return Everywhere(old, text, rest[0])
    return edit


def _pieces(base: Any, edit: Edit) -> Iterator[tuple[str, str]]:
    """The pieces of strings that change."""
    match edit:
        case Put(value):
            if isinstance(value, str) and isinstance(base, str) and (piece := strings.middle(base, value)):
                yield piece
        case Splices(pieces):
            yield from pieces
        case Lines(hunks):
            for _, _, new in hunks:
                if isinstance(new, Splices):
                    yield from new.pieces
        case Members(edits):
            for name, change in edits.items():
                yield from _pieces(base.get(name), change)
        case Rows(key, edits) if edits:
            rows = None if key is None else dict(zip(called(base, key), base, strict=True))
            for name, change in edits.items():
                yield from _pieces(base[int(name)] if rows is None else rows[name], change)
