"""Servers that anybody may call, because their operator says so by name."""

import logging
from collections.abc import Mapping

from deltamcp.auth.authenticator import Credentials
from deltamcp.values import ANONYMOUS, Failure, Principal

logger = logging.getLogger("deltamcp.auth")


class OpenAccess:
    """Admits every request, as anonymous: `server.run("http", host="0.0.0.0", auth=OpenAccess())`."""

    documents: Mapping[str, bytes] = {}

    def __init__(self) -> None:
        logger.warning("the server is open: whoever reaches it may call it without a token")

    async def authenticate(self, credentials: Credentials) -> Principal | Failure:
        return ANONYMOUS

    def challenge(self, failure: Failure) -> str | None:
        """Returns None: no token would help."""
        return None

    async def close(self) -> None:
        """Does nothing: there are no connections."""
