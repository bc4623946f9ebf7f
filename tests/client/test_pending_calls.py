"""Calls that a server goes on with: promises of MCP-lite, and tasks of MCP in both of their forms."""

import asyncio
import itertools
from typing import Any

import pytest

from deltamcp.client import pending_call
from deltamcp.client.client import connect
from deltamcp.client.pending_call import CallState
from deltamcp.errors import CallFailedError, ClientError, DeadlineError, PeerError
from tests.support.conditions import HANG_SECONDS, wait_until
from tests.support.fake_http import ANY, MODERN, Fake, FakeConnection, FakeRequest, result, serve_fake
from tests.support.fake_lite import TOKEN, FakeLite, lite_result, promise

QUESTION = {
    "method": "elicitation/create",
    "params": {"mode": "form", "message": "Sure?", "requestedSchema": {"type": "object", "properties": {}}},
}


def arguments(fake: FakeLite) -> list[dict[str, Any]]:
    """The arguments of each call of `redeem`."""
    return [call["arguments"] for call in fake.calls if call["name"] == "redeem"]


# Promises of MCP-lite


async def test_ml_36_a_call_waits_for_its_promise_and_the_promises_after_it():
    fake = FakeLite(promise(), promise(progress=0.5, message="Half"), promise(progress=0.9), lite_result({"n": 7}))
    told: list[Any] = []
    async with serve_fake(fake), connect(fake.lite_url) as client:
        reply = await client.call_tool("render", progress=lambda *report: told.append(report))
    assert reply.value == {"n": 7}
    assert told == [(0.5, 1, "Half"), (0.9, 1, None)]
    assert [each["promise"] for each in arguments(fake)] == [TOKEN] * 3
    assert all(each["wait_ms"] > 0 for each in arguments(fake))


async def test_a_call_whose_progress_is_watched_is_asked_for_more_often():
    waits = []
    for progress in (None, lambda *report: None):
        fake = FakeLite(promise(), promise(progress=0.5), lite_result({"n": 7}))
        async with serve_fake(fake), connect(fake.lite_url) as client:
            await client.call_tool("render", progress=progress)
        waits.append({each["wait_ms"] for each in arguments(fake)})
    assert waits == [{20_000}, {1_000}]


async def test_progress_is_told_once():
    fake = FakeLite(
        promise(progress=0.5), promise(progress=0.5, status="queued"), promise(progress=0.5), lite_result(1)
    )
    told: list[Any] = []
    async with serve_fake(fake), connect(fake.lite_url) as client:
        await client.call_tool("render", progress=lambda *report: told.append(report))
    assert told == [(0.5, 1, None)]


async def test_ml_35_a_client_survives_503_and_dropped_connections_while_it_waits(monkeypatch):
    monkeypatch.setattr(pending_call, "_SOON_SECONDS", 0.001)
    fake = FakeLite(promise(), promise(progress=0.1), lite_result("done"))

    async def unavailable(asked: FakeRequest, wire: FakeConnection) -> None:
        await wire.answer(503, b"", retry_after="0")

    async def drop(asked: FakeRequest, wire: FakeConnection) -> None:
        wire.abort()

    fake.once("tools/call", fake.answer, unavailable, drop, fake.answer, drop, unavailable)
    async with serve_fake(fake), connect(fake.lite_url) as client:
        assert await client.call("render") == "done"
    assert len(arguments(fake)) == 6


async def test_ml_35_waits_grow_up_to_a_bound_and_vary():
    waits = pending_call._Waits()
    state = CallState(TOKEN, "working")
    taken = [waits.before_poll(state, server_waits=False) for _ in range(12)]
    for number, seconds in enumerate(taken):
        expected = min(0.25 * 1.6**number, 5.0)
        assert 0.8 * expected <= seconds <= 1.2 * expected
    assert len({round(seconds / min(0.25 * 1.6**number, 5.0), 6) for number, seconds in enumerate(taken)}) > 1


async def test_ml_35_the_servers_own_wait_comes_first():
    waits = pending_call._Waits()
    asked = CallState(TOKEN, "working", retry_seconds=3.0)
    assert 3.0 <= waits.before_poll(asked, server_waits=False) <= 3.6
    assert waits.before_poll(asked, server_waits=True) == 0.0  # the server waits itself, as `wait_ms` asks it to
    waits.note_answer(has_changed=False)
    assert waits.before_poll(asked, server_waits=True) >= 3.0  # and this one did not


