"""The shape of a value: names, types and numbers of rows, without the values, for a caller that asks for less of it.

    {total:int, items:127 x {id:int, user:{login}, labels?:0-4 x str}, files:60 x *:{size:int}}

`n x` is a list of n items, `n x *` an object whose n keys are data. A name without a type is of a text, and one that
ends with `?` is not in every item.
"""

import re
from collections.abc import Mapping, Sequence

from msgspec import Struct

from deltamcp import tokens
from deltamcp.values import JSON
from deltamcp.wire import jsonrpc
from deltamcp.work import Work

_MIN_DATA_KEYS = 6
"""An object with fewer members has names for keys, whatever they look like."""
_MIN_COMMON_SHARE = 0.5
"""The members of an object with data for keys have at least this share of their own names in common."""
_MAX_DEPTH = 12
_MAX_ITEMS = 1_000
"""Items of a list whose shapes are put together; of longer lists these are spread over the list."""
_MAX_MEMBERS = 200
"""Names of an object that are looked at."""
_NAME = re.compile(r"[A-Za-z_$@][A-Za-z0-9_$@-]{0,39}")
_PLAIN_WORD = re.compile(r"[A-Za-z_$@]+(?:[_-][A-Za-z]+)*")
_DEPTHS, _WIDTHS = (8, 4, 3, 2, 1), (60, 30, 15, 8, 4)
"""How many objects inside each other, and members of each, are written; of those that fit, what has most is taken."""
_MORE = "…"


class ValueShape(Struct):
    """What values at one place have in common."""

    types: dict[str, None]
    """The types of the values that are neither list nor object, in the order in which they were seen."""
    members: "dict[str, ValueShape]"
    """The members of the objects, by name."""
    counts: dict[str, int]
    """In how many of the objects each member is."""
    objects: int = 0
    """How many objects there are."""
    left_out: int = 0
    """How many members were not looked at, in the object with the most of them."""
    data_keys: tuple[int, int] | None = None
    """The least and the most keys, where the keys of the objects are data; `member` then is the shape of what they
    have."""
    member: "ValueShape | None" = None
    lengths: tuple[int, int] | None = None
    """The least and the most items of the lists; None where there is no list."""
    item: "ValueShape | None" = None


def _empty() -> ValueShape:
    return ValueShape({}, {}, {})


def shape_of(value: JSON, work: Work) -> ValueShape:
    """Return the shape of a value."""
    return _merge([value], work, 0)


