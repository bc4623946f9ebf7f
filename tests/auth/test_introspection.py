"""Introspection: what an authorization server says about a token decides, and is remembered for a moment."""

import asyncio
import base64
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

from deltamcp import ConfigurationError, DeltaServer, Introspection, ResourceServer
from deltamcp.auth import introspection
from deltamcp.auth.authenticator import Credentials
from deltamcp.errors import Fault
from deltamcp.values import Failure, Principal
from tests.support.asgi_client import AsgiClient
from tests.support.fake_issuer import RESOURCE, FakeIssuer, json_answer, serve_issuer


@pytest.fixture
async def issuer() -> AsyncIterator[FakeIssuer]:
    async with serve_issuer() as served:
        yield served


def make_auth(issuer: FakeIssuer, **options: Any) -> ResourceServer:
    asked = Introspection(url=f"{issuer.url}/introspect", client_id="tools:1", client_secret="s e%cret/+", **options)
    return ResourceServer(RESOURCE, issuer.url, introspection=asked)


async def authenticate(auth: ResourceServer, token: str) -> Principal | Failure:
    try:
        return await auth.authenticate(Credentials(f"Bearer {token}", {}))
    finally:
        await auth._verifier.close()


def answer(issuer: FakeIssuer, **changes: Any) -> dict[str, Any]:
    return {"active": True, **issuer.claims(**changes)}


async def test_an_active_token_names_its_principal_and_is_asked_about_once(issuer: FakeIssuer) -> None:
    issuer.active["opaque"] = answer(issuer, scope="a b", username="Ada")
    auth = make_auth(issuer)
    for _ in range(3):
        found = await authenticate(auth, "opaque")
        assert isinstance(found, Principal)
        assert (found.id, found.issuer, found.scopes) == ("ada", issuer.url, frozenset({"a", "b"}))
    assert issuer.forms == [{"token": "opaque", "token_type_hint": "access_token"}]
    name, _, secret = base64.b64decode(issuer.authorizations[0].removeprefix("Basic ")).decode().partition(":")
    assert (name, secret) == ("tools%3A1", "s+e%25cret%2F%2B")


async def test_requests_that_come_together_with_one_token_wait_for_one_answer(issuer: FakeIssuer) -> None:
    issuer.active["opaque"] = answer(issuer)
    auth = make_auth(issuer)
    for token, kind in (("opaque", Principal), ("unknown", Failure)):
        found = await asyncio.gather(*(auth.authenticate(Credentials(f"Bearer {token}", {})) for _ in range(20)))
        assert all(isinstance(one, kind) for one in found)
    assert [form["token"] for form in issuer.forms] == ["opaque", "unknown"]
    assert isinstance(auth._verifier, introspection.IntrospectionVerifier) and not auth._verifier._questions
    await auth.close()


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"active": False}, "inactive"),
        ({"active": "true"}, "inactive"),
        ({"active": 1}, "inactive"),
        ({"active": None}, "inactive"),
        ({"active": ...}, "inactive"),
        ({"aud": ...}, "wrong_audience"),
        ({"aud": None}, "wrong_audience"),
        ({"aud": "https://other.example/mcp"}, "wrong_audience"),
        ({"aud": {"a": 1}}, "malformed_claim"),
        ({"iss": "https://evil.example"}, "wrong_issuer"),
        ({"iss": None}, "wrong_issuer"),
        ({"exp": time.time() - 60}, "expired"),
        ({"exp": "soon"}, "malformed_claim"),
        ({"nbf": time.time() + 3600}, "not_yet_valid"),
        ({"sub": ...}, "missing_subject"),
        ({"cnf": {"jkt": "x"}}, "bound_to_key"),
        ({"token_use": "refresh_token"}, "wrong_type"),
        ({"typ": "Refresh"}, "wrong_type"),
    ],
)
async def test_a_token_is_refused_with_its_reason(issuer: FakeIssuer, changes: dict[str, Any], reason: str) -> None:
    said = {**answer(issuer), **changes}
    issuer.active["opaque"] = {name: value for name, value in said.items() if value is not ...}
    refused = await authenticate(make_auth(issuer), "opaque")
    assert isinstance(refused, Failure)
    assert (refused.fault, refused.data) == (Fault.UNAUTHORIZED, {"reason": reason})


