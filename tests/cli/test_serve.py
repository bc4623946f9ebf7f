"""`delta-mcp serve`: it says that it serves once it does, its errors are one sentence, its log goes where it should."""

import asyncio
import json
import re
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx2
import pytest

from deltamcp import ClientError, connect
from deltamcp.cli.main import main
from tests.support.conditions import HANG_SECONDS
from tests.support.paths import FORKED_PROGRAM, PROGRAM
from tests.support.program import running_program


def run(*arguments: str, cwd: Path, said: str = "") -> subprocess.CompletedProcess[str]:
    command = [str(FORKED_PROGRAM), *arguments]
    return subprocess.run(
        command, input=said, capture_output=True, text=True, cwd=cwd, timeout=HANG_SECONDS, check=False
    )


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["serve", "nowhere.py"], "There is no file nowhere.py; there are empty.py and two.py."),
        (
            ["serve", "no.such.module"],
            "There is no file or module no.such.module; name a file, as FILE.py, or a module that Python finds.",
        ),
        (["serve", "notes.txt"], "notes.txt is neither a Python file (.py) nor an operations file (.json)."),
        (
            ["serve", "empty.py"],
            "empty.py has no DeltaServer called 'server'; make one, as server = DeltaServer(...).",
        ),
        (["serve", "two.py"], "two.py has no DeltaServer called 'server'; say two.py:a or two.py:b."),
        (["serve", "two.py:other"], "two.py has no DeltaServer called 'other'; say two.py:a or two.py:b."),
        (["serve", "empty.py", "--http", "8000"], "--http takes HOST:PORT, such as 127.0.0.1:8000, not '8000'."),
        (["serve", "empty.py", "--http", "x:99999"], "--http takes HOST:PORT, such as 127.0.0.1:8000, not 'x:99999'."),
        (
            ["serve", "empty.py", "--compat"],
            "--compat needs --http HOST:PORT: over stdio every client gets its own protocol.",
        ),
        (
            ["serve", "two.py:a", "--compat", "--http", "127.0.0.1:0", "--allow-host", "x"],
            "compat=True checks the Origin and not the Host; leave out allowed_hosts.",
        ),
    ],
)
def test_a_mistake_is_told_in_one_sentence(tmp_path, arguments, sentence):
    (tmp_path / "notes.txt").write_text("")
    (tmp_path / "empty.py").write_text("")
    (tmp_path / "two.py").write_text("from deltamcp import DeltaServer\na, b = DeltaServer('a'), DeltaServer('b')\n")
    done = run(*arguments, cwd=tmp_path)

    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"delta-mcp: {sentence}\n")


def test_debug_shows_where_a_mistake_was_found(tmp_path):
    done = run("--debug", "serve", "nowhere.py", cwd=tmp_path)

    assert done.returncode == 2
    assert "Traceback" in done.stderr


def test_a_server_in_a_file_or_a_module_is_served(tmp_path):
    (tmp_path / "mine.py").write_text("from deltamcp import DeltaServer\nnotes = mcp = DeltaServer('notes')\n")
    request = '{"jsonrpc":"2.0","id":1,"method":"ping"}\n'
    for target in ("mine.py:notes", "mine:notes", "mine.py", "mine"):
        done = run("serve", target, cwd=tmp_path, said=request)
        assert (done.returncode, done.stdout) == (0, '{"jsonrpc":"2.0","id":1,"result":{}}\n')


PRINTING = """
import os, sys
from deltamcp import DeltaServer

print("printed at import", flush=True)
os.write(1, b"written at import\\n")
print("read at import:", repr(sys.stdin.readline()))
server = DeltaServer("printing")
"""


@pytest.mark.parametrize("target", ["printing.py", "printing"])
def test_what_the_authors_file_prints_while_it_loads_does_not_reach_the_client(tmp_path, target):
    (tmp_path / "printing.py").write_text(PRINTING)
    done = run("serve", target, cwd=tmp_path, said='{"jsonrpc":"2.0","id":1,"method":"ping"}\n')
    assert (done.returncode, done.stdout) == (0, '{"jsonrpc":"2.0","id":1,"result":{}}\n')
    assert done.stderr == "printed at import\nwritten at import\nread at import: ''\n"


