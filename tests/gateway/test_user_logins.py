"""Logins of users at upstreams: each principal has its own; no token of the gateway's callers reaches an upstream."""

import asyncio
import contextlib
import functools
import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx2
import msgspec
import pytest

from deltamcp import DeltaClient, Elicited, connect
from deltamcp.auth.resource_server import ResourceServer
from deltamcp.client.oauth.token_storage import MemoryStorage
from deltamcp.errors import CallFailedError, ConfigurationError
from deltamcp.gateway.config import GatewayConfig, UpstreamConfig
from deltamcp.gateway.connections import START_PATH
from deltamcp.gateway.gateway import Gateway
from deltamcp.gateway.login_pages import LoginPages
from deltamcp.transports.http.server import make_server
from deltamcp.upstreams.user_login import BrowserLogin
from deltamcp.values import Principal
from tests.support.authorization_server import AuthorizationServer, authorization_server
from tests.support.browser import Browser
from tests.support.conditions import HANG_SECONDS
from tests.support.era_client import ERAS
from tests.support.fake_http import Fake, serve_fake
from tests.support.http_server import serve_uvicorn
from tests.support.login_issuer import LoginIssuer, serve_login_issuer
from tests.support.paths import ROOT
from tests.support.processes import free_port
from tests.support.protected_server import make_book_server
from tests.support.tcp_relay import TcpRelay, serve_relay

pytestmark = pytest.mark.interop

Ask = Callable[[dict[str, Any]], Any]


@pytest.fixture(scope="module")
def issuer(node_modules: Path) -> Any:
    with authorization_server(node_modules) as found:
        yield found


@dataclass
class ProtectedBooks:
    """A server that wants its users to log in, and all bytes that were sent to it."""

    url: str
    relay: TcpRelay


@pytest.fixture
async def books(issuer: AuthorizationServer) -> AsyncIterator[ProtectedBooks]:
    port = free_port()
    async with serve_relay(port) as relay:
        url = f"http://127.0.0.1:{relay.port}/mcp"
        auth = ResourceServer(url, issuer.issuer, scopes=["books:read"])
        async with serve_uvicorn(make_server(make_book_server().engine, port=port, auth=auth)):
            yield ProtectedBooks(url, relay)


def gateway_of(books: ProtectedBooks, folder: Path) -> Gateway:
    upstream = UpstreamConfig(name="books", entry={"url": books.url}, auth="oauth")
    config = GatewayConfig(upstreams=[upstream], disclosure="full", query=False)
    return Gateway(config, cache_folder=folder / "cache")


@contextlib.asynccontextmanager
async def served(gateway: Gateway, issuer: AuthorizationServer) -> AsyncIterator[str]:
    """The address of a gateway whose callers have tokens."""
    port = free_port()
    url = f"http://127.0.0.1:{port}/mcp"
    auth = ResourceServer(url, issuer.issuer, scopes=["books:read"])
    async with serve_uvicorn(make_server(gateway.server.engine, port=port, auth=auth)):
        yield url


def opens_as(user: str, opened: list[str] | None = None) -> Ask:
    """A user who opens what is asked for, in a browser where nobody is logged in yet."""

    async def open_page(question: dict[str, Any]) -> Elicited:
        assert question["mode"] == "url"
        if opened is not None:
            opened.append(question["url"])
        await Browser(user).visit(question["url"])
        return Elicited("accept")

    return open_page


@contextlib.asynccontextmanager
async def caller(url: str, token: str, ask: Ask | None, era: str = "modern") -> AsyncIterator[DeltaClient]:
    speak: Any = era
    options: dict[str, Any] = {} if ask is None else {"on_elicitation": ask}
    async with connect(url, token=token, speak=speak, cache_seconds=0, **options) as client:
        yield client


async def until_listed(client: DeltaClient, tool: str) -> None:
    async with asyncio.timeout(HANG_SECONDS):
        while tool not in {one.name for one in await client.tools()}:  # noqa: ASYNC110 - another process lists it
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("era", ERAS)
async def test_two_principals_use_their_own_logins_and_never_the_gateways_tokens(
    issuer: AuthorizationServer, books: ProtectedBooks, tmp_path: Path, era: str
) -> None:
    gateway = gateway_of(books, tmp_path)
    async with served(gateway, issuer) as url, contextlib.AsyncExitStack() as stack:
        tokens = {user: await issuer.access_token(url, user) for user in ("alice", "bob")}
        opened: list[str] = []
        clients = {
            user: await stack.enter_async_context(caller(url, token, opens_as(user, opened), era))
            for user, token in tokens.items()
        }
        assert [tool.name for tool in await clients["alice"].tools()] == ["log_in_books"]
        for user, client in clients.items():
            assert "whoami" not in {tool.name for tool in await client.tools()}, "another's login lists nothing"
            await client.call("log_in_books")
            await until_listed(client, "whoami")
            assert (await client.call("whoami"))[0] == user
        calls = [clients[user].call("whoami") for _ in range(10) for user in ("alice", "bob")]
        found = await asyncio.gather(*calls)
        assert [one[0] for one in found] == ["alice", "bob"] * 10
        assert len(opened) == len(set(opened)) == 2
    sent = bytes(books.relay.received)
    assert b"Bearer " in sent or b"bearer " in sent
    for token in tokens.values():
        assert token.encode() not in sent
        assert token.rpartition(".")[0].encode() not in sent


