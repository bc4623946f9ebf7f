"""Free ports, and waiting until a server process answers."""

import contextlib
import random
import socket
import subprocess

import httpx2
import pytest

START_ATTEMPTS = 2_000
START_PAUSE_SECONDS = 0.05
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


def wait_until_it_answers(process: "subprocess.Popen[str]", url: str) -> None:
    """Asks a server process again and again until it answers; fails where it ends or somebody else answers."""
    for _ in range(START_ATTEMPTS):
        try:
            answer = httpx2.post(url, json=DISCOVER, headers=DISCOVER_HEADERS, trust_env=False)
        except httpx2.ConnectError:
            try:
                code = process.wait(START_PAUSE_SECONDS)
            except subprocess.TimeoutExpired:
                continue
            pytest.fail(f"the server ended with {code} before it answered")
        assert answer.status_code == 200, answer.text
        assert process.poll() is None, "somebody else answers at this port"
        return
    pytest.fail("the server does not answer")
