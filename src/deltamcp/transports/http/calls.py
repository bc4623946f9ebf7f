"""The calls in flight over HTTP: performs them, a limited number at once, and sends what comes of them."""

import asyncio
from collections.abc import Awaitable

from deltamcp.calls.engine import Engine
from deltamcp.errors import Fault
from deltamcp.runtime.deadline import run_with_hook
from deltamcp.runtime.quota import Quota
from deltamcp.transports.http.exchange import Exchange, HttpResponse, Write
from deltamcp.transports.http.reply import WatchedChannel
from deltamcp.transports.quota import TOO_MANY_CALLS, UNREAD
from deltamcp.values import Ask, Failure, Listen, Outcome, RequestId, SetLevel, Terms, Watch

SHUTTING_DOWN = Failure(Fault.SHUTTING_DOWN, "The server is shutting down.")


class CallsInFlight:
    """Passes calls to the engine, a limited number at once of each account, and answers those that are cancelled."""

    def __init__(self, engine: Engine, quota: Quota) -> None:
        self._engine = engine
        self._quota = quota
        self.draining = False

    async def perform(
        self, understood: tuple[Terms, Ask] | Failure, reply: WatchedChannel, id_: RequestId, account: str
    ) -> Outcome | None:
        """Returns what comes of a request as its protocol understood it; None if the client has disconnected."""
        if isinstance(understood, Failure):
            return understood
        if not self._quota.take(account):
            return TOO_MANY_CALLS
        terms, ask = understood
        assert not isinstance(ask, Listen | SetLevel | Watch), "a transport serves these itself"
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


async def serve(reply: WatchedChannel, performing: Awaitable[Outcome | None], write: Write) -> None:
    """Answers a request: awaits what comes of it, and sends it as its protocol writes it."""
    response = await respond(reply.exchange, performing, write)
    if response is None:
        await reply.abandon()
        return
    reply.exchange.release()
    await reply.finish(response)


async def respond(
    exchange: Exchange, performing: Awaitable[Outcome | None], write: Write, in_batch: bool = False
) -> HttpResponse | None:
    """Returns the response to a request, whose bytes count for its account; None if the client has disconnected."""
    outcome = await performing
    if outcome is None:
        return None
    response = write(outcome)
    return response if exchange.reserve(len(response.body), in_batch) else write(UNREAD)
