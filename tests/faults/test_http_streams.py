"""Streams over HTTP that wait: many of them, unread ones, and a server that is busy."""

import asyncio
import contextlib
from pathlib import Path

from tests.support.conditions import wait_until
from tests.support.http_faults import (
    SLACK,
    SUBSCRIPTION,
    FaultServer,
    HttpEra,
    HttpWire,
    both_eras,
    call_params,
    fault_server,
    in_modern,
    message,
    modern_headers,
    open_listen,
    open_session,
    open_stream,
    request_bytes,
    send_http,
    still_serves,
)


async def test_hundreds_of_idle_streams_cost_little_and_leave_nothing_behind(tmp_path: Path) -> None:
    with fault_server(tmp_path) as served:
        await still_serves(served.port)
        idle, before = served.sockets(), served.memory()
        count = 200
        async with contextlib.AsyncExitStack() as stack:
            streams = []
            for number in range(count):
                wire = await stack.enter_async_context(HttpWire.open(served.port))
                await open_listen(wire, served.port, number)
                streams.append(wire)
            for _ in range(count):
                wire = await stack.enter_async_context(HttpWire.open(served.port))
                await open_stream(wire, served.port, await open_session(served.port))
                streams.append(wire)
            assert served.memory() - before < count * 2 * 100_000
            await in_modern.call(served.port, "announce")
            for number, wire in enumerate(streams):
                told = await wire.event()
                assert told["method"] == "notifications/tools/list_changed"
                if number < count:
                    assert told["params"]["_meta"][SUBSCRIPTION] == number
        await wait_until(lambda: served.sockets() <= idle + 1, "the end of the connections")
        async with HttpWire.open(served.port) as wire:
            await open_listen(wire, served.port)
            await in_modern.call(served.port, "announce")
            assert (await wire.event())["method"] == "notifications/tools/list_changed"
        assert "Traceback" not in served.log_text()


async def test_a_listener_that_reads_nothing_is_not_kept_for_ever(tmp_path: Path) -> None:
    with fault_server(tmp_path, unsent_bytes=50_000) as served:
        await still_serves(served.port)
        before = served.memory()
        async with HttpWire.open(served.port) as deaf, HttpWire.open(served.port) as caller:
            await open_listen(deaf, served.port)
            params = call_params("announce")
            request = request_bytes(
                served.port, in_modern.body("tools/call", params), modern_headers("tools/call", params)
            )
            for _ in range(400):
                await caller.send(request * 10)
                for _ in range(10):
                    assert (await caller.reply()).status == 200
            assert served.memory() - before < SLACK
        await still_serves(served.port)


@both_eras
async def test_a_tool_that_talks_to_a_client_that_does_not_read_fills_no_memory(
    served: FaultServer, era: HttpEra
) -> None:
    """100 MB of progress: the tool waits, or its stream is dropped."""
    await still_serves(served.port)
    before = served.memory()
    served.forget_peak()
    params = {**call_params("chatty", count=50_000, size=2_000, tag="deaf"), "_meta": {"progressToken": 1}}
    async with HttpWire.open(served.port) as wire:
        headers = await era.headers(served.port, "tools/call", params)
        await wire.send(request_bytes(served.port, era.body("tools/call", params), headers))
        assert (await wire.head())[1]["content-type"] == "text/event-stream"
        for _ in range(3):
            await asyncio.sleep(0.2)
            assert served.peak() - before < SLACK
            await still_serves(served.port)
    if not era.modern:
        assert (await send_http(served.port, None, headers, "DELETE")).status in {200, 202, 204}


async def test_beyond_the_calls_it_takes_the_server_is_busy_and_then_not(tmp_path: Path) -> None:
    with fault_server(tmp_path, calls=4, sessions=3, account_share=1) as served:
        async with contextlib.AsyncExitStack() as stack:
            for number in range(4):
                wire = await stack.enter_async_context(HttpWire.open(served.port))
                params = call_params("never", tag=str(number))
                await wire.send(
                    request_bytes(
                        served.port, in_modern.body("tools/call", params), modern_headers("tools/call", params)
                    )
                )
            await wait_until(lambda: len(served.trace_lines()) == 4, "the calls")
            for _ in range(2):
                busy = await in_modern.call(served.port, "add", a=1, b=2)
                assert (busy.status, busy.error()["code"]) == (503, -32603)
        await wait_until(lambda: sum("ended" in line for line in served.trace_lines()) == 4, "their end")
        assert (await in_modern.call(served.port, "add", a=1, b=2)).text() == "3"

        sessions = [await open_session(served.port) for _ in range(3)]
        assert (await send_http(served.port, message("ping", {}), sessions[0])).status == 200
        sessions.append(await open_session(served.port))
        statuses = [(await send_http(served.port, message("ping", {}), headers)).status for headers in sessions]
        assert statuses == [200, 404, 200, 200], "the one idle the longest goes"


async def test_a_session_nobody_uses_is_forgotten_and_one_in_use_is_not(tmp_path: Path) -> None:
    with fault_server(tmp_path, session_idle_seconds=600) as served:
        unused, streaming, calling = [await open_session(served.port) for _ in range(3)]
        async with HttpWire.open(served.port) as stream, HttpWire.open(served.port) as call:
            await open_stream(stream, served.port, streaming)
            params = call_params("async_wait", tag="x")
            await call.send(request_bytes(served.port, message("tools/call", params), calling))
            await wait_until(lambda: "started x" in served.trace_lines(), "the call")
            await in_modern.call(served.port, "advance_clock", seconds=601)
            await open_session(served.port)
            assert (await send_http(served.port, message("ping", {}), unused)).status == 404
            assert (await send_http(served.port, message("ping", {}), streaming)).status == 200
            served.release("x")
            assert (await call.reply()).text() == "waited x"
            assert (await send_http(served.port, message("ping", {}), calling)).status == 200
