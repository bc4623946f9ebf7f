"""The README of an example: its commands, as a reader types them, on ports that are free here.

Commands are in `sh` blocks; a `text` block right after one is what the last of its commands prints, where `...` stands
for anything.
"""

import os
import re
import subprocess
from collections.abc import Iterator
from typing import NamedTuple

from tests.docs.page import Block, blocks
from tests.support.conditions import HANG_SECONDS
from tests.support.paths import FORKED_PATH, ROOT
from tests.support.processes import free_port

_PORT = re.compile(r"(127\.0\.0\.1:|\B--port )(\d{4})\b")


class ReadmeCommand(NamedTuple):
    text: str
    shown: str | None
    """What the README shows of its output."""


class ExampleReadme:
    """The commands of one README, whose ports are replaced by free ones, the same each time."""

    def __init__(self, example: str) -> None:
        text = (ROOT / "examples" / example / "README.md").read_text()
        self._ports = {port: str(free_port()) for _, port in _PORT.findall(text)}
        self._path = ROOT / "examples" / example / "README.md"

    def commands(self) -> list[ReadmeCommand]:
        return list(self._commands())

    def port(self, written: int) -> int:
        """The port that takes the place of one in the README."""
        return int(self._ports[str(written)])

    def _commands(self) -> Iterator[ReadmeCommand]:
        previous: Block | None = None
        for block in [*blocks(self._path), None]:
            if previous is not None and previous.language == "sh":
                lines = previous.text.replace("\\\n", " ").splitlines()
                for line in lines[:-1]:
                    yield ReadmeCommand(self._with_free_ports(line), None)
                shown = block.text if block is not None and block.language == "text" else None
                yield ReadmeCommand(self._with_free_ports(lines[-1]), shown)
            previous = block

    def _with_free_ports(self, line: str) -> str:
        return _PORT.sub(lambda match: f"{match[1]}{self._ports[match[2]]}", line)


def shell_environment() -> dict[str, str]:
    """An environment in which commands of this installation are found first."""
    return {**os.environ, "PATH": FORKED_PATH}


def run_shell(command: str) -> str:
    """Runs a command at the root of the repository and returns what it prints; fails where it fails."""
    ran = subprocess.run(
        ["sh", "-c", command], cwd=ROOT, env=shell_environment(), capture_output=True, text=True, timeout=HANG_SECONDS
    )
    assert ran.returncode == 0, f"{command}\n{ran.stdout}{ran.stderr}"
    return ran.stdout
