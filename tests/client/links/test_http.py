"""The Streamable HTTP link: responses, connections, tokens, sessions, headers and encodings."""

import asyncio
import json
from typing import Any

import pytest
import uvloop

from deltamcp import ConfigurationError
from deltamcp.client.client import DeltaClient, connect
from deltamcp.client.links.http1 import HttpConnectionPool
from deltamcp.errors import ClientError, ConnectionLostError, DeltaError, PeerError, UnauthorizedError, UnreachableError
from deltamcp.values import Era
from deltamcp.wire.codecs import CBOR_CODEC, CODECS, COMPACT_CODEC
from tests.support.conditions import HANG_SECONDS, advance_clock, wait_until
from tests.support.fake_http import (
    ANY,
    MODERN,
    Fake,
    FakeConnection,
    FakeRequest,
    head,
    header_value,
    result,
    serve_fake,
)
from tests.support.processes import free_port

SPEAK: list[Any] = ["modern", "handshake"]


def fake_of(speak: str, **options: Any) -> Fake:
    return Fake(modern=speak == "modern", handshake=speak == "handshake", sessions=speak == "handshake", **options)


# Responses


@pytest.mark.parametrize("speak", SPEAK)
async def test_answers_as_events(speak):
    async with serve_fake(fake_of(speak, streams=True)) as fake:
        async with connect(fake.url) as client:
            assert len(await client.tools()) == 4
            assert (await client.call("echo", a="ü\n"))["given"] == {"a": "ü\n"}


def _chunked(body: bytes) -> bytes:
    """Writes every byte as a chunk of its own, with extensions and trailers."""
    chunks = b"".join(b"1;x=y\r\n%s\r\n" % body[at : at + 1] for at in range(len(body)))
    return chunks + b"0\r\nx-trailer: 1\r\n\r\n"


@pytest.mark.parametrize("events", [False, True])
async def test_answers_in_chunks_of_a_byte_each_byte_sent_by_itself(events):
    async def bytewise(asked: FakeRequest, wire: FakeConnection) -> None:
        body = json.dumps(fake.run(asked), ensure_ascii=False).encode()
        kind = "text/event-stream" if events else "application/json; charset=utf-8"
        body = b": hello\r\n\r\nevent: message\r\ndata: " + body + b"\r\n\r\n" if events else body
        await wire.bytewise(head(200, Content_TYPE=kind, transfer_encoding="chunked") + _chunked(body))

    async with serve_fake(Fake()) as fake:
        fake.once("tools/call", bytewise)
        async with connect(fake.url) as client:
            assert (await client.call("echo", a="üé€𝄞"))["given"] == {"a": "üé€𝄞"}
            assert (await client.call("echo", a=2))["given"] == {"a": 2}


@pytest.mark.parametrize("newline", ["\n", "\r\n", pytest.param("\r", id="CR")])
async def test_events_in_every_form_the_standard_has(newline):
    async def events(asked: FakeRequest, wire: FakeConnection) -> None:
        body = json.dumps(fake.run(asked), indent=1).splitlines()
        lines = [":comment", "id: 1", "retry: 10", "data:", "", "event:message", "id"]
        lines += [f"data:{line}" for line in body]
        lines += ["unknown: x", "", ""]
        await wire.events()
        await wire.chunk(b"\xef\xbb\xbf" + newline.join(lines).encode())
        await wire.end()

    async with serve_fake(Fake()) as fake:
        fake.once("tools/call", events)
        async with connect(fake.url) as client:
            assert (await client.call("echo", a=1))["given"] == {"a": 1}


async def test_an_answer_that_ends_with_its_connection():
    async def until_closed(asked: FakeRequest, wire: FakeConnection) -> None:
        await wire.raw(head(200, content_type="application/json") + json.dumps(fake.run(asked)).encode())
        wire.close()

    async with serve_fake(Fake()) as fake:
        fake.once("tools/call", until_closed)
        async with connect(fake.url) as client:
            assert (await client.call("echo", a=1))["given"] == {"a": 1}
        assert fake.runs("echo") == 1


async def test_an_interim_response_is_not_the_answer():
    async def continued(asked: FakeRequest, wire: FakeConnection) -> None:
        await wire.raw(b"HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n")
        await fake.answer(asked, wire)

    async with serve_fake(Fake()) as fake:
        fake.once("tools/call", continued)
        async with connect(fake.url) as client:
            assert (await client.call("echo", a=1))["given"] == {"a": 1}
        assert fake.runs("echo") == 1


