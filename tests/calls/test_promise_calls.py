"""Calls that become promises, and what clients ask about them."""

import asyncio
import re
from typing import Any

import pytest

from deltamcp import Context, DeltaServer, Limits, NeedsResource, Rate, RateLimits, ResultPolicy, ToolFailure
from deltamcp.errors import Fault
from deltamcp.stores.store import MemoryStore
from deltamcp.values import (
    ANONYMOUS,
    AnswerPromise,
    CallTool,
    CancelPromise,
    Era,
    Failure,
    GetPromise,
    InputRequired,
    Inputs,
    Principal,
    Promise,
    PromiseStatus,
    PromiseWish,
    RedeemPromise,
    ResourceRequired,
    ResultShape,
)
from deltamcp.wire import jsonrpc
from tests.support.conditions import wait_until
from tests.support.promise_queue import PromiseClient, TaskQueue, code_of, promise_calls, queue_for, text_of
from tests.support.store_medium import Clock, until

S = PromiseStatus
ANN, BOB = Principal("ann"), Principal("bob")


class Work:
    """Tools whose end a test decides."""

    def __init__(self, **options: Any) -> None:
        self.server = DeltaServer("work", **options)
        self.goes_on = asyncio.Event()
        self.started = self.stopped = 0
        self.seen: list[Any] = []
        self.queue: TaskQueue = queue_for(self.server)
        self.server.tool(self.wait, promise="auto", sync_seconds=0.05)
        self.server.tool(self.quick, promise="auto", sync_seconds=60)
        self.server.tool(self.never, promise="always")
        self.server.tool(self.fail, promise="auto", sync_seconds=60)
        self.server.tool(self.order, promise="auto", sync_seconds=60)
        self.server.tool(self.rows, promise="auto", results=ResultPolicy(max_tokens=300))

    async def wait(self, ctx: Context, n: int = 0) -> str:
        """Waits."""
        self.started += 1
        self.seen.append((ctx.promise_id, ctx.attempt))
        try:
            await self.goes_on.wait()
        except asyncio.CancelledError:
            self.stopped += 1
            raise
        return f"waited {n}"

    async def quick(self, n: int) -> str:
        """Ends at once."""
        self.started += 1
        return f"quick {n}"

    def never(self, n: int = 0) -> str:
        """Always promises."""
        return f"plain {n}"

    async def fail(self, code: str) -> str:
        """Fails."""
        if code == "crash":
            raise RuntimeError("secret")
        raise ToolFailure(code, "It failed.", details={"n": 1})

    async def order(self, ctx: Context) -> str:
        """Asks twice."""
        self.started += 1
        city = await ctx.elicit("City?", str, key="city")
        day = await ctx.elicit("Day?", ["Monday", "Friday"], key="day")
        return f"{city.content} on {day.content}, run {ctx.attempt}"

    async def rows(self) -> list[dict[str, Any]]:
        """Many rows."""
        return [{"id": number, "name": f"row number {number}"} for number in range(500)]


@pytest.fixture
async def work():
    made = Work()
    async with made.server.lifespan():
        yield made
        await made.queue.kill()


DEEP: Any = jsonrpc.decode(b"[" * 300 + b"]" * 300)


def answer_to(value: str) -> Any:
    return {"action": "accept", "content": {"value": value}}


# Making promises


async def test_ml_30_a_call_that_takes_longer_than_its_window_returns_a_token(work):
    client = PromiseClient(work.server)
    promise = await client.call("wait", n=1)
    assert isinstance(promise, Promise) and promise.status is S.WORKING
    assert re.fullmatch(r"prom_[0-9a-z]{26}", promise.token) and promise.outcome is None
    assert promise.created_at < promise.expires_at and 0.25 <= promise.retry_seconds <= 5
    work.goes_on.set()
    assert text_of(await client.redeem(promise)) == "waited 1"


async def test_a_call_that_ends_in_time_is_answered_and_leaves_nothing_behind(work):
    client = PromiseClient(work.server)
    assert text_of(await client.call("quick", n=1)) == "quick 1"
    store: Any = work.server.engine.store
    await wait_until(lambda: not store._entries)


