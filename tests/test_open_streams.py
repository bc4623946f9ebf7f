"""Streams that a test leaves open are closed with its event loop, and no later test fails for them."""

import asyncio
import gc
import warnings


def test_streams_that_are_left_open_are_no_garbage_that_warns():
    async def leave_open() -> None:
        async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await asyncio.Event().wait()

        server = await asyncio.start_server(hang, "127.0.0.1", 0)
        _, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        writer.write(bytes(20_000_000))  # more than the system takes: it is still written when the loop closes
        writer.close()
        server.close()

    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        asyncio.run(leave_open())
        gc.collect()
    assert told == []
