"""Every reason for which a token is refused, with the text that its sender reads."""

import enum
from collections.abc import Mapping
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