async def test_a_stream_may_tell_of_other_things_first():
    async def told(asked: FakeRequest, wire: FakeConnection) -> None:
        await wire.events()
        await wire.event({"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": 1}})
        await wire.event([1, 2])
        await wire.chunk(b"data: not json\n\n")
        await wire.event({"jsonrpc": "2.0", "id": 424242, "result": {"other": True}})
        await wire.event(fake.run(asked))
        await wire.end()

    async with serve_fake(Fake()) as fake:
        fake.once("tools/call", told)
        async with connect(fake.url) as client:
            assert (await client.call("echo", a=1))["given"] == {"a": 1}


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (200, b"<html>Welcome to the hotel's Wi-Fi</html>", "text/html"),
        (200, b"", "application/json"),
        (200, b"{", "application/json"),
        (200, b"[]", "application/json"),
        (200, b"null", "application/json"),
        (200, b'{"jsonrpc":"2.0","id":"another","result":{}}', "application/json"),
        (200, b"\xff\xfe", "application/json"),
        (200, b"\xff\xfe", "application/cbor"),
        (200, b"{}", "image/png"),
        (200, b"data: {}\n\n", "text/event-stream"),
        (202, b"", "application/json"),
        (204, b"", "application/json"),
        (500, b"<h1>oops</h1>", "text/html"),
        (500, b"", "text/plain"),
        (418, b'{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"A teapot."}}', "application/json"),
    ],
)
async def test_what_is_no_answer_is_told_in_a_sentence_and_harms_nothing_else(status, body, kind):
    async def odd(asked: FakeRequest, wire: FakeConnection) -> None:
        await wire.raw(head(status, content_type=kind, **({} if status == 204 else {"content_length": str(len(body))})))
        await wire.raw(body)

    async with serve_fake(Fake()) as fake:
        fake.once("tools/call", odd)
        async with connect(fake.url) as client:
            with pytest.raises((ClientError, PeerError)) as caught:
                await client.call_tool("buy", timeout=HANG_SECONDS)
            assert not type(caught.value).__name__.startswith("Deadline"), "it was waited for"
            assert str(caught.value).strip()
            assert "\n" not in str(caught.value)
            assert (await client.call("echo", a=1))["given"] == {"a": 1}
        assert len(fake.of("tools/call")) == 2


async def test_an_error_whose_id_is_null_is_the_answer_to_the_request_it_came_for():
    async def refused(asked: FakeRequest, wire: FakeConnection) -> None:
        await wire.json(
            {"jsonrpc": "2.0", "id": None, "error": {"code": -32600, "message": "Malformed, it says."}}, 400
        )

    async with serve_fake(Fake()) as fake:
        fake.once("tools/call", refused)
        async with connect(fake.url) as client:
            with pytest.raises((PeerError, ClientError), match="Malformed, it says"):
                await client.call_tool("echo", timeout=HANG_SECONDS)


async def test_a_page_of_html_is_not_shown_whole():
    async def page(asked: FakeRequest, wire: FakeConnection) -> None:
        await wire.answer(502, b"<html>" + b"x" * 100_000 + b"</html>", content_type="text/html")

    async with serve_fake(Fake()) as fake:
        fake.always("tools/call", page)
        async with connect(fake.url) as client:
            with pytest.raises((PeerError, ClientError), match="502") as caught:
                await client.call_tool("buy", timeout=HANG_SECONDS)
            assert len(str(caught.value)) < 1000


async def test_a_header_without_end_is_not_read_forever():
    async def endless(asked: FakeRequest, wire: FakeConnection) -> None:
        await wire.raw(b"HTTP/1.1 200 OK\r\n")
        while not wire.writer.is_closing():
            await wire.raw(b"x-more: " + b"y" * 65536 + b"\r\n")
            await asyncio.sleep(0)

    async with serve_fake(Fake()) as fake:
        fake.once("tools/call", endless)
        async with connect(fake.url) as client:
            with pytest.raises(ClientError) as caught:
                await client.call_tool("buy", timeout=HANG_SECONDS)
            assert not type(caught.value).__name__.startswith("Deadline")
            assert (await client.call("echo", a=1))["given"] == {"a": 1}


async def test_large_headers_that_end_are_read():
    async def large(asked: FakeRequest, wire: FakeConnection) -> None:
        await wire.json(fake.run(asked), x_large="y" * 12_000)

    async with serve_fake(Fake()) as fake:
        fake.once("tools/call", large)
        async with connect(fake.url) as client:
            assert (await client.call("echo", a=1))["given"] == {"a": 1}


