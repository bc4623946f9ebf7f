"""Requests a second over Streamable HTTP, one server process each.

All servers run at once on one core and are loaded in turn from another, in a new order each round. `bare`
answers the very bytes that ours answers, without reading the request, on the same uvicorn.
"""

import contextlib
import random
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from deltamcp.bench.speed import corpus, load, messages, report
from deltamcp.bench.speed.clients import HttpSide
from deltamcp.bench.speed.machine import CPU_NOTES
from deltamcp.bench.speed.messages import Era
from deltamcp.bench.speed.report import Report, Table, Verdict
from deltamcp.bench.speed.sides import BARE, OURS, THIN, Peers, Side

WARMING = 100
"""Requests to each arm before the first load."""


class Arm(NamedTuple):
    """One line of a table: a server in one era."""

    name: str
    side: Side
    era: Era
    shipped: bool = False

    @property
    def server(self) -> tuple[Side, bool]:
        return self.side, self.shipped


class Loaded(NamedTuple):
    """One arm under load once."""

    per_second: float
    p50_ms: float
    p99_ms: float
    cpu_us: float
    """NaN where it is not known."""


class Ready(NamedTuple):
    """An arm whose server runs and was seen to answer rightly."""

    arm: Arm
    server: HttpSide
    session: str | None
    sent: load.Sent
    reply: bytes


ERAS = {"modern": Era.MODERN, "handshake": Era.HANDSHAKE}
_BARE, _THIN = Arm("bare", BARE, Era.MODERN), Arm("thin", THIN, Era.MODERN)


def measure(rounds: int, seconds: float, peers: Peers, say: Callable[[str], None] = lambda _: None) -> Report:
    calls, verdicts = _calls(rounds, seconds, peers, say)
    lists, more = _lists(rounds, seconds, peers, say)
    return Report([*calls, lists], [*verdicts, *more])


def _calls(rounds: int, seconds: float, peers: Peers, say: Callable[[str], None]) -> tuple[list[Table], list[Verdict]]:
    shipped = [
        Arm(f"{side.name} {name}, shipped", side, era, True) for side in peers.sides for name, era in ERAS.items()
    ]
    with contextlib.ExitStack() as stack:
        ready = _start(stack, [_BARE, _THIN, *_arms(peers), *shipped], "tools/call", "add")
        many = _rounds(ready, rounds, seconds, 32, say)
        fewer = [one for one in ready if not one.arm.shipped]
        single = _rounds(fewer, rounds, seconds, 1, say)
    tables = [
        _table("HTTP tools/call of add(a, b), 32 connections", ready, many, peers),
        _table("HTTP tools/call of add(a, b), 1 connection", fewer, single, peers),
    ]
    if shipped:
        tables[0].notes.append("peers are set to answer in JSON, their faster form; `shipped` is how they come")
    verdicts = []
    for era in ERAS:
        ours = _speeds(many, f"ours {era}")
        targets = {"bare": 0.55, f"sdk {era}": 8, f"fastmcp {era}": 20, f"fastmcp {era}, shipped": 20}
        for name, target in targets.items():
            if name in many:
                share = report.ratio(ours, _speeds(many, name))
                verdicts.append(report.at_least(f"HTTP tools/call {era}, 32 connections: ours / {name}", share, target))
    return tables, verdicts


def _lists(rounds: int, seconds: float, peers: Peers, say: Callable[[str], None]) -> tuple[Table, list[Verdict]]:
    with contextlib.ExitStack() as stack:
        tools = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "tools.json"
        origin = corpus.write_tools(tools)
        ready = _start(stack, [_BARE, *_arms(peers)], "tools/list", str(tools))
        loaded = _rounds(ready, rounds, seconds, 32, say)
    table = _table(f"HTTP tools/list of {corpus.COUNT} tools, 32 connections", ready, loaded, peers)
    table.notes.append(f"{origin}; the SDK's side is its low-level server with the tools made beforehand")
    bare = _speeds(loaded, "bare")
    return table, [
        report.at_least(f"HTTP tools/list {era}: ours / bare", report.ratio(_speeds(loaded, f"ours {era}"), bare), 0.6)
        for era in ERAS
    ]


def _arms(peers: Peers) -> list[Arm]:
    return [Arm(f"{side.name} {name}", side, era) for side in (OURS, *peers.sides) for name, era in ERAS.items()]


