"""Tool calls: argument checks, results, timeouts, cancellation and concurrency."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from deltamcp import Context, DeltaServer, Image, ResultPolicy, ToolError
from deltamcp.client.client import connect
from deltamcp.errors import ArgumentsError, CallFailedError, ClientError, DeadlineError, DeltaError, PeerError
from deltamcp.values import CallTool
from tests.support import fake_stdio
from tests.support.conditions import HANG_SECONDS, advance_clock, wait_until
from tests.support.fake_http import ANY, Fake, FakeConnection, FakeRequest, serve_fake
from tests.support.http_server import serve_http
from tests.support.paths import PEER_COMMAND
from tests.support.request_count import count_requests

SPEAK: list[Any] = ["modern", "handshake", "delta-mcp"]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"


@pytest.fixture(params=["answer", -32601], ids=["modern", "handshake"])
def discover(request: Any) -> Any:
    return request.param


def make_server() -> DeltaServer:
    server = DeltaServer("calls")

    @server.tool
    def add(a: int, b: int = 1) -> int:
        """Adds."""
        return a + b

    @server.tool
    def maybe(name: str, nick: str | None = None, tags: list[str] | None = None) -> dict[str, Any]:
        """Has things that may be null."""
        return {"name": name, "nick": nick, "tags": tags}

    @server.tool
    def fails(why: str) -> str:
        """Fails."""
        raise ToolError(why)

    @server.tool
    def breaks() -> str:
        """Has a mistake in it."""
        raise ZeroDivisionError("secret-of-the-author")

    @server.tool
    async def steps(n: int, ctx: Context) -> int:
        """Tells how far it is."""
        for step in range(n):
            await ctx.report_progress(step + 1, n, f"step {step + 1}")
        return n

    @server.tool
    async def waits(ctx: Context) -> str:
        """Waits."""
        await asyncio.Event().wait()
        return "never"

    return server


# Argument checks


@pytest.mark.parametrize("speak", SPEAK)
@pytest.mark.parametrize(
    "arguments", [{}, {"a": "one"}, {"a": 1, "b": 1.5}, {"a": 1, "c": 2}, {"a": None}, {"a": [1]}], ids=str
)
async def test_arguments_that_do_not_fit_are_not_sent(speak, arguments):
    server = make_server()
    counted = count_requests(server)
    async with connect(server, speak=speak) as client:
        with pytest.raises(ArgumentsError) as caught:
            await client.call("add", **arguments)
        assert "add" in str(caught.value) or "a" in str(caught.value)
    assert counted.count(CallTool) == 0


async def test_what_the_server_takes_for_an_argument_left_out_is_not_refused():
    server = DeltaServer("many", disclosure="meta", results=ResultPolicy(max_tokens=100))
    server.tool(name="many")(lambda: [f"row {n * n}" for n in range(900)])
    async with connect(server) as client:
        handle = (await client.call_tool("execute", {"operation": "many", "params": None, "fields": ""})).delta_meta[
            "handle"
        ]
        for value in (None, ""):
            assert "many" in (await client.call_tool("discover", {"query": ["many"], "detail": value})).text
            on = await client.call_tool("continue", {"handle": handle, "page": value, "offset": value, "grep": value})
            assert on.delta_meta["unit"] == "rows" and not on.is_error


REFERRING: dict[str, tuple[dict[str, Any], Any]] = {
    "a text": ({"note": {"$result": "{handle}", "path": "/0/name"}}, "row 0"),
    "a number": ({"count": {"$result": "{handle}", "path": "/7/id"}}, 7),
    "an item": ({"ids": [1, {"$result": "{handle}", "path": "/2/id"}]}, [1, 2]),
    "a list": ({"rows": {"$result": "{handle}"}}, [{"id": n, "name": f"row {n}"} for n in range(300)]),
    "in a choice": ({"either": {"$result": "{handle}", "path": "/3/id"}}, 3),
    "inside a choice": ({"either": {"inner": {"$result": "{handle}", "path": "/4/id"}}}, {"inner": 4}),
    "changed": (
        {"note": {"$result": "{handle}", "path": "/0/name", "patch": [{"find": "w", "replace": "b"}]}},
        "rob 0",
    ),
}


class Inner(BaseModel):
    inner: int


def referring_server() -> DeltaServer:
    server = DeltaServer("rows", results=ResultPolicy(max_tokens=200))
    server.tool(name="rows")(lambda: [{"id": n, "name": f"row {n}"} for n in range(300)])

    @server.tool
    def take(
        note: str = "",
        count: int = 0,
        ids: list[int] = [],  # noqa: B006 - a default of a schema
        rows: list[dict[str, Any]] = [],  # noqa: B006
        either: int | Inner = 0,
    ) -> Any:
        return note or count or ids or rows or (either.model_dump() if isinstance(either, Inner) else either)

    return server


@pytest.mark.parametrize("kind", REFERRING)
@pytest.mark.parametrize("speak", ["modern", "handshake"])
async def test_a_reference_is_sent_where_the_server_resolves_it(speak: Any, kind):
    arguments, expected = REFERRING[kind]
    async with connect(referring_server(), speak=speak) as client:
        assert client.server.resolves_references
        handle = (await client.call_tool("rows")).handle
        assert handle is not None
        sent = json.loads(json.dumps(arguments).replace("{handle}", handle))
        assert await client.call("take", **sent) == expected


@pytest.mark.parametrize("beside", [{"zz": 1}, {"count": "many"}, {"ids": ["x"]}, {"either": "x"}])
async def test_a_reference_excuses_nothing_else(beside):
    server = referring_server()
    counted = count_requests(server)
    async with connect(server) as client:
        with pytest.raises(ArgumentsError):
            await client.call("take", note={"$result": "R"}, **beside)
        assert counted.count(CallTool) == 0


async def test_a_reference_is_refused_where_the_server_does_not_resolve_it(log, discover):
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    tools = [{"name": "echo", "inputSchema": schema}]
    async with connect(fake_stdio.command(log=log, discover=discover, tools=tools)) as client:
        assert not client.server.resolves_references
        with pytest.raises(ArgumentsError):
            await client.call("echo", a={"$result": "R1"})


@pytest.mark.parametrize("speak", SPEAK)
async def test_who_does_not_want_arguments_checked_has_the_server_check_them(speak):
    server = make_server()
    counted = count_requests(server)
    async with connect(server, speak=speak, validate=False) as client:
        with pytest.raises((CallFailedError, PeerError)):
            await client.call("add", a="one")
    assert counted.count(CallTool) == 1


@pytest.mark.parametrize("speak", SPEAK)
async def test_null_stands_for_left_out_where_it_may(speak):
    async with connect(make_server(), speak=speak) as client:
        assert await client.call("maybe", name="x", nick=None) == {"name": "x", "nick": None, "tags": None}
        assert await client.call("maybe", name="x", tags=["t"]) == {"name": "x", "nick": None, "tags": ["t"]}
        with pytest.raises(ArgumentsError):
            await client.call("maybe", name=None)


async def test_null_for_what_is_optional_but_may_not_be_null_is_left_out(log):
    """Models write null for arguments that they leave out, even if the schema does not allow null."""
    schema = {"type": "object", "properties": {"q": {"type": "string"}, "n": {"type": "integer"}}, "required": ["q"]}
    tools = [{"name": "echo", "inputSchema": schema}]
    async with connect(fake_stdio.command(log=log, tools=tools)) as client:
        assert (await client.call("echo", q="x", n=None))["given"] == {"q": "x"}


async def test_null_that_the_schema_admits_is_sent(log):
    """Where the schema allows null, it may mean "set it to null"."""
    schema = {"type": "object", "properties": {"due": {"type": ["string", "null"]}, "any": {}, "deep": ANY}}
    async with connect(fake_stdio.command(log=log, tools=[{"name": "echo", "inputSchema": schema}])) as client:
        assert (await client.call("echo", due=None))["given"] == {"due": None}
        assert (await client.call("echo", any=None))["given"] == {"any": None}
        assert (await client.call("echo", deep={"x": None}))["given"] == {"deep": {"x": None}}


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "$ref": "https://elsewhere.example/schema.json"},
        {"type": "object", "properties": {"a": {"$ref": "#/$defs/missing"}}},
        {"type": "object", "properties": {"a": {"type": "text"}}},
        {"type": "object", "properties": {"a": {"pattern": "(unclosed"}}},
        {"type": "object", "properties": []},
        {"$schema": "http://json-schema.org/draft-04/schema#", "type": "object"},
        {"$schema": "https://nobody.example/draft", "type": "object"},
        {"properties": {"a": {"type": "integer"}}},
        True,
        {},
        None,
        [],
        "object",
    ],
    ids=str,
)
async def test_a_schema_that_cannot_be_used_does_not_keep_a_tool_from_being_called(log, schema):
    tools = [{"name": "echo", "inputSchema": schema}]
    async with connect(fake_stdio.command(log=log, tools=tools)) as client:
        assert (await client.call("echo", a=1))["given"] == {"a": 1}


@pytest.mark.parametrize(
    "value", [float("nan"), float("inf"), object(), "\ud800"], ids=["nan", "inf", "object", "surrogate"]
)
async def test_arguments_that_json_cannot_say_are_told_before_anything_is_sent(log, discover, value):
    async with connect(fake_stdio.command(log=log, discover=discover)) as client:
        with pytest.raises((ArgumentsError, ClientError, TypeError, ValueError)):
            await client.call_tool("echo", {"a": value}, timeout=HANG_SECONDS)
        assert (await client.call("echo", a=1))["given"] == {"a": 1}
    assert fake_stdio.tools_run(log) == ["echo"]


async def test_arguments_named_as_the_clients_own_parameters(log):
    async with connect(fake_stdio.command(log=log)) as client:
        given = {"name": "n", "self": 1, "timeout": 2, "want": 3, "arguments": {"x": 1}, "progress": 4}
        assert (await client.call("echo", **given))["given"] == given


async def test_what_the_caller_gave_is_not_changed(log):
    given = {"a": None, "b": {"c": [1]}}
    async with connect(fake_stdio.command(log=log)) as client:
        await client.call_tool("echo", given)
    assert given == {"a": None, "b": {"c": [1]}}


@pytest.mark.parametrize("speak", SPEAK)
async def test_a_tool_that_does_not_exist_is_told(speak):
    async with connect(make_server(), speak=speak) as client:
        with pytest.raises((ClientError, PeerError), match=r"\bad\b"):
            await client.call("ad", a=1)


# Results


@pytest.mark.parametrize("speak", SPEAK)
async def test_a_tool_that_fails_is_an_error_of_call_and_an_answer_of_call_tool(speak):
    async with connect(make_server(), speak=speak) as client:
        with pytest.raises(CallFailedError, match="no luck") as caught:
            await client.call("fails", why="no luck today")
        assert caught.value.reply.is_error
        reply = await client.call_tool("fails", {"why": "no luck today"})
        assert reply.is_error
        assert "no luck today" in reply.text


@pytest.mark.parametrize("speak", SPEAK)
async def test_a_mistake_of_the_author_tells_nothing_of_the_author(speak):
    async with connect(make_server(), speak=speak) as client:
        with pytest.raises((CallFailedError, PeerError)) as caught:
            await client.call("breaks")
        assert "secret-of-the-author" not in str(caught.value)


async def test_an_error_of_the_server_comes_with_its_code_and_data(log, discover):
    tools = [{"name": "refuse", "inputSchema": ANY}]
    async with connect(fake_stdio.command(log=log, discover=discover, tools=tools)) as client:
        with pytest.raises(PeerError, match=r"Not today\.") as caught:
            await client.call("refuse")
        assert (caught.value.code, caught.value.data) == (-32603, {"why": 1})


@pytest.mark.parametrize("speak", SPEAK)
@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        0,
        -1.5,
        "",
        "text",
        "a\nb",
        [],
        {},
        [1, "2", None],
        [[], {}],
        {"result": 1},
        {"a": {"b": [1, {"c": None}]}},
        [{"id": 1, "n": "x"}, {"id": 2, "n": "y"}],
        2**60,
        "@table",
        {"text": "t", "type": "text"},
    ],
    ids=repr,
)
async def test_a_value_is_given_back_as_the_function_returned_it(speak, value):
    server = DeltaServer("values")

    @server.tool
    def give() -> Any:
        """Gives it."""
        return value

    async with connect(server, speak=speak) as client:
        got = await client.call("give")
        assert got == value
        assert type(got) is type(value)


@pytest.mark.parametrize("speak", SPEAK)
@pytest.mark.parametrize("text", ["123", "null", "true", '{"a": 1}', "[1, 2]", '"quoted"', "plain", ""])
@pytest.mark.parametrize("declared", [True, False])
async def test_a_text_stays_a_text_whatever_is_in_it(speak, text, declared):
    """A tool that returns a file's text returns text even if the file holds JSON."""
    server = DeltaServer("texts")

    def undeclared():
        """Reads."""
        return text

    def read() -> str:
        """Reads."""
        return str(text)

    server.tool(name="read")(read if declared else undeclared)
    async with connect(server, speak=speak) as client:
        assert await client.call("read") == text


