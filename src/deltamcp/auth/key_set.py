"""The key set of an authorization server: found by its metadata, fetched when it is needed, kept, and renewed.

The metadata are those of RFC 8414 and OpenID Connect Discovery.
"""

import asyncio
import contextlib
import logging
import time
from urllib.parse import urlsplit

from deltamcp.auth.json_document import FETCH_SECONDS, DocumentError, fetch_document
from deltamcp.auth.public_key import PublicKey, read_key_set
from deltamcp.auth.safe_url import is_loopback
from deltamcp.auth.token_fault import IssuerUnavailableError

logger = logging.getLogger("deltamcp.auth")

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


def metadata_urls(issuer: str) -> list[str]:
    """Returns where an issuer's document may be, in the order of MCP 2026-07-28, "Authorization Server Discovery"."""
    parts = urlsplit(issuer)
    origin, path = f"{parts.scheme}://{parts.netloc}", parts.path.rstrip("/")
    urls = [f"{origin}/.well-known/{name}{path}" for name in ("oauth-authorization-server", "openid-configuration")]
    return [*urls, f"{origin}{path}/.well-known/openid-configuration"] if path else urls


async def find_jwks_url(issuer: str) -> str:
    """Returns the address of the issuer's keys.

    Raises:
        DocumentError: the issuer has no document, or one that is not its own or names no keys; or one that names keys
            on this machine, and the issuer is not on it.
    """
    reasons = []
    for url in metadata_urls(issuer):
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
