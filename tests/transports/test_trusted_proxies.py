"""The client's address behind proxies: what trusted ones say counts, what others say does not."""

import asyncio
import ipaddress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltamcp import ConfigurationError, DeltaServer, Limits
from deltamcp.transports.admission import TrustedProxies
from deltamcp.transports.http.app import HttpApp
from deltamcp.transports.http.server import make_server
from tests.support.asgi_client import AsgiExchange
from tests.support.http_server import serve_uvicorn

PROXY = "10.0.0.1"
PROXIES = TrustedProxies(["10.0.0.0/8", "fd00::/8", "unix"])
TRUSTED = st.one_of(
    st.ip_addresses(network="10.0.0.0/8").map(str),
    st.ip_addresses(network="fd00::/8").map(str),
    st.just("::ffff:10.1.1.1"),
)
CLIENTS = st.ip_addresses().filter(lambda address: not PROXIES.trusts((str(address), 1))).map(str)
NOISE = st.text(st.characters(codec="latin-1", exclude_characters="\r\n"), max_size=60)


def client_of(peer: str | None = PROXY, **headers: str) -> Any:
    return resolve(peer, **headers).get("client")


def resolve(peer: str | None, **headers: str) -> Any:
    raw = [(name.replace("_", "-").encode(), value.encode("latin-1")) for name, value in headers.items()]
    return PROXIES.resolve({"client": (peer, 5) if peer else None, "headers": raw, "scheme": "http"}, dict(raw))


def as_forwarded(address: str) -> str:
    return f'for="[{address}]:80"' if ":" in address else f"for={address}"


def is_client(found: Any, address: str) -> bool:
    wanted = ipaddress.ip_address(address.partition("%")[0])
    return ipaddress.ip_address(found[0]) == (getattr(wanted, "ipv4_mapped", None) or wanted)


@given(NOISE, CLIENTS, st.lists(TRUSTED, max_size=3))
def test_the_client_is_the_nearest_sender_that_is_not_trusted_whatever_it_wrote_itself(noise, client, proxies):
    assert is_client(client_of(x_forwarded_for=", ".join([noise, client, *proxies])), client)


@given(st.lists(st.one_of(CLIENTS, TRUSTED), max_size=3), CLIENTS, st.lists(TRUSTED, max_size=3))
def test_both_headers_tell_the_same(before, client, proxies):
    chain = [*before, client, *proxies]
    forwarded = ", ".join(map(as_forwarded, chain))
    assert is_client(client_of(forwarded=forwarded), client)
    assert is_client(client_of(forwarded=forwarded, x_forwarded_for=",".join(chain)), client)


@given(NOISE, NOISE, CLIENTS)
def test_an_untrusted_connection_stays_as_it_is(forwarded, forwarded_for, peer):
    scope = resolve(peer, forwarded=forwarded, x_forwarded_for=forwarded_for, x_forwarded_proto="https")
    assert scope["client"] == (peer, 5) and scope["scheme"] == "http"


@given(NOISE, NOISE)
def test_any_header_names_an_address_or_nobody(forwarded, forwarded_for):
    for found in (
        client_of(forwarded=forwarded),
        client_of(x_forwarded_for=forwarded_for),
        client_of(forwarded=forwarded, x_forwarded_for=forwarded_for),
    ):
        assert found == (PROXY, 5) or (ipaddress.ip_address(found[0]) and found[1] == 0)


