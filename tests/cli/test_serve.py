"""Errors of `delta-mcp serve`: one sentence and the right exit code."""

import subprocess
from pathlib import Path

import pytest

from tests.support.conditions import HANG_SECONDS
from tests.support.paths import PROGRAM


def run(*arguments: str, cwd: Path, said: str = "") -> subprocess.CompletedProcess[str]:
    command = [str(PROGRAM), *arguments]
    return subprocess.run(
        command, input=said, capture_output=True, text=True, cwd=cwd, timeout=HANG_SECONDS, check=False
    )


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["serve", "nowhere.py"], "There is no file nowhere.py."),
        (["serve", "no.such.module"], "There is no file or module no.such.module."),
        (["serve", "notes.txt"], "notes.txt is neither a Python file (.py) nor an operations file (.json)."),
        (["serve", "empty.py"], "empty.py has no DeltaServer called 'server'; name it as empty.py:NAME."),
        (["serve", "empty.py:other"], "empty.py has no DeltaServer called 'other'; name it as empty.py:NAME."),
        (["serve", "empty.py", "--http", "8000"], "--http takes HOST:PORT, such as 127.0.0.1:8000, not '8000'."),
        (["serve", "empty.py", "--http", "x:99999"], "--http takes HOST:PORT, such as 127.0.0.1:8000, not 'x:99999'."),
    ],
)
def test_a_mistake_is_told_in_one_sentence(tmp_path, arguments, sentence):
    (tmp_path / "notes.txt").write_text("")
    (tmp_path / "empty.py").write_text("")
    done = run(*arguments, cwd=tmp_path)

    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"delta-mcp: {sentence}\n")


def test_debug_shows_where_a_mistake_was_found(tmp_path):
    done = run("--debug", "serve", "nowhere.py", cwd=tmp_path)

    assert done.returncode == 1
    assert "Traceback" in done.stderr


def test_a_server_in_a_file_or_a_module_is_served(tmp_path):
    (tmp_path / "mine.py").write_text("from deltamcp import DeltaServer\nnotes = DeltaServer('notes')\n")
    request = '{"jsonrpc":"2.0","id":1,"method":"ping"}\n'
    for target in ("mine.py:notes", "mine:notes"):
        done = run("serve", target, cwd=tmp_path, said=request)
        assert (done.returncode, done.stdout) == (0, '{"jsonrpc":"2.0","id":1,"result":{}}\n')