# Over HTTP

SLOW_START = """
import asyncio, contextlib, pathlib, sys
from deltamcp import DeltaServer

@contextlib.asynccontextmanager
async def lifespan(server):
    print("starting", file=sys.stderr, flush=True)
    while not pathlib.Path("go").exists():
        await asyncio.sleep(0.01)
    yield
    print("stopped", file=sys.stderr, flush=True)

server = DeltaServer("slow", lifespan=lifespan)
"""
BROKEN_START = """
import contextlib
from deltamcp import DeltaServer

@contextlib.asynccontextmanager
async def lifespan(server):
    raise RuntimeError("the database is down")
    yield

server = DeltaServer("broken", lifespan=lifespan)
"""
STOPPED = "INFO deltamcp: stopped\n"
SCRIPT = """
import sys
from slow import server
server.run("http", port=0)
"""


@pytest.mark.parametrize("command", [[str(FORKED_PROGRAM), "serve", "slow.py", "--http", "127.0.0.1:0"], ["script.py"]])
def test_the_address_is_said_once_the_server_listens_there(tmp_path, command):
    (tmp_path / "slow.py").write_text(SLOW_START)
    (tmp_path / "script.py").write_text(SCRIPT)
    command = command if len(command) > 1 else [sys.executable, *command]
    with running_program(command, tmp_path) as program:
        program.wait_for("starting")
        assert "Serving" not in program.text()
        (tmp_path / "go").touch()
        port = int(program.wait_for(r"Serving slow at http://127\.0\.0\.1:(\d+)/mcp \(Ctrl-C stops\)\n")[1])
        with socket.socket() as probe:
            assert probe.connect_ex(("127.0.0.1", port)) == 0
        assert program.end() == 0
    ended = STOPPED if "serve" in command else ""
    assert re.fullmatch(rf"starting\nServing slow at \S+ \(Ctrl-C stops\)\nstopped\n{ended}", program.text())


@pytest.mark.parametrize("words", [("--http", "127.0.0.1:0"), ("--grpc", "127.0.0.1:0")])
def test_the_log_says_when_a_server_has_stopped(tmp_path, words):
    (tmp_path / "slow.py").write_text(SLOW_START)
    (tmp_path / "go").touch()
    with running_program([str(FORKED_PROGRAM), "serve", "slow.py", *words], tmp_path) as program:
        program.wait_for(r"\(Ctrl-C stops\)")
        assert STOPPED not in program.text()
        assert program.end() == 0
    assert program.text().endswith(f"\nstopped\n{STOPPED}"), "after the author's lifespan"


def test_the_log_says_when_a_gateway_has_stopped(tmp_path, monkeypatch):
    for purpose in ("STATE", "CACHE", "CONFIG"):
        monkeypatch.setenv(f"XDG_{purpose}_HOME", str(tmp_path / purpose.lower()))
    (tmp_path / "slow.py").write_text("from deltamcp import DeltaServer\nserver = DeltaServer('slow')")
    with running_program([str(FORKED_PROGRAM), "gateway", "--http", "127.0.0.1:0", "slow.py"], tmp_path) as program:
        program.wait_for(r"\(Ctrl-C stops\)")
        assert program.end() == 0
    assert program.text().endswith(STOPPED)


@pytest.mark.parametrize("transport", [[], ["--http", "127.0.0.1:0"]])
def test_a_lifespan_that_fails_is_told_in_one_sentence(tmp_path, transport):
    (tmp_path / "mine.py").write_text(BROKEN_START)
    done = run("serve", "mine.py", *transport, cwd=tmp_path)
    sentence = "delta-mcp: mine.py failed with RuntimeError: the database is down; --debug shows where.\n"
    assert (done.returncode, done.stdout, done.stderr) == (1, "", sentence)
    debugged = run("serve", "mine.py", *transport, "--debug", cwd=tmp_path)
    assert debugged.returncode == 1
    assert 'mine.py", line 7, in lifespan' in debugged.stderr


