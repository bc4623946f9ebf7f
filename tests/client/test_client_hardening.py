"""What a hostile review found, so that it stays mended."""

import asyncio
import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
import uvloop

from deltamcp import ConfigurationError, ConnectionLostError, DeadlineError, DeltaServer, UnreachableError, connect
from deltamcp.client.links.http1 import Origin
from tests.client import fake_stdio
from tests.client.fake_http import Asked, Fake, Wire, serving
from tests.client.test_stdio import alive


def test_http_is_spoken_on_other_loops_too():
    async def main() -> Any:
        async with serving(Fake(handshake=False)) as fake, connect(fake.url) as client:
            return await client.call("echo", a=1)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(main())["given"] == {"a": 1}


@pytest.mark.parametrize("status", [404, 429, 503])
async def test_a_call_whose_stream_broke_is_not_done_again_whatever_the_way_back_says(status):
    async def breaks(asked: Asked, wire: Wire) -> None:
        fake.run(asked)
        await wire.events()
        await wire.event(None, id="ключ", retry=1)
        wire.close()

    async def refused(asked: Asked, wire: Wire) -> None:
        await wire.answer(status)

    async with serving(Fake(modern=False, sessions=True)) as fake:
        fake.once("tools/call", breaks)
        fake.always("GET", refused)
        async with connect(fake.url, listen=False) as client:
            with pytest.raises(ConnectionLostError, match="may have been done") as caught:
                await client.call("buy")
        assert caught.value.maybe_done
        assert fake.runs("buy") == 1
        # The same bytes that the event had, though header values are commonly read as latin-1.
        assert [asked.headers.get("last-event-id") for asked in fake.of("GET")] == ["ключ".encode().decode("latin-1")]


async def test_what_a_program_does_to_a_definition_is_its_own_affair():
    server = DeltaServer("notes")

    @server.tool
    async def write(name: str) -> str:
        """Keeps a note."""
        return name

    async with connect(server) as client:
        (definition,) = await client.describe("write")
        definition["inputSchema"].clear()
        definition["inputSchema"]["not"] = {}
        assert await client.call("write", name="a") == "a"


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks at processes by /proc")
@pytest.mark.parametrize("when", ["entering", "leaving"])
async def test_a_server_is_gone_however_its_client_was_cancelled(tmp_path, when):
    log = tmp_path / "log"
    says_nothing = {"discover": "silent", "mute": True} if when == "entering" else {}
    client = connect(fake_stdio.command(log=log, stubborn=True, **says_nothing))
    entering: asyncio.Task[Any] = asyncio.create_task(client.__aenter__())
    if when == "leaving":
        await entering
        entering = asyncio.create_task(client.__aexit__(None, None, None))
    await fake_stdio.until(log.exists)
    await asyncio.sleep(0.05)
    entering.cancel()
    await asyncio.wait([entering])
    await fake_stdio.until(lambda: not alive(log))


async def test_a_log_line_that_looks_like_an_answer_is_none(tmp_path):
    lines = [json.dumps({"level": "info", "id": number}) for number in range(1, 9)]
    async with connect(fake_stdio.command(log=tmp_path / "log", garbage=lines)) as client:
        assert await client.call("echo", a=1) is not None


async def test_a_timeout_is_of_everything_that_has_to_be_done_for_an_answer():
    async def hangs_up(asked: Asked, wire: Wire) -> None:
        wire.close()

    async with serving(Fake(handshake=False)) as fake, connect(fake.url, timeout=0.3) as client:
        await client.tools()
        fake.always("tools/call", hangs_up)
        with pytest.raises(DeadlineError):
            await client.call("look")
        assert len(fake.of("tools/call")) < 6


async def test_a_server_whose_life_cannot_begin_says_why():
    @contextlib.asynccontextmanager
    async def broken(server: DeltaServer) -> Any:
        raise RuntimeError("no database")
        yield

    with pytest.raises(RuntimeError, match="no database"):
        async with connect(DeltaServer("x", lifespan=broken)):
            pass


@pytest.mark.parametrize("name", ["Host", "content-length", "Transfer-Encoding", "connection", "a b", "", "x:y"])
def test_headers_that_only_the_writer_of_a_request_knows_are_refused(name):
    with pytest.raises(ConfigurationError):
        connect("http://127.0.0.1:1/mcp", headers={name: "1"})._links()[0]()


@pytest.mark.parametrize("proxy", ["socks5://127.0.0.1:9", "https://127.0.0.1:9"])
def test_a_proxy_that_cannot_be_used_is_not_passed_by_in_silence(monkeypatch, proxy):
    monkeypatch.setenv("https_proxy", proxy)
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    with pytest.raises(ConfigurationError, match="proxy"):
        Origin("https://tools.example/mcp", 1000)


async def test_an_address_is_reached_through_a_proxy_with_its_credentials(monkeypatch):
    """A request to a proxy names the whole address; a name and password go along."""
    async with serving(Fake(handshake=False)) as fake:
        monkeypatch.setenv("http_proxy", fake.url.replace("http://", "http://ada:secret@").removesuffix("/mcp"))
        monkeypatch.delenv("no_proxy", raising=False)
        monkeypatch.delenv("NO_PROXY", raising=False)
        async with connect("http://tools.example/mcp") as client:
            assert (await client.call("echo", a=1))["given"] == {"a": 1}
        asked = fake.of("tools/call")[0]
        assert asked.path == "http://tools.example/mcp"
        assert asked.headers["proxy-authorization"] == "Basic YWRhOnNlY3JldA=="


async def test_idle_sockets_are_not_kept_for_ever(monkeypatch):
    monkeypatch.setattr("deltamcp.client.links.http1._IDLE_SECONDS", 0.05)
    async with serving(Fake(handshake=False)) as fake, connect(fake.url) as client:
        await asyncio.gather(*(client.call("echo", n=n) for n in range(50)))
        link: Any = client._reaching.conversation
        idle = link.link._origin._idle
        await fake_stdio.until(lambda: not idle)


async def test_a_web_page_at_the_address_is_told_as_one():
    async def page(asked: Asked, wire: Wire) -> None:
        await wire.answer(200, b"<html>", content_type="text/html")

    async with serving(Fake()) as fake:
        for method in ("server/discover", "initialize"):
            fake.always(method, page)
        with pytest.raises(UnreachableError, match="text/html"):
            async with connect(fake.url):
                pass
