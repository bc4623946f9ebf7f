"""Round trips a second over stdio: `tools/call` of `add(a, b)`, one at a time and 32 in flight.

This process is the client, with bare blocking pipes; the servers run at once and are loaded in turn, in a new
order each round. With many in flight, client and servers have a core each. One at a time they take turns and
share one, or most of the time would be one core waking the other. `bare` echoes lines on asyncio.
"""

import contextlib
import random
import statistics
from typing import NamedTuple

from bench import messages, report
from bench.clients import Load, StdioSide
from bench.machine import CLIENT_CORE, SERVER_CORE, on_core
from bench.messages import Era
from bench.report import Report, Table

IDS = 1024


class Arm(NamedTuple):
    name: str
    side: str
    era: Era


ERAS = {"modern": Era.MODERN, "handshake": Era.HANDSHAKE}
ARMS = [
    Arm("bare", "bare", Era.MODERN),
    *(Arm(f"{side} {name}", side, era) for side in ("ours", "sdk", "fastmcp") for name, era in ERAS.items()),
]


def measure(rounds: int, seconds: float) -> Report:
    with contextlib.ExitStack() as stack:
        sides = {arm.name: stack.enter_context(StdioSide(arm.side, "add")) for arm in ARMS}
        for arm in ARMS:
            _check(arm, sides[arm.name])
        loads = {in_flight: _rounds(sides, in_flight, rounds, seconds) for in_flight in (1, 32)}
    tables = [_table(in_flight, loaded) for in_flight, loaded in loads.items()]
    verdicts = [
        report.at_least(
            f"stdio tools/call {era}, {in_flight} in flight: ours / sdk",
            report.ratio(_speeds(loaded, f"ours {era}"), _speeds(loaded, f"sdk {era}")),
            10,
        )
        for in_flight, loaded in loads.items()
        for era in ERAS
    ]
    return Report(tables, verdicts)


def _check(arm: Arm, side: StdioSide) -> None:
    if arm.era is Era.HANDSHAKE:
        side.handshake()
    reply = side.ask(messages.call(arm.era))
    right = reply.strip() == messages.call(arm.era) if arm.side == "bare" else messages.text_of(reply) == "5"
    if not right:
        raise RuntimeError(f"{arm.name} answers {reply[:500]!r}")


def _rounds(sides: dict[str, StdioSide], in_flight: int, rounds: int, seconds: float) -> dict[str, list[Load]]:
    lines = {arm.name: [messages.call(arm.era, id=place) for place in range(2, IDS)] for arm in ARMS}
    loaded: dict[str, list[Load]] = {arm.name: [] for arm in ARMS}
    with on_core(SERVER_CORE if in_flight == 1 else CLIENT_CORE):
        for name, side in sides.items():
            side.load(lines[name], in_flight, 0.2)
        for _ in range(rounds):
            for name in random.sample(list(sides), len(sides)):
                loaded[name].append(sides[name].load(lines[name], in_flight, seconds))
    return loaded


def _speeds(loaded: dict[str, list[Load]], name: str) -> list[float]:
    return [load.per_second for load in loaded[name]]


def _table(in_flight: int, loaded: dict[str, list[Load]]) -> Table:
    rows: list[tuple[str, list[float | None]]] = []
    for arm in ARMS:
        speeds = _speeds(loaded, arm.name)
        of_bare = report.ratio(speeds, _speeds(loaded, "bare"))
        times = report.ratio(_speeds(loaded, f"ours {arm.era.name.lower()}"), speeds)
        cpu = statistics.median(load.cpu_us for load in loaded[arm.name])
        rows.append((arm.name, [statistics.median(speeds), of_bare, times, cpu]))
    how = "A Python client on blocking pipes, which bounds the bare side too; medians over rounds."
    columns = ["round trips/s", "of bare", "ours is × it", "CPU µs each"]
    return Table(f"stdio tools/call of add(a, b), {in_flight} in flight", how, columns, rows)
