"""Threads: for authors' functions, and for computations of the library's own whose size peers decide."""

import asyncio
import contextvars
import queue
import threading
from collections.abc import Callable, Hashable
from typing import Any, NamedTuple, TypeVar
from weakref import WeakValueDictionary

from deltamcp.runtime.quota import LoopTurns, Turns
from deltamcp.work import Work, WorkLimitError

_IDLE_SECONDS = 30.0
"""A thread that has no work for this long ends; starting one takes some 50 µs."""


class _Job(NamedTuple):
    function: Callable[..., Any]
    arguments: dict[str, Any]
    context: contextvars.Context
    loop: asyncio.AbstractEventLoop
    on_end: Callable[[], None]
    done: "asyncio.Future[tuple[Any, BaseException | None]]"


class Threads:
    """Runs at most `size` functions at once. Callers take turns, however many calls each of them has waiting.

    The threads are daemons, which `concurrent.futures` does not offer: a function that never ends must not keep the
    process from ending.
    """

    def __init__(self, size: int) -> None:
        self._turns = Turns(size)
        self._idle = 0
        self._lock = threading.Lock()
        self._jobs: queue.SimpleQueue[_Job] = queue.SimpleQueue()
        self._tasks: set[asyncio.Task[tuple[Any, BaseException | None]]] = set()

    async def run(self, caller: Hashable, function: Callable[..., Any], arguments: dict[str, Any]) -> Any:
        """Calls `function(**arguments)` in a thread. Cancelling ends the wait, but not a function that runs already."""
        await self._turns.take(caller)
        return _result(*await self._start(function, arguments, self._turns.release))

    async def run_to_end(self, caller: Hashable, function: Callable[[], Any]) -> Any:
        """Calls a function in a thread. Cancelling waits until a function that runs already has ended.

        Cancelling again ends that wait too.
        """
        await self._turns.take(caller)
        return _result(*await _wait_to_end(self._start(function, {}, self._turns.release)))

    async def run_in_any_case(self, caller: Hashable, function: Callable[[], Any]) -> Any:
        """Does the same as `run_to_end`, but a cancelled caller does not lose its turn: the function runs later."""
        task = asyncio.get_running_loop().create_task(self._run_in_turn(caller, function))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return _result(*await _wait_to_end(task))

    async def _run_in_turn(self, caller: Hashable, function: Callable[[], Any]) -> tuple[Any, BaseException | None]:
        await self._turns.take(caller)
        return await self._start(function, {}, self._turns.release)

    def _start(
        self, function: Callable[..., Any], arguments: dict[str, Any], on_end: Callable[[], None]
    ) -> "asyncio.Future[tuple[Any, BaseException | None]]":
        """The error comes as a value: a future cannot raise StopIteration, and GeneratorExit would close its waiter."""
        loop = asyncio.get_running_loop()
        job = _Job(function, arguments, contextvars.copy_context(), loop, on_end, loop.create_future())
        with self._lock:
            self._jobs.put(job)
            # `_idle` is below zero for a moment if a thread ended before its last job was counted as done.
            needs_thread = self._idle <= 0
            self._idle -= not needs_thread
        if needs_thread:
            threading.Thread(target=self._work, name="deltamcp-tool", daemon=True).start()
        return job.done

    def _work(self) -> None:
        while (job := self._next_job()) is not None:
            value, error = None, None
            try:
                value = job.context.run(job.function, **job.arguments)
            except BaseException as raised:
                error = raised
            try:
                job.loop.call_soon_threadsafe(self._finish, job, value, error)
            except RuntimeError:  # the loop has closed
                return
            del job, value, error

    def _next_job(self) -> _Job | None:
        """Returns the next job; None if there was none for `_IDLE_SECONDS`."""
        try:
            return self._jobs.get(timeout=_IDLE_SECONDS)
        except queue.Empty:
            with self._lock:
                if not self._jobs.empty():
                    return self._jobs.get()
                self._idle -= 1
                return None

    def _finish(self, job: _Job, value: Any, error: BaseException | None) -> None:
        with self._lock:
            self._idle += 1
        job.on_end()
        if not job.done.cancelled():
            job.done.set_result((value, error))


def _result(value: Any, error: BaseException | None) -> Any:
    if error is not None:
        try:
            raise error
        finally:
            del error  # whose traceback has this frame: a cycle that would keep what the function computed with
    return value


async def _wait_to_end(done: "asyncio.Future[tuple[Any, BaseException | None]]") -> tuple[Any, BaseException | None]:
    try:
        await asyncio.wait([done])
    except asyncio.CancelledError:
        await asyncio.shield(done)
        raise
    return done.result()


_STEPS_WITHOUT_TURN = 500
"""The steps of a computation that runs at once, whatever others do; most need fewer."""
_STEPS_ON_LOOP = 20_000
"""The steps of a computation on the event loop, some 10 ms; other callers wait so long."""
_THREADS = 2
"""Further threads would only divide the interpreter's lock among more computations, and delay the event loop."""

T = TypeVar("T")


class Computations:
    """Runs a short computation on the event loop, and a long one in a thread; in both, callers take turns."""

    def __init__(self, steps: int) -> None:
        """`steps` is the number of steps that one computation may take."""
        self._steps = steps
        self._threads = Threads(_THREADS)
        self._turns = LoopTurns(1)
        self._locks: WeakValueDictionary[Hashable, asyncio.Lock] = WeakValueDictionary()
        """By caller, while a computation of its runs in a thread: a caller has one there, so that one stays free."""

    async def take_turn(self, caller: Hashable) -> None:
        """Returns when the caller may make one short computation on the event loop: at once, unless others do."""
        await self._turns.take(caller)

    async def run(self, caller: Hashable, compute: Callable[[Work], T]) -> T:
        """Returns what a computation returns. It has no side effects, because a long one begins again.

        If the caller is cancelled, the computation ends at its next step.

        Raises:
            WorkLimitError: the computation would take more steps than the limit allows.
        """
        try:
            return compute(Work(min(self._steps, _STEPS_WITHOUT_TURN)))
        except WorkLimitError:
            await self._turns.take(caller)
        try:
            return compute(Work(min(self._steps, _STEPS_ON_LOOP)))
        except WorkLimitError:
            if self._steps <= _STEPS_ON_LOOP:
                raise
        work = Work(self._steps)
        lock = self._locks.setdefault(caller, asyncio.Lock())
        try:
            async with lock:
                result: T = await self._threads.run(caller, lambda: compute(work), {})
        except asyncio.CancelledError:
            work.stop()
            raise
        return result
