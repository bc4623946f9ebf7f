"""The interface by which every transport asks who sends a request."""

from collections.abc import Mapping
from typing import Any, Protocol

from msgspec import Struct

from deltamcp.values import Failure, Principal


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
