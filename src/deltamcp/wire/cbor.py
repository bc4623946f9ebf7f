"""CBOR (RFC 8949) for JSON values, compatible with peers that use cbor-x.

cbor2 encodes. The decoder is our own, because cbor2 hashes any map key, so that a sender can choose keys that collide;
turns tags into dates, expressions and cycles; and ignores bytes after the first item.
"""

import math
import struct
from collections.abc import Iterator
from typing import Any

import cbor2
from msgspec import UNSET

from deltamcp.limits import Limits
from deltamcp.values import JSON
from deltamcp.wire.message_bounds import MAX_DIGITS, too_deep, too_many_digits, too_many_values

_DOUBLES_FROM = 1 << 32
"""cbor-x writes integers of at least this magnitude as doubles, and reads integers of eight bytes as BigInt."""
_MAX_EXACT_INTEGER = 1 << 53
_EXPONENT_FROM = 1e21
"""JavaScript writes a smaller whole number without an exponent, so that it is an integer in JSON."""

_MAX_INTEGER_BYTES = math.ceil(MAX_DIGITS / math.log10(256))
"""The size of the largest integer, which has as many digits as in JSON."""

_VALUES_OF_A_TAG = 8
"""How many values a tag counts for: a date takes as long to decode."""

_MAX_KEY = 1 << 64
"""The largest integer that may be a key; larger ones have a tag, and take long to write as text."""

_FLOATS = {25: struct.Struct(">e"), 26: struct.Struct(">f"), 27: struct.Struct(">d")}
_SIMPLE_VALUES = {20: False, 21: True, 22: None, 23: UNSET}
_BREAK = 0xFF
_HEAD_SIZES = {24: 2, 25: 3, 26: 5, 27: 9}
"""The bytes of an item's head whose argument follows the first byte, by the first byte's lower bits (section 3)."""

_SCALARS = Limits(depth=1, values=1)
"""Limits within which there are no arrays and maps but empty ones."""
_FIELDS_OF_A_REQUEST = 4

_NOT_CBOR = "The message is not valid CBOR."
_CUT_SHORT = "The message is cut short."
_INDEFINITE_STRING = "The message has a string of indefinite length."


def encode(value: JSON) -> bytes:
    return cbor2.dumps(value, encoders={int: _write_integer})


def _write_integer(encoder: cbor2.CBOREncoder, value: int) -> None:
    if _DOUBLES_FROM <= abs(value) <= _MAX_EXACT_INTEGER:
        encoder.encode_float(float(value))
    else:
        encoder.encode_int(value)


def decode(body: bytes, limits: Limits) -> JSON:
    """Decodes a body to JSON values, as JavaScript would.

    It drops fields that are `undefined`, turns dates into the text of `JSON.stringify` and integer keys into text.

    Raises:
        MessageBoundError: the body has too many values, is nested too deeply, or has an integer of too many digits.
        ValueError: the body is not CBOR, or has no equivalent in JSON. The error's text is a sentence.
    """
    reader = _CborReader(body, limits)
    try:
        value = reader.read_item()
    except (IndexError, struct.error):
        raise ValueError(_CUT_SHORT) from None
    except UnicodeDecodeError:
        raise ValueError("The message is not valid UTF-8.") from None
    except RecursionError:
        raise ValueError("The message is nested too deeply.") from None
    if reader.position != len(body):
        raise ValueError(_CUT_SHORT if reader.position > len(body) else "The message has bytes after its end.")
    if value is UNSET:
        raise _not_json_error("undefined")
    return value


def find_field(body: bytes, name: str) -> JSON:
    """Returns one of the first fields of the outermost map, if only scalars are before it; else None."""
    reader = _CborReader(body, _SCALARS)
    try:
        if body[0] >> 5 != 5:
            return None
        reader.position = _HEAD_SIZES.get(body[0] & 31, 1)
        for _ in range(_FIELDS_OF_A_REQUEST):
            key, value = reader.read_item(), reader.read_item()
            if key == name:
                return value
    except (ValueError, IndexError, struct.error):
        pass
    return None


def _not_json_error(item: str) -> ValueError:
    return ValueError(f"The message has {item}, which JSON does not have.")


