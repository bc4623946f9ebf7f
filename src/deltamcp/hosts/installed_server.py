"""The entry of one server of the user's own in a host's file, beside the gateway's: how it is written and removed."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from deltamcp.errors import ConfigurationError
from deltamcp.hosts.files import MAX_FILE_BYTES, find_server_maps
from deltamcp.hosts.host_entry import make_entry
from deltamcp.hosts.hosts import HOST_FILES, HostFile, Machine, host_id, is_project_file
from deltamcp.hosts.installation import check_edit, decode, editor_for, members_at, with_members
from deltamcp.runtime.own_files import read_own_file, replace_own_file, user_folder

_GENERAL_NAMES = frozenset({"server", "main", "app", "mcp", "mcp_server", "operations", "__main__"})
"""Names of files that say nothing of the server; that of the folder does."""


class InstalledServer(Struct, frozen=True):
    """A server that `install HOST FILE` has put into a host's file."""

    host: str
    path: Path
    """The host's file."""
    keys: tuple[str, ...]
    """The names that lead to the object with the entry."""
    name: str
    file: Path
    """What the server is in."""
    project: Path | None = None
    """The folder of the project that the host's file belongs to; None for a file of the user."""


def name_server(file: Path) -> str:
    """Returns the name of a server for its hosts: that of its file, or of the folder where the file's says nothing."""
    return file.resolve().parent.name or file.stem if file.stem in _GENERAL_NAMES else file.stem


def choose_host_file(host: str, machine: Machine, is_project: bool) -> tuple[HostFile, Path]:
    """Returns the file of a host to write to: the first that exists, or the first that the host would read.

    Raises:
        ConfigurationError: the host reads no such file.
    """
    candidates = [
        host_file
        for host_file in HOST_FILES
        if host_id(host_file.host) == host
        and is_project_file(host_file) == is_project
        and host_file.system in ("", machine.system)
    ]
    for host_file in candidates:
        for path in machine.existing_files(host_file):
            return host_file, path
    for host_file in candidates:
        path = machine.path_of(host_file)
        if "*" not in str(path):
            return host_file, path
    kind = "file of a project; leave out --project" if is_project else "file for all projects; say --project"
    raise ConfigurationError(f"{host} has no {kind}.")


def make_own_entry(host: str, words: Sequence[str], variables: Mapping[str, str]) -> dict[str, Any]:
    """Returns the entry by which a host starts a server, in the shape that the host reads."""
    entry = make_entry(host, words, [])
    if variables:
        entry["environment" if host == "OpenCode" else "env"] = dict(variables)
    return entry


def find_keys(host_file: HostFile, path: Path, content: bytes | None) -> tuple[str, ...]:
    """Returns the names that lead to the servers for all projects in a host's file, also where they are missing yet."""
    document = editor_for(path).parse(decode(content)) if content else {}
    for key in host_file.key.split():
        for found in find_server_maps(document, key):
            if not found.project:
                return found.keys
    return tuple(host_file.key.split()[0].split("."))


def write_entry(server: InstalledServer, entry: dict[str, Any], content: bytes | None, is_known: bool) -> bytes:
    """Returns the host's file with an entry.

    Args:
        is_known: whether an earlier `install` wrote the entry of this name, so that it may be replaced.

    Raises:
        ConfigurationError: another server has this name, or the file cannot be edited; the text is the end of a
            sentence.
    """
    editor = editor_for(server.path)
    text = decode(content or b"")
    if not text.strip() and editor.__name__.endswith("jsonc_edit"):
        text = "{}\n"
    document = editor.parse(text)
    servers = members_at(document, server.keys)
    if server.name in servers and not is_known:
        raise ConfigurationError(f"it has a server {server.name!r} already; give this one another --name")
    member = editor.make_member(server.name, entry, text, server.keys)
    is_there = server.name in servers
    text = editor.edit_members(
        text, server.keys, {server.name: [member]} if is_there else {}, [] if is_there else [member]
    )
    check_edit(editor, text, with_members(document, server.keys, {**servers, server.name: entry}))
    return str(text).encode()


def remove_entry(server: InstalledServer, content: bytes) -> bytes:
    """Returns the host's file without an entry.

    Raises:
        ConfigurationError: the file cannot be edited; the text is the end of a sentence.
    """
    editor = editor_for(server.path)
    text = decode(content)
    document = editor.parse(text)
    servers = members_at(document, server.keys)
    if server.name not in servers:
        return content
    text = editor.edit_members(text, server.keys, {server.name: []})
    kept = {name: value for name, value in servers.items() if name != server.name}
    check_edit(editor, text, with_members(document, server.keys, kept))
    return str(text).encode()


class InstalledServerStore:
    """The servers of this user's own that hosts have entries of."""

    def __init__(self) -> None:
        """
        Raises:
            ConfigurationError: the user has no home.
        """
        self._path = user_folder("state") / "own-servers.json"

    def list_all(self) -> list[InstalledServer]:
        """
        Raises:
            ConfigurationError: the record cannot be read; the text says what to do.
        """
        record = read_own_file(self._path, MAX_FILE_BYTES)
        if record is None:
            return []
        try:
            return msgspec.json.decode(record, type=list[InstalledServer], dec_hook=lambda kind, text: kind(text))
        except (msgspec.DecodeError, TypeError) as error:
            raise ConfigurationError(
                f"{self._path} cannot be read ({error}); move it away to go on without it."
            ) from None

    def names_in(self, path: Path) -> set[str]:
        """Returns the names of the own servers in a host's file."""
        return {server.name for server in self.list_all() if server.path == path}

    def save(self, server: InstalledServer) -> None:
        """
        Raises:
            OSError: the folder cannot be written to.
        """
        self._write([*self._others(server), server])

    def delete(self, server: InstalledServer) -> None:
        """
        Raises:
            OSError: the folder cannot be written to.
        """
        self._write(self._others(server))

    def _others(self, server: InstalledServer) -> list[InstalledServer]:
        return [one for one in self.list_all() if (one.path, one.name) != (server.path, server.name)]

    def _write(self, servers: list[InstalledServer]) -> None:
        replace_own_file(self._path, msgspec.json.encode(servers, enc_hook=str))
