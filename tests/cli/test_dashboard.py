"""`delta-mcp status`, `logs`, `restart` and `cancel` ask a gateway that runs in another process."""

import asyncio
import functools
import json
import subprocess
import sys

import pytest

from deltamcp import DeltaClient, connect
from deltamcp.dashboard.api import GatewayApi
from deltamcp.dashboard.gateway_socket import gateway_socket
from deltamcp.errors import CallFailedError
from tests.support.command_line import assert_one_sentence, run
from tests.support.conditions import wait_until
from tests.support.listing_upstream import ListingUpstream, gateway, tool
from tests.support.paths import FORKED_PROGRAM


@pytest.fixture(autouse=True)
def own_folders(tmp_path, monkeypatch):
    for purpose in ("STATE", "CACHE", "CONFIG"):
        monkeypatch.setenv(f"XDG_{purpose}_HOME", str(tmp_path / purpose.lower()))


@pytest.fixture
async def running(tmp_path):
    """A gateway in this process, and a client of it."""
    upstream = ListingUpstream(tmp_path, "books", tools=[tool("find"), tool("wait")])
    made = gateway(tmp_path, upstream.config(), disclosure="meta")
    api = GatewayApi(made, "books.toml", 0.0)
    made.open_beside(functools.partial(gateway_socket, lambda: api))
    async with connect(made.server, progressive=False) as client:
        yield made, client, upstream


def asked(tmp_path, *words):
    """Runs a command beside the loop of the gateway that it asks."""
    return asyncio.to_thread(run, *words, cwd=tmp_path)


@pytest.mark.parametrize("words", [("status",), ("restart", "books"), ("logs",), ("cancel", "call-1")])
def test_where_no_gateway_runs_that_is_said(tmp_path, words):
    assert_one_sentence(run(*words, cwd=tmp_path), 2)


async def test_status_shows_gateways_and_servers(tmp_path, running):
    done = await asked(tmp_path, "status")
    assert done.code == 0 and "books.toml" in done.out and " ready " in done.out
    told = json.loads((await asked(tmp_path, "status", "--json")).out)
    assert [row["name"] for row in told["gateways"][0]["servers"]] == ["books"]


async def test_calls_and_stderr_are_shown(tmp_path, running):
    made, client, _ = running
    assert "No call came" in (await asked(tmp_path, "logs")).out
    await client.call("execute", operation="books.find", params={})
    assert "books.find: done" in (await asked(tmp_path, "logs")).out
    made.upstreams["books"].connection._clients.local.stderr.add("warning: \x1b[31mred\u202e")
    shown = (await asked(tmp_path, "logs", "books")).out
    assert r"warning: \u001b[31mred\u202e" in shown
    assert_one_sentence(await asked(tmp_path, "logs", "book"), 2)


async def test_a_server_is_restarted(tmp_path, running):
    made, client, _ = running
    await client.call("execute", operation="books.find", params={})
    before = made.upstreams["books"].connection.state.pid
    assert "started anew" in (await asked(tmp_path, "restart", "books")).out
    await wait_until(lambda: made.upstreams["books"].connection.state.pid not in (None, before))


async def test_a_call_is_cancelled(tmp_path, running):
    made, client, upstream = running
    upstream.write(tools=[tool("find"), tool("wait")], hangs=["tools/call"])
    calling = asyncio.ensure_future(client.call("execute", operation="books.wait", params={}))
    await wait_until(lambda: any(True for _ in made.upstreams["books"].connection.calls))
    (call,) = made.upstreams["books"].connection.calls
    assert f"call-{call.id}: books wait" in (await asked(tmp_path, "status")).out
    assert "told to stop" in (await asked(tmp_path, "cancel", f"call-{call.id}")).out
    with pytest.raises(CallFailedError, match="told to stop"):
        await calling
    assert_one_sentence(await asked(tmp_path, "cancel", f"call-{call.id}"), 2)


UNASKED = """
import asyncio, sys
from deltamcp import DeltaClient, connect
from deltamcp.cli.serving.gateway_dashboard import show_gateway
from deltamcp.gateway.config import read_gateway_file
from deltamcp.gateway.gateway import Gateway
from pathlib import Path

async def main():
    made = Gateway(read_gateway_file(Path(sys.argv[1])).config)
    show_gateway(made, "mcp.json", None)
    async with connect(made.server, progressive=False) as client:
        await client.call("find")
    print(made.server.engine.stored_results.watcher)
    print(sorted(name for name in sys.modules if name.startswith("deltamcp.dashboard.")))

asyncio.run(main())
"""


@pytest.fixture
def configuration(tmp_path):
    """A file of one server, which lists a tool."""
    entry = ListingUpstream(tmp_path, "books", tools=[tool("find")]).config().entry
    path = tmp_path / "mcp.json"
    path.write_text(json.dumps({"mcpServers": {"books": entry}}))
    return path


async def test_a_gateway_that_nobody_looks_at_imports_and_notes_nothing_for_it(tmp_path, configuration):
    words = [sys.executable, "-c", UNASKED, str(configuration)]
    done = await asyncio.to_thread(subprocess.run, words, cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout.splitlines() == ["None", "['deltamcp.dashboard.gateway_socket']"], done.stderr


async def test_a_gateway_that_a_host_has_started_over_stdio_is_found(tmp_path, configuration):
    async with DeltaClient([str(FORKED_PROGRAM), "gateway", str(configuration), "--disclosure", "full"]) as client:
        await client.call("find")
        told = json.loads((await asked(tmp_path, "status", "--json")).out)
        (found,) = told["gateways"]
        assert found["about"]["label"] == str(configuration) and found["servers"][0]["name"] == "books"
        assert "started anew" in (await asked(tmp_path, "restart", "books")).out
