"""Who may call over gRPC, how often and how much at once; request ids, logs, metrics, TLS."""

import asyncio
import logging
import math
import subprocess
import sys
import time
from typing import Any

import grpc
import pytest

from deltamcp import (
    ConfigurationError,
    Context,
    DeltaServer,
    Limits,
    OpenAccess,
    Rate,
    RateLimits,
    ResourceServer,
    StaticTokens,
)
from deltamcp.auth.static_tokens import make_token
from deltamcp.transports.grpc.admission import GrpcAdmission, GrpcRequest
from deltamcp.transports.metrics import Metrics
from tests.support.certificate import write_certificate
from tests.support.conditions import wait_until
from tests.support.fake_issuer import RESOURCE, serve_issuer
from tests.support.grpc_peer import GrpcPeer, as_dict, serve_grpc
from tests.support.lite_client import lite_client
from tests.support.processes import free_port
from tests.support.promise_queue import queue_for


def make_server(**options: Any) -> DeltaServer:
    server = DeltaServer("guarded", **options)

    @server.tool
    async def whoami(ctx: Context) -> str:
        """Say who calls."""
        return ctx.principal.id

    @server.tool(scopes=["books:lend"])
    async def lend() -> str:
        """Lend a book."""
        return "lent"

    @server.tool
    async def wait() -> str:
        """Wait for ever."""
        await asyncio.sleep(math.inf)
        return ""

    @server.tool(promise="always")
    async def promised() -> str:
        """Answer later."""
        return "later"

    return server


def bearer(token: str) -> tuple[tuple[str, str], ...]:
    return (("authorization", f"Bearer {token}"),)


def text(response: Any) -> str:
    return str(as_dict(response.result)["content"][0]["text"])


@pytest.fixture
def tokens(tmp_path):
    """The tokens of two principals, of which one has a scope, and who knows them."""
    (ada, ada_line), (bob, bob_line) = make_token("ada", ["books:lend"]), make_token("bob")
    path = tmp_path / "tokens"
    path.write_text(f"{ada_line}\n{bob_line}\n")
    path.chmod(0o600)
    return ada, bob, StaticTokens(path)


# Credentials


async def test_without_authentication_callers_are_anonymous():
    async with serve_grpc(make_server()) as peer:
        assert text(await peer.call("whoami")) == "anonymous"


async def test_a_token_says_who_calls(tokens):
    ada, bob, auth = tokens
    async with serve_grpc(make_server(), auth=auth) as peer:
        assert text(await peer.call("whoami", metadata=bearer(ada))) == "ada"
        assert text(await peer.call("whoami", metadata=bearer(bob))) == "bob"
        assert {tool.name for tool in await peer.tools(metadata=bearer(ada))} >= {"lend"}
        assert "lend" not in {tool.name for tool in await peer.tools(metadata=bearer(bob))}


@pytest.mark.parametrize(
    ("metadata", "detail"),
    [((), "missing"), (bearer("forged"), "unknown_token"), ((("authorization", "Basic eDp5"),), "wrong_scheme")],
)
async def test_other_callers_are_unauthenticated(tokens, metadata, detail):
    async with serve_grpc(make_server(), auth=tokens[2]) as peer:
        found = await peer.refused("whoami", metadata=metadata)
        with pytest.raises(grpc.aio.AioRpcError, match="UNAUTHENTICATED"):
            await peer.tools(metadata=metadata)
        with pytest.raises(grpc.aio.AioRpcError, match="UNAUTHENTICATED"):
            await peer.stream("whoami", metadata=metadata).read()
    assert (found.code, found.reason) == ("UNAUTHENTICATED", "UNAUTHENTICATED")
    assert found.details["ErrorInfo"]["metadata"]["detail"] == detail
    assert found.trailing["www-authenticate"].startswith("Bearer")
    assert "forged" not in str(found)