def test_a_port_that_is_taken_is_told_in_one_sentence_before_anything_starts(tmp_path):
    (tmp_path / "slow.py").write_text(SLOW_START)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = run("serve", "slow.py", "--http", f"127.0.0.1:{port}", cwd=tmp_path)
    sentence = f"delta-mcp: Cannot listen at 127.0.0.1:{port}: Address already in use; name another.\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", sentence)


# What cannot be imported


@pytest.mark.parametrize("target", ["mine.py", "mine"])
def test_an_error_in_the_authors_file_is_shown_with_the_authors_lines_only(tmp_path, target):
    (tmp_path / "mine.py").write_text("import other\n")
    (tmp_path / "other.py").write_text("word = missing\n")
    done = run("serve", target, cwd=tmp_path)
    assert done.returncode == 2
    lines = done.stderr.splitlines()
    reason = "NameError: name 'missing' is not defined (other.py, line 1)"
    assert lines[0] == f"delta-mcp: {target} cannot be imported: {reason}."
    assert lines[-1] == "NameError: name 'missing' is not defined"
    assert [Path(file).name for file in re.findall(r'File "(.+?)"', done.stderr)] == ["mine.py", "other.py"]


# The log

FAILING = """
import logging
from deltamcp import DeltaServer

server = DeltaServer("failing")

@server.tool
def fail() -> str:
    logging.getLogger("mine").debug("a detail of mine")
    logging.getLogger("mine").info("a fact of mine")
    raise ValueError("the password is secret")
"""


def call_failing(folder: Path, *options: str) -> tuple[str, str]:
    """What the caller of a failing tool reads, and what the server writes to stderr."""
    (folder / "failing.py").write_text(FAILING)
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "fail"}}
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "0"}}
    initialize = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello}
    lines = "".join(f"{json.dumps(message)}\n" for message in (initialize, call))
    done = run("serve", "failing.py", *options, cwd=folder, said=lines)
    assert done.returncode == 0
    reply = json.loads(done.stdout.splitlines()[1])
    return reply["result"]["content"][0]["text"], done.stderr


def test_a_failure_says_that_the_log_is_on_stderr(tmp_path):
    text, stderr = call_failing(tmp_path)
    found = re.fullmatch(
        r"The tool fail failed \(error (\w+)\); the server's log, which is its stderr, says why\.", text
    )
    assert found is not None, text
    assert f"ERROR deltamcp: The tool fail failed, error {found[1]}" in stderr
    assert "the password is secret" in stderr
    assert "INFO mine: a fact of mine" in stderr and "a detail of mine" not in stderr


def test_call_says_how_to_see_the_stderr_that_a_failure_points_to(tmp_path):
    (tmp_path / "failing.py").write_text(FAILING)
    done = run("call", "failing.py", "fail", cwd=tmp_path)
    text, hint = done.stderr.splitlines()
    assert text.endswith("; the server's log, which is its stderr, says why.")
    assert hint == "delta-mcp: --debug shows the stderr of a server that this command starts."
    debugged = run("call", "failing.py", "fail", "--debug", cwd=tmp_path)
    assert "ValueError: the password is secret" in debugged.stderr and hint not in debugged.stderr


def test_a_failure_says_which_file_the_log_is(tmp_path):
    (tmp_path / "logs").mkdir()
    text, stderr = call_failing(tmp_path, "--log-file", "logs/failing.log")
    found = re.fullmatch(r"The tool fail failed \(error (\w+)\); the server's log, failing\.log, says why\.", text)
    assert found is not None, text
    assert stderr == ""
    log = (tmp_path / "logs" / "failing.log").read_text()
    failed = rf"^\d{{4}}-\S+ \S+ ERROR deltamcp: The tool fail failed, error {found[1]}\\nTraceback .*is secret$"
    assert re.search(failed, log, re.MULTILINE)


