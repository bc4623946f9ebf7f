"""Operations that call tools of other MCP servers: ours, the official SDK's, and servers that misbehave."""

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest

from deltamcp import (
    Annotations,
    Audio,
    DeltaServer,
    EmbeddedResource,
    Image,
    ResourceLink,
    Text,
    TextResource,
    ToolError,
    ToolResult,
    connect,
)
from deltamcp.catalog.operations_file import UpstreamEntry
from deltamcp.runtime.threads import Computations
from deltamcp.sources.mcp import McpUpstream
from tests.support import fake_stdio
from tests.support.conditions import wait_until
from tests.support.forwarded_call import context_of
from tests.support.paths import FORKED_PYTHON

SDK_SERVER = """
from mcp.server import MCPServer

server = MCPServer("peer")

@server.tool()
def add(a: int, b: int) -> int:
    return a + b

server.run("stdio")
"""

ODD_SERVER = '''
"""Speaks only as much MCP as its tests need, and some things that are not."""
import json, os, sys, time

def say(**message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)

heard, waiting = [], []
for line in sys.stdin:
    message = json.loads(line)
    heard.append(message)
    method, params = message.get("method"), message.get("params", {})
    if method == "server/discover":
        heard.pop()
        say(id=message["id"], error={"code": -32601, "message": "Method not found"})
    elif method == "initialize":
        print("a line that is not JSON", flush=True)
        say(id=message["id"], result={"protocolVersion": os.environ.get("VERSION", "2025-11-25"), "capabilities": {}})
    elif method == "tools/call":
        answer = {"id": message["id"]}
        match params["name"]:
            case "heard":
                say(**answer, result={"content": [], "structuredContent": {"heard": heard}})
            case "environment":
                say(**answer, result={"content": [], "structuredContent": dict(os.environ)})
            case "ask":
                say(id="q1", method="ping")
                say(id="q2", method="sampling/createMessage", params={})
                say(method="notifications/message", params={"level": "info", "data": "x"})
                say(**answer, result={"content": []})
            case "odd":
                content = [{"type": "hologram", "x": 1}, {"type": "text", "text": "t", "y": 2}, {"type": "resource"}, 3]
                say(**answer, result={"content": content})
            case "nothing":
                say(**answer, result=None)
            case "refuse":
                say(**answer, error={"code": -32602, "message": "no " * 1000})
            case "later":
                waiting.append((message["id"], params["arguments"]["n"]))
                if len(waiting) == 3:
                    for id_, n in reversed(waiting):
                        say(id=id_, result={"content": [{"type": "text", "text": str(n)}]})
            case "die":
                sys.exit(3)
            case "long":
                print("x" * 200_000, flush=True)
if os.environ.get("STUBBORN"):
    import signal
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(60)
'''


class CalledUpstream:
    """A server that is called by a client which can do nothing but wait for answers."""

    def __init__(self, name: str, entry: UpstreamEntry, environment: Mapping[str, str]) -> None:
        self.source = McpUpstream(name, entry, environment, Computations(4_000_000))
        self.close = self.source.close

    async def call(self, tool: str, arguments: dict[str, Any], timeout: float | None = None) -> ToolResult:
        return await self.source.call(tool, arguments, context_of(), timeout=timeout)


@contextlib.asynccontextmanager
async def upstream(**options: Any) -> AsyncIterator[CalledUpstream]:
    made = CalledUpstream("peer", UpstreamEntry(**options), os.environ)
    try:
        yield made
    finally:
        await made.close()


def odd(**env: str) -> contextlib.AbstractAsyncContextManager[CalledUpstream]:
    return upstream(command=sys.executable, args=["-c", ODD_SERVER], env=env)


async def heard_by(made: CalledUpstream) -> list[dict[str, Any]]:
    """Returns every message that the odd server received, including this request."""
    structured: Any = (await made.call("heard", {})).structured
    heard: list[dict[str, Any]] = structured["heard"]
    return heard


