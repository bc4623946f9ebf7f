"""The clients of an upstream: started when needed, started again after a loss, stopped when nobody uses them.

With what an operator sets and sees of an upstream: settings, phases, and what changes these.
"""

import asyncio
import contextvars
import enum
import functools
import logging
import random
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager, suppress
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct

from deltamcp.client.target import UnmadeServer, parse_target
from deltamcp.errors import ClientError, DeltaError, UnauthorizedError, UnreachableError
from deltamcp.runtime.log import RepeatedWarnings
from deltamcp.values import ANONYMOUS, LOCAL, Principal

if TYPE_CHECKING:
    from deltamcp.client.client import GatewayClient
    from deltamcp.client.links.process import ProcessGuard


_FIRST_SECONDS = 0.5
_MAX_SECONDS = 60.0
_MAX_DOUBLINGS = 10
RAN_WELL_SECONDS = 5.0
"""An upstream that was ready for so long ran well: what happened before does not count against it."""
logger: logging.Logger = logging.getLogger("deltamcp")
_LINES_PER_SECOND = 20
_MAX_CHARS = 500
_MAX_KEPT, _MAX_KEPT_CHARS = 200, 4_000
"""The lines that are kept for people who ask later why a server failed, and the characters of each; a secret that is
cut there is beyond what is shown."""
_NO_START = "cannot be started"
_SHORT_SECONDS = 2.0
"""A request waits for a restart that is due so soon; if it is due later, the caller is told when to try again."""
_RETIRED_IDLE_SECONDS = 0.5
"""How long a client that another one replaces waits for requests that were on their way to it."""


class Phase(enum.Enum):
    """What an upstream's connection is doing."""

    STOPPED = "stopped"
    """It is not there; the next request starts it."""
    STARTING = "starting"
    READY = "ready"
    BACKING_OFF = "backing off"
    """It was lost or did not start; after a wait the next request starts it."""
    STOPPING = "stopping"
    CLOSED = "closed"
    """This server has ended, and does not start it before it is opened again."""


class Event(enum.Enum):
    """What happens to an upstream's connection."""

    START = enum.auto()
    """Somebody needs it."""
    STARTED = enum.auto()
    FAILED = enum.auto()
    """It did not start."""
    LOST = enum.auto()
    """It ended by itself, or cannot be reached any more."""
    STOP = enum.auto()
    """Nobody has used it for long."""
    STOPPED = enum.auto()
    CLOSE = enum.auto()
    """This server ends."""
    OPEN = enum.auto()
    """This server begins again."""


_P, _E = Phase, Event
NEXT: Mapping[Phase, Mapping[Event, Phase]] = MappingProxyType(
    {
        _P.STOPPED: {_E.START: _P.STARTING, _E.CLOSE: _P.CLOSED},
        _P.STARTING: {_E.STARTED: _P.READY, _E.FAILED: _P.BACKING_OFF, _E.CLOSE: _P.CLOSED},
        _P.READY: {_E.LOST: _P.BACKING_OFF, _E.STOP: _P.STOPPING, _E.CLOSE: _P.CLOSED},
        _P.BACKING_OFF: {_E.START: _P.STARTING, _E.CLOSE: _P.CLOSED},
        _P.STOPPING: {_E.STOPPED: _P.STOPPED, _E.CLOSE: _P.CLOSED},
        _P.CLOSED: {_E.OPEN: _P.STOPPED},
    }
)
"""The phase that follows, by phase and event; other events leave the phase as it is."""


class UpstreamState(Struct, frozen=True, kw_only=True):
    """What an upstream is doing, for people and programs that watch it. It has no secrets."""

    name: str
    phase: Phase
    since: float
    """When the phase began, in seconds since 1970."""
    pid: int | None = None
    """The process of the server, if this one started it and it runs."""
    protocol: str | None = None
    """The revision of MCP that was last negotiated."""
    starts: int = 0
    """How often it became ready."""
    restarts: int = 0
    """How often it became ready again."""
    failures: int = 0
    """How often in a row it was lost soon, or did not start."""
    retry_at: float | None = None
    """While it backs off: when the next request may start it, in seconds since 1970."""
    open_calls: int = 0
    waiting_calls: int = 0
    """Of the open calls, those that wait for their turn."""
    subscriptions: int = 0
    principals: int = 0
    """How many principals have a process or a connection of their own."""
    last_error: str | None = None
    """Why it was last lost or did not start."""
    last_reason: str = ""
    """The same without the words that name the server or its program."""
    wants_login: bool = False
    """Whether it did not start because it wants a token that nobody has."""


