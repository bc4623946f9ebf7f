"""Reads the configuration of a gateway: a file of servers as hosts write it, or our own TOML, which says more.

Rules for the TOML:
1. The keys are the fields of `GatewayConfig`, and of `UpstreamConfig` in `[defaults]` and in each `[servers.NAME]`,
   which also has the keys of an entry of an `mcpServers` file.
2. `false` stands for None, which TOML does not have; as `results` of a server, for none whatever the gateway's are.
3. The reader tells every fault of the file, with its place, and not only the first.
4. A server that cannot be started, because it lacks a variable for instance, is skipped and told; it is no fault.
"""

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct

from deltamcp.catalog.clean_text import visible_line
from deltamcp.errors import ConfigurationError
from deltamcp.gateway.config import GatewayConfig, UpstreamConfig
from deltamcp.gateway.config_faults import ConfigFaults
from deltamcp.hosts import files
from deltamcp.hosts.entries import normalize_entry
from deltamcp.hosts.files import ConfiguredServer
from deltamcp.hosts.host_entry import started_configurations, starts_gateway
from deltamcp.hosts.hosts import Machine
from deltamcp.hosts.variables import VariableExpander
from deltamcp.results.policy import ResultPolicy

DEFAULT_RESULTS = ResultPolicy(max_tokens=20_000, preview_above=500)
"""The result policy of a gateway whose configuration names none."""
ENTRY_KEYS: Mapping[str, Any] = {
    "command": str,
    "args": list[str],
    "env": dict[str, str],
    "env_vars": list[str],
    "cwd": str,
    "url": str,
    "headers": dict[str, str],
    "type": str,
    "enabled": bool,
}
"""The keys of `[servers.NAME]` that say how the server is reached, as entries of an `mcpServers` file do."""
_SERVER_FIELDS = frozenset({"name", "entry", "filled"})
_FILE_FIELDS = frozenset({"upstreams"})
_FILE_KEYS: Mapping[str, Any] = {"include": str | list[str], "defaults": dict[str, Any], "servers": dict[str, Any]}
_ITSELF = "it is a gateway of delta-mcp, which would start itself"
_HIDDEN_NAME = "its name has characters that cannot be seen, or several lines"


class SkippedServer(Struct, frozen=True):
    """A server of the configuration that the gateway does without."""

    name: str
    reason: str
    """The end of a sentence."""


class GatewayFile(Struct, frozen=True):
    """What a configuration says, and the files that it was read from."""

    config: GatewayConfig
    skipped: tuple[SkippedServer, ...] = ()
    paths: tuple[Path, ...] = ()


def read_gateway_file(path: Path) -> GatewayFile:
    """Returns the configuration of a gateway.

    Raises:
        ConfigurationError: the file cannot be read, or has faults; the text tells all of them.
    """
    document = files.read_document(path)
    if path.suffix != ".toml" or (isinstance(document, dict) and "mcp_servers" in document):  # Codex writes TOML, too
        servers = _unique(files.read_servers(path))
        upstreams, skipped = _make_upstreams(servers, {}, {})
        config = GatewayConfig(upstreams=upstreams, results=DEFAULT_RESULTS)
        return GatewayFile(config, tuple(skipped), (path,))
    assert isinstance(document, dict), "a TOML document is a table"
    faults = ConfigFaults(path)
    found = _TomlReader(path, faults).read(document)
    faults.raise_all()
    return found


