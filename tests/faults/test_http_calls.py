"""Calls over HTTP and how they end: answered, cancelled, timed out, failed."""

import asyncio
from typing import Any

import pytest

from tests.support.conditions import wait_until
from tests.support.http_faults import (
    META,
    SECRET,
    FaultServer,
    HttpEra,
    HttpWire,
    both_eras,
    call_params,
    in_modern,
    message,
    modern_headers,
    notification,
    open_session,
    parse_events,
    request_bytes,
    send_http,
    still_serves,
)

# Calls and their ends


@both_eras
@pytest.mark.parametrize("accept", ["application/json, text/event-stream", "text/event-stream, application/json"])
async def test_a_client_that_leaves_cancels_its_call(served: FaultServer, era: HttpEra, accept: str) -> None:
    """Where a stream was asked for but has not begun, a handshake client cannot come back either."""
    tag = f"leaves-{era.name}-{accept[:4]}"
    params = call_params("async_sleep", seconds=60, tag=tag)
    if not era.modern and accept.startswith("text/event-stream"):
        pytest.skip("a stream that has begun can be resumed")
    async with HttpWire.open(served.port) as wire:
        headers = {**await era.headers(served.port, "tools/call", params), "Accept": accept}
        await wire.send(request_bytes(served.port, era.body("tools/call", params), headers))
        await wait_until(lambda: f"started {tag}" in served.trace_lines(), "the call")
    await wait_until(lambda: f"cancelled {tag}" in served.trace_lines(), "its end")


async def test_a_modern_client_that_leaves_a_stream_cancels_its_call(served: FaultServer) -> None:
    params = {**call_params("speak", seconds=60, tag="streamed"), "_meta": {"progressToken": 1}}
    async with HttpWire.open(served.port) as wire:
        await wire.send(
            request_bytes(served.port, in_modern.body("tools/call", params), modern_headers("tools/call", params))
        )
        assert (await wire.head())[1]["content-type"] == "text/event-stream"
        assert (await wire.event())["method"] == "notifications/progress"
    await wait_until(lambda: "cancelled streamed" in served.trace_lines(), "its end")


async def test_a_handshake_client_that_loses_its_stream_comes_back_for_the_answer(served: FaultServer) -> None:
    headers = await open_session(served.port)
    async with HttpWire.open(served.port) as wire:
        params = {**call_params("speak", seconds=0.5, tag="resumed"), "_meta": {"progressToken": 1}}
        await wire.send(request_bytes(served.port, message("tools/call", params, 31), headers))
        await wire.head()
        raw = b""
        while b"progress" not in raw:
            raw += await wire.chunk()
    ids = [line[3:].strip().decode() for line in raw.split(b"\n") if line.startswith(b"id:")]
    async with HttpWire.open(served.port) as wire:
        again = {**headers, "Accept": "text/event-stream", "Last-Event-ID": ids[-1]}
        await wire.send(request_bytes(served.port, None, again, "GET"))
        assert (await wire.head())[0] == 200
        found = await wire.event()
    assert found["id"] == 31
    assert found["result"]["content"][0]["text"] == "spoke resumed"


async def test_a_client_that_comes_back_late_gets_the_last_events_and_the_answer(served: FaultServer) -> None:
    """More was said meanwhile than is kept."""
    headers = await open_session(served.port)
    async with HttpWire.open(served.port) as wire:
        params = {**call_params("chatty", count=2_000, tag="chatty"), "_meta": {"progressToken": 1}}
        await wire.send(request_bytes(served.port, message("tools/call", params, 32), headers))
        await wire.head()
        raw = b""
        while b"progress" not in raw:
            raw += await wire.chunk()
    (first, *_) = [line[3:].strip().decode() for line in raw.split(b"\n") if line.startswith(b"id:")]
    await wait_until(lambda: "finished chatty" in served.trace_lines(), "the end of the call")
    async with HttpWire.open(served.port) as wire:
        again = {**headers, "Accept": "text/event-stream", "Last-Event-ID": first}
        await wire.send(request_bytes(served.port, None, again, "GET"))
        status, _ = await wire.head()
        assert status == 200
        found = b""
        while b"said chatty" not in found:
            found += await wire.chunk()
    steps = [event["params"]["progress"] for event in parse_events(found) if "params" in event]
    assert steps == sorted(set(steps)), "in order, none twice"
    assert len(steps) < 1_000, "not all of them are kept"


