"""The shipped nginx passes MCP-lite on, with its events as they come."""

import sys

import httpx2
import pytest

from tests.support.nginx import nginx
from tests.support.paths import ROOT
from tests.support.processes import free_port
from tests.support.program import running_program


@pytest.fixture
def address(tmp_path):
    """nginx in front of the bookshop of the examples."""
    (tmp_path / "server").mkdir()
    port = free_port()
    served = ["serve", "examples/mcp_lite_http/server.py", "--http", f"127.0.0.1:{port}"]
    with running_program([sys.executable, "-m", "deltamcp", *served], tmp_path / "server", cwd=ROOT) as program:
        program.wait_for("Serving bookshop")
        with nginx(tmp_path, [port], free_port()) as address:
            yield address


def test_calls_and_streams_of_mcp_lite_pass_nginx(address):
    params = {"name": "review", "arguments": {"title": "The Waves"}}
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    url = f"{address}/mcp-lite/v1/calltools"
    plain = httpx2.post(url, json=call, trust_env=False)
    assert plain.json()["result"]["content"][0]["text"].startswith("The Waves is by Virginia Woolf.")
    streamed = httpx2.post(url, json=call, headers={"accept": "text/event-stream"}, trust_env=False)
    assert streamed.text.count("event: message") == 3 and streamed.text.count("event: done") == 1
    assert httpx2.get(f"{address}/mcp-lite/v1/listtools", trust_env=False).status_code == 405
