"""Delivery to Delta-MCP clients: shapes within a budget, the protocol's examples, and its `compat` mode."""

import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest
from msgspec.structs import replace

from deltamcp import DeltaServer, Disclosure, ResultPolicy, ToolError, connect
from tests.support.equality import is_same
from tests.support.era_client import EraClient, compact_json, era_client, first_text, result_meta, token_cost
from tests.support.raw_client import raw_client
from tests.support.result_readers import ProgramReader
from tests.support.sample_values import LINES, USERS

POLICY = ResultPolicy(max_tokens=2000, page_size=20)
COMPAT = ResultPolicy(max_tokens=2000, page_size=20, compat=True)


@contextlib.asynccontextmanager
async def delta(server: DeltaServer, progressive: bool = False) -> AsyncIterator[EraClient]:
    async with raw_client(server) as raw:
        answer = await raw.handshake(
            "delta-mcp/0.2.0", **({"tools": {"progressiveDisclosure": True}} if progressive else {})
        )
        assert answer["result"]["protocolVersion"] == "delta-mcp/0.2.0"
        yield EraClient(raw, "handshake")


def directory(results: ResultPolicy | None = POLICY, **tool: Any) -> Any:
    """§16's server; `ran` of it is how often it was run."""
    server: Any = DeltaServer("users", results=results)
    server.ran = []

    @server.tool(**tool)
    async def list_users(activeOnly: bool = False, prefix: str = "") -> list[dict[str, Any]]:
        """List users."""
        server.ran.append((activeOnly, prefix))
        return [u for u in USERS if (u["active"] or not activeOnly) and u["username"].startswith(prefix)]

    return server


async def shown(peer: EraClient, tool: str = "list_users", **arguments: Any) -> Any:
    """What Delta-MCP's client makes of the answer."""
    return json.loads(first_text(await peer.result_of(tool, **arguments)))


PAGE_KEYS = ["paginated", "totalItems", "page", "pageSize", "totalPages", "hasMore", "items", "note"]


async def test_page_one():
    async with delta(directory()) as peer:
        page = await shown(peer)
        assert list(page) == PAGE_KEYS
        assert {key: page[key] for key in PAGE_KEYS if key != "items"} == {
            "paginated": True,
            "totalItems": 1000,
            "page": 1,
            "pageSize": 20,
            "totalPages": 50,
            "hasMore": True,
            "note": "Page 1/50. 1000 total items. Pass page=2 for next page.",
        }
        assert page["items"] == USERS[:20]


async def test_any_page_by_number():
    async with delta(directory()) as peer:
        page = await shown(peer, page=7)
        assert page["items"][0]["id"] == 121 and page["items"] == USERS[120:140]
        assert page["note"] == "Page 7/50. 1000 total items. Pass page=8 for next page."


async def test_a_page_size_of_the_clients_choice():
    async with delta(directory()) as peer:
        page = await shown(peer, page=1, pageSize=5)
        assert page["totalPages"] == 200 and page["items"] == USERS[:5]
        assert (await shown(peer, page=200, pageSize=5))["items"] == USERS[995:]


async def test_a_filter_and_pages():
    async with delta(directory()) as peer:
        page = await shown(peer, activeOnly=True)
        assert (page["totalItems"], page["totalPages"]) == (666, 34)
        assert all(user["active"] for user in page["items"])


async def test_fetching_all_pages():
    server = directory()
    async with delta(server) as peer:
        items: list[Any] = []
        calls = 0
        while True:
            calls += 1
            page = await shown(peer, prefix="user_00", page=calls, pageSize=20)
            items += page["items"]
            if not page["hasMore"]:
                break
        assert calls == 5 and items == USERS[:99]
    assert server.ran == [(False, "user_00")], "pages are of one snapshot"


async def test_the_last_page_says_that_it_is_the_last():
    async with delta(directory()) as peer:
        page = await shown(peer, page=50)
        assert page["hasMore"] is False and page["items"] == USERS[980:]
        assert "51" not in page["note"] and page["note"].startswith("Page 50/50. 1000 total items.")


