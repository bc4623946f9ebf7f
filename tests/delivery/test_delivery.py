"""Results that fit a budget, and clients that read them to the end: a program by `_meta`, a model by the notes."""

import copy
import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from deltamcp import (
    Audio,
    BlobResource,
    DeltaServer,
    EmbeddedResource,
    Image,
    ResourceLink,
    ResultPolicy,
    Text,
    TextResource,
    ToolResult,
)
from deltamcp.results.encode import decode, encode
from tests.support.equality import is_same
from tests.support.era_client import RESULT_KEY, era_client, first_text, result_meta, texts, token_cost
from tests.support.properties import examples
from tests.support.result_readers import ModelReader, ProgramReader
from tests.support.sample_values import LINES, USERS
from tests.support.strategies import any_json

BUDGETS = [50, 60, 100, 200, 500, 2000]


# Values of every sort


def nested(depth: int) -> Any:
    value: Any = 1
    for level in range(depth):
        value = {"a": value} if level % 3 else [value, level]
    return value


VALUES: dict[str, Any] = {
    "rows": USERS[:60],
    "in data": {"data": USERS[:40], "total": 40},
    "in items": {"total": 40, "items": USERS[:40], "next": None},
    "in results": {"results": USERS[:40]},
    "lines": LINES,
    "one line": "word " * 900,
    "no spaces": "xyz" * 900,
    "emoji": "👩‍👩‍👧‍👦🏳️‍🌈" * 60,
    "another script": "日本語のテキスト。" * 120,
    "control characters": '\x00\x01\x1b[0m\r\n\t\\"' * 150,
    "lines of nothing": "\n" * 1500,
    "text like a table": "#a,b\n1,2\n" * 200,
    "text like JSON": json.dumps([1, 2, {"a": "b"}] * 150),
    "text in brackets": "[1-2 of 3 rows; the last]\n" * 100,
    "numbers": list(range(900)),
    "words": [f"word {number}" for number in range(300)],
    "keys": {f"key{number}": number for number in range(300)},
    "long values": {f"key{number}": f"value {number} " * 40 for number in range(12)},
    "one long value": {"id": 1, "body": "word " * 900},
    "long rows": [{"id": number, "body": f"w{number} " * 150} for number in range(5)],
    "one long row": [{"id": 1}, {"id": 2, "body": "x y z " * 400, "tail": 2}, {"id": 3}],
    "lists in lists": [[row, [row, [row]]] for row in range(150)],
    "deep": nested(60),
    "odd keys": {key: f"{key} text " * 60 for key in ("", "a/b", "~t", "a.b", "raw:", "0", "-", "c d", '"', "é")},
    "long keys": {"k" * 300 + str(number): "text " * 50 for number in range(4)},
    "long path": {"outer key of some length " * 8: {"inner key " * 12: "word " * 500}},
    "mixed": [None, True, 1, 1.0, -0.0, 1e300, "", [], {}, "text " * 100, {"a": [None] * 100}] * 6,
    "big numbers": [2**60 + number for number in range(200)],
    "rows of rows": [{"id": n, "tags": ["a", "b"], "owner": {"name": f"n{n}", "age": n}} for n in range(60)],
    "uneven rows": [{"id": n, **({"x": n} if n % 2 else {"y": [n]})} for n in range(120)],
}
LIKE_MARKS: dict[str, Any] = {
    "values like marks": ["… +7", "a… +12 chars", {"…": "+2 keys"}] * 80,
    "rows like marks": [{"id": n, "…": "+1 key", "t": "x… +3 chars"} for n in range(60)],
}


def value_server(**policy: Any) -> DeltaServer:
    server = DeltaServer("shop", results=ResultPolicy(**policy))

    @server.tool
    async def get(kind: str) -> Any:
        return copy.deepcopy((VALUES | LIKE_MARKS)[kind])

    @server.tool(output_schema={"type": "object"})
    async def typed(kind: str) -> Any:
        return copy.deepcopy(VALUES[kind])

    return server


# The budget


@pytest.mark.diagonal("budget", "era")
@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize("kind", VALUES | LIKE_MARKS)
async def test_a_reply_keeps_to_its_budget(kind, budget, era):
    async with era_client(value_server(max_tokens=budget), era) as peer:
        result = await peer.result_of("get", kind=kind)
        assert token_cost(result) <= budget
        whole = (VALUES | LIKE_MARKS)[kind]
        if "handle" in result_meta(result):
            assert len(texts(result)) >= 2
        else:
            text = first_text(result)
            assert text == whole if isinstance(whole, str) else is_same(decode(text), whole)


