"""Server processes: free ports, starting them, and waiting until they answer."""

import contextlib
import random
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from typing import Protocol

import httpx2

from tests.support.conditions import HANG_SECONDS

PAUSE_SECONDS = 0.02
STOP_SECONDS = 60
CHANCE = random.SystemRandom()

DISCOVER = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "server/discover",
    "params": {
        "_meta": {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
        }
    },
}
DISCOVER_HEADERS = {
    "accept": "application/json, text/event-stream",
    "mcp-protocol-version": "2026-07-28",
    "mcp-method": "server/discover",
}


def free_port() -> int:
    """A TCP port that nobody listens on, below those that Linux gives to clients (`ip_local_port_range`).

    Test processes that run side by side draw at random, so that they do not meet.
    """
    while True:
        port = CHANCE.randrange(10_000, 32_000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


class Process(Protocol):
    """A process that a test has started."""

    def poll(self) -> int | None:
        """Returns its exit code, or None while it runs."""


def wait_until_it_listens(process: Process, port: int) -> None:
    """Connects to a port of this machine again and again until a server process takes it; fails where it ends."""
    until = time.monotonic() + HANG_SECONDS
    while True:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        assert process.poll() is None, "the server ended before it listened"
        assert time.monotonic() < until, "the server does not listen"
        time.sleep(PAUSE_SECONDS)


def wait_until_it_answers(process: Process, url: str) -> None:
    """Asks a server process until it answers; fails where it ends or somebody else answers."""
    wait_until_it_listens(process, int(url.split(":")[2].partition("/")[0]))
    answer = httpx2.post(url, json=DISCOVER, headers=DISCOVER_HEADERS, trust_env=False, timeout=HANG_SECONDS)
    assert answer.status_code == 200, answer.text
    assert process.poll() is None, "somebody else answers at this port"


@contextlib.contextmanager
def served_command(command: Sequence[str]) -> Iterator[str]:
    """The address of a server over HTTP while a `serve` command runs, which must end well on SIGTERM."""
    port = free_port()
    url = f"http://127.0.0.1:{port}/mcp"
    with tempfile.TemporaryFile("w+") as log:
        with subprocess.Popen([*command, "--http", f"127.0.0.1:{port}"], stderr=log, text=True) as process:
            try:
                wait_until_it_answers(process, url)
                yield url
            finally:
                process.terminate()
                try:
                    code = process.wait(STOP_SECONDS)
                except subprocess.TimeoutExpired:
                    process.kill()
                    raise
        log.seek(0)
        assert code == 0, f"the server ended with {code} on SIGTERM:\n{log.read()}"
