"""A new user's way: five servers of strangers in Cursor's file, `audit`, `install`, and the gateway answers.

Prints how long each step took (`pytest -s`). It is skipped where the servers are not installed, of which two are in the
large matrix alone.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from deltamcp import connect
from deltamcp.hosts import files
from tests.interop.install import program
from tests.interop.servers import OFFLINE, SERVERS

pytestmark = pytest.mark.interop

NAMES = ("filesystem", "memory", "everything", "git", "time")
SECONDS = 180


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "hello.txt").write_text("Hello from afar.\n")
    (tmp_path / ".cursor").mkdir()
    git = ["git", "-c", "user.name=Ada", "-c", "user.email=ada@tea.test", "-C", str(tmp_path / "repository")]
    subprocess.run(["git", "init", "--quiet", str(tmp_path / "repository")], check=True)
    subprocess.run([*git, "commit", "--quiet", "--allow-empty", "--message", "The first commit"], check=True)
    return tmp_path


def fill(value: Any, folder: Path) -> Any:
    return json.loads(json.dumps(value).replace("{folder}", str(folder)))


def write_entries(home: Path) -> Path:
    """Writes Cursor's file as the servers' own pages say."""
    entries = {}
    for name in NAMES:
        server = SERVERS[name]
        try:
            command, *words = program(name)
        except FileNotFoundError:
            pytest.skip(f"{name} is not installed: python -m tests.interop.install {name}")
        entries[name] = {"command": command, "args": [*words, *fill(server.words, home)]}
        if server.environment:
            entries[name]["env"] = fill(dict(server.environment), home)
    path = home / ".cursor" / "mcp.json"
    path.write_text(json.dumps({"mcpServers": entries}, indent=2))
    return path


async def test_two_commands_lead_to_a_gateway_over_five_servers(home):
    path = write_entries(home)
    original = path.read_bytes()
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("XDG_", "GIT_"))}
    environment = {**inherited, **OFFLINE, "HOME": str(home)}
    started = time.monotonic()

    def run(*words: str) -> str:
        begun = time.monotonic()
        command = [str(Path(sys.executable).with_name("delta-mcp")), *words]
        done = subprocess.run(command, env=environment, cwd=home, capture_output=True, text=True, timeout=SECONDS)
        print(f"\n$ delta-mcp {' '.join(words)}\n{done.stdout}{done.stderr}[{time.monotonic() - begun:.1f} s]")
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert "together" in run("audit")
    assert "Behind the gateway: filesystem, memory, everything, git, time" in run("install", "cursor", "--yes")

    begun = time.monotonic()
    entry = files.find_entry(path, "delta-mcp")
    async with connect({**entry, "env": {**environment, **entry["env"]}}, progressive=False) as client:
        tools = await client.tools()
        print(f"first list: {', '.join(tool.name for tool in tools)} [{time.monotonic() - begun:.1f} s]")
        assert {"discover", "execute", "query"} <= {tool.name for tool in tools}
        overview = await client.call("discover")
        assert all(name in overview for name in NAMES), overview
        for name in NAMES:
            call = SERVERS[name].call
            operation, arguments = f"{name}.{call.tool}", fill(call.arguments, home)
            is_read_only = name in ("filesystem", "everything", "git", "time")
            tool = "query" if is_read_only else "execute"
            answer = await client.call(tool, operation=operation, arguments=arguments)
            print(f"{operation} by {tool} [{time.monotonic() - begun:.1f} s]")
            assert call.says in str(answer), answer
    print(f"from the first command to the last answer: {time.monotonic() - started:.1f} s")
    run("uninstall", "cursor", "--yes")
    assert path.read_bytes() == original