@pytest.mark.parametrize(
    ("headers", "client"),
    [
        ({}, PROXY),
        ({"x_forwarded_for": ""}, PROXY),
        ({"x_forwarded_for": "1.2.3.4"}, "1.2.3.4"),
        ({"x_forwarded_for": "9.9.9.9, 1.2.3.4, 10.2.2.2"}, "1.2.3.4"),
        ({"x_forwarded_for": "10.9.9.9, 10.2.2.2"}, "10.9.9.9"),
        ({"x_forwarded_for": "1.2.3.4:5678"}, "1.2.3.4"),
        ({"x_forwarded_for": "[2001:db8::1]:5678"}, "2001:db8::1"),
        ({"x_forwarded_for": "2001:db8::1"}, "2001:db8::1"),
        ({"x_forwarded_for": "::ffff:1.2.3.4"}, "1.2.3.4"),
        ({"x_forwarded_for": "1.2.3.4, unknown"}, PROXY),
        ({"x_forwarded_for": "1.2.3.4, 10.2.2"}, PROXY),
        ({"x_forwarded_for": "unknown, 1.2.3.4"}, "1.2.3.4"),
        ({"x_forwarded_for": "1.2.3.4" + ", 10.2.2.2" * 500}, PROXY),
        ({"forwarded": 'for="_secret", for=1.2.3.4;proto=https'}, "1.2.3.4"),
        ({"forwarded": 'For="[2001:db8:cafe::17]:4711";by=10.0.0.1'}, "2001:db8:cafe::17"),
        ({"forwarded": "for=[2001:db8::1]"}, "2001:db8::1"),
        ({"forwarded": ", for=1.2.3.4"}, "1.2.3.4"),
        ({"forwarded": "for=1.2.3.4;for=5.6.7.8"}, PROXY),
        ({"forwarded": "for=1.2.3.4;"}, PROXY),
        ({"forwarded": "proto=https"}, PROXY),
        ({"forwarded": 'for="1.2.3.4'}, PROXY),
        ({"forwarded": 'host="a,b;c", for="1.2.3.4"'}, "1.2.3.4"),
        ({"forwarded": "for=5.6.7.8", "x_forwarded_for": "1.2.3.4"}, PROXY),
        ({"forwarded": "nonsense", "x_forwarded_for": "1.2.3.4"}, PROXY),
    ],
)
def test_headers_of_a_trusted_proxy(headers, client):
    assert client_of(**headers)[0] == client


def test_several_headers_of_one_name_are_one_list():
    raw = [(b"x-forwarded-for", b"9.9.9.9"), (b"x-forwarded-for", b"1.2.3.4")]
    assert PROXIES.resolve({"client": (PROXY, 1), "headers": raw}, dict(raw))["client"] == ("1.2.3.4", 0)


@pytest.mark.parametrize(
    ("headers", "scheme"),
    [
        ({"x_forwarded_for": "1.2.3.4", "x_forwarded_proto": "https"}, "https"),
        ({"x_forwarded_for": "1.2.3.4", "x_forwarded_proto": "javascript"}, "http"),
        ({"forwarded": "for=1.2.3.4;proto=https, for=10.2.2.2;proto=http"}, "https"),
    ],
)
def test_the_scheme_is_the_clients(headers, scheme):
    assert resolve(PROXY, **headers)["scheme"] == scheme


def test_a_unix_socket_is_trusted_by_name_only():
    assert client_of(None, x_forwarded_for="1.2.3.4") == ("1.2.3.4", 0)
    assert not TrustedProxies(["0.0.0.0/0"]).trusts(None)


@pytest.mark.parametrize("name", ["proxy.example", "10.0.0.1/8", ""])
def test_a_name_that_is_no_network_is_refused(name):
    with pytest.raises(ConfigurationError, match="trusted_proxies takes addresses"):
        TrustedProxies([name])


async def test_clients_behind_a_proxy_have_accounts_of_their_own():
    app = HttpApp(DeltaServer("x").engine, trusted_proxies=[PROXY])
    accounts: list[str] = []
    app._mcp_place = app._mcp_place._replace(serve=lambda exchange: record(exchange, accounts))
    for client in ("1.2.3.4", "2001:db8:1:2:3::4", "2001:db8:1:2::5"):
        for peer in (PROXY, "10.0.0.2"):
            await AsgiExchange(app, "POST", {"x-forwarded-for": client}, b"", peer).task
    direct = "address 10.0.0.2"
    assert accounts == ["address 1.2.3.4", direct, *["address 2001:db8:1:2::/64", direct] * 2]


async def record(exchange: Any, accounts: list[str]) -> None:
    accounts.append(exchange.caller.account)


@pytest.mark.parametrize(("proxies", "open_connections"), [([], 2), (["127.0.0.1"], 8)])
async def test_the_connections_of_a_trusted_proxy_count_towards_the_whole_only(proxies, open_connections):
    engine = DeltaServer("x", limits=Limits(connections=8, account_share=0.25)).engine
    async with serve_uvicorn(make_server(engine, port=0, trusted_proxies=proxies)) as address:
        port = int(address.rpartition(":")[2])
        connections = [await asyncio.open_connection("127.0.0.1", port) for _ in range(10)]
        statuses = []
        for reader, writer in connections:
            writer.write(b"GET /nowhere HTTP/1.1\r\nhost: localhost\r\n\r\n")
            statuses.append((await reader.readline()).split()[1])
        for _, writer in connections:
            writer.close()
    assert statuses == [b"404"] * open_connections + [b"503"] * (10 - open_connections)
