"""Tokens of a published authorization server that are for others, altered or imitated: each is refused, and told why.

The forger knows what everybody knows: a token, the server's public keys, and how JSON Web Tokens are made.
"""

import base64
import hashlib
import hmac
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx2
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from deltamcp.auth import jwt_verifier
from tests.support.authorization_server import AuthorizationServer, authorization_server
from tests.support.conditions import HANG_SECONDS
from tests.support.fake_issuer import rsa_key
from tests.support.processes import DISCOVER, DISCOVER_HEADERS, free_port
from tests.support.protected_server import protected_server

pytestmark = pytest.mark.interop

ALGORITHMS = ["RS256", "ES256", "EdDSA"]
SECONDS = 300
"""For which the authorization server's tokens are valid."""


@pytest.fixture(scope="module", params=ALGORITHMS)
def issuer(request: pytest.FixtureRequest, node_modules: Path) -> Iterator[AuthorizationServer]:
    with authorization_server(node_modules, algorithm=request.param, seconds=SECONDS) as found:
        yield found


@pytest.fixture(scope="module")
def other_issuer(node_modules: Path) -> Iterator[AuthorizationServer]:
    with authorization_server(node_modules, scopes=["books:read", "books:lend"]) as found:
        yield found


async def discover(url: str, authorization: str | None) -> httpx2.Response:
    headers = DISCOVER_HEADERS if authorization is None else {**DISCOVER_HEADERS, "authorization": authorization}
    async with httpx2.AsyncClient(trust_env=False, timeout=HANG_SECONDS) as http:
        return await http.post(url, json=DISCOVER, headers=headers)


async def assert_admitted(url: str, token: str) -> None:
    answer = await discover(url, f"Bearer {token}")
    assert answer.status_code == 200, answer.text


async def assert_refused(url: str, authorization: str, *reasons: str) -> None:
    answer = await discover(url, authorization)
    assert answer.status_code == 401, answer.text
    assert answer.json()["error"]["data"]["reason"] in reasons, answer.text
    challenge = answer.headers["www-authenticate"]
    assert challenge.startswith("Bearer ") and 'error="invalid_token"' in challenge
    metadata = url.replace("/mcp", "/.well-known/oauth-protected-resource/mcp")
    assert f'resource_metadata="{metadata}"' in challenge


# Forgeries


def b64(data: bytes | str) -> str:
    return base64.urlsafe_b64encode(data if isinstance(data, bytes) else data.encode()).decode().rstrip("=")


