"""A forward proxy on bare sockets: opens tunnels for CONNECT, and forwards requests that name an absolute URL.

Like tinyproxy it closes the connection after each response that it forwards, without announcing it.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from urllib.parse import urlsplit


class ProxyRequest:
    """The first line and the headers of a request to the proxy."""

    def __init__(self, head: bytes) -> None:
        first, *lines = head.decode("latin-1").rstrip("\r\n").split("\r\n")
        self.method, self.target, _ = first.split(" ")
        self.headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}


class FakeProxy:
    """A proxy that maps host names to ports of this machine."""

    def __init__(self, ports: Mapping[str, int], authorization: str | None = None) -> None:
        self._ports, self._authorization = ports, authorization
        self.asked: list[ProxyRequest] = []
        self.hang_ups = 0
        """How many of the next requests the proxy closes without an answer."""
        self.url = ""
        self._tasks: set[asyncio.Task[None]] = set()

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._serve(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # clients may close connections at any time
        finally:
            self._tasks.discard(task)
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        asked = ProxyRequest(head)
        self.asked.append(asked)
        if self.hang_ups:
            self.hang_ups -= 1
            return
        if self._authorization is not None and asked.headers.get("proxy-authorization") != self._authorization:
            writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\ncontent-length: 2\r\n\r\nno")
            await writer.drain()
            return
        name = asked.target if asked.method == "CONNECT" else urlsplit(asked.target).netloc
        there, back = await asyncio.open_connection("127.0.0.1", self._ports[name])
        try:
            if asked.method == "CONNECT":
                writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
                await _tunnel((reader, back), (there, writer))
            else:
                back.write(head + await reader.readexactly(int(asked.headers.get("content-length", 0))))
                writer.write(await _answer(there))
                await writer.drain()
        finally:
            back.close()
            with contextlib.suppress(ConnectionError):
                await back.wait_closed()

    async def close(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


async def _tunnel(*ways: tuple[asyncio.StreamReader, asyncio.StreamWriter]) -> None:
    """Copies bytes both ways until either side closes."""
    tasks = [asyncio.create_task(_pass_on(*way)) for way in ways]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()


async def _answer(reader: asyncio.StreamReader) -> bytes:
    """Writes a response with a content length."""
    head = await reader.readuntil(b"\r\n\r\n")
    headers = dict(line.split(": ", 1) for line in head.decode("latin-1").lower().splitlines()[1:] if line)
    return head + await reader.readexactly(int(headers["content-length"]))


@contextlib.asynccontextmanager
async def serve_proxy(proxy: FakeProxy) -> AsyncIterator[FakeProxy]:
    server = await asyncio.start_server(proxy.connected, "127.0.0.1", 0)
    proxy.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield proxy
    finally:
        server.close()
        await proxy.close()
        await server.wait_closed()
