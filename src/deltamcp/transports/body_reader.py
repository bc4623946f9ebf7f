"""Reads the messages of HTTP bodies, large ones in a thread."""

from deltamcp.limits import Limits
from deltamcp.runtime.threads import Threads
from deltamcp.transports import asgi_messages
from deltamcp.transports.asgi_messages import HttpRequest
from deltamcp.values import Failure, Message
from deltamcp.wire import codecs
from deltamcp.wire.codecs import Codec

_MAX_BYTES_AT_ONCE = 16 * 1024
"""A larger body is decoded in a thread, because each may take 50 ms and eight may arrive at once."""


class BodyReader:
    """Reads the bodies of one application's requests; what they take counts for their accounts."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._decoders = Threads(1)

    async def read(self, incoming: HttpRequest, codec: Codec) -> Message | list[Message] | Failure:
        """Returns the message or batch of a body; a failure if the body is too large or too slow.

        The caller releases what the request holds of the quotas: `incoming.release()`.
        """
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
            return codecs.read(body, codec, limits)
        arguments = {"body": body, "codec": codec, "limits": limits}
        message: Message | list[Message] = await self._decoders.run(incoming.account, codecs.read, arguments)
        incoming.release_bytes()
        return message
