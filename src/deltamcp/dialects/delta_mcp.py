"""The dialect Delta-MCP 0.2, for clients that send `protocolVersion: "delta-mcp/0.2.0"` in `initialize`.

Clients of another major version, and all others, get the `initialize` and `tools/list` results of a plain MCP server.
As in the original server, every client of the handshake era may call `tools/describe`.
"""

from collections.abc import Collection, Mapping

from deltamcp.dialects import handshake, versions
from deltamcp.dialects.dialect import Agreement
from deltamcp.dialects.handshake import HandshakeMcp, kept_capabilities, kept_info
from deltamcp.dialects.progressive_disclosure import ENCODINGS
from deltamcp.errors import Fault
from deltamcp.values import (
    JSON,
    About,
    Ask,
    Caller,
    Failure,
    Kind,
    ListItems,
    Outcome,
    Request,
    RequestId,
    ResultShape,
    Surface,
    Terms,
)
from deltamcp.wire import jsonrpc

_MAX_SHOWN_CHARS = 1000
"""The most characters of a method or a name that an error repeats; the original repeats them whole."""


class DeltaMcp:
    """Handles what differs from MCP: the result of `initialize`, lists on one page, result shapes and error texts."""

    name = "delta-mcp"

    def __init__(self) -> None:
        self._mcp = HandshakeMcp()

    def recognizes(self, request: Request) -> bool:
        version = request.params.get("protocolVersion")
        return request.method == "initialize" and isinstance(version, str) and versions.is_delta_mcp(version)

    def agree(self, params: dict[str, JSON], encodings: Collection[str]) -> Agreement | Failure:
        offer = handshake.read_offer(params)
        if isinstance(offer, Failure):
            return offer
        _, capabilities, client = offer
        progressive = _is_flagged(capabilities, "tools", "progressiveDisclosure")
        return Agreement(
            versions.DELTA_MCP_BASELINE,
            kept_capabilities(capabilities),
            kept_info(client),
            Surface.PROGRESSIVE if progressive else Surface.FULL,
            ResultShape.DELTA_MCP,
            _best_encoding(capabilities, encodings),
        )

    def introduce(self, request: Request, about: About, agreement: Agreement, encodings: Collection[str]) -> bytes:
        offered = {flag: True for name, flag in ENCODINGS.items() if name in encodings}
        capabilities = self.capabilities(about)
        body = {
            "protocolVersion": versions.DELTA_MCP,
            "baselineVersion": versions.DELTA_MCP_BASELINE,
            "serverInfo": {key: about.info[key] for key in ("name", "version")},
            "capabilities": {"tools": capabilities.pop("tools"), "encoding": offered, **capabilities},
            "encoding": {"format": agreement.encoding},
        }
        return jsonrpc.encode_result(request.id, jsonrpc.encode(body))

    def capabilities(self, about: About) -> dict[str, JSON]:
        known = about.capabilities
        tools: dict[str, JSON] = {"tools": {"progressiveDisclosure": True, "lazyLoading": True}}
        return tools | {kind: known[kind] for kind in ("prompts", "resources") if kind in known}

    def read(self, request: Request, caller: Caller, agreement: Agreement | None = None) -> tuple[Terms, Ask] | Failure:
        return handshake.read_in_session(request, caller, agreement, _read_ask)

    def write(self, request: Request, outcome: Outcome, version: str) -> bytes:
        return self._mcp.write(request, _reword(request, outcome), version)

    def notify(self, method: str, params: Mapping[str, JSON], subscription: RequestId | None = None) -> bytes:
        return self._mcp.notify(method, params, subscription)

    def http_status(self, failure: Failure) -> int:
        return self._mcp.http_status(failure)


def _read_ask(request: Request) -> Ask | Failure:
    """Reads a request. `tools/list` returns the whole list, because Delta-MCP clients have no cursors."""
    return ListItems(Kind.TOOLS, whole=True) if request.method == "tools/list" else handshake.read_ask(request)


def _best_encoding(capabilities: dict[str, JSON], encodings: Collection[str]) -> str:
    """Returns the last of `ENCODINGS` that the client declares and the transport has; "json" if there is none."""
    usable = [
        name for name, flag in ENCODINGS.items() if name in encodings and _is_flagged(capabilities, "encoding", flag)
    ]
    return usable[-1] if usable else "json"


def _is_flagged(capabilities: dict[str, JSON], group: str, name: str) -> bool:
    """Whether a capability has a value that JavaScript takes for true, as the original server checks it."""
    found = capabilities.get(group)
    flag = found.get(name) if isinstance(found, dict) else None
    return bool(flag) or isinstance(flag, list | dict)


def _reword(request: Request, outcome: Outcome) -> Outcome:
    """Returns a failure with the error text that Delta-MCP has for it; any other outcome as it is."""
    if not isinstance(outcome, Failure):
        return outcome
    if outcome.fault is Fault.UNKNOWN_METHOD:
        return Failure(outcome.fault, f"Unknown method: {request.method[:_MAX_SHOWN_CHARS]}")
    if request.method in ("tools/call", "tools/describe") and "names" not in request.params:
        name = request.params.get("name", "undefined")
        if outcome.fault is Fault.NOT_FOUND or not isinstance(name, str) or "name" not in request.params:
            shown = name if isinstance(name, str) else jsonrpc.encode(name).decode()
            return Failure(Fault.NOT_FOUND, f"Unknown tool: {shown[:_MAX_SHOWN_CHARS]}")
    return outcome
