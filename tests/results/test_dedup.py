"""What a conversation was sent before is only referred to: rows by where they can be read, symbols by their ids.

Written from the promise, not from our source.
"""

import asyncio
import copy
import itertools
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import gcf
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from deltamcp import DeltaServer, Limits, ResultPolicy, ToolError
from deltamcp.deltas.delta import apply_delta
from deltamcp.gcf import (
    Edge,
    Payload,
    ReaderSession,
    Symbol,
    decode_delta,
    decode_unchanged,
    kind_of,
    pack_root,
    root_matches,
)
from deltamcp.gcf import apply_delta as apply_graph_delta
from deltamcp.gcf import decode as decode_pack
from deltamcp.results.encode import decode
from tests.support.book_server import DEDUP_AND_DELTAS, add_book_tool, book, book_server, books
from tests.support.change_reader import (
    CHANGED,
    CHANGED_SINCE,
    UNCHANGED,
    UNCHANGED_AS,
    UNCHANGED_TOKENS,
    http_change_readers,
    read_by_handle,
)
from tests.support.changing_server import with_value_at
from tests.support.conditions import advance_store_clock
from tests.support.equality import is_same
from tests.support.era_client import (
    ERAS,
    EraClient,
    Result,
    compact_json,
    era_client,
    first_text,
    result_meta,
    texts,
    token_cost,
)
from tests.support.properties import examples
from tests.support.raw_client import META

NOTE = "[$seen: sent before, as handle/path]"
DEDUP = ResultPolicy(dedup=True)


def references(value: Any) -> list[dict[str, Any]]:
    """The rows that only refer to others."""
    if isinstance(value, dict):
        here = [value] if isinstance(value.get("$seen"), str) else []
        return here + [found for item in value.values() for found in references(item)]
    return [found for item in value for found in references(item)] if isinstance(value, list) else []


def shown_by(result: Result) -> Any:
    """What a result shows, its references not followed; the note may close the text, or be a text of its own."""
    shown = first_text(result).removesuffix("\n" + NOTE)
    return shown if result_meta(result).get("form") == "text" else decode(shown)


def is_noted(result: Result) -> bool:
    return any(text == NOTE or text.endswith("\n" + NOTE) for text in texts(result))


async def resolved(peer: EraClient, value: Any) -> Any:
    """The value with what is referred to in its place, read as a model reads it."""
    if isinstance(value, list):
        return [await resolved(peer, item) for item in value]
    if not isinstance(value, dict):
        return value
    if "$seen" not in value:
        return {key: await resolved(peer, item) for key, item in value.items()}
    handle, slash, path = value["$seen"].partition("/")
    assert slash, value
    result = await peer.result_of("continue", handle=handle, path="/" + path)
    row = decode(first_text(result))
    assert isinstance(row, dict) and "$seen" not in row
    named = {key: item for key, item in value.items() if key != "$seen"}
    assert len(named) <= 1 and all(is_same(row[key], item) for key, item in named.items()), value
    return row


async def given_by(peer: EraClient, tool: str, **arguments: Any) -> tuple[Any, int]:
    """A result sent in full and made whole, and how many of its rows were referred to."""
    result = await peer.result_of(tool, **arguments)
    assert result_meta(result).get("outcome", "full") == "full", result
    shown = shown_by(result)
    found = references(shown)
    assert is_noted(result) == bool(found), texts(result)
    return await resolved(peer, shown), len(found)


async def test_a_row_that_another_tool_sent_is_referred_to(era):
    values = {"shelf": books(*range(30)), "search": books(3, 7, 11, 90, 91)}
    async with era_client(book_server(values), era) as peer:
        assert await given_by(peer, "shelf") == (values["shelf"], 0)
        found, seen = await given_by(peer, "search")
        assert is_same(found, values["search"]) and seen == 3
        result = await peer.result_of("search", query="again")
        assert result_meta(result)["outcome"] == "unchanged", "another call gave the very same"


