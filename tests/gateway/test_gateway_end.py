"""Nothing is left running after a gateway has ended, however it ends, and whatever the servers behind it ignore."""

import contextlib
import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import fake_stdio
from tests.support.conditions import wait_until
from tests.support.marked_processes import find_marked, needs_proc, new_mark
from tests.support.paths import PROGRAM
from tests.support.processes import free_port, wait_until_it_listens

pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="Windows has no process groups"),
    needs_proc,
]

HOST = """
import subprocess, sys, time
gateway = subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
time.sleep(1000)
"""
COUNT = 6
"""A plain server; a stubborn one; a shell, a stubborn server below it, and two more that it started."""


def write_config(folder: Path, mark: str) -> Path:
    """A configuration of servers that end by themselves, that do not, and that have started others as npx does."""
    env = {"MARK": mark}
    plain, *plain_args = fake_stdio.command()
    stubborn, *stubborn_args = fake_stdio.command(stubborn=True)
    tree = f"sleep 1000 & (trap '' TERM; sleep 1000) & {shlex.join([stubborn, *stubborn_args])}; :"
    servers = {
        "plain": {"command": plain, "args": plain_args, "env": env},
        "stubborn": {"command": stubborn, "args": stubborn_args, "env": env},
        "tree": {"command": "sh", "args": ["-c", tree], "env": env},
    }
    path = folder / "servers.json"
    path.write_text(json.dumps({"mcpServers": servers}))
    return path


@pytest.fixture
def mark() -> Iterator[str]:
    mark = new_mark()
    yield mark
    for pid in find_marked(mark):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


@pytest.fixture
def gateway(tmp_path, mark) -> list[str]:
    return [str(PROGRAM), "gateway", str(write_config(tmp_path, mark))]


@pytest.fixture
def environment(tmp_path) -> dict[str, str]:
    folders = {f"XDG_{name}_HOME": str(tmp_path / name) for name in ("STATE", "CACHE", "CONFIG")}
    return {**os.environ, **folders}


def started(command: list[str], environment: dict[str, str], **options: Any) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=environment,
        start_new_session=True,
        **options,
    )


@pytest.mark.parametrize("end", ["eof", "SIGTERM", "SIGINT", "SIGKILL"])
async def test_over_stdio_nothing_is_left(gateway, environment, mark, end):
    process = started(gateway, environment, stdin=subprocess.PIPE)
    assert process.stdin is not None
    await wait_until(lambda: len(find_marked(mark)) >= COUNT, "all servers run")
    if end == "eof":
        process.stdin.close()
    else:
        process.send_signal(getattr(signal, end))
    process.wait()
    process.stdin.close()
    await wait_until(lambda: not find_marked(mark), "the end of all servers")


@pytest.mark.parametrize("end", ["SIGTERM", "SIGINT", "SIGKILL"])
async def test_over_http_nothing_is_left(gateway, environment, mark, end):
    port = free_port()
    process = started([*gateway, "--http", f"127.0.0.1:{port}"], environment, stdin=subprocess.DEVNULL)
    wait_until_it_listens(process, port)
    await wait_until(lambda: len(find_marked(mark)) >= COUNT, "all servers run")
    process.send_signal(getattr(signal, end))
    process.wait()
    await wait_until(lambda: not find_marked(mark), "the end of all servers")


async def test_a_host_that_is_killed_leaves_nothing(gateway, environment, mark):
    host = started([sys.executable, "-c", HOST, *gateway], environment, stdin=subprocess.DEVNULL)
    await wait_until(lambda: len(find_marked(mark)) >= COUNT, "all servers run")
    host.kill()
    host.wait()
    await wait_until(lambda: not find_marked(mark), "the end of all servers")


async def test_a_whole_session_that_is_killed_leaves_nothing(gateway, environment, mark):
    """As a host does that ends its own process group, the gateway's too."""
    host = started([sys.executable, "-c", HOST, *gateway], environment, stdin=subprocess.DEVNULL)
    await wait_until(lambda: len(find_marked(mark)) >= COUNT, "all servers run")
    os.killpg(host.pid, signal.SIGKILL)
    host.wait()
    await wait_until(lambda: not find_marked(mark), "the end of all servers")
