"""Results that wait for a computation: how many there are at once, in which order, and who left them behind."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from deltamcp import DeltaServer, Limits, ResultPolicy
from deltamcp.delivery import delivery
from deltamcp.delivery.delivery import HeldResults
from deltamcp.runtime.quota import HttpQuotas
from deltamcp.runtime.threads import Computations
from deltamcp.transports.http.reply import CallsInFlight
from deltamcp.values import ANONYMOUS, Caller, CallTool, Era, ResultShape, Terms
from tests.support.engine_calls import SilentChannel

LARGE = "word " * 600_000
"""3 MB, of which an account may hold three before its next call waits."""
ANN, BOB = (Caller(ANONYMOUS, None, True, name) for name in ("ann", "bob"))


class Reply(SilentChannel):
    """A client that may leave while its call waits."""

    departed = False

    def __init__(self, account: str) -> None:
        self.account = account
        self.exchange = SimpleNamespace(quotas=HttpQuotas(Limits()))
        self.task: asyncio.Task[Any] | None = None

    def on_wait(self) -> None:
        self.task = asyncio.current_task()

    def on_end(self) -> None:
        self.task = None

    def leave(self) -> None:
        assert self.task is not None, "nobody watches this client"
        self.departed = True
        self.task.cancel()


class Library:
    """A server with one tool, whose results are computed only when they may be."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, value: Any = LARGE, steps: int = 0) -> None:
        self.server = DeltaServer("library")
        self.runs = 0
        self.computes = asyncio.Event()
        compute = Computations.run

        async def wait(computations: Computations, *arguments: Any) -> Any:
            await self.computes.wait()
            return await compute(computations, *arguments)

        monkeypatch.setattr(Computations, "run", wait)

        @self.server.tool(results=ResultPolicy(max_tokens=100))
        async def read() -> Any:
            self.runs += 1
            for _ in range(steps):
                await asyncio.sleep(0)
            return value

        self.calls = CallsInFlight(self.server.engine)

    @property
    def held(self) -> HeldResults:
        return self.server.engine._tool_calls._held

    def call(self, caller: Caller, reply: Reply | None = None, shape: ResultShape = ResultShape.MCP) -> Any:
        terms = Terms(Era.MODERN, "2026-07-28", {}, {}, {}, caller=caller, result_shape=shape)
        channel: Any = reply or Reply(caller.account)
        performing = self.calls.perform((terms, CallTool("read", {})), channel, 1)
        return asyncio.ensure_future(performing)


async def pass_time(iterations: int = 300) -> None:
    for _ in range(iterations):
        await asyncio.sleep(0)


@pytest.mark.parametrize("shape", [ResultShape.MCP, ResultShape.MCP_LITE, ResultShape.DELTA_MCP])
async def test_calls_wait_before_their_functions_run_while_results_of_their_account_wait(monkeypatch, shape):
    library = Library(monkeypatch)
    calls = [library.call(ANN, shape=shape) for _ in range(20)]
    await pass_time()
    assert library.runs == 3
    assert library.held.bytes == 3 * len(LARGE)
    library.computes.set()
    outcomes = await asyncio.gather(*calls)
    assert library.runs == 20
    assert not any(outcome.value.is_error for outcome in outcomes)
    assert library.held.bytes == 0


async def test_results_of_one_account_keep_no_other_waiting(monkeypatch):
    library = Library(monkeypatch)
    calls = [library.call(ANN) for _ in range(20)]
    await pass_time()
    calls.append(library.call(BOB))
    await asyncio.sleep(0)
    assert library.runs == 4
    library.computes.set()
    await asyncio.gather(*calls)


async def test_what_slow_functions_return_is_not_encoded_while_results_of_their_account_wait(monkeypatch):
    library = Library(monkeypatch, steps=30)
    calls = [library.call(ANN) for _ in range(20)]
    await pass_time()
    assert library.runs == 20  # none of them had returned
    assert library.held.bytes == 3 * len(LARGE)
    library.computes.set()
    await asyncio.gather(*calls)
    assert library.held.bytes == 0


async def test_small_results_are_not_counted_and_wait_for_nobody(monkeypatch):
    library = Library(monkeypatch, value="word")
    calls = [library.call(ANN) for _ in range(20)]
    await asyncio.sleep(0)
    assert (library.runs, library.held.bytes) == (20, 0)
    library.computes.set()
    await asyncio.gather(*calls)


async def test_a_client_that_leaves_while_its_result_waits_frees_it_at_once(monkeypatch):
    library = Library(monkeypatch)
    replies = [Reply(ANN.account) for _ in range(20)]
    calls = [library.call(ANN, reply) for reply in replies]
    await pass_time()
    for reply in replies:
        reply.leave()
    assert await asyncio.gather(*calls) == [None] * 20
    assert (library.runs, library.held.bytes) == (3, 0)
    await pass_time()
    assert not library.held.must_wait(ANN.account)


async def test_who_has_a_value_comes_before_who_has_none():
    held, order = HeldResults(), []

    async def wait(name: str, returned: bool) -> None:
        await held.take_turn("ann", returned=returned)
        order.append(name)

    with held.hold("ann", delivery._BYTES_PER_ACCOUNT):
        waiting = [asyncio.ensure_future(wait(f"{at}", at >= 3)) for at in range(6)]
        await pass_time()
        waiting[1].cancel()
        waiting[4].cancel()
        await pass_time()
        assert order == []
    await asyncio.gather(*waiting, return_exceptions=True)
    assert order == ["3", "5", "0", "2"]


async def test_beyond_the_bound_of_all_every_account_has_one_result_at_a_time():
    held = HeldResults()
    with held.hold("ann", delivery._BYTES), held.hold("bob", delivery._COUNTED_BYTES):
        bob = asyncio.ensure_future(held.take_turn("bob", returned=False))
        await pass_time()
        assert not bob.done()
        assert not held.must_wait("carol")
    await bob


def test_what_waited_in_another_event_loop_is_forgotten():
    held = HeldResults()

    async def leave() -> None:
        waiting = asyncio.ensure_future(held.take_turn("ann", returned=False))
        await asyncio.sleep(0)
        assert not waiting.done()

    asyncio.run(leave())
    asyncio.run(asyncio.wait_for(held.take_turn("ann", returned=False), 10))
