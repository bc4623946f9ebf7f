"""Lost connections: the server never does a call twice that is not idempotent; the client repeats one that is."""

import asyncio
import json
import os
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from deltamcp.client.client import connect
from deltamcp.errors import ClientError, ConnectionLostError, DeadlineError, DeltaError
from tests.support import fake_stdio
from tests.support.conditions import HANG_SECONDS, advance_clock, wait_until
from tests.support.fake_http import ANY, Fake, FakeConnection, FakeRequest, head, serve_fake
from tests.support.processes import free_port

REPEATABLE = ("look", "put")


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"


@pytest.fixture(params=["answer", -32601], ids=["modern", "handshake"])
def discover(request: Any) -> Any:
    return request.param


@pytest.fixture(params=["modern", "handshake"])
def fake(request: Any) -> Fake:
    modern = request.param == "modern"
    return Fake(modern=modern, handshake=not modern, sessions=not modern)


# A process that exits


@pytest.mark.parametrize("half", [False, True], ids=["silent", "mid-line"])
async def test_a_process_that_dies_in_a_call_is_not_asked_to_do_it_again(log, discover, half):
    async with connect(fake_stdio.command(log=log, discover=discover)) as client:
        with pytest.raises(ConnectionLostError) as caught:
            await client.call("buy", deaths=1, half=half)
        assert caught.value.maybe_done is True
        assert fake_stdio.tools_run(log) == ["buy"]
        assert (await client.call("buy"))["life"] == 1
    assert fake_stdio.tools_run(log) == ["buy", "buy"]


@pytest.mark.parametrize("name", REPEATABLE)
async def test_what_may_be_repeated_survives_a_process_that_dies(log, discover, name):
    async with connect(fake_stdio.command(log=log, discover=discover)) as client:
        assert await client.call(name, deaths=1) == {"ran": 2, "life": 1}
    assert fake_stdio.tools_run(log) == [name, name]


@pytest.mark.parametrize("name", REPEATABLE)
async def test_what_may_be_repeated_is_not_repeated_for_ever(log, name):
    async with connect(fake_stdio.command(log=log)) as client:
        with pytest.raises(ConnectionLostError):
            await asyncio.wait_for(client.call(name, deaths=1_000), HANG_SECONDS)
    assert 1 < len(fake_stdio.tools_run(log)) <= 10


async def test_what_a_tool_says_of_itself_that_is_not_true_counts_as_not_said(log):
    """A hint is a boolean; the client ignores a text."""
    tools = [{"name": "buy", "inputSchema": ANY, "annotations": {"readOnlyHint": "false", "idempotentHint": None}}]
    async with connect(fake_stdio.command(log=log, tools=tools)) as client:
        with pytest.raises(ConnectionLostError):
            await client.call("buy", deaths=1)
    assert fake_stdio.tools_run(log) == ["buy"]


async def test_a_tool_that_is_not_listed_is_not_repeated(log):
    async with connect(fake_stdio.command(log=log, tools=[{"name": "echo"}])) as client:
        with pytest.raises(DeltaError):
            await client.call_tool("buy", {"deaths": 1})
    assert fake_stdio.tools_run(log) in ([], ["buy"])


async def test_a_call_sent_as_a_bare_request_is_not_repeated(log, discover):
    async with connect(fake_stdio.command(log=log, discover=discover)) as client:
        with pytest.raises(ConnectionLostError):
            await client.request("tools/call", {"name": "buy", "arguments": {"deaths": 1}})
    assert fake_stdio.tools_run(log) == ["buy"]


async def test_a_process_that_dies_between_calls(log, discover):
    """Whether or not the client has noticed the end: the call is done once, or its error says that it may have been."""
    tools = [*fake_stdio.TOOLS, {"name": "last", "inputSchema": ANY}]
    async with connect(fake_stdio.command(log=log, discover=discover, tools=tools)) as client:
        for _ in range(5):
            before = fake_stdio.tools_run(log).count("buy")
            await client.call("last")
            try:
                await client.call("buy")
            except ConnectionLostError:
                assert fake_stdio.tools_run(log).count("buy") - before <= 1
            else:
                assert fake_stdio.tools_run(log).count("buy") - before == 1