async def test_a_10_the_policy_decides_who_waits(work):
    client = PromiseClient(work.server)
    promise = await client.call("never", n=1)
    assert isinstance(promise, Promise), "however fast it is"
    assert text_of(await client.redeem(promise)) == "plain 1"
    promise = await client.call("quick", PromiseWish(at_once=True), n=2)
    assert isinstance(promise, Promise), "as the client asked"


async def test_a_10_a_client_without_promises_waits_or_is_told_what_it_lacks(work):
    lite = PromiseClient(work.server)
    assert text_of(await lite.call("never", None, n=1)) == "plain 1"
    modern = PromiseClient(work.server, result_shape=ResultShape.MCP)
    refused = await modern.call("never", None)
    assert refused.fault is Fault.MISSING_CAPABILITY
    assert refused.data == {"requiredCapabilities": {"extensions": {"io.modelcontextprotocol/tasks": {}}}}
    old = PromiseClient(work.server, era=Era.HANDSHAKE, result_shape=ResultShape.MCP)
    assert (await old.call("never", None)).fault is Fault.UNKNOWN_METHOD
    for client in (lite, modern, old):
        assert text_of(await client.call("quick", None, n=3)) == "quick 3"
    assert not work.queue.keys


async def test_wrong_arguments_are_refused_at_once_and_nothing_is_queued(work):
    refused = await PromiseClient(work.server).call("quick", n="many")
    assert code_of(refused) == "INVALID_PARAMS" and not work.queue.keys and not work.started


async def test_a_call_counts_once_towards_the_rate_of_its_tool():
    made = Work(rate_limits=RateLimits(per_tool=Rate(2, 1000)))
    async with made.server.lifespan():
        client = PromiseClient(made.server)
        outcomes = [await client.call("quick", n=number) for number in range(3)]
    assert [code_of(outcome) for outcome in outcomes] == [None, None, "RATE_LIMITED"]


async def test_an_account_has_a_bounded_number_of_promises_at_work():
    made = Work(limits=Limits(promises_per_account=3))
    async with made.server.lifespan():
        ann, bob = PromiseClient(made.server, ANN), PromiseClient(made.server, BOB)
        promises = [await ann.start("wait", n=number) for number in range(3)]
        refused = await ann.call("wait")
        assert code_of(refused) == "RATE_LIMITED" and refused.value.error.retryable
        assert "was not called: too many of your calls are queued or at work." in text_of(refused)
        await bob.start("wait")
        made.goes_on.set()
        for promise in promises:
            await ann.redeem(promise)
        assert isinstance(await ann.start("wait"), Promise), "those that have ended do not count"
        await made.queue.kill()


async def test_execute_gives_promises_too():
    made = Work(disclosure="meta")
    async with made.server.lifespan():
        client = PromiseClient(made.server)
        made.goes_on.set()
        promise = await client.ask(
            CallTool("execute", {"operation": "wait", "params": {"n": 4}}, promise=PromiseWish(at_once=True))
        )
        assert isinstance(promise, Promise)
        assert text_of(await client.redeem(promise)) == "waited 4"
        await made.queue.kill()


async def test_references_in_arguments_are_resolved_before_the_call_is_stored(work):
    async def sum_up(rows: list[dict[str, Any]], ctx: Context, extra: int = 0) -> int:
        """Adds ids."""
        if not ctx.terms.meta.get("granted"):
            raise NeedsResource("More, please.", kind="credit", required=5)
        return sum([int(row["id"]) for row in rows], extra)

    work.server.tool(sum_up, promise="auto")
    client = PromiseClient(work.server)
    handle = (await client.call("rows", None)).value.meta["io.github.delta-mcp/result"]["handle"]
    arguments = {"rows": {"$result": handle}, "extra": 1}
    asked = await client.redeem(await client.start("sum_up", **arguments))
    assert isinstance(asked, ResourceRequired)
    client.meta = {"granted": True}
    again = CallTool("sum_up", arguments, Inputs(state=asked.state), PromiseWish(at_once=True))
    work.queue.is_open = False
    promise = await client.ask(again)
    assert isinstance(promise, Promise), "the state fits the arguments as they were sent"
    store: Any = work.server.engine.store
    for place in [place for place in store._entries if "\0result\0" in place[0]]:
        await store.delete(*place)
    work.queue.open()
    assert text_of(await client.redeem(promise)) == str(sum(range(500)) + 1)


