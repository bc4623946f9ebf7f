"""`delta-mcp dev` with the Inspector that npm publishes: it starts, reaches the server, and ends without a trace."""

import contextlib
import json
import re
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltamcp.cli.verbs.serve import INSPECTOR, inspector_environment
from tests.support.conditions import HANG_SECONDS
from tests.support.paths import FORKED_PROGRAM, ROOT
from tests.support.processes import free_port
from tests.support.program import RunningProgram, running_program

SHELF = """
from deltamcp import DeltaServer

server = DeltaServer("shelf")

@server.tool
def title() -> str:
    return "one"
"""


@pytest.fixture
def bin_folder(tmp_path: Path) -> Path:
    """A folder for PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    return folder


def write_program(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


@pytest.fixture
def with_node(node: Path, bin_folder: Path) -> Path:
    """Node and its npx, which the PyPI package does not put on PATH in a way that works."""
    (bin_folder / "node").symlink_to(node)
    npx = node.parents[1] / "lib" / "node_modules" / "npm" / "bin" / "npx-cli.js"
    write_program(bin_folder / "npx", f'exec {node} {npx} "$@"')
    return bin_folder


@contextlib.contextmanager
def developed(folder: Path, bin_folder: Path, node_modules: Path, port: int) -> Iterator[RunningProgram]:
    (folder / "shelf.py").write_text(SHELF)
    environment = {
        "HOME": str(folder),
        "PATH": f"{bin_folder}:/usr/bin:/bin",
        "MCP_AUTO_OPEN_ENABLED": "false",
        "CLIENT_PORT": str(port),
        "MCP_SANDBOX_PORT": "0",
        # What `dev` must not pass on.
        "HOST": "0.0.0.0",
        "DANGEROUSLY_OMIT_AUTH": "true",
        "MCP_INSPECTOR_API_TOKEN": "guessed",
        "ALLOWED_ORIGINS": "https://evil.example",
    }
    # npx takes the Inspector that is installed in the folder in which it runs, and downloads none.
    command = [str(FORKED_PROGRAM), "dev", str(folder / "shelf.py")]
    with running_program(command, folder, node_modules.parent, environment) as program:
        yield program


class InspectorApi:
    """What the Inspector's page asks its backend for; the token is in the address that it prints."""

    def __init__(self, program: RunningProgram) -> None:
        found = program.wait_for(r"(http://\S+:\d+)/?\?MCP_INSPECTOR_API_TOKEN=(\w+)")
        self.http = httpx2.Client(
            base_url=found[1],
            headers={"x-mcp-remote-auth": f"Bearer {found[2]}", "origin": found[1]},
            trust_env=False,
            timeout=HANG_SECONDS,
        )

    def ask(self, method: str, path: str, **options: Any) -> Any:
        answer = self.http.request(method, path, **options)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def list_tools(self, config: dict[str, Any]) -> list[str]:
        session = self.ask("POST", "/api/mcp/connect", json={"config": config})["sessionId"]
        with self.http.stream("GET", "/api/mcp/events", params={"sessionId": session}) as events:
            lines = events.iter_lines()
            meta = {
                "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                "io.modelcontextprotocol/clientCapabilities": {},
            }
            message = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": meta}}
            sent = {"sessionId": session, "message": message, "protocolVersion": "2026-07-28"}
            assert self.ask("POST", "/api/mcp/send", json=sent) == {"ok": True}
            for line in lines:
                if line.startswith("data:") and '"tools"' in line:
                    reply = json.loads(line.removeprefix("data:"))
                    return re.findall(r'"name": "(\w+)"', json.dumps(reply))
        raise AssertionError("the stream ended")


