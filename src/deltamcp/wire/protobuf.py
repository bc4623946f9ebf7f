"""Protobuf on the wire: fields counted before anything decodes them, and JSON values as `google.protobuf.Struct`.

An integer that no double holds exactly is written as a string of its digits. The functions take and fill messages of
any class with Struct's fields, so that nothing here imports protobuf.

A field takes up to fifty times the memory of its bytes once it is decoded, and protobuf holds the interpreter's lock
until all of them are. The length of a text costs nothing here, because the count passes over it.
"""

import math
import re
from typing import Any, TypeAlias

from msgspec import to_builtins

from deltamcp.values import JSON
from deltamcp.wire.message_bounds import MAX_DIGITS

MAX_DEPTH = 30
"""The deepest nesting of objects and arrays; protobuf itself refuses to read a Struct of more than 32."""
LARGEST_INTEGER = 2**53 - 1
"""Up to here a double holds every integer."""
_DIGITS = re.compile(r"-?(0|[1-9][0-9]*)", re.ASCII)


class StructError(ValueError):
    """A value that a Struct cannot hold; the text says why."""


class TooDeepError(StructError):
    """A value that is nested too deeply."""

    def __init__(self) -> None:
        super().__init__(f"The value is nested more than {MAX_DEPTH} levels deep.")


class TooManyError(StructError):
    """A value with too many parts."""

    def __init__(self) -> None:
        super().__init__("The value has too many values and names of fields.")


# Writing


def write_struct(value: JSON, struct: Any) -> list[str]:
    """Fills an empty Struct with a value, and returns the JSON pointers of the integers that it has as strings.

    A value that is no object becomes the field `value` of one.

    Raises:
        TooDeepError: the value is nested more than `MAX_DEPTH` levels deep.
        StructError: it has a number that is not finite, or something that JSON does not have.
    """
    root = value if isinstance(value, dict) else {"value": value}
    large: list[int] = []
    try:
        _write_object(struct.fields, root, 1, large)
    except (TypeError, UnicodeEncodeError, OverflowError) as error:
        raise StructError("The value has something that JSON cannot express.") from error
    return _find_large(root) if large else []


def _write_object(fields: Any, value: dict[str, JSON], depth: int, large: list[int]) -> None:
    if depth > MAX_DEPTH:
        raise TooDeepError
    for key, item in value.items():
        if type(item) is str:
            fields[key].string_value = item
        else:
            _write_value(fields[key], item, depth, large)


def _write_value(target: Any, value: JSON, depth: int, large: list[int]) -> None:
    kind = type(value)
    if kind is str:
        target.string_value = value
    elif kind is int:
        if -LARGEST_INTEGER <= value <= LARGEST_INTEGER:
            target.number_value = value
        else:
            large.append(value)
            target.string_value = _digits(value)
    elif kind is bool:
        target.bool_value = value
    elif kind is float:
        if not math.isfinite(value):
            raise StructError("JSON has no number that is infinite or not a number.")
        target.number_value = value
    elif value is None:
        target.null_value = 0
    elif kind is dict:
        inner = target.struct_value
        if not value:
            inner.SetInParent()
        _write_object(inner.fields, value, depth + 1, large)
    elif kind is list or kind is tuple:
        _write_array(target.list_value, value, depth + 1, large)
    else:
        plain = to_builtins(value, str_keys=True)
        if type(plain) is kind:
            raise TypeError(f"{kind} cannot be written")
        _write_value(target, plain, depth, large)


def _write_array(target: Any, items: list[JSON], depth: int, large: list[int]) -> None:
    if depth > MAX_DEPTH:
        raise TooDeepError
    if not items:
        target.SetInParent()
    add = target.values.add
    for item in items:
        if type(item) is str:
            add().string_value = item
        else:
            _write_value(add(), item, depth, large)


def _digits(value: int) -> str:
    try:
        return str(value)
    except ValueError as error:  # more digits than Python writes
        raise StructError("The value has an integer of too many digits.") from error


def _find_large(value: JSON, pointer: str = "") -> list[str]:
    """Returns the pointers of the integers that are written as strings, in their order."""
    if type(value) is int:
        return [] if -LARGEST_INTEGER <= value <= LARGEST_INTEGER else [pointer]
    if isinstance(value, dict):
        steps = ((key.replace("~", "~0").replace("/", "~1"), item) for key, item in value.items())
    elif isinstance(value, list | tuple):
        steps = ((str(place), item) for place, item in enumerate(value))
    else:
        return []
    return [found for step, item in steps for found in _find_large(item, f"{pointer}/{step}")]