async def test_what_is_not_http_is_told():
    async def ssh(asked: FakeRequest, wire: FakeConnection) -> None:
        await wire.raw(b"SSH-2.0-OpenSSH_9.6\r\n")
        wire.close()

    async with serve_fake(Fake()) as fake:
        for method in ("server/discover", "initialize"):
            fake.always(method, ssh)
        with pytest.raises(ClientError) as caught:
            async with connect(fake.url, start_timeout=HANG_SECONDS):
                pass
        assert fake.url.rpartition("/")[0] in str(caught.value)


async def test_nobody_at_the_address():
    with pytest.raises(UnreachableError, match=r"127\.0\.0\.1"):
        async with connect(f"http://127.0.0.1:{free_port()}/mcp", start_timeout=HANG_SECONDS):
            pass


async def test_a_host_that_does_not_exist():
    with pytest.raises(UnreachableError, match=r"no-such-host\.invalid"):
        async with connect("http://no-such-host.invalid/mcp", start_timeout=HANG_SECONDS):
            pass


async def test_large_bodies_both_ways():
    async with serve_fake(Fake()) as fake:
        async with connect(fake.url) as client:
            text = "ü" * 1_000_000
            assert (await client.call("echo", a=text))["given"] == {"a": text}


# Connections


def idle_connections(client: DeltaClient) -> int:
    """How many connections the client keeps that it could use again."""
    link: Any = client._connector.connection
    return sum(connection.is_usable for connection in link.link._pool._idle)


async def test_one_connection_serves_calls_one_after_another():
    async with serve_fake(Fake()) as fake:
        fake.capabilities = {"tools": {}}
        fake.tools = [{"name": "echo", "inputSchema": ANY}]
        async with connect(fake.url) as client:
            for n in range(20):
                assert (await client.call("echo", n=n))["given"] == {"n": n}
        assert fake.connections == 1


async def test_a_server_that_closes_after_each_answer():
    async def last(asked: FakeRequest, wire: FakeConnection) -> None:
        await wire.json(fake.run(asked), connection="close")
        wire.close()

    async with serve_fake(Fake()) as fake:
        fake.always("tools/call", last)
        async with connect(fake.url) as client:
            for n in range(5):
                assert (await client.call("buy", n=n))["given"] == {"n": n}
        assert fake.runs("buy") == 5


async def test_a_server_that_closes_without_saying_so():
    async def last(asked: FakeRequest, wire: FakeConnection) -> None:
        await fake.answer(asked, wire)
        wire.close()

    async with serve_fake(Fake()) as fake:
        fake.always("tools/call", last)
        async with connect(fake.url) as client:
            for n in range(5):
                assert (await client.call("buy", n=n))["given"] == {"n": n}
                await wait_until(lambda: idle_connections(client) == 0, "the end of the connection")
        assert fake.runs("buy") == 5


async def test_http_1_0_is_understood():
    async def old(asked: FakeRequest, wire: FakeConnection) -> None:
        body = json.dumps(fake.run(asked)).encode()
        await wire.raw(
            b"HTTP/1.0 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body) + body
        )
        wire.close()

    async with serve_fake(Fake()) as fake:
        fake.always("tools/call", old)
        async with connect(fake.url) as client:
            for n in range(3):
                assert (await client.call("look", n=n))["given"] == {"n": n}


async def test_an_answer_before_the_request_was_read():
    """A server may refuse by the header alone, and close."""

    async def early(asked: FakeRequest, wire: FakeConnection) -> None:
        await wire.answer(413, b"", connection="close")
        wire.close()

    async with serve_fake(Fake()) as fake:
        fake.once("tools/call", early)
        async with connect(fake.url) as client:
            with pytest.raises(DeltaError, match="413"):
                await client.call_tool("buy", {"text": "x" * 2_000_000}, timeout=HANG_SECONDS)


# Tokens


async def _guarded(fake: Fake, good: str) -> None:
    async def guard(asked: FakeRequest, wire: FakeConnection) -> None:
        if asked.headers.get("authorization") == f"Bearer {good}":
            await fake.answer(asked, wire)
        else:
            challenge = 'Bearer realm="x", resource_metadata="https://as.example/.well-known"'
            await wire.answer(401, www_authenticate=challenge)

    for method in ("server/discover", "initialize", "notifications/initialized", "tools/list", "tools/call", "GET"):
        fake.always(method, guard)


