"""From one JSON value to another, by edits: objects by member, tables by row, texts by line."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

import msgspec

from deltamcp.deltas import strings
from deltamcp.deltas.edits import Copy, Edit, Members, Placed, Put, Rows, called
from deltamcp.deltas.keys import find_key, usable
from deltamcp.deltas.pairing import by_key, by_place
from deltamcp.values import JSON

_DEEPEST = 40
"""Levels into which differences are followed; each is encoded once more on the way down."""
_NEAR = 16
"""Rows looked at for one that a new row is like."""
_SIGNS = 4
"""Characters that a change takes beside its name and value."""

Made: TypeAlias = tuple[Edit, int]
"""An edit, and about how many characters it takes to tell."""

_form = msgspec.json.Encoder(order="sorted").encode


def diff(base: JSON, new: JSON, keys: Iterable[str] = ()) -> Made | None:
    """What makes `new` of `base`; None where nothing does, because they are the same.

    Args:
        keys: members declared to be what tells rows apart, the first that does being used.
    """
    return _Diff(tuple(keys)).of(base, new, 0)


class _Diff:
    def __init__(self, keys: tuple[str, ...]) -> None:
        self._keys = keys

    def of(self, base: Any, new: Any, depth: int) -> Made | None:
        kind = type(base)
        if kind is not type(new):
            return _put(new)
        if kind is str:
            return None if base == new else _shorter(strings.edit(base, new), new)
        if kind is not dict and kind is not list:
            # 0.0 and -0.0 are equal, and not the same.
            return None if base == new and (kind is not float or repr(base) == repr(new)) else _put(new)
        if _form(base) == _form(new):
            return None
        if depth == _DEEPEST:
            return _put(new)
        return _shorter(self._members(base, new, depth) if kind is dict else self._rows(base, new, depth), new)

    def _members(self, base: dict[str, Any], new: dict[str, Any], depth: int) -> Made:
        edits: dict[str, Edit] = {}
        removed = tuple(name for name in base if name not in new)
        cost = sum(map(len, removed)) + _SIGNS * len(removed)
        for name, value in new.items():
            made = self.of(base[name], value, depth + 1) if name in base else self._added(value, base, new, depth)
            if made is not None:
                edits[name] = made[0]
                cost += len(name) + _SIGNS + made[1]
        return Members(edits, removed), cost

    def _added(self, value: Any, base: dict[str, Any], new: dict[str, Any], depth: int) -> Made:
        """A new member: like one that went away, if any is, because names change; or like the last."""
        if type(value) is not dict or not base:
            return _put(value)
        gone = [name for name in base if name not in new][:_NEAR]
        return self._like(value, [(name, base[name]) for name in [*gone, next(reversed(base))]], depth)

    def _like(self, value: Any, models: Iterable[tuple[str, Any]], depth: int) -> Made:
        best = _put(value)
        if type(value) is not dict or len(value) < 2:
            return best
        named = list(models)
        place = likest(value, [model for _, model in named])
        if place is None:
            return best
        name, model = named[place]
        made = None if _form(model) == _form(value) else self._members(model, value, depth + 1)
        cost = len(name) + 6 + (made[1] if made is not None else 0)
        return (Copy(name, made[0] if made is not None else None), cost) if cost < best[1] else best

    def _rows(self, base: list[Any], new: list[Any], depth: int) -> Made:
        forms, new_forms = _forms(base, new)
        key = next((key for key in self._keys if _tells(base, new, key)), None)
        key = key or find_key(base, new, forms, new_forms)
        name_of: Callable[[int], str] = str if key is None else called(base, key).__getitem__
        pairing = by_place(forms, new_forms) if key is None else by_key(base, new, key, forms, new_forms)
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


def _forms(base: list[Any], new: list[Any]) -> tuple[Sequence[Any], Sequence[Any]]:
    """What is equal where items are the same; of numbers or texts alone, themselves."""
    kinds = {*map(type, base), *map(type, new)}
    if kinds in ({int}, {str}):
        return base, new
    return list(map(_form, base)), list(map(_form, new))


def likest(value: dict[str, Any], among: Sequence[Any]) -> int | None:
    """The place of what a value is most like; None where it is like nothing."""
    likeness = [_alike(model, value) for model in among]
    best = max(likeness, default=0)
    return likeness.index(best) if best > 0 else None


def _put(value: Any) -> Made:
    return Put(value), len(_form(value))


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