class _CborReader:
    """Decodes one body, item by item.

    Lengths are not checked before they are used: `position` then lies past the end, so that the next read fails, or
    `decode` finds it after the last one.
    """

    __slots__ = ("_body", "_levels_left", "_limits", "_values_left", "position")

    def __init__(self, body: bytes, limits: Limits) -> None:
        self._body = body
        self._limits = limits
        self._levels_left = limits.depth
        self._values_left = limits.values - 1
        self.position = 0

    def read_item(self) -> Any:
        """Reads the next item; `undefined` is UNSET."""
        first = self._body[self.position]
        self.position += 1
        major, info = first >> 5, first & 31
        if major == 7:
            return self._read_simple(info)
        argument = info if info < 24 else self._read_argument(first)
        if major == 3:
            start = self.position
            self.position = end = start + argument
            return str(self._body[start:end], "utf-8")
        if major == 0:
            return argument
        if major == 4 or major == 5:
            if not self._levels_left:
                raise too_deep(self._limits)
            self._levels_left -= 1
            container = self._read_map(argument) if major == 5 else self._read_array(argument)
            self._levels_left += 1
            return container
        if major == 1:
            return -1 - argument
        if major == 6:
            return self._read_tagged(argument)
        raise _not_json_error("a byte string")

    def _read_argument(self, first: int) -> int:
        """Reads the argument of an item (section 3); -1 is the length of an array or a map of indefinite length."""
        info = first & 31
        if info < 28:
            return int.from_bytes(self._take(1 << info - 24), "big")
        if first in (0x9F, 0xBF):
            return -1
        raise ValueError(_NOT_CBOR if first not in (0x5F, 0x7F) else _INDEFINITE_STRING)

    def _take(self, count: int) -> bytes:
        start = self.position
        self.position = start + count
        return self._body[start : self.position]

    def _count_values(self, count: int) -> None:
        """Counts values and names. An array or a map counts twice, because it takes twice as long to decode."""
        self._values_left -= count
        if self._values_left < 0:
            raise too_many_values(self._limits) if count <= len(self._body) else ValueError(_CUT_SHORT)

    def _items_until_break(self) -> Iterator[None]:
        """Iterates over the items of an array or a map of indefinite length (section 3.2.1)."""
        while self._body[self.position] != _BREAK:
            self._count_values(1)
            yield
        self.position += 1

    def _read_array(self, count: int) -> list[JSON]:
        self._count_values(1 if count < 0 else count + 1)
        places = range(count) if count >= 0 else self._items_until_break()
        items = [self.read_item() for _ in places]
        return [None if item is UNSET else item for item in items] if UNSET in items else items

    def _read_map(self, count: int) -> dict[str, JSON]:
        self._count_values(1 if count < 0 else 2 * count + 1)
        fields: dict[str, JSON] = {}
        for _ in range(count) if count >= 0 else self._items_until_break():
            key = self.read_item()
            if type(key) is int and abs(key) <= _MAX_KEY:
                key = str(key)
            elif type(key) is not str:
                raise _not_json_error("a key that is not text")
            if key in fields:
                raise ValueError(f"The message has the key {key[:100]!r} twice.")  # section 5.6: not valid
            if count < 0:
                self._count_values(1)
            value = self.read_item()
            if value is not UNSET:
                fields[key] = value
        return fields

    def _read_simple(self, info: int) -> Any:
        form = _FLOATS.get(info)
        if form is None:
            if info not in _SIMPLE_VALUES:
                raise _not_json_error("a simple value") if info < 28 else ValueError(_NOT_CBOR)
            return _SIMPLE_VALUES[info]
        (number,) = form.unpack_from(self._body, self.position)
        self.position += form.size
        if not math.isfinite(number):
            raise _not_json_error("a number that is not finite")
        if info == 27 and _DOUBLES_FROM <= abs(number) < _EXPONENT_FROM and number.is_integer():
            return int(number)
        return number

    def _read_tagged(self, tag: int) -> JSON:
        """Reads a date or a large integer (section 3.4)."""
        self._count_values(_VALUES_OF_A_TAG)
        start = self.position
        if tag in (2, 3):
            first = self._body[self.position]
            self.position += 1
            count = first & 31 if first & 31 < 24 else self._read_argument(first)
            if first >> 5 != 2:
                raise ValueError("The message has a number that is out of range.")
            if count > _MAX_INTEGER_BYTES:
                raise too_many_digits()
            number = int.from_bytes(self._take(count), "big")
            return number if tag == 2 else -1 - number
        if tag not in (0, 1):
            raise _not_json_error("a tag")
        value = self.read_item()
        if tag == 1 and type(value) in (int, float):
            return _date_text(self._body[start : self.position])
        if tag == 1 or type(value) is not str:
            raise ValueError("The message has a date that is not valid.")
        return value


def _date_text(seconds: bytes) -> str:
    try:
        date = cbor2.loads(b"\xc1" + seconds)
    except cbor2.CBORDecodeError:
        raise ValueError("The message has a date that is out of range.") from None
    text: str = date.isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")
