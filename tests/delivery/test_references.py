"""Rows that refer to rows sent before: only to rows that the caller was shown, and never to a wrong result."""

import copy
from typing import Any

from deltamcp import DeltaServer, ResultPolicy
from deltamcp.results.changes import SEEN_KEY
from deltamcp.results.encode import decode
from deltamcp.values import JSON
from tests.support.book_server import DEDUP_AND_DELTAS, book_server, books
from tests.support.change_reader import read_by_handle
from tests.support.equality import is_same
from tests.support.era_client import era_client, first_text, result_meta, texts

# What callers hold


async def test_rows_that_were_not_shown_are_not_referred_to():
    values: dict[str, Any] = {"all": books(*range(300)), "few": books(250, 251, 252)}
    policy = ResultPolicy(deltas=True, dedup=True, max_tokens=1_000)
    async with era_client(book_server(values, policy), "modern") as peer:
        first = result_meta(await peer.result_of("all"))
        values["all"] = [{**values["all"][0], "title": "Another"}, *values["all"][1:], *books(400)]
        changes = await peer.result_of("all", since=first["handle"])
        assert result_meta(changes)["outcome"] == "delta" and " like " not in first_text(changes)
        assert SEEN_KEY not in first_text(await peer.result_of("few"))


async def test_rows_of_a_projection_are_not_referred_to():
    values: dict[str, Any] = {"open": [{**row, "open": row["id"] % 2 == 0} for row in books(*range(12))], "one": []}
    server = DeltaServer("library", results=DEDUP_AND_DELTAS, conversation="process")

    @server.tool(results=ResultPolicy(fields="[?open].{id: id, title: title, about: about}"))
    async def some() -> Any:
        return copy.deepcopy(values["open"])

    @server.tool
    async def one() -> Any:
        return [{name: row[name] for name in ("id", "title", "about")} for row in values["open"] if row["id"] == 10]

    async with era_client(server, "modern") as peer:
        await peer.result_of("some")
        assert SEEN_KEY not in first_text(await peer.result_of("one"))


async def test_no_reference_leads_to_another_result_of_the_same_name(monkeypatch):
    monkeypatch.setattr(
        "deltamcp.delivery.stored_results.StoredResults._root_names", lambda self, digits: iter(["same0"])
    )
    values: dict[str, Any] = {"a": books(*range(9)), "b": books(*range(20, 29)), "c": books(*range(9))}
    server = book_server(values)
    async with era_client(server, "modern") as peer:
        await peer.result_of("a")
        await peer.result_of("b")  # its name is taken, so it is not kept
        assert result_meta(await peer.result_of("c"))["handle"] == "same0"
        assert is_same(await read_by_handle(peer, "same0"), values["a"])


async def test_a_results_own_mark_is_no_reference():
    value: JSON = {
        "data": "x" * 200,
        "$seen": "q/0",
        "items": [{"id": n, "$seen": f"q/{n}", "of": "y" * 60} for n in (1, 2)],
    }
    async with era_client(book_server({"a": value, "b": value}), "modern") as peer:
        for tool in ("a", "a", "b"):
            assert "references" not in result_meta(await peer.result_of(tool))


async def test_who_holds_nothing_gets_everything_without_references():
    values: dict[str, Any] = {"all": books(*range(12)), "few": books(3, 4, 5)}
    async with era_client(book_server(values), "modern") as peer:
        await peer.result_of("all")
        assert SEEN_KEY in first_text(await peer.result_of("few"))
        for root in ("", "abcdefabcdef"):
            assert SEEN_KEY not in "".join(texts(await peer.result_of("few", pack_root=root)))


async def test_a_reference_is_a_handle_that_continue_takes():
    values: dict[str, Any] = {"all": books(*range(12)), "few": books(3, 4, 5)}
    async with era_client(book_server(values), "modern") as peer:
        handle = result_meta(await peer.result_of("all"))["handle"]
        assert is_same(decode(first_text(await peer.result_of("continue", handle=f"{handle}/3"))), values["all"][3])