@pytest.mark.parametrize(
    ("arguments", "page", "size"),
    [
        ({"page": 999}, 50, 20),
        ({"page": "x"}, 1, 20),
        ({"page": 2.7}, 2, 20),
        ({"page": 0}, 1, 20),
        ({"page": -3}, 1, 20),
        ({"page": "3"}, 3, 20),
        ({"pageSize": 0}, 1, 20),
        ({"pageSize": -5}, 1, 20),
        ({"pageSize": "10"}, 1, 10),
        ({"page": None}, 1, 20),
    ],
)
@pytest.mark.parametrize("policy", [POLICY, COMPAT])
async def test_odd_pages_are_read_as_delta_mcp_reads_them(arguments, page, size, policy):
    async with delta(directory(policy)) as peer:
        found = await shown(peer, **arguments)
        assert (found["page"], found["pageSize"]) == (page, size)
        assert found["items"] == USERS[(page - 1) * size : page * size]


async def test_a_call_without_a_page_runs_the_tool():
    """Only turning a page is not a call."""
    server = directory()
    async with delta(server) as peer:
        for _ in range(3):
            await shown(peer)
    assert len(server.ran) == 3


async def test_the_snapshot_is_the_callers_and_of_these_arguments():
    server = directory()
    async with delta(server) as peer:
        await shown(peer)
        page = await shown(peer, activeOnly=True, page=2)
        assert page["totalItems"] == 666 and server.ran == [(False, ""), (True, "")]


@pytest.mark.parametrize("budget", [100, 200, 500, 2000])
async def test_pages_keep_to_the_budget_and_none_is_lost(budget):
    server = directory(ResultPolicy(max_tokens=budget, page_size=50))
    async with delta(server) as peer:
        items: list[Any] = []
        number = 1
        while True:
            result = await peer.result_of("list_users", prefix="user_00", page=number)
            assert token_cost(result) <= budget
            page = json.loads(first_text(result))
            # Where there is little room, the note is the first to go.
            assert list(page) == (PAGE_KEYS if budget >= 200 else PAGE_KEYS[:-1]) and page["totalItems"] == 99
            items += page["items"]
            if not page["hasMore"]:
                break
            number += 1
        if budget >= 200:
            assert items == USERS[:99]
        handle = result_meta(result)["handle"]
        assert is_same(await ProgramReader(peer, handle, budget).value(), USERS[:99])
    assert len(server.ran) == 1


@pytest.mark.parametrize("budget", range(480, 530, 5))
async def test_every_page_of_a_snapshot_has_the_same_size(budget):
    """Or page 3 does not begin where page 2 ends, and rows are lost or shown twice."""
    async with delta(directory(ResultPolicy(max_tokens=budget))) as peer:
        pages = [await shown(peer, page=number) for number in range(1, 31)]
        assert len({page["pageSize"] for page in pages}) == 1
        items = [item for page in pages for item in page["items"]]
        assert items == USERS[: len(items)]


# Tools that declare `page` and `pageSize`


def own(results: ResultPolicy | None = POLICY, **tool: Any) -> Any:
    """Tools that page by themselves, and tools that leave it to the server though they declare the arguments."""
    server: Any = DeltaServer("own", results=results)
    server.ran = []
    rows = list(range(250))

    @server.tool(**tool)
    async def search(page: int = 1, pageSize: int = 100) -> list[int]:
        server.ran.append((page, pageSize))
        return rows[(page - 1) * pageSize : page * pageSize]

    @server.tool(**tool)
    async def hundreds(page: int = 1) -> list[int]:
        return rows[(page - 1) * 100 : page * 100]

    @server.tool(**tool)
    async def wrapped(page: int = 1, pageSize: int = 2) -> dict[str, Any]:
        return {"items": rows[(page - 1) * pageSize : page * pageSize], "page": page, "hasMore": True}

    @server.tool(**tool)
    async def list_users(page: int = 1, pageSize: int = 20, activeOnly: bool = False) -> list[dict[str, Any]]:
        server.ran.append((page, pageSize))
        return [user for user in USERS if user["active"] or not activeOnly]

    return server


