"""A store in Redis, which replicas of a server on several hosts share."""

from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

from deltamcp.errors import ConfigurationError
from deltamcp.stores.store import StoreError, hash_key

_MAX_CONNECTIONS = 32
"""Connections open at once. Further calls wait, where redis-py's own pool would fail the 101st."""

_CONNECT_SECONDS = 5.0

_ANSWER_SECONDS = 30.0
"""The time for one command with its answer, 50 MB at 13 Mbit/s."""

_HEADER_BYTES = 32
"""The header before the data: the time at which it ends and the time it may stay unread, in ms, of 16 digits each."""

_TOUCH_SCRIPT = """
local head = redis.call('GETRANGE', KEYS[1], 0, 31)
if head == '' then return 0 end
local time = redis.call('TIME')
local unread = time[1] * 1000 + math.floor(time[2] / 1000) + tonumber(string.sub(head, 17))
redis.call('PEXPIREAT', KEYS[1], string.format('%.0f', math.min(tonumber(string.sub(head, 1, 16)), unread)))
return 1
"""


class RedisStore:
    """A `Store` in Redis. Needs the extra `redis`, and Redis 5 or later or a compatible server.

    The Redis server bounds its size: with `maxmemory-policy volatile-lru` it evicts the entry that was not read for the
    longest time, with `noeviction` it refuses to store more. Data is stored in clear; owners and names are hashed.
    """

    private = False

    def __init__(self, url: str, prefix: str = "deltamcp:") -> None:
        try:
            from redis.asyncio import BlockingConnectionPool, Redis
            from redis.asyncio.retry import Retry
            from redis.backoff import NoBackoff
        except ImportError as error:
            raise ConfigurationError("A store in Redis needs: pip install 'delta-mcp[redis]'.") from error
        try:
            parts = urlsplit(url)
            self._address = f"{parts.hostname or 'localhost'}:{parts.port or 6379}"
            pool = BlockingConnectionPool.from_url(
                url,
                max_connections=_MAX_CONNECTIONS,
                timeout=_ANSWER_SECONDS,
                socket_connect_timeout=_CONNECT_SECONDS,
                socket_timeout=_ANSWER_SECONDS,
                # A retried `add` would find the entry of its first attempt and report that it failed.
                retry=Retry(NoBackoff(), 0),
                # With protocol 3 redis-py does not check whether an idle connection was closed.
                protocol=2,
            )
            pool.connection_class(**pool.connection_kwargs)  # checks the options, does not connect
        except (TypeError, ValueError):
            # Not chained, as the error's text may repeat a part of the url.
            raise ConfigurationError(
                "The url of a store in Redis must read redis://user:password@host:port/0."
            ) from None
        self._redis = Redis.from_pool(pool)
        self._prefix = prefix

    async def put(self, owner: str, name: str, data: bytes, idle_seconds: float, max_seconds: float) -> None:
        await self._set(owner, name, data, idle_seconds, max_seconds, only_new=False)

    async def add(self, owner: str, name: str, data: bytes, idle_seconds: float, max_seconds: float) -> bool:
        return await self._set(owner, name, data, idle_seconds, max_seconds, only_new=True)

    async def get(self, owner: str, name: str) -> bytes | None:
        key = self._key(owner, name)
        with self._translate_errors():
            async with self._redis.pipeline(transaction=True) as pipeline:
                pipeline.eval(_TOUCH_SCRIPT, 1, key)
                pipeline.getrange(key, _HEADER_BYTES, -1)
                found, data = await pipeline.execute()
        return data if found else None

    async def forget(self, owner: str, name: str) -> None:
        with self._translate_errors():
            await self._redis.unlink(self._key(owner, name))

    async def close(self) -> None:
        with self._translate_errors():
            await self._redis.aclose()

    async def _set(
        self, owner: str, name: str, data: bytes, idle_seconds: float, max_seconds: float, *, only_new: bool
    ) -> bool:
        with self._translate_errors():
            # The clock of the Redis server, which expires the entries; the clocks of replicas differ.
            seconds, microseconds = await self._redis.time()
            ends_at_ms = seconds * 1000 + microseconds // 1000 + round(max_seconds * 1000)
            header = b"%016d%016d" % (ends_at_ms, round(idle_seconds * 1000))
            ttl_ms = max(1, round(min(idle_seconds, max_seconds) * 1000))
            return bool(await self._redis.set(self._key(owner, name), header + data, px=ttl_ms, nx=only_new))

    def _key(self, owner: str, name: str) -> str:
        return self._prefix + hash_key(owner, name)

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        from redis import exceptions

        try:
            yield
        except exceptions.AuthenticationError as error:
            raise StoreError(f"The store at {self._address} does not accept the credentials given.") from error
        except (exceptions.ConnectionError, exceptions.TimeoutError, OSError) as error:
            raise StoreError(f"The store at {self._address} cannot be reached.") from error
        except exceptions.RedisError as error:
            # redis-py puts the command before the reason.
            reason = str(error).rpartition("caused error: ")[2].rstrip(".")
            raise StoreError(f"The store at {self._address} refused: {reason}.") from error
