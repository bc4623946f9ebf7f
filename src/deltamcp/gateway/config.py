"""The configuration of a gateway: read from a file as hosts write it, or our own TOML, with every fault in it.

Rules for the TOML:
1. The keys are the fields of `GatewayConfig`, and of `UpstreamConfig` in `[defaults]` and in each `[servers.NAME]`,
   which also has the keys of an entry of an `mcpServers` file.
2. `false` stands for None, which TOML does not have; as `results` of a server, for none whatever the gateway's are.
3. The reader tells every fault of the file, with its place, and not only the first.
4. A server that cannot be started, because it lacks a variable for instance, is skipped and told; it is no fault.
5. How a server is reached is reviewed where a project's file says it; a file that such a file includes counts as one.
"""

import contextlib
import re
import tomllib
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal, Protocol

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType, inspect

from deltamcp.catalog.search.words import MIN_SIMILARITY, SimilarNames
from deltamcp.catalog.text.clean_text import visible_line
from deltamcp.client.negotiation import ProtocolChoice
from deltamcp.client.target import parse_entry
from deltamcp.errors import ConfigurationError
from deltamcp.gateway import api_server
from deltamcp.gateway.api_server import is_api
from deltamcp.hosts import files, jsonc_edit
from deltamcp.hosts.files import DISABLED, ConfiguredServer, VariableExpander, normalize_entry
from deltamcp.hosts.host_entry import started_configurations, starts_gateway
from deltamcp.hosts.hosts import SERVER_KEYS, Machine, belongs_to_project
from deltamcp.hosts.installation import decode
from deltamcp.results.policy import ResultPolicy
from deltamcp.upstreams.client import UpstreamSettings
from deltamcp.upstreams.secrets import EntryValues, entry_values

Seconds = Annotated[float, Meta(gt=0)]
Count = Annotated[int, Meta(ge=1)]


class UpstreamConfig(Struct, frozen=True, kw_only=True):
    """One server behind the gateway."""

    name: str
    """The category of its operations, and the prefix of its tools in a flat list."""
    entry: dict[str, Any]
    """An entry of an `mcpServers` file, or the keys of an API, with variables filled in."""
    filled: dict[str, str] = {}
    """The values of these variables, by their names."""
    speak: ProtocolChoice = "auto"
    """The protocol to talk to it: negotiated, or forced to that of one era."""
    timeout: Seconds | None = None
    """The seconds that a request may take; None for the client's own bound."""
    concurrency: Count | None = None
    """The requests that it performs at once; None for any number."""
    start: Literal["first-use", "ahead"] = "first-use"
    """Whether its process starts with the first request for it, or with the gateway."""
    idle_seconds: Seconds | None = 600.0
    """After how many seconds without a request its process is stopped; None never."""
    allow: tuple[str, ...] = ("*",)
    """Globs of the names of tools, as the upstream has them, that are offered; of these `deny` takes some away."""
    deny: tuple[str, ...] = ()
    """Globs of the names of tools that are not offered, though `allow` has them."""
    rename: dict[str, str] = {}
    """Names that tools have here, by the names that they have there."""
    read_only: bool = False
    """Whether only tools are offered that say they are read-only."""
    pinned: tuple[str, ...] = ()
    """Globs of the tools that stay listed beside the meta-tools."""
    confirm: Literal["never", "destructive", "always"] = "never"
    """Which calls need the user's consent, by elicitation: those of tools that say `destructiveHint: true`, or all."""
    on_changed: Literal["quarantine", "accept"] = "quarantine"
    """What happens to an item whose definition is no longer the one that was approved."""
    on_new: Literal["announce", "quarantine"] = "quarantine"
    """What happens to what was not there when the upstream was first seen."""
    on_imitation: Literal["tell", "quarantine"] = "tell"
    """What happens to a tool that could be taken for another server's."""
    varies: tuple[str, ...] = ()
    """JSON pointers, with `*` and `**`, of what it is known to vary in its lists: `"/tools/search/description"`."""
    results: ResultPolicy | Literal[False] | None = None
    """How its results are fitted to a budget, in front of the gateway's policy; False passes them on to the byte."""
    promise: Literal["never", "auto"] = "auto"
    """Whether a long call becomes a promise, where the extra `promises` is installed."""
    sync_seconds: Annotated[float, Meta(ge=0)] = 5.0
    """After how many seconds a call becomes a promise."""
    auth: Literal["oauth"] | None = None
    """Whether the server wants its users to log in: then each principal has a login and a connection of its own."""
    resource: str | None = None
    """With `auth`: an address above the server's that its tokens may be for; every server there can be used with
    them."""
    shared_login: bool = False
    """Whether callers over HTTP whom nobody authenticates have the login of the user who started the gateway."""
    process_for: Literal["all", "principal"] = "all"
    """Whether all callers share one process or connection, or each principal has its own."""
    redact_results: bool | None = None
    """Whether results must not show the values of its entry, as errors never do; None for what the gateway says."""
    not_secret: tuple[str, ...] = ()
    """Globs of the names of variables, headers, options and parameters whose values may be shown."""

    @property
    def secrets(self) -> EntryValues:
        """What of the entry nobody is told."""
        return entry_values(self.entry, self.filled, self.not_secret)

    @property
    def settings(self) -> UpstreamSettings:
        """How its connection is started, used and stopped."""
        return UpstreamSettings(
            timeout=self.timeout,
            concurrency=self.concurrency,
            start=self.start,
            idle_seconds=self.idle_seconds,
            process_for="all" if is_api(self.entry) else self.process_for,
        )


