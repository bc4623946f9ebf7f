"""What tells the rows of a table apart, from one state of it to the next."""

from typing import Any

_NAMES = ("id", "key", "uid", "uuid", "guid", "name", "path", "url", "sha", "number", "slug", "code", "login")
_ENDS = ("id", "_key", "uuid", "guid")
_MOST = 4
"""Members that are tried as keys."""
_MOST_CHARS = 200


def find_key(base: list[Any], new: list[Any], base_forms: list[bytes], new_forms: list[bytes]) -> str | None:
    """The member whose values name the rows best; None where none does. `*_forms` are the rows' canonical bytes."""
    if not base or not new or type(base[0]) is not dict:
        return None
    candidates = sorted((rank(name), place, name) for place, name in enumerate(base[0]))
    best: tuple[Any, ...] | None = None
    tried = 0
    for order, _, name in candidates:
        here = usable(base, name)
        there = None if here is None else usable(new, name)
        if here is None or there is None or type(here[0]) is not type(there[0]):
            continue
        before = dict(zip(here, base_forms, strict=True))
        same = sum(before.get(value) == form for value, form in zip(there, new_forms, strict=True))
        common = sum(value in before for value in there)
        length = sum(len(str(value)) for value in here[:50])
        merit = (same, order < len(_NAMES) + 1, common, -length)
        if common and (best is None or merit > best[0]):
            best = (merit, name)
        tried += 1
        if tried == _MOST:
            break
    return None if best is None else best[1]


def rank(name: str) -> int:
    """Names that keys commonly have, first."""
    low = name.lower()
    if low in _NAMES:
        return _NAMES.index(low)
    return len(_NAMES) if low.endswith(_ENDS) else len(_NAMES) + 1


def usable(rows: list[Any], name: str) -> list[Any] | None:
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
    return found if max(map(len, found)) <= _MOST_CHARS else None
