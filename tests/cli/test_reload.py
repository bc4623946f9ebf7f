"""`serve --reload`: the server restarts when its files change, at the same address, and waits while they are broken."""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from deltamcp import connect
from deltamcp.cli.serving.processes import FileWatch
from tests.support.conditions import HANG_SECONDS, wait_until
from tests.support.paths import FORKED_PROGRAM
from tests.support.program import RunningProgram, running_program

pytestmark = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="looks for processes in /proc")

SHELF = """
from deltamcp import DeltaServer
import titles

server = DeltaServer("shelf")

@server.tool
def title() -> str:
    return titles.FIRST

@server.tool
def late() -> str:
    import lazy
    return lazy.WORD
"""
SERVING = r"Serving shelf at (http://127.0.0.1:\d+/mcp)"


class ReloadedServer:
    """The program, and what its server answers."""

    def __init__(self, program: RunningProgram, folder: Path) -> None:
        self.program = program
        self.folder = folder
        self.url = program.wait_for(SERVING)[1]

    def call(self, tool: str = "title") -> str:
        async def ask() -> str:
            async with connect(self.url) as client:
                return str(await client.call(tool))

        return asyncio.run(ask())

    def write(self, name: str, text: str) -> int:
        """Writes a file as editors do, whole and by another name first; returns how much had been said before."""
        said = len(self.program.text())
        # Python takes byte code of the same size and second for the file's.
        is_as_long = (self.folder / name).exists() and (self.folder / name).stat().st_size == len(text)
        (self.folder / f"{name}.new").write_text(text + "\n" * is_as_long)
        (self.folder / f"{name}.new").replace(self.folder / name)
        return said


@contextlib.contextmanager
def reloaded(folder: Path) -> Iterator[ReloadedServer]:
    command = [str(FORKED_PROGRAM), "serve", "shelf.py", "--http", "127.0.0.1:0", "--reload"]
    with running_program(command, folder) as program:
        yield ReloadedServer(program, folder)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "shelf.py").write_text(SHELF)
    (tmp_path / "titles.py").write_text("FIRST = 'one'")
    (tmp_path / "lazy.py").write_text("WORD = 'early'")
    return tmp_path


def test_a_changed_module_is_served_at_the_same_address(folder):
    with reloaded(folder) as server:
        assert server.call() == "one"
        said = server.write("titles.py", "FIRST = 'two'")
        server.program.wait_for("titles.py has changed: restarting", said)
        assert server.call() == "two", "a connection waits while the server restarts"
        assert server.program.wait_for(SERVING, said)[1] == server.url


def test_the_file_and_modules_that_are_imported_later_are_watched_too(folder):
    with reloaded(folder) as server:
        assert server.call("late") == "early"
        said = server.write("lazy.py", "WORD = 'later'")
        server.program.wait_for(SERVING, said)
        assert server.call("late") == "later"
        said = server.write("shelf.py", SHELF.replace("titles.FIRST", "titles.FIRST.upper()"))
        server.program.wait_for(SERVING, said)
        assert server.call() == "ONE"


@pytest.mark.parametrize(
    ("name", "broken", "error"),
    [
        ("titles.py", "FIRST = ", "SyntaxError: invalid syntax"),
        pytest.param(
            "titles.py", "FIRST = missing", "NameError: name 'missing' is not defined", marks=pytest.mark.deep
        ),
        pytest.param(
            "shelf.py",
            SHELF.replace("server =", "other ="),
            "NameError: name 'server' is not defined",
            marks=pytest.mark.deep,
        ),
        (
            "shelf.py",
            SHELF.replace("('shelf')", "").replace('("shelf")', '("shelf", lifespan=lambda server: 1 / 0)'),
            "shelf.py failed with ZeroDivisionError: division by zero; --debug shows where.",
        ),
    ],
)
def test_an_error_is_shown_and_the_next_change_is_waited_for(folder, name, broken, error):
    with reloaded(folder) as server:
        right = (folder / name).read_text()
        said = server.write(name, broken)
        server.program.wait_for("Waiting for a change", said)
        assert error in server.program.text()
        assert "deltamcp/cli/" not in server.program.text(), "the author's own lines, not ours"
        said = server.write(name, right.replace("one", "repaired"))
        server.program.wait_for(SERVING, said)
        assert server.call() == ("repaired" if name == "titles.py" else "one")


def test_a_missing_module_is_waited_for(folder):
    (folder / "titles.py").rename(folder / "titles.txt")
    command = [str(FORKED_PROGRAM), "serve", "shelf.py", "--http", "127.0.0.1:0", "--reload"]
    with running_program(command, folder) as program:
        program.wait_for("ModuleNotFoundError: No module named 'titles'[^$]*Waiting for a change")
        (folder / "titles.txt").rename(folder / "titles.py")
        assert ReloadedServer(program, folder).call() == "one"


def test_an_operations_file_is_loaded_again_without_a_restart(folder):
    def document(summary: str) -> str:
        handler = {"kind": "python", "ref": "titles:get_first"}
        return json.dumps({"title": "shelf", "operations": {"title": {"summary": summary, "handler": handler}}})

    (folder / "titles.py").write_text("def get_first() -> str:\n    return 'one'\n")
    (folder / "shelf.json").write_text(document("The first title."))
    command = [str(FORKED_PROGRAM), "serve", "shelf.json", "--http", "127.0.0.1:0", "--reload"]
    with running_program(command, folder) as program:
        server = ReloadedServer(program, folder)
        said = server.write("shelf.json", document("Another summary."))
        program.wait_for("shelf.json was reloaded", said)
        assert "restarting" not in program.text()
        assert server.call() == "one"
        said = server.write("titles.py", "def get_first() -> str:\n    return 'two'\n")
        program.wait_for(SERVING, said)
        assert server.call() == "two"


