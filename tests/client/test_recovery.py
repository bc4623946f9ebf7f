"""Results that a server sends in parts or as changes: the program gets the complete value."""

import random
from pathlib import Path
from typing import Any

import pytest

from deltamcp import DeltaServer, ResultPolicy
from deltamcp.client.client import connect
from deltamcp.errors import ArgumentsError, CallFailedError, ClientError, DeltaError
from deltamcp.values import CallTool
from tests.support import fake_stdio
from tests.support.fake_http import ANY, Fake, FakeConnection, FakeRequest, result, serve_fake
from tests.support.http_server import serve_http
from tests.support.paths import PEER_COMMAND
from tests.support.request_count import count_requests

SPEAK: list[Any] = ["modern", "handshake", "delta-mcp"]
ROWS = [{"id": n, "name": f"row {n}", "note": "x" * (n % 7), "deep": {"k": [n]}} for n in range(300)]
SMALL = ResultPolicy(max_tokens=300)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"


def make_server(
    value: Any = ROWS, policy: ResultPolicy | None = SMALL, **options: Any
) -> tuple[DeltaServer, list[int]]:
    server = DeltaServer("parts", **options)
    runs: list[int] = []

    def rows() -> Any:
        """Gives many rows."""
        runs.append(1)
        return value() if callable(value) else value

    server.tool(name="rows", results=policy or ResultPolicy())(rows)
    return server, runs


# Pages


@pytest.mark.parametrize("speak", SPEAK)
@pytest.mark.parametrize("by", ["memory", "http"])
async def test_call_gives_all_of_it_whatever_was_shown(speak, by):
    server, runs = make_server()
    async with serve_http(server) as url:
        target: Any = url if by == "http" else server
        async with connect(target, speak=speak) as client:
            assert await client.call("rows") == ROWS
    assert len(runs) == 1


@pytest.mark.parametrize("speak", SPEAK)
@pytest.mark.parametrize(
    "value",
    [
        "word " * 3000,
        "ü€𝄞\n" * 2000,
        {"a": "x" * 5000, "b": list(range(2000))},
        {"data": {"users": ROWS}, "next": None},
        [[n, str(n), None] for n in range(500)],
        list(range(3000)),
        ["text " * 50] * 50,
        {f"key{n}": {"n": n} for n in range(500)},
        {"one": {"two": {"three": ["deep " * 20] * 100}}},
        [{"a": n} if n % 2 else {"b": str(n)} for n in range(400)],
        [None] * 2000,
        [{"t": "a,b|c\n\"d\" 'e'", "n": n, "f": n / 3} for n in range(300)],
    ],
    ids=lambda value: str(value)[:12],
)
async def test_every_shape_comes_whole(speak, value):
    server, _ = make_server(value)
    async with connect(server, speak=speak) as client:
        assert await client.call("rows") == value


@pytest.mark.parametrize("speak", SPEAK)
async def test_pages_are_parts_that_make_the_whole_and_the_tool_is_run_once(speak):
    server, runs = make_server()
    async with connect(server, speak=speak) as client:
        pages = [reply async for reply in client.pages("rows")]
        assert len(pages) > 2
        assert [row for page in pages for row in page.value] == ROWS
        assert all(len(page.text) < 4000 for page in pages)
    assert len(runs) == 1


@pytest.mark.parametrize("speak", SPEAK)
async def test_rows_come_one_by_one(speak):
    server, runs = make_server()
    async with connect(server, speak=speak) as client:
        assert [row async for row in client.rows("rows")] == ROWS
    assert len(runs) == 1


@pytest.mark.parametrize("speak", SPEAK)
async def test_rows_deeper_in_a_result(speak):
    server, _ = make_server({"data": {"users": ROWS}, "total": 300}, ResultPolicy(max_tokens=300, rows="/data/users"))
    async with connect(server, speak=speak) as client:
        assert [row async for row in client.rows("rows")] == ROWS


@pytest.mark.parametrize("speak", SPEAK)
async def test_a_result_that_fits_is_one_page(speak):
    server, _ = make_server(ROWS[:2])
    async with connect(server, speak=speak) as client:
        assert [reply.value async for reply in client.pages("rows")] == [ROWS[:2]]
        assert [row async for row in client.rows("rows")] == ROWS[:2]


@pytest.mark.parametrize("speak", SPEAK)
async def test_no_rows_are_no_rows(speak):
    server, _ = make_server([])
    async with connect(server, speak=speak) as client:
        assert [row async for row in client.rows("rows")] == []


@pytest.mark.parametrize("speak", SPEAK)
async def test_stopping_in_the_middle_asks_for_no_more(speak):
    server, _ = make_server()
    counted = count_requests(server)
    async with connect(server, speak=speak) as client:
        pages = client.rows("rows")
        async for row in pages:
            assert row == ROWS[0]
            break
        await pages.aclose()
    assert counted.count(CallTool) == 1


