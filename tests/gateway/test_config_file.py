"""The configuration of a gateway: hosts' files and our TOML, what is refused, what is skipped."""

import json
import re

import pytest

from deltamcp.errors import ConfigurationError
from deltamcp.gateway.config import DEFAULT_RESULTS, GatewayConfig, UpstreamConfig, read_gateway_file
from deltamcp.results.policy import ResultPolicy


def write(folder, name, text):
    path = folder / name
    path.write_text(text if isinstance(text, str) else json.dumps(text))
    return path


def test_a_file_of_a_host_is_a_configuration(tmp_path, monkeypatch):
    monkeypatch.setenv("API_KEY", "k")
    servers = {
        "local": {"command": "npx", "args": ["-y", "a"], "env": {"KEY": "${API_KEY}"}, "cwd": "sub"},
        "remote": {"url": "https://x.example/mcp", "headers": {"Authorization": "Bearer ${API_KEY}"}},
        "old": {"type": "sse", "url": "https://y.example/${PLACE:-sse}"},
        "off": {"command": "a", "disabled": True},
        "bare": {"command": "b", "args": ["${NOT_SET}"]},
        "itself": {"command": "/usr/bin/delta-mcp", "args": ["gateway", "x.json"]},
    }
    found = read_gateway_file(write(tmp_path, "mcp.json", {"mcpServers": servers}))

    assert found.config == GatewayConfig(
        upstreams=[
            UpstreamConfig(
                name="local",
                entry={"command": "npx", "args": ["-y", "a"], "env": {"KEY": "k"}, "cwd": str(tmp_path / "sub")},
                filled={"API_KEY": "k"},
            ),
            UpstreamConfig(
                name="remote",
                entry={"url": "https://x.example/mcp", "headers": {"Authorization": "Bearer k"}},
                filled={"API_KEY": "k"},
            ),
            UpstreamConfig(name="old", entry={"url": "https://y.example/sse", "headers": {}, "type": "sse"}),
        ],
        results=ResultPolicy(max_tokens=20_000, preview_above=500),
    )
    assert [(one.name, one.reason) for one in found.skipped] == [
        ("off", "it is switched off there"),
        ("bare", "it needs the variable NOT_SET, which is not set"),
        ("itself", "it is a gateway of delta-mcp, which would start itself"),
    ]


def test_a_codex_file_is_a_hosts_file(tmp_path):
    path = write(tmp_path, "config.toml", '[mcp_servers.a]\ncommand = "x"\n')
    assert [one.name for one in read_gateway_file(path).config.upstreams] == ["a"]


FULL = """
name = "mine"
disclosure = "full"
query = false
destructive = true
prefix = false
include = "hosts/mcp.json"

[results]
max_tokens = 5000
tables = false

[defaults]
timeout = 30
idle_seconds = false

[servers.books]
command = "python"
args = ["books.py"]
env = { LEVEL = "1" }
timeout = 5
concurrency = 2
start = "ahead"
allow = ["get_*"]
deny = ["get_all"]
rename = { get_x = "x" }
read_only = true
pinned = ["get_one"]
confirm = "always"
on_changed = "accept"
on_new = "quarantine"
promise = "never"
sync_seconds = 1
process_for = "principal"
[servers.books.results]
max_tokens = 900

[servers.github]
read_only = true

[servers.slack]
enabled = false
"""


def test_our_own_file_says_everything(tmp_path):
    (tmp_path / "hosts").mkdir()
    listed = {"github": {"url": "https://g.example"}, "slack": {"command": "s"}, "git": {"command": "g"}}
    write(tmp_path / "hosts", "mcp.json", {"mcpServers": listed})
    found = read_gateway_file(write(tmp_path, "gateway.toml", FULL))

    entry = {"command": "python", "args": ["books.py"], "env": {"LEVEL": "1"}, "cwd": str(tmp_path)}
    assert found.config == GatewayConfig(
        name="mine",
        disclosure="full",
        query=False,
        destructive=True,
        prefix=False,
        results=ResultPolicy(max_tokens=5000, tables=False),
        upstreams=[
            UpstreamConfig(
                name="books",
                entry=entry,
                timeout=5,
                concurrency=2,
                start="ahead",
                idle_seconds=None,
                allow=("get_*",),
                deny=("get_all",),
                rename={"get_x": "x"},
                read_only=True,
                pinned=("get_one",),
                confirm="always",
                on_changed="accept",
                on_new="quarantine",
                results=ResultPolicy(max_tokens=900),
                promise="never",
                sync_seconds=1,
                process_for="principal",
            ),
            UpstreamConfig(
                name="github",
                entry={"url": "https://g.example", "headers": {}},
                timeout=30,
                idle_seconds=None,
                read_only=True,
            ),
            UpstreamConfig(
                name="git",
                entry={"command": "g", "args": [], "env": {}, "cwd": str(tmp_path / "hosts")},
                timeout=30,
                idle_seconds=None,
            ),
        ],
    )
    assert [(one.name, one.reason) for one in found.skipped] == [("slack", "it is switched off there")]
    assert [path.name for path in found.paths] == ["gateway.toml", "mcp.json"]