@pytest.mark.parametrize("speak", SPEAK)
async def test_content_that_is_no_text_comes_as_it_is(speak):
    server = DeltaServer("images")

    @server.tool
    def picture() -> Any:
        """Paints."""
        return Image(b"\x89PNG", "image/png")

    async with connect(server, speak=speak) as client:
        reply = await client.call_tool("picture")
        assert reply.content[0]["type"] == "image"


# Timeouts and cancellation


@pytest.mark.parametrize("speak", ["modern", "handshake"])
async def test_progress_is_told_to_the_call_it_is_of(speak: Any):
    async with connect(make_server(), speak=speak) as client:
        told: dict[int, list[Any]] = {3: [], 5: []}
        await asyncio.gather(
            *(client.call_tool("steps", {"n": n}, progress=lambda *step, n=n: told[n].append(step)) for n in told)
        )
    for n, steps in told.items():
        assert steps == [(step, n, f"step {step}") for step in range(1, n + 1)]


async def test_progress_callbacks_may_be_async(log, discover):
    told: list[Any] = []

    async def progress(*step: Any) -> None:
        await asyncio.sleep(0)
        told.append(step)

    tools = [{"name": "progress", "inputSchema": ANY}]
    async with connect(fake_stdio.command(log=log, discover=discover, tools=tools)) as client:
        reply = await client.call_tool("progress", progress=progress)
        assert reply.value == {"token": True}
        await wait_until(lambda: not (len(told) < 3))
        assert told == [(step, 3, f"step {step}") for step in (1, 2, 3)]
        assert (await client.call_tool("progress")).value == {"token": False}


