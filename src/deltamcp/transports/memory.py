"""In process: a client and a server in one program, the same messages without a wire."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

from deltamcp.calls.engine import Engine
from deltamcp.transports.duplex import Duplex


class Link:
    """The client's end, and what the server's end writes to."""

    def __init__(self, engine: Engine) -> None:
        self._inbox: asyncio.Queue[bytes] = asyncio.Queue()
        self._duplex = Duplex(engine, self)

    def send(self, message: bytes) -> None:
        """One whole JSON-RPC message to the server."""
        self._duplex.receive(message)

    async def receive(self) -> bytes:
        """The next message from the server."""
        return await self._inbox.get()

    async def close(self) -> None:
        await self._duplex.close()

    def write(self, message: bytes) -> None:
        self._inbox.put_nowait(message)

    async def wait_writable(self) -> None:
        """Memory has room."""

    def request_finished(self) -> None: ...


@contextlib.asynccontextmanager
async def connect(engine: Engine) -> AsyncIterator[Link]:
    """A connection of its own; the server is started where it is not running yet."""
    async with engine.lifespan.running():
        link = Link(engine)
        try:
            yield link
        finally:
            await link.close()
