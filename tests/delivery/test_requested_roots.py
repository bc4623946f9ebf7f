"""Roots that a caller sends: which calls are the same, the forms of a root, and the notes that offer one."""

from collections.abc import Callable
from typing import Any

import pytest

from deltamcp import DeltaServer
from deltamcp.deltas.root import root_of
from deltamcp.tokens import count
from tests.support.change_reader import HANDLE, UNCHANGED_TOKENS, ReceivedResult, change_reader
from tests.support.changing_server import DELTAS, STATES, changing_server, shop_items, with_value_at
from tests.support.equality import is_same
from tests.support.era_client import result_meta, texts

# Which call is the same


async def test_a_call_is_its_tool_and_its_arguments_in_whatever_order():
    server = DeltaServer("shop", results=DELTAS, conversation="process")

    async def of(a: int = 0, b: str = "", c: dict[str, Any] | None = None) -> Any:
        return shop_items(30, a=a, b=b, c=c or {})

    server.tool(name="one")(of)
    server.tool(name="other")(of)
    async with change_reader(server) as reader:
        calls: list[tuple[str, dict[str, Any], str]] = [
            ("one", {"a": 1, "b": "x", "c": {"p": 1, "q": 2}}, "full"),
            ("one", {"b": "x", "c": {"q": 2, "p": 1}, "a": 1}, "unchanged"),
            ("one", {"a": 2, "b": "x", "c": {"p": 1, "q": 2}}, "full"),
            ("one", {"a": 1, "b": "y", "c": {"p": 1, "q": 2}}, "full"),
            ("one", {"a": 1, "b": "x", "c": {"p": 1, "q": 3}}, "full"),
            ("other", {"a": 1, "b": "x", "c": {"p": 1, "q": 2}}, "full"),
            ("one", {"a": 1, "b": "x", "c": {"p": 1, "q": 2}}, "unchanged"),
        ]
        for tool, arguments, outcome in calls:
            got = await reader.get(tool=tool, **arguments)
            assert got.outcome == outcome, (tool, arguments)
            assert is_same(got.value, shop_items(30, **arguments))


async def test_arguments_that_are_equal_only_to_python_are_other_calls():
    server = DeltaServer("shop", results=DELTAS, conversation="process")

    @server.tool
    async def get(what: Any) -> Any:
        return shop_items(30, what=what)

    async with change_reader(server) as reader:
        for what in (1, True, 1.5, "1", [1], {"what": 1}, None):
            got = await reader.get(what=what)
            assert got.outcome == "full" and is_same(got.value, shop_items(30, what=what))
        for what in (1, True, 1.5, "1", [1], {"what": 1}, None):
            got = await reader.get(what=what)
            assert got.outcome == "unchanged" and is_same(got.value, shop_items(30, what=what))


async def test_the_root_is_no_part_of_the_call(era):
    server, _ = changing_server(shop_items())
    async with change_reader(server, era) as reader:
        one = await reader.get(query="x")
        assert (await reader.get(one.digits, query="x")).outcome == "unchanged"
        assert (await reader.by_meta(one.digits, query="x")).outcome == "unchanged"
        assert (await reader.get(query="x")).outcome == "unchanged"
        assert (await reader.get(one.digits, query="y")).outcome in ("full", "unchanged")


async def test_fields_of_execute_are_part_of_the_call(era):
    server, current = changing_server(shop_items(), policy=None, results=DELTAS, disclosure="meta")

    def thin(value: Any) -> Any:
        return [{"sku": row["sku"], "title": row["title"]} for row in value]

    async with change_reader(server, era) as reader:
        call: dict[str, Any] = {"tool": "execute", "operation": "get", "params": {"query": "x"}}
        assert is_same((await reader.get(**call)).value, shop_items())
        few = await reader.get(**call, fields="sku,title")
        assert few.outcome == "full" and is_same(few.value, thin(shop_items()))
        assert (await reader.get(**call)).outcome == "unchanged"
        assert (await reader.get(**call, fields="sku,title")).outcome == "unchanged"
        current.value = with_value_at(shop_items(), 5, "title", to="Another")
        some = await reader.get(**call, fields="sku,title")
        assert some.outcome == "delta" and is_same(some.value, thin(current.value))
        everything = await reader.get(**call)
        assert everything.outcome == "delta" and is_same(everything.value, current.value)


