"""The connections of gRPC clients: bounds what each address costs, and passes their frames on to the grpcio package.

grpcio reads whatever comes: header sections without end, resets as fast as they can be sent, all connections of one
address. None of its options bounds that, so it listens at a Unix socket that this process alone reaches.
"""

import asyncio
import functools
import itertools
import logging
import os
import shutil
import socket
import ssl
import sys
import tempfile
from pathlib import Path
from typing import Any

from deltamcp.limits import Limits
from deltamcp.runtime.log import WARNING_FILTER
from deltamcp.transports.grpc.connection import CALL_KEY, GrpcClientConnection, GrpcQuotas, GrpcServerConnection
from deltamcp.transports.http.asgi import client_address
from deltamcp.transports.sockets import TlsFiles
from deltamcp.transports.trusted_proxies import TrustedProxies

logger: logging.Logger = logging.getLogger("deltamcp.grpc")
logger.addFilter(WARNING_FILTER)

_BACKLOG = 512
_RETRY_SECONDS = 1.0
_SOCKET = "grpc"
_MAX_FOLDER_BYTES = 80
"""The path of a Unix socket may have 103 bytes on macOS, 107 on Linux."""


class GrpcRelay:
    """Listens for one gRPC server and passes connections on to it, of each address at most a share."""

    def __init__(self, limits: Limits, connections: int, proxies: TrustedProxies, tls: TlsFiles | None) -> None:
        """`connections` is how many can be open at once, without those of the proxies, which are not limited."""
        self._limits = limits
        self._quotas = GrpcQuotas(limits, connections)
        self._proxies = proxies
        self._tls = None if tls is None else _make_context(tls)
        self._numbers = itertools.count(1)
        self._accounts: dict[GrpcClientConnection, str | None] = {}
        """The connections that are open, with what they count as."""
        self._clients: dict[str, GrpcClientConnection] = {}
        """The connections that gRPC knows, by what it calls them."""
        self._folder: Path | None = None
        self._port = 0
        self._listeners: list[asyncio.Task[None]] = []
        self._beginning: set[asyncio.Task[None]] = set()

    def bind(self, grpc_server: Any) -> None:
        """Has the server of grpcio listen where only the relay connects to it.

        That is a Unix socket in a folder of this user's; where there is none, a port of this machine, whose calls are
        refused unless they come by the relay.
        """
        self._folder = _make_folder()
        if self._folder is None:
            self._port = grpc_server.add_insecure_port("127.0.0.1:0")
        else:
            grpc_server.add_insecure_port(f"unix:{self._folder / _SOCKET}")

    async def listen(self, sockets: list[socket.socket]) -> None:
        """Accepts connections at bound sockets; the server of grpcio has started by then."""
        for bound in sockets:
            bound.setblocking(False)
            bound.listen(_BACKLOG)
            self._listeners.append(asyncio.ensure_future(self._accept(bound)))

    async def _accept(self, bound: socket.socket) -> None:
        """Accepts connections until it is cancelled. One that is not counted yet costs no TLS."""
        loop = asyncio.get_running_loop()
        with bound:
            while True:
                try:
                    accepted, client = await loop.sock_accept(bound)
                except OSError as error:  # the process has too many files open, or the client has left
                    logger.warning("A gRPC connection cannot be accepted: %s", error.strerror)
                    await asyncio.sleep(_RETRY_SECONDS)
                    continue
                account = None if self._proxies.trusts(client) else client_address({"client": client})
                if account is not None and not self._quotas.connections.take(account):
                    accepted.close()
                    await asyncio.sleep(0)  # asyncio's `sock_accept` does not wait while others want to connect
                    continue
                connection = GrpcClientConnection(
                    str(client[0]), account, self._limits, self._quotas, self._connect, self._forget
                )
                self._accounts[connection] = account
                task = asyncio.ensure_future(self._begin(connection, accepted))
                self._beginning.add(task)
                task.add_done_callback(self._beginning.discard)

    async def _begin(self, connection: GrpcClientConnection, accepted: socket.socket) -> None:
        seconds = None if self._tls is None else self._limits.header_seconds
        try:
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: connection, accepted, ssl=self._tls, ssl_handshake_timeout=seconds
            )
        except BaseException as error:
            accepted.close()
            self._forget(connection)
            if not isinstance(error, OSError):  # the client has left, or does not know TLS
                raise

    def _forget(self, connection: GrpcClientConnection) -> None:
        account = self._accounts.pop(connection, None)
        if account is not None:
            self._quotas.connections.give_back(account)

    async def stop_listening(self) -> None:
        """Accepts no further connections."""
        for task in self._listeners:
            task.cancel()
        await asyncio.gather(*self._listeners, return_exceptions=True)
        self._listeners.clear()

    def close(self) -> None:
        """Closes what is left of the connections, and removes the socket."""
        for task in self._beginning:
            task.cancel()
        for connection in tuple(self._accounts):
            connection.abort()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def take_call(self, context: Any) -> str | None:
        """Takes a call that gRPC gives to the service, by its context.

        Returns:
            The address of the client; None if the call comes by none of the relay's connections, or that has closed, or
            if the client's header section ends within a field, which then has that of the relay in it.
        """
        client = self._clients.get(context.peer())
        named = [str(value) for key, value in context.invocation_metadata() or () if key == CALL_KEY]
        if client is None or not named or not named[-1].isdecimal():
            return None
        client.take_call(int(named[-1]))
        return client.host

    async def _connect(self, client: GrpcClientConnection) -> GrpcServerConnection:
        """Opens a client's connection to gRPC, under a name that tells whose calls come by it."""
        loop = asyncio.get_running_loop()
        own = await self._open_socket()
        name = own.getsockname()
        peer = f"ipv4:127.0.0.1:{name[1]}" if self._folder is None else f"unix:{name}"
        connection = GrpcServerConnection(self._quotas.buffer, client, functools.partial(self._clients.pop, peer, None))
        create = loop.create_connection if self._folder is None else loop.create_unix_connection
        try:
            await create(lambda: connection, sock=own)
        except BaseException:  # the client has left meanwhile
            own.close()
            raise
        self._clients[peer] = client
        return connection

    async def _open_socket(self) -> socket.socket:
        loop = asyncio.get_running_loop()
        own = socket.socket(socket.AF_INET if self._folder is None else socket.AF_UNIX)
        try:
            own.setblocking(False)
            if self._folder is None:
                await loop.sock_connect(own, ("127.0.0.1", self._port))
                return own
            path = self._folder / str(next(self._numbers))
            own.bind(os.fspath(path))
            try:
                await loop.sock_connect(own, os.fspath(self._folder / _SOCKET))
            finally:
                path.unlink(missing_ok=True)  # the socket keeps its name
        except BaseException:
            own.close()
            raise
        return own


def _make_folder() -> Path | None:
    """Returns a new folder that only this user can open; None where there are no Unix sockets, or no folder."""
    if not hasattr(socket, "AF_UNIX") or sys.platform == "win32":
        return None
    try:
        folder = Path(tempfile.mkdtemp(prefix="delta-mcp-"))
    except OSError:
        return None
    if len(os.fsencode(folder)) > _MAX_FOLDER_BYTES:
        folder.rmdir()
        return None
    return folder


def _make_context(tls: TlsFiles) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(tls.cert, tls.key)
    context.set_alpn_protocols(["h2"])
    return context
