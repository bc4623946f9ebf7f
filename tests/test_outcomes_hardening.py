"""What a hostile reading of deltas and outcomes found, one test each."""

import asyncio
import copy
from typing import Any

import pytest

from deltamcp import DeltaServer, ResultPolicy, ToolError
from deltamcp.deltas.delta import applied, delta
from deltamcp.deltas.edits import DeltaError
from deltamcp.deltas.root import root_of
from deltamcp.results import dedup
from deltamcp.results.encode import decode
from deltamcp.stores.memory import MemoryStore
from deltamcp.stores.store import StoreError
from deltamcp.values import JSON, Text
from tests.raw import META
from tests.strategies import same
from tests.test_dedup import BOTH, books, library
from tests.test_outcomes import DELTAS, continued, over_http, reading, served
from tests.test_results import about, first, joined, texts

ROW = {"a": "x" * 30, "b": "y" * 30}
LINES = [f"line {number} of them" for number in range(40)]


@pytest.mark.parametrize(
    ("base", "new"),
    [
        ([0, 1] * 150, [1, 1, 0] * 100),
        (["ok", "failed"] * 150, ["failed", "failed", "ok"] * 100),
        ([{"s": "ok"}, {"s": "failed"}] * 150, [{"s": "failed"}, {"s": "ok"}, {"s": "ok"}] * 100),
        ({"a b": ROW}, {"a b": ROW, "c d": ROW}),
        ("\n".join(LINES), "\n".join([*LINES[1:], "one more"])),
        ([{"at": f"2026-03-01 12:00:{n:02d}", "m": n} for n in range(20)], [{"at": "2026-03-01 12:00:19", "m": 19}]),
    ],
    ids=["two numbers", "two words", "rows without a key", "a copy with a space", "a log that rotates", "rows that go"],
)
def test_what_deltas_once_failed_on(base, new):
    assert same(applied(base, delta(base, new)), new)


@pytest.mark.parametrize(
    "text",
    [
        "a=[" + '"\\' * 50_000,
        "\n".join(['*"x">"xx"'] * 40),
        '*"x">"' + "x" * 1_000 + '"',
        "*" * 3_000,
        "a" + ".a" * 3_000 + "=1",
        "\n".join(" " * depth + "a" for depth in range(300)),
        "a" + "[] 0" * 2_000,
        "a=" + "9" * 5_000,
        "a=1e999999",
        'a="\ud800"',
        "a~\n " + "9" * 5_000,
        "[base]\n" * 3_000,
    ],
)
def test_hostile_deltas_are_refused(text):
    with pytest.raises(DeltaError):
        applied({"a": "x" * 100}, text)


@pytest.mark.parametrize("text", ["[]\n" + "+0 1\n" * 3 + "+0 1", "base[0]\n" * 3_000, "[] +" + "9" * 5_000 + " 1"])
def test_hostile_deltas_of_lists_are_refused(text):
    with pytest.raises(DeltaError):
        applied([1, 2], text)


def test_a_wrong_base_is_refused_by_its_root():
    new = {"a": 2, "z": 0}
    assert applied({"a": 1, "z": 0}, "a=2", root_of(new)) == new
    with pytest.raises(DeltaError):
        applied({"a": 1, "z": 1}, "a=2", root_of(new))


def test_a_plain_delta_tells_nothing_by_what_was_there():
    base = books(*range(20))
    new = [*base, {**base[15], "id": 99}]
    assert "like" in delta(base, new)
    text = delta(base, new, plain=True)
    assert "like" not in text and "~" not in text
    assert same(applied(base, text), new)


# What callers hold


async def test_rows_that_were_not_shown_are_not_referred_to():
    values: dict[str, Any] = {"all": books(*range(300)), "few": books(250, 251, 252)}
    policy = ResultPolicy(deltas=True, dedup=True, max_tokens=1_000)
    async with joined(library(values, policy), "modern") as peer:
        assert "handle" in about(await peer.done("all"))
        values["all"] = [{**values["all"][0], "title": "Another"}, *values["all"][1:], *books(400)]
        changes = await peer.done("all")
        assert about(changes)["outcome"] == "delta" and " like " not in first(changes)
        assert dedup.MARK not in first(await peer.done("few"))