async def test_a_server_that_wants_to_be_asked_without_a_pause_is_not():
    waits = pending_call._Waits()
    assert waits.before_poll(CallState("t", "working", retry_seconds=0.0), server_waits=False) >= 0.1


async def test_ml_37_a_result_is_redeemed_once_and_then_known():
    fake = FakeLite(promise(), lite_result("done"))
    async with serve_fake(fake), connect(fake.lite_url) as client:
        pending = await client.start("render", size=3)
        assert pending.token == TOKEN
        assert [await pending.result() for _ in range(3)] == ["done"] * 3
        again = client.pending(TOKEN)
        assert await again.result() == "done"
    assert len(arguments(fake)) == 2


async def test_ml_38_a_promise_ends_as_its_call_would_have_ended():
    failed = {**lite_result("No paper", "failure"), "error": {"code": "NO_PAPER", "message": "No paper"}}
    async with serve_fake(FakeLite(promise(), failed)) as fake, connect(fake.lite_url) as client:
        with pytest.raises(CallFailedError, match="No paper") as caught:
            await client.call("render")
    assert caught.value.code == "NO_PAPER"
    error = {"error": {"code": -32603, "message": "It broke.", "data": {"reason": "INTERNAL"}}}
    async with serve_fake(FakeLite(promise(), error)) as fake, connect(fake.lite_url) as client:
        with pytest.raises(PeerError, match="It broke"):
            await client.call("render")


async def test_ml_39_the_questions_of_a_promise_are_answered_by_redeeming_it():
    asked = {**promise("input_required"), "elicitation": {"requests": {"q1": QUESTION}}}
    asked["_meta"] = {**asked["_meta"], "response_type": "elicitation"}
    fake = FakeLite(promise(), asked, asked, promise(), lite_result("done"))
    questions: list[Any] = []
    async with serve_fake(fake), connect(fake.lite_url, on_elicitation=lambda each: questions.append(each)) as client:
        assert await client.call("render") == "done"
    assert [question["message"] for question in questions] == ["Sure?"]
    assert [each["input"] for each in arguments(fake) if "input" in each] == [{"q1": {"action": "decline"}}]


async def test_a_question_that_nobody_answers_cancels_the_call():
    asked = {**promise("input_required"), "elicitation": {"requests": {"q1": QUESTION}}}
    asked["_meta"] = {**asked["_meta"], "response_type": "elicitation"}
    fake = FakeLite(promise(), asked)
    async with serve_fake(fake), connect(fake.lite_url) as client:
        with pytest.raises(PeerError, match="does not answer"):
            await client.call("render")
    assert arguments(fake)[-1]["action"] == "cancel"


async def test_ml_41_status_and_cancel_are_asked_for_by_the_token():
    cancelled = {**lite_result("Cancelled", "failure"), "error": {"code": "CANCELLED", "message": "Cancelled"}}
    fake = FakeLite(promise("queued"), promise(progress=0.2, message="Begun"), cancelled)
    async with serve_fake(fake), connect(fake.lite_url) as client:
        pending = await client.start("render")
        assert pending.state.status == "queued"
        state = await pending.status()
        assert (state.status, state.progress, state.message) == ("working", 0.2, "Begun")
        assert (await pending.cancel()).status == "cancelled"
        with pytest.raises(CallFailedError) as caught:
            await pending.result()
    assert caught.value.code == "CANCELLED"
    assert [each.get("action") for each in arguments(fake)] == ["status", "cancel"]


async def test_a_call_that_is_cancelled_cancels_its_promise():
    fake = FakeLite(promise())
    async with serve_fake(fake), connect(fake.lite_url) as client:
        call = asyncio.create_task(client.call("render"))
        await wait_until(lambda: bool(arguments(fake)), "the first redemption")
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
    assert arguments(fake)[-1].get("action") == "cancel"


async def test_a_deadline_cancels_the_promise_of_a_call_and_not_one_that_the_program_started():
    fake = FakeLite(promise())
    async with serve_fake(fake), connect(fake.lite_url) as client:
        with pytest.raises(DeadlineError, match="was cancelled"):
            await client.call_tool("render", timeout=0.3)
        assert arguments(fake)[-1].get("action") == "cancel"
        pending = await client.start("render")
        with pytest.raises(DeadlineError, match="it goes on"):
            await pending.result(timeout=0.2)
        assert arguments(fake)[-1].get("action") is None


