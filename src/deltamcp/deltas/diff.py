"""From one JSON value to another, by edits: objects by member, tables by row, texts by line."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

import msgspec

from deltamcp.deltas import strings
from deltamcp.deltas.align import Effort
from deltamcp.deltas.edits import Copy, Edit, Members, Placed, Put, Rows, called
from deltamcp.deltas.keys import find_key, usable
from deltamcp.deltas.pairing import by_key, by_place
from deltamcp.deltas.root import form
from deltamcp.values import JSON

_EFFORT = 300_000
"""Items compared for any two values, and one more for every other byte of the new one: some 60 ms for 1 MB."""
_DEEPEST = 40
"""Levels into which differences are followed; each is encoded once more on the way down."""
_NEAR = 16
"""Rows looked at for one that a new row is like."""
_SHORT = 6
"""Characters of a row's name that are no more than its place has."""
_SIGNS = 4
"""Characters that a change takes beside its name and value."""

_encode = msgspec.json.Encoder().encode

Made: TypeAlias = tuple[Edit, int]
"""An edit, and about how many characters it takes to tell."""


def diff(base: JSON, new: JSON, keys: Iterable[str] = (), *, plain: bool = False) -> Made | None:
    """What makes `new` of `base`; None where nothing does, because they are the same.

    Args:
        keys: members declared to be what tells rows apart, the first that does being used.
        plain: nothing is told by what was there before, neither copies nor pieces.
    """
    return _Diff(tuple(keys), plain, Effort(_EFFORT + _size(new) // 2)).of(base, new, 0)


class _Diff:
    def __init__(self, keys: tuple[str, ...], plain: bool, effort: Effort) -> None:
        self._keys = keys
        self._plain = plain
        self._effort = effort

    def of(self, base: Any, new: Any, depth: int) -> Made | None:
        kind = type(base)
        if kind is not type(new):
            return _put(new)
        if kind is str:
            return None if base == new else _shorter(strings.edit(base, new, self._effort, not self._plain), new)
        if kind is not dict and kind is not list:
            # 0.0 and -0.0 are equal, and not the same.
            return None if base == new and (kind is not float or repr(base) == repr(new)) else _put(new)
        # Of the whole the parts are looked at anyway; further down most are equal, and seen to be at once.
        if depth and form(base) == form(new):
            return None
        if depth == _DEEPEST:
            return _put(new)
        made = self._members(base, new, depth) if kind is dict else self._rows(base, new, depth)
        return None if _is_nothing(made[0]) else _shorter(made, new)

    def _members(self, base: dict[str, Any], new: dict[str, Any], depth: int) -> Made:
        edits: dict[str, Edit] = {}
        removed = tuple(name for name in base if name not in new)
        models = [*removed[:_NEAR], next(reversed(base))] if base and not self._plain else []
        cost = sum(map(len, removed)) + _SIGNS * len(removed)
        for name, value in new.items():
            made = (
                self.of(base[name], value, depth + 1)
                if name in base
                else self._like(value, [(model, base[model]) for model in models], depth)
            )
            if made is not None:
                edits[name] = made[0]
                cost += len(name) + _SIGNS + made[1]
        return Members(edits, removed), cost

    def _like(self, value: Any, models: Iterable[tuple[str, Any]], depth: int) -> Made:
        """Something new: a copy of what is like it, up to an edit, where that is shorter."""
        best = _put(value)
        if self._plain or type(value) is not dict or len(value) < 2:
            return best
        named = list(models)
        if not self._effort.allows(len(named) * len(value)):
            return best
        place = likest(value, [model for _, model in named])
        if place is None:
            return best
        name, model = named[place]
        made = None if form(model) == form(value) else self._members(model, value, depth + 1)
        cost = len(name) + 6 + (made[1] if made is not None else 0)
        return (Copy(name, made[0] if made is not None else None), cost) if cost < best[1] else best

    def _rows(self, base: list[Any], new: list[Any], depth: int) -> Made:
        forms, new_forms = _forms(base, new)
        key = next((key for key in self._keys if _tells(base, new, key)), None)
        key = key or find_key(base, new, forms, new_forms)
        name_of: Callable[[int], str] = str if key is None else called(base, key).__getitem__
        if key is None:
            pairing = by_place(forms, new_forms, self._effort)
        else:
            pairing = by_key(base, new, key, forms, new_forms)
            if pairing.only_ends and sum(map(len, map(name_of, pairing.removed))) > _SHORT * len(pairing.removed):
                key, name_of = None, str  # rows that only go and come are told by their places, if their names are long
        edits: dict[str, Edit] = {}
        cost = len(key or "") + 3
        for place, new_place in pairing.changed:
            made = self.of(base[place], new[new_place], depth + 1)
            assert made is not None, "rows that differ have different forms"
            edits[name_of(place)] = made[0]
            cost += len(name_of(place)) + made[1] + _SIGNS
        removed = tuple(map(name_of, pairing.removed))
        cost += sum(len(name) + 2 for name in removed)
        placed: list[Placed] = []
        length = len(new) - len(pairing.arriving)
        for at, old in pairing.arriving:
            row, size = self._like(new[at], _near(base, name_of, at), depth) if old is None else (name_of(old), 6)
            assert isinstance(row, str | Put | Copy), "a row comes from elsewhere, or is new"
            placed.append(Placed(None if at == length else at, row))
            length += 1
            cost += size + 4
        return Rows(key, edits, removed, tuple(placed)), cost


def _is_nothing(edit: Edit) -> bool:
    match edit:
        case Members(edits, removed):
            return not edits and not removed
        case Rows(_, edits, removed, placed):
            return not edits and not removed and not placed
        case _:
            return False


def _size(value: JSON) -> int:
    return len(_encode(value))


def _forms(base: list[Any], new: list[Any]) -> tuple[Sequence[Any], Sequence[Any]]:
    """What is equal where items are the same; of numbers or texts alone, themselves."""
    kinds = {*map(type, base), *map(type, new)}
    if kinds in ({int}, {str}):
        return base, new
    return list(map(form, base)), list(map(form, new))


def likest(value: dict[str, Any], among: Sequence[Any]) -> int | None:
    """The place of what a value is most like; None where it is like nothing."""
    likeness = [_alike(model, value) for model in among]
    best = max(likeness, default=0)
    return likeness.index(best) if best > 0 else None


def _put(value: Any) -> Made:
    return Put(value), _size(value)


def _shorter(made: Made | tuple[Any, int] | None, new: Any) -> Made:
    put = _put(new)
    return put if made is None or made[1] >= put[1] else made


def _tells(base: list[Any], new: list[Any], key: str) -> bool:
    if not base or not new:
        return False
    here, there = usable(base, key), usable(new, key)
    return here is not None and there is not None and type(here[0]) is type(there[0])


def _near(base: list[Any], name_of: Callable[[int], str], place: int) -> list[tuple[str, Any]]:
    """Rows from about where a new one is, and the first."""
    end = min(len(base), place + _NEAR // 2)
    return [(name_of(near), base[near]) for near in {0, *range(max(0, end - _NEAR), end)} if base]


def _alike(model: Any, value: dict[str, Any]) -> int:
    """How many characters of a value's members a model has the same, less the members it should not have."""
    if type(model) is not dict:
        return 0
    same = sum(len(name) + 4 for name, item in value.items() if name in model and model[name] == item)
    return same - sum(len(name) + 2 for name in model if name not in value)
