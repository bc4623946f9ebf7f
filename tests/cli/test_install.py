"""`delta-mcp install` and `uninstall` on files of nine hosts, in homes of their own."""

import argparse
import json
import os
import re
import stat
import tomllib
from pathlib import Path
from typing import Any

import pytest

from deltamcp.cli.main import main
from deltamcp.client.client import connect
from deltamcp.hosts import files, jsonc_edit
from deltamcp.hosts.installation import editor_for, members_at
from tests.support.command_line import run, run_on_terminal
from tests.support.host_files import CLAUDE_CODE, CODEX, CURSOR, GEMINI_CLI, HOST_SAMPLES, KEY, VSCODE, HostSample
from tests.support.paths import FORKED_PROGRAM

SHELF = """
from deltamcp import DeltaServer
server = DeltaServer("shelf")

@server.tool(annotations={"readOnlyHint": True})
def find_book(title: str) -> str:
    "Finds a book."
    return title
"""
EVERY_HOST = pytest.mark.parametrize("sample", HOST_SAMPLES, ids=lambda sample: sample.host)


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A home with nothing in it; the current directory is a project in it."""
    made = tmp_path / "home"
    (made / "work").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(made))
    for name in ("XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME", "CLAUDE_CONFIG_DIR", "CODEX_HOME", "APPDATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("GEMINI_TEST_KEY", KEY)
    monkeypatch.chdir(made / "work")
    return made


def parse(path: Path) -> Any:
    return tomllib.loads(path.read_text()) if path.suffix == ".toml" else jsonc_edit.parse(path.read_text())


def servers(path: Path, sample: HostSample) -> dict[str, Any]:
    return members_at(parse(path), sample.keys)


def own_files(home: Path) -> list[Path]:
    """Returns what is left of ours in a home, without what gateways keep."""
    folders = (home / ".config/delta-mcp/gateway", home / ".local/state/delta-mcp/install")
    return [path for folder in folders for path in folder.rglob("*")]


# A file that nobody changes


@EVERY_HOST
async def test_the_gateway_runs_from_the_hosts_new_entry_and_uninstall_is_exact(sample, home, capsys):
    path, original = sample.write(home)
    path.chmod(0o640)
    main(["install", sample.host, "--yes"])
    shown = capsys.readouterr().out
    assert KEY not in shown
    for name in sample.staying:
        assert f"Stays where it is: {name}, because " in shown

    entries = servers(path, sample)
    assert {*entries} == {"delta-mcp", *(name for name in sample.staying if name != "theirs")}
    text = path.read_bytes().decode()
    assert all(piece in text for piece in sample.others)
    assert text.count("\r\n") == (text.count("\n") if b"\r\n" in original else 0)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640

    entry = files.find_entry(path, "delta-mcp")
    assert Path(entry["command"]).is_absolute()
    forked = {**entry, "command": str(FORKED_PROGRAM), "env": {**os.environ, **entry["env"]}}
    async with connect(forked, progressive=False) as client:
        assert {"discover", "execute", "query"} <= {tool.name for tool in await client.tools()}
        shown = await client.call("query", operation="shelf.show_key", arguments={})
    assert f"{KEY} in {home / 'work'}" in shown

    main(["uninstall", sample.host, "--yes"])
    assert KEY not in capsys.readouterr().out
    assert path.read_bytes() == original
    assert own_files(home) == []


@EVERY_HOST
def test_a_second_install_changes_nothing(sample, home, capsys):
    path, original = sample.write(home)
    main(["install", sample.host, "--yes"])
    written = {file: file.read_bytes() for file in [path, *own_files(home)] if file.is_file()}
    capsys.readouterr()
    main(["install", sample.host, "--yes"])
    assert "Nothing to change" in capsys.readouterr().out
    assert {file: file.read_bytes() for file in written} == written
    main(["uninstall", sample.host, "--yes"])
    assert path.read_bytes() == original


@EVERY_HOST
def test_a_dry_run_writes_nothing(sample, home, capsys):
    path, original = sample.write(home)
    main(["install", sample.host, "--dry-run"])
    assert "+" in capsys.readouterr().out
    assert path.read_bytes() == original and own_files(home) == []


async def test_a_host_without_the_variables_of_the_shell_starts_the_same(home, monkeypatch):
    path, _ = CURSOR.write(home)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home / "elsewhere"))
    monkeypatch.setenv("XDG_STATE_HOME", str(home / "elsewhere"))
    main(["install", "cursor", "--yes"])
    entry = files.find_entry(path, "delta-mcp")
    assert entry["args"][-1].startswith(str(home / "elsewhere"))
    bare = {"HOME": str(home), "PATH": os.defpath}  # what Claude Desktop hands on
    async with connect({**entry, "env": bare}, progressive=False) as client:
        shown = await client.call("query", operation="shelf.show_key", arguments={})
    assert f"{KEY} in {home / 'work'}" in shown


def test_what_is_kept_of_the_servers_only_their_owner_reads(home):
    CURSOR.write(home)
    main(["install", "cursor", "--yes"])
    assert {stat.S_IMODE(file.stat().st_mode) for file in own_files(home)} == {0o600}
    moved = (home / ".config/delta-mcp/gateway/cursor.json").read_text()
    assert '"args": ["serve"' in moved and "// the local one" in moved
    assert set(jsonc_edit.member_texts(moved, ["mcpServers"])) == {"notes", "shelf"}


# Files that others change between install and uninstall


def as_a_host_writes_it(path: Path, change: dict[str, Any]) -> None:
    """Writes a file anew, as a host does that has changed something in it."""
    path.write_text(json.dumps({**parse(path), **change}, indent=2))


@EVERY_HOST
def test_only_our_entry_is_reversed_in_a_file_that_was_changed(sample, home):
    path, original = sample.write(home)
    before = parse(path)
    main(["install", sample.host, "--yes"])
    if path.suffix == ".toml":
        path.write_text(path.read_text().replace("for now", "for ever") + '\n[history]\npersistence = "none"\n')
        change: dict[str, Any] = {"history": {"persistence": "none"}}
    else:
        change = {"newSetting": ["of the host"]}
        text = path.read_bytes().decode()
        path.write_bytes(jsonc_edit.edit_members(text, [], {}, ['"newSetting": ["of the host"]']).encode())
    main(["uninstall", sample.host, "--yes"])
    assert parse(path) == {**before, **change}
    text = path.read_bytes().decode()
    for name in ("notes", "shelf"):
        assert member_text(path, text, sample, name) == member_text(path, original.decode(), sample, name)
    assert all(piece.replace("for now", "for ever") in text for piece in sample.others)
    assert own_files(home) == []


def member_text(path: Path, text: str, sample: HostSample, name: str) -> str:
    return str(editor_for(path).member_texts(text, sample.keys)[name])


def test_a_host_that_wrote_its_file_anew_gets_the_servers_back(home):
    path, _ = CLAUDE_CODE.write(home)
    before = parse(path)
    main(["install", "claude-code", "--yes"])
    as_a_host_writes_it(path, {"numStartups": 185})
    main(["uninstall", "claude-code", "--yes"])
    assert parse(path) == {**before, "numStartups": 185}


def test_a_host_that_wrote_over_our_change_is_changed_again(home):
    path, original = CLAUDE_CODE.write(home)
    main(["install", "claude-code", "--yes"])
    path.write_text(json.dumps({**json.loads(original), "numStartups": 185}, indent=2))
    before = parse(path)
    main(["install", "claude-code", "--yes"])
    assert {*servers(path, CLAUDE_CODE)} == {"delta-mcp", "linear"}
    moved = json.loads((home / ".config/delta-mcp/gateway/claude-code.json").read_text())
    assert {*moved["mcpServers"]} == {"notes", "shelf"}
    main(["uninstall", "claude-code", "--yes"])
    assert parse(path) == before


def test_servers_that_were_added_since_are_taken_in_and_come_back(home):
    path, _ = CURSOR.write(home)
    main(["install", "cursor", "--yes"])
    text = path.read_text()
    path.write_text(jsonc_edit.edit_members(text, ["mcpServers"], {}, ['"late": {"command": "late" /* ! */}']))
    main(["install", "cursor", "--yes"])
    moved = (home / ".config/delta-mcp/gateway/cursor.json").read_text()
    assert {*jsonc_edit.member_texts(moved, ["mcpServers"])} == {"notes", "shelf", "late"}
    assert {*servers(path, CURSOR)} == {"delta-mcp", "here", "file"}
    main(["uninstall", "cursor", "--yes"])
    assert {*servers(path, CURSOR)} == {"notes", "here", "shelf", "file", "late"}
    assert '"late": {"command": "late" /* ! */}' in path.read_text()


def test_a_name_that_is_taken_now_is_told_and_stays(home, capsys):
    path, _ = CURSOR.write(home)
    main(["install", "cursor", "--yes"])
    path.write_text(jsonc_edit.edit_members(path.read_text(), ["mcpServers"], {}, ['"shelf": {"command": "mine"}']))
    main(["uninstall", "cursor", "--yes"])
    assert "shelf does not come back" in capsys.readouterr().out
    assert servers(path, CURSOR)["shelf"] == {"command": "mine"}
    assert servers(path, CURSOR)["notes"]["args"][0] == "serve"


def test_servers_come_back_after_our_entry_was_removed_by_hand(home):
    path, _ = CURSOR.write(home)
    before = parse(path)
    main(["install", "cursor", "--yes"])
    path.write_text(jsonc_edit.edit_members(path.read_text(), ["mcpServers"], {"delta-mcp": []}))
    main(["uninstall", "cursor", "--yes"])
    assert parse(path) == before


def test_a_file_that_is_gone_comes_back_whole(home):
    path, original = CURSOR.write(home)
    main(["install", "cursor", "--yes"])
    path.unlink()
    main(["uninstall", "cursor", "--yes"])
    assert path.read_bytes() == original


def test_what_the_user_added_to_our_entry_and_to_the_gateways_files_stays(home, capsys):
    path, _ = CURSOR.write(home)
    main(["install", "cursor", "--yes"])
    entry = servers(path, CURSOR)["delta-mcp"]
    text = jsonc_edit.make_member("delta-mcp", {**entry, "env": {"A": "b"}}, path.read_text(), ["mcpServers"])
    path.write_text(jsonc_edit.edit_members(path.read_text(), ["mcpServers"], {"delta-mcp": [text]}))
    toml = home / ".config/delta-mcp/gateway/cursor.toml"
    toml.write_text(toml.read_text() + '\n[servers.notes]\npinned = ["read_note"] # often\n')
    main(["install", "cursor", "--yes"])
    assert servers(path, CURSOR)["delta-mcp"]["env"] == {"A": "b"}
    assert "# often" in toml.read_text()
    toml.write_text(toml.read_text() + "\n# mine\n")
    main(["uninstall", "cursor", "--yes"])
    assert f"{toml} was changed by hand and stays" in capsys.readouterr().out
    assert "# mine" in toml.read_text()


# What moves


def test_servers_can_be_chosen(home, capsys):
    path, original = CURSOR.write(home)
    main(["install", "cursor", "--yes", "--only", "notes"])
    assert {*servers(path, CURSOR)} == {"delta-mcp", "here", "shelf", "file"}
    main(["install", "cursor", "--yes", "--except", "notes"])
    assert {*servers(path, CURSOR)} == {"delta-mcp", "here", "notes", "file"}
    assert "Stays where it is: notes, because you left it out." in capsys.readouterr().out
    main(["uninstall", "cursor", "--yes"])
    assert path.read_bytes() == original


def test_a_name_that_is_wrong_is_told(home, capsys):
    CURSOR.write(home)
    with pytest.raises(SystemExit, match="2"):
        main(["install", "cursor", "--yes", "--only", "note"])
    assert "There is no server 'note'; did you mean notes?" in capsys.readouterr().err


def test_the_entries_of_a_project_in_claude_codes_file_get_a_gateway_of_their_own(home):
    path, original = CLAUDE_CODE.write(home)
    main(["install", "claude-code", "--yes"])
    projects = parse(path)["projects"]
    assert list(projects[str(home / "work")]["mcpServers"]) == ["delta-mcp-local"]
    assert list(projects["/elsewhere/site"]["mcpServers"]) == ["theirs"]
    (local,) = (home / ".config/delta-mcp/gateway").glob("claude-code-work-*.json")
    assert list(json.loads(local.read_text())["mcpServers"]) == ["scratch"]
    main(["uninstall", "claude-code", "--yes"])
    assert path.read_bytes() == original


def test_another_project_is_added_without_losing_the_first(home, monkeypatch):
    path, _ = CLAUDE_CODE.write(home)
    document = json.loads(path.read_text())
    (home / "second").mkdir()
    document["projects"][str(home / "second")] = {"mcpServers": {"own": {"command": "x"}}}
    path.write_text(json.dumps(document, indent=2))
    original = path.read_bytes()
    main(["install", "claude-code", "--yes"])
    monkeypatch.chdir(home / "second")
    main(["install", "claude-code", "--yes"])
    projects = parse(path)["projects"]
    assert [list(projects[str(home / name)]["mcpServers"]) for name in ("work", "second")] == [["delta-mcp-local"]] * 2
    main(["uninstall", "claude-code", "--yes"])
    assert path.read_bytes() == original


def test_a_projects_file_is_changed_only_where_the_user_says_so(home, capsys):
    project = home / "work" / ".mcp.json"
    project.write_text(json.dumps({"mcpServers": {"it": {"command": "x"}}}))
    original = project.read_bytes()
    with pytest.raises(SystemExit):
        main(["install", "claude-code", "--yes"])
    assert "say --project" in capsys.readouterr().err
    main(["install", "claude-code", "--yes", "--project"])
    assert "do not commit it" in capsys.readouterr().out
    assert list(parse(project)["mcpServers"]) == ["delta-mcp-project"]
    with pytest.raises(SystemExit):
        main(["uninstall", "claude-code", "--yes"])
    main(["uninstall", "claude-code", "--yes", "--project"])
    assert project.read_bytes() == original


def test_variables_are_handed_on_where_the_host_gives_a_server_only_those_it_names(home):
    path, _ = GEMINI_CLI.write(home)
    main(["install", "gemini-cli", "--yes"])
    assert servers(path, GEMINI_CLI)["delta-mcp"]["env"] == {"GEMINI_TEST_KEY": "$GEMINI_TEST_KEY"}
    codex, _ = CODEX.write(home)
    codex.write_text(
        codex.read_text() + '\n[mcp_servers.web]\nurl = "https://x.example"\nbearer_token_env_var = "WEB"\n'
    )
    main(["install", "codex", "--yes"])
    entry = servers(codex, CODEX)["delta-mcp"]
    assert (entry["env_vars"], entry["tool_timeout_sec"]) == (["WEB"], 600)


def test_tools_that_an_entry_switches_off_stay_off(home):
    GEMINI_CLI.write(home)
    main(["install", "gemini-cli", "--yes"])
    toml = tomllib.loads((home / ".config/delta-mcp/gateway/gemini-cli.toml").read_text())
    assert toml == {"include": "gemini-cli.json", "servers": {"notes": {"deny": ["delete_note"]}}}


# Permission rules


async def test_what_a_rule_denies_the_gateway_denies(home, capsys):
    path, _ = CLAUDE_CODE.write(home)
    settings = home / ".claude" / "settings.json"
    settings.parent.mkdir()
    rules = {
        "deny": ["mcp__notes__delete_note", "Bash(rm:*)"],
        "ask": ["mcp__shelf"],
        "allow": ["mcp__notes__read_note", "mcp__other__x"],
    }
    hooks = {"PreToolUse": [{"matcher": "mcp__notes__.*", "hooks": []}, {"matcher": "Bash", "hooks": []}]}
    settings.write_text(json.dumps({"permissions": rules, "hooks": hooks}))
    main(["install", "claude-code", "--yes"])
    shown = capsys.readouterr().out
    assert f"deny mcp__notes__delete_note ({settings}): the gateway denies it from now on" in shown
    assert f"ask mcp__shelf ({settings}): do not allow mcp__delta-mcp__execute" in shown
    assert f"allow mcp__notes__read_note ({settings}): allow mcp__delta-mcp__query" in shown
    assert f"hook mcp__notes__.* ({settings})" in shown
    assert "mcp__other" not in shown and "Bash" not in shown
    async with connect(files.find_entry(path, "delta-mcp"), progressive=False) as client:
        found = await client.call("discover", category="notes")
    assert "read_note" in found and "delete_note" not in found


def test_rules_of_every_project_count_and_a_server_that_is_denied_whole_stays(home, capsys):
    path, _ = CLAUDE_CODE.write(home)
    settings = home / "work" / ".claude" / "settings.local.json"
    settings.parent.mkdir()
    settings.write_text('{"permissions": {"deny": ["mcp__shelf__*", "mcp__*__delete_*"]}}')
    main(["install", "claude-code", "--yes"])
    assert "Stays where it is: shelf, because your permission rules deny all its tools." in capsys.readouterr().out
    assert "shelf" in servers(path, CLAUDE_CODE)
    toml = tomllib.loads((home / ".config/delta-mcp/gateway/claude-code.toml").read_text())
    assert "delete[_./]*" in toml["servers"]["notes"]["deny"]


def test_a_rule_that_is_written_later_reaches_the_gateway_by_another_install(home):
    CURSOR.write(home)
    main(["install", "cursor", "--yes"])
    toml = home / ".config/delta-mcp/gateway/cursor.toml"
    toml.write_text(toml.read_text() + '\n[servers.notes] # mine\npinned = ["read_note"] # often\ndeny = ["x"]\n')
    (home / ".cursor/cli-config.json").write_text('{"permissions": {"deny": ["Mcp(notes:delete_note)"]}}')
    main(["install", "cursor", "--yes"])
    assert tomllib.loads(toml.read_text())["servers"] == {
        "notes": {"pinned": ["read_note"], "deny": ["x", "delete_note"]}
    }
    assert "[servers.notes] # mine" in toml.read_text() and "# often" in toml.read_text()


def test_rules_of_cursor_are_found(home, capsys):
    CURSOR.write(home)
    (home / ".cursor/cli-config.json").write_text('{"permissions": {"deny": ["Mcp(notes:delete_note)", "Shell(rm)"]}}')
    (home / ".cursor/permissions.json").write_text('{"mcpAllowlist": ["shelf:*"] /* all */}')
    main(["install", "cursor", "--yes"])
    shown = capsys.readouterr().out
    assert "deny Mcp(notes:delete_note)" in shown and "allow shelf:*" in shown
    toml = tomllib.loads((home / ".config/delta-mcp/gateway/cursor.toml").read_text())
    assert toml["servers"] == {"notes": {"deny": ["delete_note"]}}


# What goes wrong


def test_links_to_the_file_stay(home):
    path, original = CURSOR.write(home)
    real = home / "dotfiles.json"
    path.rename(real)
    path.symlink_to(real)
    main(["install", "cursor", "--yes"])
    assert path.is_symlink() and "delta-mcp" in real.read_text()
    main(["uninstall", "cursor", "--yes"])
    assert path.is_symlink() and real.read_bytes() == original


@pytest.mark.parametrize("link", [".cursor", ".cursor/mcp.json"], ids=["folder", "file"])
def test_where_a_link_in_a_project_leads_is_shown_before_and_after(link, home, capsys):
    elsewhere = home / "elsewhere"
    elsewhere.mkdir()
    target = elsewhere / ("mcp.json" if link == ".cursor" else "other.json")
    target.write_text(json.dumps({"mcpServers": {"it": {"command": "x"}}}))
    (home / "work" / link).parent.mkdir(exist_ok=True)
    (home / "work" / link).symlink_to(elsewhere if link == ".cursor" else target)
    path = home / "work" / ".cursor" / "mcp.json"
    for verb, lines in (("install", 2), ("uninstall", 2)):
        main([verb, "cursor", "--project", "--dry-run"])
        assert f"{path}, a link that leads to {target}:" in capsys.readouterr().out
        main([verb, "cursor", "--project", "--yes"])
        assert capsys.readouterr().out.count(f"{path}, a link that leads to {target}") == lines


@pytest.mark.parametrize("content", [b"{ nonsense", b'{"mcpServers": {"a": }}', b"\xff\xfe{\x00}\x00", b"[]"])
def test_a_file_that_cannot_be_read_stays_and_is_told(content, home, capsys):
    path, _ = CURSOR.write(home)
    path.write_bytes(content)
    with pytest.raises(SystemExit, match="2"):
        main(["install", "cursor", "--yes"])
    assert capsys.readouterr().err.startswith("delta-mcp: ")
    assert path.read_bytes() == content and own_files(home) == []


def test_a_server_of_our_name_is_told(home, capsys):
    path, _ = CURSOR.write(home)
    path.write_text('{"mcpServers": {"delta-mcp": {"command": "other"}, "a": {"command": "b"}}}')
    with pytest.raises(SystemExit, match="2"):
        main(["install", "cursor", "--yes"])
    assert "rename or remove it first" in capsys.readouterr().err


def test_a_file_that_changes_while_the_user_reads_is_not_written(home, monkeypatch, capsys):
    path, _ = CURSOR.write(home)

    def change_and_agree(args: argparse.Namespace) -> bool:
        path.write_text("{}")
        return True

    monkeypatch.setattr("deltamcp.cli.verbs.install.agrees_to_write", change_and_agree)
    with pytest.raises(SystemExit, match="2"):
        main(["install", "cursor"])
    assert "was changed meanwhile" in capsys.readouterr().err
    assert path.read_text() == "{}" and own_files(home) == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everything")
def test_a_file_that_may_not_be_written_stays(home, capsys):
    path, _ = CURSOR.write(home)
    path.chmod(0o440)
    with pytest.raises(SystemExit, match="2"):
        main(["install", "cursor", "--yes"])
    assert "may not be written" in capsys.readouterr().err
    assert own_files(home) == []


def test_without_a_terminal_nothing_is_written_unasked(home, capsys):
    path, original = CURSOR.write(home)
    with pytest.raises(SystemExit, match="2"):
        main(["install", "cursor"])
    assert "say --yes" in capsys.readouterr().err
    assert path.read_bytes() == original and own_files(home) == []


@pytest.mark.parametrize(
    ("typed", "is_written"), [(b"y\nn\n", True), (b"yes\n\n", True), (b"n\n", False), (b"\n", False), (b"\x04", False)]
)
def test_the_user_is_asked_at_the_terminal(typed, is_written, home):
    path, original = CURSOR.write(home)
    done = run_on_terminal("install", "cursor", cwd=home / "work", typed=typed, HOME=str(home))
    assert "Write this? [y/N] " in done.text and KEY not in done.text
    assert (path.read_bytes() != original) == is_written


def write_servers(home: Path) -> Path:
    """Writes a file of Cursor with a server that works and two that do not."""
    (home / "shelf.py").write_text(SHELF)
    path = home / ".cursor" / "mcp.json"
    path.parent.mkdir()
    servers = {
        "shelf": {"command": "delta-mcp", "args": ["serve", str(home / "shelf.py")]},
        "gone": {"command": "no-such-program"},
        "unset": {"command": "delta-mcp", "env": {"TOKEN": "${NOT_SET}"}},
    }
    path.write_text(json.dumps({"mcpServers": servers}))
    return path


def test_servers_that_cannot_start_are_named_before_they_move(home):
    write_servers(home)
    done = run("install", "cursor", "--yes", cwd=home / "work", HOME=str(home))
    assert "gone is broken: there is no program no-such-program here.\n" in done.out
    assert "unset is broken: it needs the variable NOT_SET, which is not set.\n" in done.out
    assert "shelf is broken" not in done.out
    assert f"See which servers work: delta-mcp gateway --check {gateway_file(home)}\n" in done.out


def test_the_servers_that_move_are_checked_if_the_user_wants_that(home):
    write_servers(home)
    shown = run_on_terminal("install", "cursor", cwd=home / "work", typed=b"y\ny\n", HOME=str(home)).text
    table = shown.partition("to see which work? [y/N]")[2]
    assert re.search(r"shelf +ready", table) and re.search(r"gone +failed", table)
    assert re.search(r"unset +left out", table)
    assert "Repair or remove those that failed, in" in table


def gateway_file(home: Path) -> Path:
    return home / ".config" / "delta-mcp" / "gateway" / "cursor.toml"


def test_audit_reads_what_is_behind_the_gateway_that_was_installed(home):
    write_servers(home)
    before = json.loads(run("audit", "--json", cwd=home / "work", HOME=str(home)).out)
    run("install", "cursor", "--yes", cwd=home / "work", HOME=str(home))
    done = run("audit", cwd=home / "work", HOME=str(home))
    after = json.loads(run("audit", "--json", cwd=home / "work", HOME=str(home)).out)

    [gateway] = after["gateways"]
    assert after["servers"] == [] and gateway["place"] == "Cursor: ~/.cursor/mcp.json"
    assert gateway["together"] == before["together"] and gateway["now"] == before["together"]["surface"]
    assert [server["name"] for server in gateway["servers"]] == ["shelf", "gone"]
    assert "Behind the gateway delta-mcp (Cursor: ~/.cursor/mcp.json)" in done.out
    assert "gone (no-such-program) was not counted." in done.out and "unset (" in done.out
    assert "Nothing needs to be done: the servers are behind the gateway." in done.out
    assert "is a meta-tool's name" not in done.out
    assert "Nothing is counted yet" in run("stats", cwd=home, HOME=str(home)).out

    checked = run("gateway", "--check", str(gateway_file(home)), cwd=home, HOME=str(home)).out
    assert (
        f"{gateway['now']:,} tokens before a conversation begins, instead of {gateway['together']['now']:,};" in checked
    )


def test_audit_says_what_is_wrong_with_the_configuration_of_a_gateway(home):
    write_servers(home)
    run("install", "cursor", "--yes", cwd=home / "work", HOME=str(home))
    gateway_file(home).write_text("disclosre = 'meta'\n")
    done = run("audit", cwd=home / "work", HOME=str(home))
    assert "is a gateway. " in done.out and "did you mean disclosure?" in done.out


def test_a_terminal_shows_what_goes_in_red_and_what_comes_in_green(home):
    CURSOR.write(home)
    words = ["install", "cursor", "--dry-run"]
    coloured = run_on_terminal(*words, cwd=home / "work", HOME=str(home)).text
    plain = [
        run_on_terminal(*words, cwd=home / "work", HOME=str(home), NO_COLOR="1").text.replace("\r\n", "\n"),
        run(*words, cwd=home / "work", HOME=str(home)).out,
    ]

    assert plain[0] == plain[1] and "\x1b" not in plain[0]
    changed = [line for line in plain[0].splitlines() if line[:4] in ("  - ", "  + ")]
    assert changed
    for line in changed:
        assert f"\x1b[{31 if line[2] == '-' else 32}m{line}\x1b[0m" in coloured
    assert re.sub(r"\x1b\[\d+m", "", coloured).replace("\r\n", "\n") == plain[0]


def test_a_file_that_was_broken_since_stays_and_the_original_is_named(home, capsys):
    path, original = CURSOR.write(home)
    main(["install", "cursor", "--yes"])
    path.write_text("{ nonsense")
    with pytest.raises(SystemExit, match="2"):
        main(["uninstall", "cursor", "--yes"])
    said = capsys.readouterr().err
    backup = Path(said.rpartition("install is ")[2].strip().rstrip("."))
    assert backup.read_bytes() == original and path.read_text() == "{ nonsense"


def test_without_a_host_those_that_are_here_are_named(home, capsys):
    CURSOR.write(home)
    CODEX.write(home)
    for words in (["install"], ["uninstall"]):
        with pytest.raises(SystemExit, match="2"):
            main(words)
    told = capsys.readouterr().err
    assert "Name a host: delta-mcp install cursor or codex." in told
    assert "No host has a gateway here; delta-mcp install HOST puts one into its file." in told


def test_what_was_never_installed_is_told(home, capsys):
    VSCODE.write(home)
    with pytest.raises(SystemExit, match="2"):
        main(["uninstall", "vscode", "--yes"])
    assert (
        "Nothing was installed into your files of vscode; delta-mcp install vscode does that."
        in capsys.readouterr().err
    )


def test_a_host_without_servers_is_told(home, capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["install", "windsurf", "--yes"])
    looked_for = home / ".codeium" / "windsurf" / "mcp_config.json"
    assert f"Windsurf has no file {looked_for}; add a server in Windsurf first" in capsys.readouterr().err
    looked_for.parent.mkdir(parents=True)
    looked_for.write_text("{}")
    with pytest.raises(SystemExit, match="2"):
        main(["install", "windsurf", "--yes"])
    assert "Windsurf has no servers that can move." in capsys.readouterr().err


@EVERY_HOST
def test_only_the_user_says_that_each_conversation_has_a_process(sample, home):
    """No host starts one for every reader of replies, so that nothing is known of it without the user's word."""
    sample.write(home)
    main(["install", sample.host, "--yes"])
    made = max((home / ".config/delta-mcp/gateway").glob("*.toml"))
    assert "conversation" not in parse(made)
    main(["install", sample.host, "--yes", "--process-per-conversation"])
    assert parse(made)["conversation"] == "process"
    main(["install", sample.host, "--yes"])
    assert parse(made)["conversation"] == "process", "what the user said stays"
