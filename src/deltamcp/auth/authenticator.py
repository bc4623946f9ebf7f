"""The interface by which every transport asks who sends a request, and servers that need no tokens for it."""

import logging
from collections.abc import Awaitable, Callable, Mapping
from inspect import isawaitable
from typing import Any, Protocol

from msgspec import Struct

from deltamcp.auth.bearer import TokenError, read_bearer, refusal, write_challenge
from deltamcp.errors import Fault
from deltamcp.values import ANONYMOUS, Failure, Principal


class Credentials(Struct, frozen=True, gc=False):
    """What a request says of its sender."""

    authorization: str | None
    """The `Authorization` header, or the metadata of that name; None if the request has none."""
    request: Mapping[str, Any]
    """The transport's own description of the request; over HTTP the ASGI scope."""
    address: str = ""
    """The client's address, as quotas count it; empty if it has none."""


class Authenticator(Protocol):
    """Says who sends a request. One object serves all requests of a server, over all of its transports."""

    @property
    def documents(self) -> Mapping[str, bytes]:
        """The JSON documents about authorization that anybody may read, by their paths."""
        ...

    async def authenticate(self, credentials: Credentials) -> Principal | Failure:
        """Returns the sender, or the failure to answer the request with."""
        ...

    def challenge(self, failure: Failure) -> str | None:
        """Returns the `WWW-Authenticate` header of a response with this failure; None if it has none."""
        ...

    async def close(self) -> None:
        """Releases connections; a later call opens them again."""
        ...


class HostAuth:
    """Asks the host application who sends a request: `server.asgi(auth=HostAuth(find_principal))`."""

    documents: Mapping[str, bytes] = {}

    def __init__(self, find_principal: Callable[[Mapping[str, Any]], Principal | Awaitable[Principal | None] | None]):
        """`find_principal`, plain or async, gets the ASGI scope and returns the principal; None refuses the request."""
        self._find_principal = find_principal

    async def authenticate(self, credentials: Credentials) -> Principal | Failure:
        """Returns whom the host application names, or the failure that the request lacks credentials."""
        found = self._find_principal(credentials.request)
        if isawaitable(found):
            found = await found
        return found or Failure(Fault.UNAUTHORIZED, "This request needs credentials that the application accepts.")

    def challenge(self, failure: Failure) -> str | None:
        """Returns None: only the host application knows which credentials it accepts."""
        return None

    async def close(self) -> None:
        """Does nothing: the host application has whatever connections it needs."""


logger: logging.Logger = logging.getLogger("deltamcp.auth")


class OpenAccess:
    """Admits every request, as anonymous: `server.run("http", host="0.0.0.0", auth=OpenAccess())`."""

    documents: Mapping[str, bytes] = {}

    def __init__(self) -> None:
        logger.warning("the server is open: whoever reaches it may call it without a token")

    async def authenticate(self, credentials: Credentials) -> Principal | Failure:
        """Returns the anonymous principal."""
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
        """Returns the anonymous principal, or the failure that there is no bearer token."""
        try:
            read_bearer(credentials.authorization)
        except TokenError as error:
            return refusal(error.fault)
        return ANONYMOUS

    def challenge(self, failure: Failure) -> str | None:
        """Returns a header that asks for any bearer token."""
        return write_challenge(failure, ())

    async def close(self) -> None:
        """Does nothing: there are no connections."""
