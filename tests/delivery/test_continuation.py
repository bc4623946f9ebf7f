"""`continue`: reads by page, offset, path, fields and grep, from any replica, only for the owner, until expiry."""

import contextlib
import copy
import json
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from deltamcp import DeltaServer, Limits, Principal, ResultPolicy, Text
from deltamcp.results.encode import decode
from deltamcp.tokens import count
from deltamcp.values import Caller, CallTool, Era, ReadResource, Terms
from tests.support.conditions import HANG_SECONDS, advance_store_clock
from tests.support.equality import is_same
from tests.support.era_client import ERAS, compact_json, era_client, first_text, result_meta, texts, token_cost
from tests.support.processes import free_port
from tests.support.raw_client import META, raw_client
from tests.support.result_readers import ProgramReader
from tests.support.sample_values import LINES, USERS

WRAPPED = {"total": 60, "note": {"a/b": "slash", "m~n": "tilde"}, "items": USERS[:60]}


@pytest.fixture(params=ERAS)
def era(request) -> str:
    return str(request.param)


def office(store: str = "memory://", limits: Limits | None = None, disclosure: Any = "full", **policy: Any) -> Any:
    """`ran` of it is what was run."""
    policy.setdefault("max_tokens", 300)
    server: Any = DeltaServer(
        "office", results=ResultPolicy(**policy), store=store, limits=limits, disclosure=disclosure
    )
    server.ran = []

    @server.tool(category="get", action="wrapped")
    async def wrapped() -> Any:
        server.ran.append("wrapped")
        return copy.deepcopy(WRAPPED)

    @server.tool(category="get", action="rows")
    async def rows() -> Any:
        server.ran.append("rows")
        return copy.deepcopy(USERS[:200])

    @server.tool(category="get", action="log")
    async def log() -> str:
        server.ran.append("log")
        return LINES

    @server.tool(category="own", action="pages")
    async def paged(page: int, pageSize: int = 10, limit: int = 0, offset: int = 0) -> list[int]:
        server.ran.append((page, pageSize, limit, offset))
        return [page, pageSize, limit, offset]

    return server


async def kept(peer: Any, tool: str) -> str:
    handle: str = result_meta(await peer.result_of(tool))["handle"]
    return handle


# Each way of reading on


@pytest.mark.parametrize("offset", [0, 1, 7, 58, 59])
async def test_an_offset_counts_rows(offset, era):
    async with era_client(office(), era) as peer:
        result = await peer.result_of("continue", handle=await kept(peer, "wrapped"), offset=offset)
        said = result_meta(result)
        assert (said["unit"], said["path"], said["start"], said["total"]) == ("rows", "/items", offset, 60)
        assert is_same(decode(first_text(result)), USERS[offset : said["end"]])
        assert said["end"] > offset and ("the last" in texts(result)[1]) == (said["end"] == 60)


@pytest.mark.parametrize("offset", [0, 1, 100, len(LINES) - 1])
async def test_an_offset_counts_characters(offset, era):
    async with era_client(office(), era) as peer:
        result = await peer.result_of("continue", handle=await kept(peer, "log"), offset=offset)
        assert first_text(result) == LINES[offset : result_meta(result)["end"]]


async def test_an_offset_never_splits_a_character():
    server = DeltaServer("x", results=ResultPolicy(max_tokens=50))
    server.tool(name="get")(lambda: "𒀀é👩‍👩‍👧‍👦" * 200)
    async with era_client(server) as peer:
        handle, shown = await kept(peer, "get"), ""
        while len(shown) < len("𒀀é👩‍👩‍👧‍👦" * 200):
            shown += first_text(await peer.result_of("continue", handle=handle, offset=len(shown)))
        assert shown == "𒀀é👩‍👩‍👧‍👦" * 200


async def test_the_first_reply_and_the_pages_after_it_make_up_the_rows(era):
    async with era_client(office(), era) as peer:
        result = await peer.result_of("rows")
        handle, shown = result_meta(result)["handle"], decode(first_text(result))
        page = 2
        while len(shown) < 200:
            shown += decode(first_text(await peer.result_of("continue", handle=handle, page=page)))
            page += 1
        assert is_same(shown, USERS[:200])