def unb64(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


@dataclass
class Genuine:
    """What a forger has: two tokens of different users, and the key that verifies them."""

    token: str
    another: str
    jwk: dict[str, Any]

    def __post_init__(self) -> None:
        self.header_text, self.payload_text, self.signature = self.token.split(".")
        self.header: dict[str, Any] = json.loads(unb64(self.header_text))
        self.payload: dict[str, Any] = json.loads(unb64(self.payload_text))
        self.algorithm: str = self.header["alg"]

    def with_header(self, **changes: Any) -> str:
        """The token with a changed header; a change to None removes a member."""
        header = {name: value for name, value in {**self.header, **changes}.items() if value is not None}
        return f"{b64(json.dumps(header))}.{self.payload_text}.{self.signature}"

    def with_claims(self, **changes: Any) -> str:
        payload = {name: value for name, value in {**self.payload, **changes}.items() if value is not None}
        return f"{self.header_text}.{b64(json.dumps(payload))}.{self.signature}"

    def with_claim_twice(self, name: str, value: str) -> str:
        payload = f"{{{json.dumps(name)}:{json.dumps(value)}," + unb64(self.payload_text).decode()[1:]
        return f"{self.header_text}.{b64(payload)}.{self.signature}"

    def unsigned(self, algorithm: str, signature: str = "") -> str:
        header, payload, _ = self.with_header(alg=algorithm).split(".")
        return f"{header}.{payload}.{signature}"

    def signed_by_secret(self, secret: bytes, algorithm: str = "HS256") -> str:
        """Signed by what everybody knows, as if it were a secret."""
        header, payload, _ = self.with_header(alg=algorithm).split(".")
        made = hmac.new(secret, f"{header}.{payload}".encode(), hashlib.sha256).digest()
        return f"{header}.{payload}.{b64(made)}"

    def signed_by_forger(self, algorithm: str | None = None, **header: Any) -> str:
        """Signed by a key of the forger's own."""
        algorithm = algorithm or self.algorithm
        headers = {**self.header, **header}
        key = FORGERS[algorithm]
        if "jwk" in header:
            headers["jwk"] = json.loads(jwt.get_algorithm_by_name(algorithm).to_jwk(key.public_key()))
        return jwt.encode(
            self.payload, key, algorithm, {k: v for k, v in headers.items() if k != "alg" and v is not None}
        )

    @property
    def public_key(self) -> Any:
        return jwt.PyJWK(self.jwk, self.algorithm).key

    def public_bytes(self, encoding: Encoding, form: PublicFormat = PublicFormat.SubjectPublicKeyInfo) -> bytes:
        found: bytes = self.public_key.public_bytes(encoding, form)
        return found


FORGERS: dict[str, Any] = {
    "RS256": rsa_key(),
    "PS256": rsa_key(1),
    "ES256": ec.generate_private_key(ec.SECP256R1()),
    "EdDSA": ed25519.Ed25519PrivateKey.generate(),
}

Forgery = Callable[[Genuine], str]
NOT_ALLOWED = ("algorithm_not_allowed",)
BAD_SIGNATURE = ("invalid_signature",)
FORGERIES: dict[str, tuple[Forgery, tuple[str, ...]]] = {
    # RFC 8725, 2.1: the algorithm is what the token says
    "alg none": (lambda real: real.unsigned("none"), NOT_ALLOWED),
    "alg None": (lambda real: real.unsigned("None"), NOT_ALLOWED),
    "alg NONE": (lambda real: real.unsigned("NONE"), NOT_ALLOWED),
    "alg none, with a signature": (lambda real: real.unsigned("none", real.signature), NOT_ALLOWED),
    "alg empty": (lambda real: real.unsigned(""), NOT_ALLOWED),
    "no alg": (lambda real: real.with_header(alg=None), ("malformed",)),
    "alg a number": (lambda real: real.with_header(alg=256), ("malformed",)),
    "alg a list": (lambda real: real.with_header(alg=["none", real.algorithm]), ("malformed",)),
    "alg in lower case": (lambda real: real.with_header(alg=real.algorithm.lower()), NOT_ALLOWED),
    # RFC 8725, 2.1: a public key as if it were a secret
    "key confusion, PEM": (lambda real: real.signed_by_secret(real.public_bytes(Encoding.PEM)), NOT_ALLOWED),
    "key confusion, PEM without the last line end": (
        lambda real: real.signed_by_secret(real.public_bytes(Encoding.PEM).rstrip()),
        NOT_ALLOWED,
    ),
    "key confusion, DER": (lambda real: real.signed_by_secret(real.public_bytes(Encoding.DER)), NOT_ALLOWED),
    "key confusion, JWK": (lambda real: real.signed_by_secret(json.dumps(real.jwk).encode()), NOT_ALLOWED),
    "key confusion, key id": (lambda real: real.signed_by_secret(real.header["kid"].encode()), NOT_ALLOWED),
    "key confusion, nothing": (lambda real: real.signed_by_secret(b""), NOT_ALLOWED),
    # Another key, or another algorithm for it
    "signed by another key": (lambda real: real.signed_by_forger(), BAD_SIGNATURE),
    "signed by an unknown key": (lambda real: real.signed_by_forger(kid="mine"), ("unknown_key",)),
    "signed by an unnamed key": (lambda real: real.signed_by_forger(kid=None), BAD_SIGNATURE),
    "signed by a key in its header": (lambda real: real.signed_by_forger(jwk={}), BAD_SIGNATURE),
    "signed by a key at an address": (
        lambda real: real.signed_by_forger(jku="https://forger.example/jwks"),
        BAD_SIGNATURE,
    ),
    "signed by a key with a certificate": (
        lambda real: real.signed_by_forger(x5u="https://forger.example/x5u"),
        BAD_SIGNATURE,
    ),
    "signed by PS256": (lambda real: real.signed_by_forger("PS256"), ("unknown_key", "invalid_signature")),
    "a key id that is a path": (lambda real: real.with_header(kid="../../dev/null"), ("unknown_key",)),
    "a key id that is a number": (lambda real: real.with_header(kid=1), ("malformed",)),
    # The token of another, altered
    "another user": (lambda real: real.with_claims(sub="root"), BAD_SIGNATURE),
    "more scopes": (lambda real: real.with_claims(scope="books:read books:lend admin"), BAD_SIGNATURE),
    "a later expiry": (lambda real: real.with_claims(exp=real.payload["exp"] + 10**6), BAD_SIGNATURE),
    "no expiry": (lambda real: real.with_claims(exp=None), BAD_SIGNATURE),
    "a claim twice": (lambda real: real.with_claim_twice("sub", "root"), BAD_SIGNATURE),
    "the signature of another": (
        lambda real: f"{real.header_text}.{real.payload_text}.{real.another.split('.')[2]}",
        BAD_SIGNATURE,
    ),
    "no signature": (lambda real: f"{real.header_text}.{real.payload_text}.", BAD_SIGNATURE),
    "a signature of zeros": (
        lambda real: f"{real.header_text}.{real.payload_text}.{b64(bytes(len(unb64(real.signature))))}",
        BAD_SIGNATURE,
    ),
    "half a signature": (
        lambda real: f"{real.header_text}.{real.payload_text}.{real.signature[:40]}",
        BAD_SIGNATURE,
    ),
    # RFC 7515, 4.1.11 and RFC 8725, 3.11
    "a critical header": (lambda real: real.with_header(crit=["exp"]), ("critical_header",)),
    "an unencoded payload": (lambda real: real.with_header(b64=False, crit=["b64"]), ("critical_header",)),
    "a logout token": (lambda real: real.with_header(typ="logout+jwt"), ("wrong_type",)),
    "a DPoP proof": (lambda real: real.with_header(typ="dpop+jwt"), ("wrong_type",)),
    # No token at all
    "four parts": (lambda real: f"{real.token}.{real.signature}", ("malformed",)),
    "five parts": (lambda real: f"{real.token}..{real.signature}", ("malformed",)),
    "two parts": (lambda real: f"{real.header_text}.{real.payload_text}", ("malformed",)),
    "an empty payload": (lambda real: f"{real.header_text}..{real.signature}", ("malformed",)),
    "a header that is no JSON": (lambda real: f"{b64('{')}.{real.payload_text}.{real.signature}", ("malformed",)),
    "a header that is a list": (lambda real: f"{b64('[]')}.{real.payload_text}.{real.signature}", ("malformed",)),
    "padding": (lambda real: f"{real.token}==", ("malformed",)),
    "a space in it": (lambda real: f"{real.token[:50]} {real.token[50:]}", ("malformed",)),
    "twice": (lambda real: f"{real.token},Bearer {real.token}", ("malformed",)),
    "too long": (lambda real: real.token + "A" * 20_000, ("too_large",)),
}


async def test_every_forgery_is_refused_with_its_reason(issuer):
    async with protected_server(issuer.issuer) as url:
        real = await issuer.access_token(url)
        async with httpx2.AsyncClient(trust_env=False, timeout=HANG_SECONDS) as http:
            keys = (await http.get(issuer.metadata["jwks_uri"])).json()["keys"]
        kid = jwt.get_unverified_header(real)["kid"]
        genuine = Genuine(real, await issuer.access_token(url, "bob"), next(key for key in keys if key["kid"] == kid))
        for name, (forge, reasons) in FORGERIES.items():
            forged = forge(genuine)
            assert forged != real, name
            try:
                await assert_refused(url, f"Bearer {forged}", *reasons)
            except AssertionError as error:
                raise AssertionError(f"{name}: {error}") from error
        await assert_admitted(url, real)  # which none of the others has displaced


async def test_what_is_no_bearer_token_is_refused(issuer):
    async with protected_server(issuer.issuer) as url:
        token = await issuer.access_token(url)
        for scheme in ("Basic", "DPoP", "Digest", "Bearer,", "Token"):
            await assert_refused(url, f"{scheme} {token}", "wrong_scheme")
        await assert_refused(url, token, "wrong_scheme")
        await assert_refused(url, "Bearer", "wrong_scheme")
        answer = await discover(url, None)
        assert answer.status_code == 401
        assert "error=" not in answer.headers["www-authenticate"]  # RFC 6750, 3.1


# Genuine, but not for this server, not now, or not for this


async def test_a_token_for_another_resource_is_refused_there_and_here(issuer):
    async with protected_server(issuer.issuer) as url, protected_server(issuer.issuer) as another:
        here, there = await issuer.access_token(url), await issuer.access_token(another)
        await assert_admitted(url, here)
        await assert_admitted(another, there)
        await assert_refused(another, f"Bearer {here}", "wrong_audience")
        await assert_refused(url, f"Bearer {there}", "wrong_audience")


@pytest.mark.parametrize("change", ["/other", "?tenant=1", "x", "/.."])
async def test_a_token_for_an_address_that_only_begins_alike_is_refused(issuer, change):
    async with protected_server(issuer.issuer) as url:
        await assert_refused(url, f"Bearer {await issuer.access_token(url + change)}", "wrong_audience")


async def test_a_token_of_another_authorization_server_is_refused(issuer, other_issuer):
    async with protected_server(issuer.issuer) as url:
        await assert_refused(url, f"Bearer {await other_issuer.access_token(url)}", "unknown_key")


async def test_a_token_by_a_known_key_and_another_issuer_is_refused(issuer):
    async with protected_server("https://login.example", jwks_url=issuer.metadata["jwks_uri"]) as url:
        await assert_refused(url, f"Bearer {await issuer.access_token(url)}", "wrong_issuer")


async def test_an_expired_token_is_refused_though_it_was_admitted_before(issuer, monkeypatch):
    async with protected_server(issuer.issuer, leeway_seconds=5) as url:
        token = await issuer.access_token(url)
        await assert_admitted(url, token)
        now = time.time
        monkeypatch.setattr(time, "time", lambda: now() + SECONDS + 6)
        await assert_refused(url, f"Bearer {token}", "expired")


async def test_a_token_that_is_issued_in_the_future_is_refused(issuer, monkeypatch):
    async with protected_server(issuer.issuer) as url:
        token = await issuer.access_token(url)
        now = time.time
        monkeypatch.setattr(time, "time", lambda: now() - 60)
        await assert_refused(url, f"Bearer {token}", "issued_in_future", "not_yet_valid")


async def test_what_else_an_authorization_server_issues_is_no_access_token(issuer):
    async with protected_server(issuer.issuer) as url:
        issued = await issuer.tokens(url, scopes=["openid", "books:read"])
        await assert_admitted(url, issued["access_token"])
        await assert_refused(url, f"Bearer {issued['id_token']}", "wrong_type", "wrong_audience")
        await assert_refused(url, f"Bearer {issued['refresh_token']}", "malformed")


async def test_a_token_without_the_scope_of_every_request_is_told_what_it_lacks(issuer):
    async with protected_server(issuer.issuer) as url:
        answer = await discover(url, f"Bearer {await issuer.access_token(url, scopes=['books:lend'])}")
    assert answer.status_code == 403
    challenge = answer.headers["www-authenticate"]
    assert 'error="insufficient_scope"' in challenge and "books:read" in challenge


# Keys that change


async def test_new_keys_are_found_and_withdrawn_keys_forgotten(node_modules, monkeypatch):
    """The authorization server starts again with other keys, while the resource server runs."""
    port = free_port()
    async with protected_server(f"http://127.0.0.1:{port}") as url:
        with authorization_server(node_modules, port=port) as before:
            await assert_admitted(url, await before.access_token(url))
            unused = await before.access_token(url, "bob")
        with authorization_server(node_modules, port=port) as after:
            later = SimpleNamespace(monotonic=lambda: time.monotonic() + jwt_verifier.MISS_SECONDS, time=time.time)
            monkeypatch.setattr(jwt_verifier, "time", later)
            await assert_admitted(url, await after.access_token(url))
            await assert_refused(url, f"Bearer {unused}", "unknown_key")
