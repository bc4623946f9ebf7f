"""The sessions of the handshake era over HTTP: `initialize` opens them, requests name them by id, idle ones expire.

`HttpSessions` has those that are live in this process. A `SessionDirectory` finds, changes and ends sessions for
requests: those of this process, or none. `SharedSessions` shares them.
"""

import asyncio
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from deltamcp.dialects import versions
from deltamcp.dialects.dialect import Agreement, SessionDialect
from deltamcp.dialects.registry import Dialects
from deltamcp.errors import Fault
from deltamcp.limits import Limits
from deltamcp.runtime.change_hub import ChangeHub
from deltamcp.runtime.quota import HttpQuotas
from deltamcp.transports.http.exchange import Exchange
from deltamcp.transports.sessions.records import StreamCopies
from deltamcp.transports.sessions.session import HandshakeSession, cancel_request
from deltamcp.transports.sessions.shared_streams import watched_bytes
from deltamcp.transports.sessions.streams import EventStream, FollowedStream, SessionStreams
from deltamcp.values import JSON, About, Caller, Failure, Outcome, Principal, RequestId, Response, SessionAsk, Watch

_MAX_EARLY_NOTIFICATIONS = 8
"""The number of distinct notifications stored for a session whose client has not opened its GET stream yet."""
_EXPIRED_AT_ONCE = 100
"""Sessions that end in one turn of the event loop, some 2 ms; 50,000 may expire at the same time."""

SESSION_REQUIRED = Failure(Fault.SESSION_REQUIRED, "The header Mcp-Session-Id is missing; send initialize first.")
SESSION_UNKNOWN = Failure(Fault.SESSION_UNKNOWN, "There is no such session; send initialize to open one.")


class HttpSession:
    """A handshake session with its id, account, event streams and requests in flight."""

    __slots__ = (
        "_early",
        "_quotas",
        "_watch_bytes",
        "account",
        "id",
        "in_flight",
        "last_used",
        "session",
        "streams",
        "uses",
    )

    def __init__(
        self,
        id_: str,
        account: str,
        dialect: SessionDialect,
        agreement: Agreement,
        caller: Caller,
        limits: Limits,
        quotas: HttpQuotas,
        copies: StreamCopies | None = None,
    ) -> None:
        """`copies` are those of the streams, where replicas share the session."""
        self.id: str = id_
        self.account: str = account
        self.streams: SessionStreams = SessionStreams(limits, quotas.replays, account, copies, id_)
        make_id = None if copies is None else copies.replica.next_id
        self.session: HandshakeSession = HandshakeSession(dialect, agreement, self, caller, make_id)
        self.in_flight: dict[RequestId, asyncio.Task[Any]] = {}
        self.last_used: float = time.monotonic()
        self.uses: int = 0
        """The requests and streams that are open in this session."""
        self._quotas = quotas
        self._watch_bytes = 0
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

    def apply(self, ask: SessionAsk) -> Outcome:
        """Changes the log level or the watched resources; what the session watches counts for its account."""
        if not isinstance(ask, Watch):
            return self.session.apply(ask)
        size = watched_bytes((ask.uri,))
        if (ask.uri in (self.session.watched or ())) == ask.on:
            return self.session.apply(ask)
        if ask.on and not self._quotas.watched.take(self.account, size):
            return Failure(Fault.OVERLOADED, "Too many resources are subscribed to; unsubscribe from some first.")
        outcome = self.session.apply(ask)
        if not ask.on or isinstance(outcome, Failure):
            self._quotas.watched.give_back(self.account, size)
        self._watch_bytes += 0 if isinstance(outcome, Failure) else size if ask.on else -size
        return outcome

    def close(self) -> None:
        """Ends the streams, cancels the requests, and gives back what counted for the account."""
        self.streams.close()
        if self._watch_bytes:
            self._quotas.watched.give_back(self.account, self._watch_bytes)
            self._watch_bytes = 0
        for task in self.in_flight.values():
            task.cancel()


class _AccountSessions:
    """The sessions of one account."""

    __slots__ = ("count", "idle")

    def __init__(self) -> None:
        self.count = 0
        self.idle: OrderedDict[str, HttpSession] = OrderedDict()
        """Those without an open request or stream, longest idle first."""


