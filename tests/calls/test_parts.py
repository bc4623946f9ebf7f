"""Tools that yield the parts of their results."""

import asyncio
import functools
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltamcp import Context, DeltaServer, Depends, FunctionCall, Limits, Text, ToolFailure, connect
from deltamcp.calls.function_runner import join_parts
from deltamcp.values import ANONYMOUS_CALLER, CallTool, Era, Terms
from tests.support.conditions import wait_until
from tests.support.engine_calls import SilentChannel


class PartsChannel(SilentChannel):
    """A client that takes parts, one at a time if it `waits`."""

    def __init__(self) -> None:
        self.parts: list[Any] = []
        self.may_read = asyncio.Event()
        self.may_read.set()

    async def send_part(self, part: Any) -> None:
        await self.may_read.wait()
        self.parts.append(part)


def call(server: Any, tool: str, channel: PartsChannel, **arguments: Any) -> "asyncio.Task[Any]":
    terms = Terms(Era.MODERN, "2026-07-28", {}, {}, {}, caller=ANONYMOUS_CALLER)
    return asyncio.ensure_future(server.engine.perform(CallTool(tool, arguments), terms, channel, 1))


async def words_async(count: int) -> AsyncIterator[str]:
    for at in range(count):
        await asyncio.sleep(0)
        yield f"{at} "


def words_plain(count: int) -> Iterator[str]:
    for at in range(count):
        yield f"{at} "


class CallableWords:
    async def __call__(self, count: int) -> AsyncIterator[str]:
        for at in range(count):
            yield f"{at} "


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "async": words_async,
    "plain": words_plain,
    "object": CallableWords(),
    "partial": functools.partial(words_plain),
}


@pytest.mark.parametrize("kind", FUNCTIONS)
async def test_ml_53_the_result_is_the_parts_put_together(kind):
    server = DeltaServer("x")
    server.tool(FUNCTIONS[kind], name="words", description="Counts.")
    channel = PartsChannel()
    outcome = await call(server, "words", channel, count=3)
    assert channel.parts == ["0 ", "1 ", "2 "]
    assert outcome.value.content == [Text("0 1 2 ")]
    assert "outputSchema" not in server.engine.catalog.operations["words"].tool


@given(st.lists(st.text()))
def test_ml_53_texts_are_concatenated(parts):
    assert join_parts(parts) == "".join(parts)


@given(st.lists(st.one_of(st.text(), st.integers(), st.dictionaries(st.text(), st.integers()))))
def test_ml_53_other_parts_are_a_list(parts):
    assert join_parts([*parts, 1]) == [*parts, 1]


@pytest.mark.parametrize("kind", ["async", "plain"])
async def test_a_tool_does_not_run_ahead_of_a_slow_reader(kind):
    made: list[int] = []
    began = threading.Event()
    server = DeltaServer("x")

    async def numbers_async() -> AsyncIterator[int]:
        for at in range(100):
            made.append(at)
            began.set()
            yield at

    def numbers_plain() -> Iterator[int]:
        for at in range(100):
            made.append(at)
            began.set()
            yield at

    server.tool({"async": numbers_async, "plain": numbers_plain}[kind], name="numbers", description="Counts.")
    channel = PartsChannel()
    channel.may_read.clear()
    task = call(server, "numbers", channel)
    assert await asyncio.to_thread(began.wait, 5)
    await asyncio.sleep(0.02)
    assert made == [0]
    channel.may_read.set()
    outcome = await task
    assert channel.parts == list(range(100)) and outcome.value.structured is not None


@pytest.mark.parametrize("kind", ["async", "plain", "async with dependency", "plain with dependency"])
async def test_ml_52_a_cancelled_call_closes_the_generator(kind):
    closed, began = threading.Event(), threading.Event()
    server = DeltaServer("x")
    dependency = {"resource": Depends(lambda: 1)} if "dependency" in kind else {}

    async def endless_async(resource: int = dependency.get("resource", 0)) -> AsyncIterator[str]:
        try:
            while True:
                began.set()
                yield "x"
                await asyncio.sleep(0.001)
        finally:
            closed.set()

    def endless_plain(resource: int = dependency.get("resource", 0)) -> Iterator[str]:
        try:
            while True:
                began.set()
                yield "x"
        finally:
            closed.set()

    server.tool(endless_async if "async" in kind else endless_plain, name="endless", description="Never ends.")
    task = call(server, "endless", PartsChannel())
    assert await asyncio.to_thread(began.wait, 5)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await asyncio.to_thread(closed.wait, 5)


@pytest.mark.parametrize("kind", ["async", "plain"])
async def test_a_deadline_closes_the_generator(kind):
    closed = threading.Event()
    server = DeltaServer("x")

    async def slow_async() -> AsyncIterator[str]:
        try:
            yield "x"
            await asyncio.sleep(60)
        finally:
            closed.set()

    def slow_plain(ctx: Context) -> Iterator[str]:
        try:
            while True:
                yield "x"
        finally:
            closed.set()

    functions: dict[str, Callable[..., Any]] = {"async": slow_async, "plain": slow_plain}
    server.tool(functions[kind], name="slow", description="Slow.", timeout=0.05)
    outcome = await call(server, "slow", PartsChannel())
    assert outcome.value.error.code == "TIMEOUT"
    assert await asyncio.to_thread(closed.wait, 5)


