"""Reads parts of an encoded JSON document, at a path or in its rows, without decoding the rest.

A large list or object is read in chunks: one call of the decoder on all of it would hold the interpreter's lock for as
long as it takes, and a list of tiny items takes 70 bytes for each of them once it is split.
"""

import re
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, chain, islice
from typing import Any, Literal, TypeAlias, TypeVar

import msgspec
from msgspec import Raw

from deltamcp.errors import UsageError
from deltamcp.values import JSON
from deltamcp.wire import jsonrpc
from deltamcp.wire.message_bounds import count_values
from deltamcp.work import Work

_MAX_CHARS = 10_000
"""The longest path; a result is nested at most some hundred levels deep."""
_DOTTED = re.compile(r"\[(\d+)\]|\.?([^.\[]+)")


def parse_path(path: str) -> list[str]:
    """Parses a path: `/items/3/body`, `items.3.body` and `items[3].body` are the same; the empty path is the root.

    Raises:
        UsageError: the path is too long.
    """
    if len(path) > _MAX_CHARS:
        raise UsageError(f"path may have at most {_MAX_CHARS:,} characters.")
    if not path:
        return []
    if path.startswith("/"):
        return [step.replace("~1", "/").replace("~0", "~") for step in path[1:].split("/")]
    path = path.removeprefix("$")
    return [index or name for index, name in _DOTTED.findall(path)]


def pointer(*names: str | int) -> str:
    """Writes the JSON Pointer of a path, from its keys and indexes."""
    return "".join(f"/{str(name).replace('~', '~0').replace('/', '~1')}" for name in names)


RawJSON: TypeAlias = bytes | memoryview | Raw
JSONKind: TypeAlias = Literal["list", "object", "text", "scalar"]

MAX_VALUES = 500_000
"""The most values that are decoded at once, by `estimate_values`; once decoded, they take some 50 MB."""
MAX_MEMBERS = 50_000
"""The most members of an object that are read by name; larger objects are read as characters. They take 12 MB."""

_KINDS: dict[int, JSONKind] = {ord("["): "list", ord("{"): "object", ord('"'): "text"}
_INDEX = re.compile(r"0|[1-9][0-9]{0,11}")
_CHUNK_BYTES = 64 * 1024
"""The size of a chunk of a list or object that is decoded at once; a chunk with a larger item is larger."""
_BOUNDARIES = (b"},{", b"],[", b',"', b",")
"""Where a chunk may end, the likeliest first."""
_VALUES_PER_STEP = 16
"""How many values the decoder finds the ends of in the time of a step."""
_DECODED_PER_STEP = 4
"""How many values the decoder makes in the time of a step."""
_PACKED_PER_STEP = 4
"""How many items `PackedItems` notes the ends of in the time of a step."""
_SMALL_BYTES = 64
"""Documents in which there is no need to count values."""
_COUNTED_BYTES = 1024 * 1024
_EXACT_BYTES = 8 * 1024 * 1024
"""Documents of up to this size are counted without their texts where that decides; it takes three copies of them."""
_DECODED_BYTES = 256 * 1024
"""Larger documents are decoded in chunks, so that no call of the decoder takes long."""
_VALUE_MARKS = 3
_KEYS_PER_STEP = 8
_RAW_BYTES = 80
_SPACE = b" \t\r\n"

T = TypeVar("T", list[Raw], dict[str, Raw])

_decode_items = msgspec.json.Decoder(list[Raw]).decode
_decode_members = msgspec.json.Decoder(dict[str, Raw]).decode
decode: Callable[[RawJSON], JSON] = msgspec.json.Decoder().decode


class PathNotFoundError(UsageError):
    """The document has nothing at a path; the text tells the model how far the path leads."""


class TooManyMembersError(UsageError):
    """An object has more members than are read by name."""


class TooManyValuesError(UsageError):
    """A document has more values than are decoded at once."""


def kind(data: RawJSON) -> JSONKind:
    """Returns the kind of a JSON value, from its first character."""
    view = memoryview(data)
    at = 0
    while view[at] in _SPACE:
        at += 1
    return _KINDS.get(view[at], "scalar")


