"""Two states of a value in, a text of the changes out; a base and that text in, the new state out."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from deltamcp.deltas import strings
from deltamcp.deltas.diff import CostedEdit, diff, most_similar
from deltamcp.deltas.edits import (
    Edit,
    InvalidDeltaError,
    LineEdits,
    MemberEdits,
    PickItem,
    Put,
    ReplaceEverywhere,
    RowEdits,
    Splices,
    WrapInList,
    apply_edit,
    replace_everywhere,
    short_row_names,
)
from deltamcp.deltas.parser import parse_edit
from deltamcp.deltas.root import root_of
from deltamcp.deltas.writer import to_json, write_edit
from deltamcp.values import JSON

_match_changed_line = re.compile(r"Changed(?:; full: .*| since [0-9a-f]+, now [0-9a-f]+:)").fullmatch
"""The line above the changes in a reply (`results.outcome.changed`); no delta begins so."""
_MIN_REPEATS = 3
"""Strings in which the same piece changes, from which on it is said once for all."""
_MAX_COST_SHARE = 0.8
"""Of the characters that takes otherwise, at most."""
_MAX_REVISED_CHARS = 20_000
"""Of changes that are looked at twice."""
_MAX_STRAY_RATIO = 3
"""Places where a piece stands for each where it changes, at most: the others would have to be changed back."""


def make_delta(base: JSON, new: JSON, keys: Iterable[str] = (), *, self_contained: bool = False) -> str:
    """The changes from `base` to `new`; "" where there are none. It is a text of its own: `write` tells how it reads.

    Args:
        keys: members that tell rows of a table apart; found where rows have such a member without.
        plain: for a reader who may not have seen all of the base: nothing is told by what was there before.
    """
    keys = tuple(keys)
    made = (None if self_contained else _diff_item_and_list(base, new, keys)) or diff(
        base, new, keys, self_contained=self_contained
    )
    if made is None:
        return ""
    return write_edit(made[0] if self_contained else _factor_out_repeats(base, new, keys, made))


def apply_delta(base: JSON, text: str, root: str | None = None) -> JSON:
    """What `delta` told of, made again from the base.

    Args:
        text: as it was sent, or without the line above the changes.
        root: of what it must give, as a reply's `_meta` tells it.

    Raises:
        DeltaError: it is not a delta of this base, or gives something else.
    """
    head, _, rest = text.partition("\n")
    if _match_changed_line(head):
        text = rest
    try:
        made = apply_edit(base, parse_edit(text, base)) if text else base
    except InvalidDeltaError:
        raise
    except (ValueError, RecursionError) as error:
        raise InvalidDeltaError(f"the delta cannot be read: {type(error).__name__}") from None
    if root is not None and root_of(made) != root:
        raise InvalidDeltaError("the delta was made for another base")
    return made


def _diff_item_and_list(base: Any, new: Any, keys: tuple[str, ...]) -> CostedEdit | None:
    """Where one thing becomes a list of its kind, or a list one of its items."""
    if type(base) is dict and type(new) is list:
        made = diff([base], new, keys)
        return (WrapInList(None), 6) if made is None else _wrapped_edit(WrapInList(made[0]), made)
    if type(base) is list and type(new) is dict and (place := most_similar(new, base)) is not None:
        made = diff(base[place], new, keys)
        return (PickItem(place, None), 8) if made is None else _wrapped_edit(PickItem(place, made[0]), made)
    return None


def _wrapped_edit(edit: Edit, made: CostedEdit) -> CostedEdit | None:
    return None if isinstance(made[0], Put) else (edit, made[1] + 8)


def _factor_out_repeats(base: JSON, new: JSON, keys: tuple[str, ...], made: CostedEdit) -> Edit:
    """The same with a piece that changes in many strings told first, if that is shorter."""
    edit, cost = made
    if cost > _MAX_REVISED_CHARS:
        return edit
    counted = Counter(_changed_pieces(base, edit))
    for (old, text), times in counted.most_common(1):
        if (
            times < _MIN_REPEATS
            or len(text) > 10 * len(old)
            or to_json(base).count(to_json(old)[1:-1]) > _MAX_STRAY_RATIO * times
        ):
            continue
        changed = replace_everywhere(base, old, text)
        rest = diff(changed, new, keys)
        if rest is None:
            return ReplaceEverywhere(old, text, None)
        if not isinstance(rest[0], Put) and rest[1] + len(old) + len(text) < _MAX_COST_SHARE * cost:
            return ReplaceEverywhere(old, text, rest[0])
    return edit


def _changed_pieces(base: Any, edit: Edit) -> Iterator[tuple[str, str]]:
    """The pieces of strings that change."""
    match edit:
        case Put(value):
            if isinstance(value, str) and isinstance(base, str) and (piece := strings.changed_middle(base, value)):
                yield piece
        case Splices(pieces):
            yield from pieces
        case LineEdits(hunks):
            for _, _, new in hunks:
                if isinstance(new, Splices):
                    yield from new.pieces
        case MemberEdits(edits):
            for name, change in edits.items():
                yield from _changed_pieces(base.get(name), change)
        case RowEdits(key, edits) if edits:
            rows = None if key is None else dict(zip(short_row_names(base, key), base, strict=True))
            for name, change in edits.items():
                yield from _changed_pieces(base[int(name)] if rows is None else rows[name], change)