@pytest.mark.parametrize("speak", SPEAK)
async def test_a_token_is_a_bearer_on_every_request(speak):
    async with serve_fake(fake_of(speak)) as fake:
        await _guarded(fake, "t0k3n")
        async with connect(fake.url, token="t0k3n", headers={"X-Tenant": "7"}) as client:
            await client.call("echo")
        assert all(asked.headers.get("authorization") == "Bearer t0k3n" for asked in fake.asked)
        assert all(asked.headers.get("x-tenant") == "7" for asked in fake.asked)


@pytest.mark.parametrize("is_async", [False, True])
async def test_a_callback_is_asked_again_when_its_token_was_refused(is_async):
    given = ["old", "new", "newer"]
    asked: list[str] = []

    def token() -> str:
        asked.append(given[min(len(asked), 2)])
        return asked[-1]

    async def later() -> str:
        await asyncio.sleep(0)
        return token()

    async with serve_fake(Fake()) as fake:
        await _guarded(fake, "new")
        async with connect(fake.url, token=later if is_async else token) as client:
            assert client.server.era is Era.MODERN
            await client.call("buy")
            await _guarded(fake, "newer")
            await client.call("buy")
        assert fake.runs("buy") == 2
        assert asked == ["old", "new", "newer"]


async def test_a_token_that_is_never_right_is_told_with_the_challenge():
    async with serve_fake(Fake()) as fake:
        await _guarded(fake, "right")
        with pytest.raises(UnauthorizedError) as caught:
            async with connect(fake.url, token=lambda: "wr0ng"):
                pass
        assert "resource_metadata" in caught.value.challenge
        assert "wr0ng" not in str(caught.value)
        assert len(fake.asked) <= 4


async def test_challenges_in_several_lines_are_one_list():
    async def challenge(asked: FakeRequest, wire: FakeConnection) -> None:
        lines = "www-authenticate: Basic realm=x\r\nWWW-Authenticate: Bearer scope=a\r\n"
        await wire.raw(f"HTTP/1.1 401 No\r\n{lines}content-length: 0\r\n\r\n".encode())

    async with serve_fake(Fake()) as fake:
        fake.always("server/discover", challenge)
        with pytest.raises(UnauthorizedError) as caught:
            async with connect(fake.url):
                pass
        assert caught.value.challenge == "Basic realm=x, Bearer scope=a"


async def test_no_token_where_one_is_wanted_is_told():
    async with serve_fake(Fake()) as fake:
        await _guarded(fake, "right")
        with pytest.raises(UnauthorizedError, match="token"):
            async with connect(fake.url):
                pass
        assert not fake.of("initialize"), "a 401 says nothing of an era"


async def test_a_401_in_the_middle_is_told_and_the_call_not_run():
    async with serve_fake(Fake()) as fake:
        async with connect(fake.url, token="was-good") as client:
            await client.call("buy")
            await _guarded(fake, "another")
            with pytest.raises(UnauthorizedError) as caught:
                await client.call("buy")
            assert "was-good" not in str(caught.value)
        assert fake.runs("buy") == 1


async def test_a_token_callback_that_fails_fails_the_call_only():
    fails = [False]

    def token() -> str:
        if fails[0]:
            raise ZeroDivisionError("vault is sealed")
        return "fine"

    async with serve_fake(Fake()) as fake:
        async with connect(fake.url, token=token) as client:
            await client.call("buy")
            fails[0] = True
            await _guarded(fake, "another")
            with pytest.raises((DeltaError, ZeroDivisionError)):
                await client.call("buy")
            fails[0] = False
            await _guarded(fake, "fine")
            await client.call("buy")
        assert fake.runs("buy") == 2


# Rate limits and overload


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize("name", ["buy", "look"])
async def test_a_server_that_asks_to_be_left_alone_is_asked_again_or_told_of(status, name):
    async def busy(asked: FakeRequest, wire: FakeConnection) -> None:
        await wire.answer(status, retry_after="0")

    async with serve_fake(Fake()) as fake:
        fake.once("tools/call", busy)
        async with connect(fake.url) as client:
            if status == 429:  # RFC 6585: the server did not act on it
                await client.call(name)
                assert fake.runs(name) == 1
            else:
                try:
                    await client.call(name)
                except ConnectionLostError:
                    assert name == "buy"
                assert fake.runs(name) <= 1


