"""Replies to a caller that has an earlier result: "unchanged", a delta, or the whole result.

Written from the promise, not from our source: a client keeps what it was sent, by root, and must always be able to make
the server's value from that and the reply.
"""

import asyncio
import copy
from typing import Any

import pytest
from pydantic import BaseModel

from deltamcp import DeltaServer, ResultPolicy, Text, ToolError, ToolResult
from deltamcp.deltas.delta import apply_delta, make_delta
from deltamcp.deltas.root import root_of
from deltamcp.stores.store import MemoryStore, StoreError
from deltamcp.tokens import count
from tests.support.book_server import books
from tests.support.change_reader import (
    CHANGED,
    HANDLE,
    TERSE,
    UNCHANGED,
    UNCHANGED_AS,
    UNCHANGED_TOKENS,
    change_reader,
    http_change_readers,
    read_by_handle,
)
from tests.support.changing_server import (
    DELTAS,
    LOG_LINES,
    STATES,
    ChangingValue,
    changing_server,
    shop_items,
    timed_items,
    with_value_at,
)
from tests.support.equality import is_same
from tests.support.era_client import Result, era_client, first_text, result_meta, texts, token_cost
from tests.support.raw_client import META
from tests.support.result_readers import ProgramReader

# The three outcomes


@pytest.mark.parametrize("name", STATES)
async def test_full_then_unchanged_then_a_delta_then_unchanged(name, era):
    before, after, unit = STATES[name]
    server, current = changing_server(before)
    async with change_reader(server, era) as reader:
        one = await reader.get()
        assert one.outcome == "full" and is_same(one.value, before) and one.root == root_of(before)
        two = await reader.get()
        assert two.outcome == "unchanged" and is_same(two.value, before)
        assert f"same {unit}" in two.text
        current.value = after
        three = await reader.get()
        assert three.outcome == "delta" and is_same(three.value, after) and three.root == root_of(after)
        assert result_meta(three.result)["base"] == one.root
        four = await reader.get()
        assert four.outcome == "unchanged" and is_same(four.value, after) and four.root == three.root
        assert current.calls == 4, "it is executed every time"


async def test_the_words_of_a_delta_are_those_promised():
    server, current = changing_server(shop_items())
    async with change_reader(server) as reader:
        one = await reader.get()
        current.value = STATES["rows"][1]
        two = await reader.get()
        assert two.text.startswith(f"Changed; full: continue {two.handle}\n")
        three = await reader.get(one.digits)
        assert three.text.startswith(f"Changed since {one.digits}, now {three.digits}:\n")


@pytest.mark.parametrize("name", STATES)
async def test_the_handle_that_a_text_names_gives_the_full_current_result(name, era):
    before, after, _ = STATES[name]
    server, current = changing_server(before)
    async with change_reader(server, era) as reader:
        one = await reader.get()
        assert is_same(await read_by_handle(reader.peer, one.handle), before)
        named = UNCHANGED.fullmatch((await reader.get()).text)
        assert named and is_same(await read_by_handle(reader.peer, named[3]), before)
        current.value = after
        got = await reader.get()
        changes = CHANGED.fullmatch(got.text.partition("\n")[0])
        assert changes and changes[1] == got.handle
        assert is_same(await read_by_handle(reader.peer, changes[1]), after)
        named = UNCHANGED.fullmatch((await reader.get()).text)
        assert named and is_same(await read_by_handle(reader.peer, named[3]), after)
        assert is_same(await read_by_handle(reader.peer, (await reader.get(got.digits)).handle), after)


@pytest.mark.parametrize("way", ["argument", "meta"])
@pytest.mark.parametrize("name", STATES)
async def test_a_caller_that_sends_its_root_gets_the_outcomes_by_root(name, way, era):
    before, after, _ = STATES[name]
    server, current = changing_server(before)
    async with change_reader(server, era) as reader:
        ask = reader.get if way == "argument" else reader.by_meta
        one = await ask("")
        assert one.outcome == "full" and is_same(one.value, before)
        shown = HANDLE.search(texts(one.result)[-1])
        assert shown and shown[1] == one.handle
        two = await ask(one.digits)
        assert two.outcome == "unchanged"
        current.value = after
        three = await ask(one.digits)
        assert three.outcome == "delta" and is_same(three.value, after)
        four = await ask(three.digits)
        assert four.outcome == "unchanged" and is_same(four.value, after)
        back = await ask(one.digits)
        assert back.outcome == "delta" and is_same(back.value, after), "the base is the one that was named"


