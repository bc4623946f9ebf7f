"""What the client takes from a server that attacks it: how much, how many, and for how long."""

import asyncio
import contextlib
import tracemalloc
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from deltamcp import ClientError
from deltamcp.client.callbacks import ClientCallbacks
from deltamcp.client.client import DeltaClient, connect
from deltamcp.client.connection import ClientConnection
from deltamcp.client.links.link import BYTES_PER_VALUE, TotalSize, UnaddressedError, size_of
from deltamcp.errors import ConnectionLostError, DeadlineError, DeltaError, PeerError, UnreachableError
from deltamcp.values import Notification, Request
from tests.support import fake_stdio, hostile_server
from tests.support.conditions import HANG_SECONDS, advance_clock, wait_until
from tests.support.fake_http import Fake, FakeConnection, FakeRequest, serve_fake
from tests.support.hostile_server import requests, serve_over_http

MIB = 1024 * 1024
TRANSPORTS: list[Any] = ["stdio", "http"]


@pytest.fixture
def log(tmp_path):
    return tmp_path / "requests.txt"


@contextlib.asynccontextmanager
async def attacked_client(
    attack: str, transport: str, log: Path | None = None, **options: Any
) -> AsyncIterator[DeltaClient]:
    options = {"quiet": True, "timeout": HANG_SECONDS, **options}
    if transport == "stdio":
        async with connect(hostile_server.command(attack, log), **options) as client:
            yield client
    else:
        with serve_over_http(attack, log) as url:
            async with connect(url, **options) as client:
                yield client


# Lists


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("attack", ["big_pages", "long_cursors"])
async def test_a_list_ends_when_its_pages_are_larger_than_the_client_takes(log, attack, transport):
    async with attacked_client(attack, transport, log) as client:
        for fetch in (client.tools, client.list_prompts, client.list_resources, client.list_resource_templates):
            with pytest.raises(ClientError, match="larger than 16,777,216 bytes; ask for less"):
                await fetch()

    assert requests(log, "tools/list") == requests(log, "prompts/list") == 2


async def test_a_list_of_empty_pages_ends(log):
    async with attacked_client("many_pages", "stdio", log, max_bytes=100 * 1024) as client:
        with pytest.raises(ClientError, match="larger than 102,400 bytes"):
            await client.tools()

    assert requests(log, "tools/list") == 101


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_millions_of_values_are_not_decoded(transport):
    async with attacked_client("tiny_values", transport) as client:
        tracemalloc.start()
        try:
            with pytest.raises(PeerError, match=r"at most 699050 values.*Allow a larger max_bytes if you trust it"):
                await client.tools()
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()

    assert peak < 64 * MIB


async def test_a_definition_that_is_too_large_is_left_out_and_the_log_says_so_in_a_few_lines(caplog):
    schema = {"type": "object", "properties": {f"p{at}": {"type": "string"} for at in range(20_000)}}
    tools = [{"name": "large", "inputSchema": schema}, {"name": "small", "inputSchema": {"type": "object"}}]
    async with serve_fake(Fake(tools=[*tools, *range(1000)])) as fake, connect(fake.url) as client:
        assert [tool.name for tool in await client.tools()] == ["small"]

    said = [record.getMessage() for record in caplog.records if "left out" in record.getMessage()]
    assert said[0] == "a tool was left out of the list: 'large', whose definition has more than 1,048,576 bytes"
    assert said[3:] == ["998 more tools were left out of the list"]


# Results


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_a_result_that_is_too_large_is_refused_once(log, transport):
    async with attacked_client("big_result", transport, log, max_bytes=MIB) as client:
        with pytest.raises(DeltaError, match=r"1,?048,?576 bytes"):
            await client.call("go")

    assert requests(log, "tools/call") == 1


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_a_result_of_ten_megabytes_is_no_attack(transport):
    async with attacked_client("legal_result", transport) as client:
        assert len(await client.call("go")) == 10_000_000


@pytest.mark.parametrize("attack", ["endless_windows", "small_windows"])
async def test_a_result_in_endless_parts_ends(log, attack):
    async with attacked_client(
        attack, "stdio", log, max_bytes=2 * MIB if attack == "endless_windows" else 64 * 1024
    ) as client:
        with pytest.raises(ClientError, match="The result is larger than"):
            await client.call("go")

    assert requests(log, "tools/call") == (4 if attack == "endless_windows" else 66)


async def test_a_server_cannot_ask_for_a_thousand_inputs_at_once(log):
    async with attacked_client("endless_questions", "stdio", log, roots=["file:///tmp"]) as client:
        with pytest.raises(PeerError, match="more than 64 inputs at once"):
            await client.call("go")

    assert requests(log, "tools/call") == 1