def test_a_folder_behind_a_symbolic_link_is_watched(folder, tmp_path_factory):
    link = tmp_path_factory.mktemp("elsewhere") / "link"
    link.symlink_to(folder)
    command = [str(FORKED_PROGRAM), "serve", str(link / "shelf.py"), "--http", "127.0.0.1:0", "--reload"]
    with running_program(command, folder) as program:
        server = ReloadedServer(program, folder)
        said = server.write("shelf.py", SHELF.replace("titles.FIRST", "titles.FIRST.upper()"))
        program.wait_for(SERVING, said)
        said = server.write("titles.py", "FIRST = 'two'")
        program.wait_for(SERVING, said)
        assert server.call() == "TWO"


@pytest.mark.diagonal("number", "is_broken")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("is_broken", [False, True])
def test_it_ends_with_its_process(folder, number, is_broken):
    with reloaded(folder) as server:
        if is_broken:
            said = server.write("titles.py", "FIRST = ")
            server.program.wait_for("Waiting for a change", said)
        assert server.program.end(number) == 0
        assert "KeyboardInterrupt" not in server.program.text()
        assert server.program.text().count("INFO deltamcp: stopped\n") == (not is_broken), "once, not for each restart"


def test_the_server_ends_when_what_restarts_it_is_killed(folder):
    with reloaded(folder) as server:
        server.program.end(signal.SIGKILL)


BLOCKED = """
import pathlib, time
from deltamcp import DeltaServer, Limits

server = DeltaServer("shelf", limits=Limits(drain_seconds=1))

@server.tool
def title() -> str:
    return "one"

@server.tool
async def block() -> str:
    pathlib.Path("blocks").touch()
    time.sleep(1000)
"""


@contextlib.contextmanager
def blocked(folder: Path) -> Iterator[ReloadedServer]:
    """The server while a tool blocks its event loop."""
    (folder / "shelf.py").write_text(BLOCKED)
    with reloaded(folder) as server:
        caller = subprocess.Popen(
            [str(FORKED_PROGRAM), "call", server.url, "block"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            asyncio.run(wait_until((folder / "blocks").exists))
            yield server
        finally:
            caller.kill()
            caller.wait()


def test_a_server_that_blocks_is_reloaded(folder):
    with blocked(folder) as server:
        said = server.write("shelf.py", BLOCKED.replace("one", "two"))
        server.program.wait_for(SERVING, said)
        assert server.call() == "two"


@pytest.mark.parametrize("numbers", [[signal.SIGTERM], [signal.SIGTERM, signal.SIGINT]])
def test_a_server_that_blocks_ends(folder, numbers):
    with blocked(folder) as server:
        for number in numbers:
            server.program.process.send_signal(number)
        assert server.program.process.wait(HANG_SECONDS) == 0


def test_a_server_that_blocks_ends_when_what_restarts_it_is_killed(folder):
    with blocked(folder) as server:
        server.program.end(signal.SIGKILL)


def test_over_stdio_it_is_refused(folder):
    done = subprocess.run(
        [str(FORKED_PROGRAM), "serve", "shelf.py", "--reload"],
        capture_output=True,
        text=True,
        cwd=folder,
        timeout=HANG_SECONDS,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("delta-mcp: --reload needs --http HOST:PORT")


def test_a_session_of_an_older_client_is_opened_anew(folder):
    with reloaded(folder) as server:

        async def ask() -> list[str]:
            async with connect(server.url, speak="handshake") as client:
                before = str(await client.call("title"))
                said = server.write("titles.py", "FIRST = 'two'")
                await asyncio.to_thread(server.program.wait_for, SERVING, said)
                return [before, str(await client.call("title"))]

        assert asyncio.run(ask()) == ["one", "two"]


# The watch


@pytest.fixture
def imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, int], Path]:
    def write_and_import(name: str, time_ns: int) -> Path:
        file = tmp_path / f"{name}.py"
        file.write_text("")
        os.utime(file, ns=(time_ns, time_ns))
        monkeypatch.syspath_prepend(str(tmp_path))
        __import__(name)
        return file

    return write_and_import


def test_a_file_written_since_the_start_has_changed_though_it_is_seen_only_then(tmp_path, imported):
    """Between the import of a module and the first look at it an author may save it."""
    imported("a_left_one", 10**18)
    saved = imported("b_saved_one", 10**18)
    watch = FileWatch(tmp_path)
    os.utime(saved, ns=(time.time_ns(), time.time_ns()))
    assert watch.wait_for_change() == saved


def test_a_file_that_comes_after_the_start_has_changed_however_old_it_is(tmp_path):
    """A missing module may be moved to its place before its absence is looked at."""
    old = tmp_path / "before.txt"
    old.write_text("")
    os.utime(old, (1e9, 1e9))
    watch = FileWatch(tmp_path)
    came = old.rename(tmp_path / "missing.py")
    assert watch.wait_for_change(ImportError()) == came


def test_a_time_in_the_future_is_no_change(tmp_path, imported):
    """Files of another machine have the times of its clock."""
    imported("c_future_one", 4 * 10**18)
    saved = imported("d_saved_one", 10**18)
    watch = FileWatch(tmp_path)
    os.utime(saved, ns=(time.time_ns(), time.time_ns()))
    assert watch.wait_for_change() == saved
