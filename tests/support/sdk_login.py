"""The official SDK's client, whose user logs in to an authorization server."""

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import httpx2
from mcp.client.auth import OAuthClientProvider
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import AuthorizationCodeResult, OAuthClientInformationFull, OAuthClientMetadata, OAuthToken
from pydantic import AnyUrl

from tests.support.authorization_server import REDIRECT
from tests.support.browser import Browser
from tests.support.conditions import HANG_SECONDS


@dataclass
class SdkLogin:
    """A user with a browser, what the client remembers of the login, and the requests that it took."""

    user: str = "alice"
    tokens: OAuthToken | None = None
    client_info: OAuthClientInformationFull | None = None
    visits: list[dict[str, str]] = field(default_factory=list)
    """The answers that the authorization server sent to the redirect address, one for each time the user was asked."""
    exchanges: list[tuple[str, str, int]] = field(default_factory=list)
    """The method, path and status of each request."""
    provider: OAuthClientProvider | None = None

    async def get_tokens(self) -> OAuthToken | None:
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self.client_info

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self.client_info = client_info

    async def _visit(self, url: str) -> None:
        self.visits.append(await Browser(self.user).visit(url, REDIRECT))

    async def _answer(self) -> AuthorizationCodeResult:
        return AuthorizationCodeResult.model_validate(self.visits[-1])

    async def _note(self, response: httpx2.Response) -> None:
        self.exchanges.append((response.request.method, response.request.url.path, response.status_code))

    @contextlib.asynccontextmanager
    async def connect(self, url: str, mode: str, client_document: str | None = None) -> AsyncIterator[Client]:
        """A client in one of the SDK's modes; `client_document` is the address that identifies it, if one does."""
        about = OAuthClientMetadata(client_name="The SDK's client", redirect_uris=[AnyUrl(REDIRECT)])
        self.provider = OAuthClientProvider(url, about, self, self._visit, self._answer, client_document)
        hooks = {"response": [self._note]}
        async with httpx2.AsyncClient(
            auth=self.provider, event_hooks=hooks, timeout=HANG_SECONDS, trust_env=False
        ) as http:
            async with Client(streamable_http_client(url, http_client=http), mode=mode) as client:
                yield client