async def test_a_call_that_the_server_answers_at_once_has_no_token():
    async with serve_fake(FakeLite(lite_result("done"))) as fake, connect(fake.lite_url) as client:
        pending = await client.start("buy")
        assert (pending.token, (await pending.status()).status) == (None, "completed")
        assert await pending.result() == "done"
        assert [state.status async for state in pending.updates()] == ["completed"]


async def test_a_call_whose_reply_was_lost_is_sent_again_with_the_same_key():
    fake = FakeLite(promise(), lite_result("done"))

    async def drop(asked: FakeRequest, wire: FakeConnection) -> None:
        wire.abort()

    fake.once("tools/call", drop)
    async with serve_fake(fake), connect(fake.lite_url) as client:
        assert await client.call("render") == "done"
        assert await client.call("render") == "done"
    keys = [call["_meta"].get("idempotency_key") for call in fake.calls if call["name"] == "render"]
    assert keys[0] == keys[1] != keys[2]


@pytest.mark.parametrize("status", ["completed", "failed"])
async def test_a_promise_that_has_ended_without_a_result_is_an_error(status):
    async with serve_fake(FakeLite(promise(), promise(status))) as fake, connect(fake.lite_url) as client:
        async with asyncio.timeout(HANG_SECONDS):
            with pytest.raises(ClientError, match="gives no result"):
                await client.call("render")


async def test_what_cannot_be_read_cancels_the_call_that_nobody_waits_for_any_more():
    asked = {**promise(), "elicitation": {"text": "Sure?"}}
    asked["_meta"] = {**asked["_meta"], "response_type": "elicitation"}
    for answer in (asked, lite_result("?", "hologram")):
        fake = FakeLite(promise(), answer)
        async with serve_fake(fake), connect(fake.lite_url) as client:
            with pytest.raises(ClientError):
                await client.call("render")
        assert arguments(fake)[-1].get("action") == "cancel"


async def test_a_progress_callback_that_fails_does_not_fail_the_call():
    fake = FakeLite(promise(progress=0.1), promise(progress=0.5), lite_result("done"))

    def fail(*report: Any) -> None:
        raise RuntimeError

    async with serve_fake(fake), connect(fake.lite_url) as client:
        assert (await client.call_tool("render", progress=fail)).text == "done"


async def test_a_call_that_asks_without_end_is_cancelled(monkeypatch):
    monkeypatch.setattr(pending_call, "_SOON_SECONDS", 0.0001)
    fake = FakeLite()
    numbers = itertools.count()

    def ask(asked: FakeRequest) -> dict[str, Any]:
        if asked.method != "tools/call":
            return FakeLite.result(fake, asked)
        questions = {f"q{next(numbers)}": QUESTION for _ in range(10)}
        body = {**promise("input_required"), "elicitation": {"requests": questions}}
        return {"result": {**body, "_meta": {**body["_meta"], "response_type": "elicitation"}}}

    fake.result = ask  # type: ignore[method-assign]
    async with serve_fake(fake), connect(fake.lite_url, on_elicitation=lambda _: {}) as client:
        with pytest.raises(PeerError, match="more than 500 questions"):
            await client.call("render")
    assert arguments(fake)[-1].get("action") == "cancel"


async def test_a_token_is_neither_shown_nor_of_any_length():
    async with serve_fake(FakeLite(promise())) as fake, connect(fake.lite_url) as client:
        pending = await client.start("render")
        assert TOKEN not in f"{pending!r} {pending.state!r} {pending.state}"
    long = promise()
    long["_meta"]["promise_token"] = "t" * 5000
    async with serve_fake(FakeLite(long)) as fake, connect(fake.lite_url) as client:
        with pytest.raises(ClientError, match="4096 characters"):
            await client.start("render")


async def test_a_server_that_asks_for_a_long_wait_is_asked_again_within_two_minutes():
    assert pending_call._Waits().after_failure(1e9) == 120.0


# Tasks of MCP 2026-07-28


