"""In process: a client and a server in one program, the same messages without a wire."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

from deltamcp.engine import Engine
from deltamcp.transports.duplex import Duplex


class Link:
    """The client's end."""

    def __init__(self, duplex: Duplex, inbox: "asyncio.Queue[bytes]") -> None:
        self._duplex = duplex
        self._inbox = inbox

    def send(self, message: bytes) -> None:
        """One whole JSON-RPC message to the server."""
        self._duplex.receive(message)

    async def receive(self) -> bytes:
        """The next message from the server."""
        return await self._inbox.get()


@contextlib.asynccontextmanager
async def connect(engine: Engine) -> AsyncIterator[Link]:
    """A connection of its own; the server is started where it is not running yet."""
    async with engine.life.running():
        inbox: asyncio.Queue[bytes] = asyncio.Queue()
        duplex = Duplex(engine, inbox.put_nowait, lambda: None)
        try:
            yield Link(duplex, inbox)
        finally:
            await duplex.close()
