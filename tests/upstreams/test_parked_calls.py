"""A handshake upstream that asks under a modern caller waits here: bounded, resumed once, and never run twice."""

import asyncio
import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from msgspec.structs import replace

from deltamcp.context import InputPending
from deltamcp.errors import UpstreamError
from deltamcp.gateway.config import GatewayConfig
from deltamcp.gateway.gateway import Gateway
from deltamcp.runtime.deadline import Deadline
from deltamcp.runtime.secrets import Secrets
from deltamcp.upstreams import parked_calls
from deltamcp.upstreams.parked_calls import ParkedCall, ParkedCalls
from deltamcp.upstreams.relayed_messages import RelayedMessages
from deltamcp.values import RawResult
from deltamcp.wire import jsonrpc
from tests.support import fake_stdio
from tests.support.conditions import advance_clock, wait_until
from tests.support.fake_upstream import (
    CAPABILITIES_KEY,
    FrontClient,
    fake_gateway,
    front_client,
    fronted,
    upstream_config,
)
from tests.support.forwarded_call import promised_context
from tests.support.raw_client import META

QUESTION = {
    "method": "elicitation/create",
    "params": {"message": "Who?", "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}}},
}
SAMPLING = {"method": "sampling/createMessage", "params": {"messages": [], "maxTokens": 1}}
ASK = {"questions": {"q": QUESTION}}
GONE = "no longer waits for the answer"


def accept(method: str, params: dict[str, Any]) -> dict[str, Any]:
    return {"action": "accept", "content": {"name": "Ada"}}


async def park(client: FrontClient, arguments: dict[str, Any] = ASK) -> dict[str, Any]:
    """What is sent to resume a call that was just parked."""
    first = (await client.begin("ask", arguments))["result"]
    assert first["resultType"] == "input_required", first
    return client.answers_to(first, accept)


def text(response: dict[str, Any]) -> str:
    assert response["result"]["isError"] is True, response
    found: str = response["result"]["content"][0]["text"]
    return found


async def test_a_parked_call_is_resumed_once_and_a_replay_is_told_so(tmp_path: Path) -> None:
    log = tmp_path / "log"
    async with fronted("modern", "handshake", log) as client:
        inputs = await park(client)
        resumed, replayed = await client.resume("ask", ASK, **inputs), await client.resume("ask", ASK, **inputs)
    assert resumed["result"]["structuredContent"]["answers"]["q"]["content"] == {"name": "Ada"}
    assert GONE in text(replayed)
    assert fake_stdio.tools_run(log) == ["ask"]


async def test_a_retry_without_the_answer_is_asked_again_and_loses_nothing(tmp_path: Path) -> None:
    log = tmp_path / "log"
    async with fronted("modern", "handshake", log) as client:
        inputs = await park(client)
        again = (await client.resume("ask", ASK, requestState=inputs["requestState"]))["result"]
        assert again["resultType"] == "input_required"
        response = await client.resume("ask", ASK, **client.answers_to(again, accept))
        assert GONE in text(await client.resume("ask", ASK, **inputs))
    assert response["result"]["structuredContent"]["answers"]["q"]["action"] == "accept"
    assert fake_stdio.tools_run(log) == ["ask"]


async def test_what_reaches_another_process_is_told_to_call_again(tmp_path: Path) -> None:
    key = bytes(32)
    one, other = fake_gateway("handshake"), fake_gateway("handshake", tmp_path / "log")
    async with front_client(one, "modern") as client, front_client(other, "modern") as elsewhere:
        for gateway in (one, other):
            _use_state_key(gateway, key)
        inputs = await park(client)
        assert GONE in text(await elsewhere.resume("ask", ASK, **inputs))
    assert fake_stdio.tools_run(tmp_path / "log") == []


def _use_state_key(gateway: Any, key: bytes) -> None:
    """As the replicas of a server have it."""
    seal = gateway.server.engine._tool_calls._state._seal
    seal.__dict__["_ciphers"] = [AESGCM(key)]


@pytest.mark.parametrize(
    ("question", "told"),
    [(QUESTION, {"result": {"action": "cancel"}}), (SAMPLING, {"code": -32603})],
    ids=["elicitation", "sampling"],
)
async def test_a_call_that_nobody_resumes_is_cancelled_and_its_question_answered(
    tmp_path: Path, question: dict[str, Any], told: dict[str, Any]
) -> None:
    log, arguments = tmp_path / "log", {"questions": {"q": question}}
    async with fronted("modern", "handshake", log) as client:
        inputs = await park(client, arguments)
        advance_clock(601)
        await wait_until(lambda: bool(fake_stdio.messages(log, "notifications/cancelled")), "the cancellation")
        assert GONE in text(await client.resume("ask", arguments, **inputs))
    [answer] = [message for message in fake_stdio.messages(log) if message.get("id") == "q1"]
    assert told.items() <= (answer.get("error") or answer).items()
    [call] = fake_stdio.messages(log, "tools/call")
    [cancelled] = fake_stdio.messages(log, "notifications/cancelled")
    assert cancelled["params"]["requestId"] == call["id"]


async def test_each_account_has_so_many_parked_calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parked_calls, "_MAX_PER_ACCOUNT", 2)
    logs = [tmp_path / str(number) for number in range(4)]
    configs = [upstream_config("handshake", f"fake{at}", log) for at, log in enumerate(logs)]
    gateway = Gateway(GatewayConfig(upstreams=configs, disclosure="full"))
    async with front_client(gateway, "modern") as client, front_client(gateway, "modern") as other:
        kept = [(await client.begin(f"fake{at}_ask", ASK))["result"] for at in range(2)]
        assert "Too many calls wait" in text(await client.begin("fake2_ask", ASK))
        await wait_until(lambda: bool(fake_stdio.messages(logs[2], "notifications/cancelled")), "the cancellation")
        of_other = (await other.begin("fake3_ask", ASK))["result"]
        assert of_other["resultType"] == "input_required"
        for at, first in enumerate(kept):
            response = await client.resume(f"fake{at}_ask", ASK, **client.answers_to(first, accept))
            assert response["result"]["structuredContent"]["answers"]["q"]["action"] == "accept"


