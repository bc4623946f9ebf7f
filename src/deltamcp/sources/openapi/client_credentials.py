"""Tokens of OAuth 2 for a client that acts for itself (RFC 6749, 4.4): asked for when needed, kept until they end."""

import asyncio
import base64
import time
from collections.abc import Mapping, Sequence
from urllib.parse import quote_plus, urlencode, urlsplit

from msgspec import Struct

from deltamcp.auth.safe_url import Address, is_safe_origin
from deltamcp.client.links.http1 import BrokenExchangeError, HttpConnectionPool
from deltamcp.client.oauth.json_http import read_object
from deltamcp.errors import ConfigurationError, UpstreamError
from deltamcp.sources.address_rule import AddressRule
from deltamcp.sources.http import fill_variables
from deltamcp.sources.openapi.settings import ClientCredentials
from deltamcp.values import JSON

_MAX_BYTES = 256 * 1024
_SECONDS = 20.0
_EARLY_SECONDS = 30.0
"""A token that ends sooner is not sent any more: the request takes time, and clocks differ."""
_DEFAULT_SECONDS = 300.0
"""How long a token is kept whose end the authorization server does not say."""
_FORM = "application/x-www-form-urlencoded"


class _Token(Struct, frozen=True):
    text: str
    ends_at: float
    """By the monotonic clock."""


class ClientTokens:
    """The tokens that one client gets at one authorization server, by their scopes."""

    def __init__(
        self, settings: ClientCredentials, token_url: str, environment: Mapping[str, str], rule: AddressRule
    ) -> None:
        """
        Args:
            token_url: Where tokens are issued; the client's secret is sent there.

        Raises:
            ConfigurationError: the address cannot be used, or a variable of the settings is not set.
        """
        self._client_id = fill_variables(settings.client_id, environment)
        self.client_secret: str = fill_variables(settings.client_secret, environment)
        self._scopes = settings.scopes
        self._url = fill_variables(settings.token_url, environment) if settings.token_url else token_url
        self._rule = rule
        parts = urlsplit(self._url)
        # RFC 6749, 3.2: the token endpoint needs TLS.
        if not (is_safe_origin(parts) or (parts.scheme == "http" and rule.is_free(self._url))):
            raise ConfigurationError(
                f"Tokens are issued at {self._label}, which is not https; set token_url, or add its host to hosts."
            )
        refusal = rule.refusal(self._url)
        if refusal is not None:
            raise ConfigurationError(f"{refusal}; add it to hosts, if tokens are issued there.")
        self._tokens: dict[tuple[str, ...], _Token] = {}
        self._asking: dict[tuple[str, ...], asyncio.Task[_Token]] = {}
        self._sends_secret_in_form = False

    async def token(self, scopes: Sequence[str]) -> str:
        """Returns a token for scopes; calls that need the same at once wait for one request.

        Raises:
            UpstreamError: the authorization server refuses, or cannot be reached.
        """
        chosen = tuple(scopes) if self._scopes is None else self._scopes
        known = self._tokens.get(chosen)
        if known is not None and time.monotonic() < known.ends_at:
            return known.text
        task = self._asking.get(chosen)
        if task is None or task.get_loop() is not asyncio.get_running_loop():
            task = self._asking[chosen] = asyncio.create_task(self._ask(chosen))
            task.add_done_callback(lambda done: self._asking.pop(chosen, None))
        token = await asyncio.shield(task)
        self._tokens[chosen] = token
        return token.text

    def forget(self, token: str) -> None:
        """Forgets a token that a service did not accept."""
        self._tokens = {scopes: one for scopes, one in self._tokens.items() if one.text != token}

    async def _ask(self, scopes: tuple[str, ...]) -> _Token:
        status, reply = await self._post(scopes)
        if status in (400, 401) and reply.get("error") == "invalid_client" and not self._sends_secret_in_form:
            # RFC 6749, 2.3.1: servers must read the header; some read the form only.
            self._sends_secret_in_form = True
            status, reply = await self._post(scopes)
            self._sends_secret_in_form = status == 200
        token, seconds = reply.get("access_token"), reply.get("expires_in")
        if status != 200 or not isinstance(token, str) or not token.isascii() or not token.isprintable():
            reason = reply.get("error")
            shown = reason if isinstance(reason, str) and reason.isascii() and len(reason) < 100 else f"HTTP {status}"
            raise UpstreamError(f"{self._label} issued no token: {shown}; check the client's credentials.")
        lasts = float(seconds) if isinstance(seconds, int | float) and 0 < seconds < 1e9 else _DEFAULT_SECONDS
        return _Token(token, time.monotonic() + max(lasts - _EARLY_SECONDS, lasts / 2))

    async def _post(self, scopes: tuple[str, ...]) -> tuple[int, dict[str, JSON]]:
        fields = {"grant_type": "client_credentials"}
        headers = {"accept": "application/json", "content-type": _FORM, "user-agent": "delta-mcp"}
        if scopes:
            fields["scope"] = " ".join(scopes)
        if self._sends_secret_in_form:
            fields |= {"client_id": self._client_id, "client_secret": self.client_secret}
        else:
            pair = f"{quote_plus(self._client_id)}:{quote_plus(self.client_secret)}"
            headers["authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
        pool = HttpConnectionPool(self._url, _MAX_BYTES, None if self._rule.is_free(self._url) else self._check)
        try:
            async with asyncio.timeout(_SECONDS):
                response = await pool.exchange(pool.head("POST", self._url, headers), urlencode(fields).encode())
        except TimeoutError:
            raise UpstreamError(f"{self._label} did not answer within {_SECONDS:g} s.", retryable=True) from None
        except BrokenExchangeError as error:
            raise UpstreamError(f"{self._label} cannot be reached: {error}.", retryable=True) from None
        finally:
            pool.close()
        return response.status, read_object(response.body)

    async def _check(self, addresses: Sequence[Address]) -> None:
        self._rule.check(urlsplit(self._url).hostname or "", addresses)

    @property
    def _label(self) -> str:
        parts = urlsplit(self._url)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path[:200]}"
