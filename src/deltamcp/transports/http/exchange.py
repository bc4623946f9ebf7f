"""One HTTP exchange: the request and its body, what it holds of its account's quotas, and how its response is sent."""

import asyncio
import contextlib
import functools
import math
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from typing import Any, NamedTuple, TypeVar

from msgspec import Struct, field

from deltamcp.errors import FAULTS, Fault
from deltamcp.limits import Limits
from deltamcp.runtime.quota import HttpQuotas, Quota
from deltamcp.runtime.threads import Threads
from deltamcp.transports.admission import Arrival
from deltamcp.transports.http import asgi
from deltamcp.transports.http.asgi import Header, HeaderList
from deltamcp.values import JSON, Failure, Malformed, Message, Outcome, RequestId
from deltamcp.wire import codecs, jsonrpc
from deltamcp.wire.codecs import JSON_CODEC, Codec
from deltamcp.wire.message_bounds import MessageBoundError

_ALLOW = ((b"allow", b"POST, GET, DELETE"),)


class HttpAnswer(Struct, frozen=True, gc=False):
    """What a protocol makes of an outcome."""

    status: int
    body: bytes
    """JSON, which is sent in the codec that the client accepts; empty for none."""
    headers: HeaderList = ()
    """Headers of a response that is no stream."""
    failure: Failure | None = None
    """What the response reports, if it reports one."""
    instead: Callable[[], bytes] | None = None
    """Makes the message for a client that reconnects, if the body is too large to be stored for it."""


class AcceptedTypes(NamedTuple):
    """The response types that a client accepts."""

    events: bool
    """Whether the client accepts event streams."""
    prefers_events: bool
    """Whether the client lists event streams before JSON, or does not list JSON."""
    codec: Codec | None = None
    """The codec of responses that are no stream; None for the codec of the request."""


ONLY_JSON = AcceptedTypes(events=False, prefers_events=False)


Write = Callable[[Outcome], HttpAnswer]
"""Writes an outcome in the protocol of a request."""


class Exchange(Arrival, gc=False):
    """A request and the way to its response. Whoever made it closes it."""

    method: str
    repeated: frozenset[bytes]
    """The names of the headers that the client sent more than once."""
    receive: Any
    send: Any
    quotas: HttpQuotas
    challenge: Callable[[Failure], str | None] | None = None
    """Says which credentials a refused request needs; None if every caller is anonymous."""
    metrics: Any = None
    """The `Metrics` that count refusals; None if nobody asked for them."""
    response_headers: HeaderList = ()
    """Headers that every response to this request has."""
    accepts: AcceptedTypes = ONLY_JSON
    """The response types that the client accepts, see `choose_codecs`."""
    codec: Codec = JSON_CODEC
    """The codec of a response that is no stream. Refusals and events are always JSON."""
    held: dict[Quota, int] = field(default_factory=dict)
    """What counts for the account in each quota."""

    # What it holds

    def hold(self, quota: Quota, size: int) -> bool:
        """Counts an amount for the account until the exchange gives it back; returns False if that is too much."""
        if size and not quota.take(self.caller.account, size):
            return False
        self.held[quota] = self.held.get(quota, 0) + size
        return True

    async def hold_decoded(self, size: int, seconds: float) -> bool:
        """Counts the memory of the decoded body for the account; returns False if it was not free within `seconds`."""
        size = min(size, self.quotas.decoded.share)  # so that the largest message can be served, if alone
        if not await self.quotas.decoded.take_in_turn(self.caller.account, size, seconds):
            return False
        self.held[self.quotas.decoded] = size
        return True

    def hold_response(self, size: int) -> bool:
        """Counts the bytes of a response for the account until it is sent; returns False if too many are unread."""
        responses = self.quotas.responses
        return self.hold(responses, min(size, responses.share))  # so that the largest response can be sent, if alone

    @contextlib.asynccontextmanager
    async def place_of_batch(self, seconds: float) -> AsyncIterator[bool]:
        """Holds a place for a batch of the account; gives False if none was free within `seconds`."""
        batches = self.quotas.batches
        is_taken = await batches.take_in_turn(self.caller.account, 1, seconds)
        try:
            yield is_taken
        finally:
            if is_taken:
                batches.give_back(self.caller.account)

    def give_back(self, quota: Quota) -> None:
        """Ends what counts in a quota."""
        size = self.held.pop(quota, 0)
        if size:
            quota.give_back(self.caller.account, size)

    def release_body(self) -> None:
        """Ends the count of the body's bytes and of its memory."""
        self.give_back(self.quotas.bodies)
        self.give_back(self.quotas.decoded)

    def close(self) -> None:
        """Ends every count."""
        for quota in tuple(self.held):
            self.give_back(quota)

    # Its response

    def add_headers(self, headers: HeaderList) -> None:
        """Adds headers to the response, unless the response has its own of the same name."""
        self.response_headers += headers
        self.send = asgi.adding_headers(self.send, headers)

    def respond(self, response: HttpAnswer) -> Awaitable[None] | None:
        """Sends a response, and counts the failure that it reports; returns what to await, unless all of it is sent."""
        body, headers = response.body, response.headers
        if response.failure is not None:
            headers = self._report(response.failure, headers)
        is_plain = body and not headers and self.codec is JSON_CODEC
        whole = self.scope.get(asgi.WHOLE_RESPONSE) if is_plain else None
        if whole is None:
            return self._send(response.status, body, headers)
        sending: Awaitable[None] | None = whole(response.status, body, self.response_headers)
        return sending

    async def answer(self, response: HttpAnswer) -> None:
        """Sends a response to its end."""
        sending = self.respond(response)
        if sending is not None:
            await sending

    async def answer_batch(self, bodies: list[bytes]) -> None:
        """Sends the responses to the messages of a batch as one body."""
        self.release_body()
        if bodies:
            await self.answer(HttpAnswer(200, b"[%b]" % b",".join(bodies)))
        else:
            await asgi.respond_accepted(self.send)

    async def refuse(self, response: HttpAnswer) -> None:
        """Refuses the request before any call: in JSON, whatever the client accepts."""
        headers = response.headers
        if response.failure is not None:
            headers = self._report(response.failure, headers)
        # RFC 9110, 10.1.1: a client that asked first and is refused may leave out the body, so that the next bytes
        # could be either. Any other client sends the rest of its body, which the HTTP server reads and drops; if the
        # server closed the connection before, the client could not read the response.
        if b"expect" in self.headers:
            headers += (asgi.CLOSE,)
        self.codec = JSON_CODEC
        await self._send(response.status, response.body, headers)

    async def _send(self, status: int, body: bytes, headers: HeaderList) -> None:
        if body:
            body = codecs.transcode(body, self.codec)
            headers = ((b"content-type", self.codec.content_type.encode()), *headers)
        await asgi.respond(self.send, status, body, headers)

    def _report(self, failure: Failure, headers: HeaderList) -> HeaderList:
        """Counts a failure that the response reports, and adds its headers."""
        if self.metrics is not None:
            self.metrics.count_refusal(failure)
        match failure.fault:
            case Fault.UNAUTHORIZED | Fault.INSUFFICIENT_SCOPE if self.challenge is not None:
                challenge = self.challenge(failure)
                if challenge is not None:
                    return *headers, (b"www-authenticate", challenge.encode("latin-1", "replace"))
            case Fault.RATE_LIMITED | Fault.OVERLOADED if failure.retry_seconds > 0:
                return *headers, (b"retry-after", b"%d" % math.ceil(failure.retry_seconds))
        return headers


