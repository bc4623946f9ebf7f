"""Plans of `install` for every file of every host on every system, and for entries that only a host understands."""

import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import tomlkit
from hypothesis import given
from hypothesis import strategies as st

from deltamcp.errors import ConfigurationError
from deltamcp.hosts import files
from deltamcp.hosts.files import VariableExpander, normalize_entry
from deltamcp.hosts.host_entry import find_program, make_entry, starts_gateway
from deltamcp.hosts.hosts import HOST_FILES, HostFile, Machine, host_id
from deltamcp.hosts.install_plan import InstallPlanner, ServerChoice, host_files
from deltamcp.hosts.installation import decode, editor_for, undo
from deltamcp.hosts.movable_servers import (
    Restrictions,
    may_need_login,
    read_restrictions,
    reason_to_stay,
)

ENTRY = {"command": "npx", "args": ["-y", "thing"], "env": {"KEY": "value"}}


class Folders(NamedTuple):
    home: Path
    cwd: Path

    def machine(self, system: str = "linux", **environment: str) -> Machine:
        return Machine(self.home, self.cwd, system, environment)


@pytest.fixture
def folders(tmp_path, monkeypatch):
    """A home and a project; our own files go to another folder."""
    for name in ("XDG_CONFIG_HOME", "XDG_STATE_HOME"):
        monkeypatch.setenv(name, str(tmp_path / "ours"))
    (tmp_path / "home").mkdir()
    (tmp_path / "project").mkdir()
    return Folders(tmp_path / "home", tmp_path / "project")


def write(host_file: HostFile, machine: Machine, entries: dict[str, Any]) -> Path:
    """Writes a host's file with servers under each of its keys."""
    root, _, name = host_file.template.partition("/")
    path = machine._base_folders[root.strip("{}")] / name.replace("*", "any")
    document: dict[str, Any] = {}
    for key in host_file.key.split():
        node = document
        for part in key.split("."):
            node = node.setdefault(str(machine.cwd) if part == "*" else part, {})
        node.update(entries)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(tomlkit.dumps(document) if path.suffix == ".toml" else json.dumps(document, indent=2))
    return path


@pytest.mark.parametrize(
    ("system", "host_file"),
    [
        pytest.param(system, host_file, id=f"{system} {host_file.host} {host_file.template}")
        for system in ("linux", "darwin", "win32")
        for host_file in HOST_FILES
        if host_file.system in ("", system)
    ],
)
def test_every_file_of_every_host_gets_an_entry_that_it_can_read(system, host_file, folders):
    machine = folders.machine(system)
    path = write(host_file, machine, {"one": ENTRY, "two": {"url": "https://x.example/mcp"}})
    is_project = host_file.template.startswith("{cwd}")
    assert (host_file, path) in host_files(host_id(host_file.host), machine, is_project)
    content = path.read_bytes()
    plan = InstallPlanner(host_file, path, machine, ServerChoice()).plan(content, None)
    assert [moved.names for moved in plan.installation.moved] == [("one", "two")] * len(host_file.key.split())
    path.write_bytes(plan.after)
    found = files.find_servers(folders.home, folders.cwd, system, {}, trusted=True)
    assert len(found) == len(host_file.key.split())
    for server in found:
        assert server.name.startswith("delta-mcp")
        assert server.skip_reason is None and starts_gateway(server.entry)
        assert Path(server.entry["args"][-1]) in plan.files
    assert undo(plan.installation, plan.after, plan.original).content == content


def test_the_entry_starts_this_program_from_anywhere():
    (program,) = find_program()
    assert Path(program).is_absolute() and Path(program).is_file()


def test_a_program_that_uvx_runs_from_its_cache_is_started_by_uvx(monkeypatch):
    monkeypatch.setattr("sys.prefix", "/home/ada/.cache/uv/archive-v0/Xy1")
    monkeypatch.setattr("shutil.which", {"uvx": "/home/ada/.local/bin/uvx"}.get)
    assert find_program() == ["/home/ada/.local/bin/uvx", "delta-mcp"]
    entry = make_entry("Cursor", [*find_program(), "gateway", "/x.toml"], [])
    assert starts_gateway(normalize_entry(entry))


