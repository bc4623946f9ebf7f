"""Keys of an authorization server: found by its metadata, kept, rotated, and fetched once for many requests."""

import asyncio
import socket
import time
from typing import Any

import pytest

from deltamcp.auth import json_document, jwt_verifier
from deltamcp.auth.bearer import IssuerUnavailableError
from deltamcp.auth.json_document import DocumentError, fetch_document, issuer_document_urls
from deltamcp.auth.jwt_verifier import KeySet
from tests.support.conditions import HANG_SECONDS, wait_until
from tests.support.fake_issuer import ec_key, json_answer, public_jwk, rsa_key, serve_issuer

METADATA = "/.well-known/oauth-authorization-server"
OUTAGE = b"HTTP/1.1 503 Busy\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


async def names_found(keys: KeySet, *names: str) -> list[bool]:
    return [await keys.find(name, "ES256") is not None for name in names]


async def test_keys_are_found_by_the_issuer_s_metadata_and_fetched_once() -> None:
    async with serve_issuer() as issuer:
        keys = KeySet(issuer.url)
        assert await names_found(keys, "k1", "k1", "k1") == [True] * 3
        assert issuer.asked == {METADATA: 1, "/jwks": 1}


@pytest.mark.parametrize(
    ("issuer", "paths"),
    [
        ("https://a.example", ["/.well-known/oauth-authorization-server", "/.well-known/openid-configuration"]),
        (
            "https://a.example/realms/x",
            [
                "/.well-known/oauth-authorization-server/realms/x",
                "/.well-known/openid-configuration/realms/x",
                "/realms/x/.well-known/openid-configuration",
            ],
        ),
    ],
)
def test_metadata_is_looked_for_in_the_order_of_the_specification(issuer: str, paths: list[str]) -> None:
    assert issuer_document_urls(issuer) == [f"https://a.example{path}" for path in paths]


async def test_an_openid_provider_has_its_metadata_elsewhere() -> None:
    async with serve_issuer() as issuer:
        issuer.always(METADATA, json_answer({}, "404 Not Found"))
        document = {"issuer": issuer.url, "jwks_uri": f"{issuer.url}/jwks"}
        issuer.always("/.well-known/openid-configuration", json_answer(document))
        assert await names_found(KeySet(issuer.url), "k1") == [True]


async def test_metadata_of_another_issuer_is_refused() -> None:
    async with serve_issuer() as issuer:
        issuer.metadata = {"issuer": "https://evil.example"}
        with pytest.raises(IssuerUnavailableError):
            await KeySet(issuer.url).find("k1", "ES256")
        assert "/jwks" not in issuer.asked