@pytest.mark.parametrize("arguments", [{"page": 3}, {"page": 3, "pageSize": 100}])
async def test_a_tool_that_pages_has_its_own_pages(arguments):
    server = own()
    async with delta(server) as peer:
        assert await shown(peer, "search", **arguments) == list(range(200, 250))
        assert await shown(peer, "hundreds", page=2) == list(range(100, 200))
        assert await shown(peer, "wrapped", page=2) == {"items": [2, 3], "page": 2, "hasMore": True}
    assert server.ran == [(3, 100)]


async def test_a_tool_that_declares_pages_and_returns_everything_is_paged():
    """The original's samples do; their client turned page 1 for ever."""
    server = own()
    async with delta(server) as peer:
        items: list[Any] = []
        for number in range(1, 51):
            page = await shown(peer, "list_users", page=number)
            assert (page["page"], page["totalPages"], page["hasMore"]) == (number, 50, number < 50)
            items += page["items"]
        assert items == USERS
        assert server.ran == [(number, 20) for number in range(1, 51)], "the tool is told of the page"
        page = await shown(peer, "list_users", page=2, pageSize=5)
        assert page["items"] == USERS[5:10] and page["note"].endswith("Pass page=3 for next page.")
        page = await shown(peer, "list_users", page=1, activeOnly=True)
        assert (page["totalItems"], page["totalPages"]) == (666, 34)


async def test_a_tool_that_takes_no_page_size_pages_by_its_own():
    """Cut by the caller's page size, its second page would begin behind rows that were never sent."""
    async with delta(own()) as peer:
        for size in (10, 100, 500):
            assert await shown(peer, "hundreds", page=2, pageSize=size) == list(range(100, 200))


async def test_compat_pages_what_the_tool_paged_as_the_original_does():
    """It loses rows there: of the tool's page 2, rows 101 to 200, the client is shown 121 to 140."""
    async with delta(own(COMPAT)) as peer:
        assert await shown(peer, "search", page=3, pageSize=100) == list(range(200, 250))
        result = await peer.result_of("search", page=2)
        assert first_text(result) == compact_json(
            {
                "paginated": True,
                "totalItems": 100,
                "page": 2,
                "pageSize": 20,
                "totalPages": 5,
                "hasMore": True,
                "items": list(range(120, 140)),
                "note": "Page 2/5. 100 total items. Pass page=3 for next page.",
            }
        )
        assert (await shown(peer, "list_users", page=7))["items"] == USERS[120:140]


async def test_an_author_may_leave_pages_to_the_tool():
    async with delta(own(ResultPolicy(max_tokens=2000, page_size=20, auto_page=False))) as peer:
        page = await shown(peer, "search", page=2)
        assert page["items"] == list(range(100, 120)) and "page=" not in page["note"]


async def test_a_note_never_says_to_pass_what_is_refused():
    async with delta(directory(auto_page_off())) as peer:
        assert "page=2" not in (await shown(peer))["note"]
        assert "page" in await peer.refusal_of("list_users", page=2)


def auto_page_off() -> ResultPolicy:
    return ResultPolicy(max_tokens=2000, page_size=20, auto_page=False)


async def test_paging_can_be_had_for_a_tool_that_declares_pages():
    server = own(results=POLICY)
    server.remove_tool("search")

    @server.tool(results=ResultPolicy(auto_page=True))
    async def search(page: int = 1, pageSize: int = 100) -> list[int]:
        server.ran.append((page, pageSize))
        return list(range(100))

    async with delta(server) as peer:
        assert (await shown(peer, "search", page=2))["items"] == list(range(20, 40))


async def test_other_clients_never_page_by_argument():
    server = directory()
    async with era_client(server) as peer:
        assert "page" in await peer.refusal_of("list_users", page=2)
    assert server.ran == []


# Texts, objects and the rest