def refused_in_words(status: int, addressed: bool, seconds: str) -> Any:
    """A fault that answers as an MCP server does: with the status, when to come back, and a JSON-RPC error."""

    async def refuse(asked: FakeRequest, wire: FakeConnection) -> None:
        error = {"code": -32603, "message": "Sessions cannot be reached now."}
        message = {"jsonrpc": "2.0", "id": asked.id if addressed else None, "error": error}
        await wire.json(message, status, retry_after=seconds)

    return refuse


@pytest.mark.parametrize("addressed", [True, False])
@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize("name", ["buy", "look"])
async def test_a_server_that_refuses_in_words_and_says_when_to_come_back_is_asked_again(status, name, addressed):
    async with serve_fake(Fake()) as fake:
        fake.once("tools/call", refused_in_words(status, addressed, "0"))
        async with connect(fake.url) as client:
            assert (await client.call(name, a=1))["given"] == {"a": 1}
        assert fake.runs(name) == 1
        assert len(fake.of("tools/call")) == 2


async def test_a_refusal_in_words_is_told_in_these_words_where_the_wait_is_too_long():
    async with serve_fake(Fake()) as fake:
        fake.once("tools/call", refused_in_words(503, True, "3600"))
        async with connect(fake.url) as client:
            with pytest.raises(PeerError, match=r"Sessions cannot be reached now\."):
                await client.call("look")
        assert fake.runs("look") == 0


async def test_a_client_connects_though_it_is_refused_in_words_at_first():
    async with serve_fake(Fake(modern=False, sessions=True)) as fake:
        fake.once("initialize", refused_in_words(503, True, "0"))
        async with connect(fake.url, speak="handshake") as client:
            await client.call("buy")
        assert fake.runs("buy") == 1


async def test_how_long_to_wait_is_told_where_it_is_too_long_to_wait():
    async def busy(asked: FakeRequest, wire: FakeConnection) -> None:
        await wire.answer(429, retry_after="3600")

    async with serve_fake(Fake()) as fake:
        fake.always("tools/call", busy)
        async with connect(fake.url) as client:
            with pytest.raises(ConnectionLostError) as caught:
                await asyncio.wait_for(client.call("look"), HANG_SECONDS)
            assert caught.value.retry_after == 3600
            assert caught.value.maybe_done is False


@pytest.mark.parametrize("value", ["soon", "-5", "1e999", "Wed, 21 Oct 2015 07:28:00 GMT", "", "nan"])
async def test_a_retry_after_that_cannot_be_read_does_no_harm(value):
    async def busy(asked: FakeRequest, wire: FakeConnection) -> None:
        await wire.answer(429, retry_after=value)

    async with serve_fake(Fake()) as fake:
        fake.once("tools/call", busy)
        async with connect(fake.url) as client:
            try:
                await asyncio.wait_for(client.call("look"), HANG_SECONDS)
            except ConnectionLostError as error:
                assert error.maybe_done is False
            assert (await client.call("echo", a=1))["given"] == {"a": 1}


# Sessions


async def test_a_forgotten_session_is_begun_anew_without_its_id():
    async with serve_fake(fake_of("handshake")) as fake:
        async with connect(fake.url) as client:
            await client.call("buy")
            fake.sessions.clear()
            assert (await client.call("buy", a=1))["given"] == {"a": 1}
        assert fake.runs("buy") == 2
        assert len(fake.of("initialize")) == 2
        assert all("mcp-session-id" not in asked.headers for asked in fake.of("initialize"))
        assert fake.of("tools/call")[-1].headers["mcp-session-id"] == "session-2"
        assert not fake.sessions, "the session was not ended"


async def test_a_session_comes_only_from_the_answer_to_initialize():
    """mcp 1.30 sends the id of a session that it does not have with the 400 that it answers the probe with."""

    async def refused(asked: FakeRequest, wire: FakeConnection) -> None:
        error = {"code": -32600, "message": "No session."}
        await wire.json({"jsonrpc": "2.0", "id": None, "error": error}, 400, mcp_session_id="none-of-this-server")

    async with serve_fake(fake_of("handshake")) as fake:
        fake.always("server/discover", refused)
        async with connect(fake.url) as client:
            assert (await client.call("buy", a=1))["given"] == {"a": 1}
        assert "mcp-session-id" not in fake.of("initialize")[0].headers
        assert fake.of("tools/call")[0].headers["mcp-session-id"] == "session-1"


async def test_many_calls_that_find_their_session_forgotten_begin_one_new_one():
    async with serve_fake(fake_of("handshake")) as fake:
        async with connect(fake.url) as client:
            await client.tools()
            fake.sessions.clear()
            await asyncio.gather(*(client.call("buy", n=n) for n in range(30)))
        assert fake.runs("buy") == 30
        assert len(fake.of("initialize")) == 2


