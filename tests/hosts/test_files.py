"""Hosts' configuration files: every place and format, with valid and invalid content."""

import json
import os
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltamcp.errors import ConfigurationError
from deltamcp.hosts import files, jsonc_edit
from deltamcp.hosts.files import DISABLED, ConfiguredServer
from deltamcp.hosts.hosts import HOST_FILES, HostFile
from tests.support.strategies import any_json

SERVER = {"command": "npx", "args": ["-y", "thing"], "env": {"KEY": "value"}}
WRITTEN = {"command": "npx", "args": ["-y", "thing"], "env": {"KEY": "value"}}


@pytest.fixture
def home(tmp_path):
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


@pytest.fixture
def cwd(tmp_path):
    (tmp_path / "project").mkdir()
    return tmp_path / "project"


@pytest.fixture
def here(home, cwd, monkeypatch):
    """Sets the home folder and the current directory that `read_servers` sees."""
    monkeypatch.setattr(Path, "home", lambda: home)
    monkeypatch.chdir(cwd)
    for name in ("XDG_CONFIG_HOME", "CLAUDE_CONFIG_DIR", "CODEX_HOME"):
        monkeypatch.delenv(name, raising=False)
    return cwd


def written(path: Path, document: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(document if isinstance(document, str) else json.dumps(document), encoding="utf-8")
    return path


def found(home: Path, cwd: Path, system: str = "linux", **environment: str) -> list[ConfiguredServer]:
    servers = files.find_servers(home, cwd, system, environment, trusted=True)
    return [msgspec.structs.replace(server, written={}) for server in servers]


def one(tmp_path: Path, raw: object) -> ConfiguredServer:
    (made,) = files.read_servers(written(tmp_path / "servers.json", {"mcpServers": {"it": raw}}))
    return made


# Paths


def paths(place: HostFile, home: Path, cwd: Path, system: str) -> Path:
    """Returns the path of a host's file on a system, as the host's manual gives it."""
    data = {
        "darwin": home / "Library/Application Support",
        "win32": home / "AppData/Roaming",
        "linux": home / ".config",
    }[system]
    roots = {"home": home, "cwd": cwd, "data": data, "config": home / ".config", "claude": home}
    return Path(place.template.format(**roots, codex=home / ".codex").replace("*", "any"))


@pytest.mark.parametrize(
    ("system", "place"),
    [
        pytest.param(system, place, id=f"{system} {place.host} {place.template}")
        for system in ("linux", "darwin", "win32")
        for place in HOST_FILES
        if place.system in ("", system)
    ],
)
def test_a_server_is_found_in_every_file_of_every_host(place, system, home, cwd):
    path = paths(place, home, cwd, system)
    for key in place.key.split():
        document: object = {"it": SERVER}
        for part in reversed(key.split(".")):
            document = {str(cwd) if part == "*" else part: document}
        if path.suffix == ".toml":
            document = '[mcp_servers.it]\ncommand = "npx"\nargs = ["-y", "thing"]\nenv = { KEY = "value" }\n'
        written(path, document)
        assert found(home, cwd, system) == [ConfiguredServer("it", place.host, path, WRITTEN)]


@pytest.mark.parametrize(
    ("host", "system", "path"),
    [
        ("Claude Code", "linux", "home/.claude.json"),
        ("Claude Code", "linux", "project/.mcp.json"),
        ("Claude Desktop", "darwin", "home/Library/Application Support/Claude/claude_desktop_config.json"),
        ("Claude Desktop", "win32", "home/AppData/Roaming/Claude/claude_desktop_config.json"),
        ("Claude Desktop", "linux", "home/.config/Claude/claude_desktop_config.json"),
        ("Cursor", "linux", "home/.cursor/mcp.json"),
        ("Windsurf", "linux", "home/.codeium/windsurf/mcp_config.json"),
        ("Gemini CLI", "linux", "home/.gemini/settings.json"),
    ],
)
def test_the_hosts_most_people_have(host, system, path, home, cwd, tmp_path):
    file = written(tmp_path / path, {"mcpServers": {"it": SERVER}})
    assert found(home, cwd, system) == [ConfiguredServer("it", host, file, WRITTEN)]


def test_folders_that_variables_name_are_looked_into(home, cwd, tmp_path):
    file = written(tmp_path / "xdg" / "zed" / "settings.json", {"context_servers": {"it": SERVER}})
    codex = written(tmp_path / "codex" / "config.toml", '[mcp_servers.other]\nurl = "https://x.example/mcp"\n')
    environment = {"XDG_CONFIG_HOME": str(tmp_path / "xdg"), "CODEX_HOME": str(codex.parent)}
    assert [one.path for one in found(home, cwd, **environment)] == [file, codex]


def test_a_home_that_is_the_project_has_its_files_once(home):
    written(home / ".cursor" / "mcp.json", {"mcpServers": {"it": SERVER}})
    assert len(found(home, home)) == 1


def test_nothing_is_found_where_there_is_nothing(home, cwd):
    assert found(home, cwd) == []


def test_a_project_of_claude_code_is_this_one_or_is_told(home, cwd, here):
    inside = cwd / "deep" / "inside"
    inside.mkdir(parents=True)
    projects = {str(cwd): {"mcpServers": {"mine": SERVER}}, "/elsewhere": {"mcpServers": {"theirs": SERVER}}}
    path = written(home / ".claude.json", {"mcpServers": {"user": SERVER}, "projects": projects})
    told = {one.name: one.skip_reason for one in found(home, inside)}
    assert told == {"user": None, "mine": None, "theirs": "it belongs to the project /elsewhere"}
    assert [one.skip_reason for one in files.read_servers(path)] == [None] * 3
    assert files.find_entry(path, "theirs") == {**WRITTEN, "cwd": "/elsewhere"}


def test_a_broken_file_is_told_and_stops_nobody(home, cwd):
    path = written(home / ".claude.json", "{ nonsense")
    written(home / ".cursor" / "mcp.json", {"mcpServers": {"it": SERVER}})
    broken, good = found(home, cwd)
    assert (broken.name, broken.path, good.name) == ("", path, "it")
    assert broken.skip_reason is not None and "line 1 column 3" in broken.skip_reason


# Formats


VSCODE = """
// Servers of this workspace
{
  /* asked for once */
  "inputs": [{"id": "token", "type": "promptString", "password": true,},],
  "servers": {
    "asks": {"type": "http", "url": "https://x.example/mcp", "headers": {"Authorization": "Bearer ${input:token}"}},
    "runs": {"command": "node", "args": ["${workspaceFolder}/s.js", "https://x.example // no comment, ]"],}, // ends
  },
}
"""


def test_vs_code_writes_comments_and_asks_for_inputs(home, cwd):
    written(cwd / ".vscode" / "mcp.json", VSCODE)
    asks, runs = found(home, cwd)
    lack = "it needs the input token, which its host asks for (`delta-mcp secret set token` stores it for us)"
    assert asks.skip_reason == lack
    assert runs.entry["args"] == [f"{cwd}/s.js", "https://x.example // no comment, ]"]
    assert runs.skip_reason is None


def test_vs_code_settings_name_servers_by_path_and_by_name(here):
    for document in ({"mcp": {"servers": {"it": SERVER}}}, {"mcp.servers": {"it": SERVER}, "mcp": {"inputs": []}}):
        path = written(here / ".vscode" / "settings.json", document)
        assert [one.name for one in files.read_servers(path)] == ["it"]


def test_codex_says_where_secrets_are(home, cwd):
    toml = """
    model = "o9"
    [mcp_servers.remote]
    url = "https://x.example/mcp"
    bearer_token_env_var = "TOKEN"
    env_http_headers = { "X-Team" = "TEAM" }
    http_headers = { "X-Plain" = "yes" }
    [mcp_servers.local]
    command = "serve"
    env_vars = ["TEAM"]
    [mcp_servers.off]
    command = "serve"
    enabled = false
    """
    written(home / ".codex" / "config.toml", toml)
    remote, local, off = found(home, cwd, TOKEN="t0ken", TEAM="blue")
    headers = {"X-Plain": "yes", "X-Team": "blue", "Authorization": "Bearer t0ken"}
    assert remote.entry == {"url": "https://x.example/mcp", "headers": headers}
    assert local.entry == {"command": "serve", "args": [], "env": {"TEAM": "blue"}}
    assert off.skip_reason == DISABLED


def test_opencode_has_words_of_its_own(home, cwd):
    local = {"type": "local", "command": ["npx", "-y", "thing"], "environment": {"KEY": "{env:KEY}"}, "enabled": True}
    remote = {"type": "remote", "url": "https://x.example/mcp"}
    written(home / ".config" / "opencode" / "opencode.json", {"mcp": {"local": local, "remote": remote}})
    assert [one.entry for one in found(home, cwd, KEY="value")] == [
        WRITTEN,
        {"url": "https://x.example/mcp", "headers": {}},
    ]


def test_zed_nested_commands_once_and_runs_extensions_itself(home, cwd):
    old = {"command": {"path": "npx", "args": ["-y", "thing"], "env": {"KEY": "value"}}, "settings": {}}
    servers = {"old": old, "extension": {"source": "extension", "settings": {}}}
    written(home / ".config" / "zed" / "settings.json", {"context_servers": servers})
    first, second = found(home, cwd)
    assert first.entry == WRITTEN
    assert second.skip_reason == "it has neither a command nor a url"


@pytest.mark.parametrize("key", ["url", "httpUrl", "serverUrl"])
def test_addresses_have_three_names(key, here):
    assert one(here, {key: "https://x.example/mcp", "headers": {"A": "b"}}).entry == {
        "url": "https://x.example/mcp",
        "headers": {"A": "b"},
    }


def test_numbers_and_truth_in_words_become_texts(here):
    raw = {"command": "x", "args": ["--port", 80, True], "env": {"N": 1, "ON": False, "NO": None}}
    assert one(here, raw).entry == {"command": "x", "args": ["--port", "80", "true"], "env": {"N": "1", "ON": "false"}}


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        ("npx", "it is not an object"),
        ({}, "it has neither a command nor a url"),
        ({"command": {"path": ["x"]}}, "its command has something that is not a text"),
        ({"command": "x", "args": "-y"}, "its args are not a list"),
        ({"command": "x", "args": [["-y"]]}, "its args has something that is not a text"),
        ({"command": "x", "env": ["A=b"]}, "its env is not an object"),
        ({"url": ["https://x.example"]}, "its url has something that is not a text"),
        ({"command": "x", "envFile": ".env"}, "it reads variables from an envFile, which only its host does"),
        ({"command": "x", "disabled": True}, DISABLED),
        ({"url": "https://x.example", "enabled": False}, DISABLED),
    ],
)
def test_what_is_not_to_be_started_is_told(raw, why, here):
    assert one(here, raw).skip_reason == why


