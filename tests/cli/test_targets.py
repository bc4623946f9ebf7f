"""What names a server on the command line: a Python file, an operations file, an entry of a host's file."""

import json
import sys
from pathlib import Path

import pytest

from tests.support.command_line import PipedRun, run
from tests.support.paths import FORKED_PROGRAM, ROOT

SERVER = """
import sys
from deltamcp import DeltaServer

print("a greeting that is no message")
server = DeltaServer("first", "1")
other = DeltaServer("second", "1")


@server.tool
async def hello(name: str = "you") -> str:
    "Say hello."
    return f"Hello, {name}!"


@other.tool
async def bye() -> str:
    "Say goodbye."
    return "Goodbye"
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "greet.py").write_text(SERVER)
    (tmp_path / "broken.py").write_text("import no_such_module\n")
    (tmp_path / "plain.py").write_text("answer = 42\n")
    script = tmp_path / "script.py"
    script.write_text(f"#!{sys.executable}\n{SERVER.replace('first', 'by itself')}\nserver.run()\n")
    script.chmod(0o755)
    write_servers(tmp_path / "one.json", greet="greet.py")
    write_servers(tmp_path / "two.json", greet="greet.py", farewell="greet.py:other")
    return tmp_path


def write_servers(path: Path, **servers: str) -> None:
    entries = {name: {"command": str(FORKED_PROGRAM), "args": ["serve", target]} for name, target in servers.items()}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"mcpServers": entries}))


def server_name(target: str, folder: Path, home: Path | None = None) -> str:
    done = run("list", target, "--json", cwd=folder, HOME=str(home or Path.home()))
    assert done.code == 0, done.err
    return str(json.loads(done.out)["server"]["name"])


@pytest.mark.parametrize(
    ("target", "name"),
    [
        ("greet.py", "first"),
        ("./greet.py", "first"),
        ("greet.py:server", "first"),
        ("greet.py:other", "second"),
        ("script.py", "by itself"),
        ("./script.py", "by itself"),
        ("one.json", "first"),
        ("one.json#greet", "first"),
        ("two.json#farewell", "second"),
        (str(ROOT / "examples" / "library" / "operations.json"), "library"),
    ],
)
def test_a_file_is_a_target(folder, target, name):
    assert server_name(target, folder) == name


def test_modules_of_the_current_directory_do_not_hide_the_librarys(folder):
    (folder / "inner").mkdir()
    (folder / "json.py").write_text("raise SystemExit('hidden')")
    (folder / "inner" / "greet.py").write_text(SERVER)

    assert server_name("inner/greet.py", folder) == "first"


def test_every_verb_takes_a_python_file(folder):
    assert run("call", "greet.py", "hello", "name=Ann", cwd=folder) == PipedRun(0, "Hello, Ann!", "")
    assert "hello(name?=you)" in run("describe", "greet.py", "hello", cwd=folder).out
    assert run("bench", "greet.py", "--rounds", "1", "--json", cwd=folder).code == 0


@pytest.mark.parametrize("target", ["greet.py:server", "greet.py", "one.json", "two.json#greet"])
def test_audit_takes_a_python_file_and_an_entry(folder, target):
    done = run("audit", target, "--json", cwd=folder)

    assert done.code == 0, done.err
    assert [(server["name"], server["cost"]["tools"]) for server in json.loads(done.out)["servers"]] == [("greet", 1)]


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("two.json", ["greet", "farewell", "two.json#greet"]),
        ("two.json#gret", ["did you mean greet?"]),
        ("broken.py", ["broken.py", "no_such_module"]),
        ("plain.py", ["plain.py", "no DeltaServer called 'server'"]),
        ("greet.py:nobody", ["greet.py", "'nobody'"]),
        ("none.py", ["none.py"]),
        ("none.json", ["none.json"]),
    ],
)
def test_a_file_without_the_server_is_told_in_one_sentence(folder, target, words):
    done = run("list", target, cwd=folder)

    assert done.code in (2, 3)
    assert done.err.count("\n") == 1
    assert all(word in done.err for word in words), done.err


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("\ndef f(:\n", "SyntaxError: invalid syntax (mine.py, line 2)"),
        ("import no_such", "ModuleNotFoundError: No module named 'no_such' (mine.py, line 1)"),
        (
            "import json\n\njson.loads('')",
            "json.decoder.JSONDecodeError: Expecting value: line 1 column 1 (char 0) (mine.py, line 3)",
        ),
        ("def f(n):\n    1 / n\n    f(n - 1)\nf(90)", "ZeroDivisionError: division by zero (mine.py, line 2)"),
    ],
)
@pytest.mark.parametrize("verb", [["list"], ["call"]])
def test_what_cannot_be_imported_is_told_with_its_line(folder, source, reason, verb):
    (folder / "mine.py").write_text(source)
    done = run(*verb, "mine.py", *["hello"] * (verb == ["call"]), cwd=folder)

    assert (done.code, done.out) == (3, "")
    assert done.err == f"delta-mcp: The server 'mine.py' ended: mine.py cannot be imported: {reason}.\n"


def test_audit_tells_a_wrong_entry_too(folder):
    done = run("audit", "two.json#gret", cwd=folder)

    assert (done.code, done.err) == (2, "delta-mcp: two.json has no server 'gret'; did you mean greet?\n")


@pytest.mark.parametrize("target", ["greet.py", "greet.py:server", "one.json", "two.json#greet"])
@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["Ann Lee"], "'Ann Lee' after hello is no NAME=VALUE; say which argument it is, as NAME='Ann Lee'."),
        (["name=x", "--pge", "3"], "call has no option --pge; did you mean --page?"),
        (
            ["--name", "Ann"],
            "call has no option --name; delta-mcp call --help tells what it takes.",
        ),
        (["name=x", "--page"], "--page needs a value."),
        (["--", "--json"], "'--json' after hello is no NAME=VALUE; say which argument it is, as NAME=--json."),
    ],
)
def test_a_stray_word_after_a_file_does_not_accuse_the_file(folder, target, words, sentence):
    assert run("call", target, "hello", *words, cwd=folder) == PipedRun(2, "", f"delta-mcp: {sentence}\n")


def test_options_may_stand_among_the_arguments_after_a_file(folder):
    done = run("call", "greet.py", "--timeout", "60", "hello", "--json", "name=Ann", cwd=folder)

    assert json.loads(done.out)["content"] == [{"type": "text", "text": "Hello, Ann!"}]


@pytest.mark.parametrize("verb", ["list", "resources"])
def test_a_word_too_many_after_a_file_is_named(folder, verb):
    done = run(verb, "greet.py", "extra", cwd=folder)

    assert (done.code, done.err.startswith("delta-mcp: 'extra' after the file is not understood")) == (2, True)


# Names in hosts' files


def test_a_server_of_a_hosts_file_is_found_by_its_name(folder, tmp_path_factory):
    home = tmp_path_factory.mktemp("home")
    write_servers(home / ".cursor" / "mcp.json", office=str(folder / "greet.py"))
    write_servers(home / ".lmstudio" / "mcp.json", office=str(folder / "greet.py"))

    assert server_name("office", folder, home) == "first"
    assert run("call", "office", "hello", cwd=folder, HOME=str(home)).out == "Hello, you!"


def test_of_two_different_servers_of_one_name_none_is_started(folder, tmp_path_factory):
    home = tmp_path_factory.mktemp("home")
    write_servers(home / ".cursor" / "mcp.json", office=str(folder / "greet.py"))
    write_servers(home / ".lmstudio" / "mcp.json", office=str(folder / "greet.py:other"))
    done = run("list", "office", cwd=folder, HOME=str(home))

    assert done.code == 2
    assert f"{home}/.cursor/mcp.json#office or {home}/.lmstudio/mcp.json#office" in done.err


def test_a_projects_own_file_starts_nothing_by_a_bare_name(folder, tmp_path_factory):
    write_servers(folder / ".cursor" / "mcp.json", office=str(folder / "greet.py"))
    done = run("list", "office", cwd=folder, HOME=str(tmp_path_factory.mktemp("home")))

    assert done.code == 2
    assert f"say {folder}/.cursor/mcp.json#office." in done.err
    assert server_name(".cursor/mcp.json#office", folder) == "first"


def test_a_program_of_the_name_goes_first(folder, tmp_path_factory):
    home = tmp_path_factory.mktemp("home")
    write_servers(home / ".cursor" / "mcp.json", true=str(folder / "greet.py"))

    assert "does it run a server?" in run("list", "true", cwd=folder, HOME=str(home)).err