async def test_a_cancelled_call_is_cancelled(served: FaultServer) -> None:
    headers = await open_session(served.port)
    async with HttpWire.open(served.port) as wire:
        params = call_params("async_sleep", seconds=60, tag="told")
        await wire.send(request_bytes(served.port, message("tools/call", params, 41), headers))
        await wait_until(lambda: "started told" in served.trace_lines(), "the call")
        told = await send_http(served.port, notification("notifications/cancelled", {"requestId": 41}), headers)
        assert told.status == 202
        await wait_until(lambda: "cancelled told" in served.trace_lines(), "its end")
        reply = await wire.reply()
    assert b'"result"' not in reply.body
    assert (await send_http(served.port, message("ping", {}), headers)).result() == {}


async def test_a_cancelled_stream_ends(served: FaultServer) -> None:
    headers = await open_session(served.port)
    async with HttpWire.open(served.port) as wire:
        params = {**call_params("speak", seconds=60, tag="told-stream"), "_meta": {"progressToken": 1}}
        await wire.send(request_bytes(served.port, message("tools/call", params, 42), headers))
        await wire.head()
        assert (await wire.event())["method"] == "notifications/progress"
        await send_http(served.port, notification("notifications/cancelled", {"requestId": 42}), headers)
        await wait_until(lambda: "cancelled told-stream" in served.trace_lines(), "its end")
        while last := await wire.event():
            assert "result" not in last


@pytest.mark.parametrize("sender", ["modern", "another session", "the same session, another type"])
async def test_a_call_is_cancelled_by_its_own_client_only(served: FaultServer, sender: str) -> None:
    tag = "safe-" + sender.split()[0] + sender.split()[-1]
    owner = await open_session(served.port)
    async with HttpWire.open(served.port) as wire:
        params = call_params("async_wait", tag=tag)
        await wire.send(request_bytes(served.port, message("tools/call", params, 1), owner))
        await wait_until(lambda: f"started {tag}" in served.trace_lines(), "the call")
        if sender == "modern":
            body = notification("notifications/cancelled", {"requestId": 1, "_meta": META})
            await send_http(served.port, body, modern_headers("notifications/cancelled", {}))
        elif sender == "another session":
            other = await open_session(served.port)
            await send_http(served.port, notification("notifications/cancelled", {"requestId": 1}), other)
        else:
            for odd in ("1", True, [1], {"1": 1}):
                await send_http(served.port, notification("notifications/cancelled", {"requestId": odd}), owner)
        served.release(tag)
        assert (await wire.reply()).text() == f"waited {tag}"


async def test_modern_calls_are_not_cancelled_by_a_notification_of_a_stranger(served: FaultServer) -> None:
    params = call_params("async_wait", tag="stranger")
    async with HttpWire.open(served.port) as wire:
        await wire.send(
            request_bytes(served.port, in_modern.body("tools/call", params, 1), modern_headers("tools/call", params))
        )
        await wait_until(lambda: "started stranger" in served.trace_lines(), "the call")
        body = notification("notifications/cancelled", {"requestId": 1, "_meta": META})
        await send_http(served.port, body, modern_headers("notifications/cancelled", {}))
        served.release("stranger")
        assert (await wire.reply()).text() == "waited stranger"


async def test_the_second_of_two_calls_with_one_id_is_refused_and_the_first_answered(served: FaultServer) -> None:
    headers = await open_session(served.port)
    async with HttpWire.open(served.port) as wire:
        params = call_params("async_wait", tag="first")
        await wire.send(request_bytes(served.port, message("tools/call", params, 51), headers))
        await wait_until(lambda: "started first" in served.trace_lines(), "the call")
        second = await send_http(served.port, message("tools/call", call_params("add", a=671, b=1), 51), headers)
        assert second.error()["code"] == -32600
        served.release("first")
        first = await wire.reply()
    assert first.text() == "waited first"
    assert first.json()["id"] == 51
    assert "add 671 1" not in served.trace_lines()


