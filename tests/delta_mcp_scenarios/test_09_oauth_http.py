"""CS-09: OAuth over HTTP, from the refusal to the token."""

from collections.abc import AsyncIterator
from typing import NamedTuple

import httpx2
import pytest

from deltamcp import ConfigurationError, ResourceServer
from tests.support.compat_client import PRM_PATH, CompatClient, compat_client
from tests.support.fake_issuer import FakeIssuer, serve_issuer
from tests.support.six_tool_server import six_tool_server

RESOURCE = "https://tools.example"


class Guarded(NamedTuple):
    client: CompatClient
    issuer: FakeIssuer

    async def initialize(self, token: str | None) -> httpx2.Response:
        headers = {"mcp-protocol-version": "", **({} if token is None else {"authorization": f"Bearer {token}"})}
        return await self.client.request("initialize", headers=headers)


@pytest.fixture
async def guarded() -> AsyncIterator[Guarded]:
    async with serve_issuer() as issuer:
        async with compat_client(six_tool_server(), auth=ResourceServer(RESOURCE, issuer.url)) as client:
            yield Guarded(client, issuer)


def test_cs_09_00_a_server_that_could_not_verify_tokens_is_not_made() -> None:
    with pytest.raises(ConfigurationError, match="way to verify tokens"):
        ResourceServer(RESOURCE)


async def test_cs_09_01_without_a_token_the_answer_says_where_to_look(guarded: Guarded) -> None:
    answer = await guarded.initialize(None)
    assert answer.status_code == 401
    expected = f'Bearer realm="delta-mcp", resource_metadata="{RESOURCE}{PRM_PATH}"'
    assert answer.headers["www-authenticate"] == expected


async def test_cs_09_02_there_is_the_document(guarded: Guarded) -> None:
    answer = await guarded.client.http.get(PRM_PATH)
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/json")
    document = answer.json()
    assert document["resource"] == RESOURCE
    assert document["authorization_servers"] == [guarded.issuer.url]
    assert document["bearer_methods_supported"] == ["header"]


async def test_cs_09_03_a_good_token_is_accepted(guarded: Guarded) -> None:
    answer = await guarded.initialize(guarded.issuer.token(aud=RESOURCE))
    assert answer.status_code == 200
    assert answer.json()["result"]["serverInfo"]["name"] == "six-tools"


async def test_cs_09_04_a_token_for_another_resource_is_refused(guarded: Guarded) -> None:
    answer = await guarded.initialize(guarded.issuer.token(aud="https://other.example"))
    assert answer.status_code == 401
    assert 'error="invalid_token"' in answer.headers["www-authenticate"]


async def test_cs_09_05_an_expired_token_is_refused_with_the_reason(guarded: Guarded) -> None:
    answer = await guarded.initialize(guarded.issuer.token(aud=RESOURCE, exp=1))
    assert answer.status_code == 401
    assert 'error="invalid_token", error_description="expired"' in answer.headers["www-authenticate"]


async def test_cs_09_08_every_web_page_may_read_the_document(guarded: Guarded) -> None:
    answer = await guarded.client.http.get(PRM_PATH, headers={"origin": "https://web.example"})
    assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (200, "*")
