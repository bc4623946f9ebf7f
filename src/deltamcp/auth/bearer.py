"""Bearer tokens in HTTP headers: the token of a request, and the challenge of a response (RFC 6750)."""

import re
from collections.abc import Iterable, Mapping

from deltamcp.auth.token_fault import TokenError, TokenFault
from deltamcp.errors import Fault
from deltamcp.values import Failure

MAX_TOKEN_CHARS = 16 * 1024
"""Tokens of the authorization servers in use have 200 to 4,000 characters."""
_SCOPE = re.compile(r"[!#-\[\]-~]+", re.ASCII)


def read_bearer(authorization: str | None) -> str:
    """Returns the token of an `Authorization` header.

    Raises:
        TokenError: there is none, or the header is not that of a bearer token.
    """
    if authorization is None:
        raise TokenError(TokenFault.MISSING)
    if authorization[:7].lower() != "bearer ":
        raise TokenError(TokenFault.WRONG_SCHEME)
    token = authorization[7:].strip(" ")
    if len(token) > MAX_TOKEN_CHARS:
        raise TokenError(TokenFault.TOO_LARGE)
    if not token or " " in token or not token.isascii():
        raise TokenError(TokenFault.MALFORMED)
    return token


def is_scope(text: str) -> bool:
    """Whether a text is one scope (RFC 6749, 3.3)."""
    return _SCOPE.fullmatch(text) is not None


def write_challenge(failure: Failure, scopes: Iterable[str], metadata_url: str | None = None) -> str:
    """Returns the `WWW-Authenticate` header that tells a client why its token is refused and which it needs.

    Args:
        scopes: The scopes that the client should ask for.
        metadata_url: Where the document about this resource is (RFC 9728, 5.1).
    """
    parameters: dict[str, str] = {}
    reason = failure.data.get("reason") if isinstance(failure.data, Mapping) else None
    if reason != TokenFault.MISSING:  # RFC 6750, 3.1: no error for a request that has no token
        parameters["error"] = "insufficient_scope" if failure.fault is Fault.INSUFFICIENT_SCOPE else "invalid_token"
        parameters["error_description"] = failure.message
    parameters["scope"] = " ".join(sorted(filter(is_scope, scopes)))
    parameters["resource_metadata"] = metadata_url or ""
    quoted = (f'{name}="{_quotable(value)}"' for name, value in parameters.items() if value)
    return f"Bearer {', '.join(quoted)}".strip()


def _quotable(text: str) -> str:
    """RFC 6750, 3: what these parameters may contain."""
    return re.sub(r"[^ !#-\[\]-~]", "'", text)
