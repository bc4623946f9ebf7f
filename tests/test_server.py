"""`DeltaServer`, as an author uses it, with clients in the same process."""

import asyncio
import contextlib
import json
import logging
import threading
import time
from typing import Any

import pytest
from pydantic import BaseModel

from deltamcp import (
    ConfigurationError,
    Context,
    DeltaServer,
    Kind,
    Limits,
    ResourceNotFoundError,
    Text,
    ToolError,
    ToolResult,
)
from deltamcp.catalog.text import tool_text
from tests.support.conditions import HANG_SECONDS, advance_clock
from tests.support.raw_client import META, answer_text, raw_client


@pytest.fixture
def server():
    return DeltaServer("test", "1.0")


async def test_the_version_asked_for_is_echoed_and_an_unknown_one_gets_the_newest(server):
    for asked, given in [("2024-11-05", "2024-11-05"), ("2025-03-26", "2025-03-26"), ("1999-01-01", "2025-11-25")]:
        async with raw_client(server) as client:
            assert (await client.handshake(asked))["result"]["protocolVersion"] == given


async def test_both_eras_share_one_connection(server):
    @server.tool
    async def add(a: int, b: int) -> int:
        return a + b

    async with raw_client(server) as client:
        await client.handshake()
        arguments = {"a": 1, "b": 2}
        assert answer_text(await client.call("tools/call", name="add", arguments=arguments)) == "3"
        modern = await client.modern("tools/call", name="add", arguments=arguments)
        assert (answer_text(modern), modern["result"]["resultType"]) == ("3", "complete")


async def test_requests_run_concurrently_and_the_quick_one_is_first(server):
    gate = asyncio.Event()

    @server.tool
    async def slow() -> str:
        await gate.wait()
        return "slow"

    @server.tool
    async def quick() -> str:
        gate.set()
        return "quick"

    async with raw_client(server) as client:
        for id_, name in enumerate(("slow", "quick")):
            client.send(id=id_, method="tools/call", params={"_meta": META, "name": name})
        assert [(await client.receive())["id"], (await client.receive())["id"]] == [1, 0]


async def test_a_plain_function_runs_in_a_thread_and_can_speak_through_its_context(server):
    @server.tool
    def plain(ctx: Context) -> str:
        ctx.wait(ctx.report_progress(1, 2, "half"))
        return threading.current_thread().name

    async with raw_client(server) as client:
        await client.handshake()
        answer = await client.call("tools/call", name="plain", _meta={"progressToken": 0})
        assert answer_text(answer).startswith("deltamcp")
        assert client.heard[0]["params"] == {"progressToken": 0, "progress": 1, "total": 2, "message": "half"}


async def test_a_plain_function_can_ask_too(server):
    class Name(BaseModel):
        name: str

    @server.tool
    def plain(ctx: Context) -> str:
        answer = ctx.wait(ctx.elicit("Who?", Name, key="who"))
        return str(answer.content.name)

    async with raw_client(server) as client:
        first = await client.modern("tools/call", name="plain")
        assert first["result"]["resultType"] == "input_required"
        second = await client.modern(
            "tools/call",
            name="plain",
            inputResponses={"who": {"action": "accept", "content": {"name": "Ada"}}},
            requestState=first["result"]["requestState"],
        )
        assert answer_text(second) == "Ada"


async def test_state_sealed_for_one_request_opens_no_other(server):
    @server.tool
    async def ask(what: str, ctx: Context) -> str:
        return str((await ctx.elicit(what, {"properties": {"a": {"type": "string"}}}, key="q")).action)

    async with raw_client(server) as client:
        state = (await client.modern("tools/call", name="ask", arguments={"what": "x"}))["result"]["requestState"]
        for arguments, requested in [({"what": "y"}, state), ({"what": "x"}, state[:-2] + "AA")]:
            refused = await client.modern("tools/call", name="ask", arguments=arguments, requestState=requested)
            assert refused["error"]["code"] == -32602


async def test_a_question_that_waits_for_its_user_does_not_use_up_the_deadline(server):
    @server.tool(timeout=60)
    async def ask(ctx: Context) -> str:
        return (await ctx.elicit("Well?", {"properties": {"a": {"type": "string"}}})).action

    async with raw_client(server) as client:
        await client.handshake(elicitation={})
        client.send(id="c", method="tools/call", params={"name": "ask"})
        question = await client.receive()
        advance_clock(90)
        await asyncio.sleep(0)
        client.send(id=question["id"], result={"action": "decline"})
        assert answer_text(await client.receive()) == "decline"


