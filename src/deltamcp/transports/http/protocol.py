"""uvicorn's HTTP protocol with limits that uvicorn lacks: on connections, slow or large requests, absent readers."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import httptools
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle
from uvicorn.protocols.utils import get_remote_addr

from deltamcp.limits import Limits
from deltamcp.runtime.quota import Quota
from deltamcp.transports.admission import TrustedProxies
from deltamcp.transports.http.asgi import PIECE_BYTES, WHOLE_BODY, WHOLE_RESPONSE, Header, HeaderList, client_address


def _refusal(status: bytes) -> bytes:
    return b"HTTP/1.1 %b\r\ncontent-length: 0\r\nconnection: close\r\n\r\n" % status


_NOT_HTTP = _refusal(b"400 Bad Request")
_TOO_SLOW = _refusal(b"408 Request Timeout")
_TOO_LARGE = _refusal(b"413 Content Too Large")
_HEAD_TOO_LARGE = _refusal(b"431 Request Header Fields Too Large")
_TOO_MANY_CONNECTIONS = _refusal(b"503 Service Unavailable")

_MAX_CHUNK_OVERHEAD = 8
"""The bytes on the wire for one byte of body; a client that sends each byte as a chunk needs six."""

_MAX_DROPPED_BYTES = 256 * 1024 * 1024
"""What the server reads of a refused body, so that the client gets to read the refusal; it keeps none of it."""

_SLOW_LINGER_SECONDS = 1.0
"""How long the server reads on after it refused a slow client, of whose request little can be under way."""

_NEXT_REQUEST_SECONDS = 1.0
"""How long a server that ends waits for the next request of a connection that was used; its client gets `close`."""

_BODY_GRACE_SECONDS = 5.0
"""How much later than the application, which sends a better response, the protocol refuses a slow body; a busy process
may reach both deadlines in one turn of its event loop."""

_MAX_PIPELINED = 8
"""The requests that wait on one connection for the one before, some 3 kB each; further ones wait unparsed."""
_MAX_TINY_PIPELINED = 32
"""The same where they arrive in one small piece; requests of MCP are not so short that it has more."""
_UNCUT_BYTES = 4096
"""A larger piece is parsed in cuts, because it may have thousands of requests, which take twenty times its memory."""
_CUT_BYTES = 1024

_MAX_TRAILERS = 64
"""The fields after a body, which nobody reads."""

_MAX_COPIED_BODY = 4096
"""A body of up to so many bytes is copied behind its head; a longer one is passed to the socket uncopied."""


class LingeringConnection(asyncio.Protocol):
    """A connection after its last response: reads and drops what the client still sends, until the client closes it.

    If the server closed it at once, TCP would reset it as soon as more arrives, and the client might lose the response.
    """

    def __init__(self, protocol: HttpToolsProtocol, seconds: float) -> None:
        """The protocol hears of the connection's end, `seconds` from now at the latest."""
        self._protocol = protocol
        self._transport = protocol.transport
        self._left = _MAX_DROPPED_BYTES
        self._end = protocol.loop.call_later(seconds, self._transport.abort)
        self._transport.set_protocol(self)
        if self._transport.can_write_eof():  # TLS cannot
            self._transport.write_eof()
        protocol.flow.resume_reading()

    def data_received(self, data: bytes) -> None:
        self._left -= len(data)
        if self._left < 0:
            self._transport.abort()

    def pause_writing(self) -> None:
        self._protocol.pause_writing()

    def resume_writing(self) -> None:
        self._protocol.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end.cancel()
        self._protocol.connection_lost(exc)


class _LastResponse:
    """The transport of a request after whose response the server closes the connection, as the client asked for."""

    def __init__(self, transport: asyncio.Transport, close: Callable[[], None]) -> None:
        self._transport = transport
        self.close = close
        self.write = transport.write
        self.writelines = transport.writelines
        self.is_closing = transport.is_closing


class _Trailers:
    """Takes the fields after a body in place of the headers, and keeps none of them (RFC 9110, 6.5.1).

    uvicorn would add them to the headers, by which a proxy says who its client is.
    """

    def __init__(self) -> None:
        self.count = 0

    def append(self, field: Header) -> None:
        self.count += 1
        if self.count > _MAX_TRAILERS:
            raise ValueError("too many fields after the body")  # which ends the parser's loop


