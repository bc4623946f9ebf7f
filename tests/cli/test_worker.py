"""`delta-mcp worker` and `serve --no-worker`: what they refuse, and that the worker runs what the server queues."""

import os
import signal
import subprocess
from pathlib import Path

import httpx2
import pytest

from tests.support.conditions import HANG_SECONDS
from tests.support.paths import PROGRAM
from tests.support.processes import free_port, wait_until_it_listens
from tests.support.redis_server import redis_server

SERVER = """
import os

from deltamcp import DeltaServer

server = DeltaServer("offices")


@server.tool(promise="auto", sync_seconds=60)
async def process_id() -> int:
    "The process that runs this."
    return os.getpid()
"""


@pytest.fixture
def server_file(tmp_path: Path) -> Path:
    path = tmp_path / "offices.py"
    path.write_text(SERVER)
    return path


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["worker"], "A worker needs the store in Redis"),
        (["worker", "--store", "memory://"], "A worker needs the store in Redis"),
        (["worker", "--concurrency", "0"], "--concurrency takes a number from 1, not 0."),
        (["serve", "--no-worker", "--http", "127.0.0.1:0"], "Without a worker of its own the server needs a store"),
    ],
)
def test_what_cannot_reach_a_queue_is_refused_with_one_sentence(words, sentence, server_file):
    command = [str(PROGRAM), words[0], str(server_file), *words[1:]]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=HANG_SECONDS)
    assert ended.returncode == 2
    assert ended.stderr.startswith(f"delta-mcp: {sentence}") and ended.stderr.count("\n") == 1


def test_a_worker_runs_what_a_server_without_one_queues(server_file, tmp_path):
    store, port = free_port(), free_port()
    (tmp_path / "redis").mkdir()
    options = [str(server_file), "--store", f"redis://127.0.0.1:{store}/0"]
    with redis_server(store, tmp_path / "redis"):
        serve = [str(PROGRAM), "serve", *options, "--http", f"127.0.0.1:{port}", "--no-worker"]
        worker = [str(PROGRAM), "worker", *options, "--log-format", "json"]
        with (
            subprocess.Popen(serve, stderr=subprocess.PIPE, text=True) as server,
            subprocess.Popen(worker, stderr=subprocess.PIPE, text=True) as running,
        ):
            try:
                wait_until_it_listens(server, port)
                call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "process_id"}}
                url = f"http://127.0.0.1:{port}/mcp-lite/v1/calltools"
                reply = httpx2.post(url, json=call, trust_env=False, timeout=HANG_SECONDS).json()
            finally:
                for process in (server, running):
                    process.send_signal(signal.SIGTERM)
            logs = [process.communicate(timeout=HANG_SECONDS)[1] for process in (server, running)]
        assert reply["result"]["content"][0]["text"] == str(running.pid) != str(os.getpid())
        assert (server.returncode, running.returncode) == (0, 0), logs
        assert '"message":"Running the promises of offices (Ctrl-C stops)"' in logs[1].replace('": "', '":"')
