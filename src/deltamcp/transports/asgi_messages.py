"""ASGI types, and functions that read an HTTP request and send its response."""

import asyncio
import contextlib
import functools
import ipaddress
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, MutableMapping
from typing import Any, NamedTuple

from msgspec import Struct

from deltamcp.errors import FAULTS, Fault
from deltamcp.limits import Limits
from deltamcp.transports.quota import HttpQuotas
from deltamcp.values import Caller, Failure, Malformed, Message, Notification, RequestId
from deltamcp.wire import codecs, jsonrpc
from deltamcp.wire.codecs import JSON_CODEC, Codec

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Headers = Mapping[bytes, bytes]


class AcceptedTypes(NamedTuple):
    """The response types that a client accepts."""

    events: bool
    """Whether the client accepts event streams."""
    prefers_events: bool
    """Whether the client lists event streams before JSON, or does not list JSON."""
    codec: Codec | None = None
    """The codec of responses that are no stream; None for the codec of the request."""


ONLY_JSON = AcceptedTypes(events=False, prefers_events=False)


class HttpRequest(Struct, gc=False):
    """An HTTP request, with the headers parsed that MCP uses."""

    scope: Any
    headers: dict[bytes, bytes]
    receive: Any
    send: Any
    caller: Caller
    """The caller, as far as the request tells without its session."""
    accepts: AcceptedTypes | None
    """None if the client accepts no type that the server can send."""
    has_unique_headers: bool
    """Whether the client sent no header more than once."""
    quotas: HttpQuotas
    auth: Any = None
    """The `Authenticator` that has set the caller; None if every caller is anonymous."""
    metrics: Any = None
    """The `Metrics` that count refusals; None if nobody asked for them."""
    response_headers: tuple[tuple[bytes, bytes], ...] = ()
    """Headers that every response to this request has."""
    codec: Codec = JSON_CODEC
    """The codec of a response that is no stream. Refusals and events are always JSON."""
    held_bytes: int = 0
    """The bytes of the body that count for the account until it is decoded."""
    decoded_bytes: int = 0
    """The memory of the decoded body that counts for the account while the request is in progress."""
    response_bytes: int = 0
    """The bytes of responses that count for the account until they are sent."""

    def add_headers(self, headers: tuple[tuple[bytes, bytes], ...]) -> None:
        """Adds headers to the response, unless the response has its own of the same name."""
        self.response_headers += headers
        self.send = adding_headers(self.send, headers)

    @property
    def account(self) -> str:
        """The account that counts what the request holds, see `quota.py`."""
        return self.caller.account

    def hold(self, size: int) -> bool:
        """Counts bytes of the body for the account; returns False if the account may not hold so many."""
        if size and not self.quotas.bodies.take(self.account, size):
            return False
        self.held_bytes += size
        return True

    async def hold_decoded(self, size: int, seconds: float) -> bool:
        """Counts the memory of the decoded body for the account; returns False if it was not free within `seconds`."""
        size = min(size, self.quotas.decoded.share)  # so that the largest message can be served, if alone
        if not await self.quotas.decoded.take_in_turn(self.account, size, seconds):
            return False
        self.decoded_bytes = size
        return True

    def release(self) -> None:
        """Ends the count of the body's bytes and memory."""
        self.release_bytes()
        if self.decoded_bytes:
            self.quotas.decoded.give_back(self.account, self.decoded_bytes)
            self.decoded_bytes = 0

    def release_bytes(self) -> None:
        """Ends the count of the body's bytes."""
        if self.held_bytes:
            self.quotas.bodies.give_back(self.account, self.held_bytes)
            self.held_bytes = 0

    @contextlib.asynccontextmanager
    async def place_of_batch(self, seconds: float) -> AsyncIterator[bool]:
        """Holds a place for a batch of the account; gives False if none was free within `seconds`."""
        batches = self.quotas.batches
        is_taken = await batches.take_in_turn(self.account, 1, seconds)
        try:
            yield is_taken
        finally:
            if is_taken:
                batches.give_back(self.account)

    def reserve_response(self, size: int, in_batch: bool = False) -> bool:
        """Counts the bytes of a response for the account until it is sent; returns False if too many are unread.

        A small one counts only in a batch, where it waits for the others.
        """
        if size <= PIECE_BYTES and not in_batch:
            return True
        responses = self.quotas.responses
        size = min(size, responses.share)  # so that the largest response can be sent, if alone
        if not responses.take(self.account, size):
            return False
        self.response_bytes += size
        return True

    def release_responses(self) -> None:
        """Ends the count of the bytes of responses."""
        self.quotas.responses.give_back(self.account, self.response_bytes)
        self.response_bytes = 0

    def has_repeated(self, prefixes: tuple[bytes, ...]) -> bool:
        """Whether the client sent a header whose name begins with a prefix more than once."""
        found = [name for name, _ in self.scope["headers"] if name.startswith(prefixes)]
        return len(found) != len(set(found))