@pytest.mark.parametrize(
    ("level", "expected"),
    [
        ("debug", {"a detail of mine", "a fact of mine", "operation=fail", "Traceback"}),
        ("info", {"a fact of mine", "Traceback"}),
        ("error", {"Traceback"}),
    ],
)
def test_the_log_has_what_its_level_admits(tmp_path, level, expected):
    _, stderr = call_failing(tmp_path, "--log-level", level)
    assert {
        text for text in ("a detail of mine", "a fact of mine", "operation=fail", "Traceback") if text in stderr
    } == (expected)


def test_a_log_file_that_cannot_be_written_is_told_in_one_sentence(tmp_path):
    (tmp_path / "failing.py").write_text(FAILING)
    done = run("serve", "failing.py", "--log-file", "no/folder.log", cwd=tmp_path)
    sentence = "delta-mcp: no/folder.log cannot be written: No such file or directory; name another --log-file.\n"
    assert (done.returncode, done.stderr) == (2, sentence)


def test_over_http_a_failure_names_the_log_and_no_folder(tmp_path):
    (tmp_path / "failing.py").write_text(FAILING)
    log = tmp_path / "private" / "failing.log"
    log.parent.mkdir()
    command = [str(FORKED_PROGRAM), "serve", "failing.py", "--http", "127.0.0.1:0", "--log-file", str(log)]

    async def fail(url: str) -> str:
        async with connect(url) as client:
            return (await client.call_tool("fail")).text

    with running_program(command, tmp_path) as program:
        text = asyncio.run(fail(program.wait_for(r"http://\S+")[0]))
    assert "; the server's log, failing.log, says why." in text
    assert str(tmp_path) not in text and "private" not in text
    assert "Traceback" in log.read_text() and "Traceback" not in program.text()


def test_compat_speaks_the_http_of_the_original(tmp_path):
    (tmp_path / "mine.py").write_text("from deltamcp import DeltaServer\nserver = DeltaServer('mine')\n")
    command = [
        str(FORKED_PROGRAM),
        "serve",
        "mine.py",
        "--http",
        "127.0.0.1:0",
        "--compat",
        "--allow-origin",
        "https://a.example",
    ]
    with running_program(command, tmp_path) as program:
        answer = httpx2.options(program.wait_for(r"http://\S+")[0], headers={"origin": "https://a.example"})
    assert (answer.status_code, answer.headers["mcp-protocol-version"]) == (204, "2025-11-25")


# No secrets

SECRETIVE = """
import logging
from deltamcp import Context, DeltaServer, ToolError

server = DeltaServer("secretive")

@server.tool
async def log_in(password: str, fails: bool = False) -> str:
    logging.getLogger("mine").info("somebody logs in")
    if fails:
        raise ToolError("wrong password")
    return "welcome"

@server.tool
async def crash(password: str) -> str:
    raise RuntimeError("the door is stuck")
"""


async def talk_in_secret(url: str) -> None:
    async with connect(url, token="s3cret-token", headers={"x-api-key": "s3cret-key"}) as client:
        await client.call_tool("log_in", {"password": "s3cret-word"})
        await client.call_tool("log_in", {"password": "s3cret-word", "fails": True})
        await client.call_tool("crash", {"password": "s3cret-word"})
        with pytest.raises(ClientError):
            await client.call("log_in", password=["s3cret-word"])
    async with httpx2.AsyncClient() as web:
        headers = {"authorization": "Bearer s3cret-token", "cookie": "session=s3cret-cookie"}
        await web.post(url, content=b'{"s3cret": ', headers={**headers, "content-type": "application/json"})
        await web.post(url, json={}, headers={**headers, "host": "evil.example"})
        await web.get(f"{url}/s3cret-path?token=s3cret-query", headers=headers)


