"""JSON, Delta-MCP's compact JSON and CBOR: three ways to write the same message, as three values of one type."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, TypeVar

from msgspec import Struct

from deltamcp.errors import Fault
from deltamcp.limits import Limits
from deltamcp.values import JSON, Malformed, Message
from deltamcp.wire import cbor, jsonrpc

SHORT_KEYS: Mapping[str, str] = MappingProxyType(
    {
        "jsonrpc": "j",
        "method": "m",
        "params": "p",
        "result": "r",
        "error": "e",
        "id": "i",
        "code": "c",
        "message": "msg",
        "name": "n",
        "description": "d",
        "inputSchema": "s",
        "outputSchema": "os",
        "tools": "t",
        "content": "cnt",
        "type": "tp",
        "text": "tx",
    }
)
"""The keys that compact JSON has shorter words for."""

_LONG_KEYS = {short: long for long, short in SHORT_KEYS.items()}
_ESCAPE = "~"
_DEFAULT_DEPTH = Limits().depth


class Codec(Struct, frozen=True):
    """One way to write messages."""

    name: str
    """As Delta-MCP's `initialize` calls it."""
    content_type: str
    write: Callable[[JSON], bytes]
    """A value of nothing but JSON's own types to bytes."""
    read: Callable[[bytes, int], JSON]

    def encode(self, value: JSON) -> bytes:
        """Whatever `jsonrpc.encode_finite` takes.

        Raises:
            ValueError: the value holds something JSON cannot say.
        """
        return transcode(jsonrpc.encode_finite(value), self)

    def decode(self, body: bytes, depth: int = _DEFAULT_DEPTH) -> JSON:
        """
        Raises:
            ValueError: it is not valid, or nested deeper than `depth`. The text is a sentence.
        """
        return self.read(body, depth)


def shorten_keys(value: JSON) -> JSON:
    """The same with compact JSON's keys, at every depth, a schema's properties and an author's data included."""
    return _rename_keys(value, _short_key)


def restore_keys(value: JSON) -> JSON:
    """The inverse. A key that is long already is let be; where it is there both ways, the last one wins."""
    return _rename_keys(value, _long_key)


def _short_key(key: str) -> str:
    if key in _LONG_KEYS or key.startswith(_ESCAPE):
        return _ESCAPE + key
    return SHORT_KEYS.get(key, key)


def _long_key(key: str) -> str:
    return key[1:] if key.startswith(_ESCAPE) else _LONG_KEYS.get(key, key)


def _rename_keys(value: JSON, rename: Callable[[str], str]) -> JSON:
    # A list of what is left instead of calls within calls: results are nested deeper than Python calls.
    whole = [value]
    left: list[Any] = [whole]
    while left:
        node = left.pop()
        for place, child in node.items() if isinstance(node, dict) else enumerate(node):
            if isinstance(child, dict):
                made: JSON = {rename(key): item for key, item in child.items()}
            elif isinstance(child, list):
                made = child.copy()
            else:
                continue
            node[place] = made
            left.append(made)
    return whole[0]


def _write_compact(value: JSON) -> bytes:
    return jsonrpc.encode(shorten_keys(value))


def _read_json(body: bytes, depth: int) -> JSON:
    value = jsonrpc.decode(body)
    if body.count(b"[") + body.count(b"{") > depth and jsonrpc.nesting_depth(value) > depth:
        raise ValueError(f"The message is nested deeper than {depth} levels.")
    return value


def _read_compact(body: bytes, depth: int) -> JSON:
    value = _read_json(body, depth)
    made = restore_keys(value)
    # As in JSON: what stands twice is refused in the envelope and nowhere else.
    if isinstance(value, dict) and (len(made) < len(value) or jsonrpc.repeated_key(body) is not None):
        raise ValueError("The message has a key twice.")
    return made


JSON_CODEC = Codec("json", "application/json", jsonrpc.encode, _read_json)
COMPACT_CODEC = Codec("compact-json", "application/json; variant=compact", _write_compact, _read_compact)
CBOR_CODEC = Codec("cbor", "application/cbor", cbor.encode, cbor.decode)

CODECS: Mapping[str, Codec] = MappingProxyType({codec.name: codec for codec in (JSON_CODEC, COMPACT_CODEC, CBOR_CODEC)})


def transcode(body: bytes, codec: Codec) -> bytes:
    """A body of JSON, written the other way.

    Raises:
        ValueError: it is not JSON, or nested deeper than can be read.
    """
    return body if codec is JSON_CODEC else codec.write(jsonrpc.decode(body))


def read(body: bytes, codec: Codec, limits: Limits) -> Message | list[Message]:
    """`jsonrpc.read` for any codec: it never raises, and has the same limits."""
    if codec is JSON_CODEC:
        return jsonrpc.read(body, limits)
    try:
        value = codec.decode(body, limits.depth)
    except ValueError as error:
        return Malformed(Fault.PARSE, str(error))
    return jsonrpc.read_value(value, limits)


def codec_for_content_type(header: str) -> Codec:
    """What a body is written in, found as the original Delta-MCP finds it: JSON where nothing else is named."""
    return _find_named_codec(header) or JSON_CODEC


_RequestCodec = TypeVar("_RequestCodec", bound=Codec | None)


def codec_for_accept(header: str, request_codec: _RequestCodec) -> Codec | _RequestCodec:
    """What to answer in; where nothing we write is named, as was asked. No q-values, as in the original."""
    return _find_named_codec(header) or (JSON_CODEC if JSON_CODEC.content_type in header else request_codec)


def _find_named_codec(header: str) -> Codec | None:
    if CBOR_CODEC.content_type in header:
        return CBOR_CODEC
    return COMPACT_CODEC if "variant=compact" in header else None
