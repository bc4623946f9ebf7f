"""Attacks on MCP-lite over HTTP: batches, searches and unknown names on many connections, and streams."""

import json
from collections.abc import Callable
from typing import Any

from bench import messages
from bench.hostile.attack import Answered, Attack, Prepared
from bench.hostile.attacked_server import AttackedServer
from bench.hostile.flood import Flood, MakeRequest, write_request
from bench.hostile.servers.options import ServerOptions
from deltamcp.values import Era

PREFIX = "/mcp-lite/v1"
BATCH = 16
"""As many requests as a batch may have."""
_JSON = {"Content-Type": "application/json", "Accept": "application/json"}
_MANY = ServerOptions(operations=1_000)
_SECONDS = 5.0


def lite_request(path: str, message: Any, accept: str = "application/json") -> bytes:
    """The bytes of a request to one of MCP-lite's paths."""
    headers = _JSON | {"Accept": accept}
    return write_request("POST", f"{PREFIX}/{path}", json.dumps(message).encode(), headers)


def rpc(method: str, params: dict[str, Any], id: int = 1) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": params}


def flood(
    connections: int, *make: MakeRequest, seconds: float = _SECONDS
) -> Callable[[AttackedServer, Prepared], Answered]:
    """Sends requests on so many connections, each kind for its share of the time."""

    def run(server: AttackedServer, _: Prepared) -> Answered:
        found = [Flood(server.port, one, connections).run(seconds / len(make)) for one in make]
        return Answered("; ".join(one.text for one in found))

    return run


def _batch(make: Callable[[int], dict[str, Any]]) -> MakeRequest:
    """Batches of requests that are made from their numbers."""
    return lambda number: lite_request("rpc", [make(BATCH * number + place) for place in range(BATCH)])


def _call(number: int) -> dict[str, Any]:
    return rpc("tools/call", {"name": "echo", "arguments": {"text": "x"}}, number)


def _search(number: int) -> dict[str, Any]:
    return rpc("tools/list", {"query": f"list the user rows of account {number}"}, number)


def _unknown_name(number: int) -> dict[str, Any]:
    """A call of a tool that does not exist, for which the server looks for similar ones."""
    return rpc("tools/call", {"name": f"oparation_{number}_".ljust(200, "x"), "arguments": {}}, number)


def _describe(number: int) -> dict[str, Any]:
    return rpc("tools/describe", {"names": [f"operation_{(number + place) % 1_000}" for place in range(100)]}, number)


def _meta_call(tool: str, arguments: dict[str, Any]) -> bytes:
    body = messages.call(Era.MODERN, tool, arguments)
    return write_request("POST", "/mcp", body, messages.headers(Era.MODERN, "tools/call", tool))


def _discover(number: int) -> bytes:
    return _meta_call("discover", {"query": f"list the user rows of account {number}"})


def _unknown_operation(number: int) -> bytes:
    return _meta_call("execute", {"operation": f"oparation {number} user rows".ljust(200, "x"), "params": {}})


def _unknown_schemas(number: int) -> bytes:
    names = [f"oparation {number} {place} user rows".ljust(200, "x") for place in range(10)]
    return _meta_call("get_schema", {"operation": names})


LITE_ATTACKS: tuple[Attack, ...] = (
    Attack(
        "lite-batches",
        "MCP-lite: batches of 16 searches, calls, descriptions and unknown names, 200 connections",
        flood(200, *map(_batch, (_search, _call, _describe, _unknown_name)), seconds=10),
        options=_MANY,
    ),
    Attack(
        "unknown-names",
        "unknown names of tools and operations, 50 connections",
        flood(50, lambda number: lite_request("rpc", _unknown_name(number)), _unknown_operation, _unknown_schemas),
        options=_MANY._replace(disclosure="meta"),
    ),
    Attack(
        "searches",
        "`discover` among 1,000 operations, 500 connections",
        flood(500, _discover),
        options=_MANY._replace(disclosure="meta"),
    ),
)
