"""A client whose tokens, of one user, have any scopes."""

import contextlib
import re
from collections.abc import AsyncIterator
from typing import Any

from deltamcp import DeltaServer, ResourceServer
from tests.support.asgi_client import AsgiClient
from tests.support.fake_issuer import RESOURCE, FakeIssuer, serve_issuer
from tests.support.raw_client import META


class ScopeClient:
    """A client of one server that can change its token between requests, in one session where the era has them."""

    def __init__(self, app: Any, issuer: FakeIssuer, era: str) -> None:
        self._client = AsgiClient(app)
        self._issuer = issuer
        self._era = era

    def use_scopes(self, scope: str, sub: str = "ada") -> None:
        self._client.headers["authorization"] = f"Bearer {self._issuer.token(scope=scope, sub=sub)}"

    async def begin(self) -> None:
        if self._era == "handshake":
            await self._client.initialize()

    async def ask(self, method: str, **params: Any) -> tuple[int, dict[str, str], Any]:
        if self._era == "modern":
            params["_meta"] = {**META, **params.get("_meta", {})}
            name = next((params[key] for key in ("name", "uri", "taskId") if key in params), None)
            self._client.headers |= {"mcp-protocol-version": "2026-07-28", "mcp-method": method}
            self._client.headers.pop("mcp-name", None)
            if name is not None:
                self._client.headers["mcp-name"] = name
        exchange = self._client.request(1, method, **params)
        status, headers = await exchange.start()
        return status, headers, await exchange.json()

    async def call(self, tool: str, **arguments: Any) -> tuple[int, dict[str, str], Any]:
        return await self.ask("tools/call", name=tool, arguments=arguments)

    async def listed(self) -> set[str]:
        _, _, answer = await self.ask("tools/list")
        return {tool["name"] for tool in answer["result"]["tools"]}


@contextlib.asynccontextmanager
async def serve_scopes(era: str, server: DeltaServer, scope: str, **options: Any) -> AsyncIterator[ScopeClient]:
    """Serves to a client whose first token has a scope; `options` are those of `ResourceServer`."""
    async with serve_issuer() as issuer, server.lifespan():
        auth = ResourceServer(RESOURCE, issuer.url, jwks_url=f"{issuer.url}/jwks", **options)
        client = ScopeClient(server.asgi(auth=auth), issuer, era)
        client.use_scopes(scope)
        await client.begin()
        yield client


def challenge_of(headers: dict[str, str]) -> dict[str, str]:
    scheme, _, rest = headers["www-authenticate"].partition(" ")
    assert scheme == "Bearer"
    return dict(re.findall(r'(\w+)="([^"]*)"', rest))