def test_half_a_character_in_a_history_spoils_nothing(home, cwd):
    text = json.dumps({"history": ["\ud83d"], "mcpServers": {"it": SERVER, "\ud83d": {"command": "x\udc00"}}})
    written(home / ".claude.json", text)
    assert [(one.name, one.entry["command"]) for one in found(home, cwd)] == [("it", "npx"), ("?", "x?")]


# Variables


@pytest.mark.parametrize(
    ("text", "filled"),
    [
        ("${KNOWN}", "yes"),
        ("a${env:KNOWN}b", "ayesb"),
        ("${UNKNOWN:-other}", "other"),
        ("${KNOWN:-other}", "yes"),
        ("${UNKNOWN:-}", ""),
        ("$KNOWN", "yes"),
        ("pa$KNOWN", "pa$KNOWN"),
        ("{env:KNOWN}", "yes"),
        ("~/bin", "{home}/bin"),
        ("a~/bin", "a~/bin"),
        ("${userHome}${/}x", "{home}" + os.sep + "x"),
        ("${workspaceFolder}", "{cwd}"),
    ],
)
def test_variables_are_filled_in(text, filled, home, cwd):
    written(cwd / ".mcp.json", {"mcpServers": {"it": {"command": "x", "args": [text], "env": {"A": text}}}})
    (made,) = found(home, cwd, KNOWN="yes")
    expected = filled.replace("{home}", str(home)).replace("{cwd}", str(cwd))
    assert (made.skip_reason, made.entry["args"], made.entry["env"]) == (None, [expected], {"A": expected})


