"""Valid bodies of MCP-lite for every path, which mutations start from; over gRPC the same calls are messages."""

from typing import Any

from bench.fuzz.valid_messages import HANDLE, STATE

PREFIX = "/mcp-lite/v1"
OPTIONS: dict[str, Any] = {"root_aliases": True, "await_tool": True, "prompts": True}
"""The options by which a server has all paths."""
CALL_PATHS = ("calltools", "calltool", "rpc", "tools/call", "calltoolsEndpoint")
LIST_PATHS = ("listtools", "tools", "tools/list")
_TOKEN = "p" * 26

_CALLS: tuple[dict[str, Any], ...] = (
    {"name": "add", "arguments": {"a": 2, "b": 3}},
    {"name": "echo", "arguments": {"value": {"deep": [1, "x", None, True, 1.5]}}},
    {"name": "rows", "arguments": {"count": 40}},
    {"name": "continue", "arguments": {"handle": HANDLE, "offset": 3}},
    {"name": "ask", "arguments": {}},
    {"name": "ask", "arguments": {"_meta": {"answers": {"count": 3}, "request_state": STATE}}},
    {"name": "ask", "arguments": {}, "_meta": {"answers": {"count": 3}, "request_state": STATE}},
    {"name": "ask", "arguments": {}, "_meta": {"action": "decline", "request_state": STATE}},
    {"name": "delete", "arguments": {"id": 3}, "_meta": {"accept_response_types": ["answer", "failure"]}},
    {"name": "report", "arguments": {"steps": 2}, "_meta": {"stream": True, "idempotency_key": "k1"}},
    {"name": "spell", "arguments": {"word": "Emma"}, "_meta": {"stream": True}},
    {"name": "spell", "arguments": {"word": "Emma"}, "_meta": {"session_context": STATE, "resources": {"tokens": 9}}},
    {"name": "redeem", "arguments": {"promise": _TOKEN, "action": "status", "wait_ms": 1, "input": {"count": 3}}},
    {"name": "await", "arguments": {"promise_token": _TOKEN}},
)
_LISTS: tuple[dict[str, Any], ...] = (
    {},
    {"type": "query", "shape": "array"},
    {"query": "add numbers", "detail": "index", "shape": "object"},
    {"cursor": "MQ=="},
)
_REQUESTS: tuple[tuple[str, dict[str, Any]], ...] = (
    *(("tools/call", params) for params in _CALLS),
    *(("tools/list", params) for params in _LISTS),
    ("tools/describe", {"names": ["add", "rows"]}),
    ("tools/manifest", {"root": "0" * 64}),
    ("prompts/list", {}),
    ("prompts/get", {"name": "greet", "arguments": {"name": "Ann"}}),
    ("ping", {}),
)


def valid_calls() -> list[dict[str, Any]]:
    """The parameters of every kind of call."""
    return list(_CALLS)


def valid_bodies() -> list[tuple[str, Any]]:
    """Every kind of body, with the path that it is for, at the prefix or at the root."""
    requests: list[Any] = [
        {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
        for number, (method, params) in enumerate(_REQUESTS)
    ]
    requests.append([*requests[:4], {"jsonrpc": "2.0", "method": "notifications/x"}, requests[-1]])
    found: list[tuple[str, Any]] = [(path, body) for path in CALL_PATHS for body in requests]
    found += [(path, body) for path in LIST_PATHS for body in (*_LISTS, requests[0])]
    found += [("prompts", {}), ("await", {"promise_token": _TOKEN}), ("await", requests[0])]
    return [(f"{place}/{path}", body) for place in (PREFIX, "") for path, body in found]
