"""Runs of promised calls: each once, also where workers die, and with all that a call has."""

import asyncio
import contextlib
import datetime
import functools
import subprocess
import sys
from collections.abc import AsyncIterator
from typing import Any

import pytest
from msgspec.structs import replace

from deltamcp import Context, DeltaServer, Limits
from deltamcp.calls.observers import ObservedCall
from deltamcp.context import InputPending
from deltamcp.errors import Fault
from deltamcp.stores.store import StoreUnreachableError
from deltamcp.values import (
    ANONYMOUS,
    CancelPromise,
    Failure,
    GetPromise,
    Inputs,
    Principal,
    Promise,
    PromiseStatus,
    PromiseWish,
    RedeemPromise,
)
from tests.support.conditions import HANG_SECONDS, wait_until
from tests.support.promise_queue import PromiseClient, TaskQueue, code_of, promise_calls, queue_for, text_of
from tests.support.store_medium import until

S = PromiseStatus
ANN = Principal("ann", frozenset({"read"}))


class Worker:
    """A server whose tools wait until a test lets them go on."""

    def __init__(self, limits: Limits = Limits(), **options: Any) -> None:  # noqa: B008 - a value
        self.server = DeltaServer("work", limits=replace(limits, store_seconds=HANG_SECONDS), **options)
        self.goes_on = asyncio.Event()
        self.runs: list[tuple[str | None, int]] = []
        self.queue: TaskQueue = queue_for(self.server)
        self.server.tool(self.read, promise="auto", sync_seconds=0, annotations={"readOnlyHint": True})
        self.server.tool(self.write, promise="auto", sync_seconds=0)
        self.server.tool(self.again, promise="auto", sync_seconds=0, on_redelivery="rerun")
        self.client = PromiseClient(self.server, ANN)

    async def read(self, ctx: Context) -> str:
        """Reads."""
        return await self._run(ctx)

    async def write(self, ctx: Context) -> str:
        """Writes."""
        return await self._run(ctx)

    async def again(self, ctx: Context) -> str:
        """Writes, and may do so again."""
        return await self._run(ctx)

    async def _run(self, ctx: Context) -> str:
        self.runs.append((ctx.promise_id, ctx.attempt))
        await self.goes_on.wait()
        return f"run {ctx.attempt}"

    def has_begun(self, count: int) -> bool:
        return len(self.runs) == count

    async def die(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Ends the runs as a killed process does: without a trace in their records."""
        runs = promise_calls(self.server)._runs

        async def nothing(*run: Any) -> None: ...

        with monkeypatch.context() as patched:
            patched.setattr(runs, "_give_up", nothing)
            await self.queue.kill()
        replica = self.server.engine.replica
        if replica is not None:
            await replica.store.delete(replica._owner, replica.id)


@pytest.fixture
async def worker() -> AsyncIterator[Worker]:
    made = Worker()
    async with made.server.lifespan():
        yield made
        await made.queue.kill()


@pytest.fixture
def soon(monkeypatch) -> None:
    """A worker is doubted at once."""
    monkeypatch.setattr("deltamcp.promises.runs._SIGN_SECONDS", 0.0)
    monkeypatch.setattr("deltamcp.promises.runs._LOOK_SECONDS", 0.02)


# One run


async def test_a_key_that_comes_twice_runs_once(worker):
    promise = await worker.client.start("write")
    await wait_until(lambda: worker.runs != [])
    for _ in range(5):
        worker.queue.work(worker.queue.keys[0])
    worker.goes_on.set()
    assert text_of(await worker.client.redeem(promise)) == "run 1" and len(worker.runs) == 1
    worker.queue.work(worker.queue.keys[0])
    await wait_until(lambda: not worker.queue.tasks)
    assert len(worker.runs) == 1


async def test_a_key_of_an_unknown_promise_does_nothing(worker):
    await promise_calls(worker.server).run(f"{'0' * 64}.1")
    assert not worker.runs


async def test_a_function_knows_the_promise_and_the_run_but_not_the_token(worker):
    promise = await worker.client.start("write")
    worker.goes_on.set()
    await worker.client.redeem(promise)
    ((id_, attempt),) = worker.runs
    assert id_ is not None and promise.token[5:] not in id_ and attempt == 1
    assert id_ not in worker.queue.keys[0]
    assert text_of(await worker.client.call("write", None)) == "run 1"
    assert worker.runs[-1] == (None, 1), "a client that waits has no promise"


async def test_a_run_has_a_deadline_of_its_own():
    made = Worker(limits=Limits(handler_seconds=0.01, promise_seconds=0.05))
    async with made.server.lifespan():
        outcome = await made.client.redeem(await made.client.start("write"))
        assert code_of(outcome) == "TIMEOUT"


async def test_a_result_that_is_too_large_is_told():
    made = Worker(limits=Limits(promise_result_bytes=1000))

    async def large() -> str:
        """Large."""
        return "x" * 2000

    made.server.tool(large, promise="auto")
    async with made.server.lifespan():
        outcome = await made.client.redeem(await made.client.start("large"))
    assert code_of(outcome) == "RESULT_TOO_LARGE" and "2,0" in text_of(outcome)


async def test_a_result_that_cannot_be_stored_is_told(worker, caplog):
    async def broken() -> str:
        """Broken."""
        return "\ud800"

    worker.server.tool(broken, promise="auto")
    outcome = await worker.client.redeem(await worker.client.start("broken"))
    assert outcome.value.is_error


async def test_an_answer_that_only_the_function_can_judge_is_asked_for_again(worker):
    async def plan(ctx: Context) -> str:
        """Asks for a day that its form cannot describe."""
        day = await ctx.elicit("Day?", datetime.date, key="day")
        return f"{day.content:%d %B}, run {ctx.attempt}"

    worker.server.tool(plan, promise="auto")
    promise = await worker.client.redeem(await worker.client.start("plan"))
    for _ in range(2):
        again = await worker.client.ask(RedeemPromise(promise.token, 30, Inputs(fields={"value": "soon"})))
        assert again.requests["day"].params["message"].startswith("Day? The client's answer does not fit the form: ")
    outcome = await worker.client.ask(RedeemPromise(promise.token, 30, Inputs(fields={"value": "2027-02-01"})))
    assert text_of(outcome) == "01 February, run 4"


async def test_a_question_that_cannot_be_sent_ends_the_call(worker, caplog):
    async def garble(ctx: Context) -> str:
        """Asks what is no text."""
        await ctx.elicit("\ud800?", str)
        return "not reached"

    worker.server.tool(garble, promise="auto")
    outcome = await worker.client.redeem(await worker.client.start("garble"))
    assert outcome.fault is Fault.INTERNAL and outcome.message.startswith("A question of the tool garble failed (error")
    assert "lone surrogate" in caplog.text


async def test_a_message_that_is_no_text_does_not_keep_later_progress_from_clients(worker, monkeypatch):
    monkeypatch.setattr("deltamcp.promises.runs._PROGRESS_SECONDS", 0.01)

    async def steps(ctx: Context) -> str:
        """Reports."""
        await ctx.report_progress(1, 4, "\ud800")
        await asyncio.sleep(0.05)
        await ctx.report_progress(2, 4, "two")
        await worker.goes_on.wait()
        return "done"

    worker.server.tool(steps, promise="auto")
    promise = await worker.client.start("steps")

    async def is_told() -> bool:
        value: Promise = (await worker.client.ask(GetPromise(promise.token))).value
        return value.message == "two"

    await until(is_told)
    worker.goes_on.set()


async def test_a_tool_that_waits_for_no_answer_is_told_as_the_authors_mistake(worker):
    async def confused() -> str:
        """Asks nothing."""
        raise InputPending({})

    worker.server.tool(confused, promise="auto")
    outcome = await worker.client.redeem(await worker.client.start("confused"))
    assert isinstance(outcome, Failure) and outcome.message == "The tool waits for answers, but asked nothing."


async def test_scopes_that_are_gone_when_the_call_runs_count(worker):
    worker.queue.is_open = False
    promise = await worker.client.start("read")
    worker.server.remove_tool("read")
    worker.server.tool(worker.read, promise="auto", scopes=["admin"])
    worker.queue.open()
    outcome = await worker.client.redeem(promise)
    assert isinstance(outcome, Failure) and outcome.fault is Fault.INSUFFICIENT_SCOPE and not worker.runs


class Observer:
    is_active = True

    def __init__(self) -> None:
        self.events: list[tuple[str, str]] = []
        self.headers: list[dict[bytes, bytes]] = []

    def call_started(self, call: ObservedCall) -> None:
        self.events.append(("started", call.name))
        self.headers.append(dict(call.headers))

    def call_finished(self, call: ObservedCall) -> None:
        self.events.append(("finished", type(call.outcome).__name__))


async def test_observers_see_a_call_once_where_it_runs_with_its_trace(worker):
    observer = Observer()
    worker.server.engine.add_observer(observer)
    worker.goes_on.set()
    worker.client.channel.headers = {b"traceparent": b"00-abc", b"authorization": b"secret"}
    await worker.client.redeem(await worker.client.start("write"))
    assert observer.events == [("started", "write"), ("finished", "Answer")]
    assert observer.headers == [{b"traceparent": b"00-abc"}]
    refused = await worker.client.call("write", n=1)
    assert code_of(refused) == "INVALID_PARAMS"
    assert observer.events[2:] == [("started", "write"), ("finished", "Answer")]


async def test_a_mounted_tool_gives_promises(worker):
    outer = Worker()
    outer.server.mount(worker.server, "inner")
    worker.goes_on.set()
    async with outer.server.lifespan():
        assert text_of(await outer.client.redeem(await outer.client.start("inner_write"))) == "run 1"
        await outer.queue.kill()


# Workers that die


@pytest.mark.parametrize("tool", ["read", "again"])
async def test_ml_43_a_call_that_may_run_again_does_after_its_worker_died(worker, soon, monkeypatch, tool):
    promise = await worker.client.start(tool)
    await wait_until(lambda: len(worker.runs) == 1)
    await worker.die(monkeypatch)
    status = (await worker.client.ask(GetPromise(promise.token))).value.status
    assert status in (S.QUEUED, S.WORKING)
    worker.goes_on.set()
    assert text_of(await worker.client.redeem(promise)) == "run 2"
    (first, _), (second, attempt) = worker.runs
    assert first == second and attempt == 2, "the author knows that it is the same call"


async def test_a_call_that_kills_its_workers_is_not_run_for_ever(worker, soon, monkeypatch):
    promise = await worker.client.start("again")
    for run in range(1, 5):
        await wait_until(functools.partial(worker.has_begun, run))
        await worker.die(monkeypatch)
        await worker.client.ask(GetPromise(promise.token))
    outcome = await worker.client.redeem(promise)
    assert code_of(outcome) == "OUTCOME_UNKNOWN" and "every worker that ran it died" in text_of(outcome)
    assert len(worker.runs) == 4


async def test_a_call_whose_workers_stop_in_order_runs_until_it_ends(worker):
    promise = await worker.client.start("again")
    for run in range(1, 7):
        await wait_until(functools.partial(worker.has_begun, run))
        await worker.queue.kill()
    worker.goes_on.set()
    assert text_of(await worker.client.redeem(promise)) == "run 7"


async def test_ml_43_another_call_ends_as_unknown(worker, soon, monkeypatch):
    promise = await worker.client.start("write")
    await wait_until(lambda: len(worker.runs) == 1)
    await worker.die(monkeypatch)
    outcome = await worker.client.redeem(promise)
    assert code_of(outcome) == "OUTCOME_UNKNOWN" and outcome == await worker.client.redeem(promise)
    worker.queue.work(worker.queue.keys[0])
    await wait_until(lambda: not worker.queue.tasks)
    assert len(worker.runs) == 1


@pytest.mark.parametrize(("tool", "runs"), [("read", 2), ("write", 1)])
async def test_a_worker_that_is_given_a_dead_ones_run_decides_without_anybody_asking(
    worker, soon, monkeypatch, tool, runs
):
    promise = await worker.client.start(tool)
    await wait_until(lambda: len(worker.runs) == 1)
    await worker.die(monkeypatch)
    worker.goes_on.set()
    worker.queue.work(worker.queue.keys[0])
    await wait_until(lambda: not worker.queue.tasks)
    assert len(worker.runs) == runs
    outcome = (await worker.client.ask(GetPromise(promise.token))).value.outcome
    assert code_of(outcome) == (None if runs == 2 else "OUTCOME_UNKNOWN")


async def test_the_next_run_of_a_call_may_begin_before_the_worker_is_done_with_the_last(worker, soon, monkeypatch):
    await worker.client.start("read")
    await wait_until(lambda: len(worker.runs) == 1)
    await worker.die(monkeypatch)
    enqueue = worker.queue.enqueue

    async def take_at_once(key: str) -> None:
        await enqueue(key)
        await asyncio.sleep(0)

    monkeypatch.setattr(worker.queue, "enqueue", take_at_once)
    worker.queue.work(worker.queue.keys[0])
    await wait_until(lambda: len(worker.runs) == 2)


@pytest.mark.parametrize(("tool", "status"), [("read", S.QUEUED), ("write", S.COMPLETED)])
async def test_a_worker_that_stops_gives_its_runs_back(worker, tool, status):
    promise = await worker.client.start(tool)
    await wait_until(lambda: len(worker.runs) == 1)
    worker.queue.is_open = False
    await worker.queue.kill()
    snapshot = (await worker.client.ask(GetPromise(promise.token))).value
    assert snapshot.status is status
    if status is S.QUEUED:
        assert len(worker.queue.keys) == 2, "another one has it"
    else:
        assert code_of(snapshot.outcome) == "OUTCOME_UNKNOWN"


async def test_a_cancelled_call_whose_worker_died_is_cancelled(worker, soon, monkeypatch):
    monkeypatch.setattr("deltamcp.promises.asks._CANCEL_SECONDS", 0.01)
    promise = await worker.client.start("read")
    await wait_until(lambda: len(worker.runs) == 1)
    monkeypatch.setattr("deltamcp.promises.runs._SIGN_SECONDS", 1e6)
    await worker.die(monkeypatch)
    cancelling = (await worker.client.ask(CancelPromise(promise.token))).value
    assert cancelling.status is S.WORKING and cancelling.message == "Cancelling."
    monkeypatch.setattr("deltamcp.promises.runs._SIGN_SECONDS", 0.0)
    assert code_of(await worker.client.redeem(promise)) == "CANCELLED"


async def test_ml_42_a_call_that_was_stored_but_never_queued_is_queued_when_somebody_asks(worker, monkeypatch):
    worker.queue.is_open = False
    promise = await worker.client.start("write")
    worker.queue.keys.clear()  # as if the process had died between the two
    worker.queue.is_open = True
    worker.goes_on.set()
    assert (await worker.client.redeem(promise, 0)).status is S.QUEUED
    monkeypatch.setattr(worker.queue, "lost_seconds", 0.0)
    assert text_of(await worker.client.redeem(promise)) == "run 1"


async def test_a_store_that_is_away_when_a_call_ends_gets_its_outcome_later(worker, monkeypatch):
    monkeypatch.setattr("deltamcp.promises.runs.STORE_RETRIES", (0.01,) * 5)
    promise = await worker.client.start("write")
    await wait_until(lambda: len(worker.runs) == 1)
    store: Any = worker.server.engine.store
    failures = iter([StoreUnreachableError("away")] * 3)
    put, replace = store.put, store.replace

    def failing(work: Any) -> Any:
        async def fail(*entry: Any) -> Any:
            for error in failures:
                raise error
            return await work(*entry)

        return fail

    monkeypatch.setattr(store, "put", failing(put))
    monkeypatch.setattr(store, "replace", failing(replace))
    worker.goes_on.set()
    assert text_of(await worker.client.redeem(promise)) == "run 1"


async def test_a_store_that_is_away_when_a_run_begins_does_not_fail_the_call(worker, monkeypatch):
    monkeypatch.setattr("deltamcp.promises.runs.STORE_RETRIES", (0.01,) * 5)
    store = promise_calls(worker.server).store
    read_call, failures = store.read_call, iter([StoreUnreachableError("away")] * 3)

    async def read_late(*call: Any) -> Any:
        for failure in failures:
            raise failure
        return await read_call(*call)

    monkeypatch.setattr(store, "read_call", read_late)
    worker.goes_on.set()
    assert text_of(await worker.client.redeem(await worker.client.start("write"))) == "run 1"


async def test_a_call_that_its_account_had_no_room_for_is_told_so(worker, caplog):
    worker.queue.is_open = False
    promise = await worker.client.start("write")
    store: Any = promise_calls(worker.server).store
    (key,) = store._recent_calls._values
    found = await store.read(key)
    await store.delete_call(key, found)
    worker.queue.open()
    outcome = await worker.client.redeem(promise)
    assert text_of(outcome) == "write did not run: your other calls took its room in the store. Call it again."
    assert outcome.value.error.retryable and not worker.runs


async def test_a_run_goes_on_where_the_store_has_lost_its_record(worker, monkeypatch):
    monkeypatch.setattr("deltamcp.promises.store._BACKSTOP_SECONDS", 0.01)
    steps: list[str] = []

    async def careful() -> str:
        """Must not be interrupted."""
        steps.append("begun")
        await worker.goes_on.wait()
        steps.append("ended")
        return "x"

    worker.server.tool(careful, promise="auto")
    promise = await worker.client.start("careful")
    await wait_until(lambda: steps == ["begun"])
    await worker.server.engine.store.close()  # one in memory forgets everything
    assert (await worker.client.redeem(promise)).fault is Fault.PROMISE_UNKNOWN
    await asyncio.sleep(0.05)
    worker.goes_on.set()
    await wait_until(lambda: not worker.queue.tasks)
    assert steps == ["begun", "ended"]


async def test_a_start_whose_answer_was_lost_is_a_start(worker, monkeypatch):
    monkeypatch.setattr("deltamcp.promises.runs.STORE_RETRIES", (0.01,) * 5)
    store: Any = worker.server.engine.store
    replace = store.replace
    lost: list[Any] = []

    async def lose(*entry: Any) -> bool:
        replaced: bool = await replace(*entry)
        if not lost:
            lost.append(entry)
            raise StoreUnreachableError("the answer was lost")
        return replaced

    monkeypatch.setattr(store, "replace", lose)
    worker.goes_on.set()
    assert text_of(await worker.client.redeem(await worker.client.start("write"))) == "run 1"
    assert lost and len(worker.runs) == 1


# Several processes


@pytest.fixture(params=["sqlite", "redis"])
def url(request, tmp_path) -> str:
    if request.param == "redis":
        return str(request.getfixturevalue("redis_url"))
    return f"sqlite:///{tmp_path}/store.db"


@contextlib.asynccontextmanager
async def replicas(url: str, count: int, **options: Any) -> AsyncIterator[list[Worker]]:
    made = [Worker(store=url, **options) for _ in range(count)]
    async with contextlib.AsyncExitStack() as stack:
        for one in made:
            await stack.enter_async_context(one.server.lifespan())
            assert one.server.engine.promise_calls is not None
        yield made
        for one in made:
            await one.queue.kill()


async def test_ml_42_another_replica_redeems_a_token_as_soon_as_it_is_given(url):
    async with replicas(url, 2) as (one, other):
        one.queue.is_open = False
        for _ in range(100):
            promise = await one.client.call("write", PromiseWish(at_once=True))
            found = await other.client.redeem(promise, 0)
            assert isinstance(found, Promise) and found.status is S.QUEUED and found.token == promise.token


async def test_ml_43_any_replica_redeems_answers_and_cancels(url):
    async with replicas(url, 2) as (one, other):
        promise = await one.client.start("write")
        waiting = asyncio.create_task(other.client.redeem(promise))
        await wait_until(lambda: len(one.runs) == 1)
        one.goes_on.set()
        assert text_of(await waiting) == "run 1"
        one.goes_on.clear()
        promise = await one.client.start("write")
        await wait_until(lambda: len(one.runs) == 2)
        assert (await other.client.ask(CancelPromise(promise.token))).value.status is S.CANCELLED
        await wait_until(lambda: not one.queue.tasks)


async def test_ml_43_a_dead_replicas_promises_live_on(url, soon, monkeypatch):
    async with replicas(url, 2) as (one, other):
        other.goes_on.set()
        rerun, lost = await one.client.start("read"), await one.client.start("write")
        await wait_until(lambda: len(one.runs) == 2)
        await one.die(monkeypatch)
        assert text_of(await other.client.redeem(rerun)) == "run 2"
        assert code_of(await other.client.redeem(lost)) == "OUTCOME_UNKNOWN"
        assert [attempt for _, attempt in other.runs] == [2]


async def test_of_two_replicas_that_are_given_a_run_one_performs_it(url):
    async with replicas(url, 2) as (one, other):
        one.queue.is_open = False
        promises = [await one.client.start("write") for _ in range(10)]
        for key in one.queue.keys:
            one.queue.work(key)
            other.queue.work(key)
        for worker in (one, other):
            worker.goes_on.set()
        outcomes = await asyncio.gather(*(other.client.redeem(promise) for promise in promises))
        assert [text_of(outcome) for outcome in outcomes] == ["run 1"] * 10
        assert len(one.runs) + len(other.runs) == 10


async def test_ml_60_every_request_may_reach_another_replica(url):
    async with replicas(url, 3) as workers:
        for worker in workers:

            async def order(ctx: Context) -> str:
                """Asks twice."""
                city = await ctx.elicit("City?", str, key="city")
                day = await ctx.elicit("Day?", str, key="day")
                return f"{city.content} {day.content}"

            worker.server.tool(order, promise="auto")
        one, two, three = (worker.client for worker in workers)
        promise = await one.start("order")
        assert list((await two.redeem(promise)).requests) == ["city"]
        first = Inputs({"city": {"action": "accept", "content": {"value": "Oslo"}}})
        assert list((await three.ask(RedeemPromise(promise.token, 30, first))).requests) == ["day"]
        second = Inputs({"day": {"action": "accept", "content": {"value": "Friday"}}})
        assert text_of(await two.ask(RedeemPromise(promise.token, 30, second))) == "Oslo Friday"
        assert text_of(await one.redeem(promise)) == "Oslo Friday"


KILLED = """
import asyncio, sys
from deltamcp import DeltaServer, Limits, replicas
from deltamcp.values import ANONYMOUS
from tests.support.promise_queue import PromiseClient, queue_for

replicas._ALIVE_SECONDS, replicas._SIGN_SECONDS = 2.0, 0.5

async def main():
    server = DeltaServer("work", store=sys.argv[1], limits=Limits(store_seconds=100))
    queue_for(server)

    async def read() -> str:
        "Reads."
        print("started", flush=True)
        await asyncio.sleep(1000)
        return "never"

    server.tool(read, promise="auto", sync_seconds=0, annotations={"readOnlyHint": True})
    async with server.lifespan():
        promise = await PromiseClient(server, ANONYMOUS).start("read")
        print(promise.token, flush=True)
        await asyncio.sleep(1000)

asyncio.run(main())
"""


async def test_ml_43_killing_the_process_that_gave_the_token_does_not_lose_the_promise(url, soon):
    child = await asyncio.create_subprocess_exec(sys.executable, "-c", KILLED, url, stdout=subprocess.PIPE)
    assert child.stdout is not None
    lines = {(await child.stdout.readline()).decode().strip() for _ in range(2)}
    child.kill()
    await child.wait()
    (token,) = lines - {"started"}
    async with replicas(url, 1) as (one,):
        one.goes_on.set()
        client = PromiseClient(one.server, ANONYMOUS)
        outcome: Any = None
        async with asyncio.timeout(HANG_SECONDS):
            while outcome is None or isinstance(outcome, Promise):
                outcome = await client.ask(RedeemPromise(token, 30))
        assert text_of(outcome) == "run 2"
