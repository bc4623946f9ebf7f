"""The official SDK's client, a published authorization server and our server: log in, call, refresh, ask for more."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.authorization_server import (
    CLIENT_DOCUMENT,
    CLIENT_DOCUMENTS,
    AuthorizationServer,
    authorization_server,
)
from tests.support.protected_server import protected_server
from tests.support.sdk_login import SdkLogin

pytestmark = pytest.mark.interop

MODES = ["legacy", "2026-07-28"]


@pytest.fixture(scope="module")
def issuer(node_modules: Path) -> Iterator[AuthorizationServer]:
    with authorization_server(node_modules, documents=CLIENT_DOCUMENTS) as found:
        yield found


def text_of(result: Any) -> str:
    [block] = result.content
    assert not result.is_error, block
    return str(block.text)


@pytest.mark.parametrize("mode", MODES)
async def test_the_sdks_client_registers_logs_in_and_calls(issuer, mode):
    login = SdkLogin()
    async with protected_server(issuer.issuer) as url, login.connect(url, mode) as client:
        seen = json.loads(text_of(await client.call_tool("whoami")))
    assert seen == ["alice", issuer.issuer, "books:read"]
    assert len(login.visits) == 1
    assert [(path, status) for _, path, status in login.exchanges][:6] == [
        ("/mcp", 401),
        ("/.well-known/oauth-protected-resource/mcp", 200),
        ("/.well-known/oauth-authorization-server", 200),
        ("/reg", 201),
        ("/token", 200),
        ("/mcp", 200),
    ]


@pytest.mark.parametrize("mode", MODES)
async def test_the_sdks_client_is_known_by_its_metadata_document(issuer, mode):
    login = SdkLogin()
    async with protected_server(issuer.issuer) as url, login.connect(url, mode, CLIENT_DOCUMENT) as client:
        seen = json.loads(text_of(await client.call_tool("whoami")))
    assert seen[0] == "alice"
    assert "/reg" not in [path for _, path, _ in login.exchanges]


@pytest.mark.parametrize("mode", MODES)
async def test_the_sdks_client_asks_for_more_where_a_tool_needs_it(issuer, mode):
    """By its document: the SDK registers with the scopes of its first request, and may then ask for no others."""
    login = SdkLogin()
    async with protected_server(issuer.issuer) as url, login.connect(url, mode, CLIENT_DOCUMENT) as client:
        await client.call_tool("whoami")
        told = text_of(await client.call_tool("lend", {"id": 3}))
        seen = json.loads(text_of(await client.call_tool("whoami")))
    assert told == "Volume 3 is lent by alice."
    assert seen[2:] == ["books:lend", "books:read"]
    assert len(login.visits) == 2
    assert ("POST", "/mcp", 403) in login.exchanges


@pytest.mark.parametrize("mode", MODES)
async def test_the_sdks_client_refreshes_its_token_without_the_user(issuer, mode):
    login = SdkLogin()
    async with protected_server(issuer.issuer) as url, login.connect(url, mode) as client:
        await client.call_tool("whoami")
        first = login.tokens
        assert first is not None and login.provider is not None
        login.provider.context.token_expiry_time = 1.0
        seen = json.loads(text_of(await client.call_tool("whoami")))
    assert seen == ["alice", issuer.issuer, "books:read"]
    assert login.tokens is not None and login.tokens.access_token != first.access_token
    assert len(login.visits) == 1
