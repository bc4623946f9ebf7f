"""Queries on results: what they select, and what a reply has in place of what they do not."""

import json
import re
from collections import Counter, defaultdict
from typing import Any

import jmespath
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltamcp import DeltaServer, Image, ResultPolicy, Text
from deltamcp.errors import UsageError
from deltamcp.results.encode import decode
from deltamcp.results.queries import expression
from deltamcp.results.queries.query import Query, run_query
from deltamcp.results.value_shape import shape_of, shape_text
from deltamcp.tokens import count
from deltamcp.wire import jsonrpc
from deltamcp.work import unlimited_work
from tests.support.era_client import ERAS, era_client, first_text, result_meta, texts

ROWS = [{"id": n, "state": ["open", "closed"][n % 3 == 0], "size": n * 10, "name": f"item {n}"} for n in range(127)]
LOG = "\n".join(f"2026-01-01 {['INFO', 'WARNING'][n % 5 == 0]} message {n}" for n in range(2_000))
PACKAGE = {
    "info": {"name": "x"},
    "releases": {
        f"0.{n}.1": [{"file": f"x-0.{n}.1.whl", "size": n * 100}, {"file": "s", "size": 1}] for n in range(60)
    },
}


def select(value: Any, **query: Any) -> Any:
    data = value if isinstance(value, str) else jsonrpc.encode(value)
    found = run_query(data, Query(**query), None, 20_000, unlimited_work())
    return found.data if found.is_miss or isinstance(found.data, str) else json.loads(found.data)


# Functions

NUMBERED = st.lists(st.fixed_dictionaries({"k": st.sampled_from("abc"), "n": st.integers(-9, 9) | st.none()}))


@given(NUMBERED)
def test_functions_beyond_jmespath_are_those_of_a_plain_model(rows: list[dict[str, Any]]) -> None:
    def search(text: str) -> Any:
        return expression.search(text, rows, unlimited_work())

    groups: defaultdict[str, list[Any]] = defaultdict(list)
    for row in rows:
        groups[row["k"]].append(row)
    assert search("count_by(@, &k)") == Counter(row["k"] for row in rows)
    assert search("group_by(@, &k)") == groups
    assert search("sum_by(@, &n)") == sum(row["n"] or 0 for row in rows)
    assert search("sum_by(@, &k, &n)") == {key: sum(row["n"] or 0 for row in part) for key, part in groups.items()}
    assert list(search("count_by(@, &k)").values()) == sorted(search("count_by(@, &k)").values(), reverse=True)
    assert search("unique([].k)") == list(dict.fromkeys(row["k"] for row in rows))
    assert search("rows(group_by(@, &k))") == [{"key": key, **row} for key, part in groups.items() for row in part]


@pytest.mark.parametrize(
    "text", ["max_by(@,&size).name", "[?state=='closed'].id | length(@)", "[:3].{a:id,b:name}", "sum([].size)"]
)
def test_jmespaths_own_functions_are_the_librarys(text: str) -> None:
    assert select(ROWS, fields=text) == jmespath.search(text, ROWS)


def test_an_unknown_function_is_named_with_those_there_are() -> None:
    with pytest.raises(UsageError, match=r"no function count\(\).*count_by.*rows"):
        expression.search("count(@)", ROWS, unlimited_work())


# Roots


@pytest.mark.parametrize("query", ["max_by(@,&size).id", "[?state=='closed'] | length(@)"])
def test_an_expression_that_misses_the_root_is_evaluated_on_the_rows(query: str) -> None:
    assert select({"total": 127, "items": ROWS}, fields=query) == select(ROWS, fields=query)


def test_dynamic_keys_are_reached_as_rows() -> None:
    assert select(PACKAGE, fields="max_by(rows(releases),&size).key") == "0.59.1"


# Text


def test_expressions_on_text_work_on_its_lines() -> None:
    assert select(LOG, fields="length(@)") == 2_000
    assert select(LOG, fields="length(@)", grep=" (WARNING|ERROR) ") == 400


def test_the_number_of_matches_comes_first() -> None:
    assert select(LOG, grep="WARNING message 1..$").startswith("20 of 2000 lines match:\n101:2026-01-01 WARNING")


