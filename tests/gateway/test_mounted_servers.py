"""A server elsewhere, and a gateway, as a part of a server in Python."""

import asyncio
import sys
from collections.abc import Mapping
from typing import Any

import pytest

from deltamcp import (
    CallFailedError,
    CallNext,
    ConfigurationError,
    Context,
    DeltaServer,
    FunctionCall,
    Gateway,
    GatewayConfig,
    HostAuth,
    OAuth,
    Principal,
    ResultPolicy,
    ToolError,
    UpstreamConfig,
    connect,
)
from deltamcp.errors import PeerError
from tests.support.conditions import wait_until
from tests.support.era_client import ERAS
from tests.support.gateway_entries import module_entry
from tests.support.http_server import serve_http
from tests.support.notes_server import notes_server

TOKEN = "t0ken-of-the-program-0123"
NOTES = module_entry("tests.support.notes_server")


def host(**options: Any) -> DeltaServer:
    server = DeltaServer("host", **options)

    @server.tool
    def local() -> str:
        """Say where this is."""
        return "here"

    return server


def mounting_client(prefix: str = "notes") -> DeltaServer:
    server = host()
    server.mount(connect(NOTES), prefix)
    return server


def mounting_gateway(prefix: str = "notes") -> DeltaServer:
    upstream = UpstreamConfig(name="there", entry=NOTES, on_new="announce", promise="never")
    server = host()
    server.mount(Gateway(GatewayConfig(upstreams=[upstream], disclosure="full")).server, prefix)
    return server


@pytest.mark.parametrize("speak", ERAS)
@pytest.mark.parametrize(("mounting", "uri"), [(mounting_client, "note://"), (mounting_gateway, "note://notes/")])
async def test_everything_of_a_server_elsewhere_is_offered(speak, mounting, uri):
    changes: list[str] = []
    logs: list[Any] = []
    progress: list[float] = []
    questions: list[Any] = []

    def answer(question: dict[str, Any]) -> dict[str, Any]:
        questions.append(question["message"])
        return {"value": True}

    options: dict[str, Any] = {"on_change": changes.append, "on_log": lambda *log: logs.append(log[:2])}
    async with connect(mounting(), speak=speak, on_elicitation=answer, **options) as client:
        names = [tool["name"] for tool in await client.list_tools()]
        assert names == ["local", "notes_add", "notes_clear", "notes_find", "notes_grow", "notes_rows"]
        assert await client.call("local") == "here"
        assert [one["uriTemplate"] for one in await client.list_resource_templates()] == [uri + "{name}"]
        await client.subscribe(f"{uri}second")
        note = {"name": "second", "text": "two"}
        reply = await client.call_tool("notes_add", note, progress=lambda done, *_: progress.append(done))
        assert (reply.text, progress, logs) == ("2 notes", [1], [("info", "second is stored")])
        assert (await client.read_resource(f"{uri}second"))[0]["text"] == "two"
        assert await client.call("notes_clear") == "deleted"
        assert [question.endswith(" asks] Delete all?") for question in questions] == [True]
        prompt = await client.get_prompt("notes_summarise", {"name": "second"})
        assert prompt["messages"][0]["content"]["text"] == "Summarise: two"
        reference = {"type": "ref/prompt", "name": "notes_summarise"}
        assert await client.complete(reference, "name", "s") == ["second"]
        while f"{uri}second" not in changes:  # the server may not know of the subscription yet
            await client.call("notes_add", **note)
            await asyncio.sleep(0)
        await client.call("notes_grow")
        await wait_until(lambda: "tools" in changes)
        assert await client.call("notes_grown") == "grown"


@pytest.mark.parametrize("mounting", [mounting_client, mounting_gateway])
async def test_what_its_results_mention_can_be_read(mounting):
    async with connect(mounting()) as client:
        (link,) = (await client.call_tool("notes_find")).raw["content"]
        assert (await client.read_resource(link["uri"]))[0]["text"] == "one"


async def test_without_a_prefix_the_names_stay():
    server = mounting_client("")
    async with connect(server) as client:
        assert "add" in [tool["name"] for tool in await client.list_tools()]
        assert await client.call("add", name="x", text="y") == "2 notes"