async def test_a_caller_who_leaves_ends_the_call(tmp_path: Path) -> None:
    log = tmp_path / "log"
    async with fronted("modern", "handshake", log) as client:
        client.raw.send(id=9, method="tools/call", params={"name": "hang", "arguments": {}, "_meta": META})
        await wait_until(lambda: "hang" in fake_stdio.tools_run(log), "the call")
        client.raw.send(method="notifications/cancelled", params={"requestId": 9})
        await wait_until(lambda: bool(fake_stdio.messages(log, "notifications/cancelled")), "the cancellation")


async def test_an_upstream_that_dies_while_its_call_is_parked_is_told_on_the_retry(tmp_path: Path) -> None:
    log = tmp_path / "log"
    async with fronted("modern", "handshake", log) as client:
        inputs = await park(client)
        _kill(log)
        response = await client.resume("ask", ASK, **inputs)
    assert "ended before it answered" in text(response)


def _kill(log: Path) -> None:
    [pid] = [json.loads(line)["started"] for line in log.read_text().splitlines() if "started" in line]
    os.kill(pid, signal.SIGKILL)


async def test_the_gateways_end_ends_parked_calls(tmp_path: Path) -> None:
    log = tmp_path / "log"
    async with fronted("modern", "handshake", log) as client:
        await park(client)
    assert all(task is asyncio.current_task() or task.done() for task in asyncio.all_tasks())


