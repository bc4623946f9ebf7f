"""What an operator sets and sees of an upstream: settings, phases, and what changes them. Pure: does no I/O."""

import enum
from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

from msgspec import Struct


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
