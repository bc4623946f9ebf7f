"""A server that knows who calls, with tokens of the authorization server beside it.

    python -m examples.http_oauth.server          # from the root of the repository; prints two commands to try
    python -m examples.http_oauth.client          # in another terminal: logs in, calls, and checks what it gets

With an authorization server of your own, `ResourceServer` needs its address and nothing else here changes.
"""

import json
import sys
from typing import Any

from deltamcp import Context, DeltaServer, ResourceServer
from examples.http_oauth.authorization_server import PORT as LOGIN_PORT
from examples.http_oauth.authorization_server import AuthorizationServer

PORT = 3000
WHOAMI = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "tools/call",
    "params": {
        "name": "whoami",
        "arguments": {},
        "_meta": {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
        },
    },
}

server = DeltaServer("whoami", "1.0")
notes: dict[str, list[str]] = {}


@server.tool(annotations={"readOnlyHint": True})
async def whoami(ctx: Context) -> dict[str, Any]:
    """Say who calls, and what the caller may do."""
    return {"subject": ctx.principal.id, "issuer": ctx.principal.issuer, "scopes": sorted(ctx.principal.scopes)}


@server.tool(scopes=["notes:write"])
async def write_note(text: str, ctx: Context) -> int:
    """Write a note, and return how many the caller has."""
    mine = notes.setdefault(ctx.principal.key, [])
    mine.append(text)
    return len(mine)


def curl_command(url: str, token: str) -> str:
    """Returns the command that calls `whoami` with a token."""
    headers = {
        "authorization": f"Bearer {token}",
        "content-type": "application/json",
        "accept": "application/json, text/event-stream",
        "mcp-protocol-version": "2026-07-28",
        "mcp-method": "tools/call",
        "mcp-name": "whoami",
    }
    given = " ".join(f"-H '{name}: {value}'" for name, value in headers.items())
    return f"curl -s {url} {given} -d '{json.dumps(WHOAMI)}'"


def main(port: int = PORT, login_port: int = LOGIN_PORT) -> None:
    url = f"http://127.0.0.1:{port}/mcp"
    with AuthorizationServer(login_port) as login:
        print("With a token for this server, for five minutes:")
        print(curl_command(url, login.make_token("alice", "notes:read", url)))
        print("\nWith a token for another server, which is refused:")
        print(curl_command(url, login.make_token("alice", "notes:read", "http://127.0.0.1:3001/mcp")), flush=True)
        auth = ResourceServer(url, login.issuer, scopes=["notes:read"], step_up=["notes:write"])
        server.run("http", port=port, auth=auth)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:3]))
