"""A gateway that runs follows another configuration: servers come, go and change, and no call notices."""

import asyncio
import contextlib
import json
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from deltamcp import connect
from deltamcp.errors import ConfigurationError
from deltamcp.gateway.config import HELD_KEYS, GatewayConfig, UpstreamConfig
from deltamcp.gateway.gateway import Gateway
from deltamcp.results.policy import ResultPolicy
from deltamcp.upstreams.client import Phase
from tests.support.conditions import HANG_SECONDS, wait_until
from tests.support.paths import ROOT
from tests.support.raw_client import META, raw_client

PROGRAM = str(ROOT / "tests" / "support" / "named_server.py")


def server(
    name: str, mark: str = "1", *tools: str, env: dict[str, str] | None = None, **options: Any
) -> UpstreamConfig:
    entry = {"command": sys.executable, "args": [PROGRAM, name, mark, *tools], "env": env or {}}
    return UpstreamConfig(name=name, entry=entry, **{"promise": "never", **options})


def config(*upstreams: UpstreamConfig, **options: Any) -> GatewayConfig:
    return GatewayConfig(upstreams=list(upstreams), **{"disclosure": "full", "prefix": True, **options})


@contextlib.asynccontextmanager
async def running(tmp_path: Path, *upstreams: UpstreamConfig, **options: Any):
    """A gateway, a client of it, and the changes of lists that the client was told of."""
    gateway, heard = Gateway(config(*upstreams, **options), cache_folder=tmp_path / "catalogs"), list[str]()
    async with connect(gateway.server, progressive=False, on_change=heard.append) as client:
        yield gateway, client, heard


async def apply(gateway, heard, changed):
    """Applies a configuration, and waits until the client was told."""
    heard.clear()
    await gateway.apply(changed)
    await wait_until(lambda: bool(heard), "a notice")


async def names(client):
    return [tool.name for tool in await client.tools()]


async def who(client, tool):
    return await client.call(tool)


async def test_servers_come_go_and_change_and_clients_are_told(tmp_path):
    async with running(tmp_path, server("a"), server("b")) as (gateway, client, heard):
        assert await names(client) == ["a_who", "a_wait", "b_who", "b_wait"]
        first = await who(client, "a_who")
        await apply(gateway, heard, config(server("a"), server("b", "2"), server("c", "1", "more")))
        assert await names(client) == ["a_who", "a_wait", "b_who", "b_wait", "c_who", "c_wait", "c_more"]
        assert await who(client, "a_who") == first, "the same process"
        assert [(await who(client, f"{name}_who"))["mark"] for name in "bc"] == ["2", "1"]
        await apply(gateway, heard, config(server("c", "1", "more")))
        assert await names(client) == ["c_who", "c_wait", "c_more"]
        with pytest.raises(Exception, match="a_who"):
            await client.call("a_who")


async def test_a_call_that_was_begun_ends_at_the_server_that_it_was_begun_at_which_then_stops(tmp_path):
    async with running(tmp_path, server("a")) as (gateway, client, _):
        old, gate = gateway.upstreams["a"].connection, tmp_path / "gate"
        call = asyncio.create_task(client.call("a_wait", path=str(gate)))
        await wait_until(lambda: old.state.open_calls == 1)
        await gateway.apply(config(server("a", "2")))
        assert (await who(client, "a_who"))["mark"] == "2"
        assert old.state.phase is Phase.READY and not call.done()
        gate.touch()
        assert (await call)["mark"] == "1"
        await wait_until(lambda: old.state.phase is Phase.STOPPED)
        await gateway.apply(config())
        new = gateway._retired
        await wait_until(lambda: all(one.state.phase is not Phase.READY for one in new))


async def test_a_promise_of_a_server_that_is_replaced_is_kept_by_that_server(tmp_path):
    gateway = Gateway(config(server("a", promise="auto", sync_seconds=0.01)), cache_folder=tmp_path / "catalogs")
    gate = tmp_path / "gate"
    tasks: dict[str, Any] = {"extensions": {"io.modelcontextprotocol/tasks": {}}}
    async with raw_client(gateway.server) as client:

        async def ask(method: str, **params: Any) -> Any:
            meta = {**META, "io.modelcontextprotocol/clientCapabilities": tasks}
            answer = await client.call(method, _meta=meta, **params)
            assert "result" in answer, answer
            return answer["result"]

        made = await ask("tools/call", name="a_wait", arguments={"path": str(gate)})
        await wait_until(gate.with_suffix(".begun").exists)
        await gateway.apply(config(server("a", "2")))
        gate.touch()
        async with asyncio.timeout(HANG_SECONDS):
            while (state := await ask("tasks/get", taskId=made["taskId"]))["status"] == "working":  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert json.loads(state["result"]["content"][0]["text"])["mark"] == "1"


