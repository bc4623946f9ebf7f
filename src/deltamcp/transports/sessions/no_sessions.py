"""Handshake clients without sessions: each of their requests stands alone, and any process can serve it."""

from deltamcp.dialects import versions
from deltamcp.dialects.dialect import Agreement, SessionDialect
from deltamcp.dialects.registry import Dialects
from deltamcp.errors import Fault
from deltamcp.limits import Limits
from deltamcp.runtime.change_hub import ChangeHub
from deltamcp.transports.http.exchange import Exchange
from deltamcp.transports.quota import HttpQuotas
from deltamcp.transports.sessions.directory import SessionDirectory
from deltamcp.transports.sessions.live import HttpSession, HttpSessions
from deltamcp.transports.sessions.streams import FollowedStream
from deltamcp.values import JSON, About, Caller, Failure, Outcome, Principal, SessionAsk

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
