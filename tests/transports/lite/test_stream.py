"""MCP-lite's event streams over HTTP."""

import asyncio
import contextlib
import json
import socket
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deltamcp import Context, DeltaServer, NeedsResource, ResultPolicy, ToolFailure
from deltamcp.limits import Limits
from deltamcp.transports.http.server import make_server
from tests.support.conditions import HANG_SECONDS, wait_until
from tests.support.http_server import serve_http, serve_uvicorn
from tests.support.lite_client import PREFIX
from tests.support.lite_stream import idle_proxy, lite_stream


class Story:
    """A server whose tools tell what happens to them."""

    def __init__(self, **options: Any) -> None:
        self.server = server = DeltaServer("story", "1.2", **options)
        self.cancelled = asyncio.Event()
        self.began = asyncio.Event()
        self.may_end = asyncio.Event()
        self.made = 0

        @server.tool
        async def tell(texts: list[str]) -> AsyncIterator[str]:
            """Tells texts one by one."""
            for text in texts:
                yield text

        @server.tool
        def tell_plain(texts: list[str]) -> Iterator[str]:
            """Tells texts one by one, in a thread."""
            yield from texts

        @server.tool
        async def rows() -> AsyncIterator[dict[str, int]]:
            """Yields rows."""
            for at in range(2):
                yield {"row": at}

        @server.tool
        async def spill(size: int) -> str:
            """Returns one large text."""
            self.made += 1
            return "x" * size

        @server.tool
        async def wait() -> str:
            """Waits to be told."""
            self.began.set()
            try:
                await self.may_end.wait()
            except asyncio.CancelledError:
                self.cancelled.set()
                raise
            return "waited"

        @server.tool
        async def work(ctx: Context) -> str:
            """Reports progress."""
            await ctx.report_progress(1, 4, "begun")
            await ctx.report_progress(2, 4)
            return "worked"

        @server.tool
        async def pour(count: int, size: int) -> AsyncIterator[str]:
            """Yields many large parts."""
            for _ in range(count):
                self.made += 1
                yield "x" * size

        @server.tool
        async def fail(way: str, ctx: Context) -> AsyncIterator[str]:
            """Fails after a part."""
            yield "begun"
            if way == "failure":
                raise ToolFailure("CARD_DECLINED", "No.")
            if way == "crash":
                raise ValueError("secret")
            if way == "resource":
                raise NeedsResource("More!", kind="tokens", required=9)
            if way == "number":
                yield float("nan")  # type: ignore[misc]
            await ctx.elicit("Sure?", bool)

        @server.tool(timeout=0.1)
        def endless() -> Iterator[str]:
            """Yields until it is closed."""
            while True:
                yield "x" * 1000


@contextlib.asynccontextmanager
async def serving(story: Story) -> AsyncIterator[str]:
    async with serve_http(story.server) as address:
        yield address


# What a stream has


@pytest.mark.parametrize("tool", ["tell", "tell_plain"])
async def test_ml_81_a_stream_has_parts_and_then_the_whole(tool):
    async with serving(Story()) as address, lite_stream(address, tool, {"texts": ["a", "b", "ü\n"]}) as stream:
        assert stream.response.status_code == 200
        headers = stream.response.headers
        assert headers["content-type"] == "text/event-stream; charset=utf-8"
        assert "no-store" in headers["cache-control"] and headers["x-accel-buffering"] == "no"
        first, *parts, done = await stream.rest()
        assert first.kind == "heartbeat" and "ts" in first.data
        assert [event.kind for event in parts] == ["message"] * 3
        assert [event.data for event in parts] == [
            {"partial": "a", "seq": 1},
            {"partial": "b", "seq": 2},
            {"partial": "ü\n", "seq": 3},
        ]
        assert done.kind == "done"
        assert done.data["result"]["content"] == [{"type": "text", "text": "abü\n"}]


async def test_ml_82_the_last_event_has_meta_beside_the_result_and_in_it():
    async with serving(Story()) as address, lite_stream(address, "tell", {"texts": ["a"]}) as stream:
        done = await stream.last()
    assert set(done.data) == {"jsonrpc", "id", "result", "_meta"}
    assert (done.data["jsonrpc"], done.data["id"]) == ("2.0", "s1")
    meta = done.data["_meta"]
    assert meta == done.data["result"]["_meta"]
    assert meta["response_type"] == "answer" and meta["server_version"] == "1.2"
    assert meta["timestamp"].endswith("Z") and isinstance(meta["processing_time_ms"], int)


