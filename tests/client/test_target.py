"""Targets: everything that the client can connect to, and the errors for everything else."""

import contextlib
import json
import os
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

from deltamcp import DeltaServer
from deltamcp.client.client import DeltaClient, connect
from deltamcp.client.target import Program, parse_target
from deltamcp.errors import ClientError, ConfigurationError, DeltaError
from tests.support import fake_stdio
from tests.support.conditions import HANG_SECONDS
from tests.support.fake_http import ANY, Fake, serve_fake

FAKE = str(Path(fake_stdio.__file__))
SECRET = "hunter2-s3cret"
TOOLS = [{"name": "environment", "inputSchema": ANY}]
SCRIPT = json.dumps({"tools": TOOLS})


async def told(target: Any, **options: Any) -> dict[str, Any]:
    """Starts a server and returns its arguments and environment."""
    async with connect(target, **options) as client:
        value: dict[str, Any] = await client.call("environment")
        return value


def test_connect_gives_a_delta_client():
    assert type(connect(DeltaServer("x"))) is DeltaClient


async def test_a_server_in_this_process():
    server = DeltaServer("here")
    server.tool(name="one")(lambda: 1)
    async with connect(server) as client:
        assert await client.call("one") == 1
    async with DeltaClient(server) as client:
        assert await client.call("one") == 1


async def test_a_list_of_words_is_taken_as_it_is():
    words = [sys.executable, FAKE, SCRIPT, "a b", "$HOME", "'quoted'", "", "*", "ü", "a;b", "--flag=x y"]
    assert (await told(words))["argv"] == words[3:]
    assert (await told(tuple(words)))["argv"] == words[3:]


async def test_a_command_line_is_split_as_a_shell_would_and_given_to_none():
    line = f"{shlex.quote(sys.executable)} {shlex.quote(FAKE)} {shlex.quote(SCRIPT)}"
    assert (await told(line + """ 'a b' "c d" e\\ f $HOME `id` * ; ok && x"""))["argv"] == [
        "a b",
        "c d",
        "e f",
        "$HOME",
        "`id`",
        "*",
        ";",
        "ok",
        "&&",
        "x",
    ]


@pytest.mark.parametrize("line", ["", "   ", "python 'unclosed", "\n"])
def test_a_command_line_that_is_none_is_told_at_once(line):
    with pytest.raises(ConfigurationError) as caught:
        connect(line)
    assert str(caught.value).strip()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "target", [None, 7, [], (), {}, [1, 2], object(), b"python", {"command": 7}, [""], {"url": None}]
)
def test_what_is_no_target_is_told_at_once(target: Any):
    with pytest.raises(ConfigurationError) as caught:
        connect(target)
    assert str(caught.value).strip()


@pytest.mark.parametrize(
    "url",
    ["ftp://x/mcp", "http://", "https:///mcp", "file:///etc/passwd", "ws://x/mcp", "http://x:99999/", "http://x:port/"],
)
def test_an_address_that_is_none_is_told_at_once(url):
    with pytest.raises(ConfigurationError):
        connect(url)


def test_options_that_do_not_exist_are_told_at_once():
    with pytest.raises((ConfigurationError, TypeError), match="tiemout"):
        connect(DeltaServer("x"), tiemout=3)  # type: ignore[call-arg]


@pytest.mark.parametrize("options", [{"speak": "klingon"}, {"encoding": "xml"}], ids=str)
def test_options_that_mean_nothing_are_told(options: Any):
    with pytest.raises((ConfigurationError, TypeError, ValueError)):
        connect(DeltaServer("x"), **options)


# Entries of files


async def test_an_entry_that_starts_a_process(tmp_path):
    entry = {
        "command": sys.executable,
        "args": [FAKE, SCRIPT, "a b"],
        "env": {"PEER_MOOD": "fine", "EMPTY": ""},
        "cwd": str(tmp_path),
    }
    found = await told(entry)
    assert found["argv"] == ["a b"]
    assert found["env"]["PEER_MOOD"] == "fine"
    assert found["env"]["EMPTY"] == ""
    assert Path(found["cwd"]) == tmp_path.resolve()
    assert found["env"]["PATH"] == os.environ["PATH"]


async def test_a_process_gets_nothing_of_our_environment_it_was_not_given(monkeypatch):
    """The client's environment may hold secrets; the official SDKs do not pass it on either."""
    monkeypatch.setenv("OUR_API_KEY", SECRET)
    for target in (
        {"command": sys.executable, "args": [FAKE, SCRIPT], "env": {"A": "1"}},
        [sys.executable, FAKE, SCRIPT],
    ):
        found = await told(target)
        if isinstance(target, dict):
            assert "OUR_API_KEY" not in found["env"]
        assert "PATH" in found["env"]


