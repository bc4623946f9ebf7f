"""Counts the fields of a protobuf message on the wire, before anything decodes it.

A field takes up to fifty times the memory of its bytes once it is decoded, and protobuf holds the interpreter's lock
until all of them are. The length of a text costs nothing here, because the count passes over it.
"""

from typing import TypeAlias

MAX_DEPTH = 100
"""The messages inside each other; protobuf itself refuses to read more."""

Shape: TypeAlias = "dict[int, Shape]"
"""The fields of a message that have messages in them, by their tags, and the shapes of those."""

_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5
_MAX_VARINT_BYTES = 10


class WireError(ValueError):
    """Bytes that are no message of the shape, or one that is nested too deeply."""


class TooManyFieldsError(ValueError):
    """A message with too many fields."""


def tag(number: int) -> int:
    """Returns the tag of a field with a message in it."""
    return number << 3 | _LENGTH


def count_fields(data: bytes, shape: Shape, limit: int) -> int:
    """Returns how many fields a message and the messages in it have, each as often as it is written.

    Raises:
        TooManyFieldsError: it has more than `limit`.
        WireError: it is no such message.
    """
    try:
        return _count(data, shape, limit)
    except IndexError:
        raise WireError("The message ends within a field.") from None


def _count(data: bytes, shape: Shape, limit: int) -> int:
    count = place = 0
    end = len(data)
    outer: list[tuple[int, Shape]] = []
    while True:
        while place >= end:
            if place > end:
                raise WireError("A field ends behind the message that it is in.")
            if not outer:
                return count
            end, shape = outer.pop()
        count += 1
        if count > limit:
            raise TooManyFieldsError(f"The message has more than {limit} fields.")
        field = data[place]
        place += 1
        if field > 0x7F:
            field, place = _read_varint(data, place - 1)
        kind = field & 7
        if kind == _LENGTH:
            size = data[place]
            place += 1
            if size > 0x7F:
                size, place = _read_varint(data, place - 1)
            inner = shape.get(field)
            if inner is None:
                place += size
                continue
            if len(outer) >= MAX_DEPTH:
                raise WireError("The message is nested too deeply.")
            outer.append((end, shape))
            if place + size > end:
                raise WireError("A field ends behind the message that it is in.")
            end, shape = place + size, inner
        elif kind == _VARINT:
            _, place = _read_varint(data, place)
        elif kind == _FIXED64:
            place += 8
        elif kind == _FIXED32:
            place += 4
        else:
            raise WireError("The message has a group, which no version of it has.")


def _read_varint(data: bytes, place: int) -> tuple[int, int]:
    """Returns a number of variable length, and the place behind it."""
    value = shift = 0
    for at in range(place, place + _MAX_VARINT_BYTES):
        byte = data[at]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at + 1
        shift += 7
    raise WireError("The message has a number of too many bytes.")