async def test_a_root_in_the_request_asks_for_it_of_a_tool_without_deltas(era):
    server, current = changing_server(shop_items(), policy=None, conversation=None)
    async with change_reader(server, era) as reader:
        plain = await reader.peer.result_of("get")
        assert "outcome" not in result_meta(plain)
        one = await reader.by_meta("")
        assert one.outcome == "full" and HANDLE.search(texts(one.result)[-1])
        assert (await reader.by_meta(one.digits)).outcome == "unchanged"
        current.value = STATES["rows"][1]
        got = await reader.by_meta(one.root)
        assert got.outcome == "delta" and is_same(got.value, current.value)
        assert "outcome" not in result_meta(await reader.peer.result_of("get")), "who does not ask is not told changes"
        assert "since" not in (await reader.peer.tools())["get"]["inputSchema"].get("properties", {})


async def test_a_tool_may_refuse_to_tell_changes(era):
    server, _ = changing_server(shop_items(), policy=ResultPolicy(deltas=False), results=DELTAS)
    async with change_reader(server, era) as reader:
        expected = first_text(await reader.peer.result_of("get"))
        for wish in (None, {"pack_root": ""}, {"pack_root": root_of(shop_items())}):
            result = await reader.peer.result_of("get", wish)
            assert result_meta(result).get("outcome", "full") == "full" and first_text(result) == expected
        assert "since" not in (await reader.peer.tools())["get"]["inputSchema"].get("properties", {})


async def test_a_server_says_it_for_all_its_tools(era):
    server, current = changing_server(shop_items(), policy=None, results=DELTAS)
    async with change_reader(server, era) as reader:
        assert [(await reader.get()).outcome for _ in range(3)] == ["full", "unchanged", "unchanged"]
        current.value = STATES["rows"][1]
        assert (await reader.get()).outcome == "delta"


async def test_a_full_result_reads_as_without_deltas(era):
    server, _ = changing_server(shop_items())
    async with change_reader(server, era) as reader, change_reader(server, era) as other:
        plain = texts(await other.peer.result_of("plain"))  # in another conversation, as words are said once in each
        assert texts((await reader.get()).result) == plain
        named = texts((await reader.get("")).result)
        assert [HANDLE.sub("[", text).replace("[ ", "[") for text in named] == plain


async def test_a_tool_that_changes_what_it_returned_cannot_change_what_is_remembered(era):
    server = DeltaServer("shop", results=DELTAS, conversation="process")
    value = shop_items()

    @server.tool
    async def get() -> Any:
        return value

    async with change_reader(server, era) as reader:
        one = await reader.get()
        value[3]["stock"] = 77
        two = await reader.get()
        assert two.outcome == "delta" and is_same(two.value, value)
        value.pop(9)
        assert is_same((await reader.get(one.digits)).value, value)
        assert is_same((await reader.get()).value, value)


# Sixteen tokens

LONG_TEXTS = {
    "a million lines": "a\n" * 1_234_567,
    "many rows": [{"n": n} for n in range(98_765)],
    "many fields": {f"k{n}": n for n in range(12_345)},
    "one line": "word " * 2000,
    "one row": [{"text": "word " * 2000}],
    "numbers": list(range(10_000)),
}


@pytest.mark.parametrize("name", LONG_TEXTS)
async def test_unchanged_costs_sixteen_tokens_at_most(name):
    value = LONG_TEXTS[name]
    server, _ = changing_server(value, ResultPolicy(deltas=True, max_tokens=500), limits=None)
    async with change_reader(server) as reader:
        one = await reader.peer.result_of("get")
        root = result_meta(one)["root"]
        for sent in (None, root[7:19], root, root[7:15]):
            result = await reader.peer.result_of("get", **({} if sent is None else {"pack_root": sent}))
            assert result_meta(result)["outcome"] == "unchanged" and token_cost(result) <= UNCHANGED_TOKENS, result
            pattern = (
                TERSE if sent is None and name == "a million lines" else UNCHANGED if sent is None else UNCHANGED_AS
            )
            assert pattern.fullmatch(first_text(result))
            named = result_meta(result)["handle"]
            assert not (await reader.peer.result_of("continue", handle=named)).get("isError")


