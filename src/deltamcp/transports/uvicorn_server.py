"""Runs the application under uvicorn, with limits that uvicorn lacks: on slow or large requests and endless streams."""

import asyncio
import contextlib
import errno
import functools
import signal
import socket
import sys
import threading
import weakref
from collections.abc import Iterator, Sequence
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from deltamcp.calls.engine import Engine
from deltamcp.errors import ConfigurationError
from deltamcp.limits import Limits
from deltamcp.transports.asgi_messages import WHOLE_RESPONSE
from deltamcp.transports.http_app import LOOPBACK, HttpApp

_HEAD_TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
_TOO_LARGE = b"HTTP/1.1 413 Content Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
_TOO_SLOW = b"HTTP/1.1 408 Request Timeout\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"

_MAX_CHUNK_OVERHEAD = 8
"""The bytes on the wire for one byte of body; a client that sends each byte as a chunk needs six."""

_MAX_COPIED_BODY = 4096
"""A body of up to so many bytes is copied behind its head; a longer one is passed to the socket uncopied."""


def _send_whole(cycle_ref: "weakref.ref[RequestResponseCycle]", status: int, body: bytes) -> bool:
    """Sends a JSON response in one write; returns False if the application must send it by ASGI.

    It does what `cycle.send` does in two calls and two writes, and saves 10 µs a request. The reference is weak because
    the cycle has the scope, which has this function: each request would leave 15 objects to the garbage collector.
    """
    cycle = cycle_ref()
    if cycle is None or cycle.response_started or cycle.disconnected or cycle.flow.write_paused:
        return False
    cycle.response_started = cycle.response_complete = True
    head = [STATUS_LINE[status]]
    for name, value in cycle.default_headers:
        head += (name, b": ", value, b"\r\n")
    head.append(b"content-type: application/json\r\ncontent-length: %d\r\n" % len(body))
    head.append(b"\r\n" if cycle.keep_alive else b"connection: close\r\n\r\n")
    if len(body) > _MAX_COPIED_BODY:
        cycle.transport.writelines((b"".join(head), body))
    else:
        head.append(body)
        cycle.transport.write(b"".join(head))
    cycle.message_event.set()
    if not cycle.keep_alive:
        cycle.transport.close()
    cycle.on_response()
    return True


def bounded_protocol(limits: Limits) -> type[HttpToolsProtocol]:
    """Returns uvicorn's HTTP protocol with limits on the time, bytes and pipelined requests of a client."""

    class Bounded(HttpToolsProtocol):
        message: object = None
        """The scope of the request that the last received piece ended in."""
        beside_bytes = 0
        """The bytes of that request, without its body, in pieces that did not complete it."""
        timer: asyncio.TimerHandle | None = None
        timed_head = False
        large_piece = False

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self.set_timer(in_head=True)

        def connection_lost(self, exc: Exception | None) -> None:
            self.clear_timer()
            super().connection_lost(exc)

        def data_received(self, data: bytes) -> None:
            cycle = self.cycle
            received = len(cycle.body) if cycle is not None else 0
            self.large_piece = len(data) > limits.header_bytes
            super().data_received(data)
            in_head = self.scope is not None and "method" not in self.scope  # uvicorn adds it at the head's end
            if in_head or (self.cycle is not None and self.cycle.more_body):
                body = len(self.cycle.body) - (received if self.cycle is cycle else 0) if self.cycle is not None else 0
                self.check_piece(len(data) - _MAX_CHUNK_OVERHEAD * body, in_head)
            elif self.timer is not None and self.scope is not None:
                self.clear_timer()
                self.message = None

        def check_piece(self, beside: int, in_head: bool) -> None:
            """Counts and times an incomplete request. A request in one piece, as nearly all are, is not checked."""
            if self.message is not self.scope:
                # The first piece may begin with the end of another request.
                self.message, self.beside_bytes = self.scope, 0
            else:
                self.beside_bytes += max(0, beside)
            if self.beside_bytes > limits.header_bytes:
                self.refuse(_HEAD_TOO_LARGE if in_head else _TOO_LARGE)
            elif self.timer is None or self.timed_head != in_head:
                self.clear_timer()
                self.set_timer(in_head)

        def on_headers_complete(self) -> None:
            # One small piece cannot contain a header section above the limit.
            if self.large_piece or self.message is self.scope:
                size = sum(len(name) + len(value) for name, value in self.headers)
                if size > limits.header_bytes:
                    self.refuse(_HEAD_TOO_LARGE)
                    return
                self.beside_bytes = 0
            super().on_headers_complete()
            self.scope[WHOLE_RESPONSE] = functools.partial(_send_whole, weakref.ref(self.cycle))  # type: ignore[literal-required]

        def on_response_complete(self) -> None:
            super().on_response_complete()
            if self.pipeline:  # uvicorn would read on, however many requests wait
                self.flow.pause_reading()

        def set_timer(self, in_head: bool) -> None:
            # The application times bodies too and sends a better response, so its time ends first.
            seconds = limits.header_seconds if in_head else limits.body_seconds + 0.5
            self.timed_head = in_head
            self.timer = self.loop.call_later(seconds, self.refuse, _TOO_SLOW)

        def clear_timer(self) -> None:
            if self.timer is not None:
                self.timer.cancel()
                self.timer = None

        def refuse(self, answer: bytes) -> None:
            self.clear_timer()
            if self.transport.is_closing():
                return
            if self.cycle is None or not self.cycle.response_started:
                self.transport.write(answer)
            self.transport.close()

    return Bounded