@pytest.mark.parametrize("kind", [{}, {"type": "http"}, {"type": "streamable-http"}, {"transport": "http"}], ids=str)
async def test_an_entry_that_is_an_address(kind):
    async with serve_fake(Fake()) as fake:
        async with connect({"url": fake.url, "headers": {"X-Key": "k"}, **kind}, headers={"X-More": "m"}) as client:
            assert len(await client.tools()) == 4
        assert all((asked.headers["x-key"], asked.headers["x-more"]) == ("k", "m") for asked in fake.asked)


async def test_an_entry_by_file_and_name(tmp_path):
    entry = {"command": sys.executable, "args": [FAKE, SCRIPT, "from file"]}
    file = tmp_path / "my servers.json"
    file.write_text(json.dumps({"mcpServers": {"fa ke": entry, "other": {"url": "http://127.0.0.1:1/mcp"}}}))
    assert (await told(f"{file}#fa ke"))["argv"] == ["from file"]
    assert (await told(f"{file}#fa ke"))["argv"] == ["from file"]


async def test_variables_in_a_file_are_filled_in(tmp_path, monkeypatch):
    monkeypatch.setenv("PEER_MOOD", "sunny")
    monkeypatch.delenv("PEER_NONE", raising=False)
    env = {"MOOD": "${PEER_MOOD}", "ELSE": "${PEER_NONE:-cloudy}"}
    entry = {"command": sys.executable, "args": [FAKE, SCRIPT], "env": env}
    file = tmp_path / "servers.json"
    file.write_text(json.dumps({"mcpServers": {"fake": entry}}))
    found = (await told(f"{file}#fake"))["env"]
    assert (found["MOOD"], found["ELSE"]) == ("sunny", "cloudy")


@pytest.mark.parametrize(
    ("content", "name"),
    [
        ("{", "x"),
        ("[]", "x"),
        ("{}", "x"),
        ('{"mcpServers": {}}', "x"),
        ('{"mcpServers": {"y": {"command": "z"}}}', "x"),
        ('{"mcpServers": {"x": 7}}', "x"),
        ('{"mcpServers": {"x": {}}}', "x"),
        ('{"mcpServers": {"x": {"command": "z", "args": "not a list"}}}', "x"),
        ('{"mcpServers": {"x": {"url": "ftp://z"}}}', "x"),
        ("\x00\xff", "x"),
    ],
)
def test_a_file_that_does_not_say_it_is_told_at_once_in_one_sentence(tmp_path, content, name):
    file = tmp_path / "servers.json"
    file.write_text(content, encoding="latin-1")
    with pytest.raises(ConfigurationError) as caught:
        connect(f"{file}#{name}")
    assert str(caught.value).strip()
    assert "\n" not in str(caught.value)


def test_a_name_that_is_not_in_the_file_is_told_with_those_that_are(tmp_path):
    file = tmp_path / "servers.json"
    file.write_text(json.dumps({"mcpServers": {"weather": {"command": "z"}, "mail": {"command": "z"}}}))
    with pytest.raises(ConfigurationError, match="weather"):
        connect(f"{file}#wether")


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(ConfigurationError, match=r"nowhere\.json"):
        connect(f"{tmp_path / 'nowhere.json'}#x")


# Secrets


async def error_of(target: Any, **options: Any) -> str:
    """Returns everything that an error shows: its text, its causes and its notes."""
    with pytest.raises(DeltaError) as caught:
        async with connect(target, start_timeout=HANG_SECONDS, **options) as client:
            await client.call("buy")
    shown = []
    error: BaseException | None = caught.value
    while error is not None:
        shown += [str(error), repr(error), *getattr(error, "__notes__", ())]
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return " ".join(shown)


@pytest.mark.parametrize(
    "words",
    [
        ["no-such-program", "--api-key", SECRET],
        ["no-such-program", f"--api-key={SECRET}"],
        ["no-such-program", f"postgres://user:{SECRET}@db/x"],
        [sys.executable, "-c", f"'{SECRET}'; import sys; sys.exit(3)"],
        [sys.executable, "-c", "import sys; sys.exit(3)", SECRET],
        ["/bin/false", f"TOKEN={SECRET}"],
        ["env", f"TOKEN={SECRET}", "false"],
    ],
    ids=lambda words: " ".join(words).replace(SECRET, "X"),
)
async def test_words_of_a_command_that_may_be_secret_are_in_no_error(words):
    assert SECRET not in await error_of(words)
    assert SECRET not in await error_of(shlex.join(words))