# Reading


def read_struct(struct: Any, max_values: int) -> dict[str, JSON]:
    """Returns the object that a Struct holds; integral doubles up to `LARGEST_INTEGER` are integers.

    Raises:
        TooManyError: it has more than `max_values` values and names of fields.
        StructError: it has a number that is not finite.
    """
    try:
        return _read_object(struct, _Rest(max_values))
    except TooManyError:
        raise
    except (ValueError, OverflowError):  # what int() raises for them
        raise StructError("JSON has no number that is infinite or not a number.") from None


class _Rest:
    """How many values may still be read."""

    __slots__ = ("_count",)

    def __init__(self, count: int) -> None:
        self._count = count

    def take(self, count: int) -> None:
        self._count -= count
        if self._count < 0:
            raise TooManyError


def _read_object(struct: Any, rest: _Rest) -> dict[str, JSON]:
    # Most values are texts and numbers other than "" and 0, and asking which field is set costs more than reading two.
    found: dict[str, JSON] = {}
    fields = struct.fields
    rest.take(2 * len(fields))
    for key in fields:
        value = fields[key]
        if text := value.string_value:
            found[key] = text
        elif number := value.number_value:
            whole = int(number)
            is_exact = whole == number and -LARGEST_INTEGER <= whole <= LARGEST_INTEGER
            found[key] = whole if is_exact else number
        elif value.bool_value:
            found[key] = True
        else:
            found[key] = _read_other(value, rest)
    return found


def _read_array(values: Any, rest: _Rest) -> list[JSON]:
    found: list[JSON] = []
    rest.take(len(values))
    for value in values:
        if text := value.string_value:
            found.append(text)
        elif number := value.number_value:
            whole = int(number)
            is_exact = whole == number and -LARGEST_INTEGER <= whole <= LARGEST_INTEGER
            found.append(whole if is_exact else number)
        else:
            found.append(_read_other(value, rest))
    return found


def _read_other(value: Any, rest: _Rest) -> JSON:
    kind = value.WhichOneof("kind")
    if kind == "struct_value":
        return _read_object(value.struct_value, rest)
    if kind == "list_value":
        return _read_array(value.list_value.values, rest)
    if kind == "number_value":
        zero: float = value.number_value
        return zero if math.copysign(1.0, zero) < 0 else 0  # JSON has -0.0 too
    if kind == "bool_value":
        return value.bool_value
    return "" if kind == "string_value" else None


# Integers that came as strings


def restore_integers(value: JSON, schema: JSON) -> JSON:
    """Returns a value with integers in place of strings of digits, where a schema asks for integers only."""
    if not isinstance(schema, dict):
        return value
    if isinstance(value, str):
        if schema.get("type") == "integer" and len(value) <= MAX_DIGITS and _DIGITS.fullmatch(value):
            return int(value)
        return value
    if isinstance(value, dict):
        properties = schema.get("properties")
        if not isinstance(properties, dict):
            return value
        return {key: restore_integers(item, properties.get(key)) for key, item in value.items()}
    if isinstance(value, list):
        items = schema.get("items")
        return [restore_integers(item, items) for item in value] if isinstance(items, dict) else value
    return value


def restore_pointers(value: JSON, pointers: list[str]) -> None:
    """Replaces the strings at these JSON pointers by the integers that they are the digits of; skips other pointers."""
    for pointer in pointers:
        *steps, last = [step.replace("~1", "/").replace("~0", "~") for step in pointer.split("/")[1:]] or [""]
        place = value
        try:
            for step in steps:
                place = place[int(step) if isinstance(place, list) else step]
            key = int(last) if isinstance(place, list) else last
            if isinstance(place[key], str) and len(place[key]) <= MAX_DIGITS and _DIGITS.fullmatch(place[key]):
                place[key] = int(place[key])
        except (KeyError, IndexError, TypeError, ValueError):
            continue


MAX_MESSAGE_DEPTH = 100
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
            if len(outer) >= MAX_MESSAGE_DEPTH:
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
