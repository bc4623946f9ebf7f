"""Finds and reads the servers that hosts' configuration files list, in one shape, with their variables."""

import json
import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from deltamcp.errors import ConfigurationError
from deltamcp.hosts.hosts import (
    HOST_FILES,
    MCP_SERVERS_KEY,
    SERVER_KEYS,
    HostFile,
    Machine,
    identify_host_file,
    is_project_file,
    relative_path,
)
from deltamcp.hosts.jsonc_edit import strip_comments
from deltamcp.runtime.files import missing_file_error
from deltamcp.runtime.secrets import load_secret
from deltamcp.values import JSON


def normalize_entry(raw: Any) -> dict[str, Any]:
    """Returns `command`, `args`, `env` and `cwd`, or `url`, `headers` and `type`, of an entry in any host's format.

    Raises:
        ConfigurationError: this is not an entry; the text is the end of a sentence.
    """
    if not isinstance(raw, dict):
        raise ConfigurationError("it is not an object")
    command: Any = raw.get("command")
    args = raw.get("args")
    if isinstance(command, dict):  # Zed's older form
        raw = {**raw, **command}
        command, args = command.get("path"), command.get("args")
    elif isinstance(command, list):  # OpenCode's
        command, args = (command[0] if command else None), [*command[1:], *(args or ())]
    if command:
        if "envFile" in raw:
            raise ConfigurationError("it reads variables from an envFile, which only its host does")
        variables = _check_list(raw.get("env_vars"), "env_vars")
        inherited = {name: f"${{{name}}}" for name in variables if isinstance(name, str)}
        entry: dict[str, Any] = {
            "command": to_text(command, "command"),
            "args": [to_text(word, "args") for word in _check_list(args, "args")],
            "env": inherited | _text_map(raw, "environment") | _text_map(raw, "env"),
        }
        return entry | ({"cwd": to_text(raw["cwd"], "cwd")} if raw.get("cwd") else {})
    url = next((raw[key] for key in ("url", "httpUrl", "serverUrl") if raw.get(key)), None)
    if url is None:
        raise ConfigurationError("it has neither a command nor a url")
    headers = _text_map(raw, "headers") | _text_map(raw, "http_headers")
    headers |= {name: f"${{{variable}}}" for name, variable in _text_map(raw, "env_http_headers").items()}
    if raw.get("bearer_token_env_var"):
        headers["Authorization"] = f"Bearer ${{{to_text(raw['bearer_token_env_var'], 'bearer_token_env_var')}}}"
    entry = {"url": to_text(url, "url"), "headers": headers}
    # The client detects the transports that need not be named.
    kind = raw.get("type", raw.get("transport"))
    return {**entry, "type": kind} if kind in ("sse", "mcp-lite") else entry


def _check_list(value: JSON, key: str) -> list[JSON]:
    if value is not None and not isinstance(value, list):
        raise ConfigurationError(f"its {key} are not a list")
    return value or []


def _text_map(raw: dict[str, JSON], key: str) -> dict[str, str]:
    value = raw.get(key) or {}
    if not isinstance(value, dict):
        raise ConfigurationError(f"its {key} is not an object")
    return {to_text(name, key): to_text(text, key) for name, text in value.items() if text is not None}


def to_text(value: JSON, key: str) -> str:
    """Converts a scalar to text, without lone surrogates, which JSON can hold but which cannot be printed."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, str | int | float):
        raise ConfigurationError(f"its {key} has something that is not a text")
    return str(value).encode(errors="replace").decode()


_KEYRING, _INPUT = "keyring:", "input:"
"""What stands before the name of a secret in the user's keyring, and of what VS Code asks its user for."""
# `${NAME}` in all hosts, `{env:NAME}` in OpenCode, `$NAME` as a whole value in Gemini CLI.
_VARIABLE = re.compile(r"\$\{([^{}]*)\}|\{env:([^{}]*)\}|^\$([A-Za-z_]\w*)$")


class Reference(NamedTuple):
    """A variable in a text of an entry."""

    name: str
    text: str
    """The reference as the host writes it."""


def find_references(value: Any) -> list[Reference]:
    """Returns the variables that all texts of a value refer to."""
    if isinstance(value, dict):
        return [reference for item in value.values() for reference in find_references(item)]
    if isinstance(value, list):
        return [reference for item in value for reference in find_references(item)]
    return [Reference(_read_name(match)[0], match[0]) for match in _VARIABLE.finditer(value)]