async def test_ml_50_partial_and_complete_messages_are_of_other_kinds():
    async with serving(Story()) as address, lite_stream(address, "rows") as stream:
        *events, done = [event for event in await stream.rest() if event.kind != "heartbeat"]
    assert [event.data["partial"] for event in events] == [{"row": 0}, {"row": 1}]
    assert all(event.kind == "message" and "_meta" not in event.data for event in events)
    assert done.kind == "done" and json.loads(done.data["result"]["content"][0]["text"]) == [{"row": 0}, {"row": 1}]


@settings(max_examples=25, deadline=None)
@given(st.lists(st.text(max_size=20), max_size=8), st.sampled_from(["tell", "tell_plain"]))
def test_ml_53_the_result_is_the_concatenated_parts(texts, tool):
    async def run() -> None:
        async with serving(Story()) as address, lite_stream(address, tool, {"texts": texts}) as stream:
            *events, done = await stream.rest()
        parts = [event.data for event in events if event.kind == "message"]
        assert [part["seq"] for part in parts] == list(range(1, len(texts) + 1))
        content = done.data["result"]["content"]
        assert "".join(part["partial"] for part in parts) == "".join(block["text"] for block in content)

    asyncio.run(run())


async def test_a_tool_that_does_not_yield_is_streamed_too():
    async with serving(Story()) as address, lite_stream(address, "work") as stream:
        events = await stream.rest()
    assert [event.kind for event in events] == ["heartbeat", "heartbeat", "heartbeat", "done"]
    progress = [{key: value for key, value in event.data.items() if key != "ts"} for event in events[1:3]]
    assert progress == [{"progress": 1, "total": 4, "message": "begun"}, {"progress": 2, "total": 4}]


# Who gets a stream


@pytest.mark.parametrize(
    ("accept", "is_stream"),
    [
        ("text/event-stream", True),
        ("text/*", True),
        ("text/event-stream, application/json;q=0.9", True),
        ("application/json, text/event-stream", False),
        ("text/event-stream, application/json", False),
        ("text/event-stream;q=0.5, application/json", False),
        ("*/*", False),
        ("application/json", False),
    ],
)
async def test_ml_79_a_stream_is_for_clients_that_prefer_one(accept, is_stream):
    async with (
        serving(Story()) as address,
        lite_stream(address, "tell", {"texts": ["a"]}, accept=accept) as stream,
    ):
        assert stream.response.headers["content-type"].startswith("text/event-stream") == is_stream


@pytest.mark.parametrize("place", ["params", "arguments"])
@pytest.mark.parametrize(("wish", "is_stream"), [(True, True), (False, False), ("yes", False)])
async def test_ml_79_a_stream_can_be_asked_for_in_meta(place, wish, is_stream):
    meta: dict[str, Any] = {"_meta": {"stream": wish}}
    arguments: dict[str, Any] = {"texts": ["a"]}
    arguments, params = (arguments, meta) if place == "params" else ({**arguments, **meta}, {})
    async with (
        serving(Story()) as address,
        lite_stream(address, "tell", arguments, accept="*/*", **params) as stream,
    ):
        assert stream.response.headers["content-type"].startswith("text/event-stream") == is_stream


@pytest.mark.parametrize(
    ("path", "body", "accept", "status"),
    [
        ("tools", {}, "text/event-stream", 406),
        ("tools", {}, "text/event-stream, application/json;q=0.1", 200),
        ("rpc", [{"jsonrpc": "2.0", "id": 1, "method": "tools/list"}], "text/event-stream", 406),
        ("rpc", [{"jsonrpc": "2.0", "id": 1, "method": "tools/list"}], "text/event-stream, */*;q=0.1", 200),
        ("rpc", {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}, "image/png", 406),
    ],
)
async def test_only_a_single_request_is_answered_by_events(path, body, accept, status):
    async with serving(Story()) as address, httpx2.AsyncClient() as http:
        url = f"{address.removesuffix('/mcp')}{PREFIX}/{path}"
        response = await http.post(url, json=body, headers={"accept": accept})
    assert response.status_code == status and response.headers["content-type"] == "application/json"


