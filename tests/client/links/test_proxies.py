"""The HTTP link through the proxy that the environment names."""

import asyncio
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import uvloop

from deltamcp import UnreachableError, connect
from deltamcp.client.links.http1 import BrokenExchangeError, HttpConnectionPool
from tests.client.certificates import Authority
from tests.support.fake_http import Fake, serve_fake
from tests.support.fake_proxy import FakeProxy, serve_proxy

SECRET = "Basic YWRhOnBAc3M="  # ada:p@ss
PLACE = "tools.example:443"
ADDRESS = "https://tools.example/mcp"


@pytest.fixture
def authority(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Authority:
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    made = Authority(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(made.file))
    return made


def port(fake: Fake) -> int:
    return urlsplit(fake.url).port or 0


def with_password(proxy: FakeProxy) -> str:
    return proxy.url.replace("http://", "http://ada:p%40ss@")


@pytest.mark.parametrize("streams", [False, True], ids=["json", "events"])
@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_tls_goes_through_a_tunnel(authority, monkeypatch, streams, new_loop):
    async def main() -> None:
        async with serve_fake(Fake(streams=streams), authority.server_context("tools.example")) as fake:
            async with serve_proxy(FakeProxy({PLACE: port(fake)}, SECRET)) as proxy:
                monkeypatch.setenv("https_proxy", with_password(proxy))
                async with connect(ADDRESS, token="for the server", listen=False) as client:
                    await client.call("echo", n=0)
                    assert len(proxy.asked) == 1, "the tunnel is not kept"
                    answers = await asyncio.gather(*(client.call("echo", n=n) for n in range(20)))
                assert [answer["given"]["n"] for answer in answers] == list(range(20))
            for asked in proxy.asked:
                assert (asked.method, asked.target) == ("CONNECT", PLACE)
                assert asked.headers == {"host": PLACE, "proxy-authorization": SECRET}
            for request in fake.asked:
                assert request.path == "/mcp"
                assert "proxy-authorization" not in request.headers
                assert request.headers["authorization"] == "Bearer for the server"

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(main())


async def test_the_certificate_is_the_servers_and_not_the_proxys(authority, monkeypatch):
    async with serve_fake(Fake(), authority.server_context("other.example", "127.0.0.1")) as fake:
        async with serve_proxy(FakeProxy({PLACE: port(fake)})) as proxy:
            monkeypatch.setenv("https_proxy", proxy.url)
            with pytest.raises(UnreachableError, match="certificate or TLS is not right: CERTIFICATE_VERIFY_FAILED"):
                async with connect(ADDRESS):
                    pass
        assert not fake.asked


async def test_a_proxy_that_refuses_is_told(authority, monkeypatch):
    async with serve_proxy(FakeProxy({}, SECRET)) as proxy:
        monkeypatch.setenv("https_proxy", proxy.url)
        with pytest.raises(UnreachableError, match="the proxy answered HTTP 407"):
            async with connect(ADDRESS):
                pass


async def test_a_call_whose_tunnel_was_never_there_is_sent_again(authority, monkeypatch):
    """Two calls at once need a second tunnel; the proxy hangs up on it, so the server has seen nothing of that call."""
    async with serve_fake(Fake(), authority.server_context("tools.example")) as fake:
        async with serve_proxy(FakeProxy({PLACE: port(fake)})) as proxy:
            monkeypatch.setenv("https_proxy", proxy.url)
            async with connect(ADDRESS, listen=False) as client:
                proxy.hang_ups = 1
                await asyncio.gather(client.call("buy"), client.call("buy"))
                assert not proxy.hang_ups
        assert fake.runs("buy") == 2


async def test_a_proxy_that_hangs_up_is_told(authority, monkeypatch):
    async with serve_proxy(FakeProxy({})) as proxy:
        monkeypatch.setenv("https_proxy", proxy.url)
        proxy.hang_ups = 1
        origin = HttpConnectionPool(ADDRESS, 1000)
        with pytest.raises(BrokenExchangeError, match="the proxy hung up") as caught:
            await origin.exchange(origin.head("GET", ADDRESS, {}), b"")
        assert not caught.value.sent


async def test_an_address_of_ipv6_is_asked_for_in_brackets(authority, monkeypatch):
    """RFC 9110, 9.3.6: CONNECT names an authority, whose IPv6 address stands in brackets."""
    async with serve_proxy(FakeProxy({}, SECRET)) as proxy:
        monkeypatch.setenv("https_proxy", proxy.url)
        with pytest.raises(UnreachableError, match="407"):
            async with connect("https://[2001:db8::1]:8443/mcp"):
                pass
        assert {asked.target for asked in proxy.asked} == {"[2001:db8::1]:8443"}


async def test_a_proxy_that_hangs_up_after_every_answer_is_not_spoken_to_again(authority, monkeypatch):
    async with (
        serve_fake(Fake(handshake=False)) as fake,
        serve_proxy(FakeProxy({"tools.example": port(fake)})) as proxy,
    ):
        monkeypatch.setenv("http_proxy", with_password(proxy))
        async with connect("http://tools.example/mcp", listen=False) as client:
            for _ in range(5):
                await client.call("buy")
        assert fake.runs("buy") == 5
        assert {asked.target for asked in proxy.asked} == {"http://tools.example/mcp"}
        assert {asked.headers["proxy-authorization"] for asked in proxy.asked} == {SECRET}