def test_a_text_inside_a_value_is_searched_line_by_line() -> None:
    assert select({"path": "a.log", "content": LOG}, grep="message 7$") == (
        "1 of 2000 lines of /content match:\n8:2026-01-01 INFO message 7"
    )


def test_members_beside_a_text_that_match_are_named() -> None:
    data = jsonrpc.encode({"a.log": LOG, "b.log": "message 7", "c": {"d": "message 8"}, "e": "none"})
    found = run_query(data, Query(grep="message"), None, 20_000, unlimited_work())
    assert isinstance(found.data, str) and found.data.startswith("2000 of 2000 lines of /a.log match:")
    assert found.sentence == "/b.log, /c match, too."


@pytest.mark.parametrize(
    ("pattern", "shown"),
    [
        ("-C1 message 7$", "7-2026-01-01 INFO message 6\n8:2026-01-01 INFO message 7\n9-2026-01-01 INFO message 8"),
        ("-A 1 message 7$", "7-2026-01-01 INFO message 6\n8:2026-01-01 INFO message 7\n9-2026-01-01 INFO message 8"),
        ("-i MESSAGE 7$", "8:2026-01-01 INFO message 7"),
        ("-i -B0 MESSAGE 7$", "8:2026-01-01 INFO message 7"),
    ],
)
def test_options_before_a_pattern_are_those_of_the_command(pattern: str, shown: str) -> None:
    assert select(LOG, grep=pattern) == f"1 of 2000 lines match:\n{shown}"


def test_matches_are_counted_without_showing_them() -> None:
    assert select(LOG, grep="-c WARNING") == "400 of 2000 lines match."
    assert select(LOG, grep="-c -i warning") == "400 of 2000 lines match."
    assert select(ROWS, grep="-c closed") == "43 of 127 rows match."


def test_lines_around_rows_are_not_left_out_in_silence() -> None:
    found = run_query(jsonrpc.encode(ROWS), Query(grep="-C2 item 77"), None, 20_000, unlimited_work())
    assert found.sentence == "1 of 127 rows match. Only lines of a text are shown with those around them."


def test_of_few_matches_the_reply_says_how_to_see_more() -> None:
    hints = [run_query(LOG, Query(grep=each), None, 20_000, unlimited_work()).sentence for each in ("7$", "ge 7$")]
    assert hints == ["", 'grep="-C2 ..." shows lines around.']


# Mistakes

MISTAKES: list[tuple[Any, dict[str, str], str]] = [
    (ROWS, {"fields": "sum([].state)"}, "sum() takes an array of numbers, not string."),
    (ROWS, {"fields": "bogus"}, "No field 'bogus'"),
    (ROWS, {"fields": "[?state=='none']"}, "selects nothing"),
    (ROWS, {"grep": "nowhere"}, "Nothing matches in 127 rows; grep is read as a regular expression"),
    (LOG, {"grep": "warning"}, "With (?i) before it, 400 match"),
    (LOG, {"grep": "(WARNING\\|ERROR)"}, "| without a backslash separates alternatives"),
    (LOG, {"fields": "id,name"}, "The result is text"),
    (PACKAGE, {"fields": "releases[0]"}, "selects nothing"),
    ({"content": LOG, "n": 1}, {"grep": "nowhere"}, "Nothing matches in 2000 lines of /content"),
]


def counting_server(value: Any) -> tuple[DeltaServer, list[str]]:
    server, ran = DeltaServer("x", disclosure="meta"), []

    @server.tool
    def get() -> Any:
        ran.append("get")
        return value

    return server, ran


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize(("value", "query", "sentence"), MISTAKES)
async def test_a_mistake_costs_a_shape_and_runs_nothing_again(value, query, sentence, era):
    server, ran = counting_server(value)
    async with era_client(server, era) as peer:
        reply = await peer.result_of("execute", operation="get", **query)
        assert sentence in texts(reply)[1] and count("\n".join(texts(reply))) <= 220
        handle = result_meta(reply)["handle"]
        assert texts(reply)[1].startswith(f"[{handle}: ") and count(first_text(reply)) <= 150
        whole = await peer.result_of("continue", handle=handle)
        assert len(first_text(whole)) > 500 and ran == ["get"]


