"""The deployment of deploy/, started on loopback: any replica serves any request, of either era and either client."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx2
import mcp_types as types
import pytest
from mcp.client.client import Client
from mcp.client.context import ClientRequestContext

from deltamcp import DeltaClient, connect
from tests.support.authorization_server import authorization_server
from tests.support.client_login import ClientLogin
from tests.support.conditions import HANG_SECONDS
from tests.support.deployment import REPLICAS, WORKERS, Deployment, deployment
from tests.support.era_client import ERAS
from tests.support.processes import DISCOVER, DISCOVER_HEADERS, free_port
from tests.support.sdk_login import SdkLogin

CALLS = 4 * REPLICAS
SESSIONS = 6
SDK_MODES = {"handshake": "legacy", "modern": "2026-07-28"}


@pytest.fixture(scope="module")
def deployed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    with deployment(tmp_path_factory.mktemp("deployment"), WORKERS) as found:
        yield found


@contextlib.asynccontextmanager
async def our_client(deployed: Deployment, era: str, reader: str = "Ada") -> AsyncIterator[DeltaClient]:
    speak: Any = "handshake" if era == "handshake" else "auto"
    async with asyncio.timeout(HANG_SECONDS):
        async with connect(deployed.url, speak=speak, on_elicitation=lambda question: {"value": reader}) as client:
            yield client


@contextlib.asynccontextmanager
async def sdk_client(deployed: Deployment, era: str, reader: str = "Ada") -> AsyncIterator[Client]:
    async def answer(context: ClientRequestContext, params: types.ElicitRequestParams) -> types.ElicitResult:
        return types.ElicitResult(action="accept", content={"value": reader})

    async with asyncio.timeout(HANG_SECONDS):
        async with Client(deployed.url, mode=SDK_MODES[era], elicitation_callback=answer) as client:
            yield client


def text_of(result: Any) -> str:
    assert not result.is_error, result
    return str(result.content[0].text)


async def get(address: str, path: str) -> httpx2.Response:
    async with httpx2.AsyncClient(trust_env=False, timeout=HANG_SECONDS) as http:
        return await http.get(f"{address}{path}")


# Health


async def test_health_is_open_to_all_and_readiness_to_those_inside(deployed):
    assert (await get(deployed.address, "/healthz")).status_code == 200
    for path in ("/readyz", "/metrics", "/", "/mcp/x"):
        assert (await get(deployed.address, path)).status_code == 404, path
    for port in deployed.replicas:
        for path in ("/readyz", "/metrics"):
            assert (await get(f"http://127.0.0.1:{port}", path)).status_code == 200, path


# Any replica serves any request


async def test_requests_go_to_the_replicas_by_turns(deployed):
    since = deployed.log_lines()
    async with httpx2.AsyncClient(trust_env=False, timeout=HANG_SECONDS) as http:
        for _ in range(CALLS):
            assert (await http.post(deployed.url, json=DISCOVER, headers=DISCOVER_HEADERS)).status_code == 200
    assert set(deployed.served_by(since)) == set(deployed.replicas)


async def test_a_session_of_our_client_is_served_by_every_replica(deployed, era):
    since = deployed.log_lines()
    async with our_client(deployed, era) as client:
        for _ in range(CALLS):
            assert await client.call("list_books")
    assert set(deployed.served_by(since)) == set(deployed.replicas)


async def test_a_session_of_the_sdks_client_is_served_by_every_replica(deployed, era):
    since = deployed.log_lines()
    async with sdk_client(deployed, era) as client:
        for _ in range(CALLS):
            assert not (await client.call_tool("list_books")).is_error
    assert set(deployed.served_by(since)) == set(deployed.replicas)


async def test_a_long_result_is_read_to_its_end_on_any_replica(deployed, era):
    async with our_client(deployed, era) as client:
        rows = [row async for row in client.rows("list_books")]
    assert [row["id"] for row in rows] == list(range(1, 301))


async def test_the_worker_runs_what_the_replicas_promise(deployed):
    async with our_client(deployed, "modern") as client:
        call = await client.start("take_stock", seconds_per_shelf=0.2)
        assert call.token is not None, "it takes two seconds, and the server waits for one"
        assert await call.result() == "300 books, as there should be."


# Answers reach the call that asked, on whichever replica it runs; they also come through nginx at once, or none would


async def test_the_answers_of_our_clients_reach_the_calls_that_asked(deployed, era):
    async def lend(number: int) -> str:
        async with our_client(deployed, era, f"Reader {number}") as client:
            return str(await client.call("lend", id=number))

    told = await asyncio.gather(*map(lend, range(SESSIONS)))
    assert told == [f"Reader {number} takes volume {number}, says anonymous." for number in range(SESSIONS)]


async def test_the_answers_of_the_sdks_clients_reach_the_calls_that_asked(deployed, era):
    async def lend(number: int) -> str:
        async with sdk_client(deployed, era, f"Reader {number}") as client:
            return text_of(await client.call_tool("lend", {"id": number}))

    told = await asyncio.gather(*map(lend, range(SESSIONS)))
    assert told == [f"Reader {number} takes volume {number}, says anonymous." for number in range(SESSIONS)]


# A replica less


async def test_sessions_survive_the_replicas_that_they_began_on(tmp_path):
    with deployment(tmp_path) as deployed:
        async with contextlib.AsyncExitStack() as connected:
            ours = [await connected.enter_async_context(our_client(deployed, era)) for era in ERAS]
            sdks = [await connected.enter_async_context(sdk_client(deployed, era)) for era in ERAS]
            for port in list(deployed.replicas)[:-1]:
                deployed.kill(port)
                for _ in range(CALLS):
                    for client in ours:
                        assert await client.call("list_books")
                    for peer in sdks:
                        assert not (await peer.call_tool("list_books")).is_error


# Who the clients are


async def status_from(deployed: Deployment, client: str, **headers: str) -> int:
    """The status of a request from an address of this machine; all of 127.0.0.0/8 are."""
    transport = httpx2.AsyncHTTPTransport(local_address=client)
    async with httpx2.AsyncClient(transport=transport, trust_env=False, timeout=HANG_SECONDS) as http:
        return (await http.post(deployed.url, json=DISCOVER, headers={**DISCOVER_HEADERS, **headers})).status_code


async def test_clients_are_told_apart_by_their_addresses_whatever_they_say(tmp_path):
    """By a rate that the replicas count together."""
    allowed = 4
    with deployment(tmp_path, ["--rate-address", f"{allowed}/3600"]) as deployed:
        greedy = [await status_from(deployed, "127.0.0.2") for _ in range(2 * allowed)]
        assert greedy.count(200) == allowed and greedy.count(429) == allowed
        pretended = {"x-forwarded-for": "127.0.0.77", "forwarded": "for=127.0.0.78"}
        assert await status_from(deployed, "127.0.0.2", **pretended) == 429
        assert await status_from(deployed, "127.0.0.3") == 200


@pytest.mark.interop
async def test_a_login_counts_at_every_replica(tmp_path, node_modules):
    port = free_port()
    url = f"http://127.0.0.1:{port}/mcp"
    with authorization_server(node_modules) as issuer:
        options = ["--auth", issuer.issuer, "--resource", url, "--scope", "books:read"]
        with deployment(tmp_path, options, port) as deployed:
            for era in ERAS:
                since, ours, sdks = deployed.log_lines(), ClientLogin("alice"), SdkLogin("bob")
                async with ours.connect(url, era) as client, sdks.connect(url, SDK_MODES[era]) as peer:
                    for _ in range(CALLS):
                        assert await client.call("list_books")
                        assert not (await peer.call_tool("list_books")).is_error
                assert len(ours.pages) == len(sdks.visits) == 1
                assert set(deployed.served_by(since)) == set(deployed.replicas)
            assert (await get(deployed.address, "/.well-known/oauth-protected-resource/mcp")).json()["resource"] == url
