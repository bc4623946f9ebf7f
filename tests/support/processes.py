"""Free ports, and waiting until a server process answers."""

import contextlib
import random
import socket
import subprocess
import time
from typing import Any

import httpx2

from tests.support.conditions import HANG_SECONDS

PAUSE_SECONDS = 0.02
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


def wait_until_it_listens(process: "subprocess.Popen[Any]", port: int) -> None:
    """Connects to a port of this machine again and again until a server process takes it; fails where it ends."""
    until = time.monotonic() + HANG_SECONDS
    while True:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        assert process.poll() is None, "the server ended before it listened"
        assert time.monotonic() < until, "the server does not listen"
        time.sleep(PAUSE_SECONDS)


def wait_until_it_answers(process: "subprocess.Popen[Any]", url: str) -> None:
    """Asks a server process until it answers; fails where it ends or somebody else answers."""
    wait_until_it_listens(process, int(url.split(":")[2].partition("/")[0]))
    answer = httpx2.post(url, json=DISCOVER, headers=DISCOVER_HEADERS, trust_env=False, timeout=HANG_SECONDS)
    assert answer.status_code == 200, answer.text
    assert process.poll() is None, "somebody else answers at this port"
