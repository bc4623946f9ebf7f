"""A store in Redis, which replicas of a server on several hosts share."""

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager
from typing import Literal
from urllib.parse import urlsplit

from deltamcp.errors import ConfigurationError
from deltamcp.stores.store import (
    CLOCK_SECONDS,
    DEFAULT_QUOTAS,
    ENTRY_BYTES,
    Quotas,
    StoreError,
    StoreUnreachableError,
    hash_key,
    hash_text,
)

_MAX_CONNECTIONS = 6
"""Connections open at once, of which one is a subscription; further calls wait. With three of a queue they make nine
for each replica. One process keeps no more busy: a command takes 0.2 ms."""

_CONNECT_SECONDS = 5.0

_ANSWER_SECONDS = 30.0
"""The time for one command with its answer, 50 MB at 13 Mbit/s."""

_SILENCE_SECONDS = 10.0
"""How long a subscription hears nothing before it sends a ping, and then waits for the reply."""

_MAX_UNREAD = 1000
"""The messages that wait for a subscriber; Redis holds more for it, and ends the connection where they are too many."""

_MAX_SCRIPT_BYTES = 64 * 1024
"""A larger entry is read by a command of its own, as a script would copy it twice while others wait."""

_HEADER_BYTES = 32
"""The header before the data: the time at which it ends and the time it may stay unread, in ms, of 16 digits each."""

# The accounts, beside the entries: `sizes` has the size and the account of each entry, `expiry` when it expires,
# `bytes` the bytes of each account and, under the empty name, of all; `used` with an account has when its entries were
# last read.
_PRELUDE = """
local entry, sizes, expiry, bytes, used = KEYS[1], KEYS[2], KEYS[3], KEYS[4], ARGV[1]
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local now_us = string.format('%.0f', time[1] * 1000000 + time[2])

local function read(key)
  local known = redis.call('HGET', sizes, key)
  if not known then return 0, '' end
  local size, account = string.match(known, '^(%d+) (.*)$')
  return tonumber(size), account
end

local function total(account)
  return tonumber(redis.call('HGET', bytes, account) or 0)
end

local function release(key)
  local size, account = read(key)
  if size == 0 then return end
  redis.call('HDEL', sizes, key)
  redis.call('ZREM', expiry, key)
  redis.call('ZREM', used .. account, key)
  for _, name in ipairs({account, ''}) do
    if redis.call('HINCRBY', bytes, name, -size) <= 0 then redis.call('HDEL', bytes, name) end
  end
end
"""

_SET_SCRIPT = (
    _PRELUDE
    + """
local data, condition, account, size = ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5])
local idle_ms, max_ms = tonumber(ARGV[6]), tonumber(ARGV[7])
local most_in_account, most, expected = tonumber(ARGV[8]), tonumber(ARGV[9]), ARGV[10]
for _, key in ipairs(redis.call('ZRANGEBYSCORE', expiry, '-inf', now, 'LIMIT', 0, 200)) do release(key) end
if condition ~= 'any' then
  local exists = redis.call('EXISTS', entry) == 1
  if condition == 'new' and exists then return 0 end
  if condition == 'same' and not (exists and redis.call('GETRANGE', entry, 32, -1) == expected) then return 0 end
end

local in_account, in_all = total(account) + size, total('') + size
local replaced_size, replaced_account = read(entry)
in_all = in_all - replaced_size
if replaced_account == account then in_account = in_account - replaced_size end
local doomed, start = {}, 0
while in_account > most_in_account do
  local oldest = redis.call('ZRANGE', used .. account, start, start + 99)
  if #oldest == 0 then return -1 end
  start = start + 100
  for _, key in ipairs(oldest) do
    if in_account > most_in_account and key ~= entry then
      local freed = read(key)
      in_account, in_all = in_account - freed, in_all - freed
      table.insert(doomed, key)
    end
  end
end
if in_all > most then return -1 end

local expires = now + math.max(1, math.min(idle_ms, max_ms))
local header = string.format('%016.0f%016.0f', now + max_ms, idle_ms)
redis.call('SET', entry, header .. data, 'PX', math.max(1, math.min(idle_ms, max_ms)))
release(entry)
for _, key in ipairs(doomed) do
  release(key)
  redis.call('UNLINK', key)
end
redis.call('HSET', sizes, entry, size .. ' ' .. account)
redis.call('ZADD', expiry, string.format('%.0f', expires), entry)
redis.call('ZADD', used .. account, now_us, entry)
redis.call('HINCRBY', bytes, account, size)
redis.call('HINCRBY', bytes, '', size)
for _, key in ipairs({sizes, expiry, bytes, used .. account}) do
  if redis.call('PTTL', key) < max_ms then redis.call('PEXPIRE', key, max_ms) end
end
return 1
"""
)