@pytest.fixture(params=["stdio", "http"])
async def everything_upstream(request, command, everything) -> AsyncIterator[CalledUpstream]:
    """The example server, over stdio or HTTP."""
    options = {"command": command[0], "args": command[1:]} if request.param == "stdio" else {"url": everything}
    async with upstream(**options) as made:
        yield made


# Servers that behave


async def test_content_of_every_kind_comes_through(everything_upstream):
    call = everything_upstream.call
    assert (await call("test_simple_text", {})).content == [Text("This is a simple text response for testing.")]
    text, image, embedded = (await call("test_multiple_content_types", {})).content
    assert isinstance(text, Text)
    assert isinstance(image, Image)
    assert image.data.startswith(b"\x89PNG")
    assert embedded == EmbeddedResource(
        TextResource("test://mixed-content-resource", '{"test":"data","value":123}', "application/json")
    )
    (sound,) = (await call("test_audio_content", {})).content
    assert isinstance(sound, Audio)
    (link,) = (await call("test_resource_link", {})).content
    assert link == ResourceLink("test://static-text", "static-text", mime_type="text/plain")


async def test_annotations_structure_and_metadata_come_through(everything_upstream):
    result = await everything_upstream.call("test_annotated_content", {})
    assert result.content == [Text("For the user's eyes.", annotations=Annotations(audience=["user"], priority=0.5))]
    assert result.meta == {"example.org/origin": "everything"}
    result = await everything_upstream.call("test_structured_output", {"place": {"city": "Bern"}})
    assert result.structured == {"city": "Bern", "celsius": 21.0, "sky": "clear"}
    assert result.is_error is False


async def test_failures_of_a_tool_stay_its_own(everything_upstream):
    result = await everything_upstream.call("test_error_handling", {})
    assert result.is_error is True
    assert result.content == [Text("This tool intentionally returns an error for testing")]


async def test_what_the_server_refuses_is_an_error(everything_upstream):
    with pytest.raises(ToolError, match="no_such_tool"):
        await everything_upstream.call("no_such_tool", {})


async def test_calls_run_side_by_side(everything_upstream):
    results = await asyncio.gather(
        *(everything_upstream.call("test_plain_function", {"text": str(n), "times": 1}) for n in range(20))
    )
    assert [result.content for result in results] == [[Text(f'["{n}"]')] for n in range(20)]


async def test_a_server_that_speaks_while_it_works_is_heard_out(everything_upstream):
    result = await everything_upstream.call("test_tool_with_logging", {})
    assert result.content == [Text("Tool with logging executed successfully")]
    try:
        refused = str((await everything_upstream.call("test_sampling", {"prompt": "x"})).content)
    except ToolError as error:  # of the modern era, in which the server knows before it asks
        refused = str(error)
    assert "does not support sampling" in refused


async def test_a_stream_that_closes_early_is_taken_up_again(everything_upstream):
    result = await everything_upstream.call("test_reconnection", {})
    assert result.content == [Text("Delivered after reconnecting")]


async def test_a_deadline_ends_the_wait_and_not_the_server(everything_upstream):
    await everything_upstream.call("test_simple_text", {})
    with pytest.raises(ToolError, match=r"^The server peer behind this operation took longer than 0\.05 s"):
        await everything_upstream.call("test_tool_with_progress", {}, timeout=0.05)
    assert (await everything_upstream.call("test_simple_text", {})).content


async def test_after_closing_a_call_starts_anew(everything_upstream):
    await everything_upstream.call("test_simple_text", {})
    await everything_upstream.close()
    assert (await everything_upstream.call("test_simple_text", {})).content


async def test_the_official_sdks_server_is_understood():
    async with upstream(command=str(FORKED_PYTHON), args=["-c", SDK_SERVER]) as made:
        result = await made.call("add", {"a": 2, "b": 3})
    assert result.content == [Text("5")]
    assert result.structured == {"result": 5}


