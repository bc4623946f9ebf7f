"""`RequestSender`: somebody else, whose request a client forwards."""

from collections.abc import Awaitable, Hashable
from typing import Protocol

from deltamcp.values import JSON


class RequestSender(Protocol):
    """Whoever a request is sent for: answers what the server asks while it performs it, and takes what it logs."""

    @property
    def owner(self) -> Hashable:
        """Who it is: a question that names no request is passed on only if all open requests have one owner."""
        ...

    async def answer(self, method: str, params: dict[str, JSON]) -> dict[str, JSON]:
        """Returns the result of the server's request.

        Raises:
            PeerError: there is none; the connection sends this error to the server.
        """
        ...

    def log(self, params: dict[str, JSON]) -> Awaitable[None] | None:
        """Takes the params of `notifications/message`."""
        ...

    async def detach(self) -> None:
        """Learns that the server has closed the request's stream early, and that the client reconnects later."""
        ...
