"""ASGI types, and functions that read the head of an HTTP request and send messages of its response."""

import functools
import ipaddress
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from typing import Any

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Headers = Mapping[bytes, bytes]
Header = tuple[bytes, bytes]
HeaderList = tuple[Header, ...]


def adding_headers(send: Send, headers: HeaderList) -> Send:
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

The function takes the status, the body and further headers; it returns what to await until the client has read of a
large body, or None.
"""

WHOLE_BODY = "deltamcp.body"
"""The key of the HTTP server's function that takes the body of a request if all of it has arrived.

The function takes the most bytes that the body may have; it returns None if it has more, or if some are to come.
"""

JSON_TYPE = (b"content-type", b"application/json")
CLOSE = (b"connection", b"close")

PIECE_BYTES = 64 * 1024
"""A larger event is sent in pieces of this size, each when the client has read enough of those before; so is a larger
response where the HTTP server has no way of its own."""
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


async def wait_for_disconnect(receive: Receive) -> None:
    """Returns when the client has closed the connection."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def respond(send: Send, status: int, body: bytes, headers: Iterable[Header] = ()) -> None:
    """Sends a response."""
    length = (b"content-length", b"%d" % len(body))
    await send({"type": "http.response.start", "status": status, "headers": [*headers, length]})
    await _send_body(send, body, more_body=False)


async def respond_no_content(send: Send, headers: Iterable[Header]) -> None:
    """Sends status 204, which has no Content-Length either (RFC 9110, 8.6)."""
    await send({"type": "http.response.start", "status": 204, "headers": [*headers]})
    await send({"type": "http.response.body", "body": b""})


async def _send_body(send: Send, body: bytes, more_body: bool) -> None:
    at = 0
    while len(body) - at > PIECE_BYTES:
        await send({"type": "http.response.body", "body": body[at : at + PIECE_BYTES], "more_body": True})
        at += PIECE_BYTES
    await send({"type": "http.response.body", "body": body[at:], "more_body": more_body})


async def respond_json(send: Send, status: int, body: bytes, *headers: Header) -> None:
    """Sends a JSON response."""
    await respond(send, status, body, (JSON_TYPE, *headers))


async def respond_accepted(send: Send) -> None:
    """Sends status 202, for messages that have no response."""
    await respond(send, 202, b"")


async def start_events(send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": _EVENTS})


async def send_event(send: Send, event: bytes) -> None:
    await _send_body(send, event, more_body=True)


async def end_events(send: Send) -> None:
    await send({"type": "http.response.body", "body": b""})


def read_cookie(headers: Iterable[tuple[bytes, bytes]], name: str) -> str | None:
    """Returns the value of a cookie; None if the request has no such cookie, or several that differ.

    A page of a neighbouring host can add a cookie of the same name, and its place among them says nothing
    (RFC 6265, 4.2.2).
    """
    wanted, found = name.encode(), set()
    for header, value in headers:
        if header == b"cookie":
            for pair in value.split(b";"):
                cookie, equals, text = pair.partition(b"=")
                if equals and cookie.strip(b" \t") == wanted:
                    found.add(text.strip(b" \t"))
    return found.pop().decode("latin-1") if len(found) == 1 else None
