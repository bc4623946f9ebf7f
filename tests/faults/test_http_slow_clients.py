"""Clients over HTTP that send slowly, stop sending, do not read, or leave."""

import asyncio
import contextlib
import itertools
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.conditions import wait_until
from tests.support.http_faults import (
    REFUSED_EARLY,
    SLOW_REQUESTS,
    FaultServer,
    HttpWire,
    call_params,
    fault_server,
    in_modern,
    modern_headers,
    request_bytes,
    run_beside,
    still_serves,
)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultServer]:
    """A server that waits for a request no longer than a second."""
    with fault_server(tmp_path_factory.mktemp("slow"), header_seconds=1, body_seconds=1) as server:
        yield server
        assert server.process.poll() is None, server.log_text()


async def trickle(port: int, opening: bytes, rest: bytes, pause: float = 0) -> bytes:
    """Sends `rest` a byte at a time, over and over, until the server hangs up; what it said."""
    async with HttpWire.open(port) as wire:
        await wire.send(opening)

        async def drip() -> None:
            await asyncio.sleep(pause)
            with contextlib.suppress(ConnectionError):
                for byte in itertools.cycle(rest):
                    await wire.send(bytes([byte]))
                    await asyncio.sleep(0.1)

        async with run_beside(drip()):
            return await wire.ended()


async def test_200_slow_connections_are_closed_at_the_deadline_and_others_are_served_meanwhile(
    tmp_path: Path,
) -> None:
    with fault_server(tmp_path, header_seconds=4, body_seconds=4) as served:
        await open_slow_connections(served)


async def open_slow_connections(served: FaultServer) -> None:
    closed: list[str] = []

    async def slow(kind: str) -> tuple[str, bytes]:
        answer = await trickle(served.port, *SLOW_REQUESTS[kind])
        closed.append(kind)
        return kind, answer

    kinds = list(SLOW_REQUESTS) * 50
    tasks = [asyncio.create_task(slow(kind)) for kind in kinds]
    await wait_until(lambda: served.sockets() > 200, "200 connections")
    await still_serves(served.port)
    assert len(closed) < len(kinds), "the others did not wait for the slow ones"
    for kind, answer in await asyncio.gather(*tasks):
        if answer:
            assert answer.startswith(b"HTTP/1.1 408 "), answer
        if "body" in kind and answer:
            assert json.loads(answer.split(b"\r\n\r\n", 1)[1])["error"]["code"] == -32600
    await still_serves(served.port)


async def test_a_body_that_does_not_come_gets_408(served: FaultServer) -> None:
    answer = await trickle(served.port, SLOW_REQUESTS["body"][0], b" ")
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert json.loads(answer.split(b"\r\n\r\n", 1)[1])["error"]["code"] == -32600


async def test_a_connection_on_which_nothing_comes_is_closed(served: FaultServer) -> None:
    async with HttpWire.open(served.port) as wire:
        answer = await wire.ended()
    assert answer == b"" or answer.startswith(b"HTTP/1.1 408 ")


@pytest.mark.parametrize("rest", ["at once and on and on", "later and on and on", "never"])
async def test_a_body_nobody_wants_any_more_cannot_hold_a_connection_open(served: FaultServer, rest: str) -> None:
    """The request is refused by its headers, and its body still comes a byte at a time, or does not."""

    async def refused(case: str) -> None:
        verb, path, headers, status = REFUSED_EARLY[case]
        length: dict[str, str | None] = {**headers, "Content-Length": "100000"}
        opening = request_bytes(served.port, b"", length, verb, path) + (b" " if rest.startswith("at once") else b"")
        answer = await trickle(served.port, opening, b"" if rest == "never" else b" ", 0 if rest[0] == "a" else 0.3)
        assert answer.startswith(f"HTTP/1.1 {status} ".encode())

    await asyncio.gather(*map(refused, REFUSED_EARLY))


