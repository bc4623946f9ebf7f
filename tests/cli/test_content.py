"""What `delta-mcp call` prints of a result that the server sent in part: never as if it were complete."""

import json
import re
import subprocess
from pathlib import Path

import pytest

from deltamcp import DeltaServer, ResultPolicy, connect
from deltamcp.cli.terminal.content import write_reply
from deltamcp.client.reply import Reply
from deltamcp.results.delta_mcp_shapes import original_shape, stringify
from tests.support.conditions import HANG_SECONDS
from tests.support.paths import FORKED_PROGRAM

ORIGINAL = """
from deltamcp import DeltaServer, ResultPolicy

server = DeltaServer("original", results=ResultPolicy(compat=True, page_size=20))
rows = [{"id": number, "name": f"row {number}"} for number in range(1, 51)]
server.tool(name="look", annotations={"readOnlyHint": True})(lambda: rows)
server.tool(name="buy")(lambda: rows)
server.tool(name="text")(lambda: "word " * 1000)
"""
"""Stands in for a server of the original Delta-MCP, which stores nothing: `compat` sends no handles."""

META = """
from deltamcp import DeltaServer, Disclosure

server = DeltaServer("meta", disclosure=Disclosure("meta", query=True))
rows = [{"id": number, "name": f"row {number}"} for number in range(1, 51)]
server.tool(name="look", annotations={"readOnlyHint": True})(lambda: rows)
"""


@pytest.fixture(scope="module")
def original(tmp_path_factory) -> Path:
    path: Path = tmp_path_factory.mktemp("original") / "original.py"
    path.write_text(ORIGINAL)
    return path


def call(server: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    command = [str(FORKED_PROGRAM), "call", "--speak", "delta-mcp", str(FORKED_PROGRAM), "serve", str(server), *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=HANG_SECONDS, check=False)


def shape_reply(shape: object) -> Reply:
    return Reply({"content": [{"type": "text", "text": stringify(shape)}]}, is_delta=True)


def test_a_part_ends_with_what_it_is_of(capsys):
    rows = [{"id": number} for number in range(50)]
    notes = {
        "[page 2 of 3, 50 rows in all]": original_shape(rows, 500, 20, page=2),
        "[1-400 of 5000 characters]": original_shape("word " * 1000, 100),
        "[a part]": original_shape({f"key{number}": "v" * 50 for number in range(100)}, 100),
    }
    for note, shape in notes.items():
        write_reply(shape_reply(shape))
        assert capsys.readouterr().out == f"{stringify(shape)}\n{note}\n"


@pytest.mark.parametrize(
    ("words", "note"),
    [
        (["buy"], "[page 1 of 3, 50 rows in all]"),
        (["buy", "--page", "3", "--page-size", "20"], "[page 3 of 3, 50 rows in all]"),
        (["buy", "--fields", "id"], "[a part]"),
        (["text"], "[1-2000 of 5000 characters]"),
    ],
)
def test_a_part_of_what_the_server_did_not_store_says_so(original, words, note):
    done = call(original, *words)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, note)


@pytest.mark.parametrize(("words", "note"), [(["buy"], "[page 1 of 3, 50 rows in all]"), (["text"], "characters]")])
def test_all_of_what_cannot_be_read_fails_and_prints_nothing_as_if_it_were_all(original, words, note):
    done = call(original, *words, "--all")
    assert done.returncode == 1 and done.stdout.splitlines()[-1].endswith(note)
    assert done.stderr.startswith("delta-mcp: The result cannot be read to its end: ")
    done = call(original, *words, "--all", "--json")
    assert done.returncode == 1 and done.stderr.startswith("delta-mcp: The result cannot be read to its end: ")
    assert "content" in json.loads(done.stdout), "the reply as it came, not a value"


def test_all_of_a_tool_that_may_be_run_again_is_all(original):
    done = call(original, "look", "--all")
    assert (done.returncode, done.stderr) == (0, "")
    assert [row["id"] for row in json.loads(done.stdout)] == list(range(1, 51))


# Our own server


def short_server() -> DeltaServer:
    server = DeltaServer("short", results=ResultPolicy(max_tokens=200))
    server.tool(name="prose")(lambda: "\n".join(f"line {number} of a long text" for number in range(5000)))
    server.tool(name="rows")(lambda: [{"id": number, "name": f"row {number}"} for number in range(300)])
    return server


async def test_what_is_left_out_of_the_middle_of_a_text_is_said_where_it_is(capsys):
    async with connect(short_server()) as client:
        reply = await client.call_tool("prose", want=ResultPolicy())
        whole = await client.whole(reply)
    write_reply(reply)

    note = re.search(r"\n\[(\d+)-(\d+) of 123889 characters are left out here\]\n", printed := capsys.readouterr().out)
    assert note is not None, printed
    head, tail = printed[: note.start()], printed[note.end() : -1]
    assert (head, tail) == (whole[: int(note[1]) - 1], whole[int(note[2]) :])


@pytest.mark.parametrize(
    ("arguments", "printed"),
    [
        ({"path": "/3/id"}, "3"),
        ({"path": "raw:/3/id"}, "3"),
        ({"path": "/3/name"}, "row 3"),
        ({"path": "/3"}, '{"id":3,"name":"row 3"}'),
        (
            {"grep": "nowhere"},
            "Nothing matches in 300 rows; grep is read as a regular expression (RE2). Shape: 300 x {id:int, name}.",
        ),
    ],
)
async def test_all_of_what_was_asked_for_has_no_range(capsys, arguments, printed):
    async with connect(short_server()) as client:
        reply = await client.call_tool("rows", want=ResultPolicy())
        write_reply(await client.call_tool("continue", {"handle": reply.handle, **arguments}))

    assert capsys.readouterr().out == f"{printed}\n"


async def test_the_last_part_has_its_range(capsys):
    async with connect(short_server()) as client:
        reply = await client.call_tool("rows", want=ResultPolicy())
        write_reply(await client.call_tool("continue", {"handle": reply.handle, "offset": 290}))

    assert capsys.readouterr().out.endswith("\n[291-300 of 300 rows]\n")


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_a_part_says_on_stderr_how_to_read_the_rest_also_into_a_pipe(original, options):
    hint = "delta-mcp: this is a part; --page N or --all shows the rest.\n"
    assert call(original, "buy", *options).stderr == hint
    assert call(original, "buy", "--page", "1", *options).stderr == "", "the user asked for this part"


@pytest.mark.parametrize("options", [[], ["--all"], ["--page", "1"]])
def test_what_the_query_of_a_meta_tool_selects_is_printed_as_all_of_it(tmp_path, options):
    server = tmp_path / "meta.py"
    server.write_text(META)
    selected = ["query", "operation=look", "fields=max_by(@, &id).id"]
    command = [str(FORKED_PROGRAM), "call", str(FORKED_PROGRAM), "serve", str(server), *selected, *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=HANG_SECONDS, check=True)
    assert (done.stdout.strip(), done.stderr) == ("50", "")
