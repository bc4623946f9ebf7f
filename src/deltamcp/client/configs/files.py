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
from deltamcp.client.configs.entries import shaped, text_of
from deltamcp.client.configs.hosts import KEYS, MCP, PLACES, Machine, Place, below, of_project, place_of
from deltamcp.client.configs.variables import Filling
from deltamcp.errors import ConfigurationError
from deltamcp.values import JSON

BYTES = 32 * 1024 * 1024
"""A file's size. Claude Code keeps histories beside its servers, and that file grows to some megabytes."""

DISABLED = "it is switched off there"
UNTRUSTED = "it is in a file of this folder; where you trust that, name the file or say --project"


class Found(Struct, frozen=True):
    """A server that a file tells of."""

    name: str
    """Empty where `skipped` is about the whole file."""
    host: str
    path: Path
    entry: dict[str, Any]
    """`command` with `args`, `env` and `cwd`, or `url` with `headers`; variables are filled in."""
    skipped: str | None = None
    """Why it is not to be started, as the end of a sentence."""


def found_here(
    home: Path, cwd: Path, system: str, environment: Mapping[str, str], trusted: bool = False
) -> list[Found]:
    """The servers of every host that has a file for this user or this project; `system` as in `sys.platform`.

    A file that cannot be read is one of them, without a name, and with why. Whoever wrote the files of the folder we
    happen to be in decides what they start, so unless it is `trusted` they are told of and passed over.
    """
    machine = Machine(home, cwd, system, environment)
    made: list[Found] = []
    seen: set[Path] = set()
    for place in PLACES:
        for path in machine.files(place):
            if path.resolve() in seen:
                continue
            seen.add(path.resolve())
            try:
                document = _document(path)
            except ConfigurationError as error:
                made.append(Found("", place.host, path, {}, str(error)))
                continue
            found = _servers(document, place, path, machine, elsewhere=False)
            if not trusted and of_project(place):
                found = [replace(one, skipped=one.skipped or UNTRUSTED) for one in found]
            made += found
    return made


def read(path: Path) -> list[Found]:
    """The servers that one file tells of, in whatever host's format; of Claude Code's, those of every project.

    Raises:
        ConfigurationError: it cannot be read, or tells of none.
    """
    document = _document(path)
    machine = Machine.this()
    place = place_of(path, machine)
    for key in (place.key, *KEYS):
        found = _servers(document, place._replace(key=key), path, machine, elsewhere=True)
        if found:
            return found
    raise ConfigurationError(f"{path} tells of no servers; they stand under {MCP!r}, as in any host's file.")


def entry(path: Path, name: str) -> dict[str, Any]:
    """The server of that name in a file, whether switched off there or not.

    Raises:
        ConfigurationError: there is none, or something that it needs is missing.
    """
    found = read(path)
    fitting = [one for one in found if one.name == name]
    if not fitting:
        from rapidfuzz import process  # 30 ms to import, needed only where a name is wrong

        names = list(dict.fromkeys(one.name for one in found))
        near = [match for match, _, _ in process.extract(name, names, processor=str.casefold, limit=3, score_cutoff=60)]
        known = f"did you mean {' or '.join(near)}?" if near else f"it has {', '.join(names)}."
        raise ConfigurationError(f"{path} has no server {name!r}; {known}")
    for one in fitting:
        if one.skipped in (None, DISABLED):
            return one.entry
    raise ConfigurationError(f"{name} in {path} cannot be started: {fitting[0].skipped}.")


def _document(path: Path) -> JSON:
    """
    Raises:
        ConfigurationError: it cannot be read; the text names it.
    """
    try:
        if not path.is_file():
            raise ConfigurationError(f"There is no file {path}.")
        if path.stat().st_size > BYTES:
            raise ConfigurationError(f"{path} is larger than {BYTES >> 20} MB; name a file with servers alone.")
        body = path.read_bytes()
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}.") from None
    is_toml = path.suffix == ".toml"
    try:
        if is_toml:
            return tomllib.loads(body.decode())
        return json.loads(jsonc.plain(body).decode("utf-8-sig")) if body.strip() else {}
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(f"{path} is not {'TOML' if is_toml else 'JSON'}: {str(error)[:200]}.") from None


def _servers(document: JSON, place: Place, path: Path, machine: Machine, elsewhere: bool) -> list[Found]:
    """`elsewhere` takes what belongs to other projects for as good as what belongs to this one."""
    made: list[Found] = []
    here = machine.cwd.resolve()
    for key in place.key.split():
        for project, servers in _maps(document, key):
            is_near = not project or _resolved(project) in (here, *here.parents)
            workspace = Path(project) if project else _workspace(place, path, machine)
            for written, raw in servers.items():
                name = text_of(written, "name")
                found = _found(name, place.host, path, raw, Filling(machine, workspace))
                if not is_near and not elsewhere and found.skipped is None:
                    found = Found(name, place.host, path, found.entry, f"it belongs to the project {project}")
                made.append(found)
    return made


def _resolved(project: str) -> Path | None:
    with suppress(ValueError, OSError):  # a name that no folder can have
        return Path(project).resolve()
    return None


def _maps(node: JSON, key: str, project: str = "") -> Iterator[tuple[str, dict[str, JSON]]]:
    """What is at a dotted key, with the member that `*` stood for."""
    if not isinstance(node, dict):
        return
    if not key:
        yield project, node
    head, _, rest = key.partition(".")
    for name, value in node.items():
        if rest and name == key:  # a dotted path is a name as well, in VS Code's settings
            yield from _maps(value, "", project)
        elif key and head in ("*", name):
            yield from _maps(value, rest, name if head == "*" else project)


def _workspace(place: Place, path: Path, machine: Machine) -> Path:
    """The folder a project's file belongs to; for the user's files, where we are."""
    if not of_project(place):
        return machine.cwd if place.template else path.resolve().parent
    return path.resolve().parents[len(Path(below(place)).parts) - 1]


def _found(name: str, host: str, path: Path, raw: Any, filling: Filling) -> Found:
    try:
        written = shaped(raw)
    except ConfigurationError as error:
        return Found(name, host, path, {}, str(error))
    filled = filling.of(written)
    if "command" in filled and filling.workspace != filling.machine.cwd:
        filled["cwd"] = str(filling.workspace / filled.get("cwd", ""))
    if raw.get("disabled") is True or raw.get("enabled") is False:
        return Found(name, host, path, filled, f"{DISABLED}, and {filling.lack}" if filling.lack else DISABLED)
    return Found(name, host, path, filled, filling.lack)
