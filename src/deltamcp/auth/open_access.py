"""Servers that anybody may call, because their operator says so by name: without a token, or with any."""

import logging
from collections.abc import Mapping

from deltamcp.auth.authenticator import Credentials
from deltamcp.auth.bearer import read_bearer, write_challenge
from deltamcp.auth.token_fault import TokenError, refusal
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


class PresenceOnly:
    """Admits every request that has a bearer token, whatever it is, as anonymous.

    A token that nobody verifies says nothing about its sender, who could otherwise be a new principal with every
    request, with quotas of its own.
    """

    documents: Mapping[str, bytes] = {}

    def __init__(self) -> None:
        logger.warning("tokens are not verified: whoever sends any token may call the server")

    async def authenticate(self, credentials: Credentials) -> Principal | Failure:
        try:
            read_bearer(credentials.authorization)
        except TokenError as error:
            return refusal(error.fault)
        return ANONYMOUS

    def challenge(self, failure: Failure) -> str | None:
        return write_challenge(failure, ())

    async def close(self) -> None:
        """Does nothing: there are no connections."""
