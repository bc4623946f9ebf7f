"""CS-06: tokens, the document about the resource, and challenges.

The original calls its functions with tokens that nobody signed. Here tokens are signed, because a signature is always
verified, and a challenge over HTTP says why one is refused.
"""

import json
import re
from collections.abc import AsyncIterator
from typing import Any

import pytest

from deltamcp import Context, DeltaServer, Introspection, ResourceServer
from deltamcp.auth.authenticator import Authenticator
from tests.support.compat_client import PRM_PATH, compat_client
from tests.support.fake_issuer import FakeIssuer, base64url, ec_key, serve_issuer, sign

RESOURCE = "https://tools.example"
CHALLENGE = f'Bearer realm="delta-mcp", resource_metadata="{RESOURCE}{PRM_PATH}"'


@pytest.fixture
async def issuer() -> AsyncIterator[FakeIssuer]:
    async with serve_issuer() as issuer:
        yield issuer


def by_introspection(issuer: FakeIssuer) -> ResourceServer:
    asked = Introspection(url=f"{issuer.url}/introspect", client_id="tools", client_secret="word")
    return ResourceServer(RESOURCE, issuer.url, introspection=asked)


async def ask_who(auth: Authenticator, token: str | None) -> Any:
    """What a tool learns of its caller; or the challenge, if the request is refused."""
    server = DeltaServer("x")

    @server.tool
    async def who(ctx: Context) -> Any:
        return {"subject": ctx.principal.id, "scopes": sorted(ctx.principal.scopes)}

    async with compat_client(server, auth=auth) as client:
        headers = {} if token is None else {"authorization": f"Bearer {token}"}
        answer = await client.request("tools/call", {"name": "who"}, headers)
    if answer.status_code == 401:
        assert answer.content == b""
        return answer.headers["www-authenticate"]
    return json.loads(answer.json()["result"]["content"][0]["text"])


async def refusal_reason(auth: Authenticator, token: str) -> str:
    challenge = await ask_who(auth, token)
    found = re.fullmatch(re.escape(CHALLENGE) + ', error="invalid_token", error_description="(.*)"', challenge)
    assert found, challenge
    return found[1]


def test_cs_06_01_the_document_names_the_resource_and_who_issues_tokens() -> None:
    document = json.loads(ResourceServer(RESOURCE, "https://issuer.example").documents[PRM_PATH])
    assert document["resource"] == RESOURCE
    assert document["authorization_servers"] == ["https://issuer.example"]
    assert document["bearer_methods_supported"] == ["header"]


async def test_cs_06_03_a_challenge_names_the_realm_and_the_document(issuer: FakeIssuer) -> None:
    assert await ask_who(ResourceServer(RESOURCE, issuer.url), None) == CHALLENGE


async def test_cs_06_04_a_challenge_has_the_error_and_its_reason(issuer: FakeIssuer) -> None:
    challenge = await ask_who(ResourceServer(RESOURCE, issuer.url), issuer.token(aud=RESOURCE, exp=1))
    assert challenge == f'{CHALLENGE}, error="invalid_token", error_description="expired"'


async def test_cs_06_05_a_token_of_five_parts_is_no_token(issuer: FakeIssuer) -> None:
    assert await refusal_reason(ResourceServer(RESOURCE, issuer.url), "not.a.jwt.at.all") == "invalid_signature"


async def test_cs_06_06_an_expired_token_is_refused(issuer: FakeIssuer) -> None:
    token = issuer.token(aud=RESOURCE, exp=issuer.claims()["iat"] - 3600)
    assert await refusal_reason(ResourceServer(RESOURCE, issuer.url), token) == "expired"


async def test_cs_06_07_a_token_for_another_resource_is_refused(issuer: FakeIssuer) -> None:
    token = issuer.token(aud="https://other.example")
    assert await refusal_reason(ResourceServer(RESOURCE, issuer.url), token) == "invalid_audience"


async def test_cs_06_09_the_resource_may_be_one_of_several_audiences(issuer: FakeIssuer) -> None:
    token = issuer.token(aud=[RESOURCE, "https://other.example"], scope="tools:read tools:call", sub="user42")
    found = await ask_who(ResourceServer(RESOURCE, issuer.url), token)
    assert found == {"subject": "user42", "scopes": ["tools:call", "tools:read"]}


async def test_cs_06_10_the_signature_is_verified(issuer: FakeIssuer) -> None:
    forged = sign({"alg": "ES256", "kid": "k1"}, issuer.claims(aud=RESOURCE), ec_key(9), "ES256")
    assert await refusal_reason(ResourceServer(RESOURCE, issuer.url), forged) == "invalid_signature"
    assert issuer.asked["/jwks"] == 1


async def test_cs_06_11_a_token_without_an_expiry_is_refused(issuer: FakeIssuer) -> None:
    token = issuer.token(aud=RESOURCE, exp=...)
    assert await refusal_reason(ResourceServer(RESOURCE, issuer.url), token) == "missing_expiry"


async def test_cs_06_13_an_opaque_token_is_what_introspection_says(issuer: FakeIssuer) -> None:
    issuer.active["opaque"] = {"active": True, **issuer.claims(sub="user7", aud=RESOURCE, scope="tools:call")}
    found = await ask_who(by_introspection(issuer), "opaque")
    assert found == {"subject": "user7", "scopes": ["tools:call"]}


async def test_cs_06_14_an_opaque_token_that_is_not_active_is_refused(issuer: FakeIssuer) -> None:
    assert await refusal_reason(by_introspection(issuer), "revoked") == "introspection_failed"


async def test_cs_06_15_an_opaque_token_for_another_resource_is_refused(issuer: FakeIssuer) -> None:
    issuer.active["opaque"] = {"active": True, "aud": "https://other.example"}
    assert await refusal_reason(by_introspection(issuer), "opaque") == "invalid_audience"


async def test_cs_06_16_an_opaque_token_without_introspection_is_refused(issuer: FakeIssuer) -> None:
    assert await refusal_reason(ResourceServer(RESOURCE, issuer.url), "opaque") == "invalid_signature"


async def test_a_token_that_nobody_signed_is_refused_whatever_it_says(issuer: FakeIssuer) -> None:
    """In place of the cases in which the original accepts such a token, and one that never expires."""
    auth = ResourceServer(RESOURCE, issuer.url)
    for claims in (issuer.claims(aud=RESOURCE), issuer.claims(aud=RESOURCE, exp=...)):
        for header in ({"alg": "RS256"}, {"alg": "ES256", "kid": "k1"}, {"alg": "none"}):
            for signature in (base64url("fakesig"), ""):
                token = f"{base64url(header)}.{base64url(claims)}.{signature}"
                assert await refusal_reason(auth, token) == "invalid_signature"
