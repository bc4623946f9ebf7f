"""The public keys that verify tokens, and the algorithms that each may be used with (RFC 7517, RFC 7518)."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from deltamcp.values import JSON

_MAX_KEYS = 100
_MIN_RSA_BITS = 2048
_MAX_RSA_BITS = 8192
"""A signature by a larger key takes more time than a request may."""


class _KeyType(NamedTuple):
    type: str
    """`kty`, RFC 7518, 6.1."""
    curve: str | None = None


_KEY_TYPES: Mapping[str, _KeyType] = MappingProxyType(
    {
        "RS256": _KeyType("RSA"),
        "RS384": _KeyType("RSA"),
        "RS512": _KeyType("RSA"),
        "PS256": _KeyType("RSA"),
        "PS384": _KeyType("RSA"),
        "PS512": _KeyType("RSA"),
        "ES256": _KeyType("EC", "P-256"),
        "ES384": _KeyType("EC", "P-384"),
        "ES512": _KeyType("EC", "P-521"),
        "EdDSA": _KeyType("OKP", "Ed25519"),
    }
)
ALGORITHMS = tuple(_KEY_TYPES)
"""The algorithms by which tokens may be signed (RFC 7518, 3.1; RFC 8037, 3.1).

Those with a shared secret are not among them: whoever verifies such a token could make one.
"""
_PUBLIC_MEMBERS = ("kty", "crv", "n", "e", "x", "y")


class PublicKey(NamedTuple):
    """A key that verifies signatures."""

    id: str | None
    type: _KeyType
    algorithm: str | None
    """The only algorithm that the key is for; None if it is for all of its type."""
    loaded: Any
    """The key as PyJWT uses it."""

    def fits(self, algorithm: str) -> bool:
        """Whether a token that names this algorithm may be signed by this key."""
        return self.type == _KEY_TYPES[algorithm] and self.algorithm in (None, algorithm)

    def verifies(self, signed: bytes, signature: bytes, algorithm: str) -> bool:
        """Whether a signature by this algorithm is valid."""
        import jwt  # 40 ms to import, needed only by servers whose tokens are signed

        return jwt.get_algorithm_by_name(algorithm).verify(signed, self.loaded, signature)


def read_key_set(document: Mapping[str, JSON]) -> list[PublicKey] | None:
    """Returns the keys of a key set that may verify tokens; None if the document is no key set.

    RFC 7517, 5: keys of other types, or for other uses, are ignored.
    """
    listed = document.get("keys")
    if not isinstance(listed, list):
        return None
    keys = (_read_key(jwk) for jwk in listed[:_MAX_KEYS] if isinstance(jwk, dict))
    return [key for key in keys if key is not None]


def _read_key(jwk: Mapping[str, JSON]) -> PublicKey | None:
    operations = jwk.get("key_ops", ["verify"])
    if jwk.get("use", "sig") != "sig" or not isinstance(operations, list) or "verify" not in operations:
        return None
    id_, algorithm = jwk.get("kid"), jwk.get("alg")
    type_ = _KeyType(jwk.get("kty", ""), jwk.get("crv"))
    if not isinstance(id_, str | None) or not (algorithm is None or algorithm in ALGORITHMS):
        return None
    loaded = _load_key(jwk, type_)
    return None if loaded is None else PublicKey(id_, type_, algorithm, loaded)


def _load_key(jwk: Mapping[str, JSON], type_: _KeyType) -> Any:
    import jwt

    algorithm = next((name for name, wanted in _KEY_TYPES.items() if wanted == type_), None)
    if algorithm is None:
        return None
    # Without the private part, which a key set must not have.
    members = {name: jwk[name] for name in _PUBLIC_MEMBERS if name in jwk}
    try:
        loaded = jwt.PyJWK(members, algorithm).key
    except (jwt.PyJWTError, ValueError, TypeError):
        return None
    is_weak = type_.type == "RSA" and not _MIN_RSA_BITS <= loaded.key_size <= _MAX_RSA_BITS
    return None if is_weak else loaded