_READ_SCRIPT = (
    _PRELUDE
    + """
local header = redis.call('GETRANGE', entry, 0, 31)
if header == '' then return 0 end
local expires = math.min(tonumber(string.sub(header, 1, 16)), now + tonumber(string.sub(header, 17)))
redis.call('PEXPIREAT', entry, string.format('%.0f', expires))
local size, account = read(entry)
if size > 0 then
  redis.call('ZADD', expiry, 'XX', string.format('%.0f', expires), entry)
  redis.call('ZADD', used .. account, 'XX', now_us, entry)
end
if redis.call('STRLEN', entry) > tonumber(ARGV[2]) then return 1 end
return redis.call('GETRANGE', entry, 32, -1)
"""
)

_DELETE_SCRIPT = (
    _PRELUDE
    + """
release(entry)
redis.call('UNLINK', entry)
return 1
"""
)

# `token_bucket.take_token` by the clock of Redis. A key that has expired is a bucket that is full.
_BUCKET_SCRIPT = """
local rate, burst, clock = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local time = redis.call('TIME')
local now = time[1] + time[2] / 1000000
local full_at = tonumber(redis.call('GET', KEYS[1]) or 0)
full_at = math.min(math.max(full_at, now), now + burst / rate)
local missing = full_at + 1 / rate - now - burst / rate
if missing > clock then return string.format('%.9f', missing) end
full_at = full_at + 1 / rate
redis.call('SET', KEYS[1], string.format('%.17g', full_at), 'PX', math.ceil((full_at - now) * 1000))
return '0'
"""


