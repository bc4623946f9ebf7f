"""What a server says of its authorization: by its challenge (RFC 9110, 11.6), and by its metadata (RFC 9728).

Those name its authorization server, which says what it can do (RFC 8414, OpenID Connect).
"""

import re
from collections.abc import Iterable
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from deltamcp.auth.json_document import issuer_document_urls
from deltamcp.client.oauth.json_http import JsonHttp
from deltamcp.errors import UnauthorizedError

_WORD = r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
_PARAMETER = re.compile(rf'({_WORD})[ \t]*=[ \t]*(?:"((?:[^"\\]|\\.)*)"|({_WORD}))[ \t]*(?=,|$)', re.DOTALL)
_SCHEME = re.compile(rf"({_WORD})(?:[ \t]+|(?=,)|$)")
_TOKEN68 = re.compile(r"[A-Za-z0-9\-._~+/]+=*[ \t]*(?=,|$)")
_SEPARATOR = re.compile(r"[ \t,]*")
_MAX_CHALLENGE_CHARS = 16 * 1024


class BearerChallenge(Struct, frozen=True):
    """What a server says about the token that it wants; all of it is optional."""

    resource_metadata: str | None = None
    """The URL of the server's metadata about its protection (RFC 9728, 5.1)."""
    scopes: tuple[str, ...] = ()
    error: str | None = None

    @property
    def is_step_up(self) -> bool:
        """Whether the server accepts the token, and wants one that allows more."""
        return self.error == "insufficient_scope"


def read_bearer_challenge(header: str) -> BearerChallenge:
    """Returns the challenge of the scheme Bearer; an empty one if the header has none that can be read."""
    bearers = [parameters for scheme, parameters in split_challenges(header) if scheme == "bearer"]
    # A server behind a gateway may send two: the one that names metadata is the one of MCP.
    parameters = next((each for each in bearers if "resource_metadata" in each), bearers[0] if bearers else {})
    return BearerChallenge(
        parameters.get("resource_metadata"), read_scopes(parameters.get("scope", "")), parameters.get("error")
    )


def split_challenges(header: str) -> list[tuple[str, dict[str, str]]]:
    """Returns the schemes of a header and their parameters, names in lower case; stops where it cannot be read."""
    header = header[:_MAX_CHALLENGE_CHARS]
    challenges: list[tuple[str, dict[str, str]]] = []
    at = _skip_separator(header, 0)
    while at < len(header):
        parameter = _PARAMETER.match(header, at) if challenges else None
        if parameter is not None:
            name, quoted, token = parameter.groups()
            value = token if quoted is None else re.sub(r"\\(.)", r"\1", quoted, flags=re.DOTALL)
            challenges[-1][1].setdefault(name.lower(), value)
            at = _skip_separator(header, parameter.end())
            continue
        scheme = _SCHEME.match(header, at)
        if scheme is None:
            break
        challenges.append((scheme[1].lower(), {}))
        at = scheme.end()
        if _PARAMETER.match(header, at) is None and (token68 := _TOKEN68.match(header, at)) is not None:
            at = token68.end()
        at = _skip_separator(header, at)
    return challenges


def _skip_separator(header: str, at: int) -> int:
    match = _SEPARATOR.match(header, at)
    return at if match is None else match.end()


_SCOPE = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]{1,200}")
_MAX_SCOPES = 100
OFFLINE_ACCESS = "offline_access"
"""The scope by which some authorization servers are asked for a refresh token (OpenID Connect Core, 11)."""


def read_scopes(text: str) -> tuple[str, ...]:
    """Returns the scopes of a list that are separated by spaces, without those that are none."""
    return union_scopes(text.split(" "))


def union_scopes(*lists: Iterable[str]) -> tuple[str, ...]:
    """Returns all scopes, each once, in the order in which they first occur."""
    found = dict.fromkeys(scope for scopes in lists for scope in scopes if _SCOPE.fullmatch(scope))
    return tuple(found)[:_MAX_SCOPES]


def select_scopes(
    challenged: Iterable[str], supported: Iterable[str] | None, earlier: Iterable[str], own: Iterable[str]
) -> tuple[str, ...]:
    """Returns the scopes to ask for; none leaves the choice to the authorization server.

    Args:
        challenged: those that the server's challenge names.
        supported: those that the server's metadata names.
        earlier: those that the client asked for before, and would lose otherwise (MCP 2026-07-28, "Step-Up").
        own: those that the program wants beside them.
    """
    return union_scopes(earlier, tuple(challenged) or supported or (), own)


def add_offline_access(scopes: tuple[str, ...], issuer_scopes: Iterable[str]) -> tuple[str, ...]:
    """Adds `offline_access` where the authorization server knows it (MCP 2026-07-28, "Refresh Tokens").

    A request that leaves the scopes to the authorization server stays as it is: it would get no other scope.
    """
    return union_scopes(scopes, [OFFLINE_ACCESS]) if scopes and OFFLINE_ACCESS in issuer_scopes else scopes


_RESOURCE = "/.well-known/oauth-protected-resource"


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
    parts = urlsplit(server_url)
    base, path = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}", parts.path.rstrip("/")
    return [f"{base}{_RESOURCE}{path}", f"{base}{_RESOURCE}"] if path else [f"{base}{_RESOURCE}"]


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
