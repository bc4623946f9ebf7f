"""docket as this library uses it: few connections, no values, and one sentence where it would log tracebacks.

docket pickles arguments, results and strikes, and a pickle that somebody else put into Redis would run code here. So a
promise is known by the key of its entry alone, nothing is returned or raised, strikes are not read, and `_KeyClient`
takes pickles out of what Redis answers.
"""

import asyncio
import logging
import pickle
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

from docket import Docket, StrikeList, TaskKey, Worker
from docket._redis import RedisConnection
from redis.asyncio import BlockingConnectionPool, ConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import ExponentialBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError
from redis.exceptions import TimeoutError as RedisTimeoutError

from deltamcp.stores.store import StoreUnreachableError

_POOL_CONNECTIONS = 2
"""One reads the queue, the other has all further commands in turn. Beside them docket opens one for cancellations,
which are not used here."""

_RETRIES = 12
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 3.0
"""Some 25 s in all, less than a lease of docket's 30 s: after the last one docket takes no more keys until all that it
has have been run, however long that takes."""

_TASK = "run_promise"
"""The one function that workers know."""

_CHECK_SECONDS = 0.25
"""How soon a worker that was full takes the next key, and one that is to stop does; one with room gets keys at once."""

_SCHEDULE_SECONDS = 60.0
"""How often docket looks for what is due later; nothing is."""

_HEARTBEAT_SECONDS = 10.0
"""docket's list of workers, which only its own command line shows."""

_PICKLED = {b"args": pickle.dumps(()), b"kwargs": pickle.dumps({}), b"value": pickle.dumps(None)}
"""The fields of entries that docket unpickles, with what it is given in place of theirs."""

logger: logging.Logger = logging.getLogger("deltamcp")


class KeyQueue(Docket):
    """A docket that carries keys only and remembers nothing of one that has been run."""

    def __init__(self, name: str, url: str, run: Callable[[str], Awaitable[None]]) -> None:
        super().__init__(
            name, url, heartbeat_interval=timedelta(seconds=_HEARTBEAT_SECONDS), execution_ttl=timedelta(0)
        )
        self.tasks.clear()  # docket's own examples: to print, to sleep, to fail

        async def run_key(key: str = TaskKey()) -> None:
            DOCKET_LOG.end_outage()
            await run(key)

        self.register(run_key, [_TASK])
        self._redis = _BoundedConnection(url)
        self._no_strikes = StrikeList()

    @property
    def strike_list(self) -> StrikeList:
        """One that is not connected."""
        return self._no_strikes

    @strike_list.setter
    def strike_list(self, connected: StrikeList) -> None:
        """Leaves out the list that docket makes when it opens: it would read strikes, which nobody here sends."""

    async def add_key(self, key: str, seconds: float) -> None:
        """Adds a key for one worker to run, unless the queue has it or a worker runs it.

        Raises:
            StoreUnreachableError: Redis does not answer in time.
        """
        try:
            async with asyncio.timeout(seconds):
                await self.add(_TASK, key=key)()
        except (RedisError, TimeoutError) as error:
            DOCKET_LOG.begin_outage()
            raise StoreUnreachableError("The queue of promises does not answer.") from error
        DOCKET_LOG.end_outage()


class _BoundedConnection(RedisConnection):
    """docket's connection with a pool of its own: redis-py's opens one connection for every concurrent command."""

    async def __aenter__(self) -> RedisConnection:
        await super().__aenter__()
        if self._connection_pool is not None:
            self._client = _KeyClient(connection_pool=self._connection_pool)
        return self

    async def _connection_pool_from_url(
        self, decode_responses: bool = False, protocol: int | None = None
    ) -> ConnectionPool:
        pool = await super()._connection_pool_from_url(decode_responses, protocol)
        if protocol is not None:  # the one for cancellations, whose end says at once that Redis is gone
            return pool
        options = {**pool.connection_kwargs, "retry": Retry(ExponentialBackoff(_LONGEST_PAUSE, _FIRST_PAUSE), _RETRIES)}
        return BlockingConnectionPool(
            max_connections=_POOL_CONNECTIONS, timeout=None, connection_class=pool.connection_class, **options
        )


class _KeyClient(Redis):
    """A client for which every entry of a stream, and every hash, has only pickles of this process."""

    async def execute_command(self, *command: Any, **options: Any) -> Any:
        return _without_pickles(await super().execute_command(*command, **options))  # type: ignore[no-untyped-call]


def _without_pickles(reply: Any) -> Any:
    if isinstance(reply, dict):
        return {name: _PICKLED.get(name) or _without_pickles(value) for name, value in reply.items()}
    if isinstance(reply, list | tuple):
        return [_without_pickles(part) for part in reply]
    return reply


class KeyWorker:
    """Runs the keys of a queue, several at once."""

    def __init__(self, queue: KeyQueue, name: str, concurrency: int, redelivery_seconds: float) -> None:
        self._queue = queue
        self._name = name
        self._concurrency = concurrency
        self._redelivery_seconds = redelivery_seconds
        self._running: asyncio.Task[None] | None = None

    async def run(self, stop: asyncio.Event) -> None:
        """Runs keys until `stop` is set, and returns once those that it has begun have ended."""
        stopping = asyncio.ensure_future(stop.wait())
        try:
            while not stop.is_set():
                async with Worker(
                    self._queue,
                    self._name,
                    self._concurrency,
                    redelivery_timeout=timedelta(seconds=self._redelivery_seconds),
                    minimum_check_interval=timedelta(seconds=_CHECK_SECONDS),
                    scheduling_resolution=timedelta(seconds=_SCHEDULE_SECONDS),
                    schedule_automatic_tasks=False,
                ) as worker:
                    self._running = running = asyncio.ensure_future(worker.run_forever())
                    await asyncio.wait([running, stopping], return_when=asyncio.FIRST_COMPLETED)
                if not running.cancelled() and (error := running.exception()) is not None:
                    logger.error("the worker of promises failed and starts again", exc_info=error)
                    await asyncio.wait([stopping], timeout=_LONGEST_PAUSE)
        finally:
            stopping.cancel()

    def give_back(self) -> None:
        """Cancels what still runs after `stop`; docket then gives the keys to other workers."""
        if self._running is not None:
            self._running.cancel()


class DocketLog(logging.Handler):
    """Takes what docket logs: it says once that Redis cannot be reached, and passes on other warnings and errors."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._is_outage = False

    def install(self) -> None:
        """Takes over docket's logger, unless the program has configured that itself."""
        docket_logger = logging.getLogger("docket")
        if docket_logger.level == logging.NOTSET and not docket_logger.handlers:
            docket_logger.setLevel(logging.WARNING)
            docket_logger.propagate = False
            docket_logger.addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        message = record.getMessage()
        if "Redis" in message or isinstance(error, RedisConnectionError | RedisTimeoutError):
            self.begin_outage()
        elif isinstance(error, RedisError):
            logger.log(record.levelno, "the queue of promises: %s: %s", message, error)
        else:
            logger.log(record.levelno, "the queue of promises: %s", message, exc_info=record.exc_info)

    def begin_outage(self) -> None:
        """Says that Redis does not answer, unless that is said already."""
        if not self._is_outage:
            self._is_outage = True
            logger.error("no promise is started here until Redis answers again")

    def end_outage(self) -> None:
        """Says that Redis answers again, if it did not."""
        if self._is_outage:
            self._is_outage = False
            logger.warning("Redis answers again: promises are started")


DOCKET_LOG = DocketLog()
"""One for the process, as docket's logger is."""