async def test_unchanged_costs_sixteen_tokens_whatever_the_handle():
    """Roots, and so handles, look different every time; some are dearer than others."""
    server, current = changing_server(None)
    async with change_reader(server) as reader:
        for number in range(150):
            current.value = shop_items(40, run=number)
            await reader.get(query=str(number))
            got = await reader.get(query=str(number))
            assert got.outcome == "unchanged" and count(got.text) <= UNCHANGED_TOKENS, got.text
            by_root = await reader.get(got.digits, query=str(number))
            assert by_root.outcome == "unchanged" and count(by_root.text) <= UNCHANGED_TOKENS, by_root.text


# Worth it, or in full


async def test_a_delta_is_sent_where_it_is_below_three_fifths_of_the_full_form():
    base = shop_items(40)
    outcomes = []
    for changed in range(0, 41, 2):
        server, current = changing_server(base)
        async with change_reader(server) as reader:
            await reader.get()
            current.value = [
                row | {"title": f"now {row['sku']} is called {n}"} if n < changed else row for n, row in enumerate(base)
            ]
            full = token_cost(await reader.peer.result_of("plain"))
            got = await reader.get()
            assert is_same(got.value, current.value)
            outcomes.append(got.outcome)
            if got.outcome == "delta":
                changes = first_text(got.result)[: result_meta(got.result).get("lengths", [None])[0]]
                assert count(changes) < 0.6 * full and token_cost(got.result) < full
            elif changed:
                assert count(make_delta(base, current.value)) + UNCHANGED_TOKENS >= 0.6 * full, (
                    "a delta would have been cheap"
                )
    assert outcomes[0] == "unchanged" and outcomes[1] == "delta" and outcomes[-1] == "full"
    assert outcomes == sorted(outcomes, key=["unchanged", "delta", "full"].index)


async def test_a_delta_keeps_to_the_budget():
    budget = 150
    server, current = changing_server(shop_items(400), ResultPolicy(deltas=True, max_tokens=budget))
    seen = set()
    last: dict[str, Any] = {}
    async with era_client(server) as peer:
        for changed in (0, 0, 1, 3, 10, 40, 120, 0):
            current.value = [
                row | {"title": f"title {n} of {changed}"} if n < changed else row
                for n, row in enumerate(shop_items(400))
            ]
            result = await peer.result_of("get", **last)
            last = {"since": result_meta(result)["handle"]}
            assert token_cost(result) <= budget
            seen.add(result_meta(result)["outcome"])
            assert is_same(await ProgramReader(peer, result_meta(result)["handle"], budget).value(), current.value)
    assert seen == {"full", "unchanged", "delta"}


@pytest.mark.parametrize("value", [{"a": 1}, [], {}, "ok", 7, True, "", [1, 2, 3], "two\nlines"])
async def test_what_is_smaller_than_the_sentence_comes_in_full(value, era):
    server, _ = changing_server(value)
    async with change_reader(server, era) as reader:
        expected = await reader.peer.result_of("plain")
        for _ in range(3):
            result = await reader.peer.result_of("get")
            assert result_meta(result).get("outcome", "full") == "full" and texts(result) == texts(expected)


async def test_after_fifteen_deltas_in_a_row_comes_a_full_one(era):
    server, current = changing_server(shop_items())
    async with change_reader(server, era) as reader:
        outcomes = []
        for number in range(36):
            current.value = with_value_at(shop_items(), number % 60, "stock", to=1000 + number)
            got = await reader.get()
            assert is_same(got.value, current.value)
            outcomes.append(got.outcome)
        assert outcomes == (["full"] + ["delta"] * 15) * 2 + ["full"] + ["delta"] * 3


# Volatile members, and keys


VOLATILE = ResultPolicy(deltas=True, volatile=["took_ms", "items.age"])


