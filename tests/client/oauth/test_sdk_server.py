"""A server of the official SDK that is its own authorization server: log in, call, refresh, log out."""

import asyncio
import urllib.request

import pytest

from deltamcp import OAuth, connect
from deltamcp.client.negotiation import ProtocolChoice
from deltamcp.client.oauth.oauth import LoginPage
from deltamcp.client.oauth.server_access import ServerAccess
from deltamcp.client.oauth.token_storage import UserStorage
from tests.support.sdk_issuer import serve_sdk_issuer


async def browse(page: LoginPage) -> None:
    def follow() -> None:
        with urllib.request.urlopen(page.url, timeout=60) as answer:
            answer.read()

    await asyncio.to_thread(follow)


@pytest.mark.parametrize("speak", ["modern", "handshake"])
async def test_the_sdks_server_gives_renews_and_ends_tokens(tmp_path, speak: ProtocolChoice):
    auth = OAuth(open_page=browse, storage=UserStorage(tmp_path, uses_keyring=False))
    async with serve_sdk_issuer() as (url, issuer):
        async with connect(url, auth=auth, speak=speak) as client:
            assert await client.call("add", a=2, b=3) == {"result": 5}
            first = set(issuer.refresh)
            issuer.access.clear()
            assert await client.call("add", a=2, b=3) == {"result": 5}
        async with connect(url, auth=auth, speak=speak) as client:
            assert await client.call("add", a=2, b=3) == {"result": 5}
        assert issuer.logins == 1 and len(issuer.clients) == 1
        assert first.isdisjoint(issuer.refresh) and {token.resource for token in issuer.access.values()} == {url}
        assert (await ServerAccess(auth, url).forget()) == (True, "")
        assert issuer.refresh == {}