async def test_a_query_that_cannot_be_read_is_refused_before_the_call():
    server, ran = counting_server(ROWS)
    async with era_client(server) as peer:
        for query in ({"fields": "items[?"}, {"grep": "("}, {"grep": 7}, {"fields": {"a": 1}}):
            assert next(iter(query)) in await peer.refusal_of("execute", operation="get", **query)
        assert not ran


async def test_a_query_is_asked_of_the_texts_of_several_blocks():
    server = DeltaServer("x", disclosure="meta")
    server.tool(name="get")(lambda: [Text(LOG), Image(b"\x89PNG", "image/png"), Text("one WARNING more")])
    async with era_client(server) as peer:
        reply = await peer.result_of("execute", operation="get", grep="WARNING")
        assert first_text(reply).startswith("401 of 2001 lines match") and reply["content"][-1]["type"] == "image"


async def test_a_query_of_what_has_nothing_to_select_from_is_told():
    server = DeltaServer("x", disclosure="meta")
    server.tool(name="picture")(lambda: Image(b"\x89PNG", "image/png"))
    server.tool(name="number")(lambda: 7)
    async with era_client(server) as peer:
        for name in ("fields", "grep"):
            reply = await peer.result_of("execute", operation="picture", **{name: "a"})  # type: ignore[arg-type]
            assert reply["content"][0]["type"] == "image" and "has no text or value that fields" in texts(reply)[-1]
        value, note = texts(await peer.result_of("execute", operation="number", fields="a"))
        assert value == "7" and "a single value, which has no fields" in note


async def test_an_operations_own_parameters_stay_its_own():
    server, got = DeltaServer("x", disclosure="meta"), []

    @server.tool
    def search(grep: str, fields: list[str]) -> str:
        got.append((grep, fields))
        return LOG

    async with era_client(server) as peer:
        await peer.result_of("execute", operation="search", params={"grep": "(", "fields": ["a"]})
        assert got == [("(", ["a"])]


# Shape first


async def preview_server(value: Any, **policy: Any) -> DeltaServer:
    server = DeltaServer("x", disclosure="meta", results=ResultPolicy(preview_above=300, **policy))
    server.tool(name="get")(lambda: value)
    return server


TWISTED: list[dict[str, Any]] = [
    {"id": n, "words": f"{n * 7919} words that nobody has {n * 104729}"} for n in range(300)
]


@pytest.mark.parametrize("value", [TWISTED, {"total": 300, "items": TWISTED}, LOG])
async def test_a_large_result_is_shown_by_its_shape_and_its_beginning(value):
    async with era_client(await preview_server(value)) as peer:
        reply = await peer.result_of("execute", operation="get")
        shown = "\n".join(texts(reply))
        assert count(shown) <= 500
        assert ("Shape: " in shown and "300 x {id:int, words}" in shown) or "2000 lines" in shown
        rest = await peer.result_of("continue", handle=result_meta(reply)["handle"])
        assert count(first_text(rest)) > 1_000


async def test_what_is_asked_for_explicitly_is_no_preview():
    async with era_client(await preview_server(TWISTED)) as peer:
        whole = await peer.use("execute", {"maxTokens": 20_000}, operation="get")
        assert decode(first_text(whole)) == TWISTED
    async with era_client(await preview_server(TWISTED, max_tokens=20_000)) as peer:
        reply = await peer.result_of("execute", operation="get")
        assert "Shape: " in texts(reply)[1]  # both are set in one policy
    own = await preview_server([1])
    own.tool(name="own", results=ResultPolicy(max_tokens=20_000))(lambda: TWISTED)
    async with era_client(own) as peer:
        assert decode(first_text(await peer.result_of("execute", operation="own"))) == TWISTED