class _AccountsByIdle:
    """Accounts by the number of their idle sessions; finds one that has the most in constant time."""

    __slots__ = ("_accounts",)

    def __init__(self) -> None:
        self._accounts: list[dict[str, None]] = []

    def add(self, account: str, idle: int) -> None:
        """The account has one idle session more, `idle` in all."""
        if idle > 1:
            del self._accounts[idle - 2][account]
        if idle > len(self._accounts):
            self._accounts.append({})
        self._accounts[idle - 1][account] = None

    def remove(self, account: str, idle: int) -> None:
        """The account has one idle session less, `idle` in all."""
        del self._accounts[idle][account]
        if idle:
            self._accounts[idle - 1][account] = None
        while self._accounts and not self._accounts[-1]:
            self._accounts.pop()

    def with_most(self) -> str | None:
        return next(iter(self._accounts[-1])) if self._accounts else None


class HttpSessions:
    """The sessions of one server. A new one ends at most one idle session, of its account or of one that has more."""

    def __init__(
        self,
        limits: Limits,
        quotas: HttpQuotas,
        hub: ChangeHub,
        identify: Callable[[Principal, str, str, str], Caller],
        copies: StreamCopies | None = None,
    ) -> None:
        """`identify` is that of the engine; `copies` is that of `HttpSession`."""
        self._limits = limits
        self._quotas = quotas
        self._share = max(1, int(limits.sessions * limits.account_share))
        self._hub = hub
        self._identify = identify
        self._copies = copies
        self._open: dict[str, HttpSession] = {}
        self._accounts: dict[str, _AccountSessions] = {}
        self._idle: OrderedDict[str, HttpSession] = OrderedDict()
        self._by_idle = _AccountsByIdle()
        self._expiry: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def __len__(self) -> int:
        return len(self._open)

    def open(
        self, dialect: SessionDialect, agreement: Agreement, principal: Principal, account: str
    ) -> HttpSession | Failure:
        """Opens a session; a failure if there are too many, and none that may end for it is idle."""
        return self.add(secrets.token_hex(16), dialect, agreement, principal, account)

    def add(
        self, id_: str, dialect: SessionDialect, agreement: Agreement, principal: Principal, account: str
    ) -> HttpSession | Failure:
        """Adds a session with a given id; a failure as `open` returns it."""
        if not self._make_room(account):
            return Failure(Fault.OVERLOADED, "Too many sessions are open; end one by DELETE, or try again later.")
        caller = self._identify(principal, id_, "", account)
        opened = HttpSession(id_, account, dialect, agreement, caller, self._limits, self._quotas, self._copies)
        self._open[id_] = opened
        self._accounts.setdefault(account, _AccountSessions()).count += 1
        self._set_idle(opened)
        self._schedule_expiry()
        return opened

    def _make_room(self, account: str) -> bool:
        own = self._accounts.get(account)
        count = own.count if own is not None else 0
        if count < self._share and len(self._open) < self._limits.sessions:
            return True
        most_idle = self._by_idle.with_most()
        if count < self._share and most_idle is not None and len(self._accounts[most_idle].idle) > count:
            own = self._accounts[most_idle]
        if own is None or not own.idle:
            return False
        self.forget(next(iter(own.idle.values())))
        return True

    def find(self, id_: bytes | None, principal: Principal) -> HttpSession | Failure:
        """Returns the session that a request names; a failure if it does not exist or belongs to another principal."""
        if id_ is None:
            return SESSION_REQUIRED
        found = self._open.get(id_.decode("latin-1"))
        if found is not None and not found.uses and self._seconds_left(found) < 0:
            self.forget(found)
            found = None
        # An unknown session and another principal's get the same failure, so that clients cannot probe for sessions.
        if found is None or not _is_same(found.session.caller.principal, principal):
            return SESSION_UNKNOWN
        self.touch(found, principal)
        return found

    def get(self, id_: str) -> HttpSession | None:
        """Returns what this process has of a session."""
        return self._open.get(id_)

    def busy(self) -> list[HttpSession]:
        """Returns the sessions with an open request or stream."""
        return [opened for opened in self._open.values() if opened.uses]

    def touch(self, opened: HttpSession, principal: Principal) -> None:
        """A request of the session has come; its token may have other scopes than the one before."""
        if principal is not opened.session.caller.principal:
            opened.session.caller = self._identify(principal, opened.id, "", opened.account)
        opened.last_used = time.monotonic()
        if not opened.uses:
            self._idle.move_to_end(opened.id)
            self._accounts[opened.account].idle.move_to_end(opened.id)

    def begin_use(self, opened: HttpSession) -> None:
        """A request or a stream of the session begins; the session does not end while it is open."""
        opened.uses += 1
        if opened.uses == 1 and opened.id in self._idle:
            self._set_busy(opened)

    def end_use(self, opened: HttpSession) -> None:
        """A request or a stream of the session has ended, and the session's idle time begins anew."""
        opened.uses -= 1
        opened.last_used = time.monotonic()
        if not opened.uses and opened.id in self._open:
            self._set_idle(opened)
            self._schedule_expiry()

    def forget(self, opened: HttpSession) -> None:
        """Closes a session: ends its streams and cancels its requests."""
        if self._open.pop(opened.id, None) is None:
            return
        if opened.id in self._idle:
            self._set_busy(opened)
        own = self._accounts[opened.account]
        own.count -= 1
        if not own.count:
            del self._accounts[opened.account]
        self._hub.unsubscribe(opened.session)
        opened.close()

    def _set_idle(self, opened: HttpSession) -> None:
        own = self._accounts[opened.account]
        self._idle[opened.id] = own.idle[opened.id] = opened
        self._by_idle.add(opened.account, len(own.idle))

    def _set_busy(self, opened: HttpSession) -> None:
        own = self._accounts[opened.account]
        del self._idle[opened.id], own.idle[opened.id]
        self._by_idle.remove(opened.account, len(own.idle))

    # Expiry

    def _seconds_left(self, opened: HttpSession) -> float:
        return opened.last_used + self._limits.session_idle_seconds - time.monotonic()

    def _schedule_expiry(self) -> None:
        loop = asyncio.get_running_loop()
        if self._expiry is None or self._loop is not loop:
            self._loop = loop
            self._expiry = loop.call_later(self._limits.session_idle_seconds, self._expire)

    def _expire(self) -> None:
        """Closes expired sessions, a few in each turn of the loop."""
        self._expiry = None
        for _ in range(_EXPIRED_AT_ONCE):
            oldest = next(iter(self._idle.values()), None)
            if oldest is None:
                return
            if (left := self._seconds_left(oldest)) > 0:
                break
            self.forget(oldest)
        else:
            left = 0.0
        assert self._loop is not None, "a loop runs this"
        self._expiry = self._loop.call_later(left, self._expire)


