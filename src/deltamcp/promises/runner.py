"""Runs the calls behind promises: docket is the queue, and the worker that takes keys from it.

The queue is in the Redis server of the store where there is one; else in the memory of this process. docket gives a key
to one worker at a time, and to another once a worker has given no sign of life for `Limits.redelivery_seconds`.
"""

import asyncio
import contextlib
import importlib
import logging
import secrets
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from deltamcp.limits import Limits
from deltamcp.runtime.lifespan import ServerLifespan
from deltamcp.stores.store import StoreError, StoreUnreachableError

if TYPE_CHECKING:
    from deltamcp.promises.docket_queue import KeyQueue, KeyWorker

_QUEUE = "deltamcp.promises.docket_queue"
QUEUE_MODULES = frozenset({_QUEUE, "burner_redis"})
"""They take half a second to import; docket imports the latter itself, for a queue in memory."""
DEFAULT_CONCURRENCY = 100
"""Most calls wait for something else; functions without `async` have `Limits.threads` of their own."""
_OPEN_SECONDS = 15.0
"""How long the queue may take to open. That needs no network, but half a second of an idle processor."""
_CLOSE_SECONDS = 1.0
"""How long calls have to end where no transport has said that the server will close."""
_GIVE_BACK_SECONDS = 2.0
"""How long calls that are cancelled at the end may take to give their promises back."""
_QUIET_SECONDS = 2.0
"""How long a queue of this process alone stays closed while no call needs it, so that first replies come sooner."""
_LOST_SECONDS = 30.0
"""A key may wait so long for a worker in Redis; digest of MCP-lite, 4.2."""
_PRIVATE_LOST_SECONDS = 2.0
"""The same in the memory of a process that may have ended since: nobody else has the key."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 5.0
"""Between attempts to run a promise while the store fails."""

logger: logging.Logger = logging.getLogger("deltamcp")

RunKey = Callable[[str], Awaitable[None]]
"""Runs what was queued under this key; raises `StoreError` where it can be tried again."""


class PromiseRunner:
    """The queue of a server's promises, and the worker of this process."""

    def __init__(
        self,
        lifespan: ServerLifespan,
        redis_url: str | None,
        server: str,
        limits: Limits,
        concurrency: int,
        run: RunKey,
    ) -> None:
        """
        Args:
            redis_url: Where the queue is; None for the memory of this process.
            server: The server's name, which the queue has.
            concurrency: How many promises this process runs at once; 0 leaves them to others.
        """
        self._lifespan = lifespan
        self._worker = secrets.token_hex(8)
        self._is_private = redis_url is None
        self._url = redis_url or f"memory://{self._worker}"
        self._name = f"deltamcp:promises:{server}"
        self._limits = limits
        self._concurrency = concurrency
        self._run = run
        self._is_started = False
        self._queue: KeyQueue | None = None
        self._key_worker: KeyWorker | None = None
        self._wanted = asyncio.Event()
        self._opened = asyncio.Event()
        self._draining = asyncio.Event()
        self._give_back_time = 0.0

    def start(self) -> None:
        """Opens the queue and runs promises, now if the server is open and whenever it opens."""
        if not self._is_started:
            self._is_started = True
            self._lifespan.first_modules |= QUEUE_MODULES
            self._lifespan.add_drainer(self._drain)
            self._lifespan.add_task(self._serve)

    @property
    def lost_seconds(self) -> float:
        """After how long a key that nobody runs may be lost: its process ends, or ended before it was queued."""
        return _PRIVATE_LOST_SECONDS if self._is_private else _LOST_SECONDS

    async def enqueue(self, key: str) -> None:
        """Has one worker run the promise with this key; a key that is in the queue or runs is not added again.

        Raises:
            StoreUnreachableError: the queue does not answer.
        """
        self.start()
        self._wanted.set()
        if self._queue is None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_OPEN_SECONDS):
                    await self._opened.wait()
        if self._queue is None:
            raise StoreUnreachableError("The queue of promises could not be opened, or is closed.")
        await self._queue.add_key(key, self._limits.store_seconds)

    async def _serve(self) -> None:
        """Has the queue open and the worker at work until the server closes."""
        if self._is_private:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_QUIET_SECONDS):
                    await self._wanted.wait()
        # Where it was not loaded before, the server goes on meanwhile.
        docket = await asyncio.to_thread(importlib.import_module, _QUEUE)
        docket.DOCKET_LOG.install()
        try:
            async with docket.KeyQueue(self._name, self._url, self._run_key) as self._queue:
                self._opened.set()
                if self._concurrency:
                    await self._work(
                        docket.KeyWorker(self._queue, self._worker, self._concurrency, self._limits.redelivery_seconds)
                    )
                await asyncio.get_running_loop().create_future()
        finally:
            self._queue = self._key_worker = None
            # The next ones may be of another loop.
            self._wanted, self._opened, self._draining = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def _work(self, key_worker: "KeyWorker") -> None:
        """Runs promises until the server drains or closes, and then lets those that run end."""
        self._key_worker = key_worker
        working = asyncio.get_running_loop().create_task(key_worker.run(self._draining))
        try:
            await asyncio.wait([working])
        finally:
            self._drain(_CLOSE_SECONDS)
            end = self._give_back_time - asyncio.get_running_loop().time()
            await asyncio.wait([working], timeout=max(0.0, end) + _GIVE_BACK_SECONDS)

    def _drain(self, seconds: float) -> None:
        """Begins no further promise; those that run are given back unless they end in time."""
        if self._key_worker is not None and not self._draining.is_set():
            self._draining.set()
            loop = asyncio.get_running_loop()
            # docket renews no lease while it drains, so that others would take the keys over.
            self._give_back_time = loop.time() + min(seconds, self._limits.redelivery_seconds / 2)
            loop.call_at(self._give_back_time, self._key_worker.give_back)

    async def _run_key(self, key: str) -> None:
        """Runs a promise; while the store fails it tries again, because a key that has been run is forgotten."""
        pause = _FIRST_PAUSE
        while True:
            try:
                await self._run(key)
                return
            except StoreError as error:
                logger.warning("a promise waits for the store: %s", error)
            except Exception:
                logger.exception("a promise could not be run")
                return
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
