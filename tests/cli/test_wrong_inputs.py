"""What people type wrongly: each is one sentence that names what to type instead, at a terminal and in a pipe."""

import json
import re
from pathlib import Path

import pytest

from tests.support.command_line import BAR_AT_ONCE, run, run_on_terminal

SHELF = '''
from deltamcp import DeltaServer

server = DeltaServer("shelf", version="1.0")
other = 7


@server.tool
async def lend_book(title: str, days: int = 7) -> str:
    """Lend a book."""
    return title


@server.resource("book://dune")
async def dune() -> str:
    """A book."""
    return "Dune"


@server.prompt
async def praise(title: str) -> str:
    """Praise a book."""
    return title
'''
FAULTY_TOML = "disclosre = 'meta'\n"
SERVERS = {"mcpServers": {"books": {"command": "books"}, "notes": {"url": "http://127.0.0.1:1/mcp"}}}
UNREACHABLE = "http://127.0.0.1:1/mcp"

WRONG: list[tuple[str, str]] = [
    # Commands
    ("lst", "did you mean list?"),
    ("tols shelf.py", "did you mean list?"),
    ("ls shelf.py", "delta-mcp list does that"),
    ("inspect shelf.py", "delta-mcp dev does that"),
    ("run shelf.py", "delta-mcp serve does that"),
    ("gatway", "did you mean gateway?"),
    ("instal cursor", "did you mean install"),
    ("version", "delta-mcp --version"),
    ("-v", "did you mean --version?"),
    ("--hlep", "did you mean --help?"),
    ("nothing-like-it", "delta-mcp --help lists them"),
    ("shelf.py", "delta-mcp list shelf.py shows the tools"),
    ("http://127.0.0.1:8000/mcp", "delta-mcp list http://127.0.0.1:8000/mcp shows the tools"),
    ("help srve", "did you mean serve?"),
    # Options
    ("list shelf.py --jsn", "did you mean --json?"),
    ("list -j shelf.py", "did you mean --json?"),
    ("list --timeout x shelf.py", "a number of seconds above 0"),
    ("list --timeout", "--timeout needs a value"),
    ("list --speak french shelf.py", "it can be auto, modern, handshake, delta-mcp or mcp-lite"),
    ("list --header X shelf.py", "--header takes NAME:VALUE"),
    ("gateway --chek", "did you mean --check?"),
    ("gateway --disclosure ful", "did you mean full?"),
    ("gateway mcp.json --max-tokens 3", "max_tokens must be 50 or more"),
    ("stats --by dy", "did you mean day?"),
    ("stats --days x", "a number of days"),
    ("call shelf.py lend_book title=Dune --page 0", "--page is 1 or more"),
    ("call shelf.py lend_book title=Dune --all --page 2", "leave out --page"),
    ("call shelf.py lend_book title=Dune --grep (", "--grep takes a regular expression"),
    ("serve shelf.py --reload", "--reload needs --http HOST:PORT"),
    ("serve shelf.py --http 8000", "HOST:PORT"),
    ("serve shelf.py --http 0.0.0.0:8000", "--auth"),
    ("serve shelf.py --workers 2", "--workers needs --http HOST:PORT"),
    ("serve shelf.py --disclosure meta", "DeltaServer(disclosure=..., results=...)"),
    # Words that are missing
    ("list", "Name a server"),
    ("call", "delta-mcp call TARGET... TOOL"),
    ("call shelf.py", "delta-mcp list shelf.py lists them"),
    ("describe shelf.py", "delta-mcp list shelf.py lists them"),
    ("read shelf.py", "delta-mcp resources shelf.py lists them"),
    ("prompt shelf.py", "delta-mcp prompts shelf.py lists them"),
    ("redeem", "delta-mcp redeem TARGET TOKEN"),
    ("serve", "delta-mcp serve --help"),
    ("new server", "delta-mcp new --help"),
    ("secret set", "delta-mcp secret --help"),
    ("completion", "delta-mcp completion --help"),
    ("install", "delta-mcp install --help"),
    ("uninstall", "delta-mcp install HOST"),
    ("gateway", "Name a configuration"),
    # Things that are not there
    ("list shelv.py", "did you mean shelf.py?"),
    ("list shelv", "did you mean shelf.py?"),
    ("list /nowhere/shelf.py", "is the path right?"),
    ("list mcp.json#boks", "did you mean books?"),
    ("list mcp.json", "name one of them, as mcp.json#books"),
    ("list no-such-program", "is it spelt right and installed?"),
    (f"list {UNREACHABLE}", "does a server run there?"),
    ("list ftp://127.0.0.1/mcp", "use http:// or https://"),
    ("call shelf.py lend_bok title=Dune", "did you mean lend_book?"),
    ("call shelf.py xyzzy", "delta-mcp list shelf.py names them"),
    ("call shelf.py lend_book titel=Dune", "title"),
    ("call shelf.py lend_book title=Dune days=soon", "expected int"),
    ("call shelf.py lend_book Dune", "as NAME=Dune"),
    ("call shelf.py lend_book {title:Dune}", "quote it for the shell"),
    ("read shelf.py book://dun", "did you mean book://dune?"),
    ("prompt shelf.py prase title=Dune", "did you mean praise?"),
    ("prompt shelf.py praise", "praise needs title=TEXT"),
    ("serve shelf.py:other", "say shelf.py:server"),
    ("serve no.such.module", "name a file, as FILE.py"),
    ("dev shelv.py", "did you mean shelf.py?"),
    ("gateway mcp.jsn", "did you mean mcp.json?"),
    ("gateway faulty.toml", "did you mean disclosure?"),
    ("gateway mcp.json --only book", "did you mean books?"),
    ("validate operations.json", "there is mcp.json"),
    ("audit mcp.jso", "did you mean mcp.json?"),
    ("install cursr", "did you mean cursor?"),
    ("install cursor", "mcp.json; add a server in Cursor first"),
    ("install cursor shelv.py", "did you mean shelf.py?"),
    ("install cursor shelf.py --env TOKEN_OF_NOBODY", "say --env TOKEN_OF_NOBODY=VALUE"),
    ("uninstall cursor shelf", "install put none there"),
    ("uninstall cursor", "delta-mcp install cursor"),
    ("approve books", "delta-mcp approve alone lists what waits"),
    ("status", "delta-mcp gateway"),
    ("logs books", "delta-mcp gateway starts one"),
    ("gateway mcp.json --only xyz", "it has books, notes"),
    ("add", "delta-mcp add NAME -- COMMAND"),
    ("openapi mcp.jso", "did you mean mcp.json?"),
    ("token ann --file /nowhere/tokens.txt", "name another --file"),
    ("login shelf.py", "name its URL"),
    ("new server shelf.py", "letters, digits, - and _"),
    ("completion fsh", "did you mean fish?"),
]
"""What is typed, and a part of the sentence that says what to type instead."""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("place")
    (folder / "shelf.py").write_text(SHELF)
    (folder / "mcp.json").write_text(json.dumps(SERVERS))
    (folder / "faulty.toml").write_text(FAULTY_TOML)
    (folder / "home").mkdir()
    return folder


