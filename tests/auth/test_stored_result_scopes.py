"""What is stored of a result is read only with the scopes of its operation, by another token of the same user, too."""

import hashlib
import json
import re
from typing import Any

import pytest

from deltamcp import DeltaServer, HostAuth, Principal, ResultPolicy
from tests.support.asgi_client import AsgiClient
from tests.support.lite_client import lite_client
from tests.support.promise_queue import queue_for
from tests.support.scope_client import ScopeClient, challenge_of, serve_scopes

ERAS = ["handshake", "modern"]
SECRET = "salary"
BOTH = "notes payroll"
META_KEY = "io.github.delta-mcp/result"


def rows(*names: str) -> list[dict[str, Any]]:
    return [{"id": number, **{name: digest(name, number) for name in names}} for number in range(60)]


def digest(name: str, number: int) -> str:
    return hashlib.sha256(f"{name} {number}".encode()).hexdigest()


def make_server(**options: Any) -> DeltaServer:
    server = DeltaServer("staff", state_key=b"k" * 32, conversation="process", **options)
    policy = ResultPolicy(max_tokens=300, deltas=True, dedup=True)

    @server.tool(scopes=["payroll"], results=policy)
    async def list_salaries() -> list[dict[str, Any]]:
        """List what everybody earns."""
        return rows(SECRET)

    @server.tool(scopes=["payroll"], promise="always", results=policy)
    async def sum_salaries() -> list[dict[str, Any]]:
        """Sum up what everybody earns."""
        return rows(SECRET)

    @server.tool(results=ResultPolicy(max_tokens=100_000, deltas=True))
    async def list_names(count: int = 59) -> list[dict[str, Any]]:
        """List the names of everybody."""
        return rows("name")[:count]

    @server.tool(results=policy)
    async def echo(value: Any) -> Any:
        """Return a value."""
        return value

    return server


def handle_of(answer: Any) -> str:
    handle: str = answer["result"]["_meta"][META_KEY]["handle"]
    return handle


async def store_salaries(client: ScopeClient, **meta: Any) -> Any:
    """Has a token with the scope store the result; the client has one without it afterwards."""
    client.use_scopes(BOTH)
    _, _, answer = await client.ask("tools/call", name="list_salaries", arguments={}, _meta=meta)
    client.use_scopes("notes")
    return answer


def assert_refused(reply: tuple[int, dict[str, str], Any], name: str = "list_salaries") -> None:
    status, headers, answer = reply
    assert (status, answer["error"]["data"]) == (403, {"missingScopes": ["payroll"]})
    assert challenge_of(headers)["scope"] == BOTH
    assert answer["error"]["message"] == f"{name} needs scopes that the caller does not have: payroll."


@pytest.mark.parametrize("era", ERAS)
async def test_continue_needs_the_scopes_of_the_operation(era: str) -> None:
    async with serve_scopes(era, make_server(), "notes") as client:
        handle = handle_of(await store_salaries(client))
        assert_refused(await client.call("continue", handle=handle))
        assert_refused(await client.call("continue", handle=handle, path="/5"))
        client.use_scopes(BOTH)
        status, _, answer = await client.call("continue", handle=handle, path="/5")
        assert (status, digest(SECRET, 5) in json.dumps(answer)) == (200, True)


@pytest.mark.parametrize("era", ERAS)
async def test_a_reference_in_an_argument_needs_the_scopes_of_the_operation(era: str) -> None:
    async with serve_scopes(era, make_server(), "notes") as client:
        handle = handle_of(await store_salaries(client))
        assert_refused(await client.call("echo", value={"$result": handle, "path": "/5"}))
        client.use_scopes(BOTH)
        assert digest(SECRET, 5) in json.dumps(await client.call("echo", value={"$result": handle, "path": "/5"}))


@pytest.mark.parametrize("era", ERAS)
async def test_a_stored_result_as_a_resource_needs_the_scopes_of_the_operation(era: str) -> None:
    async with serve_scopes(era, make_server(), "notes") as client:
        uri = f"staff://results/{handle_of(await store_salaries(client))}"
        assert_refused(await client.ask("resources/read", uri=uri))
        assert_refused(await client.ask("resources/read", uri=f"{uri}/5"))
        client.use_scopes(BOTH)
        assert SECRET in json.dumps(await client.ask("resources/read", uri=uri))


