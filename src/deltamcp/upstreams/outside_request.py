"""What an upstream asks and logs while it performs no request of a caller."""

from collections.abc import Callable, Hashable

from deltamcp.errors import FAULTS, Fault, InputDeclinedError, PeerError
from deltamcp.runtime.local_sessions import LocalSessions
from deltamcp.upstreams.relayed_messages import RelayedMessages
from deltamcp.values import JSON


class OutsideRequest:
    """The sender of no request: only the local user can be told, because it might be another user's business."""

    owner: Hashable = None

    def __init__(
        self,
        messages: RelayedMessages,
        sessions: Callable[[], LocalSessions] = LocalSessions,
    ) -> None:
        """
        Args:
            messages: Passes on what the upstream sends for people to read.
            sessions: Returns the sessions of the local user.
        """
        self._messages, self._sessions = messages, sessions

    async def answer(self, method: str, params: dict[str, JSON]) -> dict[str, JSON]:
        session = self._sessions().only
        if method != "roots/list":
            raise PeerError(FAULTS[Fault.INVALID_PARAMS].handshake, "No request is open, so there is nobody to ask.")
        if session is not None and "roots" in session.capabilities:
            try:
                answer = await session.request(method, params)
            except InputDeclinedError as error:
                raise PeerError(0, str(error)) from None
            return answer if isinstance(answer, dict) else {"roots": []}
        return self._messages.own_roots()

    def log(self, params: dict[str, JSON]) -> None:
        shown = self._messages.log(params)
        if shown is not None:
            self._sessions().log(shown)

    async def detach(self) -> None:
        """Does nothing: no request has a stream."""