def repeated_names(headers: Iterable[Header]) -> frozenset[bytes]:
    """Returns the names of headers that occur more than once."""
    counts = Counter(name for name, _ in headers)
    return frozenset(name for name in counts if counts[name] > 1)


def refusal(failure: Failure, id_: RequestId | None = None) -> HttpAnswer:
    """Returns what refuses a request that no dialect of MCP can answer: the failure's status, its text in the body."""
    row = FAULTS[failure.fault]
    headers = _ALLOW if failure.fault is Fault.WRONG_HTTP_METHOD else ()
    return HttpAnswer(row.modern_http, jsonrpc.encode_error(id_, row.modern, failure), headers, failure)


def refuse_message(message: Message | list[Message]) -> HttpAnswer:
    """Refuses a body that is no request, in a version where clients send only requests and notifications."""
    match message:
        case Malformed():
            return HttpAnswer(FAULTS[message.fault].modern_http, jsonrpc.encode_malformed(message))
        case list():
            return refusal(Failure(Fault.INVALID_REQUEST, "Batches are not part of this protocol version."))
        case _:
            return refusal(Failure(Fault.INVALID_REQUEST, "This protocol version has no client responses."))


T = TypeVar("T")

_BODY_TYPES = (b"application/json", b"application/cbor")
_ACCEPTED_BODY_TYPES = (*_BODY_TYPES, b"application/*")
_MAX_CACHED_BYTES = 256
"""A longer header is parsed every time, so that the caches stay small."""
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

    def read_arrived(self, exchange: Exchange, codec: Codec) -> Message | list[Message] | None:
        """Reads the message or batch of a small body that has arrived; returns None for any other, which `read` reads.

        Nearly every body has come with its head.
        """
        take = exchange.scope.get(asgi.WHOLE_BODY)
        body: bytes | None = None if take is None else take(_UNCOUNTED_BYTES)
        return None if body is None else codec.read_messages(body, self._limits)

    def read(self, exchange: Exchange, codec: Codec) -> Awaitable[Message | list[Message] | Failure]:
        """Reads the message or batch of a body. Await what it returns."""
        return self._read(exchange, codec, codec.read_messages)

    def read_object(self, exchange: Exchange) -> Awaitable[dict[str, JSON] | Message | list[Message] | Failure]:
        """Reads a body that is a JSON object and no JSON-RPC, or nothing; any other as `read` does. Await it too."""
        return self._read(exchange, exchange.codec, functools.partial(_read_object, exchange.codec))

    async def _read(self, exchange: Exchange, codec: Codec, parse: Callable[[bytes, Limits], T]) -> T | Failure:
        # Checked before anything is received, so that a client that sends Expect need not send the body.
        declared = exchange.headers.get(b"content-length", b"")
        if declared.isdigit() and int(declared[:19]) > self._limits.message_bytes:
            return _too_large(self._limits)
        event = await exchange.receive()
        body: bytes = event.get("body", b"")
        if event.get("more_body") or len(body) > _UNCOUNTED_BYTES:
            return await self._read_counted(exchange, codec, parse, event)
        return parse(body, self._limits)

    async def _read_counted(
        self, exchange: Exchange, codec: Codec, parse: Callable[[bytes, Limits], T], event: Mapping[str, Any]
    ) -> T | Failure:
        """Reads a body whose memory counts; `event` has the first of it."""
        limits, bodies = self._limits, exchange.quotas.bodies
        body = await self._receive(exchange, event)
        if isinstance(body, Failure):
            return body
        if len(body) > _UNCOUNTED_BYTES:
            size = codecs.estimate_memory(body, codec, limits)
            if not await exchange.hold_decoded(size, limits.body_seconds):
                return _TOO_MANY
        if len(body) <= _MAX_BYTES_AT_ONCE:
            exchange.give_back(bodies)
            return parse(body, limits)
        arguments = {"body": body, "limits": limits}
        parsed: T = await self._decoders.run(exchange.caller.account, parse, arguments)
        exchange.give_back(bodies)
        return parsed

    async def _receive(self, exchange: Exchange, event: Mapping[str, Any]) -> bytes | Failure:
        """Returns the whole body; memory stays within the limit."""
        limits, bodies = self._limits, exchange.quotas.bodies
        body: bytes = event.get("body", b"")
        if not event.get("more_body") and len(body) > limits.message_bytes:
            return _too_large(limits)
        if not exchange.hold(bodies, len(body)):
            return _TOO_MANY
        if not event.get("more_body"):
            return body
        whole = bytearray(body)
        try:
            async with asyncio.timeout(limits.body_seconds):
                while event.get("more_body"):
                    event = await exchange.receive()
                    piece = event.get("body", b"")
                    if len(whole) + len(piece) > limits.message_bytes:
                        return _too_large(limits)
                    if not exchange.hold(bodies, len(piece)):
                        return _TOO_MANY
                    whole += piece
        except TimeoutError:
            return Failure(Fault.TOO_SLOW, "The body did not arrive in time.")
        return bytes(whole)


