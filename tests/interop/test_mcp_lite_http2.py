"""MCP-lite over HTTP/1.1, and over HTTP/2 through a proxy, with a client and a proxy that are not ours."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from bench.hostile.stores import SkippedError
from bench.replicas.nginx import nginx_command
from tests.support.conditions import HANG_SECONDS
from tests.support.paths import ROOT
from tests.support.processes import free_port
from tests.support.program import running_program

WORDS = {"name": "search_books", "arguments": {"words": "woolf"}}
CALL = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": WORDS})
SERVER = "examples/mcp_lite_http/server.py"


@pytest.fixture
def port(tmp_path):
    """Where a server listens, without a proxy."""
    (tmp_path / "server").mkdir()
    port = free_port()
    command = [sys.executable, "-m", "deltamcp", "serve", SERVER, "--http", f"127.0.0.1:{port}"]
    with running_program(command, tmp_path / "server", cwd=ROOT) as program:
        program.wait_for("Serving bookshop")
        yield port


def post(port: int, *options: str) -> tuple[str, str, str]:
    """Posts a call by curl; returns the version of HTTP, the status and the body."""
    curl = shutil.which("curl")
    if curl is None:
        pytest.skip("there is no curl on PATH")
    url = f"http://127.0.0.1:{port}/mcp-lite/v1/calltools"
    words = [
        *options,
        "-sS",
        "-w",
        "\n%{http_version} %{http_code}",
        "-H",
        "content-type: application/json",
        "-d",
        CALL,
    ]
    ran = subprocess.run([curl, *words, url], capture_output=True, text=True, timeout=HANG_SECONDS)
    assert ran.returncode == 0, ran.stderr
    body, _, told = ran.stdout.rpartition("\n")
    version, status = told.split()
    return version, status, body


def test_ml_70_http_1_1(port):
    version, status, body = post(port, "--http1.1")
    assert (version, status) == ("1.1", "200")
    assert "The Waves" in json.loads(body)["result"]["content"][0]["text"]


def test_ml_70_http_2_through_nginx(port, tmp_path):
    front = free_port()
    try:
        command = nginx_command(tmp_path, front, [port])
    except SkippedError as skipped:
        pytest.skip(str(skipped))
    configuration = tmp_path / "nginx.conf"
    text = configuration.read_text()
    assert text.count(f"listen 127.0.0.1:{front};") == 1
    configuration.write_text(text.replace(f"listen 127.0.0.1:{front};", f"listen 127.0.0.1:{front} http2;"))
    (tmp_path / "nginx").mkdir()
    with running_program(command, Path(tmp_path / "nginx")):
        version, status, body = post(
            front, "--http2-prior-knowledge", "--retry", "50", "--retry-connrefused", "--retry-delay", "0"
        )
    assert (version, status) == ("2", "200")
    assert "The Waves" in json.loads(body)["result"]["content"][0]["text"]
