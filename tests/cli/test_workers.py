"""`serve --workers`: several processes serve one address, share their state, and are restarted, replaced and ended."""

import asyncio
import contextlib
import os
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from deltamcp import connect
from tests.support.conditions import HANG_SECONDS, wait_until
from tests.support.paths import FORKED_PROGRAM
from tests.support.program import RunningProgram, running_program

pytestmark = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="looks for processes in /proc")

SHELF = """
import asyncio, logging, os, pathlib
from deltamcp import Context, DeltaServer, Limits, ResultPolicy

server = DeltaServer("shelf", results=ResultPolicy(max_tokens=100), limits=Limits(drain_seconds=60))

@server.tool
async def worker() -> int:
    return os.getpid()

@server.tool
async def wait(tag: str) -> int:
    pathlib.Path(f"{tag}.began").touch()
    while not pathlib.Path(f"{tag}.go").exists():
        await asyncio.sleep(0.01)
    return os.getpid()

@server.tool
async def books() -> list[int]:
    return list(range(1000))

@server.tool
async def greet(ctx: Context) -> str:
    return f"{os.getpid()} {(await ctx.elicit('Who?', str)).content}"

@server.tool
async def log(count: int, size: int) -> int:
    for number in range(count):
        logging.getLogger("mine").info("%d %d %s", os.getpid(), number, "x" * size)
    return os.getpid()
"""
REPLACED = "INFO deltamcp.workers: all workers are replaced, and those before them have ended"
STOPPED = "INFO deltamcp.workers: stopped: all workers have ended"
SERVING = r"Serving shelf at (http://127\.0\.0\.1:\d+/mcp) with 2 workers \(Ctrl-C stops\)"


class SharedServer:
    """The program, and its workers."""

    def __init__(self, program: RunningProgram, folder: Path) -> None:
        self.program = program
        self.folder = folder
        self.url = program.wait_for(SERVING)[1]

    async def post(self, **params: Any) -> Any:
        """The result of a call of `greet`, which the client makes by a connection of its own."""
        meta = {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}},
            "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "0"},
        }
        body = {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "tools/call",
            "params": {"name": "greet", "arguments": {}, "_meta": meta, **params},
        }
        headers = {"mcp-protocol-version": "2026-07-28", "mcp-method": "tools/call", "mcp-name": "greet"}
        async with httpx2.AsyncClient() as web:
            reply = await web.post(self.url, json=body, headers=headers)
        return reply.json()["result"]

    async def worker(self) -> int:
        async with connect(self.url) as client:
            found: int = await client.call("worker")
            return found

    async def workers(self, unlike: frozenset[int] = frozenset()) -> frozenset[int]:
        """The two processes that answer, once both are others than those."""
        found: set[int] = set()
        async with asyncio.timeout(HANG_SECONDS):
            while len(found) < 2:
                found |= set(await asyncio.gather(*(self.worker() for _ in range(8)))) - unlike
        return frozenset(found)

    def state_folder(self) -> Path:
        return Path(self.program.wait_for(r"a store that ends with them, in (\S+),")[1])


@contextlib.contextmanager
def shared(folder: Path, *options: str) -> Iterator[SharedServer]:
    (folder / "shelf.py").write_text(SHELF)
    command = [str(FORKED_PROGRAM), "serve", "shelf.py", "--http", "127.0.0.1:0", "--workers", "2", *options]
    with running_program(command, folder) as program:
        yield SharedServer(program, folder)


async def test_both_workers_answer_and_share_their_state(tmp_path):
    with shared(tmp_path) as server:
        assert server.program.process.pid not in await server.workers()
        state = server.state_folder()
        assert state.stat().st_mode & 0o777 == 0o700
        handles = Counter[int]()
        for _ in range(20):
            async with connect(server.url) as client:
                handles[len(await client.call("books"))] += 1
        assert handles == {1000: 20}, "every rest is found, whichever worker stored it"
        assert server.program.end() == 0
    assert not state.exists()