async def test_referring_needs_no_deltas(era):
    values: dict[str, Any] = {
        "shelf": books(*range(30)),
        "search": books(3, 7, 11, 90, 91),
        "near": pack(range(9)),
        "far": pack(range(12)),
    }
    async with era_client(book_server(values, DEDUP), era) as peer:
        await given_by(peer, "shelf")
        found, seen = await given_by(peer, "search")
        assert is_same(found, values["search"]) and seen == 3
        session = ReaderSession()
        for tool in ("near", "far"):
            result = await peer.result_of(tool)
            assert plain(decode_pack(first_text(result), session=session)) == plain(values[tool])
        assert "# previously transmitted" in first_text(result)


async def test_execute_refers_too(era):
    values = {"shelf": books(*range(30)), "search": books(3, 7, 11, 90, 91)}
    async with era_client(book_server(values, disclosure="meta"), era) as peer:
        await given_by(peer, "execute", operation="shelf")
        found, seen = await given_by(peer, "execute", operation="search")
        assert is_same(found, values["search"]) and seen == 3


async def test_a_reference_names_the_row_and_where_it_was_sent():
    values = {"shelf": {"total": 30, "a/b~c": 1, "items": books(*range(30))}, "search": books(7, 90)}
    async with era_client(book_server(values)) as peer:
        sent = await peer.result_of("shelf")
        [reference] = references(shown_by(await peer.result_of("search")))
        assert reference == {"id": 7, "$seen": f"{result_meta(sent)['handle']}/items/7"}


async def test_rows_in_odd_places_can_be_read_where_the_reference_says():
    values = {"shelf": {"total": 30, "a/b~c": books(*range(30))}, "search": books(3, 7, 90)}
    async with era_client(book_server(values, ResultPolicy(dedup=True, deltas=True, rows="/a~1b~0c"))) as peer:
        await peer.result_of("shelf")
        values["search"] = {"a/b~c": books(3, 7, 90)}
        found, seen = await given_by(peer, "search")
        assert is_same(found, values["search"]) and seen == 2


@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("fewer than sixty bytes", lambda number: {"id": number, "name": f"Somebody {number}"}),
        ("no object", lambda number: f"A long text that is row number {number} of all the rows that there are in it"),
        ("a list", lambda number: [number, f"A long text that is row number {number} of all the rows that there are"]),
    ],
)
async def test_other_rows_come_again(name, row):
    values = {"shelf": [row(n) for n in range(30)], "search": [row(n) for n in (3, 7, 90)]}
    async with era_client(book_server(values)) as peer:
        await given_by(peer, "shelf")
        assert await given_by(peer, "search") == (values["search"], 0), name


async def test_a_row_that_differs_in_anything_comes_shown_by():
    values = {"shelf": books(*range(30)), "search": [book(3, by=None), book(4, id=4.0), book(5) | {"more": 1}, book(6)]}
    async with era_client(book_server(values)) as peer:
        await given_by(peer, "shelf")
        found, seen = await given_by(peer, "search")
        assert is_same(found, values["search"]) and seen <= 1


async def test_references_are_where_they_are_cheaper():
    values = {
        "shelf": books(*range(40)),
        "some": books(1, 2, 3, 50, 51, 52, 53),
        "alike": [{"id": n, "kind": "the very same thing each time", "of": "the very same make"} for n in range(60)],
        "fewer": [{"id": n, "kind": "the very same thing each time", "of": "the very same make"} for n in range(9, 40)],
    }
    server = book_server(values)
    plain: dict[str, int] = {}
    async with era_client(book_server(values, None)) as peer:
        for name in values:
            plain[name] = token_cost(await peer.result_of(name, {"tables": True}))
    async with era_client(server) as peer:
        for name in values:
            result = await peer.result_of(name)
            assert token_cost(result) <= plain[name], name
            assert is_same(await resolved(peer, shown_by(result)), values[name])


