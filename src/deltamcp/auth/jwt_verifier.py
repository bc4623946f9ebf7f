"""JSON Web Tokens, read strictly and verified by the keys of the authorization server that issued them.

A token in its compact form has exactly one spelling (RFC 7515, RFC 7519).
"""

import base64
import json
import re
import time
from collections.abc import Sequence
from typing import Any, NamedTuple, NoReturn

from deltamcp.auth.claims import ClaimRules
from deltamcp.auth.key_set import KeySet
from deltamcp.auth.public_key import ALGORITHMS
from deltamcp.auth.token_fault import TokenError, TokenFault
from deltamcp.errors import ConfigurationError
from deltamcp.values import JSON, Principal

_PART = re.compile(r"[A-Za-z0-9_-]+", re.ASCII)
_TYPES = ("jwt", "at+jwt", "application/at+jwt")
"""RFC 9068, 2.1 and RFC 8725, 3.11; many authorization servers still say JWT, or nothing."""


class JsonWebToken(NamedTuple):
    """A token, of which nothing is verified yet."""

    algorithm: str
    key_id: str | None
    signed: bytes
    """What the signature signs."""
    signature: bytes
    payload: bytes


def read_token(token: str) -> JsonWebToken:
    """Reads a token in its compact form. Keys in the header and addresses of keys are ignored.

    Raises:
        TokenError: it is no signed token, is no access token, or has a critical header.
    """
    parts = token.split(".")
    if len(parts) != 3:
        raise TokenError(TokenFault.MALFORMED)
    header = read_object(_decode(parts[0]))
    algorithm, key_id, type_ = header.get("alg"), header.get("kid"), header.get("typ", "JWT")
    if not isinstance(algorithm, str) or not isinstance(type_, str) or not isinstance(key_id, str | None):
        raise TokenError(TokenFault.MALFORMED)
    if "crit" in header:
        raise TokenError(TokenFault.CRITICAL_HEADER)
    if type_.lower() not in _TYPES or "enc" in header:
        raise TokenError(TokenFault.WRONG_TYPE)
    # An unsigned token has no third part; that its algorithm is not allowed tells more.
    signature = _decode(parts[2]) if parts[2] else b""
    return JsonWebToken(algorithm, key_id, f"{parts[0]}.{parts[1]}".encode(), signature, _decode(parts[1]))


def _decode(part: str) -> bytes:
    """Decodes base64url. Its last character may have bits that are not used, which must be 0."""
    if not _PART.fullmatch(part):
        raise TokenError(TokenFault.MALFORMED)
    try:
        decoded = base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))
    except ValueError:
        raise TokenError(TokenFault.MALFORMED) from None
    if base64.urlsafe_b64encode(decoded).rstrip(b"=") != part.encode():
        raise TokenError(TokenFault.MALFORMED)
    return decoded


def read_object(text: bytes) -> dict[str, JSON]:
    """Reads a JSON object that has no name twice and no number that JSON does not have.

    Raises:
        TokenError: it is no such object.
    """
    try:
        value = json.loads(text.decode(), object_pairs_hook=_unique_names, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        raise TokenError(TokenFault.MALFORMED) from None
    if not isinstance(value, dict):
        raise TokenError(TokenFault.MALFORMED)
    return value


def _unique_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """RFC 8725, 2.4 and 3.12: readers that differ in which of two claims they take can be played off."""
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError
    return value


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(name)


class JwtVerifier:
    """Verifies signed tokens: the algorithm, the signature, then the claims."""

    def __init__(self, keys: KeySet, rules: ClaimRules, algorithms: Sequence[str] = ALGORITHMS) -> None:
        """
        Raises:
            ConfigurationError: an algorithm is not one by which tokens may be signed.
        """
        unknown = [name for name in algorithms if name not in ALGORITHMS]
        if unknown or not algorithms:
            raise ConfigurationError(
                f"algorithms must be among {', '.join(ALGORITHMS)}; {', '.join(map(repr, unknown)) or 'none'} is not."
            )
        self._keys = keys
        self._rules = rules
        self._algorithms = frozenset(algorithms)

    async def verify(self, token: str, address: str = "") -> Principal:
        """Returns whom a token is for.

        Raises:
            TokenError: the token is refused.
            IssuerUnavailableError: there are no keys to verify it with.
        """
        read = read_token(token)
        if read.algorithm not in self._algorithms:
            raise TokenError(TokenFault.ALGORITHM_NOT_ALLOWED)
        key = await self._keys.find(read.key_id, read.algorithm)
        if key is None:
            raise TokenError(TokenFault.UNKNOWN_KEY)
        if not key.verifies(read.signed, read.signature, read.algorithm):
            raise TokenError(TokenFault.INVALID_SIGNATURE)
        return self._rules.check(read_object(read.payload), time.time())

    async def close(self) -> None:
        await self._keys.close()
