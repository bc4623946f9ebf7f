"""What a token says, checked: its issuer, audience, times and kind; and the principal that it names (RFC 9068)."""

import math
import re
from collections.abc import Iterable, Mapping, Sequence

from deltamcp.auth.bearer import TokenError, TokenFault
from deltamcp.errors import ConfigurationError
from deltamcp.values import JSON, Principal

DEFAULT_LEEWAY_SECONDS = 10.0
_MAX_LEEWAY_SECONDS = 300.0
_MAX_ID_CHARS = 512
_MAX_TIME = 1e15
"""A larger time is a mistake: this is in 30 million years."""
_ID_TOKEN_CLAIMS = ("at_hash", "c_hash", "s_hash")
"""OpenID Connect Core, 3.1.3.6 and 3.3.2.11: claims that only ID tokens have."""
_OTHER_KINDS: Mapping[str, tuple[str, ...]] = {
    "typ": ("id", "refresh", "offline", "logout"),
    "token_use": ("id", "refresh", "id_token", "refresh_token"),
}
"""The claims by which Keycloak, Amazon Cognito and Hydra tell ID tokens and refresh tokens from access tokens."""


_LIKE_A_CLIENT = re.compile(r"(?:user:)*client:").match
"""Finds names of users that need a prefix, so that no two names come to one id."""


class ClaimRules:
    """The rules by which the claims of a token are checked."""

    def __init__(
        self,
        issuer: str,
        audiences: Sequence[str],
        leeway_seconds: float = DEFAULT_LEEWAY_SECONDS,
        implied_scopes: Mapping[str, Iterable[str]] | None = None,
        step_up: frozenset[str] = frozenset(),
    ) -> None:
        """
        Args:
            issuer: The `iss` that tokens must have.
            audiences: The `aud` of which tokens must have one; a slash at the end makes no difference.
            leeway_seconds: How much the clocks of the authorization server and this one may differ.
            implied_scopes: The scopes that a scope stands for besides itself.
            step_up: The scopes that principals can ask for when they need them.

        Raises:
            ConfigurationError: the leeway is negative or so large that expired tokens would be used.
        """
        if not 0 <= leeway_seconds <= _MAX_LEEWAY_SECONDS:
            raise ConfigurationError(f"leeway_seconds must be from 0 to {_MAX_LEEWAY_SECONDS:g}.")
        self.issuer = issuer
        self._audiences = frozenset(map(_without_slash, audiences))
        self.leeway_seconds = leeway_seconds
        self._step_up = step_up
        self._implied = {scope: frozenset(implied) for scope, implied in (implied_scopes or {}).items()}

    def check(self, claims: Mapping[str, JSON], now: float) -> Principal:
        """Checks the claims of a token whose signature is valid, and returns whom it is for.

        Raises:
            TokenError: the token is not for this server, or not now.
        """
        _check_kind(claims)
        if claims.get("iss") != self.issuer:
            raise TokenError(TokenFault.WRONG_ISSUER)
        self._check_audience(claims.get("aud"))
        expires_at = self._check_times(claims, now)
        if expires_at is None:
            raise TokenError(TokenFault.MISSING_EXPIRY)
        return self._principal(claims, expires_at)

    def check_answer(self, answer: Mapping[str, JSON], now: float, only_for_this_resource: bool) -> Principal:
        """Checks what an authorization server says about an active token; it may leave out any of it (RFC 7662, 2.2).

        Raises:
            TokenError: the token is not for this server, or not now.
        """
        _check_kind(answer)
        if answer.get("iss", self.issuer) != self.issuer:
            raise TokenError(TokenFault.WRONG_ISSUER)
        if "aud" in answer or not only_for_this_resource:
            self._check_audience(answer.get("aud"))
        expires_at = self._check_times(answer, now)
        return self._principal(answer, math.inf if expires_at is None else expires_at)

    def _check_audience(self, audience: JSON) -> None:
        """RFC 8707, 2 and RFC 7519, 4.1.3: one string or a list of them."""
        named = [audience] if isinstance(audience, str) else audience
        if named is None:
            raise TokenError(TokenFault.WRONG_AUDIENCE)
        if not isinstance(named, list) or not all(isinstance(one, str) for one in named):
            raise TokenError(TokenFault.MALFORMED_CLAIM)
        if self._audiences.isdisjoint(map(_without_slash, named)):
            raise TokenError(TokenFault.WRONG_AUDIENCE)

    def _check_times(self, claims: Mapping[str, JSON], now: float) -> float | None:
        """Checks `exp`, `nbf` and `iat`, and returns when the token expires; None if it does not say."""
        expires_at, begins_at, issued_at = (_read_time(claims, name) for name in ("exp", "nbf", "iat"))
        if expires_at is not None and now >= expires_at + self.leeway_seconds:
            raise TokenError(TokenFault.EXPIRED)
        if begins_at is not None and now < begins_at - self.leeway_seconds:
            raise TokenError(TokenFault.NOT_YET_VALID)
        if issued_at is not None and now < issued_at - self.leeway_seconds:
            raise TokenError(TokenFault.ISSUED_IN_FUTURE)
        return None if expires_at is None else expires_at + self.leeway_seconds

    def _principal(self, claims: Mapping[str, JSON], expires_at: float) -> Principal:
        """Returns the user whom the token names or, where a client acts for itself, the client."""
        subject, client = claims.get("sub"), claims.get("client_id", claims.get("azp"))
        name = client if subject is None else subject
        if name is None:
            raise TokenError(TokenFault.MISSING_SUBJECT)
        if not isinstance(name, str) or not 0 < len(name) <= _MAX_ID_CHARS or not name.isprintable():
            raise TokenError(TokenFault.MALFORMED_CLAIM)
        id_ = client_id(name) if subject is None else user_id(name)
        return Principal(id_, self._scopes(claims), dict(claims), self.issuer, self._step_up, expires_at)

    def _scopes(self, claims: Mapping[str, JSON]) -> frozenset[str]:
        """RFC 9068, 2.2.3 names the claim `scope`; Microsoft and Okta call it `scp`."""
        value = claims.get("scope", claims.get("scp", ""))
        granted = value.split(" ") if isinstance(value, str) else value
        if not isinstance(granted, list) or not all(isinstance(one, str) for one in granted):
            raise TokenError(TokenFault.MALFORMED_CLAIM)
        scopes: set[str] = set()
        found = {scope for scope in granted if scope}
        while found:
            scopes |= found
            found = set().union(*(self._implied.get(scope, ()) for scope in found)) - scopes
        return frozenset(scopes)