async def test_a_slow_progress_callback_is_told_things_in_their_order(log, discover):
    told: list[Any] = []
    done = asyncio.Event()

    async def progress(step: float, *_: Any) -> None:
        for _turn in range(10 * int(3 - step)):
            await asyncio.sleep(0)
        told.append(step)
        if len(told) == 3:
            done.set()

    tools = [{"name": "progress", "inputSchema": ANY}]
    async with connect(fake_stdio.command(log=log, discover=discover, tools=tools)) as client:
        await client.call_tool("progress", progress=progress)
        await asyncio.wait_for(done.wait(), HANG_SECONDS)
    assert told == [1, 2, 3]


async def test_progress_over_http():
    async def steps(asked: FakeRequest, wire: FakeConnection) -> None:
        token = asked.params["_meta"]["progressToken"]
        await wire.events()
        for n in (1, 2.5):
            told = {"progressToken": token, "progress": n}
            await wire.event({"jsonrpc": "2.0", "method": "notifications/progress", "params": told})
        await wire.event(fake.run(asked))
        await wire.end()

    for modern in (True, False):
        told: list[Any] = []
        async with serve_fake(Fake(modern=modern, handshake=not modern)) as fake:
            fake.once("tools/call", steps)
            async with connect(fake.url) as client:
                await client.call_tool("echo", progress=lambda *step, told=told: told.append(step))
        assert told == [(1, None, None), (2.5, None, None)]