async def test_a_client_that_leaves_before_it_has_a_token_cancels_its_call(work):
    work.server.remove_tool("wait")
    work.server.tool(work.wait, promise="auto", sync_seconds=60)
    call = asyncio.create_task(PromiseClient(work.server).call("wait"))
    await wait_until(lambda: work.started == 1)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await wait_until(lambda: work.stopped == 1)


# Redeeming


async def test_ml_36_redeeming_returns_the_result_or_the_promise_again(work):
    client = PromiseClient(work.server)
    promise = await client.start("wait", n=7)
    again = await client.redeem(promise, 0.01)
    assert isinstance(again, Promise) and again.token == promise.token, "A-9: the same token for its whole life"
    work.goes_on.set()
    assert text_of(await client.redeem(promise)) == "waited 7"


async def test_ml_37_every_redemption_returns_the_same(work):
    client = PromiseClient(work.server)
    promise = await client.start("wait", n=7)
    waiting = [asyncio.create_task(client.redeem(promise)) for _ in range(20)]
    await asyncio.sleep(0)
    work.goes_on.set()
    found = await asyncio.gather(*waiting)
    found += [await client.redeem(promise, 0) for _ in range(3)]
    assert all(one == found[0] for one in found) and text_of(found[0]) == "waited 7"
    assert work.started == 1


@pytest.mark.parametrize("code", ["CARD_DECLINED", "crash"])
async def test_ml_38_a_failed_call_is_redeemed_as_it_would_have_been_answered(work, code):
    client = PromiseClient(work.server)
    inline = await client.call("fail", None, code=code)
    promise = await client.start("fail", code=code)
    redeemed = await client.redeem(promise)
    assert redeemed.value.is_error and code_of(redeemed) == code_of(inline)
    assert "secret" not in text_of(redeemed)
    if code != "crash":
        assert redeemed == inline
    snapshot = (await client.ask(GetPromise(promise.token))).value
    assert snapshot.status is S.COMPLETED and snapshot.outcome == redeemed, "only a protocol's error is a failure"


async def test_ml_38_a_protocol_error_is_redeemed_as_one(work):
    client = PromiseClient(work.server)
    work.queue.is_open = False
    promise = await client.start("quick", n=1)
    work.server.remove_tool("quick")
    work.queue.open()
    outcome = await client.redeem(promise)
    assert isinstance(outcome, Failure) and outcome.message == "The tool quick no longer exists."
    assert (await client.ask(GetPromise(promise.token))).value.status is S.FAILED


async def test_a_result_that_does_not_fit_is_cut_and_its_rest_lives_as_long_as_the_promise(work):
    client = PromiseClient(work.server)
    promise = await client.start("rows")
    first = text_of(await client.redeem(promise))
    handle = re.search(r'handle="(\w+)"', first)
    assert handle is not None, first
    store: Any = work.server.engine.store
    lives = [entry.idle_seconds for (owner, _), entry in store._entries.items() if "result" in owner]
    assert lives and min(lives) > 900, "and not the 300 seconds of other results"
    rest = await client.ask(CallTool("continue", {"handle": handle[1]}))
    assert not rest.value.is_error, rest


async def test_progress_is_in_the_promise_and_goes_to_whoever_waits(work):
    reported = asyncio.Event()

    async def steps(ctx: Context) -> str:
        """Reports."""
        await ctx.report_progress(1, 4, "one")
        await reported.wait()
        await ctx.report_progress(2, 4, "two")
        await work.goes_on.wait()
        return "done"

    work.server.tool(steps, promise="auto")
    client = PromiseClient(work.server)
    promise = await client.start("steps")

    async def has_progress(expected: float) -> bool:
        value: Promise = (await client.ask(GetPromise(promise.token))).value
        return value.progress == expected

    await until(lambda: has_progress(1))
    waiting = asyncio.create_task(client.redeem(promise))
    reported.set()
    await until(lambda: has_progress(2))
    work.goes_on.set()
    assert text_of(await waiting) == "done"
    last = client.channel.reports[-1]
    assert (last.progress, last.total, last.message) == (2, 4, "two")


# Questions