async def test_a_round_that_begins_in_one_worker_ends_in_the_other(tmp_path):
    (tmp_path / "keys").write_text("01" * 32)
    with shared(tmp_path, "--state-key-file", "keys", "--store", f"sqlite:///{tmp_path}/store.db") as server:
        pids = await server.workers()
        first = await server.post()
        [question] = first["inputRequests"]
        answers = {question: {"action": "accept", "content": {"value": "Ada"}}}
        greeted: set[str] = set()
        async with asyncio.timeout(HANG_SECONDS):
            while len(greeted) < 2:
                rounds = (server.post(inputResponses=answers, requestState=first["requestState"]) for _ in range(8))
                greeted |= {reply["content"][0]["text"] for reply in await asyncio.gather(*rounds)}
        assert greeted == {f"{pid} Ada" for pid in pids}
        async with connect(server.url) as client:
            assert len(await client.call("books")) == 1000
        assert "share a s" not in server.program.text(), "the operator has named both"
    assert (tmp_path / "store.db").exists()


async def test_a_worker_that_dies_is_replaced(tmp_path):
    with shared(tmp_path) as server:
        before = await server.workers()
        killed = min(before)
        os.kill(killed, signal.SIGKILL)
        server.program.wait_for(rf"worker \d \(process {killed}\) was ended by SIGKILL: another starts in 0\.5 s")
        assert len(await server.workers(frozenset({killed}))) == 2
        os.kill(max(before), signal.SIGUSR1)
        server.program.wait_for(rf"\(process {max(before)}\) was ended by SIGUSR1: another starts in 0\.5 s")


async def test_sighup_replaces_the_workers_and_loses_no_call(tmp_path):
    with shared(tmp_path) as server:
        before = await server.workers()
        async with connect(server.url) as client:
            call = asyncio.create_task(client.call("wait", tag="long"))
            await wait_until((tmp_path / "long.began").exists)
            done = asyncio.Event()

            async def call_on() -> int:
                count = 0
                while not done.is_set():
                    await server.worker()
                    count += 1
                    await asyncio.sleep(0.02)
                return count

            calls = [asyncio.create_task(call_on()) for _ in range(3)]
            server.program.process.send_signal(signal.SIGHUP)
            await server.workers(before)
            done.set()
            assert all(await asyncio.gather(*calls)), "no call failed"
            assert REPLACED not in server.program.text()
            (tmp_path / "long.go").touch()
            assert await call in before, "a call in progress ends in the worker that began it"
        server.program.wait_for(REPLACED)
        assert server.program.end() == 0
    assert server.program.text().count(REPLACED) == server.program.text().count(STOPPED) == 1


async def test_workers_that_cannot_be_replaced_go_on(tmp_path):
    with shared(tmp_path) as server:
        before = await server.workers()
        (tmp_path / "shelf.py").write_text("raise RuntimeError('not today')")
        server.program.process.send_signal(signal.SIGHUP)
        server.program.wait_for(r"ended with exit code \d before it served: the workers are not replaced")
        assert "RuntimeError: not today" in server.program.text()
        assert await server.workers() == before
        assert server.program.end() == 0
    assert REPLACED not in server.program.text()


async def test_calls_in_progress_finish_before_it_ends(tmp_path):
    with shared(tmp_path) as server:
        async with connect(server.url) as client:
            call = asyncio.create_task(client.call("wait", tag="last"))
            await wait_until((tmp_path / "last.began").exists)
            server.program.process.send_signal(signal.SIGTERM)
            (tmp_path / "last.go").touch()
            assert isinstance(await call, int)
        assert server.program.process.wait(HANG_SECONDS) == 0


async def test_a_second_signal_kills(tmp_path):
    with shared(tmp_path) as server:
        async with connect(server.url) as client:
            call = asyncio.create_task(client.call("wait", tag="never"))
            await wait_until((tmp_path / "never.began").exists)
            server.program.process.send_signal(signal.SIGTERM)
            await asyncio.sleep(0.1)
            server.program.process.send_signal(signal.SIGINT)
            assert await asyncio.to_thread(server.program.process.wait, HANG_SECONDS) == 0
            with pytest.raises(Exception, match=r"."):
                await call


async def test_the_workers_end_when_what_started_them_is_killed(tmp_path):
    with shared(tmp_path) as server:
        await server.workers()
        state = server.state_folder()
        server.program.end(signal.SIGKILL)
        await wait_until(lambda: not state.exists())


