"""`python -m bench.soak`: minutes of mixed load with faults; exits with 1 if a server holds more afterwards."""

import argparse
import asyncio
import contextlib
import logging
import random
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from bench import machine
from bench.report import BenchReport, FigureTable, Verdict, at_most
from bench.server_process import HttpServerProcess
from bench.soak import behaviours
from bench.soak.behaviours import BEHAVIOURS, behave
from bench.soak.faults import RedisProcess, redis_process, unreliable_service, write_operations
from bench.soak.gateway import soak_gateway
from bench.soak.server_state import ServerState, median_memory, read_state
from bench.soak.stdio_peer import StdioPeer, stdio_peer
from bench.soak.tally import Tally

PEERS = 8
"""Peers of each HTTP server that behave at once; some of them open several connections."""
STATE_SECONDS = 2.0
DEEP_STATES = 15
"""In one of so many states the instances of classes are counted, which delays calls by some 100 ms."""
RELOAD_SECONDS = 3.0
FAULT_SECONDS = 15.0
WARM_UP_ROUNDS = 3
REST_SECONDS = 45.0
"""Longer than every lifetime: idle threads, which end after 30 s, are the last to go."""
MEMORY_GROWTH = 1.03
MEMORY_SLACK_MB = 2.0
"""The last third's median may be 3 % and 2 MB above the middle third's: the allocator's noise."""
THREAD_SLACK = 2
"""asyncio's own executor, which looks up names and reloads the operations file, does not end its threads."""
CLASS_SLACK = 5


class SoakedServer(NamedTuple):
    """A server process under load, what is known of it over time, and what its peers met."""

    name: str
    http: HttpServerProcess | None
    stdio: StdioPeer | None
    redis: RedisProcess | None
    tally: Tally
    states: list[ServerState]

    async def observe(self, deep: bool) -> ServerState:
        """Reads the server's state; `deep` counts instances, which delays the server's other calls."""
        if self.http is not None:
            told = await behaviours.call(self.http.port, "state", arguments={"deep": deep})
            pid = self.http.server.process.pid
        else:
            assert self.stdio is not None
            told, pid = (await self.stdio.call("state", {"deep": deep}))["result"], self.stdio.process.pid
        stored = None if self.redis is None else await self.redis.entry_count()
        return read_state(pid, told, stored)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.soak", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600.0, metavar="N", help="length of the load (600)")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="of the peers' choices (1)")
    parser.add_argument("--only", choices=list(SOAKS), metavar="NAME", help=f"one of {', '.join(SOAKS)}")
    given = parser.parse_args()
    random.seed(given.seed)
    logging.getLogger("deltamcp").setLevel(logging.CRITICAL)
    print("\n".join(f"{key}: {value}" for key, value in machine.describe().items()), flush=True)
    verdicts = []
    for name in SOAKS if given.only is None else [given.only]:
        found = asyncio.run(SOAKS[name](given.seconds))
        print(f"\n{found}", flush=True)
        verdicts += found.verdicts
    raise SystemExit(0 if all(verdict.met for verdict in verdicts) else 1)


async def soak_servers(seconds: float) -> BenchReport:
    async with contextlib.AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        service_port = await stack.enter_async_context(unreliable_service())
        file = folder / "operations.json"
        write_operations(file, service_port, 0)
        redis = stack.enter_context(redis_process())
        if redis is None:
            print("There is no redis-server on PATH: no server with a store that fails.")
        servers = []
        for name, store in (("http, memory", "memory://"), ("http, redis", None if redis is None else redis.url)):
            if store is not None:
                process = stack.enter_context(HttpServerProcess("server", store, str(file), package="bench.soak"))
                servers.append(SoakedServer(name, process, None, redis if "redis" in name else None, Tally(), []))
        peer = await stack.enter_async_context(stdio_peer("memory://", str(file)))
        servers.append(SoakedServer("stdio", None, peer, None, Tally(), []))

        print("Every behaviour runs a few times, and then the servers rest.", flush=True)
        await asyncio.gather(*map(_warm_up, servers))
        await asyncio.sleep(REST_SECONDS)
        before = [await _observe_at_rest(server) for server in servers]
        began = time.monotonic()
        end = began + seconds
        print(f"Load for {seconds:g} s.", flush=True)
        faults = [_edit_file(file, service_port, end)] + ([] if redis is None else [_fail_redis(redis, end)])
        await asyncio.gather(
            *(_load(server, end) for server in servers), *(_watch(each, end) for each in servers), *faults
        )
        write_operations(file, service_port, 0)
        print(f"Rest for {REST_SECONDS:g} s.", flush=True)
        await asyncio.sleep(REST_SECONDS)
        after = [await _observe_at_rest(server) for server in servers]
        return _report(servers, before, after, began, seconds)


async def _observe_at_rest(server: SoakedServer) -> ServerState:
    """Returns what a server holds once all lifetimes have passed."""
    if server.http is not None:
        await behaviours.brief_session(server.http.port)
    return await server.observe(deep=True)


async def _warm_up(server: SoakedServer) -> None:
    for _ in range(WARM_UP_ROUNDS):
        if server.http is not None:
            port = server.http.port
            await asyncio.gather(*(behave(behaviour, port, Tally()) for behaviour in BEHAVIOURS))
        else:
            assert server.stdio is not None
            for _ in range(20):
                await server.stdio.behave(Tally())