async def test_an_entrys_environment_is_in_no_error():
    assert SECRET not in await error_of({"command": "no-such-program", "env": {"KEY": SECRET}})
    assert SECRET not in await error_of({"command": "/bin/false", "env": {"KEY": SECRET}})


@pytest.mark.parametrize(
    "url",
    [
        "http://user:{secret}@127.0.0.1:{port}/mcp",
        "http://127.0.0.1:{port}/mcp?token={secret}",
        "http://127.0.0.1:{port}/mcp?x=1&apikey={secret}#frag",
    ],
)
@pytest.mark.parametrize("how", ["nobody", "404", "breaks"])
async def test_what_is_secret_in_an_address_is_in_no_error(url, how):
    async with serve_fake(Fake(modern=False, handshake=False)) as fake:
        port = fake.url.split(":")[2].split("/")[0]

        async def lost(asked: Any, wire: Any) -> None:
            if how == "404":
                await wire.answer(404)
            else:
                wire.close()

        for method in ("server/discover", "initialize"):
            fake.always(method, lost)
        target = url.format(secret=SECRET, port="1" if how == "nobody" else port)
        options: Any = {"headers": {"X-Api-Key": SECRET}, "token": SECRET}
        assert SECRET not in await error_of(target, **options)
        assert SECRET not in await error_of({"url": target, "headers": {"Authorization": f"Bearer {SECRET}"}})


async def test_the_secret_parts_of_an_address_still_reach_the_server():
    async with serve_fake(Fake()) as fake:
        port = fake.url.split(":")[2].split("/")[0]
        async with connect(f"http://us%40er:p%3Ass@127.0.0.1:{port}/mcp?token=t%20k&x=ü#frag") as client:
            await client.call("echo")
        for asked in fake.asked:
            assert asked.path == "/mcp?token=t%20k&x=%C3%BC"
            assert asked.headers["authorization"] == "Basic dXNAZXI6cDpzcw=="
            assert asked.headers["host"] == f"127.0.0.1:{port}"


@pytest.mark.parametrize("header", ["X-Bad\r\nInjected", "X Bad", ""])
async def test_headers_that_are_none_are_refused_not_sent(header):
    async with serve_fake(Fake()) as fake:
        with pytest.raises((DeltaError, ValueError)):
            async with connect(fake.url, headers={header: "x"}):
                pass
        assert not fake.asked


@pytest.mark.parametrize("value", ["a\r\nInjected: 1", "a\nb", "a\x00b"])
@pytest.mark.parametrize("where", ["header", "token", "callback"])
async def test_values_that_no_header_can_hold_are_refused_not_sent(value, where):
    options: Any = {
        "header": {"headers": {"X-Key": value}},
        "token": {"token": value},
        "callback": {"token": lambda: value},
    }
    async with serve_fake(Fake()) as fake:
        with pytest.raises((DeltaError, ValueError)) as caught:
            async with connect(fake.url, **options[where]):
                pass
        assert not [asked for asked in fake.asked if "injected" in asked.headers]
        assert value not in str(caught.value)


async def test_a_server_that_ends_with_a_secret_in_its_last_words_is_quoted_only_when_quiet():
    """The error quotes what the server writes, but not the arguments that it was started with."""
    code = "import sys; sys.exit('cannot connect')"
    text = await error_of([sys.executable, "-c", code, SECRET], quiet=True)
    assert "cannot connect" in text
    assert SECRET not in text


async def test_a_client_can_be_entered_once_at_a_time():
    server = DeltaServer("x")
    server.tool(name="one")(lambda: 1)
    client = connect(server)
    async with client:
        assert await client.call("one") == 1
    with pytest.raises((ClientError, RuntimeError, DeltaError)):
        await client.call("one")


async def test_a_server_whose_life_cannot_begin_says_why():
    @contextlib.asynccontextmanager
    async def broken(server: DeltaServer) -> Any:
        raise RuntimeError("no database")
        yield

    with pytest.raises(RuntimeError, match="no database"):
        async with connect(DeltaServer("x", lifespan=broken)):
            pass


async def test_an_entry_may_name_delta_mcp_though_it_is_not_on_the_path(tmp_path, monkeypatch):
    server = tmp_path / "server.py"
    server.write_text("from deltamcp import DeltaServer\nserver = DeltaServer('found')\n")
    monkeypatch.setenv("PATH", str(tmp_path))
    async with connect({"command": "delta-mcp", "args": ["serve", str(server)]}) as client:
        assert client.server.name == "found"


def test_a_command_line_that_ends_with_a_file_is_a_command_line():
    assert parse_target("sh --config a.toml") == Program(("sh", "--config", "a.toml"))
    assert parse_target("sh a.json") == Program(("sh", "a.json"))