async def test_other_failures_ask_for_no_credentials(tokens):
    ada, _, auth = tokens
    async with serve_grpc(make_server(), auth=auth) as peer:
        found = await peer.refused("whoareyou", metadata=bearer(ada))
    assert found.code == "NOT_FOUND" and "www-authenticate" not in found.trailing


async def test_two_credentials_are_invalid(tokens):
    ada, bob, auth = tokens
    async with serve_grpc(make_server(), auth=auth) as peer:
        found = await peer.refused("whoami", metadata=(*bearer(ada), *bearer(bob)))
    assert found.code == "INVALID_ARGUMENT"


async def test_expired_and_foreign_tokens_of_an_issuer_are_unauthenticated():
    async with serve_issuer() as issuer:
        auth = ResourceServer(RESOURCE, issuer.url)
        async with serve_grpc(make_server(), auth=auth) as peer:
            assert text(await peer.call("whoami", metadata=bearer(issuer.token()))) == "ada"
            for token in (issuer.token(exp=int(time.time()) - 600), issuer.token(aud="https://other.example")):
                found = await peer.refused("whoami", metadata=bearer(token))
                assert found.code == "UNAUTHENTICATED"
                assert "invalid_token" in found.trailing["www-authenticate"]


async def test_a_scope_that_can_be_asked_for_is_permission_denied():
    async with serve_issuer() as issuer:
        auth = ResourceServer(RESOURCE, issuer.url, step_up=["books:lend"])
        async with serve_grpc(make_server(), auth=auth) as peer:
            found = await peer.refused("lend", metadata=bearer(issuer.token()))
    assert (found.code, found.reason) == ("PERMISSION_DENIED", "FORBIDDEN")
    assert "books:lend" in found.trailing["www-authenticate"]


async def test_ml_44_a_promise_is_unknown_to_other_principals(tokens):
    ada, bob, auth = tokens
    server = make_server()
    queue_for(server)
    async with serve_grpc(server, auth=auth) as peer:
        token = (await peer.call("promised", metadata=bearer(ada))).meta.promise_token
        redeem = {"promise": token, "wait_ms": 30_000}
        foreign = await peer.refused("redeem", redeem, metadata=bearer(bob))
        forged = await peer.refused("redeem", {**redeem, "promise": f"prom_{'0' * 26}"}, metadata=bearer(bob))
        own = await peer.call("redeem", redeem, metadata=bearer(ada))
    assert foreign == forged and foreign.reason == "PROMISE_UNKNOWN"
    assert text(own) == "later"


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "tools.example"])
def test_other_machines_need_authentication(host):
    with pytest.raises(ConfigurationError, match="auth="):
        make_server().grpc(host)
    make_server().grpc(host, auth=OpenAccess())


# Rates and quotas


async def test_too_many_requests_of_an_address_are_exhausted():
    server = make_server(rate_limits=RateLimits(per_address=Rate(2, 3600)))
    async with serve_grpc(server) as peer:
        await peer.call("whoami")
        await peer.call("whoami")
        found = await peer.refused("whoami")
    assert (found.code, found.reason) == ("RESOURCE_EXHAUSTED", "RATE_LIMITED")
    [violation] = found.details["QuotaFailure"]["violations"]
    assert violation["subject"] == "per_address"
    assert 0 < float(found.details["RetryInfo"]["retryDelay"].rstrip("s")) <= 1800


async def test_too_many_requests_of_a_principal_are_exhausted(tokens):
    ada, bob, auth = tokens
    server = make_server(rate_limits=RateLimits(per_principal=Rate(1, 3600)))
    async with serve_grpc(server, auth=auth) as peer:
        await peer.call("whoami", metadata=bearer(ada))
        found = await peer.refused("whoami", metadata=bearer(ada))
        await peer.call("whoami", metadata=bearer(bob))
    assert found.reason == "RATE_LIMITED"


