"""Operations that the user must confirm."""

import asyncio
import hashlib
import time
from typing import Any

import pytest

from deltamcp import Context, DeltaServer, Limits
from deltamcp.stores.store import MemoryStore, StoreError
from tests.support.conditions import advance_clock
from tests.support.meta_tools import community_server, first_block_text, meta_tool_client
from tests.support.raw_client import META, RawClient, answer_text, raw_client

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


# The sealed state


def deleting_server(**options: Any) -> tuple[DeltaServer, list[int]]:
    server = DeltaServer("x", **options)
    ran: list[int] = []

    @server.tool(policy="confirm")
    async def delete(id: int) -> str:
        ran.append(id)
        return f"deleted {id}"

    return server, ran


async def ask_to_delete(client: RawClient) -> tuple[dict[str, Any], str]:
    """The answer that accepts, by the key of the question, and the sealed state."""
    asked = (await client.modern("tools/call", name="delete", arguments={"id": 7}))["result"]
    [key] = asked["inputRequests"]
    return {key: {"action": "accept", "content": {}}}, asked["requestState"]


async def test_an_answer_without_the_state_that_asked_for_it_is_asked_for_again():
    server, ran = deleting_server()
    async with raw_client(server) as client:
        answer, _ = await ask_to_delete(client)
        asked = await client.modern("tools/call", name="delete", arguments={"id": 7}, inputResponses=answer)
        assert asked["result"]["resultType"] == "input_required"
        assert list(asked["result"]["inputRequests"]) == list(answer)
    assert ran == []


async def test_state_of_another_question_gives_no_consent():
    async def ask_first(call: Any, call_next: Any) -> Any:
        await call.context.elicit("Well?", {"type": "object", "properties": {}}, key="first")
        return await call_next(call)

    server, ran = deleting_server(middleware=[ask_first])
    async with raw_client(server) as client:
        asked = (await client.modern("tools/call", name="delete", arguments={"id": 7}))["result"]
        assert list(asked["inputRequests"]) == ["first"]
        accepted = {"action": "accept", "content": {}}
        key = "confirm delete " + hashlib.sha256(b'{"id":7}').hexdigest()[:32]
        both = {"first": accepted, key: accepted}
        retry = {
            "name": "delete",
            "arguments": {"id": 7},
            "inputResponses": both,
            "requestState": asked["requestState"],
        }
        asked = (await client.modern("tools/call", **retry))["result"]
        assert (asked["resultType"], list(asked["inputRequests"]), ran) == ("input_required", [key], [])
        retry |= {"inputResponses": {key: accepted}, "requestState": asked["requestState"]}
        assert answer_text(await client.modern("tools/call", **retry)) == "deleted 7"


async def test_a_consent_is_used_once_by_all_replicas():
    store, key = MemoryStore(), b"k" * 32
    first, ran = deleting_server(store=store, state_key=key)
    second, ran_elsewhere = deleting_server(store=store, state_key=key)
    async with raw_client(first) as client, raw_client(second) as other:
        answer, state = await ask_to_delete(client)
        retry = {"name": "delete", "arguments": {"id": 7}, "inputResponses": answer, "requestState": state}
        replies = await asyncio.gather(*(peer.modern("tools/call", **retry) for peer in (client, other)))
        replies.append(await client.modern("tools/call", **retry))
        texts = sorted(answer_text(reply) for reply in replies)
        assert texts[2] == "deleted 7" and all("used before" in text for text in texts[:2])
    assert ran + ran_elsewhere == [7]


async def test_a_consent_that_cannot_be_recorded_is_not_used():
    class FailingStore(MemoryStore):
        async def add(self, *entry: Any) -> bool:
            raise StoreError("the store is gone")

    server, ran = deleting_server(store=FailingStore())
    async with raw_client(server) as client:
        answer, state = await ask_to_delete(client)
        reply = await client.modern(
            "tools/call", name="delete", arguments={"id": 7}, inputResponses=answer, requestState=state
        )
        assert "could not be recorded" in answer_text(reply) and reply["result"]["isError"]
    assert ran == []


async def test_a_consent_expires_although_later_questions_renew_the_state(monkeypatch):
    server = DeltaServer("x", limits=Limits(input_seconds=600))
    ran: list[str] = []

    @server.tool(policy="confirm")
    async def transfer(ctx: Context) -> str:
        answer = await ctx.elicit("How much?", int, key="amount")
        ran.append(answer.action)
        return "done"

    async with raw_client(server) as client:
        asked = (await client.modern("tools/call", name="transfer"))["result"]
        [consent] = asked["inputRequests"]
        accepted = {consent: {"action": "accept", "content": {}}}
        for _ in range(2):  # the state is renewed, and the consent is not
            asked = (
                await client.modern(
                    "tools/call", name="transfer", inputResponses=accepted, requestState=asked["requestState"]
                )
            )["result"]
            assert list(asked["inputRequests"]) == ["amount"]
            accepted = {}
            now = time.time()
            monkeypatch.setattr(time, "time", lambda now=now: now + 400)
        answer = {"amount": {"action": "accept", "content": {"value": 5}}}
        asked = await client.modern(
            "tools/call", name="transfer", inputResponses=answer, requestState=asked["requestState"]
        )
        assert list(asked["result"]["inputRequests"]) == [consent]
    assert ran == []


async def test_a_middleware_that_runs_the_call_again_needs_one_consent():
    async def twice(call: Any, call_next: Any) -> Any:
        await call_next(call)
        return await call_next(call)

    server, ran = deleting_server(middleware=[twice])
    async with raw_client(server) as client:
        answer, state = await ask_to_delete(client)
        retry = {"name": "delete", "arguments": {"id": 7}, "inputResponses": answer, "requestState": state}
        assert answer_text(await client.modern("tools/call", **retry)) == "deleted 7"
        assert "used before" in answer_text(await client.modern("tools/call", **retry))
    assert ran == [7, 7]
