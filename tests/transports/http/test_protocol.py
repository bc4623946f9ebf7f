"""The connections of the HTTP server."""

import asyncio
import contextlib
import json
import socket
import struct
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlsplit

import pytest

from deltamcp import DeltaServer, HostAuth, Principal
from deltamcp.transports.http.asgi import PIECE_BYTES
from deltamcp.transports.http.server import make_server
from tests.support.conditions import wait_until
from tests.support.http_server import serve_uvicorn


async def test_a_connection_that_the_client_resets_leaves_no_timer():
    server = make_server(DeltaServer("x").engine, port=0)
    async with serve_uvicorn(server) as address:
        client = socket.create_connection(("127.0.0.1", urlsplit(address).port or 0))
        client.sendall(b"GET /nowhere HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
        connections: set[Any] = server.server_state.connections
        await wait_until(lambda: any(one.timeout_keep_alive_task for one in connections))
        [protocol] = connections
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.close()
        await wait_until(lambda: not connections)
        await wait_until(lambda: protocol.timeout_keep_alive_task is None)


def chunked(headers: bytes, trailers: bytes) -> bytes:
    head = b"POST /mcp HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n" + headers
    return head + b"transfer-encoding: chunked\r\n\r\n" + b"1\r\n \r\n0\r\n" + trailers + b"\r\n"


def send(address: str, *pieces: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", urlsplit(address).port or 0), 10) as client:
        for piece in pieces:
            client.sendall(piece)
        return client.recv(1000)


@pytest.mark.parametrize("size", [1, 20, 10_000], ids=["each byte alone", "in pieces", "whole"])
async def test_what_follows_a_body_is_no_header(size):
    """RFC 9110, 6.5.1. A proxy that says in a header who the client is lets trailers pass."""
    found: list[list[tuple[bytes, bytes]]] = []

    def find(scope: Any) -> Principal:
        found.append(list(scope["headers"]))
        return Principal(dict(scope["headers"])[b"x-user"].decode())

    server = make_server(DeltaServer("x").engine, port=0, auth=HostAuth(find))
    request = chunked(b"x-user: mallory\r\n", b"X-User: ann\r\nExpect: 100-continue\r\n")
    async with serve_uvicorn(server) as address:
        pieces = [request[at : at + size] for at in range(0, len(request), size)]
        await asyncio.to_thread(send, address, *pieces, chunked(b"x-user: bob\r\n", b""))
        await wait_until(lambda: len(found) == 2)
    users = [[value for name, value in headers if name == b"x-user"] for headers in found]
    assert users == [[b"mallory"], [b"bob"]]


async def test_fields_without_end_after_a_body_are_refused():
    server = make_server(DeltaServer("x").engine, port=0)
    async with serve_uvicorn(server) as address:
        few, many = [await asyncio.to_thread(send, address, chunked(b"", b"a: b\r\n" * count)) for count in (10, 500)]
    assert b"content-type: application/json" in few, "the application has answered"
    assert many == b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


def call(name: str) -> bytes:
    meta = {f"io.modelcontextprotocol/{key}": value for key, value in META.items()}
    params = {"name": name, "arguments": {}, "_meta": meta}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode()
    head = (
        "POST /mcp HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
        f"mcp-protocol-version: 2026-07-28\r\nmcp-method: tools/call\r\nmcp-name: {name}\r\n"
        f"content-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


META: dict[str, Any] = {"protocolVersion": "2026-07-28", "clientCapabilities": {}}


@contextlib.asynccontextmanager
async def connection_to(server: DeltaServer) -> AsyncIterator[tuple[socket.socket, Any]]:
    """Opens a connection; gives the client's end and the server's."""
    served = make_server(server.engine, port=0)
    async with serve_uvicorn(served) as address:
        with socket.socket() as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * 1024)
            client.connect(("127.0.0.1", urlsplit(address).port or 0))
            await wait_until(lambda: bool(served.server_state.connections))
            [protocol] = served.server_state.connections
            yield client, protocol


async def test_a_client_that_reads_a_piece_in_the_time_for_it_is_not_cut_off():
    server = DeltaServer("x")

    @server.tool
    async def give() -> str:
        return "x" * 16_000_000

    async with connection_to(server) as (client, protocol):
        client.sendall(call("give"))
        await wait_until(lambda: protocol.send_timer is not None)
        unread, timer = protocol.transport.get_write_buffer_size(), protocol.send_timer
        protocol.check_reader(unread + PIECE_BYTES)
        assert protocol.send_timer is not timer
        assert not protocol.transport.is_closing()
        protocol.check_reader(unread + PIECE_BYTES - 1)
        assert protocol.transport.is_closing()


async def test_a_large_response_counts_for_its_account_until_it_is_read():
    server = DeltaServer("x")

    @server.tool
    async def give() -> str:
        return "x" * 16_000_000

    async with connection_to(server) as (client, protocol):
        responses = protocol.app._quotas.responses
        client.sendall(call("give"))
        await wait_until(lambda: protocol.send_timer is not None)
        assert responses.held == responses.share or responses.held > 16_000_000
        assert not protocol.cycle.response_complete
        reading = asyncio.get_running_loop().run_in_executor(None, read_all, client, 16_000_000)
        await wait_until(lambda: protocol.cycle.response_complete)
        await reading
        await wait_until(lambda: responses.held == 0)


def read_all(client: socket.socket, size: int) -> None:
    while size > 0:
        size -= len(client.recv(1_000_000))


async def test_a_connection_is_closed_when_it_has_been_idle_for_its_time():
    server, go_on = DeltaServer("x"), asyncio.Event()

    @server.tool
    async def wait() -> str:
        await go_on.wait()
        return "done"

    async with connection_to(server) as (client, protocol):
        for number in range(2):
            go_on.clear()
            client.sendall(call("wait"))
            await wait_until(lambda: protocol.cycle is not None and not protocol.cycle.response_complete)
            if number:
                protocol.idle_since -= 3600
                protocol.timeout_keep_alive_handler()
                assert not protocol.transport.is_closing(), "a request is in progress"
            go_on.set()
            await wait_until(lambda: protocol.cycle.response_complete)
        protocol.timeout_keep_alive_handler()
        assert not protocol.transport.is_closing(), "it was used a moment ago"
        protocol.idle_since -= 3600
        protocol.timeout_keep_alive_handler()
        assert protocol.transport.is_closing()