def things(results: ResultPolicy | None = POLICY) -> DeltaServer:
    server = DeltaServer("things", results=results)
    values: dict[str, Any] = {
        "text": LINES * 3,
        "small text": "hello",
        "object": {f"k{number}": "v" * 200 for number in range(100)},
        "small object": {"a": 1},
        "few long": [{"body": "word " * 3000}, {"body": "short"}],
        "number": 3,
        "null": None,
        "mixed": {
            "null": None, "yes": True, "n": 1.5, "short": "s", "long": "l" * 101, "list": [1] * 9, "none": [],
            "object": {"a": 1, "b": 2, "c": 3, "d": 4, "e": 5, "f": 6}, "empty": {}, "big": "w" * 9000,
        },
    }  # fmt: skip

    @server.tool
    async def get(kind: str) -> Any:
        return values[kind]

    return server


@pytest.mark.parametrize("policy", [POLICY, COMPAT])
@pytest.mark.parametrize(
    ("kind", "text"),
    [("small text", '"hello"'), ("small object", '{"a":1}'), ("number", "3"), ("null", "null")],
)
async def test_what_fits_is_json(policy, kind, text):
    async with delta(things(policy)) as peer:
        result = await peer.result_of("get", kind=kind)
        assert result["content"] == [{"type": "text", "text": text}]


@pytest.mark.parametrize("budget", [100, 200, 500, 2000])
@pytest.mark.parametrize("kind", ["text", "object", "few long", "mixed"])
async def test_shapes_keep_to_the_budget_and_the_rest_can_be_read(kind, budget):
    async with delta(things(ResultPolicy(max_tokens=budget))) as peer:
        result = await peer.result_of("get", kind=kind)
        assert token_cost(result) <= budget
        shape = json.loads(first_text(result))
        assert shape.get("truncated") or shape.get("_summarized") or shape.get("paginated")
        whole = await peer.read(f"things://results/{result_meta(result)['handle']}")
        async with era_client(things(None)) as other:
            plain = first_text(await other.result_of("get", kind=kind))
            assert is_same(whole, plain if kind == "text" else json.loads(plain))


async def test_a_long_text_has_its_shape():
    async with delta(things()) as peer:
        shape = await shown(peer, "get", kind="text")
        assert list(shape) == ["truncated", "totalChars", "estimatedTokens", "preview", "note"]
        size = len(LINES * 3)
        assert shape["truncated"] is True and shape["totalChars"] == size
        assert (LINES * 3).startswith(shape["preview"])
        assert f"Full length: {size} chars" in shape["note"]