async def test_a_result_that_another_call_gave_comes_as_the_sentence(era):
    values = {"shelf": books(*range(30)), "same": books(*range(30)), "more": books(*range(31))}
    async with era_client(book_server(values, DEDUP_AND_DELTAS), era) as peer:
        await peer.result_of("shelf")
        result = await peer.result_of("same")
        named = UNCHANGED.fullmatch(first_text(result))
        assert named and result_meta(result)["outcome"] == "unchanged" and token_cost(result) <= UNCHANGED_TOKENS
        assert is_same(await read_by_handle(peer, named[3]), values["same"])
        values["same"] = with_value_at(values["same"], 4, "title", to="Another title")
        result = await peer.result_of("same")
        assert result_meta(result)["outcome"] == "delta"
        assert is_same(apply_delta(books(*range(30)), first_text(result).partition("\n")[2]), values["same"])


@pytest.mark.parametrize("off", ["the one that sent", "the one that sends"])
async def test_a_tool_may_be_left_out(off):
    values = {"shelf": books(*range(30)), "search": books(3, 7, 90)}
    server = DeltaServer("library", results=DEDUP_AND_DELTAS, conversation="process")
    for name, who in (("shelf", "the one that sent"), ("search", "the one that sends")):
        add_book_tool(server, name, values, ResultPolicy(dedup=False) if who == off else None)
    async with era_client(server) as peer:
        assert await given_by(peer, "shelf") == (values["shelf"], 0)
        assert await given_by(peer, "search") == (values["search"], 0)


async def test_a_tool_says_it_for_itself():
    values = {"shelf": books(*range(30)), "search": books(3, 7, 90), "plain": books(3, 7, 90)}
    server = DeltaServer("library", conversation="process")
    for name in values:
        add_book_tool(server, name, values, DEDUP_AND_DELTAS if name != "plain" else None)
    async with era_client(server) as peer:
        await given_by(peer, "shelf")
        assert (await given_by(peer, "search"))[1] == 2
        assert await given_by(peer, "plain") == (values["plain"], 0)


async def test_conversations_are_kept_apart(era):
    values = {"shelf": books(*range(30)), "search": books(3, 7, 90)}
    server = book_server(values, DEDUP_AND_DELTAS)
    async with era_client(server, era) as one, era_client(server, era) as other:
        await given_by(one, "shelf")
        assert await given_by(other, "search") == (values["search"], 0)
        assert (await given_by(one, "search"))[1] == 2


async def test_sessions_over_http_are_conversations_and_strangers_have_none():
    values = {"shelf": books(*range(30)), "search": books(3, 7, 90)}
    async with http_change_readers(book_server(values)) as join:
        one, other, stranger = [(await join(era)).peer for era in ("handshake", "handshake", "modern")]
        await given_by(one, "shelf")
        assert await given_by(other, "search") == (values["search"], 0)
        await given_by(stranger, "shelf")
        assert await given_by(stranger, "search") == (values["search"], 0)
        found, _ = await given_by(one, "search")
        assert is_same(found, values["search"])


@pytest.mark.parametrize("way", ["argument", "meta"])
async def test_reset_forgets_rows(way):
    values = {"shelf": books(*range(30)), "search": books(3, 7, 90), "other": books(3)}
    async with era_client(book_server(values, DEDUP_AND_DELTAS)) as peer:
        await given_by(peer, "shelf")
        if way == "argument":
            result = await peer.result_of("search", pack_root="reset")
        else:
            result = await peer.result_of("search", {"pack_root": "reset"})
        assert result_meta(result)["outcome"] == "full" and is_same(shown_by(result), values["search"])
        result = await peer.result_of("shelf")
        assert result_meta(result)["outcome"] == "full"
        assert is_same(await resolved(peer, shown_by(result)), values["shelf"])
        assert [row["id"] for row in references(shown_by(result))] in ([3, 7], [])


async def test_what_the_store_forgot_comes_shown_by():
    values = {"shelf": books(*range(30)), "search": books(3, 7, 90), "same": books(*range(30))}
    server = book_server(values, DEDUP_AND_DELTAS)
    async with era_client(server) as peer:
        await given_by(peer, "shelf")
        await server._store.close()  # forgets everything
        assert await given_by(peer, "search") == (values["search"], 0)
        await server._store.close()
        result = await peer.result_of("same")
        if result_meta(result)["outcome"] == "full":
            assert is_same(await resolved(peer, shown_by(result)), values["same"])
        else:
            named = UNCHANGED.fullmatch(first_text(result))
            assert named and is_same(await read_by_handle(peer, named[3]), values["same"])


