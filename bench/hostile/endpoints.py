"""The endpoints of a server and their fields, from MCP's published schemas and from what the server itself lists.

Those of MCP-lite, over HTTP and gRPC, have no published schema: their fields are those that its documents name.
"""

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from bench import messages
from deltamcp import ResultPolicy
from deltamcp.values import Era

SCHEMAS = Path(os.environ.get("DELTA_MCP_SHARED", "../shared")) / "specs" / "mcp-schema"
_FILES = {Era.MODERN: "2026-07-28.json", Era.HANDSHAKE: "2025-11-25.json"}
_RESULT_KEY = "io.github.delta-mcp/result"
_DEPTH = 4
"""How deep fields are looked for; schemas of capabilities go on for ever."""
FieldPath = tuple[str, ...]

_ENVELOPE: tuple[FieldPath, ...] = (("id",), ("method",), ("jsonrpc",), ("other",), ("params",), ("params", "other"))

_SAMPLES: Mapping[str, dict[str, Any]] = {
    "tools/call": {"name": "echo", "arguments": {"text": "x"}},
    "prompts/get": {"name": "greet", "arguments": {"name": "x"}},
    "resources/read": {"uri": "y://a-b-c-d!"},
    "completion/complete": {"ref": {"type": "ref/prompt", "name": "greet"}, "argument": {"name": "name", "value": "x"}},
}
"""Parameters of requests that the attacked servers serve."""
MCP_PATH = "/mcp"
LITE_PREFIX = "/mcp-lite/v1/"
GRPC_CALL = "/mcplite.MCPLite/CallTool"
_LITE_META = (
    "answers", "request_state", "action", "resources", "accept_response_types", "idempotency_key", "session_context",
    "stream", "other",
)  # fmt: skip
"""What MCP-lite reads of `_meta`."""
_LITE_LIST = ("type", "query", "detail", "shape", "cursor", "other")
_WITH_META = ("tools/call", "tools/list", "initialize")
"""The methods whose `_meta` is looked into; the others read it in the same way."""


class Endpoint(NamedTuple):
    """A request that a server answers, with sample parameters, and the paths of the fields in it."""

    era: Era
    method: str
    params: dict[str, Any]
    fields: tuple[FieldPath, ...]
    label: str
    path: str = MCP_PATH
    """Where it is sent: MCP's path, one of MCP-lite, or a method of gRPC."""

    @property
    def is_lite(self) -> bool:
        return self.path.startswith(LITE_PREFIX)

    @property
    def is_grpc(self) -> bool:
        return self.path == GRPC_CALL

    def message(self) -> dict[str, Any]:
        """The sample message, as JSON."""
        if self.is_grpc or (self.is_lite and not self.method):
            return self.params
        if self.is_lite:
            return {"jsonrpc": "2.0", "id": 1, "method": self.method, "params": self.params}
        found: dict[str, Any] = json.loads(messages.request(self.era, self.method, self.params))
        return found


def read_schema(era: Era) -> dict[str, Any] | None:
    """MCP's schema of an era; None if it is not there."""
    file = SCHEMAS / _FILES[era]
    if not file.exists():
        return None
    schema: dict[str, Any] = json.loads(file.read_text())
    return schema


def endpoints(schema: Mapping[str, Any], era: Era) -> Iterator[Endpoint]:
    """The requests that clients send, by MCP's schema of an era."""
    definitions = schema["$defs"]
    sent = {branch["$ref"].rpartition("/")[2] for branch in definitions["ClientRequest"]["anyOf"]}
    for name in sorted(sent):
        properties = definitions[name]["properties"]
        method = properties["method"]["const"]
        params = properties.get("params", {"type": "object"})
        sample = _sample(params, definitions, _DEPTH) | _SAMPLES.get(method, {})
        sample.pop("_meta", None)
        fields = [("params", *path) for path in _paths(params, definitions, _DEPTH)]
        if method not in _WITH_META:
            fields = [path for path in fields if path[1] != "_meta"]
        yield Endpoint(era, method, sample, (*_ENVELOPE, *fields), method)


