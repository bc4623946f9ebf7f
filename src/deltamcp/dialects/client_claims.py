"""What a handshake client claims about itself in `initialize`, as far as its session keeps it.

A session lives for half an hour and more, so that it keeps what this library reads, and not what a client may send.
"""

from collections.abc import Mapping
from types import MappingProxyType

from deltamcp.values import JSON

_MAX_CHARS = 256
_INFO_TEXTS = ("name", "title", "version", "description", "websiteUrl")
"""The fields of `clientInfo` that are texts; a client's icons are not kept."""

_CAPABILITY_SETTINGS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"elicitation": ("form", "url"), "sampling": ("context", "tools"), "roots": ("listChanged",)}
)
"""The capabilities by which a client can be asked something, and their settings."""


def kept_info(info: dict[str, JSON]) -> dict[str, JSON]:
    """Returns the texts of a `clientInfo`, each up to 256 characters."""
    return {name: info[name][:_MAX_CHARS] for name in _INFO_TEXTS if type(info.get(name)) is str}


def kept_capabilities(declared: dict[str, JSON]) -> dict[str, JSON]:
    """Returns the capabilities by which a client can be asked something, with the settings that MCP has for them."""
    return {
        name: _kept_settings(declared[name], settings)
        for name, settings in _CAPABILITY_SETTINGS.items()
        if declared.get(name) is not None
    }


def _kept_settings(declared: JSON, known: tuple[str, ...]) -> dict[str, JSON]:
    if type(declared) is not dict:
        return {}
    return {name: declared[name] if type(declared[name]) is bool else {} for name in known if name in declared}
