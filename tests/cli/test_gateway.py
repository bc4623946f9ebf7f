"""`delta-mcp gateway`: configurations, wrapped servers, and all that `serve` can."""

import asyncio
import json
import os
import re
import signal
import socket
from pathlib import Path

import pytest

from deltamcp import connect, tokens
from deltamcp.catalog.disclosure import definition_tokens
from deltamcp.cli.verbs.gateway import GatewayOptions
from deltamcp.gateway.config import GatewayConfig, UpstreamConfig
from deltamcp.results.policy import ResultPolicy
from tests.support.command_line import assert_one_sentence, run
from tests.support.conditions import wait_until
from tests.support.paths import FORKED_PROGRAM, PROGRAM, ROOT
from tests.support.program import running_program
from tests.support.raw_client import META

SERVER = """
from deltamcp import DeltaServer
server = DeltaServer("books")

@server.tool(annotations={"readOnlyHint": True})
def find_book(title: str) -> str:
    "Finds a book."
    return f"{title}!"

@server.tool
def long_text(words: int) -> str:
    "Returns words."
    return "word " * words
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "books.py").write_text(SERVER)
    entry = {"command": str(FORKED_PROGRAM), "args": ["serve", str(tmp_path / "books.py")]}
    (tmp_path / "mcp.json").write_text(
        json.dumps({"mcpServers": {"books": entry, "more": {**entry, "env": {"MORE": "1"}}}})
    )
    return tmp_path


def gateway(folder: Path, *words: str) -> dict[str, object]:
    """The entry by which a client starts a gateway that keeps its files in a folder."""
    homes = {f"XDG_{name}_HOME": str(folder / name) for name in ("CONFIG", "CACHE", "STATE")}
    return {"command": str(FORKED_PROGRAM), "args": ["gateway", *words], "env": homes, "cwd": str(folder)}


async def tool_names(target) -> list[str]:
    async with connect(target, progressive=False) as client:
        return [str(tool["name"]) for tool in await client.describe()]


async def test_servers_of_a_file_are_behind_meta_tools(folder):
    names = await tool_names(gateway(folder, "mcp.json"))
    assert sorted(names) == ["continue", "discover", "execute", "get_schema", "query"]


async def test_the_flat_list_has_the_names_of_the_servers_in_front(folder):
    names = await tool_names(gateway(folder, "--disclosure", "full", "mcp.json"))
    assert sorted(names) == [
        "books_find_book",
        "books_long_text",
        "continue",
        "more_find_book",
        "more_long_text",
    ]


@pytest.mark.parametrize("words", [["books.py"], ["--", str(FORKED_PROGRAM), "serve", "books.py"], ["mcp.json#books"]])
async def test_one_server_is_wrapped_with_nothing_to_write(folder, words):
    names = await tool_names(gateway(folder, "--disclosure=full", *words))
    assert sorted(names) == ["continue", "find_book", "long_text"]


async def test_the_options_are_the_last_word(folder):
    (folder / "gateway.toml").write_text('include = "mcp.json"\nquery = true\n[defaults]\nread_only = false\n')
    words = ("gateway.toml", "--disclosure", "full", "--only", "books", "--prefix", "--raw")
    assert sorted(await tool_names(gateway(folder, *words))) == ["books_find_book", "books_long_text"]
    assert "query" not in await tool_names(gateway(folder, "gateway.toml", "--no-query"))


async def test_a_large_result_is_previewed_unless_a_number_of_tokens_is_given(folder):
    async def received(*words: str) -> int:
        async with connect(gateway(folder, "--disclosure=full", *words, "books.py"), progressive=False) as client:
            reply = await client.call_tool("long_text", {"words": 30_000})
            return len(reply.text)

    assert await received("--raw") == 150_000
    assert 1000 < await received() < 3000
    assert 60_000 < await received("--max-tokens", "20000") < 120_000
    assert 1000 < await received("--max-tokens", "500") < 3000


def test_the_size_of_a_result_on_the_command_line_holds_for_every_server_that_has_one():
    config = GatewayConfig(
        upstreams=[
            UpstreamConfig(name="a", entry={}, results=ResultPolicy(max_tokens=900, tables=False)),
            UpstreamConfig(name="b", entry={}, results=False),
            UpstreamConfig(name="c", entry={}),
        ],
        results=ResultPolicy(max_tokens=700),
    )
    cut, raw = GatewayOptions(max_tokens=500).apply(config), GatewayOptions(is_raw=True).apply(config)
    assert cut.results == ResultPolicy(max_tokens=500, preview_above=0)
    own = ResultPolicy(max_tokens=500, preview_above=0, tables=False)
    assert [one.results for one in cut.upstreams] == [own, False, None]
    assert (raw.results, [one.results for one in raw.upstreams]) == (None, [False] * 3)


async def test_it_serves_http_as_serve_does(folder):
    command = [str(FORKED_PROGRAM), "gateway", "mcp.json", "--http", "127.0.0.1:0", "--disclosure", "full"]
    with running_program(command, folder) as program:
        url = program.wait_for(r"(http://\S+) \(Ctrl-C")[1]
        assert "books_find_book" in await tool_names(url)
        async with connect(url, progressive=False) as client:
            assert await client.call("more_find_book", title="Emma") == "Emma!"
        wrapped = await tool_names(gateway(folder, "--disclosure", "full", url))
        assert "books_find_book" in wrapped, "a URL is wrapped without a prefix"


async def test_beside_grpc_and_http_it_starts_servers_without_handlers_of_grpc(folder):
    (folder / "gateway.toml").write_text('include = "mcp.json"\n[defaults]\nidle_seconds = 0.2\n')
    command = [
        str(FORKED_PROGRAM),
        "gateway",
        "gateway.toml",
        "--grpc",
        "127.0.0.1:0",
        "--http",
        "127.0.0.1:0",
        "--metrics",
    ]
    with running_program(command, folder, env={**os.environ, "XDG_CACHE_HOME": str(folder / "cache")}) as program:
        program.wait_for(r"at http://")
        async with connect(program.wait_for(r"(grpc://\S+) \(Ctrl-C")[1]) as client:
            program.wait_for("books: it is stopped")
            reply = await client.call_tool("execute", {"operation": "books.find_book", "params": {"title": "Emma"}})
            assert reply.text == "Emma!"
        assert "fork" not in program.text()


async def test_without_words_it_is_the_users_own_configuration(folder):
    own = folder / "CONFIG" / "delta-mcp" / "gateway.toml"
    own.parent.mkdir(parents=True)
    own.write_text(f'include = "{folder}/mcp.json"')
    assert "discover" in await tool_names(gateway(folder))
    own.unlink()
    (own.parent / "gateway").mkdir()
    (own.parent / "gateway" / "cursor.toml").write_text(f"include = {json.dumps(str(folder / 'mcp.json'))}")
    assert "discover" in await tool_names(gateway(folder))


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "Name a configuration, such as the mcpServers file of your host"),
        (["nowhere.toml"], "There is no file nowhere.toml in "),
        (["no-such-program"], "no-such-program is neither a file nor a program here"),
        (["mcp.json", "--only", "book"], "There is no server 'book' in mcp.json; did you mean books?"),
        (["mcp.json", "--raw", "--max-tokens", "500"], "--raw and --max-tokens exclude each other."),
        (["empty.json"], "No server of empty.json can be started: a: it needs the variable NOT_SET, which is not set."),
    ],
)
def test_a_mistake_is_told_in_one_sentence(folder, words, told):
    (folder / "empty.json").write_text('{"mcpServers": {"a": {"command": "x", "args": ["${NOT_SET}"]}}}')
    done = run("gateway", *words, cwd=folder, XDG_CONFIG_HOME=str(folder / "none"))
    assert_one_sentence(done, 2)
    assert told in done.err


async def test_a_server_that_lacks_a_variable_is_left_out_and_told(folder):
    document = json.loads((folder / "mcp.json").read_text())
    document["mcpServers"]["secretive"] = {"command": "x", "env": {"TOKEN": "${NOT_SET}"}}
    (folder / "mcp.json").write_text(json.dumps(document))
    with running_program([str(FORKED_PROGRAM), "gateway", "mcp.json", "--http", "127.0.0.1:0"], folder) as program:
        program.wait_for("secretive is left out: it needs the variable NOT_SET, which is not set.")
        assert "discover" in await tool_names(program.wait_for(r"(http://\S+) \(Ctrl-C")[1])


def stats(folder: Path) -> dict[tuple[str, str], dict[str, int]]:
    done = run("stats", "--json", cwd=folder, XDG_STATE_HOME=str(folder / "STATE"))
    return {(row["upstream"], row["tool"]): row for row in json.loads(done.out)["rows"]}


async def test_stats_tell_what_calls_through_it_cost(folder):
    async with connect(gateway(folder, "--max-tokens", "200", "mcp.json"), progressive=False) as client:
        await client.describe()
        await client.call_tool("execute", {"operation": "books.long_text", "params": {"words": 5_000}})
    found = stats(folder)
    row = found["books", "long_text"]
    assert row["calls"] == 1 and row["after"] <= 200 < 4_000 < row["before"]
    assert found["more", "tools/list"]["before"] > 0 == found["more", "tools/list"]["after"]


def test_what_a_person_types_is_no_conversation_of_a_model(folder):
    (folder / "hosts.json").write_text(json.dumps({"mcpServers": {"delta-mcp": gateway(folder, "mcp.json")}}))
    target = "hosts.json#delta-mcp"
    called = run("call", target, "query", "operation=books.find_book", 'params:={"title": "Dune"}', cwd=folder)
    assert called.out == "Dune!"
    for words in (["list", "--as-host", target], ["call", target, "discover"], ["bench", "--rounds", "1", target]):
        assert run(*words, cwd=folder).code == 0
    assert stats(folder) == {}


async def test_a_killed_gateway_has_counted_what_it_did(folder):
    environment = {**os.environ, **{f"XDG_{name}_HOME": str(folder / name) for name in ("CONFIG", "CACHE", "STATE")}}
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *(str(PROGRAM), "gateway", "mcp.json"),
        cwd=folder,
        env=environment,
        stdin=pipe,
        stdout=pipe,
        start_new_session=True,
    )
    try:
        call = {"name": "execute", "arguments": {"operation": "books.find_book", "params": {"title": "Dune"}}}
        request = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {**call, "_meta": META}}
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(json.dumps(request).encode() + b"\n")
        assert b"Dune!" in await process.stdout.readline()
        await wait_until(lambda: ("books", "find_book") in stats(folder), "the figures of the call")
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
    assert stats(folder)["books", "find_book"]["calls"] == 1


async def test_without_a_ledger_nothing_is_counted(folder):
    async with connect(gateway(folder, "--no-ledger", "--savings", "mcp.json"), progressive=False) as client:
        reply = await client.call_tool("query", {"operation": "books.find_book", "params": {"title": "Dune"}})
    assert reply.raw["_meta"]["io.github.delta-mcp/savings"] == {"before": 3, "after": 3}
    assert stats(folder) == {}


def test_check_starts_every_server_and_tells_how_that_went(folder):
    document = json.loads((folder / "mcp.json").read_text())
    crash = {"command": "python3", "args": ["-c", "import os; raise SystemExit('no ' + os.environ['TOKEN'])"]}
    document["mcpServers"] |= {
        "crashing": {**crash, "env": {"TOKEN": "s3cret-word"}},
        "lacking": {"command": "x", "env": {"TOKEN": "${NOT_SET}"}},
        "off": {"command": "x", "disabled": True},
    }
    (folder / "mcp.json").write_text(json.dumps(document))
    done = run("gateway", "--check", "mcp.json", cwd=folder)
    rows = [re.split(r" {2,}", line.strip()) for line in done.out.splitlines()]
    assert (done.code, done.err) == (1, "")
    assert rows[1][:3] == ["books", "ready", "2026-07-28"] and rows[1][3] == "2"
    assert rows[3][:3] == ["crashing", "failed", "The server 'python3' ended with exit code 1: no"]
    assert rows[4] == ["...."]
    assert rows[5] == ["lacking", "left out", "it needs the variable NOT_SET, which is not set"]
    assert rows[6] == ["off", "left out", "it is switched off there"]
    assert re.match("4 tools behind the gateway: [0-9]+ tokens before a conversation begins", rows[8][0])
    assert max(map(len, done.out.splitlines())) <= 100

    working = run("gateway", "--check", "mcp.json", "--only", "books", "--only", "off", cwd=folder)
    assert working.code == 0, "a server that is switched off is no failure"


async def test_check_counts_pinned_tools_and_what_is_switched_off(folder):
    text = 'include = "mcp.json"\nquery = false\n[defaults]\npinned = ["find_*"]\n'
    (folder / "gateway.toml").write_text(text)
    done = run("gateway", "--check", "gateway.toml", cwd=folder)
    told = re.search(r"gateway: (\d+) tokens", done.out)
    assert told is not None
    async with connect(gateway(folder, "gateway.toml"), progressive=False) as client:
        tools = await client.describe()
    assert [tool["name"] for tool in tools if "find" in str(tool["name"])] == ["books_find_book", "more_find_book"]
    assert sum(map(definition_tokens, tools)) == int(told[1])


async def test_what_check_and_audit_count_is_what_the_gateway_costs(folder):
    done = run("gateway", "--check", "mcp.json", cwd=folder)
    said = re.search(r"gateway: ([\d,]+) tokens .* instead of ([\d,]+); ([\d,]+) where", done.out)
    assert said is not None
    told, without, one_tool = (int(figure.replace(",", "")) for figure in said.groups())

    async with connect(gateway(folder, "mcp.json"), progressive=False) as client:
        assert sum(map(definition_tokens, await client.describe())) == told
        overview = (await client.call_tool("discover")).text
        assert isinstance(overview, str)
        schemas = [
            len_of((await client.call_tool("get_schema", {"operation": [f"{server}.{tool}"]})).text)
            for server in ("books", "more")
            for tool in ("find_book", "long_text")
        ]
        assert told + len_of(overview) + round(sum(schemas) / len(schemas)) == pytest.approx(one_tool, abs=8)
    async with connect([str(FORKED_PROGRAM), "serve", str(folder / "books.py")], progressive=False) as client:
        assert 2 * sum(map(definition_tokens, await client.describe())) == without
    audited = run("audit", "mcp.json", "--json", cwd=folder)
    together = json.loads(audited.out)["together"]
    assert (together["surface"], together["now"], together["one_tool"]) == (told, without, one_tool)


def len_of(text: object) -> int:
    return tokens.count(str(text))


async def test_make_run_is_a_gateway_over_the_examples(folder):
    config = ROOT / "examples" / "gateway" / "gateway.toml"
    assert f"gateway {config.relative_to(ROOT)} --http" in (ROOT / "Makefile").read_text()
    environment = {**os.environ, "PATH": f"{FORKED_PROGRAM.parent}:{os.environ['PATH']}", "XDG_CACHE_HOME": str(folder)}
    environment |= {"XDG_STATE_HOME": str(folder)}
    command = [str(FORKED_PROGRAM), "gateway", str(config), "--http", "127.0.0.1:0"]
    with running_program(command, folder, env=environment) as program:
        url = program.wait_for(r"(http://\S+) \(Ctrl-C")[1]
        async with connect(url, progressive=False) as client:
            names = {str(tool["name"]) for tool in await client.describe()}
            assert {"discover", "get_schema", "query", "execute", "library_list_books"} <= names
            overview = (await client.call_tool("discover")).text
            assert all(name in str(overview) for name in ("everything", "library", "code", "stock", "bookshop"))
            reply = await client.call_tool("query", {"operation": "stock.list_items"})
            assert not reply.is_error and "part" in str(reply.text)
            assert tokens.count(str(reply.text)) <= 2_000 < tokens.count(str(await client.call("stock_list_items")))


def test_a_port_that_is_taken_is_told_in_one_sentence(folder):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        done = run("gateway", "books.py", "--http", address, cwd=folder)
    assert_one_sentence(done, 2)
    assert address.partition(":")[2] in done.err
