"""Reads the messages of HTTP bodies, large ones in a thread."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from deltamcp.errors import Fault
from deltamcp.limits import Limits
from deltamcp.runtime.threads import Threads
from deltamcp.transports import asgi_messages
from deltamcp.transports.asgi_messages import HttpRequest
from deltamcp.values import JSON, Failure, Malformed, Message
from deltamcp.wire import codecs
from deltamcp.wire.codecs import Codec
from deltamcp.wire.message_bounds import MessageBoundError

T = TypeVar("T")

_MAX_BYTES_AT_ONCE = 16 * 1024
"""A larger body is decoded in a thread, because each may take 50 ms and eight may arrive at once."""


class BodyReader:
    """Reads the bodies of one application's requests; what they take counts for their accounts."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._decoders = Threads(1)

    def read(self, incoming: HttpRequest, codec: Codec) -> Awaitable[Message | list[Message] | Failure]:
        """Reads the message or batch of a body; a failure if the body is too large or too slow. Await what it returns.

        The caller releases what the request holds of the quotas: `incoming.release()`.
        """
        return self._read(incoming, codec, codecs.read)

    def read_object(self, incoming: HttpRequest) -> Awaitable[dict[str, JSON] | Message | list[Message] | Failure]:
        """Reads a body that is a JSON object and no JSON-RPC, or nothing; any other as `read` does.

        Await what it returns.
        """
        return self._read(incoming, incoming.codec, _read_object)

    async def _read(
        self, incoming: HttpRequest, codec: Codec, parse: Callable[[bytes, Codec, Limits], T]
    ) -> T | Failure:
        limits = self._limits
        body = await asgi_messages.read_body(incoming, limits)
        if not isinstance(body, bytes):
            return body
        if len(body) > asgi_messages.UNCOUNTED_BYTES:
            refused = await asgi_messages.hold_memory(incoming, body, codec, limits)
            if refused is not None:
                return refused
        if len(body) <= _MAX_BYTES_AT_ONCE:
            incoming.release_bytes()
            return parse(body, codec, limits)
        arguments = {"body": body, "codec": codec, "limits": limits}
        parsed: T = await self._decoders.run(incoming.account, parse, arguments)
        incoming.release_bytes()
        return parsed


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
