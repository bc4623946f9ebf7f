"""The servers that hosts' files tell of."""

import json
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from deltamcp.client.configs import jsonc
from deltamcp.client.configs.entries import normalize_entry, to_text
from deltamcp.client.configs.hosts import (
    HOST_FILES,
    MCP_SERVERS_KEY,
    SERVER_KEYS,
    HostFile,
    Machine,
    identify_host_file,
    is_project_file,
    relative_path,
)
from deltamcp.client.configs.variables import VariableExpander
from deltamcp.errors import ConfigurationError
from deltamcp.values import JSON

MAX_FILE_BYTES = 32 * 1024 * 1024
"""A file's size. Claude Code keeps histories beside its servers, and that file grows to some megabytes."""

DISABLED = "it is switched off there"
UNTRUSTED = "it is in a file of this folder; where you trust that, name the file or say --project"


class ConfiguredServer(Struct, frozen=True):
    """A server that a file tells of."""

    name: str
    """Empty where `skipped` is about the whole file."""
    host: str
    path: Path
    entry: dict[str, Any]
    """`command` with `args`, `env` and `cwd`, or `url` with `headers`; variables are filled in."""
    skip_reason: str | None = None
    """Why it is not to be started, as the end of a sentence."""


def find_servers(
    home: Path, cwd: Path, system: str, environment: Mapping[str, str], trusted: bool = False
) -> list[ConfiguredServer]:
    """The servers of every host that has a file for this user or this project; `system` as in `sys.platform`.

    A file that cannot be read is one of them, without a name, and with why. Whoever wrote the files of the folder we
    happen to be in decides what they start, so unless it is `trusted` they are told of and passed over.
    """
    machine = Machine(home, cwd, system, environment)
    made: list[ConfiguredServer] = []
    seen: set[Path] = set()
    for host_file in HOST_FILES:
        for path in machine.existing_files(host_file):
            if path.resolve() in seen:
                continue
            seen.add(path.resolve())
            try:
                document = _read_document(path)
            except ConfigurationError as error:
                made.append(ConfiguredServer("", host_file.host, path, {}, str(error)))
                continue
            found = _parse_servers(document, host_file, path, machine, any_project=False)
            if not trusted and is_project_file(host_file):
                found = [replace(one, skip_reason=one.skip_reason or UNTRUSTED) for one in found]
            made += found
    return made


def read_servers(path: Path) -> list[ConfiguredServer]:
    """The servers that one file tells of, in whatever host's format; of Claude Code's, those of every project.

    Raises:
        ConfigurationError: it cannot be read, or tells of none.
    """
    document = _read_document(path)
    machine = Machine.detect()
    host_file = identify_host_file(path, machine)
    for key in (host_file.key, *SERVER_KEYS):
        found = _parse_servers(document, host_file._replace(key=key), path, machine, any_project=True)
        if found:
            return found
    raise ConfigurationError(
        f"{path} tells of no servers; they stand under {MCP_SERVERS_KEY!r}, as in any host's file."
    )


def find_entry(path: Path, name: str) -> dict[str, Any]:
    """The server of that name in a file, whether switched off there or not.

    Raises:
        ConfigurationError: there is none, or something that it needs is missing.
    """
    found = read_servers(path)
    fitting = [one for one in found if one.name == name]
    if not fitting:
        from rapidfuzz import process  # 30 ms to import, needed only where a name is wrong

        names = list(dict.fromkeys(one.name for one in found))
        near = [match for match, _, _ in process.extract(name, names, processor=str.casefold, limit=3, score_cutoff=60)]
        known = f"did you mean {' or '.join(near)}?" if near else f"it has {', '.join(names)}."
        raise ConfigurationError(f"{path} has no server {name!r}; {known}")
    for one in fitting:
        if one.skip_reason in (None, DISABLED):
            return one.entry
    raise ConfigurationError(f"{name} in {path} cannot be started: {fitting[0].skip_reason}.")


def _read_document(path: Path) -> JSON:
    """
    Raises:
        ConfigurationError: it cannot be read; the text names it.
    """
    try:
        if not path.is_file():
            raise ConfigurationError(f"There is no file {path}.")
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
        return json.loads(jsonc.strip_comments(body).decode("utf-8-sig")) if body.strip() else {}
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(f"{path} is not {'TOML' if is_toml else 'JSON'}: {str(error)[:200]}.") from None


def _parse_servers(
    document: JSON, host_file: HostFile, path: Path, machine: Machine, any_project: bool
) -> list[ConfiguredServer]:
    """`elsewhere` takes what belongs to other projects for as good as what belongs to this one."""
    made: list[ConfiguredServer] = []
    here = machine.cwd.resolve()
    for key in host_file.key.split():
        for project, servers in _find_maps(document, key):
            is_near = not project or _resolve_path(project) in (here, *here.parents)
            workspace = Path(project) if project else _workspace_folder(host_file, path, machine)
            for written, raw in servers.items():
                name = to_text(written, "name")
                found = _parse_server(name, host_file.host, path, raw, VariableExpander(machine, workspace))
                if not is_near and not any_project and found.skip_reason is None:
                    found = ConfiguredServer(
                        name, host_file.host, path, found.entry, f"it belongs to the project {project}"
                    )
                made.append(found)
    return made


def _resolve_path(project: str) -> Path | None:
    with suppress(ValueError, OSError):  # a name that no folder can have
        return Path(project).resolve()
    return None


def _find_maps(node: JSON, key: str, project: str = "") -> Iterator[tuple[str, dict[str, JSON]]]:
    """What is at a dotted key, with the member that `*` stood for."""
    if not isinstance(node, dict):
        return
    if not key:
        yield project, node
    head, _, rest = key.partition(".")
    for name, value in node.items():
        if rest and name == key:  # a dotted path is a name as well, in VS Code's settings
            yield from _find_maps(value, "", project)
        elif key and head in ("*", name):
            yield from _find_maps(value, rest, name if head == "*" else project)


def _workspace_folder(host_file: HostFile, path: Path, machine: Machine) -> Path:
    """The folder a project's file belongs to; for the user's files, where we are."""
    if not is_project_file(host_file):
        return machine.cwd if host_file.template else path.resolve().parent
    return path.resolve().parents[len(Path(relative_path(host_file)).parts) - 1]


def _parse_server(name: str, host: str, path: Path, raw: Any, expander: VariableExpander) -> ConfiguredServer:
    try:
        written = normalize_entry(raw)
    except ConfigurationError as error:
        return ConfiguredServer(name, host, path, {}, str(error))
    filled = expander.expand(written)
    if "command" in filled and expander.workspace != expander.machine.cwd:
        filled["cwd"] = str(expander.workspace / filled.get("cwd", ""))
    if raw.get("disabled") is True or raw.get("enabled") is False:
        return ConfiguredServer(
            name, host, path, filled, f"{DISABLED}, and {expander.missing_text}" if expander.missing_text else DISABLED
        )
    return ConfiguredServer(name, host, path, filled, expander.missing_text)