async def _load(server: SoakedServer, end: float) -> None:
    async def peer() -> None:
        while time.monotonic() < end:
            if server.http is not None:
                [behaviour] = random.choices(list(BEHAVIOURS), list(BEHAVIOURS.values()))
                await behave(behaviour, server.http.port, server.tally)
            else:
                assert server.stdio is not None
                await server.stdio.behave(server.tally)
                await asyncio.sleep(0.05)

    await asyncio.gather(*(peer() for _ in range(PEERS if server.http is not None else 1)))


async def _watch(server: SoakedServer, end: float) -> None:
    while time.monotonic() < end:
        is_deep = len(server.states) % DEEP_STATES == DEEP_STATES // 2
        try:
            server.states.append(await server.observe(is_deep))
        except Exception as error:  # the store is away
            server.tally.count("state", type(error).__name__)
        await asyncio.sleep(STATE_SECONDS)


async def _edit_file(file: Path, service_port: int, end: float) -> None:
    version = 0
    while time.monotonic() < end:
        await asyncio.sleep(RELOAD_SECONDS)
        version += 1
        write_operations(file, service_port, version)


async def _fail_redis(redis: RedisProcess, end: float) -> None:
    while time.monotonic() + FAULT_SECONDS < end:
        await asyncio.sleep(FAULT_SECONDS * (0.5 + random.random() / 2))
        await redis.fail(2 + random.random() * 3)


def _report(
    servers: list[SoakedServer],
    before: list[ServerState],
    after: list[ServerState],
    began: float,
    seconds: float,
) -> BenchReport:
    tables, verdicts = [], []
    for server, first, last in zip(servers, before, after, strict=True):
        tables.append(_state_table(server, first, last, began, seconds))
        verdicts += judge(server, first, last)
    return BenchReport([*tables, *map(_outcome_table, servers)], verdicts)


def _state_table(
    server: SoakedServer, first: ServerState, last: ServerState, began: float, seconds: float
) -> FigureTable:
    rows = [("before", _figures(first, None))]
    for third, states in enumerate(_thirds(server.states)):
        since = began + third * seconds / 3
        times = server.tally.percentiles(since, since + seconds / 3)
        middle = next((state for state in states if state.classes is not None), states[len(states) // 2])
        rows.append((f"third {third + 1}", _figures(middle._replace(memory_mb=median_memory(states)), times)))
    rows.append(("after", _figures(last, None)))
    columns = ["memory MB", "threads", "descriptors", "tasks", "sessions", "stored", "p50 ms", "p99 ms"]
    how = "Memory is the median of a third, and the times are of add(2, 3) in it; the other figures are of one moment."
    return FigureTable(f"Soak of {seconds:g} s: {server.name}", how, columns, rows)


def _figures(state: ServerState, times: tuple[float, float] | None) -> list[float | None]:
    held = [state.memory_mb, state.threads, state.descriptors, state.tasks, state.sessions, state.stored]
    return [*held, *((None, None) if times is None or times == (0.0, 0.0) else times)]


def _thirds(states: list[ServerState]) -> list[list[ServerState]]:
    size = len(states) // 3
    return [states[:size], states[size : 2 * size], states[2 * size :]]


def _outcome_table(server: SoakedServer) -> FigureTable:
    rows: list[tuple[str, list[float | None]]] = [
        (f"{behaviour}: {outcome}", [count]) for (behaviour, outcome), count in sorted(server.tally.outcomes.items())
    ]
    notes = [f"unexpected, {count} times: {what}" for what, count in server.tally.unexpected.most_common(10)]
    return FigureTable(
        f"Outcomes: {server.name}", "How often each behaviour ended in which way.", ["times"], rows, notes
    )


def judge(server: SoakedServer, first: ServerState, last: ServerState) -> list[Verdict]:
    _, middle, end = _thirds(server.states)
    idle = 0 if server.redis is None else PEERS  # the store leaves connections open, one for each call at once
    bound = median_memory(middle) * MEMORY_GROWTH + MEMORY_SLACK_MB
    first_classes, last_classes = first.classes or {}, last.classes or {}
    growth = {name: count - first_classes.get(name, 0) for name, count in last_classes.items()}
    grown = {name: count for name, count in growth.items() if count > CLASS_SLACK}
    for name, count in grown.items():
        print(f"{server.name}: {count} more instances of {name} than before")
    return [
        at_most(f"{server.name}, memory in the last third", median_memory(end), bound, " MB"),
        at_most(f"{server.name}, tasks after", last.tasks, first.tasks),
        at_most(f"{server.name}, threads after", last.threads, first.threads + THREAD_SLACK),
        at_most(f"{server.name}, descriptors after", last.descriptors, first.descriptors + idle),
        at_most(f"{server.name}, sessions and streams after", last.sessions or 0, 0),
        at_most(f"{server.name}, stored entries after", last.stored, first.stored),
        at_most(f"{server.name}, classes with more instances after", len(grown), 0),
        at_most(f"{server.name}, unexpected outcomes", sum(server.tally.unexpected.values()), 0),
    ]


SOAKS = {"servers": soak_servers, "gateway": soak_gateway}

if __name__ == "__main__":
    main()
