"""The server of which `make replicas` runs several processes: every answer says for whom it is and to which call.

    python -m bench.replicas.server PORT STORE

STORE is the URL of the Redis that the replicas share; effects of calls are counted there, too.
"""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import redis.asyncio

from deltamcp import Context, DeltaServer, Limits, ResultPolicy
from deltamcp.auth.authenticator import HostAuth
from deltamcp.values import Principal

PRINCIPALS = ("ann", "bob", "cid")
EFFECTS = "effects"
"""The hash in Redis that counts how often each call was executed, by its nonce."""
ROWS = 400
_READ_ONLY = {"readOnlyHint": True}


def token_of(principal: str) -> str:
    return f"token-of-{principal}"


def find_principal(request: Mapping[str, Any]) -> Principal | None:
    given = dict(request["headers"]).get(b"authorization", b"").decode("latin-1")
    return next((Principal(name) for name in PRINCIPALS if given == f"Bearer {token_of(name)}"), None)


def build(store: str) -> DeltaServer:
    @asynccontextmanager
    async def connect_effects(server: DeltaServer) -> AsyncIterator[Any]:
        client = redis.asyncio.Redis.from_url(store)
        try:
            yield client
        finally:
            await client.aclose()

    key = b"one key for every replica, 32 b."
    limits = Limits(account_share=1)  # all clients have the proxy's address
    server = DeltaServer("replicas", "1", store=store, state_key=key, limits=limits, lifespan=connect_effects)

    @server.tool(annotations=_READ_ONLY)
    async def read(nonce: str, ctx: Context) -> dict[str, Any]:
        """Reads something; it may be repeated."""
        await asyncio.sleep(0.01)
        return stamp(ctx, nonce)

    @server.tool
    async def write(nonce: str, ctx: Context) -> dict[str, Any]:
        """Writes something; it must not be repeated."""
        await ctx.lifespan.hincrby(EFFECTS, nonce, 1)
        await asyncio.sleep(0.01)
        return stamp(ctx, nonce)

    @server.tool(annotations=_READ_ONLY, results=ResultPolicy(max_tokens=400))
    async def rows(nonce: str, ctx: Context) -> list[dict[str, Any]]:
        """Lists more rows than are sent at once."""
        return [{"id": number, "owner": ctx.principal.id, "nonce": nonce} for number in range(ROWS)]

    return server


def stamp(ctx: Context, nonce: str) -> dict[str, Any]:
    return {"principal": ctx.principal.id, "nonce": nonce, "replica": os.getpid()}


if __name__ == "__main__":
    port, store = sys.argv[1:3]
    build(store).run("http", port=int(port), auth=HostAuth(find_principal))
