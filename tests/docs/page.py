"""A page of the documentation: its code blocks, and how each of them is run.

An HTML comment right above a block says what it is, where that is not to run it:

    <!-- file: shelf.py -->        saved under this name, for the blocks that follow
    <!-- not run: the reason -->   neither saved nor run

`python` blocks are programs; a `text` block that follows one is what it prints. `console` blocks are commands, each
behind `$ `, with what they print. `sh` blocks are commands without their output: each ends with 0, and a server serves,
at free ports, until it is told to end; `CANNOT_RUN` has those that no test can run, of which the options are checked.
`json` blocks are parsed. All of it runs in a scratch home. In what is printed, `...` stands for anything, and all short
handles (`R4ph7`) are alike.
"""

import json
import os
import re
import shlex
import signal
import subprocess
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from tests.support.command_line import run_on_terminal
from tests.support.fork_server import Start, run_forked
from tests.support.paths import FORKED_PATH, FORKED_PROGRAM, ROOT
from tests.support.program import running_program

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


CANNOT_RUN: Mapping[str, str] = MappingProxyType(
    {
        r"(python3 -m venv|git clone|cd |\. |pip install) ?": "sets up a clone, as `make test` does",
        r"make |python -m (bench|tests)\b": "measures for minutes, or downloads; tests/bench has its parts",
        r"delta-mcp (login|logout) ": "needs an authorization server; tests/cli/test_login.py has one",
        r"delta-mcp (dashboard |gateway .*--dashboard)": "needs a terminal; tests/cli/test_dashboard.py has one",
        r"delta-mcp .*\b(npx|https://)": "needs a server or a package on the network",
        r"delta-mcp dev ": "needs a browser; tests/cli/test_dev.py starts the Inspector",
        r"delta-mcp (worker|serve) .*redis://": "needs Redis; tests/cli/test_worker.py has one",
        r"delta-mcp serve .*--tls-cert": "needs a certificate; tests/transports/http has some",
        r"delta-mcp status ": "asks a gateway that runs; tests/cli/test_dashboard.py has some",
        r"delta-mcp secret ": "needs a keyring; tests/cli/test_secret.py has one",
        r"delta-mcp approve ": "asks a person; tests/cli/test_approve.py answers",
        r"delta-mcp call http://": "asks the server of the block above; tests/auth has such calls",
        r"buf ": "needs a program of others; tests/interop has grpcurl's part",
    }
)
"""The commands of `sh` blocks that no test can run, as expressions, with the reasons."""
_RUNS_ON = re.compile(r"delta-mcp (serve|gateway) .*(--http|--grpc)\b")
"""A command that goes on until it is told to end."""
_ASKS = re.compile(r"delta-mcp approve .*--yes\b")
_PORT = re.compile(r"(?<=[\d.]:)\d{4,5}\b")
_SERVER = """
from deltamcp import DeltaServer
server = DeltaServer("notes")

@server.tool(annotations={"readOnlyHint": True})
async def list_notes() -> list[str]:
    "List the notes."
    return []

if __name__ == "__main__":
    server.run()
"""
"""What a page calls a server of its reader's, where it shows none."""


class Block(NamedTuple):
    language: str
    text: str
    file: str | None
    reason: str | None
    """Why it is not run."""


class Page:
    """One page, whose blocks run one after the other in one folder: a clone in a home, as most readers have it.

    It is a repository, so that files in it wait for approval as those of readers do (docs/gateway.md).
    """

    def __init__(self, path: Path, folder: Path) -> None:
        self.path = path
        home = folder / "home"
        self._folder = home / "delta-mcp"
        (self._folder / ".git").mkdir(parents=True)
        for name in ("examples", "bench"):
            (self._folder / name).symlink_to(ROOT / name)
        (home / ".cursor").mkdir()
        (home / ".cursor" / "mcp.json").write_text(_hosts_file(self._folder))
        self._environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("XDG_")},
            "HOME": str(home),
            "XDG_STATE_HOME": str(home / ".local" / "state"),
            "NO_COLOR": "1",
            "PATH": FORKED_PATH,
            "PYTHONPATH": str(self._folder),
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
                        self._run_shell(line)
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
        if _ASKS.match(command):  # a person at a terminal, who presses Enter
            words = shlex.split(command)[1:]
            shown = run_on_terminal(*words, cwd=self._folder, typed=b"\n", **self._environment).text
            return shown.replace("[Y/n] ", "[Y/n]\n")  # the terminal echoed Enter before there was a question
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

    def _run_shell(self, line: str) -> None:
        """
        Raises:
            AssertionError: the line fails, or names a command or an option that there is not.
        """
        if not line.strip() or line.startswith("#"):
            return
        if reason_not_to_run(line) is not None:
            self._check_options(line)
            return
        self._write_what_readers_have(line)
        here = _PORT.sub("0", line).replace("~", self._environment["HOME"])
        words = shlex.split(here, comments=True)
        if _RUNS_ON.match(line):
            command = [str(FORKED_PROGRAM), *words[1:]]
            with running_program(command, self._folder, env=self._environment) as program:
                program.wait_for(r"Ctrl-C")
                code = program.end()
            assert code in (0, -signal.SIGTERM), f"{line} ends with {code}:\n{program.text()}"
            return
        if words[:2] in (["delta-mcp", "install"], ["delta-mcp", "uninstall"]):
            words.append("--yes")  # there is no person to ask
        ran = subprocess.run(
            words,
            cwd=self._folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_SECONDS,
        )
        assert ran.returncode == 0, f"{line} ends with {ran.returncode}:\n{ran.stdout}{ran.stderr}"

    def _write_what_readers_have(self, line: str) -> None:
        """Writes the files of a reader's own that a command names, where the page has not."""
        for name in re.findall(r"[\w./-]+\.(?:py|json|txt)\b", line):
            path = self._folder / name
            if path.exists() or name.startswith((".", "/")) or "--file" in line:
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text({".py": _SERVER, ".json": _hosts_file(self._folder), ".txt": ""}[path.suffix])
            if path.suffix == ".txt":
                self._run_delta_mcp(["token", "reader", "--file", name])

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


def _hosts_file(folder: Path) -> str:
    """What a host of the reader has: one server."""
    server = {"command": "delta-mcp", "args": ["serve", str(folder / "examples" / "everything.py")]}
    return json.dumps({"mcpServers": {"everything": server}}, indent=2)


def reason_not_to_run(line: str) -> str | None:
    """Returns why no test can run a line of a `sh` block; None if one can."""
    return next((reason for pattern, reason in CANNOT_RUN.items() if re.match(pattern, line)), None)


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