async def test_a_second_request_cannot_be_slower_than_the_first(served: FaultServer) -> None:
    good = request_bytes(served.port, in_modern.body("tools/list", {}), modern_headers("tools/list", {}))
    answer = await trickle(served.port, good + b"POST /mcp HTTP/1.1\r\nHost: localhost\r\n", b"X-Slow: x\r\n")
    assert answer.startswith(b"HTTP/1.1 200 ")


async def test_clients_that_never_read_their_answers_hold_up_nobody(served: FaultServer) -> None:
    async with contextlib.AsyncExitStack() as stack:
        params = call_params("give", kind="big")
        request = request_bytes(served.port, in_modern.body("tools/call", params), modern_headers("tools/call", params))
        for _ in range(10):
            wire = await stack.enter_async_context(HttpWire.open(served.port))
            await wire.send(request * 3)
        for _ in range(5):
            await still_serves(served.port)


async def test_clients_that_leave_in_the_middle_of_a_request_are_forgotten(served: FaultServer) -> None:
    idle = served.sockets()
    request = request_bytes(served.port, in_modern.body("tools/list", {}), modern_headers("tools/list", {}))
    for cut in range(1, len(request), 7):
        async with HttpWire.open(served.port) as wire:
            await wire.send(request[:cut])
    await still_serves(served.port)
    await wait_until(lambda: served.sockets() <= idle + 1, "the end of the connections")


async def test_a_client_that_never_reads_its_response_is_cut_off(tmp_path: Path) -> None:
    with fault_server(tmp_path, send_seconds=0.2) as served:
        idle = served.sockets()
        params = call_params("give", kind="big")
        request = request_bytes(served.port, in_modern.body("tools/call", params), modern_headers("tools/call", params))
        async with HttpWire.open(served.port) as wire, HttpWire.open(served.port) as closing:
            await wire.send(request)
            await closing.send(request.replace(b"\r\n", b"\r\nConnection: close\r\n", 1))
            await wait_until(lambda: served.sockets() > idle, "the connections")
            await wait_until(lambda: served.sockets() <= idle, "the end of the connections")
            with pytest.raises(ConnectionAbortedError):
                await wire.reply()


async def test_responses_that_nobody_reads_are_bounded_together(tmp_path: Path) -> None:
    with fault_server(tmp_path, response_bytes=16_000_000, account_share=1) as served:
        idle = served.sockets()
        params = call_params("give", kind="big")
        request = request_bytes(served.port, in_modern.body("tools/call", params), modern_headers("tools/call", params))
        async with contextlib.AsyncExitStack() as stack:
            wires = [await stack.enter_async_context(HttpWire.open(served.port)) for _ in range(6)]
            for wire in wires:
                await wire.send(request)
                assert (await wire.take(12)).startswith(b"HTTP/1.1 ")
            dropped = await in_modern.ask(served.port, "tools/call", params)
            assert (dropped.status, dropped.error()["code"]) == (503, -32603)
            assert "unread" in dropped.error()["message"]
        await wait_until(lambda: served.sockets() <= idle, "the end of the connections")
        assert (await in_modern.ask(served.port, "tools/call", params)).status == 200


async def test_one_address_has_a_share_of_the_connections(tmp_path: Path) -> None:
    with fault_server(tmp_path, connections=16, account_share=0.5) as served:
        async with contextlib.AsyncExitStack() as stack:
            for _ in range(8):
                await stack.enter_async_context(HttpWire.open(served.port))
            await wait_until(lambda: served.sockets() >= 8, "the connections")
            for _ in range(3):
                async with HttpWire.open(served.port) as wire:
                    assert (await wire.ended()).startswith(b"HTTP/1.1 503 ")
            async with HttpWire.open(served.port, address="127.0.0.2") as wire:
                await wire.send(request_bytes(served.port, in_modern.body("ping", {}), modern_headers("ping", {})))
                assert (await wire.reply()).status == 404, "another address is served"
        await wait_until(lambda: served.sockets() < 8, "the end of the connections")
        await still_serves(served.port)