async def test_volatile_members_alone_are_no_change_and_a_later_delta_applies_to_what_was_sent(era):
    server, current = changing_server(timed_items(1, 1), VOLATILE)
    async with change_reader(server, era) as reader:
        one = await reader.get()
        for number in (2, 3):
            current.value = timed_items(number, number * 10)
            got = await reader.get()
            assert got.outcome == "unchanged" and got.root == one.root
            assert is_same(got.value, timed_items(1, 1))
        current.value = with_value_at(timed_items(3, 1), "items", 5, "stock", to=77)
        got = await reader.get()
        assert got.outcome == "delta" and is_same(got.value, current.value)
        current.value = with_value_at(timed_items(9, 1), "items", 5, "stock", to=77)
        assert (await reader.get()).outcome == "unchanged"
        current.value = with_value_at(timed_items(10, 1), "items", 6, "stock", to=78)
        got = await reader.get()
        assert got.outcome == "delta" and is_same(got.value, current.value)


async def test_volatile_members_of_a_value_sent_twice_are_those_sent_last():
    server, current = changing_server(timed_items(1, 1), VOLATILE)
    other = with_value_at(timed_items(5, 1), "items", 5, "stock", to=77)
    async with change_reader(server) as reader:
        await reader.get()
        current.value = other
        assert (await reader.get()).outcome == "delta"
        current.value = timed_items(9, 1)
        back = await reader.get()
        assert is_same(back.value, current.value)
        current.value = with_value_at(timed_items(1, 1), "items", 7, "stock", to=78)
        got = await reader.get(back.digits)
        assert got.outcome == "delta" and is_same(got.value, current.value)


async def test_volatile_members_that_another_connection_was_sent_are_not_taken_for_held():
    server, current = changing_server(timed_items(1, 1), VOLATILE)
    async with change_reader(server) as one, change_reader(server) as other:
        mine = (await one.get("")).digits
        current.value = timed_items(2, 1)
        theirs = (await other.get("")).digits
        current.value = with_value_at(timed_items(2, 1), "items", 7, "stock", to=78)
        assert is_same((await one.get(mine)).value, current.value)
        assert is_same((await other.get(theirs)).value, current.value)


async def test_keys_tell_rows_apart_where_nothing_else_does():
    rows = [
        {"code": f"c{n}", "id": n % 3, "text": f"The words of row {n * 31 % 89}, which are many"} for n in range(40)
    ]
    server, current = changing_server(rows, ResultPolicy(deltas=True, keys=["code"]))
    async with change_reader(server) as reader:
        await reader.get()
        for value in (
            with_value_at(rows, 20, "text", to="other words"),
            rows[5:],
            [{"code": "new", "id": 1, "text": "A row that was not there"}, *rows],
            rows[::-1],
            [row for row in rows if row["id"]],
            [*rows, rows[3]],
            [{"id": 1, "text": "no code"}, *rows],
        ):
            current.value = value
            got = await reader.get()
            assert is_same(got.value, value)
        current.value = rows
        await reader.get("reset")
        current.value = with_value_at(rows, 20, "text", to="other words")
        got = await reader.get()
        assert got.outcome == "delta" and "c20" in got.text and len(got.text.splitlines()) <= 4


# Failures, schemas, and results that are cut


async def test_failures_are_no_deltas_and_disturb_nothing(era):
    server, current = DeltaServer("shop", results=DELTAS, conversation="process"), ChangingValue(shop_items())
    fault: list[Exception | None] = [None]

    @server.tool
    async def get(query: str = "") -> Any:
        if fault[0] is not None:
            raise fault[0]
        return current()

    async with change_reader(server, era) as reader:
        one = await reader.get()
        for error in (ToolError("no " * 200), RuntimeError("x"), ToolError("no " * 200)):
            fault[0] = error
            for root in (None, "", one.digits, "0123456789ab"):
                sent: dict[str, Any] = {} if root is None else {"pack_root": root}
                result = await reader.peer.use("get", **sent)
                assert result["isError"] and "outcome" not in result_meta(result)
                assert "Executed" not in first_text(result) and "Changes" not in first_text(result)
            assert (await reader.peer.use("get", query=5)).get("isError"), "refused before it runs"
            fault[0] = None
            assert (await reader.get()).outcome == "unchanged"
            assert (await reader.get(one.digits)).outcome == "unchanged"
        fault[0] = ToolError("no")
        await reader.peer.use("get")
        fault[0], current.value = None, STATES["rows"][1]
        got = await reader.get()
        assert (
            got.outcome == "delta" and is_same(got.value, current.value) and result_meta(got.result)["base"] == one.root
        )