@pytest.mark.diagonal("log_format", "workers")
@pytest.mark.parametrize("log_format", ["text", "json"])
@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_log_of_everything_has_no_secrets_of_callers(tmp_path, log_format, workers):
    (tmp_path / "secretive.py").write_text(SECRETIVE)
    (tmp_path / "keys").write_text("5e" * 32)
    options = ["--log-level", "debug", "--log-format", log_format, "--state-key-file", "keys", "--workers", workers]
    command = [str(PROGRAM), "serve", "secretive.py", "--http", "127.0.0.1:0", *options]
    with running_program(command, tmp_path) as program:
        url = program.wait_for(r"Serving secretive at (http://[^\s\"]+)")[1]
        asyncio.run(talk_in_secret(url))
        assert program.end() == 0
    text = program.text()
    assert "somebody logs in" in text and "the door is stuck" in text and "log_in" in text, "it is a log of everything"
    assert "s3cret" not in text and "5e5e" not in text
    if log_format == "json":
        entries = [json.loads(line) for line in text.splitlines()]
        assert all(entry.keys() >= {"time", "level", "logger", "process", "message"} for entry in entries)
        calls = [entry for entry in entries if entry["logger"] == "deltamcp.calls"]
        assert [(call["operation"], call["outcome"], call["principal"]) for call in calls][:3] == [
            ("log_in", "done", "anonymous"),
            ("log_in", "error", "anonymous"),
            ("crash", "error", "anonymous"),
        ]
        [failure] = [entry for entry in entries if "exception" in entry]
        assert failure["level"] == "error" and failure["exception"].endswith("RuntimeError: the door is stuck")


CONFIGURED = """
import gc, sys
from deltamcp import DeltaServer

server = DeltaServer("configured")

@server.tool
async def describe_process() -> list[bool]:
    loaded = "deltamcp.deltas.delta" in sys.modules
    return [gc.get_freeze_count() > 10_000, sys.getswitchinterval() < 0.002, loaded]
"""


async def describe_process(target: Any) -> Any:
    async with connect(target) as client:
        return await client.call("describe_process")


@pytest.mark.parametrize("words", [(), ("--workers", "2")])
def test_a_process_that_serves_http_is_set_up_for_it(tmp_path, words):
    (tmp_path / "configured.py").write_text(CONFIGURED)
    command = [str(PROGRAM), "serve", "configured.py", "--http", "127.0.0.1:0", *words]
    with running_program(command, tmp_path) as program:
        url = program.wait_for(r"(http://127\.0\.0\.1:\d+/mcp)")[1]
        assert asyncio.run(describe_process(url)) == [True, True, True]
        assert program.end() == 0


async def test_a_process_that_serves_stdio_is_set_up_without_what_its_start_can_do_without(tmp_path):
    (tmp_path / "configured.py").write_text(CONFIGURED)
    entry = {"command": str(PROGRAM), "args": ["serve", "configured.py"], "cwd": str(tmp_path)}
    assert await describe_process(entry) == [True, True, False]


@pytest.mark.parametrize("words", [("--http", "127.0.0.1:0"), ("--grpc", "127.0.0.1:0")])
def test_the_process_of_a_gateway_is_set_up_as_that_of_a_server(tmp_path, monkeypatch, words):
    import deltamcp.transports.grpc.server
    import deltamcp.transports.http.server

    set_up: list[bool] = []
    monkeypatch.setattr(
        "deltamcp.cli.serving.serve_command.dedicate_process", lambda _, loads_modules: set_up.append(loads_modules)
    )
    monkeypatch.setattr(deltamcp.transports.http.server.HttpServer, "run", lambda *_: None)
    monkeypatch.setattr(deltamcp.transports.grpc.server.GrpcServer, "run", lambda *_: None)
    for name in ("CONFIG", "CACHE", "STATE", "DATA"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path))
    (tmp_path / "gateway.toml").write_text('[servers.one]\nurl = "http://127.0.0.1:9/mcp"\n')
    main(["gateway", str(tmp_path / "gateway.toml"), *words])
    assert set_up == [True]
