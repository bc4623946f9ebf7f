"""The interface of links, how all of them read messages and get tokens, and how much a server may send.

The link to a server in this process, which needs nothing else, is here, too.
"""

import asyncio
import contextlib
import re
from collections.abc import Awaitable, Callable, Mapping
from inspect import isawaitable
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

from deltamcp.errors import ClientError, ConnectionLostError, PeerError, UnauthorizedError
from deltamcp.limits import Limits
from deltamcp.runtime.process import collection_paused
from deltamcp.values import JSON, Malformed, Message, RequestId
from deltamcp.wire import jsonrpc
from deltamcp.wire.codecs import JSON_CODEC, Codec
from deltamcp.wire.message_bounds import count_values

if TYPE_CHECKING:
    from deltamcp.calls.engine import Engine
    from deltamcp.transports.stdio.duplex import Duplex

DEFAULT_MAX_BYTES = 16 * 1024 * 1024
"""Size of the largest message, list or result, unless the program allows another. A message is held as bytes, joined,
and decoded at once, which is some 60 MB. Screenshots and exports of other servers stay below 10 MB."""
BYTES_PER_VALUE = 24
"""Bytes that a value or the name of a field counts at least; decoded, it takes up to 80."""


class TotalSize:
    """Adds up the parts of one list or one result."""

    def __init__(self, subject: str, max_bytes: int) -> None:
        """`subject` begins the sentence that tells that the total is too large."""
        self._subject, self._max_bytes = subject, max_bytes
        self._size = 0

    def add(self, body: bytes, at_least: int = 0) -> None:
        """Adds a part, given as JSON; it counts `at_least` so many bytes.

        Raises:
            ClientError: the total is too large.
        """
        self._size += max(size_of(body), at_least)
        if self._size > self._max_bytes:
            raise too_large_error(self._subject, self._max_bytes)


def size_of(body: bytes) -> int:
    """Returns the size of a value, given as JSON."""
    # Text in strings may look like structure, so that this is at least the true count, and mostly suffices.
    if BYTES_PER_VALUE * sum(map(body.count, (b"[", b"{", b",", b":"))) < len(body):
        return len(body)
    return max(len(body), BYTES_PER_VALUE * count_values(body))


def too_large_error(subject: str, max_bytes: int) -> ClientError:
    return ClientError(
        f"{subject} is larger than {max_bytes:,} bytes; ask for less, or allow a larger max_bytes if you trust it."
    )


_LARGE_BYTES = 100_000
"""A message of more bytes is many objects; to look for garbage among them meanwhile takes longer than to read it."""
_DEPTH = 900
"""The deepest nesting of a result; Python nests no deeper."""