def test_sizes_count_values_and_names_but_not_what_texts_look_like():
    assert size_of(b'"%b"' % (b"[,{:" * 10)) == 42
    assert size_of(b"[" + b"[]," * 99 + b"[]]") == BYTES_PER_VALUE * 201
    assert size_of(rb'{"a\\":"\"[[[","b":[]}') == BYTES_PER_VALUE * 6

    total = TotalSize("It", 1000)
    total.add(b'"%b"' % (b"x" * 598))
    total.add(b"1", 400)
    with pytest.raises(ClientError, match="It is larger than 1,000 bytes"):
        total.add(b"1")


# Messages that answer nothing


class HeldLink:
    """A link that keeps what it is given until the test lets it go."""

    codec: Any = None
    carries_headers = False
    pid: int | None = None
    ended = False

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []
        self.released = asyncio.Event()

    async def open(self, receiver: Any) -> None: ...

    async def send(self, message: dict[str, Any], headers: Any = None, ends_at: Any = None) -> None:
        await self.released.wait()
        self.sent.append(message)

    async def listen(self, headers: Any, on_open: Any) -> bool:
        return True

    async def close(self) -> None: ...


def make_connection() -> tuple[ClientConnection, HeldLink]:
    link = HeldLink()
    callbacks = ClientCallbacks(None, None, None)
    return ClientConnection(link, callbacks, lambda method, params: None, lambda connection, error: None), link


async def test_requests_of_a_server_that_does_not_read_the_answers_are_not_piled_up():
    connection, link = make_connection()
    for number in range(10_000):
        connection.receive(Request(f"p{number}", "ping", {}))

    assert len(asyncio.all_tasks()) <= 66
    link.released.set()
    await wait_until(lambda: len(link.sent) == 64)
    connection.receive(Request("later", "ping", {}))
    await wait_until(lambda: link.sent[-1]["id"] == "later")
    await connection.close()


async def test_a_slow_progress_callback_gets_the_first_and_the_last_of_a_flood():
    connection, link = make_connection()
    link.released.set()
    heard: list[float] = []
    is_free = asyncio.Event()

    async def slow(done: float, total: float | None, text: str | None) -> None:
        heard.append(done)
        await is_free.wait()

    call = asyncio.create_task(connection.request("tools/call", {}, {}, progress=slow))
    await wait_until(lambda: bool(link.sent))
    for step in range(10_000):
        connection.receive(Notification("notifications/progress", {"progressToken": 1, "progress": step}))
    assert len(asyncio.all_tasks()) <= 4
    is_free.set()
    await wait_until(lambda: heard[-1:] == [9999])
    call.cancel()
    await connection.close()

    assert heard == [0, *range(10_000 - 64, 10_000)]


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize(
    "attack", ["notifications", "log_messages", "progress", "pings", "elicitations", "answers_to_nothing"]
)
async def test_a_flood_does_not_outlast_a_timeout(attack, transport):
    def answer(question: dict[str, Any]) -> None:
        return None

    async with attacked_client(attack, transport, on_elicitation=answer, on_log=lambda *_: None) as client:
        with pytest.raises(DeadlineError):
            await client.call_tool("go", {}, timeout=0.3, progress=lambda *_: None)
        if transport == "http":
            assert [tool.name for tool in await client.tools()] == ["go"]


# Errors that name no request


async def test_an_error_without_an_id_fails_the_call_it_is_about():
    async with attacked_client("null_id", "stdio") as client:
        with pytest.raises(PeerError, match="Parse error: what"):
            await client.call("go")
        assert [tool.name for tool in await client.tools()] == ["go"]


async def test_an_error_without_an_id_fails_the_oldest_request_but_no_stream():
    connection, link = make_connection()
    link.released.set()
    listening, first, second = (
        asyncio.create_task(connection.request(method, {}, {}))
        for method in ("subscriptions/listen", "tools/call", "tools/list")
    )
    await wait_until(lambda: len(link.sent) == 3)
    connection.receive(UnaddressedError({"code": -32700, "message": "What?"}))
    with pytest.raises(PeerError, match="What"):
        await first
    assert not listening.done()
    assert not second.done()
    connection.fail_pending(ConnectionLostError("over"))
    await asyncio.gather(listening, second, return_exceptions=True)
    await connection.close()


async def test_a_line_of_a_log_is_no_error_of_a_request(tmp_path):
    garbage = ['{"level": "error", "error": {"message": "disk full"}, "id": null}']
    async with connect(fake_stdio.command(log=str(tmp_path / "log"), garbage=garbage)) as client:
        assert (await client.call("echo", a=1))["given"] == {"a": 1}


# HTTP


