"""`delta-mcp add` and `remove` edit the gateway's file, and nothing else in it; a gateway that runs follows."""

import json
import sys
import tomllib

import pytest

from deltamcp.cli.main import main
from deltamcp.gateway import live_configuration
from deltamcp.hosts import jsonc_edit
from deltamcp.hosts.gateway_file import switch_off_server
from tests.support.command_line import assert_one_sentence, run, run_on_terminal
from tests.support.followed_gateway import PROGRAM, entries, following, until_named

SECRET = "hunter2-hunter2-hunter2"
KEPT = """\
# what I use
include = "mcp.json"   # from the editor
[results]
max_tokens = 9_000  # enough

[servers.tickets]  # ask Ann
url = "https://tickets.example.com/mcp"

# the end
"""


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for purpose in ("STATE", "CACHE", "CONFIG"):
        monkeypatch.setenv(f"XDG_{purpose}_HOME", str(tmp_path / purpose.lower()))
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path / "home"


@pytest.fixture
def own(tmp_path):
    return tmp_path / "config" / "delta-mcp" / "gateway.toml"


def servers(path):
    return tomllib.loads(path.read_text()).get("servers", {})


def add(*words):
    main(["add", *words])


def refused(capsys, *words):
    with pytest.raises(SystemExit) as ended:
        main([*words])
    assert ended.value.code == 2
    return capsys.readouterr().err


def test_the_first_server_makes_the_users_own_file_which_only_the_user_reads(own, capsys):
    add("notes", "--yes", "--env", f"API_TOKEN={SECRET}", "--env", "LANG", "--", "npx", "-y", "notes-mcp", "--yes")
    assert servers(own) == {
        "notes": {
            "command": "npx",
            "args": ["-y", "notes-mcp", "--yes"],
            "env": {"API_TOKEN": SECRET, "LANG": "${LANG}"},
        }
    }
    assert own.stat().st_mode & 0o077 == 0 or sys.platform == "win32"
    shown = capsys.readouterr().out
    assert SECRET not in shown and 'API_TOKEN = "•••"' in shown and "delta-mcp secret set API_TOKEN" in shown


@pytest.mark.parametrize(
    ("words", "entry"),
    [
        (["https://x.example/mcp"], {"url": "https://x.example/mcp"}),
        (
            ["https://x.example/mcp", "--header", "X-Team: a"],
            {"url": "https://x.example/mcp", "headers": {"X-Team": "a"}},
        ),
        (
            ["--header", "X-Team:a", "https://x.example/mcp"],
            {"url": "https://x.example/mcp", "headers": {"X-Team": "a"}},
        ),
        (["npx", "-y", "it", "--cwd", "theirs"], {"command": "npx", "args": ["-y", "it", "--cwd", "theirs"]}),
        (["--cwd", "/data", "--", "npx"], {"command": "npx", "cwd": "/data"}),
    ],
)
def test_a_server_is_a_command_or_an_address_with_its_options(own, words, entry):
    add("--yes", "it", *words)
    assert servers(own) == {"it": entry}


def test_a_path_from_this_folder_has_the_command_started_here(own, tmp_path):
    (tmp_path / "work" / "data.db").touch()
    add("--yes", "it", "--", "db-mcp", "data.db")
    assert servers(own)["it"]["cwd"] == str(tmp_path / "work")


def test_a_python_file_is_served(own, tmp_path):
    (tmp_path / "work" / "server.py").write_text("from deltamcp import DeltaServer\nserver = DeltaServer('it')\n")
    add("it", "server.py", "--yes")
    made = servers(own)["it"]
    assert [made["command"], *made["args"]][-2:] == ["serve", str(tmp_path / "work" / "server.py")]
    assert run("list", f"{own}#it", cwd=tmp_path).code == 0


def test_a_document_is_an_http_api(own, tmp_path, capsys):
    document = tmp_path / "work" / "shop.json"
    document.write_text(json.dumps({"openapi": "3.1.0", "info": {"title": "Shop", "version": "1"}, "paths": {}}))
    add("shop", "shop.json", "--header", "X-Key: ${keyring:shop}", "--yes")
    assert servers(own) == {"shop": {"openapi": str(document), "headers": {"X-Key": "${keyring:shop}"}}}
    others = write_json(tmp_path)
    assert "stands in a gateway.toml" in refused(capsys, "add", "shop", "shop.json", "--config", str(others))


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_everything_else_in_the_file_stays_to_the_byte(own, line_end):
    own.parent.mkdir(parents=True)
    (own.parent / "mcp.json").write_text(entries(a="1"))
    text = KEPT.replace("\n", line_end).encode()
    own.write_bytes(text)
    add("it", "--yes", "--", "npx", "it")
    assert (
        own.read_bytes()
        == text.rstrip() + '\n\n[servers.it]\ncommand = "npx"\nargs = ["it"]\n'.replace("\n", line_end).encode()
    )
    main(["remove", "it", "--yes"])
    assert own.read_bytes().rstrip() == text.rstrip()