class GatewayConfig(Struct, frozen=True, kw_only=True):
    """A gateway and the servers behind it."""

    upstreams: list[UpstreamConfig]
    """The servers behind it."""
    name: str = "delta-mcp"
    """The name by which hosts know the gateway."""
    disclosure: Literal["meta", "full", "auto"] = "meta"
    """What a host lists: the meta-tools, every tool, or whichever of them costs fewer tokens."""
    query: bool = True
    """Whether read-only operations run through the meta-tool `query`."""
    destructive: bool = False
    """Whether operations that say they are destructive run through a meta-tool of their own."""
    prefix: bool | None = None
    """Whether names of tools and prompts begin with that of their upstream; None if there is more than one."""
    results: ResultPolicy | None = None
    """How results are fitted to a budget, unless a server has a policy of its own."""
    as_tools: bool = False
    """Whether tools reach resources and prompts, for hosts that know only tools."""
    roots: tuple[str, ...] = ()
    """Folders, as `file://` URIs, that servers are told of that ask for roots while no client can be asked."""
    wait_seconds: float = 8.0
    """How long the gateway waits, when it starts, for servers that it has never seen; later it announces what they
    list."""
    max_age_seconds: float = 86_400.0
    """For how long the gateway takes from its cache what a server lists, if nothing starts that server meanwhile."""
    redact_results: bool = False
    """Whether results of servers that do not say otherwise are searched for the values of their entries."""
    savings: bool = False
    """Whether every result says in its `_meta` what it would have cost a model and does cost."""
    keep_results: bool = False
    """Whether results that the gateway stores over stdio outlive its process, for an hour, in the user's folder."""
    keep_shapes: bool = False
    """Whether what operations were seen to return, names and types, outlives the process, in the user's folder."""
    conversation: Literal["process"] | None = None
    """"process" if every process and session that connects has one conversation, whose model reads every reply; only
    then does the gateway say unasked what changed."""

    public_url: str = ""
    """The address at which browsers reach the gateway, for the logins of its users at servers behind it; by default
    that of the resource for which its callers' tokens are issued."""
    login_client_id: str | None = None
    """The gateway's client id at the authorization server of its own callers, where it cannot register itself."""

    @property
    def has_prefix(self) -> bool:
        """Whether names of tools and prompts begin with that of their upstream."""
        return len(self.upstreams) > 1 if self.prefix is None else self.prefix


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
    "openapi": str,
}
"""The keys of `[servers.NAME]` that say how the server is reached, as entries of an `mcpServers` file do, and the
document of an API, which has keys of its own."""
_SERVER_FIELDS = frozenset({"name", "entry", "filled"})
_FILE_FIELDS = frozenset({"upstreams"})
HELD_KEYS = ("name", "as_tools", "conversation", "keep_results", "public_url", "login_client_id")
"""The keys that hold as long as a gateway runs: stores, clients and browsers know them."""
_FILE_KEYS: Mapping[str, Any] = {"include": str | list[str], "defaults": dict[str, Any], "servers": dict[str, Any]}
_ITSELF = "it is a gateway of delta-mcp, which would start itself"
_HIDDEN_NAME = "its name has characters that cannot be seen, or several lines"


