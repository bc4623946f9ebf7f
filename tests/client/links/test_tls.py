"""The HTTP link over TLS, with certificates of a test authority."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
import uvloop

from deltamcp import ConnectionLostError, UnreachableError, connect
from tests.client.certificates import Authority
from tests.support.fake_http import Fake, FakeConnection, FakeRequest, serve_fake


@pytest.fixture
def authority(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Authority:
    """An authority that the client trusts by `SSL_CERT_FILE`, like the system's authorities."""
    made = Authority(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(made.file))
    return made


@pytest.mark.parametrize("streams", [False, True], ids=["json", "events"])
@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_calls_go_over_tls(authority, streams, new_loop):
    async def main() -> None:
        text = "ü" * 300_000
        async with serve_fake(Fake(streams=streams), authority.server_context("127.0.0.1")) as fake:
            async with connect(fake.url) as client:
                assert (await client.call("echo", a=text))["given"] == {"a": text}
                answers = await asyncio.gather(*(client.call("echo", n=n) for n in range(50)))
                assert [answer["given"]["n"] for answer in answers] == list(range(50))

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(main())


async def test_a_connection_is_kept_for_the_next_call(authority):
    async with serve_fake(Fake(), authority.server_context("127.0.0.1")) as fake:
        async with connect(fake.url, listen=False) as client:
            for n in range(5):
                await client.call("echo", n=n)
        assert fake.connections == 1


async def test_a_certificate_of_an_unknown_authority_is_refused(authority, monkeypatch):
    context = authority.server_context("127.0.0.1")
    monkeypatch.delenv("SSL_CERT_FILE")
    async with serve_fake(Fake(), context) as fake:
        with pytest.raises(UnreachableError, match="certificate or TLS is not right: CERTIFICATE_VERIFY_FAILED"):
            async with connect(fake.url):
                pass
        assert not fake.asked


async def test_a_certificate_for_another_host_is_refused(authority):
    async with serve_fake(Fake(), authority.server_context("tools.example", "127.0.0.2")) as fake:
        with pytest.raises(UnreachableError, match="certificate or TLS is not right: CERTIFICATE_VERIFY_FAILED"):
            async with connect(fake.url):
                pass
        assert not fake.asked


async def test_a_server_without_tls_is_told_as_one(authority):
    """The server answers a TLS hello at once with HTTP 400, as web servers do."""

    async def refuses(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(refuses, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(UnreachableError, match="certificate or TLS is not right: WRONG_VERSION_NUMBER"):
            async with connect(f"https://127.0.0.1:{port}/mcp"):
                pass


async def test_a_call_that_broke_over_tls_is_not_done_again(authority):
    async def breaks(asked: FakeRequest, wire: FakeConnection) -> None:
        fake.run(asked)
        wire.abort()

    async with serve_fake(Fake(), authority.server_context("127.0.0.1")) as fake:
        fake.once("tools/call", breaks)
        async with connect(fake.url) as client:
            with pytest.raises(ConnectionLostError, match="may have been done") as caught:
                await client.call("buy")
        assert caught.value.maybe_done
        assert fake.runs("buy") == 1


async def test_a_call_that_is_cancelled_hangs_up(authority):
    begun, hung_up = asyncio.Event(), asyncio.Event()

    async def waits(asked: FakeRequest, wire: FakeConnection) -> None:
        begun.set()
        transport: Any = wire.writer.transport
        while not transport.is_closing():  # noqa: ASYNC110 - no event tells of a peer's end without reading
            await asyncio.sleep(0.005)
        hung_up.set()

    async with serve_fake(Fake(handshake=False), authority.server_context("127.0.0.1")) as fake:
        fake.once("tools/call", waits)
        async with connect(fake.url, listen=False) as client:
            call = asyncio.create_task(client.call("echo"))
            await begun.wait()
            call.cancel()
            await asyncio.wait([call])
            await hung_up.wait()
            assert (await client.call("echo", a=1))["given"] == {"a": 1}
