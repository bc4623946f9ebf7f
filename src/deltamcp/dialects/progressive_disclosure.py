"""The MCP extension for progressive disclosure: names and summaries first, definitions on request.

A modern client declares it among its `extensions`, a handshake client among its `experimental` capabilities; Delta-MCP
clients have it by their protocol.
"""

from collections.abc import Mapping
from types import MappingProxyType

from deltamcp.values import JSON

NAME = "io.github.delta-mcp/progressive-disclosure"
MAX_NAMES = 50
"""Tools one `tools/describe` may name; SEP-2636 asks for at least so many."""

ENCODINGS: Mapping[str, str] = MappingProxyType({"compact-json": "compactJson", "cbor": "cbor"})
"""Encodings besides JSON, the better ones last, and the capability that offers each. HTTP carries all of them."""
LINE_ENCODINGS = ("compact-json",)
"""Those that a transport carries on which a message is a line."""

SETTINGS: dict[str, JSON] = {
    "version": "0.2.0",
    "describe": {"maxNames": MAX_NAMES},
    "manifest": True,
    # Over HTTP, by `Content-Type` and `Accept`; the modern era has no moment at which a pipe could switch.
    "encodings": list(ENCODINGS),
}

METHODS = frozenset({"tools/describe", "tools/manifest"})
"""What the extension adds."""


def is_declared(extensions: JSON) -> bool:
    """Whether a client's extensions name this one, with settings or `{}`."""
    return isinstance(extensions, dict) and isinstance(extensions.get(NAME), dict)


def extend(capabilities: dict[str, JSON], key: str) -> dict[str, JSON]:
    """A server's capabilities with this extension under `key`, where the server has tools."""
    return {**capabilities, key: {NAME: SETTINGS}} if "tools" in capabilities else capabilities
