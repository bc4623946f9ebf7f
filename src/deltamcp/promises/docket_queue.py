"""docket as this library uses it: few connections, no values of ours, and one sentence where it would log tracebacks.

docket pickles the arguments and the results of what it runs. Here an argument is the key of a promise, a short text,
and nothing is returned or raised, so that the store has every value. Whoever can write to the Redis server can still
put a pickle into the queue that runs code in a worker: `docs/promises.md` says how to protect it.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import timedelta

from docket import Docket, Worker
from docket._redis import RedisConnection
from redis.asyncio import BlockingConnectionPool, ConnectionPool
from redis.asyncio.retry import Retry
from redis.backoff import ExponentialBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError
from redis.exceptions import TimeoutError as RedisTimeoutError

from deltamcp.stores.store import StoreUnreachableError

_POOL_CONNECTIONS = 2
"""One reads the queue, the other has all further commands in turn. Beside them docket opens one for cancellations and
one for strikes, neither of which is used here."""

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

logger = logging.getLogger("deltamcp")


class KeyQueue(Docket):
    """A docket that carries keys only and remembers nothing of one that has been run."""

    def __init__(self, name: str, url: str, run: Callable[[str], Awaitable[None]]) -> None:
        super().__init__(
            name, url, heartbeat_interval=timedelta(seconds=_HEARTBEAT_SECONDS), execution_ttl=timedelta(0)
        )
        self.tasks.clear()  # docket's own examples: to print, to sleep, to fail
        self.register(run, [_TASK])
        self._redis = _BoundedConnection(url)

    async def add_key(self, key: str) -> None:
        """Adds a key for one worker to run, unless the queue has it or a worker runs it.

        Raises:
            StoreUnreachableError: Redis does not answer.
        """
        try:
            await self.add(_TASK, key=key)(key)
        except RedisError as error:
            raise StoreUnreachableError("The queue of promises cannot be reached.") from error
        DOCKET_LOG.end_outage()


class _BoundedConnection(RedisConnection):
    """docket's connection with a pool of its own: redis-py's opens one connection for every concurrent command."""

    async def _connection_pool_from_url(
        self, decode_responses: bool = False, protocol: int | None = None
    ) -> ConnectionPool:
        pool = await super()._connection_pool_from_url(decode_responses, protocol)
        options = {**pool.connection_kwargs, "retry": Retry(ExponentialBackoff(_LONGEST_PAUSE, _FIRST_PAUSE), _RETRIES)}
        return BlockingConnectionPool(
            max_connections=_POOL_CONNECTIONS, timeout=None, connection_class=pool.connection_class, **options
        )


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
            if not self._is_outage:
                self._is_outage = True
                logger.error("no promise is started here until Redis answers again")
        elif isinstance(error, RedisError):
            logger.log(record.levelno, "the queue of promises: %s: %s", message, error)
        else:
            logger.log(record.levelno, "the queue of promises: %s", message, exc_info=record.exc_info)

    def end_outage(self) -> None:
        """Says that Redis answers again, if it did not."""
        if self._is_outage:
            self._is_outage = False
            logger.warning("Redis answers again: promises are started")


DOCKET_LOG = DocketLog()
"""One for the process, as docket's logger is."""