async def test_a_client_that_cannot_be_asked_is_told_by_the_rules_of_its_era(server):
    @server.tool
    async def ask(ctx: Context) -> str:
        return str(await ctx.sample("x", max_tokens=1))

    async with raw_client(server) as client:
        await client.handshake()
        assert (await client.call("tools/call", name="ask"))["result"]["isError"] is True
        bare = {**META, "io.modelcontextprotocol/clientCapabilities": {}}
        refused = await client.call("tools/call", name="ask", _meta=bare)
        assert refused["error"]["code"] == -32021
        assert refused["error"]["data"] == {"requiredCapabilities": {"sampling": {}}}


async def test_errors_are_told_when_meant_for_the_model_and_hidden_when_not(server, caplog):
    @server.tool
    async def told() -> str:
        raise ToolError("Ask for less.")

    @server.tool
    async def hidden() -> str:
        raise RuntimeError("password=hunter2")

    @server.tool
    async def exits() -> str:
        raise SystemExit(3)

    async with raw_client(server) as client:
        assert answer_text(await client.modern("tools/call", name="told")) == "Ask for less."
        with caplog.at_level(logging.ERROR):
            for name in ("hidden", "exits"):
                answer = await client.modern("tools/call", name=name)
                assert answer["result"]["isError"] is True
                assert "hunter2" not in str(answer)
                reference = answer_text(answer).partition("(error ")[2].partition(")")[0]
                assert reference and reference in caplog.text


async def test_a_tool_that_takes_too_long_is_stopped(server):
    stopped = asyncio.Event()

    @server.tool(timeout=0.01)
    async def endless() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            stopped.set()

    async with raw_client(server) as client:
        answer = await client.modern("tools/call", name="endless")
        assert answer["result"]["isError"] is True
        assert stopped.is_set()


async def test_a_cancelled_call_is_stopped_and_not_answered(server):
    started, stopped = asyncio.Event(), asyncio.Event()

    @server.tool
    async def endless() -> None:
        started.set()
        try:
            await asyncio.sleep(60)
        finally:
            stopped.set()

    async with raw_client(server) as client:
        client.send(id="x", method="tools/call", params={"_meta": META, "name": "endless"})
        await started.wait()
        client.send(method="notifications/cancelled", params={"requestId": "x"})
        async with asyncio.timeout(HANG_SECONDS):
            await stopped.wait()
        assert (await client.modern("server/discover"))["id"] == 1
        assert client.heard == []


async def test_the_lifespan_surrounds_the_server_and_reaches_its_tools():
    events: list[str] = []

    @contextlib.asynccontextmanager
    async def lifespan(server):
        events.append("open")
        yield {"database": "here"}
        events.append("closed")

    server = DeltaServer("x", lifespan=lifespan)

    @server.tool
    async def look(ctx: Context) -> str:
        return str(ctx.lifespan["database"])

    async with raw_client(server) as first, raw_client(server) as second:
        assert answer_text(await first.modern("tools/call", name="look")) == "here"
        assert answer_text(await second.modern("tools/call", name="look")) == "here"
    assert events == ["open", "closed"]


async def test_a_lifespan_that_fails_is_the_callers_to_see():
    @contextlib.asynccontextmanager
    async def lifespan(server):
        raise OSError("no database")
        yield

    with pytest.raises(OSError, match="no database"):
        async with raw_client(DeltaServer("x", lifespan=lifespan)):
            pass


async def test_what_is_registered_or_removed_while_running_is_announced_once(server):
    @server.tool
    async def first() -> None: ...

    async with raw_client(server) as client:
        await client.handshake()
        await client.call("ping")
        for number in range(3):
            server.tool(name=f"t{number}")(first)
        assert (await client.receive())["method"] == "notifications/tools/list_changed"
        tools = (await client.call("tools/list"))["result"]["tools"]
        assert [tool["name"] for tool in tools] == ["first", "t0", "t1", "t2"]
        server.remove_tool("t1")
        assert (await client.next_heard())["method"] == "notifications/tools/list_changed"
        assert len((await client.call("tools/list"))["result"]["tools"]) == 3
        assert client.heard == []


