"""Promises of real processes with a real Redis, some of which are killed; `make promises` does it with more."""

import asyncio
import signal
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from bench.hostile.stores import SkippedError
from bench.promises.chaos import run_chaos
from bench.promises.topology import PromiseTopology, run_topology
from tests.support.conditions import HANG_SECONDS, wait_until
from tests.support.properties import examples

PROMISES = 40
REDEMPTIONS = examples(1000)


@pytest.fixture(scope="module")
def two_replicas() -> Iterator[PromiseTopology]:
    """Two replicas that run no promises, and a worker that does."""
    try:
        with run_topology(2, 1, "--no-worker") as topology:
            yield topology
    except SkippedError as skipped:
        pytest.skip(str(skipped))


def request(tool: str, arguments: dict[str, Any], **meta: Any) -> dict[str, Any]:
    params = {"name": tool, "arguments": arguments, "_meta": meta}
    return {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}


def client() -> httpx2.AsyncClient:
    return httpx2.AsyncClient(timeout=HANG_SECONDS, trust_env=False, limits=httpx2.Limits(max_connections=100))


async def result_of(http: httpx2.AsyncClient, endpoint: str, body: dict[str, Any]) -> dict[str, Any]:
    """Sends a request, and again where the server says so: on a busy machine its store may not answer in time."""
    reply = (await http.post(endpoint, json=body)).json()
    for _ in range(100):
        if not reply.get("error", {}).get("data", {}).get("retryable"):
            break
        await asyncio.sleep(0.2)
        reply = (await http.post(endpoint, json=body)).json()
    assert "result" in reply, reply
    result: dict[str, Any] = reply["result"]
    return result


async def redeem(http: httpx2.AsyncClient, endpoint: str, token: str) -> dict[str, Any]:
    while True:
        result = await result_of(http, endpoint, request("redeem", {"promise": token, "wait_ms": 5_000}))
        if result["_meta"]["response_type"] != "promise":
            return result


@pytest.mark.deep
async def test_ml_43_no_promise_is_lost_and_none_runs_twice_while_processes_are_killed():
    try:
        with run_topology(3, 2) as topology:
            report = await run_chaos(topology, PROMISES, pause=2.0, seconds=2.0)
    except SkippedError as skipped:
        pytest.skip(str(skipped))
    assert report.wrong == []
    assert report.kills > 0 and report.answered + report.unknown == PROMISES


async def test_ml_42_a_promise_is_known_to_another_replica_once_its_token_is(two_replicas):
    """The replies come one after the other; each is redeemed at the other replica at once."""
    first, second = two_replicas.endpoints

    async def make_and_ask(http: httpx2.AsyncClient, number: int) -> str:
        call = request("look_up", {"nonce": f"known {number}", "seconds": 0.5})
        made = await result_of(http, first, call)
        assert made["_meta"]["response_type"] == "promise", made
        token = made["_meta"]["promise_token"]
        status = await result_of(http, second, request("redeem", {"promise": token, "action": "status"}))
        return str(status["_meta"]["response_type"])

    async with client() as http:
        turns = asyncio.Semaphore(20)

        async def make_in_turn(number: int) -> str:
            async with turns:
                return await make_and_ask(http, number)

        kinds = await asyncio.gather(*map(make_in_turn, range(REDEMPTIONS)))
    assert set(kinds) <= {"promise", "answer"} and len(kinds) == REDEMPTIONS


async def test_ml_43_a_call_whose_worker_died_runs_again_only_if_it_may(two_replicas):
    endpoint = two_replicas.endpoints[0]
    async with client() as http:
        tokens = {}
        for tool in ("look_up", "charge"):
            result = await result_of(http, endpoint, request(tool, {"nonce": "killed", "seconds": 3}))
            tokens[tool] = result["_meta"]["promise_token"]
        await wait_until(lambda: {"look_up killed", "charge killed"} <= set(two_replicas.effects()))
        two_replicas.workers[0].restart()
        found = await redeem(http, endpoint, tokens["look_up"])
        charged = await redeem(http, two_replicas.endpoints[1], tokens["charge"])
    assert found["content"][0]["text"] == "found killed"
    assert charged["_meta"]["response_type"] == "failure" and charged["error"]["code"] == "OUTCOME_UNKNOWN"
    assert two_replicas.effects().count("charge killed") == 1
    assert two_replicas.effects().count("look_up killed") >= 2


async def test_ml_43_a_creation_whose_reply_was_lost_is_found_again_by_its_idempotency_key(two_replicas):
    first, second = two_replicas.endpoints
    call = request("charge", {"nonce": "asked twice", "seconds": 1}, idempotency_key="asked twice")
    async with client() as http:
        one, other = await asyncio.gather(result_of(http, first, call), result_of(http, second, call))
        assert one["_meta"]["promise_token"] == other["_meta"]["promise_token"]
        assert (await redeem(http, second, one["_meta"]["promise_token"]))["content"][0][
            "text"
        ] == "charged asked twice"
    assert two_replicas.effects().count("charge asked twice") == 1


async def test_ml_43_a_worker_that_is_told_to_end_lets_its_calls_end(two_replicas):
    endpoint = two_replicas.endpoints[0]
    async with client() as http:
        result = await result_of(http, endpoint, request("charge", {"nonce": "drained", "seconds": 2}))
        await wait_until(lambda: "charge drained" in two_replicas.effects())
        worker = two_replicas.workers[0]
        worker.process.send_signal(signal.SIGTERM)
        code = await asyncio.to_thread(worker.process.wait, HANG_SECONDS)
        status = {"promise": result["_meta"]["promise_token"]}
        charged = await result_of(http, endpoint, request("redeem", status))
        worker.restart()
    assert code == 0
    assert charged["content"][0]["text"] == "charged drained"