@pytest.mark.parametrize("budget", [200, 500])
@pytest.mark.parametrize("kind", VALUES)
async def test_a_link_counts_towards_the_budget(kind, budget):
    async with era_client(value_server(max_tokens=budget, links=True)) as peer:
        result = await peer.result_of("get", kind=kind)
        links = [block for block in result["content"] if block["type"] == "resource_link"]
        assert token_cost(result) <= budget and len(links) == ("handle" in result_meta(result))


@pytest.mark.diagonal("budget", "era")
@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize("kind", [kind for kind, value in VALUES.items() if isinstance(value, dict)])
async def test_text_and_structured_content_share_the_budget(kind, budget, era):
    async with era_client(value_server(max_tokens=budget), era) as peer:
        result = await peer.use("typed", kind=kind)
        assert token_cost(result) <= budget
        assert result.get("isError") or isinstance(result["structuredContent"], dict)


@pytest.mark.parametrize("kind", VALUES)
async def test_what_fits_comes_whole_with_no_note_but_the_legend_of_a_table(kind, era):
    whole = VALUES[kind]
    async with era_client(value_server(max_tokens=100_000), era) as peer:
        result = await peer.result_of("get", kind=kind)
        text, *notes = texts(result)
        assert len(result["content"]) == 1 and "handle" not in result_meta(result)
        assert all(note.startswith("[Table: ") for note in notes)
        assert text == whole if isinstance(whole, str) else is_same(decode(text), whole)


BLOCKS: dict[str, Callable[[], Any]] = {
    "an image and texts": lambda: [Image(b"\x89PNG" * 900, "image/png"), Text("hello " * 900), Text("second " * 900)],
    "plain texts and an image": lambda: ["hello " * 900, Image(b"\x89PNG" * 900, "image/png"), {"second": 1}],
    "texts and an image": lambda: [Text("hello " * 900), Image(b"\x89PNG" * 900, "image/png")],
    "a sound": lambda: [Audio(b"RIFF" * 900, "audio/wav"), Text("hello\n" * 900)],
    "many texts": lambda: [Text(f"text {number} ") for number in range(500)],
    "an embedded text": lambda: [EmbeddedResource(TextResource("x://a", "line\n" * 900, "text/plain"))],
    "embedded texts": lambda: [EmbeddedResource(TextResource(f"x://{n}", "line\n" * 90)) for n in range(10)],
    "embedded bytes": lambda: [EmbeddedResource(BlobResource("x://a", b"b" * 3000)), Text("word " * 900)],
    "links": lambda: [ResourceLink(f"x://{number}/a/long/path", f"n{number}") for number in range(200)],
    "by hand": lambda: ToolResult([Text("hello world\n" * 900)], meta={"mine": 1}),
    "by hand, two": lambda: ToolResult([Text("hello world\n" * 900), Text("more " * 900)]),
    "by hand with structure": lambda: ToolResult([Text("hello world\n" * 900)], structured={"a": ["x y"] * 400}),
    "by hand, structure only": lambda: ToolResult([], structured={"a": ["x y"] * 400}),
    "JSON of others": lambda: ToolResult([Text(json.dumps({"total": 60, "items": USERS[:60]}, indent=2))]),
    "rows of others": lambda: ToolResult([Text(json.dumps(USERS[:60]))]),
}


def block_server(kind: str, **policy: Any) -> DeltaServer:
    server = DeltaServer("shop", results=ResultPolicy(**policy))
    server.tool(name="make")(BLOCKS[kind])
    return server


@pytest.mark.diagonal("budget", "era")
@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize("kind", BLOCKS)
async def test_blocks_keep_to_the_budget_and_are_kept_whole(kind, budget, era):
    server = block_server(kind, max_tokens=budget)
    whole = block_server(kind, max_tokens=1_000_000)
    async with era_client(whole, era) as peer:
        intact = await peer.result_of("make")
    async with era_client(server, era) as peer:
        result = await peer.use("make")
        assert token_cost(result) <= budget
        media = [block for block in intact["content"] if block["type"] in ("image", "audio")]
        assert [block for block in result["content"] if block["type"] in ("image", "audio")] == media
        of_others = "of others" in kind
        kept: Any = decode(first_text(intact)) if of_others else {"content": intact["content"]}
        if kind == "by hand, structure only":
            kept = intact["structuredContent"]
        elif "structuredContent" in intact:
            kept["structuredContent"] = intact["structuredContent"]
        if "handle" not in result_meta(result):
            shown = {key: result[key] for key in ("content", "structuredContent") if key in result}
            assert (decode(first_text(result)) if of_others else shown) == kept
            return
        read = await ProgramReader(peer, result_meta(result)["handle"], budget).value()
        if isinstance(read, str):  # one text by itself
            read = {"content": [{"type": "text", "text": read}]}
        assert read == kept


