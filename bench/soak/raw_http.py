"""HTTP as the peers of the soak speak it: on connections of their own, which they may leave at any point."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import NamedTuple

REPLY_SECONDS = 20.0


class HttpReply(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes


class RawConnection:
    """A connection to a server under load."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, port: int) -> None:
        self.reader = reader
        self.writer = writer
        self._port = port

    async def send(self, verb: str, headers: dict[str, str], body: bytes = b"", length: int | None = None) -> None:
        """Sends a request; `length` is the length that it states, if that is not the body's."""
        sent = {"Host": f"127.0.0.1:{self._port}", "Content-Length": str(len(body) if length is None else length)}
        lines = [f"{verb} /mcp HTTP/1.1", *(f"{name}: {text}" for name, text in (sent | headers).items()), "", ""]
        self.writer.write("\r\n".join(lines).encode() + body)
        await self.writer.drain()

    async def head(self) -> tuple[int, dict[str, str]]:
        async with asyncio.timeout(REPLY_SECONDS):
            status, *lines = (await self.reader.readuntil(b"\r\n\r\n")).decode().strip().split("\r\n")
        headers = {name.lower(): text.strip() for name, _, text in (line.partition(":") for line in lines)}
        return int(status.split()[1]), headers

    async def reply(self) -> HttpReply:
        status, headers = await self.head()
        async with asyncio.timeout(REPLY_SECONDS):
            if headers.get("transfer-encoding") == "chunked":
                body = b"".join([chunk async for chunk in self.chunks()])
            else:
                body = await self.reader.readexactly(int(headers.get("content-length", 0)))
        return HttpReply(status, headers, body)

    async def chunks(self) -> AsyncIterator[bytes]:
        while (size := int(await self.reader.readline(), 16)) > 0:
            yield await self.reader.readexactly(size)
            await self.reader.readexactly(2)
        await self.reader.readexactly(2)


@contextlib.asynccontextmanager
async def connection(port: int, limit: int = 1 << 20) -> AsyncIterator[RawConnection]:
    """A connection that is reset at the end, whatever is still under way."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=limit)
    try:
        yield RawConnection(reader, writer, port)
    finally:
        writer.transport.abort()
