"""Reads MCP-lite's event streams over real HTTP, and a proxy that closes connections on which nothing moves."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import httpx2

from tests.support.conditions import HANG_SECONDS
from tests.support.lite_client import PREFIX


class LiteEvent(NamedTuple):
    kind: str
    data: Any


class LiteEvents:
    """The response to one request, event by event."""

    def __init__(self, response: httpx2.Response) -> None:
        self.response = response
        self._lines = _lines(response)

    async def next(self) -> LiteEvent | None:
        """The next event; None at the end of the stream."""
        fields: dict[str, str] = {}
        async with asyncio.timeout(HANG_SECONDS):
            async for line in self._lines:
                if not line:
                    return LiteEvent(fields["event"], json.loads(fields["data"]))
                name, _, value = line.partition(": ")
                assert name not in fields, f"two lines {name!r} in one event"
                fields[name] = value
        assert not fields, "the stream ended inside an event"
        return None

    async def rest(self) -> list[LiteEvent]:
        """All events up to the end of the stream."""
        events = []
        while (event := await self.next()) is not None:
            events.append(event)
        return events

    async def last(self) -> LiteEvent:
        """The last event, of a stream that has exactly one that ends it."""
        events = await self.rest()
        assert [event.kind in ("done", "error") for event in events] == [False] * (len(events) - 1) + [True], events
        return events[-1]


async def _lines(response: httpx2.Response) -> AsyncIterator[str]:
    """The lines of a stream that ends them by LF; httpx2 itself would end lines at other characters too."""
    rest = b""
    async for data in response.aiter_bytes():
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            yield line.decode()
    assert not rest, "the stream ended inside a line"


@contextlib.asynccontextmanager
async def lite_stream(
    address: str, tool: str, arguments: Any = None, accept: str = "text/event-stream", **params: Any
) -> AsyncIterator[LiteEvents]:
    """The events of a call at a server's address, whatever its path."""
    origin = "/".join(address.split("/")[:3])
    body = {"jsonrpc": "2.0", "id": "s1", "method": "tools/call"}
    async with (
        httpx2.AsyncClient(timeout=HANG_SECONDS) as http,
        http.stream(
            "POST",
            f"{origin}{PREFIX}/calltools",
            json={**body, "params": {"name": tool, "arguments": {} if arguments is None else arguments, **params}},
            headers={"accept": accept},
        ) as response,
    ):
        yield LiteEvents(response)


@contextlib.asynccontextmanager
async def idle_proxy(address: str, seconds: float) -> AsyncIterator[str]:
    """The address of a proxy that closes a connection once the server has sent nothing for so many seconds."""
    host, port = address.split("/")[2].split(":")
    tasks: set[asyncio.Task[Any]] = set()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        there, back = await asyncio.open_connection(host, int(port))
        asking = asyncio.create_task(_pass_on(reader, back))
        try:
            with contextlib.suppress(TimeoutError, ConnectionError):
                while data := await asyncio.wait_for(there.read(65536), seconds):
                    writer.write(data)
                    await writer.drain()
        finally:
            asking.cancel()
            writer.close()
            back.close()
            tasks.discard(task)

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await server.wait_closed()


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