class RedisStore:
    """A `SharedStore` in Redis. Needs the extra `redis`, and Redis 5 or later or a compatible server.

    Replicas share the quotas. A Redis server with a `maxmemory` of its own should have the policy `noeviction`, so that
    it refuses to store more rather than evict others' entries. Data is stored in clear; owners and names are hashed.
    """

    private = False
    shared = True

    def __init__(
        self,
        url: str,
        quotas: Quotas = DEFAULT_QUOTAS,
        connect_seconds: float = _CONNECT_SECONDS,
        prefix: str = "deltamcp:",
    ) -> None:
        """`connect_seconds` is how long to wait until a connection is open, and until it is closed."""
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
                socket_connect_timeout=connect_seconds,
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
        self.redis_url: str | None = url
        self._redis = Redis.from_pool(pool)
        self._quotas = quotas
        self._prefix = prefix
        self._used = f"{prefix}used "
        # Channels belong to the whole Redis server, not to one of its databases.
        self._channels = f"{prefix}{pool.connection_kwargs.get('db') or 0} channel "

    async def put(
        self, owner: str, name: str, data: bytes, idle_seconds: float, max_seconds: float, account: str
    ) -> None:
        await self._set(owner, name, data, idle_seconds, max_seconds, account, "any")

    async def add(
        self, owner: str, name: str, data: bytes, idle_seconds: float, max_seconds: float, account: str
    ) -> bool:
        return await self._set(owner, name, data, idle_seconds, max_seconds, account, "new")

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
        return await self._set(owner, name, data, idle_seconds, max_seconds, account, "same", expected)

    async def get(self, owner: str, name: str) -> bytes | None:
        keys = self._keys(owner, name)
        with self._translate_errors():
            found = await self._redis.eval(_READ_SCRIPT, len(keys), *keys, self._used, _MAX_SCRIPT_BYTES)
            if found == 1:
                # Empty if the entry has ended since.
                found = await self._redis.getrange(keys[0], _HEADER_BYTES, -1) or None
        return found if isinstance(found, bytes) else None

    async def delete(self, owner: str, name: str) -> None:
        keys = self._keys(owner, name)
        with self._translate_errors():
            await self._redis.eval(_DELETE_SCRIPT, len(keys), *keys, self._used)

    async def take_token(self, bucket: str, rate: float, burst: int) -> float:
        key = f"{self._prefix}bucket {hash_text(bucket).hex()}"
        with self._translate_errors():
            return float(await self._redis.eval(_BUCKET_SCRIPT, 1, key, rate, burst, CLOCK_SECONDS))

    async def publish(self, channel: str, message: bytes) -> None:
        with self._translate_errors():
            await self._redis.publish(self._channels + channel, message)

    async def subscribe(self, channel: str) -> AsyncGenerator[bytes | None, None]:
        received: asyncio.Queue[bytes | None] = asyncio.Queue(_MAX_UNREAD)
        reader = asyncio.get_running_loop().create_task(self._read_channel(channel, received))
        try:
            while True:
                next_ = asyncio.ensure_future(received.get())
                try:
                    await asyncio.wait([reader, next_], return_when=asyncio.FIRST_COMPLETED)
                    if not next_.done():
                        reader.result()
                    yield await next_
                finally:
                    next_.cancel()
        finally:
            # redis-py loses a cancellation that comes while it connects, so it may take a second one.
            while not reader.done():
                reader.cancel()
                await asyncio.wait([reader], timeout=0.1)
            if not reader.cancelled():
                reader.exception()

    async def _read_channel(self, channel: str, received: "asyncio.Queue[bytes | None]") -> None:
        with self._translate_errors():
            async with self._redis.pubsub() as subscription:
                await subscription.subscribe(self._channels + channel)
                asked = False
                while True:
                    # redis-py connects anew after an error, but raises it all the same.
                    message = await subscription.get_message(timeout=_SILENCE_SECONDS)
                    if message is None:
                        if asked:
                            raise StoreUnreachableError(f"The store at {self._address} does not answer.")
                        asked = True
                        await subscription.ping()
                        continue
                    asked = False
                    if message["type"] in ("subscribe", "message"):
                        await received.put(message["data"] if message["type"] == "message" else None)

    async def close(self) -> None:
        with self._translate_errors():
            await self._redis.aclose()

    async def _set(
        self,
        owner: str,
        name: str,
        data: bytes,
        idle_seconds: float,
        max_seconds: float,
        account: str,
        condition: Literal["any", "new", "same"],
        expected: bytes = b"",
    ) -> bool:
        self._quotas.check_size(data)
        keys = self._keys(owner, name)
        about: list[str | int] = [condition, hash_text(account).hex(), len(data) + ENTRY_BYTES]
        times = [round(idle_seconds * 1000), round(max_seconds * 1000)]
        most = [self._quotas.per_account, self._quotas.total]
        with self._translate_errors():
            # The clock of the Redis server expires the entries; the clocks of replicas differ.
            stored = await self._redis.eval(
                _SET_SCRIPT, len(keys), *keys, self._used, data, *about, *times, *most, expected
            )
        if stored < 0:
            raise self._quotas.full_error()
        return bool(stored)

    def _keys(self, owner: str, name: str) -> list[str]:
        return [self._prefix + key for key in (hash_key(owner, name), "sizes", "expiry", "bytes")]

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        from redis import exceptions

        try:
            yield
        except exceptions.AuthenticationError as error:
            raise StoreError(f"The store at {self._address} does not accept the credentials given.") from error
        except (exceptions.ConnectionError, exceptions.TimeoutError, OSError) as error:
            raise StoreUnreachableError(f"The store at {self._address} cannot be reached.") from error
        except exceptions.RedisError as error:
            # redis-py puts the command before the reason, and Redis the script after it.
            reason = str(error).rpartition("caused error: ")[2].partition(" script: ")[0].rstrip(".")
            raise StoreError(f"The store at {self._address} refused: {reason}.") from error
