"""The application under uvicorn, with what uvicorn leaves open: slow and oversized headers, endless streams."""

import asyncio
import contextlib
import logging
import signal
import socket
import threading
from collections.abc import Iterator
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from deltamcp.engine import Engine
from deltamcp.limits import Limits
from deltamcp.transports.http import LOOPBACK, HttpApp

logger = logging.getLogger("deltamcp")

_TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
_TOO_SLOW = b"HTTP/1.1 408 Request Timeout\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


class _Joined:
    """A transport that sends the head of a response together with its body.

    uvicorn writes them one after the other, and uvloop makes a system call of each write. Where the head
    promises a body it waits for it; the head of an event stream promises no length and goes at once.
    """

    __slots__ = ("_head", "_transport")

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._head = b""

    def write(self, data: bytes) -> None:
        if self._head:
            data = self._head + data
            self._head = b""
        elif b"\r\ncontent-length: " in data and data.startswith(b"HTTP/1.1 ") and data.endswith(b"\r\n\r\n"):
            self._head = data
            return
        self._transport.write(data)

    def close(self) -> None:
        if self._head:
            self.write(b"")
        self._transport.close()

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


def protocol_for(limits: Limits) -> type[HttpToolsProtocol]:
    """uvicorn's HTTP protocol, with a bound on the header section in bytes and in time."""

    class Bounded(HttpToolsProtocol):
        head_bytes = 0
        head_timer: asyncio.TimerHandle | None = None
        large_piece = False

        def connection_made(self, transport: Any) -> None:
            super().connection_made(_Joined(transport))  # type: ignore[arg-type]
            self.head_timer = self.loop.call_later(limits.header_seconds, self.turn_away, _TOO_SLOW)

        def in_head(self) -> bool:
            """Whether a header section has begun and not ended: uvicorn fills in the method at its end."""
            return self.scope is not None and "method" not in self.scope

        def data_received(self, data: bytes) -> None:
            began_in_head = self.head_bytes > 0
            self.large_piece = len(data) > limits.header_bytes
            super().data_received(data)
            # A header section that came in one piece, as nearly all do, is never timed or counted; what
            # stood before it in its first piece is not its own.
            if self.in_head():
                self.head_bytes += len(data) if began_in_head else 1
                if self.head_bytes > limits.header_bytes:
                    self.turn_away(_TOO_LARGE)
                elif self.head_timer is None:
                    self.head_timer = self.loop.call_later(limits.header_seconds, self.turn_away, _TOO_SLOW)
            elif self.cycle is not None and self.cycle.more_body and not self.cycle.body:
                # The application times a body from its first piece on; before that nobody would.
                if self.head_timer is None:
                    self.head_timer = self.loop.call_later(limits.body_seconds, self.turn_away, _TOO_SLOW)
            elif self.head_timer is not None and self.scope is not None:
                self.settle()

        def on_headers_complete(self) -> None:
            # Only a piece larger than the limit can hold a header section larger than the limit.
            if self.large_piece and sum(len(name) + len(value) for name, value in self.headers) > limits.header_bytes:
                self.turn_away(_TOO_LARGE)
                return
            super().on_headers_complete()

        def connection_lost(self, exc: Exception | None) -> None:
            self.settle()
            super().connection_lost(exc)

        def settle(self) -> None:
            if self.head_timer is not None:
                self.head_timer.cancel()
                self.head_timer = None
            self.head_bytes = 0

        def turn_away(self, answer: bytes) -> None:
            self.settle()
            if not self.transport.is_closing():
                self.transport.write(answer)
                self.transport.close()

    return Bounded


class Door(uvicorn.Server):
    """uvicorn's server, which first ends the streams that would keep it from exiting."""

    def __init__(self, config: uvicorn.Config, app: HttpApp) -> None:
        super().__init__(config)
        self._app = app

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """SIGTERM and SIGINT end the server and nothing more; uvicorn would raise them again afterwards."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self.handle_exit) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._app.drain()
        await super().shutdown(sockets)


def door(engine: Engine, host: str = "127.0.0.1", port: int = 8000, path: str = "/mcp", **options: Any) -> Door:
    """A server not yet started. `options` are `HttpApp`'s; other than loopback, name the allowed hosts."""
    if options.get("allowed_hosts") is None and host not in ("0.0.0.0", "::", *LOOPBACK):  # noqa: S104
        options["allowed_hosts"] = [host, *LOOPBACK]
    app = HttpApp(engine, path, **options)
    config = uvicorn.Config(
        app,
        host,
        port,
        http=protocol_for(engine.limits),
        ws="none",
        lifespan="on",
        access_log=False,
        proxy_headers=False,  # nothing here trusts the client's address or scheme
        log_level="warning",
        server_header=False,
        timeout_keep_alive=60,
        timeout_graceful_shutdown=max(1, int(engine.limits.drain_seconds)),
    )
    return Door(config, app)


def run(engine: Engine, **options: Any) -> None:
    """Serves until SIGTERM or SIGINT."""
    door(engine, **options).run()
