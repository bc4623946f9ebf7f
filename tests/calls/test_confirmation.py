"""Operations that the user must confirm."""

import asyncio
from typing import Any

import pytest

from deltamcp import DeltaServer
from tests.support.conditions import advance_clock
from tests.support.meta_tools import community_server, first_block_text, meta_tool_client
from tests.support.raw_client import META, answer_text, raw_client

# Policy

CALLS_TO_DELETE: dict[str, tuple[str, dict[str, Any]]] = {
    "execute": ("execute", {"operation": "posts.delete", "params": {"id": 7}}),
    "execute by name": ("execute", {"operation": "delete_post", "params": {"id": 7}}),
    "execute repaired": ("execute", {"name": "posts.delete", "id": 7}),
    "flat": ("delete_post", {"id": 7}),
}


@pytest.mark.parametrize("way", CALLS_TO_DELETE)
@pytest.mark.parametrize("action", ["accept", "decline", "cancel"])
async def test_an_operation_to_be_confirmed_runs_only_when_the_user_accepts(way, action, era):
    server = community_server()
    async with meta_tool_client(server, era) as peer:
        question, result = await peer.answer_question(action, *CALLS_TO_DELETE[way])
    assert "posts.delete" in question and "7" in question
    if action == "accept":
        assert first_block_text(result) == "deleted 7" and not result.get("isError")
        assert server.ran == [("posts.delete", 7)]  # type: ignore[attr-defined]
    else:
        assert result["isError"] is True
        assert server.ran == []  # type: ignore[attr-defined]


async def test_wrong_params_are_refused_before_the_user_is_asked(era):
    async with meta_tool_client(community_server(), era) as peer:
        assert "integer" in await peer.refusal_of("execute", operation="posts.delete", params={"id": "x"})
        assert "integer" in await peer.refusal_of("delete_post", id="x")


async def test_consent_to_one_call_is_none_to_another():
    server = community_server()
    async with meta_tool_client(server) as peer:
        asked = (await peer.ask("tools/call", name="execute", arguments=CALLS_TO_DELETE["execute"][1]))["result"]
        [key] = asked["inputRequests"]
        replayed = await peer.ask(
            "tools/call",
            name="execute",
            arguments={"operation": "posts.delete", "params": {"id": 8}},
            inputResponses={key: {"action": "accept", "content": {}}},
            requestState=asked["requestState"],
        )
        assert "error" in replayed or replayed["result"].get("resultType") == "input_required"
    assert server.ran == []  # type: ignore[attr-defined]


async def test_who_cannot_be_asked_cannot_confirm():
    server = community_server()
    async with raw_client(server) as raw:
        await raw.handshake()
        arguments = {"operation": "posts.delete", "params": {"id": 7}}
        assert (await raw.call("tools/call", name="execute", arguments=arguments))["result"]["isError"] is True
        bare = {**META, "io.modelcontextprotocol/clientCapabilities": {}}
        refused = await raw.call("tools/call", name="execute", arguments=arguments, _meta=bare)
        assert "error" in refused or refused["result"]["isError"] is True
    assert server.ran == []  # type: ignore[attr-defined]


async def test_a_confirmed_operation_has_its_deadline():
    server = DeltaServer("x")

    @server.tool(policy="confirm", timeout=60)
    async def wait() -> str:
        started.set()
        await asyncio.Event().wait()
        return "never"

    started = asyncio.Event()
    async with raw_client(server) as client:
        await client.handshake(elicitation={})
        client.send(id="c", method="tools/call", params={"name": "wait"})
        question = await client.receive()
        client.send(id=question["id"], result={"action": "accept", "content": {}})
        await started.wait()
        advance_clock(90)
        assert "took too long" in answer_text(await client.receive())