def estimate_values(data: RawJSON, work: Work) -> int:
    """Returns about how many values a document has, or more: it counts commas and brackets.

    The count ends at the first number above `MAX_VALUES`. Commas in texts count too if the document is very large.
    """
    if len(data) <= _SMALL_BYTES:
        return 1
    view, values = memoryview(data), 1
    for start in range(0, len(view), _COUNTED_BYTES):
        piece = bytes(view[start : start + _COUNTED_BYTES])
        work.scan(_VALUE_MARKS * len(piece))
        values += piece.count(b",") + piece.count(b"[") + piece.count(b"{")
        if values > MAX_VALUES:
            break
    if values > MAX_VALUES and len(view) <= _EXACT_BYTES:
        work.scan(_VALUE_MARKS * len(view))
        return count_values(bytes(view))
    return values


def strip_space(data: str | bytes, work: Work) -> bytes:
    """Returns JSON without the space between its values, which are written as they were; a text as it is."""
    work.scan(len(data))
    return data.encode() if isinstance(data, str) else msgspec.json.format(data, indent=-1)


def decode_counted(data: RawJSON, work: Work) -> JSON:
    """Decodes a document.

    Raises:
        TooManyValuesError: the document may have more than `MAX_VALUES` values.
    """
    if len(data) <= _SMALL_BYTES:  # as most rows, whose owner counts them
        return decode(data)
    work.scan(len(data))
    values = estimate_values(data, work)
    if values > MAX_VALUES:
        raise TooManyValuesError(f"More than {MAX_VALUES} values cannot be read at once; give the path of a part.")
    work.spend(values // _DECODED_PER_STEP)
    return _decode_in_chunks(data, work)


def _decode_in_chunks(data: RawJSON, work: Work) -> JSON:
    if len(data) <= _DECODED_BYTES:
        return decode(data)
    match kind(data):
        case "list":
            values: list[JSON] = []
            for chunk, text in _chunks(data, _decode_items, work):
                if len(text) <= _DECODED_BYTES:
                    values += decode(b"".join((b"[", text, b"]")))
                else:
                    values += (_decode_in_chunks(unit, work) for unit in chunk)
            return values
        case "object":
            found: dict[str, JSON] = {}
            for some, text in _chunks(data, _decode_members, work):
                if len(text) <= _DECODED_BYTES:
                    found |= decode(b"".join((b"{", text, b"}")))
                else:
                    found |= {name: _decode_in_chunks(unit, work) for name, unit in some.items()}
            return found
        case _:
            return decode(data)


def items(data: RawJSON, work: Work) -> Sequence[RawJSON]:
    """Returns the items of a JSON list, each still encoded."""
    if len(data) > _CHUNK_BYTES:
        return PackedItems.split(data, work)
    raw: Sequence[RawJSON] = _whole(data, _decode_items, work)
    return raw


def members(data: RawJSON, work: Work) -> dict[str, Raw]:
    """Returns the members of a JSON object, each value still encoded.

    Raises:
        TooManyMembersError: the object has more than `MAX_MEMBERS` members.
    """
    if len(data) <= _CHUNK_BYTES:
        return _whole(data, _decode_members, work)
    found: dict[str, Raw] = {}
    for chunk, _ in _chunks(data, _decode_members, work):
        found |= chunk
        if len(found) > MAX_MEMBERS:
            raise TooManyMembersError(
                f'An object with more than {MAX_MEMBERS} members is read as characters: "raw:" before its path.'
            )
    return found


def _whole(data: RawJSON, decode_units: Callable[[RawJSON], T], work: Work) -> T:
    work.scan(len(data))
    units = decode_units(data)
    work.spend(len(units) // _VALUES_PER_STEP)
    return units


def _chunks(data: RawJSON, decode_units: Callable[[RawJSON], T], work: Work) -> Iterator[tuple[T, memoryview]]:
    """Yields the items or members of a list or object in chunks, each with the JSON of the chunk.

    A chunk starts where an item starts. If the text from there to a comma is a list of items, then the comma is between
    two items; a comma inside an item leaves a bracket or a quote open.

    Raises:
        DecodeError: the JSON is malformed.
    """
    inner = _strip_space(data)
    opening, closing, inner = bytes(inner[:1]), bytes(inner[-1:]), inner[1:-1]
    total, size = len(inner), _CHUNK_BYTES
    while len(inner):
        if len(inner) == total and size * 2 > total:
            yield _whole(data, decode_units, work), inner
            return
        text = bytes(inner[:size])
        ends = [len(text)] if size >= len(inner) else [text.rfind(mark) + mark.index(b",") for mark in _BOUNDARIES]
        for end in ends:
            if end <= 0:
                continue
            work.scan(end)
            try:
                units = decode_units(opening + text[:end] + closing)
            except msgspec.DecodeError:
                continue
            work.spend(len(units) // _VALUES_PER_STEP)
            yield units, inner[:end]
            if end + 1 == len(inner):
                raise msgspec.DecodeError("a comma ends a list or an object")
            inner, size = inner[end + 1 :], _CHUNK_BYTES
            break
        else:
            if size >= len(inner):
                raise msgspec.DecodeError("an item or a member is malformed")
            size *= 2


def _strip_space(data: RawJSON) -> memoryview:
    view = memoryview(data)
    while view[0] in _SPACE:
        view = view[1:]
    while view[-1] in _SPACE:
        view = view[:-1]
    return view


class PackedItems(Sequence[RawJSON]):
    """The items of a JSON list as its text and the place where each item ends, which takes 8 bytes for each."""

    def __init__(self, data: memoryview, ends: "array[int]") -> None:
        """`data` has the items with a comma between two of them."""
        self._data = data
        self._ends = ends

    @classmethod
    def split(cls, data: RawJSON, work: Work) -> "PackedItems":
        """Returns the items of a list."""
        ends = array("Q")
        parts: list[bytes | memoryview] = []
        begin, is_compact = 0, True
        for chunk, text in _chunks(data, _decode_items, work):
            if not chunk:  # spaces only
                return cls(memoryview(b""), ends)
            work.spend(len(chunk) // _PACKED_PER_STEP)
            lengths = list(map(len, chunk))
            size = sum(lengths) + len(chunk) - 1
            is_compact &= size == len(text)
            parts.append(text if size == len(text) else msgspec.json.encode(chunk)[1:-1])
            ends.extend(accumulate(chain((begin + lengths[0],), (length + 1 for length in lengths[1:]))))
            begin += size + 1
        return cls(_strip_space(data)[1:-1] if is_compact else memoryview(b",".join(parts)), ends)

    @property
    def nbytes(self) -> int:
        """The bytes that the items take, with the text."""
        return self._data.nbytes + self._ends.itemsize * len(self._ends)

    @property
    def json(self) -> bytes:
        """The JSON of the list."""
        return b"".join((b"[", self._data, b"]"))

    def __len__(self) -> int:
        return len(self._ends)

    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, slice):
            return [self[at] for at in range(*place.indices(len(self._ends)))]
        at = range(len(self._ends))[place]
        return self._data[self._ends[at - 1] + 1 if at else 0 : self._ends[at]]


class PickedItems(Mapping[str, RawJSON]):
    """Some items of a list by their indexes, which take 8 bytes each."""

    def __init__(self, items: Sequence[RawJSON], places: "array[int]") -> None:
        self._items = items
        self._places = places

    @property
    def nbytes(self) -> int:
        """About how many bytes the items take, with the text."""
        items = self._items
        size = items.nbytes if isinstance(items, PackedItems) else sum(map(len, items)) + _RAW_BYTES * len(items)
        return size + self._places.itemsize * len(self._places)

    def __len__(self) -> int:
        return len(self._places)

    def __iter__(self) -> Iterator[str]:
        return map(str, self._places)

    def __getitem__(self, key: str) -> RawJSON:
        return self._items[int(key)]


def at(data: RawJSON, path: Sequence[str], work: Work) -> RawJSON:
    """Returns the part of a document at a path.

    Raises:
        PathNotFoundError: the document has nothing at the path.
    """
    for depth in range(len(path)):
        match kind(data):
            case "list":
                data = _item_at(data, path, depth, work)
            case "object":
                data = _member_at(data, path, depth, work)
            case _:
                raise PathNotFoundError(f"{_describe_path(path[:depth])} has no parts.")
    return data


def _item_at(data: RawJSON, path: Sequence[str], depth: int, work: Work) -> RawJSON:
    step, before = path[depth], 0
    wanted = int(step) if _INDEX.fullmatch(step) else None
    for chunk, _ in _chunks(data, _decode_items, work):
        if wanted is not None and wanted < before + len(chunk):
            return chunk[wanted - before]
        before += len(chunk)
    raise PathNotFoundError(f"There is no item {step[:50]!r} in {_describe_path(path[:depth])}: it has {before}.")


def _member_at(data: RawJSON, path: Sequence[str], depth: int, work: Work) -> RawJSON:
    step = path[depth]
    found: RawJSON | None = None
    first_names: list[str] = []
    for chunk, _ in _chunks(data, _decode_members, work):
        found = chunk.get(step, found)  # of two members with the same name, the last one counts
        first_names += islice(chunk, _NAMES_IN_ERROR - len(first_names))
    if found is None:
        names = ", ".join(name[:40] for name in first_names)
        raise PathNotFoundError(f"There is no {step[:50]!r} in {_describe_path(path[:depth])}, which has: {names}.")
    return found


_NAMES_IN_ERROR = 12


class Parts:
    """Finds the parts of one document at several paths; it splits each list and object on the way once."""

    def __init__(self, data: RawJSON, work: Work) -> None:
        self._data = data
        self._work = work
        self._split: dict[tuple[str, ...], Sequence[RawJSON] | Mapping[str, RawJSON]] = {}
        self._unit_count = 0

    def at(self, path: Sequence[str]) -> RawJSON:
        """Returns the part at a path.

        Raises:
            PathNotFoundError: the document has nothing at the path.
        """
        data = self._data
        for depth, step in enumerate(path):
            units = self._units(data, tuple(path[:depth]))
            if isinstance(units, Mapping) and step in units:
                data = units[step]
            elif isinstance(units, Sequence) and _INDEX.fullmatch(step) and int(step) < len(units):
                data = units[int(step)]
            else:
                data = (_item_at if kind(data) == "list" else _member_at)(data, path, depth, self._work)
        return data

    def _members(self, data: RawJSON) -> Mapping[str, RawJSON]:
        try:
            return members(data, self._work)
        except TooManyMembersError:
            return {}  # each member is looked up in chunks

    def _units(self, data: RawJSON, path: tuple[str, ...]) -> Sequence[RawJSON] | Mapping[str, RawJSON]:
        self._work.spend()
        units = self._split.get(path)
        if units is None:
            match kind(data):
                case "list":
                    units = items(data, self._work)
                case "object":
                    units = self._members(data)
                case _:
                    raise PathNotFoundError(f"{_describe_path(path)} has no parts.")
            self._unit_count += 1 if isinstance(units, PackedItems) else len(units)
            if self._unit_count > MAX_MEMBERS:
                self._split.clear()
                self._unit_count = 0
            self._split[path] = units
        return units


_MAX_EXCERPT_DEPTH = 8
"""Parts at a greater depth are kept whole in an excerpt."""
_MIN_UNITS = 4
"""The items or members that an excerpt keeps at least; fewer would not show how well a table compresses them."""


def excerpt(data: RawJSON, size: int, work: Work, depth: int = 0) -> JSON:
    """Returns a value with only the first items of its lists and the first members of its objects, of about `size`."""
    whole = kind(data)
    if len(data) <= size or depth == _MAX_EXCERPT_DEPTH or whole not in ("list", "object"):
        return decode_counted(data, work)
    units = _first_units(data, whole, work)
    kept: dict[Any, RawJSON] = {}
    used = 0
    for key, unit in units:
        if used > size and len(kept) >= _MIN_UNITS:
            break
        kept[key] = unit
        used += min(len(unit), size)
    share = size // max(1, sum(len(unit) * _MIN_UNITS > size for unit in kept.values()))
    parts = {key: excerpt(unit, share, work, depth + 1) for key, unit in kept.items()}
    return parts if whole == "object" else list(parts.values())


def _first_units(data: RawJSON, whole: JSONKind, work: Work) -> Iterable[tuple[Any, RawJSON]]:
    """Yields keys or indexes and units as far as they are read."""
    if whole == "object":
        return (member for chunk, _ in _chunks(data, _decode_members, work) for member in chunk.items())
    return enumerate(unit for chunk, _ in _chunks(data, _decode_items, work) for unit in chunk)


def _describe_path(path: Sequence[str]) -> str:
    return pointer(*path)[:200] or "the result"


class LazyItems(Sequence[RawJSON]):
    """The items of a Python list, each encoded on access.

    `items` of an encoded list takes 70 bytes per item besides the item, which for small items exceeds the document.
    """

    def __init__(self, values: list[JSON]) -> None:
        self._values = values

    def __len__(self) -> int:
        return len(self._values)

    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, slice):
            return [self[at] for at in range(*place.indices(len(self._values)))]
        return jsonrpc.encode(self._values[place])

    @classmethod
    def at(cls, value: Any, path: Sequence[str]) -> "LazyItems | None":
        """Returns the items of the list at a path in a value; None where there is no plain list."""
        for step in path:
            if type(value) is not dict or step not in value:
                return None
            value = value[step]
        return cls(value) if type(value) is list else None


def rows_at(data: RawJSON, path: Sequence[str], value: Any, work: Work) -> Sequence[RawJSON]:
    """Returns the rows at a path, each encoded; `value` is the decoded `data`, where available."""
    return LazyItems.at(value, path) or items(at(data, path, work), work)


class LazyMembers(Mapping[str, RawJSON]):
    """The members of a Python dict, each value encoded on access."""

    def __init__(self, values: dict[str, JSON]) -> None:
        self._values = values

    def __len__(self) -> int:
        return len(self._values)

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __getitem__(self, key: str) -> RawJSON:
        return jsonrpc.encode(self._values[key])

    @classmethod
    def from_dict(cls, value: Any, work: Work) -> "LazyMembers | None":
        """Returns the members of a plain dict whose keys are all strings; None for any other value."""
        work.spend(len(value) // _KEYS_PER_STEP if type(value) is dict else 0)
        return cls(value) if type(value) is dict and all(type(key) is str for key in value) else None


Units: TypeAlias = Sequence[RawJSON] | Mapping[str, RawJSON] | str | bytes
"""What replies show in windows: the items of a list, the members of an object, a text; or the JSON of a scalar."""


def units(data: RawJSON, work: Work) -> Units:
    """Returns the units of a value; an object with very many members is its JSON."""
    match kind(data):
        case "list":
            return items(data, work)
        case "object":
            try:
                return members(data, work)
            except TooManyMembersError:
                return bytes(memoryview(data))
        case "text":
            return str(decode_counted(data, work))
        case _:
            return bytes(memoryview(data))


_USUAL_ROW_KEYS = ("data", "items", "results")
_NON_LIST_TYPES = frozenset({str, int, float, bool, dict, type(None)})
_MEMBERS_PER_STEP = 8
_MAX_ROWS_DEPTH = 3
"""Levels at which the server looks for rows."""


def find_rows(data: RawJSON, declared: str | None, work: Work, value: Any = None) -> list[str] | None:
    """Returns the path to the rows of a result; None where it has none. `value` is the decoded result, where available.

    The path is the declared one; else the root, `data`, `items` or `results`; else the list that is most of the value.
    """
    if declared is not None:
        path = parse_path(declared)
        try:
            return path if kind(at(data, path, work)) == "list" else None
        except PathNotFoundError:
            return None
    if type(value) is dict:
        work.spend(len(value) // _MEMBERS_PER_STEP)
    if (
        type(value) is dict
        and value.keys().isdisjoint(_USUAL_ROW_KEYS)
        and all(type(member) in _NON_LIST_TYPES for member in value.values())
    ):
        return None  # takes a tenth of the time of reading the JSON
    return _find_rows_below(data, _MAX_ROWS_DEPTH, work)


def _find_rows_below(data: RawJSON, depth: int, work: Work) -> list[str] | None:
    json_kind = kind(data)
    if json_kind == "list":
        return []
    if json_kind != "object" or not depth:
        return None
    try:
        inside = members(data, work)
    except TooManyMembersError:
        return None
    for name in _USUAL_ROW_KEYS:
        if name in inside and len(inside[name]) > 2:
            below = _find_rows_below(inside[name], depth - 1, work)
            if below is not None:
                return [name, *below]
    largest = max(inside, key=lambda name: len(inside[name]), default=None)
    if largest is None or len(inside[largest]) * 2 < len(data) or kind(inside[largest]) != "list":
        return None
    return [largest]