async def test_many_calls_while_the_process_is_killed(log, discover):
    """Each call is done at most once; each answered call was done; each call reported as not done was not."""
    tools = [
        {"name": "buy", "inputSchema": ANY},
        {"name": "look", "inputSchema": ANY, "annotations": {"readOnlyHint": True}},
    ]
    async with connect(fake_stdio.command(log=log, discover=discover, tools=tools)) as client:
        await client.tools()

        async def kill() -> None:
            await wait_until(lambda: not (len(fake_stdio.tools_run(log)) < 20))
            pid = json.loads(log.read_text().splitlines()[0])["started"]
            os.kill(pid, 9)

        calls = [client.call_tool("buy", {"n": n}) for n in range(60)]
        killing = asyncio.create_task(kill())
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        await killing
    done = Counter(message["params"]["arguments"]["n"] for message in fake_stdio.messages(log, "tools/call"))
    assert max(done.values()) == 1
    for n, outcome in enumerate(outcomes):
        if isinstance(outcome, ConnectionLostError):
            assert outcome.maybe_done or done[n] == 0
        else:
            assert not isinstance(outcome, BaseException)
            assert done[n] == 1


async def test_a_deadline_is_no_reason_to_do_it_again(log, discover):
    tools = [
        {"name": "hang", "inputSchema": ANY, "annotations": {"readOnlyHint": True}},
        {"name": "echo", "inputSchema": ANY},
    ]
    async with connect(fake_stdio.command(log=log, discover=discover, tools=tools)) as client:
        call = asyncio.create_task(client.call_tool("hang", timeout=3600))
        await wait_until(lambda: bool(fake_stdio.tools_run(log)))
        advance_clock(3600)
        with pytest.raises(DeadlineError):
            await call
        assert (await client.call("echo", a=1))["given"] == {"a": 1}
    assert fake_stdio.tools_run(log) == ["hang", "echo"]


# A URL whose connections break


def _closed(fake: Fake, run: bool) -> Callable[[FakeRequest, FakeConnection], Awaitable[None]]:
    async def fault(asked: FakeRequest, wire: FakeConnection) -> None:
        if run:
            fake.run(asked)
        wire.close()

    return fault


def _reset(fake: Fake) -> Callable[[FakeRequest, FakeConnection], Awaitable[None]]:
    async def fault(asked: FakeRequest, wire: FakeConnection) -> None:
        fake.run(asked)
        wire.abort()

    return fault