@pytest.mark.parametrize("tool", ["rows", "wrapped", "log"])
async def test_page_one_is_what_the_first_reply_showed(tool, era):
    """Or reading pages 1, 2, 3 by `continue` would show something twice."""
    async with era_client(office(), era) as peer:
        result = await peer.result_of(tool)
        handle = result_meta(result)["handle"]
        one, two = [result_meta(await peer.result_of("continue", handle=handle, page=page)) for page in (1, 2)]
        assert one["end"] == two["start"]
        assert two["start"] == result_meta(result)["end"]


async def test_a_page_size_bounds_the_rows(era):
    async with era_client(office(page_size=3), era) as peer:
        result = await peer.result_of("rows")
        assert len(decode(first_text(result))) == 3
        handle = result_meta(result)["handle"]
        assert is_same(decode(first_text(await peer.result_of("continue", handle=handle, page=4))), USERS[9:12])


async def test_a_page_size_cuts_what_the_budget_would_not(era):
    async with era_client(office(max_tokens=100_000, page_size=50), era) as peer:
        result = await peer.result_of("rows")
        assert is_same(decode(first_text(result)), USERS[:50]) and "1-50 of 200 rows" in texts(result)[1]
        rest = await peer.result_of("continue", handle=result_meta(result)["handle"], offset=150)
        assert is_same(decode(first_text(rest)), USERS[150:200])


PATHS: list[tuple[str, Any]] = [
    ("/total", 60),
    ("total", 60),
    ("/note/a~1b", "slash"),
    ("/note/m~0n", "tilde"),
    ("/items/3", USERS[3]),
    ("items.3", USERS[3]),
    ("items[3]", USERS[3]),
    ("/items/59/email", USERS[59]["email"]),
    ("items.59.email", USERS[59]["email"]),
    ("/note", WRAPPED["note"]),
]


@pytest.mark.parametrize(("path", "expected"), PATHS)
async def test_a_path_leads_to_a_part(path, expected, era):
    async with era_client(office(), era) as peer:
        result = await peer.result_of("continue", handle=await kept(peer, "wrapped"), path=path)
        text = first_text(result)
        assert text == expected if isinstance(expected, str) else is_same(decode(text), expected)
        raw = await peer.result_of("continue", handle=result_meta(result)["handle"], path=f"raw:{path}")
        assert is_same(json.loads(first_text(raw)), expected)


async def test_the_empty_path_is_the_whole(era):
    async with era_client(office(), era) as peer:
        handle = await kept(peer, "wrapped")
        assert is_same(await ProgramReader(peer, handle, 300).value(""), WRAPPED)


async def test_a_cut_is_found_from_the_path_it_is_told_with():
    """Whatever way the path was written."""
    server = DeltaServer("x", results=ResultPolicy(max_tokens=100))
    server.tool(name="get")(lambda: {"items": [{"id": n, "body": f"w{n} " * 300} for n in range(4)]})
    async with era_client(server) as peer:
        handle = await kept(peer, "get")
        for path in ("/items", "items"):
            said = result_meta(await peer.result_of("continue", handle=handle, path=path, offset=1))
            [cut] = said["cuts"]
            assert first_text(await peer.result_of("continue", handle=handle, path=said["path"] + cut)).startswith(
                "w1 w1"
            )


@pytest.mark.parametrize(
    "path", ["/nope", "nope", "/items/60", "/items/-1", "/items/x", "/items/3/nope", "/total/x", "/items/1e0", "raw:/x"]
)
async def test_a_path_to_nothing_says_what_there_is(path, era):
    async with era_client(office(), era) as peer:
        refusal = await peer.refusal_of("continue", handle=await kept(peer, "wrapped"), path=path)
        assert "no " in refusal.lower() and count(refusal) <= 100


@pytest.mark.parametrize("fields", ["id,score", ["id", "score"], "[].{id: id, score: score}"])
async def test_fields_of_rows(fields, era):
    async with era_client(office(), era) as peer:
        result = await peer.result_of("continue", handle=await kept(peer, "rows"), fields=fields, offset=5)
        shown = decode(first_text(result))
        assert shown == [{"id": row["id"], "score": row["score"]} for row in USERS[5 : 5 + len(shown)]]
        assert result_meta(result)["total"] == 200 and token_cost(result) <= 300


