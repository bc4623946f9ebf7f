"""Messages of gRPC calls: refused by count before they are decoded; large ones are decoded in a thread, in turn."""

import asyncio
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest

from deltamcp import Limits
from deltamcp.errors import Fault
from deltamcp.transports.grpc import requests as grpc_requests
from deltamcp.transports.grpc.requests import GrpcRequests, ReceivedMessage, lite_messages
from deltamcp.values import Failure
from deltamcp.wire.protobuf import write_struct
from tests.support.loop_iterations import LoopIterations

LIMITS = Limits(values=1_000)


def write(arguments: dict[str, Any], meta: dict[str, Any] | None = None) -> bytes:
    message = lite_messages().ToolRequest(name="add")
    write_struct(arguments, message.arguments)
    if meta is not None:
        write_struct(meta, message.meta)
    return bytes(message.SerializeToString())


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """The sizes of the messages that are decoded, each with its thread."""
    found: list[tuple[int, int]] = []
    decode = grpc_requests._decode

    def noted(data: bytes, **more: Any) -> Any:
        found.append((len(data), threading.get_ident()))
        return decode(data, **more)

    monkeypatch.setattr(
        grpc_requests, "_decode", lambda data, operations, limits: noted(data, operations=operations, limits=limits)
    )
    return found


async def sent(data: bytes) -> AsyncIterator[bytes]:
    """The messages of a call that has one."""
    yield data


async def receive(requests: GrpcRequests, data: bytes, message: ReceivedMessage) -> Any:
    return await requests.receive(sent(data), message) or await requests.read_call(message, {})


async def read(requests: GrpcRequests, data: bytes, account: str = "ann") -> Any:
    message = ReceivedMessage(account)
    try:
        return await receive(requests, data, message)
    finally:
        message.release()


@pytest.mark.parametrize(
    "data",
    [
        b"\x12\x00" * 20_000,
        write({"rows": [None] * 20_000}),
        write({f"name {number}": True for number in range(5_000)}),
        write({"x": 1}, {"rows": [[]] * 20_000}),
        b"\x12\x84\x80\x02" + b"\x0a\x00" * 16_386,
    ],
)
async def test_too_many_values_are_refused_before_they_are_decoded(data, decoded):
    found = await read(GrpcRequests(LIMITS), data)
    assert isinstance(found, Failure) and found.fault is Fault.TOO_LARGE
    assert "at most 1000 values" in found.message
    assert not decoded


async def test_as_many_values_as_the_limit_allows_are_read(decoded):
    arguments = {"rows": [f"text {number} of a longer row" for number in range(998)]}
    found = await read(GrpcRequests(LIMITS), write(arguments))
    assert found == {"name": "add", "arguments": arguments}
    assert len(decoded) == 1


@pytest.mark.parametrize("size", [100, 50_000])
async def test_only_large_messages_are_decoded_in_a_thread(size, decoded):
    found = await read(GrpcRequests(LIMITS), write({"text": "x" * size}, {"y": 2}))
    assert found == {"name": "add", "arguments": {"text": "x" * size}, "_meta": {"y": 2}}
    assert (decoded[0][1] == threading.get_ident()) is (size == 100)


async def test_bytes_that_are_no_message_are_told_whatever_their_size():
    for data in (b"\xff" * 10, b"\xff" * 50_000, b"\x0b" * 50_000):
        found = await read(GrpcRequests(LIMITS), data)
        assert isinstance(found, Failure) and found.fault is Fault.PARSE


async def test_large_messages_of_one_account_do_not_keep_another_waiting(decoded):
    requests, order = GrpcRequests(LIMITS), []

    async def read_one(account: str) -> None:
        await read(requests, write({"text": "x" * 50_000}), account)
        order.append(account)

    tasks = [asyncio.create_task(read_one("mallory")) for _ in range(30)]
    await asyncio.sleep(0)
    await asyncio.gather(*tasks, asyncio.create_task(read_one("ann")))
    assert order.index("ann") < 5


async def test_an_account_receives_a_bounded_number_at_once():
    requests = GrpcRequests(Limits(message_bytes=100_000, body_bytes=1_600_000, account_share=0.25))
    data, arrived, asked = write({"text": "x" * 90_000}), asyncio.Event(), []

    async def messages() -> AsyncIterator[bytes]:
        asked.append(True)
        await arrived.wait()
        yield data

    received = [ReceivedMessage("mallory") for _ in range(4)]
    receiving = [asyncio.create_task(requests.receive(messages(), one)) for one in received]
    await asyncio.sleep(0)
    assert len(asked) == 2, "gRPC has two copies of each, of 100 kB at most, and 400 kB are the account's"
    assert isinstance(await read(requests, data, "ann"), dict)
    arrived.set()
    await asyncio.wait(receiving[:3])
    assert len(asked) == 3 and not receiving[3].done(), "three times 90 kB are there, so that 200 kB do not fit"
    received[0].release()
    assert await asyncio.gather(*receiving) == [None] * 4


async def test_small_messages_do_not_wait_for_each_other():
    requests = GrpcRequests(Limits(message_bytes=100_000, body_bytes=800_000, account_share=0.25))
    messages = [ReceivedMessage("ann") for _ in range(20)]
    found = await asyncio.gather(*(receive(requests, write({"x": number}), one) for number, one in enumerate(messages)))
    assert [one["arguments"]["x"] for one in found] == list(range(20)), "though nothing was released"


async def test_of_messages_that_take_long_for_their_size_one_is_decoded_in_an_iteration(monkeypatch):
    iterations, decoded = LoopIterations(), []
    monkeypatch.setattr(grpc_requests, "_decode", lambda *_: decoded.append(iterations.count))
    requests, data = GrpcRequests(LIMITS), write({"rows": [[]] * 900})
    await asyncio.gather(*(read(requests, data, f"address {number}") for number in range(20)))
    assert len(data) < 16_000 and len(set(decoded)) == 20


async def test_decoded_messages_count_for_their_account_until_they_are_released():
    requests = GrpcRequests(Limits(body_bytes=800_000, account_share=0.25))
    data = write({"text": "x" * 90_000})
    first, second = ReceivedMessage("mallory"), ReceivedMessage("mallory")
    assert isinstance(await receive(requests, data, first), dict)
    waiting = asyncio.create_task(receive(requests, data, second))
    assert isinstance(await read(requests, data, "ann"), dict)
    assert not waiting.done()
    first.release()
    assert isinstance(await waiting, dict)


async def test_the_bytes_are_forgotten_once_they_are_decoded():
    message = ReceivedMessage("ann")
    await receive(GrpcRequests(LIMITS), write({"text": "x" * 90_000}), message)
    assert not message.data


async def test_the_messages_of_a_call_are_closed_once_one_was_read():
    closed = []

    async def messages() -> AsyncIterator[bytes]:
        try:
            yield b"x" * 90_000
            yield b""
        finally:
            closed.append(True)

    assert await GrpcRequests(LIMITS).receive(messages(), ReceivedMessage("ann")) is None
    assert closed, "else gRPC's own would keep the message until the garbage is collected"
