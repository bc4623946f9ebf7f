"""Where an API is: the servers of its document, with their variables filled in."""

import re
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urljoin, urlsplit

from deltamcp.errors import ConfigurationError
from deltamcp.sources.openapi import swagger
from deltamcp.sources.openapi.document import OpenApiDocument
from deltamcp.sources.openapi.operations import DocumentOperation

_VARIABLE = re.compile(r"\{([^{}]*)\}")
_MAX_SERVERS = 50


def document_servers(document: OpenApiDocument) -> list[dict[str, Any]]:
    """Returns the servers of a whole document."""
    if document.version.is_swagger:
        return swagger.modern_servers(document.content, None)
    return _servers(document.content.get("servers")) or [{"url": "/"}]


def operation_servers(document: OpenApiDocument, operation: DocumentOperation) -> list[dict[str, Any]]:
    """Returns the servers that an operation or its path has instead; none if it has those of the document."""
    if document.version.is_swagger:
        own = operation.value.get("schemes")
        return swagger.modern_servers(document.content, own) if isinstance(own, list) and own else []
    return _servers(operation.value.get("servers")) or _servers(operation.shared.get("servers"))


def _servers(value: Any) -> list[dict[str, Any]]:
    servers = value[:_MAX_SERVERS] if isinstance(value, list) else []
    return [one for one in servers if isinstance(one, dict) and isinstance(one.get("url"), str)]


def choose_server(servers: Sequence[Mapping[str, Any]], choice: str | int | None) -> Mapping[str, Any]:
    """Returns the server that a user chose, else the first.

    Raises:
        ConfigurationError: there is none like that.
    """
    if choice is None:
        return servers[0]
    for index, server in enumerate(servers):
        if choice in (index, str(index), server.get("url"), server.get("name")):
            return server
    urls = ", ".join(str(server["url"])[:100] for server in servers[:5])
    raise ConfigurationError(f"The document has no server {choice!r}; it has {urls}, which count from 0.")


def server_url(server: Mapping[str, Any], values: Mapping[str, str], address: str) -> str:
    """Returns the URL of a server with its variables filled in; a relative one is relative to the document's address.

    Raises:
        ConfigurationError: a variable has no value, or one that it may not have.
    """
    variables = server.get("variables")
    known = variables if isinstance(variables, dict) else {}

    def fill(found: re.Match[str]) -> str:
        name = found[1]
        variable = known.get(name)
        row = variable if isinstance(variable, dict) else {}
        value = values.get(name, row.get("default"))
        if not isinstance(value, str | int):
            raise ConfigurationError(f"The server's URL has the variable {name}, which needs a value.")
        choices = row.get("enum")
        if isinstance(choices, list) and choices and str(value) not in map(str, choices):
            known_values = ", ".join(map(str, choices[:20]))
            raise ConfigurationError(
                f"The server's variable {name} must be one of {known_values}, not {str(value)[:50]!r}."
            )
        return str(value)

    url = _VARIABLE.sub(fill, server["url"])
    try:
        joined = urljoin(address, url) if address else url
        urlsplit(joined).port  # noqa: B018 - the property raises if the port is invalid
    except ValueError:
        return url
    return joined.rstrip("/")
