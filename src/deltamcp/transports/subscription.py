"""The subscription that a client opens by `subscriptions/listen`, and the promises that it follows by it."""

import asyncio
from collections.abc import Callable, Collection, Iterable

from deltamcp.calls.engine import Engine
from deltamcp.dialects.dialect import StatelessDialect
from deltamcp.dialects.methods import subscription_filter
from deltamcp.runtime.change_hub import Position
from deltamcp.stores.store import StoreError
from deltamcp.values import JSON, Answer, Caller, Filter, Kind, Principal, Promise, Request, SubscriptionEnd


class Subscription:
    """Sends the change notifications that pass the client's filter, each with the subscription's id."""

    __slots__ = ("_dialect", "_filter", "_request", "_send", "_version", "principal")

    def __init__(
        self,
        dialect: StatelessDialect,
        request: Request,
        version: str,
        accepted: Filter,
        send: Callable[[bytes], object],
        principal: Principal,
    ) -> None:
        self._dialect = dialect
        # Without the parameters, which the client may have filled with more than the filter.
        self._request = Request(request.id, request.method, {})
        self._version = version
        self._filter = accepted
        self._send = send
        self.principal: Principal = principal

    def acknowledge(self) -> None:
        """Sends the first message of a subscription."""
        self.notify("notifications/subscriptions/acknowledged", {"notifications": subscription_filter(self._filter)})

    def wants(self, change: Kind | str) -> bool:
        return change in (self._filter.kinds if isinstance(change, Kind) else self._filter.uris)

    def watched_uris(self) -> Collection[str]:
        return self._filter.uris

    def notify(self, method: str, params: dict[str, JSON], position: Position | None = None) -> None:
        self._send(self._dialect.notify(method, params, self._request.id))

    def notify_of_promise(self, promise: Promise) -> None:
        """Sends what a promise is now."""
        self._send(self._dialect.notify_of_promise(promise, self._version, self._request.id))

    def end(self) -> None:
        """Sends the last message of a subscription that the server ends."""
        self._send(self._dialect.write(self._request, Answer(SubscriptionEnd()), self._version))


_RETRY_SECONDS = 5.0
"""How long to wait for a store that does not answer; the client is told of what it missed."""

FOLLOWED_BYTES = 4096
"""The memory of a promise that is followed, beside its notifications."""


class FollowedPromises:
    """Tells of promises what each is, and then every change until its call has ended."""

    def __init__(
        self, engine: Engine, tokens: Iterable[str], caller: Caller, tell: Callable[[Promise], object]
    ) -> None:
        self._engine = engine
        self._caller = caller
        self._tell = tell
        self._tasks = [asyncio.get_running_loop().create_task(self._follow(token)) for token in tokens]

    async def _follow(self, token: str) -> None:
        promises = self._engine.promise_calls
        assert promises is not None, "a server without promises accepts no subscriptions to them"
        while True:
            try:
                async for promise in promises.follow(token, self._caller):
                    self._tell(promise)
                return
            except StoreError:
                await asyncio.sleep(_RETRY_SECONDS)

    def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
