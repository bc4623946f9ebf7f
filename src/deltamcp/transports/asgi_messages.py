"""ASGI in small pieces: the shapes of its calls, a body read whole, an answer sent."""

import asyncio
import functools
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from typing import Any, NamedTuple

from msgspec import Struct

from deltamcp.errors import FAULTS, Fault
from deltamcp.limits import Limits
from deltamcp.values import Failure, Malformed, Message, Notification, Principal, RequestId
from deltamcp.wire import codecs, jsonrpc
from deltamcp.wire.codecs import JSON_CODEC, Codec

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Headers = Mapping[bytes, bytes]


class AcceptedTypes(NamedTuple):
    """How a client wants to be answered."""

    events: bool
    """It reads event streams."""
    prefers_events: bool
    """It names them before JSON, or JSON not at all."""
    codec: Codec | None = None
    """What it wants an answer that is no stream written in; None for whatever it wrote itself."""


ONLY_JSON = AcceptedTypes(events=False, prefers_events=False)


class HttpRequest(Struct, gc=False):
    """An HTTP request, as far as the protocol wants to know."""

    scope: Any
    headers: dict[bytes, bytes]
    receive: Any
    send: Any
    principal: Principal
    """Whoever the authentication in front of this application has recognised."""
    accepts: AcceptedTypes | None
    """None where the client accepts nothing that the server could answer with."""
    has_unique_headers: bool
    """Whether no header came more than once."""
    codec: Codec = JSON_CODEC
    """What an answer that is no stream is written in. Refusals and events are JSON always."""

    def has_repeated(self, names: tuple[bytes, ...]) -> bool:
        """Whether one of the headers that begin so came more than once."""
        found = [name for name, _ in self.scope["headers"] if name.startswith(names)]
        return len(found) != len(set(found))


WHOLE_RESPONSE = "deltamcp.whole"
"""Where a server that can send a JSON response in one piece says so, in the scope: `(status, body) -> bool`."""

JSON_TYPE = (b"content-type", b"application/json")
_KINDS = (b"application/json", b"application/cbor")
_WHOLE_KINDS = (*_KINDS, b"application/*")
_CLOSE = (b"connection", b"close")
_EVENTS = (
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache, no-transform"),
    # MCP 2026-07-28 "Receiving Messages": keeps reverse proxies from holding events back.
    (b"x-accel-buffering", b"no"),
)


@functools.lru_cache(maxsize=256)
def read_accept(header: bytes) -> AcceptedTypes | None:
    """An `Accept` header; None where nothing we answer with is in it."""
    kinds = [part.partition(b";")[0].strip().lower() for part in header.split(b",")]
    events = next((place for place, kind in enumerate(kinds) if kind in (b"text/event-stream", b"text/*")), None)
    json = next((place for place, kind in enumerate(kinds) if kind in _WHOLE_KINDS), None)
    anything = b"*/*" in kinds
    if events is None and json is None and not anything:
        return None
    rather = events is not None and not anything and (json is None or events < json)
    codec = codecs.codec_for_accept(header.decode("latin-1").lower(), None)
    return AcceptedTypes(events is not None or anything, rather, codec)


def choose_codecs(incoming: HttpRequest) -> Codec | Failure:
    """What the body of a request is written in. It also sets what the answer is written in."""
    headers, accepts = incoming.headers, incoming.accepts
    content_type = headers.get(b"content-type", b"")
    codec = JSON_CODEC if content_type == b"application/json" else _codec_of(content_type)
    if codec is None or b"content-encoding" in headers:
        return Failure(Fault.WRONG_MEDIA_TYPE, "Send application/json or application/cbor, not compressed.")
    if accepts is None:
        return Failure(Fault.NOT_ACCEPTABLE, "Accept application/json and text/event-stream.")
    incoming.codec = accepts.codec or codec
    return codec