async def test_a_result_that_the_caller_may_not_read_is_no_base_of_changes() -> None:
    server, whole = make_server(), ResultPolicy(max_tokens=100_000, deltas=True)
    server.tool(lambda: rows(SECRET), name="list_bonuses", scopes=["payroll"], results=whole)
    server.tool(lambda: [*rows(SECRET)[1:], {"id": 60}], name="list_gifts", results=whole)
    async with serve_scopes("modern", server, BOTH) as client:

        async def outcome(tool: str, pack_root: str) -> dict[str, Any]:
            asked = {META_KEY: {"pack_root": pack_root}}
            _, _, answer = await client.ask("tools/call", name=tool, arguments={}, _meta=asked)
            meta: dict[str, Any] = answer["result"]["_meta"][META_KEY]
            return meta

        root = (await outcome("list_bonuses", ""))["root"]
        short = root.removeprefix("sha256:")[:12]
        assert [(await outcome("list_gifts", one))["outcome"] for one in (root, short)] == ["full", "full"]
        client.use_scopes("notes")
        assert [(await outcome("list_gifts", one))["outcome"] for one in (root, short)] == ["full", "full"]


async def test_a_copy_of_a_result_that_was_read_as_a_resource_has_its_scopes() -> None:
    async with serve_scopes("modern", make_server(), "notes") as client:
        uri = f"staff://results/{handle_of(await store_salaries(client))}"
        client.use_scopes(BOTH)
        _, _, answer = await client.ask("resources/read", uri=uri, _meta={META_KEY: {"pack_root": ""}})
        root = answer["result"]["_meta"][META_KEY]["root"]
        client.use_scopes("notes")
        asked = {META_KEY: {"pack_root": root}}
        _, _, answer = await client.ask("tools/call", name="list_names", arguments={}, _meta=asked)
        assert SECRET not in json.dumps(answer)
        copy = (await client.call("continue", handle=root))[2]
        assert copy["result"]["isError"] and SECRET not in json.dumps(copy)


async def test_a_root_of_a_result_that_the_caller_may_not_read_is_told_as_unknown() -> None:
    """Whoever guesses what a result says can compute its root."""
    async with serve_scopes("modern", make_server(), "notes") as client:
        root = (await store_salaries(client))["result"]["_meta"][META_KEY]["root"]
        refused, unknown = [(await client.call("continue", handle=one))[2] for one in (root, "sha256:" + "0" * 64)]
        assert refused["result"]["isError"] and unknown["result"]["isError"]
        message = refused["result"]["content"][0]["text"]
        assert message == unknown["result"]["content"][0]["text"].replace("sha256:" + "0" * 33, root[:40])


async def test_rows_that_the_caller_may_not_read_again_are_not_referred_to() -> None:
    server, whole = make_server(), ResultPolicy(max_tokens=100_000, dedup=True)
    server.tool(lambda: rows(SECRET), name="list_bonuses", scopes=["payroll"], results=whole)
    server.tool(lambda first: rows(SECRET)[first:], name="list_gifts", results=whole)
    async with serve_scopes("handshake", server, BOTH) as client:
        handle = handle_of((await client.call("list_bonuses"))[2])
        assert handle in json.dumps((await client.call("list_gifts", first=1))[2])
        client.use_scopes("notes")
        assert handle not in json.dumps((await client.call("list_gifts", first=2))[2])