def test_variables_that_are_not_set_are_told(home, cwd):
    raw = {"command": "x", "args": ["${ONE}", "${input:two}"], "env": {"A": "${ONE}", "B": "${THREE}"}}
    written(cwd / ".mcp.json", {"mcpServers": {"it": raw, "off": {**raw, "disabled": True}}})
    made, off = found(home, cwd)
    lack = (
        "it needs the input two, which its host asks for (`delta-mcp secret set two` stores it for us) "
        "and the variable ONE, THREE, which is not set"
    )
    assert (made.skip_reason, off.skip_reason) == (lack, f"{DISABLED}, and {lack}")


def test_a_folder_to_run_in_is_the_projects(here, tmp_path):
    path = written(tmp_path / "other" / ".vscode" / "mcp.json", {"servers": {"it": {"command": "x", "cwd": "sub"}}})
    assert files.read_servers(path)[0].entry["cwd"] == str(tmp_path / "other" / "sub")


# One file


def test_a_server_is_picked_by_name(here, tmp_path):
    servers = {"github": SERVER, "off": {"command": "x", "disabled": True}, "needy": {"command": "${NOT_SET_HERE}"}}
    path = written(tmp_path / "mine.jsonc", {"mcpServers": servers})
    assert files.find_entry(path, "github")["command"] == "npx"
    assert files.find_entry(path, "off")["command"] == "x"
    with pytest.raises(ConfigurationError, match=r"did you mean github\?"):
        files.find_entry(path, "gitub")
    with pytest.raises(ConfigurationError, match="it has github, off, needy"):
        files.find_entry(path, "zzzzz")
    with pytest.raises(ConfigurationError, match=r"needy in .* needs the variable NOT_SET_HERE"):
        files.find_entry(path, "needy")