@pytest.mark.parametrize("how", ["timeout", "option", "cancel"])
async def test_a_process_is_told_that_nobody_waits_any_more(log, discover, how):
    tools = [{"name": "hang", "inputSchema": ANY}, {"name": "echo", "inputSchema": ANY}]
    options: Any = {"timeout": 3600} if how == "option" else {}
    async with connect(fake_stdio.command(log=log, discover=discover, tools=tools), **options) as client:
        await client.tools()
        call = asyncio.create_task(client.call_tool("hang", timeout=3600 if how == "timeout" else None))
        await wait_until(lambda: bool(fake_stdio.tools_run(log)))
        if how == "cancel":
            call.cancel()
        else:
            advance_clock(3600)
        with pytest.raises(asyncio.CancelledError if how == "cancel" else DeadlineError):
            await call
        assert (await client.call("echo", a=1))["given"] == {"a": 1}
    hung = next(message for message in fake_stdio.messages(log, "tools/call") if message["params"]["name"] == "hang")
    cancelled = [message["params"]["requestId"] for message in fake_stdio.messages(log, "notifications/cancelled")]
    assert cancelled.count(hung["id"]) == 1


async def test_initialize_is_never_cancelled(log):
    """2025-11-25, "Cancellation": it MUST NOT be."""
    client = connect(fake_stdio.command(log=log, discover=-32601, initialize="silent"), start_timeout=3600)
    entering = asyncio.create_task(client.__aenter__())
    await wait_until(lambda: bool(fake_stdio.messages(log, "initialize")))
    advance_clock(3600)
    with pytest.raises(DeltaError):
        await entering
    initialize = fake_stdio.messages(log, "initialize")
    cancelled = [message["params"]["requestId"] for message in fake_stdio.messages(log, "notifications/cancelled")]
    assert not {message["id"] for message in initialize} & set(cancelled)


