"""What the results of an operation have in common, learned from one after another: names and types, never a value.

    {total_count:int, items:[{number:int, user:{login}, labels:[], milestone?:int}], files:{*:{size:int}}}

A name without a type is of a text, `?` marks one that not every object has, and `*` stands for names that may be data:
those that are no identifiers of 40 characters, or that two different results did not have.
"""

import re
from collections.abc import Callable, Sequence

from msgspec import Struct

from deltamcp import tokens
from deltamcp.results.value_shape import ValueShape

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,39}")
_ANY = "*"
_MAX_DEPTH = 6
_MAX_MEMBERS = 40
"""Names of one object that are remembered; further ones are not told."""
_MAX_PARTS = 100
"""Objects, lists and scalars of one shape that are remembered."""
_CONFIRMED = 2
"""The number of results that had a name, from which it is told."""
_DEPTHS, _WIDTHS = (6, 4, 3, 2, 1), (40, 20, 12, 8, 5, 3)
_MORE = "…"


class LearnedShape(Struct, omit_defaults=True, array_like=True):
    """What the values at one place had in common."""

    types: list[str] = []
    """The types of the values that were neither list nor object, in the order in which they came."""
    members: "dict[str, LearnedShape]" = {}
    """The members of the objects, by name."""
    other: "LearnedShape | None" = None
    """What members have whose names may be data."""
    item: "LearnedShape | None" = None
    """What the items of the lists have."""
    is_list: bool = False
    is_object: bool = False
    is_optional: bool = False
    """Whether not every object had this member."""
    results: int = 1
    """In how many results this place was; counted up to `_CONFIRMED`."""
    last: int = 1
    """The number of the last result that it was in, which counts once, however often it has the place."""


def learn(
    known: LearnedShape | None, shape: ValueShape, may_be_told: Callable[[str], bool] = lambda name: True
) -> LearnedShape:
    """Returns what is known after one more result, whose shape is given.

    Args:
        may_be_told: Whether a name may be told at all, as one that is a secret may not.
    """
    number = 1 if known is None else known.last + 1
    return _learn(known, shape, may_be_told, _Room(_MAX_PARTS, number), 0)


class _Room:
    """How many parts a shape may still get from the result with a number."""

    def __init__(self, parts: int, number: int) -> None:
        self.parts = parts
        self.number = number

    def take(self) -> bool:
        self.parts -= 1
        return self.parts >= 0


def _learn(
    known: LearnedShape | None, shape: ValueShape, may_be_told: Callable[[str], bool], room: _Room, depth: int
) -> LearnedShape:
    old = known or LearnedShape(results=0, last=0)
    learned = LearnedShape(
        types=list(dict.fromkeys([*old.types, *shape.types])),
        members={name: one for name, one in old.members.items() if room.take()},
        other=old.other,
        item=old.item,
        is_list=old.is_list or shape.lengths is not None,
        is_object=old.is_object or shape.objects > 0 or shape.data_keys is not None,
        is_optional=old.is_optional,
        results=min(_CONFIRMED, old.results + (old.last < room.number)),
        last=room.number,
    )
    if depth >= _MAX_DEPTH:
        return learned
    if shape.item is not None and room.take():
        learned.item = _learn(old.item, shape.item, may_be_told, room, depth + 1)
    if shape.member is not None and room.take():
        learned.other = _learn(old.other, shape.member, may_be_told, room, depth + 1)
    for name, member in shape.members.items():
        if name in learned.members:
            found = learned.members[name] = _learn(learned.members[name], member, may_be_told, room, depth + 1)
            found.is_optional |= shape.counts[name] < shape.objects
        elif len(learned.members) < _MAX_MEMBERS and _IDENTIFIER.fullmatch(name) and may_be_told(name):
            if room.take():
                found = learned.members[name] = _learn(None, member, may_be_told, room, depth + 1)
                found.is_optional = shape.counts[name] < shape.objects or old.is_object
        elif room.take():
            learned.other = _learn(learned.other, member, may_be_told, room, depth + 1)
    if shape.objects:
        for name in learned.members.keys() - shape.members.keys():
            learned.members[name].is_optional = True
    return learned


def tellable_shape(shape: LearnedShape) -> LearnedShape:
    """Returns a shape with only the names that may be told; what is below the others is below `*`."""
    members, other = {}, None if shape.other is None else tellable_shape(shape.other)
    for name, member in shape.members.items():
        inner = tellable_shape(member)
        if member.results >= _CONFIRMED:
            members[name] = inner
        else:
            other = inner if other is None else _join_shapes(other, inner)
    item = None if shape.item is None else tellable_shape(shape.item)
    return LearnedShape(
        shape.types, members, other, item, shape.is_list, shape.is_object, shape.is_optional, shape.results, shape.last
    )


def _join_shapes(one: LearnedShape, other: LearnedShape) -> LearnedShape:
    """Returns what two confirmed shapes have in common, as one place may have either."""
    members = {**other.members, **one.members}
    for name in one.members.keys() & other.members.keys():
        members[name] = _join_shapes(one.members[name], other.members[name])
    inner = _join_places(one.other, other.other)
    item = _join_places(one.item, other.item)
    types = list(dict.fromkeys([*one.types, *other.types]))
    return LearnedShape(
        types, members, inner, item, one.is_list or other.is_list, one.is_object or other.is_object, False, _CONFIRMED
    )


def _join_places(one: LearnedShape | None, other: LearnedShape | None) -> LearnedShape | None:
    return one or other if one is None or other is None else _join_shapes(one, other)


def learned_text(shape: LearnedShape, max_tokens: int, model: str | float = "o200k") -> str:
    """Writes a shape in at most so many tokens, as deep and as wide as fits; empty if there is nothing to tell."""
    told = tellable_shape(shape)
    if told.results < _CONFIRMED:
        return ""
    best, most = "", 0
    for text in dict.fromkeys(_write(told, depth, width) for depth in _DEPTHS for width in _WIDTHS):
        names = len({*re.findall(r"\w+", text)})
        if names > most and len(text) <= max_tokens * 8 and tokens.count(text, model) <= max_tokens:
            best, most = text, names
    return best


def _write(shape: LearnedShape, depth: int, width: int) -> str:
    parts = [name for name in shape.types if name != "null" or len(shape.types) == 1]
    if shape.is_list:
        parts.append(f"[{'' if shape.item is None else _write(shape.item, depth, width)}]")
    if shape.is_object:
        parts.append(_write_object(shape, depth, width))
    if "null" in shape.types and parts and parts != ["null"]:
        parts.append("null")
    return "|".join(parts) or _MORE


def _write_object(shape: LearnedShape, depth: int, width: int) -> str:
    if not depth:
        return f"{{{_MORE}}}"
    members: Sequence[tuple[str, LearnedShape]] = [*shape.members.items()]
    if shape.other is not None:
        members = [*members, (_ANY, shape.other)]
    written = []
    for name, member in members[:width]:
        text = _write(member, depth - 1, width)
        optional = "?" * (member.is_optional and name != _ANY)
        written.append(f"{name}{optional}{'' if text == 'str' else f':{text}'}")
    more = [_MORE] if len(members) > width else []
    return f"{{{', '.join([*written, *more])}}}"