async def test_fields_that_a_request_wishes_do_not_mix_with_the_whole(era):
    server, current = changing_server(shop_items())
    async with change_reader(server, era) as reader:

        async def ask(fields: str | None) -> ReceivedResult:
            wish = None if fields is None else {"fields": fields}
            return reader.take(await reader.peer.result_of("get", wish))

        for value in (shop_items(), STATES["rows"][1], STATES["a row less"][1]):
            current.value = value
            assert is_same((await ask(None)).value, value)
            assert is_same(
                (await ask("sku,stock")).value, [{"sku": row["sku"], "stock": row["stock"]} for row in value]
            )


# Roots


SPELLINGS: dict[str, Callable[[str], str]] = {
    "12 digits": lambda root: root[7:19],
    "8 digits": lambda root: root[7:15],
    "11 digits": lambda root: root[7:18],
    "40 digits": lambda root: root[7:47],
    "64 digits": lambda root: root[7:],
    "with its algorithm": lambda root: root,
}


@pytest.mark.parametrize("way", ["argument", "meta"])
@pytest.mark.parametrize("spelling", SPELLINGS)
async def test_a_root_may_be_written_short(spelling, way):
    server, current = changing_server(shop_items())
    async with change_reader(server) as reader:
        written = SPELLINGS[spelling]((await reader.get("")).root)
        ask = reader.get if way == "argument" else reader.by_meta
        got = await ask(written)
        assert got.outcome == "unchanged" and count(got.text) <= UNCHANGED_TOKENS
        current.value = STATES["rows"][1]
        got = await ask(written)
        assert got.outcome == "delta" and is_same(got.value, current.value)


def unheld(root: str) -> dict[str, str]:
    """What names nothing that was sent, given a root that was."""
    digits = root[7:]
    return {
        "nothing": "",
        "too few digits": digits[:7],
        "one digit": digits[:1],
        "not its beginning": digits[1:13],
        "a digit wrong": digits[:11] + ("0" if digits[11] != "0" else "1"),
        "a digit wrong at the end": "sha256:" + digits[:63] + ("0" if digits[63] != "0" else "1"),
        "unknown": "0123456789ab",
        "another algorithm": "md5:" + digits,
        "too long": digits + "0",
        "no digits": "sha256:",
        "words": "the root you sent me",
        "another script": "根" * 12,
        "a path": "../../../etc/passwd",
        "controls": "\x00\r\n\t",
        "very long": "a" * 100_000,
        "almost reset": "resets",
    }


@pytest.mark.parametrize("way", ["argument", "meta"])
@pytest.mark.parametrize("name", unheld("sha256:" + "0" * 64))
async def test_a_root_that_names_nothing_held_gets_it_in_full(name, way):
    server, current = changing_server(shop_items())
    async with change_reader(server) as reader:
        sent = await reader.get("")
        ask = reader.get if way == "argument" else reader.by_meta
        for value in (shop_items(), STATES["rows"][1]):
            current.value = value
            got = await ask(unheld(sent.root)[name])
            assert got.outcome == "full" and is_same(got.value, value)
            assert HANDLE.search(texts(got.result)[-1])


async def test_a_root_that_is_null_is_no_root():
    server, _ = changing_server(shop_items())
    async with change_reader(server) as reader:
        outcomes = []
        for root in ({}, {"pack_root": None}, {"pack_root": ""}, {"pack_root": None}):
            result = await reader.peer.result_of("get", **root)
            outcomes.append((result_meta(result)["outcome"], HANDLE.search(texts(result)[-1]) is not None))
        assert outcomes == [("full", False), ("unchanged", False), ("full", True), ("unchanged", False)]


async def test_a_root_of_another_call_is_never_guessed_with():
    """Whatever comes of it, it must apply to what that root names."""
    server, current = changing_server(shop_items())
    async with change_reader(server) as reader:
        one = await reader.get("", query="one")
        current.value = STATES["rows"][1]
        got = await reader.get(one.digits, query="other")
        assert is_same(got.value, current.value)


async def test_a_sent_root_that_is_unknown_does_not_fall_back_to_what_is_remembered():
    server, _ = changing_server(shop_items())
    async with change_reader(server) as reader:
        await reader.get()
        assert (await reader.get("0123456789ab")).outcome == "full"
        assert (await reader.get("")).outcome == "full"
        assert (await reader.get()).outcome == "unchanged"


