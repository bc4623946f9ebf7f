"""Handshake sessions over HTTP: `initialize` opens them, requests name them by id, and idle ones expire."""

import asyncio
import itertools
import secrets
import time
from collections.abc import Callable
from typing import Any

from deltamcp.dialects.dialect import Agreement, SessionDialect
from deltamcp.errors import Fault
from deltamcp.limits import Limits
from deltamcp.runtime.change_hub import ChangeHub
from deltamcp.transports.event_streams import EventStream, SessionStreams
from deltamcp.transports.handshake_session import HandshakeSession
from deltamcp.values import Caller, Failure, Principal, RequestId

_MAX_EARLY_NOTIFICATIONS = 8
"""The number of distinct notifications stored for a session whose client has not opened its GET stream yet."""


class HttpSession:
    """A handshake session with its id, event streams and requests in flight."""

    __slots__ = ("_early", "id", "in_flight", "last_used", "session", "streams")

    def __init__(self, id_: str, dialect: SessionDialect, agreement: Agreement, caller: Caller, limits: Limits) -> None:
        self.id = id_
        self.streams = SessionStreams(limits)
        self.session = HandshakeSession(dialect, agreement, self, caller)
        self.in_flight: dict[RequestId, asyncio.Task[Any]] = {}
        self.last_used = time.monotonic()
        self._early: dict[bytes, None] | None = None

    def put(self, message: bytes) -> None:
        """Sends a message by the GET stream; until the client opens it, stores the first few messages."""
        if self.streams.standalone is not None:
            self.streams.standalone.append(message)
            return
        if self._early is None:
            self._early = {}
        if len(self._early) < _MAX_EARLY_NOTIFICATIONS:
            self._early[message] = None

    def open_standalone(self) -> EventStream:
        stream = self.streams.open_standalone()
        for message in self._early or ():
            stream.append(message)
        self._early = None
        return stream

    def request_finished(self, id_: RequestId) -> None:
        """Removes a request in flight, and restarts the session's idle time."""
        self.in_flight.pop(id_, None)
        self.last_used = time.monotonic()

    @property
    def is_busy(self) -> bool:
        return bool(self.in_flight) or self.streams.is_followed


class HttpSessions:
    """The sessions of one server, least recently used first."""

    def __init__(self, limits: Limits, hub: ChangeHub, identify: Callable[[Principal, str], Caller]) -> None:
        """`identify` returns the caller for a principal and a session id."""
        self._limits = limits
        self._hub = hub
        self._identify = identify
        self._open: dict[str, HttpSession] = {}

    def open(self, dialect: SessionDialect, agreement: Agreement, principal: Principal) -> HttpSession:
        self._evict_idle()
        id_ = secrets.token_hex(16)
        opened = HttpSession(id_, dialect, agreement, self._identify(principal, id_), self._limits)
        self._open[id_] = opened
        return opened

    def _evict_idle(self) -> None:
        """Closes expired sessions and, above the limit, the longest idle ones; at most 64 in one call."""
        now = time.monotonic()
        for opened in tuple(itertools.islice(self._open.values(), 64)):
            idle = now - opened.last_used
            if idle < self._limits.session_idle_seconds and len(self._open) < self._limits.sessions:
                break
            if not opened.is_busy:
                self.forget(opened)

    def forget(self, opened: HttpSession) -> None:
        """Closes a session: ends its streams and cancels its requests."""
        self._open.pop(opened.id, None)
        self._hub.unsubscribe(opened.session)
        opened.streams.end()
        for task in opened.in_flight.values():
            task.cancel()

    def find(self, id_: bytes | None, principal: Principal) -> HttpSession | Failure:
        """Returns the session that a request names; a failure if it does not exist or belongs to another principal."""
        if id_ is None:
            return Failure(Fault.SESSION_REQUIRED, "The header Mcp-Session-Id is missing; send initialize first.")
        key = id_.decode("latin-1")
        found = self._open.get(key)
        now = time.monotonic()
        if found is not None and now - found.last_used > self._limits.session_idle_seconds and not found.is_busy:
            self.forget(found)
            found = None
        # An unknown session and another principal's get the same failure, so that clients cannot probe for sessions.
        if found is None or found.session.caller.principal.id != principal.id:
            return Failure(Fault.SESSION_UNKNOWN, "There is no such session; send initialize to open one.")
        found.last_used = now
        self._open[key] = self._open.pop(key)
        return found
