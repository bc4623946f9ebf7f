"""The program that type checkers read does what it says."""

from tests.support import typed_program
from tests.support.paths import FORKED_PYTHON

ECHO = """
from deltamcp import DeltaServer

server = DeltaServer("echo")


@server.tool(annotations={"readOnlyHint": True})
def echo(text: str) -> str:
    return text


server.run()
"""


async def test_the_typed_program_runs(tmp_path, monkeypatch):
    for purpose in ("STATE", "CACHE"):
        monkeypatch.setenv(f"XDG_{purpose}_HOME", str(tmp_path))
    (tmp_path / "echo.py").write_text(ECHO)
    found = await typed_program.main({"command": str(FORKED_PYTHON), "args": [str(tmp_path / "echo.py")]})
    assert {"notes_find_notes", "notes_read_resource", "there_echo", "reviewed_echo"} < {*found["tools"]}
    assert "notes_burn" not in found["tools"]
    assert "note://notes/{name}" in found["templates"] and found["prompts"] == ["notes_polish"]
    assert found["found"] == {"result": [{"name": "first", "text": "one", "stars": 0}]}
    assert (found["written"]["name"], found["progress"]) == ("a", [1])
    assert found["summary"] == "one, Polish first, kind., 2"
    assert (found["wish"], found["read"]) == ("peace in blue", "b")
    assert (found["prompt"], found["completed"]) == ("Polish a, kind.", ["first"])
    assert (found["as tools"], found["there"], found["reviewed"]) == ("one", "hello", "hello")
    assert found["refused"].endswith("Secrets are not kept here.")
    assert typed_program.seconds