def read_accept(header: bytes) -> AcceptedTypes | None:
    """Parses an `Accept` header; returns None if it has no type that the server can send."""
    types = [part.partition(b";")[0].strip().lower() for part in header.split(b",")]
    events = next((place for place, type_ in enumerate(types) if type_ in (b"text/event-stream", b"text/*")), None)
    json = next((place for place, type_ in enumerate(types) if type_ in _ACCEPTED_BODY_TYPES), None)
    anything = b"*/*" in types
    if events is None and json is None and not anything:
        return None
    prefers_events = events is not None and not anything and (json is None or events < json)
    codec = codecs.codec_for_accept(header.decode("latin-1").lower(), None)
    return AcceptedTypes(events is not None or anything, prefers_events, codec)


def choose_codecs(exchange: Exchange) -> Codec | Failure:
    """Returns the codec of a request's body, and sets what the client accepts and the codec of the response."""
    headers = exchange.headers
    sent, accept = headers.get(b"content-type", b"")[:_MAX_CACHED_BYTES], headers.get(b"accept", b"*/*")
    codec, accepts = (_read_types if len(accept) <= _MAX_CACHED_BYTES else _read_types.__wrapped__)(sent, accept)
    if codec is None or b"content-encoding" in headers:
        return Failure(Fault.WRONG_MEDIA_TYPE, "Send application/json or application/cbor, not compressed.")
    if accepts is None:
        return Failure(Fault.NOT_ACCEPTABLE, "Accept application/json and text/event-stream.")
    exchange.accepts, exchange.codec = accepts, accepts.codec or codec
    return codec


@functools.lru_cache(maxsize=256)
def _read_types(content_type: bytes, accept: bytes) -> tuple[Codec | None, AcceptedTypes | None]:
    """Returns the codec of a body, and the response types; None for types that this server does not take.

    The original Delta-MCP server reads other bodies as JSON.
    """
    is_taken = content_type.partition(b";")[0].strip().lower() in _BODY_TYPES
    codec = codecs.codec_for_content_type(content_type.decode("latin-1").lower()) if is_taken else None
    return codec, read_accept(accept)


def _too_large(limits: Limits) -> Failure:
    return Failure(Fault.TOO_LARGE, f"A message may have at most {limits.message_bytes} bytes.")


def _read_object(codec: Codec, body: bytes, limits: Limits) -> dict[str, JSON] | Message | list[Message]:
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
    return codec.read_messages(body, limits)
