"""Addresses that a server names: where the client goes, and what it takes from there."""

import asyncio
import socket
from typing import Any

import pytest

from deltamcp.client.oauth import json_http
from deltamcp.client.oauth.json_http import JsonHttp, JsonReply, unsafe_reason
from deltamcp.errors import UnauthorizedError
from tests.support.login_issuer import IssuerRequest, LoginIssuer, as_json, serve_login_issuer

PUBLIC, LOCAL = "https://mcp.example/mcp", "http://127.0.0.1:8000/mcp"


@pytest.mark.parametrize(
    "url",
    [
        "https://as.example/x",
        "https://as.example:8443/",
        "https://8.8.8.8/",
        "HTTPS://a.b/",
        "https://[64:ff9b::808:808]/",
    ],
)
@pytest.mark.parametrize("server", [PUBLIC, LOCAL])
def test_https_is_safe_for_every_server(url, server):
    assert unsafe_reason(url, server) is None


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1/",
        "http://localhost:9000/x",
        "https://localhost/x",
        "http://[::1]:80/",
        "http://app.localhost/",
        "http://127.9.9.9/",
        "http://[::ffff:127.0.0.1]/",
        "http://localhost./",
        "http://127.1/",
        "http://2130706433/",
        "http://0x7f000001/",
    ],
)
def test_this_machine_is_safe_for_a_server_on_it_only(url):
    assert unsafe_reason(url, LOCAL) is None
    assert unsafe_reason(url, PUBLIC) is not None


@pytest.mark.parametrize(
    "url",
    [
        "javascript:alert(1)",
        "data:text/html,x",
        "file:///etc/passwd",
        "ftp://as.example/",
        "//as.example/x",
        "as.example",
        "",
        "https://",
        "https:///x",
        "http://as.example/x",
        "http://169.254.169.254/latest/meta-data/",
        "https://user:secret@as.example/",
        "https://127.0.0.1@as.example/",
        "https://as.example/\r\nx: y",
        "https://as.example/ x",
        "https://as.example/\u202e",
        "https://ärger.example/",
        "https://as.example:99999/",
        "http://0.0.0.0/",
        "http://0/",
        "http://[::]/",
        "http://127.0.0.1.as.example/",
        "https://[::1",
        "https://as.example/" + "x" * 3000,
        "https://as.example\\@evil.example/",
        "https://as.example\\.evil.example/",
        "https://as.example%2eevil.example/",
        "https://as%00.example/",
        "https://@as.example/",
        "https://as..example/",
        "https://.example/",
        "https://as.example../",
        "https://[fe80::1%25eth0]/",
        "https://[2606:4700::1%25eth0]/",
        "https://" + "a" * 64 + ".example/",
        "https://169.254.169.254/",
        "https://2852039166/",
        "https://0xa9fea9fe/",
        "https://0251.0376.0251.0376/",
        "https://0.0.0.0/",
        "https://0.1.2.3/",
        "https://[::]/",
        "https://[fe80::1]/",
        "https://224.0.0.1/",
        "https://255.255.255.255/",
        "https://[::7f00:1]/",
        "https://[::a00:1]/",
        "https://[64:ff9b::7f00:1]/",
        "https://[64:ff9b::a9fe:a9fe]/",
        "https://[64:ff9b:1::a00:1]/",
        "https://[2002:7f00:1::]/",
        "https://[2002:a00:1::]/",
        "https://[2001:0:4136:e378:8000:63bf:80ff:fffe]/",
    ],
)
@pytest.mark.parametrize("server", [PUBLIC, LOCAL])
def test_everything_else_is_refused(url, server):
    assert unsafe_reason(url, server) is not None


@pytest.mark.parametrize(
    "host",
    [
        "10.0.0.1",
        "192.168.1.1",
        "10.1",
        "[fc00::1]",
        "[::ffff:10.0.0.1]",
        "100.64.0.1",
    ],
)
def test_private_addresses_are_for_servers_at_private_addresses(host):
    assert unsafe_reason(f"https://{host}/", PUBLIC) is not None
    assert unsafe_reason(f"https://{host}/", "https://10.1.2.3/mcp") is None