async def test_a_failure_after_parts_is_the_result():
    server = DeltaServer("x")

    @server.tool
    async def pay() -> AsyncIterator[str]:
        """Pays."""
        yield "asking the bank"
        raise ToolFailure("CARD_DECLINED", "No.")

    channel = PartsChannel()
    outcome = await call(server, "pay", channel)
    assert channel.parts == ["asking the bank"] and outcome.value.error.code == "CARD_DECLINED"


async def test_dependencies_stay_open_until_the_last_part_and_middleware_gets_the_value():
    events: list[str] = []

    def connection() -> Iterator[str]:
        events.append("open")
        yield "db"
        events.append("close")

    async def shout(one: FunctionCall, call_next: Any) -> Any:
        value = await call_next(one)
        events.append(f"value {value}")
        return value.upper()

    server = DeltaServer("x", middleware=[shout])

    @server.tool
    def rows(db: str = Depends(connection)) -> Iterator[str]:
        """Reads rows."""
        for at in range(2):
            events.append(f"row {at}")
            yield f"{db}{at}"

    outcome = await call(server, "rows", PartsChannel())
    assert events == ["open", "row 0", "row 1", "close", "value db0db1"]
    assert outcome.value.content == [Text("DB0DB1")]


async def test_mcp_clients_get_the_whole_result():
    server = DeltaServer("x")
    server.tool(words_async)
    server.tool(words_plain)

    @server.tool
    def blocks() -> Iterator[Text]:
        """Two blocks."""
        yield Text("a")
        yield Text("b")

    async with connect(server) as client:
        assert await client.call("words_async", count=2) == "0 1 "
        assert await client.call("words_plain", count=2) == "0 1 "
        assert (await client.call_tool("blocks", {})).result().content == [Text("a"), Text("b")]


async def test_a_mounted_generator_yields_too():
    inner = DeltaServer("inner")
    inner.tool(words_plain)
    outer = DeltaServer("outer")
    outer.mount(inner, "in")
    channel = PartsChannel()
    outcome = await call(outer, "in_words_plain", channel, count=2)
    assert channel.parts == ["0 ", "1 "] and outcome.value.content == [Text("0 1 ")]


async def test_a_generator_that_never_waits_ends_at_the_part_after_its_client_has_left():
    made: list[int] = []
    server = DeltaServer("x")

    @server.tool
    async def numbers() -> AsyncIterator[int]:
        """Counts."""
        for at in range(1_000):
            made.append(at)
            yield at

    class LeavingChannel(PartsChannel):
        async def send_part(self, part: Any) -> None:
            if part == 5:
                asyncio.get_running_loop().call_soon(task.cancel)

    task = call(server, "numbers", LeavingChannel())
    with pytest.raises(asyncio.CancelledError):
        await task
    assert made == list(range(6))


async def test_generators_that_never_wait_take_turns():
    order: list[str] = []
    server = DeltaServer("x")

    @server.tool
    async def repeat(name: str) -> AsyncIterator[str]:
        """Repeats a name."""
        for _ in range(3):
            order.append(name)
            yield name

    await asyncio.gather(*(call(server, "repeat", PartsChannel(), name=name) for name in "ab"))
    assert order == list("ababab")


def endless_server(kind: str, made: list[Any], part: Any = "x" * 936) -> DeltaServer:
    """A server with a tool that never ends; an account may have 10 of its parts, each of 1,000 bytes."""
    server = DeltaServer("x", limits=Limits(response_bytes=20_000, account_share=0.5))

    async def endless_async() -> AsyncIterator[Any]:
        while True:
            made.append(part)
            yield part

    def endless_plain() -> Iterator[Any]:
        while True:
            made.append(part)
            yield part

    server.tool({"async": endless_async, "plain": endless_plain}[kind], name="endless", description="Never ends.")
    return server


@pytest.mark.parametrize("kind", ["async", "plain"])
@pytest.mark.parametrize("part", ["x" * 936, ["x" * 932]])
async def test_a_call_whose_parts_have_more_than_the_bound_fails(kind, part):
    made: list[Any] = []
    server = endless_server(kind, made, part)
    for _ in range(2):  # what the first one had is free again
        made.clear()
        outcome = await call(server, "endless", PartsChannel())
        assert outcome.value.is_error
        assert outcome.value.content == [Text("The result has more than 10000 bytes; ask for less at once.")]
        assert len(made) == 11


@pytest.mark.parametrize("kind", ["async", "plain"])
async def test_the_parts_of_an_account_are_bounded_in_all_its_calls(kind):
    made: list[Any] = []
    server = endless_server(kind, made)
    channels = [PartsChannel() for _ in range(20)]
    for channel in channels:
        channel.may_read.clear()
    tasks = [call(server, "endless", channel) for channel in channels]
    await wait_until(lambda: len(made) == 20)
    quota = server.engine._tool_calls._runner._parts.quota
    await wait_until(lambda: quota.held == 10_000)  # ten calls have a part, and ten wait
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    for channel in channels:
        channel.may_read.set()
    await wait_until(lambda: quota.held == 0)
