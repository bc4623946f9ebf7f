"""A JSON document read without decoding more of it than is wanted."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import Raw

from deltamcp.errors import UnfitError
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


class PathNotFoundError(UnfitError):
    """There is nothing at a path; the text, for the model, says how far it leads."""


def kind(data: RawJSON) -> JSONKind:
    first = memoryview(data)[0]
    if first in b" \t\r\n":
        first = bytes(memoryview(data)).lstrip()[0]
    return _KINDS.get(first, "scalar")


def items(data: RawJSON) -> list[RawJSON]:
    found: list[RawJSON] = _decode_items(data)  # type: ignore[assignment]
    return found


def members(data: RawJSON) -> dict[str, Raw]:
    return _decode_members(data)


def at(data: RawJSON, path: Sequence[str]) -> RawJSON:
    """The part at a path.

    Raises:
        NowhereError: the path leads nowhere.
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
                    few = ", ".join(name[:40] for name in islice(known, 12))
                    raise PathNotFoundError(
                        f"There is no {step[:50]!r} in {_describe_path(path[:depth])}, which has: {few}."
                    )
                data = known[step]
            case _:
                raise PathNotFoundError(f"{_describe_path(path[:depth])} has no parts.")
    return data


def _describe_path(path: Sequence[str]) -> str:
    return pointer(*path)[:200] or "the result"


class LazyItems(Sequence[RawJSON]):
    """The items of a list that is at hand, each encoded when it is looked at.

    The items of an encoded one take 70 bytes each besides their own, which for small ones is more than the document.
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
        """The list at a path in a value; None where it is not there, or not a plain one."""
        for step in path:
            if type(value) is not dict or step not in value:
                return None
            value = value[step]
        return cls(value) if type(value) is list else None


class LazyMembers(Mapping[str, RawJSON]):
    """The same for the members of an object."""

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
        """Of a plain dict, whose keys are all text."""
        return cls(value) if type(value) is dict and all(type(key) is str for key in value) else None


Units: TypeAlias = list[RawJSON] | Mapping[str, RawJSON] | str | bytes
"""What is shown in windows: the items of a list, the members of an object, a text; or JSON that has none of these."""