def bounded_protocol(limits: Limits, connections: Quota, proxies: TrustedProxies | None) -> type[HttpToolsProtocol]:
    """Returns uvicorn's HTTP protocol with limits on a client's connections, time, bytes and pipelined requests.

    A connection of one of the trusted `proxies` counts towards the whole only, because it serves many clients.
    """
    unparsed = Quota(limits.body_bytes, limits.account_share)

    class Bounded(HttpToolsProtocol):
        message: object = None
        """The scope of the request that the last received piece ended in."""
        beside_bytes = 0
        """The bytes of that request, without its body, in pieces that did not complete it."""
        dropped_bytes = 0
        """The bytes of bodies that came after the response."""
        timer: asyncio.TimerHandle | None = None
        timed_head = False
        send_timer: asyncio.TimerHandle | None = None
        large_piece = False
        address: str | None = None
        lingers = False
        is_ending = False
        idle_since: float | None = None
        """When the last response was complete, by the loop's clock."""
        body_bytes = 0
        """The bytes of the last request's body so far."""
        waiting = b""
        """What is parsed when fewer requests wait."""
        running: RequestResponseCycle | None = None
        """The request that the application answers or has answered; those after it are in the pipeline."""

        def connection_made(self, transport: Any) -> None:
            client = get_remote_addr(transport)
            address = client_address({"client": client})
            if proxies is not None and proxies.trusts(client):
                address = f"{address} {id(self)}"  # an account of its own
            if not connections.take(address):
                transport.set_protocol(asyncio.Protocol())
                transport.write(_TOO_MANY_CONNECTIONS)
                transport.close()
                return
            self.address = address
            self.trailers = _Trailers()
            super().connection_made(transport)
            # So that writing is paused while anything is unsent; with 0 asyncio's TLS would pause an empty buffer.
            transport.set_write_buffer_limits(high=1, low=0)
            self.set_timer(in_head=True)

        def connection_lost(self, exc: Exception | None) -> None:
            self.clear_timer()
            self.clear_send_timer()
            if self.address is not None:
                self.take_waiting()
                connections.give_back(self.address)
                self.address = None
            self.disconnect()
            super().connection_lost(exc)
            self._unset_keepalive_if_required()  # uvicorn leaves the timer, and so this, where the client reset

        # What the client sends

        def data_received(self, data: bytes, cut: bool = False) -> None:
            if not cut and (len(data) > _UNCUT_BYTES or self.waiting):
                self.parse_cuts(self.take_waiting() + data)
                return
            cycle = self.cycle
            received = len(cycle.body) if cycle is not None else 0
            dropped = self.dropped_bytes
            self.large_piece = len(data) > limits.header_bytes
            try:
                self.parser.feed_data(data)
            except httptools.HttpParserError:
                self.refuse(_NOT_HTTP)
            except httptools.HttpParserUpgrade:
                self._unsupported_upgrade_warning()
            if self.lingers:
                return
            in_head = self.scope is not None and "method" not in self.scope  # uvicorn adds it at the head's end
            if in_head or (self.cycle is not None and self.cycle.more_body):
                body = len(self.cycle.body) - (received if self.cycle is cycle else 0) if self.cycle is not None else 0
                body += self.dropped_bytes - dropped
                self.check_piece(len(data) - _MAX_CHUNK_OVERHEAD * body, in_head)
            elif self.timer is not None and self.scope is not None:
                self.clear_timer()
                self.message = None

        def parse_cuts(self, data: bytes) -> None:
            at = 0
            while at < len(data) and not self.lingers:
                if self.pipeline and (len(self.pipeline) >= _MAX_PIPELINED or len(self.cycle.body) > PIECE_BYTES):
                    self.wait(data[at:])
                    return
                end = at + max(_CUT_BYTES, self.body_left())
                self.data_received(data[at:end], cut=True)
                at = end

        def body_left(self) -> int:
            if self.cycle is None or self.cycle.scope is not self.scope:
                return 0
            declared = next((value for name, value in self.scope["headers"] if name == b"content-length"), b"0")
            return int(declared) - self.body_bytes

        def wait(self, data: bytes) -> None:
            """Parses the data when a request that waits has begun."""
            assert self.address is not None, "the connection is open"
            if not unparsed.take(self.address, len(data)):
                self.refuse(_TOO_MANY_CONNECTIONS)
                return
            self.waiting = data
            self.flow.pause_reading()

        def take_waiting(self) -> bytes:
            data, self.waiting = self.waiting, b""
            if data and self.address is not None:
                unparsed.give_back(self.address, len(data))
            return data

        def parse_waiting(self) -> None:
            if self.transport.is_closing() or self.lingers:
                return
            self.parse_cuts(self.take_waiting())
            if not self.waiting and not self.pipeline:
                self.flow.resume_reading()

        def check_piece(self, beside: int, in_head: bool) -> None:
            """Counts and times an incomplete request. A request in one piece, as nearly all are, is not checked."""
            if self.message is not self.scope:
                # The first piece may begin with the end of another request.
                self.message, self.beside_bytes = self.scope, 0
            else:
                self.beside_bytes += max(0, beside)
            if self.beside_bytes > limits.header_bytes:
                self.refuse(_HEAD_TOO_LARGE if in_head else _TOO_LARGE)
            elif self.dropped_bytes > _MAX_DROPPED_BYTES:
                self.transport.abort()
            elif self.timer is None or self.timed_head != in_head:
                self.clear_timer()
                self.set_timer(in_head)

        def on_header(self, name: bytes, value: bytes) -> None:
            # As uvicorn has it; a call of its method for each header would take 2 µs a request.
            name = name.lower()
            if name == b"expect" and value.lower() == b"100-continue":
                self.expect_100_continue = True
            self.headers.append((name, value))

        def on_headers_complete(self) -> None:
            # One small piece cannot contain a header section above the limit.
            if self.large_piece or self.message is self.scope:
                size = sum(len(name) + len(value) for name, value in self.headers)
                if size > limits.header_bytes:
                    self.refuse(_HEAD_TOO_LARGE)
                    return
                self.beside_bytes = 0
            if len(self.pipeline) >= _MAX_TINY_PIPELINED:
                raise ValueError("too many pipelined requests")  # which ends the parser's loop
            self.body_bytes = self.trailers.count = 0
            super().on_headers_complete()
            self.headers = self.trailers  # type: ignore[assignment]
            cycle = self.cycle
            if self.is_ending:
                cycle.keep_alive = False
            self.scope[WHOLE_BODY] = self.take_body  # type: ignore[literal-required]
            self.scope[WHOLE_RESPONSE] = self.send_whole  # type: ignore[literal-required]
            if not self.pipeline:
                self.running = cycle
            if not cycle.keep_alive:
                cycle.transport = _LastResponse(self.transport, self.close_after_response)  # type: ignore[assignment]

        def on_body(self, body: bytes) -> None:
            cycle = self.cycle
            self.body_bytes += len(body)
            if cycle is None or cycle.response_complete:
                self.dropped_bytes += len(body)
                return
            cycle.body += body
            if len(cycle.body) > HIGH_WATER_LIMIT:
                self.flow.pause_reading()
            cycle.message_event.set()

        def take_body(self, max_bytes: int) -> bytes | None:
            """Does what the cycle's `receive` does, for a body that need not be awaited."""
            cycle = self.running
            assert cycle is not None, "the application reads a request"
            if cycle.more_body or cycle.disconnected or len(cycle.body) > max_bytes:
                return None
            cycle.message_event.clear()
            body, cycle.body = bytes(cycle.body), bytearray()
            return body

        def set_timer(self, in_head: bool) -> None:
            seconds = limits.header_seconds if in_head else limits.body_seconds + _BODY_GRACE_SECONDS
            self.timed_head = in_head
            self.timer = self.loop.call_later(seconds, self.refuse, _TOO_SLOW)

        def clear_timer(self) -> None:
            if self.timer is not None:
                self.timer.cancel()
                self.timer = None

        # What the client reads

        def send_whole(self, status: int, body: bytes, headers: HeaderList) -> Awaitable[None] | None:
            """Sends a JSON response in one write; returns what to await if the client has yet to read of it.

            It does what the cycle's `send` does in two calls and two writes, and saves 10 µs a request.
            """
            cycle = self.running
            assert cycle is not None, "the application answers a request"
            if cycle.disconnected:
                return None
            if cycle.flow.write_paused:
                return self.send_when_drained(status, body, headers)
            cycle.response_started = True
            head = [STATUS_LINE[status]]
            for name, value in cycle.default_headers:
                head += (name, b": ", value, b"\r\n")
            for name, value in headers:
                head += (name, b": ", value, b"\r\n")
            head.append(b"content-type: application/json\r\ncontent-length: %d\r\n" % len(body))
            head.append(b"\r\n" if cycle.keep_alive else b"connection: close\r\n\r\n")
            if len(body) > _MAX_COPIED_BODY:
                cycle.transport.writelines((b"".join(head), body))
            else:
                head.append(body)
                cycle.transport.write(b"".join(head))
            if len(body) > PIECE_BYTES and cycle.flow.write_paused:
                return self.complete_when_drained(cycle)
            self.complete(cycle)
            return None

        async def send_when_drained(self, status: int, body: bytes, headers: HeaderList) -> None:
            await self.flow.drain()
            sending = self.send_whole(status, body, headers)
            if sending is not None:
                await sending

        async def complete_when_drained(self, cycle: RequestResponseCycle) -> None:
            await self.flow.drain()
            if not cycle.disconnected:
                self.complete(cycle)

        def complete(self, cycle: RequestResponseCycle) -> None:
            cycle.response_complete = True
            cycle.message_event.set()
            if not cycle.keep_alive:
                cycle.transport.close()
            cycle.on_response()

        def pause_writing(self) -> None:
            super().pause_writing()
            if self.send_timer is None:
                self.await_reader(self.transport.get_write_buffer_size())

        def await_reader(self, unread: int) -> None:
            self.send_timer = self.loop.call_later(limits.send_seconds, self.check_reader, unread)

        def check_reader(self, before: int) -> None:
            """Ends the connection of a client that has read less than a piece in the time for it."""
            unread = self.transport.get_write_buffer_size()
            if before - unread < PIECE_BYTES:
                self.transport.abort()
            else:
                self.await_reader(unread)

        def resume_writing(self) -> None:
            self.clear_send_timer()
            super().resume_writing()

        def clear_send_timer(self) -> None:
            if self.send_timer is not None:
                self.send_timer.cancel()
                self.send_timer = None

        def on_response_complete(self) -> None:
            self.server_state.total_requests += 1
            if self.transport.is_closing():
                return
            if not self.pipeline and not self.waiting:
                self.flow.resume_reading()
                self.idle_since = self.loop.time()
                if self.timeout_keep_alive_task is None:
                    self.await_request(self.timeout_keep_alive)
                return
            self.flow.pause_reading()  # however many requests wait
            if self.pipeline:
                self.running, app = self.pipeline.pop()
                self._start_asgi_task(self.running, app)
            if self.waiting:
                self.loop.call_soon(self.parse_waiting)

        # Between two requests. uvicorn sets and cancels a timer for each, which takes 2 µs; this one goes on.

        def await_request(self, seconds: float) -> None:
            self.timeout_keep_alive_task = self.loop.call_later(seconds, self.timeout_keep_alive_handler)

        def timeout_keep_alive_handler(self) -> None:
            """Closes a connection that has been idle for its time; waits on where it was used."""
            is_idle = self.cycle is not None and self.cycle.response_complete and self.cycle.scope is self.scope
            assert self.idle_since is not None, "a response was complete"
            left = self.timeout_keep_alive + (self.idle_since - self.loop.time() if is_idle else 0)
            if left > 0:
                self.await_request(left)
            elif not self.transport.is_closing():
                self.transport.close()

        # The end

        def shutdown(self) -> None:
            """Ends the connection after the request in progress, or when it is idle.

            A client that used it a moment ago may have sent its next request, which the server would lose.
            """
            self.is_ending = True
            now = self.loop.time()
            seconds = (now if self.idle_since is None else self.idle_since) + _NEXT_REQUEST_SECONDS - now
            if seconds > 0 and (self.cycle is None or self.cycle.response_complete):
                self.loop.call_later(seconds, super().shutdown)
            else:
                super().shutdown()

        def refuse(self, answer: bytes) -> None:
            if self.transport.is_closing() or self.lingers:
                return
            cycle = self.cycle
            if (
                cycle is None
                or not cycle.response_started
                or (cycle.response_complete and cycle.scope is not self.scope)
            ):
                self.transport.write(answer)
            self.linger(_SLOW_LINGER_SECONDS if answer is _TOO_SLOW else limits.body_seconds)

        def close_after_response(self) -> None:
            if self.cycle.more_body:
                self.linger(limits.body_seconds)
            else:
                self.transport.close()

        def linger(self, seconds: float) -> None:
            """Lets the client read its last response, then ends the connection."""
            self.clear_timer()
            self.take_waiting()
            self.lingers = True
            self.disconnect()
            LingeringConnection(self, seconds)

        def disconnect(self) -> None:
            """Tells the application that the client has left; requests that wait are not begun.

            uvicorn tells the last request only, which is not the one that runs if several were sent at once.
            """
            self.pipeline.clear()
            for cycle in (self.running, self.cycle):
                if cycle is not None and not cycle.response_complete:
                    cycle.disconnected = True
                    cycle.waiting_for_100_continue = False
                    cycle.message_event.set()

    return Bounded