async def test_rows_of_a_projection_are_not_referred_to():
    values: dict[str, Any] = {"open": [{**row, "open": row["id"] % 2 == 0} for row in books(*range(12))], "one": []}
    server = DeltaServer("library", results=BOTH)

    @server.tool(results=ResultPolicy(fields="[?open].{id: id, title: title, about: about}"))
    async def some() -> Any:
        return copy.deepcopy(values["open"])

    @server.tool
    async def one() -> Any:
        return [{name: row[name] for name in ("id", "title", "about")} for row in values["open"] if row["id"] == 10]

    async with joined(server, "modern") as peer:
        await peer.done("some")
        assert dedup.MARK not in first(await peer.done("one"))


async def test_results_that_look_alike_in_part_keep_their_own_handles():
    server, shelf = served([{"id": 1, "secret": "A" * 80}], ResultPolicy(deltas=True, fields=["id"]))
    async with reading(server) as reader:
        one = await reader.peer.done("get", query="x", pack_root="")
        shelf.value = [{"id": 1, "secret": "B" * 80}]
        other = await reader.peer.done("get", query="y", pack_root="")
        assert about(one)["root"] == about(other)["root"] and about(one)["handle"] != about(other)["handle"]
        shown = await reader.peer.done("continue", handle=about(one)["handle"], path="/0/secret")
        assert first(shown).startswith("A")


async def test_no_reference_leads_to_another_result_of_the_same_name(monkeypatch):
    monkeypatch.setattr("deltamcp.delivery.stored_results.Keeping._names_of", lambda self, digits: iter(["same0"]))
    values: dict[str, Any] = {"a": books(*range(9)), "b": books(*range(20, 29)), "c": books(*range(9))}
    server = library(values)
    async with joined(server, "modern") as peer:
        await peer.done("a")
        await peer.done("b")  # its name is taken, so it is not kept
        assert about(await peer.done("c"))["handle"] == "same0"
        assert same(await continued(peer, "same0"), values["a"])


@pytest.mark.parametrize("how", ["it raises", "blocks", "no deltas", "fields"])
async def test_a_reset_counts_whatever_becomes_of_the_call(how):
    server, _ = served(books(*range(20)))

    @server.tool(results=DELTAS)
    async def fails() -> Any:
        raise ToolError("no")

    @server.tool(results=DELTAS)
    async def blocks() -> Any:
        return [Text("one"), Text("two")]

    async with reading(server) as reader:
        await reader.get()
        match how:
            case "it raises":
                await reader.peer.use("fails", pack_root="reset")
            case "blocks":
                await reader.peer.done("blocks", pack_root="reset")
            case "no deltas":
                await reader.peer.done("plain", {"pack_root": "reset"})
            case _:
                await reader.peer.done("get", {"pack_root": "reset", "fields": "sum([*].title)"}, query="other")
        assert (await reader.get()).outcome == "full"


async def test_a_reset_holds_where_the_store_does_not(monkeypatch):
    server, _ = served(books(*range(20)))
    put, get = MemoryStore.put, MemoryStore.get

    async def no_room(self: MemoryStore, owner: str, *rest: Any) -> None:
        if "\0page\0" in owner:
            raise StoreError("no room")
        await put(self, owner, *rest)

    async def no_era(self: MemoryStore, owner: str, name: str) -> bytes | None:
        return None if name.endswith(" era") else await get(self, owner, name)

    monkeypatch.setattr(MemoryStore, "get", no_era)
    async with reading(server) as reader:
        await reader.get()
        monkeypatch.setattr(MemoryStore, "put", no_room)
        await reader.get("reset", query="other")
        monkeypatch.setattr(MemoryStore, "put", put)
        assert (await reader.get()).outcome == "full"
        assert (await reader.get()).outcome == "unchanged"