@pytest.mark.parametrize(
    ("attack", "said"),
    [
        ("endless_headers", "headers are larger than 65536 bytes"),
        ("many_interim_answers", "headers are larger than 65536 bytes"),
        ("endless_body", "larger than 1,048,576 bytes"),
        ("endless_chunk_extension", "framed in more bytes than it has"),
        ("endless_trailers", "framed in more bytes than it has"),
        ("endless_comments", "An event of .* is larger than 1,048,576 bytes"),
        ("endless_comment", "An event of .* is larger than 1,048,576 bytes"),
        ("endless_event", "An event of .* is larger than 1,048,576 bytes"),
        ("unasked_cbor", "larger than 1,048,576 bytes"),
        ("gzip_bomb", "application/json that is no message"),
    ],
)
async def test_an_answer_that_never_ends_is_given_up(log, attack, said):
    async with attacked_client(attack, "http", log, max_bytes=MIB) as client:
        with pytest.raises(ClientError, match=said):
            await client.call("go")

    assert requests(log, "tools/call") == 1


async def test_an_encoding_that_was_not_accepted_is_not_decoded():
    async with attacked_client("unasked_cbor", "http", max_bytes=100 * MIB) as client:
        with pytest.raises(ConnectionLostError, match="answered with application/cbor that is no message"):
            await client.call("go")


async def test_an_encoding_that_was_not_offered_is_refused():
    with pytest.raises(UnreachableError, match="writes messages as cbor, which was not offered"):
        async with attacked_client("unasked_encoding", "stdio"):
            pass


async def test_an_answer_to_a_request_that_was_not_sent_yet_is_dropped():
    async with attacked_client("two_answers", "http") as client:
        assert await client.call("go") == "first"
        assert await client.call("go") == "first"


async def test_a_stream_that_asks_to_come_back_in_days_is_resumed_within_a_minute():
    async def broken_off(asked: FakeRequest, wire: FakeConnection) -> None:
        await wire.events()
        await wire.event(None, id="1", retry=999_999_999)
        await wire.end()

    async with serve_fake(Fake(modern=False)) as fake:
        fake.once("tools/call", broken_off)
        async with connect(fake.url) as client:
            await client.tools()
            call = asyncio.create_task(client.call("echo"))
            await wait_until(lambda: "tools/call" in [asked.method for asked in fake.asked])
            await asyncio.sleep(0.1)
            advance_clock(61)
            await wait_until(lambda: any(asked.headers.get("last-event-id") == "1" for asked in fake.asked))
            call.cancel()


# Time


async def test_a_call_without_a_timeout_ends_after_five_minutes_of_silence(tmp_path):
    log = tmp_path / "log"
    async with connect(fake_stdio.command(log=str(log), tools=[{"name": "hang"}])) as client:
        call = asyncio.create_task(client.call("hang"))
        await wait_until(lambda: fake_stdio.tools_run(log) == ["hang"])
        advance_clock(299)
        await asyncio.sleep(0.05)
        assert not call.done()
        advance_clock(2)
        with pytest.raises(DeadlineError, match="tools/call was not answered within 300 s"):
            await call


async def test_progress_and_questions_are_signs_of_life_but_not_for_more_than_an_hour():
    connection, link = make_connection()
    link.released.set()
    client = connect(fake_stdio.command())
    connector = client._connector
    connector._connection = connection
    call = asyncio.create_task(connector.request("tools/call", {}, progress=lambda *_: None, repeatable=False))
    await wait_until(lambda: bool(link.sent))
    for _ in range(14):
        connection.receive(Notification("notifications/progress", {"progressToken": 1, "progress": 1}))
        advance_clock(250)
        await asyncio.sleep(0.01)
        assert not call.done()
    connection.receive(Notification("notifications/progress", {"progressToken": 1, "progress": 1}))
    advance_clock(150)
    with pytest.raises(DeadlineError, match="within 3600 s"):
        await call
    await connection.close()


async def test_a_timeout_that_was_given_is_not_extended_by_progress():
    async with attacked_client("progress", "stdio") as client:
        with pytest.raises(DeadlineError, match=r"within 0\.2 s"):
            await client.call_tool("go", {}, timeout=0.2, progress=lambda *_: None)


async def test_a_server_that_says_nothing_is_given_up_and_ended():
    with pytest.raises(UnreachableError, match=r"did not introduce itself within 0\.3 s"):
        async with attacked_client("mute", "stdio", start_timeout=0.3):
            pass


# Texts that stand for more than they have


@pytest.mark.parametrize("attack", ["tiny_values_in_text", "doubling_table", "wide_table"])
async def test_a_text_that_stands_for_a_value_that_is_too_large_is_not_decoded(attack):
    async with attacked_client(attack, "stdio") as client:
        with pytest.raises(ClientError, match="The value in the reply's text is larger than 16,777,216 bytes"):
            await client.call("go")