def adding_headers(send: Send, headers: tuple[tuple[bytes, bytes], ...]) -> Send:
    """Returns a function that sends responses with further headers, unless they have their own of the same name."""

    def send_event(event: MutableMapping[str, Any]) -> Awaitable[None]:
        if event["type"] == "http.response.start":
            own = event["headers"]
            names = {name.lower() for name, _ in own}
            event["headers"] = [*own, *(header for header in headers if header[0] not in names)]
        return send(event)

    return send_event


WHOLE_RESPONSE = "deltamcp.whole"
"""The key in the ASGI scope of the HTTP server's function that sends a JSON response at once, if it has one.

The function takes the status, the body and further headers, and returns whether it sent the response.
"""

JSON_TYPE = (b"content-type", b"application/json")
_BODY_TYPES = (b"application/json", b"application/cbor")
_ACCEPTED_BODY_TYPES = (*_BODY_TYPES, b"application/*")
CLOSE = (b"connection", b"close")

PIECE_BYTES = 64 * 1024
"""A larger response or event is sent in pieces of this size, each when the client has read enough of those before."""
UNCOUNTED_BYTES = 1024
"""A body of up to this size is not counted, because calls are."""
_EVENTS = (
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache, no-transform"),
    # MCP 2026-07-28 "Receiving Messages": tells reverse proxies not to buffer events.
    (b"x-accel-buffering", b"no"),
)


def path_within(scope: Scope) -> str:
    """Returns the path relative to the place where the application is mounted."""
    path, root = scope["path"], scope.get("root_path", "")
    within: str = path[len(root) :] if root and path.startswith(root) else path
    return within.rstrip("/")


def client_address(scope: Scope) -> str:
    """Returns the address that a client's quotas count under; empty without one, as over a Unix socket.

    An IPv6 address counts by its /64 prefix, because providers assign at least so much to each customer.
    """
    client = scope.get("client")
    if not client:
        return ""
    address: str = client[0]
    return _network_of(address) if ":" in address else address


@functools.lru_cache(maxsize=1024)
def _network_of(address: str) -> str:
    try:
        host = ipaddress.IPv6Address(address.partition("%")[0])
    except ValueError:
        return address
    if host.ipv4_mapped is not None:
        return str(host.ipv4_mapped)
    return str(ipaddress.IPv6Network((int(host) >> 64 << 64, 64)))


_MAX_CACHED_BYTES = 256
"""A longer header is parsed every time, so that the caches stay small."""


def read_accept(header: bytes) -> AcceptedTypes | None:
    """Parses an `Accept` header; returns None if it has no type that the server can send."""
    return _accepted_types(header) if len(header) <= _MAX_CACHED_BYTES else _accepted_types.__wrapped__(header)