async def test_what_is_kept_too_long_comes_shown_by(monkeypatch):
    values = {"shelf": books(*range(30)), "search": books(3, 7, 90)}
    server = book_server(values, limits=Limits(kept_seconds=60))
    async with era_client(server) as peer:
        await given_by(peer, "shelf")
        advance_store_clock(server, monkeypatch, 61)
        assert await given_by(peer, "search") == (values["search"], 0)


async def test_rows_that_were_cut_away_have_not_been_sent():
    values = {"shelf": books(*range(200)), "search": books(0, 1, 198, 199)}
    async with era_client(book_server(values, ResultPolicy(dedup=True, deltas=True, max_tokens=1000))) as peer:
        sent = await peer.result_of("shelf")
        assert result_meta(sent)["end"] < 190
        shown = shown_by(await peer.result_of("search"))
        assert {row["id"] for row in references(shown)} <= {0, 1}
        assert is_same(await resolved(peer, shown), values["search"])
        assert is_same(shown[2:], values["search"][2:])


async def test_results_that_are_cut_and_refer_can_be_read_shown_by():
    values = {"shelf": books(*range(20)), "search": books(*range(10, 200))}
    async with era_client(book_server(values, ResultPolicy(dedup=True, deltas=True, max_tokens=1000))) as peer:
        await peer.result_of("shelf")
        result = await peer.result_of("search")
        assert token_cost(result) <= 1000
        shown = await resolved(peer, shown_by(result))
        assert is_same(shown, values["search"][: len(shown)])


async def test_a_tools_own_seen_is_not_taken_for_a_reference():
    """Who reads must be able to tell which is which: by the note, or as such a row never stands beside a reference."""
    own = [book(n) | {"$seen": f"abc123/{n}"} for n in range(60, 64)]
    values = {"shelf": books(*range(30)), "own": own, "mixed": books(3, 7) + own[:1]}
    async with era_client(book_server(values)) as peer:
        result = await peer.result_of("own")
        assert is_same(shown_by(result), own) and not is_noted(result)
        await peer.result_of("shelf")
        result = await peer.result_of("mixed")
        if is_noted(result):
            shown = shown_by(result)
            assert all(isinstance(row.get("$seen"), str) and len(row) <= 2 for row in references(shown)), shown
        else:
            assert is_same(shown_by(result), values["mixed"])


class Book(BaseModel):
    id: int
    title: str
    about: str


class Found(BaseModel):
    items: list[Book]


async def test_structured_content_is_never_shortened(era):
    server = DeltaServer("library", results=DEDUP_AND_DELTAS, conversation="process")

    def found(*numbers: int) -> Found:
        return Found(items=[Book(**{key: book(n)[key] for key in ("id", "title", "about")}) for n in numbers])

    server.tool(name="shelf")(lambda: found(*range(30)))

    @server.tool
    async def search() -> Found:
        return found(3, 7, 90)

    async with era_client(server, era) as peer:
        await peer.result_of("shelf")
        for _ in range(2):
            result = await peer.result_of("search")
            assert result["structuredContent"] == found(3, 7, 90).model_dump()
            assert "$seen" not in compact_json(result["content"])


async def test_failures_disturb_nothing():
    values = {"shelf": books(*range(30)), "search": books(3, 7, 90)}
    server = book_server(values)

    @server.tool
    async def fails() -> Any:
        raise ToolError(compact_json(books(3, 90)))

    async with era_client(server) as peer:
        await given_by(peer, "shelf")
        assert compact_json(books(3, 90)) in await peer.refusal_of("fails")
        found, seen = await given_by(peer, "search")
        assert seen == 2 and is_same(found, values["search"])


# Beside deltas