@pytest.fixture(autouse=True)
def _no_files_of_hosts_and_no_gateways(place, monkeypatch):
    monkeypatch.setenv("HOME", str(place / "home"))
    for kind in ("CONFIG", "STATE", "CACHE", "DATA", "RUNTIME"):
        monkeypatch.setenv(f"XDG_{kind}_HOME", str(place / "home" / kind))


def test_there_are_sixty_of_them():
    assert len(dict(WRONG)) == len(WRONG) >= 60


@pytest.mark.parametrize(("typed", "hint"), WRONG, ids=[typed for typed, _ in WRONG])
def test_a_wrong_input_is_one_sentence_that_names_the_next_step(typed, hint, place):
    done = run(*typed.split(), cwd=place)

    assert done.code in (2, 3) and done.out == ""
    assert re.fullmatch(r"delta-mcp: [^\n]+\n", done.err), done.err
    assert hint in done.err


@pytest.mark.parametrize("typed", ["lst", "install cursr", "list shelf.py --jsn", "serve shelv.py", "gateway --chek"])
def test_a_terminal_shows_the_same_sentence_as_a_pipe(typed, place):
    shown = run_on_terminal(*typed.split(), cwd=place)

    assert shown.text.replace("\r\n", "\n") == run(*typed.split(), cwd=place).err


@pytest.mark.parametrize("verb", ["serve", "gateway"])
def test_a_server_on_stdin_says_so_at_a_terminal_in_one_line(verb, place):
    options = ["--log-level", "error", "--mcp-lite"]  # which ends with stdin at once
    shown = run_on_terminal(verb, *options, "shelf.py", cwd=place, typed=b"\x04")

    assert "This speaks MCP over stdin; for HTTP add --http 127.0.0.1:8000." in shown.text
    assert len(shown.text.replace("^D\x08\x08", "").strip().splitlines()) == 1


def test_a_host_that_starts_a_server_is_told_nothing(place):
    assert run("serve", "shelf.py", cwd=place).err == ""


@pytest.mark.parametrize(
    ("typed", "label"),
    [
        ("list shelf.py", "Waiting for shelf.py"),
        ("describe shelf.py lend_book", "Waiting for shelf.py"),
        ("call shelf.py lend_book title=Dune", "Calling lend_book of shelf.py"),
        ("read shelf.py book://dune", "Waiting for shelf.py"),
        ("prompt shelf.py praise title=Dune", "Waiting for shelf.py"),
        ("bench --rounds 1 shelf.py", "Measuring shelf.py"),
        ("audit mcp.json", "Waiting for books, notes"),
        ("gateway --check mcp.json", "Waiting for books, notes"),
        ("list http://user:s3cret-word@127.0.0.1:1/mcp", "Waiting for 127.0.0.1:1"),
    ],
)
def test_a_bar_names_the_server_that_it_waits_for(typed, label, place):
    shown = run_on_terminal(*typed.split(), cwd=place, bar=BAR_AT_ONCE)

    assert label in shown.text and "s3cret-word" not in shown.text
