"""Our client and server with an authorization server that nobody here wrote: each way to log in, and what follows."""

import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import pytest

from tests.support.authorization_server import (
    CLIENT_DOCUMENT,
    CLIENT_DOCUMENTS,
    AuthorizationServer,
    authorization_server,
)
from tests.support.client_login import ClientLogin
from tests.support.protected_server import protected_server

pytestmark = pytest.mark.interop


@pytest.fixture(scope="module")
def issuer(node_modules: Path) -> Iterator[AuthorizationServer]:
    with authorization_server(node_modules, documents=CLIENT_DOCUMENTS) as found:
        yield found


async def test_our_client_registers_logs_in_and_calls(issuer, era):
    login = ClientLogin()
    async with protected_server(issuer.issuer) as url, login.connect(url, era) as client:
        assert await client.call("whoami") == ["alice", issuer.issuer, "books:read"]
    assert len(login.pages) == 1


async def test_our_client_is_known_by_its_metadata_document(issuer, era):
    login = ClientLogin()
    async with protected_server(issuer.issuer) as url:
        async with login.connect(url, era, client_metadata_url=CLIENT_DOCUMENT) as client:
            assert (await client.call("whoami"))[0] == "alice"
    assert CLIENT_DOCUMENT in unquote(login.pages[0].url)


async def test_our_client_is_one_that_was_registered_before(issuer, era):
    login = ClientLogin()
    async with protected_server(issuer.issuer) as url:
        async with login.connect(url, era, client_id="reader") as client:
            assert (await client.call("whoami"))[0] == "alice"
    assert "client_id=reader" in login.pages[0].url


async def test_our_client_logs_in_on_another_device(issuer, era):
    login = ClientLogin("bob")
    async with protected_server(issuer.issuer) as url:
        async with login.connect(url, era, grant="device_code") as client:
            assert (await client.call("whoami"))[0] == "bob"
    assert login.pages[0].user_code is not None


async def test_our_client_asks_for_more_where_a_tool_needs_it(issuer, era):
    login = ClientLogin()
    async with protected_server(issuer.issuer) as url, login.connect(url, era) as client:
        await client.call("whoami")
        assert await client.call("lend", id=3) == "Volume 3 is lent by alice."
        assert (await client.call("whoami"))[2:] == ["books:lend", "books:read"]
    assert len(login.pages) == 2


async def test_our_client_remembers_a_login(issuer, era):
    login = ClientLogin()
    async with protected_server(issuer.issuer) as url:
        for _ in range(2):
            async with login.connect(url, era) as client:
                assert (await client.call("whoami"))[0] == "alice"
    assert len(login.pages) == 1


async def test_our_client_refreshes_a_token_that_has_ended_without_the_user(issuer, era, monkeypatch):
    """The first token has expired by the clock of the server, which goes right again when the client has another."""
    login = ClientLogin()
    async with protected_server(issuer.issuer) as url, login.connect(url, era) as client:
        await client.call("whoami")
        first, now = login.access_token(url), time.time
        monkeypatch.setattr(time, "time", lambda: now() + (1000 if login.access_token(url) == first else 0))
        assert (await client.call("whoami"))[0] == "alice"
        assert login.access_token(url) != first
    assert len(login.pages) == 1
