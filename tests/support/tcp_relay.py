"""Passes bytes on to a port of this machine, over connections that a test can break."""

import asyncio
import contextlib
from collections.abc import AsyncIterator


class TcpRelay:
    """Listens on `port`; `cut` breaks every connection that is open."""

    def __init__(self, target_port: int) -> None:
        self.port = 0
        self._target_port = target_port
        self.received = bytearray()
        """All that clients have sent."""
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    def cut(self) -> None:
        for writer in self._writers:
            writer.transport.abort()

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", self._target_port)
        self._writers |= {writer, back}
        ways = [
            asyncio.create_task(_pass_on(reader, back, self.received)),
            asyncio.create_task(_pass_on(there, writer)),
        ]
        self._tasks.update(ways)
        try:
            await asyncio.wait(ways)
        finally:
            self._tasks.difference_update(ways)
            self._writers -= {writer, back}

    async def close(self) -> None:
        self.cut()
        if self._tasks:
            await asyncio.wait(self._tasks)


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, record: bytearray | None = None) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(65536):
            if record is not None:
                record += data
            writer.write(data)
            await writer.drain()
    writer.close()


@contextlib.asynccontextmanager
async def serve_relay(target_port: int) -> AsyncIterator[TcpRelay]:
    relay = TcpRelay(target_port)
    server = await asyncio.start_server(relay.connected, "127.0.0.1", 0)
    relay.port = server.sockets[0].getsockname()[1]
    try:
        yield relay
    finally:
        server.close()
        await relay.close()
        await server.wait_closed()