@pytest.mark.parametrize("dedup", [True, "deltas"])
async def test_rows_in_deltas(dedup, era):
    values = {"shelf": books(*range(30)), "list": books(*range(50, 80))}
    async with era_client(book_server(values, ResultPolicy(dedup=dedup, deltas=True)), era) as peer:
        await given_by(peer, "shelf")
        await given_by(peer, "list")
        base, values["list"] = values["list"], [*books(*range(50, 80)), book(3)]
        result = await peer.result_of("list")
        assert result_meta(result)["outcome"] == "delta"
        body = first_text(result).partition("\n")[2]
        new = apply_delta(base, body)
        if dedup is True:
            assert "$seen" not in body and is_same(new, values["list"])
        else:
            assert "$seen" in body and is_same(await resolved(peer, new), values["list"])
        base, values["list"] = values["list"], with_value_at(values["list"], 30, "title", to="Another title")
        result = await peer.result_of("list")
        assert result_meta(result)["outcome"] == "delta"
        assert is_same(await resolved(peer, apply_delta(base, first_text(result).partition("\n")[2])), values["list"])


async def test_a_row_that_a_delta_sent_may_be_referred_to():
    values = {"list": books(*range(30)), "search": books(40, 90)}
    async with era_client(book_server(values, DEDUP_AND_DELTAS)) as peer:
        await given_by(peer, "list")
        values["list"] = books(*range(30), 40)
        assert result_meta(await peer.result_of("list"))["outcome"] == "delta"
        found, _ = await given_by(peer, "search")
        assert is_same(found, values["search"])


async def test_a_delta_builds_on_the_rows_and_not_on_references():
    values = {"shelf": books(*range(30)), "search": books(3, 7, 11, *range(60, 75))}
    async with era_client(book_server(values, DEDUP_AND_DELTAS)) as peer:
        await given_by(peer, "shelf")
        base, seen = await given_by(peer, "search")
        assert seen == 3
        values["search"] = with_value_at(base, 1, "title", to="Another title")
        result = await peer.result_of("search")
        assert result_meta(result)["outcome"] == "delta"
        assert is_same(apply_delta(base, first_text(result).partition("\n")[2]), values["search"])


Step = tuple[str, list[int], int, str]
steps_of_rows = st.lists(
    st.tuples(
        st.sampled_from(["one", "two", "three"]),
        st.lists(st.integers(0, 24), max_size=14),
        st.integers(0, 2),
        st.sampled_from(["none", "none", "none", "none", "root", "empty", "reset", "forget"]),
    ),
    min_size=2,
    max_size=14,
)


@given(steps_of_rows, st.sampled_from([True, "deltas"]), st.booleans(), st.sampled_from(ERAS))
@settings(max_examples=examples(150))
def test_rows_of_any_sequence_can_be_read(steps, dedup, deltas, era):
    values: dict[str, Any] = {"one": [], "two": [], "three": []}

    async def run() -> None:
        server = book_server(values, ResultPolicy(dedup=dedup, deltas=deltas))
        async with era_client(server, era) as peer:
            held: dict[str, Any] = {}
            for tool, numbers, shape, way in steps:
                rows = [book(number, edition=number * shape % 2) for number in numbers]
                values[tool] = rows if shape == 0 else {"n": len(rows), "items": rows}
                root = {"root": next(reversed(held), ""), "empty": "", "reset": "reset"}.get(way)
                if way == "forget":
                    await server._store.close()
                if way == "reset":
                    held.clear()
                result = await peer.result_of(tool, None if root is None else {"pack_root": root})
                said = result_meta(result)
                outcome = said.get("outcome", "full")
                if outcome == "full":
                    value = await resolved(peer, shown_by(result))
                elif outcome == "unchanged":
                    assert (UNCHANGED if root is None else UNCHANGED_AS).fullmatch(first_text(result))
                    assert token_cost(result) <= UNCHANGED_TOKENS
                    value = held[said["base"]]
                else:
                    head, _, body = first_text(result).partition("\n")
                    assert (CHANGED if root is None else CHANGED_SINCE).fullmatch(head)
                    value = await resolved(peer, apply_delta(copy.deepcopy(held[said["base"]]), body))
                assert is_same(value, values[tool])
                if "root" in said:
                    held.pop(said["root"], None)
                    held[said["root"]] = value

    asyncio.run(run())


