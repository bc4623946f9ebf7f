"""The promises that a client follows by its subscription: MCP's `notifications/tasks`."""

import asyncio
from collections.abc import Callable, Iterable

from deltamcp.calls.engine import Engine
from deltamcp.stores.store import StoreError
from deltamcp.values import Caller, Promise

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
