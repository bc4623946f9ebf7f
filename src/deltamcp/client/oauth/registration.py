"""Who the client is at an authorization server (MCP, "Client Registration")."""

import re
from typing import Any, TypeGuard
from urllib.parse import urlsplit

from deltamcp.auth.safe_url import is_loopback
from deltamcp.client.oauth.grants import DEVICE_CODE, read_error_code
from deltamcp.client.oauth.json_http import JsonHttp
from deltamcp.client.oauth.metadata import IssuerDocument, read_scopes
from deltamcp.client.oauth.oauth import OAuth
from deltamcp.client.oauth.token_storage import ClientAuthMethod, ClientIdentity
from deltamcp.errors import UnauthorizedError

_SECRET_METHODS: tuple[ClientAuthMethod, ...] = ("client_secret_basic", "client_secret_post")
_CLIENT_TEXT = re.compile(r"[\x20-\x7e]{1,1024}")
"""Ids and secrets (RFC 6749, A.1 and A.2); longer ones make addresses that browsers do not open."""


async def identify_client(
    http: JsonHttp,
    oauth: OAuth,
    issuer: IssuerDocument,
    stored: ClientIdentity | None,
    redirect_uri: str,
    scopes: tuple[str, ...],
) -> ClientIdentity:
    """Returns the client's identity: given by the program, a document of its own, stored, or registered now.

    Args:
        redirect_uri: where the user comes back to; empty if the grant has no such address.

    Raises:
        UnauthorizedError: the authorization server knows none of these ways, or refuses the registration.
    """
    if oauth.client_id is not None:
        return _given_identity(oauth, issuer, oauth.client_id, redirect_uri)
    if oauth.client_metadata_url is not None and issuer.client_id_metadata_document_supported:
        return ClientIdentity(oauth.client_metadata_url, redirect_uri=redirect_uri)
    if stored is not None and stored.is_dynamic and _is_usable(stored, redirect_uri, scopes):
        return stored
    if issuer.registration_endpoint is not None:
        return await _register(http, oauth, issuer, redirect_uri, scopes)
    raise UnauthorizedError(
        f"The authorization server {issuer.issuer[:200]} lets no client register itself; get a client id from who runs "
        "it, and give it."
    )


def _given_identity(oauth: OAuth, issuer: IssuerDocument, client_id: str, redirect_uri: str) -> ClientIdentity:
    if oauth.client_key is not None:
        return ClientIdentity(client_id, "private_key_jwt", oauth.client_key, redirect_uri=redirect_uri)
    if oauth.client_secret is None:
        return ClientIdentity(client_id, redirect_uri=redirect_uri)
    method = _choose_secret_method(issuer) or "client_secret_basic"
    return ClientIdentity(client_id, method, oauth.client_secret, redirect_uri=redirect_uri)


def _choose_secret_method(issuer: IssuerDocument) -> ClientAuthMethod | None:
    """Returns how the authorization server would have a secret sent; the first that it names, which it knows best."""
    # RFC 8414, 2: without the field, it is `client_secret_basic`.
    supported = issuer.token_endpoint_auth_methods_supported or ["client_secret_basic"]
    return min((method for method in _SECRET_METHODS if method in supported), key=supported.index, default=None)


def _is_usable(stored: ClientIdentity, redirect_uri: str, scopes: tuple[str, ...]) -> bool:
    """Whether an earlier registration serves this login; authorization servers may compare ports and limit scopes."""
    return (
        not stored.is_expired
        and redirect_uri == stored.redirect_uri
        and (stored.scope is None or set(scopes) <= set(read_scopes(stored.scope)))
    )


async def _register(
    http: JsonHttp, oauth: OAuth, issuer: IssuerDocument, redirect_uri: str, scopes: tuple[str, ...]
) -> ClientIdentity:
    """Registers the client (RFC 7591)."""
    assert issuer.registration_endpoint is not None, "the caller has looked"
    is_public = "none" in (issuer.token_endpoint_auth_methods_supported or ())
    method: ClientAuthMethod = "none" if is_public else _choose_secret_method(issuer) or "none"
    request: dict[str, Any] = {
        "client_name": oauth.client_name,
        "redirect_uris": [redirect_uri] if redirect_uri else [],
        "grant_types": ["authorization_code" if redirect_uri else DEVICE_CODE, "refresh_token"],
        "response_types": ["code"] if redirect_uri else [],
        "token_endpoint_auth_method": method,
        # MCP 2026-07-28, "Application Type": without it, OpenID Connect refuses addresses of this machine.
        "application_type": "native" if is_loopback(urlsplit(redirect_uri).hostname or "localhost") else "web",
    }
    if scopes:
        request["scope"] = " ".join(scopes)
    reply = await http.post_json(issuer.registration_endpoint, request)
    client_id, secret = reply.value.get("client_id"), reply.value.get("client_secret")
    if reply.status not in (200, 201) or not _is_client_text(client_id):
        reason = read_error_code(reply.value) or f"HTTP {reply.status}"
        raise UnauthorizedError(
            f"The authorization server {issuer.issuer[:200]} refuses to register this client: {reason}; get a client "
            "id from who runs it, and give it."
        )
    agreed = reply.value.get("token_endpoint_auth_method", method)
    expires, scope = reply.value.get("client_secret_expires_at"), reply.value.get("scope")
    return ClientIdentity(
        client_id,
        agreed if agreed in _SECRET_METHODS and _is_client_text(secret) else "none",
        secret if _is_client_text(secret) else None,
        expires if isinstance(expires, int | float) else 0,
        redirect_uri,
        scope if isinstance(scope, str) else None,
        is_dynamic=True,
    )


def _is_client_text(value: object) -> TypeGuard[str]:
    return isinstance(value, str) and _CLIENT_TEXT.fullmatch(value) is not None
