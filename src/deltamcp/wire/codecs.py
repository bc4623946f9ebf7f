"""The codecs that encode messages: JSON, Delta-MCP's compact JSON and CBOR."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, TypeVar

from msgspec import Struct

from deltamcp.errors import Fault
from deltamcp.limits import Limits
from deltamcp.values import JSON, Malformed, Message, RequestId
from deltamcp.wire import cbor, jsonrpc, message_bounds
from deltamcp.wire.message_bounds import MessageBoundError, check_json

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
"""The keys that compact JSON abbreviates, and their abbreviations."""

_LONG_KEYS = {short: long for long, short in SHORT_KEYS.items()}
_ESCAPE = "~"
_DEFAULT_LIMITS = Limits()


class Codec(Struct, frozen=True):
    """Encodes messages to bytes and decodes them."""

    name: str
    """The name of the codec in Delta-MCP's `initialize`."""
    content_type: str
    write: Callable[[JSON], bytes]
    """Encodes a value that consists of JSON's own types."""
    read: Callable[[bytes, Limits], JSON]
    """Decodes a body within limits."""
    read_messages: Callable[[bytes, Limits], Message | list[Message]]
    """Reads the message or the batch of a body as `jsonrpc.read` does: it never raises, and has the same limits."""

    def encode(self, value: JSON) -> bytes:
        """Encodes any value that `jsonrpc.encode_finite` accepts.

        Raises:
            ValueError: the value contains something that JSON cannot express.
        """
        body = jsonrpc.encode_finite(value)
        return body if self.write is jsonrpc.encode else self.write(jsonrpc.decode(body))

    def decode(self, body: bytes, limits: Limits = _DEFAULT_LIMITS) -> JSON:
        """Decodes a body.

        Raises:
            MessageBoundError: the body exceeds a limit.
            ValueError: the body is not valid. The error's text is a sentence.
        """
        return self.read(body, limits)


def shorten_keys(value: JSON) -> JSON:
    """Abbreviates the keys of a value at every depth, including the properties of schemas and authors' data."""
    return _rename_keys(value, _short_key)


def restore_keys(value: JSON) -> JSON:
    """Undoes `shorten_keys`. Long keys stay as they are; of a long key and its abbreviation the last one wins."""
    return _rename_keys(value, _long_key)


def _short_key(key: str) -> str:
    if key in _LONG_KEYS or key.startswith(_ESCAPE):
        return _ESCAPE + key
    return SHORT_KEYS.get(key, key)


def _long_key(key: str) -> str:
    return key[1:] if key.startswith(_ESCAPE) else _LONG_KEYS.get(key, key)


def _rename_keys(value: JSON, rename: Callable[[str], str]) -> JSON:
    # Iterative: results may be nested deeper than Python's recursion limit.
    root = [value]
    pending: list[Any] = [root]
    while pending:
        node = pending.pop()
        for position, child in node.items() if isinstance(node, dict) else enumerate(node):
            if isinstance(child, dict):
                copied: JSON = {rename(key): item for key, item in child.items()}
            elif isinstance(child, list):
                copied = child.copy()
            else:
                continue
            node[position] = copied
            pending.append(copied)
    return root[0]


def _write_compact(value: JSON) -> bytes:
    return jsonrpc.encode(shorten_keys(value))


def _read_json(body: bytes, limits: Limits) -> JSON:
    check_json(body, limits)
    return jsonrpc.decode(body)


def _read_compact(body: bytes, limits: Limits) -> JSON:
    value = _read_json(body, limits)
    restored = restore_keys(value)
    # As in JSON, a duplicate key is refused in the envelope only.
    if isinstance(value, dict) and (len(restored) < len(value) or jsonrpc.repeated_key(body) is not None):
        raise ValueError("The message has a key twice.")
    return restored


def _find_json_id(body: bytes, limits: Limits) -> RequestId | None:
    return jsonrpc.find_id(body, body, limits)


def _find_cbor_id(body: bytes, limits: Limits) -> RequestId | None:
    return jsonrpc.usable_id(cbor.find_field(body, "id"), limits)


def _message_reader(
    decode: Callable[[bytes, Limits], JSON], find_id: Callable[[bytes, Limits], RequestId | None]
) -> Callable[[bytes, Limits], Message | list[Message]]:
    """Returns what reads messages; `find_id` finds the id of one that exceeds a limit at the body's start or end."""

    def read_messages(body: bytes, limits: Limits) -> Message | list[Message]:
        try:
            value = decode(body, limits)
        except MessageBoundError as error:
            return Malformed(error.fault, str(error), find_id(body, limits))
        except ValueError as error:
            return Malformed(Fault.PARSE, str(error))
        return jsonrpc.read_value(value, limits)

    return read_messages


JSON_CODEC = Codec("json", "application/json", jsonrpc.encode, _read_json, jsonrpc.read)
COMPACT_CODEC = Codec(
    "compact-json",
    "application/json; variant=compact",
    _write_compact,
    _read_compact,
    _message_reader(_read_compact, _find_json_id),
)
CBOR_CODEC = Codec("cbor", "application/cbor", cbor.encode, cbor.decode, _message_reader(cbor.decode, _find_cbor_id))

CODECS: Mapping[str, Codec] = MappingProxyType({codec.name: codec for codec in (JSON_CODEC, COMPACT_CODEC, CBOR_CODEC)})


def transcode(body: bytes, codec: Codec) -> bytes:
    """Encodes a body of JSON with another codec.

    Raises:
        ValueError: the body is not JSON, or is nested too deeply to be decoded.
    """
    return body if codec is JSON_CODEC else codec.write(jsonrpc.decode(body))


def estimate_memory(body: bytes, codec: Codec, limits: Limits) -> int:
    """Returns about how many bytes the values of a body take once they are decoded, or more."""
    if codec is CBOR_CODEC:  # any of its bytes may be a value
        return message_bounds.BYTES_PER_CONTAINER * min(len(body), limits.values) + 4 * len(body)
    return message_bounds.estimate_memory(body)


def codec_for_content_type(header: str) -> Codec:
    """Returns the codec a `Content-Type` header names, by the rules of the original Delta-MCP; JSON by default."""
    return _find_named_codec(header) or JSON_CODEC


_RequestCodec = TypeVar("_RequestCodec", bound=Codec | None)


def codec_for_accept(header: str, request_codec: _RequestCodec) -> Codec | _RequestCodec:
    """Returns the codec for the response to a request with this `Accept` header; the request's codec by default.

    Like the original Delta-MCP it ignores q-values.
    """
    return _find_named_codec(header) or (JSON_CODEC if JSON_CODEC.content_type in header else request_codec)


def _find_named_codec(header: str) -> Codec | None:
    if CBOR_CODEC.content_type in header:
        return CBOR_CODEC
    return COMPACT_CODEC if "variant=compact" in header else None