@pytest.mark.parametrize("era", ["modern", "two sessions", "one session, two types"])
async def test_ids_that_only_look_the_same_are_both_answered(served: FaultServer, era: str) -> None:
    one = await open_session(served.port)
    two = one if "types" in era else await open_session(served.port)
    tag = f"same-{era.split()[-1]}"
    params = call_params("async_sleep", seconds=0.4, tag=tag)
    bodies: list[tuple[bytes, dict[str, str | None]]]
    if era == "modern":
        bodies = [(in_modern.body("tools/call", params, 1), modern_headers("tools/call", params))] * 2
    else:
        bodies = [
            (message("tools/call", params, 1), one),
            (message("tools/call", params, "1" if "types" in era else 1), two),
        ]
    replies = await asyncio.gather(*(send_http(served.port, body, headers) for body, headers in bodies))
    assert [reply.text() for reply in replies] == [f"slept {tag}"] * 2


@both_eras
async def test_60_waiting_threads_hold_up_no_other_call(served: FaultServer, era: HttpEra) -> None:
    headers = await era.headers(served.port, "tools/call", call_params("plain_wait"))
    finished: list[int] = []

    async def wait(number: int) -> None:
        params = call_params("plain_wait", tag=f"thread-{era.name}-{number}")
        reply = await send_http(served.port, era.body("tools/call", params), headers)
        assert reply.text() == f"waited thread-{era.name}-{number}"
        finished.append(number)

    tasks = [asyncio.create_task(wait(number)) for number in range(60)]
    await wait_until(
        lambda: sum(f"started thread-{era.name}" in line for line in served.trace_lines()) >= 8, "the pool"
    )
    for _ in range(3):
        assert (await era.call(served.port, "add", a=1, b=2)).text() == "3"
    assert not finished, "add did not wait for the threads"
    for number in range(60):
        served.release(f"thread-{era.name}-{number}")
    await asyncio.gather(*tasks)


async def test_a_crowd_of_one_client_leaves_room_for_the_plain_function_of_another(served: FaultServer) -> None:
    crowd, other = await open_session(served.port), await open_session(served.port)

    def begun() -> list[str]:
        return [line.split()[1] for line in served.trace_lines() if line.startswith("started crowd")]

    async def wait(number: int) -> None:
        await send_http(served.port, message("tools/call", call_params("plain_wait", tag=f"crowd-{number}")), crowd)

    tasks = [asyncio.create_task(wait(number)) for number in range(60)]
    await wait_until(lambda: len(begun()) == 8, "the pool")
    alone = message("tools/call", call_params("plain_sleep", seconds=0, tag="alone"))
    reply = asyncio.create_task(send_http(served.port, alone, other))
    await still_serves(served.port)
    for released in range(40):
        served.release(begun()[released])
        await wait_until(lambda most=released + 9: reply.done() or len(begun()) == most, "the next")  # type: ignore[misc]
        if reply.done():
            break
    assert (await reply).text() == "slept alone", "it did not queue behind all of them"
    for number in range(60):
        served.release(f"crowd-{number}")
    await asyncio.gather(*tasks)


async def test_a_thread_nobody_waits_for_any_more_gives_its_place_back(served: FaultServer) -> None:
    for number in range(40):
        async with HttpWire.open(served.port) as wire:
            params = call_params("plain_sleep", seconds=0.2, tag=f"left-{number}")
            await wire.send(
                request_bytes(served.port, in_modern.body("tools/call", params), modern_headers("tools/call", params))
            )
    assert (await in_modern.call(served.port, "plain_sleep", seconds=0, tag="after")).text() == "slept after"


async def test_a_tool_that_blocks_the_loop_is_named_in_the_log(served: FaultServer) -> None:
    blocking = asyncio.create_task(in_modern.call(served.port, "block_loop_until_released", tag="blocked"))
    await wait_until(lambda: "block_loop_until_released" in served.log_text(), "the watchdog's word")
    served.release("blocked")
    assert (await blocking).text() == "blocked"
    await still_serves(served.port)


@both_eras
@pytest.mark.parametrize("tool", ["late", "plain_late"])
async def test_a_tool_beyond_its_timeout_is_stopped_and_the_model_told(
    served: FaultServer, era: HttpEra, tool: str
) -> None:
    reply = await era.call(served.port, tool)
    assert reply.status == 200
    assert reply.result()["isError"]
    assert tool in reply.text()


RAISERS = ["raise_async", "raise_async_later", "raise_plain"]
EXCEPTIONS = [
    "secret",
    "chained",
    "group",
    "unprintable",
    "exit",
    "interrupt",
    "alien",
    "cancelled",
    "generator_exit",
    "stop",
    "stop_async",
    "recursion",
    "memory",
    "timeout",
]


