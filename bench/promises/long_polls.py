"""Many clients that wait for promises at once: how soon they hear, and how many connections to Redis that takes."""

import asyncio
import random
import statistics
import time
from typing import Any, NamedTuple

import httpx2
import redis.asyncio

from bench.promises.topology import PromiseTopology
from bench.report import BenchReport, FigureTable, at_most

_WAIT_MS = 30_000
_BEFORE = 12.0
"""Seconds in which all promises are made and all clients begin to wait, before the first call ends."""
_MAKERS = 8
"""How many promises are made at once."""


class _Woken(NamedTuple):
    ended: float
    heard: float


async def measure(topology: PromiseTopology, clients: int, per_second: float) -> BenchReport:
    """Has `clients` wait, each for a promise of its own at the other replica; so many calls end every second."""
    first_end = time.time() + _BEFORE + clients / 50
    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=None)
    async with httpx2.AsyncClient(timeout=60, trust_env=False, limits=limits) as client:
        polls = _Polls(client, topology.endpoints, first_end, per_second)
        counting = asyncio.create_task(_count_connections(topology.store))
        woken = await asyncio.gather(*map(polls.wait, range(clients)))
        counting.cancel()
        most = await counting
    delays = sorted(1000 * (one.heard - one.ended) for one in woken)
    p50, p95 = statistics.median(delays), delays[int(0.95 * len(delays))]
    notes = [f"{polls.refused} requests were refused, because the store was too slow, and made again"]
    table = FigureTable(
        f"{clients:,} clients wait at {len(topology.ports)} replicas, {per_second:g} calls end every second",
        "milliseconds from the end of a call until its client has the result; connections to Redis at most",
        ["p50 ms", "p95 ms", *sorted(most)],
        [("ours", [p50, p95, *(float(most[name]) for name in sorted(most))])],
        notes if polls.refused else [],
    )
    verdicts = [at_most(f"{clients:,} long polls, p95 until a client hears", p95, 100, " ms")]
    verdicts += [at_most(f"connections to Redis, {name}", float(count), 10) for name, count in sorted(most.items())]
    return BenchReport([table], verdicts)


class _Polls:
    """Clients that each make a promise at one replica and wait for it at another."""

    def __init__(self, client: httpx2.AsyncClient, endpoints: list[str], first_end: float, per_second: float) -> None:
        self._client = client
        self._endpoints = endpoints
        self._first_end = first_end
        self._per_second = per_second
        self._makers = asyncio.Semaphore(_MAKERS)
        self.refused = 0

    async def wait(self, number: int) -> _Woken:
        made_at, asked_at = random.Random(number).sample(self._endpoints, 2)
        async with self._makers:
            until = self._first_end + number / self._per_second
            result = await self._ask(made_at, "finish_at", {"until": until})
        token = result["_meta"]["promise_token"]
        while result["_meta"]["response_type"] == "promise":
            result = await self._ask(asked_at, "redeem", {"promise": token, "wait_ms": _WAIT_MS})
        return _Woken(float(result["content"][0]["text"]), time.time())

    async def _ask(self, endpoint: str, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
        params = {"name": tool, "arguments": arguments}
        request = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        while True:
            try:
                reply = (await self._client.post(endpoint, json=request)).json()
            except httpx2.ReadError:  # the server has closed a connection that nobody used for a minute
                continue
            result: dict[str, Any] = reply.get("result", {"_meta": {}})
            if result["_meta"].get("response_type") in ("promise", "answer"):
                return result
            if "ry again" not in str(reply):
                raise RuntimeError(f"{tool} was answered with {reply}")
            self.refused += 1
            await asyncio.sleep(1)


async def _count_connections(store: str) -> dict[str, int]:
    """The most connections that Redis had from each replica, by the name that its URL gives them."""
    most: dict[str, int] = {}
    async with redis.asyncio.Redis.from_url(store) as client:
        try:
            while True:
                names = [one["name"] for one in await client.client_list() if one["name"].startswith("replica-")]
                for name in names:
                    most[name] = max(most.get(name, 0), names.count(name))
                await asyncio.sleep(0.5)
        except asyncio.CancelledError:
            return most
