"""The sessions of the user who started this process, over stdio and in memory: they can be told and asked any time."""

from collections.abc import Callable, Mapping
from typing import Protocol

from deltamcp.dialects.methods import LOG_LEVELS
from deltamcp.values import JSON, LogLevel


class LocalSession(Protocol):
    """A handshake session of the local user."""

    @property
    def capabilities(self) -> Mapping[str, JSON]:
        """What the client says that it can be asked."""
        ...

    @property
    def log_level(self) -> LogLevel | None:
        """The lowest level of log messages that the client wants; None if it wants none."""
        ...

    def notify(self, method: str, params: dict[str, JSON]) -> None:
        """Sends a notification that belongs to no request."""
        ...

    async def request(self, method: str, params: dict[str, JSON]) -> JSON:
        """Sends a request that belongs to no request of the client, and returns its result.

        Raises:
            PeerError: the client answered with an error.
            InputDeclinedError: the client did not answer in time.
        """
        ...


class LocalSessions:
    """The open ones of a server."""

    def __init__(self) -> None:
        self._sessions: set[LocalSession] = set()
        self.on_roots_changed: Callable[[], None] = lambda: None
        self.on_log_level: Callable[[LogLevel], None] = lambda level: None

    def watch(self, on_roots_changed: Callable[[], None], on_log_level: Callable[[LogLevel], None]) -> None:
        """Tells one watcher what clients say.

        Args:
            on_roots_changed: Called when a client that has roots begins its session, and when they have changed.
            on_log_level: Called when a client says which log messages it wants.
        """
        self.on_roots_changed, self.on_log_level = on_roots_changed, on_log_level

    def add(self, session: LocalSession) -> None:
        self._sessions.add(session)

    def discard(self, session: LocalSession) -> None:
        self._sessions.discard(session)

    @property
    def only(self) -> LocalSession | None:
        """The session, if there is exactly one."""
        return next(iter(self._sessions)) if len(self._sessions) == 1 else None

    def log(self, params: dict[str, JSON]) -> None:
        """Sends a log message to each session that wants messages of its level."""
        level = params.get("level")
        for session in self._sessions if level in LOG_LEVELS else ():
            threshold = session.log_level
            if threshold is not None and LOG_LEVELS.index(level) >= LOG_LEVELS.index(threshold):
                session.notify("notifications/message", params)
