"""Plans how the servers of a host's file move behind the gateway: the host's new file, and the gateway's own."""

import hashlib
import json
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from msgspec import Struct

from deltamcp.errors import ConfigurationError
from deltamcp.hosts import jsonc_edit
from deltamcp.hosts.files import ServerMap, VariableExpander, find_server_maps, parse_server
from deltamcp.hosts.gateway_file import gateway_path, make_files, read_file, servers_path
from deltamcp.hosts.host_entry import find_program, make_entry
from deltamcp.hosts.hosts import (
    HOST_FILES,
    HostFile,
    Machine,
    host_id,
    is_project_file,
)
from deltamcp.hosts.installation import (
    Installation,
    MovedServers,
    check_edit,
    decode,
    digest_of,
    editor_for,
    is_ours,
    members_at,
    undo,
    with_members,
    without_empty,
)
from deltamcp.hosts.movable_servers import (
    PermissionRule,
    Restrictions,
    approval_keys,
    denied_tools,
    find_rules,
    may_need_login,
    missing_program,
    read_restrictions,
    reason_to_stay,
)
from deltamcp.values import JSON

ENTRY_NAME, PROJECT_ENTRY_NAME, LOCAL_ENTRY_NAME = "delta-mcp", "delta-mcp-project", "delta-mcp-local"
"""The names of the gateway's entry in a user's file, in a project's, and among the user's entries for a project: a host
that knows one name twice would use one of the two."""
_ALL_DENIED = "your permission rules deny all its tools"
_INLINE = "it is written inline; give it a table of its own, as [mcp_servers.NAME]"
_TWICE = "it is there twice"
_NOT_CHOSEN = "you left it out"


class StayingServer(NamedTuple):
    name: str
    reason: str
    """The end of a sentence."""


class ServerChoice(NamedTuple):
    """The servers that the user wants to move."""

    only: Collection[str] = ()
    """Empty for all."""
    without: Collection[str] = ()
    has_own_process: bool = False
    """Whether the user says that each conversation of the host starts a gateway of its own."""
    own: Collection[str] = ()
    """Servers that `install HOST FILE` put there, to be beside the gateway."""


class InstallPlan(Struct, frozen=True):
    """What `install` is going to do to one file of a host."""

    before: bytes
    after: bytes
    original: bytes
    """The file without any gateway of ours, which `uninstall` restores."""
    installation: Installation
    files: dict[Path, bytes]
    """The gateways' files, whole."""
    obsolete: tuple[Path, ...]
    """Files of gateways that the plan does without."""
    staying: tuple[StayingServer, ...]
    rules: tuple[PermissionRule, ...]
    approvals: dict[str, list[str]]
    """By server, the keys of its entry by which the host ran calls unasked."""
    logins: tuple[str, ...]
    """The servers with an address that the host may have logged in to."""
    broken: dict[str, str]
    """By server, why it cannot be started here, as the end of a sentence; the host cannot have started it, either."""
    is_change: bool