async def test_too_many_calls_of_a_tool_are_exhausted():
    server = make_server(rate_limits=RateLimits(per_tool={"whoami": Rate(1, 3600)}))
    async with serve_grpc(server) as peer:
        await peer.call("whoami")
        found = await peer.refused("whoami")
    assert (found.code, found.reason) == ("RESOURCE_EXHAUSTED", "RATE_LIMITED")


async def test_http_and_grpc_share_the_rates():
    server = make_server(rate_limits=RateLimits(per_tool={"whoami": Rate(1, 3600)}))
    async with serve_grpc(server) as peer, lite_client(server) as http:
        await peer.call("whoami")
        assert (await http.call("whoami")).error()["data"]["reason"] == "RATE_LIMITED"


async def test_a_caller_with_too_many_calls_in_progress_is_refused():
    server = make_server(limits=Limits(calls=32))
    async with serve_grpc(server) as peer:
        waiting = [peer.call("wait") for _ in range(2)]
        service = peer.server._service
        await wait_until(lambda: service._calls.held == 2, "both calls run")
        # On another connection, because this one has no more streams.
        async with grpc.aio.insecure_channel(
            f"127.0.0.1:{peer.server.port}", options=[("grpc.use_local_subchannel_pool", 1)]
        ) as channel:
            found = await GrpcPeer(channel, peer.server).refused("whoami")
        assert (found.code, found.reason) == ("UNAVAILABLE", "OVERLOADED")
        for call in waiting:
            call.cancel()
        await wait_until(lambda: service._calls.held == 0, "the calls end")
        await peer.call("whoami")


async def test_large_responses_that_were_sent_count_no_longer():
    server = make_server(limits=Limits(response_bytes=8 * 200_000))

    @server.tool
    async def long_text() -> str:
        """Return a long text."""
        return "x" * 150_000

    async with serve_grpc(server) as peer:
        for _ in range(5):
            assert len(text(await peer.call("long_text"))) == 150_000
        await wait_until(lambda: peer.server._service._encoder.unsent.held == 0, "all are sent")


async def test_trusted_proxies_say_who_the_client_is():
    server = make_server(rate_limits=RateLimits(per_address=Rate(1, 3600)))
    async with serve_grpc(server, trusted_proxies=["127.0.0.1"]) as peer:
        for address in ("192.0.2.1", "192.0.2.2"):
            await peer.call("whoami", metadata=(("x-forwarded-for", address),))
        assert (await peer.refused("whoami", metadata=(("x-forwarded-for", "192.0.2.1"),))).reason == "RATE_LIMITED"


async def test_an_ipv6_address_counts_by_its_network():
    class Call:
        def invocation_metadata(self) -> Any:
            return ()

    request = await GrpcAdmission(make_server().engine, {}, lambda _: "2001:db8:1:2:3:4:5:6").admit(Call())
    assert isinstance(request, GrpcRequest)
    assert request.caller.account == "address 2001:db8:1:2::/64"


# Request ids, logs, metrics


async def test_request_ids_are_those_that_the_client_sent_or_new(caplog):
    async with serve_grpc(make_server(), request_ids=True) as peer:
        call = peer.call("whoami", metadata=(("x-request-id", "abc-1"),))
        await call
        assert dict(await call.trailing_metadata())["x-request-id"] == "abc-1"
        seen = set()
        for _ in range(2):
            call = peer.call("whoami")
            await call
            seen.add(dict(await call.trailing_metadata())["x-request-id"])
        assert len(seen) == 2
        found = await peer.refused("nothing", metadata=(("x-request-id", "abc-2"),))
        assert found.trailing["x-request-id"] == "abc-2"
    async with serve_grpc(make_server()) as peer:
        call = peer.call("whoami", metadata=(("x-request-id", "abc-1"),))
        await call
        assert "x-request-id" not in dict(await call.trailing_metadata())