@functools.lru_cache(maxsize=256)
def _accepted_types(header: bytes) -> AcceptedTypes | None:
    types = [part.partition(b";")[0].strip().lower() for part in header.split(b",")]
    events = next((place for place, type_ in enumerate(types) if type_ in (b"text/event-stream", b"text/*")), None)
    json = next((place for place, type_ in enumerate(types) if type_ in _ACCEPTED_BODY_TYPES), None)
    anything = b"*/*" in types
    if events is None and json is None and not anything:
        return None
    prefers_events = events is not None and not anything and (json is None or events < json)
    codec = codecs.codec_for_accept(header.decode("latin-1").lower(), None)
    return AcceptedTypes(events is not None or anything, prefers_events, codec)


def choose_codecs(incoming: HttpRequest) -> Codec | Failure:
    """Returns the codec of a request's body, and sets `incoming.codec`, that of the response."""
    headers, accepts = incoming.headers, incoming.accepts
    content_type = headers.get(b"content-type", b"")
    codec = JSON_CODEC if content_type == b"application/json" else _codec_of(content_type[:_MAX_CACHED_BYTES])
    if codec is None or b"content-encoding" in headers:
        return Failure(Fault.WRONG_MEDIA_TYPE, "Send application/json or application/cbor, not compressed.")
    if accepts is None:
        return Failure(Fault.NOT_ACCEPTABLE, "Accept application/json and text/event-stream.")
    incoming.codec = accepts.codec or codec
    return codec


@functools.lru_cache(maxsize=256)
def _codec_of(content_type: bytes) -> Codec | None:
    """Returns the codec of a media type; None for other types, which the original Delta-MCP server reads as JSON."""
    type_ = content_type.partition(b";")[0].strip().lower()
    return codecs.codec_for_content_type(content_type.decode("latin-1").lower()) if type_ in _BODY_TYPES else None


async def read_body(incoming: HttpRequest, limits: Limits) -> bytes | Failure:
    """Returns the whole body, or a failure if it is too large or too slow; memory stays within the limit."""
    # Checked before anything is received, so that a client that sends Expect need not send the body.
    declared = incoming.headers.get(b"content-length", b"")
    if declared.isdigit() and int(declared[:19]) > limits.message_bytes:
        return _too_large(limits)
    receive = incoming.receive
    event = await receive()
    body: bytes = event.get("body", b"")
    if not event.get("more_body"):
        if len(body) <= UNCOUNTED_BYTES:
            return body
        if len(body) > limits.message_bytes:
            return _too_large(limits)
        return body if incoming.hold(len(body)) else _too_many()
    if not incoming.hold(len(body)):
        return _too_many()
    whole = bytearray(body)
    try:
        async with asyncio.timeout(limits.body_seconds):
            while event.get("more_body"):
                event = await receive()
                piece = event.get("body", b"")
                if len(whole) + len(piece) > limits.message_bytes:
                    return _too_large(limits)
                if not incoming.hold(len(piece)):
                    return _too_many()
                whole += piece
    except TimeoutError:
        return Failure(Fault.TOO_SLOW, "The body did not arrive in time.")
    return bytes(whole)


async def hold_memory(incoming: HttpRequest, body: bytes, codec: Codec, limits: Limits) -> Failure | None:
    """Counts for the account what a body takes once it is decoded; waits until the account may hold so much."""
    size = codecs.estimate_memory(body, codec, limits)
    return None if await incoming.hold_decoded(size, limits.body_seconds) else _too_many()


def _too_many() -> Failure:
    return Failure(Fault.OVERLOADED, "Too many large requests of this client are in progress; try again later.")


def _too_large(limits: Limits) -> Failure:
    return Failure(Fault.TOO_LARGE, f"A message may have at most {limits.message_bytes} bytes.")


