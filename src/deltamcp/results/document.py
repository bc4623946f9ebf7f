"""Reads parts of an encoded JSON document without decoding the rest."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import Raw

from deltamcp.errors import UsageError
from deltamcp.results.pointer import pointer
from deltamcp.values import JSON
from deltamcp.wire import jsonrpc

RawJSON: TypeAlias = bytes | memoryview | Raw
JSONKind: TypeAlias = Literal["list", "object", "text", "scalar"]

_KINDS: dict[int, JSONKind] = {ord("["): "list", ord("{"): "object", ord('"'): "text"}
_INDEX = re.compile(r"0|[1-9][0-9]{0,11}")
_decode_items = msgspec.json.Decoder(list[Raw]).decode
_decode_members = msgspec.json.Decoder(dict[str, Raw]).decode
decode: Callable[[RawJSON], JSON] = msgspec.json.Decoder().decode


class PathNotFoundError(UsageError):
    """The document has nothing at a path; the text tells the model how far the path leads."""


def kind(data: RawJSON) -> JSONKind:
    """Return the kind of a JSON value, from its first character."""
    first = memoryview(data)[0]
    if first in b" \t\r\n":
        first = bytes(memoryview(data)).lstrip()[0]
    return _KINDS.get(first, "scalar")


def items(data: RawJSON) -> list[RawJSON]:
    """Return the items of a JSON list, each still encoded."""
    raw: list[RawJSON] = _decode_items(data)  # type: ignore[assignment]
    return raw


def members(data: RawJSON) -> dict[str, Raw]:
    """Return the members of a JSON object, each value still encoded."""
    return _decode_members(data)


def at(data: RawJSON, path: Sequence[str]) -> RawJSON:
    """Return the part of a document at a path.

    Raises:
        PathNotFoundError: the document has nothing at the path.
    """
    for depth, step in enumerate(path):
        match kind(data):
            case "list":
                listed = items(data)
                if not _INDEX.fullmatch(step) or int(step) >= len(listed):
                    raise PathNotFoundError(
                        f"There is no item {step[:50]!r} in {_describe_path(path[:depth])}: it has {len(listed)}."
                    )
                data = listed[int(step)]
            case "object":
                known = members(data)
                if step not in known:
                    first_names = ", ".join(name[:40] for name in islice(known, 12))
                    raise PathNotFoundError(
                        f"There is no {step[:50]!r} in {_describe_path(path[:depth])}, which has: {first_names}."
                    )
                data = known[step]
            case _:
                raise PathNotFoundError(f"{_describe_path(path[:depth])} has no parts.")
    return data


_MAX_EXCERPT_DEPTH = 8
"""Parts at a greater depth are kept whole in an excerpt."""
_MIN_UNITS = 4
"""The items or members that an excerpt keeps at least; fewer would not show how well a table compresses them."""


def excerpt(data: RawJSON, size: int, depth: int = 0) -> JSON:
    """Return a value with only the first items of its lists and the first members of its objects, of about `size`."""
    whole = kind(data)
    if len(data) <= size or depth == _MAX_EXCERPT_DEPTH or whole not in ("list", "object"):
        return decode(data)
    units: Iterable[tuple[Any, RawJSON]] = members(data).items() if whole == "object" else enumerate(items(data))
    kept: dict[Any, RawJSON] = {}
    used = 0
    for key, unit in units:
        if used > size and len(kept) >= _MIN_UNITS:
            break
        kept[key] = unit
        used += min(len(unit), size)
    share = size // max(1, sum(len(unit) * _MIN_UNITS > size for unit in kept.values()))
    parts = {key: excerpt(unit, share, depth + 1) for key, unit in kept.items()}
    return parts if whole == "object" else list(parts.values())


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
            return [jsonrpc.encode(value) for value in self._values[place]]
        return jsonrpc.encode(self._values[place])

    @classmethod
    def at(cls, value: Any, path: Sequence[str]) -> "LazyItems | None":
        """Return the items of the list at a path in a value; None where there is no plain list."""
        for step in path:
            if type(value) is not dict or step not in value:
                return None
            value = value[step]
        return cls(value) if type(value) is list else None


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
    def from_dict(cls, value: Any) -> "LazyMembers | None":
        """Return the members of a plain dict whose keys are all strings; None for any other value."""
        return cls(value) if type(value) is dict and all(type(key) is str for key in value) else None


Units: TypeAlias = list[RawJSON] | Mapping[str, RawJSON] | str | bytes
"""What replies show in windows: the items of a list, the members of an object, a text; or the JSON of a scalar."""