@pytest.mark.interop
@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.deep)])
def test_the_inspector_reaches_the_server_and_both_end_together(tmp_path, with_node, node_modules, number):
    with contextlib.ExitStack() as stack:
        program = stack.enter_context(developed(tmp_path, with_node, node_modules, free_port()))
        url = program.wait_for(r"Serving shelf at (\S+)")[1]
        inspector = InspectorApi(program)
        stack.enter_context(inspector.http)
        [config] = inspector.ask("GET", "/api/servers")["mcpServers"].values()
        assert config["url"] == url
        assert "title" in inspector.list_tools(config)
        said = len(program.text())
        (tmp_path / "shelf.py").write_text(SHELF.replace("def title", "def heading"))
        program.wait_for(r"Serving shelf at ", said)
        assert "heading" in inspector.list_tools(config)
        assert program.end(number) == 0


@pytest.mark.interop
def test_the_inspector_listens_on_loopback_and_asks_for_a_token_of_its_own(tmp_path, with_node, node_modules):
    port = free_port()
    with developed(tmp_path, with_node, node_modules, port) as program:
        with InspectorApi(program).http as http:
            assert http.headers["x-mcp-remote-auth"] != "Bearer guessed"
            assert http.get("/api/servers").status_code == 200
            for token in ("", "Bearer guessed"):
                assert http.get("/api/servers", headers={"x-mcp-remote-auth": token}).status_code == 401
            assert http.get("/api/servers", headers={"origin": "https://evil.example"}).status_code == 403
        listening = [line.split()[1] for line in Path("/proc/net/tcp").read_text().splitlines() if " 0A " in line]
        assert f"0100007F:{port:04X}" in listening and f"00000000:{port:04X}" not in listening


def test_the_inspector_of_dev_is_the_one_that_the_tests_run():
    package = json.loads((ROOT / "tests" / "node" / "package.json").read_text())
    name, _, version = INSPECTOR.rpartition("@")
    assert package["dependencies"][name] == version


@given(st.dictionaries(st.sampled_from(["HOST", "Dangerously_Omit_Auth", "DANGEROUSLY_OMIT_AUTH", "PATH"]), st.text()))
def test_no_variable_opens_the_inspector(environment):
    passed = inspector_environment(environment)
    assert passed == {**{name: value for name, value in environment.items() if name == "PATH"}, "HOST": "127.0.0.1"}


@pytest.mark.interop
def test_an_inspector_that_cannot_start_ends_it(tmp_path, with_node, node_modules):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        with developed(tmp_path, with_node, node_modules, taken.getsockname()[1]) as program:
            assert program.process.wait(HANG_SECONDS) == 2
    assert program.text().endswith("delta-mcp: The Inspector has ended; what it said is above.\n")


WITHOUT_NODE = "delta-mcp serve shelf.py --http 127.0.0.1:8000 --reload"


def develop(folder: Path, path: Path, file: str = "shelf.py") -> "subprocess.CompletedProcess[str]":
    (folder / "shelf.py").write_text(SHELF)
    command = [str(FORKED_PROGRAM), "dev", file]
    return subprocess.run(
        command, capture_output=True, text=True, cwd=folder, env={"PATH": str(path)}, timeout=HANG_SECONDS, check=False
    )


def test_without_node_one_sentence_says_what_to_install(tmp_path, bin_folder):
    done = develop(tmp_path, bin_folder)
    sentence = "The Inspector needs Node, which is not on PATH; install Node 22.19 or newer from nodejs.org"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"delta-mcp: {sentence}, or run {WITHOUT_NODE}\n")


def test_the_file_is_looked_at_before_node(tmp_path, bin_folder):
    done = develop(tmp_path, bin_folder, "shelv.py")
    assert done.stderr == "delta-mcp: There is no file shelv.py; did you mean shelf.py?\n"


@pytest.mark.parametrize("version", ["v20.20.2", "v22.18.0", ""])
def test_an_old_node_is_told_of(tmp_path, bin_folder, version):
    write_program(bin_folder / "node", f"echo {version}")
    write_program(bin_folder / "npx", "exit 9")
    done = develop(tmp_path, bin_folder)
    sentence = f"The Inspector does not run on Node {version[1:]}; install Node 22.19 or newer from nodejs.org"
    assert (done.returncode, done.stderr) == (2, f"delta-mcp: {sentence}, or run {WITHOUT_NODE}\n")