async def test_fields_of_rows_in_an_envelope(era):
    async with era_client(office(), era) as peer:
        handle = await kept(peer, "wrapped")
        result = await peer.result_of("continue", handle=handle, path="/items", fields="id")
        shown = decode(first_text(result))
        assert shown == [{"id": row["id"]} for row in USERS[: len(shown)]]
        assert decode(first_text(await peer.result_of("continue", handle=handle, fields="note"))) == {
            "note": WRAPPED["note"]
        }
        inner = await peer.result_of("continue", handle=handle, fields="items[?score > `95`].username")
        assert decode(first_text(inner)) == [row["username"] for row in USERS[:60] if row["score"] > 95]


@pytest.mark.parametrize("fields", ["items[?", "a..b[", 7, {"a": 1}, [1]])
async def test_fields_that_cannot_be_meant_are_refused(fields, era):
    async with era_client(office(), era) as peer:
        assert "fields" in await peer.refusal_of("continue", handle=await kept(peer, "wrapped"), fields=fields)


async def test_grep_finds_rows_by_any_value(era):
    async with era_client(office(), era) as peer:
        result = await peer.result_of("continue", handle=await kept(peer, "rows"), grep="user_0117")
        assert decode(first_text(result)) == {"116": USERS[116]}


async def test_grep_finds_lines(era):
    async with era_client(office(), era) as peer:
        result = await peer.result_of("continue", handle=await kept(peer, "log"), grep="^Line 42 ")
        head, found = first_text(result).splitlines()
        assert head == f"1 of {len(LINES.splitlines())} lines match:" and found == f"43:{LINES.splitlines()[42]}"
        assert LINES.splitlines()[7] not in first_text(result)


async def test_what_grep_finds_keeps_to_the_budget_and_can_be_read_on(era):
    async with era_client(office(), era) as peer:
        handle, offset = await kept(peer, "rows"), 0
        found: dict[str, Any] = {}
        while True:
            result = await peer.result_of("continue", handle=handle, grep="example", offset=offset)
            assert token_cost(result) <= 300
            found |= decode(first_text(result))
            offset = result_meta(result)["end"]
            if offset == result_meta(result)["total"]:
                break
        assert is_same(found, {str(index): row for index, row in enumerate(USERS[:200])})


@pytest.mark.parametrize("tool", ["rows", "log", "wrapped"])
async def test_grep_that_finds_nothing_says_so(tool, era):
    async with era_client(office(), era) as peer:
        result = await peer.use("continue", handle=await kept(peer, tool), grep="zebra (")
        assert re.search(r"\b(0|no|nothing|none)\b", "\n".join(texts(result)).lower())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"page": 0}, "page"),
        ({"page": -1}, "page"),
        ({"page": 10**9}, "page"),
        ({"page": 1.5}, "page"),
        ({"page": "two"}, "page"),
        ({"offset": -1}, "offset"),
        ({"offset": 60}, "offset"),
        ({"offset": 10**30}, "offset"),
        ({"offset": "x"}, "offset"),
        ({"path": 7}, "path"),
        ({"grep": 7}, "grep"),
        ({"grep": "x", "path": "/nope"}, "nope"),
    ],
)
async def test_what_cannot_be_read_is_told_and_no_crash(arguments, said, era):
    async with era_client(office(), era) as peer:
        refusal = await peer.refusal_of("continue", handle=await kept(peer, "wrapped"), **arguments)
        assert said in refusal and "log says why" not in refusal


@pytest.mark.parametrize("arguments", [{}, {"handle": 7}, {"handle": None}, {"handle": ""}, {"handle": "R" * 10_000}])
async def test_a_handle_that_is_none_is_refused(arguments, era):
    async with era_client(office(), era) as peer:
        refusal = await peer.refusal_of("continue", **arguments)
        assert "log says why" not in refusal and count(refusal) <= 200


async def test_a_path_or_fields_of_a_text_are_refused_with_the_ways_there_are(era):
    async with era_client(office(), era) as peer:
        handle = await kept(peer, "log")
        for arguments in ({"path": "/a"}, {"fields": "a"}):
            refusal = await peer.refusal_of("continue", handle=handle, **arguments)
            assert "offset" in refusal and "grep" in refusal


# Resources