# Graph packs


def symbol(number: int, score: float | None = None, distance: int | None = None) -> Symbol:
    return Symbol(
        f"shop.orders.module_{number % 5}.name_{number}",
        ["function", "class", "method", "type"][number % 4],
        0.9 - number / 100 if score is None else score,
        "lsp_resolved",
        number % 3 if distance is None else distance,
    )


def pack(numbers: Iterable[int], **changes: Any) -> Payload:
    symbols = [symbol(number, **changes) for number in numbers]
    edges = [Edge(one.qualified_name, two.qualified_name, "calls") for one, two in itertools.pairwise(symbols)]
    return Payload(tool="context", symbols=symbols, edges=edges)


def plain(payload: Payload) -> Any:
    """What a pack says, in whatever order."""
    return (
        sorted((s.qualified_name, s.kind, s.printed_score, s.provenance, s.distance) for s in payload.symbols),
        sorted((e.source, e.target, e.edge_type) for e in payload.edges),
    )


@dataclass
class PackReader:
    """Follows the texts of one conversation."""

    peer: EraClient
    session: ReaderSession = field(default_factory=ReaderSession)
    held: dict[str, Payload] = field(default_factory=dict)

    async def get(self, tool: str, root: str | None = None) -> tuple[str, Payload, str]:
        """What came, the pack that it makes, and its text."""
        if root == "reset":
            self.held.clear()
        arguments: dict[str, Any] = {} if root is None else {"pack_root": root}
        result = await self.peer.result_of(tool, **arguments)
        return self.take(result, root)

    def take(self, result: Result, root: str | None = None) -> tuple[str, Payload, str]:
        said, text = result_meta(result), first_text(result)
        kind = kind_of(text) if text.startswith("GCF") else ""
        if said["outcome"] == "full":
            assert kind == "graph"
            found = decode_pack(text, session=self.session)
            shown = re.search(r" pack_root=([0-9a-f]{12})(?:\s|$)", text.partition("\n")[0])
            assert shown and said["root"].startswith("sha256:" + shown[1])
        elif said["outcome"] == "delta":
            assert kind == "graph-delta"
            change = decode_delta(text, session=self.session)
            found = apply_graph_delta(self.held[said["base"]], change)
            assert said["base"].startswith("sha256:" + change.base_root.removeprefix("sha256:"))
        else:
            assert said["outcome"] == "unchanged" and said["base"] == said["root"]
            found, answer = self.held[said["root"]], decode_unchanged(text)
            assert kind == "graph-unchanged" and (answer.tool, answer.count) == (found.tool, len(found.symbols))
            assert root_matches(said["root"], answer.pack_root)
        if not any(edge.printed_status for edge in found.edges):  # which is in no root of GCF's
            assert said["root"] == pack_root(found.symbols, found.edges)
        self.held[said["root"]] = found
        return said["outcome"], found, text


@pytest.mark.parametrize("dedup", [None, False, True, "deltas"])
async def test_packs_have_the_three_outcomes(dedup, era):
    values = {"near": pack(range(40))}
    async with era_client(book_server(values, ResultPolicy(deltas=True, dedup=dedup)), era) as peer:
        reader = PackReader(peer)
        for value, outcome in (
            (pack(range(40)), "full"),
            (pack(range(40)), "unchanged"),
            (pack(range(1, 42)), "delta"),
            (pack(range(1, 42)), "unchanged"),
            (pack(range(40)), "delta"),
            (pack(range(50, 90)), "full"),
        ):
            values["near"] = value
            came, found, _ = await reader.get("near")
            assert came == outcome and plain(found) == plain(value)