@pytest.mark.parametrize("method", ["tasks/get", "tasks/cancel", "tasks/result"])
@pytest.mark.parametrize("era", ERAS)
async def test_a_promise_needs_the_scopes_of_its_operation(era: str, method: str) -> None:
    if (era, method) == ("modern", "tasks/result"):
        pytest.skip("2026-07-28 has no tasks/result")
    server = make_server()
    queue_for(server)
    capable: dict[str, Any] = {
        "io.modelcontextprotocol/clientCapabilities": {"extensions": {"io.modelcontextprotocol/tasks": {}}}
    }
    meta = capable if era == "modern" else {}
    async with serve_scopes(era, server, BOTH) as client:
        _, _, made = await client.ask("tools/call", name="sum_salaries", arguments={}, task={}, _meta=meta)
        id_ = made["result"].get("taskId") or made["result"]["task"]["taskId"]
        client.use_scopes("notes")
        assert_refused(await client.ask(method, taskId=id_, _meta=meta), "sum_salaries")
        client.use_scopes(BOTH)
        assert (await client.ask("tasks/get", taskId=id_, _meta=meta))[0] == 200


async def test_what_discover_and_get_schema_stored_needs_the_scopes_by_which_it_was_made() -> None:
    server = make_server(disclosure="meta", results=ResultPolicy(max_tokens=60))
    server.tool(
        lambda: "",
        name="explain",
        scopes=["payroll"],
        description=" ".join(f"It explains bonus {number}." for number in range(40)),
    )
    async with serve_scopes("modern", server, BOTH) as client:
        _, _, answer = await client.call("get_schema", operation=["list_salaries", "explain"])
        handle = handle_of(answer)
        client.use_scopes("notes")
        assert_refused(await client.call("continue", handle=handle), "get_schema")


async def test_mcp_lite_asks_for_the_same_scopes() -> None:
    scopes = {"all": frozenset({"payroll"}), "few": frozenset[str]()}

    def find(scope: Any) -> Principal:
        return Principal("ada", scopes[dict(scope["headers"])[b"x-token"].decode()])

    server = make_server()
    server.tool(lambda: "", name="nothing", promise="always")
    queue_for(server)
    async with lite_client(server, auth=HostAuth(find)) as client:
        cut = await client.rpc("tools/call", {"name": "list_salaries", "arguments": {}}, **{"x-token": "all"})
        handle = re.search(r'"handle": "(\w+)"', json.dumps(cut.json()))
        assert handle is not None, cut
        read = {"name": "continue", "arguments": {"handle": handle[1]}}
        assert (await client.rpc("tools/call", read, **{"x-token": "few"})).status == 403
        assert (await client.rpc("tools/call", read, **{"x-token": "all"})).status == 200
        made = await client.rpc("tools/call", {"name": "sum_salaries", "arguments": {}}, **{"x-token": "all"})
        redeem = {"name": "redeem", "arguments": {"promise": made.result()["_meta"]["promise_token"]}}
        assert (await client.rpc("tools/call", redeem, **{"x-token": "few"})).status == 403
        assert (await client.rpc("tools/call", redeem, **{"x-token": "all"})).status == 200


async def test_to_a_caller_that_nobody_vouches_for_such_a_result_does_not_exist() -> None:
    principals = {"some": Principal("anonymous", frozenset({"payroll"})), "none": Principal("anonymous")}
    server = make_server()
    async with server.lifespan():
        client = AsgiClient(
            server.asgi(auth=HostAuth(lambda scope: principals[dict(scope["headers"])[b"x-as"].decode()]))
        )
        client.headers["x-as"] = "some"
        await client.initialize()
        exchange = client.request(1, "tools/call", name="list_salaries", arguments={})
        await exchange.start()
        handle = handle_of(await exchange.json())
        client.headers["x-as"] = "none"
        exchange = client.request(1, "tools/call", name="continue", arguments={"handle": handle})
        status, _ = await exchange.start()
        text = json.dumps(await exchange.json())
        assert (status, "Nothing is kept under the handle" in text, "payroll" in text) == (200, True, False)


@pytest.mark.parametrize("tool", ["list_salaries", "list_names", "echo"])
async def test_handles_of_principals_cannot_be_guessed(tool: str) -> None:
    async with serve_scopes("modern", make_server(), BOTH) as client:
        arguments = {"value": "word " * 2000} if tool == "echo" else {}
        handles = {handle_of((await client.call(tool, **arguments))[2]) for _ in range(20)}
        assert all(re.fullmatch(r"([a-z]{2}[0-9]{3}){4}", handle) for handle in handles)
        assert len(handles) == 20, "the same result has another handle each time"