@functools.lru_cache(maxsize=256)
def _codec_of(content_type: bytes) -> Codec | None:
    """None for what we do not read, where the original Delta-MCP would read it as JSON."""
    kind = content_type.partition(b";")[0].strip().lower()
    return codecs.codec_for_content_type(content_type.decode("latin-1").lower()) if kind in _KINDS else None


async def read_body(incoming: HttpRequest, limits: Limits) -> bytes | Failure:
    """The whole body, or why not; more than the limit is never held."""
    # Before anything is received: a client that asks first, with Expect, is told no at once.
    declared = incoming.headers.get(b"content-length", b"")
    if declared.isdigit() and int(declared[:19]) > limits.message_bytes:
        return _too_large(limits)
    receive = incoming.receive
    event = await receive()
    body: bytes = event.get("body", b"")
    if not event.get("more_body"):
        return body if len(body) <= limits.message_bytes else _too_large(limits)
    whole = bytearray(body)
    try:
        async with asyncio.timeout(limits.body_seconds):
            while event.get("more_body") and len(whole) <= limits.message_bytes:
                event = await receive()
                whole += event.get("body", b"")
    except TimeoutError:
        return Failure(Fault.TOO_SLOW, "The body did not arrive in time.")
    return bytes(whole) if len(whole) <= limits.message_bytes else _too_large(limits)


def _too_large(limits: Limits) -> Failure:
    return Failure(Fault.TOO_LARGE, f"A message may have at most {limits.message_bytes} bytes.")


async def wait_for_disconnect(receive: Receive) -> None:
    """Returns when the client has closed the connection."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def respond(send: Send, status: int, body: bytes, headers: Iterable[tuple[bytes, bytes]] = ()) -> None:
    length = (b"content-length", b"%d" % len(body))
    await send({"type": "http.response.start", "status": status, "headers": [*headers, length]})
    await send({"type": "http.response.body", "body": body})


async def respond_json(send: Send, status: int, body: bytes, *more: tuple[bytes, bytes]) -> None:
    await respond(send, status, body, (JSON_TYPE, *more))


async def respond_to(incoming: HttpRequest, status: int, body: bytes, *more: tuple[bytes, bytes]) -> None:
    """An answer of the protocol, from JSON to what its client reads."""
    kind = (b"content-type", incoming.codec.content_type.encode())
    await respond(incoming.send, status, codecs.transcode(body, incoming.codec), (kind, *more))


async def refuse(send: Send, failure: Failure, id_: RequestId | None = None) -> None:
    """An answer to what was never a request of the protocol: the status says it, the body explains."""
    row = FAULTS[failure.fault]
    # What is left unread of a body refused for its size or slowness must not be read as the next request.
    close = failure.fault in (Fault.TOO_LARGE, Fault.TOO_SLOW)
    allow = ((b"allow", b"POST, GET, DELETE"),) if failure.fault is Fault.WRONG_HTTP_METHOD else ()
    body = jsonrpc.encode_error(id_, row.modern, failure)
    await respond_json(send, row.modern_http, body, *allow, *((_CLOSE,) if close else ()))


async def refuse_message(message: Message | list[Message], send: Send) -> None:
    """What a body gets that is not a request, where only a request has an answer."""
    match message:
        case Malformed():
            await respond_json(send, FAULTS[message.fault].modern_http, jsonrpc.encode_malformed(message))
        case Notification():
            await respond_accepted(send)
        case list():
            await refuse(send, Failure(Fault.INVALID_REQUEST, "Batches are not part of this protocol version."))
        case _:
            await refuse(send, Failure(Fault.INVALID_REQUEST, "This protocol version has no client responses."))


async def respond_accepted(send: Send) -> None:
    """202 for what gets no answer."""
    await respond(send, 202, b"")


async def start_events(send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": _EVENTS})


async def send_event(send: Send, event: bytes) -> None:
    await send({"type": "http.response.body", "body": event, "more_body": True})


async def end_events(send: Send) -> None:
    await send({"type": "http.response.body", "body": b""})
