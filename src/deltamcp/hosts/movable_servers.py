"""Tells which servers of a host's file can run behind the gateway, and what of their entries only the host obeys."""

import re
from collections.abc import Collection, Mapping
from typing import NamedTuple

from deltamcp.errors import ConfigurationError
from deltamcp.hosts.entries import normalize_entry
from deltamcp.hosts.files import DISABLED
from deltamcp.hosts.host_entry import starts_gateway
from deltamcp.hosts.variables import find_references
from deltamcp.runtime.secrets import load_secret
from deltamcp.values import JSON

_KINDS = frozenset(
    {
        "stdio",
        "local",
        "custom",
        "http",
        "sse",
        "streamable-http",
        "streamableHttp",
        "streamable_http",
        "remote",
        "mcp-lite",
    }
)
"""The values of `type`, `transport` and `source` of servers that the gateway can start or reach."""
_HOST_KEYS: Mapping[str, str] = {
    "auth": "its host logs in to it",
    "oauth": "its host logs in to it",
    "authProviderType": "its host logs in to it",
    "headersHelper": "its host runs a program for its headers",
    "sandbox": "its host runs it in a sandbox",
    "sandboxEnabled": "its host runs it in a sandbox",
}
"""Keys that only the host acts on, and without which the server is another one."""
_HOST_VARIABLES = re.compile(
    r"(workspaceFolder|workspaceRoot|file|selectedText|lineNumber|relativeFile|cwd|config:|command:)"
)
_ALLOW_KEYS = ("includeTools", "enabled_tools", "enabledTools", "tools")
_DENY_KEYS = ("excludeTools", "disabled_tools", "disabledTools")
_APPROVAL_KEYS = ("alwaysAllow", "autoApprove", "trust")


class Restrictions(NamedTuple):
    """Globs of the tools that the gateway may offer of a server, and of those that it must not."""

    allow: tuple[str, ...] = ()
    """Empty for all."""
    deny: tuple[str, ...] = ()


def reason_to_stay(raw: JSON) -> str | None:
    """Says why an entry cannot move to the gateway, as the end of a sentence; None if it can."""
    try:
        normalized = normalize_entry(raw)
    except ConfigurationError as error:
        return str(error)
    assert isinstance(raw, dict), "only objects are entries"
    if starts_gateway(normalized):
        return "it is a gateway itself"
    if raw.get("disabled") is True or raw.get("enabled") is False:
        return DISABLED
    for key in ("type", "transport", "source"):
        if raw.get(key) is not None and raw[key] not in _KINDS:
            return f"only its host knows its {key} {str(raw[key])[:40]!r}"
    for key, reason in _HOST_KEYS.items():
        if raw.get(key):
            return reason
    for reference in find_references(normalized):
        name = reference.name.removeprefix("input:")
        if name != reference.name and load_secret(name) is None:
            return (
                f"it needs the input {name}, which its host asks for (`delta-mcp secret set {name}` stores it for us)"
            )
        if _HOST_VARIABLES.match(reference.name):
            return f"it refers to {reference.text}, which only its host knows"
    return None


def read_restrictions(raw: Mapping[str, JSON]) -> Restrictions:
    """Returns which tools of a server its entry has the host offer."""
    allow = tuple(tool for key in _ALLOW_KEYS for tool in _texts(raw.get(key)))
    deny = tuple(tool for key in _DENY_KEYS for tool in _texts(raw.get(key)))
    return Restrictions(() if "*" in allow else allow, deny)


def approval_keys(raw: Mapping[str, JSON]) -> list[str]:
    """Returns the keys of an entry by which calls run unasked, which the host cannot apply behind the gateway."""
    return [key for key in _APPROVAL_KEYS if raw.get(key)]


def may_need_login(raw: Mapping[str, JSON]) -> bool:
    """Whether an entry has an address and no key for it, so that the host may have logged in."""
    normalized = normalize_entry(raw)
    headers: Collection[str] = normalized.get("headers", ())
    return "url" in normalized and not any(name.lower() == "authorization" for name in headers)


def _texts(value: JSON) -> list[str]:
    return [text for text in value if isinstance(text, str)] if isinstance(value, list) else []
