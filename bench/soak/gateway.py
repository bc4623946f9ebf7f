"""The gateway's part of `make soak`: calls over ten servers that hang, send garbage and die, each answer checked."""

import asyncio
import contextlib
import itertools
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from bench.peers import ROOT
from bench.ports import find_free_port, wait_for_port
from bench.report import BenchReport, FigureTable, at_most
from bench.soak.tally import Tally
from deltamcp import DeltaClient, connect
from deltamcp.errors import DeltaError

SERVERS = 10
CALLERS = 12
KILL_SECONDS = 1.5
WATCH_SECONDS = 1.0
TIMEOUT_SECONDS = 2.0
WARM_UP_SECONDS = 15.0
END_SECONDS = 20.0
MEMORY_GROWTH = 1.03
MEMORY_SLACK_MB = 2.0
"""As for the servers of `make soak`: the allocator's noise."""
WAYS = {
    "plainly": 60,
    "slowly": 8,
    "with progress": 10,
    "with garbage": 5,
    "at length": 6,
    "as an error": 8,
    "never": 1,
    "and die": 1,
}
"""How a server is asked to echo a value, and how often."""
_MARK = "DELTA_MCP_SOAK"


class GatewayState(NamedTuple):
    at: float
    memory_mb: float
    threads: int
    descriptors: int


async def soak_gateway(seconds: float) -> BenchReport:
    mark = f"{os.getpid()}-{random.random()}"
    tally, wrong = Tally(), Counter[str]()
    states: list[GatewayState] = []
    with tempfile.TemporaryDirectory() as folder:
        with _running_gateway(Path(folder), mark) as (pid, url):
            print(f"A gateway over {SERVERS} servers; warm-up, then load for {seconds:g} s.", flush=True)
            await _load(url, pid, mark, time.monotonic() + WARM_UP_SECONDS, Tally(), wrong, [])
            began = time.monotonic()
            await _load(url, pid, mark, began + seconds, tally, wrong, states)
        left = _count_left(mark)
    return _report(tally, wrong, states, left, began, seconds)


@contextlib.contextmanager
def _running_gateway(folder: Path, mark: str) -> Iterator[tuple[int, str]]:
    """Starts a gateway, gives its process id and its address, and ends it."""
    words = [sys.executable, "-m", "bench.soak.unruly_server"]
    lines = ["[defaults]", f"timeout = {TIMEOUT_SECONDS}"]
    for place in range(SERVERS):
        lines += [f"[servers.unruly{place}]", f"command = {json.dumps(words[0])}", f"args = {json.dumps(words[1:])}"]
        lines += [f"cwd = {json.dumps(str(ROOT))}", f'env = {{ {_MARK} = "{mark}" }}']
    config = folder / "gateway.toml"
    config.write_text("\n".join(lines) + "\n")
    homes = {f"XDG_{name}_HOME": str(folder / name) for name in ("CONFIG", "CACHE", "STATE")}
    port = find_free_port()
    program = str(Path(sys.executable).parent / "delta-mcp")
    environment = {**os.environ, **homes, _MARK: mark}
    command = [program, "gateway", "--http", f"127.0.0.1:{port}", str(config)]
    with (folder / "stderr").open("wb") as errors:
        process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=errors, stderr=errors)
    try:
        wait_for_port(port, process)
        yield process.pid, f"http://127.0.0.1:{port}/mcp"
    finally:
        process.terminate()
        try:
            process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


async def _load(
    url: str, pid: int, mark: str, end: float, tally: Tally, wrong: Counter[str], states: list[GatewayState]
) -> None:
    callers = (_call_until(url, caller, end, tally, wrong) for caller in range(CALLERS))
    await asyncio.gather(*callers, _kill_until(pid, mark, end, tally), _watch_until(pid, end, states))


async def _call_until(url: str, caller: int, end: float, tally: Tally, wrong: Counter[str]) -> None:
    """Calls over a new connection every so often."""
    numbers = itertools.count()
    while time.monotonic() < end:
        try:
            async with connect(url, progressive=False) as client:
                for _ in range(random.randrange(5, 200)):
                    if time.monotonic() >= end:
                        return
                    await _call(client, f"{caller} {next(numbers)} {random.random()}", tally, wrong)
        except DeltaError as error:
            tally.surprise("connection", f"{type(error).__name__}: {error}")
            await asyncio.sleep(0.2)