async def test_ml_39_questions_are_asked_and_answered_through_the_promise(work):
    client = PromiseClient(work.server)
    promise = await client.redeem(await client.start("order"))
    assert isinstance(promise, Promise) and promise.status is S.INPUT_REQUIRED
    assert list(promise.requests) == ["city"]
    again = await client.redeem(promise)
    assert again.requests == promise.requests, "at once, and the same until it is answered"
    ignored = await client.ask(AnswerPromise(promise.token, Inputs({"other": answer_to("Rome")})))
    assert ignored.value.requests == promise.requests
    second = await client.ask(RedeemPromise(promise.token, 30, Inputs({"city": answer_to("Oslo")})))
    assert list(second.requests) == ["day"] and second.token == promise.token
    final = await client.ask(RedeemPromise(promise.token, 30, Inputs(fields={"value": "Friday"})))
    assert text_of(final) == "Oslo on Friday, run 3"


async def test_ml_39_answers_that_come_again_change_nothing(work):
    client = PromiseClient(work.server)
    promise = await client.redeem(await client.start("order"))
    first = await client.ask(RedeemPromise(promise.token, 30, Inputs({"city": answer_to("Oslo")})))
    assert list(first.requests) == ["day"]
    late = await client.ask(AnswerPromise(promise.token, Inputs({"city": answer_to("Rome")})))
    assert list(late.value.requests) == ["day"] and work.started == 2
    final = await client.ask(RedeemPromise(promise.token, 30, Inputs({"day": answer_to("Monday")})))
    assert text_of(final).startswith("Oslo on Monday")


async def test_ml_39_a_client_of_the_handshake_era_is_asked_while_it_waits_for_the_result(work):
    client = PromiseClient(work.server, era=Era.HANDSHAKE, result_shape=ResultShape.MCP)
    client.channel.answers = {"elicitation/create": answer_to("Friday")}
    promise = await client.start("order")
    final = await client.redeem(promise, None)
    assert text_of(final) == "Friday on Friday, run 3"
    assert [method for method, _ in client.channel.requests] == ["elicitation/create"] * 2
    for _, params in client.channel.requests:
        assert params["_meta"] == {"io.modelcontextprotocol/related-task": {"taskId": promise.token}}


@pytest.mark.parametrize("shape", [ResultShape.MCP_LITE, ResultShape.MCP])
@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (answer_to("Sunday"), 'The answer to value does not fit: "Sunday" is not one of "Monday" or "Friday".'),
        (answer_to(DEEP), "The answer to value does not fit: it is nested too deeply."),
        ("yes", "The answer to day must be an object with the action accept, decline or cancel."),
        ({"action": "maybe"}, "The answer to day must be an object with the action accept, decline or cancel."),
    ],
)
async def test_ml_39_an_answer_that_does_not_fit_is_refused_and_the_question_stays(work, shape, answer, problem):
    client = PromiseClient(work.server, result_shape=shape)
    promise = await client.redeem(await client.start("order"))
    promise = await client.ask(RedeemPromise(promise.token, 30, Inputs({"city": answer_to("Oslo")})))
    for ask in (AnswerPromise, lambda token, inputs: RedeemPromise(token, 30, inputs)):
        refused = await client.ask(ask(promise.token, Inputs({"day": answer})))
        assert refused.fault is Fault.INVALID_PARAMS and refused.message == f"{problem} Answer again."
    assert (await client.redeem(promise)).requests == promise.requests and work.started == 2
    final = await client.ask(RedeemPromise(promise.token, 30, Inputs({"day": answer_to("Friday")})))
    assert text_of(final) == "Oslo on Friday, run 3"


async def test_a_task_answered_without_a_required_field_stays_open(work):
    client = PromiseClient(work.server, result_shape=ResultShape.MCP)
    promise = await client.redeem(await client.start("order"))
    refused = await client.ask(AnswerPromise(promise.token, Inputs({"city": {"action": "accept", "content": {}}})))
    assert refused.fault is Fault.INVALID_PARAMS
    assert refused.message == "The answer to city has no value. Answer again."


async def test_ml_39_an_answer_sent_with_the_call_that_does_not_fit_is_asked_for_again(work):
    client = PromiseClient(work.server)
    inputs = Inputs({"city": answer_to("Oslo"), "day": answer_to("Sunday")})
    asked = await client.ask(CallTool("order", {}, inputs, PromiseWish()))
    assert isinstance(asked, InputRequired) and list(asked.requests) == ["day"]
    inputs = Inputs({"day": answer_to("Friday")}, asked.state)
    assert text_of(await client.ask(CallTool("order", {}, inputs, PromiseWish()))) == "Oslo on Friday, run 1"


