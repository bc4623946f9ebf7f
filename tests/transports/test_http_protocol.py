"""The connections of the HTTP server."""

import socket
import struct
from typing import Any
from urllib.parse import urlsplit

from deltamcp import DeltaServer
from deltamcp.transports.uvicorn_server import make_server
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
