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

_HEAD_TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
_TOO_LARGE = b"HTTP/1.1 413 Content Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
_OVERHEAD = 8
"""Bytes on the wire for a byte of body: six, where a client sends each byte as a chunk of its own."""
_TOO_SLOW = b"HTTP/1.1 408 Request Timeout\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


_COPIED = 4096
"""A body up to so many bytes is copied behind its head; a longer one is handed over as it is."""


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
            if len(data) > _COPIED:
                self._transport.writelines((self._head, data))
                self._head = b""
                return
            data = self._head + data
            self._head = b""
        elif b"\r\ncontent-length: " in data and data.startswith(b"HTTP/1.1 ") and data.endswith(b"\r\n\r\n"):
            self._head = data
            return
        self._transport.write(data)

    def flush(self) -> None:
        """For a body that was promised and does not come, as in the answer to HEAD."""
        if self._head:
            self.write(b"")

    def close(self) -> None:
        self.flush()
        self._transport.close()

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


def protocol_for(limits: Limits) -> type[HttpToolsProtocol]:
    """uvicorn's HTTP protocol, with what it lets a client have without end bounded: time, bytes, requests ahead."""

    class Bounded(HttpToolsProtocol):
        partial = False
        """A message has begun and not ended."""
        pieces_bytes = 0
        """What came of it in the pieces that did not complete it, its body set aside."""
        timer: asyncio.TimerHandle | None = None
        timed_head = False
        large_piece = False
        body_in_piece = 0

        def connection_made(self, transport: Any) -> None:
            super().connection_made(_Joined(transport))  # type: ignore[arg-type]
            self.set_timer(in_head=True)

        def connection_lost(self, exc: Exception | None) -> None:
            self.clear_timer()
            super().connection_lost(exc)

        def data_received(self, data: bytes) -> None:
            was_partial = self.partial
            self.large_piece = len(data) > limits.header_bytes
            self.body_in_piece = 0
            super().data_received(data)
            # A message that came in one piece, as nearly all do, is neither timed nor counted; and what stood
            # before a message in its first piece is not its own.
            if self.partial:
                beside = max(0, len(data) - _OVERHEAD * self.body_in_piece)
                self.pieces_bytes += beside if was_partial else 1
                self.check_pieces()
            elif self.timer is not None:
                self.clear_timer()

        def check_pieces(self) -> None:
            in_head = "method" not in self.scope  # which uvicorn fills in when the header section has ended
            if self.pieces_bytes > limits.header_bytes:
                self.turn_away(_HEAD_TOO_LARGE if in_head else _TOO_LARGE)
            elif self.timer is None or self.timed_head != in_head:
                self.clear_timer()
                self.set_timer(in_head)

        def on_message_begin(self) -> None:
            self.partial = True
            self.pieces_bytes = 0
            super().on_message_begin()

        def on_headers_complete(self) -> None:
            # One small piece, as nearly always, cannot hold a header section larger than the limit.
            if self.large_piece or self.pieces_bytes:
                size = sum(len(name) + len(value) for name, value in self.headers)
                if size > limits.header_bytes:
                    self.turn_away(_HEAD_TOO_LARGE)
                    return
                self.pieces_bytes = 0
            super().on_headers_complete()

        def on_body(self, body: bytes) -> None:
            # The application bounds the body; what comes beside it, chunk by chunk, is bounded here.
            self.body_in_piece += len(body)
            super().on_body(body)

        def on_message_complete(self) -> None:
            self.partial = False
            super().on_message_complete()

        def on_response_complete(self) -> None:
            self.transport.flush()  # type: ignore[attr-defined]
            super().on_response_complete()
            if self.pipeline:  # uvicorn would read on, however many requests wait already
                self.flow.pause_reading()

        def set_timer(self, in_head: bool) -> None:
            # The application times bodies too, and its answer is the better one: let it be first.
            seconds = limits.header_seconds if in_head else limits.body_seconds + 0.5
            self.timed_head = in_head
            self.timer = self.loop.call_later(seconds, self.turn_away, _TOO_SLOW)

        def clear_timer(self) -> None:
            if self.timer is not None:
                self.timer.cancel()
                self.timer = None

        def turn_away(self, answer: bytes) -> None:
            self.clear_timer()
            if self.transport.is_closing():
                return
            if self.cycle is None or not self.cycle.response_started:
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