def _is_same(one: Principal, other: Principal) -> bool:
    return one is other or one.key == other.key


SESSION_HEADER = b"mcp-session-id"


class SessionDirectory:
    """The sessions of one process, which no other process serves."""

    are_kept = True
    """Whether a client that has sent `initialize` gets a session, which its other requests name."""

    def __init__(self, live: HttpSessions, hub: ChangeHub) -> None:
        self._live = live
        self._hub = hub

    def __len__(self) -> int:
        return len(self._live)

    async def open(
        self, dialect: SessionDialect, agreement: Agreement, principal: Principal, account: str
    ) -> HttpSession | Failure:
        """Opens a session."""
        return self._live.open(dialect, agreement, principal, account)

    async def find(self, exchange: Exchange) -> HttpSession | Failure:
        """Returns the session that a request names; a failure if it does not exist or belongs to another principal."""
        return self._live.find(exchange.headers.get(SESSION_HEADER), exchange.caller.principal)

    def describe(self, about: About) -> About:
        """Returns the part of the server's description that holds for its sessions."""
        return about

    def begin_use(self, opened: HttpSession) -> None:
        """A request or a stream of the session begins; the session does not end while it is open."""
        self._live.begin_use(opened)

    def end_use(self, opened: HttpSession) -> None:
        """A request or a stream of the session has ended, and the session's idle time begins anew."""
        self._live.end_use(opened)

    async def end(self, opened: HttpSession) -> Failure | None:
        """Ends a session."""
        self._live.forget(opened)
        return None

    def start_listening(self, opened: HttpSession) -> None:
        """The client is ready to hear of changes."""
        self._hub.subscribe(opened.session)

    async def apply(self, opened: HttpSession, ask: SessionAsk) -> Outcome:
        """Changes the log level or the watched resources."""
        outcome = opened.apply(ask)
        if isinstance(ask, Watch):
            self._hub.watch(opened.session, (ask.uri,))
        return outcome

    async def resolve(self, opened: HttpSession, response: Response) -> Failure | None:
        """Passes the client's response to the call that waits for it."""
        opened.session.resolve(response)
        return None

    async def cancel(self, opened: HttpSession, id_: RequestId | None) -> Failure | None:
        """Cancels a request; an unknown or finished one is no error."""
        cancel_request(opened.in_flight, id_)
        return None

    async def listen(self, opened: HttpSession, last_event: str | None) -> FollowedStream | Failure:
        """Returns the stream of messages outside requests, or the one that the id of its last event resumes."""
        primed = is_primed(opened)
        resumed = None if last_event is None else opened.streams.resume(last_event)
        if resumed is not None:
            # A resumed stream ends with its response, so it needs no `close`.
            return FollowedStream(*resumed, primed=primed)
        # The events of a forgotten stream cannot be sent again, so the client gets the GET stream.
        stream = opened.open_standalone()
        return FollowedStream(stream, stream.sent, primed=primed, close=stream.end)