async def test_a_server_that_forgets_every_session_is_given_up():
    async def forgets(asked: FakeRequest, wire: FakeConnection) -> None:
        fake.sessions.clear()
        await fake.answer(asked, wire)

    async with serve_fake(fake_of("handshake")) as fake:
        fake.always("tools/call", forgets)
        async with connect(fake.url) as client:
            with pytest.raises(DeltaError):
                await asyncio.wait_for(client.call("buy"), HANG_SECONDS)
        assert fake.runs("buy") == 0
        assert len(fake.of("initialize")) < 10


async def test_the_session_is_ended_by_delete_even_where_that_is_not_allowed():
    async def refused(asked: FakeRequest, wire: FakeConnection) -> None:
        await wire.answer(405)

    async with serve_fake(fake_of("handshake")) as fake:
        fake.always("DELETE", refused)
        async with connect(fake.url) as client:
            await client.tools()
        (delete,) = fake.of("DELETE")
        assert delete.headers["mcp-session-id"] == "session-1"


async def test_a_stream_that_broke_is_taken_up_where_it_was():
    """2025-11-25, "Resumability and Redelivery"."""
    kept: list[Any] = []

    async def breaks(asked: FakeRequest, wire: FakeConnection) -> None:
        kept.append(fake.run(asked))
        await wire.events()
        await wire.event(None, id="s-1", retry=1)
        wire.close()

    async def resumes(asked: FakeRequest, wire: FakeConnection) -> None:
        if asked.headers.get("last-event-id") != "s-1":
            await wire.answer(405)
            return
        await wire.events()
        await wire.event(kept[0], id="s-2")
        await wire.end()

    async with serve_fake(fake_of("handshake")) as fake:
        fake.once("tools/call", breaks)
        fake.always("GET", resumes)
        async with connect(fake.url) as client:
            assert (await client.call("buy", a=1))["given"] == {"a": 1}
        assert fake.runs("buy") == 1
        resumed = [asked for asked in fake.of("GET") if "last-event-id" in asked.headers]
        assert [asked.headers["mcp-session-id"] for asked in resumed] == ["session-1"]


async def test_a_stream_that_breaks_again_and_again_is_taken_up_each_time():
    kept: list[Any] = []

    async def breaks(asked: FakeRequest, wire: FakeConnection) -> None:
        kept.append(fake.run(asked))
        await wire.events()
        await wire.event(None, id="0", retry=1)
        await wire.end()

    async def resumes(asked: FakeRequest, wire: FakeConnection) -> None:
        at = asked.headers.get("last-event-id")
        if at is None:
            await wire.answer(405)
            return
        await wire.events()
        if at == "3":
            await wire.event(kept[0], id="4")
        else:
            await wire.event(None, id=str(int(at) + 1), retry=1)
        await wire.end()

    async with serve_fake(fake_of("handshake")) as fake:
        fake.once("tools/call", breaks)
        fake.always("GET", resumes)
        async with connect(fake.url) as client:
            assert (await client.call("buy", a=1))["given"] == {"a": 1}
        assert fake.runs("buy") == 1


async def test_a_stream_that_cannot_be_taken_up_is_told_as_maybe_done():
    async def breaks(asked: FakeRequest, wire: FakeConnection) -> None:
        fake.run(asked)
        await wire.events()
        await wire.event(None, id="s-1", retry=1)
        wire.close()

    async with serve_fake(fake_of("handshake")) as fake:
        fake.once("tools/call", breaks)
        async with connect(fake.url) as client:
            with pytest.raises(ConnectionLostError) as caught:
                await asyncio.wait_for(client.call("buy"), HANG_SECONDS)
            assert caught.value.maybe_done is True
        assert fake.runs("buy") == 1


async def test_a_modern_stream_is_not_taken_up():
    """2026-07-28: "Resumable SSE streams via `Last-Event-ID` are not supported."""

    async def breaks(asked: FakeRequest, wire: FakeConnection) -> None:
        fake.run(asked)
        await wire.events()
        await wire.event(None, id="s-1", retry=1)
        wire.close()

    async with serve_fake(fake_of("modern")) as fake:
        fake.once("tools/call", breaks)
        async with connect(fake.url) as client:
            with pytest.raises(ConnectionLostError):
                await asyncio.wait_for(client.call("buy"), HANG_SECONDS)
        assert not fake.of("GET")
        assert fake.runs("buy") == 1