@pytest.mark.parametrize("speak", SPEAK)
async def test_pages_of_a_tool_that_fails(speak):
    def fails() -> Any:
        raise ValueError

    server, _ = make_server(fails)
    async with connect(server, speak=speak) as client:
        with pytest.raises((CallFailedError, DeltaError)):
            async for _ in client.pages("rows"):
                pytest.fail("a page of nothing")


@pytest.mark.parametrize("speak", ["modern", "handshake"])
async def test_a_part_is_read_on_by_its_handle(speak: Any):
    server, runs = make_server()
    async with connect(server, speak=speak) as client:
        first = await client.call_tool("rows")
        assert first.is_part
        assert first.handle
        second = await client.read_on(first.handle, page=2)
        assert second.value
        assert second.value[0] == ROWS[len(first.value)]
        at = await client.read_on(first.handle, path="/7/name")
        assert "row 7" in at.text
        found = await client.read_on(first.handle, grep="row 250")
        assert "row 250" in found.text
        only = await client.read_on(first.handle, fields=["id"])
        assert "note" not in only.text
        assert await client.whole(first) == ROWS
    assert len(runs) == 1


@pytest.mark.parametrize("speak", ["modern", "handshake"])
async def test_a_handle_of_nothing_is_told(speak: Any):
    server, _ = make_server()
    async with connect(server, speak=speak) as client:
        with pytest.raises(ArgumentsError):
            await client.read_on("no-such-handle")
        first = await client.call_tool("rows")
        assert first.handle
        with pytest.raises(ArgumentsError):
            await client.read_on(first.handle, path="/nowhere/at/all")


@pytest.mark.parametrize("speak", ["modern", "handshake"])
async def test_the_caller_says_how_much_it_wants(speak: Any):
    server, runs = make_server(policy=None)
    async with connect(server, speak=speak) as client:
        assert not (await client.call_tool("rows")).is_part
        small = await client.call_tool("rows", want=ResultPolicy(max_tokens=200))
        assert small.is_part
        assert len(small.text) < 2000
        assert await client.whole(small) == ROWS
        few = await client.call_tool("rows", want=ResultPolicy(page_size=5))
        assert few.value == ROWS[:5]
        ids = await client.call_tool("rows", want=ResultPolicy(fields=["id"]))
        assert ids.value == [{"id": row["id"]} for row in ROWS]
    assert len(runs) == 4


async def test_what_is_gone_cannot_be_had_whole():
    """The server restarts and loses its stored results."""
    first, _ = make_server()
    async with connect(first) as client:
        reply = await client.call_tool("rows")
    second, runs = make_server()
    async with connect(second) as client:
        with pytest.raises(ClientError):
            await client.whole(reply)
    assert not runs


# Servers that do not know Delta-MCP


@pytest.fixture(params=["modern", "handshake"])
def plain(request: Any) -> Fake:
    async def rows(asked: FakeRequest, wire: FakeConnection) -> None:
        fake.ran.append((asked.params["name"], None))
        await wire.json({"jsonrpc": "2.0", "id": asked.id, "result": result({"items": ROWS})})

    modern = request.param == "modern"
    fake = Fake(modern=modern, handshake=not modern, tools=[{"name": "rows", "inputSchema": ANY}])
    fake.always("tools/call", rows)
    return fake


async def test_a_server_without_budgets_has_its_results_made_to_fit_here(plain):
    async with serve_fake(plain), connect(plain.url) as client:
        reply = await client.call_tool("rows", want=ResultPolicy(max_tokens=300))
        assert len(reply.text) < 4000
        assert reply.is_part
        assert reply.handle
        assert await client.whole(reply) == {"items": ROWS}
        found = await client.read_on(reply.handle, grep="row 250")
        assert "row 250" in found.text
        assert [row async for row in client.rows("rows", want=ResultPolicy(max_tokens=300))] == ROWS
        assert [row async for row in client.rows("rows")] == ROWS
    assert plain.runs("rows") == 3


async def test_a_server_without_budgets_is_not_asked_for_what_it_does_not_know(plain):
    async with serve_fake(plain), connect(plain.url, deltas=True) as client:
        await client.call_tool("rows", want=ResultPolicy(max_tokens=300))
    (asked,) = plain.of("tools/call")
    assert "pack_root" not in asked.params.get("arguments", {})


async def test_call_gives_all_of_what_a_plain_server_sends(plain):
    async with serve_fake(plain), connect(plain.url) as client:
        assert await client.call("rows") == {"items": ROWS}


# Deltas


def changing(seed: int) -> Any:
    """Rows that change a little with every call, in every way rows can change."""
    chance = random.Random(seed)
    rows = [{"id": n, "name": f"row {n}", "n": n, "tags": ["a", "b"]} for n in range(60)]
    given: list[Any] = []

    def value() -> Any:
        if given:
            for _ in range(chance.randint(0, 3)):
                at = chance.randrange(len(rows))
                match chance.randrange(5):
                    case 0:
                        rows[at] = {**rows[at], "n": chance.random()}
                    case 1:
                        del rows[at]
                    case 2:
                        rows.insert(at, {"id": 1000 + len(given) * 10 + at, "name": "new", "n": None, "tags": []})
                    case 3:
                        rows[at] = {**rows[at], "extra": {"deep": [chance.random()]}}
                    case _:
                        rows.append(rows.pop(at))
        given.append([dict(row) for row in rows])
        return given[-1]

    return value, given