def message_limits(max_bytes: int) -> Limits:
    """Returns the limits of a message from a server, which may have so many bytes."""
    return Limits(message_bytes=max_bytes, values=max_bytes // BYTES_PER_VALUE, depth=_DEPTH)


_ID = re.compile(rb'"id"\s*:\s*(\d{1,18})\b')
_MAX_ERROR_BYTES = 64 * 1024
_EDGE_BYTES = 200
"""How many bytes at each end of a message are searched for its id; servers write the id first or last."""


class UnaddressedError(NamedTuple):
    """An error response whose id is null: the server could not read the id of the request that it is about."""

    error: dict[str, JSON]


class RefusedForNowError(ConnectionLostError):
    """A server refused a request, with a JSON-RPC error, and says when to send it again: it has done nothing."""

    def __init__(self, error: PeerError, retry_after: float) -> None:
        super().__init__(str(error), maybe_done=False, retry_after=retry_after)
        self.error = error
        """The error for the caller, if the client does not send the request again."""


def peer_error(error: Mapping[str, JSON]) -> PeerError:
    """Returns the exception for the error of a response."""
    code, message = error.get("code"), error.get("message")
    text = message if isinstance(message, str) and message else "The server failed and did not say why."
    return PeerError(code if type(code) is int else 0, text, error.get("data"))


def read_messages(body: bytes, codec: Codec, limits: Limits) -> list[Message | UnaddressedError]:
    """Reads the message, or the batch of messages, that a server sent in one piece."""
    with collection_paused() if len(body) > _LARGE_BYTES else contextlib.nullcontext():
        messages = jsonrpc.read_reply(body, limits) if codec is JSON_CODEC else codec.read_messages(body, limits)
    if isinstance(messages, Malformed):
        error = _find_unaddressed_error(body, codec)
        if error is not None:
            return [error]
        id_ = _find_answered_id(body) if codec is JSON_CODEC else messages.id
        messages = Malformed(messages.fault, messages.reason, id_)
    return [*messages] if isinstance(messages, list) else [messages]


def _find_unaddressed_error(body: bytes, codec: Codec) -> UnaddressedError | None:
    try:
        decoded: Any = codec.decode(body) if len(body) <= _MAX_ERROR_BYTES else None
    except ValueError:
        return None
    if not isinstance(decoded, dict) or "jsonrpc" not in decoded or "method" in decoded:
        return None
    error = decoded.get("error")
    return UnaddressedError(error) if isinstance(error, dict) and decoded.get("id") is None else None


def _find_answered_id(body: bytes) -> RequestId | None:
    """Finds the id of the request that an unreadable response answers, so that its caller gets an error.

    Returns None if the message is not a response: a request, or a line of a log that happens to be JSON.
    """
    ends = body[:_EDGE_BYTES] + b" " + body[-_EDGE_BYTES:]
    if b'"jsonrpc"' not in ends or b'"method"' in body[:_EDGE_BYTES]:
        return None
    match = _ID.search(ends)
    return None if match is None else int(match[1])


NO_HEADERS: Mapping[str, str] = MappingProxyType({})


class MessageReceiver(Protocol):
    """Receives the messages that a link reads; the client's connection implements it."""

    def receive(self, message: Message | UnaddressedError, request_id: RequestId | None = None) -> None:
        """Takes one message. Never raises.

        `request_id` is the request of the client on whose stream the message came; None if the link does not tell.
        """

    def is_awaiting(self, id_: RequestId) -> bool:
        """Whether the client still waits for the response to this request."""

    def receive_detach(self, id_: RequestId) -> None:
        """Learns that the server has closed the stream of this request early, and that the link resumes it."""

    def fail_pending(self, error: ClientError) -> None:
        """Fails all pending requests with this error, because no more messages will come."""


class ClientLink(Protocol):
    """Carries messages between the client and one server."""

    codec: Codec
    """The encoding of messages; the negotiation sets it once, between two messages."""
    carries_headers: bool
    """Whether the link sends headers, in which the modern era wants a call's method, name and some arguments."""
    ended: bool
    """Whether the link can send no more messages."""

    @property
    def pid(self) -> int | None:
        """The process that the link started; None if there is none."""

    async def open(self, receiver: MessageReceiver) -> None:
        """Starts the server or connects to it, if the transport needs that before the first message.

        Raises:
            UnreachableError: the server cannot be started or reached.
        """

    async def send(
        self, message: dict[str, JSON], headers: Mapping[str, str] = NO_HEADERS, ends_at: float | None = None
    ) -> None:
        """Sends a message. Over HTTP and gRPC a request returns when its response has been received.

        `ends_at` is when its caller gives up, by the event loop's clock; gRPC tells the server.

        Raises:
            ClientError: the message could not be sent, or no response will come.
        """

    async def listen(self, headers: Mapping[str, str], on_open: Callable[[], None]) -> bool:
        """Receives the messages of a handshake server that belong to no request, if these need a stream of their own.

        The link calls `on_open` whenever the stream opens, and also if the server has no such stream. It returns True
        at once if these messages come on the link anyway, False if the server offers no stream; otherwise it reads the
        stream until the caller cancels it.
        """

    async def close(self) -> None: ...


BearerToken: TypeAlias = str | Callable[[], str | Awaitable[str]]
"""A bearer token, or a function that returns one; the link calls it again when the server refuses the last token."""


class TokenSource(Protocol):
    """Gives the bearer tokens of one server."""

    async def token(self) -> str | None:
        """Returns the token to begin with; None to send none."""
        ...

    async def renew(self, refused: str | None, challenge: str) -> str | None:
        """Returns another token after the server refused one; None if there is no other.

        Args:
            refused: the token that the server refused; None if it refused a request without a token.
            challenge: the server's `WWW-Authenticate` header.

        Raises:
            UserNeededError: the user must be asked for another token.
            UnauthorizedError: no token can be had; the text says why.
        """
        ...


class UserNeededError(UnauthorizedError):
    """Another token can be had only by asking the user, who takes longer than requests may take.

    The connector therefore calls `ask_user` outside of any deadline, and sends the request again.
    """

    def __init__(
        self, message: str, challenge: str, ask_user: Callable[[], Awaitable[None]], *, is_step_up: bool
    ) -> None:
        super().__init__(message, challenge)
        self.ask_user = ask_user
        self.is_step_up = is_step_up
        """Whether the server accepts the token, and wants one that allows more."""


class FixedToken:
    """A source of one token."""

    def __init__(self, token: str) -> None:
        self._token = token

    async def token(self) -> str:
        return self._token

    async def renew(self, refused: str | None, challenge: str) -> None:
        return None


class TokenFunction:
    """A source that asks a function of the caller, once for all requests that were refused at the same time."""

    def __init__(self, function: Callable[[], str | Awaitable[str]]) -> None:
        self._function = function
        self._last: str | None = None
        self._lock = asyncio.Lock()

    async def token(self) -> str:
        result = self._function()
        self._last = token = await result if isawaitable(result) else result
        return token

    async def renew(self, refused: str | None, challenge: str) -> str | None:
        async with self._lock:
            token = await self.token() if self._last == refused else self._last
            return token if token != refused else None


def make_token_source(token: BearerToken) -> TokenSource:
    return FixedToken(token) if isinstance(token, str) else TokenFunction(token)


# The link to a server in this process


class MemoryLink:
    """Passes messages to a server's engine in memory, in the same encoding as over a wire."""

    carries_headers = False
    pid: int | None = None

    def __init__(
        self,
        run: Callable[[], contextlib.AbstractAsyncContextManager["Engine"]],
        limits: Limits,
        duplex: "type[Duplex]",
    ) -> None:
        """
        Args:
            run: Opens the server, as long as the link is open.
            duplex: How the server reads and writes messages: as MCP or as MCP-lite.
        """
        self._make_duplex = duplex
        self.codec = JSON_CODEC
        self.ended: bool = False
        self._run, self._limits = run, limits
        self._exit_stack = contextlib.AsyncExitStack()
        self._duplex: Duplex | None = None
        self.writable: asyncio.Event = asyncio.Event()
        self.writable.set()  # memory can always be written to

    async def open(self, receiver: MessageReceiver) -> None:
        engine = await self._exit_stack.enter_async_context(self._run())
        self._receiver = receiver
        self._duplex = self._make_duplex(engine, self)

    async def send(
        self, message: dict[str, JSON], headers: Mapping[str, str] = NO_HEADERS, ends_at: float | None = None
    ) -> None:
        if self.ended or self._duplex is None:
            raise ConnectionLostError("The connection is closed; connect again.", maybe_done=False)
        self._duplex.receive(self.codec.encode(message))

    async def listen(self, headers: Mapping[str, str], on_open: Callable[[], None]) -> bool:
        """Returns True: all messages come on the one connection."""
        on_open()
        return True

    async def close(self) -> None:
        if not self.ended:
            self.ended = True
            if self._duplex is not None:
                await self._duplex.close()
            await self._exit_stack.aclose()

    # The output that the server's duplex writes to

    def write(self, message: bytes) -> None:
        for parsed in read_messages(message, self.codec, self._limits):
            self._receiver.receive(parsed)

    async def wait_writable(self) -> None: ...

    def request_finished(self) -> None: ...
