"""Delta-MCP 0.2: progressive disclosure, agreed by `initialize` or, per request, as an extension of MCP.

A handshake client says `protocolVersion: "delta-mcp/0.2.0"`; to another major version, and to everyone
else, `initialize` and `tools/list` are a plain MCP server's. As in the original `tools/describe` answers any
client of that era. A modern client declares `EXTENSION` among its capabilities.
"""

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Any

from deltamcp.errors import Fault
from deltamcp.values import JSON, About, Ask, Failure, Kind, ListItems, Outcome, Request, Surface
from deltamcp.wire import jsonrpc

VERSION = "delta-mcp/0.2.0"
BASELINE = "2025-11-25"
"""The MCP revision underneath."""

EXTENSION = "io.github.delta-mcp/progressive-disclosure"
MOST_NAMES = 50
"""Tools one `tools/describe` may name; SEP-2636 asks for at least so many."""

ENCODINGS: Mapping[str, str] = MappingProxyType({"compact-json": "compactJson", "cbor": "cbor"})
"""Besides JSON, the better ones last, and the capability each is offered by. All of them go over HTTP."""
LINE_ENCODINGS = ("compact-json",)
"""Those that go where a message is a line."""

SETTINGS: dict[str, JSON] = {
    "version": "0.2.0",
    "describe": {"maxNames": MOST_NAMES},
    "manifest": True,
    # Over HTTP, by `Content-Type` and `Accept`; this era has no moment at which a pipe could switch.
    "encodings": list(ENCODINGS),
}

METHODS = frozenset({"tools/describe", "tools/manifest"})
"""What the extension adds."""

_PREFIX, _MAJOR = "delta-mcp/", "0"


def is_spoken(requested: str) -> bool:
    """Whether a version in `initialize` is this dialect's, of our major."""
    return requested.startswith(_PREFIX) and requested.removeprefix(_PREFIX).partition(".")[0] == _MAJOR


def surface(capabilities: dict[str, JSON]) -> Surface:
    """What a client of this dialect is shown; without the flag, full schemas."""
    return Surface.PROGRESSIVE if _offers(capabilities, "tools", "progressiveDisclosure") else Surface.FULL


def encoding(capabilities: dict[str, JSON], ours: Collection[str]) -> str:
    """The best that both have."""
    both = [name for name, flag in ENCODINGS.items() if name in ours and _offers(capabilities, "encoding", flag)]
    return both[-1] if both else "json"


def _offers(capabilities: dict[str, JSON], group: str, name: str) -> bool:
    """Whatever JavaScript takes for true."""
    found = capabilities.get(group)
    flag = found.get(name) if isinstance(found, dict) else None
    return bool(flag) or isinstance(flag, list | dict)


def declares(extensions: JSON) -> bool:
    """Whether a client's extensions (`experimental` before 2026-07-28) name ours, with settings or `{}`."""
    return isinstance(extensions, dict) and isinstance(extensions.get(EXTENSION), dict)


def read(request: Request) -> Ask | None:
    """What this dialect reads in its own way; None where it reads as MCP does."""
    return ListItems(Kind.TOOLS, whole=True) if request.method == "tools/list" else None


def introduction(about: About, encodings: Collection[str], agreed: str) -> dict[str, Any]:
    """The answer to this dialect's `initialize`: the encodings its transport has, and the one to use from now on."""
    further = {kind: about.capabilities[kind] for kind in ("prompts", "resources") if kind in about.capabilities}
    return {
        "protocolVersion": VERSION,
        "baselineVersion": BASELINE,
        "serverInfo": {key: about.info[key] for key in ("name", "version")},
        "capabilities": {
            "tools": {"progressiveDisclosure": True, "lazyLoading": True},
            "encoding": {flag: True for name, flag in ENCODINGS.items() if name in encodings},
            **further,
        },
        "encoding": {"format": agreed},
    }


def retold(request: Request, outcome: Outcome) -> Outcome:
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