async def test_what_a_tool_says_no_to_cannot_be_asked_for():
    server, _ = served(books(*range(20)))
    async with joined(server, "modern") as peer:
        for _ in range(2):
            reply = await peer.done("plain", {"deltas": True, "dedup": True, "pack_root": ""})
            assert "outcome" not in about(reply)


async def test_a_results_own_mark_is_no_reference():
    value: JSON = {
        "data": "x" * 200,
        "$seen": "q/0",
        "items": [{"id": n, "$seen": f"q/{n}", "of": "y" * 60} for n in (1, 2)],
    }
    async with joined(library({"a": value, "b": value}), "modern") as peer:
        for tool in ("a", "a", "b"):
            assert "references" not in about(await peer.done(tool))


async def test_a_resource_that_only_says_it_is_json_is_a_text():
    server = DeltaServer("odd")

    @server.resource("odd://it", mime_type="application/json")
    async def it() -> str:
        return "{no JSON\n" * 20

    async with joined(server, "modern") as peer:
        answer = await peer.ask("resources/read", {"io.github.delta-mcp/result": {"pack_root": ""}}, uri="odd://it")
        assert answer["result"]["contents"][0]["text"].startswith("{no JSON")


async def test_of_calls_at_once_only_the_first_to_end_is_told_by_changes():
    server = DeltaServer("shop")
    state: dict[str, Any] = {"value": books(*range(30)), "wait": asyncio.Event()}

    @server.tool(results=DELTAS)
    async def get() -> Any:
        made = copy.deepcopy(state["value"])
        await state["wait"].wait()
        return made

    async with joined(server, "modern") as peer:
        state["wait"].set()
        await peer.done("get")
        state["wait"].clear()
        outcomes = []
        for number in (1, 2):
            state["value"] = [
                {**row, "title": f"Told {number}"} if row["id"] == number else row for row in state["value"]
            ]
            peer.raw.send(id=f"call {number}", method="tools/call", params={"name": "get", "_meta": META})
            await asyncio.sleep(0.01)
        state["wait"].set()
        for _ in range(2):
            outcomes.append(about((await peer.raw.receive())["result"])["outcome"])
        assert outcomes == ["delta", "full"]


async def test_who_holds_nothing_gets_everything_without_references():
    values: dict[str, Any] = {"all": books(*range(12)), "few": books(3, 4, 5)}
    async with joined(library(values), "modern") as peer:
        await peer.done("all")
        assert dedup.MARK in first(await peer.done("few"))
        for root in ("", "abcdefabcdef"):
            assert dedup.MARK not in "".join(texts(await peer.done("few", pack_root=root)))


async def test_a_reference_is_a_handle_that_continue_takes():
    values: dict[str, Any] = {"all": books(*range(12)), "few": books(3, 4, 5)}
    async with joined(library(values), "modern") as peer:
        handle = about(await peer.done("all"))["handle"]
        assert same(decode(first(await peer.done("continue", handle=f"{handle}/3"))), values["all"][3])


async def test_a_result_is_found_by_its_root_as_by_its_handle():
    server, shelf = served(books(*range(12)))
    async with reading(server) as reader:
        got = await reader.get("")
        assert same(await continued(reader.peer, got.digits), shelf.value)


async def test_nobody_is_told_to_run_a_tool_again_that_may_change_something():
    server, orders = DeltaServer("shop"), list[str]()

    @server.tool(results=DELTAS)
    async def order(what: str) -> Any:
        orders.append(what)
        return {"order": len(orders), "what": what, "note": "x" * 300}

    async with over_http(server) as join:
        peer = (await join("handshake")).peer
        await peer.done("order", what="tea")
        text = first(await peer.done("order", what="tea"))
        assert text.startswith("Changed; full: continue ") and len(orders) == 2
