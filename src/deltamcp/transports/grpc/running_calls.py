"""The requests that a gRPC server serves at the moment, as far as it must know them to shut down."""

import asyncio


class RunningCall:
    """A request that is served."""

    __slots__ = ("follows_promise", "is_stopped", "task")

    def __init__(self) -> None:
        self.task = asyncio.current_task()
        self.follows_promise = False
        """Whether the request only tells of a call that goes on without it."""
        self.is_stopped = False

    def stop(self) -> None:
        """Ends the request because the server shuts down."""
        if not self.is_stopped and self.task is not None:
            self.is_stopped = True
            self.task.cancel()

    def undo_cancel(self) -> None:
        assert self.task is not None, "requests are served in tasks"
        self.task.uncancel()


class RunningCalls:
    """All of them."""

    def __init__(self) -> None:
        self._calls: set[RunningCall] = set()
        self.are_ending = False
        """Whether the server shuts down."""

    def begin(self) -> RunningCall:
        """Returns a call that the current task serves from now on."""
        call = RunningCall()
        self._calls.add(call)
        return call

    def end(self, call: RunningCall) -> None:
        self._calls.discard(call)

    async def drain(self, seconds: float) -> None:
        """Ends calls that follow promises now, and others once they had so many seconds."""
        self.are_ending = True
        for call in tuple(self._calls):
            if call.follows_promise:
                call.stop()
        tasks = [call.task for call in self._calls if call.task is not None]
        if tasks:
            await asyncio.wait(tasks, timeout=seconds)
        for call in tuple(self._calls):
            call.stop()
