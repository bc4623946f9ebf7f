"""What accounts may hold over HTTP, and the outcomes of requests beyond it."""

from deltamcp.errors import Fault
from deltamcp.limits import Limits
from deltamcp.runtime.quota import Quota
from deltamcp.values import Failure

TOO_MANY_CALLS = Failure(Fault.OVERLOADED, "Too many calls are in progress; try again later.")
"""The outcome of a call that exceeds `calls`."""
UNREAD = Failure(
    Fault.OVERLOADED, "Too many large responses to this client are unread, so this one was dropped; read them first."
)
"""The outcome of a call whose response exceeds `response_bytes`."""
UNREAD_PARTS = "Too many large parts of results are unread by this client; read them first."
"""Why a call fails whose parts exceed `response_bytes`."""

SHUTTING_DOWN = Failure(Fault.SHUTTING_DOWN, "The server is shutting down.")
"""The outcome of a call that the end of the server cancels."""

REQUESTS_AT_ONCE = 32
"""The requests that begin in one iteration of the event loop, in some 3 ms; a thousand connections may send theirs at
once, which would take 100 ms."""
_BATCHES = 512
"""The batches that are served at once, in all."""
_WATCHED_BYTES = 32 * 1024 * 1024
"""The URIs that clients subscribe to, in all; no operator has so many."""


class HttpQuotas:
    """What accounts hold in one HTTP application."""

    __slots__ = ("batches", "bodies", "calls", "decoded", "replays", "responses", "streams", "watched")

    def __init__(self, limits: Limits) -> None:
        share = limits.account_share
        self.batches: Quota = Quota(_BATCHES, share)
        """Batches that are served, whose responses wait for each other; further ones wait."""
        self.bodies: Quota = Quota(limits.body_bytes, share)
        """Bytes of the bodies that are read, or wait to be decoded."""
        self.decoded: Quota = Quota(limits.body_bytes // 2, share)
        """Memory of the requests that are served; they wait for it."""
        self.calls: Quota = Quota(limits.calls, share)
        """Requests that are served."""
        self.responses: Quota = Quota(limits.response_bytes, share)
        """Bytes of responses and events that clients have yet to read."""
        self.replays: Quota = Quota(limits.replay_bytes, share)
        """Bytes of events stored for clients that reconnect."""
        self.streams: Quota = Quota(limits.connections, share)
        """Event streams that stay open until the client leaves."""
        self.watched: Quota = Quota(_WATCHED_BYTES, share)
        """Characters of the URIs that clients subscribe to."""
