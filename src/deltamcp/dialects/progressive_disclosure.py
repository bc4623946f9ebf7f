"""The MCP extension for progressive disclosure: clients list names and summaries, and request definitions by name.

A modern client declares it in its `extensions`, a handshake client in its `experimental` capabilities; it is part of
the protocol of Delta-MCP clients.
"""

from collections.abc import Mapping
from types import MappingProxyType

from deltamcp.values import JSON

NAME = "io.github.delta-mcp/progressive-disclosure"
MAX_NAMES = 50
"""The number of tools that one `tools/describe` may name; SEP-2636 requires at least 50."""

ENCODINGS: Mapping[str, str] = MappingProxyType({"compact-json": "compactJson", "cbor": "cbor"})
"""The encodings besides JSON, the most compact last, and the capability that declares each. HTTP supports all."""
LINE_ENCODINGS = ("compact-json",)
"""The encodings of transports on which a message is one line."""

SETTINGS: dict[str, JSON] = {
    "version": "0.2.0",
    "describe": {"maxNames": MAX_NAMES},
    "manifest": True,
    # `{"$result": handle}` in the arguments of a call stands for a result that the server stores.
    "references": True,
    # Over HTTP only, by `Content-Type` and `Accept`: without a handshake a stdio connection cannot switch.
    "encodings": list(ENCODINGS),
}

METHODS = frozenset({"tools/describe", "tools/manifest"})
"""The methods that the extension adds."""


def is_declared(extensions: JSON) -> bool:
    """Whether a client declares this extension, with settings or with `{}`."""
    return isinstance(extensions, dict) and isinstance(extensions.get(NAME), dict)


def extend(capabilities: dict[str, JSON], key: str) -> dict[str, JSON]:
    """Returns a server's capabilities with this extension under `key`, if the server has tools."""
    return {**capabilities, key: {NAME: SETTINGS}} if "tools" in capabilities else capabilities