async def test_an_address_that_has_no_stream_to_listen_to_works_without():
    async with serve_fake(fake_of("handshake")) as fake:
        async with connect(fake.url) as client:
            await client.call("echo")
            advance_clock(3600)
            await client.call("echo")
        assert len(fake.of("GET")) == 1, "405 says no once and for all"


async def test_who_does_not_listen_opens_no_stream():
    for speak in SPEAK:
        async with serve_fake(fake_of(speak)) as fake:
            async with connect(fake.url, listen=False) as client:
                await client.call("echo")
            assert not fake.of("GET")
            assert not fake.of("subscriptions/listen")
            assert fake.connections == 1


# Headers of the modern era


@pytest.mark.parametrize("name", ["wetter.züri", " padded ", "=?base64?x?=", "a b", "名前", "tab\there"])
async def test_names_that_no_header_can_hold_are_encoded(name):
    async with serve_fake(Fake(tools=[{"name": name, "inputSchema": ANY}])) as fake:
        async with connect(fake.url) as client:
            assert (await client.call_tool(name, {"a": 1})).value["given"] == {"a": 1}
        (call,) = fake.of("tools/call")
        assert header_value(call.headers["mcp-name"]) == name
        assert call.params["name"] == name
        assert call.headers["mcp-name"].isascii()


PARAMETERS = {
    "type": "object",
    "properties": {
        "region": {"type": "string", "x-mcp-header": "Region"},
        "n": {"type": "integer", "x-mcp-header": "N"},
        "on": {"type": "boolean", "x-mcp-header": "On"},
        "deep": {"type": "object", "properties": {"er": {"type": "string", "x-mcp-header": "Deeper"}}},
    },
}


async def test_parameters_go_into_headers_where_the_schema_says_so():
    async with serve_fake(Fake(tools=[{"name": "q", "inputSchema": PARAMETERS}])) as fake:
        async with connect(fake.url) as client:
            await client.call_tool("q", {"region": "us-west1", "n": -7, "on": True, "deep": {"er": "世界"}})
            await client.call_tool("q", {"region": "line1\nline2"})
            await client.call_tool("q", {"region": None})
        all_, multi, none = (asked.headers for asked in fake.of("tools/call"))
        assert (all_["mcp-param-region"], all_["mcp-param-n"], all_["mcp-param-on"]) == ("us-west1", "-7", "true")
        assert header_value(all_["mcp-param-deeper"]) == "世界"
        assert header_value(multi["mcp-param-region"]) == "line1\nline2"
        assert not [name for name in none if name.startswith("mcp-param-")]


@pytest.mark.parametrize("header", ["", "a b", "a:b", "ü", 7, "x\r\ny"])
async def test_a_tool_whose_headers_are_not_right_is_left_out_alone(header):
    bad = {"type": "object", "properties": {"a": {"type": "string", "x-mcp-header": header}}}
    tools = [{"name": "bad", "inputSchema": bad}, {"name": "good", "inputSchema": ANY}]
    async with serve_fake(Fake(tools=tools)) as fake:
        async with connect(fake.url) as client:
            assert [tool.name for tool in await client.tools()] == ["good"]


async def test_headers_that_do_not_match_make_the_client_look_again_and_repeat():
    async def mismatch(asked: FakeRequest, wire: FakeConnection) -> None:
        fake.tools = [{"name": "q", "inputSchema": PARAMETERS}]
        await wire.json({"jsonrpc": "2.0", "id": asked.id, "error": {"code": -32020, "message": "Mismatch"}}, 400)

    async with serve_fake(Fake(tools=[{"name": "q", "inputSchema": ANY}])) as fake:
        fake.once("tools/call", mismatch)
        async with connect(fake.url) as client:
            assert (await client.call("q", region="eu"))["given"] == {"region": "eu"}
        assert fake.of("tools/call")[-1].headers["mcp-param-region"] == "eu"
        assert fake.runs("q") == 1


# Encodings


