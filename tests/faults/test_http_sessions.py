"""Sessions over HTTP: unknown, missing, deleted, and kept apart from each other."""

import asyncio
import contextlib
import json
from typing import Any

import pytest

from tests.support.conditions import HANG_SECONDS, wait_until
from tests.support.http_faults import (
    LEGACY,
    FaultServer,
    HttpWire,
    call_params,
    initialize,
    message,
    notification,
    open_session,
    open_stream,
    request_bytes,
    send_http,
)

# Sessions


@pytest.mark.parametrize("id_", ["nobody", "0" * 32, "../../etc/passwd", "x" * 10_000, "\xff\xfe", "a b"])
@pytest.mark.parametrize("verb", ["POST", "GET", "DELETE"])
async def test_an_unknown_session_gets_404(served: FaultServer, verb: str, id_: str) -> None:
    headers: dict[str, str | None] = {"Mcp-Session-Id": id_, "MCP-Protocol-Version": LEGACY}
    if verb == "GET":
        headers["Accept"] = "text/event-stream"
    reply = await send_http(served.port, message("ping", {}) if verb == "POST" else None, headers, verb)
    assert reply.status == 404
    assert reply.error()


@pytest.mark.parametrize("verb", ["POST", "GET", "DELETE"])
async def test_a_missing_session_gets_400(served: FaultServer, verb: str) -> None:
    headers: dict[str, str | None] = {"MCP-Protocol-Version": LEGACY}
    if verb == "GET":
        headers["Accept"] = "text/event-stream"
    reply = await send_http(served.port, message("tools/list", {}) if verb == "POST" else None, headers, verb)
    assert reply.status == 400
    assert reply.error()


async def test_a_deleted_session_is_gone_for_every_method(served: FaultServer) -> None:
    headers = await open_session(served.port)
    assert (await send_http(served.port, None, headers, "DELETE")).status in {200, 202, 204}
    for verb, body in (("POST", message("ping", {})), ("GET", None), ("DELETE", None)):
        accept = {"Accept": "text/event-stream"} if verb == "GET" else {}
        assert (await send_http(served.port, body, {**headers, **accept}, verb)).status == 404, verb


async def test_deleting_a_session_ends_its_calls_and_its_streams(served: FaultServer) -> None:
    headers = await open_session(served.port)
    async with HttpWire.open(served.port) as call, HttpWire.open(served.port) as stream:
        await stream.send(request_bytes(served.port, None, {**headers, "Accept": "text/event-stream"}, "GET"))
        assert (await stream.head())[0] == 200
        await call.send(
            request_bytes(
                served.port, message("tools/call", call_params("async_sleep", seconds=60, tag="deleted")), headers
            )
        )
        await wait_until(lambda: "started deleted" in served.trace_lines(), "the call")
        assert (await send_http(served.port, None, headers, "DELETE")).status in {200, 202, 204}
        await wait_until(lambda: "cancelled deleted" in served.trace_lines(), "its end")
        while await stream.chunk():
            pass
        assert "result" not in (await call.reply()).json()


@pytest.mark.parametrize("version", ["1999-01-01", "nonsense", "", "2026-07-28", "x" * 5_000, "2025-11-25, 2026-07-28"])
async def test_a_session_refuses_a_version_it_cannot_speak(served: FaultServer, version: str) -> None:
    headers = {**await open_session(served.port), "MCP-Protocol-Version": version}
    reply = await send_http(served.port, message("tools/list", {}), headers)
    if version:
        assert reply.status == 400
        assert reply.error()
    else:
        assert reply.status in {200, 400}


INITIALIZE: dict[str, dict[str, Any]] = {
    "no params": {},
    "version a number": {"protocolVersion": 1, "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}},
    "no version": {"capabilities": {}, "clientInfo": {"name": "x", "version": "1"}},
    "capabilities an array": {"protocolVersion": LEGACY, "capabilities": [], "clientInfo": {"name": "x"}},
}


@pytest.mark.parametrize("case", INITIALIZE)
async def test_an_initialize_that_says_too_little_opens_no_session(served: FaultServer, case: str) -> None:
    reply = await send_http(served.port, message("initialize", INITIALIZE[case]), {})
    assert reply.error()["code"] == -32602, reply
    assert "mcp-session-id" not in reply.headers


async def test_an_unknown_version_is_answered_with_one_the_server_has(served: FaultServer) -> None:
    opened = await initialize(served.port, "1999-01-01")
    assert opened.result()["protocolVersion"] == LEGACY


async def test_one_session_cannot_read_the_stream_of_another(served: FaultServer) -> None:
    owner, thief = await open_session(served.port), await open_session(served.port)
    async with HttpWire.open(served.port) as wire:
        params = {**call_params("speak", seconds=0.5, tag="private"), "_meta": {"progressToken": "t"}}
        await wire.send(request_bytes(served.port, message("tools/call", params), owner))
        assert (await wire.head())[1]["content-type"] == "text/event-stream"
        raw = b""
        while b"progress" not in raw:
            raw += await wire.chunk()
        ids = [line[3:].strip().decode() for line in raw.split(b"\n") if line.startswith(b"id:")]
    assert ids
    async with HttpWire.open(served.port) as wire:
        headers = {**thief, "Accept": "text/event-stream", "Last-Event-ID": ids[0]}
        await wire.send(request_bytes(served.port, None, headers, "GET"))
        status, _ = await wire.head()
        await wait_until(lambda: "finished private" in served.trace_lines(), "the owner's call")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.5):
                while status == 200 and (piece := await wire.chunk()):
                    assert b"private" not in piece


