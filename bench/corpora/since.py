"""The since benchmark: what the states of a changing result cost a model behind two replicas of one gateway.

Each state is asked for at another replica than the one before, with the handle of the one before as `since`.
"""

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any, Literal, TypeAlias

from bench.corpora.series import Series, read
from bench.peers import ROOT
from bench.ports import find_free_port, wait_for_port
from deltamcp import DeltaClient, apply_delta, tokens
from deltamcp.client.reply import Reply
from deltamcp.costs.audit import Figures, align
from deltamcp.deltas.root import root_of
from deltamcp.values import JSON

Progress: TypeAlias = Callable[[str], None]
Era: TypeAlias = Literal["handshake", "modern"]

METHOD = (
    "Tokens of o200k_base. A step is a state after the first of its series. Full: the text, or compact JSON. Sent: all "
    "texts of the reply, with notes, handles and legends. Whole: a result that is not sent as changes is shown to its "
    "end. Previews: the gateway's default, by which a result of more than 500 tokens is shown in part, and the rest, "
    "which a model may read, is not counted. Asking: what `since` and the handle add to the request. "
    "Reconstructed: who applies the texts of the replies to what it has gets the state back."
)
ERAS: tuple[Era, ...] = ("handshake", "modern")
FORMS = {"whole": "[results]\nmax_tokens = 100000\npreview_above = 0\n", "previews": ""}
"""What the configuration of the gateway says of results; nothing is its default."""
REPLICAS = 2
_UPSTREAM = ROOT / "bench" / "servers" / "series.py"
_CONFIGURATION = """\
keep_shapes = false
{results}
[servers.series]
command = {command}
args = {args}
cwd = {cwd}
"""
READY_SECONDS = 60.0


def run(data: Path, progress: Progress = lambda _: None) -> Figures:
    """Measures the series of `data/evolving`, or of `data`, in both eras, with whole results and with previews."""
    all_series, passed_over = read(data / "evolving" if (data / "evolving").is_dir() else data)
    figures: list[Figures] = []
    for form, results in FORMS.items():
        for era in ERAS:
            progress(f"{form}, {era}")
            rows = asyncio.run(_measure(all_series, era, results))
            figures.append({"form": form, "era": era, "series": rows, "summary": _summary(rows)})
    return {"figures": figures, "passed_over": passed_over, "method": METHOD}


async def _measure(all_series: list[Series], era: Era, results: str) -> list[Figures]:
    with tempfile.TemporaryDirectory(prefix="since-") as name:
        folder = Path(name).resolve()
        async with _replicas(folder, all_series, era, results) as clients:
            return [await _measure_series(number, one, clients) for number, one in enumerate(all_series)]


@contextlib.asynccontextmanager
async def _replicas(folder: Path, all_series: list[Series], era: Era, results: str) -> AsyncIterator[list[DeltaClient]]:
    """Clients of the replicas of one gateway, which share a store; the server behind them goes through the states."""
    states = folder / "states.json"
    states.write_text(json.dumps([[[one.call, _sent(one.value)] for one in each.states] for each in all_series]))
    configuration = folder / "gateway.toml"
    arguments = [str(_UPSTREAM), str(states), str(folder / "counts")]
    configuration.write_text(
        _CONFIGURATION.format(
            results=results, command=json.dumps(sys.executable), args=json.dumps(arguments), cwd=json.dumps(str(ROOT))
        )
    )
    store = f"sqlite:///{folder / 'store.db'}"
    async with contextlib.AsyncExitStack() as stack:
        ports = stack.enter_context(_gateways(configuration, store, folder))
        clients = [DeltaClient(f"http://127.0.0.1:{port}/mcp", speak=era, progressive=False) for port in ports]
        for client in clients:
            await stack.enter_async_context(client)
            async with asyncio.timeout(READY_SECONDS):
                while (await client.call_tool("get_schema", {"operation": ["series.next_state"]})).is_error:  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
        yield clients