async def test_an_author_or_a_request_asks_for_a_link_to_the_whole(era):
    """Without being asked the server sends none: client libraries follow it, or make a file of it."""
    cases: list[tuple[dict[str, Any], dict[str, Any] | None, int]] = [
        ({}, None, 0),
        ({}, {"links": True}, 1),
        ({"links": True}, None, 1),
        ({"links": True}, {"links": False}, 0),
        ({"links": True, "max_tokens": 199}, None, 0),
    ]
    for policy, wish, links in cases:
        server = office(**policy)
        server.tool(name="blocks")(lambda: [Text("hello " * 900), Text("second " * 900)])
        async with era_client(server, era) as peer:
            for tool in ("wrapped", "rows", "log", "blocks"):
                result = await peer.result_of(tool, wish)
                handle = result_meta(result)["handle"]
                assert [block["type"] for block in result["content"]].count("resource_link") == links
                assert handle in "".join(texts(result)) and token_cost(result) <= policy.get("max_tokens", 300)


async def test_a_handle_is_a_link_to_the_whole(era):
    async with era_client(office(links=True), era) as peer:
        result = await peer.result_of("wrapped")
        [link] = [block for block in result["content"] if block["type"] == "resource_link"]
        handle = result_meta(result)["handle"]
        assert link["uri"] == f"office://results/{handle}"
        assert is_same(await peer.read(link["uri"]), WRAPPED)
        assert is_same(await peer.read(f"{link['uri']}/items/3"), USERS[3])
        assert await peer.read(f"{link['uri']}/note/a~1b") == "slash"
        assert await peer.read(f"office://results/{await kept(peer, 'log')}") == LINES
        templates = (await peer.ask("resources/templates/list"))["result"]["resourceTemplates"]
        assert any(item["uriTemplate"].startswith("office://results/{") for item in templates)
        for wrong in ("/nope", "x", "/items/99"):
            assert (await peer.ask("resources/read", uri=link["uri"] + wrong))["error"]["code"] in (-32602, -32002)


# Once


async def test_the_tool_runs_once_however_much_is_read(era):
    server = office(max_tokens=100)
    async with era_client(server, era) as peer:
        handle = await kept(peer, "rows")
        assert is_same(await ProgramReader(peer, handle, 100).value(), USERS[:200])
        for arguments in ({"page": 3}, {"grep": "user_0001"}, {"fields": "id"}, {"path": "/7"}, {"path": "raw:"}, {}):
            await peer.result_of("continue", handle=handle, **arguments)
        await peer.read(f"office://results/{handle}")
        assert server.ran == ["rows"]


async def test_what_is_kept_is_what_was_returned_then(era):
    server = DeltaServer("x", results=ResultPolicy(max_tokens=100))
    rows = copy.deepcopy(USERS[:50])

    @server.tool
    async def get() -> Any:
        return rows

    async with era_client(server, era) as peer:
        handle = await kept(peer, "get")
        rows.clear()
        assert is_same(await ProgramReader(peer, handle, 100).value(), USERS[:50])
        rows += USERS[50:100]
        other = await kept(peer, "get")
        assert other != handle
        assert is_same(await ProgramReader(peer, other, 100).value(), USERS[50:100])
        assert is_same(await ProgramReader(peer, handle, 100).value(), USERS[:50])


async def test_a_tools_own_arguments_reach_it(era):
    server = office()
    async with era_client(server, era) as peer:
        await peer.result_of("paged", page=3, pageSize=7, limit=2, offset=9)
        await peer.refusal_of("paged", pageSize=7)
        await peer.refusal_of("rows", page=2)
    assert server.ran == [(3, 7, 2, 9)]


async def test_a_tools_own_arguments_reach_it_through_execute(era):
    server = office(disclosure="meta")
    async with era_client(server, era) as peer:
        await peer.result_of(
            "execute", operation="own.pages", params={"page": 3, "pageSize": 7, "limit": 2, "offset": 9}
        )
    assert server.ran == [(3, 7, 2, 9)]


async def test_execute_keeps_to_the_budget_and_is_read_on(era):
    server = office(disclosure="meta", max_tokens=100)
    async with era_client(server, era) as peer:
        result = await peer.result_of("execute", operation="get.rows")
        assert token_cost(result) <= 100
        assert is_same(await ProgramReader(peer, result_meta(result)["handle"], 100).value(), USERS[:200])
    assert server.ran == ["rows"]


async def test_reading_on_keeps_to_the_budget_of_the_tool(era):
    server = DeltaServer("x")

    @server.tool(results=ResultPolicy(max_tokens=100))
    async def get() -> Any:
        return USERS[:50]

    async with era_client(server, era) as peer:
        result = await peer.result_of("get")
        assert token_cost(result) <= 100
        assert token_cost(await peer.result_of("continue", handle=result_meta(result)["handle"])) <= 100


