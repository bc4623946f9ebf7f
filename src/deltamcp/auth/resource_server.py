"""The OAuth 2.1 resource server: admits requests with access tokens that were issued for this server.

Its metadata tell clients which authorization servers it trusts (RFC 9728). What was verified a moment ago is kept.
"""

import hashlib
import time
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

import msgspec
from msgspec import Struct

from deltamcp.auth.authenticator import Credentials
from deltamcp.auth.bearer import IssuerUnavailableError, TokenError, is_scope, read_bearer, refusal, write_challenge
from deltamcp.auth.claims import DEFAULT_LEEWAY_SECONDS, ClaimRules
from deltamcp.auth.introspection import Introspection, IntrospectionVerifier
from deltamcp.auth.jwt_verifier import ALGORITHMS, JwtVerifier, KeySet
from deltamcp.auth.safe_url import split_url
from deltamcp.errors import ConfigurationError, Fault
from deltamcp.values import Failure, Principal

_JWT_CACHE_SECONDS = 60.0
_RETRY_SECONDS = 5.0
WELL_KNOWN = "/.well-known/oauth-protected-resource"


class TokenVerifier(Protocol):
    """Says whom a token is for: by its signature, or by asking whoever issued it."""

    async def verify(self, token: str, address: str = "") -> Principal: ...

    async def close(self) -> None: ...


class ResourceServer:
    """Verifies the access tokens of requests: `server.asgi(auth=ResourceServer("https://tools.example/mcp", ...))`.

    It never passes a token on. Clients learn from its documents and challenges where to get one.
    """

    def __init__(
        self,
        resource: str,
        issuer: str = "",
        *,
        jwks_url: str | None = None,
        algorithms: Sequence[str] = ALGORITHMS,
        introspection: Introspection | None = None,
        audience: str | Sequence[str] = (),
        scopes: Iterable[str] = (),
        step_up: Iterable[str] = (),
        more_scopes: Iterable[str] = (),
        implied_scopes: Mapping[str, Iterable[str]] | None = None,
        leeway_seconds: float = DEFAULT_LEEWAY_SECONDS,
        name: str | None = None,
    ) -> None:
        """
        Args:
            resource: The public URL of the MCP endpoint, for which tokens are issued: "https://tools.example/mcp".
            issuer: The authorization server, as its metadata and the `iss` of its tokens name it.
            jwks_url: Where the authorization server's keys are. By default its metadata tells it.
            algorithms: The algorithms by which tokens may be signed; by default all with a public key.
            introspection: Where to ask about each token. By default tokens are JSON Web Tokens, which keys verify.
            audience: What tokens must name as their audience, one or several, where that is not the resource.
            scopes: The scopes that every request needs.
            step_up: The scopes that clients may ask for when they need them. Operations that lack only these are
                listed for callers without them; other operations are listed for callers with their scopes only.
            more_scopes: Further scopes that the document for clients names.
            implied_scopes: Scopes that a broader one stands for: `{"admin": ["read", "write"]}`.
            leeway_seconds: How much the clocks of the authorization server and this machine may differ.
            name: The name of this server, which clients may show to users.

        Raises:
            ConfigurationError: a URL, scope or algorithm cannot be used, or nothing says how to verify tokens.
        """
        if not issuer:
            raise ConfigurationError(
                "ResourceServer needs a way to verify tokens; pass issuer= with the authorization server's URL, "
                "whose keys verify them, and introspection= if it is to be asked about each."
            )
        split_url(issuer, "issuer")
        if jwks_url is not None:
            if introspection is not None:
                raise ConfigurationError("Tokens are verified by keys or by introspection; pass one of the two.")
            split_url(jwks_url, "jwks_url")
        self._scopes = frozenset(scopes)
        later = frozenset(step_up)
        known = self._scopes | later | frozenset(more_scopes)
        self.resource = resource
        """The public URL of the MCP endpoint."""
        self._metadata = ResourceMetadata(resource, [issuer], known, name)
        self.documents: Mapping[str, bytes] = dict.fromkeys(self._metadata.paths, self._metadata.document)
        audiences = [audience] if isinstance(audience, str) else list(audience)
        rules = ClaimRules(issuer, audiences or [resource], leeway_seconds, implied_scopes, later)
        self._verifier: TokenVerifier
        if introspection is None:
            self._verifier = JwtVerifier(KeySet(issuer, jwks_url), rules, algorithms)
            self._verified = VerifiedTokens(_JWT_CACHE_SECONDS)
        else:
            split_url(introspection.url, "introspection.url")
            self._verifier = IntrospectionVerifier(introspection, rules)
            self._verified = VerifiedTokens(introspection.cache_seconds)

    async def authenticate(self, credentials: Credentials) -> Principal | Failure:
        """Returns the principal of the request's token, or why the token is refused."""
        try:
            token = read_bearer(credentials.authorization)
            principal = self._verified.find(token)
            if principal is None:
                principal = await self._verifier.verify(token, credentials.address)
                self._verified.put(token, principal)
        except TokenError as error:
            return refusal(error.fault)
        except IssuerUnavailableError:
            return Failure(
                Fault.OVERLOADED, "Tokens cannot be verified at the moment; try again.", retry_seconds=_RETRY_SECONDS
            )
        missing = self._scopes - principal.scopes
        if missing:
            return Failure(
                Fault.INSUFFICIENT_SCOPE,
                "The token lacks scopes that every request here needs.",
                {"missingScopes": sorted(missing)},
                missing_scopes=missing,
                granted_scopes=principal.scopes,
            )
        return principal

    def challenge(self, failure: Failure) -> str | None:
        """Returns the `WWW-Authenticate` header that says why, and which scopes to ask for."""
        # Also those that the token has: clients of 2025-11-25 ask for exactly what the challenge names.
        wanted = self._scopes | failure.granted_scopes | failure.missing_scopes
        return write_challenge(failure, wanted, self._metadata.url)

    async def close(self) -> None:
        """Closes the connections to the authorization server, and forgets the tokens that it verified."""
        await self._verifier.close()
        self._verified.clear()