async def asking(wire: HttpWire, port: int, id_: Any) -> tuple[dict[str, str | None], Any]:
    """A session in which a tool has asked its question, and the question."""
    opened = await initialize(port, capabilities={"elicitation": {}})
    headers: dict[str, str | None] = {"Mcp-Session-Id": opened.headers["mcp-session-id"]}
    await send_http(port, notification("notifications/initialized", {}), headers)
    await wire.send(request_bytes(port, message("tools/call", call_params("ask"), id_), headers))
    await wire.head()
    question = await wire.event()
    assert question["method"] == "elicitation/create"
    return headers, question


async def test_one_session_cannot_answer_the_questions_of_another(served: FaultServer) -> None:
    async with HttpWire.open(served.port) as wire:
        owner, question = await asking(wire, served.port, 61)
        yes = {"jsonrpc": "2.0", "id": question["id"], "result": {"action": "accept", "content": {"ok": True}}}
        no = {"jsonrpc": "2.0", "id": question["id"], "result": {"action": "decline"}}
        await send_http(served.port, json.dumps(yes).encode(), await open_session(served.port))
        await send_http(served.port, json.dumps(no).encode(), owner)
        found = await wire.event()
    assert found["id"] == 61
    assert found["result"]["content"][0]["text"] == "user said decline"


ANSWERS: dict[str, Any] = {
    "an error": {"error": {"code": -1, "message": "no user here"}},
    "an error that is none": {"error": "no"},
    "a result that is none": {"result": 7},
    "an empty result": {"result": {}},
    "an unknown action": {"result": {"action": "explode"}},
    "content of another shape": {"result": {"action": "accept", "content": {"ok": "perhaps", "more": [1]}}},
    "no content": {"result": {"action": "accept"}},
}


@pytest.mark.parametrize("case", ANSWERS)
async def test_an_answer_that_is_none_fails_the_tool_and_not_the_server(served: FaultServer, case: str) -> None:
    async with HttpWire.open(served.port) as wire:
        owner, question = await asking(wire, served.port, 62)
        answer = json.dumps({"jsonrpc": "2.0", "id": question["id"], **ANSWERS[case]}).encode()
        told = await send_http(served.port, answer, owner)
        if told.status == 400:
            assert told.error()["code"] == -32600
            return
        found = await wire.event()
    assert found["id"] == 62
    assert "error" in found or found["result"].get("isError") is True, found
    assert (await send_http(served.port, message("ping", {}), owner)).result() == {}


async def test_two_streams_of_one_session_do_not_both_carry_a_message(served: FaultServer) -> None:
    headers = await open_session(served.port)
    async with HttpWire.open(served.port) as one, HttpWire.open(served.port) as two:
        await open_stream(one, served.port, headers)
        await two.send(request_bytes(served.port, None, {**headers, "Accept": "text/event-stream"}, "GET"))
        if (await two.head())[0] != 200:
            return
        await send_http(served.port, message("tools/call", call_params("announce")), headers)
        tasks = [asyncio.create_task(wire.event()) for wire in (one, two)]
        await asyncio.wait(tasks, timeout=HANG_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        await asyncio.wait(tasks, timeout=0.3)
        heard = [task.result() for task in tasks if task.done() and task.result()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    assert len(heard) == 1


@pytest.mark.parametrize("last", ["nonsense", "-1", "9" * 40, "../1", "0", "\xff", "a" * 5_000])
async def test_an_event_id_nobody_gave_out_harms_nothing(served: FaultServer, last: str) -> None:
    headers = {**await open_session(served.port), "Accept": "text/event-stream", "Last-Event-ID": last}
    async with HttpWire.open(served.port) as wire:
        await wire.send(request_bytes(served.port, None, headers, "GET"))
        status, _ = await wire.head()
    assert status in {200, 400, 404, 409}
    assert (await send_http(served.port, message("ping", {}), {**headers, "Accept": "application/json"})).status == 200