class SkippedServer(Struct, frozen=True):
    """A server of the configuration that the gateway does without."""

    name: str
    reason: str
    """The end of a sentence."""
    place: str = ""
    """The file and the line of its entry."""
    is_wanted: bool = False
    """Whether it would be there without a mistake, or without an approval that is to come."""
    is_kept: bool = False
    """Whether it is there meanwhile, reached as it was before."""

    def __str__(self) -> str:
        return f"{self.place}: {self.name} {'stays as it was' if self.is_kept else 'is left out'}: {self.reason}."


class GatewayFile(Struct, frozen=True):
    """What a configuration says, and the files that it was read from."""

    config: GatewayConfig
    skipped: tuple[SkippedServer, ...] = ()
    paths: tuple[Path, ...] = ()
    records: tuple[Path, ...] = ()
    """The files with what was approved of those of projects."""


def check_config(config: GatewayConfig) -> None:
    """Checks the values of a configuration that a program made, as those of a file are checked.

    Raises:
        ConfigurationError: a value is not allowed.
    """
    for struct, place in (
        (config, "GatewayConfig"),
        *((one, f"UpstreamConfig {one.name!r}") for one in config.upstreams),
    ):
        for name, kind in field_types(type(struct), ("upstreams", "results")).items():
            try:
                msgspec.convert(getattr(struct, name), kind)
            except msgspec.ValidationError as error:
                raise ConfigurationError(f"{place}: {name}: {str(error).partition(' - at')[0]}.") from None


class EntryReview(Protocol):
    """Decides which servers may be reached as a project's file says."""

    def review(self, file: Path, servers: Sequence[ConfiguredServer]) -> list[ConfiguredServer]:
        """Returns the servers of a file; those that nobody approved have a reason not to be started.

        Raises:
            ConfigurationError: what was approved cannot be read.
        """
        ...

    def path(self, file: Path) -> Path:
        """Returns the file with what was approved of a file."""
        ...


_NONE_KNOWN: Mapping[str, UpstreamConfig] = MappingProxyType({})


def read_gateway_file(
    path: Path, entries: EntryReview | None = None, known: Mapping[str, UpstreamConfig] = _NONE_KNOWN
) -> GatewayFile:
    """Returns the configuration of a gateway.

    Args:
        entries: Reviews what the files of projects say; without it, all of that holds.
        known: The servers of a gateway that runs, by name. One that would be there without a mistake, or without an
            approval that is to come, is reached as it was.

    Raises:
        ConfigurationError: the file cannot be read, or has faults; the text tells all of them.
    """
    document = files.read_document(path)
    if not _is_gateway_document(path, document):
        servers, records = review_servers(path, files.read_servers(path, at_least=0), entries)
        upstreams, skipped = _make_upstreams(_unique(servers), {}, {}, path, known)
        config = GatewayConfig(upstreams=upstreams, results=DEFAULT_RESULTS)
        return GatewayFile(config, tuple(skipped), (path,), records)
    assert isinstance(document, dict), "a TOML document is a table"
    faults = ConfigFaults(path)
    found = _TomlReader(path, faults, entries, known).read(document)
    faults.raise_all()
    return found


