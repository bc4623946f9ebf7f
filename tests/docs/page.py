"""A page of the documentation: its code blocks, and how each of them is run.

An HTML comment right above a block says what it is, where that is not to run it:

    <!-- file: shelf.py -->        saved under this name, for the blocks that follow
    <!-- not run: the reason -->   neither saved nor run

`python` blocks are programs; a `text` block that follows one is what it prints. `console` blocks are commands, each
behind `$ `, with what they print. `sh` blocks are commands without their output: their options are checked. `json`
blocks are parsed. In what is printed, `...` stands for anything, and all short handles (`R4ph7`) are alike.
"""

import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.support.fork_server import Start, run_forked
from tests.support.paths import ROOT

PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
PLACEHOLDER = "/path/to/"
"""A reader's own folder; here the one that the page's files are in."""

_BLOCK = re.compile(
    r"(?:^<!-- (?P<what>file|not run): (?P<value>.+?) -->\n)?^```(?P<language>\w*)\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
_HANDLE = re.compile(r"\bR[0-9a-z]{4}\b")
_SHELL = re.compile(r"[|&;<>()$`*?~#]")
"""What makes a command one for a shell."""
_SECONDS = 600
"""After which a block hangs; none takes more than a few, on a machine with nothing else to do."""


class Block(NamedTuple):
    language: str
    text: str
    file: str | None
    reason: str | None
    """Why it is not run."""


class Page:
    """One page, whose blocks run one after the other in one folder."""

    def __init__(self, path: Path, folder: Path) -> None:
        self.path = path
        self._folder = folder
        for name in ("examples", "bench"):
            (folder / name).symlink_to(ROOT / name)
        self._environment = {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(folder),
        }

    def run(self) -> None:
        """
        Raises:
            AssertionError: a block does not do what the page says.
        """
        printed: str | None = None
        for block in blocks(self.path):
            if block.reason is not None:
                continue
            if block.file is not None:
                (self._folder / block.file).write_text(self._resolve(block.text))
                printed = None
                continue
            match block.language:
                case "python":
                    printed = self._run_program(block.text)
                case "text":
                    assert printed is not None, f"what prints this?\n{block.text}"
                    assert_printed(printed, block.text, "the program above")
                    printed = None
                case "console":
                    for command, shown in commands(block.text):
                        assert_printed(self._run_command(command), shown, command)
                case "sh":
                    for line in block.text.splitlines():
                        self._check_options(line)
                case "json":
                    json.loads(block.text)
                case "toml":
                    tomllib.loads(block.text)
                case other:
                    raise AssertionError(f"nothing runs {other!r} blocks:\n{block.text}")

    def _resolve(self, text: str) -> str:
        return text.replace(PLACEHOLDER, f"{self._folder}/")

    def _run_program(self, text: str) -> str:
        (self._folder / "program.py").write_text(self._resolve(text))
        start = Start([], str(self._folder), self._environment, program=str(self._folder / "program.py"))
        ran = _text(run_forked(start))
        assert ran.returncode == 0, f"{text}\n{ran.stdout}{ran.stderr}"
        return ran.stdout

    def _run_command(self, command: str) -> str:
        command = self._resolve(command)
        if command.startswith("delta-mcp ") and not _SHELL.search(command):
            ran = self._run_delta_mcp(shlex.split(command)[1:])
        else:
            ran = subprocess.run(
                ["sh", "-c", command],
                cwd=self._folder,
                env=self._environment,
                capture_output=True,
                text=True,
                timeout=_SECONDS,
            )
        assert "Traceback (most recent call last)" not in ran.stderr, f"{command}\n{ran.stderr}"
        return ran.stdout + ran.stderr

    def _check_options(self, line: str) -> None:
        """
        Raises:
            AssertionError: the line calls `delta-mcp` with a command or an option that there is not.
        """
        words = shlex.split(line, comments=True)
        if words[:1] != ["delta-mcp"]:
            return
        described = self._run_delta_mcp([words[1], "--help"])
        assert described.returncode == 0, line
        for option in (word for word in words if word.startswith("--")):
            assert re.search(rf"{option}\b", described.stdout), line

    def _run_delta_mcp(self, words: list[str]) -> "subprocess.CompletedProcess[str]":
        return _text(run_forked(Start(words, str(self._folder), self._environment)))


def _text(done: "subprocess.CompletedProcess[bytes]") -> "subprocess.CompletedProcess[str]":
    return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())


def blocks(path: Path) -> Iterator[Block]:
    for found in _BLOCK.finditer(path.read_text()):
        what, value = found["what"], found["value"]
        yield Block(
            found["language"],
            found["text"],
            value if what == "file" else None,
            value if what == "not run" else None,
        )


def commands(text: str) -> Iterator[tuple[str, str]]:
    """The commands of a transcript, each with what it prints."""
    assert text.startswith("$ "), text
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        command, _, shown = part.partition("\n")
        yield command, shown


def assert_printed(printed: str, shown: str, what: str) -> None:
    """
    Raises:
        AssertionError: what was printed is not what the page shows.
    """
    actual, expected = _normalise(printed), _normalise(shown)
    pattern = ".*?".join(map(re.escape, expected.split("...")))
    assert re.fullmatch(pattern, actual, re.DOTALL), f"{what} prints\n{printed}\nand the page shows\n{shown}"


def _normalise(text: str) -> str:
    lines = [line.rstrip() for line in text.strip("\n").splitlines()]
    return _HANDLE.sub("R0000", "\n".join(lines)).strip()