class ResourceMetadata:
    """The document of one resource, and the addresses at which clients look for it."""

    def __init__(
        self, resource: str, authorization_servers: Sequence[str], scopes: Iterable[str], name: str | None = None
    ) -> None:
        """
        Raises:
            ConfigurationError: the resource is no URL that a token can be issued for, or a scope has a space.
        """
        parts = split_url(resource, "resource")
        self.scopes: list[str] = sorted(set(scopes))
        for scope in self.scopes:
            if not is_scope(scope):
                raise ConfigurationError(
                    f"A scope has printable characters only, without a space; {scope!r} has others."
                )
        document = {
            "resource": resource,
            "authorization_servers": list(authorization_servers),
            "scopes_supported": self.scopes,
            "bearer_methods_supported": ["header"],
            "resource_name": name,
        }
        self.document: bytes = msgspec.json.encode({key: value for key, value in document.items() if value})
        path = parts.path.rstrip("/")
        query = f"?{parts.query}" if parts.query else ""
        self.url: str = f"{parts.scheme}://{parts.netloc}{WELL_KNOWN}{path}{query}"
        """Where the document is: RFC 9728, 3.1 puts the well-known path before the resource's own."""
        self.paths: tuple[str, ...] = (WELL_KNOWN, f"{WELL_KNOWN}{path}") if path else (WELL_KNOWN,)
        """The paths at which the server has the document; clients that get no challenge try both."""


class _CachedToken(Struct, frozen=True, gc=False):
    principal: Principal
    ends_at: float


class VerifiedTokens:
    """The principals of tokens by the tokens' digests; the least recently used are forgotten first."""

    def __init__(self, max_seconds: float, max_tokens: int = 4096) -> None:
        """`max_seconds`: how long a token is used without another look at it, so that a revoked one ends soon."""
        self._max_seconds = max_seconds
        self._max_tokens = max_tokens
        self._entries: OrderedDict[bytes, _CachedToken] = OrderedDict()

    def find(self, token: str) -> Principal | None:
        """Returns the principal of a token that was verified and has not expired since."""
        digest = hashlib.sha256(token.encode()).digest()
        entry = self._entries.get(digest)
        if entry is None:
            return None
        if time.time() >= entry.ends_at:
            del self._entries[digest]
            return None
        self._entries.move_to_end(digest)
        return entry.principal

    def put(self, token: str, principal: Principal) -> None:
        """Remembers a token until it expires, at most for `max_seconds`."""
        ends_at = min(principal.expires_at, time.time() + self._max_seconds)
        self._entries[hashlib.sha256(token.encode()).digest()] = _CachedToken(principal, ends_at)
        if len(self._entries) > self._max_tokens:
            self._entries.popitem(last=False)

    def clear(self) -> None:
        self._entries.clear()

    def __len__(self) -> int:
        return len(self._entries)
