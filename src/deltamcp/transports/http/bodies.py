"""Reads the messages of HTTP bodies, large ones in a thread."""

import asyncio
import functools
from collections.abc import Awaitable, Callable
from typing import TypeVar

from deltamcp.errors import Fault
from deltamcp.limits import Limits
from deltamcp.runtime.threads import Threads
from deltamcp.transports.http.exchange import Exchange
from deltamcp.values import JSON, Failure, Malformed, Message
from deltamcp.wire import codecs
from deltamcp.wire.codecs import JSON_CODEC, Codec
from deltamcp.wire.message_bounds import MessageBoundError

T = TypeVar("T")

_BODY_TYPES = (b"application/json", b"application/cbor")
_MAX_CACHED_BYTES = 256
_UNCOUNTED_BYTES = 1024
"""A body of up to this size is not counted, because calls are."""
_MAX_BYTES_AT_ONCE = 16 * 1024
"""A larger body is decoded in a thread, because each may take 50 ms and eight may arrive at once."""
_TOO_MANY = Failure(Fault.OVERLOADED, "Too many large requests of this client are in progress; try again later.")


class BodyReader:
    """Reads the bodies of one application's requests; what they take counts for their accounts until they are closed.

    What its methods return is a failure if the body is too large or too slow.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._decoders = Threads(1)

    def read(self, exchange: Exchange, codec: Codec) -> Awaitable[Message | list[Message] | Failure]:
        """Reads the message or batch of a body. Await what it returns."""
        return self._read(exchange, codec, codecs.read)

    def read_object(self, exchange: Exchange) -> Awaitable[dict[str, JSON] | Message | list[Message] | Failure]:
        """Reads a body that is a JSON object and no JSON-RPC, or nothing; any other as `read` does. Await it too."""
        return self._read(exchange, exchange.codec, _read_object)

    async def _read(self, exchange: Exchange, codec: Codec, parse: Callable[[bytes, Codec, Limits], T]) -> T | Failure:
        limits = self._limits
        body = await self._receive(exchange)
        if not isinstance(body, bytes):
            return body
        if len(body) > _UNCOUNTED_BYTES:
            size = codecs.estimate_memory(body, codec, limits)
            if not await exchange.hold_decoded(size, limits.body_seconds):
                return _TOO_MANY
        if len(body) <= _MAX_BYTES_AT_ONCE:
            exchange.release_bytes()
            return parse(body, codec, limits)
        arguments = {"body": body, "codec": codec, "limits": limits}
        parsed: T = await self._decoders.run(exchange.account, parse, arguments)
        exchange.release_bytes()
        return parsed

    async def _receive(self, exchange: Exchange) -> bytes | Failure:
        """Returns the whole body; memory stays within the limit."""
        limits, receive = self._limits, exchange.receive
        # Checked before anything is received, so that a client that sends Expect need not send the body.
        declared = exchange.headers.get(b"content-length", b"")
        if declared.isdigit() and int(declared[:19]) > limits.message_bytes:
            return _too_large(limits)
        event = await receive()
        body: bytes = event.get("body", b"")
        if not event.get("more_body"):
            if len(body) <= _UNCOUNTED_BYTES:
                return body
            if len(body) > limits.message_bytes:
                return _too_large(limits)
            return body if exchange.hold(len(body)) else _TOO_MANY
        if not exchange.hold(len(body)):
            return _TOO_MANY
        whole = bytearray(body)
        try:
            async with asyncio.timeout(limits.body_seconds):
                while event.get("more_body"):
                    event = await receive()
                    piece = event.get("body", b"")
                    if len(whole) + len(piece) > limits.message_bytes:
                        return _too_large(limits)
                    if not exchange.hold(len(piece)):
                        return _TOO_MANY
                    whole += piece
        except TimeoutError:
            return Failure(Fault.TOO_SLOW, "The body did not arrive in time.")
        return bytes(whole)


def choose_codecs(exchange: Exchange) -> Codec | Failure:
    """Returns the codec of a request's body, and sets `exchange.codec`, that of the response."""
    headers, accepts = exchange.headers, exchange.accepts
    content_type = headers.get(b"content-type", b"")
    codec = JSON_CODEC if content_type == b"application/json" else _codec_of(content_type[:_MAX_CACHED_BYTES])
    if codec is None or b"content-encoding" in headers:
        return Failure(Fault.WRONG_MEDIA_TYPE, "Send application/json or application/cbor, not compressed.")
    if accepts is None:
        return Failure(Fault.NOT_ACCEPTABLE, "Accept application/json and text/event-stream.")
    exchange.codec = accepts.codec or codec
    return codec


@functools.lru_cache(maxsize=256)
def _codec_of(content_type: bytes) -> Codec | None:
    """Returns the codec of a media type; None for other types, which the original Delta-MCP server reads as JSON."""
    type_ = content_type.partition(b";")[0].strip().lower()
    return codecs.codec_for_content_type(content_type.decode("latin-1").lower()) if type_ in _BODY_TYPES else None


def _too_large(limits: Limits) -> Failure:
    return Failure(Fault.TOO_LARGE, f"A message may have at most {limits.message_bytes} bytes.")


def _read_object(body: bytes, codec: Codec, limits: Limits) -> dict[str, JSON] | Message | list[Message]:
    if not body.strip():
        return {}
    try:
        value = codec.decode(body, limits)
    except MessageBoundError as error:
        return Malformed(error.fault, str(error))
    except ValueError as error:
        return Malformed(Fault.PARSE, str(error))
    if isinstance(value, dict) and "jsonrpc" not in value:
        return value
    return codecs.read(body, codec, limits)