@contextlib.contextmanager
def _gateways(configuration: Path, store: str, folder: Path) -> Iterator[list[int]]:
    """The ports of the replicas."""
    ports, processes = [find_free_port() for _ in range(REPLICAS)], []
    try:
        for port in ports:
            homes = {
                f"XDG_{purpose}_HOME": str(folder / str(port) / purpose) for purpose in ("CONFIG", "CACHE", "STATE")
            }
            command = [str(Path(sys.executable).parent / "delta-mcp"), "gateway", str(configuration), "--no-ledger"]
            command += ["--http", f"127.0.0.1:{port}", "--store", store]
            streams: Any = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
            processes.append(subprocess.Popen(command, env={**os.environ, **homes}, **streams))
        for port, process in zip(ports, processes, strict=True):
            wait_for_port(port, process)
        yield ports
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait()


def _sent(value: JSON) -> str:
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"), ensure_ascii=False)


async def _measure_series(number: int, series: Series, clients: list[DeltaClient]) -> Figures:
    held: dict[str, JSON] = {}
    handles: dict[str, str] = {}
    steps: list[Figures] = []
    for at, state in enumerate(series.states):
        client, since = clients[at % len(clients)], handles.get(state.call, "")
        params = {"operation": "series.next_state", "params": {"series": number, "call": state.call}}
        reply = await client.call_tool("query", {**params, "since": since})
        value = await _read(reply, client, held.get(since))
        handle = reply.handle or since
        held[handle], handles[state.call] = state.value, handle
        if at:
            asked = tokens.count(json.dumps({"since": since}, separators=(",", ":"))) if since else 0
            steps.append(
                {
                    "outcome": str(reply.delta_meta.get("outcome", "full")),
                    "full": tokens.count(_sent(state.value)),
                    "sent": tokens.count("\n".join(reply.texts)),
                    "asking": asked,
                    "reconstructed": root_of(value) == root_of(state.value),
                }
            )
    return {"name": series.name, "steps": steps, **_sums(steps)}


async def _read(reply: Reply, client: DeltaClient, base: JSON) -> JSON:
    """The state, by the texts of a reply, and by what its reader has."""
    match reply.delta_meta.get("outcome"):
        case "unchanged":
            return base
        case "delta":
            lengths: Any = reply.delta_meta.get("lengths", [None])
            return apply_delta(base, reply.texts[0][: lengths[0]].partition("\n")[2])
        case _:
            return await client.whole(reply)


def _sums(steps: list[Figures]) -> Figures:
    totals = {name: sum(step[name] for step in steps) for name in ("full", "sent", "asking")}
    return {
        **totals,
        "ratio_to_full": round(totals["sent"] / totals["full"], 4) if totals["full"] else 1.0,
        "above_full": sum(step["sent"] > step["full"] for step in steps),
        "not_reconstructed": sum(not step["reconstructed"] for step in steps),
    }


def _summary(rows: list[Figures]) -> Figures:
    return {"series": len(rows), **_sums([step for row in rows for step in row["steps"]])}


def table(report: Figures) -> str:
    """Formats a report for people."""
    head = ("results", "era", "series", "steps", "full", "sent", "of full", "above full", "lost", "asking")
    lines = [head]
    for figures in report["figures"]:
        for row in (*figures["series"], {**figures["summary"], "name": "all"}):
            steps = len(row["steps"]) if "steps" in row else sum(len(one["steps"]) for one in figures["series"])
            counts = [f"{row[name]:,}" for name in ("full", "sent")]
            bounds = [str(row[name]) for name in ("above_full", "not_reconstructed")]
            share = f"{row['ratio_to_full']:.3f}"
            cells = (str(steps), *counts, share, *bounds, f"{row['asking']:,}")
            lines.append((figures["form"], figures["era"], row["name"], *cells))
    return "\n".join([*align(lines, left=(0, 1, 2)), "", report["method"]])
