"""A server over HTTP that is told to stop finishes its calls and ends its streams."""

import contextlib
import signal
import socket
from pathlib import Path
from typing import Any

import pytest

from tests.support.conditions import wait_until
from tests.support.http_faults import (
    SLOW_REQUESTS,
    SUBSCRIPTION,
    FaultServer,
    HttpWire,
    call_params,
    fault_server,
    in_handshake,
    in_modern,
    message,
    modern_headers,
    open_listen,
    open_session,
    open_stream,
    request_bytes,
    still_serves,
)
from tests.support.lite_stream import lite_stream

# The end


def is_listening(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


async def gone(served: FaultServer) -> int:
    await wait_until(lambda: served.process.poll() is not None, f"the end of the process: {served.log_text()[-2_000:]}")
    return served.process.wait()


@pytest.mark.parametrize("stop", [signal.SIGTERM, signal.SIGINT])
async def test_told_to_stop_it_finishes_its_calls_and_ends_its_streams(tmp_path: Path, stop: signal.Signals) -> None:
    with fault_server(tmp_path, drain_seconds=60) as served:
        port = served.port
        headers = await open_session(port)
        async with contextlib.AsyncExitStack() as stack:
            wires = [await stack.enter_async_context(HttpWire.open(port)) for _ in range(7)]
            modern, handshake, plain, modern_stream, handshake_stream, listening, watching = wires
            await open_listen(listening, port, "last words")
            await open_stream(watching, port, headers)
            slow: list[tuple[HttpWire, dict[str, Any], bool]] = [
                (modern, call_params("async_sleep", seconds=1, tag="modern"), True),
                (handshake, call_params("async_sleep", seconds=1, tag="handshake"), False),
                (plain, call_params("plain_sleep", seconds=1, tag="plain"), True),
                (modern_stream, {**call_params("speak", seconds=1, tag="ms"), "_meta": {"progressToken": 1}}, True),
                (handshake_stream, {**call_params("speak", seconds=1, tag="hs"), "_meta": {"progressToken": 1}}, False),
            ]
            for wire, params, is_modern in slow:
                era = in_modern if is_modern else in_handshake
                request_headers = modern_headers("tools/call", params) if is_modern else headers
                await wire.send(request_bytes(port, era.body("tools/call", params), request_headers))
            await wait_until(lambda: len(served.trace_lines()) >= 5, "the calls")
            served.process.send_signal(stop)
            replies = [(await wire.reply()).text() for wire, _, _ in slow]
            last = await listening.event()
            assert await listening.event() is None, "the stream ends as a stream should"
            assert await watching.event() is None, "the stream ends as a stream should"
        assert replies == ["slept modern", "slept handshake", "slept plain", "spoke ms", "spoke hs"]
        assert last["id"] == "last words"
        assert last["result"]["resultType"] == "complete"
        assert last["result"]["_meta"][SUBSCRIPTION] == "last words"
        code = await gone(served)
        assert code == 0 or stop is not signal.SIGTERM
        assert "Traceback" not in served.log_text()


async def test_told_to_stop_while_only_streams_are_open_it_goes(tmp_path: Path) -> None:
    with fault_server(tmp_path, drain_seconds=60) as served:
        headers = await open_session(served.port)
        async with (
            HttpWire.open(served.port) as listening,
            HttpWire.open(served.port) as watching,
            HttpWire.open(served.port),
        ):
            await open_listen(listening, served.port, 1)
            await open_stream(watching, served.port, headers)
            served.process.terminate()
            assert (await listening.event())["result"]["_meta"][SUBSCRIPTION] == 1
            assert await listening.event() is None
            assert await watching.event() is None
            await gone(served)


async def test_told_to_stop_it_takes_no_new_connection_and_still_answers(tmp_path: Path) -> None:
    with fault_server(tmp_path, drain_seconds=60) as served:
        async with HttpWire.open(served.port) as wire:
            params = call_params("async_wait", tag="x")
            await wire.send(
                request_bytes(served.port, in_modern.body("tools/call", params), modern_headers("tools/call", params))
            )
            await wait_until(lambda: "started x" in served.trace_lines(), "the call")
            served.process.terminate()

            async def refused() -> bool:
                try:
                    reply = await in_modern.call(served.port, "add", a=1, b=2)
                except ConnectionError:
                    return True
                return reply.status == 503

            while not await refused():
                assert "finished x" not in served.trace_lines()
            served.release("x")
            assert (await wire.reply()).text() == "waited x"
        await gone(served)


@pytest.mark.parametrize("tool", ["never", "stubborn"])
async def test_a_call_that_does_not_end_is_failed_after_the_grace(tmp_path: Path, tool: str) -> None:
    with fault_server(tmp_path, drain_seconds=0.5) as served:
        async with HttpWire.open(served.port) as modern, HttpWire.open(served.port) as handshake:
            params = call_params(tool)
            await modern.send(
                request_bytes(served.port, in_modern.body("tools/call", params), modern_headers("tools/call", params))
            )
            await handshake.send(
                request_bytes(served.port, message("tools/call", params), await open_session(served.port))
            )
            await wait_until(lambda: len(served.trace_lines()) == 2, "the calls")
            served.process.terminate()
            for wire in (modern, handshake):
                reply = await wire.reply()
                found = reply.json()
                assert "error" in found or found["result"].get("isError") or tool == "stubborn", found
        await gone(served)


async def test_a_thread_that_does_not_end_holds_up_the_end_no_longer_than_the_grace(tmp_path: Path) -> None:
    with fault_server(tmp_path, drain_seconds=0.5) as served:
        async with HttpWire.open(served.port) as wire:
            params = call_params("plain_sleep", seconds=120, tag="x")
            await wire.send(
                request_bytes(served.port, in_modern.body("tools/call", params), modern_headers("tools/call", params))
            )
            await wait_until(lambda: "started x" in served.trace_lines(), "the call")
            served.process.terminate()
            found = (await wire.reply()).json()
            assert "error" in found or found["result"].get("isError"), found
            await gone(served)


async def test_slow_clients_do_not_hold_up_the_end(tmp_path: Path) -> None:
    with fault_server(tmp_path, drain_seconds=0.5, header_seconds=60, body_seconds=60) as served:
        async with contextlib.AsyncExitStack() as stack:
            for opening, rest in SLOW_REQUESTS.values():
                wire = await stack.enter_async_context(HttpWire.open(served.port))
                await wire.send(opening + rest[:1])
            deaf = await stack.enter_async_context(HttpWire.open(served.port))
            params = call_params("give", kind="big")
            await deaf.send(
                request_bytes(served.port, in_modern.body("tools/call", params), modern_headers("tools/call", params))
            )
            await still_serves(served.port)
            served.process.terminate()
            await gone(served)


async def test_told_twice_it_goes_at_once(tmp_path: Path) -> None:
    with fault_server(tmp_path, drain_seconds=120) as served:
        async with HttpWire.open(served.port) as wire:
            params = call_params("never")
            await wire.send(
                request_bytes(served.port, in_modern.body("tools/call", params), modern_headers("tools/call", params))
            )
            await wait_until(lambda: len(served.trace_lines()) == 1, "the call")
            served.process.send_signal(signal.SIGINT)
            await wait_until(lambda: not is_listening(served.port), "the first signal's effect")
            served.process.send_signal(signal.SIGINT)
            await gone(served)


async def test_told_to_stop_it_answers_what_a_client_sends_at_that_moment(tmp_path: Path) -> None:
    params = call_params("async_sleep", seconds=0, tag="x")
    with fault_server(tmp_path, drain_seconds=60) as served:
        request = request_bytes(served.port, in_modern.body("tools/call", params), modern_headers("tools/call", params))
        async with HttpWire.open(served.port) as wire, HttpWire.open(served.port) as unused:
            await wire.send(request)
            assert (await wire.reply()).text() == "slept x"
            served.process.send_signal(signal.SIGTERM)
            await wait_until(lambda: not is_listening(served.port), "the end of listening")
            for connection in (wire, unused):
                await connection.send(request)
                reply = await connection.reply()
                assert reply.text() == "slept x"
                assert reply.headers["connection"] == "close"
        assert await gone(served) == 0


@pytest.mark.parametrize(("seconds", "kind"), [(1, "done"), (600, "error")])
async def test_ml_52_told_to_stop_it_ends_mcp_lites_streams_by_an_event(
    tmp_path: Path, seconds: int, kind: str
) -> None:
    with fault_server(tmp_path, drain_seconds=2 if kind == "error" else 60) as served:
        address, arguments = f"http://127.0.0.1:{served.port}", {"seconds": seconds, "tag": "lite"}
        async with lite_stream(address, "async_sleep", arguments) as stream:
            await wait_until(lambda: bool(served.trace_lines()), "the call")
            served.process.terminate()
            last = await stream.last()
        assert last.kind == kind and "_meta" in last.data
        if kind == "error":
            assert last.data["error"]["data"]["reason"] == "SERVER_SHUTDOWN"
        assert await gone(served) == 0
        assert "Traceback" not in served.log_text()
