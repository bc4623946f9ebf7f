"""Requests to an authorization server's token endpoint (OAuth 2.1, 3.2)."""

import base64
import re
import time
import uuid
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from deltamcp.client.oauth.challenge import read_scopes
from deltamcp.client.oauth.json_http import JsonHttp
from deltamcp.client.oauth.metadata import IssuerDocument
from deltamcp.client.oauth.token_storage import ClientIdentity, IssuedTokens
from deltamcp.errors import ConfigurationError, UnauthorizedError

_BEARER_TOKEN = re.compile(r"[\x21-\x7e]{1,16384}")
_ERROR_CODE = re.compile(r"[a-z_:.\-]{1,60}")
_ASSERTION_TYPE = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
_ASSERTION_SECONDS = 300


class TokenRefusedError(UnauthorizedError):
    """The token endpoint refused to give a token. `code` says why (OAuth 2.1, 3.2.4)."""

    def __init__(self, issuer: str, code: str) -> None:
        super().__init__(f"The authorization server {issuer[:200]} gives no token: {code}; log in again.")
        self.code = code


async def request_tokens(
    http: JsonHttp,
    issuer: IssuerDocument,
    client: ClientIdentity,
    fields: Mapping[str, str],
    scopes: tuple[str, ...],
) -> IssuedTokens:
    """Posts a grant to the token endpoint.

    Args:
        fields: the grant and its parameters.
        scopes: those that were asked for.

    Raises:
        TokenRefusedError: the token endpoint refuses the grant or the client.
        UnauthorizedError: it cannot be reached, or its answer is no token.
    """
    endpoint = find_token_endpoint(http, issuer)
    own_fields, headers = authenticate_client(client, issuer.issuer)
    reply = await http.post_form(endpoint, {**fields, **own_fields}, headers)
    if reply.status != 200:
        raise TokenRefusedError(issuer.issuer, read_error_code(reply.value) or f"HTTP {reply.status}")
    return _read_tokens(reply.value, issuer.issuer, scopes)


def find_token_endpoint(http: JsonHttp, issuer: IssuerDocument) -> str:
    """
    Raises:
        UnauthorizedError: the authorization server names none, or one that it may not name.
    """
    if issuer.token_endpoint is None:
        raise UnauthorizedError(f"The authorization server {issuer.issuer[:200]} names no token endpoint.")
    return http.check_url(issuer.token_endpoint)


def read_error_code(value: Mapping[str, Any]) -> str | None:
    """Returns the code of an OAuth error. Its description is left out: it may quote what the client sent."""
    code = value.get("error")
    return code if isinstance(code, str) and _ERROR_CODE.fullmatch(code) else None


def authenticate_client(client: ClientIdentity, issuer: str) -> tuple[dict[str, str], dict[str, str]]:
    """Returns the fields and headers by which a client says who it is."""
    secret = client.client_secret or ""
    match client.auth_method:
        case "none":
            return {"client_id": client.client_id}, {}
        case "client_secret_post":
            return {"client_id": client.client_id, "client_secret": secret}, {}
        case "client_secret_basic":
            # OAuth 2.1, 2.4.1: both are encoded before they are joined, a space so that every decoder reads it.
            pair = f"{quote(client.client_id, safe='')}:{quote(secret, safe='')}".encode()
            # mcp 2.3 looks for the client by the field.
            return {"client_id": client.client_id}, {"authorization": f"Basic {base64.b64encode(pair).decode()}"}
        case "private_key_jwt":
            fields = {"client_assertion_type": _ASSERTION_TYPE, "client_assertion": _sign_assertion(client, issuer)}
            return {"client_id": client.client_id, **fields}, {}


def _sign_assertion(client: ClientIdentity, issuer: str) -> str:
    """Returns the signed statement that stands for the client's secret, which is a private key here (RFC 7523, 3)."""
    import jwt  # 60 ms to import
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    now = int(time.time())
    claims = {"iss": client.client_id, "sub": client.client_id, "aud": issuer, "jti": str(uuid.uuid4())}
    try:
        key: Any = load_pem_private_key((client.client_secret or "").encode(), None)
        algorithm = (
            {256: "ES256", 384: "ES384", 521: "ES512"}[key.key_size]
            if isinstance(key, EllipticCurvePrivateKey)
            else "RS256"
        )
        return jwt.encode({**claims, "iat": now, "exp": now + _ASSERTION_SECONDS}, key, algorithm)
    except (ValueError, TypeError, KeyError, UnsupportedAlgorithm):  # none of them says more than this
        raise ConfigurationError(
            "The client_key is a private key in PEM without a password: RSA, or EC of P-256, P-384 or P-521."
        ) from None


def _read_tokens(value: Mapping[str, Any], issuer: str, scopes: tuple[str, ...]) -> IssuedTokens:
    access, refresh, scope = value.get("access_token"), value.get("refresh_token"), value.get("scope")
    if not isinstance(access, str) or not _BEARER_TOKEN.fullmatch(access):
        raise UnauthorizedError(f"The authorization server {issuer[:200]} answered without a token.")
    if str(value.get("token_type", "")).lower() != "bearer":
        raise UnauthorizedError(f"The authorization server {issuer[:200]} gave a token that is no bearer token.")
    return IssuedTokens(
        access,
        refresh if isinstance(refresh, str) and _BEARER_TOKEN.fullmatch(refresh) else None,
        read_scopes(scope) if isinstance(scope, str) and scope else scopes,
    )
