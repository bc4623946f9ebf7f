"""The tokens of promises, and the keys under which the store has them."""

import hashlib
import re
import secrets

_PREFIX = "prom_"
_DIGITS = "0123456789abcdefghjkmnpqrstvwxyz"
"""Crockford's base 32 in one case, which models copy reliably."""
_COUNT = 26
_TOKEN = re.compile(f"{_PREFIX}[{_DIGITS}]{{{_COUNT}}}")
_SHOWN_DIGITS = 8


def make_token() -> str:
    """Returns a new token: 130 random bits, and nothing that says more of the promise."""
    return _PREFIX + "".join(secrets.choice(_DIGITS) for _ in range(_COUNT))


def key_of(token: str) -> str | None:
    """Returns the key of a token, which does not reveal the token; None for a text that is no token."""
    return hashlib.sha256(token.encode()).hexdigest() if _TOKEN.fullmatch(token) else None


def shown_key(key: str) -> str:
    """Returns what logs show of a key."""
    return key[:_SHOWN_DIGITS]
