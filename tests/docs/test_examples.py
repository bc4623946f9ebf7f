"""Every example has a server, a client that asserts, and a README that begins with its command and shows its output."""

import importlib
import re
import shlex

import pytest

from deltamcp import ToolError
from examples.filesystem.sandbox import Sandbox
from tests.docs.example_readme import ExampleReadme
from tests.docs.page import assert_printed
from tests.support.paths import FORKED_PROGRAM, FORKED_PYTHON, PROGRAM, ROOT
from tests.support.program import running_program

ELSEWHERE = {"http_oauth", "mcp_lite_grpc", "mcp_lite_http", "promises_worker"}
"""Those that tests/docs/test_http_oauth.py and tests/docs/test_example_commands.py run."""
FOLDERS = sorted(path.parent.name for path in (ROOT / "examples").glob("*/README.md"))
_CLIENT = re.compile(r"python -m (examples\.\w+\.client)(.*)")


def test_every_folder_is_an_example_whose_readme_begins_with_a_command():
    folders = {path.parent.name for path in (ROOT / "examples").glob("*/*.py")}
    assert folders == set(FOLDERS)
    for name in FOLDERS:
        files = {path.name for path in (ROOT / "examples" / name).iterdir()}
        assert "client.py" in files and files & {"server.py", "operations.json", "gateway.toml"}, name
        text = (ROOT / "examples" / name / "README.md").read_text()
        assert "```sh\n" in text and len(text.partition("```sh\n")[0].split()) <= 60, name


@pytest.mark.parametrize("name", sorted(set(FOLDERS) - ELSEWHERE))
async def test_an_example_does_what_its_readme_shows(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("PATH", str(FORKED_PROGRAM.parent), prepend=":")
    *servers, client = ExampleReadme(name).commands()
    found = _CLIENT.fullmatch(client.text)
    assert found is not None and client.shown is not None
    main = importlib.import_module(found[1]).main
    if not servers:
        await main(*shlex.split(found[2]))
    for server in servers:
        program, *words = shlex.split(server.text)
        command = [str(FORKED_PYTHON), str(PROGRAM.with_name(program)), *words]
        with running_program(command, tmp_path, cwd=ROOT) as running:
            running.wait_for(r"Uvicorn running on")
            await main(*shlex.split(found[2]))
    assert_printed(capsys.readouterr().out, client.shown, client.text)


def test_no_link_that_is_swapped_in_leads_out_of_the_sandbox(tmp_path):
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    for folder in (inside / "sub", outside):
        folder.mkdir(parents=True)
        (folder / "note.txt").write_text(folder.name)
    sandbox = Sandbox(inside)
    read = []
    for swap in range(200):
        if swap % 2:
            (inside / "sub").rename(inside / "aside")
            (inside / "sub").symlink_to(outside)
        else:
            if (inside / "sub").is_symlink():
                (inside / "sub").unlink()
                (inside / "aside").rename(inside / "sub")
        try:
            read.append(sandbox.read("sub/note.txt"))
        except ToolError:
            read.append("")
    assert set(read) == {"sub", ""}
