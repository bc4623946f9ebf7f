"""Deltas as text: `make_delta` writes the changes between two values, `apply_delta` applies them to the base."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from deltamcp.deltas.diff import CostedEdit, changed_middle, diff, most_similar
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
from deltamcp.work import Work, unlimited_work

_match_changed_line = re.compile(r"Changed(?:; full: .*| since [0-9a-f]+, now [0-9a-f]+:)").fullmatch
"""The line that `results.changes.changed_text` writes above the changes in a reply. No delta begins with one."""
_MIN_REPEATS = 3
"""Strings in which the same piece must change before one `*` line replaces it in all of them."""
_MAX_COST_SHARE = 0.8
"""The largest share of the delta's characters that a delta with such a line may take."""
_MAX_REVISED_CHARS = 20_000
"""Characters of the longest delta that is searched for repeated changes."""
_MAX_STRAY_RATIO = 3
"""Occurrences of a piece per change of it, at most: the delta has to change the other occurrences back."""


def make_delta(
    base: JSON, new: JSON, keys: Iterable[str] = (), *, self_contained: bool = False, work: Work | None = None
) -> str:
    """Returns the changes from `base` to `new` as text, "" if there are none. The module `writer` shows the format.

    Args:
        keys: members that identify the rows of a table. If none of them does, `make_delta` looks for one that does.
        self_contained: for a reader that may not have seen all of the base: the delta neither copies parts of the base
            nor quotes pieces of its strings.
        work: counts the steps; without it the values are one's own, and there is no limit.
    """
    keys, work = tuple(keys), unlimited_work() if work is None else work
    costed = (None if self_contained else _diff_item_and_list(base, new, keys, work)) or diff(
        base, new, keys, work=work, self_contained=self_contained
    )
    if costed is None:
        return ""
    return write_edit(costed[0] if self_contained else _factor_out_repeats(base, new, keys, costed, work))


def apply_delta(base: JSON, text: str, root: str | None = None, *, work: Work | None = None) -> JSON:
    """Returns the new value: the base with the changes that `make_delta` wrote.

    Args:
        text: the delta as the server sent it, with or without the line above the changes.
        root: the root that the new value must have, as the reply's `_meta` states it.
        work: counts what the delta repeats; without it the values are one's own, and there is no limit.

    Raises:
        WorkLimitError: the new value is too large.
        InvalidDeltaError: the text is not a delta of this base, or the new value has another root.
    """
    head, _, rest = text.partition("\n")
    if _match_changed_line(head):
        text = rest
    try:
        new = apply_edit(base, parse_edit(text, base), work or unlimited_work()) if text else base
    except InvalidDeltaError:
        raise
    except (ValueError, RecursionError) as error:
        raise InvalidDeltaError(f"the delta cannot be read: {type(error).__name__}") from None
    if root is not None and root_of(new) != root:
        raise InvalidDeltaError("the delta was made for another base")
    return new


def _diff_item_and_list(base: Any, new: Any, keys: tuple[str, ...], work: Work) -> CostedEdit | None:
    """Diffs an object that becomes a list of objects, or a list that becomes one of its items; None for other pairs."""
    if type(base) is dict and type(new) is list:
        inner = diff([base], new, keys, work=work)
        return (WrapInList(None), 6) if inner is None else _wrapped_edit(WrapInList(inner[0]), inner)
    if type(base) is list and type(new) is dict:
        work.spend(len(base) * (1 + len(new)))
    if type(base) is list and type(new) is dict and (place := most_similar(new, base)) is not None:
        inner = diff(base[place], new, keys, work=work)
        return (PickItem(place, None), 8) if inner is None else _wrapped_edit(PickItem(place, inner[0]), inner)
    return None


def _wrapped_edit(edit: Edit, inner: CostedEdit) -> CostedEdit | None:
    return None if isinstance(inner[0], Put) else (edit, inner[1] + 8)


def _factor_out_repeats(base: JSON, new: JSON, keys: tuple[str, ...], costed: CostedEdit, work: Work) -> Edit:
    """Returns the edit, or a shorter one that first replaces a piece in every string."""
    edit, cost = costed
    if cost > _MAX_REVISED_CHARS:
        return edit
    for (old, text), times in Counter(_changed_pieces(base, edit)).most_common(1):
        if (
            times < _MIN_REPEATS
            or len(text) > 10 * len(old)
            or to_json(base).count(to_json(old)[1:-1]) > _MAX_STRAY_RATIO * times
        ):
            continue
        changed = replace_everywhere(base, old, text)
        rest = diff(changed, new, keys, work=work)
        if rest is None:
            return ReplaceEverywhere(old, text, None)
        if not isinstance(rest[0], Put) and rest[1] + len(old) + len(text) < _MAX_COST_SHARE * cost:
            return ReplaceEverywhere(old, text, rest[0])
    return edit


def _changed_pieces(base: Any, edit: Edit) -> Iterator[tuple[str, str]]:
    """Yields the old and the new text of every piece of a string that the edit changes."""
    match edit:
        case Put(value):
            if isinstance(value, str) and isinstance(base, str) and (piece := changed_middle(base, value)):
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
