"""Calls through a gateway that the user must confirm, in both eras."""

import json

import pytest

from deltamcp.dialects.modern import CAPABILITIES_KEY
from tests.support.listing_upstream import ListingUpstream, gateway, tool
from tests.support.meta_tools import first_block_text, meta_tool_client
from tests.support.raw_client import META, raw_client

TOOLS = [
    tool("delete", annotations={"destructiveHint": True}),
    tool("add", annotations={"destructiveHint": False}),
    tool("read", annotations={"readOnlyHint": True}),
    tool("both", annotations={"readOnlyHint": True, "destructiveHint": True}),
    tool("unknown"),
]


def server(folder, disclosure="meta", **options):
    upstream = ListingUpstream(folder, "shop", tools=TOOLS)
    return gateway(folder, upstream.config(**options), disclosure=disclosure).server


@pytest.fixture(params=["handshake", "modern"])
def era(request):
    return request.param


@pytest.mark.parametrize("promise", ["never", "auto"])
async def test_a_destructive_call_runs_only_with_the_users_consent(tmp_path, era, promise):
    async with meta_tool_client(server(tmp_path, confirm="destructive", promise=promise), era) as peer:
        call = ("execute", {"operation": "shop.delete", "params": {"id": 7}})
        question, _ = await peer.answer_question("accept", "execute", {"operation": "shop.both", "params": {}})
        assert question == "Run shop.both with {}?"
        question, result = await peer.answer_question("accept", *call)
        assert question == 'Run shop.delete with {"id":7}?'
        assert json.loads(first_block_text(result))["arguments"] == {"id": 7}
        _, refused = await peer.answer_question("decline", *call)
        assert refused["isError"] and "declined to run shop.delete" in first_block_text(refused)
        for name in ("shop.add", "shop.read", "shop.unknown"):
            assert json.loads(await peer.text_of("execute", operation=name))["name"] == name.removeprefix("shop.")


async def test_all_calls_can_need_consent_also_of_plain_tools(tmp_path, era):
    async with meta_tool_client(server(tmp_path, "full", confirm="always"), era) as peer:
        question, result = await peer.answer_question("accept", "read", {})
        assert question == "Run shop.read with {}?" and not result.get("isError")


async def test_the_question_shows_hidden_characters_and_says_what_it_leaves_out(tmp_path, era):
    async with meta_tool_client(server(tmp_path, confirm="destructive"), era) as peer:
        arguments = {"path": "a\u202eb", "text": "x" * 5000, "z": "/etc"}
        question, _ = await peer.answer_question("accept", "execute", {"operation": "shop.delete", "params": arguments})
    assert "a\\u202eb" in question and "\u202e" not in question
    assert question.endswith("more characters are not shown)?") and len(question) < 1200


async def test_a_client_that_cannot_ask_is_told(tmp_path, era):
    async with raw_client(server(tmp_path, confirm="destructive")) as raw:
        if era == "handshake":
            await raw.handshake("2025-11-25")
            answer = await raw.call("tools/call", name="execute", arguments={"operation": "shop.delete"})
        else:
            meta = {**META, CAPABILITIES_KEY: {}}
            answer = await raw.call("tools/call", name="execute", arguments={"operation": "shop.delete"}, _meta=meta)
    (text,) = [one["text"] for one in answer["result"]["content"]]
    assert answer["result"]["isError"]
    assert "Ask the user, and do not answer yourself:\n- Run shop.delete with {}? (confirm: true or false)" in text