@pytest.mark.parametrize("host", sorted({host_file.host for host_file in HOST_FILES}))
def test_every_hosts_entry_is_one_that_our_own_reader_understands(host):
    entry = make_entry(host, ["/bin/delta-mcp", "gateway", "/x.toml"], [])
    assert starts_gateway(normalize_entry(entry))
    assert reason_to_stay(entry) == "it is a gateway itself"


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        ({"command": "x"}, None),
        ({"type": "stdio", "command": "x", "env": {"A": "${A:-b}", "B": "${env:B}", "C": "$C"}}, None),
        ({"type": "http", "url": "https://x.example"}, None),
        ({"httpUrl": "https://x.example"}, None),
        ({"command": "x", "args": ["${userHome}/y", "${/}"]}, None),
        ("x", "it is not an object"),
        ({}, "it has neither a command nor a url"),
        ({"source": "extension", "settings": {}}, "it has neither a command nor a url"),
        ({"command": "x", "disabled": True}, "it is switched off there"),
        ({"command": "x", "enabled": False}, "it is switched off there"),
        ({"command": "x", "envFile": ".env"}, "it reads variables from an envFile, which only its host does"),
        (
            {"command": "x", "env": {"K": "${input:k}"}},
            "it needs the input k, which its host asks for (`delta-mcp secret set k` stores it for us)",
        ),
        ({"command": "x", "cwd": "${workspaceFolder}"}, "it refers to ${workspaceFolder}, which only its host knows"),
        ({"type": "ws", "url": "wss://x.example"}, "only its host knows its type 'ws'"),
        ({"type": "sdk", "url": "x", "name": "y"}, "only its host knows its type 'sdk'"),
        ({"url": "https://x.example", "oauth": {"clientId": "x"}}, "its host logs in to it"),
        ({"url": "https://x.example", "headersHelper": "x.sh"}, "its host runs a program for its headers"),
        ({"command": "x", "sandboxEnabled": True}, "its host runs it in a sandbox"),
        ({"command": "/usr/bin/delta-mcp", "args": ["gateway", "x"]}, "it is a gateway itself"),
    ],
)
def test_a_server_that_needs_its_host_stays(entry, reason):
    assert reason_to_stay(entry) == reason


def test_a_server_whose_input_is_in_the_keyring_moves(monkeypatch):
    monkeypatch.setattr("deltamcp.hosts.movable_servers.load_secret", {"k": "v"}.get)
    assert reason_to_stay({"command": "x", "env": {"K": "${input:k}"}}) is None
    assert reason_to_stay({"command": "x", "env": {"K": "${input:other}"}}) is not None


def test_the_tools_that_an_entry_names_are_its_restrictions():
    assert read_restrictions({"includeTools": ["a"], "excludeTools": ["b"]}) == Restrictions(("a",), ("b",))
    assert read_restrictions({"enabled_tools": ["a"], "disabled_tools": ["b"]}) == Restrictions(("a",), ("b",))
    assert read_restrictions({"tools": ["*"]}) == Restrictions()
    assert read_restrictions({"tools": {"x": {"approval_mode": "approve"}}}) == Restrictions()


@pytest.mark.parametrize(
    ("entry", "may_need"),
    [
        ({"command": "x"}, False),
        ({"url": "https://x.example"}, True),
        ({"url": "https://x.example", "headers": {"authorization": "Bearer x"}}, False),
        ({"url": "https://x.example", "bearer_token_env_var": "X"}, False),
    ],
)
def test_an_address_without_a_key_may_need_a_login(entry, may_need):
    assert may_need_login(entry) == may_need


@pytest.mark.parametrize(("text", "server"), [('{"mcpServers": {"a": {"command": "x"}, "a": {"command": "y"}}}', "a")])
def test_a_server_that_is_there_twice_stays(text, server, folders):
    host_file = next(one for one in HOST_FILES if one.host == "Cursor")
    path = folders.home / ".cursor" / "mcp.json"
    plan = InstallPlanner(host_file, path, folders.machine(), ServerChoice()).plan(text.encode(), None)
    assert plan.after == text.encode()
    assert [(one.name, one.reason) for one in plan.staying] == [(server, "it is there twice")]


