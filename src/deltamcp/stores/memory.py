"""Texts kept for reading on, in this process: each its owner's alone, each for a while."""

import secrets
import time
from collections.abc import Callable

from msgspec import Struct

from deltamcp.limits import Limits


class Kept(Struct):
    """A text in pages, and how far it was read."""

    owner: str
    pages: list[str]
    chars: int
    made: float
    used: float
    is_error: bool
    read: int = 1
    """Pages given out so far."""


class MemoryStore:
    """Gives what it keeps a name that nobody guesses (RB-66)."""

    def __init__(self, limits: Limits, clock: Callable[[], float] = time.monotonic) -> None:
        self._limits = limits
        self._clock = clock
        self._kept: dict[str, Kept] = {}
        self._chars = 0

    def put(self, owner: str, pages: list[str], is_error: bool) -> str:
        """Keeps pages of which the first is about to be given out."""
        now = self._clock()
        name = secrets.token_urlsafe(17)
        chars = sum(map(len, pages))
        self._forget_stale(now)
        self._kept[name] = Kept(owner, pages, chars, now, now, is_error)
        self._chars += chars
        while self._chars > self._limits.kept_chars and len(self._kept) > 1:
            self._forget(next(iter(self._kept)))
        return name

    def get(self, owner: str, name: str) -> Kept | None:
        """None where there is none, where it is too old, and where it is another's."""
        now = self._clock()
        kept = self._kept.get(name)
        if kept is None or kept.owner != owner:
            return None
        if self._is_stale(kept, now):
            self._forget(name)
            return None
        kept.used = now
        return kept

    def _is_stale(self, kept: Kept, now: float) -> bool:
        return now - kept.used > self._limits.kept_seconds or now - kept.made > self._limits.kept_seconds_in_all

    def _forget_stale(self, now: float) -> None:
        for name in [name for name, kept in self._kept.items() if self._is_stale(kept, now)]:
            self._forget(name)

    def _forget(self, name: str) -> None:
        self._chars -= self._kept.pop(name).chars
