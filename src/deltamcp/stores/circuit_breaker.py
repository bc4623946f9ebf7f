"""A store in front of another one that may hang, so that callers do not wait for it."""

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator
from typing import cast

from deltamcp.stores.store import SharedStore, Store, StoreError, StoreUnreachableError, TokenBuckets

_BYTES_PER_SECOND = 32 * 1024 * 1024
"""How fast a store takes data at least; a deadline is longer by the time for the data."""
_RETRY_SECONDS = 0.25
"""The time after the first probe that failed; it doubles with each further one."""
_MAX_RETRY_SECONDS = 30.0
_MAX_DEAF_SECONDS = 2.0
"""The longest time between attempts to subscribe again, one connection each."""
_FORGET_SECONDS = 0.001
"""How long a deleted entry goes on, empty, in a store that cannot delete."""
_FORGOTTEN = "forgotten"
_PROBE = "probe"
"""The owner and the name of the entry that a probe reads; nobody has stored it."""

logger: logging.Logger = logging.getLogger("deltamcp")


class CircuitBreaker:
    """A `SharedStore` whose operations have a deadline, in front of any store.

    If the other store does not answer one of them, all further ones fail at once, until it has answered a probe in the
    background. An operation whose deadline has passed may have happened all the same. A store that is no `SharedStore`
    is not `shared`: tokens are then counted in this process, one call at a time replaces data, and nobody may publish
    or subscribe.
    """

    def __init__(self, store: Store, seconds: float, retry_seconds: float = _RETRY_SECONDS) -> None:
        """
        Args:
            seconds: The deadline of one operation, beside the time that its data takes.
            retry_seconds: The time between the first two probes.
        """
        self.private: bool = store.private
        self.shared: bool = getattr(store, "shared", False)
        self.redis_url: str | None = getattr(store, "redis_url", None)
        self._store = store
        self._sharing = cast(SharedStore, store)
        self._buckets = None if hasattr(store, "take_token") else TokenBuckets(time.monotonic)
        self._replacing = None if hasattr(store, "replace") else asyncio.Lock()
        self._seconds = seconds
        self._retry_seconds = retry_seconds
        self._probe: asyncio.Task[None] | None = None
        self._reason = ""
        self.error_count: int = 0
        """The operations that failed."""

    @property
    def is_unreachable(self) -> bool:
        """Whether the other store has not answered since an operation failed."""
        return self._probe is not None and not self._probe.done()

    async def put(
        self, owner: str, name: str, data: bytes, idle_seconds: float, max_seconds: float, account: str
    ) -> None:
        async with self._deadline(data):
            await self._store.put(owner, name, data, idle_seconds, max_seconds, account)

    async def add(
        self, owner: str, name: str, data: bytes, idle_seconds: float, max_seconds: float, account: str
    ) -> bool:
        async with self._deadline(data):
            return await self._store.add(owner, name, data, idle_seconds, max_seconds, account)

    async def get(self, owner: str, name: str) -> bytes | None:
        async with self._deadline():
            return await self._store.get(owner, name)

    async def replace(
        self,
        owner: str,
        name: str,
        expected: bytes,
        data: bytes,
        idle_seconds: float,
        max_seconds: float,
        account: str,
    ) -> bool:
        if self._replacing is None:
            async with self._deadline(data):
                return await self._sharing.replace(owner, name, expected, data, idle_seconds, max_seconds, account)
        async with self._replacing:
            if await self.get(owner, name) != expected:
                return False
            await self.put(owner, name, data, idle_seconds, max_seconds, account)
            return True

    async def delete(self, owner: str, name: str) -> None:
        if not hasattr(self._store, "delete"):
            await self.put(owner, name, b"", _FORGET_SECONDS, _FORGET_SECONDS, _FORGOTTEN)
            return
        async with self._deadline():
            await self._sharing.delete(owner, name)

    async def take_token(self, bucket: str, rate: float, burst: int) -> float:
        if self._buckets is not None:
            return self._buckets.take(bucket, rate, burst)
        async with self._deadline():
            return await self._sharing.take_token(bucket, rate, burst)

    async def publish(self, channel: str, message: bytes) -> None:
        async with self._deadline():
            await self._sharing.publish(channel, message)

    async def subscribe(self, channel: str) -> AsyncGenerator[bytes | None, None]:
        """Yields messages, and None once more after each time that the other store failed; it never raises."""
        pause, is_lost = self._retry_seconds, False
        while True:
            try:
                async with contextlib.aclosing(self._sharing.subscribe(channel)) as messages:
                    async for message in messages:
                        pause, is_lost = self._retry_seconds, False
                        yield message
            except Exception as error:
                if not is_lost:
                    logger.warning("nothing is heard of other replicas until the store answers again: %s", error)
                is_lost = True
            await asyncio.sleep(pause)
            pause = min(2 * pause, _MAX_DEAF_SECONDS)

    async def close(self) -> None:
        if self._probe is not None:
            self._probe.cancel()
            self._probe = None
        try:
            async with asyncio.timeout(self._seconds):
                await self._store.close()
        except (TimeoutError, StoreError) as error:
            logger.warning("the store was not closed: %s", error or "it did not answer")

    @contextlib.asynccontextmanager
    async def _deadline(self, data: bytes = b"") -> AsyncIterator[None]:
        if self.is_unreachable:
            self.error_count += 1
            raise StoreUnreachableError(self._reason)
        try:
            async with asyncio.timeout(self._seconds + len(data) / _BYTES_PER_SECOND):
                yield
        except TimeoutError as error:
            reason = f"The store did not answer within {self._seconds:g} s."
            self.error_count += 1
            self._open_circuit(reason)
            raise StoreUnreachableError(reason) from error
        except StoreError as error:
            self.error_count += 1
            if isinstance(error, StoreUnreachableError):
                self._open_circuit(str(error))
            raise

    def _open_circuit(self, reason: str) -> None:
        if self._probe is None or self._probe.done():
            logger.error("nothing is stored until the store answers again: %s", reason)
            self._reason = reason
            self._probe = asyncio.get_running_loop().create_task(self._wait_for_answer())

    async def _wait_for_answer(self) -> None:
        """Probes the store until it answers. An error is an answer too, and must not keep others from trying."""
        pause = self._retry_seconds
        while True:
            try:
                async with asyncio.timeout(self._seconds):
                    await self._store.get(_PROBE, _PROBE)
            except (TimeoutError, StoreUnreachableError):
                await asyncio.sleep(pause)
                pause = min(2 * pause, _MAX_RETRY_SECONDS)
                continue
            except Exception as error:
                logger.warning("the store answers again, with an error: %s", error)
            else:
                logger.warning("the store answers again")
            return
