"""What one address may have of a gRPC server: connections, calls that wait, bytes; others are served meanwhile."""

import asyncio
import contextlib
import gc
import gzip
import socket
import ssl
import sys
import weakref
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from types import SimpleNamespace

import grpc
import pytest

from bench.hostile.http2 import Http2Connection, grpc_headers, grpc_message
from deltamcp import DeltaServer
from deltamcp.limits import Limits
from deltamcp.transports.grpc import server as grpc_server
from deltamcp.transports.grpc.connection import GrpcClientConnection, GrpcQuotas, GrpcServerConnection
from deltamcp.transports.grpc.server import GrpcRelay
from deltamcp.wire.http2_frames import PREFACE, Flag, FrameType, write_frame, write_window_update
from tests.support.certificate import write_certificate
from tests.support.conditions import HANG_SECONDS, wait_until
from tests.support.grpc_peer import GrpcPeer, as_dict, refusal, serve_grpc, tool_request

SHARE = 4
CALL = "/mcplite.MCPLite/CallTool"
OTHER = "127.0.0.2"
needs_addresses = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has all addresses of the loopback")


def make_server(**limits: float) -> DeltaServer:
    server = DeltaServer("relayed", limits=Limits(account_share=1 / 8, **limits))  # type: ignore[arg-type]

    @server.tool
    async def size(text: str) -> int:
        """Return the size of a text."""
        return len(text)

    @server.tool
    async def repeat(times: int) -> str:
        """Return a long text."""
        return "abcdefgh" * times

    return server


def relay_of(peer: GrpcPeer) -> GrpcRelay:
    return peer.server._relay


async def call_size(peer: GrpcPeer, text: str) -> str:
    response = await peer.call("size", {"text": text})
    return str(as_dict(response.result)["content"][0]["text"])