@pytest.mark.parametrize("kind", [kind for kind in BLOCKS if kind.startswith("by hand")])
async def test_a_cut_is_not_taken_for_a_failure(kind, era):
    """Without an output schema nothing is promised that cutting could break."""
    async with era_client(block_server(kind, max_tokens=200), era) as peer:
        result = await peer.use("make")
    assert not result.get("isError"), result


async def test_an_authors_own_meta_stays(era):
    async with era_client(block_server("by hand", max_tokens=200), era) as peer:
        assert (await peer.use("make"))["_meta"]["mine"] == 1


# The largest part


@pytest.mark.parametrize("budget", [200, 500, 2000])
@pytest.mark.parametrize("tables", [True, False])
async def test_no_further_row_would_have_fitted(budget, tables):
    server = DeltaServer("shop", results=ResultPolicy(max_tokens=budget, tables=tables))
    server.tool(name="rows")(lambda: USERS)
    async with era_client(server) as peer:
        result = await peer.result_of("rows")
        shown = result_meta(result)["end"]
        assert is_same(decode(first_text(result)), USERS[:shown])
        longer = encode(USERS[: shown + 1], tables=tables).text
        result["content"][0]["text"] = "\n".join([longer, *texts(result)[1:]])
        assert token_cost(result) > budget


@pytest.mark.parametrize("budget", [100, 200, 500, 2000])
@pytest.mark.parametrize("tail", [0.0, None])
async def test_no_further_line_would_have_fitted(budget, tail):
    lines = [f"{number}: the quick brown fox jumps over the lazy dog\n" for number in range(1000)]
    server = DeltaServer("shop", results=ResultPolicy(max_tokens=budget, tail=tail))
    server.tool(name="log")(lambda: "".join(lines))
    async with era_client(server) as peer:
        result = await peer.result_of("log")
        head = first_text(result)
        shown = head.count("\n")
        assert head == "".join(lines[:shown]), "a text of lines is cut between two"
        assert (len(texts(result)) == 3) == (tail is None)
        result["content"][0]["text"] = "\n".join(["".join(lines[: shown + 1]), *texts(result)[1:]])
        assert token_cost(result) > budget


async def test_the_end_of_a_text_is_shown_too(era):
    async with era_client(value_server(max_tokens=300, tail=0.5), era) as peer:
        head, note, tail = texts(await peer.result_of("get", kind="lines"))
        assert LINES.startswith(head) and LINES.endswith(tail) and head.endswith("\n") and tail.startswith("Line ")
        assert f"{len(LINES) - len(head) - len(tail)} of {len(LINES)} characters" in note


TEXTS = {
    "sentences": "One sentence stands here. Another one follows it! Does a third? " * 100,
    "headings": "".join(
        f"# Heading {n}\n\n" + "A paragraph of some words without any end " * 6 + "\n" for n in range(50)
    ),
}


@pytest.mark.parametrize(("kind", "edge"), [("sentences", r"[.!?]\s*$"), ("headings", r"\n$")])
async def test_texts_are_cut_at_edges(kind, edge):
    server = DeltaServer("shop", results=ResultPolicy(max_tokens=300, tail=0.0))
    server.tool(name="text")(lambda: TEXTS[kind])
    async with era_client(server) as peer:
        assert re.search(edge, first_text(await peer.result_of("text")))


# Nothing is lost


@pytest.mark.diagonal("budget", "kind")
@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize("kind", VALUES | LIKE_MARKS)
async def test_a_program_reads_all(kind, budget):
    whole = (VALUES | LIKE_MARKS)[kind]
    async with era_client(value_server(max_tokens=budget)) as peer:
        result = await peer.result_of("get", kind=kind)
        if handle := result_meta(result).get("handle"):
            assert is_same(await ProgramReader(peer, handle, budget).value(), whole)