def calls(tools: list[dict[str, Any]], samples: Mapping[str, dict[str, Any]]) -> Iterator[Endpoint]:
    """Calls of the tools that a server lists, with sample arguments by the name of the tool."""
    for tool in tools:
        schema = tool["inputSchema"]
        arguments = samples.get(tool["name"], _sample(schema, schema.get("$defs", {}), _DEPTH))
        paths = _paths(schema, schema.get("$defs", {}), _DEPTH)
        fields = [("params", "arguments", *path) for path in paths]
        params = {"name": tool["name"], "arguments": arguments}
        yield Endpoint(Era.MODERN, "tools/call", params, (*fields, ("params", "arguments", "other")), tool["name"])


def lite_endpoints(calls: Iterable[Endpoint]) -> Iterator[Endpoint]:
    """MCP-lite's requests at its paths: calls of tools, and lists, also without JSON-RPC around their parameters."""
    for one in calls:
        meta = [("params", "_meta", name) for name in _LITE_META]
        fields = (*_ENVELOPE, ("params", "name"), *one.fields, *meta)
        yield one._replace(fields=fields, label=f"MCP-lite {one.label}", path=f"{LITE_PREFIX}calltools")
    requests: tuple[tuple[str, dict[str, Any], tuple[str, ...]], ...] = (
        ("tools/list", {}, _LITE_LIST),
        ("tools/describe", {"names": ["echo"]}, ("names", "name", "other")),
        ("tools/manifest", {}, ("root", "other")),
        ("ping", {}, ("other",)),
    )
    for method, params, names in requests:
        fields = (*_ENVELOPE, *(("params", name) for name in names))
        yield Endpoint(Era.MODERN, method, params, fields, f"MCP-lite {method}", f"{LITE_PREFIX}rpc")
    for path in ("listtools", "tools"):
        fields = tuple((name,) for name in _LITE_LIST)
        yield Endpoint(Era.MODERN, "", {}, fields, f"MCP-lite /{path}", f"{LITE_PREFIX}{path}")


def grpc_calls(calls: Iterable[Endpoint]) -> Iterator[Endpoint]:
    """The same calls as messages of gRPC, whose arguments are a `Struct`."""
    for one in calls:
        given = [path[1:] for path in one.fields]
        fields = (("name",), *given, *(("meta", name) for name in _LITE_META))
        yield one._replace(fields=fields, label=f"gRPC {one.label}", path=GRPC_CALL)


def policies(tool: str) -> Endpoint:
    """A call that states its own policy for the result, as this library reads it."""
    names = [field.encode_name for field in msgspec.structs.fields(ResultPolicy)]
    fields = tuple(("params", "_meta", _RESULT_KEY, name) for name in (*names, "pack_root"))
    return Endpoint(Era.MODERN, "tools/call", {"name": tool, "arguments": {}}, fields, f"{tool} with a policy")


def _resolve(given: Any, definitions: Mapping[str, Any]) -> dict[str, Any]:
    schema: dict[str, Any] = given if isinstance(given, dict) else {}
    for _ in range(20):
        if "$ref" in schema:
            schema = definitions.get(schema["$ref"].rpartition("/")[2], {})
        elif schema.get("anyOf") or schema.get("oneOf"):
            schema = (schema.get("anyOf") or schema["oneOf"])[0]
        else:
            break
    return schema


def _paths(schema: Any, definitions: Mapping[str, Any], depth: int) -> Iterator[FieldPath]:
    resolved = _resolve(schema, definitions)
    for name, inner in resolved.get("properties", {}).items():
        yield (name,)
        if depth > 1:
            yield from ((name, *path) for path in _paths(inner, definitions, depth - 1))


def _sample(schema: Any, definitions: Mapping[str, Any], depth: int) -> Any:
    """A small value that the schema admits, with required members only."""
    resolved = _resolve(schema, definitions)
    if "const" in resolved:
        return resolved["const"]
    if resolved.get("enum"):
        return resolved["enum"][0]
    kind = resolved.get("type", "object")
    if isinstance(kind, list):
        kind = kind[0]
    if kind == "object":
        properties = resolved.get("properties", {})
        required = resolved.get("required", ()) if depth else ()
        return {name: _sample(properties.get(name, {}), definitions, depth - 1) for name in required}
    samples: dict[str, Any] = {"string": "x", "integer": 1, "number": 1, "boolean": True, "array": []}
    return samples.get(kind)