@pytest.mark.parametrize("speak", ["modern", "handshake"])
async def test_a_function_is_stopped_when_its_call_is(speak: Any):
    server = DeltaServer("stops")
    began, ended = asyncio.Event(), asyncio.Event()

    @server.tool
    async def waits() -> str:
        """Waits."""
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return ""

    async with serve_http(server) as url:
        for target in (server, url):
            began.clear()
            ended.clear()
            async with connect(target, speak=speak) as client:
                call = asyncio.create_task(client.call("waits"))
                await asyncio.wait_for(began.wait(), HANG_SECONDS)
                call.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await call
                await asyncio.wait_for(ended.wait(), HANG_SECONDS)


async def test_an_answer_after_the_deadline_is_nobodys(log, discover):
    tools = [{"name": name, "inputSchema": ANY} for name in ("late", "release", "echo")]
    async with connect(fake_stdio.command(log=log, discover=discover, tools=tools)) as client:
        await client.tools()
        call = asyncio.create_task(client.call_tool("late", {"n": 1}, timeout=3600))
        await wait_until(lambda: bool(fake_stdio.tools_run(log)))
        advance_clock(3600)
        with pytest.raises(DeadlineError):
            await call
        await client.call("release")
        assert (await client.call("echo", a=1))["given"] == {"a": 1}


async def test_a_deadline_over_http_closes_the_connection():
    began, gone = asyncio.Event(), asyncio.Event()

    async def hangs(asked: FakeRequest, wire: FakeConnection) -> None:
        await wire.events()
        began.set()
        try:
            while True:
                await wire.chunk(b": still here\n\n")
                await asyncio.sleep(0.01)
        finally:
            gone.set()

    async with serve_fake(Fake(handshake=False)) as fake:
        fake.once("tools/call", hangs)
        async with connect(fake.url) as client:
            call = asyncio.create_task(client.call_tool("echo", timeout=3600))
            await began.wait()
            advance_clock(3600)
            with pytest.raises(DeadlineError):
                await call
            await asyncio.wait_for(gone.wait(), HANG_SECONDS)
            assert (await client.call("echo", a=1))["given"] == {"a": 1}


# Concurrency


@pytest.mark.parametrize("speak", SPEAK)
async def test_a_thousand_calls_at_once_in_this_process(speak):
    """No call ends before the last one has begun."""
    server = DeltaServer("many")
    inside = 0
    everyone = asyncio.Event()

    @server.tool
    async def twice(n: int) -> int:
        """Doubles."""
        nonlocal inside
        inside += 1
        if inside == 1000:
            everyone.set()
        await everyone.wait()
        return 2 * n

    async with connect(server, speak=speak) as client:
        assert await asyncio.gather(*(client.call("twice", n=n) for n in range(1000))) == [2 * n for n in range(1000)]


async def test_a_thousand_calls_at_once_on_one_process():
    async with connect(PEER_COMMAND, quiet=True) as client:
        got = await asyncio.gather(*(client.call("add", a=n, b=1) for n in range(1000)))
    assert got == [n + 1 for n in range(1000)]


@pytest.mark.parametrize("speak", ["modern", "handshake"])
async def test_a_thousand_calls_at_once_over_http(speak: Any):
    server = DeltaServer("many")

    @server.tool
    async def twice(n: int) -> int:
        """Doubles."""
        await asyncio.sleep(0)
        return 2 * n

    async with serve_http(server) as url, connect(url, speak=speak) as client:
        assert await asyncio.gather(*(client.call("twice", n=n) for n in range(1000))) == [2 * n for n in range(1000)]


async def test_a_timeout_is_of_everything_that_has_to_be_done_for_an_answer():
    async def hangs_up(asked: FakeRequest, wire: FakeConnection) -> None:
        wire.close()

    async with serve_fake(Fake(handshake=False)) as fake, connect(fake.url, timeout=3600) as client:
        await client.tools()
        fake.always("tools/call", hangs_up)
        call = asyncio.create_task(client.call("look"))
        await wait_until(lambda: bool(fake.of("tools/call")))
        advance_clock(3600)
        with pytest.raises(DeadlineError):
            await call
        assert len(fake.of("tools/call")) < 6


@pytest.mark.parametrize(
    ("levels", "error"),
    [
        (200, "PeerError: The message is nested deeper than 128"),
        (3000, "ArgumentsError: The message cannot be encoded"),
    ],
)
async def test_arguments_that_are_nested_too_deeply_fail_the_call(levels, error):
    server = DeltaServer("deep")
    server.tool(lambda v: v, name="show")
    nested: list[Any] = []
    for _ in range(levels):
        nested = [nested]
    async with connect(server, timeout=HANG_SECONDS) as client:
        with pytest.raises(DeltaError) as raised:
            await client.call_tool("show", {"v": nested})
        assert f"{type(raised.value).__name__}: {raised.value}".startswith(error)
