"""Addresses that a server names: where the client goes, and what it takes from there."""

import asyncio

import pytest

from deltamcp.client.oauth import json_http
from deltamcp.client.oauth.json_http import JsonHttp, JsonReply, unsafe_reason
from deltamcp.errors import UnauthorizedError
from tests.support.login_issuer import IssuerRequest, LoginIssuer, as_json, serve_login_issuer

PUBLIC, LOCAL = "https://mcp.example/mcp", "http://127.0.0.1:8000/mcp"


@pytest.mark.parametrize(
    "url", ["https://as.example/x", "https://as.example:8443/", "https://8.8.8.8/", "HTTPS://a.b/"]
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
        "169.254.169.254",
        "2852039166",
        "0xa9fea9fe",
        "10.1",
        "0.0.0.0",
        "[fe80::1]",
        "[fc00::1]",
        "[::ffff:10.0.0.1]",
        "100.64.0.1",
    ],
)
def test_private_addresses_are_for_servers_at_private_addresses(host):
    assert unsafe_reason(f"https://{host}/", PUBLIC) is not None
    assert unsafe_reason(f"https://{host}/", "https://10.1.2.3/mcp") is None


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
