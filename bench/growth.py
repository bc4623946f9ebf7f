"""What many tools cost, over stdio: the start, a list, a call.

Two processes for each side and size, in a random order: one is spawned and called at once in the modern era,
the other is spawned, shakes hands and is asked for the list. Then both are asked again and again, from their
own core. The tool called is the one in the middle.
"""

import random
import statistics
import time
from collections.abc import Callable
from typing import NamedTuple

from deltamcp.bench.speed import messages, report
from deltamcp.bench.speed.clients import START_SECONDS, StdioSide
from deltamcp.bench.speed.machine import SERVER_CORE, on_core
from deltamcp.bench.speed.messages import Era
from deltamcp.bench.speed.report import Report, Table
from deltamcp.bench.speed.sides import OURS, Side

SIZES = (10, 100, 1_000, 10_000)
PEER_SIZES = SIZES[:-1]
REPEAT_SECONDS = 0.4


class Grown(NamedTuple):
    """One side at one size, in ms."""

    first_call: float
    first_list: float
    list: float
    call: float
    handshake_call: float


class Arm(NamedTuple):
    name: str
    side: Side
    tools: str
    sizes: tuple[int, ...]


def measure(full: bool) -> Report:
    peers = SIZES if full else PEER_SIZES
    arms = [
        Arm("ours", OURS, "many", SIZES),
        Arm("ours, described", OURS, "described", SIZES[2:]),
        Arm("sdk", Side("sdk"), "many", peers),
        Arm("fastmcp", Side("fastmcp"), "many", peers),
    ]
    order = [(arm, size) for arm in arms for size in arm.sizes]
    found = {pair: _median(*pair) for pair in random.sample(order, len(order))}
    grown = {arm: {size: found[arm, size] for size in arm.sizes} for arm in arms}
    ours = grown[arms[0]]
    flat = ours[SIZES[-1]].call / ours[SIZES[0]].call
    flat_handshake = ours[SIZES[-1]].handshake_call / ours[SIZES[0]].handshake_call
    verdicts = [
        report.at_most(f"call modern: with {SIZES[-1]:,} tools / with {SIZES[0]}", flat, 1.3),
        report.at_most(f"call handshake: with {SIZES[-1]:,} tools / with {SIZES[0]}", flat_handshake, 1.3),
    ]
    for arm in arms[:2]:
        start = grown[arm][SIZES[-1]]
        slower = max(start.first_call, start.first_list) / 1e3
        verdicts.append(report.at_most(f"start with {SIZES[-1]:,} tools, {arm.name}", slower, 2, " s"))
    return Report([_table(arm, sizes, ours) for arm, sizes in grown.items()], verdicts)


def _median(arm: Arm, size: int) -> Grown:
    """Quick starts, of which the noise is a part, thrice; others once."""
    runs = [_grow(arm, size)]
    if max(runs[0].first_call, runs[0].first_list) < 500:
        runs += [_grow(arm, size) for _ in range(2)]
    return Grown(*(statistics.median(figure) for figure in zip(*runs, strict=True)))


def _grow(arm: Arm, size: int) -> Grown:
    middle = f"search_{size // 2}"

    def call(side: StdioSide, era: Era, id: int) -> None:
        reply = side.ask(messages.call(era, middle, {"query": "x"}, id), START_SECONDS)
        if messages.text_of(reply) != f"{size // 2}: x":
            raise RuntimeError(f"{arm.name} answers {reply[:500]!r}")

    with StdioSide(arm.side, f"{arm.tools}:{size}") as modern:
        call(modern, Era.MODERN, 1)
        first_call = modern.age * 1e3
        calls = _repeat(lambda id_: call(modern, Era.MODERN, id_))
    with StdioSide(arm.side, f"{arm.tools}:{size}") as handshake:
        handshake.handshake()
        reply = handshake.ask(messages.request(Era.HANDSHAKE, "tools/list", id=1), START_SECONDS)
        first_list = handshake.age * 1e3
        if messages.tools_of(reply) != size:
            raise RuntimeError(f"{arm.name} lists {messages.tools_of(reply)} of {size} tools")
        lists = _repeat(lambda id_: handshake.ask(messages.request(Era.HANDSHAKE, "tools/list", id=id_)))
        call(handshake, Era.HANDSHAKE, 1)
        handshake_calls = _repeat(lambda id_: call(handshake, Era.HANDSHAKE, id_))
    return Grown(first_call, first_list, lists, calls, handshake_calls)


def _repeat(act: Callable[[int], object]) -> float:
    """The median time of many, in ms."""
    times: list[float] = []
    end = time.perf_counter() + REPEAT_SECONDS
    with on_core(SERVER_CORE):
        while len(times) < 3 or time.perf_counter() < end:
            began = time.perf_counter()
            act(10 + len(times))
            times.append(time.perf_counter() - began)
    return statistics.median(times) * 1e3


def _table(arm: Arm, sizes: dict[int, Grown], ours: dict[int, Grown]) -> Table:
    rows: list[tuple[str, list[float | None]]] = [
        (f"{size:,} tools", [*figures, figures.first_list / ours[size].first_list, figures.call / ours[size].call])
        for size, figures in sizes.items()
    ]
    how = {
        "many": "Four typed parameters each, alike in all tools.",
        "described": "The same parameters, each with a description and none like another.",
    }[arm.tools]
    columns = [
        "spawn → first call",
        "spawn → first list",
        "list ms",
        "call ms",
        "handshake call ms",
        "start × ours",
        "call × ours",
    ]
    return Table(f"Growth over stdio: {arm.name}", how, columns, rows)
