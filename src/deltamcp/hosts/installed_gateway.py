"""The files of a gateway that `install` makes: the servers as their host had them, and what includes them."""

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import tomlkit

from deltamcp.hosts import jsonc_edit, toml_edit
from deltamcp.hosts.hosts import MCP_SERVERS_KEY, installed_folder
from deltamcp.hosts.installation import MovedServers, decode, members_at
from deltamcp.hosts.movable_servers import Restrictions
from deltamcp.values import JSON

_SERVERS_KEYS = (MCP_SERVERS_KEY,)


def gateway_path(stem: str) -> Path:
    """Returns the path of a gateway's configuration."""
    return installed_folder() / f"{stem}.toml"


def servers_path(stem: str) -> Path:
    """Returns the path of the servers that a gateway's configuration includes."""
    return installed_folder() / f"{stem}.json"


def make_files(
    moved: MovedServers,
    before: MovedServers | None,
    members: Mapping[str, str],
    restrictions: Mapping[str, Restrictions],
    rewritten: Collection[str],
    command: str,
    has_own_process: bool,
) -> dict[Path, bytes]:
    """Returns the files of a gateway: those that are there, changed, or new ones.

    Args:
        before: what an earlier `install` moved.
        rewritten: the servers that the host's file has anew, with entries of their own.
        has_own_process: whether each conversation of the host starts a gateway of its own.
    """
    earlier = set(before.names) if before else set()
    path = servers_path(moved.stem)
    text = decode(read_file(path) or b"") if before else ""
    present = jsonc_edit.member_texts(text, _SERVERS_KEYS) if text else {}
    replaced: dict[str, list[str]] = {name: [] for name in present if name in earlier and name not in members}
    replaced |= {
        name: [member]
        for name, member in members.items()
        if name in present and (name in rewritten or name not in earlier)
    }
    text = text or f'{{\n  "{MCP_SERVERS_KEY}": {{}}\n}}\n'
    added = [member for name, member in members.items() if name not in present]
    text = jsonc_edit.edit_members(text, _SERVERS_KEYS, replaced, added)
    toml = decode(read_file(gateway_path(moved.stem)) or b"") if before else ""
    toml = toml or (
        f"# The gateway that `delta-mcp install {command}` made, and `delta-mcp uninstall {command}` takes away.\n"
        f"# The servers are in the file below; [servers.NAME] says more of one of them.\n"
        f"include = {json.dumps(path.name)}\n"
    )
    toml = toml_edit.edit_members(toml, ["servers"], {name: [] for name in earlier - members.keys()})
    if has_own_process:
        document: Any = tomlkit.parse(toml)
        document["conversation"] = "process"
        toml = tomlkit.dumps(document)
    for name, restriction in restrictions.items():
        toml = _restrict_table(toml, name, restriction)
    return {path: text.encode(), gateway_path(moved.stem): toml.encode()}


def _restrict_table(toml: str, name: str, restrictions: Restrictions) -> str:
    """Returns a gateway's configuration in which a server is restricted, beside what the user wrote of it."""
    given = {key: list(globs) for key, globs in restrictions._asdict().items() if globs}
    table = members_at(toml_edit.parse(toml), ["servers", name])
    new = {key: list(dict.fromkeys([*_list(table.get(key)), *globs])) for key, globs in given.items()}
    if all(table.get(key) == globs for key, globs in new.items()):
        return toml
    if not table:
        return toml_edit.edit_members(toml, ["servers"], {}, [toml_edit.make_member(name, new, toml, ["servers"])])
    document: Any = tomlkit.parse(toml)
    document["servers"][name].update(new)
    return tomlkit.dumps(document)


def _list(value: JSON) -> list[JSON]:
    return value if isinstance(value, list) else []


def read_file(path: Path) -> bytes | None:
    """Returns the content of a file; None if there is none."""
    try:
        return path.read_bytes()
    except OSError:
        return None