async def _call(client: DeltaClient, value: str, tally: Tally, wrong: Counter[str]) -> None:
    """Has a server echo a value that nobody else sends, and compares."""
    [how] = random.choices(list(WAYS), list(WAYS.values()))
    arguments = {"operation": f"unruly{random.randrange(SERVERS)}.echo", "params": {"value": value, "how": how}}
    began = time.monotonic()
    try:
        reply = await client.call_tool("execute", arguments)
    except DeltaError as error:
        tally.surprise(how, f"{type(error).__name__}: {error}")
        return
    text = reply.raw["content"][0]["text"]
    if how == "at length":
        is_right = text.startswith(f"{value} {value} ") and len(text) > 1_000
    else:
        is_right = text == value and reply.is_error == (how == "as an error")
    if is_right:
        tally.count(how, "right")
        if how == "plainly":
            tally.took(time.monotonic() - began)
    elif reply.is_error and value not in text:
        tally.count(how, "failed, and said so")
    else:
        wrong[f"{how}: {value!r} was answered {text[:100]!r}"] += 1


async def _kill_until(pid: int, mark: str, end: float, tally: Tally) -> None:
    while time.monotonic() + KILL_SECONDS < end:
        await asyncio.sleep(KILL_SECONDS * (0.5 + random.random()))
        servers = [one for one in _marked(mark) if b"unruly_server" in _command(one)]
        if servers:
            with contextlib.suppress(ProcessLookupError):
                os.kill(random.choice(servers), signal.SIGKILL)
                tally.count("a server", "killed")


async def _watch_until(pid: int, end: float, states: list[GatewayState]) -> None:
    process = Path(f"/proc/{pid}")
    while time.monotonic() < end:
        pages = int((process / "statm").read_text().split()[1])
        held = len(list((process / "task").iterdir())), len(list((process / "fd").iterdir()))
        states.append(GatewayState(time.monotonic(), pages * 4096 / 1e6, *held))
        await asyncio.sleep(WATCH_SECONDS)


def _marked(mark: str) -> Iterator[int]:
    """The processes that this soak started, by their environment."""
    for place in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if f"{_MARK}={mark}\0".encode() in (place / "environ").read_bytes():
                yield int(place.name)


def _command(pid: int) -> bytes:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


def _count_left(mark: str) -> int:
    """The processes that are still there after the gateway ended; they are killed."""
    end = time.monotonic() + END_SECONDS
    while time.monotonic() < end and any(_marked(mark)):
        time.sleep(0.2)
    left = list(_marked(mark))
    for pid in left:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return len(left)


def _median_memory(states: list[GatewayState]) -> float:
    return statistics.median(state.memory_mb for state in states)


def _report(
    tally: Tally, wrong: Counter[str], states: list[GatewayState], left: int, began: float, seconds: float
) -> BenchReport:
    size = len(states) // 3
    thirds = [states[:size], states[size : 2 * size], states[2 * size :]]
    rows: list[tuple[str, list[float | None]]] = []
    for number, third in enumerate(thirds):
        since = began + number * seconds / 3
        held = (statistics.median(state.threads for state in third), max(state.descriptors for state in third))
        figures = [_median_memory(third), *held, *tally.percentiles(since, since + seconds / 3)]
        rows.append((f"third {number + 1}", [*figures]))
    columns = ["memory MB", "threads", "most descriptors", "p50 ms", "p99 ms"]
    how = f"{CALLERS} callers over {SERVERS} servers, one killed every {KILL_SECONDS:g} s; times are of plain echoes."
    outcomes: list[tuple[str, list[float | None]]] = [
        (f"{what}: {outcome}", [count]) for (what, outcome), count in sorted(tally.outcomes.items())
    ]
    notes = [f"wrong, {count} times: {what}" for what, count in wrong.most_common(10)]
    notes += [f"unexpected, {count} times: {what}" for what, count in tally.unexpected.most_common(10)]
    bound = _median_memory(thirds[1]) * MEMORY_GROWTH + MEMORY_SLACK_MB
    return BenchReport(
        [
            FigureTable(f"Soak of {seconds:g} s: gateway", how, columns, rows),
            FigureTable("Outcomes: gateway", "How calls ended, by how a server was asked.", ["times"], outcomes, notes),
        ],
        [
            at_most("gateway, memory in the last third", _median_memory(thirds[2]), bound, " MB"),
            at_most("gateway, wrong answers", sum(wrong.values()), 0),
            at_most("gateway, unexpected outcomes", sum(tally.unexpected.values()), 0),
            at_most("gateway, processes left after it", left, 0),
        ],
    )