async def test_a_subscription_hears_what_it_asked_for_and_nothing_else(server):
    @server.tool
    async def tool() -> None: ...

    @server.resource("x://a")
    async def resource() -> str:
        return "a"

    async with raw_client(server) as client:
        client.send(
            id="sub",
            method="subscriptions/listen",
            params={
                "_meta": META,
                "notifications": {
                    "toolsListChanged": True,
                    "promptsListChanged": True,
                    "resourceSubscriptions": ["x://a"],
                },
            },
        )
        acknowledged = await client.receive()
        assert acknowledged["params"]["notifications"] == {"toolsListChanged": True, "resourceSubscriptions": ["x://a"]}
        server.list_changed(Kind.RESOURCES)
        server.resource_updated("x://b")
        server.resource_updated("x://a")
        heard = await client.receive()
        assert heard["method"] == "notifications/resources/updated"
        assert heard["params"] == {"_meta": {"io.modelcontextprotocol/subscriptionId": "sub"}, "uri": "x://a"}
        client.send(method="notifications/cancelled", params={"requestId": "sub"})
        await client.modern("server/discover")
        server.resource_updated("x://a")
        await client.modern("server/discover")
        assert client.heard == []


async def test_lists_come_in_pages_where_asked_and_a_foreign_cursor_is_refused():
    server = DeltaServer("x", page_size=2)

    async def tool() -> None: ...

    for number in range(5):
        server.tool(name=f"t{number}")(tool)
    names, cursor = [], None
    async with raw_client(server) as client:
        while True:
            page = (await client.modern("tools/list", **({"cursor": cursor} if cursor else {})))["result"]
            names += [tool["name"] for tool in page["tools"]]
            cursor = page.get("nextCursor")
            if cursor is None:
                break
        assert names == [f"t{number}" for number in range(5)]
        for wrong in ("-1", "99", "x", ""):
            assert (await client.modern("tools/list", cursor=wrong))["error"]["code"] == -32602


async def test_what_a_server_lacks_it_does_not_declare_or_answer(server):
    @server.tool
    async def tool() -> None: ...

    async with raw_client(server) as client:
        capabilities = (await client.modern("server/discover"))["result"]["capabilities"]
        assert set(capabilities) == {"tools", "logging", "extensions"}
        methods: list[tuple[str, dict[str, Any]]] = [
            ("prompts/list", {}),
            ("resources/list", {}),
            ("prompts/get", {"name": "x"}),
            ("resources/read", {"uri": "x://y"}),
            (
                "completion/complete",
                {"ref": {"type": "ref/prompt", "name": "x"}, "argument": {"name": "a", "value": ""}},
            ),
        ]
        for method, params in methods:
            assert (await client.modern(method, **params))["error"]["code"] == -32601, method


async def test_resources_say_where_nothing_is(server):
    @server.resource("note://{name}")
    async def note(name: str) -> str:
        if name != "known":
            raise ResourceNotFoundError
        return "text"

    async with raw_client(server) as client:
        await client.handshake()
        assert (await client.call("resources/read", uri="note://known"))["result"]["contents"][0]["text"] == "text"
        for uri in ("note://unknown", "other://x"):
            assert (await client.call("resources/read", uri=uri))["error"]["code"] == -32002
            modern = (await client.modern("resources/read", uri=uri))["error"]
            assert (modern["code"], modern["data"]) == (-32602, {"uri": uri})


async def test_an_unknown_name_gets_the_nearest_ones(server):
    @server.tool
    async def list_issues() -> None: ...

    async with raw_client(server) as client:
        error = (await client.modern("tools/call", name="list_isues"))["error"]
        assert error["code"] == -32602
        assert error["data"]["nearest"] == ["list_issues"]


async def test_a_result_that_cannot_be_sent_says_why(server):
    @server.tool
    async def nan() -> dict[str, float]:
        return {"speed": float("nan")}

    @server.tool
    async def raw() -> bytes:
        return b"x"

    @server.tool(output_schema={"type": "object", "required": ["a"]})
    async def broken() -> dict[str, int]:
        return {}

    @server.tool(output_schema={"type": "object"})
    async def missing() -> ToolResult:
        return ToolResult([Text("x")])

    async with raw_client(server) as client:
        for name, word in [("nan", "speed"), ("raw", "bytes"), ("broken", " a: required"), ("missing", "structured")]:
            answer = await client.modern("tools/call", name=name)
            assert answer["result"]["isError"] is True
            assert word in answer_text(answer)


async def test_a_batch_is_answered_as_one_in_the_revision_that_has_them(server):
    @server.tool
    async def tool() -> str:
        return "x"

    batch = [
        {"jsonrpc": "2.0", "id": 1, "method": "ping"},
        {"jsonrpc": "2.0", "method": "notifications/x"},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "tool"}},
        {"jsonrpc": "2.0", "id": 3, "method": "none"},
        4,
    ]
    for version, accepted in [("2025-03-26", True), ("2025-06-18", False)]:
        async with raw_client(server) as client:
            await client.handshake(version)
            client._link.send(json.dumps(batch).encode())
            answer: Any = await client.receive()
            if accepted:
                assert sorted(str(item["id"]) for item in answer) == ["1", "2", "3", "None"]
            else:
                assert answer["error"]["code"] == -32600