async def test_what_is_said_of_a_servers_tools_changes_without_a_start(tmp_path):
    async with running(tmp_path, server("a", "1", "more")) as (gateway, client, heard):
        first = await who(client, "a_who")
        await apply(gateway, heard, config(server("a", "1", "more", deny=("more",), rename={"who": "which"})))
        assert await names(client) == ["a_which", "a_wait"]
        assert await who(client, "a_which") == first
        await apply(gateway, heard, config(server("a", "1", "more"), prefix=False))
        assert await names(client) == ["who", "wait", "more"]
        assert await who(client, "who") == first


async def test_a_changed_variable_is_another_process(tmp_path):
    async with running(tmp_path, server("a", env={"SERVER_MARK": "old"})) as (gateway, client, _):
        first = await who(client, "a_who")
        await gateway.apply(config(server("a", env={"SERVER_MARK": "new"})))
        second = await who(client, "a_who")
        assert (first["mark"], second["mark"]) == ("old", "new") and first["pid"] != second["pid"]


async def test_meta_tools_and_budgets_change(tmp_path):
    async with running(tmp_path, server("a")) as (gateway, client, heard):
        await apply(gateway, heard, config(server("a"), disclosure="meta", results=ResultPolicy(max_tokens=500)))
        assert await names(client) == ["discover", "get_schema", "execute", "query", "continue"]
        reply = await client.request("tools/call", {"name": "execute", "arguments": {"operation": "a.who"}})
        assert json.loads(reply["content"][0]["text"])["server"] == "a"
        await apply(gateway, heard, config(server("a"), disclosure="meta", query=False, destructive=True))
        assert await names(client) == ["discover", "get_schema", "execute", "execute_destructive", "continue"]
        await apply(gateway, heard, config(server("a")))
        assert await names(client) == ["a_who", "a_wait"]


async def test_a_configuration_that_cannot_be_followed_changes_nothing(tmp_path):
    async with running(tmp_path, server("a")) as (gateway, client, _):
        broken = UpstreamConfig(name="b", entry={"url": "no address"})
        for upstreams in ([server("c"), broken], [server("c"), server("c")]):
            with pytest.raises(ConfigurationError):
                await gateway.apply(config(*upstreams))
        assert await names(client) == ["a_who", "a_wait"] and list(gateway.upstreams) == ["a"]
        assert (await who(client, "a_who"))["server"] == "a"


async def test_what_clients_and_stores_know_the_gateway_by_stays(tmp_path):
    async with running(tmp_path, server("a"), name="one") as (gateway, _client, _):
        await gateway.apply(config(server("a"), server("b"), name="two", public_url="https://two.example"))
        assert (gateway.config.name, gateway.config.public_url) == ("one", "")
        assert msgspec.structs.asdict(gateway.config)["upstreams"][1].name == "b"


# Every key

HELD = "held until a restart"
CONNECTED = "another connection"
OFFERED = "what is offered is another"
READ = "read whenever it is needed"