async def test_a_request_to_read_on_has_wishes_like_any_other(era):
    async with era_client(office(), era) as peer:
        handle = await kept(peer, "rows")
        assert token_cost(await peer.result_of("continue", {"maxTokens": 100}, handle=handle)) <= 100
        wide = await peer.result_of("continue", {"maxTokens": 50_000}, handle=handle, path="")
        assert is_same(decode(first_text(wide)), USERS[:200])
        plain = await peer.result_of("continue", {"tables": False}, handle=handle, path="")
        assert json.loads(first_text(plain))[0] == USERS[0]


async def test_who_cannot_read_tables_is_not_given_any_later(era):
    async with era_client(office(), era) as peer:
        handle = result_meta(await peer.result_of("rows", {"tables": False}))["handle"]
        assert json.loads(first_text(await peer.result_of("continue", handle=handle, path="")))[0] == USERS[0]


async def test_what_nearer_policies_leave_open_is_the_servers():
    server = DeltaServer("x", results=ResultPolicy(max_tokens=400, page_size=5))

    @server.tool(results=ResultPolicy(page_size=2))
    async def two() -> Any:
        return USERS[:50]

    @server.tool(results=ResultPolicy(max_tokens=100))
    async def small() -> Any:
        return USERS[:50]

    async with era_client(server) as peer:
        result = await peer.result_of("two")
        assert len(decode(first_text(result))) == 2
        result = await peer.result_of("small")
        assert token_cost(result) <= 100 and len(decode(first_text(result))) <= 5


# Replicas, owners, time


async def read_each_other(store: str) -> None:
    one, two = office(store), office(store)
    async with era_client(one) as left, era_client(two, "handshake") as right:
        handles = [await kept(left, "rows"), await kept(right, "wrapped")]
        assert is_same(await ProgramReader(right, handles[0], 300).value(), USERS[:200])
        assert is_same(await ProgramReader(left, handles[1], 300).value(), WRAPPED)
        assert is_same(await left.read(f"office://results/{handles[1]}"), WRAPPED)
        log = await kept(left, "log")
    assert (one.ran, two.ran) == (["rows", "log"], ["wrapped"])
    async with era_client(office(store)) as later:
        assert await ProgramReader(later, log, 300).value() == LINES


async def test_replicas_read_each_others_results_in_a_file(tmp_path):
    await read_each_other(f"sqlite:///{tmp_path / 'kept.db'}")


