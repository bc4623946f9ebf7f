"""Handshake sessions over HTTP: opened by `initialize`, found by their id, forgotten when nobody uses them."""

import asyncio
import itertools
import secrets
import time
from typing import Any

from deltamcp.dialects.handshake import Agreement
from deltamcp.errors import Fault
from deltamcp.limits import Limits
from deltamcp.runtime.change_hub import Hub
from deltamcp.transports.event_streams import Stream, Streams
from deltamcp.transports.session import Session
from deltamcp.values import Failure, Principal, RequestId

_EARLY = 8
"""Different announcements kept for a session whose client has not opened its GET stream yet."""


class OpenSession:
    """A handshake session and what HTTP adds to it: an id, streams, the requests in flight."""

    __slots__ = ("_early", "id", "in_flight", "last_used", "session", "streams")

    def __init__(self, agreement: Agreement, principal: Principal, streams: Streams) -> None:
        self.id = secrets.token_hex(16)
        self.streams = streams
        self.session = Session(agreement, self, principal)
        self.in_flight: dict[RequestId, asyncio.Task[Any]] = {}
        self.last_used = time.monotonic()
        self._early: dict[bytes, None] | None = None

    def put(self, message: bytes) -> None:
        """A message that belongs to no request: for the GET stream, a few of them until the client opens it."""
        if self.streams.standalone is not None:
            self.streams.standalone.append(message)
            return
        if self._early is None:
            self._early = {}
        if len(self._early) < _EARLY:
            self._early[message] = None

    def open_standalone(self) -> Stream:
        stream = self.streams.open_standalone()
        for message in self._early or ():
            stream.append(message)
        self._early = None
        return stream

    def finished(self, id_: RequestId) -> None:
        """A request has been dealt with; so long the session was in use."""
        self.in_flight.pop(id_, None)
        self.last_used = time.monotonic()

    @property
    def busy(self) -> bool:
        return bool(self.in_flight) or self.streams.followed


class Sessions:
    """All of them, in the order of use."""

    def __init__(self, limits: Limits, hub: Hub) -> None:
        self._limits = limits
        self._hub = hub
        self._open: dict[str, OpenSession] = {}

    def open(self, agreement: Agreement, principal: Principal) -> OpenSession:
        self._make_room()
        opened = OpenSession(agreement, principal, Streams(self._limits))
        self._open[opened.id] = opened
        return opened

    def _make_room(self) -> None:
        """Forgets sessions idle too long and, where there are too many, the idlest; a few at a time."""
        now = time.monotonic()
        for opened in tuple(itertools.islice(self._open.values(), 64)):
            idle = now - opened.last_used
            if idle < self._limits.session_idle_seconds and len(self._open) < self._limits.sessions:
                break
            if not opened.busy:
                self.forget(opened)

    def forget(self, opened: OpenSession) -> None:
        """Ends its streams and cancels its requests."""
        self._open.pop(opened.id, None)
        self._hub.leave(opened.session)
        opened.streams.end()
        for task in opened.in_flight.values():
            task.cancel()

    def find(self, id_: bytes | None, principal: Principal) -> OpenSession | Failure:
        """The session a request names, where it is the caller's."""
        if id_ is None:
            return Failure(Fault.SESSION_REQUIRED, "The header Mcp-Session-Id is missing; send initialize first.")
        key = id_.decode("latin-1")
        found = self._open.get(key)
        now = time.monotonic()
        if found is not None and now - found.last_used > self._limits.session_idle_seconds and not found.busy:
            self.forget(found)
            found = None
        # Another caller's session is no more known than one that never was.
        if found is None or found.session.principal.id != principal.id:
            return Failure(Fault.SESSION_UNKNOWN, "There is no such session; send initialize to open one.")
        found.last_used = now
        self._open[key] = self._open.pop(key)
        return found