class _TomlReader:
    def __init__(self, path: Path, faults: ConfigFaults) -> None:
        self._path = path
        self._faults = faults
        self._machine = Machine.detect()
        self._included: list[Path] = []

    def read(self, document: dict[str, Any]) -> GatewayFile:
        keys = {**field_types(GatewayConfig, _FILE_FIELDS), **_FILE_KEYS}
        found = self._read_keys(document, keys, ())
        tables = found.pop("servers", {})
        given_defaults = found.pop("defaults", {})
        server_keys = field_types(UpstreamConfig, _SERVER_FIELDS)
        defaults = self._read_keys(given_defaults, server_keys, ("defaults",))
        servers = []
        options: dict[str, dict[str, Any]] = {}
        included = self._read_included(found.pop("include", []))
        for name, table in tables.items():
            place = ("servers", name)
            if not isinstance(table, dict):
                self._faults.add(place, "must be a table")
                continue
            read = self._read_keys(table, {**server_keys, **ENTRY_KEYS}, place)
            options[name] = {key: value for key, value in read.items() if key in server_keys}
            entry = {key: value for key, value in read.items() if key in ENTRY_KEYS}
            if "command" in entry or "url" in entry:
                servers.append(self._read_server(name, entry, place))
            elif any(server.name == name for server in included):
                included = _switch(included, name, entry.get("enabled", True))
            elif not {"command", "url"} & table.keys():
                self._faults.add(place, "needs a command or a url, or the name of a server of an included file")
        own = {server.name for server in servers}
        listed = _unique([*servers, *(server for server in included if server.name not in own)])
        upstreams, skipped = _make_upstreams(listed, options, defaults)
        config = GatewayConfig(upstreams=upstreams, **{"results": DEFAULT_RESULTS, **found})
        return GatewayFile(config, tuple(skipped), (self._path, *self._included))

    def _read_keys(self, table: dict[str, Any], keys: Mapping[str, Any], place: tuple[str, ...]) -> dict[str, Any]:
        """Returns the known keys with valid values, and tells of the others."""
        found: dict[str, Any] = {}
        for key, value in table.items():
            if key not in keys:
                self._faults.add_unknown((*place, key), keys)
            elif key == "results":
                found[key] = self._read_results(value, (*place, key))
            else:
                found[key] = self._faults.convert((*place, key), value, keys[key])
        return {key: value for key, value in found.items() if value is not msgspec.UNSET}

    def _read_results(self, value: Any, place: tuple[str, ...]) -> ResultPolicy | Literal[False] | None:
        if value is False:
            return None if len(place) == 1 else False
        if not isinstance(value, dict):
            self._faults.add(place, "must be a table, or false to pass results on as they are")
            return None
        found = self._read_keys(value, field_types(ResultPolicy, ()), place)
        try:
            return ResultPolicy(**found)
        except ConfigurationError as error:
            self._faults.add(place, f"is wrong: {str(error).rstrip('.')}")
            return None

    def _read_included(self, include: str | list[str]) -> list[ConfiguredServer]:
        servers: list[ConfiguredServer] = []
        for text in [include] if isinstance(include, str) else include:
            path = self._path.parent / Path(text).expanduser()
            try:
                servers += files.read_servers(path)
            except ConfigurationError as error:
                self._faults.add(("include",), f"is wrong: {str(error).rstrip('.')}")
            else:
                self._included.append(path)
        return servers

    def _read_server(self, name: str, entry: dict[str, Any], place: tuple[str, ...]) -> ConfiguredServer:
        try:
            normalize_entry(entry)
        except ConfigurationError as error:
            self._faults.add(place, f"is wrong: {error}")
        expander = VariableExpander(self._machine, self._path.resolve().parent)
        return files.parse_server(name, "delta-mcp", self._path, entry, expander)


def field_types(struct: type[Struct], without: Collection[str]) -> dict[str, Any]:
    """Returns the types of a struct's fields, which are keys of the file."""
    return {field.name: field.type for field in msgspec.structs.fields(struct) if field.name not in without}


def _switch(servers: list[ConfiguredServer], name: str, is_enabled: bool) -> list[ConfiguredServer]:
    """Returns the servers, of which the one with this name is switched off if it is not enabled."""
    if is_enabled:
        return servers
    return [
        msgspec.structs.replace(server, skip_reason=files.DISABLED) if server.name == name else server
        for server in servers
    ]


def _unique(servers: Iterable[ConfiguredServer]) -> list[ConfiguredServer]:
    """Returns servers without those that are listed twice, and with another name for others of the same name."""
    unique: dict[str, ConfiguredServer] = {}
    for server in servers:
        name, count = server.name, 1
        while name in unique and unique[name].entry != server.entry:
            count += 1
            name = f"{server.name}-{count}"
        unique.setdefault(name, msgspec.structs.replace(server, name=name))
    return list(unique.values())


def _make_upstreams(
    servers: Iterable[ConfiguredServer], options: Mapping[str, dict[str, Any]], defaults: dict[str, Any]
) -> tuple[list[UpstreamConfig], list[SkippedServer]]:
    upstreams, skipped = [], []
    for server in servers:
        shown = visible_line(server.name)
        hidden = None if shown == server.name else _HIDDEN_NAME  # logs and questions name it
        reason = hidden or server.skip_reason or (_ITSELF if _leads_back(server.entry, server.path) else None)
        if reason is None:
            given = {**defaults, **options.get(server.name, {})}
            upstreams.append(UpstreamConfig(name=server.name, entry=server.entry, filled=server.filled, **given))
        else:
            skipped.append(SkippedServer(shown, reason))
    return upstreams, skipped


def _leads_back(entry: Mapping[str, Any], *above: Path) -> bool:
    """Whether a server is a gateway that starts one of those above it again, by their files, or may do so.

    One that names no file that is there may start the user's own.
    """
    if not starts_gateway(entry):
        return False
    paths = started_configurations(entry)
    if not paths or {path.resolve() for path in above}.intersection(paths):
        return True
    return any(_leads_back(started, *above, path) for path in paths for started in _started_entries(path))


def _started_entries(path: Path) -> list[dict[str, Any]]:
    """Returns the entries of a gateway's file and of those that it includes; none of a file that cannot be read."""
    try:
        document: Any = files.read_document(path)
        if path.suffix != ".toml" or not isinstance(document, dict) or "mcp_servers" in document:
            return [server.entry for server in files.read_servers(path)]
        include, tables = document.get("include", []), document.get("servers", {})
        paths = [
            path.parent / Path(str(text)).expanduser() for text in ([include] if isinstance(include, str) else include)
        ]
        own = [table for table in tables.values() if isinstance(table, dict)] if isinstance(tables, dict) else []
        return [*own, *(server.entry for included in paths for server in files.read_servers(included))]
    except ConfigurationError:
        return []
