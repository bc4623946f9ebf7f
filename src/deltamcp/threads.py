"""Where plain functions run: a bounded pool, shared fairly between callers."""

import asyncio
import contextvars
from collections import deque
from collections.abc import Callable, Hashable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any


class Threads:
    """At most `size` functions at once. Callers that wait take turns, however many calls each has waiting."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._free = size
        self._turns: dict[Hashable, deque[asyncio.Future[None]]] = {}
        self._executor: ThreadPoolExecutor | None = None

    async def run(self, caller: Hashable, function: Callable[..., Any], arguments: dict[str, Any]) -> Any:
        """Calls `function(**arguments)` in a thread. Cancelling stops the wait; a running function runs on."""
        await self._take_slot(caller)
        loop = asyncio.get_running_loop()
        if self._executor is None:
            self._executor = ThreadPoolExecutor(self._size, "deltamcp")
        try:
            future = self._executor.submit(contextvars.copy_context().run, _settle, function, arguments)
        except BaseException:
            self._release()
            raise
        future.add_done_callback(lambda _: _soon(loop, self._release))
        value, error = await _wrap(future)
        if error is not None:
            raise error
        return value

    async def _take_slot(self, caller: Hashable) -> None:
        if self._free:
            self._free -= 1
            return
        turn = asyncio.get_running_loop().create_future()
        self._turns.setdefault(caller, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._release()
            raise

    def _release(self) -> None:
        while self._turns:
            caller, queue = next(iter(self._turns.items()))
            turn = queue.popleft()
            # To the back of the line, or out of it.
            del self._turns[caller]
            if queue:
                self._turns[caller] = queue
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1

    def close(self) -> None:
        """Takes no more work; what runs is left to end by itself."""
        if self._executor is not None:
            self._executor.shutdown(wait=False, cancel_futures=True)


def _settle(function: Callable[..., Any], arguments: dict[str, Any]) -> tuple[Any, BaseException | None]:
    # As values: a future cannot carry StopIteration, and SystemExit must not reach the executor.
    try:
        return function(**arguments), None
    except BaseException as error:
        return None, error


def _wrap(future: "Future[tuple[Any, BaseException | None]]") -> "asyncio.Future[tuple[Any, BaseException | None]]":
    return asyncio.shield(asyncio.wrap_future(future))


def _soon(loop: asyncio.AbstractEventLoop, function: Callable[[], None]) -> None:
    try:
        loop.call_soon_threadsafe(function)
    except RuntimeError:  # the loop has closed: nobody waits any more
        return
