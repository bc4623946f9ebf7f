"""Tells which servers of a host's file can run behind the gateway, and which rules permit or forbid their tools.

Behind the gateway the host sees the tools of the gateway alone, so such a rule no longer matches. What a rule denied,
the gateway denies; of the others the user is told.
"""

import fnmatch
import os
import re
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

from deltamcp.errors import ConfigurationError
from deltamcp.hosts.files import DISABLED, find_references, normalize_entry, read_document
from deltamcp.hosts.host_entry import starts_gateway
from deltamcp.hosts.hosts import Machine
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


def missing_program(entry: Mapping[str, Any]) -> str | None:
    """Says which program an entry needs that is not here, as the end of a sentence; None if it is here."""
    command = entry.get("command")
    if not isinstance(command, str) or command == "delta-mcp":  # which is always found
        return None
    place = Path(str(entry.get("cwd") or "."), command)
    if shutil.which(command, path=entry.get("env", {}).get("PATH")) or (place.is_file() and os.sep in command):
        return None
    return f"there is no program {command} here"


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


Effect = Literal["deny", "ask", "allow", "hook", "list"]
"""What a rule does. A hook runs a program before or after a call; a list names servers or tools that the host uses."""
_REPLACED = "[_./]"
"""A glob for the characters that are _ in the names of tools that Claude Code's rules have."""
_EFFECTS: tuple[Effect, ...] = ("deny", "ask", "allow")


class PermissionRule(NamedTuple):
    """A rule of a host about a tool of a server."""

    effect: Effect
    text: str
    """The rule as it is written."""
    path: Path
    server: str
    tools: tuple[str, ...]
    """Globs of the tools; `*` for all."""


class _WrittenRule(NamedTuple):
    effect: Effect
    text: str
    path: Path


def find_rules(
    host: str, machine: Machine, document: JSON, path: Path, servers: Collection[str]
) -> list[PermissionRule]:
    """Returns the rules of a host that concern some servers.

    Args:
        document: the value of the host's file.
    """
    reader = _READERS.get(host)
    found = reader(machine, document, path, servers) if reader else ()
    return list(dict.fromkeys(found))


def denied_tools(rules: Iterable[PermissionRule], server: str) -> tuple[str, ...]:
    """Returns the globs of a server's tools that rules deny."""
    return tuple(
        dict.fromkeys(tool for rule in rules if rule.effect == "deny" and rule.server == server for tool in rule.tools)
    )


# Claude Code: https://code.claude.com/docs/en/permissions, hooks, settings


def _claude_code_rules(
    machine: Machine, document: JSON, path: Path, servers: Collection[str]
) -> Iterator[PermissionRule]:
    projects = _member(document, "projects")
    folders = {machine.cwd, *(Path(folder) for folder in projects)}
    config = machine.environment.get("CLAUDE_CONFIG_DIR")
    user = Path(config) if config else machine.home / ".claude"
    managed = {
        "darwin": Path("/Library/Application Support/ClaudeCode"),
        "win32": Path("C:/Program Files/ClaudeCode"),
    }.get(machine.system, Path("/etc/claude-code"))
    files = [managed / "managed-settings.json", user / "settings.json", user / "settings.local.json"]
    for folder in sorted(folders):
        files += [folder / ".claude" / name for name in ("settings.json", "settings.local.json")]
    written = [rule for file in files for rule in _claude_settings_rules(file)]
    for project in projects:
        settings = _member(projects, project)
        written += [_WrittenRule("allow", text, path) for text in _texts(settings.get("allowedTools"))]
        for text in _texts(settings.get("disabledMcpServers")):
            if text in servers:
                yield PermissionRule("list", f"disabledMcpServers of {project}", path, text, ("*",))
    if path.name == ".mcp.json":
        yield from _claude_project_switches(machine, files, path, servers)
    for rule in written:
        for server in servers:
            tools = _match_hook(rule.text, server) if rule.effect == "hook" else match_claude_rule(rule.text, server)
            if tools:
                yield PermissionRule(rule.effect, rule.text, rule.path, server, tools)


def _claude_project_switches(
    machine: Machine, files: Iterable[Path], path: Path, servers: Collection[str]
) -> Iterator[PermissionRule]:
    """Yields a rule for each server of a project's file that its user has switched off."""
    user_file = Path(machine.environment.get("CLAUDE_CONFIG_DIR") or machine.home) / ".claude.json"
    project = _member(_member(_read(user_file), "projects"), str(machine.cwd))
    for file, settings in [(user_file, project), *((file, _read(file)) for file in files)]:
        for server in _texts(settings.get("disabledMcpjsonServers")):
            if server in servers:
                yield PermissionRule("deny", "disabledMcpjsonServers", file, server, ("*",))


def _claude_settings_rules(path: Path) -> Iterator[_WrittenRule]:
    settings = _read(path)
    permissions = _member(settings, "permissions")
    for effect in _EFFECTS:
        for text in _texts(permissions.get(effect)):
            yield _WrittenRule(effect, text, path)
    for groups in _member(settings, "hooks").values():
        for group in groups if isinstance(groups, list) else ():
            matcher = group.get("matcher") if isinstance(group, dict) else None
            if isinstance(matcher, str):
                yield _WrittenRule("hook", matcher, path)