@pytest.mark.parametrize("budget", [50, 100])
@pytest.mark.parametrize("kind", VALUES | LIKE_MARKS)
async def test_the_characters_of_its_json_can_be_read(kind, budget):
    whole = (VALUES | LIKE_MARKS)[kind]
    async with era_client(value_server(max_tokens=budget)) as peer:
        handle = result_meta(await peer.result_of("get", kind=kind))["handle"]
        shown, offset = "", 0
        while True:
            result = await peer.result_of("continue", handle=handle, path="raw:", offset=offset)
            said = result_meta(result)
            assert token_cost(result) <= budget and said["unit"] == "JSON characters" and said["end"] > offset
            shown, offset = shown + first_text(result), said["end"]
            if offset == said["total"]:
                break
        assert is_same(json.loads(shown), whole) and len(shown) == said["total"]


@pytest.mark.diagonal("budget", "kind")
@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize("kind", VALUES)
async def test_a_model_reads_all(kind, budget):
    whole = VALUES[kind]
    async with era_client(value_server(max_tokens=budget), "handshake") as peer:
        result = await peer.result_of("get", kind=kind)
        if "handle" in result_meta(result):
            model = ModelReader(peer, budget)
            model.rows_at = f"/{kind.removeprefix('in ')}" if kind.startswith("in ") else ""
            assert is_same(await model.whole(result), whole)


@pytest.mark.parametrize("kind", VALUES)
async def test_pages_by_number_make_up_the_rows_or_the_text(kind):
    whole = VALUES[kind]
    rows = whole[kind.removeprefix("in ")] if kind.startswith("in ") else whole
    async with era_client(value_server(max_tokens=300)) as peer:
        result = await peer.result_of("get", kind=kind)
        if "handle" not in result_meta(result):
            return
        handle, shown, page, end = result_meta(result)["handle"], [], 1, 0
        while True:
            result = await peer.result_of("continue", handle=handle, page=page)
            said = result_meta(result)
            assert said["start"] == end and token_cost(result) <= 300
            end, page = said["end"], page + 1
            shown.append(first_text(result))
            if end == said["total"]:
                break
        if isinstance(rows, str):
            assert "".join(shown) == rows
        else:
            assert said["total"] == len(rows)
        refusal = await peer.refusal_of("continue", handle=handle, page=page)
        assert f"1 to {page - 1}" in refusal


@settings(max_examples=examples(150), suppress_health_check=list(HealthCheck))
@given(value=any_json | st.lists(any_json, min_size=3), budget=st.sampled_from([50, 60, 100]))
async def test_any_value_can_be_read_whole_within_any_budget(value, budget):
    server = DeltaServer("shop", results=ResultPolicy(max_tokens=budget))

    @server.tool
    async def get() -> Any:
        return value

    async with era_client(server) as peer:
        result = await peer.result_of("get")
        assert token_cost(result) <= budget
        if handle := result_meta(result).get("handle"):
            assert is_same(await ProgramReader(peer, handle, budget).value(), value)


# What a request wishes


async def test_a_request_may_ask_for_less_or_more(era):
    async with era_client(value_server(max_tokens=500), era) as peer:
        less = await peer.result_of("get", {"maxTokens": 100}, kind="rows")
        assert token_cost(less) <= 100
        more = await peer.result_of("get", {"maxTokens": 100_000}, kind="rows")
        assert is_same(decode(first_text(more)), VALUES["rows"]) and "handle" not in result_meta(more)


async def test_a_request_may_do_without_tables_and_name_its_fields(era):
    async with era_client(value_server(max_tokens=500), era) as peer:
        result = await peer.result_of("get", {"tables": False}, kind="rows")
        assert is_same(json.loads(first_text(result)), VALUES["rows"][: result_meta(result)["end"]])
        result = await peer.result_of("get", {"fields": ["id", "score"], "tables": False}, kind="rows")
        shown = json.loads(first_text(result))
        assert shown == [{"id": row["id"], "score": row["score"]} for row in VALUES["rows"][: len(shown)]]


@pytest.mark.parametrize("wish", [{"maxTokens": 49}, {"maxTokens": "many"}, {"bogus": 1}, [], 7])
async def test_a_wish_that_cannot_be_meant_is_refused(wish, era):
    async with era_client(value_server(max_tokens=500), era) as peer:
        answer = await peer.ask("tools/call", {RESULT_KEY: wish}, name="get", arguments={"kind": "rows"})
        assert "error" in answer or answer["result"].get("isError")