async def test_packs_by_root(era):
    values = {"near": pack(range(40))}
    async with era_client(book_server(values, ResultPolicy(deltas=True)), era) as peer:
        reader = PackReader(peer)
        await reader.get("near", "")
        root = pack_root(values["near"].symbols, values["near"].edges)
        for written in (root, root[7:19], root[7:15]):
            assert (await reader.get("near", written))[0] == "unchanged"
        values["near"] = pack(range(3, 41))
        came, found, _ = await reader.get("near", root[7:19])
        assert came == "delta" and plain(found) == plain(values["near"])
        for unknown in ("0123456789ab", "x", root[7:14], "reset"):
            came, found, _ = await reader.get("near", unknown)
            assert came == "full" and plain(found) == plain(values["near"])


async def test_whoever_sends_a_full_root_gets_full_roots_that_the_reference_verifies(era):
    values = {"near": pack(range(40))}
    async with era_client(book_server(values, ResultPolicy(deltas=True)), era) as peer:
        base = gcf.decode(first_text(await peer.result_of("near", pack_root="")))
        root = gcf.pack_root(base.symbols, base.edges)
        assert f" unchanged=true pack_root={root} " in first_text(await peer.result_of("near", pack_root=root))
        values["near"] = pack(range(3, 41))
        change = gcf.decode_delta(first_text(await peer.result_of("near", pack_root=root)))
        assert change.base_root == root
        symbols, edges = gcf.verify_delta(
            base.symbols,
            base.edges,
            change.removed,
            change.added,
            change.removed_edges,
            change.added_edges,
            change.new_root,
        )
        assert change.new_root == pack_root(values["near"].symbols, values["near"].edges)
        assert (len(symbols), len(edges)) == (38, 37)
        short = decode_delta(first_text(await peer.result_of("near", pack_root=root[7:19])))
        assert (short.base_root, short.new_root) == (root[7:19], change.new_root[7:19])


async def test_the_handle_of_a_pack_gives_all_of_it(era):
    values = {"near": pack(range(40)), "far": pack(range(20, 60))}
    async with era_client(book_server(values, DEDUP_AND_DELTAS), era) as peer:
        reader = PackReader(peer)
        for value in (pack(range(40)), pack(range(40)), pack(range(2, 42))):
            values["near"] = value
            result = await peer.result_of("near")
            reader.take(result)
            text = await read_by_handle(peer, result_meta(result)["handle"])
            assert plain(decode_pack(text)) == plain(value), "it stands for itself"
        result = await peer.result_of("far")
        assert "# previously transmitted" in first_text(result)
        assert plain(reader.take(result)[1]) == plain(values["far"])
        assert plain(decode_pack(await read_by_handle(peer, result_meta(result)["handle"]))) == plain(values["far"])


async def test_symbols_that_another_tool_sent_are_only_named(era):
    values = {"near": pack(range(40)), "far": pack(range(20, 60))}
    async with era_client(book_server(values), era) as peer:
        reader = PackReader(peer)
        assert plain((await reader.get("near"))[1]) == plain(values["near"])
        _, found, text = await reader.get("far")
        assert plain(found) == plain(values["far"])
        assert len(re.findall(r"^@\d+  # previously transmitted$", text, re.MULTILINE)) == 20
    async with era_client(book_server(values, ResultPolicy(dedup=False, deltas=True)), era) as peer:
        reader = PackReader(peer)
        for tool in ("near", "far"):
            assert "previously" not in (await reader.get(tool))[2]


async def test_reset_declares_symbols_anew():
    values = {"near": pack(range(40)), "far": pack(range(20, 60))}
    async with era_client(book_server(values, DEDUP_AND_DELTAS)) as peer:
        reader = PackReader(peer)
        await reader.get("near")
        came, found, text = await reader.get("far", "reset")
        assert came == "full" and "previously" not in text and plain(found) == plain(values["far"])
        fresh = PackReader(peer)
        assert plain(fresh.take({"content": [{"type": "text", "text": text}], "_meta": meta_of(found)})[1])
        _, found, text = await reader.get("near")
        assert plain(found) == plain(values["near"]) and text.count("previously") == 20


