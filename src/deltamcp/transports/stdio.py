"""stdio: one message a line, requests served concurrently, nothing else ever on stdout."""

import asyncio
import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator

from deltamcp.calls.engine import Engine
from deltamcp.errors import Fault
from deltamcp.limits import Limits
from deltamcp.transports.duplex import Duplex
from deltamcp.values import Malformed
from deltamcp.wire import jsonrpc

_CHUNK = 64 * 1024
"""Read at a time; asyncio's own pipe transport asks for 256 kB, which costs a memory mapping each time."""


async def serve(engine: Engine) -> None:
    """Serves one client on this process's standard streams until it closes them, or SIGTERM."""
    with _private_streams() as (into, out):
        async with engine.life.running():
            await _Pipes(engine, into, out).run()


@contextlib.contextmanager
def _private_streams() -> Iterator[tuple[int, int]]:
    """The real stdin and stdout for us alone.

    What a tool or its child prints goes to stderr instead of into the protocol, and what it reads is empty
    instead of the client's next request.
    """
    sys.stdout.flush()
    into, out = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    try:
        yield into, out
    finally:
        for private, public in ((into, 0), (out, 1)):
            os.dup2(private, public)
            os.close(private)


class Lines:
    """Bytes to lines, none longer than the limit. Pure."""

    def __init__(self, limits: Limits) -> None:
        self._limit = limits.message_bytes
        self._parts: list[bytes] = []
        self._size = 0
        self._skipping = False

    def feed(self, data: bytes) -> Iterator[bytes | Malformed]:
        """Whole lines as they complete; a line too long is told once and skipped to its end."""
        *complete, rest = data.split(b"\n")
        for line in complete:
            if self._skipping:
                self._skipping = False
                continue
            if self._parts:
                line = b"".join([*self._parts, line])
                self._parts.clear()
                self._size = 0
            if len(line) > self._limit:
                yield self._too_long()
            elif line.strip():
                yield line
        if self._skipping or not rest:
            return
        self._parts.append(rest)
        self._size += len(rest)
        if self._size > self._limit:
            self._parts.clear()
            self._size = 0
            self._skipping = True
            yield self._too_long()

    def _too_long(self) -> Malformed:
        return Malformed(Fault.TOO_LARGE, f"A message may have at most {self._limit} bytes.")


_LAST_WORDS_SECONDS = 0.1
"""For what is nearly done when input ends: people try a server by `printf ... | server`. Longer calls are cancelled."""


class _Pipes:
    """Two file descriptors driven by the event loop.

    Backpressure both ways: while answers wait for a client that does not read, or too many requests
    are in flight, nothing more is read.
    """

    def __init__(self, engine: Engine, read_fd: int, write_fd: int) -> None:
        self._limits = engine.limits
        self._lines = Lines(engine.limits)
        self._duplex = Duplex(engine, self)
        self._read_fd = read_fd
        self._loop = asyncio.get_running_loop()
        self._output = _Output(write_fd, engine.limits.unsent_bytes, self._update, self._hang_up)
        self._over = asyncio.Event()
        self._terminated = False
        self._may_read = asyncio.Event()
        self._may_read.set()
        self._polled = False

    async def run(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            with contextlib.suppress(NotImplementedError):  # Windows has no signal handlers on loops
                self._loop.add_signal_handler(number, self._terminate)
        await self._output.open()
        self._open_input()
        try:
            await self._over.wait()
            await self._duplex.drain(self._limits.drain_seconds if self._terminated else _LAST_WORDS_SECONDS)
        finally:
            await self._duplex.close()
            await self._output.close()
            if self._polled:
                self._loop.remove_reader(self._read_fd)

    def _open_input(self) -> None:
        try:
            os.set_blocking(self._read_fd, False)
            self._loop.add_reader(self._read_fd, self._readable)
            self._polled = True
        except (OSError, NotImplementedError):
            # A file, or Windows: a thread reads instead.
            os.set_blocking(self._read_fd, True)
            threading.Thread(target=self._read_in_thread, name="deltamcp-stdin", daemon=True).start()

    def _readable(self) -> None:
        try:
            data = os.read(self._read_fd, _CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data:
            self.take(data)
        else:
            self._loop.remove_reader(self._read_fd)
            self._hang_up()

    def _read_in_thread(self) -> None:
        while data := os.read(self._read_fd, _CHUNK):
            asyncio.run_coroutine_threadsafe(self._take_in_turn(data), self._loop).result()
        self._loop.call_soon_threadsafe(self._end_of_file)

    async def _take_in_turn(self, data: bytes) -> None:
        self.take(data)
        await self._may_read.wait()

    def _end_of_file(self) -> None:
        # A file of requests, unlike a client that hangs up, wants its answers.
        self._terminate()

    def take(self, data: bytes) -> None:
        for line in self._lines.feed(data):
            if isinstance(line, Malformed):
                self._duplex.put(jsonrpc.malformed(line))
            else:
                self._duplex.receive(line)
        self._update()

    def _update(self) -> None:
        """Reads on, or stops reading, by how much is waiting."""
        may_read = self._output.room.is_set() and self._duplex.in_flight <= self._limits.in_flight
        if may_read == self._may_read.is_set():
            return
        if may_read:
            self._may_read.set()
            if self._polled:
                self._loop.add_reader(self._read_fd, self._readable)
        else:
            self._may_read.clear()
            if self._polled:
                self._loop.remove_reader(self._read_fd)

    def _terminate(self) -> None:
        self._terminated = True
        self._over.set()

    def _hang_up(self) -> None:
        self._over.set()

    def write(self, message: bytes) -> None:
        self._output.write(message + b"\n")

    async def room(self) -> None:
        await self._output.room.wait()

    def freed(self) -> None:
        self._update()


class _Output(asyncio.Protocol):
    """Lines to a descriptor. There is `room` while no more waits than a slow reader may leave waiting."""

    def __init__(self, fd: int, most: int, changed: Callable[[], None], gone: Callable[[], None]) -> None:
        self._fd = fd
        self._most = most
        self._changed = changed
        self._gone = gone
        self._transport: asyncio.WriteTransport | None = None
        self._lost = asyncio.Event()
        self.room = asyncio.Event()
        self.room.set()

    async def open(self) -> None:
        stream = os.fdopen(self._fd, "wb", 0, closefd=False)
        try:
            self._transport, _ = await asyncio.get_running_loop().connect_write_pipe(lambda: self, stream)
        except (ValueError, OSError, NotImplementedError):
            return  # a file, or Windows: written directly
        self._transport.set_write_buffer_limits(high=self._most)

    def write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)
            return
        view = memoryview(data)
        while view:
            view = view[os.write(self._fd, view) :]

    async def close(self) -> None:
        """Sends what still waits, as long as somebody reads it."""
        if self._transport is None:
            return
        self._transport.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(1.0):
                await self._lost.wait()

    def pause_writing(self) -> None:
        self.room.clear()
        self._changed()

    def resume_writing(self) -> None:
        self.room.set()
        self._changed()

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost.set()
        self.room.set()
        self._gone()
