"""Bearer tokens in HTTP headers (RFC 6750): of a request, of a challenge, and every reason to refuse one."""

import enum
import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType

from deltamcp.errors import Fault
from deltamcp.values import Failure


class TokenFault(enum.StrEnum):
    """The reason for which a request is refused; the value is in the error's data, for programs."""

    MISSING = enum.auto()
    WRONG_SCHEME = enum.auto()
    TOO_LARGE = enum.auto()
    MALFORMED = enum.auto()
    WRONG_TYPE = enum.auto()
    ALGORITHM_NOT_ALLOWED = enum.auto()
    CRITICAL_HEADER = enum.auto()
    UNKNOWN_KEY = enum.auto()
    INVALID_SIGNATURE = enum.auto()
    MALFORMED_CLAIM = enum.auto()
    WRONG_ISSUER = enum.auto()
    WRONG_AUDIENCE = enum.auto()
    MISSING_EXPIRY = enum.auto()
    EXPIRED = enum.auto()
    NOT_YET_VALID = enum.auto()
    ISSUED_IN_FUTURE = enum.auto()
    BOUND_TO_KEY = enum.auto()
    MISSING_SUBJECT = enum.auto()
    INACTIVE = enum.auto()
    UNKNOWN_TOKEN = enum.auto()


TOKEN_FAULTS: Mapping[TokenFault, str] = MappingProxyType(
    {
        TokenFault.MISSING: "This request needs a bearer token in its Authorization header.",
        TokenFault.WRONG_SCHEME: "The Authorization header must be: Bearer and a token.",
        TokenFault.TOO_LARGE: "The token is too large.",
        TokenFault.MALFORMED: "The token is malformed.",
        TokenFault.WRONG_TYPE: "The token is not an access token.",
        TokenFault.ALGORITHM_NOT_ALLOWED: "The token is signed by an algorithm that is not allowed.",
        TokenFault.CRITICAL_HEADER: "The token has a critical header that this server does not know.",
        TokenFault.UNKNOWN_KEY: "The token is signed by an unknown key.",
        TokenFault.INVALID_SIGNATURE: "The signature of the token is invalid.",
        TokenFault.MALFORMED_CLAIM: "The token has a malformed claim.",
        TokenFault.WRONG_ISSUER: "The token is from the wrong issuer.",
        TokenFault.WRONG_AUDIENCE: "The token is for another audience.",
        TokenFault.MISSING_EXPIRY: "The token has no expiry.",
        TokenFault.EXPIRED: "The token has expired.",
        TokenFault.NOT_YET_VALID: "The token is not valid yet.",
        TokenFault.ISSUED_IN_FUTURE: "The token was issued in the future.",
        TokenFault.BOUND_TO_KEY: "The token is bound to a key of its holder, which this server does not support.",
        TokenFault.MISSING_SUBJECT: "The token names neither a subject nor a client.",
        TokenFault.INACTIVE: "The token is not active.",
        TokenFault.UNKNOWN_TOKEN: "The token is unknown.",
    }
)


class TokenError(Exception):
    """A token is refused."""

    def __init__(self, fault: TokenFault) -> None:
        super().__init__(TOKEN_FAULTS[fault])
        self.fault = fault


class IssuerUnavailableError(Exception):
    """The authorization server cannot be asked, so that nobody knows whether a token is good."""


def refusal(fault: TokenFault) -> Failure:
    """Returns the failure that a request with such a token is answered with."""
    return Failure(Fault.UNAUTHORIZED, TOKEN_FAULTS[fault], {"reason": fault.value})


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