async def test_a_failure_as_a_value_is_no_base_either():
    server, current = DeltaServer("shop", results=DELTAS, conversation="process"), ChangingValue(shop_items())

    @server.tool
    async def get() -> Any:
        return current()

    failed = ToolResult(content=[Text("No such thing. " * 40)], is_error=True)
    async with change_reader(server) as reader:
        await reader.get()
        current.value = failed
        for _ in range(2):
            result = await reader.peer.use("get")
            assert result["isError"] and first_text(result) == "No such thing. " * 40
        current.value = shop_items()
        assert (await reader.get()).outcome == "unchanged"


class Item(BaseModel):
    sku: str
    title: str
    price: float
    stock: int


class Stock(BaseModel):
    items: list[Item]


async def test_structured_content_that_is_promised_is_sent_every_time(era):
    server = DeltaServer("shop", results=DELTAS, conversation="process")

    @server.tool
    async def get() -> Stock:
        return Stock(items=[Item(**row) for row in shop_items(30)])

    async with era_client(server, era) as peer:
        assert "outputSchema" in (await peer.tools())["get"]
        results = [
            await peer.result_of("get"),
            await peer.result_of("get"),
            await peer.result_of("get", {"pack_root": root_of(shop_items(30))}),
        ]
        for result in results:
            assert result_meta(result).get("outcome", "full") == "full"
            assert result["structuredContent"]["items"][7]["sku"] == "S-0007"
            assert texts(result)[0] == texts(results[0])[0]


@pytest.mark.parametrize("budget", [60, 200, 1000])
async def test_what_is_cut_is_no_base_unless_the_caller_names_it(budget, era):
    server, current = changing_server(shop_items(400), ResultPolicy(deltas=True, max_tokens=budget))
    async with era_client(server, era) as peer:

        async def ask(outcome: str, **arguments: Any) -> Result:
            result = await peer.result_of("get", **arguments)
            assert result_meta(result)["outcome"] == outcome and token_cost(result) <= budget, result
            assert is_same(await ProgramReader(peer, result_meta(result)["handle"], budget).value(), current.value)
            return result

        root = result_meta(await ask("full"))["root"]
        await ask("unchanged")
        current.value = with_value_at(shop_items(400), 399, "stock", to=99)
        await ask("full")
        await ask("unchanged")
        result = await ask("delta", since=root)
        shown = first_text(result)[: result_meta(result)["lengths"][0]]
        assert is_same(apply_delta(shop_items(400), shown.partition("\n")[2]), current.value)


async def test_content_blocks_come_again_or_as_a_sentence_but_whole():
    server, current = changing_server(None)
    blocks = ToolResult(content=[Text(LOG_LINES), Text("second")])
    async with era_client(server) as peer:
        current.value = blocks
        one = await peer.result_of("get")
        assert texts(one)[:2] == [LOG_LINES, "second"]
        two = await peer.result_of("get")
        assert result_meta(two).get("outcome", "full") in ("full", "unchanged")
        current.value = ToolResult(content=[Text(LOG_LINES), Text("other")])
        three = await peer.result_of("get")
        assert result_meta(three).get("outcome") != "unchanged"
        assert "other" in "\n".join(texts(three))


async def test_results_that_look_alike_in_part_keep_their_own_handles():
    server, current = changing_server([{"id": 1, "secret": "A" * 80}], ResultPolicy(deltas=True, fields=["id"]))
    async with change_reader(server) as reader:
        one = await reader.peer.result_of("get", query="x", pack_root="")
        current.value = [{"id": 1, "secret": "B" * 80}]
        other = await reader.peer.result_of("get", query="y", pack_root="")
        assert (
            result_meta(one)["root"] == result_meta(other)["root"]
            and result_meta(one)["handle"] != result_meta(other)["handle"]
        )
        shown = await reader.peer.result_of("continue", handle=result_meta(one)["handle"], path="/0/secret")
        assert first_text(shown).startswith("A")