async def test_a_list_is_streamed_too():
    async with serving(Story()) as address, httpx2.AsyncClient() as http:
        url = f"{address.removesuffix('/mcp')}{PREFIX}/rpc"
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
        response = await http.post(url, json=body, headers={"accept": "text/event-stream"})
    assert "event: done" in response.text and '"timestamp"' in response.text


# Other ends


@pytest.mark.parametrize(
    ("way", "kind", "response_type"),
    [("failure", "done", "failure"), ("resource", "done", "request-for-more-resource"), ("ask", "done", "elicitation")],
)
async def test_ml_51_every_response_type_ends_a_stream(way, kind, response_type):
    async with serving(Story()) as address, lite_stream(address, "fail", {"way": way}) as stream:
        last = await stream.last()
    assert (last.kind, last.data["_meta"]["response_type"]) == (kind, response_type)


@pytest.mark.parametrize(
    ("tool", "arguments", "code", "reason"),
    [
        ("nothing", {}, -32601, "TOOL_NOT_FOUND"),
        ("tell", {"texts": 1}, -32602, "INVALID_PARAMS"),
        ("tell", [], -32602, "INVALID_PARAMS"),
        ("fail", {"way": "crash"}, -32603, "INTERNAL"),
        ("fail", {"way": "number"}, -32603, "INTERNAL"),
        ("endless", {}, -32603, "TIMEOUT"),
    ],
)
async def test_ml_83_an_error_ends_a_stream_and_has_meta(tool, arguments, code, reason, caplog):
    async with (
        serving(Story()) as address,
        lite_stream(address, tool, arguments) as stream,
    ):
        last = await stream.last()
    assert last.kind == "error" and set(last.data) == {"jsonrpc", "id", "error", "_meta"}
    assert (last.data["error"]["code"], last.data["error"]["data"]["reason"]) == (code, reason)
    assert last.data["_meta"]["response_type"] == "failure" and "timestamp" in last.data["_meta"]
    assert "secret" not in str(last)


async def test_a_thread_that_yields_after_its_deadline_adds_nothing():
    async with serving(Story()) as address:
        for _ in range(5):
            async with lite_stream(address, "endless") as stream:
                assert (await stream.last()).kind == "error"


# Heartbeats


async def test_ml_84_a_silent_call_sends_heartbeats_and_nothing_else():
    story = Story(limits=Limits(ping_seconds=0.05))
    async with serving(story) as address, lite_stream(address, "wait") as stream:
        beats = [await stream.next() for _ in range(4)]
        assert [beat.kind for beat in beats if beat] == ["heartbeat"] * 4
        story.may_end.set()
        assert (await stream.last()).data["result"]["content"][0]["text"] == "waited"


async def test_ml_84_a_silent_call_survives_a_proxy_that_closes_idle_connections():
    story = Story(limits=Limits(ping_seconds=0.1))
    async with (
        serving(story) as address,
        idle_proxy(address, seconds=2.0) as proxy,
        lite_stream(proxy, "wait") as stream,
    ):
        ends = time.monotonic() + 4.0
        while time.monotonic() < ends:
            beat = await stream.next()
            assert beat is not None and beat.kind == "heartbeat"
        story.may_end.set()
        assert (await stream.last()).kind == "done"


async def test_without_heartbeats_that_proxy_ends_the_stream_and_the_call():
    story = Story(limits=Limits(ping_seconds=60))
    async with (
        serving(story) as address,
        idle_proxy(address, seconds=0.2) as proxy,
        lite_stream(proxy, "wait") as stream,
    ):
        with pytest.raises(httpx2.RemoteProtocolError):
            await stream.rest()
        async with asyncio.timeout(HANG_SECONDS):
            await story.cancelled.wait()


# Clients that leave, or read slowly


async def test_ml_52_a_client_that_leaves_cancels_the_call():
    story = Story()
    async with serving(story) as address:
        async with lite_stream(address, "wait") as stream:
            assert await stream.next() is not None
            await story.began.wait()
        async with asyncio.timeout(HANG_SECONDS):
            await story.cancelled.wait()


