"""Adds a server to a gateway's file, takes one away, or switches one off there, in its text: all else stays."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from deltamcp.errors import ConfigurationError
from deltamcp.hosts import toml_edit
from deltamcp.hosts.files import find_server_maps
from deltamcp.hosts.hosts import MCP_SERVERS_KEY, SERVER_KEYS
from deltamcp.hosts.installation import check_edit, decode, editor_for, members_at, with_members
from deltamcp.values import JSON

_SWITCH = re.compile(r"^[ \t]*enabled[ \t]*=[ \t]*true\b", re.MULTILINE)


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


def add_server(path: Path, content: bytes, name: str, entry: Mapping[str, Any]) -> bytes:
    """Returns the file with one more server.

    Raises:
        ConfigurationError: the file cannot be edited; the text is the end of a sentence.
    """
    editor, text, keys = editor_for(path), decode(content), [servers_key(path, content)]
    value = {**entry}
    member = editor.make_member(name, value, text, keys)
    edited = editor.edit_members(text, keys, {}, [member])
    document = editor.parse(text)
    check_edit(editor, edited, with_members(document, keys, {**members_at(document, keys), name: value}))
    return bytes(edited.encode())


def remove_server(path: Path, content: bytes, name: str) -> bytes:
    """Returns the file without the table or the member of a server.

    Raises:
        ConfigurationError: as of `add_server`.
    """
    editor, text, keys = editor_for(path), decode(content), [servers_key(path, content)]
    edited = editor.edit_members(text, keys, {name: []})
    document = editor.parse(text)
    kept = {other: value for other, value in members_at(document, keys).items() if other != name}
    check_edit(editor, edited, with_members(document, keys, kept))
    return bytes(edited.encode())


def switch_off_server(content: bytes, name: str) -> bytes:
    """Returns a gateway's TOML in which a server of an included file is switched off.

    Raises:
        ConfigurationError: as of `add_server`.
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
