"""JSON Web Tokens, read strictly and verified by the keys of the server that issued them (RFC 7517 to 7519).

A token in its compact form has exactly one spelling (RFC 7515, RFC 7519).

The metadata are those of RFC 8414 and OpenID Connect Discovery.
"""

import asyncio
import base64
import contextlib
import json
import logging
import re
import time
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, NoReturn
from urllib.parse import urlsplit

from deltamcp.auth.bearer import IssuerUnavailableError, TokenError, TokenFault
from deltamcp.auth.claims import ClaimRules
from deltamcp.auth.json_document import FETCH_SECONDS, DocumentError, fetch_document, issuer_document_urls
from deltamcp.auth.safe_url import is_loopback
from deltamcp.errors import ConfigurationError
from deltamcp.values import JSON, Principal

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


logger: logging.Logger = logging.getLogger("deltamcp.auth")

RENEW_SECONDS = 600.0
"""After this time the keys are fetched again, so that a key that was withdrawn is forgotten."""
MISS_SECONDS = 30.0
"""How often an unknown key, or a fetch that failed, may cause another fetch."""
_FIRST_SECONDS = 2.0
"""How often keys may be fetched while there are none."""
_MAX_AGE_SECONDS = 24 * 3600.0
"""For so long keys are used that cannot be renewed: an outage of the authorization server is no outage of this one."""


class KeySet:
    """Finds keys by their ids. Requests that need the same fetch wait for one."""

    def __init__(
        self,
        issuer: str,
        jwks_url: str | None = None,
        renew_seconds: float = RENEW_SECONDS,
        miss_seconds: float = MISS_SECONDS,
    ) -> None:
        """`jwks_url` is where the keys are; by default the issuer's metadata tells it."""
        self._issuer = issuer
        self._jwks_url = jwks_url
        self._renew_seconds = renew_seconds
        self._miss_seconds = miss_seconds
        self._keys: list[PublicKey] | None = None
        self._fetched_at = self._attempted_at = float("-inf")
        self._fetch: asyncio.Task[None] | None = None

    async def find(self, key_id: str | None, algorithm: str) -> PublicKey | None:
        """Returns the key that a token names; without a name, the only key that fits the algorithm.

        Raises:
            IssuerUnavailableError: there are no keys.
        """
        now = time.monotonic()
        if self._keys is None or now - self._fetched_at > _MAX_AGE_SECONDS:
            self._keys = None
            await self._renew(now, _FIRST_SECONDS)
            if self._keys is None:
                raise IssuerUnavailableError
        elif now - self._fetched_at >= self._renew_seconds:
            self._begin_fetch(now, self._miss_seconds)
        found = self._choose(key_id, algorithm)
        if found is None:
            await self._renew(now, self._miss_seconds)
            found = self._choose(key_id, algorithm)
        return found

    def _choose(self, key_id: str | None, algorithm: str) -> PublicKey | None:
        fitting = [key for key in self._keys or () if key.fits(algorithm) and key_id in (None, key.id)]
        return fitting[0] if len(fitting) == 1 else None

    async def _renew(self, now: float, interval: float) -> None:
        """Waits for the fetch in progress, or for one that begins now; for none if the last began a moment ago."""
        fetch = self._begin_fetch(now, interval)
        if fetch is not None:
            await asyncio.shield(fetch)

    def _begin_fetch(self, now: float, interval: float) -> "asyncio.Task[None] | None":
        """Returns the fetch in progress, or one that begins now; None if the last began less than `interval` ago."""
        loop = asyncio.get_running_loop()
        fetch = self._fetch
        if fetch is not None and not fetch.done() and fetch.get_loop() is loop:
            return fetch
        if now - self._attempted_at < interval:
            return None
        self._attempted_at = now
        self._fetch = loop.create_task(self._fetch_keys())
        return self._fetch

    async def _fetch_keys(self) -> None:
        try:
            async with asyncio.timeout(FETCH_SECONDS):
                url = self._jwks_url or await find_jwks_url(self._issuer)
                keys = read_key_set(await fetch_document(url))
            if not keys:
                raise DocumentError(f"{url} has no key that tokens can be verified with")
        except (DocumentError, TimeoutError) as error:
            logger.warning("the keys of %s cannot be fetched: %s", self._issuer, error or "it took too long")
        except Exception:
            logger.exception("the keys of %s cannot be fetched", self._issuer)
        else:
            self._keys, self._fetched_at = keys, time.monotonic()

    async def close(self) -> None:
        """Ends a fetch that is in progress."""
        fetch, self._fetch = self._fetch, None
        if fetch is not None and not fetch.done() and fetch.get_loop() is asyncio.get_running_loop():
            fetch.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await fetch


async def find_jwks_url(issuer: str) -> str:
    """Returns the address of the issuer's keys.

    Raises:
        DocumentError: the issuer has no document, or one that is not its own or names no keys; or one that names keys
            on this machine, and the issuer is not on it.
    """
    reasons = []
    for url in issuer_document_urls(issuer):
        try:
            document = await fetch_document(url)
        except DocumentError as error:
            reasons.append(str(error))
            continue
        if document.get("issuer") != issuer:  # RFC 8414, 3.3
            reasons.append(f"{url} is the document of another issuer")
            continue
        jwks_url = document.get("jwks_uri")
        if not isinstance(jwks_url, str):
            reasons.append(f"{url} has no jwks_uri")
        elif _is_on_this_machine(jwks_url) and not _is_on_this_machine(issuer):
            reasons.append(f"{url} names keys on this machine, and is elsewhere")
        else:
            return jwks_url
    raise DocumentError("; ".join(reasons))


def _is_on_this_machine(url: str) -> bool:
    try:
        return is_loopback(urlsplit(url).hostname or "")
    except ValueError:
        return False


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
