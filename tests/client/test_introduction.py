"""Negotiation: the client detects a server's era, however the server reacts to the probe."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from deltamcp import DeltaServer
from deltamcp.client import negotiation
from deltamcp.client.client import connect
from deltamcp.errors import ClientError, PeerError, UnreachableError
from deltamcp.values import Era
from tests.support import fake_http, fake_stdio
from tests.support.conditions import advance_clock, wait_until
from tests.support.fake_http import Fake, FakeConnection, FakeRequest, serve_fake

MODERN = "2026-07-28"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"


# stdio


async def test_a_modern_process_is_never_sent_initialize(log):
    async with connect(fake_stdio.command(log=log)) as client:
        assert client.server.era is Era.MODERN
        assert client.server.protocol == MODERN
        assert (await client.call("echo", a=1))["given"] == {"a": 1}
    assert not fake_stdio.messages(log, "initialize")
    assert not fake_stdio.messages(log, "notifications/initialized")


async def test_every_request_to_a_modern_process_says_its_revision(log):
    async with connect(fake_stdio.command(log=log), info={"name": "mine", "version": "7"}) as client:
        await client.call("echo", a=1)
    requests = [message for message in fake_stdio.messages(log) if "id" in message]
    assert len(requests) >= 3
    for request in requests:
        meta = request["params"]["_meta"]
        assert meta["io.modelcontextprotocol/protocolVersion"] == MODERN
        assert isinstance(meta["io.modelcontextprotocol/clientCapabilities"], dict)
        assert meta["io.modelcontextprotocol/clientInfo"] == {"name": "mine", "version": "7"}
    assert len({request["id"] for request in requests}) == len(requests)


@pytest.mark.parametrize(
    "discover",
    [-32601, -32602, -32600, -32603, -32000, -32002, 0, 1, {"code": -32601, "message": "?", "data": None}],
    ids=str,
)
async def test_any_error_that_is_not_modern_means_the_handshake(log, discover):
    async with connect(fake_stdio.command(log=log, discover=discover)) as client:
        assert client.server.era is Era.HANDSHAKE
        assert (await client.call("echo", a=1))["given"] == {"a": 1}
    assert len(fake_stdio.messages(log, "initialize")) == 1
    assert len(fake_stdio.messages(log, "notifications/initialized")) == 1


async def test_silence_means_the_handshake(log, monkeypatch):
    monkeypatch.setattr(negotiation, "_PROBE_SECONDS", 0.1)
    async with connect(fake_stdio.command(log=log, discover="silent", mute=True)) as client:
        assert client.server.era is Era.HANDSHAKE
        assert (await client.call("echo", a=1))["given"] == {"a": 1}


async def test_a_process_that_ends_at_the_probe_is_started_again_for_the_handshake(log):
    async with connect(fake_stdio.command(log=log, discover="exit")) as client:
        assert client.server.era is Era.HANDSHAKE
        assert (await client.call("echo", a=1)) == {"given": {"a": 1}, "life": 1}


async def test_a_handshake_without_the_probe_where_that_is_asked_for(log):
    async with connect(fake_stdio.command(log=log, discover="exit"), speak="handshake") as client:
        assert (await client.call("echo"))["life"] == 0
    assert not fake_stdio.messages(log, "server/discover")
    assert [message.get("method") for message in fake_stdio.messages(log)[:2]] == [
        "initialize",
        "notifications/initialized",
    ]


async def test_a_modern_error_is_never_answered_with_initialize(log):
    data = {"supported": ["2031-01-01"], "requested": MODERN}
    discover = {"code": -32022, "message": "Unsupported protocol version", "data": data}
    with pytest.raises(UnreachableError, match="2031-01-01"):
        async with connect(fake_stdio.command(log=log, discover=discover)):
            pass
    assert not fake_stdio.messages(log, "initialize")


async def test_who_speaks_only_modern_falls_back_to_nothing(log):
    with pytest.raises(ClientError):
        async with connect(fake_stdio.command(log=log, discover=-32601), speak="modern"):
            pass
    assert not fake_stdio.messages(log, "initialize")


@pytest.mark.parametrize("protocol", ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"])
async def test_older_revisions_are_spoken_too(log, protocol):
    async with connect(fake_stdio.command(log=log, discover=-32601, protocol=protocol)) as client:
        assert client.server.protocol == protocol
        assert (await client.call("echo", a=1))["given"] == {"a": 1}


async def test_a_revision_nobody_knows_is_not_spoken(log):
    with pytest.raises(UnreachableError, match="1999-01-01"):
        async with connect(fake_stdio.command(log=log, discover=-32601, protocol="1999-01-01")):
            pass


async def test_the_handshake_offers_the_newest_revision_and_says_nothing_of_the_modern_era(log):
    async with connect(fake_stdio.command(log=log, discover=-32601)) as client:
        await client.call("echo")
    (initialize,) = fake_stdio.messages(log, "initialize")
    assert initialize["params"]["protocolVersion"] == "2025-11-25"
    assert set(initialize["params"]) == {"protocolVersion", "capabilities", "clientInfo"}
    for message in fake_stdio.messages(log):
        if message["method"] != "server/discover":
            meta = (message.get("params") or {}).get("_meta", {})
            assert not [key for key in meta if key.startswith("io.modelcontextprotocol/")]


async def test_a_handshake_that_is_refused_is_told_in_the_servers_words(log):
    refusal = {"code": -32600, "message": "Only on Tuesdays."}
    with pytest.raises(ClientError, match="Only on Tuesdays"):
        async with connect(fake_stdio.command(log=log, discover=-32601, initialize=refusal)):
            pass


async def test_a_server_that_never_introduces_itself_is_given_up(log):
    client = connect(fake_stdio.command(log=log, discover=-32601, initialize="silent"), start_timeout=3600)
    entering = asyncio.create_task(client.__aenter__())
    await wait_until(lambda: bool(fake_stdio.messages(log, "initialize")))
    advance_clock(3600)
    with pytest.raises(UnreachableError):
        await entering


# HTTP


async def _refused(
    asked: FakeRequest, wire: FakeConnection, status: int, body: bytes, content_type: str = "application/json"
) -> None:
    await wire.answer(status, body, content_type=content_type)


@pytest.mark.parametrize(
    ("status", "body", "content_type"),
    [
        (400, b"", "application/json"),
        (400, b"Bad Request: No valid session ID provided", "text/plain"),
        (400, b'{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"No session."}}', "application/json"),
        (400, b'{"error":"Unsupported MCP-Protocol-Version: 2026-07-28"}', "application/json"),
        (404, b"<html>Not found</html>", "text/html"),
        (200, b'{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"?"}}', "application/json"),
        (200, b'{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"?"}}', "application/json"),
        (422, b'{"detail":"?"}', "application/json"),
        (406, b"", "text/plain"),
        (501, b"", "text/plain"),
    ],
)
async def test_an_address_that_refuses_the_probe_gets_the_handshake(status, body, content_type):
    async def refused(asked: FakeRequest, wire: FakeConnection) -> None:
        await wire.answer(status, body, content_type=content_type)

    async with serve_fake(Fake(sessions=True)) as fake:
        fake.always("server/discover", refused)
        async with connect(fake.url) as client:
            assert client.server.era is Era.HANDSHAKE
            assert (await client.call("echo", a=1))["given"] == {"a": 1}
        first = fake.of("initialize")[0]
        assert "mcp-session-id" not in first.headers
        for asked in fake.asked:
            if asked.method not in ("server/discover", "initialize"):
                assert asked.headers["mcp-protocol-version"] == "2025-11-25"
                assert asked.headers["mcp-session-id"] == "session-1"


async def test_an_address_of_the_modern_era_gets_its_headers():
    async with serve_fake(Fake(handshake=False)) as fake:
        async with connect(fake.url) as client:
            assert client.server.era is Era.MODERN
            await client.call("echo", a=1)
        assert not fake.of("initialize")
        for asked in fake.asked:
            assert asked.verb == "POST"
            assert asked.headers["mcp-protocol-version"] == MODERN
            assert asked.headers["mcp-method"] == asked.method
            assert asked.params["_meta"]["io.modelcontextprotocol/protocolVersion"] == MODERN
            assert {"application/json", "text/event-stream"} <= set(asked.headers["accept"].split(", "))
            assert "mcp-session-id" not in asked.headers
        (call,) = fake.of("tools/call")
        assert call.headers["mcp-name"] == "echo"


async def test_a_modern_error_over_http_is_never_answered_with_initialize():
    async def newer(asked: FakeRequest, wire: FakeConnection) -> None:
        error = {"code": -32022, "message": "No.", "data": {"supported": ["2031-01-01"], "requested": MODERN}}
        await wire.json({"jsonrpc": "2.0", "id": asked.id, "error": error}, 400)

    async with serve_fake(Fake()) as fake:
        fake.always("server/discover", newer)
        with pytest.raises(UnreachableError, match="2031-01-01"):
            async with connect(fake.url):
                pass
        assert not fake.of("initialize")


async def test_a_refused_call_does_not_make_a_modern_server_an_old_one():
    async def wrong(asked: FakeRequest, wire: FakeConnection) -> None:
        await wire.json({"jsonrpc": "2.0", "id": asked.id, "error": {"code": -32602, "message": "Unfit."}}, 400)

    async with serve_fake(Fake()) as fake:
        fake.once("tools/call", wrong)
        async with connect(fake.url) as client:
            with pytest.raises(PeerError, match="Unfit") as caught:
                await client.call("echo", a=1)
            assert caught.value.code == -32602
            assert (await client.call("echo", a=2))["given"] == {"a": 2}
        assert not fake.of("initialize")


async def test_a_server_that_stumbles_over_the_probe_is_not_taken_for_one_that_refuses_it():
    """5xx and 429 do not show the server's era."""

    async def stumbles(asked: FakeRequest, wire: FakeConnection) -> None:
        await wire.answer(503, retry_after="0")

    async with serve_fake(Fake(handshake=False)) as fake:
        fake.once("server/discover", stumbles)
        async with connect(fake.url) as client:
            assert client.server.era is Era.MODERN