async def test_a_link_that_somebody_else_opens_logs_nobody_in(
    issuer: AuthorizationServer, books: ProtectedBooks, tmp_path: Path
) -> None:
    pages: list[str] = []

    async def send_to_alice(question: dict[str, Any]) -> Elicited:
        try:
            await Browser("alice").visit(question["url"])
        except AssertionError as refused:
            pages.append(str(refused))
        return Elicited("accept")

    gateway = gateway_of(books, tmp_path)
    async with served(gateway, issuer) as url:
        token = await issuer.access_token(url, "bob")
        async with caller(url, token, send_to_alice) as client:
            with pytest.raises(CallFailedError, match="login was ended"):
                await client.call("log_in_books")
    assert len(pages) == 1 and "You are not the user" in pages[0]


async def test_another_browser_can_neither_start_nor_end_a_login(
    issuer: AuthorizationServer, books: ProtectedBooks, tmp_path: Path
) -> None:
    statuses: list[int] = []

    async def try_without_cookies(question: dict[str, Any]) -> Elicited:
        async with httpx2.AsyncClient(trust_env=False, timeout=HANG_SECONDS) as first:
            page = await first.get(question["url"])
            assert "frame-ancestors 'none'" in page.headers["content-security-policy"]
            assert page.headers["set-cookie"].endswith("; Path=/upstream-login; HttpOnly; SameSite=Lax")
            started = await first.post(question["url"])
            location = httpx2.URL(started.headers["location"])
            back = location.params["redirect_uri"]
            async with httpx2.AsyncClient(trust_env=False, timeout=HANG_SECONDS) as second:
                statuses.append((await second.post(question["url"])).status_code)
                await second.get(question["url"])
                statuses.append((await second.post(question["url"])).status_code)
                ended = {"state": location.params["state"], "code": "x", "iss": issuer.issuer}
                statuses.append((await second.get(f"{back}?{httpx2.QueryParams(ended)}")).status_code)
                statuses.append((await second.get(f"{back}?state=other&code=x")).status_code)
            statuses.append((await first.get(f"{question['url']}x")).status_code)
            await Browser("alice", first.cookies).visit(question["url"])
        return Elicited("accept")

    async with served(gateway_of(books, tmp_path), issuer) as url:
        token = await issuer.access_token(url, "alice")
        async with caller(url, token, try_without_cookies) as client:
            await client.call("log_in_books")  # which the first browser ended
            await until_listed(client, "whoami")
            assert (await client.call("whoami"))[0] == "alice"
    assert statuses == [400, 403, 403, 404, 404]


async def test_a_server_with_logins_may_come_while_the_gateway_runs_and_logins_stay_when_others_come_and_go(
    issuer: AuthorizationServer, books: ProtectedBooks, tmp_path: Path
) -> None:
    config = gateway_of(books, tmp_path).config
    entry = {"command": sys.executable, "args": [str(ROOT / "tests" / "support" / "named_server.py"), "a", "1"]}
    other = UpstreamConfig(name="other", entry=entry, promise="never")
    gateway = Gateway(msgspec.structs.replace(config, upstreams=[other], prefix=False), cache_folder=tmp_path / "cache")
    async with served(gateway, issuer) as url:
        token = await issuer.access_token(url, "alice")
        async with caller(url, token, opens_as("alice")) as client:
            await until_listed(client, "who")
            await gateway.apply(msgspec.structs.replace(gateway.config, upstreams=[*config.upstreams, other]))
            await until_listed(client, "log_in_books")
            await client.call("log_in_books")
            await until_listed(client, "whoami")
            await gateway.apply(msgspec.structs.replace(gateway.config, upstreams=config.upstreams))
            assert (await client.call("whoami"))[0] == "alice"
            assert "who" not in {tool.name for tool in await client.tools()}


@pytest.mark.parametrize("public_url", ["https://gateway.example", "http://gateway.example"])
async def test_behind_https_the_cookie_of_a_login_is_secure(
    issuer: AuthorizationServer, books: ProtectedBooks, public_url: str
) -> None:
    pages = LoginPages(public_url)
    login = BrowserLogin(books.url, MemoryStorage(), pages.redirect_uri)
    app: Any = functools.partial(pages.serve, START_PATH)
    asked: Any = SimpleNamespace(principal=Principal("alice"))
    start = await pages.open(login, "books", asked)
    assert start.startswith(f"{public_url}{START_PATH}?id=")
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app)) as http:
        cookie = (await http.get(start)).headers["set-cookie"]
    assert cookie.endswith("; HttpOnly; SameSite=Lax" + "; Secure" * public_url.startswith("https"))
    login.cancel()


