"""What the dashboard costs a gateway's calls while somebody looks, and how soon its pages are there when there is much.

Two gateways run at once and are loaded in turn; one shows its live page of calls in Chromium. What looking adds is the
difference inside a round, of the gateway's CPU time for each call at 500 calls a second, and of its memory after 10,000
calls. The pages are shown of 40 servers with 2,500 tools in all, after 10,000 calls.
"""

import asyncio
import contextlib
import http.client
import json
import math
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, cast

from bench import messages, report
from bench.dashboard_process import DashboardProcess, dashboard_process
from bench.hostile.attacked_server import MEGABYTE, resident_bytes
from bench.options import BenchOptions
from bench.peers import ROOT
from bench.report import BenchReport, FigureTable
from deltamcp.values import Era
from tests.support import chromium as chromium_program
from tests.support.chromium import Page, Screen, chromium

SERVERS, TOOLS, CALLS = 40, 2_500, 10_000
_RATE = 500
"""Calls a second, of each load."""
_WARMING = 300
_MAX_ADDED_US, _MAX_ADDED_MB, _MAX_PAINT_MS, _MAX_TASK_MS = 20, 10, 1_000, 200
_PAGES = ("home", "servers", "model", "model?query=cancel an order", "model/tools", "calls", "review")
_SCROLLED = ("calls", "model/tools")
_VERBS = ("list", "find", "cancel", "send", "count")
_SCREENS = 40
"""How often a list is scrolled down by a screen, and then to its end."""
_WATCH = """
(() => {
  window.longTasks = [];
  new PerformanceObserver((list) => window.longTasks.push(...list.getEntries().map((one) => one.duration)))
    .observe({ type: "longtask", buffered: true });
})()"""
_HOLD = "setTimeout(() => { const until = performance.now() + 120; while (performance.now() < until); }, 0)"
_PAINTED = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? 0"


class Cost(NamedTuple):
    """What looking adds, in one round."""

    cpu_us: float
    megabytes: float


def measure(options: BenchOptions) -> BenchReport:
    if chromium_program.COMMAND is None:
        return BenchReport([FigureTable("The dashboard", "Not measured: there is no Chromium.", [], [])], [])
    costs, plain = asyncio.run(_measure_cost(options))
    pages = _measure_pages()
    added_us, added_mb = (statistics.median(getattr(one, name) for one in costs) for name in Cost._fields)
    cost_table = FigureTable(
        "The dashboard, open at the page of calls",
        f"{_RATE} calls a second through a gateway to a Python server over stdio; {CALLS:,} calls in all.",
        ["CPU µs/call", "added µs", "added MB"],
        [("without", [plain, None, None]), ("open", [plain + added_us, added_us, added_mb])],
    )
    page_table = FigureTable(
        f"Pages of {SERVERS} servers, {TOOLS:,} tools and {CALLS:,} calls",
        f"In Chromium on loopback; the longest task is that while the list is scrolled down {2 * _SCREENS} times.",
        ["first paint ms", "longest task ms", "rows"],
        pages,
    )
    tasks = [task for _, (_, task, _) in pages if task is not None]
    verdicts = [
        report.at_most("looking adds to a call", added_us, _MAX_ADDED_US, " µs"),
        report.at_most("looking adds to the gateway", added_mb, _MAX_ADDED_MB, " MB"),
        report.at_most("first paint", max(paint or 0 for _, (paint, *_) in pages), _MAX_PAINT_MS, " ms"),
        report.at_most("the longest task while scrolling", max(tasks), _MAX_TASK_MS, " ms"),
    ]
    return BenchReport([cost_table, page_table], verdicts)


# What looking costs


@contextlib.contextmanager
def _gateway(folder: Path, has_pages: bool) -> Iterator[DashboardProcess]:
    folder.mkdir()
    config = folder / "gateway.toml"
    python = f'command = "{sys.executable}"\nargs = ["-m", "bench.servers.ours", "stdio", "add"]\ncwd = "{ROOT}"\n'
    config.write_text(f"[servers.sums]\n{python}")
    with dashboard_process(folder, [str(config), "--disclosure", "full"], has_pages) as process:
        process.await_(lambda: _is_ready(process))
        yield process


def _is_ready(process: DashboardProcess) -> bool:
    with contextlib.suppress(OSError):
        return messages.call_text(process.call("add", {"a": 2, "b": 3})) == "5"
    return False


