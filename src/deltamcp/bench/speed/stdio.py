"""Round trips a second over stdio: `tools/call` of `add(a, b)`, one at a time and 32 in flight.

This process is the client, with bare blocking pipes; the servers run at once and are loaded in turn, in a new
order each round. With many in flight, client and servers have a core each. One at a time they take turns and
share one, or most of the time would be one core waking the other. `bare` echoes lines on asyncio.
"""

import contextlib
import random
import statistics
from collections.abc import Callable
from typing import NamedTuple

from deltamcp.bench.speed import messages, report
from deltamcp.bench.speed.clients import Load, StdioSide
from deltamcp.bench.speed.machine import CLIENT_CORE, CPU_NOTES, SERVER_CORE, on_core
from deltamcp.bench.speed.messages import Era
from deltamcp.bench.speed.report import Report, Table
from deltamcp.bench.speed.sides import BARE, OURS, Peers, Side

IDS = 1024
WARMING_SECONDS = 0.2


class Arm(NamedTuple):
    name: str
    side: Side
    era: Era


ERAS = {"modern": Era.MODERN, "handshake": Era.HANDSHAKE}


def measure(rounds: int, seconds: float, peers: Peers, say: Callable[[str], None] = lambda _: None) -> Report:
    sides = [OURS, *peers.sides]
    eras = [Arm(f"{side.name} {name}", side, era) for side in sides for name, era in ERAS.items()]
    arms = [Arm("bare", BARE, Era.MODERN), *eras]
    with contextlib.ExitStack() as stack:
        ready = {arm: stack.enter_context(StdioSide(arm.side, "add")) for arm in arms}
        for arm, server in ready.items():
            _check(arm, server)
        loads = {in_flight: _rounds(ready, in_flight, rounds, seconds, say) for in_flight in (1, 32)}
    tables = [_table(in_flight, arms, loaded, peers) for in_flight, loaded in loads.items()]
    verdicts = [
        report.at_least(
            f"stdio tools/call {era}, {in_flight} in flight: ours / sdk",
            report.ratio(_speeds(loaded, f"ours {era}"), _speeds(loaded, f"sdk {era}")),
            10,
        )
        for in_flight, loaded in loads.items()
        for era in ERAS
        if f"sdk {era}" in loaded
    ]
    return Report(tables, verdicts)


def _check(arm: Arm, side: StdioSide) -> None:
    if arm.era is Era.HANDSHAKE:
        side.handshake()
    reply = side.ask(messages.call(arm.era))
    right = reply.strip() == messages.call(arm.era) if arm.side == BARE else messages.text_of(reply) == "5"
    if not right:
        raise RuntimeError(f"{arm.name} answers {reply[:500]!r}")


def _rounds(
    ready: dict[Arm, StdioSide], in_flight: int, rounds: int, seconds: float, say: Callable[[str], None]
) -> dict[str, list[Load]]:
    lines = {era: [messages.call(era, id=place) for place in range(2, IDS)] for era in Era}
    loaded: dict[str, list[Load]] = {arm.name: [] for arm in ready}
    with on_core(SERVER_CORE if in_flight == 1 else CLIENT_CORE):
        for arm, server in ready.items():
            server.load(lines[arm.era], in_flight, min(WARMING_SECONDS, seconds))
        for round_ in range(1, rounds + 1):
            for arm in random.sample(list(ready), len(ready)):
                say(f"{in_flight} in flight, round {round_} of {rounds}: {arm.name}")
                loaded[arm.name].append(ready[arm].load(lines[arm.era], in_flight, seconds))
    return loaded


def _speeds(loaded: dict[str, list[Load]], name: str) -> list[float]:
    return [load.per_second for load in loaded[name]]


def _table(in_flight: int, arms: list[Arm], loaded: dict[str, list[Load]], peers: Peers) -> Table:
    rows: list[tuple[str, list[float | None]]] = []
    for arm in arms:
        speeds = _speeds(loaded, arm.name)
        of_bare = report.ratio(speeds, _speeds(loaded, "bare"))
        times = report.ratio(_speeds(loaded, f"ours {arm.era.name.lower()}"), speeds)
        cpu = statistics.median(load.cpu_us for load in loaded[arm.name])
        rows.append((arm.name, [statistics.median(speeds), of_bare, times, report.known(cpu)]))
    how = "A Python client on blocking pipes, which bounds the bare side too; medians over rounds."
    columns = ["round trips/s", "of bare", "ours is × it", "CPU µs each"]
    return Table(
        f"stdio tools/call of add(a, b), {in_flight} in flight", how, columns, rows, [*peers.missing, *CPU_NOTES]
    )