def test_tables_without_headers_stay(folders):
    host_file = next(one for one in HOST_FILES if one.host == "Codex")
    text = 'mcp_servers.a.command = "x"\n[mcp_servers.b]\ncommand = "y"\n[mcp_servers.c]\n'
    path = folders.home / ".codex" / "config.toml"
    plan = InstallPlanner(host_file, path, folders.machine(), ServerChoice()).plan(text.encode(), None)
    assert {one.name: one.reason.partition(";")[0] for one in plan.staying} == {
        "a": "it is written inline",
        "c": "it has neither a command nor a url",
    }
    assert decode(plan.after).startswith('mcp_servers.a.command = "x"\n[mcp_servers.delta-mcp]\n')


names = st.text("abc -.\"'é", min_size=1, max_size=5)
entries = st.fixed_dictionaries(
    {"command": st.text('xy/ "', min_size=1, max_size=4)},
    optional={
        "args": st.lists(st.text(max_size=4), max_size=2),
        "env": st.dictionaries(st.text("AB", min_size=1, max_size=3), st.text(max_size=4), max_size=2),
        "disabled": st.booleans(),
        "x-unknown": st.lists(st.integers(-9, 9), max_size=2),
    },
)


@given(st.dictionaries(names, entries, max_size=5), st.sampled_from([".json", ".toml"]), st.data())
def test_undo_gives_the_value_back_whatever_others_changed(servers, suffix, data):
    key = "mcp_servers" if suffix == ".toml" else "mcpServers"
    document = {"before": 1, key: servers}
    text = (
        tomlkit.dumps(document)
        if suffix == ".toml"
        else json.dumps(document, indent=data.draw(st.sampled_from([None, 2])))
    )
    path = Path(f"/nowhere/file{suffix}")
    machine = Machine(Path("/nowhere"), Path("/nowhere"), "linux", {})
    planner = InstallPlanner(HostFile("Cursor", "", "{home}/x", key), path, machine, ServerChoice())
    content = text.encode()
    plan = planner.plan(content, None)
    assert undo(plan.installation, plan.after, plan.original).content == content
    again = planner.plan(plan.after, (plan.installation, plan.original))
    assert again.after == plan.after and again.original == content

    editor = editor_for(path)
    new = editor.make_member("new server", {"command": "n"}, decode(plan.after), [key])
    changed = editor.edit_members(decode(plan.after), [key], {}, [new]).encode()
    undone = undo(plan.installation, changed, plan.original)
    assert editor.parse(decode(undone.content)) == {**document, key: {**servers, "new server": {"command": "n"}}}
    taken_in = planner.plan(changed, (plan.installation, plan.original))
    assert {name for moved in taken_in.installation.moved for name in moved.names} == {
        *(name for name, entry in servers.items() if not entry.get("disabled")),
        "new server",
    }


@pytest.mark.parametrize("name", ["a", "B c"])
def test_the_moved_servers_are_read_as_the_host_reads_them(name, folders):
    machine = folders.machine(HOME=str(folders.home))
    host_file = next(one for one in HOST_FILES if one.host == "Gemini CLI")
    raw = {"command": "x", "env": {"A": "$HOME"}, "timeout": 5, "unknown": True}
    path = write(host_file, machine, {name: raw})
    plan = InstallPlanner(host_file, path, machine, ServerChoice()).plan(path.read_bytes(), None)
    written = next(content for file, content in plan.files.items() if file.suffix == ".json")
    assert json.loads(written) == {"mcpServers": {name: raw}}
    expander = VariableExpander(machine, machine.cwd)
    assert expander.expand(normalize_entry(raw))["env"] == {"A": str(folders.home)}


def test_an_edit_that_does_not_give_the_expected_value_is_refused(folders, monkeypatch):
    host_file = next(one for one in HOST_FILES if one.host == "Cursor")
    path = folders.home / ".cursor" / "mcp.json"
    monkeypatch.setattr("deltamcp.hosts.jsonc_edit.edit_members", lambda text, *_: text)
    planner = InstallPlanner(host_file, path, folders.machine(), ServerChoice())
    with pytest.raises(ConfigurationError, match="cannot be edited safely"):
        planner.plan(b'{"mcpServers": {"a": {"command": "x"}}}', None)
