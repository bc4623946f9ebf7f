"""The stdio transport: line framing, one message on each line; requests served concurrently; nothing else on stdout."""

import asyncio
import contextlib
import io
import os
import selectors
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Literal, NamedTuple

from deltamcp.calls.engine import Engine
from deltamcp.errors import Fault
from deltamcp.transports.http.mcp_lite import MAX_BATCH, why_refused, write_response
from deltamcp.transports.stdio.duplex import Connection, Duplex, Respond
from deltamcp.values import LOCAL, Failure, Malformed, Message, Outcome, Principal, Request, Response
from deltamcp.wire import jsonrpc
from deltamcp.wire.frames import LineReader


class LiteDuplex(Duplex):
    """Serves every request in the dialect MCP-lite; there is no handshake."""

    def __init__(self, engine: Engine, connection: Connection, principal: Principal = LOCAL) -> None:
        super().__init__(engine, connection, principal)
        self._lite = engine.dialects.mcp_lite()

    def _receive_one(self, message: Message, held: int, respond: Respond) -> None:
        super()._receive_one(_check(message), held, respond)

    @property
    def _takes_batches(self) -> bool:
        return True

    def _receive_batch(self, messages: list[Message], held: int) -> None:
        if len(messages) > MAX_BATCH:
            reason = f"A batch may have at most {MAX_BATCH} messages."
            self._write(self._refuse_message(Malformed(Fault.INVALID_REQUEST, reason)))
        else:
            super()._receive_batch([_check(message) for message in messages], held)

    def _refuse_message(self, message: Malformed) -> bytes:
        return self._lite.refuse(*why_refused(message))

    def _write_failure(self, request: Request, failure: Failure) -> bytes:
        return self._lite.refuse(failure, request.id)

    def _start(self, request: Request, held: int, respond: Respond) -> None:
        self._spawn(request, held, self._serve_lite(request, respond), respond)

    async def _serve_lite(self, request: Request, respond: Respond) -> None:
        started = time.monotonic()
        understood = self._lite.read(request, self.caller)
        outcome: Outcome | None
        if isinstance(understood, Failure):
            outcome = understood
        else:
            terms, ask = understood
            outcome = await self._perform(ask, terms, request.id)
        if outcome is not None:
            await self.wait_writable()
            self._finish(request, respond, write_response(self._lite, request, outcome, started)[0])


def _check(message: Message) -> Message:
    """Returns a message that MCP-lite does not have as one that is refused, any other as it is."""
    if isinstance(message, Response):
        failure, id_ = why_refused(message)
        return Malformed(failure.fault, failure.message, id_)
    return message


_CHUNK = 64 * 1024
"""The bytes of one read; asyncio's own pipe transport reads 256 kB, which costs a memory mapping each time."""


Protocol = Literal["mcp", "mcp-lite"]
DUPLEXES: Mapping[Protocol, type[Duplex]] = MappingProxyType({"mcp": Duplex, "mcp-lite": LiteDuplex})


class Streams(NamedTuple):
    """The file descriptors by which a client is served."""

    into: int
    out: int


async def serve(engine: Engine, streams: Streams, protocol: Protocol = "mcp") -> None:
    """Serves one client until it closes the streams, or until SIGTERM or SIGINT; closes the streams."""
    try:
        async with engine.lifespan.running():
            await _PipeConnection(engine, streams.into, streams.out, DUPLEXES[protocol]).run()
    finally:
        os.close(streams.into)
        os.close(streams.out)


def take_streams() -> Streams:
    """Returns copies of stdin and stdout for the protocol, and redirects the originals until the process ends.

    Output of the program, a tool or its child process goes to stderr instead of into the protocol; their input is empty
    instead of the client's next request. The originals do not come back, as a thread that outlives its call, or a
    buffer that is written at exit, would still reach the client.
    """
    streams = Streams(os.dup(0), os.dup(1))
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)  # also writes what the program printed before, now to stderr
    return streams


_END_OF_INPUT_SECONDS = 0.1
"""How long calls may go on after the input ends, as in `printf ... | server`; the server cancels longer ones."""


