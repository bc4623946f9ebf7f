"""The table of dialects, and the choice between them: the first message of a client decides.

A new revision of MCP that reads as an earlier one is a version in `versions.py`; a new protocol, or a revision whose
messages differ, is a dialect of its own and a row here.
"""

from collections.abc import Callable

from deltamcp.dialects.delta_mcp import DeltaMcp
from deltamcp.dialects.dialect import Dialect, SessionDialect
from deltamcp.dialects.handshake import HandshakeMcp
from deltamcp.dialects.modern import ModernMcp
from deltamcp.values import JSON, Request

STATELESS: tuple[Callable[[dict[str, JSON], float], Dialect], ...] = (ModernMcp,)
"""Dialects whose every request says who sends it; made with the server's info and how long lists stay fresh."""

SESSION: tuple[Callable[[], SessionDialect], ...] = (DeltaMcp, HandshakeMcp)
"""Dialects that begin with `initialize`; the last one answers every version that no other recognizes."""


class Dialects:
    """The dialects of one server."""

    def __init__(self, info: dict[str, JSON], cache_seconds: float) -> None:
        self._stateless = tuple(make(info, cache_seconds) for make in STATELESS)
        self._session = tuple(make() for make in SESSION)

    @property
    def default(self) -> SessionDialect:
        """For a refusal where it is not known yet which dialect is spoken."""
        return self._session[-1]

    @property
    def newest(self) -> Dialect:
        """For a request whose headers name a version that nobody knows."""
        return self._stateless[0]

    def find_stateless(self, request: Request) -> Dialect | None:
        """The dialect of a request that stands alone; None where it belongs to a session, or opens one."""
        for dialect in self._stateless:
            if dialect.recognizes(request):
                return dialect
        return None

    def find_session(self, request: Request) -> SessionDialect:
        """The dialect that an `initialize` asks for."""
        return next((dialect for dialect in self._session if dialect.recognizes(request)), self.default)