def is_gateway_file(path: Path) -> bool:
    """Whether a file is a configuration of the gateway, in its own format.

    Raises:
        ConfigurationError: the file cannot be read.
    """
    return _is_gateway_document(path, files.read_document(path))


def _is_gateway_document(path: Path, document: object) -> bool:
    return path.suffix == ".toml" and isinstance(document, dict) and "mcp_servers" not in document  # which is Codex's


def read_gateway_server(
    path: Path, name: str, entries: EntryReview | None = None, known: Mapping[str, UpstreamConfig] = _NONE_KNOWN
) -> GatewayFile:
    """Returns the configuration of a gateway for one server of a host's file, also for one that is switched off there.

    Args:
        entries: As of `read_gateway_file`, and so is `known`.

    Raises:
        ConfigurationError: the file cannot be read, has no such server, or lacks a variable that it needs.
    """
    server = files.find_server(path, name)
    servers, records = review_servers(path, [server], entries, f"#{name}")
    upstreams, skipped = _make_upstreams(servers, {}, {}, path, known)
    config = GatewayConfig(upstreams=upstreams, results=DEFAULT_RESULTS)
    return GatewayFile(config, tuple(skipped), (path,), records)


def review_servers(
    path: Path, servers: Sequence[ConfiguredServer], entries: EntryReview | None, part: str = ""
) -> tuple[list[ConfiguredServer], tuple[Path, ...]]:
    """Returns the servers of a file, or of a part of it, reviewed if it is a project's, and the record of that.

    Raises:
        ConfigurationError: what was approved cannot be read.
    """
    if entries is None or not belongs_to_project(path, Machine.detect()):
        return [*servers], ()
    reviewed = path.with_name(f"{path.name}{part}")
    return entries.review(reviewed, servers), (entries.path(reviewed),)


_HEADER = re.compile(r"\s*\[+([^\[\]]+)\]+\s*(?:#.*)?$")
_KEY = re.compile(r"""\s*((?:[\w-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[\w-]+|"[^"]*"|'[^']*'))*)\s*=""")
Place = tuple[str, ...]