class FakeTasks(Fake):
    """A server whose tool `render` is a task; `tasks` are the answers of `tasks/get`, the last one again and again."""

    def __init__(self, *tasks: dict[str, Any], modern: bool = True) -> None:
        tools = [{"name": "render", "inputSchema": ANY, "execution": {"taskSupport": "required"}}]
        super().__init__(modern=modern, handshake=not modern, tools=tools)
        self.capabilities = {"tools": {}}
        if not modern:
            self.capabilities["tasks"] = {"requests": {"tools": {"call": {}}}, "cancel": {}}
        self.tasks = list(tasks)

    def result(self, asked: FakeRequest) -> dict[str, Any]:
        task = {"taskId": "t1", "status": "working", "pollIntervalMs" if self.modern else "pollInterval": 1}
        match asked.method:
            case "tools/call":
                return {"result": {"resultType": "task", **task} if self.modern else {"task": task}}
            case "tasks/get":
                next_task = self.tasks.pop(0) if len(self.tasks) > 1 else self.tasks[0]
                return {"result": {"resultType": "complete", **task, **next_task}}
            case "tasks/result":
                return {"result": result({"n": 7})}
            case "tasks/update" | "tasks/cancel":
                return {"result": {"resultType": "complete"} if self.modern else {**task, "status": "cancelled"}}
            case _:
                return super().result(asked)


async def test_a_task_of_2026_07_28_is_polled_until_it_has_its_result():
    fake = FakeTasks({}, {"statusMessage": "Half"}, {"status": "completed", "result": result({"n": 7})})
    told: list[Any] = []
    async with serve_fake(fake), connect(fake.url) as client:
        reply = await client.call_tool("render", progress=lambda *report: told.append(report))
    assert reply.value == {"n": 7}
    assert told == [(0.0, None, "Half")]
    assert [asked.headers["mcp-name"] for asked in fake.of("tasks/get")] == ["t1"] * 3
    declared = fake.of("tools/call")[0].params["_meta"]["io.modelcontextprotocol/clientCapabilities"]["extensions"]
    assert declared["io.modelcontextprotocol/tasks"] == {}


async def test_the_questions_of_a_task_are_answered_once_by_an_update():
    asking = {"status": "input_required", "inputRequests": {"q1": QUESTION}}
    fake = FakeTasks(asking, asking, {}, {"status": "completed", "result": result("done")})
    async with serve_fake(fake), connect(fake.url, on_elicitation=lambda _: {"a": 1}) as client:
        assert await client.call("render") == "done"
    assert [asked.params["inputResponses"] for asked in fake.of("tasks/update")] == [
        {"q1": {"action": "accept", "content": {"a": 1}}}
    ]


async def test_a_task_that_fails_raises_its_error_and_one_that_is_cancelled_says_so():
    fake = FakeTasks({"status": "failed", "error": {"code": -32603, "message": "It broke."}})
    async with serve_fake(fake), connect(fake.url) as client:
        with pytest.raises(PeerError, match="It broke"):
            await client.call("render")
    async with serve_fake(FakeTasks({"status": "cancelled"})) as fake, connect(fake.url) as client:
        with pytest.raises(CallFailedError, match="cancelled") as caught:
            await client.call("render")
    assert caught.value.code == "CANCELLED"


@pytest.mark.parametrize("modern", [True, False])
async def test_a_call_that_is_cancelled_cancels_its_task(modern):
    fake = FakeTasks({}, modern=modern)
    async with serve_fake(fake), connect(fake.url) as client:
        async with asyncio.timeout(HANG_SECONDS):
            call = asyncio.create_task(client.call("render"))
            await wait_until(lambda: bool(fake.of("tasks/get")), "the first poll")
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
    assert [asked.params["taskId"] for asked in fake.of("tasks/cancel")] == ["t1"]


# Tasks of MCP 2025-11-25


@pytest.mark.parametrize("status", ["completed", "input_required"])
async def test_a_tool_of_2025_11_25_that_requires_it_is_called_as_a_task(status):
    fake = FakeTasks({}, {"status": status}, modern=False)
    async with serve_fake(fake), connect(fake.url) as client:
        assert client.server.protocol != MODERN
        assert await client.call("render") == {"n": 7}
    assert fake.of("tools/call")[0].params["task"] == {}
    assert [asked.params["taskId"] for asked in fake.of("tasks/result")] == ["t1"]


async def test_a_tool_that_may_be_a_task_is_one_only_where_the_program_starts_it():
    fake = FakeTasks({"status": "completed"}, modern=False)
    fake.tools[0]["execution"]["taskSupport"] = "optional"
    async with serve_fake(fake), connect(fake.url) as client:
        await client.call_tool("render")
        pending = await client.start("render")
        assert await pending.result() == {"n": 7}
    assert [asked.params.get("task") for asked in fake.of("tools/call")] == [None, {}]
