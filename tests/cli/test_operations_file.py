"""What an operations file and the command line say of the results and the meta-tools of a server."""

import json

import pytest

from deltamcp import DeltaServer, ResultPolicy, connect, tokens
from tests.support.command_line import assert_one_sentence, run
from tests.support.paths import FORKED_PROGRAM

ROWS = "def rows(): return [{'n': n, 'text': f'row {n}'} for n in range(500)]"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "rows.py").write_text(ROWS)
    node = {
        "name": "list_rows",
        "inputSchema": {"type": "object"},
        "annotations": {"readOnlyHint": True},
        "handler": {"kind": "python", "ref": "rows:rows"},
    }
    file = {"operations": {"rows": {"list": node}}}
    (tmp_path / "plain.json").write_text(json.dumps(file))
    budget = {**file, "query": True, "results": {"max_tokens": 200, "page_size": 400}}
    (tmp_path / "budget.json").write_text(json.dumps(budget))
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


async def reply_tokens(folder, *words):
    """Returns what a host's model reads of the rows."""
    target = [str(FORKED_PROGRAM), "serve", *words[:-1], str(folder / words[-1])]
    async with connect(target, progressive=False) as client:
        return sum(map(tokens.count, (await client.call_tool("list_rows")).texts))


async def test_the_budget_of_the_file_holds_for_its_results(folder):
    assert 100 < await reply_tokens(folder, "budget.json") <= 200 < await reply_tokens(folder, "plain.json")


async def test_the_command_line_goes_before_the_file(folder):
    assert 200 < await reply_tokens(folder, "--max-tokens", "600", "budget.json") <= 600
    assert await reply_tokens(folder, "--max-tokens", "90", "plain.json") <= 90


async def test_a_server_in_python_has_the_budget_of_the_file_too(folder):
    for given, least, most in ((None, 100, 200), (ResultPolicy(max_tokens=600), 200, 600)):
        server = DeltaServer("rows")
        server.operations(folder / "budget.json", results=given)
        async with connect(server, progressive=False) as client:
            assert least < sum(map(tokens.count, (await client.call_tool("list_rows")).texts)) <= most


def meta_tools(folder, *words):
    shown = run("list", "--as-host", "--json", "delta-mcp", "serve", *words, "--disclosure", "meta", cwd=folder)
    return [tool["name"] for tool in json.loads(shown.out)["tools"]]


def test_query_is_switched_on_by_the_file_or_the_command_line(folder):
    assert "query" in meta_tools(folder, "budget.json")
    assert "query" not in meta_tools(folder, "plain.json")
    assert "query" in meta_tools(folder, "--query", "plain.json")


@pytest.mark.parametrize("words", [["--query"], ["--max-tokens", "500"], ["--prefix", "x"]])
def test_a_server_in_python_says_this_itself(folder, words):
    (folder / "own.py").write_text("from deltamcp import DeltaServer\nserver = DeltaServer('own')\n")
    done = run("serve", "own.py", *words, cwd=folder)
    assert_one_sentence(done, 2)
    assert "DeltaServer(disclosure=..., results=...)" in done.err


def test_a_wrong_budget_is_told(folder):
    (folder / "plain.json").write_text('{"operations": {}, "results": {"max_tokens": "many"}}')
    assert "'max_tokens' must be a whole number from 50." in run("validate", "plain.json", cwd=folder).err