class InstallPlanner:
    """Plans for one file of a host."""

    def __init__(self, host_file: HostFile, path: Path, machine: Machine, choice: ServerChoice) -> None:
        self._host_file = host_file
        self._path = path
        self._machine = machine
        self._choice = choice
        self._editor = editor_for(path)

    def plan(self, content: bytes, installed: tuple[Installation, bytes] | None) -> InstallPlan:
        """
        Args:
            content: the host's file as it is.
            installed: what an earlier `install` has changed, and the file as it was before.

        Raises:
            ConfigurationError: the file cannot be edited; the text is the end of a sentence.
        """
        original, taken = (content, ()) if installed is None else undo(installed[0], content, installed[1])
        earlier = {moved.keys: moved for moved in installed[0].moved} if installed else {}
        text = decode(original)
        document = expected = self._editor.parse(text)
        current = self._editor.parse(decode(content))
        maps = [found for key in self._host_file.key.split() for found in find_server_maps(document, key)]
        names = [name for found in maps for name in found.servers]
        rules = find_rules(self._host_file.host, self._machine, document, self._path, dict.fromkeys(names))
        moved_maps: list[MovedServers] = []
        staying: list[StayingServer] = []
        files: dict[Path, bytes] = {}
        entries: dict[str, dict[str, Any]] = {}
        for found in maps:
            movable, stays = self._split(text, found, rules, found.keys in earlier)
            staying += stays
            if not movable:
                continue
            moved = MovedServers(found.keys, self._entry_name(found), self._stem(found), tuple(movable))
            if moved.entry in found.servers:
                raise ConfigurationError(
                    f"it has a server {moved.entry!r} already that install did not write; rename or remove it first"
                )
            texts = self._editor.member_texts(text, found.keys)
            before = earlier.get(found.keys)
            files |= make_files(
                moved,
                before,
                {name: self._json_member(name, found.servers[name], texts[name]) for name in movable},
                {name: _restrict(movable[name], rules, name) for name in movable},
                set(taken),
                f"{host_id(self._host_file.host)}{' --project' if is_project_file(self._host_file) else ''}",
                self._choice.has_own_process,
            )
            entry = self._make_entry(moved, movable, members_at(current, found.keys).get(moved.entry))
            first, *others = movable
            written = self._editor.make_member(moved.entry, entry, text, found.keys)
            text = self._editor.edit_members(text, found.keys, {first: [written], **{name: [] for name in others}})
            kept = {name: value for name, value in found.servers.items() if name not in movable}
            expected = with_members(expected, found.keys, kept | {moved.entry: entry})
            moved_maps.append(moved)
            entries |= movable
        check_edit(self._editor, text, expected)
        after = text.encode()
        if without_empty(self._editor.parse(text)) == without_empty(current):
            after = content  # only blanks differ, if anything
        stems = {moved.stem for moved in moved_maps}
        return InstallPlan(
            before=content,
            after=after,
            original=original,
            installation=Installation(
                host=self._host_file.host,
                path=self._path,
                project=self._machine.cwd if is_project_file(self._host_file) else None,
                digest=digest_of(after),
                moved=tuple(moved_maps),
                files={path.name: digest_of(written) for path, written in files.items()},
            ),
            files=files,
            obsolete=tuple(
                path
                for moved in earlier.values()
                if moved.stem not in stems
                for path in (gateway_path(moved.stem), servers_path(moved.stem))
            ),
            staying=tuple(staying),
            rules=tuple(rule for rule in rules if rule.server in entries),
            approvals={name: keys for name, raw in entries.items() if (keys := approval_keys(raw))},
            logins=tuple(name for name, raw in entries.items() if may_need_login(raw)),
            broken={name: reason for name, raw in entries.items() if (reason := self._fault(name, raw))},
            is_change=after != content or any(read_file(path) != written for path, written in files.items()),
        )

    def _split(
        self, text: str, found: ServerMap, rules: Collection[PermissionRule], was_moved: bool
    ) -> tuple[dict[str, dict[str, Any]], list[StayingServer]]:
        """Returns the servers of an object that move, and the others with the reasons."""
        texts, twice = self._editor.member_texts(text, found.keys), self._editor.repeated_names(text, found.keys)
        movable: dict[str, dict[str, Any]] = {}
        staying: list[StayingServer] = []
        for name, raw in found.servers.items():
            reason = reason_to_stay(raw)
            if found.project and not was_moved and not self._is_current(found.project):
                reason = f"it belongs to the project {found.project}"
            elif reason is None and name in twice:
                reason = _TWICE
            elif reason is None and name not in texts:
                reason = _INLINE
            elif reason is None and "*" in denied_tools(rules, name):
                reason = _ALL_DENIED
            elif reason is None and (
                (self._choice.only and name not in self._choice.only) or name in self._choice.without
            ):
                reason = _NOT_CHOSEN
            elif reason is None and name in self._choice.own and name not in self._choice.only:
                reason = f"install put it there by itself; --only {name} moves it"
            if reason is None:
                assert isinstance(raw, dict), "only objects are entries that can move"
                movable[name] = raw
            else:
                staying.append(StayingServer(name, reason))
        return movable, staying

    def _fault(self, name: str, raw: dict[str, Any]) -> str | None:
        """Returns what a server lacks that can be seen without starting it."""
        expander = VariableExpander(self._machine, self._path.parent)
        server = parse_server(name, self._host_file.host, self._path, raw, expander)
        return server.skip_reason or missing_program(server.entry)

    def _is_current(self, project: str) -> bool:
        try:
            return Path(project).resolve() == self._machine.cwd.resolve()
        except (ValueError, OSError):  # no folder can have this name
            return False

    def _entry_name(self, found: ServerMap) -> str:
        if found.project:
            return LOCAL_ENTRY_NAME
        return PROJECT_ENTRY_NAME if is_project_file(self._host_file) else ENTRY_NAME

    def _stem(self, found: ServerMap) -> str:
        host = host_id(self._host_file.host)
        user_files = [file for file in HOST_FILES if file.host == self._host_file.host and not is_project_file(file)]
        first = next((file for file in user_files if file.system in ("", self._machine.system)), None)
        if self._host_file == first and not found.project:
            return host
        folder = (
            Path(found.project or self._machine.cwd).name if found.project or is_project_file(self._host_file) else ""
        )
        place = hashlib.sha256(json.dumps([str(self._path), *found.keys]).encode()).hexdigest()[:6]
        return "-".join(part for part in (host, _folder_word(folder), place) if part)

    def _json_member(self, name: str, raw: JSON, text: str) -> str:
        """Returns a server's text for the gateway's file, which is JSON: as it is, or made from TOML."""
        if self._editor is jsonc_edit:
            return text
        return f"{json.dumps(name)}: " + "\n    ".join(json.dumps(raw, indent=2, ensure_ascii=False).split("\n"))

    def _make_entry(self, moved: MovedServers, movable: Mapping[str, dict[str, Any]], present: JSON) -> dict[str, Any]:
        """Returns the gateway's entry, with what the user added to it after an earlier `install`."""
        words = [*find_program(), "gateway", str(gateway_path(moved.stem))]
        made = make_entry(self._host_file.host, words, movable.values())
        return {**present, **made} if isinstance(present, dict) and is_ours(present) else made


def _restrict(raw: Mapping[str, JSON], rules: Collection[PermissionRule], name: str) -> Restrictions:
    restrictions = read_restrictions(raw)
    return restrictions._replace(deny=tuple(dict.fromkeys((*restrictions.deny, *denied_tools(rules, name)))))


def _folder_word(folder: str) -> str:
    return "".join(letter if letter.isalnum() and letter.isascii() else "-" for letter in folder).strip("-")[:30]


def host_files(host: str, machine: Machine, is_project: bool) -> Iterator[tuple[HostFile, Path]]:
    """Yields the files of a host, by its id, that exist: those of its user, or those of the current project."""
    for host_file in HOST_FILES:
        if host_id(host_file.host) == host and is_project_file(host_file) == is_project:
            for path in machine.existing_files(host_file):
                yield host_file, path
