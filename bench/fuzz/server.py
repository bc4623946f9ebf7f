"""The server under `make fuzz`: tools, resources, prompts and completions of every kind. Started as a program.

    python -m bench.fuzz.server PORT AUTH

AUTH is `open`, or `tokens`: then every request needs the token of `TOKENS`.
"""

import asyncio
import sys
from collections.abc import Mapping
from typing import Any

from deltamcp import Context, DeltaServer, Limits, ResultPolicy
from deltamcp.auth.authenticator import Authenticator
from deltamcp.auth.host_auth import HostAuth
from deltamcp.values import Principal

TOKENS = {"Bearer fuzz-token-1": Principal("ann", frozenset({"x"}))}
LIMITS = Limits(
    account_share=1,  # all cases come from one address
    header_seconds=2,
    body_seconds=2,
    handler_seconds=2,
    input_seconds=2,
    session_idle_seconds=5,
    kept_seconds=5,
    kept_seconds_in_all=10,
    ping_seconds=5,
    stall_seconds=10,
)
"""So short that everything expires many times in a run."""


def build() -> DeltaServer:
    server = DeltaServer("fuzz", "1", limits=LIMITS)

    @server.tool
    async def add(a: int, b: int) -> int:
        return a + b

    @server.tool
    async def echo(value: Any) -> Any:
        return {"value": value}

    @server.tool(results=ResultPolicy(max_tokens=300, deltas=True, dedup=True))
    async def rows(count: int) -> list[dict[str, Any]]:
        return [{"id": at, "name": f"row {at}", "open": at % 7 > 0} for at in range(min(max(count, 0), 300))]

    @server.tool
    async def ask(ctx: Context) -> str:
        return (await ctx.elicit("How many?", int, key="count")).action

    @server.tool(policy="confirm")
    async def delete(id: int) -> str:
        return f"deleted {id}"

    @server.tool
    async def report(steps: int, ctx: Context) -> str:
        for step in range(min(max(steps, 0), 5)):
            await ctx.progress(step + 1, total=steps)
            await ctx.log("info", f"step {step}")
            await asyncio.sleep(0)
        return "reported"

    @server.resource("fuzz://clock")
    async def clock() -> str:
        return "noon"

    @server.resource("fuzz://{name}/part")
    async def part(name: str) -> str:
        return name

    @server.prompt
    async def greet(name: str) -> str:
        return f"Please greet {name}."

    @server.completion(prompt="greet", argument="name")
    async def names(value: str) -> list[str]:
        return [name for name in ("Ann", "Bob") if name.startswith(value)]

    return server


def authenticator(kind: str) -> Authenticator | None:
    """
    Args:
        kind: `open` or `tokens`.
    """
    return None if kind == "open" else HostAuth(_find_principal)


def _find_principal(request: Mapping[str, Any]) -> Principal | None:
    given = dict(request["headers"]).get(b"authorization", b"")
    return TOKENS.get(given.decode("latin-1"))


if __name__ == "__main__":
    port, kind = sys.argv[1:3]
    build().run("http", port=int(port), auth=authenticator(kind))
