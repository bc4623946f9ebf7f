"""`delta-mcp new` writes projects that run, whose tests pass, and never over what is there."""

import subprocess

import pytest

from deltamcp.cli.verbs.new import PROJECTS
from tests.support.command_line import assert_one_sentence, run
from tests.support.conditions import HANG_SECONDS
from tests.support.paths import FORKED_PROGRAM, FORKED_PYTHON


@pytest.mark.parametrize("kind", PROJECTS)
def test_a_new_project_runs_and_its_test_passes(tmp_path, kind, monkeypatch):
    done = run("new", kind, "my-notes", cwd=tmp_path)
    folder = tmp_path / "my-notes"
    assert done.code == 0 and f"python test_{kind}.py" in done.out
    assert {path.name for path in folder.iterdir()} == set(PROJECTS[kind])
    assert "@" not in (folder / "README.md").read_text()
    monkeypatch.setenv("PATH", str(FORKED_PROGRAM.parent), prepend=":")
    tested = subprocess.run(
        [str(FORKED_PYTHON), f"test_{kind}.py"], cwd=folder, capture_output=True, text=True, timeout=HANG_SECONDS
    )
    assert (tested.returncode, tested.stdout) == (0, f"The {kind} does what its test says.\n"), tested.stderr


def test_nothing_that_is_there_is_written_over(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "server.py").write_text("mine")
    assert_one_sentence(run("new", "server", "mine", cwd=tmp_path), 2)
    assert (tmp_path / "mine" / "server.py").read_text() == "mine"


@pytest.mark.parametrize("name", ["..", "a b", "é", '"', "-x"])
def test_a_name_that_is_none_is_told(tmp_path, name):
    done = run("new", "server", name, cwd=tmp_path)
    assert done.code == 2 and list(tmp_path.iterdir()) == []
