"""Who may see the pages: whoever has a code that was printed at a terminal, once, and then a cookie.

The other users of a machine reach its loopback addresses, too, so that a port alone lets in anybody.
"""

import hashlib
import hmac
import secrets
import time
from collections.abc import Callable

from msgspec import Struct

_CODE_BYTES, _COOKIE_BYTES = 18, 32
_IDLE_SECONDS = 12 * 3600.0
_MAX_SESSIONS = 32
_MAX_SEEN = 1_000


class PageSession(Struct):
    """One browser that is logged in."""

    csrf: str
    """What every form of its pages has, and no page of another origin knows."""
    used_at: float
    shows_content: bool = False
    """Whether its user wants to see arguments and results of calls."""
    seen: dict[str, None] = {}
    """The differences that its user has opened, by what stands for them; the last is the newest."""

    def note_seen(self, text: str) -> None:
        self.seen[text] = None
        if len(self.seen) > _MAX_SEEN:
            del self.seen[next(iter(self.seen))]


class Logins:
    """The code that lets in the next browser, and the browsers that are in."""

    def __init__(self, tell: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> None:
        """`tell` gets every new code, to show it to the user and to nobody else; a code is used once."""
        self._tell = tell
        self._clock = clock
        self._code = ""
        self._sessions: dict[bytes, PageSession] = {}
        """By digests of cookies, so that none can be read from memory, or found by timing."""

    def make_code(self) -> None:
        """Makes a code in place of the last, and tells it."""
        self._code = secrets.token_urlsafe(_CODE_BYTES)
        self._tell(self._code)

    def is_code(self, code: str) -> bool:
        """Returns whether a code is the one that lets in the next browser."""
        return bool(self._code) and hmac.compare_digest(code.encode(errors="replace"), self._code.encode())

    def log_in(self, code: str) -> str | None:
        """Uses a code; returns the cookie for it, or None if it is not the last one."""
        if not self.is_code(code):
            return None
        self.make_code()
        cookie = secrets.token_urlsafe(_COOKIE_BYTES)
        self._sessions[_digest(cookie)] = PageSession(secrets.token_urlsafe(24), self._clock())
        if len(self._sessions) > _MAX_SESSIONS:
            del self._sessions[min(self._sessions, key=lambda key: self._sessions[key].used_at)]
        return cookie

    def find(self, cookie: str | None) -> PageSession | None:
        """Returns the session of a cookie."""
        key = b"" if cookie is None else _digest(cookie)
        session = self._sessions.get(key)
        if session is None:
            return None
        if self._clock() - session.used_at > _IDLE_SECONDS:
            del self._sessions[key]
            return None
        session.used_at = self._clock()
        return session


def _digest(cookie: str) -> bytes:
    return hashlib.sha256(cookie.encode(errors="replace")).digest()