GATEWAY_KEYS: dict[str, tuple[Any, str]] = {
    "name": ("other", HELD),
    "as_tools": (True, HELD),
    "conversation": ("process", HELD),
    "keep_results": (True, HELD),
    "public_url": ("https://gateway.example", HELD),
    "login_client_id": ("one", HELD),
    "disclosure": ("meta", OFFERED),
    "query": (False, OFFERED),
    "destructive": (True, OFFERED),
    "prefix": (False, OFFERED),
    "results": (ResultPolicy(max_tokens=700), OFFERED),
    "roots": (("file:///data",), CONNECTED),
    "redact_results": (True, CONNECTED),
    "wait_seconds": (3.0, READ),
    "max_age_seconds": (30.0, READ),
    "savings": (True, READ),
    "keep_shapes": (True, READ),
}
UPSTREAM_KEYS: dict[str, tuple[Any, str]] = {
    "filled": ({"KEY": "value-of-it"}, CONNECTED),
    "speak": ("handshake", CONNECTED),
    "timeout": (7.0, CONNECTED),
    "concurrency": (2, CONNECTED),
    "start": ("ahead", CONNECTED),
    "idle_seconds": (30.0, CONNECTED),
    "process_for": ("principal", CONNECTED),
    "redact_results": (True, CONNECTED),
    "not_secret": (("KEY",), CONNECTED),
    "shared_login": (True, CONNECTED),
    "allow": (("who",), OFFERED),
    "deny": (("who",), OFFERED),
    "rename": ({"who": "which"}, OFFERED),
    "read_only": (True, OFFERED),
    "pinned": (("who",), OFFERED),
    "confirm": ("always", OFFERED),
    "results": (ResultPolicy(max_tokens=600), OFFERED),
    "promise": ("auto", OFFERED),
    "sync_seconds": (9.0, OFFERED),
    "on_changed": ("accept", READ),
    "on_new": ("announce", READ),
    "on_imitation": ("quarantine", READ),
    "varies": (("/tools/who/description",), READ),
}
REACHED = {"name", "entry", "auth", "resource"}
"""What makes it another server, or is for servers with logins: other tests have them."""


def test_every_key_is_in_the_tables():
    assert GATEWAY_KEYS.keys() == {*GatewayConfig.__struct_fields__} - {"upstreams"}
    assert UPSTREAM_KEYS.keys() == {*UpstreamConfig.__struct_fields__} - REACHED
    assert {key for key, (_, how) in GATEWAY_KEYS.items() if how == HELD} == {*HELD_KEYS}


async def offered(gateway, client):
    """What a gateway offers: what clients are listed, and how each operation is called."""
    listed = (await client.request("tools/list"))["tools"]
    operations = gateway.server.engine.catalog.view().operations.values()
    called = [
        (one.id, one.pinned, one.consent_policy, one.promise_policy, one.sync_seconds, repr(one.results))
        for one in operations
    ]
    return listed, called


def with_key(key, value):
    """A configuration with one key changed, beside those without which it would do nothing."""
    extra = {"promise": "auto"} if key == "sync_seconds" else {}
    env = {"KEY": "value-of-it"} if key == "not_secret" else None
    return server("a", env=env, **{**extra, key: value})


def before_key(key):
    env = {"KEY": "value-of-it"} if key == "not_secret" else None
    return server("a", env=env, **({"promise": "auto"} if key == "sync_seconds" else {}))


async def check(tmp_path, key, how, before, after):
    async with running(tmp_path, *before.upstreams, **options_of(before)) as (gateway, client, _):
        first, connection = await offered(gateway, client), gateway.upstreams["a"].connection
        await gateway.apply(after)
        assert (await offered(gateway, client) != first) is (how == OFFERED), key
        assert (gateway.upstreams["a"].connection is not connection) is (how == CONNECTED), key
        where = gateway.config.upstreams[0] if key in UPSTREAM_KEYS and before.upstreams != after.upstreams else None
        changed, wanted = (gateway.config, after) if where is None else (where, after.upstreams[0])
        assert (getattr(changed, key) == getattr(wanted, key)) is (how != HELD) or key == "results"
        async with running(tmp_path, *after.upstreams, **options_of(after)) as (fresh, other, _):
            assert how == HELD or await offered(gateway, client) == await offered(fresh, other)


def options_of(made):
    return {key: getattr(made, key) for key in GATEWAY_KEYS}


@pytest.mark.parametrize("key", GATEWAY_KEYS)
async def test_a_key_of_the_file_holds_as_in_a_gateway_that_starts_with_it(tmp_path, key):
    value, how = GATEWAY_KEYS[key]
    options = {"disclosure": "meta"} if key in ("query", "destructive") else {}
    await check(tmp_path, key, how, config(server("a"), **options), config(server("a"), **{**options, key: value}))


@pytest.mark.parametrize("key", UPSTREAM_KEYS)
async def test_a_key_of_a_server_holds_as_in_a_gateway_that_starts_with_it(tmp_path, key):
    value, how = UPSTREAM_KEYS[key]
    meta = {"disclosure": "meta"} if key == "pinned" else {}
    await check(tmp_path, key, how, config(before_key(key), **meta), config(with_key(key, value), **meta))