# Delta-MCP servers, and the original Delta-MCP


@pytest.mark.parametrize(
    ("speak", "era", "protocol"),
    [
        ("auto", Era.MODERN, MODERN),
        ("modern", Era.MODERN, MODERN),
        ("handshake", Era.HANDSHAKE, "2025-11-25"),
        ("delta-mcp", Era.HANDSHAKE, "delta-mcp/0.2.0"),
    ],
)
async def test_our_server_is_spoken_to_as_is_asked_for(speak: Any, era: Era, protocol: str):
    server = DeltaServer("ours", "1.2", instructions="Be kind.")

    @server.tool
    def add(a: int, b: int) -> int:
        """Adds."""
        return a + b

    async with connect(server, speak=speak) as client:
        assert client.server.era is era
        assert client.server.protocol == protocol
        assert (client.server.name, client.server.version) == ("ours", "1.2")
        assert await client.call("add", a=1, b=2) == 3


async def test_the_original_delta_mcp_is_recognised_by_its_words_and_offered_its_own(log):
    """The original Delta-MCP answers the probe with `Unknown method: server/discover` (delta-mcp.md §2)."""
    discover = {"code": -32601, "message": "Unknown method: server/discover"}
    async with connect(fake_stdio.command(log=log, discover=discover, protocol="delta-mcp/0.2.0")) as client:
        assert client.server.protocol == "delta-mcp/0.2.0"
    (initialize,) = fake_stdio.messages(log, "initialize")
    assert initialize["params"]["protocolVersion"] == "delta-mcp/0.2.0"
    assert initialize["params"]["capabilities"]["tools"]["progressiveDisclosure"] is True


async def test_whoever_answers_the_offer_of_delta_mcp_with_mcp_is_spoken_mcp_to(log):
    discover = {"code": -32601, "message": "Unknown method: server/discover"}
    async with connect(fake_stdio.command(log=log, discover=discover, protocol="2025-11-25")) as client:
        assert client.server.protocol == "2025-11-25"
        assert (await client.call("echo", a=1))["given"] == {"a": 1}


async def test_two_clients_of_different_eras_at_once():
    async with serve_fake(Fake(sessions=True)) as fake:
        async with connect(fake.url) as new, connect(fake.url, speak="handshake") as old:
            given = await asyncio.gather(new.call("echo", a=1), old.call("echo", a=2))
        assert [value["given"] for value in given] == [{"a": 1}, {"a": 2}]
    assert fake_http.MODERN == MODERN