@pytest.mark.parametrize("speak", SPEAK)
@pytest.mark.parametrize(
    "policy", [ResultPolicy(deltas=True), ResultPolicy(deltas=True, max_tokens=400), None], ids=str
)
@pytest.mark.parametrize("seed", range(3))
async def test_the_value_is_whole_however_little_was_sent(speak, policy, seed):
    value, given = changing(seed)
    server, _ = make_server(value, policy)
    async with connect(server, speak=speak, deltas=True) as client:
        for _ in range(12):
            got = await client.call("rows")
            assert got == given[-1]


@pytest.mark.parametrize("speak", ["modern", "handshake"])
@pytest.mark.parametrize("by", ["memory", "http"])
async def test_what_did_not_change_is_not_sent_again(speak: Any, by: str):
    server, _ = make_server(ROWS, ResultPolicy(deltas=True))
    async with serve_http(server) as url:
        target: Any = url if by == "http" else server
        async with connect(target, speak=speak, deltas=True) as client:
            first = await client.call_tool("rows")
            second = await client.call_tool("rows")
            assert len(second.text) < len(first.text) / 10
            assert await client.whole(second) == ROWS
            assert await client.call("rows") == ROWS


@pytest.mark.parametrize("speak", ["modern", "handshake"])
async def test_results_of_different_arguments_are_not_mixed_up(speak: Any):
    server = DeltaServer("two", results=ResultPolicy(deltas=True))

    @server.tool
    def some(start: int) -> list[dict[str, Any]]:
        """Some rows."""
        return ROWS[start : start + 50]

    async with connect(server, speak=speak, deltas=True) as client:
        for _ in range(3):
            for start in (0, 10, 200):
                assert await client.call("some", start=start) == ROWS[start : start + 50]


@pytest.mark.parametrize("speak", ["modern", "handshake"])
async def test_the_program_may_change_what_it_was_given(speak: Any):
    """The client applies the next delta to its own copy, not to the list that the program sorts and empties."""
    value, given = changing(5)
    server, _ = make_server(value, ResultPolicy(deltas=True))
    async with connect(server, speak=speak, deltas=True) as client:
        for _ in range(6):
            got = await client.call("rows")
            assert got == given[-1]
            got.reverse()
            for row in got:
                row.clear()
            got.clear()


@pytest.mark.parametrize("speak", ["modern", "handshake"])
async def test_a_server_that_lost_its_bases_sends_it_whole(speak: Any):
    """Two servers behind one URL do not share a store."""
    one, _ = make_server(ROWS, ResultPolicy(deltas=True))
    changed = [*ROWS[:5], {"id": -1}, *ROWS[6:]]
    other, _ = make_server(changed, ResultPolicy(deltas=True))

    class Either:
        engine = one.engine

    target: Any = Either()
    async with connect(target, speak=speak, deltas=True) as client:
        assert await client.call("rows") == ROWS
        assert await client.call("rows") == ROWS
    Either.engine = other.engine
    async with connect(target, speak=speak, deltas=True) as client:
        assert await client.call("rows") == changed


async def test_a_server_restarted_in_the_middle_of_deltas(tmp_path):
    """The client asks a new process, which does not know earlier results, for the complete result."""
    file = tmp_path / "server.py"
    file.write_text(
        "import os\n"
        "from pathlib import Path\n"
        "from deltamcp import DeltaServer, ResultPolicy\n"
        "server = DeltaServer('again', results=ResultPolicy(deltas=True))\n"
        "@server.tool(annotations={'readOnlyHint': True})\n"
        "def rows() -> list:\n"
        "    'Gives rows.'\n"
        f"    runs = Path({str(tmp_path / 'runs')!r})\n"
        "    n = int(runs.read_text()) + 1 if runs.exists() else 1\n"
        "    runs.write_text(str(n))\n"
        "    if n == 3:\n"
        "        os._exit(1)\n"
        "    return [{'id': i, 'v': i if i else n} for i in range(100)]\n"
    )
    async with connect([*PEER_COMMAND[:2], str(file)], quiet=True, deltas=True) as client:
        for n in (1, 2, 4, 5):
            assert await client.call("rows") == [{"id": i, "v": i or n} for i in range(100)]


async def test_deltas_are_off_unless_they_are_asked_for():
    value, given = changing(9)
    server, _ = make_server(value, None)
    async with connect(server) as client:
        for _ in range(3):
            reply = await client.call_tool("rows")
            assert reply.value == given[-1]


async def test_a_plain_stdio_server_with_deltas_on(log):
    async with connect(fake_stdio.command(log=log), deltas=True) as client:
        for n in range(3):
            assert (await client.call("echo", a=n))["given"] == {"a": n}
