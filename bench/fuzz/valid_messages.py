"""Valid messages of every method of both eras, which mutations start from."""

from collections.abc import Mapping
from typing import Any

from bench.messages import REVISIONS
from deltamcp.dialects import methods
from deltamcp.values import Era

SESSION, HANDLE, STATE, TOKEN = "{session}", "{handle}", "{state}", "{token}"
"""Stand for what only a running server can give; the sender replaces them."""

_RESULT_KEY = "io.github.delta-mcp/result"
_CLIENT = {"name": "fuzz", "version": "1"}
META: dict[str, Any] = {
    "io.modelcontextprotocol/protocolVersion": REVISIONS[Era.MODERN],
    "io.modelcontextprotocol/clientInfo": _CLIENT,
    "io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}, "sampling": {}, "roots": {}},
    "progressToken": "p1",
    "io.modelcontextprotocol/logLevel": "debug",
    "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
}
_CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
_PROGRESSIVE: dict[str, Any] = {_CAPABILITIES: {"extensions": {"io.github.delta-mcp/progressive-disclosure": {}}}}
_INPUTS = {"count": {"action": "accept", "content": {"value": 3}}}
_POLICY = {"max_tokens": 200, "fields": "id,name", "deltas": True, "dedup": True}

_PARAMS: Mapping[str, tuple[dict[str, Any], ...]] = {
    "tools/call": (
        {"name": "add", "arguments": {"a": 2, "b": 3}},
        {"name": "echo", "arguments": {"value": {"deep": [1, "x", None, True, 1.5]}}},
        {"name": "rows", "arguments": {"count": 40}},
        {"name": "rows", "arguments": {"count": 40}, "_meta": {_RESULT_KEY: _POLICY}},
        {"name": "rows", "arguments": {"count": 40, "page": 2, "pageSize": 5, "pack_root": "reset"}},
        {"name": "continue", "arguments": {"handle": HANDLE, "offset": 3}},
        {"name": "continue", "arguments": {"handle": HANDLE, "fields": "[?id>`3`].name", "path": "/0"}},
        {"name": "continue", "arguments": {"handle": HANDLE, "grep": "row|item"}},
        {"name": "echo", "arguments": {"value": {"$result": HANDLE, "path": "/0/name", "patch": [{"find": "r"}]}}},
        {"name": "ask", "arguments": {}},
        {"name": "ask", "arguments": {}, "requestState": STATE, "inputResponses": _INPUTS},
        {"name": "delete", "arguments": {"id": 3}},
        {"name": "report", "arguments": {"steps": 2}},
    ),
    "tools/list": ({}, {"cursor": "MQ=="}, {"_meta": {"io.github.delta-mcp/root": "0" * 64}}),
    "tools/describe": ({"names": ["add"], "_meta": _PROGRESSIVE}, {"name": "add", "_meta": _PROGRESSIVE}),
    "tools/manifest": ({"_meta": _PROGRESSIVE}, {"root": "0" * 64, "_meta": _PROGRESSIVE}),
    "resources/list": ({},),
    "resources/templates/list": ({},),
    "resources/read": (
        {"uri": "fuzz://clock"},
        {"uri": "fuzz://a/part"},
        {"uri": f"fuzz://results/{HANDLE}/0"},
    ),
    "resources/subscribe": ({"uri": "fuzz://clock"},),
    "resources/unsubscribe": ({"uri": "fuzz://clock"},),
    "prompts/list": ({},),
    "prompts/get": ({"name": "greet", "arguments": {"name": "Ann"}},),
    "completion/complete": (
        {"ref": {"type": "ref/prompt", "name": "greet"}, "argument": {"name": "name", "value": "A"}},
        {"ref": {"type": "ref/resource", "uri": "fuzz://{name}/part"}, "argument": {"name": "name", "value": "A"}},
    ),
    "ping": ({},),
    "logging/setLevel": ({"level": "debug"},),
    "server/discover": ({},),
    "subscriptions/listen": ({"notifications": {"toolsListChanged": True, "resourceSubscriptions": ["fuzz://clock"]}},),
}

_INITIALIZE = [
    {
        "protocolVersion": version,
        "capabilities": {"roots": {"listChanged": True}, "sampling": {}},
        "clientInfo": _CLIENT,
    }
    for version in (REVISIONS[Era.HANDSHAKE], "2025-06-18", "2025-03-26", "2024-11-05", "delta-mcp/0.2.0")
]
_NOTIFICATIONS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("notifications/initialized", {}),
    ("notifications/cancelled", {"requestId": 1, "reason": "x"}),
    ("notifications/progress", {"progressToken": "p1", "progress": 1, "total": 2}),
    ("notifications/roots/list_changed", {}),
)
_RESPONSES: tuple[dict[str, Any], ...] = (
    {"jsonrpc": "2.0", "id": 1, "result": {"action": "accept", "content": {"value": 3}}},
    {"jsonrpc": "2.0", "id": "x", "error": {"code": -32601, "message": "no"}},
)


def valid_messages(era: Era) -> list[dict[str, Any]]:
    """Every kind of message that a client of an era sends."""
    tables = {Era.HANDSHAKE: methods.HANDSHAKE, Era.MODERN: methods.MODERN}
    found = [_request(era, method, params) for method in tables[era] for params in _PARAMS[method]]
    if era is Era.HANDSHAKE:
        found += [_request(era, "initialize", params) for params in _INITIALIZE]
        found += [{"jsonrpc": "2.0", "method": method, "params": params} for method, params in _NOTIFICATIONS]
        found += _RESPONSES
    return found


def _request(era: Era, method: str, params: dict[str, Any]) -> dict[str, Any]:
    sent = dict(params)
    if era is Era.MODERN:
        sent["_meta"] = {**META, **params.get("_meta", {})}
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": sent}
