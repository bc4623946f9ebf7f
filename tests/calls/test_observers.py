"""Observers of calls: the events they receive, and calls whose observers fail."""

import asyncio
from typing import Any

import pytest

from deltamcp import DeltaServer, ObservedCall, ResultPolicy, ToolError
from deltamcp.errors import Fault
from deltamcp.values import Answer, Failure, InputRequired
from tests.support.raw_client import answer_text, raw_client


class Recorder:
    """Records the calls it is told of."""

    is_active = True

    def __init__(self) -> None:
        self.started: list[str] = []
        self.finished: list[ObservedCall] = []
        self.starts, self.ends = asyncio.Event(), asyncio.Event()

    def call_started(self, call: ObservedCall) -> None:
        self.started.append(call.name)
        self.starts.set()

    def call_finished(self, call: ObservedCall) -> None:
        self.finished.append(call)
        self.ends.set()


class Broken(Recorder):
    def call_started(self, call: ObservedCall) -> None:
        raise RuntimeError("an observer's own fault")

    call_finished = call_started


def shop(*observers: Any, **options: Any) -> DeltaServer:
    server = DeltaServer("shop", observers=observers, **options)

    @server.tool(category="orders", annotations={"readOnlyHint": True})
    async def rows(count: int = 300) -> list[dict[str, Any]]:
        return [{"id": number, "title": f"Order {number}"} for number in range(count)]

    @server.tool
    async def refuse() -> str:
        raise ToolError("No.")

    @server.tool
    async def ask(ctx: Any = None) -> str:
        return "asked"

    @server.tool
    async def wait() -> str:
        await asyncio.sleep(3600)
        return "never"

    return server


async def test_an_observer_is_told_who_called_what_and_what_came_of_it():
    seen = Recorder()
    async with raw_client(shop(seen)) as client:
        await client.modern("tools/call", name="rows", arguments={"count": 2})
        await client.modern("tools/call", name="refuse", arguments={})
    assert seen.started == ["orders.rows", "refuse"]
    call, refused = seen.finished
    assert (call.name, call.is_known, call.arguments) == ("orders.rows", True, {"count": 2})
    assert call.caller.principal.id == "local" and call.caller.connection
    assert isinstance(call.outcome, Answer) and call.seconds > 0
    assert isinstance(refused.outcome, Answer) and refused.outcome.value.is_error  # type: ignore[union-attr]
    assert refused.tokens_before is None and refused.tokens_after == 2


async def test_tokens_are_those_of_the_whole_result_and_of_what_was_sent():
    seen = Recorder()
    async with raw_client(shop(seen, results=ResultPolicy(max_tokens=200))) as client:
        await client.modern("tools/call", name="rows", arguments={})
    call = seen.finished[0]
    assert call.tokens_before is not None and call.tokens_before > 3_000
    assert call.tokens_after is not None and 0 < call.tokens_after <= 200


async def test_a_call_behind_a_meta_tool_is_the_operations_call():
    seen = Recorder()
    async with raw_client(shop(seen, disclosure="meta")) as client:
        await client.modern(
            "tools/call", name="execute", arguments={"operation": "orders.rows", "params": {"count": 1}}
        )
        await client.modern("tools/call", name="execute", arguments={"operation": "orders.none"})
    assert [(call.name, call.is_known) for call in seen.finished] == [("orders.rows", True), ("orders.none", False)]


@pytest.mark.parametrize("name", ["x" * 100_000, [["x"]] * 10_000])
async def test_an_unknown_name_is_told_in_part(name):
    seen = Recorder()
    async with raw_client(shop(seen, disclosure="meta")) as client:
        await client.modern("tools/call", name="execute", arguments={"operation": name})
    assert len(seen.finished[0].name) <= 256


async def test_a_call_of_an_unknown_tool_is_told_as_one():
    seen = Recorder()
    async with raw_client(shop(seen)) as client:
        await client.modern("tools/call", name="nothing", arguments={})
    call = seen.finished[0]
    assert not call.is_known and call.name == "nothing"
    assert isinstance(call.outcome, Failure) and call.outcome.fault is Fault.NOT_FOUND


async def test_a_cancelled_call_has_no_outcome():
    seen = Recorder()
    async with raw_client(shop(seen)) as client:
        await client.handshake()
        client.send(id=99, method="tools/call", params={"name": "wait", "arguments": {}})
        await seen.starts.wait()
        client.send(method="notifications/cancelled", params={"requestId": 99})
        await seen.ends.wait()
    assert seen.finished[0].outcome is None


async def test_a_question_to_the_user_is_an_outcome_too():
    seen = Recorder()
    server = shop(seen)

    @server.tool(policy="confirm")
    async def delete() -> str:
        return "deleted"

    async with raw_client(server) as client:
        await client.modern("tools/call", name="delete", arguments={})
    assert isinstance(seen.finished[0].outcome, InputRequired)


async def test_an_observer_that_fails_is_logged_and_harms_nobody(caplog):
    seen = Recorder()
    async with raw_client(shop(Broken(), seen)) as client:
        answer = await client.modern("tools/call", name="rows", arguments={"count": 1})
    assert answer_text(answer) == '[{"id":0,"title":"Order 0"}]'
    assert len(seen.finished) == 1
    assert caplog.text.count("an observer failed") == 2


async def test_an_observer_that_is_not_active_is_told_nothing():
    seen = Recorder()
    seen.is_active = False
    async with raw_client(shop(seen)) as client:
        await client.modern("tools/call", name="rows", arguments={"count": 1})
        assert not seen.started and not seen.finished
        seen.is_active = True
        await client.modern("tools/call", name="rows", arguments={"count": 1})
    assert len(seen.finished) == 1


@pytest.mark.parametrize("value", [b"bytes", {"a": float("nan")}])
async def test_a_result_that_cannot_be_sent_has_no_tokens_before(value):
    seen = Recorder()
    server = shop(seen)

    @server.tool
    async def odd() -> Any:
        return value

    async with raw_client(server) as client:
        await client.modern("tools/call", name="odd", arguments={})
    assert seen.finished[0].tokens_before is None