async def test_answers_are_bounded(work):
    client = PromiseClient(work.server)
    promise = await client.redeem(await client.start("order"))
    refused = await client.ask(AnswerPromise(promise.token, Inputs({"city": answer_to("x" * 300_000)})))
    assert refused.fault is Fault.INVALID_PARAMS and "262,144 bytes" in refused.message


async def test_consent_is_asked_through_the_promise_and_used_once(work):
    work.server.tool(work.quick, name="risky", promise="auto", policy="confirm")
    client = PromiseClient(work.server)
    promise = await client.redeem(await client.start("risky", n=5))
    (key,) = promise.requests
    assert key.startswith("confirm ")
    forged = Inputs({key: {"action": "accept", "content": {}}})
    asked = await client.ask(CallTool("risky", {"n": 5}, forged, PromiseWish(at_once=True)))
    assert list((await client.redeem(asked)).requests) == [key], "a consent to a question that was not asked is none"
    assert text_of(await client.ask(RedeemPromise(promise.token, 30, forged))) == "quick 5"
    assert work.started == 1


async def test_a_consent_that_was_asked_for_before_the_promise_is_used_once(work):
    work.server.tool(work.quick, name="risky", promise="auto", policy="confirm", sync_seconds=60)
    client = PromiseClient(work.server)
    asked = await client.call("risky", n=5)
    assert isinstance(asked, InputRequired)
    store: Any = work.server.engine.store
    await wait_until(lambda: not store._entries, "nothing is stored while a user thinks")
    (key,) = asked.requests
    inputs = Inputs({key: {"action": "accept", "content": {}}}, asked.state)
    named = PromiseWish(idempotency_key="once")
    for _ in range(2):
        assert text_of(await client.ask(CallTool("risky", {"n": 5}, inputs, named))) == "quick 5"
    for wish in (PromiseWish(), PromiseWish(at_once=True), None):
        refused = await client.ask(CallTool("risky", {"n": 5}, inputs, wish))
        assert refused.value.is_error and "was used before" in text_of(refused)
    assert work.started == 1


# Status and cancelling


async def test_ml_41_the_status_of_a_call_can_be_asked_for(work):
    client = PromiseClient(work.server)
    work.queue.is_open = False
    promise = await client.start("wait")
    assert (await client.ask(GetPromise(promise.token))).value.status is S.QUEUED
    work.queue.open()
    await wait_until(lambda: work.started == 1)
    status = (await client.ask(GetPromise(promise.token))).value
    assert status.status is S.WORKING and status.expires_at >= promise.expires_at
    unchanged = (await client.ask(GetPromise(promise.token))).value
    assert unchanged.expires_at == status.expires_at and unchanged.updated_at == status.updated_at
    work.goes_on.set()
    await client.redeem(promise)
    final = (await client.ask(GetPromise(promise.token))).value
    assert final.status is S.COMPLETED and text_of(final.outcome) == "waited 0"


async def test_ml_41_cancelling_stops_the_work(work):
    client = PromiseClient(work.server)
    promise = await client.start("wait")
    await wait_until(lambda: work.started == 1)
    cancelled = (await client.ask(CancelPromise(promise.token))).value
    assert cancelled.status is S.CANCELLED and work.stopped == 1
    again = (await client.ask(CancelPromise(promise.token))).value
    assert again == cancelled, "repeated, it does no harm"
    assert code_of(await client.redeem(promise)) == "CANCELLED"


async def test_ml_41_a_queued_call_that_is_cancelled_never_runs(work):
    client = PromiseClient(work.server)
    work.queue.is_open = False
    promise = await client.start("wait")
    assert (await client.ask(CancelPromise(promise.token))).value.status is S.CANCELLED
    work.queue.open()
    await wait_until(lambda: not work.queue.tasks)
    assert not work.started


async def test_ml_41_a_call_that_waits_for_answers_can_be_cancelled(work):
    client = PromiseClient(work.server)
    promise = await client.redeem(await client.start("order"))
    assert (await client.ask(CancelPromise(promise.token))).value.status is S.CANCELLED
    answered = await client.ask(AnswerPromise(promise.token, Inputs({"city": answer_to("Oslo")})))
    assert answered.value.status is S.CANCELLED and work.started == 1