async def test_a_batch_is_answered_without_the_call_its_client_cancelled(server):
    started = asyncio.Event()

    @server.tool
    async def endless() -> None:
        started.set()
        await asyncio.sleep(60)

    call = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "endless"}}
    async with raw_client(server) as client:
        await client.handshake("2025-03-26")
        client._link.send(json.dumps([{"jsonrpc": "2.0", "id": 1, "method": "ping"}, call]).encode())
        await started.wait()
        client.send(method="notifications/cancelled", params={"requestId": 2})
        answer: Any = await client.receive()
        assert [item["id"] for item in answer] == [1]


async def test_two_calls_with_one_id_are_told_apart(server):
    gate = asyncio.Event()

    @server.tool
    async def slow() -> str:
        await gate.wait()
        return "done"

    async with raw_client(server) as client:
        for _ in range(2):
            client.send(id="same", method="tools/call", params={"_meta": META, "name": "slow"})
        assert (await client.receive())["error"]["code"] == -32600
        gate.set()
        assert answer_text(await client.receive()) == "done"


def test_mistakes_of_the_author_are_told_where_they_are_made(server):
    async def tool() -> None: ...

    server.tool(tool)
    mistakes = [
        lambda: server.tool(tool),
        lambda: server.tool(nmae="other")(tool),
        lambda: server.resource("x://y", mimetype="text/plain")(tool),
        lambda: server.prompt(titel="other")(tool),
        lambda: server.remove_tool("none"),
        lambda: server.completion(argument="a")(tool),
        lambda: server.completion(argument="a", prompt="p")(tool),
        lambda: server.resource("x://{a}")(tool),
        lambda: DeltaServer("x", state_key=b"short"),
        lambda: server.run("carrier pigeon"),
    ]
    for mistake in mistakes:
        with pytest.raises(ConfigurationError):
            mistake()


async def test_a_tool_that_blocks_the_loop_is_named(caplog):
    server = DeltaServer("x", limits=Limits(stall_seconds=0.05))

    @server.tool
    async def blocks() -> None:
        until = time.monotonic() + HANG_SECONDS
        while "blocked the event loop" not in caplog.text and time.monotonic() < until:
            time.sleep(0.01)  # noqa: ASYNC251 - the mistake under test

    with caplog.at_level(logging.WARNING):
        async with raw_client(server) as client:
            await client.modern("tools/call", name="blocks")
    assert "The tool blocks has blocked the event loop" in caplog.text


async def test_an_error_stays_an_error_however_long():
    server = DeltaServer("x", disclosure="meta")

    @server.tool
    async def fails() -> None:
        raise ToolError("word " * 30_000)

    async with raw_client(server) as client:
        await client.handshake()
        answer = await client.call("tools/call", name="execute", arguments={"operation": "fails"})
        assert answer["result"]["isError"] is True
        assert answer_text(answer) == "word " * 30_000, "a failure is told whole"


def test_limits_of_nought_are_told():
    node = {"type": "integer", "minimum": 0, "maximum": 0}
    tool = {"name": "f", "inputSchema": {"properties": {"a": node, "b": {"prefixItems": [{"type": "integer"}, {}]}}}}
    tool["inputSchema"]["properties"]["b"]["type"] = "array"  # type: ignore[index]
    assert tool_text.full_text(tool) == "f(a?:int(>=0, <=0), b?:[int, any])"


def test_limits_are_numbers_above_nought():
    for options in ({"threads": 0}, {"threads": -3}, {"handler_seconds": "x"}):
        with pytest.raises(ConfigurationError, match="above 0"):
            Limits(**options)


async def test_a_program_that_runs_the_server_of_somebody_else_configures_it(tmp_path):
    server = DeltaServer("x")
    assert not server.shares_store and not server.shares_state_key
    with pytest.raises(ConfigurationError, match="A store is"):
        server.configure(store="nowhere")
    server.configure(store=f"sqlite:///{tmp_path}/store.db", state_key=[b"k" * 32])
    assert server.shares_store and server.shares_state_key
    server.asgi()
    with pytest.raises(ConfigurationError, match="has a transport already"):
        server.configure(store="memory://")
