"""The document in which a resource tells clients which authorization servers it trusts (RFC 9728)."""

from collections.abc import Iterable, Sequence

import msgspec

from deltamcp.auth.bearer import is_scope
from deltamcp.auth.safe_url import split_url
from deltamcp.errors import ConfigurationError

WELL_KNOWN = "/.well-known/oauth-protected-resource"


class ResourceMetadata:
    """The document of one resource, and the addresses at which clients look for it."""

    def __init__(
        self, resource: str, authorization_servers: Sequence[str], scopes: Iterable[str], name: str | None = None
    ) -> None:
        """
        Raises:
            ConfigurationError: the resource is no URL that a token can be issued for, or a scope has a space.
        """
        parts = split_url(resource, "resource")
        self.scopes = sorted(set(scopes))
        for scope in self.scopes:
            if not is_scope(scope):
                raise ConfigurationError(
                    f"A scope has printable characters only, without a space; {scope!r} has others."
                )
        document = {
            "resource": resource,
            "authorization_servers": list(authorization_servers),
            "scopes_supported": self.scopes,
            "bearer_methods_supported": ["header"],
            "resource_name": name,
        }
        self.document = msgspec.json.encode({key: value for key, value in document.items() if value})
        path = parts.path.rstrip("/")
        query = f"?{parts.query}" if parts.query else ""
        self.url = f"{parts.scheme}://{parts.netloc}{WELL_KNOWN}{path}{query}"
        """Where the document is: RFC 9728, 3.1 puts the well-known path before the resource's own."""
        self.paths = (WELL_KNOWN, f"{WELL_KNOWN}{path}") if path else (WELL_KNOWN,)
        """The paths at which the server has the document; clients that get no challenge try both."""
