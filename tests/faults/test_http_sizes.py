"""Bodies, headers and paths over HTTP that are too large, and those that just fit."""

import asyncio
import contextlib
import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.http_faults import (
    LARGE,
    REFUSED_EARLY,
    SLACK,
    FaultServer,
    HttpEra,
    HttpWire,
    both_eras,
    call_params,
    fault_server,
    in_modern,
    modern_headers,
    request_bytes,
    run_beside,
    send_http,
    still_serves,
)

# Size


def filler(total: int) -> Iterator[bytes]:
    piece = b"x" * 65_536
    for _ in range(total // len(piece)):
        yield piece


@pytest.fixture(scope="module")
def brief(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultServer]:
    """A server that soon hangs up on a client which goes on to listen after a refusal."""
    with fault_server(tmp_path_factory.mktemp("brief"), body_seconds=8) as server:
        yield server


@pytest.mark.diagonal("era", "framing")
@both_eras
@pytest.mark.parametrize("framing", ["length", "chunks"])
async def test_100_mb_are_refused_at_the_limit_and_not_kept(brief: FaultServer, era: HttpEra, framing: str) -> None:
    headers = await era.headers(brief.port)
    await still_serves(brief.port)
    before = brief.memory()
    brief.forget_peak()
    async with HttpWire.open(brief.port) as wire:
        chunked = framing == "chunks"
        framing_headers: dict[str, str | None] = (
            {"Content-Length": None, "Transfer-Encoding": "chunked"} if chunked else {"Content-Length": str(LARGE)}
        )
        await wire.send(request_bytes(brief.port, b"", {**headers, **framing_headers}))
        pieces = filler(LARGE)
        if chunked:
            pieces = (b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces)
        async with run_beside(wire.pour(pieces)):
            reply = await wire.reply()
            await wire.ended()
    assert (reply.status, reply.error()["code"]) == (413, -32600)
    assert brief.peak() - before < SLACK
    await still_serves(brief.port)


async def test_a_client_that_asks_first_is_told_no_before_it_sends_100_mb(served: FaultServer) -> None:
    headers = {**await in_modern.headers(served.port), "Expect": "100-continue", "Content-Length": str(LARGE)}
    async with HttpWire.open(served.port) as wire:
        await wire.send(request_bytes(served.port, b"", headers))
        status, _ = await wire.head()
    assert status == 413


async def test_a_client_that_asks_first_is_told_to_go_on(served: FaultServer) -> None:
    body = in_modern.body("tools/call", call_params("add", a=1, b=2))
    headers = {**await in_modern.headers(served.port, "tools/call", call_params("add")), "Expect": "100-continue"}
    request = request_bytes(served.port, body, headers)
    async with HttpWire.open(served.port) as wire:
        await wire.send(request[: -len(body)])
        assert (await wire.head())[0] == 100
        await wire.send(body)
        assert (await wire.reply()).text() == "3"


@both_eras
@pytest.mark.parametrize("framing", ["length", "chunks"])
async def test_a_body_is_taken_up_to_the_limit_and_not_a_byte_further(
    tmp_path: Path, era: HttpEra, framing: str
) -> None:
    with fault_server(tmp_path, message_bytes=2_000) as small:
        for size, status in ((2_000, 200), (2_001, 413)):
            frame = era.body("tools/call", call_params("echo", value="?"))
            body = frame.replace(b'"?"', b'"' + b"x" * (size - len(frame) + 1) + b'"')
            assert len(body) == size
            headers = await era.headers(small.port)
            if framing == "chunks":
                headers |= {"Content-Length": None, "Transfer-Encoding": "chunked"}
                body = b"".join(b"1\r\n%c\r\n" % byte for byte in body) + b"0\r\n\r\n"
            reply = await send_http(small.port, body, headers)
            assert reply.status == status, reply


HEADERS_TOO_LARGE: dict[str, bytes] = {
    "one of 100 kB": b"X-Long: " + b"x" * 100_000 + b"\r\n",
    "one with a name of 100 kB": b"X" * 100_000 + b": x\r\n",
    "2,000 of 50 bytes": b"".join(b"X-%06d: %s\r\n" % (n, b"x" * 40) for n in range(2_000)),
    "one of 33 kB": b"X-Long: " + b"x" * 33 * 1024 + b"\r\n",
}


@both_eras
@pytest.mark.parametrize("case", HEADERS_TOO_LARGE)
async def test_a_header_section_beyond_the_limit_gets_431(served: FaultServer, era: HttpEra, case: str) -> None:
    request = request_bytes(served.port, era.body("tools/list", {}), await era.headers(served.port, "tools/list", {}))
    first, rest = request.split(b"\r\n", 1)
    async with HttpWire.open(served.port) as wire:
        await wire.send(first + b"\r\n" + HEADERS_TOO_LARGE[case] + rest)
        reply = await wire.reply()
    assert reply.status == 431
    assert not reply.body or reply.error()["code"] == -32600


@pytest.mark.parametrize("arrival", ["in small pieces", "just under the limit, then the rest", "at once"])
@pytest.mark.parametrize("case", HEADERS_TOO_LARGE)
async def test_the_limit_on_headers_holds_however_they_arrive(served: FaultServer, case: str, arrival: str) -> None:
    request = request_bytes(served.port, in_modern.body("tools/list", {}), modern_headers("tools/list", {}))
    first, rest = request.split(b"\r\n", 1)
    request = first + b"\r\n" + HEADERS_TOO_LARGE[case] + rest
    size = 500 if arrival == "in small pieces" else 32_000
    pieces = [request[start : start + size] for start in range(0, len(request), size)]
    if arrival == "just under the limit, then the rest":
        pieces = [pieces[0], b"".join(pieces[1:])]
    async with HttpWire.open(served.port) as wire, HttpWire.open(served.port) as blocker:
        if arrival == "at once":  # what comes while the server does not read, the kernel gathers
            params = call_params("block_loop", seconds=0.15)
            await blocker.send(
                request_bytes(served.port, in_modern.body("tools/call", params), modern_headers("tools/call", params))
            )
            await asyncio.sleep(0.05)

        async def send() -> None:
            with contextlib.suppress(ConnectionError):
                for piece in pieces:
                    await wire.send(piece)
                    await asyncio.sleep(0.05 if len(pieces) == 2 else 0)

        async with run_beside(send()):
            assert (await wire.head())[0] == 431


async def test_a_header_that_never_ends_gets_431_and_is_not_kept(served: FaultServer) -> None:
    before = served.memory()
    served.forget_peak()
    async with HttpWire.open(served.port) as wire:
        await wire.send(b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nX-Long: ")
        async with run_beside(wire.pour(filler(LARGE))):
            status, _ = await wire.head()
            await wire.ended()
    assert status == 431
    assert served.peak() - before < SLACK
    await still_serves(served.port)


async def test_what_is_refused_for_another_reason_is_not_kept_either(served: FaultServer) -> None:
    await still_serves(served.port)
    before = served.memory()
    served.forget_peak()

    async def pour(case: str) -> None:
        verb, path, headers, status = REFUSED_EARLY[case]
        async with HttpWire.open(served.port) as wire:
            chunked: dict[str, str | None] = {**headers, "Content-Length": None, "Transfer-Encoding": "chunked"}
            await wire.send(request_bytes(served.port, b"", chunked, verb, path))
            async with run_beside(wire.pour(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in filler(LARGE))):
                assert (await wire.reply()).status == status
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(0.5):
                        await wire.ended()

    await asyncio.gather(*map(pour, REFUSED_EARLY))
    assert served.peak() - before < SLACK
    await still_serves(served.port)


TAILS = {
    "many trailers": (b"2\r\n{}\r\n0\r\n", (b"X-Trailer: " + b"x" * 1_000 + b"\r\n") * 64),
    "one trailer": (b"2\r\n{}\r\n0\r\nX-Trailer: ", b"x" * 65_536),
    "the extension of a chunk": (b"2;name=", b"x" * 65_536),
}


async def test_what_chunks_carry_beside_the_body_is_bounded_too(served: FaultServer) -> None:
    """A body of two bytes, and 100 MB where HTTP has room for more."""
    await still_serves(served.port)
    before = served.memory()
    served.forget_peak()

    async def pour(tail: str) -> None:
        opening, piece = TAILS[tail]
        async with HttpWire.open(served.port) as wire:
            headers = {**modern_headers("tools/list", {}), "Content-Length": None, "Transfer-Encoding": "chunked"}
            await wire.send(request_bytes(served.port, b"", headers) + opening)
            async with run_beside(wire.pour(itertools.repeat(piece, LARGE // len(piece)))):
                answer = await wire.ended()
        assert not answer or answer.startswith((b"HTTP/1.1 4", b"HTTP/1.1 5")), answer[:200]

    await asyncio.gather(*map(pour, TAILS))
    assert served.peak() - before < SLACK
    await still_serves(served.port)


async def test_20000_requests_to_a_client_that_does_not_read_are_not_taken(served: FaultServer) -> None:
    await still_serves(served.port)
    before = served.memory()
    served.forget_peak()
    params = call_params("echo", value="x" * 4_000)
    request = request_bytes(served.port, in_modern.body("tools/call", params), modern_headers("tools/call", params))
    async with HttpWire.open(served.port) as wire:
        sent = 0

        async def flood() -> None:
            nonlocal sent
            with contextlib.suppress(ConnectionError):
                for _ in range(2_000):
                    await wire.send(request * 10)
                    sent += 10

        async with run_beside(flood()):
            taken = -1
            while taken != sent:
                taken = sent
                await asyncio.sleep(0.3)
            assert sent < 20_000, "the server stops reading"
            assert served.peak() - before < 2 * SLACK
            await still_serves(served.port)


@both_eras
async def test_a_path_of_100_kb_is_refused(served: FaultServer, era: HttpEra) -> None:
    async with HttpWire.open(served.port) as wire:
        await wire.send(
            request_bytes(
                served.port, era.body("tools/list", {}), await era.headers(served.port), path="/mcp?" + "x" * 100_000
            )
        )
        status, _ = await wire.head()
    assert status in {400, 414, 431}


@both_eras
async def test_a_header_section_of_16_kb_is_taken(served: FaultServer, era: HttpEra) -> None:
    headers = {**await era.headers(served.port, "tools/list", {}), "X-Long": "x" * 16_384}
    assert (await send_http(served.port, era.body("tools/list", {}), headers)).status == 200


@pytest.mark.parametrize(
    ("framing", "status"),
    [
        ({"Content-Length": str(LARGE)}, 413),
        ({"Content-Length": str(LARGE), "Connection": "close"}, 413),
        ({"Content-Length": None, "Transfer-Encoding": "chunked"}, 413),
        ({"Content-Length": str(LARGE), "Content-Type": "text/plain"}, 415),
    ],
    ids=["length", "length and close", "chunks", "another refusal"],
)
async def test_a_client_that_reads_only_when_it_has_sent_100_mb_reads_the_refusal(
    served: FaultServer, framing: dict[str, str | None], status: int
) -> None:
    headers = await in_modern.headers(served.port)
    await still_serves(served.port)
    before = served.memory()
    served.forget_peak()
    async with HttpWire.open(served.port) as wire:
        await wire.send(request_bytes(served.port, b"", {**headers, **framing}))
        for piece in filler(LARGE):
            await wire.send(b"%x\r\n%s\r\n" % (len(piece), piece) if "Transfer-Encoding" in framing else piece)
        reply = await wire.reply()
    assert (reply.status, reply.error()["code"]) == (status, -32600)
    assert served.peak() - before < SLACK


async def test_a_client_that_reads_only_when_it_has_sent_3_mb_of_headers_reads_the_refusal(served: FaultServer) -> None:
    async with HttpWire.open(served.port) as wire:
        await wire.send(b"POST /mcp HTTP/1.1\r\nHost: localhost\r\n")
        for number in range(3_000):
            await wire.send(b"X-%d: %s\r\n" % (number, b"x" * 1_000))
        status, _ = await wire.head()
    assert status == 431


async def test_tiny_requests_behind_a_call_that_does_not_end_wait_as_bytes(tmp_path: Path) -> None:
    with fault_server(tmp_path) as served:
        await still_serves(served.port)
        before = served.memory()
        params = call_params("never")
        call = request_bytes(served.port, in_modern.body("tools/call", params), modern_headers("tools/call", params))
        async with contextlib.AsyncExitStack() as stack:
            for _ in range(20):
                wire = await stack.enter_async_context(HttpWire.open(served.port))
                await wire.send(call + b"GET /x HTTP/1.1\r\nHost: a\r\n\r\n" * 9_000)
            await still_serves(served.port)
            assert served.memory() - before < SLACK