@contextlib.asynccontextmanager
async def raw_connections(
    port: int, count: int
) -> AsyncIterator[list[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]:
    opened = [await asyncio.open_connection("127.0.0.1", port) for _ in range(count)]
    try:
        yield opened
    finally:
        for _, writer in opened:
            writer.close()


async def read_end(reader: asyncio.StreamReader) -> bytes:
    async with asyncio.timeout(HANG_SECONDS):
        with contextlib.suppress(ConnectionResetError):
            return await reader.read()
    return b""


def call_from(port: int, source: str, text: str = "x") -> bytes:
    message = tool_request("size", {"text": text}).SerializeToString()
    with Http2Connection(port, source, seconds=HANG_SECONDS) as connection:
        return connection.wait(connection.call(CALL, message)).data


def header_block(headers: Iterable[tuple[str, str]]) -> bytes:
    return b"".join(b"\x00%c%b%c%b" % (len(key), key.encode(), len(value), value.encode()) for key, value in headers)


# Connections


@needs_addresses
async def test_an_address_has_a_share_of_the_connections_and_others_are_served():
    async with serve_grpc(make_server(connections=8 * SHARE)) as peer:
        port = peer.server.port
        async with raw_connections(port, SHARE):
            await wait_until(lambda: relay_of(peer)._quotas.connections.held == SHARE, "they are counted")
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            assert await read_end(reader) == b""
            writer.close()
            assert await asyncio.to_thread(call_from, port, OTHER)
        await wait_until(lambda: relay_of(peer)._quotas.connections.held == 0, "they are given back")
        assert await call_size(peer, "abc") == "3"


async def test_connections_beyond_the_share_are_refused_one_in_an_iteration_of_the_loop(monkeypatch):
    async with serve_grpc(make_server()) as peer:
        loop, iterations = asyncio.get_running_loop(), [0]
        refused: list[int] = []

        def count() -> None:
            iterations[0] += 1
            if len(refused) < 20:
                loop.call_soon(count)

        def refuse(account: str) -> bool:
            refused.append(iterations[0])
            return False

        quotas = SimpleNamespace(connections=SimpleNamespace(take=refuse))
        monkeypatch.setattr(relay_of(peer), "_quotas", quotas)
        count()
        with contextlib.ExitStack() as opened:
            for _ in range(20):
                opened.enter_context(socket.create_connection(("127.0.0.1", peer.server.port)))
            await wait_until(lambda: len(refused) == 20, "all are refused")
        assert len(set(refused)) == 20


@needs_addresses
async def test_a_connection_counts_before_its_tls_begins(tmp_path):
    write_certificate(tmp_path)
    server = make_server(connections=8 * SHARE).grpc(
        port=0, tls_cert=tmp_path / "cert.pem", tls_key=tmp_path / "key.pem"
    )
    await server.start()
    try:
        async with raw_connections(server.port, SHARE):
            await wait_until(lambda: server._relay._quotas.connections.held == SHARE, "they are counted")
            with pytest.raises(OSError):
                context = ssl.create_default_context(cafile=str(tmp_path / "cert.pem"))
                await asyncio.open_connection("localhost", server.port, ssl=context, family=2)
        await wait_until(lambda: server._relay._quotas.connections.held == 0, "they are given back")
    finally:
        await server.stop(0)


@pytest.mark.parametrize("begin", [b"", PREFACE[:10], PREFACE + write_frame(FrameType.HEADERS, 0, 1, b"x")])
async def test_who_does_not_send_on_has_to_leave(begin):
    async with serve_grpc(make_server(header_seconds=0.1)) as peer:
        async with raw_connections(peer.server.port, 1) as [(reader, writer)]:
            writer.write(begin)
            await read_end(reader)


@pytest.mark.parametrize(
    "sends", [b"", write_frame(FrameType.SETTINGS, 0, 0), write_frame(FrameType.PING, 0, 0, bytes(8))]
)
async def test_a_connection_without_a_call_is_closed(sends, monkeypatch):
    monkeypatch.setattr("deltamcp.transports.grpc.server._IDLE_MS", 1_000)  # gRPC takes no less
    async with serve_grpc(make_server()) as peer:
        async with raw_connections(peer.server.port, 1) as [(reader, writer)]:
            writer.write(PREFACE + write_frame(FrameType.SETTINGS, 0, 0) + sends)
            await read_end(reader)


async def test_nothing_of_a_connection_stays_when_its_client_has_left():
    async with serve_grpc(make_server(send_seconds=3_600)) as peer:
        async with raw_connections(peer.server.port, 2) as opened:
            for _, writer in opened:
                writer.write(PREFACE + write_frame(FrameType.SETTINGS, 0, 0))
            for reader, _ in opened:
                await reader.readexactly(9)  # gRPC has begun
            left = [weakref.ref(connection) for connection in relay_of(peer)._accounts]
            assert len(left) == 2
        assert await call_size(peer, "abc") == "3"  # of the last connection, the task that accepts knows until the next

        def are_gone() -> bool:
            gc.collect()
            return all(connection() is None for connection in left)

        await wait_until(are_gone, "they are gone")


async def test_what_is_no_http_2_is_told_and_closed():
    async with serve_grpc(make_server()) as peer, raw_connections(peer.server.port, 1) as [(reader, writer)]:
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        assert b"this is no HTTP/2" in await read_end(reader)


async def test_a_header_section_without_end_closes_its_connection_alone():
    async with serve_grpc(make_server()) as peer, raw_connections(peer.server.port, 1) as [(reader, writer)]:
        writer.write(PREFACE + write_frame(FrameType.SETTINGS, 0, 0))
        writer.write(write_frame(FrameType.HEADERS, 0, 1, bytes(16_000)))
        writer.write(write_frame(FrameType.CONTINUATION, 0, 1, bytes(16_000)) * 10)
        assert b"a header section has at most 32768 bytes" in await read_end(reader)
        assert await call_size(peer, "abc") == "3"


async def test_a_trusted_proxy_may_open_any_number_of_connections():
    async with serve_grpc(make_server(connections=8), trusted_proxies=["127.0.0.1"]) as peer:
        async with raw_connections(peer.server.port, 5):
            assert await call_size(peer, "abc") == "3"
            assert relay_of(peer)._quotas.connections.held == 0


# Calls


async def test_calls_that_are_left_at_once_count_for_a_while(monkeypatch):
    monkeypatch.setattr("deltamcp.transports.grpc.connection._RESET_SECONDS", 0.1)
    async with serve_grpc(make_server()) as peer, raw_connections(peer.server.port, 1) as [(_, writer)]:
        relay, port = relay_of(peer), peer.server.port
        block = header_block(grpc_headers(port, CALL))
        writer.write(PREFACE + write_frame(FrameType.SETTINGS, 0, 0))
        for stream in range(1, 401, 2):
            writer.write(write_frame(FrameType.HEADERS, Flag.END_HEADERS, stream, block))
            writer.write(write_frame(FrameType.RST_STREAM, 0, stream, (8).to_bytes(4)))
        held = []
        for _ in range(10):
            assert await call_size(peer, "abc") == "3"
            held.append(relay._quotas.pending.held)
        assert max(held) <= relay._quotas.pending.share
        await wait_until(lambda: relay._quotas.pending.held == 0, "they are given back")


async def test_calls_give_back_all_that_they_took():
    async with serve_grpc(make_server()) as peer:
        quotas = relay_of(peer)._quotas
        assert await asyncio.gather(*(call_size(peer, "x" * 5_000 * n) for n in range(60))) == [
            str(5_000 * n) for n in range(60)
        ]
        with pytest.raises(grpc.aio.AioRpcError):
            await peer.channel.unary_unary("/x.Y/Z")(b"")
        await wait_until(lambda: (quotas.pending.held, quotas.bodies.held) == (0, 0), "all is given back")


async def test_a_call_beyond_the_bytes_of_its_address_ends_alone():
    async with serve_grpc(make_server(body_bytes=8 * 100_000)) as peer:
        for _ in range(20):  # more than the connection's window has room for
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await call_size(peer, "x" * 150_000)
            assert refusal(caught.value).code == "RESOURCE_EXHAUSTED"
            assert await call_size(peer, "abc") == "3"


async def test_calls_that_end_for_their_bytes_leave_the_responses_of_others_whole():
    """The relay writes frames of its own between gRPC's, of which a read may have a part."""
    async with serve_grpc(make_server(body_bytes=8 * 100_000)) as peer:

        async def read_large() -> int:
            response = await peer.call("repeat", {"times": 100_000})
            text = str(as_dict(response.result)["content"][0]["text"])
            assert {text[i : i + 8] for i in range(0, len(text), 8)} == {"abcdefgh"}
            return len(text)

        async def send_too_much() -> None:
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await call_size(peer, "x" * 150_000)
            assert refusal(caught.value).code == "RESOURCE_EXHAUSTED"

        found = await asyncio.gather(*(one() for _ in range(10) for one in (read_large, send_too_much)))
        assert found == [800_000, None] * 10


async def test_what_a_client_may_send_again_is_one_frame_once_it_reads():
    """Of what it sends on a stream that has ended, gRPC sees nothing, and the relay lets it send as much again."""
    sent: list[bytes] = []
    client = SimpleNamespace(transport=SimpleNamespace(write=sent.append), is_behind=True, end_call=lambda stream: None)
    connection = GrpcServerConnection(memoryview(bytearray(1)), client, lambda: None)  # type: ignore[arg-type]
    for _ in range(1_000):
        connection.open_window(16_384)
    assert sent == []
    client.is_behind = False
    connection.send_waiting()
    assert sent == [write_window_update(0, 16_384_000)]

    sent.clear()
    ping = write_frame(FrameType.PING, 0, 0, bytes(8))
    connection.receive(ping[:12])
    connection.open_window(2**31)
    connection.send_waiting()
    connection.receive(ping[12:])
    assert sent == [ping[:12], ping[12:] + write_window_update(0, 2**31 - 1)]


class CountingTransport:
    """A transport that counts the frames written to it, all of them of one size, in a list that others may share."""

    def __init__(self, written: list[int], frame_bytes: int) -> None:
        self._written, self._frame_bytes = written, frame_bytes

    def write(self, data: bytes) -> None:
        self._written.append(len(data) // self._frame_bytes)

    def set_write_buffer_limits(self, high: int) -> None: ...

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def abort(self) -> None: ...


async def connect_to_nobody(
    quotas: GrpcQuotas, address: str, to_grpc: CountingTransport, to_client: CountingTransport
) -> GrpcClientConnection:
    """Returns a connection whose side to gRPC is there already."""

    async def connect(client: GrpcClientConnection) -> GrpcServerConnection:
        connected = GrpcServerConnection(quotas.buffer, client, lambda: None)
        connected.transport = to_grpc
        return connected

    connection = GrpcClientConnection(address, address, Limits(), quotas, connect, lambda one: None)
    connection.connection_made(to_client)
    connection.receive(PREFACE)
    await wait_until(lambda: connection._task is None, "it is connected")
    return connection


async def test_small_frames_of_many_connections_are_passed_on_in_turns():
    """However many connections an address has, others wait for no more than these frames, whatever they are."""
    quotas = GrpcQuotas(Limits(), 1_000)
    ping = write_frame(FrameType.PING, 0, 0, bytes(8))
    passed: list[int] = []
    counts, unread = CountingTransport(passed, len(ping)), CountingTransport([], 1)
    flooding = [await connect_to_nobody(quotas, "192.0.2.1", counts, unread) for _ in range(64)]
    others: list[int] = []
    other = await connect_to_nobody(quotas, "192.0.2.2", CountingTransport(others, len(ping)), unread)
    await asyncio.sleep(0)

    for connection in flooding:
        connection.receive(ping * 500)
    assert sum(passed) <= 256
    other.receive(ping * 10)
    assert others == [10]
    most = 0
    while any(connection._task is not None for connection in flooding):
        before = sum(passed)
        await asyncio.sleep(0)
        most = max(most, sum(passed) - before)
    assert sum(passed) == 64 * 500
    assert most <= 4 * 256
    for connection in [*flooding, other]:
        connection.connection_lost(None)


async def test_what_a_client_may_send_again_is_told_once_for_all_that_came_together():
    quotas = GrpcQuotas(Limits(), 1_000)
    data = write_frame(FrameType.DATA, 0, 1, bytes(10))
    told: list[int] = []
    to_client = CountingTransport(told, len(write_window_update(0, 1)))
    connection = await connect_to_nobody(quotas, "192.0.2.1", CountingTransport([], 1), to_client)
    await asyncio.sleep(0)
    connection.receive(data * 100)  # on a stream that has ended
    assert told == [1]
    connection.connection_lost(None)


async def test_a_header_section_that_ends_within_a_field_is_refused(caplog):
    """Its last value has so many bytes that the field which the relay adds is a part of it."""
    relayed = b"\x00\x10x-relayed-stream\x011"
    async with serve_grpc(make_server()) as peer:
        block = header_block(grpc_headers(peer.server.port, CALL)) + b"\x00\x01x%c" % len(relayed)
        message = grpc_message(tool_request("size", {"text": "abc"}).SerializeToString())
        async with raw_connections(peer.server.port, 1) as [(reader, writer)]:
            writer.write(PREFACE + write_frame(FrameType.SETTINGS, 0, 0))
            writer.write(write_frame(FrameType.HEADERS, Flag.END_HEADERS, 1, block))
            writer.write(write_frame(FrameType.DATA, Flag.END_STREAM, 1, message))
            answer = b""
            async with asyncio.timeout(HANG_SECONDS):
                while b"connection of this call has closed" not in answer:
                    answer += await reader.read(65_536)
                    assert answer
        assert await call_size(peer, "abc") == "3"
    assert not [record for record in caplog.records if record.exc_info]


async def test_what_a_client_names_as_the_relay_does_is_left_out():
    async with serve_grpc(make_server()) as peer:
        response = await peer.call("size", {"text": "abc"}, metadata=(("x-relayed-stream", "nonsense"),))
        assert as_dict(response.result)["content"][0]["text"] == "3"


async def test_a_compressed_message_is_refused():
    async with serve_grpc(make_server()) as peer:

        def call() -> str:
            data = gzip.compress(bytes(100_000))
            with Http2Connection(peer.server.port, seconds=HANG_SECONDS) as connection:
                stream = connection.open_stream(grpc_headers(1, CALL, [("grpc-encoding", "gzip")]))
                connection.send_data(stream, b"\x01" + grpc_message(data)[1:])
                return connection.wait(stream).status

        assert (await asyncio.to_thread(call)).startswith("12 ")


# Where gRPC itself listens


async def test_grpc_listens_where_this_user_alone_connects():
    async with serve_grpc(make_server()) as peer:
        folder = relay_of(peer)._folder
        assert folder is not None and folder.stat().st_mode & 0o777 == 0o700
        assert [path.name for path in folder.iterdir()] == ["grpc"]
        assert await call_size(peer, "abc") == "3"
        assert [path.name for path in folder.iterdir()] == ["grpc"]
    assert not folder.exists()


async def test_without_unix_sockets_calls_come_by_the_relay_only(monkeypatch):
    monkeypatch.setattr(grpc_server, "_make_folder", lambda: None)
    async with serve_grpc(make_server()) as peer:
        assert await call_size(peer, "abc") == "3"
        async with grpc.aio.insecure_channel(f"127.0.0.1:{relay_of(peer)._port}") as channel:
            found = await GrpcPeer(channel, peer.server).refused("size", {"text": "abc"})
            assert found.text == "The connection of this call has closed."


def test_a_long_temporary_folder_is_not_used(monkeypatch, tmp_path):
    long = tmp_path / ("x" * 100)
    long.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(long))
    assert grpc_server._make_folder() is None and list(long.iterdir()) == []


def test_no_temporary_folder_is_needed(monkeypatch):
    monkeypatch.setattr("tempfile.mkdtemp", lambda **_: Path("/nonexistent/x").mkdir())
    assert grpc_server._make_folder() is None
