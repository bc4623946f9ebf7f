"""Quotas: how much of something accounts may hold, each of them and all together.

An account is a caller's principal, if an authentication middleware names one, else its address. What a session has in
the store counts towards another account, the session's own.
"""

from deltamcp.limits import Limits

_WATCHED_BYTES = 32 * 1024 * 1024
"""The URIs that clients subscribe to, in all; no operator has so many."""


class Quota:
    """Counts what accounts hold. One account may hold only a share, so that the rest stays free for others."""

    __slots__ = ("_held", "_in_all", "_limit", "share")

    def __init__(self, limit: int, account_share: float) -> None:
        self._limit = limit
        self.share = max(1, int(limit * account_share))
        """The most that one account may hold."""
        self._held: dict[str, int] = {}
        self._in_all = 0

    def take(self, account: str, amount: int = 1) -> bool:
        """Counts an amount for an account; returns False, and counts nothing, if that exceeds a limit."""
        held = self._held.get(account, 0) + amount
        if held > self.share or self._in_all + amount > self._limit:
            return False
        self._held[account] = held
        self._in_all += amount
        return True

    def give_back(self, account: str, amount: int = 1) -> None:
        """Ends the count of an amount that the account took."""
        held = self._held[account] - amount
        if held:
            self._held[account] = held
        else:
            del self._held[account]
        self._in_all -= amount


class HttpQuotas:
    """What accounts hold in one HTTP application."""

    __slots__ = ("bodies", "calls", "replays", "responses", "streams", "watched")

    def __init__(self, limits: Limits) -> None:
        share = limits.account_share
        self.bodies = Quota(limits.body_bytes, share)
        """Bytes of the requests that are read or served."""
        self.calls = Quota(limits.calls, share)
        """Requests that are served."""
        self.responses = Quota(limits.response_bytes, share)
        """Bytes of responses and events that clients have yet to read."""
        self.replays = Quota(limits.replay_bytes, share)
        """Bytes of events stored for clients that reconnect."""
        self.streams = Quota(limits.connections, share)
        """Event streams that stay open until the client leaves."""
        self.watched = Quota(_WATCHED_BYTES, share)
        """Characters of the URIs that clients subscribe to."""
