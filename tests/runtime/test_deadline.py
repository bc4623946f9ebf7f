"""Hooks and deadlines, which only calls that wait start, in the task of the caller."""

import asyncio

import pytest

from deltamcp.runtime.deadline import Deadline, run_with_hook
from tests.support.conditions import HANG_SECONDS, advance_clock


class Recorder:
    def __init__(self):
        self.events: list[str] = []

    def on_wait(self):
        self.events.append("wait")

    def on_end(self):
        self.events.append("end")


async def test_a_call_that_never_waits_arms_nothing():
    async def quick():
        return 3

    guard = Recorder()

    assert await run_with_hook(quick(), guard) == 3
    assert guard.events == []


async def test_a_call_that_waits_has_its_hook_until_it_ends():
    async def slow():
        await asyncio.sleep(0)
        guard.events.append("work")
        await asyncio.sleep(0)
        return 3

    guard = Recorder()

    assert await run_with_hook(slow(), guard) == 3
    assert guard.events == ["wait", "work", "end"]


async def test_exceptions_and_cancellation_pass_through_both_ways():
    async def catches():
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            await asyncio.sleep(0)
            raise ValueError("cleaned up") from None

    async def run():
        return await run_with_hook(catches(), Recorder())

    task = asyncio.create_task(run())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(ValueError, match="cleaned up"):
        await task


async def test_the_call_runs_in_the_task_that_awaits_it():
    """Otherwise asyncio.timeout and task groups inside a tool would watch the wrong task."""

    async def inner():
        before = asyncio.current_task()
        async with asyncio.timeout(HANG_SECONDS), asyncio.TaskGroup() as group:
            group.create_task(asyncio.sleep(0))
        return before is asyncio.current_task() is outer

    outer = asyncio.current_task()

    assert await run_with_hook(inner(), Recorder())


async def test_a_deadline_cancels_and_can_be_forgiven():
    deadline = Deadline(0.01)
    try:
        await run_with_hook(asyncio.sleep(60), deadline)
    except asyncio.CancelledError:
        assert deadline.expired
        assert deadline.undo_cancel()
    await asyncio.sleep(0)


async def test_a_deadline_is_not_forgiven_where_somebody_else_cancelled_too():
    deadline = Deadline(0.01)
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().call_later(0.01, task.cancel)
    try:
        await run_with_hook(asyncio.sleep(60), deadline)
    except asyncio.CancelledError:
        while task.cancelling() < 2:
            try:
                await asyncio.sleep(1)
            except asyncio.CancelledError:
                continue
        assert not deadline.undo_cancel()
        task.uncancel()


async def test_time_in_a_pause_does_not_count():
    deadline = Deadline(3600)

    async def waits():
        await asyncio.sleep(0)
        with deadline.paused():
            advance_clock(7200)
            await asyncio.sleep(1)
        return "answered"

    assert await run_with_hook(waits(), deadline) == "answered"
