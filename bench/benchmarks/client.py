"""What a call costs its caller: CPU time of `DeltaClient` beside a raw socket, a raw pipe and the official client.

All callers are in this process and take turns inside every round; the server is one process for all. The raw ones
send the same bytes every time and read no JSON: the least there can be on asyncio, and below it a blocking socket.
"""

import asyncio
import contextlib
import random
import socket
import statistics
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable

from bench import messages, report
from bench.options import BenchOptions
from bench.peers import OURS, ROOT
from bench.report import BenchReport, FigureTable
from bench.server_process import HttpServerProcess
from deltamcp import connect
from deltamcp.values import Era

CALLS = 500
ROUNDS = 7
AT_ONCE = 1_000
TARGET_US = 150

Call = Callable[[], Awaitable[object]]
STDIO = [sys.executable, "-m", "bench.servers.ours", "stdio", "add"]


def measure(options: BenchOptions) -> BenchReport:
    with HttpServerProcess(OURS, "add") as process:
        over_http = asyncio.run(_measure_http(process.port, with_official="sdk" in options.peers.names))
    over_stdio = asyncio.run(_measure_stdio())
    tables = [_table("HTTP", over_http), _table("stdio", over_stdio)]
    verdicts = [
        report.at_most(f"DeltaClient over {raw}, CPU of a call", _added_by_client(times, raw), TARGET_US, " µs")
        for times, raws in ((over_http, ("raw asyncio socket", "raw blocking socket")), (over_stdio, ("raw pipe",)))
        for raw in raws
    ]
    return BenchReport(tables, verdicts)


async def _measure_http(port: int, with_official: bool) -> dict[str, list[float]]:
    url = f"http://127.0.0.1:{port}/mcp"
    body = messages.call(Era.MODERN)
    named = {"Host": f"127.0.0.1:{port}", **messages.headers(Era.MODERN, "tools/call", "add")}
    lines = "".join(f"{name}: {value}\r\n" for name, value in named.items())
    request = f"POST /mcp HTTP/1.1\r\n{lines}Content-Length: {len(body)}\r\n\r\n".encode() + body
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    blocking = socket.create_connection(("127.0.0.1", port))

    async def call_over_streams() -> None:
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        await reader.readexactly(_content_length(head))

    async def call_over_socket() -> None:
        blocking.sendall(request)
        got = blocking.recv(65536)
        head, _, rest = got.partition(b"\r\n\r\n")
        while len(rest) < _content_length(head):
            rest += blocking.recv(65536)

    async with contextlib.AsyncExitStack() as stack:
        ours = await stack.enter_async_context(connect(url))
        callers: dict[str, Call] = {
            "raw blocking socket": call_over_socket,
            "raw asyncio socket": call_over_streams,
            "DeltaClient": lambda: ours.call("add", a=2, b=3),
        }
        if with_official:
            callers["official client"] = await stack.enter_async_context(_connect_official(url))
        times = await _measure_rounds(callers)
        await _measure_at_once(callers["DeltaClient"], times)
    writer.close()
    blocking.close()
    return times


async def _measure_stdio() -> dict[str, list[float]]:
    line = messages.call(Era.MODERN) + b"\n"
    pipe = asyncio.subprocess.PIPE
    child = await asyncio.create_subprocess_exec(*STDIO, stdin=pipe, stdout=pipe, cwd=ROOT)
    assert child.stdin is not None and child.stdout is not None, "pipes were asked for"
    into, out = child.stdin, child.stdout

    async def call_over_pipe() -> None:
        into.write(line)
        await out.readline()

    async with connect({"command": STDIO[0], "args": STDIO[1:], "cwd": str(ROOT)}) as ours:
        times = await _measure_rounds({"raw pipe": call_over_pipe, "DeltaClient": lambda: ours.call("add", a=2, b=3)})
        await _measure_at_once(lambda: ours.call("add", a=2, b=3), times)
    into.close()
    await child.wait()
    return times


@contextlib.asynccontextmanager
async def _connect_official(url: str) -> AsyncIterator[Call]:
    from mcp import Client

    async with Client(url) as client:
        yield lambda: client.call_tool("add", {"a": 2, "b": 3})


async def _measure_rounds(callers: dict[str, Call]) -> dict[str, list[float]]:
    """Microseconds of CPU a call, by caller and round."""
    times: dict[str, list[float]] = {name: [] for name in callers}
    for name in callers:
        await _cpu_microseconds(callers[name], CALLS // 5)
    for _ in range(ROUNDS):
        for name in random.sample(list(callers), len(callers)):
            times[name].append(await _cpu_microseconds(callers[name], CALLS))
    return times


async def _cpu_microseconds(call: Call, calls: int) -> float:
    began = time.process_time()
    for _ in range(calls):
        await call()
    return (time.process_time() - began) / calls * 1e6


async def _measure_at_once(call: Call, times: dict[str, list[float]]) -> None:
    began = time.process_time()
    results = await asyncio.gather(*(call() for _ in range(AT_ONCE)))
    if results != [5] * AT_ONCE:
        raise RuntimeError("of calls at once one was answered wrongly")
    times[f"DeltaClient, {AT_ONCE:,} at once"] = [(time.process_time() - began) / AT_ONCE * 1e6]


def _added_by_client(times: dict[str, list[float]], raw: str) -> float:
    return statistics.median(ours - least for ours, least in zip(times["DeltaClient"], times[raw], strict=True))


def _table(transport: str, times: dict[str, list[float]]) -> FigureTable:
    rows: list[tuple[str, list[float | None]]] = [
        (name, [statistics.median(spent), min(spent)]) for name, spent in times.items()
    ]
    how = f"tools/call of add(a, b), one at a time, {CALLS} calls a round, {ROUNDS} rounds; CPU of the calling process."
    return FigureTable(f"A call from its caller's side, {transport}", how, ["median µs", "least µs"], rows)


def _content_length(head: bytes) -> int:
    return int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
