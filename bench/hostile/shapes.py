"""Costly shapes of one value in a request, each made at any size: as JSON, and as a `Value` of protobuf."""

import json
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from bench.hostile import protobuf

Shape = Callable[[int], bytes]


def _repeat(unit: str) -> Shape:
    """A text that repeats a unit, written as it is in JSON, escapes included."""
    return lambda size: b'"' + unit.encode() * max(1, size // len(unit.encode())) + b'"'


def _items(item: str) -> Shape:
    return lambda size: b"[" + b",".join([item.encode()] * max(1, size // (len(item.encode()) + 1))) + b"]"


def _keys(size: int) -> bytes:
    return b"{" + b",".join(b'"%x":0' % number for number in range(max(1, size // 9))) + b"}"


def _repeated_keys(size: int) -> bytes:
    return b"{" + b",".join([b'"a":0'] * max(1, size // 6)) + b"}"


def _nested(opening: str, closing: str) -> Shape:
    """Items that are nested nearly as deep as servers allow."""
    return _items(opening * 100 + "0" + closing * 100)


def _words(size: int) -> bytes:
    return json.dumps(" ".join(f"list{number} user" for number in range(max(1, size // 13)))).encode()


def _paths(size: int) -> bytes:
    return json.dumps(",".join(f"a{number}.b" for number in range(max(1, size // 8)))).encode()


def _texts(size: int) -> bytes:
    return json.dumps([f"list{number}" for number in range(max(1, size // 11))]).encode()


SHAPES: Mapping[str, Shape] = MappingProxyType(
    {
        "letters": _repeat("x"),
        "spaces": _repeat(" "),
        "line breaks": _repeat("\\n"),
        "escapes": _repeat("\\u0041"),
        "escaped pairs": _repeat("\\ud83d\\ude00"),
        "combining marks": _repeat("\u0301"),
        "ideographs": _repeat("東"),
        "digits": _repeat("9"),
        "dots": _repeat("a."),
        "slashes": _repeat("/0"),
        "tildes": _repeat("~"),
        "commas": _repeat("a,"),
        "bars": _repeat("a|"),
        "dashes": _repeat("-"),
        "percent signs": _repeat("%41"),
        "brackets": _repeat("["),
        "braces": _repeat("{a}"),
        "a pattern": _repeat("(a+)+"),
        "an expression": _repeat("[?a]|"),
        "a comparison": _repeat("@==@&&"),
        "a sum of calls": _repeat("sort(@)|"),
        "words": _words,
        "paths": _paths,
        "a long integer": lambda size: b"1" * max(1, size),
        "a long fraction": lambda size: b"0." + b"1" * max(1, size),
        "a long exponent": lambda size: b"1e" + b"0" * max(1, size) + b"1",
        "a negative number": lambda size: b"-" + b"9" * max(1, min(size, 4_000)),
        "empty lists": _items("[]"),
        "empty objects": _items("{}"),
        "objects": _items('{"a":0}'),
        "zeros": _items("0"),
        "fractions": _items("0.1"),
        "empty texts": _items('""'),
        "nulls": _items("null"),
        "texts": _texts,
        "references": _items('{"$result":"x"}'),
        "keys": _keys,
        "repeated keys": _repeated_keys,
        "nested lists": _nested("[", "]"),
        "nested objects": _nested('{"a":', "}"),
        "deep lists": lambda size: b"[" * min(100, size) + b"]" * min(100, size),
        "too deep": lambda size: b"[" * size,
    }
)
"""By a name for people to read."""


def _nested_value(depth: int, is_list: bool) -> bytes:
    value = protobuf.NULL_VALUE
    for _ in range(depth):
        value = protobuf.list_value(protobuf.field(1, value)) if is_list else _object_value(value)
    return value


def _object_value(value: bytes) -> bytes:
    return protobuf.struct_value(protobuf.entry("a", value))


_ITEM_VALUES: Mapping[str, Any] = {
    "empty lists": [],
    "empty objects": {},
    "objects": {"a": 0},
    "zeros": 0,
    "fractions": 0.1,
    "empty texts": "",
    "nulls": None,
    "references": {"$result": "x"},
}
_PROTOBUF_DEPTH = 25
"""How deep values are nested: protobuf itself refuses 100 messages in each other, and a value is two or three."""


def protobuf_value(shape: str, size: int) -> bytes:
    """A shape as a `Value`; what protobuf has no word for, such as a long number, is a text of it."""
    if shape in _ITEM_VALUES:
        item = protobuf.field(1, protobuf.from_json(_ITEM_VALUES[shape]))
        return protobuf.list_value(protobuf.repeated(item, size))
    match shape:
        case "nested lists" | "nested objects":
            item = protobuf.field(1, _nested_value(_PROTOBUF_DEPTH, shape == "nested lists"))
            return protobuf.list_value(protobuf.repeated(item, size))
        case "deep lists" | "too deep":
            return _nested_value(_PROTOBUF_DEPTH if shape == "deep lists" else min(size, 2_000), is_list=True)
        case "keys":
            entries = (protobuf.entry(f"{number:x}", protobuf.NULL_VALUE) for number in range(max(1, size // 13)))
            return protobuf.struct_value(b"".join(entries))
        case "repeated keys":
            return protobuf.struct_value(protobuf.repeated(protobuf.entry("a", protobuf.NULL_VALUE), size))
        case "texts":
            texts = (protobuf.field(1, protobuf.text_value(f"list{number}")) for number in range(max(1, size // 14)))
            return protobuf.list_value(b"".join(texts))
        case _:
            content = SHAPES[shape](size)
            text = json.loads(content) if content.startswith(b'"') else content.decode()
            return protobuf.text_value(text)
