"""The sessions as requests find, change and end them: those of this process, or none. `SharedSessions` shares them."""

from deltamcp.dialects import versions
from deltamcp.dialects.dialect import Agreement, SessionDialect
from deltamcp.dialects.registry import Dialects
from deltamcp.errors import Fault
from deltamcp.limits import Limits
from deltamcp.runtime.change_hub import ChangeHub
from deltamcp.transports.http.exchange import Exchange
from deltamcp.transports.quota import HttpQuotas
from deltamcp.transports.sessions.live import HttpSession, HttpSessions
from deltamcp.transports.sessions.session import cancel_request
from deltamcp.transports.sessions.streams import FollowedStream
from deltamcp.values import JSON, About, Caller, Failure, Outcome, Principal, RequestId, Response, SessionAsk, Watch

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