@pytest.mark.parametrize(
    ("name", "body", "sentence"),
    [
        ("a.json", b"", "lists no servers"),
        ("a.json", b"[]", "lists no servers"),
        ("a.json", b'{"mcpServers": []}', "lists no servers"),
        ("a.json", b'{"mcpServers": {}}', "lists no servers"),
        ("a.json", b"{'single': 1}", "not JSON: .* line 1 column 2"),
        ("a.json", b'{\n// fine\n"a": }', "not JSON: .* line 3 column 6"),
        ("a.json", b"\xff\xfe{\x00}\x00", "not JSON: .*utf-8"),
        ("a.json", b"[" * 100_000, "not JSON: .*recursion"),
        ("a.json", b"/* never ends", "not JSON"),
        ("a.toml", b"[broken", "not TOML"),
        ("a.toml", b"\xff", "not TOML"),
        ("a.toml", b"x = " + b"[" * 100_000, "not TOML"),
    ],
)
def test_a_file_that_is_none_is_told_in_one_sentence(name, body, sentence, here, tmp_path):
    (tmp_path / name).write_bytes(body)
    with pytest.raises(ConfigurationError, match=sentence) as told:
        files.read_servers(tmp_path / name)
    assert "\n" not in str(told.value) and name in str(told.value)