def is_reference(text: str) -> bool:
    """Whether a text is a variable without a default, and no more than a word in front of it, as `Bearer ${TOKEN}`."""
    references = find_references(text)
    if not references or ":-" in references[0].text:
        return False
    return re.fullmatch(r"[A-Za-z]*\s*", text.replace(references[0].text, "", 1)) is not None


def _read_name(match: re.Match[str]) -> tuple[str, str | None]:
    """Returns the name of a variable, and its default if the reference has one."""
    name, is_default, default = (match[1] or match[2] or match[3] or "").partition(":-")
    return name.removeprefix("env:"), default if is_default else None


class VariableExpander:
    """Expands variables, and collects the names of those that have no value."""

    def __init__(self, machine: Machine, workspace: Path) -> None:
        self.machine = machine
        self.workspace = workspace
        self._missing: dict[str, None] = {}
        self.filled: dict[str, str] = {}
        """The values of variables and secrets that were filled in, by their names."""
        self._builtin_values = {
            "workspaceFolder": str(workspace),
            "workspaceFolderBasename": workspace.name,
            "userHome": str(machine.home),
            "cwd": str(machine.cwd),
            "pathSeparator": os.sep,
            "/": os.sep,
        }

    @property
    def missing_text(self) -> str | None:
        """Says which variables have no value, as the end of a sentence; None if all have one."""
        if not self._missing:
            return None
        secrets = [name.removeprefix(_KEYRING) for name in self._missing if name.startswith(_KEYRING)]
        inputs = [name.removeprefix(_INPUT) for name in self._missing if name.startswith(_INPUT)]
        variables = [name for name in self._missing if not name.startswith((_INPUT, _KEYRING))]
        needed = []
        if secrets:
            store = f"`delta-mcp secret set {secrets[0]}` puts it there"
            needed.append(f"the secret {', '.join(secrets)}, which your keyring does not have ({store})")
        if inputs:
            store = f"`delta-mcp secret set {inputs[0]}` stores it for us"
            needed.append(f"the input {', '.join(inputs)}, which its host asks for ({store})")
        if variables:
            needed.append(f"the variable {', '.join(variables)}, which is not set")
        return f"it needs {' and '.join(needed)}"

    def expand(self, value: Any) -> Any:
        """Returns the value with the variables in all its texts expanded."""
        if isinstance(value, dict):
            return {name: self.expand(item) for name, item in value.items()}
        if isinstance(value, list):
            return [self.expand(item) for item in value]
        if value == "~" or value.startswith(("~/", "~\\")):
            value = f"{self.machine.home}{value[1:]}"
        return _VARIABLE.sub(self._expand_match, value)

    def _expand_match(self, match: re.Match[str]) -> str:
        name, default = _read_name(match)
        if name in self._builtin_values:
            return self._builtin_values[name]
        value = self._find(name)
        if value is not None:
            self.filled[name] = value
            return value
        if default is None:
            self._missing[name[:100]] = None
            return match[0]
        return default

    def _find(self, name: str) -> str | None:
        """Returns the value of a variable or a secret; None if there is none."""
        for prefix in (_KEYRING, _INPUT):
            if name.startswith(prefix):
                return load_secret(name.removeprefix(prefix))
        return self.machine.environment.get(name)


MAX_FILE_BYTES = 32 * 1024 * 1024
"""The largest file that is read. Claude Code's file also holds histories and grows to some megabytes."""

DISABLED = "it is switched off there"
UNTRUSTED = "it is in a file of this folder; where you trust that, name the file or say --project"


class ConfiguredServer(Struct, frozen=True):
    """A server that a configuration file lists."""

    name: str
    """Empty if `skip_reason` is about the whole file."""
    host: str
    path: Path
    entry: dict[str, Any]
    """`command` with `args`, `env` and `cwd`, or `url` with `headers`; variables are expanded."""
    skip_reason: str | None = None
    """Why the server must not be started, as the end of a sentence; None if it may be."""
    filled: dict[str, str] = {}
    """The values of variables and secrets in the entry, which must not be shown, by their names."""
    written: dict[str, Any] = {}
    """The entry as it is written, without values for its variables."""