def client_id(name: str) -> str:
    """Returns the id of a client that acts for itself, which no user has though it may have the client's name."""
    return f"client:{name}"


def user_id(name: str) -> str:
    """Returns the id of a user: its name, unless that looks like a client's id."""
    return f"user:{name}" if _LIKE_A_CLIENT(name) else name


def _check_kind(claims: Mapping[str, JSON]) -> None:
    for name, kinds in _OTHER_KINDS.items():
        value = claims.get(name)
        if isinstance(value, str) and value.lower() in kinds:
            raise TokenError(TokenFault.WRONG_TYPE)
    # Access tokens of Keycloak up to version 24 have a nonce, too; but they have scopes.
    has_nonce = "nonce" in claims and "scope" not in claims and "scp" not in claims
    if has_nonce or any(name in claims for name in _ID_TOKEN_CLAIMS) or "events" in claims:  # `events`: RFC 8417
        raise TokenError(TokenFault.WRONG_TYPE)
    if "cnf" in claims:  # RFC 7800; such a token is no bearer token, and a stolen one must be of no use
        raise TokenError(TokenFault.BOUND_TO_KEY)


def _read_time(claims: Mapping[str, JSON], name: str) -> float | None:
    value = claims.get(name)
    if value is None:
        return None
    # Not isinstance: True is an int. Not >: NaN is neither more nor less.
    if type(value) not in (int, float) or not abs(value) <= _MAX_TIME:
        raise TokenError(TokenFault.MALFORMED_CLAIM)
    return float(value)


def _without_slash(url: str) -> str:
    return url.removesuffix("/")