def is_primed(opened: HttpSession) -> bool:
    """Whether the streams of a session begin with an empty event."""
    return opened.session.agreement.version >= versions.PRIMING_SINCE


_NOT_KEPT = Failure(
    Fault.UNKNOWN_METHOD, "This server keeps no sessions, so it cannot remember what a client subscribes to or sets."
)
_ONLY_POST = Failure(Fault.WRONG_HTTP_METHOD, "This server keeps no sessions; send POST.")


class NoSessions(SessionDirectory):
    """Makes a session for each request and forgets it with the request."""

    are_kept = False

    def __init__(
        self, live: HttpSessions, hub: ChangeHub, limits: Limits, quotas: HttpQuotas, dialects: Dialects
    ) -> None:
        super().__init__(live, hub)
        self._limits = limits
        self._quotas = quotas
        self._dialect = dialects.default

    async def open(
        self, dialect: SessionDialect, agreement: Agreement, principal: Principal, account: str
    ) -> HttpSession | Failure:
        return self._make(agreement, Caller(principal, account=account))

    async def find(self, exchange: Exchange) -> HttpSession | Failure:
        # MCP 2025-11-25, "Protocol Version Header": without the header, the version is 2025-03-26.
        header = exchange.headers.get(b"mcp-protocol-version", versions.WITHOUT_HEADER.encode())
        return self._make(Agreement(header.decode("latin-1").strip(), {}, {}, log_level=None), exchange.caller)

    def _make(self, agreement: Agreement, caller: Caller) -> HttpSession:
        return HttpSession("", caller.account, self._dialect, agreement, caller, self._limits, self._quotas)

    def describe(self, about: About) -> About:
        """Returns the server's description without what needs sessions: questions, subscriptions, log messages."""
        kept: dict[str, JSON] = {name: {} for name in about.capabilities if name != "logging"}
        return About(about.info, kept, about.instructions, about.gives_promises)

    def begin_use(self, opened: HttpSession) -> None:
        """Does nothing, as the session is the request's own."""

    def end_use(self, opened: HttpSession) -> None:
        """Does nothing, as the session is the request's own."""

    def start_listening(self, opened: HttpSession) -> None:
        """Does nothing: there is no stream to hear of changes by."""

    async def apply(self, opened: HttpSession, ask: SessionAsk) -> Outcome:
        return _NOT_KEPT

    async def end(self, opened: HttpSession) -> Failure | None:
        return _ONLY_POST

    async def listen(self, opened: HttpSession, last_event: str | None) -> FollowedStream | Failure:
        return _ONLY_POST