@pytest.mark.parametrize("how", ["it raises", "blocks", "no deltas", "fields"])
async def test_a_reset_counts_whatever_becomes_of_the_call(how):
    server, _ = changing_server(books(*range(20)))

    @server.tool(results=DELTAS)
    async def fails() -> Any:
        raise ToolError("no")

    @server.tool(results=DELTAS)
    async def blocks() -> Any:
        return [Text("one"), Text("two")]

    async with change_reader(server) as reader:
        await reader.get()
        match how:
            case "it raises":
                await reader.peer.use("fails", pack_root="reset")
            case "blocks":
                await reader.peer.result_of("blocks", pack_root="reset")
            case "no deltas":
                await reader.peer.result_of("plain", {"pack_root": "reset"})
            case _:
                await reader.peer.result_of("get", {"pack_root": "reset", "fields": "sum([*].title)"}, query="other")
        assert (await reader.get()).outcome == "full"


async def test_a_reset_holds_where_the_store_does_not(monkeypatch):
    server, _ = changing_server(books(*range(20)))
    put, add = MemoryStore.put, MemoryStore.add

    async def no_room(self: MemoryStore, *place: Any) -> Any:
        raise StoreError("no room")

    async with change_reader(server) as reader:
        await reader.get()
        monkeypatch.setattr(MemoryStore, "put", no_room)
        monkeypatch.setattr(MemoryStore, "add", no_room)
        await reader.peer.result_of("get", query="other", pack_root="reset")
        monkeypatch.setattr(MemoryStore, "put", put)
        monkeypatch.setattr(MemoryStore, "add", add)
        assert (await reader.get()).outcome == "full"
        assert (await reader.get()).outcome == "unchanged"


async def test_what_a_tool_says_no_to_cannot_be_asked_for():
    server, _ = changing_server(books(*range(20)))
    async with era_client(server, "modern") as peer:
        for _ in range(2):
            reply = await peer.result_of("plain", {"deltas": True, "dedup": True, "pack_root": ""})
            assert "outcome" not in result_meta(reply)


async def test_a_resource_that_only_says_it_is_json_is_a_text():
    server = DeltaServer("odd")

    @server.resource("odd://it", mime_type="application/json")
    async def it() -> str:
        return "{no JSON\n" * 20

    async with era_client(server, "modern") as peer:
        answer = await peer.ask("resources/read", {"io.github.delta-mcp/result": {"pack_root": ""}}, uri="odd://it")
        assert answer["result"]["contents"][0]["text"].startswith("{no JSON")


async def test_of_calls_at_once_only_the_first_to_end_is_told_by_changes():
    server = DeltaServer("shop", conversation="process")
    state: dict[str, Any] = {"value": books(*range(30)), "wait": asyncio.Event(), "calls": 0}

    @server.tool(results=DELTAS)
    async def get() -> Any:
        made = copy.deepcopy(state["value"])
        state["calls"] += 1
        await state["wait"].wait()
        return made

    async with era_client(server, "modern") as peer:
        state["wait"].set()
        await peer.result_of("get")
        state["wait"].clear()
        outcomes = []
        for number in (1, 2):
            state["value"] = [
                {**row, "title": f"Told {number}"} if row["id"] == number else row for row in state["value"]
            ]
            peer.raw.send(id=f"call {number}", method="tools/call", params={"name": "get", "_meta": META})
            while state["calls"] <= number:  # noqa: ASYNC110 - the tool has begun
                await asyncio.sleep(0)
        state["wait"].set()
        for _ in range(2):
            outcomes.append(result_meta((await peer.raw.receive())["result"])["outcome"])
        assert outcomes == ["delta", "full"]
        again = [result_meta(await peer.result_of("get"))["outcome"] for _ in range(2)]
        assert again == ["full", "unchanged"], "which of the two the model read last, nobody knows"


async def test_a_result_is_found_by_its_root_as_by_its_handle():
    server, current = changing_server(books(*range(12)))
    async with change_reader(server) as reader:
        got = await reader.get("")
        assert is_same(await read_by_handle(reader.peer, got.digits), current.value)


async def test_nobody_is_told_to_run_a_tool_again_that_may_change_something():
    server, orders = DeltaServer("shop", conversation="process"), list[str]()

    @server.tool(results=DELTAS)
    async def order(what: str) -> Any:
        orders.append(what)
        return {"order": len(orders), "what": what, "note": " ".join(map(str, range(200)))}

    async with http_change_readers(server) as join:
        peer = (await join("handshake")).peer
        await peer.result_of("order", what="tea")
        text = first_text(await peer.result_of("order", what="tea"))
        assert text.startswith("Changed; full: continue ") and len(orders) == 2