@pytest.mark.parametrize(
    ("text", "code", "sentence"),
    [
        ("word = missing", 2, "delta-mcp: shelf.py cannot be imported: NameError: name 'missing' is not defined"),
        (SHELF.replace('("shelf",', '("shelf", lifespan=lambda server: 1 / 0,'), 1, "delta-mcp: shelf.py failed with"),
        (f"{SHELF}\napp = server.asgi()", 2, "delta-mcp: The server has a transport already: set DeltaServer("),
    ],
)
def test_a_server_that_cannot_start_is_told_once(tmp_path, text, code, sentence):
    (tmp_path / "shelf.py").write_text(text)
    done = run(tmp_path, "--http", "127.0.0.1:0", "--workers", "2")
    assert done.returncode == code
    assert done.stderr.count(sentence) == 1, done.stderr


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--workers", "2"], "--workers needs --http HOST:PORT: over stdio a server has one client."),
        (["--grpc", ":0", "--workers", "2"], "--workers needs --http HOST:PORT beside --grpc."),
        (["--http", ":0", "--workers", "0"], "--workers takes a number from 1, not 0."),
        (
            ["--http", ":0", "--workers", "2", "--reload"],
            "--workers and --reload exclude each other: leave out --workers while you develop.",
        ),
        (
            ["--http", ":0", "--workers", "2", "--store", "memory://"],
            "--workers needs a store that processes share: leave out --store memory://.",
        ),
    ],
)
def test_what_does_not_go_together_is_told_in_one_sentence(tmp_path, options, sentence):
    (tmp_path / "shelf.py").write_text(SHELF)
    done = run(tmp_path, *options)
    assert (done.returncode, done.stderr) == (2, f"delta-mcp: {sentence}\n")


def run(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [str(FORKED_PROGRAM), "serve", "shelf.py", *options]
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, timeout=HANG_SECONDS, check=False)


async def test_metrics_are_those_of_all_workers_also_of_one_that_has_ended(tmp_path):
    with shared(tmp_path, "--metrics", "127.0.0.1:0") as server:
        page = server.program.wait_for(r"Metrics at (http://127\.0\.0\.1:\d+/metrics)")[1]

        async def read(name: str) -> set[float]:
            """What several scrapes say, each by a connection of its own."""
            found = set()
            for _ in range(6):
                async with httpx2.AsyncClient() as web:
                    text = (await web.get(page)).text
                found.add(sum(float(line.split()[-1]) for line in text.splitlines() if line.startswith(name)))
            return found

        async def wait_for(name: str, value: float) -> None:
            async with asyncio.timeout(HANG_SECONDS):
                while await read(name) != {value}:  # noqa: ASYNC110 - another process changes it
                    await asyncio.sleep(0.05)

        pids = await server.workers()
        async with connect(server.url) as client:
            for _ in range(10):
                await client.call("books")
        await wait_for('delta_mcp_calls_total{operation="books",outcome="done"}', 10)
        await wait_for("delta_mcp_processes ", 2)
        os.kill(min(pids), signal.SIGKILL)
        os.kill(max(pids), signal.SIGKILL)
        await server.workers(pids)
        await wait_for("delta_mcp_processes ", 2)
        assert await read('delta_mcp_calls_total{operation="books",outcome="done"}') == {10}


async def test_a_log_file_of_all_workers_has_every_line(tmp_path):
    with shared(tmp_path, "--log-file", "shelf.log") as server:
        pids = await server.workers()
        written: Counter[int] = Counter()
        sizes = (10, 9000, 100_000)

        async def write(size: int) -> tuple[int, int]:
            async with connect(server.url) as client:
                return await client.call("log", count=20, size=size), size

        for pid, _ in await asyncio.gather(*(write(size) for size in sizes * 6)):
            written[pid] += 20
        lines = [
            line.split("INFO mine: ")[1] for line in (tmp_path / "shelf.log").read_text().splitlines() if "mine" in line
        ]
    found = Counter(int(line.split(" ")[0]) for line in lines)
    assert found == written and set(found) <= pids
    assert {len(line.split(" ")[2]) for line in lines} == set(sizes), "no line is cut or mixed with another"