@pytest.mark.parametrize("left_out", ["aud", "iss", "exp", "iat"])
async def test_an_endpoint_for_this_resource_only_may_leave_out_what_it_checked(
    issuer: FakeIssuer, left_out: str
) -> None:
    issuer.active["opaque"] = answer(issuer, **{left_out: ...})
    found = await authenticate(make_auth(issuer, only_for_this_resource=True), "opaque")
    assert isinstance(found, Principal)


async def test_an_endpoint_for_this_resource_only_still_may_not_name_another(issuer: FakeIssuer) -> None:
    issuer.active["opaque"] = answer(issuer, aud="https://other.example")
    assert isinstance(await authenticate(make_auth(issuer, only_for_this_resource=True), "opaque"), Failure)


async def test_a_token_that_is_not_active_is_asked_about_once_in_a_while(
    issuer: FakeIssuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(introspection, "_MAX_INACTIVE", 2)
    auth = make_auth(issuer)
    for token in ("a", "a", "b", "b", "c", "c", "a"):
        assert isinstance(await authenticate(auth, token), Failure)
    assert [form["token"] for form in issuer.forms] == ["a", "b", "c", "a"]


async def test_a_revoked_token_ends_when_it_is_asked_about_again(issuer: FakeIssuer) -> None:
    issuer.active["opaque"] = answer(issuer)
    auth = make_auth(issuer, cache_seconds=0.0)
    assert isinstance(await authenticate(auth, "opaque"), Principal)
    del issuer.active["opaque"]
    assert isinstance(await authenticate(auth, "opaque"), Failure)


@pytest.mark.parametrize(
    "said",
    [
        json_answer({"active": True}, "401 Unauthorized"),
        json_answer({"active": True}, "500 Oops"),
        json_answer([True]),
        b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\n{no",
        b"HTTP/1.1 307 Moved\r\nlocation: /other\r\ncontent-length: 0\r\nconnection: close\r\n\r\n",
        b"",
    ],
)
async def test_an_endpoint_that_fails_is_no_fault_of_the_token_s(issuer: FakeIssuer, said: bytes) -> None:
    issuer.always("/introspect", said)
    issuer.active["opaque"] = answer(issuer)
    auth = make_auth(issuer)
    refused = await authenticate(auth, "opaque")
    assert isinstance(refused, Failure)
    assert refused.fault is Fault.OVERLOADED
    assert refused.retry_seconds > 0
    issuer.recover()
    assert isinstance(await authenticate(auth, "opaque"), Principal)


async def test_connections_serve_one_loop_after_another(issuer: FakeIssuer) -> None:
    issuer.active["opaque"] = answer(issuer)
    auth = make_auth(issuer, cache_seconds=0.0)
    assert isinstance(await authenticate(auth, "opaque"), Principal)
    auth._verifier._loop = asyncio.new_event_loop()  # type: ignore[attr-defined]
    auth._verifier._loop.close()  # type: ignore[attr-defined]
    assert isinstance(await authenticate(auth, "opaque"), Principal)


def test_options_that_cannot_be_used_are_refused() -> None:
    unsafe = Introspection(url="http://issuer.example/i", client_id="a", client_secret="b")
    with pytest.raises(ConfigurationError, match=r"introspection\.url"):
        ResourceServer(RESOURCE, "https://issuer.example", introspection=unsafe)
    safe = Introspection(url="https://issuer.example/i", client_id="a", client_secret="b")
    with pytest.raises(ConfigurationError, match="one of the two"):
        ResourceServer(RESOURCE, "https://issuer.example", introspection=safe, jwks_url="https://issuer.example/jwks")


def test_a_secret_is_not_shown() -> None:
    shown = repr(Introspection(url="https://issuer.example/i", client_id="a", client_secret="s3cret"))
    assert "s3cret" not in shown


class HeldEndpoint:
    """An introspection endpoint that answers when the test lets it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: list[str] = []
        self._open: list[asyncio.Future[None]] = []
        monkeypatch.setattr(introspection, "send_request", self._send)

    async def _send(self, client: Any, method: str, url: str, *, data: dict[str, str], headers: Any) -> Any:
        held = asyncio.get_running_loop().create_future()
        self.asked.append(data["token"])
        self._open.append(held)
        await held
        return 200, {}, {"active": data["token"].startswith("good"), "sub": "ada", "aud": RESOURCE}

    async def settle(self) -> None:
        """Lets everything go on that can."""
        for _ in range(20):
            await asyncio.sleep(0)

    async def answer(self, count: int) -> None:
        for held in self._open[:count]:
            held.set_result(None)
        del self._open[:count]
        await self.settle()


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch) -> HeldEndpoint:
    return HeldEndpoint(monkeypatch)


def held_auth() -> ResourceServer:
    asked = Introspection(url="https://issuer.example/introspect", client_id="a", client_secret="b")
    return ResourceServer(RESOURCE, "https://issuer.example", introspection=asked)


def send_tokens(auth: ResourceServer, tokens: list[str], address: str) -> list[asyncio.Task[Principal | Failure]]:
    return [asyncio.create_task(auth.authenticate(Credentials(f"Bearer {one}", {}, address))) for one in tokens]


async def test_so_many_unknown_tokens_are_asked_about_at_once(endpoint: HeldEndpoint) -> None:
    auth = held_auth()
    sent = send_tokens(auth, [f"bad{number}" for number in range(100)], "1.1.1.1")
    await endpoint.settle()
    for asked in (16, 32, 48):
        assert len(endpoint.asked) == asked
        await endpoint.answer(16)
    while any(not one.done() for one in sent):
        await endpoint.answer(16)
    assert sorted(endpoint.asked) == sorted(f"bad{number}" for number in range(100))
    await auth.close()


async def test_an_address_that_sends_unknown_tokens_leaves_others_their_turn(endpoint: HeldEndpoint) -> None:
    auth = held_auth()
    bad = send_tokens(auth, [f"bad{number}" for number in range(128)], "1.1.1.1")
    await endpoint.settle()
    [good] = send_tokens(auth, ["good"], "2.2.2.2")
    await endpoint.settle()
    await endpoint.answer(2)
    assert "good" in endpoint.asked
    await endpoint.answer(16)
    assert isinstance(good.result(), Principal)
    [again] = send_tokens(auth, ["good"], "1.1.1.1")
    await endpoint.settle()
    assert again.done(), "a token that was verified waits for nobody"
    while any(not one.done() for one in bad):
        await endpoint.answer(16)
    await auth.close()


@pytest.mark.parametrize("addresses", [1, 9])
async def test_more_unknown_tokens_than_may_wait_are_told_to_come_again(endpoint: HeldEndpoint, addresses: int) -> None:
    auth = held_auth()
    room = 128 * min(addresses, 8)
    sent = [
        send_tokens(auth, [f"bad {address} {number}".replace(" ", "-") for number in range(128)], f"1.1.1.{address}")
        for address in range(addresses)
    ]
    sent.append(send_tokens(auth, ["one-more"], "1.1.1.0"))
    await endpoint.settle()
    refused = [one.result() for tasks in sent for one in tasks if one.done()]
    assert len(refused) == 128 * addresses + 1 - room
    for failure in refused:
        assert isinstance(failure, Failure)
        assert (failure.fault, failure.retry_seconds) == (Fault.OVERLOADED, 5.0)
    assert len(endpoint.asked) == 16
    while any(not one.done() for tasks in sent for one in tasks):
        await endpoint.answer(16)
    assert isinstance(auth._verifier, introspection.IntrospectionVerifier) and not auth._verifier._counts
    await auth.close()


async def test_a_question_does_not_wait_for_ever_for_its_turn(
    endpoint: HeldEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    auth = held_auth()
    first = send_tokens(auth, [f"bad{number}" for number in range(16)], "1.1.1.1")
    await endpoint.settle()
    monkeypatch.setattr(introspection, "_TURN_SECONDS", 0)
    [late] = send_tokens(auth, ["good"], "2.2.2.2")
    failure = await late
    assert isinstance(failure, Failure) and failure.fault is Fault.OVERLOADED
    await endpoint.answer(16)
    assert all(one.done() for one in first)
    await auth.close()


async def test_turns_are_of_the_addresses_that_quotas_count(endpoint: HeldEndpoint) -> None:
    server, auth = DeltaServer("x"), held_auth()
    async with server.lifespan():
        client = AsgiClient(server.asgi(auth=auth))
        client.headers["authorization"] = "Bearer bad"
        client.address = "2001:db8::1:2:3:4"
        exchange = client.request(1, "ping")
        await endpoint.settle()
        assert isinstance(auth._verifier, introspection.IntrospectionVerifier)
        assert auth._verifier._counts == {"2001:db8::/64": 1}
        await endpoint.answer(1)
        assert (await exchange.start())[0] == 401
