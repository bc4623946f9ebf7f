"""The table of dialects, and the choice of the dialect of a request.

A revision of MCP whose messages read as an earlier one's is a version in `versions.py`. A new protocol, or a revision
whose messages differ, is a class of its own and a row here.
"""

import functools
from collections.abc import Callable

from deltamcp.catalog.view import View
from deltamcp.dialects.delta_mcp import DeltaMcp
from deltamcp.dialects.dialect import SessionDialect, StatelessDialect
from deltamcp.dialects.handshake import HandshakeMcp
from deltamcp.dialects.mcp_lite import LiteOptions, McpLite
from deltamcp.dialects.modern import ModernMcp
from deltamcp.values import JSON, Principal, Request

STATELESS: tuple[Callable[[dict[str, JSON], float], StatelessDialect], ...] = (ModernMcp,)
"""Dialects in which every request states its client; each is made with the server's info and `cache_seconds`."""

SESSION: tuple[Callable[[], SessionDialect], ...] = (DeltaMcp, HandshakeMcp)
"""Dialects that begin with `initialize`; the last one handles every version that no other recognizes."""


class Dialects:
    """The dialects of one server."""

    def __init__(
        self, info: dict[str, JSON], cache_seconds: float, view: Callable[[Principal], View], input_seconds: float
    ) -> None:
        """`view` returns what a principal sees of the catalog; `input_seconds` is the time to answer questions."""
        self._stateless = tuple(make(info, cache_seconds) for make in STATELESS)
        self._session = tuple(make() for make in SESSION)
        self._make_mcp_lite = functools.partial(McpLite, info, view, input_seconds)

    @property
    def default(self) -> SessionDialect:
        """The dialect of refusals to a client whose dialect is not known yet."""
        return self._session[-1]

    @property
    def newest(self) -> StatelessDialect:
        """The dialect of a request whose headers name an unknown version."""
        return self._stateless[0]

    def find_stateless(self, request: Request) -> StatelessDialect | None:
        """Returns the dialect of a request without a session; None if the request belongs to a session or opens one."""
        for dialect in self._stateless:
            if dialect.recognizes(request):
                return dialect
        return None

    def find_session(self, request: Request) -> SessionDialect:
        """Returns the dialect that an `initialize` requests."""
        return next((dialect for dialect in self._session if dialect.recognizes(request)), self.default)

    def session_dialect(self, name: str) -> SessionDialect:
        """Returns the dialect of a session by its name."""
        return next((dialect for dialect in self._session if dialect.name == name), self.default)

    def mcp_lite(self, options: LiteOptions = LiteOptions()) -> McpLite:  # noqa: B008 - they do not change
        """Returns the dialect MCP-lite, which an endpoint of its own chooses and no message."""
        return self._make_mcp_lite(options)
