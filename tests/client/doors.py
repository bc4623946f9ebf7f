"""Our own server behind each of its doors, and how a client comes in."""

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from deltamcp import DeltaServer
from deltamcp.transports.uvicorn_server import door
from tests.conftest import free_port

EXAMPLE = Path(__file__).with_name("peer.py")
COMMAND = [str(Path(sys.executable).parent / "delta-mcp"), "serve", str(EXAMPLE)]


@contextlib.asynccontextmanager
async def http(server: DeltaServer) -> AsyncIterator[str]:
    """Its address while it is served in this process."""
    port = free_port()
    made = door(server.engine, port=port)
    task = asyncio.create_task(made.serve())
    try:
        while not made.started:
            assert not task.done(), "the server ended before it began"
            await asyncio.sleep(0.005)
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        made.should_exit = True
        await task


class Counted:
    """What a server in this process was asked, by the kind of question."""

    def __init__(self) -> None:
        self.asks: list[Any] = []

    def count(self, kind: type) -> int:
        return sum(isinstance(ask, kind) for ask in self.asks)

    def forget(self) -> None:
        self.asks.clear()


def counting(server: DeltaServer) -> Counted:
    """Listens in on everything a server is asked to do."""
    counted = Counted()
    engine: Any = server.engine
    perform = engine.perform

    def heard(ask: Any, *more: Any) -> Any:
        counted.asks.append(ask)
        return perform(ask, *more)

    engine.perform = heard
    return counted
