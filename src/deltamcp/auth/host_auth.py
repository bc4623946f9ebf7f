"""Callers whom the host application names, which has authenticated them in its own way."""

from collections.abc import Awaitable, Callable, Mapping
from inspect import isawaitable
from typing import Any

from deltamcp.auth.authenticator import Credentials
from deltamcp.errors import Fault
from deltamcp.values import Failure, Principal


class HostAuth:
    """Asks the host application who sends a request: `server.asgi(auth=HostAuth(find_principal))`."""

    documents: Mapping[str, bytes] = {}

    def __init__(self, find_principal: Callable[[Mapping[str, Any]], Principal | Awaitable[Principal | None] | None]):
        """`find_principal`, plain or async, gets the ASGI scope and returns the principal; None refuses the request."""
        self._find_principal = find_principal

    async def authenticate(self, credentials: Credentials) -> Principal | Failure:
        found = self._find_principal(credentials.request)
        if isawaitable(found):
            found = await found
        return found or Failure(Fault.UNAUTHORIZED, "This request needs credentials that the application accepts.")

    def challenge(self, failure: Failure) -> str | None:
        """Returns None: only the host application knows which credentials it accepts."""
        return None

    async def close(self) -> None:
        """Does nothing: the host application has whatever connections it needs."""
