"""What the measuring client sends in both eras, and what it reads of the replies."""

import json
from typing import Any

from deltamcp.values import Era

REVISIONS = {Era.MODERN: "2026-07-28", Era.HANDSHAKE: "2025-11-25"}
_CLIENT = {"name": "bench", "version": "1"}
_MODERN_META = {
    "io.modelcontextprotocol/protocolVersion": REVISIONS[Era.MODERN],
    "io.modelcontextprotocol/clientInfo": _CLIENT,
    "io.modelcontextprotocol/clientCapabilities": {},
}
INITIALIZED = b'{"jsonrpc":"2.0","method":"notifications/initialized"}'


def request(era: Era, method: str, params: dict[str, Any] | None = None, id: int = 1) -> bytes:
    """A request; in the modern era with the `_meta` that stands for a handshake."""
    sent = dict(params or {})
    if era is Era.MODERN:
        sent["_meta"] = _MODERN_META
    body = {"jsonrpc": "2.0", "id": id, "method": method, "params": sent}
    return json.dumps(body, separators=(",", ":")).encode()


def initialize() -> bytes:
    params = {"protocolVersion": REVISIONS[Era.HANDSHAKE], "capabilities": {}, "clientInfo": _CLIENT}
    return request(Era.HANDSHAKE, "initialize", params)


def call(era: Era, name: str = "add", arguments: dict[str, Any] | None = None, id: int = 1) -> bytes:
    """A call, of `add(2, 3)` unless told otherwise."""
    given = {"a": 2, "b": 3} if arguments is None else arguments
    return request(era, "tools/call", {"name": name, "arguments": given}, id)


def headers(era: Era | None, method: str, name: str | None = None, session: str | None = None) -> dict[str, str]:
    """The HTTP headers that go with a request; an era of None is a request before the handshake."""
    sent = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    if era is not None:
        sent["MCP-Protocol-Version"] = REVISIONS[era]
    if era is Era.MODERN:
        sent["Mcp-Method"] = method
        if name is not None:
            sent["Mcp-Name"] = name
    if session is not None:
        sent["Mcp-Session-Id"] = session
    return sent


def parse_reply(reply: bytes) -> Any:
    """Parses a reply, and takes it out of its event if it came as one.

    Raises:
        ValueError: there is none.
    """
    if not reply.startswith(b"{"):
        reply = next((line[5:] for line in reversed(reply.splitlines()) if line.startswith(b"data:")), reply)
    return json.loads(reply)


def call_text(reply: bytes) -> str:
    """The text a call was answered with.

    Raises:
        ValueError: the reply is not a successful result.
    """
    try:
        result = parse_reply(reply)["result"]
        if result.get("isError"):
            raise ValueError
        text: str = result["content"][0]["text"]
    except (ValueError, KeyError, IndexError, TypeError):
        raise ValueError(f"not the result of a call: {reply[:500]!r}") from None
    return text


def tool_count(reply: bytes) -> int:
    """How many tools a list has.

    Raises:
        ValueError: the reply is not a list of tools.
    """
    try:
        return len(parse_reply(reply)["result"]["tools"])
    except (ValueError, KeyError, TypeError):
        raise ValueError(f"not a list of tools: {reply[:500]!r}") from None
