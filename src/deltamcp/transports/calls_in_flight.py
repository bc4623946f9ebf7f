"""The calls in flight over HTTP: limits their number, and ends those whose client or server goes away."""

import asyncio
from typing import Protocol

from deltamcp.calls.engine import Engine
from deltamcp.context import Channel
from deltamcp.errors import Fault
from deltamcp.runtime.deadline import WaitHook, run_with_hook
from deltamcp.runtime.quota import Quota
from deltamcp.transports.quota import TOO_MANY_CALLS
from deltamcp.values import EngineAsk, Failure, Outcome, RequestId, Terms

SHUTTING_DOWN = Failure(Fault.SHUTTING_DOWN, "The server is shutting down.")


class CallReply(Channel, WaitHook, Protocol):
    """The channel of a call over HTTP. As a `WaitHook` it starts when the call first waits, and watches the client.

    That is until the outcome is there: the result of a function may wait for longer than the function took.
    """

    departed: bool
    """Whether the call was cancelled because the client disconnected."""


class CallsInFlight:
    """Passes calls to the engine, a limited number at once of each account, and answers those that are cancelled."""

    def __init__(self, engine: Engine, quota: Quota) -> None:
        self._engine = engine
        self._quota = quota
        self.draining = False

    async def perform(
        self, ask: EngineAsk, terms: Terms, reply: CallReply, id_: RequestId, account: str
    ) -> Outcome | None:
        """Returns the engine's outcome; None if the client has disconnected."""
        if not self._quota.take(account):
            return TOO_MANY_CALLS
        try:
            return await run_with_hook(self._engine.perform(ask, terms, reply, id_), reply)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            assert task is not None, "ASGI applications run in tasks"
            task.uncancel()
            if reply.departed:
                return None
            if self.draining:
                return SHUTTING_DOWN
            return Failure(Fault.CANCELLED, "The request was cancelled.")
        finally:
            self._quota.give_back(account)