def _start(stack: contextlib.ExitStack, arms: list[Arm], method: str, tools: str) -> list[Ready]:
    """Every server up, every arm asked once; what it must answer, it answers."""
    servers = {
        (side, shipped): stack.enter_context(HttpSide(side, tools, *(["shipped"] if shipped else [])))
        for side, shipped in dict.fromkeys(arm.server for arm in arms if arm.side != BARE)
    }
    model = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "reply"
    model.write_bytes(_ask(servers[OURS, False], Era.MODERN, method, None))
    servers[BARE, False] = stack.enter_context(HttpSide(BARE, tools, str(model)))
    ready = [_ready(arm, servers[arm.server], method) for arm in arms]
    for one in ready:
        for _ in range(WARMING):
            _ask(one.server, one.arm.era, method, one.session)
    return ready


def _ready(arm: Arm, server: HttpSide, method: str) -> Ready:
    session = server.handshake() if arm.era is Era.HANDSHAKE else None
    reply = _ask(server, arm.era, method, session)
    if method == "tools/call" and messages.text_of(reply) != "5":
        raise RuntimeError(f"{arm.name} adds 2 and 3 to {reply!r}")
    if method == "tools/list" and messages.tools_of(reply) != corpus.COUNT:
        raise RuntimeError(f"{arm.name} lists {messages.tools_of(reply)} tools")
    before, after = _body(arm.era, method).decode().split('"id":1,')
    headers = messages.headers(arm.era, method, "add" if method == "tools/call" else None, session)
    return Ready(arm, server, session, load.Sent(headers, f'{before}"id":', f",{after}"), reply)


def _body(era: Era, method: str) -> bytes:
    return messages.call(era) if method == "tools/call" else messages.request(era, method)


def _ask(server: HttpSide, era: Era, method: str, session: str | None) -> bytes:
    name = "add" if method == "tools/call" else None
    return server.post(_body(era, method), messages.headers(era, method, name, session))[0]


def _rounds(
    ready: list[Ready], rounds: int, seconds: float, connections: int, say: Callable[[str], None]
) -> dict[str, list[Loaded]]:
    loaded: dict[str, list[Loaded]] = {one.arm.name: [] for one in ready}
    for round_ in range(1, rounds + 1):
        for one in random.sample(ready, len(ready)):
            say(f"{connections} connections, round {round_} of {rounds}: {one.arm.name}")
            loaded[one.arm.name].append(_load(one, seconds, connections))
    return loaded


def _load(one: Ready, seconds: float, connections: int) -> Loaded:
    """
    Raises:
        RuntimeError: replies failed, or were not those that were checked.
    """
    cpu = one.server.child.cpu_seconds()
    done = load.put(one.server.port, one.sent, connections, seconds)
    cpu = one.server.child.cpu_seconds() - cpu
    size = done.bytes / max(1, done.requests)
    if done.errors or not done.requests or not 0 < size - len(one.reply) < 600:
        raise RuntimeError(f"{one.arm.name} under load: {done}, where a reply has {len(one.reply)} bytes")
    per_second = done.requests / done.microseconds * 1e6
    return Loaded(per_second, done.p50_us / 1e3, done.p99_us / 1e3, cpu / done.requests * 1e6)


def _speeds(loaded: dict[str, list[Loaded]], name: str) -> list[float]:
    return [one.per_second for one in loaded[name]]


def _table(title: str, ready: list[Ready], loaded: dict[str, list[Loaded]], peers: Peers) -> Table:
    rows: list[tuple[str, list[float | None]]] = []
    for one in ready:
        runs = loaded[one.arm.name]
        ours = f"ours {one.arm.era.name.lower()}"
        of_bare = report.ratio(_speeds(loaded, one.arm.name), _speeds(loaded, "bare"))
        times = report.ratio(_speeds(loaded, ours), _speeds(loaded, one.arm.name))
        by_cpu = report.ratio(*([run.cpu_us for run in loaded[name]] for name in ("bare", one.arm.name)))
        speed, p50, p99, cpu = (statistics.median(figure) for figure in zip(*runs, strict=True))
        known = [speed, of_bare, report.known(by_cpu), times, p50, p99, report.known(cpu), len(one.reply)]
        rows.append((one.arm.name, known))
    columns = ["req/s", "of bare", "by CPU", "ours is × it", "p50 ms", "p99 ms", "CPU µs/req", "reply bytes"]
    how = "Medians over rounds; ratios are taken inside each round; by CPU is bare's CPU time over this one's."
    return Table(title, how, columns, rows, [f"loaded by {load.generator()}", *peers.missing, *CPU_NOTES])
