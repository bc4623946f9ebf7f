"""Detection of the member that identifies the rows of a table across two of its states."""

from collections.abc import Sequence
from typing import Any

_COMMON_KEY_NAMES = (
    "id",
    "key",
    "uid",
    "uuid",
    "guid",
    "name",
    "path",
    "url",
    "sha",
    "number",
    "slug",
    "code",
    "login",
)
_COMMON_KEY_ENDINGS = ("id", "_key", "uuid", "guid")
_MAX_TRIED_KEYS = 4
"""Members that `find_key` tries as keys."""
_SAMPLED_ROWS = 50
"""Changed rows from which the cost of a key is estimated."""
_MAX_KEY_CHARS = 200


def find_key(base: list[Any], new: list[Any], base_forms: Sequence[Any], new_forms: Sequence[Any]) -> str | None:
    """Return the member that identifies the rows at the least cost; None if no member identifies them.

    `base_forms` and `new_forms` are equal where rows are equal.
    """
    if not base or not new or type(base[0]) is not dict:
        return None
    best: tuple[float, str] | None = None
    tried = 0
    for name in sorted(base[0], key=key_rank):
        values = unique_values(base, name)
        new_values = None if values is None else unique_values(new, name)
        if values is None or new_values is None or type(values[0]) is not type(new_values[0]):
            continue
        places = {value: place for place, value in enumerate(values)}
        pairs = [(places.get(value), place) for place, value in enumerate(new_values)]
        changed = [
            (place, new_place)
            for place, new_place in pairs
            if place is not None and base_forms[place] != new_forms[new_place]
        ]
        added = [len(new_forms[new_place]) for place, new_place in pairs if place is None]
        if len(added) < len(pairs):
            cost = sum(added) + _change_cost(base, new, name, changed)
            if best is None or cost < best[0]:
                best = (cost, name)
        tried += 1
        if tried == _MAX_TRIED_KEYS:
            break
    return None if best is None else best[1]


def _change_cost(base: list[Any], new: list[Any], key: str, pairs: list[tuple[int, int]]) -> float:
    """Estimate how many characters the changes between the paired rows take."""
    if not pairs:
        return 0.0
    cost = 0
    sample = pairs[:: max(1, len(pairs) // _SAMPLED_ROWS)]
    for place, new_place in sample:
        before, after = base[place], new[new_place]
        cost += len(str(after[key]))
        cost += sum(len(name) + len(str(item)) for name, item in after.items() if before.get(name) != item)
    return cost * len(pairs) / len(sample)


def key_rank(name: str) -> int:
    """Return a rank by which names that keys commonly have sort first."""
    lowered = name.lower()
    if lowered in _COMMON_KEY_NAMES:
        return _COMMON_KEY_NAMES.index(lowered)
    return len(_COMMON_KEY_NAMES) if lowered.endswith(_COMMON_KEY_ENDINGS) else len(_COMMON_KEY_NAMES) + 1


def unique_values(rows: list[Any], name: str) -> list[Any] | None:
    """Return the rows' values under a name if all are strings, or all integers from 0, and all differ; else None."""
    try:
        values = [row[name] for row in rows]
    except (KeyError, TypeError, IndexError):
        return None
    kind = type(values[0])
    if kind is not str and kind is not int:
        return None
    if any(type(value) is not kind for value in values) or len(set(values)) < len(values):
        return None
    if kind is int:
        return values if min(values) >= 0 else None
    return values if max(map(len, values)) <= _MAX_KEY_CHARS else None