def match_claude_rule(rule: str, server: str) -> tuple[str, ...]:
    """Returns the globs of a server's tools that a rule such as `mcp__server__tool` or `mcp__*__delete_*` matches."""
    prefix = f"mcp__{_claude_name(server)}"
    if rule == prefix:
        return ("*",)
    ends = [
        end
        for end in range(1, len(rule) + 1)
        if rule.startswith("mcp__") and fnmatch.fnmatchcase(f"{prefix}__", rule[:end])
    ]
    globs = [f"*{rule[end:]}" if rule[end - 1] == "*" else rule[end:] for end in ends]
    return tuple(dict.fromkeys(glob.replace("_", _REPLACED) for glob in globs if glob))


def _match_hook(matcher: str, server: str) -> tuple[str, ...]:
    """A matcher is an expression for the names of tools; one that names no server matches the gateway's tools, too."""
    return ("*",) if f"mcp__{_claude_name(server)}" in matcher else ()


def _claude_name(server: str) -> str:
    return re.sub(r"[^A-Za-z0-9_-]", "_", server)


# Cursor: https://cursor.com/docs/reference/permissions and https://cursor.com/docs/cli/reference/permissions


def _cursor_rules(machine: Machine, document: JSON, path: Path, servers: Collection[str]) -> Iterator[PermissionRule]:
    config = machine.environment.get("XDG_CONFIG_HOME")
    folders = [machine.home / ".cursor", *([Path(config) / "cursor"] if config else [])]
    files = [*(folder / "cli-config.json" for folder in folders), machine.cwd / ".cursor" / "cli.json"]
    for file in files:
        permissions = _member(_read(file), "permissions")
        for effect in _EFFECTS:
            for text in _texts(permissions.get(effect)):
                rule = re.fullmatch(r"Mcp\(([^:,]*)\s*[:,]\s*(.*)\)", text)
                if rule:
                    yield from _cursor_matches(effect, text, file, rule[1], rule[2], servers)
    for folder in dict.fromkeys((machine.home, machine.cwd)):
        file = folder / ".cursor" / "permissions.json"
        for text in _texts(_read(file).get("mcpAllowlist")):
            server, _, tool = text.partition(":")
            yield from _cursor_matches("allow", text, file, server, tool or "*", servers)


def _cursor_matches(
    effect: Effect, text: str, path: Path, server_glob: str, tool: str, servers: Collection[str]
) -> Iterator[PermissionRule]:
    for server in servers:
        if fnmatch.fnmatchcase(server, server_glob):
            yield PermissionRule(effect, text, path, server, (tool or "*",))


# Gemini CLI and Qwen Code: docs/get-started/configuration.md of google-gemini/gemini-cli


def _gemini_rules(machine: Machine, document: JSON, path: Path, servers: Collection[str]) -> Iterator[PermissionRule]:
    lists: tuple[tuple[str, Effect], ...] = (("allowed", "list"), ("excluded", "deny"))
    for name, effect in lists:
        for server in _texts(_member(document, "mcp").get(name)):
            if server in servers:
                yield PermissionRule(effect, f"mcp.{name}", path, server, ("*",))


# Zed: https://zed.dev/docs/ai/agent-settings, profiles


def _zed_rules(machine: Machine, document: JSON, path: Path, servers: Collection[str]) -> Iterator[PermissionRule]:
    profiles = _member(_member(document, "agent"), "profiles")
    for name, profile in profiles.items():
        for server, settings in _member(profile, "context_servers").items():
            tools = _member(settings, "tools")
            if server in servers and tools:
                yield PermissionRule("list", f"agent.profiles.{name}.context_servers", path, server, tuple(tools))


# Amazon Q: docs/agent-format.md of aws/amazon-q-developer-cli


def _amazon_q_rules(machine: Machine, document: JSON, path: Path, servers: Collection[str]) -> Iterator[PermissionRule]:
    agent = document if isinstance(document, dict) else {}
    lists: tuple[tuple[str, Effect], ...] = (("tools", "list"), ("allowedTools", "allow"))
    for name, effect in lists:
        for text in _texts(agent.get(name)):
            server, _, tool = text.removeprefix("@").partition("/")
            if text.startswith("@") and server in servers:
                yield PermissionRule(effect, f"{text} in {name}", path, server, (tool or "*",))


_READERS: Mapping[str, Callable[[Machine, JSON, Path, Collection[str]], Iterator[PermissionRule]]] = {
    "Claude Code": _claude_code_rules,
    "Cursor": _cursor_rules,
    "Gemini CLI": _gemini_rules,
    "Qwen Code": _gemini_rules,
    "Zed": _zed_rules,
    "Amazon Q": _amazon_q_rules,
}


def _read(path: Path) -> dict[str, JSON]:
    try:
        document = read_document(path) if path.is_file() else {}
    except (ConfigurationError, OSError):  # the host cannot read it, either
        return {}
    return document if isinstance(document, dict) else {}


def _member(node: JSON, name: str) -> dict[str, JSON]:
    """Returns an object in an object; an empty one if there is none."""
    value = node.get(name) if isinstance(node, dict) else None
    return value if isinstance(value, dict) else {}
