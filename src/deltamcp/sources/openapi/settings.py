"""What a user sets of an API: where it is, which of its operations are offered, with what credentials."""

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase

from msgspec import Struct

from deltamcp.errors import ConfigurationError
from deltamcp.sources.openapi.operations import DocumentOperation


class ClientCredentials(Struct, frozen=True, kw_only=True):
    """A client of OAuth 2 that acts for itself. Its texts may contain `${NAME}`."""

    client_id: str
    """The id that the authorization server gave the client."""
    client_secret: str
    """The secret that belongs to it; better `${NAME}` than the secret itself."""
    scopes: tuple[str, ...] | None = None
    """By default those that the operation needs."""
    token_url: str | None = None
    """By default that of the document."""

    def __repr__(self) -> str:
        return f"<ClientCredentials of {self.client_id}>"


class ApiSettings(Struct, frozen=True, kw_only=True):
    """What a user sets of an API. Texts for addresses, headers and credentials may contain `${NAME}`."""

    base_url: str | None = None
    """Where the API is, instead of the servers of its document."""
    server: str | int | None = None
    """Which of the document's servers: its position from 0, its URL as the document writes it, or its name (3.2)."""
    variables: dict[str, str] = {}
    """Values for the variables in the server's URL."""
    headers: dict[str, str] = {}
    """Headers of every request."""
    credentials: dict[str, str | ClientCredentials] = {}
    """By the name of the document's security scheme: a key, a token, or `user:password`."""
    allow: tuple[str, ...] = ()
    """Which operations are offered, as `tag:NAME`, `GET`, `/path/*`, `GET /path/*`, an id or a name; empty for all."""
    deny: tuple[str, ...] = ()
    """Which are not, whatever `allow` says."""
    include_deprecated: bool = False
    """True offers operations that the document calls deprecated, too."""
    annotations: dict[str, dict[str, bool]] = {}
    """MCP's hints by pattern, where the method of an operation says something else."""
    file_folders: tuple[str, ...] = ()
    """The folders from which arguments may name files to be sent."""
    references: tuple[str, ...] = ()
    """The documents elsewhere that references may lead to, by URL or path."""
    hosts: tuple[str, ...] = ()
    """Further hosts that requests and credentials may go to, private ones too."""
    timeout: float | None = None
    """Seconds that a request may take."""


_METHOD = re.compile(r"[A-Z]{3,20}")


class OperationPattern:
    """Which operations are meant: `tag:NAME`, `GET`, `/path/*`, `GET /path/*`, or an id or a name; `*` is any text."""

    def __init__(self, text: str) -> None:
        """
        Raises:
            ConfigurationError: it is empty.
        """
        self._text = text.strip()
        if not self._text:
            raise ConfigurationError("A pattern for operations must not be empty.")
        first, _, rest = self._text.partition(" ")
        self._method = first if _METHOD.fullmatch(first) and (not rest or rest.startswith("/")) else ""
        self._path = rest.strip() if self._method else self._text if self._text.startswith("/") else ""

    def matches(self, operation: DocumentOperation, name: str, id_: str) -> bool:
        if self._method or self._path:
            return (not self._method or operation.method == self._method) and (
                not self._path or fnmatchcase(operation.path, self._path)
            )
        if self._text.startswith("tag:"):
            return any(fnmatchcase(tag, self._text.removeprefix("tag:").strip()) for tag in operation.tags)
        ids = (name, id_, operation.value.get("operationId"))
        return any(fnmatchcase(one, self._text) for one in ids if isinstance(one, str))


def any_matches(patterns: Sequence[OperationPattern], operation: DocumentOperation, name: str, id_: str) -> bool:
    return any(pattern.matches(operation, name, id_) for pattern in patterns)
