"""Attacks on MCP-lite over HTTP: batches, searches and unknown names on many connections, and streams."""

import contextlib
import json
import time
from collections.abc import Callable
from typing import Any

from bench import messages
from bench.hostile.attack import Answered, Attack, Prepared, attacker, held_open
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


# Event streams


def _stream_request(pieces: int) -> bytes:
    params = {"name": "read_in_pieces", "arguments": {"pieces": pieces}}
    return lite_request("rpc", rpc("tools/call", params), accept="text/event-stream")


def _leave_unread(connections: int) -> Callable[[AttackedServer, Prepared], Answered]:
    """Opens event streams of 100 MB, and reads nothing of them."""

    def run(server: AttackedServer, _: Prepared) -> Answered:
        caller, request, begun = attacker(server), _stream_request(100_000), 0
        with held_open() as opened:
            for _ in range(connections):
                with contextlib.suppress(OSError):
                    opened.append(caller.connect())
                    opened[-1].sendall(request)
            time.sleep(4)
            for one in opened:
                one.settimeout(0.01)
                with contextlib.suppress(OSError):
                    begun += one.recv(12).startswith(b"HTTP/1.1 200")
        return Answered(f"{begun} of {connections} streams have begun")

    return run


def _abort(server: AttackedServer, _: Prepared) -> Answered:
    """Opens event streams one after the other, and leaves each after its first bytes, or before."""
    caller, request, count = attacker(server), _stream_request(100_000), 0
    end = time.monotonic() + _SECONDS
    while time.monotonic() < end:
        with contextlib.suppress(OSError), contextlib.closing(caller.connect()) as stream:
            stream.sendall(request)
            if count % 2:
                stream.recv(1_000)
            count += 1
    return Answered(f"{count:,} streams")


LITE_ATTACKS: tuple[Attack, ...] = (
    Attack(
        "lite-batches",
        "MCP-lite: batches of 16 calls, unknown names, descriptions and searches, 200 connections",
        flood(200, *map(_batch, (_call, _unknown_name, _describe, _search)), seconds=10),
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
    Attack("lite-unread", "MCP-lite: 200 event streams of 100 MB that nobody reads", _leave_unread(200)),
    Attack("lite-aborted", "MCP-lite: event streams that are left at once", _abort),
    Attack(
        "lite-streams",
        "MCP-lite: event streams of ten pieces, 200 connections",
        flood(200, lambda _: _stream_request(10)),
    ),
)
