"""What every way to a server promises."""

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Protocol

from deltamcp.errors import ClientError
from deltamcp.limits import Limits
from deltamcp.values import JSON, Malformed, Message, RequestId
from deltamcp.wire import codecs, jsonrpc
from deltamcp.wire.codecs import JSON_CODEC, Codec

LIMITS = Limits(message_bytes=256 * 1024 * 1024, depth=900)
"""Of what a server may send. Generous: a result that was worth asking for is worth reading; a message that is larger
was never meant to be one, and Python nests no deeper."""


_ID = re.compile(rb'"id"\s*:\s*(\d{1,18})\b')
_EDGE_BYTES = 200
"""Bytes at a message's ends, where servers put its id."""


def read_messages(body: bytes, codec: Codec) -> list[Message]:
    """What a server said in one piece."""
    read = jsonrpc.read_reply(body, LIMITS) if codec is JSON_CODEC else codecs.read(body, codec, LIMITS)
    if isinstance(read, Malformed):
        read = Malformed(read.fault, read.reason, _find_answered_id(body) if codec is JSON_CODEC else read.id)
    return read if isinstance(read, list) else [read]


def _find_answered_id(body: bytes) -> RequestId | None:
    """The request that a message answers, though in a way that cannot be read: somebody waits for it.

    None where it is no answer: a request, a line of a log that happens to be JSON.
    """
    ends = body[:_EDGE_BYTES] + b" " + body[-_EDGE_BYTES:]
    if b'"jsonrpc"' not in ends or b'"method"' in body[:_EDGE_BYTES]:
        return None
    found = _ID.search(ends)
    return None if found is None else int(found[1])


NO_HEADERS: Mapping[str, str] = MappingProxyType({})


class MessageReceiver(Protocol):
    """Who hears what a server says."""

    def receive(self, message: Message) -> None:
        """One message. Never raises."""

    def is_awaiting(self, id_: RequestId) -> bool:
        """Whether this request of ours is still to be answered."""

    def fail_pending(self, error: ClientError) -> None:
        """Nothing more will be heard: whatever waits for an answer is told so."""


class ClientLink(Protocol):
    """Carries messages both ways."""

    codec: Codec
    """What messages are written in; changed once, between two messages, where that was agreed."""
    carries_headers: bool
    """Whether the modern era wants a call's method, name and some arguments in headers."""
    ended: bool
    """Nothing can be sent any more."""

    async def open(self, receiver: MessageReceiver) -> None:
        """
        Raises:
            UnreachableError: it cannot be.
        """

    async def send(self, message: dict[str, JSON], headers: Mapping[str, str] = NO_HEADERS) -> None:
        """Returns when the message is on its way; over HTTP, a request, when its answer was heard.

        Raises:
            ClientError: it could not be sent, or no answer will come.
        """

    async def listen(self, headers: Mapping[str, str], on_open: Callable[[], None]) -> bool:
        """Hears what a server of the handshake era says unasked, where that needs a stream of its own.

        `opened` is called whenever it begins to be heard, or the server has said that there is no such stream. Returns
        whether it is heard without any further doing; a stream of its own is followed until cancelled.
        """

    async def close(self) -> None: ...
