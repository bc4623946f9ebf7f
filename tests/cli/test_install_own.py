"""`delta-mcp install HOST FILE`: one server of the user's own, beside the gateway's entry."""

import json
import os
import sys
from pathlib import Path

import pytest

from deltamcp.cli.main import main
from deltamcp.client.client import connect
from deltamcp.hosts import files, host_entry
from deltamcp.hosts.hosts import HOST_FILES, host_id, is_project_file
from deltamcp.hosts.installation import editor_for
from tests.support.host_files import HOST_SAMPLES

SHELF = """
import os
from deltamcp import DeltaServer
server = DeltaServer("shelf")

@server.tool(annotations={"readOnlyHint": True})
def key() -> str:
    "Returns the key."
    return os.environ["SHELF_KEY"]
"""
HOSTS = sorted(
    {host_id(one.host) for one in HOST_FILES if one.system in ("", sys.platform) and not is_project_file(one)}
)


@pytest.fixture
def home(tmp_path, monkeypatch):
    made = tmp_path / "home"
    (made / "work").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(made))
    for name in ("XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME", "CLAUDE_CONFIG_DIR", "CODEX_HOME", "APPDATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(made / "work")
    (made / "work" / "shelf.py").write_text(SHELF)
    return made


def own_entries(home, capsys):
    """Returns by place the entries called shelf that hosts' files have."""
    found = files.find_servers(home, home / "work", sys.platform, os.environ, trusted=True)
    return {one.path: one.entry for one in found if one.name == "shelf"}


@pytest.mark.parametrize("host", HOSTS)
def test_every_host_starts_the_server_and_loses_it_again(host, home, capsys):
    main(["install", host, "shelf.py", "--env", "SHELF_KEY=s3cret-word", "--yes"])
    said = capsys.readouterr().out
    assert "s3cret-word" not in said and f"delta-mcp uninstall {host} shelf" in said
    [(path, entry)] = own_entries(home, capsys).items()
    assert entry["args"][-2:] == ["serve", str(home / "work" / "shelf.py")]
    assert entry["env"] == {"SHELF_KEY": "s3cret-word"} and Path(entry["command"]).is_absolute()

    main(["install", host, "shelf.py", "--env", "SHELF_KEY=s3cret-word", "--yes"])
    assert "Nothing to change" in capsys.readouterr().out
    main(["uninstall", host, "shelf.py", "--yes"])
    assert own_entries(home, capsys) == {} and path.exists()
    with pytest.raises(SystemExit, match="2"):
        main(["uninstall", host, "shelf", "--yes"])


async def test_the_entry_runs_with_its_variables(home, monkeypatch, capsys):
    monkeypatch.setenv("SHELF_KEY", "from the shell")
    main(["install", "cursor", "shelf.py:server", "--env", "SHELF_KEY", "--name", "books", "--yes"])
    entry = files.find_entry(home / ".cursor" / "mcp.json", "books")
    async with connect(entry) as client:
        assert await client.call("key") == "from the shell"


@pytest.mark.parametrize("sample", HOST_SAMPLES, ids=lambda sample: sample.host)
def test_it_stands_beside_the_gateway_and_each_goes_without_the_other(sample, home, monkeypatch, capsys):
    monkeypatch.setenv("GEMINI_TEST_KEY", "k")
    path, original = sample.write(home)
    main(["install", sample.host, "shelf.py", "--name", "mine", "--yes"])
    with_own = path.read_bytes()
    main(["install", sample.host, "--yes"])
    assert "Stays where it is: mine, because install put it there by itself" in capsys.readouterr().out
    text = path.read_text()
    assert "shelf.py" in text and "gateway" in text

    main(["uninstall", sample.host, "--yes"])
    assert path.read_bytes() == with_own
    main(["install", sample.host, "--yes"])
    main(["uninstall", sample.host, "mine", "--yes"])
    main(["uninstall", sample.host, "--yes"])
    editor = editor_for(path)
    assert editor.parse(path.read_text()) == editor.parse(original.decode())


def test_another_server_of_the_name_stays(home, capsys):
    path = home / ".cursor" / "mcp.json"
    path.parent.mkdir()
    path.write_text(json.dumps({"mcpServers": {"shelf": {"command": "theirs"}}}))
    with pytest.raises(SystemExit, match="2"):
        main(["install", "cursor", "shelf.py", "--yes"])
    assert "give this one another --name" in capsys.readouterr().err
    main(["install", "cursor", "shelf.py", "--name", "mine", "--yes"])
    assert {*json.loads(path.read_text())["mcpServers"]} == {"shelf", "mine"}


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["install", "cursor", "shelv.py"], "did you mean shelf.py?"),
        (["install", "cursor", "shelf"], "is neither a Python file"),
        (["install", "cursor", "shelf.py", "--env", "NOT_SET"], "say --env NOT_SET=VALUE"),
        (["install", "cursor", "shelf.py", "--only", "x"], "leave out FILE"),
        (["install", "cursor", "--name", "x"], "delta-mcp install cursor FILE.py"),
        (["install", "continue", "shelf.py"], "say --project"),
        (["uninstall", "cursor", "shelf.py"], "install put none there"),
    ],
)
def test_a_mistake_is_told(words, told, home, capsys):
    with pytest.raises(SystemExit, match="2"):
        main(words)
    assert told in capsys.readouterr().err
    assert own_entries(home, capsys) == {}


def test_a_file_whose_name_says_nothing_is_called_as_its_folder(home, capsys):
    (home / "work" / "server.py").write_text(SHELF)
    main(["install", "cursor", "server.py", "--yes"])
    assert [*json.loads((home / ".cursor" / "mcp.json").read_text())["mcpServers"]] == ["work"]
    with pytest.raises(SystemExit, match="2"):
        main(["uninstall", "cursor"])
    assert "delta-mcp uninstall cursor work" in capsys.readouterr().err


# What an upgrade of the tool keeps


def make_program(path):
    path.parent.mkdir(parents=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def test_a_link_that_the_installer_of_tools_made_is_named_and_not_what_it_leads_to(home, monkeypatch):
    program = make_program(home / "pipx" / "venvs" / "delta-mcp" / "bin" / "delta-mcp")
    link = home / "bin" / "delta-mcp"
    link.parent.mkdir()
    link.symlink_to(program)
    monkeypatch.setattr(sys, "executable", str(program.with_name("python")))
    monkeypatch.setenv("PATH", str(link.parent))
    assert host_entry.find_program() == [str(link)]


def test_what_pipx_runs_from_its_cache_is_started_by_pipx(home, monkeypatch):
    pipx = make_program(home / "bin" / "pipx")
    monkeypatch.setattr(sys, "prefix", str(home / ".cache" / "pipx" / "a1b2"))
    monkeypatch.setenv("PATH", str(pipx.parent))
    assert host_entry.find_program() == [str(pipx), "run", "delta-mcp"]


def test_a_server_is_started_by_the_environment_beside_it(home):
    file = home / "work" / "src" / "shelf.py"
    program = make_program(home / "work" / ".venv" / "bin" / "delta-mcp")
    file.parent.mkdir()
    file.write_text(SHELF)
    assert host_entry.find_program_for(file) == [str(program)]
    assert host_entry.find_program_for(home / "shelf.py") == host_entry.find_program()