@pytest.mark.parametrize("encoding", ["compact-json", "cbor"])
async def test_an_encoding_the_server_has_is_used_both_ways(encoding: Any):
    offered = {
        "io.github.delta-mcp/progressive-disclosure": {"version": "0.2.0", "encodings": ["compact-json", "cbor"]}
    }
    async with serve_fake(Fake(tools_={}, tools=[{"name": "echo", "inputSchema": ANY}])) as fake:
        fake.capabilities = {"tools": {}, "extensions": offered}
        async with connect(fake.url, encoding=encoding) as client:
            assert client.server.encoding == encoding
            value = {"name": "n", "n": {"~t": [1, None, True], "text": "tx"}, "result": -1.5, "id": 2**53}
            assert (await client.call("echo", **value))["given"] == value
        assert fake.of("tools/call")[-1].codec is CODECS[encoding]
    assert COMPACT_CODEC.content_type != CBOR_CODEC.content_type


@pytest.mark.parametrize("encoding", ["compact-json", "cbor"])
@pytest.mark.parametrize("speak", SPEAK)
async def test_a_server_that_knows_json_only_is_sent_json_only(encoding: Any, speak: Any):
    async with serve_fake(fake_of(speak)) as fake:
        async with connect(fake.url, encoding=encoding) as client:
            assert client.server.encoding == "json"
            assert (await client.call("echo", name=1))["given"] == {"name": 1}
        assert {asked.headers["content-type"] for asked in fake.asked if asked.body} == {"application/json"}


async def test_an_error_in_json_is_read_where_cbor_is_spoken():
    offered = {
        "io.github.delta-mcp/progressive-disclosure": {"version": "0.2.0", "encodings": ["compact-json", "cbor"]}
    }

    async def refused(asked: FakeRequest, wire: FakeConnection) -> None:
        await wire.json({"jsonrpc": "2.0", "id": asked.id, "error": {"code": -32602, "message": "Unfit."}}, 400)

    async with serve_fake(Fake(tools=[{"name": "echo", "inputSchema": ANY}])) as fake:
        fake.capabilities = {"tools": {}, "extensions": offered}
        fake.once("tools/call", refused)
        async with connect(fake.url, encoding="cbor") as client:
            with pytest.raises(PeerError, match="Unfit"):
                await client.call("echo")
    assert MODERN
    assert result({})


def test_http_is_spoken_on_other_loops_too():
    async def main() -> Any:
        async with serve_fake(Fake(handshake=False)) as fake, connect(fake.url) as client:
            return await client.call("echo", a=1)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(main())["given"] == {"a": 1}


@pytest.mark.parametrize("name", ["Host", "content-length", "Transfer-Encoding", "connection", "a b", "", "x:y"])
def test_headers_that_only_the_writer_of_a_request_knows_are_refused(name):
    with pytest.raises(ConfigurationError):
        connect("http://127.0.0.1:1/mcp", headers={name: "1"})._link_factories()[0]()


@pytest.mark.parametrize("proxy", ["socks5://127.0.0.1:9", "https://127.0.0.1:9"])
def test_a_proxy_that_cannot_be_used_is_not_passed_by_in_silence(monkeypatch, proxy):
    monkeypatch.setenv("https_proxy", proxy)
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    with pytest.raises(ConfigurationError, match="proxy"):
        HttpConnectionPool("https://tools.example/mcp", 1000)


async def test_an_address_is_reached_through_a_proxy_with_its_credentials(monkeypatch):
    """A request to a proxy names the whole address; a name and password go along."""
    async with serve_fake(Fake(handshake=False)) as fake:
        monkeypatch.setenv("http_proxy", fake.url.replace("http://", "http://ada:secret@").removesuffix("/mcp"))
        monkeypatch.delenv("no_proxy", raising=False)
        monkeypatch.delenv("NO_PROXY", raising=False)
        async with connect("http://tools.example/mcp") as client:
            assert (await client.call("echo", a=1))["given"] == {"a": 1}
        asked = fake.of("tools/call")[0]
        assert asked.path == "http://tools.example/mcp"
        assert asked.headers["proxy-authorization"] == "Basic YWRhOnNlY3JldA=="


async def test_idle_sockets_are_not_kept_for_ever():
    async with serve_fake(Fake(handshake=False)) as fake, connect(fake.url) as client:
        await asyncio.gather(*(client.call("echo", n=n) for n in range(50)))
        assert idle_connections(client) > 1
        advance_clock(3600)
        await wait_until(lambda: idle_connections(client) == 0)


async def test_a_web_page_at_the_address_is_told_as_one():
    async def page(asked: FakeRequest, wire: FakeConnection) -> None:
        await wire.answer(200, b"<html>", content_type="text/html")

    async with serve_fake(Fake()) as fake:
        for method in ("server/discover", "initialize"):
            fake.always(method, page)
        with pytest.raises(UnreachableError, match="text/html"):
            async with connect(fake.url):
                pass