def find_servers(
    home: Path, cwd: Path, system: str, environment: Mapping[str, str], trusted: bool = False
) -> list[ConfiguredServer]:
    """Returns the servers of every host that has a file for this user or this project.

    A file that cannot be read gives one entry without a name and with the reason. The files of the current project are
    written by the project's authors, who thereby choose the programs to start; so their servers are marked as skipped
    unless `trusted` is true.

    Args:
        system: a value of `sys.platform`.
    """
    machine = Machine(home, cwd, system, environment)
    servers: list[ConfiguredServer] = []
    seen: set[Path] = set()
    for host_file in HOST_FILES:
        for path in machine.existing_files(host_file):
            if path.resolve() in seen:
                continue
            seen.add(path.resolve())
            try:
                document = read_document(path)
            except ConfigurationError as error:
                servers.append(ConfiguredServer("", host_file.host, path, {}, str(error)))
                continue
            found = _parse_servers(document, host_file, path, machine, any_project=False)
            if not trusted and is_project_file(host_file):
                found = [replace(server, skip_reason=server.skip_reason or UNTRUSTED) for server in found]
            servers += found
    return servers


def read_servers(path: Path, at_least: int = 1) -> list[ConfiguredServer]:
    """Returns the servers that one file lists, in any host's format; of Claude Code's file, those of every project.

    Args:
        at_least: How many it has to list.

    Raises:
        ConfigurationError: the file cannot be read, lists fewer servers, or has no place for them.
    """
    document = read_document(path)
    machine = Machine.detect()
    host_file = identify_host_file(path, machine)
    for key in (host_file.key, *SERVER_KEYS):
        found = _parse_servers(document, host_file._replace(key=key), path, machine, any_project=True)
        if found:
            return found
    keys = f"{host_file.key} {MCP_SERVERS_KEY}".split()
    if not at_least and any(True for key in keys for _ in find_server_maps(document, key)):
        return []
    raise ConfigurationError(
        f"{path}, line 1: it lists no servers; they stand under {MCP_SERVERS_KEY!r}, as in any host's file."
    )


def find_entry(path: Path, name: str) -> dict[str, Any]:
    """Returns the entry of a server in a file, even if it is switched off there.

    Raises:
        ConfigurationError: the file has no such server, or a variable that the server needs is not set.
    """
    return find_server(path, name).entry


def find_server(path: Path, name: str) -> ConfiguredServer:
    """Returns a server of a file, even if it is switched off there.

    Raises:
        ConfigurationError: as in `find_entry`.
    """
    servers = read_servers(path)
    matching = [server for server in servers if server.name == name]
    if not matching:
        from rapidfuzz import process  # 30 ms to import, needed only where a name is wrong

        names = list(dict.fromkeys(server.name for server in servers))
        extracted = process.extract(name, names, processor=str.casefold, limit=3, score_cutoff=60)
        similar = [match for match, _, _ in extracted]
        hint = f"did you mean {' or '.join(similar)}?" if similar else f"it has {', '.join(names)}."
        raise ConfigurationError(f"{path} has no server {name!r}; {hint}")
    for server in matching:
        if server.skip_reason in (None, DISABLED):
            return replace(server, skip_reason=None)
    raise ConfigurationError(f"{name} in {path} cannot be started: {matching[0].skip_reason}.")


def find_only_entry(path: Path) -> dict[str, Any]:
    """Returns the entry of the one server that a file lists.

    Raises:
        ConfigurationError: the file lists several, or as in `find_entry`.
    """
    names = list(dict.fromkeys(server.name for server in read_servers(path)))
    if len(names) > 1:
        raise ConfigurationError(f"{path} lists {', '.join(names)}; name one of them, as {path}#{names[0]}.")
    return find_entry(path, names[0])


def is_operations_file(path: Path) -> bool:
    """Whether a file defines operations; its `mcpServers` are then those that it takes operations from.

    Raises:
        ConfigurationError: the file cannot be read.
    """
    document = read_document(path)
    return isinstance(document, dict) and "operations" in document


