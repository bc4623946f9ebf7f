"""Delta-MCP 0.2 on top of the handshake era, for clients that say `protocolVersion: "delta-mcp/0.2.0"`.

To another major version, and to everyone else, `initialize` and `tools/list` are a plain MCP server's. As in the
original, `tools/describe` answers any client of the era.
"""

from collections.abc import Collection, Mapping

from deltamcp.dialects import handshake, versions
from deltamcp.dialects.dialect import Agreement
from deltamcp.dialects.handshake import HandshakeMcp
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


class DeltaMcp:
    """Delta-MCP's introduction, whole lists, result shapes and error texts; the rest is MCP's."""

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
            capabilities,
            client,
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
        made: dict[str, JSON] = {"tools": {"progressiveDisclosure": True, "lazyLoading": True}}
        return made | {kind: known[kind] for kind in ("prompts", "resources") if kind in known}

    def read(self, request: Request, caller: Caller, agreement: Agreement | None = None) -> tuple[Terms, Ask] | Failure:
        return handshake.read_in_session(request, caller, agreement, _read_ask)

    def write(self, request: Request, outcome: Outcome, version: str) -> bytes:
        return self._mcp.write(request, _reword(request, outcome), version)

    def notify(self, method: str, params: Mapping[str, JSON], subscription: RequestId | None = None) -> bytes:
        return self._mcp.notify(method, params, subscription)

    def http_status(self, failure: Failure) -> int:
        return self._mcp.http_status(failure)


def _read_ask(request: Request) -> Ask | Failure:
    """This dialect's clients know no cursors."""
    return ListItems(Kind.TOOLS, whole=True) if request.method == "tools/list" else handshake.read_ask(request)


def _best_encoding(capabilities: dict[str, JSON], ours: Collection[str]) -> str:
    both = [name for name, flag in ENCODINGS.items() if name in ours and _is_flagged(capabilities, "encoding", flag)]
    return both[-1] if both else "json"


def _is_flagged(capabilities: dict[str, JSON], group: str, name: str) -> bool:
    """Whether a capability is set to whatever JavaScript takes for true."""
    found = capabilities.get(group)
    flag = found.get(name) if isinstance(found, dict) else None
    return bool(flag) or isinstance(flag, list | dict)


def _reword(request: Request, outcome: Outcome) -> Outcome:
    """A failure in the words Delta-MCP has for it."""
    if not isinstance(outcome, Failure):
        return outcome
    if outcome.fault is Fault.UNKNOWN_METHOD:
        return Failure(outcome.fault, f"Unknown method: {request.method}")
    if request.method in ("tools/call", "tools/describe") and "names" not in request.params:
        name = request.params.get("name", "undefined")
        if outcome.fault is Fault.NOT_FOUND or not isinstance(name, str) or "name" not in request.params:
            shown = name if isinstance(name, str) else jsonrpc.encode(name).decode()
            return Failure(Fault.NOT_FOUND, f"Unknown tool: {shown}")
    return outcome
