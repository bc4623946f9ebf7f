"""What tells the rows of a table apart, from one state of it to the next."""

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
"""Members that are tried as keys."""
_SAMPLED_ROWS = 50
"""Changed rows that are looked at to tell what a key would cost."""
_MAX_KEY_CHARS = 200


def find_key(base: list[Any], new: list[Any], base_forms: Sequence[Any], new_forms: Sequence[Any]) -> str | None:
    """The member by whose values the rows are told apart at the least cost; None where none tells them apart.

    `*_forms` are equal where rows are.
    """
    if not base or not new or type(base[0]) is not dict:
        return None
    best: tuple[float, str] | None = None
    tried = 0
    for name in sorted(base[0], key=key_rank):
        here = unique_values(base, name)
        there = None if here is None else unique_values(new, name)
        if here is None or there is None or type(here[0]) is not type(there[0]):
            continue
        places = {value: place for place, value in enumerate(here)}
        pairs = [(places.get(value), place) for place, value in enumerate(there)]
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
    """About how many characters it takes to tell what changed in rows that go together."""
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
    """Names that keys commonly have, first."""
    low = name.lower()
    if low in _COMMON_KEY_NAMES:
        return _COMMON_KEY_NAMES.index(low)
    return len(_COMMON_KEY_NAMES) if low.endswith(_COMMON_KEY_ENDINGS) else len(_COMMON_KEY_NAMES) + 1


def unique_values(rows: list[Any], name: str) -> list[Any] | None:
    """What rows have under a name, where that is a text or a number from 0 for each, and different for all."""
    try:
        found = [row[name] for row in rows]
    except (KeyError, TypeError, IndexError):
        return None
    kind = type(found[0])
    if kind is not str and kind is not int:
        return None
    if any(type(value) is not kind for value in found) or len(set(found)) < len(found):
        return None
    if kind is int:
        return found if min(found) >= 0 else None
    return found if max(map(len, found)) <= _MAX_KEY_CHARS else None