def test_false_takes_away_the_result_policy(tmp_path):
    path = write(tmp_path, "gateway.toml", 'results = false\n[servers.a]\ncommand = "x"\n')
    assert read_gateway_file(path).config.results is None
    path.write_text('[servers.a]\ncommand = "x"\n')
    assert read_gateway_file(path).config.results == DEFAULT_RESULTS
    path.write_text('[servers.a]\ncommand = "x"\nresults = false\n[servers.b]\ncommand = "y"\n')
    assert [one.results for one in read_gateway_file(path).config.upstreams] == [False, None]


FAULTY = """\
disclosre = "meta"
disclosure = "some"
include = "nowhere.json"

[results]
max_tokens = 3

[servers."my server"]
command = "x"
timeout = -1
idle_seconds = "long"
alow = ["x"]
args = "x y"

[servers.empty]
read_only = true
"""


def test_every_fault_is_told_with_its_line(tmp_path):
    path = write(tmp_path, "gateway.toml", FAULTY)
    with pytest.raises(ConfigurationError) as raised:
        read_gateway_file(path)
    assert str(raised.value).replace(str(tmp_path), "~").splitlines() == [
        "~/gateway.toml has 9 faults:",
        "  line 1: disclosre is no key; did you mean disclosure?",
        "  line 2: disclosure must be one of auto, full, meta.",
        "  line 3: include is wrong: There is no file ~/nowhere.json; name one that is there.",
        "  line 5: results is wrong: max_tokens must be 50 or more, not 3.",
        "  line 10: servers.my server.timeout must be a number above 0 or false.",
        "  line 11: servers.my server.idle_seconds must be a number above 0 or false.",
        "  line 12: servers.my server.alow is no key; did you mean allow?",
        "  line 13: servers.my server.args must be a list of texts.",
        "  line 15: servers.empty needs a command, a url or an openapi document, or to be named in an included file.",
    ]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("servers = 3", "line 1: servers must be a table."),
        ("[servers]\na = 3", "line 2: servers.a must be a table."),
        ("zzz = 3", "line 1: zzz is no key; there are as_tools, conversation, defaults, destructive,"),
        ("[defaults]\ncommand = 'x'", "line 2: defaults.command is no key; "),
        ("name = ", "is not TOML: "),
        (
            "[defaults]\nresults = 3",
            "line 2: defaults.results must be a table, or false to pass results on as they are.",
        ),
        ("results = 3", "line 1: results must be a table, or false to pass results on as they are."),
    ],
)
def test_one_fault_is_one_sentence(tmp_path, text, told):
    path = write(tmp_path, "gateway.toml", text)
    with pytest.raises(ConfigurationError, match=re.escape(told)):
        read_gateway_file(path)


def test_a_name_that_is_taken_by_another_server_gets_a_number(tmp_path):
    projects = {"/a": {"mcpServers": {"x": {"command": "1"}}}, "/b": {"mcpServers": {"x": {"command": "2"}}}}
    document = {"mcpServers": {"x": {"command": "1"}}, "projects": projects}
    found = read_gateway_file(write(tmp_path, ".claude.json", document))
    assert [one.name for one in found.config.upstreams] == ["x", "x-2", "x-3"]


@pytest.mark.parametrize("suffix", ["json", "toml"])
def test_a_server_whose_name_could_forge_a_line_is_left_out(tmp_path, suffix):
    servers = {"bank\n\x1b[2J": {"command": "evil"}, "b\u202eank": {"command": "evil"}, "Größe 1": {"command": "good"}}
    path = tmp_path / f"servers.{suffix}"
    tables = [f"[servers.{json.dumps(name)}]\ncommand = {json.dumps(one['command'])}" for name, one in servers.items()]
    path.write_text(json.dumps({"mcpServers": servers}) if suffix == "json" else "\n".join(tables))
    found = read_gateway_file(path)
    assert [one.name for one in found.config.upstreams] == ["Größe 1"]
    assert [one.name for one in found.skipped] == ["bank\\n\\u001b[2J", "b\\u202eank"]


def test_a_gateway_behind_a_gateway_is_left_out_only_if_it_leads_back(tmp_path):
    def gateway(name: str, *behind: str):
        lines = []
        for one in behind:
            lines += [f"[servers.{one}]", 'command = "delta-mcp"', f'args = ["gateway", "{tmp_path / one}.toml"]']
        path = tmp_path / f"{name}.toml"
        path.write_text("\n".join([*lines, "[servers.own]", 'command = "own-mcp"', ""]))
        return path

    gateway("leaf")
    gateway("middle", "leaf")
    gateway("round", "top")
    gateway("itself", "itself")
    top = gateway("top", "middle", "leaf", "round", "top", "missing")

    found = read_gateway_file(top)
    assert [one.name for one in found.config.upstreams] == ["middle", "leaf", "own"]
    assert [one.name for one in found.skipped] == ["round", "top", "missing"]
    assert [one.name for one in read_gateway_file(tmp_path / "itself.toml").config.upstreams] == ["own"]