async def test_it_may_be_mounted_again_and_in_between():
    outer = DeltaServer("outer")
    outer.mount(mounting_gateway("inner"), "outer")
    async with connect(outer) as client:
        assert await client.call("outer_inner_add", name="x", text="y") == "2 notes"
        assert (await client.read_resource("note://outer/inner/x"))[0]["text"] == "y"


async def test_its_results_have_the_budget_of_the_server():
    server = host(results=ResultPolicy(max_tokens=100))
    server.mount(connect(NOTES), "notes")
    async with connect(server) as client:
        reply = await client.call_tool("notes_rows", {"count": 500})
        assert reply.is_part
        assert await client.call("notes_rows", count=500) == [{"row": number} for number in range(500)]


async def test_it_is_reached_over_http_with_the_options_of_the_client():
    asked: list[str] = []

    def token() -> str:
        asked.append("")
        return "t0ken"

    async with serve_http(notes_server()) as url:
        server = host()
        server.mount(connect(url, token=token, headers={"x-team": "blue"}, timeout=20), "notes")
        async with connect(server) as client:
            assert await client.call("notes_add", name="x", text="y") == "2 notes"
    assert asked


async def test_the_rest_is_there_while_it_is_down():
    server = host()
    server.mount(connect({"command": "/no/such/program"}), "notes")
    async with connect(server) as client:
        assert [tool["name"] for tool in await client.list_tools()] == ["local"]
        with pytest.raises(PeerError, match="notes: "):
            await client.call("notes_add")
        with pytest.raises(PeerError, match="There is no tool 'other'"):
            await client.call("other")


async def test_nothing_of_it_is_kept_on_disk(tmp_path):
    async with connect(mounting_client()) as client:
        await client.call("notes_add", name="x", text="y")
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


async def test_its_server_ends_with_the_server_around_it(tmp_path):
    server = mounting_client()
    for _ in range(2):
        async with connect(server) as client:
            assert await client.call("notes_add", name="x", text="y") == "2 notes"


@pytest.mark.parametrize(
    ("mount", "sentence"),
    [
        (lambda: connect(NOTES, on_elicitation=lambda question: {}), "has no use for on_elicitation; leave it out"),
        (lambda: connect(NOTES, deltas=True, quiet=True), "has no use for deltas, quiet; leave them out"),
        (lambda: connect(DeltaServer("other")), "mount it itself"),
        (
            lambda: Gateway(GatewayConfig(upstreams=[])),
            r"takes a DeltaServer or connect\(...\) first, not Gateway\. Mount its server\.",
        ),
        (lambda: "https://tools.example/mcp", r"takes a DeltaServer or connect\(...\) first, not str\.$"),
    ],
)
async def test_what_cannot_be_mounted_is_told(mount, sentence):
    with pytest.raises(ConfigurationError, match=sentence):
        host().mount(mount(), "notes")


async def test_a_prefix_that_is_none_is_told():
    with pytest.raises(ConfigurationError, match="The prefix 'a b' must be"):
        host().mount(connect(NOTES), "a b")


async def test_a_login_of_the_program_is_that_of_all_callers():
    server = host()
    server.mount(connect("http://127.0.0.1:9/mcp", auth=OAuth(grant="authorization_code", asks_user=False)), "notes")
    async with connect(server) as client:
        assert await client.call("local") == "here"


