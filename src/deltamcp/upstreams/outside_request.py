"""What an upstream asks and logs while it performs no request of a caller."""

from collections.abc import Hashable

from deltamcp.errors import FAULTS, Fault, PeerError
from deltamcp.values import JSON


class OutsideRequest:
    """The sender of no request: nobody can be asked, and what is logged might be another user's."""

    owner: Hashable = None

    async def answer(self, method: str, params: dict[str, JSON]) -> dict[str, JSON]:
        raise PeerError(FAULTS[Fault.INVALID_PARAMS].handshake, "No request is open, so there is nobody to ask.")

    def log(self, params: dict[str, JSON]) -> None:
        """Drops it."""
