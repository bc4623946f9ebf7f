"""The thread pool: its bound, its fairness between callers, and the errors that functions raise."""

import asyncio
import threading
from collections.abc import Callable

import pytest

from deltamcp.runtime.threads import Threads


def waiting_function(gate: threading.Event, running: asyncio.Event) -> Callable[[], None]:
    """A function that sets `running` when its thread runs it, and returns when `gate` is set."""
    loop = asyncio.get_running_loop()

    def wait() -> None:
        loop.call_soon_threadsafe(running.set)
        gate.wait()

    return wait


async def test_callers_take_turns_however_much_one_of_them_asks():
    threads = Threads(1)
    order: list[str] = []
    gate = threading.Event()
    first = asyncio.create_task(threads.run("greedy", gate.wait, {}))
    await asyncio.sleep(0)
    waiting = [asyncio.create_task(threads.run("greedy", lambda: order.append("greedy"), {})) for _ in range(5)]
    await asyncio.sleep(0)
    waiting.append(asyncio.create_task(threads.run("modest", lambda: order.append("modest"), {})))
    await asyncio.sleep(0)
    gate.set()
    await asyncio.gather(first, *waiting)

    assert order.index("modest") == 1


@pytest.mark.parametrize("error", [ValueError, StopIteration, SystemExit, KeyboardInterrupt, GeneratorExit])
async def test_whatever_a_function_raises_reaches_its_caller(error):
    def fail():
        raise error("because")

    # Python itself lets no coroutine raise StopIteration.
    with pytest.raises(RuntimeError if error is StopIteration else error):
        await Threads(1).run("x", fail, {})


async def test_a_slot_is_free_again_only_when_the_function_has_really_ended():
    threads = Threads(1)
    gate, running = threading.Event(), asyncio.Event()
    hold = waiting_function(gate, running)

    held = asyncio.create_task(threads.run("x", hold, {}))
    await running.wait()
    held.cancel()
    with pytest.raises(asyncio.CancelledError):
        await held
    after = asyncio.create_task(threads.run("x", lambda: gate.is_set(), {}))
    for _ in range(10):
        await asyncio.sleep(0)
    assert not after.done()
    gate.set()
    assert await after is True


async def test_a_call_cancelled_while_it_waits_gives_its_turn_away():
    threads = Threads(1)
    gate = threading.Event()
    first = asyncio.create_task(threads.run("x", gate.wait, {}))
    await asyncio.sleep(0)
    second = asyncio.create_task(threads.run("x", lambda: 2, {}))
    third = asyncio.create_task(threads.run("x", lambda: 3, {}))
    await asyncio.sleep(0)
    second.cancel()
    gate.set()
    assert await third == 3
    await first


async def test_a_cancelled_wait_to_the_end_ends_with_the_function_or_when_cancelled_again():
    threads = Threads(2)
    gate, running = threading.Event(), asyncio.Event()
    hold = waiting_function(gate, running)

    for ends in (False, True):
        running.clear()
        held = asyncio.create_task(threads.run_in_any_case("x", hold))
        await running.wait()
        held.cancel()
        for _ in range(10):
            await asyncio.sleep(0)
        assert not held.done()
        if ends:
            gate.set()
        else:
            held.cancel()
        with pytest.raises(asyncio.CancelledError):
            await held


async def test_a_function_that_runs_in_any_case_waits_for_its_turn_however_often_it_is_cancelled():
    threads = Threads(1)
    gate, ran = threading.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()
    held = asyncio.create_task(threads.run("x", gate.wait, {}))
    await asyncio.sleep(0)
    waiting = asyncio.create_task(threads.run_in_any_case("x", lambda: loop.call_soon_threadsafe(ran.set)))
    for _ in range(3):
        await asyncio.sleep(0)
        waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert not ran.is_set()
    gate.set()
    await held
    await ran.wait()