def _merge(values: Sequence[JSON], work: Work, depth: int) -> ValueShape:
    """Return what the values have in common."""
    shape = _empty()
    objects: list[dict[str, JSON]] = []
    items: list[JSON] = []
    for value in values:
        work.spend()
        if isinstance(value, dict):
            objects.append(value)
        elif isinstance(value, list):
            least, most = shape.lengths or (len(value), len(value))
            shape.lengths = min(least, len(value)), max(most, len(value))
            room = max(1, _MAX_ITEMS // len(values))
            items += value if len(value) <= room else value[:: -(-len(value) // room)]
        else:
            shape.types[_type_name(value)] = None
    if items and depth < _MAX_DEPTH:
        shape.item = _merge(items, work, depth + 1)
    if objects and depth < _MAX_DEPTH:
        _add_objects(shape, objects, work, depth)
    return shape


def _add_objects(shape: ValueShape, objects: list[dict[str, JSON]], work: Work, depth: int) -> None:
    sizes = [len(each) for each in objects]
    if all(_has_data_keys(each, work) for each in objects):
        shape.data_keys = min(sizes), max(sizes)
        room = max(1, _MAX_ITEMS // len(objects))
        inside = [value for each in objects for value in list(each.values())[:room]]
        shape.member = _merge(inside, work, depth + 1)
        return
    shape.objects = len(objects)
    found: dict[str, list[JSON]] = {}
    for each in objects:
        work.spend(len(each) // 8)
        for name, value in each.items():
            if name in found:
                found[name].append(value)
            elif len(found) < _MAX_MEMBERS:
                found[name] = [value]
            else:
                shape.left_out = max(shape.left_out, len(each) - _MAX_MEMBERS)
    shape.counts = {name: len(values) for name, values in found.items()}
    shape.members = {name: _merge(values, work, depth + 1) for name, values in found.items()}


def _has_data_keys(value: Mapping[str, JSON], work: Work) -> bool:
    """Whether the keys of an object are data, such as versions, dates or ids: its members are alike.

    Objects below names that are words are taken for data only if they have most of their own names in common.
    """
    if len(value) < _MIN_DATA_KEYS:
        return False
    work.spend(len(value) // 4)
    kinds = {type(member) for member in value.values()} - {type(None)}
    if len(kinds) != 1:
        return False
    words = sum(_PLAIN_WORD.fullmatch(key) is not None for key in value)
    if words * 2 <= len(value):
        return True
    inner = [_inner_names(member) for member in value.values()]
    alike = [names for names in inner if names]
    if len(alike) * 2 <= len(value):
        return False
    common, every = set.intersection(*alike), set.union(*alike)
    return len(common) >= _MIN_COMMON_SHARE * len(every)


def _inner_names(value: JSON) -> set[str]:
    if isinstance(value, list) and value:
        value = value[0]
    return set(value) if isinstance(value, dict) else set()


def _type_name(value: JSON) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "bool"
    return "str" if isinstance(value, str) else "int" if isinstance(value, int) else "float"


# Writing


def shape_text(shape: ValueShape, max_tokens: int, model: str | float = "o200k") -> str:
    """Write a shape in at most so many tokens: as deep and as wide as fits."""
    texts = dict.fromkeys(
        _write(shape, depth, width, is_narrow) for is_narrow in (False, True) for depth in _DEPTHS for width in _WIDTHS
    )
    costs = {text: tokens.count(text, model) for text in texts}
    fitting = [text for text, cost in costs.items() if cost <= max_tokens]
    if not fitting:
        return _cut(min(costs, key=costs.__getitem__), max_tokens, model)
    return max(fitting, key=lambda text: (_count_names(text), costs[text]))


def _count_names(text: str) -> int:
    """Return how many different names a shape says, and types, which are few."""
    return len(set(_NAME.findall(text)))


def _cut(text: str, max_tokens: int, model: str | float) -> str:
    while tokens.count(text + _MORE, model) > max_tokens:
        text = text[: len(text) * 3 // 4]
    return text + _MORE


def _write(shape: ValueShape, depth: int, width: int, is_narrow: bool) -> str:
    """Write a shape; of a narrow one only the largest part is opened in each object."""
    parts = [name for name in shape.types if name != "null" or len(shape.types) == 1]
    if shape.lengths is not None:
        item = "" if shape.item is None else f" x {_write(shape.item, depth, width, is_narrow)}"
        parts.append(f"{_range(shape.lengths)}{item}" if item else "[]")
    if shape.data_keys is not None and shape.member is not None:
        parts.append(f"{_range(shape.data_keys)} x *:{_write(shape.member, depth, width, is_narrow)}")
    if shape.objects:
        parts.append(_write_object(shape, depth, width, is_narrow))
    if "null" in shape.types and parts and parts != ["null"]:
        parts.append("null")
    return "|".join(parts) or _MORE


def _write_object(shape: ValueShape, depth: int, width: int, is_narrow: bool) -> str:
    if not depth:
        return f"{{{_MORE}}}" if shape.members else "{}"
    shown = list(shape.members)[:width]
    opened = {max(shown, key=lambda name: _size(shape.members[name]))} if is_narrow and shown else {*shown}
    members = [
        _write_name(name)
        + "?" * (shape.counts[name] < shape.objects)
        + _write_type(shape.members[name], depth if name in opened else 1, width, is_narrow)
        for name in shown
    ]
    more = len(shape.members) - len(shown) + shape.left_out
    return f"{{{', '.join(members)}{f', {_MORE} +{more}' * bool(more)}}}"


def _size(shape: ValueShape) -> int:
    """Return how many values a part has, about."""
    size = 1 + sum(map(_size, shape.members.values()))
    if shape.lengths is not None and shape.item is not None:
        size += shape.lengths[1] * _size(shape.item)
    if shape.data_keys is not None and shape.member is not None:
        size += shape.data_keys[1] * _size(shape.member)
    return size


def _write_type(shape: ValueShape, depth: int, width: int, is_narrow: bool) -> str:
    text = _write(shape, depth - 1, width, is_narrow)
    return "" if text == "str" else f":{text}"


def _write_name(name: str) -> str:
    return name if _NAME.fullmatch(name) else jsonrpc.encode(name[:40]).decode()


def _range(counts: tuple[int, int]) -> str:
    least, most = counts
    return str(least) if least == most else f"{least}-{most}"
