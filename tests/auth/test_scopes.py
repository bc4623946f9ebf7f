"""Scopes over HTTP, in both eras: what callers without them see, and what they are told to ask for."""

import asyncio
import contextlib
import json
import logging
import re
from typing import Any

import pytest

from deltamcp import Context, DeltaServer, HostAuth, Principal, ResourceServer
from deltamcp.catalog import catalog
from tests.support.asgi_client import AsgiClient
from tests.support.fake_issuer import RESOURCE, serve_issuer
from tests.support.scope_client import ScopeClient, challenge_of, serve_scopes

ERAS = ["handshake", "modern"]


def make_server(**options: Any) -> DeltaServer:
    server = DeltaServer("notes", **options)

    @server.tool
    async def read_notes() -> str:
        """Read all notes."""
        return "notes"

    @server.tool(scopes=["notes:write"])
    async def write_note(text: str, ctx: Context) -> str:
        """Write a note."""
        return f"written by {ctx.principal.id}"

    @server.tool(scopes=["notes:write", "admin"])
    async def erase_notes() -> str:
        """Erase all notes."""
        return "erased"

    return server


def scope_client(
    era: str, server: DeltaServer | None = None, scope: str = "notes:read", **options: Any
) -> contextlib.AbstractAsyncContextManager[ScopeClient]:
    return serve_scopes(era, server or make_server(), scope, **options)


@pytest.mark.parametrize("era", ERAS)
async def test_a_call_without_its_scope_is_told_all_scopes_to_ask_for(era: str) -> None:
    async with scope_client(era) as client:
        status, headers, answer = await client.call("erase_notes")
        assert status == 403
        assert challenge_of(headers) == {
            "error": "insufficient_scope",
            "error_description": "erase_notes needs scopes that the caller does not have: admin, notes:write.",
            "scope": "admin notes:read notes:write",
            "resource_metadata": "https://tools.example/.well-known/oauth-protected-resource/mcp",
        }
        assert answer["error"]["data"] == {"missingScopes": ["admin", "notes:write"]}
        assert answer["id"] == 1


@pytest.mark.parametrize("era", ERAS)
async def test_the_same_call_with_a_new_token_of_more_scopes_runs(era: str) -> None:
    async with scope_client(era) as client:
        assert (await client.call("write_note", text="a"))[0] == 403
        client.use_scopes("notes:read notes:write")
        status, _, answer = await client.call("write_note", text="a")
        assert (status, answer["result"]["content"][0]["text"]) == (200, "written by ada")
        client.use_scopes("notes:read")
        assert (await client.call("write_note", text="a"))[0] == 403


async def test_a_batch_keeps_the_scopes_of_its_own_token() -> None:
    server = make_server()
    entered, go_on = asyncio.Event(), asyncio.Event()

    @server.tool
    async def wait() -> str:
        """Wait."""
        entered.set()
        await go_on.wait()
        return "waited"

    async with serve_issuer() as issuer, server.lifespan():
        client = AsgiClient(server.asgi(auth=ResourceServer(RESOURCE, issuer.url)))
        client.headers["authorization"] = f"Bearer {issuer.token(scope='notes:read')}"
        await client.initialize("2025-03-26")
        names = ("wait", "write_note")
        arguments: tuple[dict[str, str], ...] = ({}, {"text": "a"})
        calls = [{"name": name, "arguments": given} for name, given in zip(names, arguments, strict=True)]
        batch = [
            {"jsonrpc": "2.0", "id": id_, "method": "tools/call", "params": call} for id_, call in enumerate(calls)
        ]
        exchange = client.post(batch)
        await entered.wait()
        client.headers["authorization"] = f"Bearer {issuer.token(scope='notes:write')}"
        other = client.request(9, "tools/call", name="write_note", arguments={"text": "b"})
        assert (await other.start())[0] == 200
        go_on.set()
        assert (await exchange.start())[0] == 200
        waited, refused = await exchange.json()
        assert waited["result"]["content"][0]["text"] == "waited"
        assert refused["error"]["data"] == {"missingScopes": ["notes:write"]}


async def test_a_session_belongs_to_its_principal_whatever_the_scopes() -> None:
    async with scope_client("handshake") as client:
        client.use_scopes("notes:read notes:write", sub="eve")
        assert (await client.call("write_note", text="a"))[0] == 404


@pytest.mark.parametrize("era", ERAS)
async def test_operations_are_hidden_unless_clients_may_ask_for_their_scopes(era: str) -> None:
    async with scope_client(era) as client:
        assert await client.listed() == {"read_notes"}
    async with scope_client(era, step_up=["notes:write"]) as client:
        assert await client.listed() == {"read_notes", "write_note"}
        assert (await client.call("write_note", text="a"))[0] == 403
        client.use_scopes("admin")
        assert await client.listed() == {"read_notes", "write_note", "erase_notes"}
        status, headers, _ = await client.call("erase_notes")
        assert (status, challenge_of(headers)["scope"]) == (403, "admin notes:write")


