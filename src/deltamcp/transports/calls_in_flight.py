"""Calls in flight over HTTP: how many there may be, and what becomes of one whose client or server goes away."""

import asyncio

from deltamcp.calls.engine import Engine
from deltamcp.errors import Fault
from deltamcp.transports.http_reply import HttpReply
from deltamcp.values import EngineAsk, Failure, Outcome, RequestId, Terms


class CallsInFlight:
    """The engine, as HTTP may use it: so many calls at once, and none after the server drains."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._count = 0
        self.draining = False

    async def perform(self, ask: EngineAsk, terms: Terms, reply: HttpReply, id_: RequestId) -> Outcome | None:
        """The engine's outcome; None where nobody waits for it any more."""
        if self._count >= self._engine.limits.calls:
            return Failure(Fault.OVERLOADED, "Too many calls are in progress; try again later.")
        self._count += 1
        try:
            return await self._engine.perform(ask, terms, reply, id_)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            assert task is not None, "ASGI applications run in tasks"
            task.uncancel()
            if reply.departed:
                return None
            if self.draining:
                return Failure(Fault.OVERLOADED, "The server is shutting down.")
            return Failure(Fault.CANCELLED, "The request was cancelled.")
        finally:
            self._count -= 1