def bind_sockets(host: str, port: int) -> list[socket.socket]:
    """Binds a socket to each address of a host; port 0 is a free port, the same for all of them.

    Raises:
        ConfigurationError: the server cannot listen at this address.
    """
    sockets: list[socket.socket] = []
    refusal = OSError(errno.EADDRNOTAVAIL, "it has no address")
    try:
        for family, kind, protocol, _, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
            try:
                sockets.append(_bind_socket(family, kind, protocol, (address[0], port, *address[2:])))
            except OSError as error:
                if error.errno not in (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL):
                    raise
                refusal = error  # a machine without IPv6 may still call ::1 localhost
            else:
                port = sockets[0].getsockname()[1]
        if not sockets:
            raise refusal
    except OSError as error:
        for bound in sockets:
            bound.close()
        raise _listen_error(host, port, error) from None
    return sockets


def _bind_socket(family: int, kind: int, protocol: int, address: Any) -> socket.socket:
    bound = socket.socket(family, kind, protocol)
    try:
        if sys.platform != "win32":  # where it would let two servers share the port
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        bound.bind(address)
    except OSError:
        bound.close()
        raise
    return bound


def _listen_error(host: str, port: int, error: OSError) -> ConfigurationError:
    return ConfigurationError(f"Cannot listen at {host}:{port}: {error.strerror}; name another.")


class HttpServer(uvicorn.Server):
    """uvicorn's server, which listens once the lifespan has started, and then prints its address to stderr.

    At shutdown it first ends the streams that would keep it from exiting.
    """

    def __init__(self, config: uvicorn.Config, app: HttpApp, engine: Engine, path: str) -> None:
        super().__init__(config)
        self._app = app
        self._engine = engine
        self._path = path
        self._running = contextlib.AsyncExitStack()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Makes SIGTERM and SIGINT stop the server; uvicorn itself would raise them again afterwards."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self.handle_exit) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        """Serves until a signal, at `sockets` or at the host and port of the configuration.

        Raises:
            ConfigurationError: the server cannot listen at this address.
            Exception: the author's lifespan raised it.
        """
        async with self._running:
            if sockets is None:
                sockets = bind_sockets(self.config.host, self.config.port)
            for bound in sockets:
                self._running.callback(bound.close)
            await super().serve(sockets)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        assert sockets, "`serve` has bound them"
        port = sockets[0].getsockname()[1]
        await self._running.enter_async_context(self._engine.lifespan.running())
        try:
            await super().startup(sockets)
        except OSError as error:  # another process began to listen after both had bound the port
            raise _listen_error(self.config.host, port, error) from None
        if not self.should_exit:
            name, host = self._engine.info["name"], self.config.host
            url = f"http://{f'[{host}]' if ':' in host else host}:{port}{self._path}"
            sys.stderr.write(f"Serving {name} at {url} (Ctrl-C stops)\n")
            sys.stderr.flush()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._app.drain()
        await super().shutdown(sockets)
        if not self.force_exit:
            await self._running.aclose()


def make_server(
    engine: Engine,
    host: str = "127.0.0.1",
    port: int = 8000,
    path: str = "/mcp",
    *,
    allowed_hosts: Sequence[str] | None = None,
    allowed_origins: Sequence[str] | None = None,
) -> HttpServer:
    """Returns a server that is not started yet. By default it accepts loopback names and the host it listens at."""
    if allowed_hosts is None and host not in ("0.0.0.0", "::", *LOOPBACK):  # noqa: S104
        allowed_hosts = [host, *LOOPBACK]
    app = HttpApp(engine, path, allowed_hosts=allowed_hosts, allowed_origins=allowed_origins)
    config = uvicorn.Config(
        app,
        host,
        port,
        http=bounded_protocol(engine.limits),
        ws="none",
        lifespan="off",  # the server enters the engine's lifespan itself, whose errors uvicorn would hide
        access_log=False,
        proxy_headers=False,  # nothing here trusts the client's address or scheme
        log_config=None,
        log_level="warning",
        server_header=False,
        timeout_keep_alive=60,
        timeout_graceful_shutdown=max(1, int(engine.limits.drain_seconds)),
    )
    return HttpServer(config, app, engine, path)