def test_a_server_of_an_included_file_is_switched_off_and_stays_there(own, capsys):
    own.parent.mkdir(parents=True)
    included = own.parent / "mcp.json"
    included.write_text(entries(a="1", b="1"))
    own.write_text(KEPT + "[servers.b]\nread_only = true\n[servers.b.results]\nmax_tokens = 500\n")
    for name in "ab":
        main(["remove", name, "--yes"])
    assert servers(own)["a"] == {"enabled": False}
    assert servers(own)["b"] == {"enabled": False, "read_only": True, "results": {"max_tokens": 500}}
    assert included.read_text() == entries(a="1", b="1") and "# ask Ann" in own.read_text()
    assert f"a is in {included}, and stays there" in capsys.readouterr().out
    assert "switched off already" in refused(capsys, "remove", "a", "--yes")
    assert "take another name" in refused(capsys, "add", "a", "--yes", "--", "x")


def test_a_server_that_was_switched_on_by_hand_is_switched_off_in_its_place():
    text = "[servers.a]\nread_only = true\nenabled = true # for now\n"
    assert switch_off_server(text.encode(), "a").decode() == text.replace("enabled = true", "enabled = false")


def test_a_file_of_servers_in_json_is_edited_too(tmp_path):
    path = tmp_path / "work" / "servers.json"
    path.write_text('{\n  // mine\n  "mcpServers": {\n    "a": { "command": "x" }\n  }\n}\n')
    add("b", "--config", str(path), "--yes", "https://b.example/mcp")
    assert "// mine" in path.read_text()
    assert jsonc_edit.parse(path.read_text())["mcpServers"] == {
        "a": {"command": "x"},
        "b": {"url": "https://b.example/mcp"},
    }
    main(["remove", "a", "--config", str(path), "--yes"])
    assert [*jsonc_edit.parse(path.read_text())["mcpServers"]] == ["b"]


def test_nothing_is_written_unless_the_user_agrees(own, tmp_path):
    add("it", "--dry-run", "--", "npx")
    assert not own.exists()
    assert "Nothing was written: say --yes" in run("add", "it", "--", "npx", cwd=tmp_path).err
    assert not own.exists()
    assert "Nothing was written" in run_on_terminal("add", "it", "--", "npx", cwd=tmp_path, typed=b"n\n").text
    assert not own.exists()
    run_on_terminal("add", "it", "--", "npx", cwd=tmp_path, typed=b"y\n")
    assert [*servers(own)] == ["it"]
    assert "Write this?" in run_on_terminal("remove", "it", cwd=tmp_path, typed=b"y\n").text
    assert servers(own) == {}


WRONG = {
    "nothing": ([], "Name the server"),
    "no server": (["it"], "Name the server"),
    "no option": (["it", "--nothing", "--", "npx"], "no option --nothing"),
    "a variable of a URL": (["it", "--env", "A=1", "https://x.example"], "--env and --cwd are for a command"),
    "a header of a command": (["it", "--header", "A:1", "--", "npx"], "--header is for a URL"),
    "a header without a value": (["it", "--header", "A", "https://x.example"], "--header takes NAME:VALUE"),
    "another scheme": (["it", "ftp://x.example"], "ftp:// is no way to a server"),
    "a hidden name": (["a\u202eb", "--", "npx"], "characters that can be seen"),
}


@pytest.mark.parametrize(("words", "told"), WRONG.values(), ids=WRONG)
def test_a_mistake_is_told_in_one_sentence_and_nothing_is_written(own, tmp_path, words, told):
    ended = run("add", *words, cwd=tmp_path)
    assert_one_sentence(ended, 2)
    assert told in ended.err and not own.exists()


def test_what_cannot_be_edited_is_told(own, tmp_path, capsys):
    own.parent.mkdir(parents=True)
    own.write_text('servers = { a = { command = "x" } }\n')
    assert "cannot be edited safely; nothing was changed" in refused(capsys, "remove", "a", "--yes")
    own.write_text("[servers.a]\nnothing = 1\n")
    assert "line 2: servers.a.nothing is no key" in refused(capsys, "add", "b", "--yes", "--", "x")
    assert "did you mean it?" in refused(capsys, "remove", "itt", "--config", str(write_json(tmp_path)))
    settings = tmp_path / "settings.json"
    settings.write_text('{"context_servers": {"a": {"command": "x"}}}')
    assert "change it there" in refused(capsys, "add", "b", "--config", str(settings), "--yes", "--", "x")


def write_json(folder):
    path = folder / "it.json"
    path.write_text(json.dumps({"mcpServers": {"it": {"command": "x"}}}))
    return path


def test_several_gateways_are_told_apart(tmp_path, capsys):
    folder = tmp_path / "config" / "delta-mcp" / "gateway"
    folder.mkdir(parents=True)
    (folder / "cursor.toml").write_text("")
    add("it", "--yes", "--", "npx")
    assert [*servers(folder / "cursor.toml")] == ["it"]
    (folder / "zed.toml").write_text("")
    assert "Say which gateway is meant: --config" in refused(capsys, "add", "b", "--yes", "--", "npx")


async def test_a_gateway_that_runs_takes_in_what_is_added_and_lets_go_what_is_removed(own, monkeypatch):
    monkeypatch.setattr(live_configuration, "POLL_SECONDS", 0.02)
    add("a", "--yes", "--", sys.executable, PROGRAM, "a", "1")
    async with following(own, prefix=True) as (_, _, client):
        await until_named(client, "a_who", "a_wait")
        add("b", "--yes", "--", sys.executable, PROGRAM, "b", "1")
        await until_named(client, "a_who", "a_wait", "b_who", "b_wait")
        main(["remove", "a", "--yes"])
        await until_named(client, "b_who", "b_wait")
