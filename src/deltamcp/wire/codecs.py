"""JSON, Delta-MCP's compact JSON and CBOR: three ways to write the same message, as three values of one type."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, TypeVar

from msgspec import Struct

from deltamcp.errors import Fault
from deltamcp.limits import Limits
from deltamcp.values import JSON, Malformed, Message
from deltamcp.wire import cbor, jsonrpc

SHORT: Mapping[str, str] = MappingProxyType(
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

_LONG = {short: long for long, short in SHORT.items()}
_ESCAPE = "~"
_DEPTH = Limits().depth


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
        return transcoded(jsonrpc.encode_finite(value), self)

    def decode(self, body: bytes, depth: int = _DEPTH) -> JSON:
        """
        Raises:
            ValueError: it is not valid, or nested deeper than `depth`. The text is a sentence.
        """
        return self.read(body, depth)


def shortened(value: JSON) -> JSON:
    """The same with compact JSON's keys, at every depth, a schema's properties and an author's data included."""
    return _renamed(value, _short)


def lengthened(value: JSON) -> JSON:
    """The inverse. A key that is long already is let be; where it is there both ways, the last one wins."""
    return _renamed(value, _long)


def _short(key: str) -> str:
    if key in _LONG or key.startswith(_ESCAPE):
        return _ESCAPE + key
    return SHORT.get(key, key)


def _long(key: str) -> str:
    return key[1:] if key.startswith(_ESCAPE) else _LONG.get(key, key)


def _renamed(value: JSON, rename: Callable[[str], str]) -> JSON:
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
    return jsonrpc.encode(shortened(value))


def _read_json(body: bytes, depth: int) -> JSON:
    value = jsonrpc.decode(body)
    if body.count(b"[") + body.count(b"{") > depth and jsonrpc.depth(value) > depth:
        raise ValueError(f"The message is nested deeper than {depth} levels.")
    return value


def _read_compact(body: bytes, depth: int) -> JSON:
    value = _read_json(body, depth)
    made = lengthened(value)
    # As in JSON: what stands twice is refused in the envelope and nowhere else.
    if isinstance(value, dict) and (len(made) < len(value) or jsonrpc.repeated_key(body) is not None):
        raise ValueError("The message has a key twice.")
    return made


JSON_CODEC = Codec("json", "application/json", jsonrpc.encode, _read_json)
COMPACT = Codec("compact-json", "application/json; variant=compact", _write_compact, _read_compact)
CBOR = Codec("cbor", "application/cbor", cbor.encode, cbor.decode)

CODECS: Mapping[str, Codec] = MappingProxyType({codec.name: codec for codec in (JSON_CODEC, COMPACT, CBOR)})


def transcoded(body: bytes, codec: Codec) -> bytes:
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


def of_content_type(header: str) -> Codec:
    """What a body is written in, found as the original Delta-MCP finds it: JSON where nothing else is named."""
    return _named(header) or JSON_CODEC


_Asked = TypeVar("_Asked", bound=Codec | None)


def of_accept(header: str, request_codec: _Asked) -> Codec | _Asked:
    """What to answer in; where nothing we write is named, as was asked. No q-values, as in the original."""
    return _named(header) or (JSON_CODEC if JSON_CODEC.content_type in header else request_codec)


def _named(header: str) -> Codec | None:
    if CBOR.content_type in header:
        return CBOR
    return COMPACT if "variant=compact" in header else None