def test_what_is_no_file_and_what_is_too_large_is_told(here, tmp_path):
    with pytest.raises(ConfigurationError, match="There is no file"):
        files.read_servers(tmp_path)
    with (tmp_path / "large.json").open("wb") as file:
        file.truncate(files.MAX_FILE_BYTES + 1)
    with pytest.raises(ConfigurationError, match="larger than 32 MB"):
        files.read_servers(tmp_path / "large.json")


def test_a_file_of_any_host_says_whose_it_is(here, tmp_path):
    for place, host in ((".warp/.mcp.json", "Warp"), (".mcp.json", "Claude Code"), ("mine.json", "file")):
        path = written(tmp_path / "elsewhere" / place, {"mcpServers": {"it": SERVER}})
        assert files.read_servers(path)[0].host == host


# JSON with comments

NOISE = st.sampled_from(["", " ", "\n", '// }],"\n', '/* "], */', "/**/", "/* // */", "\t// /* \n"])


@st.composite
def commented(draw, value):
    """Writes a value with comments and trailing commas wherever the format allows them."""

    def noise():
        return draw(NOISE)

    def text(value) -> str:
        if isinstance(value, list):
            return surrounded("[", [text(item) for item in value], "]")
        if isinstance(value, dict):
            members = [f"{json.dumps(key)}{noise()}:{noise()}{text(item)}" for key, item in value.items()]
            return surrounded("{", members, "}")
        return json.dumps(value, ensure_ascii=draw(st.booleans()))

    def surrounded(start: str, items: list[str], end: str) -> str:
        last = draw(st.sampled_from(["", ","])) if items else ""
        return f"{start}{noise()}{f'{noise()},{noise()}'.join(items)}{noise()}{last}{noise()}{end}"

    return f"{noise()}{text(value)}{noise()}"


TRICKY = st.text(st.sampled_from('"\\/*,]}[{:\n\u2028é x'))
VALUES = st.recursive(
    any_json | TRICKY, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TRICKY, inner, max_size=4)
)


@given(st.data())
def test_comments_and_commas_change_nothing(data):
    value = data.draw(VALUES)
    text = data.draw(commented(value))
    plain = jsonc_edit.strip_comments(text.encode())
    assert json.loads(plain) == value
    assert [len(line) for line in plain.split(b"\n")] == [len(line) for line in text.encode().split(b"\n")]


@given(VALUES)
def test_plain_json_stays_as_it_is(value):
    body = json.dumps(value).encode()
    assert jsonc_edit.strip_comments(body) == body


@given(st.binary() | st.text(st.sampled_from('"\\/*,]}[{: \n')).map(str.encode))
def test_any_bytes_are_read_without_harm(body):
    jsonc_edit.strip_comments(body)


def test_what_a_folder_tells_of_is_passed_over_until_it_is_trusted(tmp_path):
    home, cwd = tmp_path / "home", tmp_path / "cloned"
    for folder in (home, cwd):
        folder.mkdir()
    (cwd / ".mcp.json").write_text('{"mcpServers": {"hostile": {"command": "sh"}}}')
    (home / ".claude.json").write_text('{"mcpServers": {"mine": {"command": "sh"}}}')

    found = {one.name: one.skip_reason for one in files.find_servers(home, cwd, "linux", {})}
    assert found["mine"] is None
    assert "--project" in str(found["hostile"])
    trusted = files.find_servers(home, cwd, "linux", {}, trusted=True)
    assert [one.skip_reason for one in trusted] == [None, None]


def test_the_old_way_over_http_is_kept(tmp_path):
    file = tmp_path / "mcp.json"
    file.write_text('{"mcpServers": {"old": {"type": "sse", "url": "http://127.0.0.1:1/sse"}}}')
    assert files.find_entry(file, "old") == {"url": "http://127.0.0.1:1/sse", "headers": {}, "type": "sse"}