class Names:
    """A resolver that knows some names; each further answer for a name is the next of its list."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **addresses: list[str]) -> None:
        self.asked: list[str] = []
        self._addresses = {name.replace("_", "."): found for name, found in addresses.items()}
        self._getaddrinfo = socket.getaddrinfo
        monkeypatch.setattr(socket, "getaddrinfo", self.resolve)
        self.connected: list[str] = []
        create = asyncio.BaseEventLoop.create_connection

        async def create_connection(loop: Any, protocol: Any, host: str, port: int, **options: Any) -> Any:
            self.connected.append(host)
            if host != "127.0.0.1":
                raise ConnectionRefusedError
            return await create(loop, protocol, host, port, **options)

        monkeypatch.setattr(asyncio.BaseEventLoop, "create_connection", create_connection)

    def resolve(self, host: str, *rest: Any, **options: Any) -> Any:
        self.asked.append(host)
        known = self._addresses.get(host)
        if known is None:
            return self._getaddrinfo(host, *rest, **options)
        found = known.pop(0) if len(known) > 1 else known[0]
        return [entry for one in found.split() for entry in self._getaddrinfo(one, *rest, **options)]


@pytest.mark.parametrize(
    "address",
    ["127.0.0.1", "::1", "10.0.0.1", "169.254.169.254", "0.0.0.0", "::ffff:127.0.0.1", "64:ff9b::7f00:1", "fc00::1"],
)
async def test_a_name_of_a_public_server_leads_to_public_addresses_only(monkeypatch, address):
    for found in (address, f"8.8.8.8 {address}"):
        names = Names(monkeypatch, as_example=[found], mcp_example=["9.9.9.9"])
        with pytest.raises(UnauthorizedError, match="may not name"):
            await JsonHttp(PUBLIC).get("https://as.example/x")
        assert names.connected == []


async def test_the_address_that_was_checked_is_connected_to_whatever_the_name_stands_for_later(monkeypatch):
    names = Names(monkeypatch, as_example=["8.8.8.8 8.8.4.4", "127.0.0.1"])
    with pytest.raises(UnauthorizedError, match="cannot be reached"):
        await JsonHttp(PUBLIC).get("https://as.example/x")
    assert (names.asked, names.connected) == (["as.example"], ["8.8.8.8", "8.8.4.4"])


async def test_a_private_network_has_its_own_authorization_servers(monkeypatch):
    for server, refused in (("10.0.0.2", False), ("9.9.9.9", True)):
        names = Names(monkeypatch, as_example=["10.0.0.1"], mcp_example=[server])
        with pytest.raises(UnauthorizedError, match="may not name" if refused else "cannot be reached"):
            await JsonHttp(PUBLIC).get("https://as.example/x")
        assert names.connected == ([] if refused else ["10.0.0.1"])


async def test_the_host_of_the_server_itself_may_be_anywhere(monkeypatch):
    names = Names(monkeypatch, mcp_example=["127.0.1.1"])
    with pytest.raises(UnauthorizedError, match="cannot be reached"):
        await JsonHttp(PUBLIC).get("https://mcp.example/x")
    assert names.connected == ["127.0.1.1"]


async def test_what_is_not_encrypted_stays_on_this_machine(monkeypatch):
    names = Names(monkeypatch, app_localhost=["8.8.8.8"])
    with pytest.raises(UnauthorizedError, match="may not name"):
        await JsonHttp(LOCAL).get("http://app.localhost/x")
    assert names.connected == []


async def test_a_server_on_this_machine_may_name_others_on_it(monkeypatch):
    async with serve_login_issuer() as issuer:
        names = Names(monkeypatch, app_localhost=["127.0.0.1"])
        _route(issuer, "/x", 200, {}, b'{"a":1}')
        url = issuer.url.replace("127.0.0.1", "app.localhost")
        assert await JsonHttp("http://localhost:1/mcp").get(f"{url}/x") == JsonReply(200, {"a": 1})
        assert names.connected == ["127.0.0.1"]


async def _fetch(issuer: LoginIssuer, path: str = "/x") -> JsonReply:
    return await JsonHttp(issuer.url).get(f"{issuer.url}{path}")


def _route(issuer: LoginIssuer, path: str, status: int, headers: dict[str, str], body: bytes) -> None:
    async def answer(asked: IssuerRequest) -> tuple[int, dict[str, str], bytes]:
        return status, headers, body

    issuer.routes[path] = answer


@pytest.mark.parametrize("body", [b"", b"{", b"[1]", b"3", b"<html>", b"\xff", b"[" * 100_000])
async def test_a_body_that_is_no_object_counts_as_empty(body):
    async with serve_login_issuer() as issuer:
        _route(issuer, "/x", 200, {}, body)
        assert await _fetch(issuer) == JsonReply(200, {})


async def test_a_huge_document_is_not_read():
    async with serve_login_issuer() as issuer:
        _route(issuer, "/x", 200, {}, b'{"a":"' + b"x" * 5_000_000 + b'"}')
        with pytest.raises(UnauthorizedError, match="larger than"):
            await _fetch(issuer)


async def test_a_slow_server_is_given_up(monkeypatch):
    monkeypatch.setattr(json_http, "_SECONDS", 0.2)

    async def sleep(asked: IssuerRequest) -> tuple[int, dict[str, str], bytes]:
        await asyncio.sleep(600)
        return as_json({})

    async with serve_login_issuer() as issuer:
        issuer.routes["/x"] = sleep
        with pytest.raises(UnauthorizedError, match="did not answer"):
            await _fetch(issuer)


async def test_redirects_are_followed_within_the_origin_and_not_for_ever():
    async with serve_login_issuer() as issuer:
        _route(issuer, "/x", 302, {"location": "/y"}, b"")
        _route(issuer, "/y", 200, {}, b'{"a":1}')
        assert await _fetch(issuer) == JsonReply(200, {"a": 1})
        _route(issuer, "/y", 302, {"location": "/x"}, b"")
        with pytest.raises(UnauthorizedError, match="redirects"):
            await _fetch(issuer)


@pytest.mark.parametrize(
    "other", ["https://evil.example/y", "//evil.example/y", "javascript:alert(1)", "file:///y", "//[", "//x:y/", ""]
)
async def test_a_redirect_to_another_origin_is_not_followed(other):
    async with serve_login_issuer() as issuer:
        _route(issuer, "/x", 302, {"location": other}, b'{"a":1}')
        assert (await _fetch(issuer)).status == 302


async def test_a_redirect_to_another_port_of_this_machine_is_not_followed():
    async with serve_login_issuer() as issuer, serve_login_issuer() as another:
        _route(issuer, "/x", 307, {"location": f"{another.url}/y"}, b"")
        assert (await _fetch(issuer)).status == 307
        assert another.asked == []


async def test_what_is_posted_goes_to_no_redirect():
    async with serve_login_issuer() as issuer:
        _route(issuer, "/x", 307, {"location": "/y"}, b"")
        reply = await JsonHttp(issuer.url).post_form(f"{issuer.url}/x", {"code": "s3cret"}, {})
        assert reply.status == 307
        assert [asked.path for asked in issuer.asked] == ["/x"]


async def test_an_unsafe_address_is_told_without_its_control_characters():
    with pytest.raises(UnauthorizedError) as caught:
        await JsonHttp(PUBLIC).get("http://as.example/\x1b[31m\u202e")
    assert str(caught.value).isprintable()


async def test_nobody_listens():
    with pytest.raises(UnauthorizedError, match="cannot be reached"):
        await JsonHttp(LOCAL).get("http://127.0.0.1:1/")