@pytest.mark.parametrize("era", ERAS)
async def test_meta_tools_name_the_missing_scopes_too(era: str) -> None:
    async with scope_client(era, make_server(disclosure="meta"), step_up=["notes:write"]) as client:
        for operation in ("erase_notes", "erase_notes()"):
            status, headers, _ = await client.call("execute", operation=operation)
            assert (status, challenge_of(headers)["scope"]) == (403, "admin notes:read notes:write")
        assert (await client.call("execute", operation="write_note", params={"text": "a"}))[0] == 403
        assert (await client.call("get_schema", operation="erase_notes"))[0] == 403
        assert (await client.call("get_schema", operation=["read_notes", "erase_notes"]))[0] == 403
        status, _, answer = await client.call("get_schema", operation="write_note")
        assert (status, "text" in json.dumps(answer)) == (200, True)
        status, _, answer = await client.call("discover")
        assert "write_note" in json.dumps(answer)
        assert "erase_notes" not in json.dumps(answer)
        client.use_scopes("notes:write")
        status, _, answer = await client.call("execute", operation="write_note", params={"text": "a"})
        assert (status, answer["result"]["content"][0]["text"]) == (200, "written by ada")


@pytest.mark.parametrize("era", ERAS)
async def test_an_operation_that_does_not_exist_is_unknown(era: str) -> None:
    async with scope_client(era, make_server(disclosure="meta")) as client:
        status, headers, answer = await client.call("no_such_tool")
        assert "www-authenticate" not in headers
        assert "no_such_tool" in answer["error"]["message"]
        status, _, answer = await client.call("execute", operation="erase_note")
        assert (status, answer["result"]["isError"]) == (200, True)
        assert "erase_notes" not in json.dumps(answer)


@pytest.mark.parametrize("era", ERAS)
async def test_scopes_that_every_request_needs_are_checked_before_anything(era: str) -> None:
    server = make_server()
    async with serve_issuer() as issuer, server.lifespan():
        auth = ResourceServer(RESOURCE, issuer.url, scopes=["mcp"])
        client = ScopeClient(server.asgi(auth=auth), issuer, era)
        client.use_scopes("mcp notes:read")
        await client.begin()
        assert (await client.call("read_notes"))[0] == 200
        client.use_scopes("notes:read")
        for method in ("tools/list", "ping"):
            status, headers, _ = await client.ask(method)
            assert (status, challenge_of(headers)["scope"]) == (403, "mcp notes:read")


async def test_a_caller_that_nobody_vouches_for_learns_nothing_of_what_it_may_not_call() -> None:
    server = make_server()
    async with server.lifespan():
        client = AsgiClient(server.asgi())
        await client.initialize()
        exchange = client.request(1, "tools/call", name="erase_notes", arguments={})
        status, headers = await exchange.start()
        answer = await exchange.json()
        assert (status, "www-authenticate" in headers) == (200, False)
        assert answer["error"]["message"].startswith("There is no tool 'erase_notes'.")


async def test_a_host_application_s_callers_are_refused_without_a_challenge() -> None:
    server = make_server()
    async with server.lifespan():
        client = AsgiClient(server.asgi(auth=HostAuth(lambda scope: Principal("ada"))))
        await client.initialize()
        exchange = client.request(1, "tools/call", name="erase_notes", arguments={})
        status, headers = await exchange.start()
        assert (status, "www-authenticate" in headers) == (403, False)


@pytest.mark.parametrize("name", ["anonymous", "local", "ada"])
@pytest.mark.parametrize("disclosure", ["full", "meta"])
async def test_no_name_of_a_host_application_s_caller_stands_for_the_scopes_it_may_ask_for(name, disclosure) -> None:
    server = make_server(disclosure=disclosure)
    step_up = frozenset({"notes:write", "admin"})
    async with server.lifespan():
        client = AsgiClient(server.asgi(auth=HostAuth(lambda scope: Principal(name, step_up=step_up))))
        await client.initialize()
        for call in (
            {"name": "erase_notes", "arguments": {}},
            {"name": "execute", "arguments": {"operation": "erase_notes"}},
        ):
            exchange = client.request(1, "tools/call", **call)
            await exchange.start()
            assert "erased" not in json.dumps(await exchange.json())


async def test_the_call_log_has_the_principal_s_key_and_what_was_refused(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "deltamcp.calls")
    async with scope_client("modern") as client:
        await client.call("read_notes")
        await client.call("erase_notes")
    done, refused = (record.getMessage() for record in caplog.records if record.name == "deltamcp.calls")
    assert re.search(r"operation=read_notes principal=http://127\.0\.0\.1:\d+ ada .*outcome=done", done)
    assert re.search(r"operation='erase_notes' principal=http://\S+ ada outcome=insufficient_scope", refused)


def test_the_views_of_many_scopes_stay_bounded() -> None:
    server = DeltaServer("many")
    for number in range(12):
        server.tool(lambda: "", name=f"tool_{number}", scopes=[f"s{number}"])
    for mask in range(500):
        scopes = frozenset(f"s{number}" for number in range(12) if mask >> number & 1)
        view = server.engine.catalog.view(Principal("ada", scopes | {"other"}, step_up=frozenset({"s11", "z"})))
        assert set(view.operations) == {f"tool_{scope[1:]}" for scope in scopes | {"s11"}}
    assert len(server.engine.catalog._views) <= catalog._MAX_VIEWS


async def test_definitions_by_name_need_the_scopes_of_hidden_tools() -> None:
    server = make_server()
    principal = Principal("ada", step_up=frozenset({"notes:write"}))
    view = server.engine.catalog.view(principal)
    assert view.definition("write_note") is not None
    assert view.definition("erase_notes") is None
    assert view.withheld.find("erase_notes") is not None