class SlowReader:
    """A client that reads nothing until it is told."""

    def __init__(self, address: str, tool: str, arguments: dict[str, Any]) -> None:
        host, port = address.split("/")[2].split(":")
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self._socket.connect((host, int(port)))
        params = {"name": tool, "arguments": arguments}
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode()
        head = f"POST {PREFIX}/rpc HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\n"
        head += f"accept: text/event-stream\r\nconnection: close\r\ncontent-length: {len(body)}\r\n\r\n"
        self._socket.sendall(head.encode() + body)

    def read_all(self) -> int:
        """Reads to the end, and returns how many bytes came."""
        count = 0
        with self._socket:
            while data := self._socket.recv(1 << 20):
                count += len(data)
        return count

    def close(self) -> None:
        self._socket.close()


PART_BYTES = 100_000
PARTS = 300


async def test_ml_52_a_slow_reader_stops_the_tool_and_does_not_fill_the_memory():
    story = Story()
    async with serving(story) as address:
        reader = await asyncio.to_thread(SlowReader, address, "pour", {"count": PARTS, "size": PART_BYTES})
        made = -1
        while made != story.made or not made:  # until it stands still
            made = story.made
            await asyncio.sleep(0.2)
        # The kernel's buffers take some megabytes; the tool makes 30.
        assert made < PARTS / 2
        received = await asyncio.to_thread(reader.read_all)
        assert story.made == PARTS and received > 2 * PARTS * PART_BYTES  # the parts, and the whole


async def test_a_client_that_reads_nothing_is_closed_after_send_seconds():
    story = Story(limits=Limits(send_seconds=0.3))
    async with serving(story) as address:
        reader = await asyncio.to_thread(SlowReader, address, "pour", {"count": PARTS, "size": PART_BYTES})
        with contextlib.closing(reader):
            await wait_until(lambda: story.made > 0)
            made = -1
            while made != story.made:
                made = story.made
                await asyncio.sleep(0.5)
            assert made < PARTS
            with contextlib.suppress(ConnectionError):
                assert await asyncio.to_thread(reader.read_all) < PARTS * PART_BYTES
        assert story.made < PARTS


# Limits


async def test_a_result_for_which_the_client_has_no_room_left_is_an_error():
    story = Story(limits=Limits(response_bytes=1_000_000))
    async with serving(story) as address:
        stuck = await asyncio.to_thread(SlowReader, address, "spill", {"size": 60_000_000})
        with contextlib.closing(stuck):
            await wait_until(lambda: story.made > 0)
            await asyncio.sleep(0.3)
            async with lite_stream(address, "tell", {"texts": ["x" * 50_000] * 2}) as stream:
                last = await stream.last()
    assert (last.kind, last.data["error"]["data"]["reason"]) == ("error", "OVERLOADED")


async def test_a_result_over_its_budget_is_cut_as_in_any_other_response():
    story = Story(results=ResultPolicy(max_tokens=500))
    async with (
        serving(story) as address,
        lite_stream(address, "tell", {"texts": ["word " * 100] * 20}) as stream,
    ):
        *events, done = await stream.rest()
    parts = "".join(event.data["partial"] for event in events if event.kind == "message")
    assert parts == "word " * 2000
    assert len(str(done.data["result"]["content"])) < len(parts)


async def test_a_large_part_is_one_event():
    async with serving(Story()) as address, lite_stream(address, "pour", {"count": 2, "size": 300_000}) as stream:
        events = [event for event in await stream.rest() if event.kind == "message"]
    assert [len(event.data["partial"]) for event in events] == [300_000, 300_000]


# Shutdown


async def test_ml_52_at_shutdown_a_call_that_ends_in_time_has_its_result():
    story = Story(limits=Limits(drain_seconds=60))
    server = make_server(story.server.engine, port=0)
    async with serve_uvicorn(server) as address, lite_stream(address, "wait") as stream:
        await story.began.wait()
        server.should_exit = True
        await asyncio.sleep(0.2)
        story.may_end.set()
        assert (await stream.last()).data["result"]["content"][0]["text"] == "waited"


async def test_ml_52_at_shutdown_a_call_that_does_not_end_has_an_error():
    story = Story(limits=Limits(drain_seconds=1))
    server = make_server(story.server.engine, port=0)
    async with serve_uvicorn(server) as address, lite_stream(address, "wait") as stream:
        await story.began.wait()
        server.should_exit = True
        last = await stream.last()
    assert last.kind == "error" and last.data["error"]["code"] == -32603
    assert last.data["error"]["data"]["reason"] == "SERVER_SHUTDOWN" and last.data["error"]["data"]["retryable"]
    assert last.data["_meta"]["response_type"] == "failure" and story.cancelled.is_set()