async def wait_for_disconnect(receive: Receive) -> None:
    """Returns when the client has closed the connection."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def respond(send: Send, status: int, body: bytes, headers: Iterable[tuple[bytes, bytes]] = ()) -> None:
    """Sends a response."""
    length = (b"content-length", b"%d" % len(body))
    await send({"type": "http.response.start", "status": status, "headers": [*headers, length]})
    await _send_body(send, body, more_body=False)


async def respond_no_content(send: Send, headers: Iterable[tuple[bytes, bytes]]) -> None:
    """Sends status 204, which has no Content-Length either (RFC 9110, 8.6)."""
    await send({"type": "http.response.start", "status": 204, "headers": [*headers]})
    await send({"type": "http.response.body", "body": b""})


async def _send_body(send: Send, body: bytes, more_body: bool) -> None:
    at = 0
    while len(body) - at > PIECE_BYTES:
        await send({"type": "http.response.body", "body": body[at : at + PIECE_BYTES], "more_body": True})
        at += PIECE_BYTES
    await send({"type": "http.response.body", "body": body[at:], "more_body": more_body})


async def respond_json(send: Send, status: int, body: bytes, *headers: tuple[bytes, bytes]) -> None:
    """Sends a JSON response."""
    await respond(send, status, body, (JSON_TYPE, *headers))


async def respond_to(incoming: HttpRequest, status: int, body: bytes, *headers: tuple[bytes, bytes]) -> None:
    """Sends a response, whose `body` is JSON, in the codec that the client accepts."""
    content_type = (b"content-type", incoming.codec.content_type.encode())
    await respond(incoming.send, status, codecs.transcode(body, incoming.codec), (content_type, *headers))


def failure_headers(incoming: HttpRequest, failure: Failure) -> tuple[tuple[bytes, bytes], ...]:
    """Returns the headers of a response that reports a failure."""
    match failure.fault:
        case Fault.WRONG_HTTP_METHOD:
            return ((b"allow", b"POST, GET, DELETE"),)
        case Fault.UNAUTHORIZED | Fault.INSUFFICIENT_SCOPE if incoming.auth is not None:
            challenge = incoming.auth.challenge(failure)
            return () if challenge is None else ((b"www-authenticate", challenge.encode("latin-1", "replace")),)
        case Fault.RATE_LIMITED | Fault.OVERLOADED if failure.retry_seconds > 0:
            return ((b"retry-after", b"%d" % math.ceil(failure.retry_seconds)),)
        case _:
            return ()


async def refuse(incoming: HttpRequest, failure: Failure, id_: RequestId | None = None) -> None:
    """Refuses an HTTP request that no dialect can answer, with the status of the failure and its text in the body."""
    row = FAULTS[failure.fault]
    body = jsonrpc.encode_error(id_, row.modern, failure)
    await send_refusal(incoming, failure, row.modern_http, body, failure_headers(incoming, failure))


async def send_refusal(
    incoming: HttpRequest, failure: Failure, status: int, body: bytes, headers: tuple[tuple[bytes, bytes], ...]
) -> None:
    """Sends the response that refuses a request, and counts it."""
    if incoming.metrics is not None:
        incoming.metrics.count_refusal(failure)
    # RFC 9110, 10.1.1: a client that asked first and is refused may leave out the body, so that the next bytes could be
    # either. Any other client sends the rest of its body, which the HTTP server reads and drops; if the server closed
    # the connection before, the client could not read the response.
    close = (CLOSE,) if b"expect" in incoming.headers else ()
    await respond_json(incoming.send, status, body, *headers, *close)


async def refuse_message(message: Message | list[Message], incoming: HttpRequest) -> None:
    """Answers a body that is no request, in a protocol version where clients send only requests and notifications."""
    match message:
        case Malformed():
            await respond_json(incoming.send, FAULTS[message.fault].modern_http, jsonrpc.encode_malformed(message))
        case Notification():
            await respond_accepted(incoming.send)
        case list():
            await refuse(incoming, Failure(Fault.INVALID_REQUEST, "Batches are not part of this protocol version."))
        case _:
            await refuse(incoming, Failure(Fault.INVALID_REQUEST, "This protocol version has no client responses."))


async def respond_accepted(send: Send) -> None:
    """Sends status 202, for messages that have no response."""
    await respond(send, 202, b"")


async def start_events(send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": _EVENTS})


async def send_event(send: Send, event: bytes) -> None:
    await _send_body(send, event, more_body=True)


async def end_events(send: Send) -> None:
    await send({"type": "http.response.body", "body": b""})