async def test_reset_forgets_everything_of_this_caller(era):
    server, current = changing_server(shop_items())
    async with change_reader(server, era) as reader:
        for query in ("a", "b", "c"):
            await reader.get(query=query)
        got = await reader.get("reset", query="a")
        assert got.outcome == "full" and is_same(got.value, shop_items()) and HANDLE.search(texts(got.result)[-1])
        assert (await reader.get(query="b")).outcome == "full"
        assert (await reader.get(query="a")).outcome == "unchanged", "it was sent after the reset"
        current.value = STATES["rows"][1]
        await reader.by_meta("reset", query="x")
        for query in ("a", "b", "c"):
            got = await reader.get(query=query)
            assert got.outcome == "full" and is_same(got.value, current.value)


@pytest.mark.parametrize("way", ["argument", "meta"])
async def test_after_a_reset_a_root_that_is_sent_is_taken_at_its_word(way):
    server, current = changing_server(shop_items())
    async with change_reader(server) as reader:
        root = (await reader.get("")).digits
        current.value = STATES["rows"][1]
        await (reader.get if way == "argument" else reader.by_meta)("reset", query="x")
        result = await reader.peer.result_of("get", pack_root=root)
        assert result_meta(result)["outcome"] == "delta"


async def test_reset_does_not_forget_for_others():
    server, _ = changing_server(shop_items())
    async with change_reader(server) as one, change_reader(server) as other:
        await one.get()
        await other.get()
        await one.get("reset")
        assert (await other.get()).outcome == "unchanged"


# What the model and programs are told beforehand


async def test_the_root_is_an_argument_that_is_listed(era):
    server, _ = changing_server(shop_items(), results=DELTAS, disclosure="full")

    @server.tool(
        input_schema={"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": False}
    )
    async def raw(arguments: dict[str, Any]) -> Any:
        assert "pack_root" not in arguments
        return shop_items()

    async with change_reader(server, era) as reader:
        tools = await reader.peer.tools()
        for name in ("get", "raw"):
            assert tools[name]["inputSchema"]["properties"]["since"]["type"] == "string"
            assert "since" not in tools[name]["inputSchema"].get("required", [])
            assert (await reader.get("", tool=name)).outcome == "full"
            assert (await reader.get(root_of(shop_items()), tool=name)).outcome == "unchanged"


async def test_a_functions_own_pack_root_is_its_own(era):
    server = DeltaServer("shop", results=DELTAS, conversation="process")

    @server.tool
    async def get(pack_root: int) -> Any:
        return shop_items(40, given=pack_root)

    async with change_reader(server, era) as reader:
        assert (await reader.peer.tools())["get"]["inputSchema"]["properties"]["pack_root"]["type"] == "integer"
        for number, outcome in ((1, "full"), (2, "full"), (1, "unchanged")):
            got = reader.take(await reader.peer.result_of("get", pack_root=number))
            assert got.outcome == outcome and is_same(got.value, shop_items(40, given=number))
        root = root_of(shop_items(40, given=2))
        got = reader.take(await reader.peer.result_of("get", {"pack_root": root}, pack_root=2), root)
        assert got.outcome == "unchanged"


async def test_execute_takes_a_root_beside_the_operation(era):
    server, current = changing_server(shop_items(), policy=None, results=DELTAS, disclosure="meta")
    async with change_reader(server, era) as reader:
        tools = await reader.peer.tools()
        for name in ("execute", "discover", "continue"):
            assert tools[name]["inputSchema"]["properties"]["since"]["type"] == "string"
        call: dict[str, Any] = {"tool": "execute", "operation": "get", "params": {"query": "x"}}
        one = await reader.get("", **call)
        assert one.outcome == "full" and HANDLE.search(texts(one.result)[-1])
        assert (await reader.get(one.digits, **call)).outcome == "unchanged"
        current.value = STATES["rows"][1]
        got = await reader.get(one.digits, **call)
        assert got.outcome == "delta" and is_same(got.value, current.value)
        assert (await reader.get(**call)).outcome == "unchanged"
        assert (await reader.get("reset", **call)).outcome == "full"


async def test_execute_and_the_flat_tool_are_one_call_or_two_but_never_wrong(era):
    server, current = changing_server(shop_items(), policy=None, results=DELTAS, disclosure="meta")
    async with change_reader(server, era) as reader:
        for value in (shop_items(), STATES["rows"][1], STATES["a row less"][1]):
            current.value = value
            assert is_same((await reader.get(query="x")).value, value)
            assert is_same((await reader.get(tool="execute", operation="get", params={"query": "x"})).value, value)