def meta_of(payload: Payload) -> dict[str, Any]:
    root = pack_root(payload.symbols, payload.edges)
    return {"io.github.delta-mcp/result": {"outcome": "full", "root": root, "handle": "x"}}


async def test_packs_of_two_conversations_do_not_mix():
    values = {"near": pack(range(40)), "far": pack(range(20, 60))}
    server = book_server(values, DEDUP_AND_DELTAS)
    async with era_client(server) as one, era_client(server) as other:
        first_reader, second_reader = PackReader(one), PackReader(other)
        await first_reader.get("near")
        _, found, text = await second_reader.get("far")
        assert "previously" not in text and plain(found) == plain(values["far"])
        _, found, text = await first_reader.get("far")
        assert "previously" in text and plain(found) == plain(values["far"])


async def test_many_symbols_at_once_and_at_the_same_time():
    values = {f"tool{n}": pack(range(n * 5, n * 5 + 30)) for n in range(20)}
    async with era_client(book_server(values, DEDUP_AND_DELTAS)) as peer:
        reader = PackReader(peer)
        for turn in range(2):
            for name in values:
                if turn:
                    values[name] = pack(range(3, 40), score=0.5)
                peer.raw.send(
                    id=f"{turn} {name}", method="tools/call", params={"name": name, "arguments": {}, "_meta": META}
                )
            for _ in values:
                answer = await peer.raw.receive()
                name = answer["id"].partition(" ")[2]
                assert plain(reader.take(answer["result"])[1]) == plain(values[name])


@pytest.mark.parametrize(
    "payload",
    [
        Payload(tool="context"),
        pack([1]),
        Payload(tool="context", symbols=[symbol(1)], edges=[Edge(symbol(1).qualified_name, "nowhere", "calls")]),
    ],
)
async def test_small_packs_are_packs_too(payload):
    values = {"near": payload}
    async with era_client(book_server(values, DEDUP_AND_DELTAS)) as peer:
        reader = PackReader(peer)
        for _ in range(2):
            _, found, _ = await reader.get("near")
            assert plain(found)[0] == plain(payload)[0]


async def test_the_status_of_an_edge_is_not_lost():
    """No root and no delta knows it."""
    values = {"near": pack(range(40))}
    async with era_client(book_server(values, DEDUP_AND_DELTAS)) as peer:
        reader = PackReader(peer)
        await reader.get("near")
        edges = list(values["near"].edges)
        edges[3] = Edge(edges[3].source, edges[3].target, edges[3].edge_type, "added")
        values["near"] = Payload(tool="context", symbols=values["near"].symbols, edges=edges)
        came, found, _ = await reader.get("near")
        assert came == "full" and [edge.status for edge in found.edges].count("added") == 1


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["one", "two", "three"]),
            st.lists(st.integers(0, 40), max_size=40, unique=True),
            st.sampled_from([None, None, 0.5]),
            st.sampled_from([None, None, 1]),
            st.sampled_from(["none", "none", "none", "none", "root", "empty", "reset", "forget"]),
        ),
        min_size=2,
        max_size=14,
    ),
    st.sampled_from([True, "deltas"]),
)
@settings(max_examples=examples(150))
def test_a_reader_of_any_sequence_of_packs_has_every_pack(steps, dedup):
    values: dict[str, Any] = {"one": None, "two": None, "three": None}

    async def run() -> None:
        server = book_server(values, ResultPolicy(dedup=dedup, deltas=True))
        async with era_client(server) as peer:
            reader = PackReader(peer)
            for tool, numbers, score, distance, way in steps:
                values[tool] = pack(numbers, score=score, distance=distance)
                root = {"root": next(reversed(reader.held), ""), "empty": "", "reset": "reset"}.get(way)
                if way == "forget":
                    await server._store.close()
                if way == "reset":
                    reader.held.clear()
                result = await peer.result_of(tool, None if root is None else {"pack_root": root})
                _, found, _ = reader.take(result, root)
                assert plain(found) == plain(values[tool])

    asyncio.run(run())