async def test_a_client_that_cannot_be_asked_is_told_where_to_log_in(
    issuer: AuthorizationServer, books: ProtectedBooks, tmp_path: Path
) -> None:
    async with served(gateway_of(books, tmp_path), issuer) as url:
        token = await issuer.access_token(url, "alice")
        async with caller(url, token, None) as client:
            with pytest.raises(CallFailedError, match=f"wants you to log in at {url[:-4]}/upstream-login"):
                await client.call("log_in_books")


async def test_logins_in_the_store_are_sealed(
    issuer: AuthorizationServer, books: ProtectedBooks, tmp_path: Path
) -> None:
    gateway = gateway_of(books, tmp_path)
    gateway.server.configure(store=f"sqlite:///{tmp_path}/store.db", state_key=b"k" * 32)
    async with served(gateway, issuer) as url:
        token = await issuer.access_token(url, "alice")
        async with caller(url, token, opens_as("alice")) as client:
            await client.call("log_in_books")
            await until_listed(client, "whoami")
            await client.call("whoami")
    stored = b"".join(path.read_bytes() for path in tmp_path.glob("store.db*"))
    assert stored
    for word in (b"access_token", b"refresh_token", b"eyJ"):
        assert word not in stored


# The local user


async def test_the_local_user_logs_in_by_a_page_and_is_then_known(
    issuer: AuthorizationServer, books: ProtectedBooks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    opened: list[str] = []
    async with connect(gateway_of(books, tmp_path).server, on_elicitation=opens_as("alice", opened)) as client:
        await client.call("log_in_books")
        await until_listed(client, "whoami")
        assert (await client.call("whoami"))[0] == "alice"
    assert len(opened) == 1 and opened[0].startswith(issuer.issuer)
    async with connect(gateway_of(books, tmp_path).server) as client:
        assert (await client.call("whoami"))[0] == "alice"


async def test_the_question_and_the_page_name_the_scopes(
    issuer: AuthorizationServer, books: ProtectedBooks, tmp_path: Path
) -> None:
    questions: list[dict[str, Any]] = []

    async def decline(question: dict[str, Any]) -> Elicited:
        questions.append(question)
        return Elicited("decline")

    async with served(gateway_of(books, tmp_path), issuer) as url:
        async with caller(url, await issuer.access_token(url), decline) as client:
            with pytest.raises(CallFailedError):
                await client.call("log_in_books")
            async with httpx2.AsyncClient(trust_env=False, timeout=HANG_SECONDS) as browser:
                page = await browser.get(questions[0]["url"])
    named = "It asks for the scopes books:read, offline_access."
    assert questions[0]["message"] == f"Log in at books to use its tools. {named}"
    assert named in page.text


async def test_a_resource_above_an_upstream_is_one_that_the_configuration_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    async with serve_login_issuer() as issuer, serve_fake(Fake()) as fake:
        above = fake.url.removesuffix("/mcp")
        issuer.protect(fake, resource=above)
        fake.always("GET", describe_itself(issuer, fake, above))
        opened: list[str] = []
        for resource, can_log_in in ((None, False), (above, True)):
            upstream = UpstreamConfig(name="books", entry={"url": fake.url}, auth="oauth", resource=resource)
            gateway = Gateway(GatewayConfig(upstreams=[upstream], disclosure="full"), cache_folder=tmp_path / "cache")
            async with connect(gateway.server, on_elicitation=opens_as("alice", opened)) as client:
                if can_log_in:
                    await client.call("log_in_books")
                else:
                    with pytest.raises(CallFailedError, match="name that address as the resource"):
                        await client.call("log_in_books")
            assert len(opened) == can_log_in
        assert [form["resource"] for form in issuer.grants("authorization_code")] == [above]


def describe_itself(issuer: LoginIssuer, fake: Fake, resource: str) -> Any:
    async def answer(asked: Any, wire: Any) -> None:
        if asked.path.startswith("/.well-known/oauth-protected-resource"):
            await wire.json({"resource": resource, "authorization_servers": [issuer.url]})
        else:
            await fake.answer(asked, wire)

    return answer


@pytest.mark.parametrize(
    "options",
    [{"auth": "oauth", "resource": "https://other.example"}, {"resource": "https://books.example"}],
)
def test_a_resource_that_is_not_above_the_server_or_has_no_login_is_told(
    options: dict[str, Any], tmp_path: Path
) -> None:
    upstream = UpstreamConfig(name="books", entry={"url": "https://books.example/mcp"}, **options)
    with pytest.raises(ConfigurationError, match="resource"):
        Gateway(GatewayConfig(upstreams=[upstream]), cache_folder=tmp_path)


async def test_the_local_user_whose_client_cannot_ask_reads_what_to_run(
    issuer: AuthorizationServer, books: ProtectedBooks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    async with connect(gateway_of(books, tmp_path).server) as client:
        with pytest.raises(CallFailedError, match=f"delta-mcp login {books.url}"):
            await client.call("log_in_books")