async def test_compat_is_delta_mcp_to_the_byte():
    size, text = len(LINES * 3), LINES * 3
    estimate = -(-size // 4)
    note = "Object exceeded ~2000 token budget. Showing key structure and value previews."
    async with delta(things(COMPAT)) as peer:
        expected: Any = {
            "truncated": True,
            "totalChars": size,
            "estimatedTokens": estimate,
            "preview": text[:8000],
            "note": f"String truncated to ~2000 tokens (8000 chars). Full length: {size} chars (~{estimate} tokens).",
        }
        result = await peer.result_of("get", kind="text")
        assert result["content"] == [{"type": "text", "text": compact_json(expected)}]
        pretty = json.dumps([{"body": "word " * 3000}, {"body": "short"}], indent=2)
        total = -(-len(pretty) // 4)
        expected = {
            "truncated": True,
            "totalChars": len(pretty),
            "estimatedTokens": total,
            "preview": pretty[:8000],
            "note": f"JSON result truncated to ~2000 tokens. Total: ~{total} tokens.",
        }
        assert first_text(await peer.result_of("get", kind="few long")) == compact_json(expected)
        mixed = {"null": None, "yes": True, "n": 1.5, "short": "s", "long": "l" * 100 + "…", "list": "[Array(9)]"}
        mixed |= {"none": "[Array(0)]", "object": "{Object: a, b, c, d, e, ...}", "empty": "{Object: }"}
        mixed |= {"big": "w" * 100 + "…"}
        summary = json.loads(first_text(await peer.result_of("get", kind="mixed")))
        head = {"_summarized": True, "_totalKeys": 10, "_estimatedTokens": summary["_estimatedTokens"], "_note": note}
        assert compact_json(summary) == compact_json(head | mixed)
        summary = await shown(peer, "get", kind="object")
        kept = [key for key in summary if not key.startswith("_")]
        each = len(compact_json({"k99": "v" * 100 + "…"}))
        assert abs(len(kept) - 8000 // each) <= 1
        assert list(summary)[-1] == "_truncatedKeys" and summary["_truncatedKeys"] == 100 - len(kept)


async def test_compat_pages_are_delta_mcps_to_the_byte():
    async with delta(directory(COMPAT)) as peer:
        result = await peer.result_of("list_users", page=50)
        expected = {
            "paginated": True,
            "totalItems": 1000,
            "page": 50,
            "pageSize": 20,
            "totalPages": 50,
            "hasMore": False,
            "items": USERS[980:],
            "note": "Page 50/50. 1000 total items. Pass page=51 for next page.",
        }
        assert result["content"] == [{"type": "text", "text": compact_json(expected)}]
        assert "structuredContent" not in result


async def test_compat_has_no_budget_for_pages():
    """Weakness 6, which comes along."""
    server = DeltaServer("x", results=ResultPolicy(compat=True, max_tokens=100, page_size=50))
    server.tool(name="get")(lambda: [{"body": "word " * 100}] * 60)
    async with delta(server) as peer:
        assert len((await shown(peer, "get"))["items"]) == 50


async def test_compat_defaults_are_delta_mcps():
    server = DeltaServer("x", results=ResultPolicy(compat=True))
    server.tool(name="get")(lambda: USERS)
    server.tool(name="text")(lambda: "x" * 10_000)
    async with delta(server) as peer:
        assert (await shown(peer, "get"))["pageSize"] == 50
        text = await shown(peer, "text")
        assert len(text["preview"]) == 2000 and text["estimatedTokens"] == 2500


@pytest.mark.parametrize("version", ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"])
@pytest.mark.parametrize("policy", [POLICY, COMPAT])
async def test_other_clients_get_no_such_shapes(version, policy):
    async with raw_client(directory(replace(policy, links=True))) as raw:
        await raw.handshake(version)
        result = await EraClient(raw, "handshake").result_of("list_users")
        assert "paginated" not in first_text(result) and token_cost(result) <= 2000
        links = [block for block in result["content"] if block["type"] == "resource_link"]
        assert bool(links) == (version >= "2025-06-18")


@pytest.mark.parametrize("nothing", [None, ""])
async def test_a_page_that_is_null_or_empty_is_left_out(nothing):
    async with delta(directory()) as peer:
        page = await shown(peer)
        assert await shown(peer, page=nothing, pageSize=nothing) == page
        assert await shown(peer, page=2, pageSize=nothing) == await shown(peer, page=2)


@pytest.mark.parametrize("links", [None, True])
async def test_a_page_has_a_link_to_the_whole_if_the_author_asks_for_it(links):
    async with delta(directory(replace(POLICY, links=links))) as peer:
        result = await peer.result_of("list_users")
        kinds = [block["type"] for block in result["content"]]
        assert kinds == (["text", "resource_link"] if links else ["text"]) and token_cost(result) <= 2000
        assert result_meta(result)["handle"]


async def test_a_rate_limit_has_the_errors_text_and_rounds_down_in_compat_only():
    class LimitedError(Exception):
        status, headers = 429, {"retry-after": "1.5"}

    def limited_server(policy: ResultPolicy) -> DeltaServer:
        server = DeltaServer("x", results=policy)

        @server.tool(output_schema={"type": "object"})
        async def limited() -> dict[str, Any]:
            raise LimitedError("Slow down")

        return server

    async with delta(limited_server(COMPAT)) as peer:
        result = await peer.result_of("limited")
        assert first_text(result) == (
            '{"type":"rate_limited","retryAfterSeconds":1,"upstream":"limited","message":"Slow down"}'
        )
    for policy in (POLICY, COMPAT):
        async with era_client(limited_server(policy)) as other:
            text = '{"type":"rate_limited","retryAfterSeconds":2,"upstream":"limited"}'
            assert await other.refusal_of("limited") == text
    async with delta(limited_server(POLICY)) as peer:
        assert await peer.refusal_of("limited") == text


@pytest.mark.parametrize("policy", [None, POLICY, COMPAT])
async def test_rate_limits_and_failures(policy):
    server = DeltaServer("x", results=policy)

    @server.tool
    async def limited() -> str:
        request = httpx2.Request("GET", "https://example.com")
        httpx2.Response(429, headers={"retry-after": "60"}, request=request).raise_for_status()
        return ""

    @server.tool
    async def fails() -> str:
        raise ToolError("boom " * 4000)

    async with delta(server) as peer:
        found = await shown(peer, "limited")
        assert (found["type"], found["retryAfterSeconds"], found["upstream"]) == ("rate_limited", 60, "limited")
        assert await peer.refusal_of("fails") == "boom " * 4000


# What these clients are told of tools


def adorned(prefix: str = "") -> DeltaServer:
    """A server whose definitions explain tables, changes and sizes to MCP clients."""
    server = DeltaServer("users", results=replace(POLICY, deltas=True), disclosure=Disclosure(prefix=prefix))

    @server.tool
    async def list_users(activeOnly: bool = False) -> list[dict[str, Any]]:
        """List users."""
        return USERS

    return server


PLAIN = {
    "name": "list_users",
    "description": "List users.",
    "inputSchema": {
        "type": "object",
        "properties": {"activeOnly": {"type": "boolean", "default": False}},
        "additionalProperties": False,
    },
}


async def test_definitions_say_nothing_of_what_these_clients_never_get():
    async with delta(adorned()) as peer:
        assert await peer.tools() == {"list_users": PLAIN}
        assert (await peer.ask("tools/describe", name="list_users"))["result"] == PLAIN
    async with delta(adorned(), progressive=True) as peer:
        assert await peer.tools() == {"list_users": {"name": "list_users", "description": "List users."}}
        assert (await peer.ask("tools/describe", name="list_users"))["result"] == PLAIN
        [entry] = (await peer.ask("tools/manifest"))["result"]["entries"]
        assert entry["size"] == len(compact_json(PLAIN))
    async with era_client(adorned()) as peer:
        tools = await peer.tools()
        assert list(tools) == ["list_users", "continue"], "other clients read a handle in the note"
        assert "since" in tools["list_users"]["inputSchema"]["properties"]


async def test_the_originals_six_tools_cost_what_they_cost_there(shared):
    """Its benchmark counts the definitions of the listed tools: 943 in full and 118 as summaries, by its estimate."""
    listed = json.loads((shared / "fixtures" / "delta-mcp" / "demo-tools.json").read_text())["tools"]
    server = DeltaServer("demo", results=POLICY)
    for tool in listed:
        server.tool(name=tool["name"], description=tool["description"], input_schema=tool["inputSchema"])(
            lambda arguments: []
        )
    async with delta(server, progressive=True) as peer:
        summaries = list((await peer.tools()).values())
        tools = [(await peer.ask("tools/describe", name=tool["name"]))["result"] for tool in summaries]
    assert tools == listed
    assert [-(-len(compact_json({"tools": each})) // 4) for each in (tools, summaries)] == [943, 118]


@pytest.mark.parametrize("prefix", ["", "crm"])
async def test_continue_serves_programs_though_it_is_not_listed(prefix):
    async with delta(adorned(prefix), progressive=True) as peer:
        result = await peer.result_of("list_users")
        told = result_meta(result)
        assert told["tool"] == (f"{prefix}_continue" if prefix else "continue")
        assert "continue" not in first_text(result)
        assert is_same(await ProgramReader(peer, told["handle"], 2000, told["tool"]).value(), USERS)
    async with connect(adorned(prefix), speak="delta-mcp") as client:
        assert await client.call("list_users") == USERS