@both_eras
@pytest.mark.parametrize("kind", EXCEPTIONS)
@pytest.mark.parametrize("tool", RAISERS)
async def test_whatever_a_tool_raises_the_model_is_told_and_the_log_knows_more(
    served: FaultServer, era: HttpEra, tool: str, kind: str
) -> None:
    reply = await era.call(served.port, tool, kind=kind)
    assert reply.status == 200
    assert reply.result()["isError"]
    text = reply.text()
    assert SECRET.encode() not in reply.body
    assert tool in text
    error_id = text.split("(error ")[1].split(")")[0]
    assert error_id in served.log_text()
    assert (await in_modern.call(served.port, "add", a=2, b=2)).text() == "4"


@both_eras
@pytest.mark.parametrize("tool", RAISERS)
async def test_what_a_tool_says_to_the_model_is_sent_as_it_stands(served: FaultServer, era: HttpEra, tool: str) -> None:
    reply = await era.call(served.port, tool, kind="told")
    assert (reply.result()["isError"], reply.text()) == (True, "the disk is full")


@both_eras
async def test_what_a_tool_says_to_the_model_reaches_it_even_with_a_lone_surrogate(
    served: FaultServer, era: HttpEra
) -> None:
    reply = await era.call(served.port, "raise_async", kind="told_surrogate")
    assert reply.result()["isError"]


@both_eras
@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("resources/read", {"uri": "fault://secret"}),
        ("resources/read", {"uri": "fault://exit"}),
        ("resources/read", {"uri": "fault://surrogate"}),
        ("prompts/get", {"name": "secret_prompt"}),
        ("prompts/get", {"name": "exit_prompt"}),
        ("prompts/get", {"name": "surrogate_prompt"}),
        (
            "completion/complete",
            {"ref": {"type": "ref/prompt", "name": "greet"}, "argument": {"name": "name", "value": "x"}},
        ),
    ],
)
async def test_other_functions_that_fail_are_internal_errors_without_their_text(
    served: FaultServer, era: HttpEra, method: str, params: dict[str, Any]
) -> None:
    reply = await era.ask(served.port, method, params)
    assert (reply.status, reply.error()["code"]) == (200, -32603)
    assert SECRET.encode() not in reply.body
    await still_serves(served.port)


UNSENDABLE = {
    "nan": "finite",
    "infinity": "ratio",
    "surrogate": "surrogate",
    "surrogate_inside": "surrogate",
    "surrogate_key": "surrogate",
    "loop": "",
    "deep": "",
    "object": "object",
    "object_inside": "object",
    "tuple_key": "tuple",
    "function": "function",
    "generator": "generator",
    "big_integer": "",
    "bytes": "bytes",
    "content_surrogate": "surrogate",
    "result_surrogate": "surrogate",
    "result_nan": "ratio",
    "mix": "object",
}


@both_eras
@pytest.mark.parametrize("kind", UNSENDABLE)
async def test_what_cannot_be_sent_is_a_failure_that_names_it(served: FaultServer, era: HttpEra, kind: str) -> None:
    for tool in ("give", "give_plain"):
        reply = await era.call(served.port, tool, kind=kind)
        assert reply.status == 200
        assert reply.result()["isError"], reply
        assert tool in reply.text()
        assert UNSENDABLE[kind] in reply.text()
        assert "structuredContent" not in reply.result()


@both_eras
async def test_a_model_that_holds_no_number_names_the_field(served: FaultServer, era: HttpEra) -> None:
    reply = await era.call(served.port, "give_model")
    assert reply.result()["isError"]
    assert "ratio" in reply.text()
    wrong = await era.call(served.port, "give_wrong_type")
    assert wrong.result()["isError"]


@both_eras
async def test_5_mb_of_text_arrive_whole(served: FaultServer, era: HttpEra) -> None:
    reply = await era.call(served.port, "give", kind="big")
    assert reply.text() == "x" * 5_000_000


# After all of it


async def test_nothing_of_this_left_the_server_with_calls_in_flight(served: FaultServer) -> None:
    await still_serves(served.port)
    await wait_until(lambda: served.sockets() <= 12, "the end of the connections")
    started = {line.split(" ", 1)[1] for line in served.trace_lines() if line.startswith("started")}
    ended = {
        line.split(" ", 1)[1] for line in served.trace_lines() if line.split()[0] in {"finished", "cancelled", "ended"}
    }
    await wait_until(
        lambda: not {tag for tag in started - ended if tag not in {"block"}}, f"the end of {started - ended}"
    )
