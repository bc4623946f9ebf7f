"""The entries and files that `install` has written for a host: how that is kept, and how it is undone.

Of the gateway there is an `Installation` for each host's file, of a server of the user's own an `InstalledServer`.
"""

import hashlib
import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, TypeVar

import msgspec
from msgspec import Struct

from deltamcp.errors import ConfigurationError
from deltamcp.hosts import jsonc_edit, toml_edit
from deltamcp.hosts.files import MAX_FILE_BYTES, find_server_maps, normalize_entry
from deltamcp.hosts.host_entry import make_entry, starts_gateway
from deltamcp.hosts.hosts import HOST_FILES, HostFile, Machine, host_id, is_project_file
from deltamcp.runtime.files import read_own_file, replace_own_file, user_folder
from deltamcp.values import JSON

_Record = TypeVar("_Record")


def check_edit(editor: ModuleType, text: str, expected: JSON) -> None:
    """Makes sure of an edit before it is written.

    Raises:
        ConfigurationError: the text does not have the expected value.
    """
    parsed = editor.parse(text)
    if without_empty(parsed) != without_empty(expected):
        raise ConfigurationError("it is written in a way that cannot be edited safely; nothing was changed")


def without_empty(node: JSON) -> JSON:
    """Returns a value without empty objects in it: TOML has no place for a table whose tables are all gone."""
    if not isinstance(node, dict):
        return node
    members = {name: without_empty(value) for name, value in node.items()}
    return {name: value for name, value in members.items() if value != {}}


def editor_for(path: Path) -> ModuleType:
    return toml_edit if path.suffix == ".toml" else jsonc_edit


def decode(content: bytes) -> str:
    """
    Raises:
        ConfigurationError: the content is not UTF-8.
    """
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise ConfigurationError("it is not written in UTF-8") from None


