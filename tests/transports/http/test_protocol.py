"""The connections of the HTTP server."""

import asyncio
import socket
import struct
from typing import Any
from urllib.parse import urlsplit

import pytest

from deltamcp import DeltaServer, HostAuth, Principal
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