async def test_ml_41_of_a_cancel_and_an_end_one_wins_and_stays(work):
    client = PromiseClient(work.server)
    promises = [await client.start("quick", n=number) for number in range(20)]
    await asyncio.gather(*(client.ask(CancelPromise(promise.token)) for promise in promises))
    for number, promise in enumerate(promises):
        first = await client.redeem(promise)
        assert code_of(first) == "CANCELLED" or text_of(first) == f"quick {number}"
        assert await client.redeem(promise, 0) == first


async def test_cancelling_in_the_handshake_era_is_done_before_the_reply_and_an_error_after_the_end(work, monkeypatch):
    monkeypatch.setattr("deltamcp.promises.asks._CANCEL_SECONDS", 0.01)

    async def stubborn() -> str:
        """Does not stop."""
        while not work.goes_on.is_set():
            try:
                await work.goes_on.wait()
            except asyncio.CancelledError:
                work.stopped += 1
        return "late"

    work.server.tool(stubborn, promise="auto")
    client = PromiseClient(work.server, era=Era.HANDSHAKE, result_shape=ResultShape.MCP)
    promise = await client.start("stubborn")
    await asyncio.sleep(0.01)
    store: Any = work.server.engine.store
    places = {key for key in store._entries if "promised calls" in key[0]}
    assert (await client.ask(CancelPromise(promise.token))).value.status is S.CANCELLED
    assert places and places.isdisjoint(store._entries), "another call can have its place"
    refused = await client.ask(CancelPromise(promise.token))
    assert refused.fault is Fault.INVALID_PARAMS
    work.goes_on.set()
    await wait_until(lambda: not work.queue.tasks)
    assert code_of(await client.redeem(promise)) == "CANCELLED", "a late result changes nothing"


# Whose promise it is, and for how long


async def test_ml_44_others_are_told_that_there_is_no_such_promise(work):
    ann, bob = PromiseClient(work.server, ANN), PromiseClient(work.server, BOB)
    promise = await ann.start("wait")
    unknown = "prom_" + "0" * 26
    for token in (promise.token, unknown, "nonsense", "", "prom_\ud800"):
        for ask in (
            RedeemPromise(token, 0),
            GetPromise(token),
            AnswerPromise(token, Inputs()),
            CancelPromise(token),
        ):
            assert await bob.ask(ask) == Failure(Fault.PROMISE_UNKNOWN, "There is no such promise.")
    for stranger in (Principal("ann", issuer="https://other.example"), ANONYMOUS, Principal("local")):
        assert (await PromiseClient(work.server, stranger).redeem(promise)).fault is Fault.PROMISE_UNKNOWN
    work.goes_on.set()
    assert text_of(await ann.redeem(promise)) == "waited 0", "nobody has cancelled it"


async def test_ml_33_a_promise_expires_and_its_owner_is_told(work):
    clock = Clock()
    promise_calls(work.server).store.clock = clock
    ann, bob = PromiseClient(work.server, ANN), PromiseClient(work.server, BOB)
    promise = await ann.start("quick", n=1)
    await ann.redeem(promise)
    assert promise.expires_at == clock.now + 3600 + 900
    clock.now = promise.expires_at - 1
    assert text_of(await ann.redeem(promise)) == "quick 1"
    clock.now += 2
    for ask in (RedeemPromise(promise.token), GetPromise(promise.token), CancelPromise(promise.token)):
        assert code_of(await ann.ask(ask)) == "PROMISE_EXPIRED", "A-8"
        assert (await bob.ask(ask)).fault is Fault.PROMISE_UNKNOWN
    mcp = PromiseClient(work.server, ANN, result_shape=ResultShape.MCP)
    assert (await mcp.ask(GetPromise(promise.token))).fault is Fault.PROMISE_UNKNOWN


async def test_ml_33_a_call_that_never_ran_expires_too(work):
    clock = Clock()
    promise_calls(work.server).store.clock = clock
    work.queue.is_open = False
    client = PromiseClient(work.server)
    promise = await client.start("wait")
    clock.now = promise.expires_at
    work.queue.open()
    await wait_until(lambda: not work.queue.tasks)
    assert code_of(await client.redeem(promise, 0)) == "PROMISE_EXPIRED" and not work.started


