"""Finds the authorization server of an MCP server (RFC 9728), and what that one can do (RFC 8414, OpenID Connect)."""

from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from deltamcp.client.oauth.challenge import BearerChallenge
from deltamcp.client.oauth.json_http import JsonHttp
from deltamcp.errors import UnauthorizedError

_RESOURCE = "/.well-known/oauth-protected-resource"
_OAUTH = "/.well-known/oauth-authorization-server"
_OPENID = "/.well-known/openid-configuration"


class ResourceDocument(Struct, frozen=True):
    """What an MCP server says about its protection."""

    resource: str
    """The server as tokens name it; the client sends it with every request for a token (RFC 8707)."""
    authorization_servers: list[str] = []
    scopes_supported: list[str] | None = None


class IssuerDocument(Struct, frozen=True):
    """What an authorization server says about itself."""

    issuer: str
    authorization_endpoint: str | None = None
    token_endpoint: str | None = None
    registration_endpoint: str | None = None
    device_authorization_endpoint: str | None = None
    revocation_endpoint: str | None = None
    scopes_supported: list[str] | None = None
    code_challenge_methods_supported: list[str] | None = None
    token_endpoint_auth_methods_supported: list[str] | None = None
    client_id_metadata_document_supported: bool | None = None
    authorization_response_iss_parameter_supported: bool | None = None


def resource_document_urls(server_url: str) -> list[str]:
    """Returns where a server's metadata may be, the likeliest first (MCP, "Protected Resource Metadata Discovery")."""
    base, path = _split_origin(server_url)
    return [f"{base}{_RESOURCE}{path}", f"{base}{_RESOURCE}"] if path else [f"{base}{_RESOURCE}"]


def issuer_document_urls(issuer: str) -> list[str]:
    """Returns where an authorization server's metadata may be (MCP, "Authorization Server Metadata Discovery")."""
    base, path = _split_origin(issuer)
    if not path:
        return [f"{base}{_OAUTH}", f"{base}{_OPENID}"]
    return [f"{base}{_OAUTH}{path}", f"{base}{_OPENID}{path}", f"{base}{path}{_OPENID}"]


def _split_origin(url: str) -> tuple[str, str]:
    """Returns scheme and authority, and the path without a slash at its end."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}", parts.path.rstrip("/")


def is_server(resource: str, server_url: str) -> bool:
    """Whether a resource is the server itself: the same origin and path, but for a slash at the end (RFC 9728, 3.3).

    A server's query may be missing from its resource: it says how one server is used.
    """
    return covers(resource, server_url) and urlsplit(resource).path.rstrip("/") == urlsplit(server_url).path.rstrip("/")


def covers(resource: str, server_url: str) -> bool:
    """Whether a resource is the server or contains it: the same origin, and its path or one above it."""
    if not resource.isprintable() or " " in resource:  # which urlsplit leaves out in part
        return False
    try:
        own, server = urlsplit(resource), urlsplit(server_url)
        same_port = _port(own.scheme, own.port) == _port(server.scheme, server.port)
    except ValueError:
        return False
    path, server_path = own.path.rstrip("/"), server.path.rstrip("/")
    return (
        (own.scheme, own.hostname) == (server.scheme, server.hostname)
        and same_port
        and own.username is None
        and not own.fragment
        and own.query in ("", server.query)
        and (server_path == path or server_path.startswith(f"{path}/"))
    )


def _port(scheme: str, port: int | None) -> int:
    return port or (443 if scheme == "https" else 80)


async def find_resource(
    http: JsonHttp, server_url: str, challenge: BearerChallenge, allowed: str = ""
) -> ResourceDocument | None:
    """Returns a server's metadata about its protection; None if it has none.

    Args:
        allowed: an address above the server's that its tokens may be for, because the program said so.

    Raises:
        UnauthorizedError: the metadata cannot be fetched, or is that of another server or of several.
    """
    named = challenge.resource_metadata
    for url in [named] if named is not None else resource_document_urls(server_url):
        reply = await http.get(url)
        if reply.status != 200 and named is None:
            continue
        try:
            document = msgspec.convert(reply.value, ResourceDocument)
        except msgspec.ValidationError:
            raise UnauthorizedError(
                f"The server's metadata about authorization cannot be read (HTTP {reply.status}); ask who runs it."
            ) from None
        # RFC 9728, 3.3: otherwise a server could have the client get a token for another one, and take it.
        if is_server(document.resource, server_url) or (allowed and is_server(document.resource, allowed)):
            return document
        if covers(document.resource, server_url):
            raise UnauthorizedError(
                f"The server at {server_url} wants tokens for all of {document.resource[:200]!r}; if you trust every "
                "server there with them, name that address as the resource: --resource, or OAuth(resource=...)."
            )
        raise UnauthorizedError(
            f"The server's tokens are for {document.resource[:200]!r}, which is another address; ask who runs it."
        )
    return None


async def find_issuer(http: JsonHttp, issuer: str, *other_names: str) -> IssuerDocument:
    """Returns the metadata of an authorization server.

    Args:
        other_names: what it may call itself, too, where nobody has named it.

    Raises:
        UnauthorizedError: it has none, or its metadata is that of another one.
    """
    if "?" in http.check_url(issuer) or "#" in issuer:  # RFC 8414, 2: it has neither a query nor a fragment
        raise UnauthorizedError(f"{issuer[:200]} is no authorization server; ask who runs the server.")
    for url in issuer_document_urls(issuer):
        reply = await http.get(url)
        if reply.status != 200:
            continue
        try:
            document = msgspec.convert(reply.value, IssuerDocument)
        except msgspec.ValidationError:
            raise UnauthorizedError(
                f"The metadata of the authorization server {issuer[:200]} cannot be read; ask who runs it."
            ) from None
        # RFC 8414, 3.3: the very same text.
        if document.issuer not in (issuer, *other_names):
            raise UnauthorizedError(
                f"The authorization server {issuer[:200]} says that it is {document.issuer[:200]!r}; ask who runs it."
            )
        return document
    raise UnauthorizedError(f"The authorization server {issuer[:200]} has no metadata; ask who runs it.")
