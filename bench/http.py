"""Requests a second over Streamable HTTP, one server process each, loaded by wrk.

All servers run at once on one core and are loaded in turn from another, in a new order each round. `bare`
answers the very bytes that ours answers, without reading the request, on the same uvicorn.
"""

import contextlib
import json
import random
import statistics
import subprocess
import tempfile
from pathlib import Path
from typing import NamedTuple

from bench import corpus, messages, report
from bench.clients import HttpSide
from bench.machine import CLIENT_CORE, on_core
from bench.messages import Era
from bench.report import Report, Table, Verdict

IDS = 4096
"""Requests made beforehand and sent in turn: no two in flight have one id."""

WARMING = 100
"""Requests to each arm before the first load."""

LUA = """
local requests, sent = {}, 0
function init(args)
  for id = 1, %(ids)d do
    requests[id] = wrk.format("POST", "/mcp", {%(headers)s}, [==[%(before)s]==] .. id .. [==[%(after)s]==])
  end
end
function request()
  sent = sent %% %(ids)d + 1
  return requests[sent]
end
function done(summary, latency)
  local e = summary.errors
  io.write(string.format(
    'DONE {"requests":%%d,"microseconds":%%d,"bytes":%%d,"errors":%%d,"p50_us":%%f,"p99_us":%%f}\\n',
    summary.requests, summary.duration, summary.bytes,
    e.connect + e.read + e.write + e.status + e.timeout, latency:percentile(50), latency:percentile(99)))
end
"""


class Arm(NamedTuple):
    """One line of a table: a server in one era."""

    name: str
    side: str
    era: Era
    shipped: bool = False

    @property
    def server(self) -> tuple[str, bool]:
        return self.side, self.shipped


class Loaded(NamedTuple):
    """One arm under load once."""

    per_second: float
    p50_ms: float
    p99_ms: float
    cpu_us: float


class Ready(NamedTuple):
    """An arm whose server runs and was seen to answer rightly."""

    arm: Arm
    server: HttpSide
    session: str | None
    script: Path
    reply: bytes


ERAS = {"modern": Era.MODERN, "handshake": Era.HANDSHAKE}
CALLS = [
    Arm("bare", "bare", Era.MODERN),
    Arm("thin", "thin", Era.MODERN),
    *(Arm(f"{side} {name}", side, era) for side in ("ours", "sdk", "fastmcp") for name, era in ERAS.items()),
]
SHIPPED = [Arm(f"{side} {name}, shipped", side, era, True) for side in ("sdk", "fastmcp") for name, era in ERAS.items()]
LISTS = [arm for arm in CALLS if arm.side != "thin"]


def measure(rounds: int, seconds: int) -> Report:
    calls, verdicts = _calls(rounds, seconds)
    lists, more = _lists(rounds, seconds)
    return Report([*calls, lists], [*verdicts, *more])


def _calls(rounds: int, seconds: int) -> tuple[list[Table], list[Verdict]]:
    with contextlib.ExitStack() as stack:
        ready = _start(stack, CALLS + SHIPPED, "tools/call", "add")
        many = _rounds(ready, rounds, seconds, 32)
        fewer = [one for one in ready if not one.arm.shipped]
        single = _rounds(fewer, rounds, seconds, 1)
    tables = [
        _table("HTTP tools/call of add(a, b), 32 connections", ready, many),
        _table("HTTP tools/call of add(a, b), 1 connection", fewer, single),
    ]
    tables[0].notes.append("peers are set to answer in JSON, their faster form; `shipped` is how they come")
    verdicts = []
    for era in ERAS:
        ours = _speeds(many, f"ours {era}")
        targets = {"bare": 0.55, f"sdk {era}": 8, f"fastmcp {era}": 20, f"fastmcp {era}, shipped": 20}
        for name, target in targets.items():
            share = report.ratio(ours, _speeds(many, name))
            verdicts.append(report.at_least(f"HTTP tools/call {era}, 32 connections: ours / {name}", share, target))
    return tables, verdicts


def _lists(rounds: int, seconds: int) -> tuple[Table, list[Verdict]]:
    with contextlib.ExitStack() as stack:
        tools = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "tools.json"
        origin = corpus.write_tools(tools)
        ready = _start(stack, LISTS, "tools/list", str(tools))
        loaded = _rounds(ready, rounds, seconds, 32)
    table = _table(f"HTTP tools/list of {corpus.COUNT} tools, 32 connections", ready, loaded)
    table.notes.append(f"{origin}; the SDK's side is its low-level server with the tools made beforehand")
    bare = _speeds(loaded, "bare")
    return table, [
        report.at_least(f"HTTP tools/list {era}: ours / bare", report.ratio(_speeds(loaded, f"ours {era}"), bare), 0.6)
        for era in ERAS
    ]