@pytest.mark.parametrize(("era", "shape"), [(Era.MODERN, ResultShape.MCP_LITE), (Era.HANDSHAKE, ResultShape.MCP)])
async def test_whoever_waits_for_a_call_that_never_ran_is_told_that_it_has_expired(work, monkeypatch, era, shape):
    monkeypatch.setattr("deltamcp.promises.asks._HEAL_SECONDS", 0.01)
    clock = Clock()
    promises = promise_calls(work.server)
    promises.store.clock = clock
    work.queue.is_open = False
    client = PromiseClient(work.server, era=era, result_shape=shape)
    promise = await client.start("wait")
    waiting = asyncio.ensure_future(client.redeem(promise, None))
    changes = promises.follow(promise.token, client.caller)
    assert (await anext(changes)).status is S.QUEUED
    clock.now = promise.expires_at
    outcome = await waiting
    if isinstance(outcome, Failure):
        assert outcome.fault is Fault.PROMISE_UNKNOWN and era is Era.HANDSHAKE
    else:
        assert code_of(outcome) == "PROMISE_EXPIRED"
    with pytest.raises(StopAsyncIteration):
        await anext(changes)


@pytest.mark.parametrize(("asked", "given"), [(60.0, 60.0), (1e9, 86_400.0), (-5.0, 1.0), (float("nan"), 4500.0)])
async def test_a_client_may_ask_for_how_long(work, asked, given):
    clock = Clock()
    promise_calls(work.server).store.clock = clock
    work.queue.is_open = False
    promise = await PromiseClient(work.server).call("never", PromiseWish(seconds=asked))
    assert promise.expires_at - clock.now == given


async def test_an_expired_promise_is_a_tombstone_for_a_day_and_then_unknown():
    clock = Clock()
    made = Work(store=MemoryStore(clock=clock))
    promise_calls(made.server).store.clock = clock
    async with made.server.lifespan():
        client = PromiseClient(made.server)
        promise = await client.start("quick", n=1)
        await client.redeem(promise)
        clock.now = promise.expires_at + 86_000
        assert code_of(await client.redeem(promise)) == "PROMISE_EXPIRED"
        clock.now = promise.expires_at + 87_000
        assert (await client.redeem(promise)).fault is Fault.PROMISE_UNKNOWN


async def test_ml_32_neither_logs_nor_the_store_have_the_token(work, caplog):
    caplog.set_level("DEBUG")
    client = PromiseClient(work.server)
    named = await client.call("wait", PromiseWish(at_once=True, idempotency_key="mine"))
    promise = await client.start("wait")
    await client.ask(CancelPromise(promise.token))
    store: Any = work.server.engine.store
    stored = b"".join(entry.data for entry in store._entries.values())
    names = "".join(owner + name for owner, name in store._entries)
    for token in (promise.token, named.token):
        assert token[5:] not in caplog.text + names and token[5:].encode() not in stored


# Names for calls


async def test_a_call_under_the_same_name_is_the_same_promise(work):
    client = PromiseClient(work.server, ANN)
    wish = PromiseWish(idempotency_key="once")
    first = await client.call("wait", wish, n=1)
    again = await client.call("wait", wish, n=1)
    assert again.token == first.token
    refused = await client.call("wait", wish, n=2)
    assert refused.fault is Fault.INVALID_PARAMS and "idempotency key" in refused.message
    assert (await PromiseClient(work.server, BOB).call("wait", wish, n=1)).token != first.token
    work.goes_on.set()
    assert text_of(await client.redeem(first)) == "waited 1"
    assert text_of(await client.call("wait", wish, n=1)) == "waited 1"
    assert work.started == 2, "Ann's and Bob's"


async def test_a_call_that_was_answered_at_once_is_not_run_again_under_its_name(work):
    client = PromiseClient(work.server)
    wish = PromiseWish(idempotency_key="once")
    assert text_of(await client.call("quick", wish, n=1)) == "quick 1"
    assert text_of(await client.call("quick", wish, n=1)) == "quick 1"
    assert work.started == 1


async def test_of_many_calls_under_one_name_one_runs(work):
    client = PromiseClient(work.server)
    wish = PromiseWish(at_once=True, idempotency_key="once")
    promises = await asyncio.gather(*(client.call("wait", wish, n=1) for _ in range(20)))
    assert len({promise.token for promise in promises}) == 1
    await wait_until(lambda: work.started == 1)
    assert len(work.queue.keys) == 1