async def test_calls_are_in_the_call_log(caplog, monkeypatch):
    caplog.set_level(logging.INFO, "deltamcp.calls")
    async with serve_grpc(make_server()) as peer:
        await peer.call("whoami")
        await peer.refused("nothing")
    lines = [record.getMessage() for record in caplog.records if record.name == "deltamcp.calls"]
    assert lines[0].startswith("operation=whoami principal=anonymous") and "outcome=done" in lines[0]
    assert lines[1].startswith("operation='nothing'") and "outcome=unknown" in lines[1]


async def test_metrics_of_the_http_application_count_calls_over_grpc():
    server = make_server()
    metrics = Metrics()
    async with serve_grpc(server, metrics=metrics) as peer, lite_client(server, prefix="", metrics=metrics) as http:
        await peer.call("whoami")
        await peer.refused("nothing")
        page = (await http.send("metrics", method="GET")).body.decode()
    assert 'delta_mcp_calls_total{operation="whoami",outcome="done"} 1.0' in page
    assert 'delta_mcp_http_refusals_total{reason="not_found"} 1.0' in page


# Listening


async def test_tls_by_certificate_files(tmp_path):
    write_certificate(tmp_path)
    server = make_server().grpc(port=0, tls_cert=tmp_path / "cert.pem", tls_key=tmp_path / "key.pem")
    said: list[str] = []
    server.announce = said.append
    await server.start()
    credentials = grpc.ssl_channel_credentials((tmp_path / "cert.pem").read_bytes())
    async with grpc.aio.secure_channel(f"localhost:{server.port}", credentials) as channel:
        assert text(await GrpcPeer(channel, server).call("whoami")) == "anonymous"
    await server.stop()
    assert said == [f"Serving guarded at grpcs://127.0.0.1:{server.port}"]


def test_tls_files_that_do_not_fit_are_refused(tmp_path):
    with pytest.raises(ConfigurationError, match="cannot be read"):
        make_server().grpc(tls_cert=tmp_path / "none.pem")


async def test_a_port_that_is_taken_is_refused():
    async with serve_grpc(make_server()) as peer:
        with pytest.raises(ConfigurationError, match="Cannot listen at"):
            await make_server().grpc(port=peer.server.port).start()


async def test_ipv6():
    server = make_server().grpc("::1", port=0)
    server.announce = lambda address: None
    try:
        await server.start()
    except ConfigurationError:
        pytest.skip("this machine has no IPv6")
    async with grpc.aio.insecure_channel(f"[::1]:{server.port}") as channel:
        assert text(await GrpcPeer(channel, server).call("whoami")) == "anonymous"
    await server.stop()


async def test_a_store_that_is_down_neither_hangs_nor_stops_plain_calls():
    server = make_server(store=f"redis://127.0.0.1:{free_port()}/0", limits=Limits(store_seconds=0.2))
    queue_for(server)
    async with serve_grpc(server) as peer:
        assert text(await peer.call("whoami")) == "anonymous"
        found = await peer.refused("promised")
        assert found.code in ("INTERNAL", "UNAVAILABLE") and "Traceback" not in str(found)
        redeemed = await peer.refused("redeem", {"promise": f"prom_{'0' * 26}"})
        assert redeemed.code in ("INTERNAL", "UNAVAILABLE") and "redis" not in str(redeemed).lower()


# The extra


def run_code(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def test_without_the_extra_one_sentence_says_what_to_install():
    code = """
import sys
sys.modules["grpc"] = None
from deltamcp import ConfigurationError, DeltaServer
try:
    DeltaServer("x").run("grpc")
except ConfigurationError as error:
    print(error)
"""
    assert run_code(code) == "gRPC needs more packages: pip install 'delta-mcp[grpc]'."


def test_a_server_without_grpc_imports_nothing_of_it():
    code = """
import sys
from deltamcp import DeltaServer
DeltaServer("x").asgi()
print([name for name in sys.modules if name.partition(".")[0] in ("grpc", "google", "grpc_health")])
"""
    assert run_code(code) == "[]"