@pytest.fixture
def redis_url(tmp_path: Path) -> Iterator[str]:
    program = shutil.which("redis-server")
    if program is None:
        pytest.skip("there is no redis-server on PATH")
    port, log = free_port(), tmp_path / "log"
    command = [program, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", str(tmp_path)]
    process = subprocess.Popen([*command, "--logfile", str(log)])
    try:
        end = time.monotonic() + HANG_SECONDS
        while not (log.exists() and "Ready to accept connections" in log.read_text()):
            assert time.monotonic() < end and process.poll() is None
            time.sleep(0.05)
        yield f"redis://127.0.0.1:{port}/0"
    finally:
        process.terminate()
        process.wait()


async def test_replicas_read_each_others_results_in_redis(redis_url):
    await read_each_other(redis_url)


@pytest.mark.parametrize("read", [False, True])
@pytest.mark.parametrize("way", ["memory", "sqlite"])
async def test_an_expired_handle_says_what_to_do(way, read, tmp_path, era, monkeypatch):
    store = "memory://" if way == "memory" else f"sqlite:///{tmp_path / 'kept.db'}"
    server = office(store, Limits(kept_seconds=60))
    async with era_client(server, era) as peer:
        handle = await kept(peer, "rows")
        if read:
            await peer.result_of("continue", handle=handle)
        advance_store_clock(server, monkeypatch, 61)
        refusal = await peer.refusal_of("continue", handle=handle)
        assert handle in refusal and "again" in refusal
        assert "again" in await peer.refusal_of("paged", page={"$result": handle})
        gone = await peer.ask("resources/read", uri=f"office://results/{handle}")
        assert gone["error"]["code"] in (-32602, -32002)


async def test_nothing_is_kept_for_longer_than_in_all_however_often_it_is_read(monkeypatch):
    server = office(limits=Limits(kept_seconds=60, kept_seconds_in_all=200))
    async with era_client(server) as peer:
        handle = await kept(peer, "rows")
        for _ in range(3):
            advance_store_clock(server, monkeypatch, 55)
            await peer.result_of("continue", handle=handle)
        advance_store_clock(server, monkeypatch, 55)
        assert handle in await peer.refusal_of("continue", handle=handle)


def terms(name: str) -> Terms:
    return Terms(Era.MODERN, "2026-07-28", {}, {}, {}, caller=Caller(Principal(name)))


async def test_a_handle_is_its_owners():
    server = office()
    ask = server.engine.perform
    async with raw_client(server):
        owned: Any = await ask(CallTool("rows", {}), terms("a"), None, 1)
        handle = owned.value.meta["io.github.delta-mcp/result"]["handle"]
        theirs: Any = await ask(CallTool("continue", {"handle": handle}), terms("b"), None, 2)
        unknown: Any = await ask(CallTool("continue", {"handle": "R" + "2" * (len(handle) - 1)}), terms("b"), None, 3)
        assert theirs.value.is_error
        hidden = [answer.value.content[0].text for answer in (theirs, unknown)]
        assert hidden[0].replace(handle, "") == hidden[1].replace("R" + "2" * (len(handle) - 1), "")
        referred: Any = await ask(
            CallTool("paged", {"page": {"$result": handle, "path": "/0/id"}}), terms("b"), None, 4
        )
        assert referred.value.is_error and "user" not in referred.value.content[0].text
        read: Any = await ask(ReadResource(f"office://results/{handle}"), terms("b"), None, 5)
        assert not hasattr(read, "value")
        own: Any = await ask(CallTool("continue", {"handle": handle}), terms("a"), None, 6)
        assert not own.value.is_error
        assert server.ran == ["rows"]


async def test_handles_are_short_and_not_counted():
    async with era_client(office()) as peer:
        handles = [await kept(peer, "rows") for _ in range(20)]
    assert len(set(handles)) == 20 and all(re.fullmatch(r"R[0-9a-z]{4}", handle) for handle in handles)
    assert sorted(handles) != handles


async def test_a_known_handle_never_names_another_result():
    """Five characters are few: two results must not share a handle while both are kept."""
    async with era_client(office(max_tokens=50)) as peer:
        handles = [await kept(peer, "log") for _ in range(1500)]
    assert len(set(handles)) == len(handles)


async def test_handles_of_the_anonymous_cannot_be_guessed():
    app = office().asgi()
    headers = {
        "accept": "application/json, text/event-stream",
        "mcp-protocol-version": "2026-07-28",
        "mcp-method": "tools/call",
        "mcp-name": "rows",
    }
    async with contextlib.AsyncExitStack() as stack:
        client = await stack.enter_async_context(
            httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://127.0.0.1:8000")
        )
        body = {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "tools/call",
            "params": {"name": "rows", "arguments": {}, "_meta": META},
        }
        answer = await client.post("/mcp", json=body, headers=headers)
        assert answer.status_code == 200, answer.text
        data = answer.text.partition("data: ")[2] or answer.text
        result = json.loads(data)["result"]
        handle = result_meta(result)["handle"]
        assert len(handle) >= 22 and token_cost(result) <= 300
        headers["mcp-name"] = body["params"]["name"] = "continue"  # type: ignore[index]
        body["params"]["arguments"] = {"handle": handle, "path": "/199/id"}  # type: ignore[index]
        answer = await client.post("/mcp", json=body, headers=headers)
        data = answer.text.partition("data: ")[2] or answer.text
        assert first_text(json.loads(data)["result"]) == "200"


@pytest.mark.parametrize("budget", [50, 60, 100])
async def test_long_handles_leave_room_in_the_budget(budget):
    server = office(max_tokens=budget)
    anonymous = Terms(Era.MODERN, "2026-07-28", {}, {}, {})
    async with raw_client(server):
        for tool in ("rows", "wrapped", "log"):
            answer: Any = await server.engine.perform(CallTool(tool, {}), anonymous, None, 1)
            seen = [
                block.text if hasattr(block, "text") else compact_json({"type": "resource_link", "uri": block.uri})
                for block in answer.value.content
            ]
            assert count("\n".join(seen)) <= budget
            handle = answer.value.meta["io.github.delta-mcp/result"]["handle"]
            more: Any = await server.engine.perform(CallTool("continue", {"handle": handle}), anonymous, None, 2)
            assert not more.value.is_error
            assert count("\n".join(block.text for block in more.value.content)) <= budget