def _load(
    process: DashboardProcess,
    count: int,
    name: str = "add",
    arguments: dict[str, Any] | None = None,
    rate: float = math.inf,
) -> float:
    """Makes calls one after the other, at a rate if there is one; returns the gateway's CPU time of each, in µs."""
    connection = http.client.HTTPConnection("127.0.0.1", process.mcp_port, timeout=20)
    headers, body = messages.headers(Era.MODERN, "tools/call", name), messages.call(Era.MODERN, name, arguments)
    before, began = process.cpu_seconds(), time.perf_counter()
    for number in range(count):
        connection.request("POST", "/mcp", body, headers)
        connection.getresponse().read()
        time.sleep(max(0.0, began + (number + 1) / rate - time.perf_counter()))
    used = process.cpu_seconds() - before
    connection.close()
    return used / count * 1e6


async def _measure_cost(options: BenchOptions) -> tuple[list[Cost], float]:
    with tempfile.TemporaryDirectory() as place, contextlib.ExitStack() as stack:
        plain = stack.enter_context(_gateway(Path(place) / "plain", has_pages=False))
        shown = stack.enter_context(_gateway(Path(place) / "shown", has_pages=True))
        async with chromium() as browser:
            page = await browser.open_page()
            await page.visit(f"{shown.origin}/login?code={shown.await_code()}")
            await page.visit(f"{shown.origin}/{shown.id}/calls")
            for one in (plain, shown):
                await asyncio.to_thread(_load, one, _WARMING)
            rounds = 10 * options.rounds
            count = CALLS // rounds
            used, memory = [], []
            for _ in range(rounds):
                used.append([await asyncio.to_thread(_load, one, count, rate=_RATE) for one in (plain, shown)])
                memory.append([resident_bytes(one.process.pid) for one in (plain, shown)])
            await page.visit("about:blank")
    costs = [Cost(after - before, (memory[-1][1] - memory[-1][0]) / MEGABYTE) for before, after in used]
    return costs, statistics.median(before for before, _ in used)


# Pages of much


@contextlib.contextmanager
def _large_gateway(folder: Path) -> Iterator[DashboardProcess]:
    entries = []
    for number in range(SERVERS):
        file = folder / f"server{number:02}.json"
        tools = [
            {
                "name": f"{_VERBS[place % len(_VERBS)]}_orders_{place}",
                "description": f"{_VERBS[place % len(_VERBS)].title()} the orders of customer {place}.",
                "inputSchema": {"type": "object", "properties": {"since": {"type": "string", "format": "date"}}},
            }
            for place in range(number, TOOLS, SERVERS)
        ]
        file.write_text(json.dumps({"tools": tools}))
        words = json.dumps([str(ROOT / "tests" / "support" / "listing_server.py"), str(file)])
        entries.append(f"[servers.{file.stem}]\ncommand = {json.dumps(sys.executable)}\nargs = {words}\n")
    config = folder / "gateway.toml"
    config.write_text("".join(entries))
    with dashboard_process(folder, [str(config), "--disclosure", "meta"]) as process:
        process.await_tools()
        yield process


def _measure_pages() -> list[tuple[str, list[float | None]]]:
    with tempfile.TemporaryDirectory() as place, _large_gateway(Path(place)) as gateway:
        called = {"operation": gateway.ask("tools", limit=1)["tools"][0]["id"], "params": {}}
        _load(gateway, CALLS, "execute", called)
        return asyncio.run(_show_pages(gateway))


async def _show_pages(gateway: DashboardProcess) -> list[tuple[str, list[float | None]]]:
    async with chromium() as browser:
        page = await browser.open_page()
        await page.show_on(Screen(1400))
        await page.visit(f"{gateway.origin}/login?code={gateway.await_code()}")
        found: list[tuple[str, list[float | None]]] = []
        for path in _PAGES:
            await page.visit(f"{gateway.origin}/{gateway.id}/{path}")
            await page.wait_for(_PAINTED)
            paint = await page.run(_PAINTED)
            found.append((path, [paint, *(await _scroll(page) if path in _SCROLLED else (None, None))]))
        await page.visit("about:blank")
        return found


async def _scroll(page: Page) -> tuple[float, int]:
    """Scrolls down a list as it grows; returns the longest task meanwhile, in ms, and the rows that it then has."""
    await page.run(_WATCH)
    for _ in range(_SCREENS):
        await page.run("scrollBy(0, innerHeight)")
        await asyncio.sleep(0.05)
    for _ in range(_SCREENS):
        await page.run("scrollTo(0, document.body.scrollHeight)")
        await asyncio.sleep(0.05)
    longest = cast(float, await page.run("Math.max(0, ...window.longTasks)"))
    await page.run(_HOLD)
    await page.wait_for("window.longTasks.some((one) => one >= 100)")  # or nothing was watched
    return longest, await page.count("tbody tr")