def read_document(path: Path) -> JSON:
    """Returns what a file in JSON, with comments or without, or in TOML has.

    Raises:
        ConfigurationError: the file cannot be read; the text names it.
    """
    try:
        if not path.is_file():
            raise missing_file_error(path)
        if path.stat().st_size > MAX_FILE_BYTES:
            raise ConfigurationError(
                f"{path} is larger than {MAX_FILE_BYTES >> 20} MB; name a file with servers alone."
            )
        body = path.read_bytes()
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}.") from None
    is_toml = path.suffix == ".toml"
    try:
        if is_toml:
            return tomllib.loads(body.decode())
        return json.loads(strip_comments(body).decode("utf-8-sig")) if body.strip() else {}
    except (ValueError, RecursionError) as error:
        kind = "TOML" if is_toml else "JSON"
        raise ConfigurationError(f"{path} is not {kind}: {_parse_fault(error, body)}.") from None


def _parse_fault(error: Exception, body: bytes) -> str:
    """Returns what a parser says, with the line."""
    text = str(error)[:200]
    if "line " in text:
        return text
    end = error.start if isinstance(error, UnicodeDecodeError) else len(body.rstrip())
    return f"{text} (line {body.count(10, 0, end) + 1})"


def _parse_servers(
    document: JSON, host_file: HostFile, path: Path, machine: Machine, any_project: bool
) -> list[ConfiguredServer]:
    """Parses the servers of a document; marks those of other projects as skipped unless `any_project` is true."""
    parsed: list[ConfiguredServer] = []
    here = machine.cwd.resolve()
    for key in host_file.key.split():
        for _, project, servers in find_server_maps(document, key):
            is_current = not project or _resolve_path(project) in (here, *here.parents)
            workspace = Path(project) if project else _workspace_folder(host_file, path, machine)
            for key_name, raw in servers.items():
                name = to_text(key_name, "name")
                server = parse_server(name, host_file.host, path, raw, VariableExpander(machine, workspace))
                if not is_current and not any_project and server.skip_reason is None:
                    server = replace(server, skip_reason=f"it belongs to the project {project}")
                parsed.append(server)
    return parsed


def _resolve_path(project: str) -> Path | None:
    with suppress(ValueError, OSError):  # no folder can have this name
        return Path(project).resolve()
    return None


def _workspace_folder(host_file: HostFile, path: Path, machine: Machine) -> Path:
    """Returns the project that a project's file belongs to; for a user's file the current directory."""
    if not is_project_file(host_file):
        return machine.cwd if host_file.template else path.resolve().parent
    return path.resolve().parents[len(Path(relative_path(host_file)).parts) - 1]


def parse_server(name: str, host: str, path: Path, raw: Any, expander: VariableExpander) -> ConfiguredServer:
    """Returns the server of one entry; a process is started in the folder of the file that lists it."""
    try:
        normalized = normalize_entry(raw)
    except ConfigurationError as error:
        return ConfiguredServer(name, host, path, {}, str(error))
    entry = expander.expand(normalized)
    if "command" in entry and expander.workspace != expander.machine.cwd:
        entry["cwd"] = str(expander.workspace / entry.get("cwd", ""))
    if raw.get("disabled") is True or raw.get("enabled") is False:
        reason = f"{DISABLED}, and {expander.missing_text}" if expander.missing_text else DISABLED
        return ConfiguredServer(name, host, path, entry, reason, written=normalized)
    return ConfiguredServer(name, host, path, entry, expander.missing_text, expander.filled, normalized)


class ServerMap(NamedTuple):
    """An object whose members are servers, by name."""

    keys: tuple[str, ...]
    """The names of the members that lead to it."""
    project: str
    """The folder of the project that the servers are for; empty if they are for all."""
    servers: dict[str, JSON]


def find_server_maps(node: JSON, key: str, project: str = "", keys: tuple[str, ...] = ()) -> Iterator[ServerMap]:
    """Yields each object at a dotted key, as `HostFile.key` has them; `*` matches the folder of a project."""
    if not isinstance(node, dict):
        return
    if not key:
        yield ServerMap(keys, project, node)
    head, _, rest = key.partition(".")
    for name, value in node.items():
        if rest and name == key:  # VS Code's settings write a dotted path as one name
            yield from find_server_maps(value, "", project, (*keys, name))
        elif key and head in ("*", name):
            yield from find_server_maps(value, rest, name if head == "*" else project, (*keys, name))
