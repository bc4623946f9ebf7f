"""Security schemes: what a request carries so that the service knows who sends it; tokens of OAuth 2 among it."""

import asyncio
import base64
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, TypeAlias
from urllib.parse import quote_plus, urlencode, urlsplit

from msgspec import Struct

from deltamcp.auth.safe_url import Address, is_safe_origin
from deltamcp.client.links.http1 import BrokenExchangeError, HttpConnectionPool
from deltamcp.client.oauth.json_http import read_object
from deltamcp.errors import ConfigurationError, UpstreamError
from deltamcp.sources.http import fill_variables
from deltamcp.sources.openapi import swagger
from deltamcp.sources.openapi.document import OpenApiDocument
from deltamcp.sources.openapi.location import AddressRule
from deltamcp.sources.openapi.settings import ClientCredentials
from deltamcp.values import JSON

_MAX_BYTES = 256 * 1024
_SECONDS = 20.0
_EARLY_SECONDS = 30.0
"""A token that ends sooner is not sent any more: the request takes time, and clocks differ."""
_DEFAULT_SECONDS = 300.0
"""How long a token is kept whose end the authorization server does not say."""
_FORM = "application/x-www-form-urlencoded"
Place: TypeAlias = Literal["header", "query", "cookie"]


class SecurityScheme(Struct, frozen=True):
    """A security scheme of a document, as far as it says how a request carries a credential."""

    name: str
    kind: Literal["apiKey", "basic", "bearer", "clientCredentials", "other"]
    place: Place = "header"
    parameter: str = "authorization"
    """The name of the header, the query parameter or the cookie; of a header in lower case."""
    prefix: str = ""
    """What is before the credential, such as `Bearer `."""
    token_url: str = ""
    """Where a client of OAuth 2 gets its tokens; may be relative."""


class Carried(Struct, frozen=True):
    """What one credential adds to a request."""

    place: Place
    name: str
    value: str

    def __repr__(self) -> str:
        return f"<Carried in the {self.place} {self.name}>"


def read_schemes(document: OpenApiDocument) -> dict[str, SecurityScheme]:
    """Returns the security schemes of a document by their names."""
    kind = "securityDefinitions" if document.version.is_swagger else "securitySchemes"
    found: dict[str, SecurityScheme] = {}
    for name, component in document.components(kind):
        value = component.value
        if isinstance(value, dict):
            found[name] = _read_scheme(name, swagger.modern_scheme(value) if document.version.is_swagger else value)
    return found


def _read_scheme(name: str, value: Mapping[str, Any]) -> SecurityScheme:
    match value.get("type"):
        case "apiKey":
            place, parameter = value.get("in"), value.get("name")
            if place in ("header", "query", "cookie") and isinstance(parameter, str) and parameter:
                key = parameter.lower() if place == "header" else parameter
                return SecurityScheme(name, "apiKey", place, key)
        case "http":
            scheme = str(value.get("scheme", "")).strip()
            if scheme.lower() == "basic":
                return SecurityScheme(name, "basic", prefix="Basic ")
            if scheme.lower() == "bearer":
                return SecurityScheme(name, "bearer", prefix="Bearer ")
            if scheme.replace("-", "").isalnum():
                return SecurityScheme(name, "bearer", prefix=f"{scheme} ")
        case "oauth2":
            flows = value.get("flows")
            flow = flows.get("clientCredentials") if isinstance(flows, dict) else None
            if isinstance(flow, dict) and isinstance(flow.get("tokenUrl"), str):
                return SecurityScheme(name, "clientCredentials", prefix="Bearer ", token_url=flow["tokenUrl"])
            return SecurityScheme(name, "bearer", prefix="Bearer ")
        case "openIdConnect":
            return SecurityScheme(name, "bearer", prefix="Bearer ")
        case _:
            pass
    return SecurityScheme(name, "other")


Requirement: TypeAlias = tuple[tuple[str, tuple[str, ...]], ...]
"""Schemes that are needed together, each with its scopes; an empty one needs nothing."""


def read_requirements(operation: Mapping[str, Any], document: OpenApiDocument) -> list[Requirement]:
    """Returns the alternatives of an operation, else those of the document; none if nothing is needed."""
    given = operation.get("security", document.content.get("security"))
    return [
        tuple((name, tuple(_texts(scopes))) for name, scopes in one.items())
        for one in (given if isinstance(given, list) else ())
        if isinstance(one, dict)
    ]


def _texts(values: Any) -> Iterator[str]:
    return (one for one in values if isinstance(one, str)) if isinstance(values, list) else iter(())


def carry(scheme: SecurityScheme, credential: str) -> Carried:
    """Returns what a scheme adds to a request for a key, a token, or `user:password`."""
    if scheme.kind == "basic":
        credential = base64.b64encode(credential.encode()).decode()
    value = credential if credential.startswith(scheme.prefix) else f"{scheme.prefix}{credential}"
    return Carried(scheme.place, scheme.parameter, value)


class _Token(Struct, frozen=True):
    text: str
    ends_at: float
    """By the monotonic clock."""


class ClientTokens:
    """The tokens that a client that acts for itself gets at one authorization server (RFC 6749, 4.4), by their scopes.

    They are asked for when needed, and kept until they end.
    """

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