class UpstreamSettings(Struct, frozen=True, kw_only=True):
    """How an upstream is started, used and stopped."""

    timeout: float | None = None
    """The seconds that a request may take; None for the client's own bound."""
    concurrency: int | None = None
    """The requests that it performs at once; None for any number."""
    max_waiting: int = 100
    """The requests that wait for their turn; further ones are refused, and may be sent again later."""
    start: Literal["first-use", "ahead"] = "first-use"
    """Whether it is started when somebody needs it, or with this server and again whenever it is lost."""
    start_seconds: float = 30.0
    """The seconds that it may take to start and to introduce itself."""
    idle_seconds: float | None = 600.0
    """After how many seconds without a request it is stopped; None never."""
    process_for: Literal["all", "principal"] = "all"
    """Whether all callers share one process or connection, or each principal has its own."""
    max_principals: int = 32
    """How many principals may have their own at once; who has not used it for longest makes room for another."""


class NotReadyError(DeltaError):
    """An upstream backs off after failures, or this server ends."""

    def __init__(self, seconds: float) -> None:
        super().__init__("The upstream is not ready.")
        self.seconds = seconds
        """When it may be tried again, in seconds from now."""


class UpstreamClient:
    """Keeps a `GatewayClient` that does not reconnect by itself, and decides when it connects.

    The client is one and the same over all connections, because it remembers which protocol the server speaks and what
    is subscribed to.
    """

    def __init__(
        self,
        name: str,
        target: dict[str, Any] | UnmadeServer,
        settings: UpstreamSettings,
        redact: Callable[[str], str],
        guard: "ProcessGuard | None" = None,
        on_ready: "Callable[[GatewayClient], None]" = lambda client: None,
        **options: Any,
    ) -> None:
        """
        Args:
            target: As of `Upstream`.
            redact: Removes secrets from a text of the server.
            on_ready: Called whenever it has become ready.
            options: Further options of the `GatewayClient`.

        Raises:
            ConfigurationError: the target is no entry of a server.
        """
        self._name, self._settings, self._redact = name, settings, redact
        if guard is not None:
            options["guard"] = guard
        self._label = parse_target(target).label
        self._warnings = RepeatedWarnings()
        self.stderr: StderrLines = StderrLines(name, redact)
        self._target, self._options = target, options
        self._on_ready = on_ready
        self.life: int = 0
        """How often it has become ready; what was sent in one life is lost with it."""
        self.listed_life = self.compared_life = 0
        """The life in which its lists were last fetched, and the one in which they were last compared."""
        self._phase = Phase.STOPPED
        self._since = time.time()
        self._ready_at = 0.0
        self._failures = 0
        self._wait_seconds = 0.0
        self._retry_at = 0.0
        self._last_error: str | None = None
        self._wants_login = False
        self._change: asyncio.Task[None] | None = None
        """The start or stop under way."""
        self._restart_timer: asyncio.TimerHandle | None = None
        self._idle_timer: asyncio.TimerHandle | None = None
        self._users = 0
        self._last_used = 0.0
        self._idle_seconds = settings.idle_seconds
        self._is_retired = False
        self.keeps_warm: bool = settings.start == "ahead"
        """Whether it is started again when it is lost, though no request has come."""

    def remember_protocol(self, protocol: str) -> None:
        """Has the first connection begin with the protocol that the server spoke when it was last seen."""
        if "_client" not in vars(self):
            self._options["known_protocol"] = protocol

    @functools.cached_property
    def _client(self) -> "GatewayClient":
        from deltamcp.client.client import GatewayClient  # takes 50 ms, and a gateway lists tools without it

        return GatewayClient(
            self._target,
            validate=False,
            progressive=False,
            cache_seconds=0.0,
            start_timeout=self._settings.start_seconds,
            reconnect=False,
            on_end=self._receive_end,
            on_stderr=self.stderr.add,
            **self._options,
        )

    # Use

    async def ready(self) -> "GatewayClient":
        """Returns the client, connected; starts it, or waits for a start under way.

        Raises:
            NotReadyError: it is not started now.
            UnreachableError: it did not start.
        """
        while self._phase is not Phase.READY:
            if self._phase is Phase.CLOSED:
                raise NotReadyError(0.0)
            if self._change is None:
                seconds = self._retry_at - asyncio.get_running_loop().time()
                if self._phase is Phase.BACKING_OFF and seconds > _SHORT_SECONDS:
                    raise NotReadyError(seconds)
                if self._phase is Phase.BACKING_OFF and seconds > 0:
                    await asyncio.sleep(seconds)
                    continue
                self.start()
            assert self._change is not None
            was_starting = self._phase is Phase.STARTING
            await asyncio.wait([self._change])
            if was_starting and self._phase is Phase.BACKING_OFF:
                raise UnreachableError(self._last_error or "")
        return self._client

    async def unsubscribe(self, uri: str) -> None:
        """Ends a subscription of the client; while the server is away, the client only forgets it.

        Raises:
            ClientError, PeerError: the server is there, and cannot be told.
        """
        was_ready = self.is_ready
        try:
            await self._client.unsubscribe(uri)
        except ClientError:
            if was_ready:
                raise

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Keeps it from being stopped meanwhile, and no longer."""
        self._users += 1
        try:
            yield
        finally:
            self._users -= 1

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Keeps it from being stopped for having no use: during a call, also one that is parked, and a subscription."""
        loop = asyncio.get_running_loop()  # a use may outlive it: what nobody ends is ended by the garbage collector
        with self.kept():
            try:
                yield
            finally:
                self._last_used = loop.time()

    def lose(self, life: int, error: Exception) -> None:
        """Gives up a connection over which the server cannot be reached; a later one stays."""
        if life == self.life and self._phase is Phase.READY:
            self._client.disconnect()
            self._receive_end(str(error))

    @property
    def is_ready(self) -> bool:
        return self._phase is Phase.READY

    @property
    def is_connected(self) -> bool:
        return self._client.is_connected

    @property
    def is_in_use(self) -> bool:
        return self._users > 0

    @property
    def state(self) -> UpstreamState:
        return UpstreamState(
            name=self._name,
            phase=self._phase,
            since=self._since,
            pid=self._client.pid if self._phase is Phase.READY else None,
            protocol=self._client.server.protocol if self.life else None,
            starts=self.life,
            restarts=max(0, self.life - 1),
            failures=self._failures,
            retry_at=self._since + self._wait_seconds if self._phase is Phase.BACKING_OFF else None,
            last_error=self._last_error,
            wants_login=self._wants_login,
            last_reason=_reason((self._last_error or "").removeprefix(f"{self._label} ")),
        )

    # Changes of the phase

    def _advance(self, event: Event) -> bool:
        """Changes the phase; returns False if the event changes nothing in this phase."""
        following = NEXT[self._phase].get(event)
        if following is None:
            return False
        self._phase, self._since = following, time.time()
        return True

    def start(self) -> None:
        """Begins a start, unless one is under way or it is ready."""
        if self._change is None and self._advance(Event.START):
            self._begin(self._start())

    async def _start(self) -> None:
        try:
            await self._client.__aenter__()
        except Exception as error:
            if not isinstance(error, DeltaError):
                logger.exception("%s: it could not be started", self._name)
            if self._advance(Event.FAILED):
                self._wants_login = isinstance(error, UnauthorizedError)
                self._back_off(str(error))
            return
        self._wants_login = False
        if not self._advance(Event.STARTED):
            return
        if self._warnings.count > 1:
            logger.info("%s: it runs again, after %d failures.", self._name, self._warnings.count)
        loop = asyncio.get_running_loop()
        self.life += 1
        self._ready_at = self._last_used = loop.time()
        if not self._client.is_connected:  # it ended while this task waited to go on
            self._receive_end("The server ended at once.")
            return
        logger.info("%s: it is ready.", self._name)
        self._await_idleness()
        self._on_ready(self._client)

    def _receive_end(self, reason: str) -> None:
        if self._advance(Event.LOST):
            if asyncio.get_running_loop().time() - self._ready_at >= RAN_WELL_SECONDS:
                self._failures = 0
                self._warnings.clear()
            self._back_off(reason)

    def _back_off(self, reason: str) -> None:
        self._failures += 1
        self._last_error = self._redact(reason)
        self._wait_seconds = seconds = wait_seconds(self._failures, random.random())  # noqa: S311 - no secret
        loop = asyncio.get_running_loop()
        self._retry_at = loop.time() + seconds
        _cancel(self._idle_timer)
        warning = self._warnings.add(self._last_error)
        if warning is not None:
            logger.warning("%s: %s It is started again %s.", self._name, warning, _when(seconds))
        if self.keeps_warm:
            self._restart_timer = loop.call_later(seconds, self.start)

    def retire(self) -> None:
        """Has it stopped soon after its last use, whatever the settings say, and not started without a request."""
        self._is_retired = True
        self._idle_seconds, self.keeps_warm = _RETIRED_IDLE_SECONDS, False
        _cancel(self._restart_timer)
        if self._phase is Phase.READY:
            self._await_idleness()

    def _await_idleness(self) -> None:
        _cancel(self._idle_timer)
        if self._idle_seconds is not None:
            self._idle_timer = asyncio.get_running_loop().call_later(self._idle_seconds, self._stop_if_idle)

    def _stop_if_idle(self) -> None:
        loop, idle_seconds = asyncio.get_running_loop(), self._idle_seconds
        assert idle_seconds is not None
        idle_at = (loop.time() if self._users else self._last_used) + idle_seconds
        if idle_at > loop.time():
            self._idle_timer = loop.call_at(idle_at, self._stop_if_idle)
        elif self._change is None and self._advance(Event.STOP):
            self._begin(self._stop())

    async def _stop(self) -> None:
        why = "the configuration has changed" if self._is_retired else "nobody has used it for a while"
        logger.info("%s: it is stopped, because %s.", self._name, why)
        try:
            await self._client.__aexit__(None, None, None)
        finally:
            self._advance(Event.STOPPED)

    def _begin(self, change: Coroutine[Any, Any, None]) -> None:
        """Runs a start or a stop beside its callers, whose context variables it does not keep."""
        task = asyncio.get_running_loop().create_task(change, context=contextvars.Context())
        self._change = task

        def end(_: "asyncio.Task[None]") -> None:
            self._change = None
            if not task.cancelled() and task.exception() is not None:
                logger.error("%s: it could not be stopped", self._name, exc_info=task.exception())

        task.add_done_callback(end)

    def restart(self) -> None:
        """Begins to start it anew, without a wait after failures. Requests in flight end with the old connection.

        A start or a stop under way goes on.
        """
        _cancel(self._idle_timer, self._restart_timer)
        if self._phase is Phase.READY:
            self._client.disconnect()
            self._advance(Event.LOST)
        self._failures, self._retry_at = 0, 0.0
        self._warnings.clear()
        logger.info("%s: it is started anew, because its user asks for that.", self._name)
        self.start()

    def open(self) -> None:
        """Lets requests start it again after `close`."""
        if self._advance(Event.OPEN):
            self._failures = 0

    async def close(self) -> None:
        """Ends the connection and the process, if there is one, and starts it no more."""
        if not self._advance(Event.CLOSE):
            return
        _cancel(self._idle_timer, self._restart_timer)
        if self._change is not None:
            self._change.cancel()
            with suppress(asyncio.CancelledError):
                await asyncio.wait([self._change])
        if "_client" in vars(self):  # only then was it ever started
            await self._client.__aexit__(None, None, None)