@pytest.mark.parametrize(
    ("jwks_uri", "reason"),
    [
        ("http://evil.example:{port}/jwks", "is neither https nor on this machine"),
        ("file:///etc/passwd", "is neither https nor on this machine"),
        ("", "is neither https nor on this machine"),
        ("http://[", "cannot be fetched: ValueError"),
        (5, "has no jwks_uri"),
    ],
)
async def test_keys_come_from_a_safe_address_only(
    jwks_uri: Any, reason: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    resolve = socket.getaddrinfo

    def resolve_here(host: Any, *arguments: Any, **options: Any) -> Any:
        return resolve("127.0.0.1" if host in ("evil.example", b"evil.example") else host, *arguments, **options)

    monkeypatch.setattr(socket, "getaddrinfo", resolve_here)
    async with serve_issuer() as issuer, serve_issuer() as evil:
        if isinstance(jwks_uri, str):
            jwks_uri = jwks_uri.replace("{port}", evil.url.rpartition(":")[2])
        issuer.metadata = {"jwks_uri": jwks_uri}
        with pytest.raises(IssuerUnavailableError):
            await KeySet(issuer.url).find("k1", "ES256")
        assert not evil.asked
    assert reason in caplog.text


async def test_an_issuer_elsewhere_has_nothing_on_this_machine_fetched(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    fetch = json_document.fetch_document
    async with serve_issuer() as local:

        async def fetch_metadata(url: str) -> dict[str, Any]:
            if url.startswith(local.url):
                return dict(await fetch(url))
            return {"issuer": "https://issuer.example", "jwks_uri": f"{local.url}/jwks"}

        monkeypatch.setattr(jwt_verifier, "fetch_document", fetch_metadata)
        with pytest.raises(IssuerUnavailableError):
            await KeySet("https://issuer.example").find("k1", "ES256")
        assert not local.asked
    assert "names keys on this machine, and is elsewhere" in caplog.text


@pytest.mark.parametrize("jwks_uri", ["http://127.0.0.1:6379/", "https://localhost/jwks", "http://[::1]/jwks"])
async def test_an_issuer_elsewhere_has_no_keys_on_this_machine(jwks_uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fetch(url: str) -> dict[str, Any]:
        return {"issuer": "https://issuer.example", "jwks_uri": jwks_uri}

    monkeypatch.setattr(jwt_verifier, "fetch_document", fetch)
    with pytest.raises(DocumentError, match="on this machine"):
        await jwt_verifier.find_jwks_url("https://issuer.example")


async def test_an_unknown_key_is_looked_for_once_in_an_interval() -> None:
    async with serve_issuer() as issuer:
        keys = KeySet(issuer.url, f"{issuer.url}/jwks", miss_seconds=0)
        assert await names_found(keys, "k1") == [True]
        issuer.keys["k2"] = ec_key(2)
        assert await names_found(keys, "k2", "k1") == [True, True]
        assert issuer.asked["/jwks"] == 2
        keys = KeySet(issuer.url, f"{issuer.url}/jwks")
        assert await names_found(keys, "k1", "k3", "k4", "k5") == [True, False, False, False]
        assert issuer.asked["/jwks"] == 3


async def test_requests_that_miss_at_once_share_one_fetch() -> None:
    async with serve_issuer() as issuer:
        keys = KeySet(issuer.url, f"{issuer.url}/jwks", miss_seconds=0)
        issuer.gate.clear()
        waiting = [asyncio.create_task(keys.find("k1", "ES256")) for _ in range(50)]
        await wait_until(lambda: bool(issuer.asked["/jwks"]))
        waiting[0].cancel()  # which must not take the fetch from the others
        await asyncio.sleep(0)
        issuer.gate.set()
        found = await asyncio.gather(*waiting, return_exceptions=True)
        assert isinstance(found[0], asyncio.CancelledError)
        assert all(key is not None and not isinstance(key, BaseException) for key in found[1:])
        assert issuer.asked["/jwks"] == 1


async def test_a_key_that_was_withdrawn_is_forgotten_at_the_next_renewal() -> None:
    async with serve_issuer() as issuer:
        issuer.keys["k2"] = ec_key(2)
        keys = KeySet(issuer.url, f"{issuer.url}/jwks", renew_seconds=0, miss_seconds=0)
        assert await names_found(keys, "k2") == [True]
        del issuer.keys["k2"]
        assert await keys.find("k1", "ES256") is not None  # begins to renew, without waiting
        assert keys._fetch is not None
        await keys._fetch
        assert await names_found(keys, "k2", "k1") == [False, True]
        await keys.close()


async def test_an_outage_locks_out_no_key_that_is_known_and_holds_up_no_request() -> None:
    async with serve_issuer() as issuer:
        keys = KeySet(issuer.url, f"{issuer.url}/jwks", renew_seconds=0, miss_seconds=0)
        assert await names_found(keys, "k1") == [True]
        issuer.gate.clear()  # the endpoint hangs
        assert await names_found(keys, "k1", "k1") == [True, True]
        issuer.always("/jwks", OUTAGE)
        issuer.gate.set()
        assert await names_found(keys, "k1", "k2", "k1") == [True, False, True]
        await keys.close()


@pytest.mark.parametrize(
    "answer",
    [
        OUTAGE,
        b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\n{no",
        json_answer([]),
        json_answer({"keys": "none"}),
        json_answer({"keys": []}),
        json_answer({"keys": [{"kty": "oct", "k": "AA"}]}),
        b"HTTP/1.1 302 Found\r\nlocation: https://evil.example/jwks\r\ncontent-length: 0\r\n\r\n",
        b"HTTP/1.1 302 Found\r\nlocation: /jwks\r\ncontent-length: 0\r\nconnection: close\r\n\r\n",
        b"HTTP/1.1 302 Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 2\r\n\r\n\x1f\x8b",
        b"nonsense\r\n\r\n",
        b"",
        json_answer({"keys": [], "filler": "x" * 600_000}),
    ],
)
async def test_an_endpoint_without_keys_is_an_error_of_the_server_s(
    answer: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deltamcp.auth.jwt_verifier._FIRST_SECONDS", HANG_SECONDS)
    async with serve_issuer() as issuer:
        issuer.always("/jwks", answer)
        keys = KeySet(issuer.url, f"{issuer.url}/jwks")
        with pytest.raises(IssuerUnavailableError):
            await keys.find("k1", "ES256")
        asked = issuer.asked["/jwks"]
        with pytest.raises(IssuerUnavailableError):
            await keys.find("k1", "ES256")
        assert issuer.asked["/jwks"] == asked  # not at once again


async def test_an_endpoint_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jwt_verifier, "FETCH_SECONDS", 0.05)
    async with serve_issuer() as issuer:
        issuer.gate.clear()
        with pytest.raises(IssuerUnavailableError):
            await KeySet(issuer.url).find("k1", "ES256")


async def test_after_an_outage_keys_are_found_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jwt_verifier, "_FIRST_SECONDS", 0.0)
    async with serve_issuer() as issuer:
        issuer.once("/jwks", OUTAGE)
        keys = KeySet(issuer.url)
        with pytest.raises(IssuerUnavailableError):
            await keys.find("k1", "ES256")
        assert await names_found(keys, "k1") == [True]


async def test_keys_too_old_are_used_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serve_issuer() as issuer:
        keys = KeySet(issuer.url, f"{issuer.url}/jwks")
        assert await names_found(keys, "k1") == [True]
        issuer.always("/jwks", OUTAGE)
        keys._fetched_at = keys._attempted_at = time.monotonic() - 25 * 3600
        with pytest.raises(IssuerUnavailableError):
            await keys.find("k1", "ES256")


async def test_a_token_without_key_id_needs_a_single_key_that_fits() -> None:
    async with serve_issuer() as issuer:
        keys = KeySet(issuer.url, f"{issuer.url}/jwks", miss_seconds=0)
        issuer.keys = {"a": ec_key(), "b": rsa_key()}
        assert await keys.find(None, "ES256") is not None
        issuer.keys["c"] = ec_key(2)
        keys = KeySet(issuer.url, f"{issuer.url}/jwks")
        assert await keys.find(None, "ES256") is None
        assert await keys.find(None, "RS256") is not None


async def test_two_keys_of_one_id_are_told_apart_by_their_type() -> None:
    async with serve_issuer() as issuer:
        both = [public_jwk(ec_key(), kid="k"), public_jwk(rsa_key(), kid="k")]
        issuer.always("/jwks", json_answer({"keys": both}))
        keys = KeySet(issuer.url, f"{issuer.url}/jwks")
        for algorithm, type_ in (("ES256", "EC"), ("RS256", "RSA")):
            found = await keys.find("k", algorithm)
            assert found is not None and found.type.type == type_


async def test_a_redirect_within_the_origin_is_followed() -> None:
    async with serve_issuer() as issuer:
        moved = f"HTTP/1.1 307 Moved\r\nlocation: {issuer.url}/jwks\r\ncontent-length: 0\r\n\r\n"
        issuer.always("/old", moved.encode())
        assert await names_found(KeySet(issuer.url, f"{issuer.url}/old"), "k1") == [True]


async def test_a_document_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_document, "FETCH_SECONDS", 0.05)
    async with serve_issuer() as issuer:
        issuer.gate.clear()
        with pytest.raises(DocumentError, match="TimeoutError"):
            await fetch_document(f"{issuer.url}/jwks")


async def test_a_fetch_in_progress_ends_with_the_server() -> None:
    async with serve_issuer() as issuer:
        keys = KeySet(issuer.url)
        issuer.gate.clear()
        waiting = asyncio.create_task(keys.find("k1", "ES256"))
        await wait_until(lambda: bool(issuer.asked))
        await keys.close()
        with pytest.raises((asyncio.CancelledError, IssuerUnavailableError)):
            await waiting


def test_keys_serve_one_event_loop_after_another() -> None:
    async def find(keys: KeySet | None) -> KeySet:
        async with serve_issuer() as issuer:
            keys = keys or KeySet(issuer.url)
            keys._jwks_url = f"{issuer.url}/jwks"
            assert await keys.find("k1", "ES256") is not None
            keys._keys, keys._attempted_at = None, float("-inf")
        return keys

    asyncio.run(find(asyncio.run(find(None))))