async def test_a_gateway_where_users_log_in_is_not_mounted():
    upstream = UpstreamConfig(name="there", entry={"url": "http://127.0.0.1:9/mcp"}, auth="oauth")
    server = host()
    server.mount(Gateway(GatewayConfig(upstreams=[upstream])).server)
    with pytest.raises(ConfigurationError, match="Users log in at there"):
        async with connect(server):
            raise AssertionError("the server does not start")


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        ({"disclosure": "none"}, "GatewayConfig: disclosure: Invalid enum value 'none'"),
        ({"wait_seconds": "8"}, "GatewayConfig: wait_seconds: Expected `float`, got `str`"),
        ({"upstreams": [UpstreamConfig(name="a", entry=NOTES, timeout=-1)]}, "UpstreamConfig 'a': timeout: Expected"),
        ({"upstreams": [UpstreamConfig(name="a", entry={})]}, "a: An entry needs a command or a url"),
        ({"upstreams": [UpstreamConfig(name="a", entry=NOTES)] * 2}, "Two servers have the same name"),
    ],
)
def test_a_configuration_as_values_is_checked_as_a_file_is(config, sentence):
    with pytest.raises(ConfigurationError, match=sentence):
        Gateway(GatewayConfig(**{"upstreams": [], **config}))


async def test_a_call_that_fails_there_fails_here():
    async with connect(mounting_client(), validate=False) as client:
        with pytest.raises((CallFailedError, PeerError)):
            await client.call("notes_rows", count="many")


async def test_a_name_that_is_taken_is_told_and_the_rest_stays(caplog):
    server = DeltaServer("host")

    @server.tool
    def add() -> str:
        """Add here."""
        return "here"

    server.mount(connect(NOTES))
    async with connect(server) as client:
        await wait_until(lambda: "cannot be offered: 'add' is registered already" in caplog.text)
        assert [tool["name"] for tool in await client.list_tools()] == ["add"]
        assert await client.call("add") == "here"


async def test_what_is_hidden_stays_hidden():
    server = mounting_client()
    server.disable(names=["notes_clear", "note://{name}"])
    async with connect(server) as client:
        assert "notes_clear" not in [tool["name"] for tool in await client.list_tools()]
        assert await client.list_resource_templates() == []
        with pytest.raises(PeerError):
            await client.call("notes_clear")


async def test_its_calls_pass_the_middleware_around_it():
    seen: list[str] = []

    async def watch(call: FunctionCall, call_next: CallNext) -> Any:
        seen.append(call.name)
        return await call_next(call)

    server = host(middleware=[watch])
    server.mount(connect(NOTES), "notes")
    async with connect(server) as client:
        await client.call("notes_add", name="x", text="y")
    assert seen == ["notes.add"]


@pytest.mark.parametrize("disclosure", ["meta", "auto"])
async def test_its_tools_are_operations_behind_meta_tools(disclosure):
    server = host(disclosure=disclosure)
    server.mount(connect(NOTES), "notes")
    async with connect(server) as client:
        assert await client.call("notes_add", name="x", text="y") == "2 notes"
    async with connect(server, progressive=False) as client:
        if disclosure == "meta":
            reply = await client.call_tool("execute", {"operation": "notes.add", "params": {"name": "x", "text": "z"}})
            assert reply.text == "2 notes"


async def test_no_secret_of_it_is_shown(caplog):
    secret = "pa55-w0rd-of-the-server"
    crash = f"import os, sys; print(os.environ['KEY'], file=sys.stderr); raise SystemExit('no {{}} {secret}'.format(1))"
    program = {"command": sys.executable, "args": ["-c", crash], "env": {"KEY": secret}}
    server = host()
    server.mount(connect(program), "notes")
    async with connect(server) as client:
        await wait_until(lambda: "notes: " in caplog.text)
        with pytest.raises(PeerError) as failed:
            await client.call("notes_add")
    assert secret not in f"{failed.value} {caplog.text}"


async def test_a_token_goes_to_its_server_and_is_a_secret():
    def find_principal(scope: Mapping[str, Any]) -> Principal | None:
        has_token = (b"authorization", f"Bearer {TOKEN}".encode()) in scope["headers"]
        return Principal("program") if has_token else None

    other = notes_server()

    @other.tool
    def leak(ctx: Context) -> str:
        raise ToolError(f"{ctx.principal.id} has {TOKEN}")

    async with serve_http(other, auth=HostAuth(find_principal)) as url:
        server = host()
        server.mount(connect(url, token=TOKEN), "notes")
        async with connect(server) as client:
            with pytest.raises(CallFailedError, match="program has") as failed:
                await client.call("notes_leak")
    assert TOKEN not in str(failed.value)
