"""Servers of the table, ready to be started: a scratch folder with what they need, words, environment and a call."""

import os
import signal
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.interop.install import program
from tests.interop.servers import OFFLINE, SERVERS, Call

ALL = os.environ.get("DELTA_MCP_INTEROP") == "all"
NAMES = [name for name, server in SERVERS.items() if server.ci or ALL]
"""The servers that this run of the tests starts."""


@dataclass(frozen=True)
class PreparedServer:
    """How to start a server, and a call that it answers."""

    words: list[str]
    environment: dict[str, str]
    call: Call


def prepare(name: str, folder: Path, web_address: str) -> PreparedServer:
    """Fills a folder for a server; fails the test if the server is not installed."""

    def filled(value: Any) -> Any:
        match value:
            case str():
                return value.replace("{folder}", str(folder)).replace("{web}", web_address)
            case dict():
                return {key: filled(item) for key, item in value.items()}
            case list() | tuple():
                return [filled(item) for item in value]
            case _:
                return value

    server = SERVERS[name]
    try:
        words = [*program(name), *filled(server.words)]
    except FileNotFoundError:
        pytest.fail(f"{name} is not installed: run `python -m tests.interop.install {name}`")
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}  # a hook sets those
    environment = {**inherited, **OFFLINE, **filled(dict(server.environment)), "HOME": str(folder)}
    _furnish(folder, environment)
    call = Call(server.call.tool, filled(server.call.arguments), server.call.says, server.call.outcome)
    return PreparedServer(words, environment, call)


def _furnish(folder: Path, environment: Mapping[str, str]) -> None:
    (folder / "hello.txt").write_text("Hello from afar.\n")
    git = ["git", "-c", "user.name=Ada", "-c", "user.email=ada@tea.test", "-c", "init.defaultBranch=main"]
    dated = {**environment, **dict.fromkeys(("GIT_AUTHOR_DATE", "GIT_COMMITTER_DATE"), "2026-11-16T12:00:00Z")}
    repository = str(folder / "repository")
    subprocess.run([*git, "init", "--quiet", repository], env=dated, check=True)
    commit = ["-C", repository, "commit", "--quiet", "--allow-empty", "--message", "The first commit"]
    subprocess.run([*git, *commit], env=dated, check=True)


def end_left_running(folder: Path) -> list[str]:
    """Processes whose home is still in this folder, each killed; none where the system has no /proc."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            if f"HOME={folder}\0".encode() in (place / "environ").read_bytes():
                found.append((place / "cmdline").read_bytes().replace(b"\0", b" ").decode())
                os.kill(int(place.name), signal.SIGKILL)
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
    return found
