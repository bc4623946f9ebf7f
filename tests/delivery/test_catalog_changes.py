"""Changes of the catalog, which `discover`, resources and the manifest report to clients."""

import json
from typing import Any

import pytest

from deltamcp import DeltaServer
from deltamcp.deltas.delta import apply_delta
from deltamcp.tokens import count
from tests.support.bytes_client import modern_params
from tests.support.change_reader import (
    CHANGED_SINCE,
    HANDLE,
    ROOT_PATTERN,
    UNCHANGED_AS,
    UNCHANGED_TOKENS,
    whole_value,
)
from tests.support.equality import is_same
from tests.support.era_client import (
    RESULT_KEY,
    EraClient,
    compact_json,
    era_client,
    first_text,
    result_meta,
    texts,
    token_cost,
)
from tests.support.raw_client import raw_client

# The catalog


def cards(**options: Any) -> DeltaServer:
    server = DeltaServer("cards", disclosure="meta", **{"conversation": "process", **options})
    for number in range(30):
        add_card(server, number)
    return server


def add_card(server: DeltaServer, number: int) -> None:
    async def act(text: str, times: int = 1) -> str:
        return text * times

    name = f"act_{number}"
    server.tool(name=name, category=f"group{number % 4}", action=name, summary=f"Does what number {number} does.")(act)


DISCOVERED: list[dict[str, Any]] = [
    {},
    {"detail": "brief"},
    {"detail": "full"},
    {"category": "group1", "detail": "brief"},
]


async def test_discover_tells_what_changed_in_the_catalog(era):
    server = cards()
    async with era_client(server, era) as peer:
        for extra in DISCOVERED:
            one = await peer.result_of("discover", pack_root="", **extra)
            said = result_meta(one)
            assert said["outcome"] == "full" and HANDLE.search(texts(one)[-1])
            same_again = await peer.result_of("discover", pack_root=said["root"][7:19], **extra)
            assert result_meta(same_again)["outcome"] == "unchanged" and UNCHANGED_AS.fullmatch(first_text(same_again))
    number = 101
    for extra in DISCOVERED[:3]:
        async with era_client(server, era) as peer:
            one = await peer.result_of("discover", pack_root="", **extra)
            add_card(server, number)
            two = await peer.result_of("discover", pack_root=result_meta(one)["root"], **extra)
            full = await peer.result_of("discover", pack_root="", **extra)
            assert result_meta(two)["outcome"] == "delta" and result_meta(two)["root"] == result_meta(full)["root"]
            assert CHANGED_SINCE.fullmatch(first_text(two).partition("\n")[0]) and token_cost(two) < 0.6 * token_cost(
                full
            )
            base, new = (whole_value(result) for result in (one, full))
            assert is_same(apply_delta(base, first_text(two).partition("\n")[2]), new)
        number += 4


async def read(peer: EraClient, uri: str, root: str | None) -> tuple[dict[str, Any], dict[str, Any]]:
    """What a resource holds, and what programs are told of it."""
    answer = await peer.ask("resources/read", None if root is None else {RESULT_KEY: {"pack_root": root}}, uri=uri)
    [content] = answer["result"]["contents"]
    assert content["uri"] == uri
    return content, content.get("_meta", {}).get(RESULT_KEY) or answer["result"].get("_meta", {}).get(RESULT_KEY, {})


async def test_programs_are_told_in_the_meta_of_the_reply(era):
    async with era_client(cards(), era) as peer:
        uri = "cards://operations/index"
        _, said = await read(peer, uri, "")
        for root in ("", said["root"]):
            answer = await peer.ask("resources/read", {RESULT_KEY: {"pack_root": root}}, uri=uri)
            assert {"outcome", "root"} <= set(answer["result"]["_meta"][RESULT_KEY])


@pytest.mark.parametrize("uri", ["cards://operations/index", "cards://operations/group1"])
async def test_resources_of_the_catalog_tell_what_changed(uri, era):
    server = cards()
    async with era_client(server, era) as peer:
        plain, said = await read(peer, uri, None)
        assert "outcome" not in said and plain["mimeType"] == "application/json"
        content, said = await read(peer, uri, "")
        assert said["outcome"] == "full" and content["text"] == plain["text"] and ROOT_PATTERN.fullmatch(said["root"])
        base, root = json.loads(content["text"]), said["root"]
        content, said = await read(peer, uri, root)
        assert (said["outcome"], said["root"], said["base"]) == ("unchanged", root, root)
        assert content["mimeType"] == "text/plain" and count(content["text"]) <= UNCHANGED_TOKENS
        assert UNCHANGED_AS.fullmatch(content["text"])
        add_card(server, 101)
        content, said = await read(peer, uri, root[7:19])
        assert (said["outcome"], said["base"]) == ("delta", root) and content["mimeType"] == "text/plain"
        new, told = await read(peer, uri, "")
        assert told["root"] == said["root"] and told["outcome"] == "full"
        head, _, body = content["text"].partition("\n")
        assert CHANGED_SINCE.fullmatch(head) and is_same(apply_delta(base, body), json.loads(new["text"]))
        assert count(content["text"]) < 0.6 * count(new["text"])
        for garbled in ("0123456789ab", "x", "sha256:"):
            content, said = await read(peer, uri, garbled)
            assert said["outcome"] == "full" and content["text"] == new["text"]


async def test_the_manifest_tells_what_changed():
    server = cards()
    async with raw_client(server) as raw:

        async def manifest(root: str | None) -> tuple[list[Any], dict[str, Any]]:
            params = modern_params()
            if root is not None:
                params["_meta"][RESULT_KEY] = {"pack_root": root}
            result = (await raw.call("tools/manifest", **params))["result"]
            return result["entries"], result.get("_meta", {}).get(RESULT_KEY, {})

        plain, said = await manifest(None)
        assert "outcome" not in said
        entries, said = await manifest("")
        assert entries == plain and said["outcome"] == "full"
        root = said["root"]
        unchanged, said = await manifest(root)
        assert unchanged == [] and (said["outcome"], said["root"], said["base"]) == ("unchanged", root, root)
        assert UNCHANGED_AS.fullmatch(said["text"]) and count(said["text"]) <= UNCHANGED_TOKENS
        add_card(server, 101)
        none, said = await manifest(root)
        assert none == [] and (said["outcome"], said["base"]) == ("delta", root)
        head, _, body = said["text"].partition("\n")
        new, told = await manifest("0123456789ab")
        assert told["outcome"] == "full" and told["root"] == said["root"]
        assert CHANGED_SINCE.fullmatch(head) and is_same(apply_delta(entries, body), new)
        assert count(said["text"]) < 0.2 * count(compact_json(new))