async def test_a_name_that_is_too_long_is_refused(work):
    refused = await PromiseClient(work.server).call("wait", PromiseWish(idempotency_key="x" * 257))
    assert refused.fault is Fault.INVALID_PARAMS


# A store or a queue that fails


class DeadStore(MemoryStore):
    """A store that does not answer once it is dead."""

    is_dead = False

    async def get(self, owner: str, name: str) -> bytes | None:
        await self._live()
        return await super().get(owner, name)

    async def add(self, *entry: Any) -> bool:
        await self._live()
        return await super().add(*entry)

    async def _live(self) -> None:
        if self.is_dead:
            await asyncio.Event().wait()


async def test_a_dead_store_is_told_in_one_sentence():
    store = DeadStore()
    made = Work(store=store, limits=Limits(store_seconds=0.02))
    async with made.server.lifespan():
        client = PromiseClient(made.server)
        promise = await client.start("wait")
        store.is_dead = True
        for _ in range(3):
            refused = await client.call("wait")
            assert text_of(refused) == "wait was not called: promises cannot be stored now. Try again later."
            for ask in (RedeemPromise(promise.token, 30), GetPromise(promise.token), CancelPromise(promise.token)):
                failed = await client.ask(ask)
                assert failed.fault is Fault.OVERLOADED
                assert failed.message == "Promises cannot be reached now; try again in a few seconds."
        store.is_dead = False
        await made.queue.kill()


async def test_a_store_that_fails_while_a_call_runs_does_not_make_its_client_call_again(monkeypatch):
    monkeypatch.setattr("deltamcp.promises.store._BACKSTOP_SECONDS", 0.01)
    store = DeadStore()
    made = Work(store=store, limits=Limits(store_seconds=0.02))
    async with made.server.lifespan():
        client = PromiseClient(made.server)
        made.server.tool(made.wait, name="slow", promise="auto", sync_seconds=60)
        calling = asyncio.ensure_future(client.call("slow"))
        await wait_until(lambda: made.started == 1)
        store.is_dead = True
        promise = await calling
        assert isinstance(promise, Promise)
        store.is_dead = False
        made.goes_on.set()
        await until(lambda: _is_redeemed(client, promise))
        assert made.started == 1


async def _is_redeemed(client: PromiseClient, promise: Promise) -> bool:
    outcome = await client.redeem(promise)
    return not isinstance(outcome, Failure) and text_of(outcome) == "waited 0"


@pytest.mark.parametrize("key", [None, "my call"])
async def test_a_queue_that_fails_is_told_and_nothing_is_left(work, monkeypatch, key):
    async def refuse(key: str) -> None:
        raise ConnectionError("no queue")

    with monkeypatch.context() as patched:
        patched.setattr(work.queue, "enqueue", refuse)
        refused = await PromiseClient(work.server).call("quick", PromiseWish(idempotency_key=key), n=1)
    assert text_of(refused) == "quick was not called: calls cannot be queued now. Try again later."
    store: Any = work.server.engine.store
    assert not store._entries
    again = await PromiseClient(work.server).call("quick", PromiseWish(idempotency_key=key), n=1)
    assert text_of(again) == "quick 1"


async def test_a_call_that_runs_although_its_queue_failed_is_not_said_to_be_not_called(work, monkeypatch):
    enqueue = work.queue.enqueue

    async def time_out(key: str) -> None:
        await enqueue(key)
        await wait_until(lambda: work.started == 1)
        raise TimeoutError

    monkeypatch.setattr(work.queue, "enqueue", time_out)
    client = PromiseClient(work.server)
    promise = await client.call("wait", n=1)
    assert isinstance(promise, Promise)
    work.goes_on.set()
    assert text_of(await client.redeem(promise)) == "waited 1" and work.started == 1


async def test_arguments_that_cannot_be_stored_are_refused(work):
    async def echo(text: str) -> str:
        """Echoes."""
        return text

    work.server.tool(echo, promise="auto")
    failed = await PromiseClient(work.server).call("echo", text="\ud800")
    assert failed.fault is Fault.INVALID_PARAMS and "cannot be stored" in failed.message
