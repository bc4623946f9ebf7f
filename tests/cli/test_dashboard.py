"""`delta-mcp status`, `logs`, `restart` and `cancel` ask a gateway that runs in another process."""

import asyncio
import functools
import json

import pytest

from deltamcp import connect
from deltamcp.dashboard.api import GatewayApi
from deltamcp.dashboard.gateway_socket import gateway_socket
from deltamcp.errors import CallFailedError
from tests.support.command_line import assert_one_sentence, run
from tests.support.conditions import wait_until
from tests.support.listing_upstream import ListingUpstream, gateway, tool


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
    made.beside.append(functools.partial(gateway_socket, lambda: api))
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
