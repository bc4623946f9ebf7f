"""A link to a server in this process that carries whole messages as bytes and reads nothing into them."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

from deltamcp.calls.engine import Engine
from deltamcp.transports.stdio.duplex import Duplex


class RawLink:
    """The client's end, and what the server's end writes to."""

    def __init__(self, engine: Engine, duplex: type[Duplex] = Duplex) -> None:
        self._inbox: asyncio.Queue[bytes] = asyncio.Queue()
        self.writable = asyncio.Event()
        self.writable.set()  # the queue takes any number of messages
        self._duplex = duplex(engine, self)

    def send(self, message: bytes) -> None:
        """Sends one whole message to the server."""
        self._duplex.receive(message)

    async def receive(self) -> bytes:
        """The next message from the server."""
        return await self._inbox.get()

    async def close(self) -> None:
        await self._duplex.close()

    def write(self, message: bytes) -> None:
        self._inbox.put_nowait(message)

    async def wait_writable(self) -> None: ...

    def request_finished(self) -> None: ...


@contextlib.asynccontextmanager
async def raw_link(engine: Engine, duplex: type[Duplex] = Duplex) -> AsyncIterator[RawLink]:
    """Connects to a server, and starts it where it is not running yet."""
    async with engine.lifespan.running():
        link = RawLink(engine, duplex)
        try:
            yield link
        finally:
            await link.close()