async def test_questions_that_come_soon_after_each_other_are_asked_in_one_round(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("deltamcp.upstreams.parked_calls._TOGETHER_SECONDS", 10)
    messages = RelayedMessages("fake", Secrets([]))
    call, parked = ParkedCall(promised_context(), Deadline(60), messages), ParkedCalls(60)

    async def work() -> RawResult:
        async with asyncio.TaskGroup() as group:
            first = group.create_task(call.answer("sampling/createMessage", {"n": 1}))
            await asyncio.sleep(0.01)
            second = group.create_task(call.answer("sampling/createMessage", {"n": 2}))
            await wait_until(lambda: len(call.questions) == 2)
            advance_clock(10)
        fields = {"sum": first.result()["n"] + second.result()["n"]}
        return RawResult(jsonrpc.encode(fields), fields)

    call.start(work())
    with pytest.raises(InputPending) as pending:
        await call.wait(parked)
    assert [question.params["n"] for question in pending.value.requests.values()] == [1, 2]
    taken = parked.take(pending.value.memo["parked"])
    taken.resume(promised_context(), {key: {"n": 1} for key in pending.value.requests})
    assert (await taken.wait(parked)).fields == {"sum": 2}


async def test_large_questions_of_parked_calls_are_bounded_together() -> None:
    """What those of one account have, and that small ones are parked all the same."""
    messages, parked = RelayedMessages("fake", Secrets([])), ParkedCalls(60)

    async def ask(megabytes: int) -> None:
        call = ParkedCall(promised_context(), Deadline(60), messages)

        async def work() -> RawResult:
            await call.answer("sampling/createMessage", {"messages": ["a" * megabytes * 1_000_000]})
            raise AssertionError("nobody answers")

        call.start(work())
        await call.wait(parked)

    for megabytes in (6, 6, 0):
        with pytest.raises(InputPending):
            await ask(megabytes)
    with pytest.raises(UpstreamError, match="Too many calls wait"):
        await ask(6)
    with pytest.raises(InputPending):
        await ask(0)
    parked.close()


# Behind a promise


async def test_cancelling_the_promise_ends_the_parked_call_at_the_upstream(tmp_path: Path) -> None:
    log = tmp_path / "log"
    config = replace(upstream_config("handshake", log=log), sync_seconds=0.0)
    capabilities: dict[str, Any] = {"elicitation": {}, "extensions": {"io.modelcontextprotocol/tasks": {}}}
    meta = {**META, CAPABILITIES_KEY: capabilities}
    gateway = Gateway(GatewayConfig(upstreams=[config], disclosure="full"))
    async with front_client(gateway, "modern", capabilities) as client:
        made = (await client.begin("ask", ASK))["result"]
        assert made["resultType"] == "task", made
        while True:
            state = (await client.raw.call("tasks/get", taskId=made["taskId"], _meta=meta))["result"]
            if state["status"] == "input_required":
                break
            await asyncio.sleep(0.02)
        assert not fake_stdio.messages(log, "notifications/cancelled")
        await client.raw.call("tasks/cancel", taskId=made["taskId"], _meta=meta)
        await wait_until(lambda: bool(fake_stdio.messages(log, "notifications/cancelled")), "the cancellation")
    [answer] = [message for message in fake_stdio.messages(log) if message.get("id") == "q1"]
    assert answer["result"] == {"action": "cancel"}


async def test_a_caller_who_can_no_longer_be_asked_ends_the_call(tmp_path: Path) -> None:
    log = tmp_path / "log"
    async with fronted("modern", "handshake", log) as client:
        inputs = await park(client)
        client.capabilities = {}
        await client.resume("ask", ASK, **inputs)
        await wait_until(lambda: bool(fake_stdio.messages(log, "notifications/cancelled")), "the cancellation")


async def test_a_call_behind_a_promise_is_parked_and_resumed_too(tmp_path: Path) -> None:
    log = tmp_path / "log"
    gateway = fake_gateway("handshake", log)
    async with front_client(gateway, "modern"):
        upstream = gateway.upstreams["fake"].connection
        params = {"name": "ask", "arguments": ASK}
        with pytest.raises(InputPending) as pending:
            await upstream.forward("tools/call", params, promised_context())
        [key] = pending.value.requests
        memo = jsonrpc.decode(jsonrpc.encode(pending.value.memo))  # as the record has it
        answers = {key: accept("", {})}
        result = await upstream.forward("tools/call", params, promised_context(memo, answers))
        with pytest.raises(UpstreamError, match=GONE):
            await upstream.forward("tools/call", params, promised_context(memo, answers))
    assert result.fields["structuredContent"]["answers"]["q"]["action"] == "accept"
    assert fake_stdio.tools_run(log) == ["ask"]


async def test_a_result_that_comes_while_its_caller_leaves_is_seen_before_the_call_ends() -> None:
    """It may be the id of a task, which nobody else would cancel."""
    messages, result = RelayedMessages("fake", Secrets([])), RawResult(b"{}", {})
    call, parked = ParkedCall(promised_context(), Deadline(60), messages), ParkedCalls(60)
    answer: asyncio.Future[RawResult] = asyncio.get_running_loop().create_future()
    seen: list[Any] = []

    async def send() -> RawResult:
        return await answer

    async def wait() -> None:
        seen.append(await call.wait(parked))
        await asyncio.sleep(0)
        seen.append("went on")

    call.start(send())
    waiting = asyncio.create_task(wait())
    await asyncio.sleep(0)
    assert call._task is not None
    call._task.add_done_callback(lambda _: waiting.cancel())  # when it is about to wake up
    answer.set_result(result)
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert seen == [result]
    assert waiting.cancelling() == 1