class ConfigFaults:
    """Collects faults, and raises them together."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._faults: list[tuple[Place, str]] = []

    def add(self, place: Place, predicate: str) -> None:
        """Adds a fault: what the key at a place does wrong, as the rest of a sentence."""
        self._faults.append((place, f"{'.'.join(place)} {predicate}."))

    def add_unknown(self, place: Place, known: Iterable[str]) -> None:
        """Adds that there is no such key, with those that may have been meant."""
        names = sorted(known)
        ranked = SimilarNames(names).rank(place[-1], 1)
        hint = f"did you mean {ranked[0][0]}?" if ranked[0][1] >= MIN_SIMILARITY else f"there are {', '.join(names)}."
        self._faults.append((place, f"{'.'.join(place)} is no key; {hint}"))

    def convert(self, place: Place, value: Any, type_: Any) -> Any | UnsetType:
        """Returns a value of the file in its type; UNSET, and adds a fault, if it is none."""
        info = inspect.type_info(type_)
        if value is False and _accepts_none(info) and not _accepts_bool(info):
            return None
        try:
            return msgspec.convert(value, type_)
        except msgspec.ValidationError:
            self.add(place, f"must be {phrase(info)}")
            return UNSET

    def raise_all(self) -> None:
        """
        Raises:
            ConfigurationError: there are faults; the text tells all of them.
        """
        if not self._faults:
            return
        lines = _find_lines(self._path.read_text(encoding="utf-8"))
        told = [(_line_of(place, lines), sentence) for place, sentence in self._faults]
        if len(told) == 1:
            raise ConfigurationError(f"{self._path}, line {told[0][0]}: {told[0][1]}")
        listed = [f"  line {line}: {sentence}" for line, sentence in sorted(told)]
        raise ConfigurationError(f"{self._path} has {len(told)} faults:", listed)


def _accepts_none(info: inspect.Type) -> bool:
    return isinstance(info, inspect.UnionType) and info.includes_none


def _accepts_bool(info: inspect.Type) -> bool:
    return any(isinstance(one, inspect.BoolType) for one in getattr(info, "types", (info,)))


def phrase(info: inspect.Type) -> str:
    """Returns the type of a value in words, as faults and the reference name it."""
    match info:
        case inspect.UnionType():
            names = [phrase(one) for one in info.types if not isinstance(one, inspect.NoneType)]
            return " or ".join([*names, *["false"] * (info.includes_none and not _accepts_bool(info))])
        case inspect.BoolType():
            return "true or false"
        case inspect.IntType() | inspect.FloatType():
            noun = "a whole number" if isinstance(info, inspect.IntType) else "a number"
            low = f" above {info.gt:g}" if info.gt is not None else f" from {info.ge:g}" if info.ge is not None else ""
            return noun + low
        case inspect.LiteralType():
            return f"one of {', '.join(map(str, info.values))}"
        case inspect.ListType() | inspect.VarTupleType():
            return "a list of texts"
        case inspect.DictType():
            return "a table of texts" if isinstance(info.value_type, inspect.StrType) else "a table"
        case _:
            return "text"


def _find_lines(text: str) -> dict[Place, int]:
    """Returns the line of each key and table that begins one, by its path."""
    lines: dict[Place, int] = {}
    table: Place = ()
    for number, line in enumerate(text.splitlines(), 1):
        if header := _HEADER.match(line):
            table = _parse_key(header[1])
            lines.setdefault(table, number)
        elif key := _KEY.match(line):
            lines.setdefault((*table, *_parse_key(key[1])), number)
    return lines


def _parse_key(text: str) -> Place:
    """Returns the parts of a dotted key; none of a line that only looks like one, within a text of several lines."""
    try:
        node: Any = tomllib.loads(f"{text} = 0")
    except tomllib.TOMLDecodeError:
        return ()
    parts: Place = ()
    while isinstance(node, dict):
        ((name, node),) = node.items()
        parts += (name,)
    return parts


def _line_of(place: Place, lines: dict[Place, int]) -> int:
    """Returns the line of a key, or of the nearest table around it that begins a line."""
    while place:
        if place in lines:
            return lines[place]
        place = place[:-1]
    return 1


def entry_line(path: Path, name: str) -> int:
    """Returns the line at which the entry of a server begins in a file, in whatever format; 1 if it is not found."""
    try:
        text = decode(path.read_bytes())
        if path.suffix == ".toml":
            lines = _find_lines(text)
            return next((lines[key, name] for key in ("servers", "mcp_servers") if (key, name) in lines), 1)
        document = jsonc_edit.parse(text)
        for key in " ".join(SERVER_KEYS).split():
            for servers in files.find_server_maps(document, key):
                place = jsonc_edit.find_object(text, servers.keys)
                for member in place.members if place is not None else ():
                    if member.name == name:
                        return text.count("\n", 0, member.start) + 1
    except (OSError, ConfigurationError):  # it was changed or removed since
        pass
    return 1


class _TomlReader:
    def __init__(
        self, path: Path, faults: ConfigFaults, entries: EntryReview | None, known: Mapping[str, UpstreamConfig]
    ) -> None:
        self._path = path
        self._faults = faults
        self._entries = entries
        self._known = known
        self._machine = Machine.detect()
        self._included: list[Path] = []
        self._records: list[Path] = []

    def read(self, document: dict[str, Any]) -> GatewayFile:
        keys = {**field_types(GatewayConfig, _FILE_FIELDS), **_FILE_KEYS}
        found = self._read_keys(document, keys, ())
        tables = found.pop("servers", {})
        given_defaults = found.pop("defaults", {})
        server_keys = field_types(UpstreamConfig, _SERVER_FIELDS)
        defaults = self._read_keys(given_defaults, server_keys, ("defaults",))
        servers: list[ConfiguredServer] = []
        options: dict[str, dict[str, Any]] = {}
        included = self._read_included(found.pop("include", []))
        for name, table in tables.items():
            place = ("servers", name)
            if not isinstance(table, dict):
                self._faults.add(place, "must be a table")
                continue
            if is_api(table):
                options[name] = self._read_api(name, table, place, server_keys, servers)
                continue
            read = self._read_keys(table, {**server_keys, **ENTRY_KEYS}, place)
            options[name] = {key: value for key, value in read.items() if key in server_keys}
            entry = {key: value for key, value in read.items() if key in ENTRY_KEYS}
            if "command" in entry or "url" in entry:
                servers.append(self._read_server(name, entry, place))
            elif any(server.name == name for server in included):
                included = _switch(included, name, entry.get("enabled", True))
            elif not {"command", "url"} & table.keys():
                self._faults.add(
                    place, "needs a command, a url or an openapi document, or to be named in an included file"
                )
        own = {server.name for server in servers}
        listed = [*servers, *(server for server in included if server.name not in own)]
        reviewed, records = review_servers(self._path, listed, self._entries)
        upstreams, skipped = _make_upstreams(
            _unique(reviewed), options, defaults, self._path, self._known, self._faults
        )
        config = GatewayConfig(upstreams=upstreams, **{"results": DEFAULT_RESULTS, **found})
        return GatewayFile(config, tuple(skipped), (self._path, *self._included), (*records, *self._records))

    def _read_api(
        self,
        name: str,
        table: dict[str, Any],
        place: tuple[str, ...],
        server_keys: Mapping[str, Any],
        servers: list[ConfiguredServer],
    ) -> dict[str, Any]:
        """Adds an API to the servers, and returns what the table says of it as of any server."""
        own_keys = api_server.api_keys()
        for key in ("command", "url"):
            if key in table:
                self._faults.add((*place, key), "does not go with an openapi document; a server has one of the two")
        reached = {key: value for key, value in table.items() if key not in ("command", "url")}
        read = self._read_keys(reached, {**server_keys, **own_keys, "enabled": bool}, place)
        given = {key: reached[key] for key, value in read.items() if key in own_keys and value is not None}
        options = {key: value for key, value in read.items() if key in server_keys}
        # The API's own patterns know tags, paths and methods, too; globs of names are then for nothing.
        options |= {key: all_ for key, all_ in (("allow", ("*",)), ("deny", ())) if key in options}
        if "openapi" in given:
            expander = VariableExpander(self._machine, self._path.resolve().parent)
            entry = api_server.make_entry(given, expander, expander.workspace)
            reason = files.DISABLED if read.get("enabled") is False else expander.missing_text
            servers.append(
                ConfiguredServer(name, "delta-mcp", self._path, entry, reason, expander.filled, written=given)
            )
        return options

    def _read_keys(self, table: dict[str, Any], keys: Mapping[str, Any], place: tuple[str, ...]) -> dict[str, Any]:
        """Returns the known keys with valid values, and tells of the others."""
        found: dict[str, Any] = {}
        for key, value in table.items():
            if key not in keys and place[:1] == ("servers",) and key in api_server.api_keys():
                self._faults.add((*place, key), "is for an API: a server with an openapi document")
            elif key not in keys:
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
        is_project = bool(include) and belongs_to_project(self._path, self._machine)  # then all is reviewed with it
        for text in [include] if isinstance(include, str) else include:
            path = self._path.parent / Path(text).expanduser()
            try:
                found = files.read_servers(path, at_least=0)
            except ConfigurationError as error:
                self._faults.add(("include",), f"is wrong: {str(error).rstrip('.')}")
            else:
                reviewed, records = review_servers(path, found, None if is_project else self._entries)
                servers += reviewed
                self._included.append(path)
                self._records += records
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
    servers: Iterable[ConfiguredServer],
    options: Mapping[str, dict[str, Any]],
    defaults: dict[str, Any],
    path: Path,
    known: Mapping[str, UpstreamConfig],
    faults: ConfigFaults | None = None,
) -> tuple[list[UpstreamConfig], list[SkippedServer]]:
    """Returns the servers that can be started, and the others; what is wrong in the file at `path` is a fault of it."""
    upstreams, skipped = [], []
    for server in servers:
        shown = visible_line(server.name)
        hidden = None if shown == server.name else _HIDDEN_NAME  # logs and questions name it
        reason = hidden or server.skip_reason or (_ITSELF if _leads_back(server.entry, server.path) else None)
        is_wanted = hidden is None and server.skip_reason is not None and not server.skip_reason.startswith(DISABLED)
        given = {**defaults, **options.get(server.name, {})}
        if reason is None:
            made = UpstreamConfig(name=server.name, entry=server.entry, filled=server.filled, **given)
            reason = entry_fault(made)
            is_wanted = reason is not None
            if reason is None:
                upstreams.append(made)
            elif faults is not None and server.path == path:
                faults.add(("servers", server.name), f"is wrong: {reason}")
        if reason is not None:
            place = f"{server.path}, line {entry_line(server.path, server.name)}"
            before = known.get(server.name) if is_wanted else None
            skipped.append(SkippedServer(shown, reason, place, is_wanted, before is not None))
            if before is not None:
                kept = UpstreamConfig(name=server.name, entry=before.entry, filled=before.filled, **given)
                upstreams.append(before if entry_fault(kept) else kept)
    return upstreams, skipped


def entry_fault(config: UpstreamConfig) -> str | None:
    """Returns why there can be no connection to a server, as the end of a sentence; None if there can be one."""
    if is_api(config.entry) and (fault := api_server.api_fault(config.entry)):
        return fault
    try:
        if not is_api(config.entry):
            parse_entry(config.entry)
    except ConfigurationError as error:
        return str(error).rstrip(".")
    url = config.entry.get("url")
    if config.auth is None:
        return None if config.resource is None else 'a resource is for servers with auth = "oauth"'
    if not isinstance(url, str):
        return 'auth = "oauth" is for servers with a url'
    if config.resource is None:
        return None
    from deltamcp.client.oauth.metadata import covers  # imported late, as most gateways need no login

    return None if covers(config.resource, url) else "the resource is an address above the url, such as https://host"


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


def configuration_files(path: Path) -> list[Path]:
    """Returns the files that a configuration is read from, also those that are not there, as far as it says."""
    with contextlib.suppress(ConfigurationError):
        document = files.read_document(path)
        if path.suffix == ".toml" and isinstance(document, dict):
            return [path, *_included_paths(path, document)]
    return [path]


def _included_paths(path: Path, document: Mapping[str, Any]) -> list[Path]:
    include = document.get("include", [])
    texts = include if isinstance(include, list) else [include]
    with contextlib.suppress(RuntimeError):  # `~nobody`
        return [path.parent / Path(text).expanduser() for text in texts if isinstance(text, str)]
    return []


def _started_entries(path: Path) -> list[dict[str, Any]]:
    """Returns the entries of a gateway's file and of those that it includes; none of a file that cannot be read."""
    try:
        document: Any = files.read_document(path)
        if path.suffix != ".toml" or not isinstance(document, dict) or "mcp_servers" in document:
            return [server.entry for server in files.read_servers(path)]
        paths, tables = _included_paths(path, document), document.get("servers", {})
        own = [table for table in tables.values() if isinstance(table, dict)] if isinstance(tables, dict) else []
        return [*own, *(server.entry for included in paths for server in files.read_servers(included))]
    except ConfigurationError:
        return []