def _start(stack: contextlib.ExitStack, arms: list[Arm], method: str, tools: str) -> list[Ready]:
    """Every server up, every arm asked once; what it must answer, it answers."""
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    servers = {
        (side, shipped): stack.enter_context(HttpSide(side, tools, *(["shipped"] if shipped else [])))
        for side, shipped in dict.fromkeys(arm.server for arm in arms if arm.side != "bare")
    }
    model = folder / "reply"
    model.write_bytes(_ask(servers["ours", False], Era.MODERN, method, None))
    servers["bare", False] = stack.enter_context(HttpSide("bare", tools, str(model)))
    ready = [_ready(arm, servers[arm.server], method, folder) for arm in arms]
    for one in ready:
        for _ in range(WARMING):
            _ask(one.server, one.arm.era, method, one.session)
    return ready


def _ready(arm: Arm, server: HttpSide, method: str, folder: Path) -> Ready:
    session = server.handshake() if arm.era is Era.HANDSHAKE else None
    reply = _ask(server, arm.era, method, session)
    if method == "tools/call" and messages.text_of(reply) != "5":
        raise RuntimeError(f"{arm.name} adds 2 and 3 to {reply!r}")
    if method == "tools/list" and messages.tools_of(reply) != corpus.COUNT:
        raise RuntimeError(f"{arm.name} lists {messages.tools_of(reply)} tools")
    before, after = _body(arm.era, method).decode().split('"id":1,')
    headers = messages.headers(arm.era, method, "add" if method == "tools/call" else None, session)
    lua = LUA % {
        "ids": IDS,
        "headers": ", ".join(f"[{json.dumps(name)}] = {json.dumps(value)}" for name, value in headers.items()),
        "before": before + '"id":',
        "after": "," + after,
    }
    script = folder / f"{arm.name}.lua"
    script.write_text(lua)
    return Ready(arm, server, session, script, reply)


def _body(era: Era, method: str) -> bytes:
    return messages.call(era) if method == "tools/call" else messages.request(era, method)


def _ask(server: HttpSide, era: Era, method: str, session: str | None) -> bytes:
    name = "add" if method == "tools/call" else None
    return server.post(_body(era, method), messages.headers(era, method, name, session))[0]


def _rounds(ready: list[Ready], rounds: int, seconds: int, connections: int) -> dict[str, list[Loaded]]:
    loaded: dict[str, list[Loaded]] = {one.arm.name: [] for one in ready}
    for _ in range(rounds):
        for one in random.sample(ready, len(ready)):
            loaded[one.arm.name].append(_load(one, seconds, connections))
    return loaded


def _load(one: Ready, seconds: int, connections: int) -> Loaded:
    """
    Raises:
        RuntimeError: replies failed, or were not those that were checked.
    """
    command = ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--timeout", "10s", "-s", str(one.script)]
    cpu = one.server.child.cpu_seconds()
    with on_core(CLIENT_CORE):
        ran = subprocess.run(
            [*command, f"http://127.0.0.1:{one.server.port}"], capture_output=True, text=True, timeout=seconds + 30
        )
    cpu = one.server.child.cpu_seconds() - cpu
    done = next((line[5:] for line in ran.stdout.splitlines() if line.startswith("DONE ")), None)
    if done is None:
        raise RuntimeError(f"wrk says {ran.stdout} {ran.stderr}")
    said = json.loads(done)
    size = said["bytes"] / max(1, said["requests"])
    if said["errors"] or not said["requests"] or not 0 < size - len(one.reply) < 600:
        raise RuntimeError(f"{one.arm.name} under load: {said}, where a reply has {len(one.reply)} bytes")
    return Loaded(
        said["requests"] / said["microseconds"] * 1e6,
        said["p50_us"] / 1e3,
        said["p99_us"] / 1e3,
        cpu / said["requests"] * 1e6,
    )


def _speeds(loaded: dict[str, list[Loaded]], name: str) -> list[float]:
    return [one.per_second for one in loaded[name]]


def _table(title: str, ready: list[Ready], loaded: dict[str, list[Loaded]]) -> Table:
    rows: list[tuple[str, list[float | None]]] = []
    for one in ready:
        runs = loaded[one.arm.name]
        figures = [statistics.median(figure) for figure in zip(*runs, strict=True)]
        ours = f"ours {one.arm.era.name.lower()}"
        of_bare = report.ratio(_speeds(loaded, one.arm.name), _speeds(loaded, "bare"))
        times = report.ratio(_speeds(loaded, ours), _speeds(loaded, one.arm.name))
        by_cpu = report.ratio(*([load.cpu_us for load in loaded[name]] for name in ("bare", one.arm.name)))
        rows.append((one.arm.name, [figures[0], of_bare, by_cpu, times, *figures[1:], len(one.reply)]))
    columns = ["req/s", "of bare", "by CPU", "ours is × it", "p50 ms", "p99 ms", "CPU µs/req", "reply bytes"]
    return Table(
        title,
        "wrk, medians over rounds; ratios are taken inside each round; by CPU is bare's CPU time over this one's.",
        columns,
        rows,
    )