def wait_seconds(failures: int, chance: float) -> float:
    """Returns the seconds to wait after so many failures in a row; none after the first.

    The wait doubles with each failure. `chance`, from 0 to 1, spreads it over its upper half, so that upstreams that
    failed together do not start together.
    """
    if failures <= 1:
        return 0.0
    whole = min(_MAX_SECONDS, _FIRST_SECONDS * 2.0 ** min(failures - 2, _MAX_DOUBLINGS))
    return whole * (0.5 + chance / 2)


def _reason(text: str) -> str:
    """Returns why a server does not run, without its command line, and without advice to who wrote that."""
    return _NO_START if text.startswith(_NO_START) else text.partition("; is it an MCP server")[0]


def _cancel(*timers: asyncio.TimerHandle | None) -> None:
    for timer in timers:
        if timer is not None:
            timer.cancel()


def _when(seconds: float) -> str:
    return f"not before {seconds:.0f} s have passed" if seconds >= 1 else "when it is needed"


class UpstreamClients:
    """Gives each caller its client. Two principals never share one, unless all do.

    The client of the local user, who has no name and no credentials, is also the one that lists and subscribes.
    """

    def __init__(self, make: Callable[[Principal], UpstreamClient], *, is_shared: bool, max_principals: int) -> None:
        """
        Args:
            make: Makes the client of a principal.
            max_principals: How many principals may have one at once, beside the local user.
        """
        self._make, self._is_shared, self._max_principals = make, is_shared, max_principals
        self.local: UpstreamClient = make(LOCAL)
        self._others: dict[tuple[bool, str], UpstreamClient] = {}
        """By whether nobody authenticates the principal, and its key; the last was used last."""
        self._closing: set[asyncio.Task[None]] = set()
        self._is_open = True
        self._is_retired = False

    def __iter__(self) -> Iterator[UpstreamClient]:
        yield self.local
        yield from self._others.values()

    def find(self, principal: Principal) -> UpstreamClient | None:
        """Returns the client that a principal has already."""
        return self.local if principal is LOCAL else self._others.get((principal is ANONYMOUS, principal.key))

    def get(self, principal: Principal) -> UpstreamClient | None:
        """Returns the client of a principal; None if all that there may be are in use by others."""
        if self._is_shared or principal is LOCAL:
            return self.local
        key = principal is ANONYMOUS, principal.key  # a user may have its name
        client = self._others.pop(key, None)
        if client is None:
            if not self._is_open or (len(self._others) >= self._max_principals and not self._drop_idle()):
                return None
            client = self._make(principal)
            if self._is_retired:
                client.retire()
        self._others[key] = client
        return client

    def _drop_idle(self) -> bool:
        """Closes the client that nobody has used for longest; returns False if all are in use."""
        for key, client in self._others.items():
            if not client.is_in_use:
                del self._others[key]
                task = asyncio.get_running_loop().create_task(client.close())
                self._closing.add(task)
                task.add_done_callback(self._closing.discard)
                return True
        return False

    def open(self) -> None:
        """Lets callers use clients again after `close`."""
        self._is_open = True
        self.local.open()

    def retire(self) -> None:
        """Has all clients stop after their last use."""
        self._is_retired = True
        for client in self:
            client.retire()

    async def close(self) -> None:
        """Ends all connections and processes."""
        self._is_open = False
        others = list(self._others.values())
        self._others.clear()
        await asyncio.gather(*self._closing, *(client.close() for client in (self.local, *others)))


class StderrLines:
    """Logs what one upstream writes to stderr; of a flood, the first lines of every second and how many came."""

    def __init__(self, name: str, redact: Callable[[str], str]) -> None:
        self._name, self._redact = name, redact
        self._second = 0.0
        self._count = 0
        self._last: deque[tuple[float, str]] = deque(maxlen=_MAX_KEPT)

    def add(self, line: str) -> None:
        now = time.monotonic()
        if now - self._second >= 1.0:
            if self._count > _LINES_PER_SECOND:
                logger.info("%s: %d more lines on stderr are left out", self._name, self._count - _LINES_PER_SECOND)
            self._second, self._count = now, 0
        self._count += 1
        if self._count <= _LINES_PER_SECOND and line.strip():
            self._last.append((time.time(), line[:_MAX_KEPT_CHARS]))
            if logger.isEnabledFor(logging.INFO):
                # Redacted before it is cut, which may be inside of a secret.
                logger.info("%s: %s", self._name, self._redact(line)[:_MAX_CHARS])

    @property
    def last(self) -> list[tuple[float, str]]:
        """The last lines without secrets, each with its time in seconds since 1970."""
        return [(at, self._redact(line)[:_MAX_CHARS]) for at, line in self._last]