@pytest.mark.parametrize(
    ("value", "query"),
    [
        (TWISTED, {"fields": "[]"}),
        (TWISTED, {"fields": "id,words"}),
        (TWISTED, {"grep": "words"}),
        (LOG[:20_000], {"grep": "."}),
    ],
)
async def test_a_query_that_selects_nearly_all_costs_no_more_than_a_preview(value, query):
    async with era_client(await preview_server(value)) as peer:
        first = await peer.result_of("execute", operation="get", **query)
        assert count("\n".join(texts(first))) <= 460
        handle, place = result_meta(first)["handle"], result_meta(first)
        assert (place["start"], place["total"] > place["end"] > 0) == (0, True)
        rest = await peer.result_of("continue", handle=handle)
        assert result_meta(rest)["start"] == place["end"] and result_meta(rest)["end"] == place["total"]
        asked = await peer.result_of("continue", handle=handle, **query)
        assert count("\n".join(texts(asked))) <= 460
        end = result_meta(asked)["end"]
        rest = await peer.result_of("continue", handle=handle, offset=end, **query)
        assert (result_meta(rest)["start"], result_meta(rest)["end"]) == (end, result_meta(asked)["total"])


async def test_a_query_that_selects_little_is_answered_whole():
    async with era_client(await preview_server(TWISTED)) as peer:
        asked = await peer.result_of("execute", operation="get", fields="[:90].id")
        assert json.loads(first_text(asked)) == list(range(90))
        handle = result_meta(asked)["handle"]
        again = await peer.result_of("continue", handle=handle, fields="[:90].id")
        assert json.loads(first_text(again)) == list(range(90))


# References


async def test_a_reference_passes_on_what_an_expression_selects():
    server, got = DeltaServer("x", disclosure="meta", results=ResultPolicy(max_tokens=300)), []
    server.tool(name="get")(lambda: TWISTED)

    @server.tool
    def write(text: str, names: list[int]) -> str:
        got.append((text, names))
        return "done"

    async with era_client(server) as peer:
        handle = result_meta(await peer.result_of("execute", operation="get"))["handle"]
        await peer.result_of(
            "execute",
            operation="write",
            params={
                "text": {"$result": handle, "fields": "[:2].words"},
                "names": {"$result": handle, "fields": "[?id<`3`].id"},
            },
        )
        assert got == [("\n".join(row["words"] for row in TWISTED[:2]), [0, 1, 2])]
        refused = await peer.refusal_of(
            "execute", operation="write", params={"text": {"$result": handle, "fields": "nothing"}, "names": []}
        )
        assert "No field 'nothing'" in refused


async def test_a_list_of_texts_is_lines_wherever_only_a_text_is_taken():
    server, got = DeltaServer("x", disclosure="meta", results=ResultPolicy(max_tokens=300)), []
    server.tool(name="get")(lambda: TWISTED)

    @server.tool
    def write(maybe: str | None = None, either: str | list[str] = "", tags: list[str] | None = None) -> str:
        got.append((maybe, either, tags))
        return "done"

    async with era_client(server) as peer:
        handle = result_meta(await peer.result_of("execute", operation="get"))["handle"]
        words = {"$result": handle, "fields": "[:2].words"}
        await peer.result_of("execute", operation="write", params={"maybe": words, "either": words, "tags": words})
    listed = [row["words"] for row in TWISTED[:2]]
    assert got == [("\n".join(listed), listed, listed)]


# Shapes

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=8) | st.dictionaries(st.text(max_size=60), inner, max_size=8),
    max_leaves=60,
)


@given(VALUES, st.integers(5, 150))
def test_a_shape_keeps_to_its_tokens_and_has_no_values(value: Any, max_tokens: int) -> None:
    text = shape_text(shape_of(value, unlimited_work()), max_tokens)
    assert count(text) <= max_tokens


def test_of_many_parts_the_largest_is_opened_where_not_all_fit() -> None:
    names = ("name", "county", "started", "acres", "contained", "updated", "kind", "status", "cause", "link")
    rows = [dict.fromkeys(names, "x")] * 37
    others = {name: {"by": {"day": 1}, "sum": 2} for name in ("totals", "counties", "notes", "causes", "maps", "links")}
    text = shape_text(shape_of({"recent": rows[:5], "all": rows, **others}, unlimited_work()), 60)
    assert f"recent:5 x {{…}}, all:37 x {{{', '.join(names)}}}, totals:{{…}}" in text


def test_keys_that_are_data_are_written_as_a_star() -> None:
    text = shape_text(shape_of(PACKAGE, unlimited_work()), 150)
    assert text == "{info:{name}, releases:60 x *:2 x {file, size:int}}"
    assert not re.search(r"0\.\d", text)
