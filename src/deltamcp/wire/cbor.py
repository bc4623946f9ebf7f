"""CBOR (RFC 8949) as far as JSON values go: what a peer on cbor-x writes and reads.

cbor2 writes. It does not read here, for it hashes whatever a map has for keys, which lets a sender choose keys that
collide; makes dates, expressions and cycles out of tags; and is silent about bytes after the first item.
"""

import math
import struct
from collections.abc import Iterable
from typing import Any

import cbor2
from msgspec import UNSET

from deltamcp.values import JSON

_DOUBLES_FROM = 1 << 32
"""cbor-x writes integers from here on as doubles, and those of eight bytes it reads as BigInt."""
_MAX_EXACT_INTEGER = 1 << 53
_EXPONENT_FROM = 1e21
"""Below it JavaScript writes a whole number without an exponent, so that in JSON it would be an integer."""

_MAX_INTEGER_BYTES = 1785
"""Of an integer: some 4300 digits, which is where JSON ends too."""

_FLOATS = {25: struct.Struct(">e"), 26: struct.Struct(">f"), 27: struct.Struct(">d")}
_SIMPLE_VALUES = {20: False, 21: True, 22: None, 23: UNSET}
_BREAK = 0xFF

_CUT_SHORT = "The message is cut short."
_IN_PARTS = "The message has a string in parts."


def encode(value: JSON) -> bytes:
    return cbor2.dumps(value, encoders={int: _write_integer})


def _write_integer(encoder: cbor2.CBOREncoder, value: int) -> None:
    if _DOUBLES_FROM <= abs(value) <= _MAX_EXACT_INTEGER:
        encoder.encode_float(float(value))
    else:
        encoder.encode_int(value)


def decode(body: bytes, depth: int) -> JSON:
    """A field that is `undefined` is absent, a date the text `JSON.stringify` makes of it, an integer key a text.

    Raises:
        ValueError: it is not CBOR, not JSON, or nested deeper. The text is a sentence.
    """
    reader = _CborReader(body, depth)
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


def _not_json_error(what: str) -> ValueError:
    return ValueError(f"The message has {what}, which JSON has not.")


class _CborReader:
    """A length is never believed: who reads past the end is found out by the next one to read, or at last."""

    __slots__ = ("_body", "_depth", "_levels_left", "position")

    def __init__(self, body: bytes, depth: int) -> None:
        self._body = body
        self._depth = self._levels_left = depth
        self.position = 0

    def read_item(self) -> Any:
        """The next item; UNSET where it is `undefined`."""
        first = self._body[self.position]
        self.position += 1
        major = first >> 5
        argument = first & 31 if first & 31 < 24 else self._read_argument(first)
        if major == 3:
            return str(self._take(argument), "utf-8")
        if major == 0:
            return argument
        if major == 7:
            return self._read_simple(first & 31)
        if major == 4 or major == 5:
            if not self._levels_left:
                raise ValueError(f"The message is nested deeper than {self._depth} levels.")
            self._levels_left -= 1
            made = self._read_map(argument) if major == 5 else self._read_array(argument)
            self._levels_left += 1
            return made
        if major == 1:
            return -1 - argument
        if major == 6:
            return self._read_tagged(argument)
        raise _not_json_error("a byte string")

    def _read_argument(self, first: int) -> int:
        """Section 3; -1 is the length of an array or a map that has none."""
        info = first & 31
        if info < 24:
            return info
        if info < 28:
            return int.from_bytes(self._take(1 << info - 24), "big")
        if first in (0x9F, 0xBF):
            return -1
        raise ValueError("The message is not valid CBOR." if first not in (0x5F, 0x7F) else _IN_PARTS)

    def _take(self, count: int) -> bytes:
        start = self.position
        self.position = start + count
        return self._body[start : self.position]

    def _iterate_items(self, count: int) -> Iterable[object]:
        return iter(self._take_break, True) if count < 0 else range(count)

    def _take_break(self) -> bool:
        """Section 3.2.1: whether what has no length ends here."""
        if self._body[self.position] != _BREAK:
            return False
        self.position += 1
        return True

    def _read_array(self, count: int) -> list[JSON]:
        items = [self.read_item() for _ in self._iterate_items(count)]
        return [None if item is UNSET else item for item in items] if UNSET in items else items

    def _read_map(self, count: int) -> dict[str, JSON]:
        made: dict[str, JSON] = {}
        for _ in self._iterate_items(count):
            key = self.read_item()
            if type(key) is int:
                key = str(key)
            elif type(key) is not str:
                raise _not_json_error("a key that is no text")
            if key in made:
                raise ValueError(f"The message has the key {key[:100]!r} twice.")  # section 5.6: not valid
            value = self.read_item()
            if value is not UNSET:
                made[key] = value
        return made

    def _read_simple(self, info: int) -> Any:
        form = _FLOATS.get(info)
        if form is None:
            if info not in _SIMPLE_VALUES:
                raise _not_json_error("a simple value")
            return _SIMPLE_VALUES[info]
        (number,) = form.unpack_from(self._body, self.position - form.size)
        if not math.isfinite(number):
            raise _not_json_error("a number that is not finite")
        if info == 27 and _DOUBLES_FROM <= abs(number) < _EXPONENT_FROM and number.is_integer():
            return int(number)
        return number

    def _read_tagged(self, tag: int) -> JSON:
        """Section 3.4: dates and large integers."""
        start = self.position
        if tag in (2, 3):
            first = self._body[start]
            self.position += 1
            count = self._read_argument(first)
            if first >> 5 != 2 or count > _MAX_INTEGER_BYTES:
                raise ValueError("The message has a number that is out of range.")
            number = int.from_bytes(self._take(count), "big")
            return number if tag == 2 else -1 - number
        if tag not in (0, 1):
            raise _not_json_error("a tag")
        value = self.read_item()
        if tag == 1 and type(value) in (int, float):
            return _date_text(self._body[start : self.position])
        if tag == 1 or type(value) is not str:
            raise ValueError("The message has a date that is none.")
        return value


def _date_text(seconds: bytes) -> str:
    try:
        date = cbor2.loads(b"\xc1" + seconds)
    except cbor2.CBORDecodeError:
        raise ValueError("The message has a date that is out of range.") from None
    text: str = date.isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")