def digest_of(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def members_at(node: JSON, keys: Sequence[str]) -> dict[str, JSON]:
    """Returns the object that names lead to; an empty one if there is none."""
    for key in keys:
        node = node.get(key) if isinstance(node, dict) else None
    return node if isinstance(node, dict) else {}


def with_members(node: JSON, keys: Sequence[str], members: Mapping[str, JSON]) -> JSON:
    """Returns a value in which the object that names lead to has these members."""
    if not keys:
        return dict(members)
    outer = node if isinstance(node, dict) else {}
    return {**outer, keys[0]: with_members(outer.get(keys[0]), keys[1:], members)}


def put_member(path: Path, content: bytes, keys: Sequence[str], name: str, value: JSON) -> bytes:
    """Returns a file in which an object has a member, in place of the one of this name if there is one.

    Args:
        keys: the names that lead to the object.

    Raises:
        ConfigurationError: the file cannot be edited; the text is the end of a sentence.
    """
    editor, text = editor_for(path), decode(content)
    document = editor.parse(text)
    members = members_at(document, keys)
    written = [editor.make_member(name, value, text, keys)]
    edited = editor.edit_members(text, keys, *(({name: written}, []) if name in members else ({}, written)))
    check_edit(editor, edited, with_members(document, keys, {**members, name: value}))
    return str(edited).encode()


def remove_member(path: Path, content: bytes, keys: Sequence[str], name: str) -> bytes:
    """Returns a file in which an object has no member of a name.

    Raises:
        ConfigurationError: as of `put_member`.
    """
    editor, text = editor_for(path), decode(content)
    document = editor.parse(text)
    members = members_at(document, keys)
    if name not in members:
        return content
    edited = editor.edit_members(text, keys, {name: []})
    kept = {other: value for other, value in members.items() if other != name}
    check_edit(editor, edited, with_members(document, keys, kept))
    return str(edited).encode()


def write_host_file(path: Path, content: bytes, expected: bytes | None) -> None:
    """Replaces a host's file at once; keeps its mode, its owner, and the links to it.

    Args:
        expected: what the file must still contain; None if it must not be there.

    Raises:
        ConfigurationError: another program changed the file meanwhile, or it cannot be written.
    """
    target = Path(os.path.realpath(path))
    try:
        present = target.read_bytes() if target.exists() else None
        if present != expected:
            raise ConfigurationError(f"{path} was changed meanwhile; nothing was written. Run the command again.")
        if present is not None and not os.access(target, os.W_OK):
            raise ConfigurationError(f"{path} may not be written; nothing was changed.")
        target.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            if present is not None:
                _copy_owner(target, Path(name))
                shutil.copymode(target, name)
            Path(name).replace(target)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be written: {error.strerror}.") from None


def _copy_owner(source: Path, target: Path) -> None:
    if os.name == "posix":
        with suppress(PermissionError):  # only root may give files away
            status = source.stat()
            os.chown(target, status.st_uid, status.st_gid)


# The gateway


class MovedServers(Struct, frozen=True):
    """The servers of one object of a host's file that run behind one gateway now."""

    keys: tuple[str, ...]
    """The names that lead to the object."""
    entry: str
    """The name of the gateway's entry in the object."""
    stem: str
    """The name, without suffix, of the gateway's files."""
    names: tuple[str, ...]


class Installation(Struct, frozen=True):
    """The gateways that `install` has put into a host's file. The file as it was before is kept beside this."""

    host: str
    path: Path
    project: Path | None
    """The folder of the project that the file belongs to; None for a file of the user."""
    digest: str
    """The digest of the file after the change."""
    moved: tuple[MovedServers, ...]
    files: dict[str, str] = {}
    """The digests of the gateways' files, as they were written, by name."""


class Undone(NamedTuple):
    content: bytes
    taken: tuple[str, ...] = ()
    """The names of servers that do not come back, because the file has others of these names now."""


def undo(installation: Installation, content: bytes | None, original: bytes) -> Undone:
    """Returns the file as it was before, with all that others have changed in it since.

    Args:
        content: the file as it is; None if it is not there.

    Raises:
        ConfigurationError: the file cannot be edited; the text is the end of a sentence.
    """
    if content is None or digest_of(content) == installation.digest or content == original:
        return Undone(original)
    editor = editor_for(installation.path)
    text, written = decode(content), decode(original)
    expected, taken = editor.parse(text), []
    for moved in installation.moved:
        servers = members_at(expected, moved.keys)
        texts, values = editor.member_texts(written, moved.keys), members_at(editor.parse(written), moved.keys)
        free = [name for name in moved.names if name not in servers and name in texts]
        taken += [name for name in moved.names if name in servers]
        has_entry = is_ours(servers.get(moved.entry))
        returned = [texts[name] for name in free]
        if has_entry or returned:
            text = editor.edit_members(
                text, moved.keys, {moved.entry: returned} if has_entry else {}, [] if has_entry else returned
            )
            kept = {name: value for name, value in servers.items() if not (has_entry and name == moved.entry)}
            expected = with_members(expected, moved.keys, kept | {name: values[name] for name in free})
    check_edit(editor, text, expected)
    return Undone(text.encode(), tuple(taken))


def is_ours(entry: JSON) -> bool:
    """Whether an entry of a host's file starts the gateway."""
    try:
        return entry is not None and starts_gateway(normalize_entry(entry))
    except ConfigurationError:
        return False


class InstallationStore:
    """The installations of this user, a record and a backup for each file of a host."""

    def __init__(self) -> None:
        """
        Raises:
            ConfigurationError: the user has no home.
        """
        self._folder = user_folder("state") / "install"

    def load(self, host: str, path: Path) -> tuple[Installation, bytes] | None:
        """Returns the installation in a file of a host, and the file as it was before; None if there is none.

        Raises:
            ConfigurationError: the record cannot be read; the text says what to do.
        """
        return self._read(self._record_path(host, path))

    def list_all(self) -> list[tuple[Installation, bytes]]:
        """
        Raises:
            ConfigurationError: as in `load`.
        """
        found = [self._read(path) for path in sorted(self._folder.glob("*.json"))]
        return [one for one in found if one is not None]

    def save(self, installation: Installation, original: bytes) -> None:
        """
        Raises:
            OSError: the folder cannot be written to.
        """
        path = self._record_path(installation.host, installation.path)
        replace_own_file(path.with_suffix(".backup"), original)
        replace_own_file(path, msgspec.json.encode(installation, enc_hook=str))

    def delete(self, installation: Installation) -> None:
        path = self._record_path(installation.host, installation.path)
        path.unlink(missing_ok=True)
        path.with_suffix(".backup").unlink(missing_ok=True)

    def backup_path(self, installation: Installation) -> Path:
        return self._record_path(installation.host, installation.path).with_suffix(".backup")

    def _record_path(self, host: str, path: Path) -> Path:
        place = hashlib.sha256(str(path.absolute()).encode()).hexdigest()[:12]
        return self._folder / f"{host_id(host)}-{place}.json"

    def _read(self, path: Path) -> tuple[Installation, bytes] | None:
        installation = _read_record(path, Installation)
        if installation is None:
            return None
        original = read_own_file(path.with_suffix(".backup"), MAX_FILE_BYTES)
        if original is None:
            raise ConfigurationError(f"{path.with_suffix('.backup')} is missing; move {path} away to go on without it.")
        return installation, original


def _read_record(path: Path, kind: type[_Record]) -> _Record | None:
    """
    Raises:
        ConfigurationError: there is a record that cannot be read; the text says what to do.
    """
    record = read_own_file(path, MAX_FILE_BYTES)
    if record is None:
        return None
    try:
        return msgspec.json.decode(record, type=kind, dec_hook=lambda kind, text: kind(text))
    except (msgspec.DecodeError, TypeError) as error:
        raise ConfigurationError(f"{path} cannot be read ({error}); move it away to go on without it.") from None


# Servers of the user's own


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
    if not (content or b"").strip() and editor_for(server.path) is jsonc_edit:
        content = b"{}\n"
    content = content or b""
    if server.name in members_at(editor_for(server.path).parse(decode(content)), server.keys) and not is_known:
        raise ConfigurationError(f"it has a server {server.name!r} already; give this one another --name")
    return put_member(server.path, content, server.keys, server.name, entry)


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
        return _read_record(self._path, list[InstalledServer]) or []

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