class _PipeConnection:
    """Reads from one file descriptor and writes to another, on the event loop.

    While the client does not read its responses, or too many requests are in flight, the connection reads nothing more.
    """

    def __init__(self, engine: Engine, read_fd: int, write_fd: int, duplex: type[Duplex]) -> None:
        self._limits = engine.limits
        self._lifespan = engine.lifespan
        self._lines = LineReader(engine.limits)
        self._duplex = duplex(engine, self)
        self._read_fd = read_fd
        self._loop = asyncio.get_running_loop()
        self._output = _Output(write_fd, engine.limits.unsent_bytes, self._update_reading, self._hang_up)
        self.writable = self._output.writable
        self._ended = asyncio.Event()
        self._terminated = False
        self._may_read = asyncio.Event()
        self._may_read.set()
        self._is_polled = False

    async def run(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            with contextlib.suppress(NotImplementedError):  # Windows has no signal handlers on loops
                self._loop.add_signal_handler(number, self._terminate)
        await self._output.open()
        self._open_input()
        try:
            await self._ended.wait()
            seconds = self._limits.drain_seconds if self._terminated else _END_OF_INPUT_SECONDS
            self._lifespan.drain(seconds)
            await self._duplex.drain(seconds)
        finally:
            await self._duplex.close()
            await self._output.close()
            if self._is_polled:
                self._loop.remove_reader(self._read_fd)

    def _open_input(self) -> None:
        try:
            _check_polled(self._read_fd)
            os.set_blocking(self._read_fd, False)
            self._loop.add_reader(self._read_fd, self._on_readable)
            self._is_polled = True
        except (OSError, NotImplementedError):
            # The loop cannot poll a file, nor a pipe on Windows.
            os.set_blocking(self._read_fd, True)
            threading.Thread(target=self._read_in_thread, name="deltamcp-stdin", daemon=True).start()

    def _on_readable(self) -> None:
        try:
            data = os.read(self._read_fd, _CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data:
            self._receive(data)
        else:
            self._loop.remove_reader(self._read_fd)
            self._hang_up()

    def _read_in_thread(self) -> None:
        while data := os.read(self._read_fd, _CHUNK):
            asyncio.run_coroutine_threadsafe(self._receive_in_turn(data), self._loop).result()
        self._loop.call_soon_threadsafe(self._end_of_file)

    async def _receive_in_turn(self, data: bytes) -> None:
        self._receive(data)
        await self._may_read.wait()

    def _end_of_file(self) -> None:
        # Input from a file gets all its responses, unlike a client that closes the connection.
        self._terminate()

    def _receive(self, data: bytes) -> None:
        for line in self._lines.feed(data):
            if isinstance(line, Malformed):
                self._duplex.put(jsonrpc.encode_malformed(line))
            else:
                self._duplex.receive(line)
        self._update_reading()

    def _update_reading(self) -> None:
        """Resumes or pauses reading, by the size of the output buffer and the number of requests in flight."""
        may_read = self.writable.is_set() and len(self._duplex.in_flight) <= self._limits.in_flight
        if may_read == self._may_read.is_set():
            return
        if may_read:
            self._may_read.set()
            if self._is_polled:
                self._loop.add_reader(self._read_fd, self._on_readable)
        else:
            self._may_read.clear()
            if self._is_polled:
                self._loop.remove_reader(self._read_fd)

    def _terminate(self) -> None:
        self._terminated = True
        self._ended.set()

    def _hang_up(self) -> None:
        self._ended.set()

    def write(self, message: bytes) -> None:
        if len(message) > _CHUNK:  # too large to copy
            self._output.write(message)
            message = b""
        self._output.write(message + b"\n")

    async def wait_writable(self) -> None:
        # All who wait wake at once, and the first of them may fill the buffer again.
        while not self.writable.is_set():
            await self.writable.wait()

    def request_finished(self) -> None:
        self._update_reading()


def _check_polled(fd: int) -> None:
    """
    Raises:
        OSError: the file descriptor is one of a file, with which uvloop would abort the process.
    """
    with selectors.DefaultSelector() as selector:
        selector.register(fd, selectors.EVENT_READ)


class _Output(asyncio.Protocol):
    """Writes lines to a file descriptor. `writable` is set while the buffer is below `max_bytes`."""

    def __init__(self, fd: int, max_bytes: int, on_change: Callable[[], None], on_close: Callable[[], None]) -> None:
        self._fd = fd
        self._max_bytes = max_bytes
        self._on_change = on_change
        self._on_close = on_close
        self._transport: asyncio.WriteTransport | None = None
        self._lost = asyncio.Event()
        self.writable = asyncio.Event()
        self.writable.set()

    async def open(self) -> None:
        stream = os.fdopen(os.dup(self._fd), "wb", 0)  # which the transport closes, in uvloop whoever opened it
        try:
            _check_polled(self._fd)
            self._transport, _ = await asyncio.get_running_loop().connect_write_pipe(lambda: self, stream)
        except (ValueError, OSError, NotImplementedError):
            stream.close()
            return  # the loop cannot poll a file, nor a pipe on Windows: `write` blocks
        self._transport.set_write_buffer_limits(high=self._max_bytes)

    def write(self, data: bytes) -> None:
        if self._transport is not None:
            if not self._transport.is_closing():  # uvloop raises where asyncio drops what nobody reads
                self._transport.write(data)
            return
        view = memoryview(data)
        while view:
            view = view[os.write(self._fd, view) :]

    async def close(self) -> None:
        """Sends the rest of the buffer, if the client reads it within a second."""
        if self._transport is None:
            return
        self._transport.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(1.0):
                await self._lost.wait()

    def pause_writing(self) -> None:
        self.writable.clear()
        self._on_change()

    def resume_writing(self) -> None:
        self.writable.set()
        self._on_change()

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost.set()
        self.writable.set()
        self._on_close()