def _cut(fake: Fake, how: str) -> Callable[[FakeRequest, FakeConnection], Awaitable[None]]:
    async def fault(asked: FakeRequest, wire: FakeConnection) -> None:
        body = json.dumps(fake.run(asked)).encode()
        if how == "in the head":
            await wire.raw(b"HTTP/1.1 200 OK\r\ncontent-ty")
        elif how == "after the head":
            await wire.raw(head(200, content_type="application/json", content_length=str(len(body))))
        elif how == "in the body":
            await wire.raw(head(200, content_type="application/json", content_length=str(len(body))) + body[:-3])
        elif how == "in a chunk":
            await wire.raw(head(200, content_type="application/json", transfer_encoding="chunked"))
            await wire.raw(b"%x\r\n" % len(body) + body[:-3])
        elif how == "between chunks":
            await wire.raw(head(200, content_type="application/json", transfer_encoding="chunked"))
            await wire.chunk(body)
        elif how == "in an event":
            await wire.events()
            await wire.chunk(b"data: " + body)
        elif how == "before an event":
            await wire.events()
            await wire.event(
                {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": 1}}
            )
        elif how == "an ended stream":
            await wire.events()
            await wire.end()
            return
        wire.close()

    return fault


CUTS = [
    "in the head",
    "after the head",
    "in the body",
    "in a chunk",
    "in an event",
    "before an event",
    "an ended stream",
]


@pytest.mark.parametrize("how", CUTS)
async def test_an_answer_that_is_cut_is_not_asked_for_again(fake, how):
    async with serve_fake(fake):
        fake.once("tools/call", _cut(fake, how))
        async with connect(fake.url) as client:
            with pytest.raises(ConnectionLostError) as caught:
                await asyncio.wait_for(client.call("buy"), HANG_SECONDS)
            assert caught.value.maybe_done is True
            assert fake.runs("buy") == 1
            await client.call("buy")
        assert fake.runs("buy") == 2


@pytest.mark.parametrize("name", REPEATABLE)
@pytest.mark.parametrize("how", CUTS)
async def test_an_answer_that_is_cut_is_asked_for_again_where_that_does_no_harm(fake, how, name):
    async with serve_fake(fake):
        fake.once("tools/call", _cut(fake, how))
        async with connect(fake.url) as client:
            assert (await asyncio.wait_for(client.call(name, a=1), HANG_SECONDS))["given"] == {"a": 1}
        assert fake.runs(name) == 2


async def test_a_json_answer_that_is_whole_is_taken_though_the_last_chunk_is_missing(fake):
    """Whether the response is complete or cut, the call is not done twice."""
    async with serve_fake(fake):
        fake.once("tools/call", _cut(fake, "between chunks"))
        async with connect(fake.url) as client:
            try:
                await asyncio.wait_for(client.call("buy"), HANG_SECONDS)
            except ConnectionLostError as error:
                assert error.maybe_done is True
        assert fake.runs("buy") == 1


@pytest.mark.parametrize("how", ["closed", "reset"])
@pytest.mark.parametrize("name", ["buy", *REPEATABLE])
async def test_a_connection_that_breaks_before_any_answer(fake, how, name):
    async with serve_fake(fake):
        fake.once("tools/call", _reset(fake) if how == "reset" else _closed(fake, True))
        async with connect(fake.url) as client:
            await client.tools()
            if name == "buy":
                with pytest.raises(ConnectionLostError) as caught:
                    await asyncio.wait_for(client.call(name), HANG_SECONDS)
                assert caught.value.maybe_done is True
                assert fake.runs(name) == 1
            else:
                await asyncio.wait_for(client.call(name), HANG_SECONDS)
                assert fake.runs(name) == 2


async def test_a_connection_that_breaks_while_the_body_is_on_its_way():
    """The server did nothing, but the client cannot know that: it sends the call once."""
    async with serve_fake(Fake()) as fake:
        fake.before_body.add("tools/call")
        async with connect(fake.url) as client:
            await client.tools()
            try:
                await asyncio.wait_for(client.call("buy", text="x" * 3_000_000), HANG_SECONDS)
            except ConnectionLostError:
                assert fake.runs("buy") == 0
            else:
                assert fake.runs("buy") == 1


@pytest.mark.parametrize("status", [500, 502, 503, 504, 520])
async def test_a_status_that_hides_what_happened_is_no_reason_to_do_it_again(fake, status):
    """A gateway may answer 502, 503 or 504 to a call that its upstream has done."""

    async def fault(asked: FakeRequest, wire: FakeConnection) -> None:
        fake.run(asked)
        await wire.answer(status, b"upstream went away", content_type="text/plain")

    async with serve_fake(fake):
        fake.once("tools/call", fault)
        async with connect(fake.url) as client:
            with pytest.raises(DeltaError) as caught:
                await asyncio.wait_for(client.call("buy"), HANG_SECONDS)
            assert getattr(caught.value, "maybe_done", True) is True
        assert fake.runs("buy") == 1


@pytest.mark.parametrize("kind", ["text/html", "application/xml", "image/png"])
async def test_an_answer_that_cannot_be_read_is_no_reason_to_do_it_again(fake, kind):
    async def fault(asked: FakeRequest, wire: FakeConnection) -> None:
        fake.run(asked)
        await wire.answer(200, b"<ok/>", content_type=kind)

    async with serve_fake(fake):
        fake.once("tools/call", fault)
        async with connect(fake.url) as client:
            with pytest.raises(DeltaError):
                await asyncio.wait_for(client.call("buy"), HANG_SECONDS)
        assert fake.runs("buy") == 1


async def test_a_refused_token_is_another_try_not_another_run(fake):
    tokens = iter(["old", "new"])

    async def expired(asked: FakeRequest, wire: FakeConnection) -> None:
        await wire.answer(401, www_authenticate="Bearer")

    async with serve_fake(fake):
        fake.once("tools/call", expired)
        async with connect(fake.url, token=lambda: next(tokens)) as client:
            await client.call("buy")
        assert fake.runs("buy") == 1
        assert [asked.headers["authorization"] for asked in fake.of("tools/call")] == ["Bearer old", "Bearer new"]


async def test_many_calls_over_connections_that_break_at_random(fake):
    """At the first try the server runs every third call without answering, and drops every fifth."""
    ran: Counter[int] = Counter()

    async def chancy(asked: FakeRequest, wire: FakeConnection) -> None:
        n = asked.params["arguments"]["n"]
        tries[n] += 1
        if n % 5 == 0 and tries[n] == 1:
            wire.close()
            return
        ran[n] += 1
        if n % 3 == 0 and tries[n] == 1:
            wire.abort()
            return
        await fake.answer(asked, wire)

    tries: Counter[int] = Counter()
    async with serve_fake(fake):
        fake.always("tools/call", chancy)
        async with connect(fake.url) as client:
            await client.tools()
            outcomes = await asyncio.gather(
                *(client.call_tool("buy", {"n": n}) for n in range(100)), return_exceptions=True
            )
            looks = await asyncio.gather(*(client.call_tool("look", {"n": n}) for n in range(100, 200)))
    assert len(looks) == 100
    for n, outcome in enumerate(outcomes):
        assert ran[n] <= 1
        if n % 5 == 0 or n % 3 == 0:
            assert isinstance(outcome, ConnectionLostError), n
            assert outcome.maybe_done
        else:
            assert not isinstance(outcome, BaseException), (n, outcome)
            assert ran[n] == 1


async def test_a_server_that_comes_back_is_reached_again():
    """While the port is closed the client cannot send anything, so it may repeat every call."""
    port = free_port()
    first, second = Fake(), Fake()
    url = f"http://127.0.0.1:{port}/mcp"
    server = await asyncio.start_server(first.connected, "127.0.0.1", port)
    async with connect(url, listen=False) as client:
        await client.call("buy")
        server.close()
        await first.close()
        await server.wait_closed()
        with pytest.raises(ClientError) as caught:
            await asyncio.wait_for(client.call("buy"), HANG_SECONDS)
        assert getattr(caught.value, "maybe_done", False) is False
        server = await asyncio.start_server(second.connected, "127.0.0.1", port)
        assert (await client.call("buy", a=2))["given"] == {"a": 2}
    server.close()
    await second.close()
    await server.wait_closed()
    assert (first.runs("buy"), second.runs("buy")) == (1, 1)


async def test_a_call_that_was_cancelled_is_not_repeated(fake):
    started = asyncio.Event()

    async def hangs(asked: FakeRequest, wire: FakeConnection) -> None:
        fake.run(asked)
        started.set()
        await fake.ending.wait()

    async with serve_fake(fake):
        fake.once("tools/call", hangs)
        async with connect(fake.url) as client:
            call = asyncio.create_task(client.call("look"))
            await started.wait()
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            assert (await client.call("echo", a=1))["given"] == {"a": 1}
        assert fake.runs("look") == 1


@pytest.mark.parametrize("status", [404, 429, 503])
async def test_a_call_whose_stream_broke_is_not_done_again_whatever_the_way_back_says(status):
    fake = Fake(modern=False, sessions=True)

    async def breaks(asked: FakeRequest, wire: FakeConnection) -> None:
        fake.run(asked)
        await wire.events()
        await wire.event(None, id="ключ", retry=1)
        wire.close()

    async def refused(asked: FakeRequest, wire: FakeConnection) -> None:
        await wire.answer(status)

    async with serve_fake(fake):
        fake.once("tools/call", breaks)
        fake.always("GET", refused)
        async with connect(fake.url, listen=False) as client:
            with pytest.raises(ConnectionLostError, match="may have been done") as caught:
                await client.call("buy")
        assert caught.value.maybe_done
        assert fake.runs("buy") == 1
        # The same bytes that the event had, though header values are commonly read as latin-1.
        assert [asked.headers.get("last-event-id") for asked in fake.of("GET")] == ["ключ".encode().decode("latin-1")]
