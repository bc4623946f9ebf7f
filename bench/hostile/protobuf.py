"""Messages of MCP-lite over gRPC, written by hand as protobuf: making them must not cost what reading them costs."""

import struct
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

TOOL_NAME, TOOL_ARGUMENTS, TOOL_META = 1, 2, 16
STRUCT_FIELDS = 1
NULL_VALUE = b"\x08\x00"
"""A `Value` that is null."""
EMPTY_STRUCT = b"\x2a\x00"
"""A `Value` that is an empty object."""
EMPTY_LIST = b"\x32\x00"


def varint(value: int) -> bytes:
    written = bytearray()
    while value >= 128:
        written.append(value % 128 + 128)
        value //= 128
    return bytes((*written, value))


def field(number: int, content: bytes) -> bytes:
    """A field that has a length: a text, bytes, a message."""
    return varint(number << 3 | 2) + varint(len(content)) + content


def text_value(text: str) -> bytes:
    """A `Value` that is a text."""
    return field(3, text.encode())


def list_value(items: bytes) -> bytes:
    """A `Value` that is a list of values, each a field already."""
    return field(6, items)


def struct_value(struct: bytes) -> bytes:
    return field(5, struct)


def entry(key: str, value: bytes) -> bytes:
    """An entry of a `Struct`, as its field."""
    return field(STRUCT_FIELDS, field(1, key.encode()) + field(2, value))


def tool_request(name: str, arguments: bytes = b"", meta: bytes = b"") -> bytes:
    """A `ToolRequest` with its arguments, and its meta, as the bytes of a `Struct`."""
    written = field(TOOL_NAME, name.encode()) + field(TOOL_ARGUMENTS, arguments)
    return written + (field(TOOL_META, meta) if meta else b"")


def call_request(message: Mapping[str, Any], holes: Mapping[str, bytes]) -> bytes:
    """A `ToolRequest` of JSON's data; a field that has no object is written as the value that it has."""
    name = str(message.get("name", ""))
    written = field(TOOL_NAME, holes[name] if name in holes else name.encode())
    for number, key in ((TOOL_ARGUMENTS, "arguments"), (TOOL_META, "meta")):
        given = message.get(key)
        if isinstance(given, dict):
            written += field(number, b"".join(entry(one, from_json(value, holes)) for one, value in given.items()))
        elif given is not None:
            written += field(number, from_json(given, holes))
    return written


def repeated(item: bytes, size: int) -> bytes:
    """So many bytes of one item."""
    return item * max(1, size // len(item))


def from_json(value: object, holes: Mapping[str, bytes] = MappingProxyType({})) -> bytes:
    """A `Value` of JSON's data, in which other values stand where it has certain texts."""
    match value:
        case str() if value in holes:
            return holes[value]
        case None:
            return NULL_VALUE
        case bool():
            return b"\x20" + bytes((value,))
        case int() | float():
            return b"\x11" + struct.pack("<d", value)
        case str():
            return text_value(value)
        case list():
            return list_value(b"".join(field(1, from_json(item, holes)) for item in value))
        case dict():
            return struct_value(b"".join(entry(key, from_json(item, holes)) for key, item in value.items()))
        case _:
            raise TypeError(f"not JSON: {value!r}")