# Servers that are lost


async def test_a_process_that_ends_fails_every_call_and_is_started_again():
    async with odd() as made:
        waiting = asyncio.create_task(made.call("later", {"n": 1}))
        await made.call("heard", {})
        for lost in await asyncio.gather(made.call("die", {}), waiting, return_exceptions=True):
            assert isinstance(lost, ToolError)
            assert str(lost) == (
                "The server peer behind this operation ended before it answered; "
                "check whether the call took effect before you try again."
            )
        assert [message["method"] for message in await heard_by(made)] == [
            "initialize",
            "notifications/initialized",
            "tools/call",
        ]


async def test_a_line_too_long_fails_the_call_and_not_the_server(monkeypatch):
    monkeypatch.setattr("deltamcp.client.client.DEFAULT_MAX_BYTES", 100_000)
    async with odd() as made:
        with pytest.raises(ToolError, match="more than can be read; check whether the call took effect"):
            await made.call("long", {})
        assert await made.call("heard", {})


async def test_a_command_that_is_not_there_is_told_without_its_name(caplog):
    async with upstream(command="/no/such/command") as made:
        with pytest.raises(
            ToolError,
            match=r"^The server peer behind this operation cannot be used: cannot be started; try again later\.$",
        ):
            await made.call("x", {})
    assert "/no/such/command" in caplog.text


async def test_a_program_that_ends_at_once_is_told():
    async with upstream(command=sys.executable, args=["-c", "pass"]) as made:
        with pytest.raises(ToolError, match="cannot be used: "):
            await made.call("x", {})


async def test_an_address_where_nobody_is_is_told():
    async with upstream(url="http://127.0.0.1:1/mcp") as made:
        with pytest.raises(ToolError, match=r"cannot be used: .*; try again later"):
            await made.call("x", {})


async def test_an_address_that_is_no_mcp_server_is_told(everything):
    async with upstream(url=f"{everything}/nowhere") as made:
        with pytest.raises(ToolError, match=r"cannot be used: .*; try again later"):
            await made.call("x", {})


async def test_a_server_of_an_unknown_revision_is_refused():
    async with odd(VERSION="1999-01-01") as made:
        with pytest.raises(ToolError, match="cannot be used: "):
            await made.call("heard", {})


# What is said to a server


async def test_answers_find_their_calls_in_any_order():
    async with odd() as made:
        results = await asyncio.gather(*(made.call("later", {"n": n}) for n in range(3)))
    assert [result.content for result in results] == [[Text("0")], [Text("1")], [Text("2")]]


async def test_a_cancelled_call_is_told_to_the_server():
    async with odd() as made:
        await made.call("heard", {})
        call = asyncio.create_task(made.call("later", {"n": 1}))
        await made.call("heard", {})
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        heard = await heard_by(made)
        while heard[-2]["method"] != "notifications/cancelled":  # said in passing, some time after the call ended
            heard = await heard_by(made)
    asked = next(message for message in heard if message.get("params", {}).get("name") == "later")
    assert heard[-2] == {
        "jsonrpc": "2.0",
        "method": "notifications/cancelled",
        "params": {"requestId": asked["id"]},
    }


async def test_pings_are_answered_and_other_requests_declined():
    async with odd() as made:
        await made.call("ask", {})
        heard = await heard_by(made)
    assert [message for message in heard if "method" not in message] == [
        {"jsonrpc": "2.0", "id": "q1", "result": {}},
        {
            "jsonrpc": "2.0",
            "id": "q2",
            "error": {"code": -32602, "message": "The client does not support sampling."},
        },
    ]


async def test_content_nobody_here_knows_comes_through_as_it_came():
    async with odd() as made:
        result = await made.call("odd", {})
    assert result.content == [
        {"type": "hologram", "x": 1},
        {"type": "text", "text": "t", "y": 2},
        {"type": "resource"},
        Text("3"),
    ]


