"""Opaque tokens of a published authorization server, which is asked about each: admitted, cached, revoked, refused."""

import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import pytest

from deltamcp.auth.introspection import Introspection
from tests.support.authorization_server import SECRET, AuthorizationServer, authorization_server
from tests.support.conditions import HANG_SECONDS
from tests.support.processes import DISCOVER, DISCOVER_HEADERS
from tests.support.protected_server import protected_server
from tests.support.sdk_login import SdkLogin

pytestmark = pytest.mark.interop

CACHE_SECONDS = 30.0


@pytest.fixture(scope="module")
def issuer(node_modules: Path) -> Iterator[AuthorizationServer]:
    with authorization_server(node_modules, format="opaque") as found:
        yield found


@asynccontextmanager
async def asking_server(issuer: AuthorizationServer, secret: str = SECRET) -> AsyncIterator[str]:
    """The address of a server that asks the authorization server about tokens."""
    asks = Introspection(
        url=issuer.metadata["introspection_endpoint"],
        client_id="resource-server",
        client_secret=secret,
        cache_seconds=CACHE_SECONDS,
    )
    async with protected_server(issuer.issuer, introspection=asks) as url:
        yield url


async def reason_of_refusal(url: str, token: str) -> str | None:
    """None if the token is admitted."""
    async with httpx2.AsyncClient(trust_env=False, timeout=HANG_SECONDS) as http:
        answer = await http.post(url, json=DISCOVER, headers={**DISCOVER_HEADERS, "authorization": f"Bearer {token}"})
    return None if answer.status_code == 200 else str(answer.json()["error"]["data"]["reason"])


async def test_a_token_is_admitted_until_it_is_revoked_and_the_cache_has_ended(issuer, monkeypatch):
    async with asking_server(issuer) as url:
        token = await issuer.access_token(url)
        assert "." not in token
        assert await reason_of_refusal(url, token) is None
        await issuer.revoke(token)
        now = time.time
        monkeypatch.setattr(time, "time", lambda: now() + CACHE_SECONDS)
        assert await reason_of_refusal(url, token) == "inactive"


async def test_a_token_that_is_revoked_before_its_first_use_is_refused_at_once(issuer):
    async with asking_server(issuer) as url:
        token = await issuer.access_token(url)
        await issuer.revoke(token)
        assert await reason_of_refusal(url, token) == "inactive"


async def test_tokens_for_others_and_what_is_no_token_are_refused(issuer):
    async with asking_server(issuer) as url, asking_server(issuer) as another:
        issued = await issuer.tokens(another)
        assert await reason_of_refusal(url, issued["access_token"]) == "wrong_audience"
        assert await reason_of_refusal(url, "invented") == "inactive"
        mine = await issuer.tokens(url)
        assert await reason_of_refusal(url, mine["refresh_token"]) is not None


async def test_nobody_is_admitted_where_the_authorization_server_does_not_know_the_server_that_asks(issuer):
    async with asking_server(issuer, "another secret, which is as long as the other") as url:
        token = await issuer.access_token(url)
        async with httpx2.AsyncClient(trust_env=False, timeout=HANG_SECONDS) as http:
            headers = {**DISCOVER_HEADERS, "authorization": f"Bearer {token}"}
            answer = await http.post(url, json=DISCOVER, headers=headers)
    assert answer.status_code == 503 and answer.headers["retry-after"]


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
async def test_the_sdks_client_logs_in_anew_when_its_token_was_revoked(issuer, mode, monkeypatch):
    login = SdkLogin()
    async with asking_server(issuer) as url, login.connect(url, mode) as client:
        await client.call_tool("whoami")
        assert login.tokens is not None and login.client_info is not None
        async with httpx2.AsyncClient(trust_env=False, timeout=HANG_SECONDS) as http:
            form = {"client_id": login.client_info.client_id or "", "token": login.tokens.access_token}
            secret = login.client_info.client_secret
            revoked = await http.post(
                issuer.metadata["revocation_endpoint"], data={**form, **({"client_secret": secret} if secret else {})}
            )
            assert revoked.status_code == 200, revoked.text
        now = time.time
        monkeypatch.setattr(time, "time", lambda: now() + CACHE_SECONDS)
        assert not (await client.call_tool("whoami")).is_error
    assert len(login.visits) == 2
