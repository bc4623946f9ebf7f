"""The server under `make fuzz`: tools, resources, prompts and completions of every kind. Started as a program.

    python -m bench.fuzz.server PORT AUTH GRPC-PORT

AUTH is `open`, `compat` for the HTTP of the original Delta-MCP, or the URL of an issuer of access tokens whose keys are
at `/jwks`. MCP-lite is served beside MCP, with all of its paths, and over gRPC at a port of its own.
"""

import asyncio
import sys
from collections.abc import AsyncIterator
from typing import Any

from bench.fuzz import lite_messages
from deltamcp import Context, DeltaServer, Limits, Rate, RateLimits, ResultPolicy
from deltamcp.auth.resource_server import ResourceServer
from deltamcp.transports.http.server import make_server
from deltamcp.transports.options import GrpcOptions, HttpOptions

OPEN, COMPAT = "open", "compat"
RESOURCE = "http://127.0.0.1/mcp"
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
    rate = Rate(1_000_000, 1)  # so that rates are counted, and nobody is refused
    rates = RateLimits(per_address=rate, per_principal=rate, per_tool=rate)
    server = DeltaServer("fuzz", "1", limits=LIMITS, rate_limits=rates)

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
            await ctx.report_progress(step + 1, total=steps)
            await ctx.log("info", f"step {step}")
            await asyncio.sleep(0)
        return "reported"

    @server.tool
    async def spell(word: str) -> AsyncIterator[str]:
        for letter in word[:100]:
            yield letter

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


def make_options(auth: str) -> HttpOptions:
    """Options by which every header that the server may read is read."""
    options = HttpOptions(trusted_proxies=["127.0.0.0/8"], allowed_origins=["http://localhost:3000"])
    if auth == COMPAT:
        options["compat"] = True
        return options
    lite: Any = lite_messages.OPTIONS
    options["mcp_lite"] = lite
    if auth != OPEN:
        options["auth"] = ResourceServer(RESOURCE, auth, jwks_url=f"{auth}/jwks", scopes=["call"])
    return options


def make_grpc_options(auth: str) -> GrpcOptions:
    lite: Any = lite_messages.OPTIONS
    options = GrpcOptions(mcp_lite=lite, request_ids=True)
    if auth not in (OPEN, COMPAT):
        options["auth"] = ResourceServer(RESOURCE, auth, jwks_url=f"{auth}/jwks", scopes=["call"])
    return options


if __name__ == "__main__":
    port, auth, grpc_port = sys.argv[1:4]
    server = build()
    http = make_server(server.engine, port=int(port), **make_options(auth))
    http.add_server(server.grpc(port=int(grpc_port), **make_grpc_options(auth)))
    http.run()