async def test_an_answer_that_is_no_result_is_told():
    async with odd() as made:
        with pytest.raises(ToolError, match="The answer to tools/call is no object"):
            await made.call("nothing", {})


async def test_a_long_refusal_is_cut():
    async with odd() as made:
        with pytest.raises(ToolError) as caught:
            await made.call("refuse", {})
    assert len(str(caught.value)) == 500


async def test_a_server_sees_its_own_variables_and_not_our_secrets(monkeypatch):
    monkeypatch.setenv("SECRET_OF_OTHERS", "hidden")
    async with odd(MINE="${HOME} is home") as made:
        seen: Any = (await made.call("environment", {})).structured
    assert seen["MINE"] == f"{os.environ['HOME']} is home"
    assert "SECRET_OF_OTHERS" not in seen


async def test_a_server_that_will_not_go_is_made_to(monkeypatch):
    monkeypatch.setattr("deltamcp.client.links.process._CLOSE_SECONDS", 0.2)
    async with odd(STUBBORN="1") as made:
        await made.call("heard", {})
        client: Any = made.source._upstream._clients.local._client
        child = client._connector.connection.link._process.transport
    assert child.get_returncode() == -9


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.skipif(not hasattr(os, "killpg"), reason="Windows has no process groups")
async def test_what_a_server_started_goes_with_it(tmp_path):
    left = tmp_path / "pid"
    script = f'sleep 1000 & echo $! > {left}; exec {sys.executable} -c "$0"'
    async with upstream(command="sh", args=["-c", script, ODD_SERVER]) as made:
        await made.call("heard", {})
        pid = int(left.read_text())
        os.kill(pid, 0)
    await wait_until(lambda: not is_running(pid), "its end, once whoever adopted it has noticed")


async def test_a_secret_that_a_server_repeats_is_left_out():
    made = CalledUpstream(
        "odd",
        UpstreamEntry(command=sys.executable, args=["-c", ODD_SERVER, "${TOKEN}"], env={"KEY": "${TOKEN}"}),
        {"TOKEN": "no no no no", "PATH": os.environ["PATH"]},
    )
    try:
        with pytest.raises(ToolError) as refused:
            await made.call("refuse", {})
        seen = await made.call("environment", {})
    finally:
        await made.close()
    assert "no no no no" not in str(refused.value)
    assert isinstance(seen.structured, dict) and seen.structured["KEY"] == "..."


# What passes between the caller and a server


QUESTION = {
    "method": "elicitation/create",
    "params": {"message": "Which?", "requestedSchema": {"type": "object", "properties": {"x": {"type": "string"}}}},
}


@pytest.mark.parametrize("speak", ["modern", "handshake"])
async def test_questions_and_progress_pass_through_an_operation(tmp_path, speak):
    command, *args = fake_stdio.command(discover=-32601)
    operations = {
        name: {
            "name": name,
            "inputSchema": {"type": "object"},
            "handler": {"kind": "mcp", "server": "peer", "tool": name},
        }
        for name in ("ask", "progress")
    }
    file = tmp_path / "operations.json"
    file.write_text(
        json.dumps({"mcpServers": {"peer": {"command": command, "args": args}}, "operations": {"peer": operations}})
    )
    server = DeltaServer("front", disclosure="full")
    server.operations(file)
    steps: list[float] = []
    options: Any = {"speak": speak, "on_elicitation": lambda params: {"x": params["message"]}}
    async with connect(server, **options) as client:
        answers = (await client.call("ask", questions={"q": QUESTION}))["answers"]
        assert answers == {"q": {"action": "accept", "content": {"x": "[server peer asks] Which?"}}}
        await client.call_tool("progress", {}, progress=lambda done, total, text: steps.append(done))
    assert steps == [1, 2, 3]
