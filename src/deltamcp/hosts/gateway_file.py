"""A gateway's own file, as text: `install` makes it and what it includes, `add` and `remove` edit it.

All that is not edited stays as it was.
"""

import json
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import tomlkit

from deltamcp.errors import ConfigurationError
from deltamcp.hosts import jsonc_edit, toml_edit
from deltamcp.hosts.files import find_server_maps
from deltamcp.hosts.hosts import MCP_SERVERS_KEY, SERVER_KEYS, installed_folder
from deltamcp.hosts.installation import MovedServers, check_edit, decode, editor_for, members_at, with_members
from deltamcp.hosts.movable_servers import Restrictions
from deltamcp.values import JSON

_SERVERS_KEYS = (MCP_SERVERS_KEY,)
_SWITCH = re.compile(r"^[ \t]*enabled[ \t]*=[ \t]*true\b", re.MULTILINE)


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


def servers_key(path: Path, content: bytes) -> str:
    """Returns the name of the object in which a gateway's file has its servers.

    Raises:
        ConfigurationError: the file cannot be read, or is in the format of a host that writes entries in another way;
            the text is the end of a sentence.
    """
    key = "servers" if path.suffix == ".toml" else MCP_SERVERS_KEY
    document = editor_for(path).parse(decode(content))
    others = {one for one in " ".join(SERVER_KEYS).split() if one != key}
    found = [one for one in others if any(one.servers for one in find_server_maps(document, one))]
    if found and not members_at(document, [key]):
        raise ConfigurationError(f"its servers are under {found[0]!r}, as its host writes them; change it there")
    return key


def switch_off_server(content: bytes, name: str) -> bytes:
    """Returns a gateway's TOML in which a server of an included file is switched off.

    Raises:
        ConfigurationError: as of `put_member`.
    """
    text, keys = decode(content), ["servers"]
    document: JSON = toml_edit.parse(text)
    servers = members_at(document, keys)
    table = toml_edit.member_texts(text, keys).get(name)
    if table is None:
        edited = toml_edit.edit_members(text, keys, {}, [toml_edit.make_member(name, {"enabled": False}, text, keys)])
    else:
        changed, count = _SWITCH.subn("enabled = false", table, count=1)
        if not count:
            line_end = "\r\n" if "\r\n" in text else "\n"
            header, _, rest = table.partition(line_end)
            changed = line_end.join([header, "enabled = false", *([rest] if rest else [])])
        edited = toml_edit.edit_members(text, keys, {name: [changed]})
    expected = {**members_at(servers, [name]), "enabled": False}
    check_edit(toml_edit, edited, with_members(document, keys, {**servers, name: expected}))
    return edited.encode()
