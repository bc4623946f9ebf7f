"""Requests of many connections at once: a bounded number begins in an iteration of the loop, addresses in turn."""

import asyncio
from typing import Any

import pytest

from deltamcp import DeltaServer
from deltamcp.runtime.quota import REQUESTS_AT_ONCE
from tests.support.asgi_client import AsgiExchange
from tests.support.loop_iterations import LoopIterations

MANY = 20 * REQUESTS_AT_ONCE
HEADERS = {"content-type": "application/json"}


class Requests:
    """Sends requests without a body, and notes in which iteration each is answered, and to whom."""

    def __init__(self, app: Any, iterations: LoopIterations) -> None:
        self._app = app
        self._iterations = iterations
        self.answered: list[tuple[str, int]] = []

    async def send(self, address: str, path: str) -> None:
        exchange = AsgiExchange(self._app, "GET", HEADERS, address=address, path=path)
        await exchange.task
        self.answered.append((address, self._iterations.count))


@pytest.mark.parametrize("compat", [False, True])
@pytest.mark.parametrize("path", ["/mcp", "/healthz", "/nowhere", "/metrics"])
async def test_requests_of_many_connections_begin_in_turn(path, compat):
    server = DeltaServer("x")
    async with server.engine.lifespan.running():
        requests = Requests(server.asgi(metrics=True, compat=compat), LoopIterations())
        tasks = [asyncio.create_task(requests.send("10.0.0.6", path)) for _ in range(MANY)]
        await asyncio.sleep(0)
        await asyncio.gather(*tasks, asyncio.create_task(requests.send("10.0.0.1", path)))
    counts = [iteration for _, iteration in requests.answered]
    if path != "/metrics":  # whose page all of them share
        assert max(map(counts.count, counts)) <= 2 * REQUESTS_AT_ONCE, "those at once, and those in their turn"
    assert [address for address, _ in requests.answered].index("10.0.0.1") < 5 * REQUESTS_AT_ONCE


async def test_few_requests_do_not_wait():
    server = DeltaServer("x")
    async with server.engine.lifespan.running():
        requests = Requests(server.asgi(), LoopIterations())
        await asyncio.gather(*(requests.send("10.0.0.6", "/healthz") for _ in range(REQUESTS_AT_ONCE)))
    assert len({iteration for _, iteration in requests.answered}) == 1
