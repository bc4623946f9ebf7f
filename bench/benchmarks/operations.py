"""What operators add costs a call of `add(a, b)` over HTTP: tokens, an observer, metrics, promises, a shared store.

All servers run at once and are loaded in turn, in a new order each round. What something adds is the difference to the
plain server inside a round, in the server's CPU time or in the time that a client waits on one connection, and the
median of these over the rounds. The second plain server shows how far two measurements of the same thing differ.
"""

import contextlib
import json
import random
import statistics
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from bench import load, messages, report
from bench.hostile import stores
from bench.machine import CPU_NOTES
from bench.options import BenchOptions
from bench.report import BenchReport, FigureTable
from bench.server_process import HttpServerProcess
from bench.servers.operated import RESOURCE
from bench.token_issuer import TokenIssuer, run_issuer
from deltamcp.values import Era

SERVER = "operated"
WARMING = 200
CONNECTIONS = 8
PLAIN, AGAIN, TOKEN, OBSERVER, METRICS = "plain", "plain again", "cached JWT", "an observer", "metrics"
PROMISES = "another tool gives promises"
SESSION, REDIS_SESSION, REDIS = "session", "session, Redis", "modern, Redis"


class OperatedCase(NamedTuple):
    """One server in one era, and the headers of its requests."""

    name: str
    options: dict[str, Any]
    era: Era = Era.MODERN
    headers: Mapping[str, str] = MappingProxyType({})


class OperatedLoad(NamedTuple):
    cpu_us: float
    p50_us: float


def measure(options: BenchOptions) -> BenchReport:
    with contextlib.ExitStack() as stack:
        issuer = stack.enter_context(run_issuer())
        cases, notes = _cases(stack, issuer)
        ready = {case.name: _start(stack, case) for case in cases}
        many = _load_in_rounds(ready, options, CONNECTIONS)
        single = _load_in_rounds(ready, options, 1)
    rows: list[tuple[str, list[float | None]]] = []
    for case in cases:
        plain = SESSION if case.era is Era.HANDSHAKE else PLAIN
        rows.append(
            (
                case.name,
                [
                    report.finite_or_none(statistics.median(one.cpu_us for one in many[case.name])),
                    report.finite_or_none(_added_cpu(many, case.name, plain)),
                    statistics.median(one.p50_us for one in single[case.name]),
                    _added_wait(single, case.name, plain),
                ],
            )
        )
    columns = ["CPU µs/call", "added µs", f"p50 µs, {1} connection", "added µs "]
    how = f"CPU time under {CONNECTIONS} connections; what is added is the median of differences inside each round."
    notes = [f"loaded by {load.generator()}", *notes, *CPU_NOTES]
    verdicts = [
        report.at_most("a cached JWT adds to a call", _added_cpu(many, TOKEN, PLAIN), 30, " µs"),
        report.at_most("metrics add to a call", _added_cpu(many, METRICS, PLAIN), 5, " µs"),
        report.at_most("another tool's promises add to a call", _added_cpu(many, PROMISES, PLAIN), 5, " µs"),
    ]
    if REDIS_SESSION in many:
        added = _added_wait(single, REDIS_SESSION, SESSION) / 1e3
        verdicts.append(report.at_most("the Redis store adds to a session's call", added, 1, " ms"))
    return BenchReport([FigureTable("What operators add, µs a call", how, columns, rows, notes)], verdicts)


def _cases(stack: contextlib.ExitStack, issuer: TokenIssuer) -> tuple[list[OperatedCase], list[str]]:
    bearer = {"Authorization": f"Bearer {issuer.sign('ann', RESOURCE)}"}
    cases = [
        OperatedCase(PLAIN, {}),
        OperatedCase(AGAIN, {}),
        OperatedCase(TOKEN, {"issuer": issuer.url, "jwks_url": issuer.jwks_url}, headers=bearer),
        OperatedCase(OBSERVER, {"observer": True}),
        OperatedCase(METRICS, {"metrics": True}),
        OperatedCase(PROMISES, {"promises": True}),
        OperatedCase(SESSION, {}, Era.HANDSHAKE),
    ]
    try:
        url = stack.enter_context(stores.redis()).url
    except stores.SkippedError as skipped:
        return cases, [f"without a shared store: {skipped}"]
    return [*cases, OperatedCase(REDIS, {"store": url}), OperatedCase(REDIS_SESSION, {"store": url}, Era.HANDSHAKE)], []


class ReadyServer(NamedTuple):
    process: HttpServerProcess
    template: load.RequestTemplate


def _start(stack: contextlib.ExitStack, case: OperatedCase) -> ReadyServer:
    """
    Raises:
        RuntimeError: the server answers wrongly.
    """
    process = stack.enter_context(HttpServerProcess(SERVER, json.dumps(case.options)))
    session = process.handshake() if case.era is Era.HANDSHAKE else None
    headers = messages.headers(case.era, "tools/call", "add", session) | dict(case.headers)
    for _ in range(WARMING):
        reply, _session = process.post(messages.call(case.era), headers)
        if messages.call_text(reply) != "5":
            raise RuntimeError(f"{case.name} adds 2 and 3 to {reply!r}")
    before, after = messages.call(case.era).decode().split('"id":1,')
    return ReadyServer(process, load.RequestTemplate(headers, f'{before}"id":', f",{after}"))


def _load_in_rounds(
    ready: dict[str, ReadyServer], options: BenchOptions, connections: int
) -> dict[str, list[OperatedLoad]]:
    loads: dict[str, list[OperatedLoad]] = {name: [] for name in ready}
    for _ in range(options.rounds):
        for name in random.sample(list(ready), len(ready)):
            loads[name].append(_load(ready[name], options.seconds, connections))
    return loads


def _load(one: ReadyServer, seconds: float, connections: int) -> OperatedLoad:
    """
    Raises:
        RuntimeError: requests failed.
    """
    cpu = one.process.server.cpu_seconds()
    totals = load.run_load(one.process.port, one.template, connections, seconds)
    cpu = one.process.server.cpu_seconds() - cpu
    if totals.errors or not totals.requests:
        raise RuntimeError(f"{one.process.server.process.args!r} under load: {totals}")
    return OperatedLoad(cpu / totals.requests * 1e6, totals.p50_us)


def _added_cpu(loads: dict[str, list[OperatedLoad]], name: str, plain: str) -> float:
    return _median_difference([one.cpu_us for one in loads[name]], [one.cpu_us for one in loads[plain]])


def _added_wait(loads: dict[str, list[OperatedLoad]], name: str, plain: str) -> float:
    return _median_difference([one.p50_us for one in loads[name]], [one.p50_us for one in loads[plain]])


def _median_difference(of: list[float], to: list[float]) -> float:
    """The median of the differences inside each round: what else the machine does slows both sides of a round."""
    return statistics.median(one - other for one, other in zip(of, to, strict=True))
