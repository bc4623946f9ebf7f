"""MCP-lite over gRPC: listens, with health and reflection beside the services, and logs little of its peers.

grpcio reads whatever comes: header sections without end, resets as fast as they can be sent, all connections of one
address. None of its options bounds that, so it listens at a Unix socket that this process alone reaches. `GrpcRelay`
accepts the connections, bounds what each address costs, and passes their frames on to it.
"""

import asyncio
import contextlib
import functools
import itertools
import logging
import os
import shutil
import signal
import socket
import ssl
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Unpack

import grpc
from grpc._cython import cygrpc
from grpc.aio import _server
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection, reflection_pb2

from deltamcp.auth.safe_url import is_loopback
from deltamcp.calls.engine import Engine
from deltamcp.catalog.text.clean_text import visible_line
from deltamcp.errors import ConfigurationError
from deltamcp.limits import Limits
from deltamcp.runtime.log import WARNING_FILTER
from deltamcp.runtime.process import run_in_loop
from deltamcp.transports.admission import TrustedProxies
from deltamcp.transports.grpc.admission import OpenServices
from deltamcp.transports.grpc.connection import CALL_KEY, GrpcClientConnection, GrpcQuotas, GrpcServerConnection
from deltamcp.transports.grpc.requests import add_file, lite_messages
from deltamcp.transports.grpc.service import GrpcService, max_calls
from deltamcp.transports.http.asgi import client_address
from deltamcp.transports.options import GrpcOptions
from deltamcp.transports.sockets import TlsFiles, allowed_connections, bind_sockets, check_files

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


_NO_UTF_8 = "Metadata of a gRPC call is no UTF-8"
_NOT_SENT = "A gRPC call ended before its response was sent"


class GrpcLogFilter(logging.Filter):
    """Makes a warning of an error with a traceback that any peer can cause, and passes some of them.

    The text of such an error may have a credential. All other records pass as they are.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, cygrpc.ExecuteBatchError):
            text = _NOT_SENT
        elif isinstance(error, UnicodeDecodeError) and str(record.msg).startswith("Invalid encoding"):
            text = _NO_UTF_8
        else:
            return True
        record.msg, record.args, record.exc_info = text, (), None
        record.levelno, record.levelname = logging.WARNING, "WARNING"
        return WARNING_FILTER.filter(record)


GRPC_LOG_FILTER = GrpcLogFilter()
"""The filter of grpcio's logger."""


logging.getLogger("grpc._cython.cygrpc").addFilter(GRPC_LOG_FILTER)

_UNKNOWN = "Method not found!"
"""What grpcio says of an unknown method itself."""


class _Calls(cygrpc.AioServer):  # type: ignore[misc]  # grpc has no types
    """Accepts calls: grpcio those of registered methods, whose names it knows; this class refuses all others.

    grpcio would decode the names of those others in the task that accepts all calls: one `:path` that is no UTF-8 ends
    that task, and with it the server and everybody's calls. None of this is public; hence the bounds of grpcio's
    version in `pyproject.toml`.
    """

    def __init__(self, loop: Any, *arguments: Any) -> None:
        super().__init__(loop, *arguments)
        self._event_loop = loop
        self._refusals: set[Any] = set()

    async def _request_call(self) -> Any:
        """Refuses calls of methods that are not registered, until the server stops, which raises."""
        while True:
            call = await super()._request_call()
            context = cygrpc._ServicerContext(call, None, None, self._event_loop)  # noqa: SLF001
            refusal = context.abort(grpc.StatusCode.UNIMPLEMENTED, _UNKNOWN)
            serving = cygrpc._schedule_rpc_coro(refusal, call, self._event_loop, "unknown")  # noqa: SLF001
            task = self._event_loop.create_task(serving)
            self._refusals.add(task)
            task.add_done_callback(self._refusals.discard)


class _GrpcListener(_server.Server):  # type: ignore[misc]  # grpc has no types
    """A `grpc.aio` server that serves registered methods only, at most so many `calls` at once."""

    def __init__(
        self, interceptor: grpc.aio.ServerInterceptor, channel_options: list[tuple[str, int]], calls: int
    ) -> None:
        self._loop = cygrpc.get_working_loop()
        self._server = _Calls(self._loop, None, (), (interceptor,), tuple(channel_options), calls)


_KEEPALIVE_MS = 30_000
_KEEPALIVE_TIMEOUT_MS = 10_000
_CLIENT_PING_MS = 10_000
"""How often clients may send pings without data; more often, and gRPC closes their connection."""
_IDLE_MS = 60_000
"""How long a connection without a call stays open, as over HTTP; clients of gRPC connect again by themselves."""
_IDENTITY_ONLY = 1
"""The algorithms by which messages may be compressed: none, because grpcio looks at a message's size afterwards."""
_CONNECTION_DESCRIPTORS = 3
"""A connection is the client's, the relay's and grpcio's."""
_DESCRIPTORS_SHARE = 1 / 8
"""The part of the process's descriptors for these connections; most of the others are for HTTP."""
_UNSENT_STREAM_BYTES = 8 * 1024
"""What gRPC takes of a stream that its client does not read; its own 64 kB were 36 MB on 1,250 streams."""
_UNLIMITED = 2**31 - 1
_END_SECONDS = 0.5
"""How long the last responses may take to be sent when the server stops."""


class GrpcServer:
    """Serves one engine at one address. It shares the engine, and with it promises, with other transports."""

    def __init__(
        self, engine: Engine, host: str = "127.0.0.1", port: int = 50051, **options: Unpack[GrpcOptions]
    ) -> None:
        """
        Raises:
            ConfigurationError: other machines reach the host and there is no `auth`; or there is no TLS with these
                files.
        """
        self._tls = check_files(options.get("tls_cert"), options.get("tls_key"))
        if options.get("auth") is None and not is_loopback(host):
            raise ConfigurationError(
                f"At {host} other machines reach the server; pass auth=ResourceServer(...), auth=StaticTokens(...) or, "
                "to let everybody in, auth=OpenAccess()."
            )
        self._engine = engine
        self._host = host
        self.port: int = port
        """The port; once the server has started, the one that it listens at."""
        self._reuses_port = options.get("reuse_port", False)
        connections = allowed_connections(engine.limits.connections, _DESCRIPTORS_SHARE, _CONNECTION_DESCRIPTORS)
        proxies = TrustedProxies(options.get("trusted_proxies", ()))
        self._relay = GrpcRelay(engine.limits, connections, proxies, self._tls)
        self._service = GrpcService(engine, options, self._relay.take_call)
        self._server: Any = None
        self._health: Any = None
        self._running = contextlib.AsyncExitStack()
        self.announce: Callable[[str], None] = _print_address
        """Gets a sentence without its end that says what is served where, once the server listens."""

    @property
    def address(self) -> str:
        """The URL that a client connects to."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"{'grpc' if self._tls is None else 'grpcs'}://{host}:{self.port}"

    async def start(self) -> None:
        """Listens, once the lifespan has started.

        Raises:
            ConfigurationError: the server cannot listen at this address.
            Exception: the author's lifespan raised it.
        """
        await self._running.enter_async_context(self._engine.lifespan.running())
        try:
            await self._listen()
        except BaseException:
            await self._running.aclose()
            raise

    async def _listen(self) -> None:
        limits = self._engine.limits
        sockets = bind_sockets(self._host, self.port, reuse_port=self._reuses_port)
        self.port = sockets[0].getsockname()[1]
        self._server = _GrpcListener(
            OpenServices(limits, self._relay.take_call), _channel_options(limits), limits.calls
        )
        for name, methods in self._service.methods().items():
            self._server.add_registered_method_handlers(name, methods)
        self._health = health.aio.HealthServicer()
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        names = [*self._service.names, health.SERVICE_NAME]
        pool = lite_messages().pool
        for message in (health_pb2.HealthCheckRequest, reflection_pb2.ServerReflectionRequest):
            add_file(pool, message)
        reflection.enable_server_reflection([*names, reflection.SERVICE_NAME], self._server, pool)
        self._relay.bind(self._server)
        for name in ("", *names):
            await self._health.set(name, health_pb2.HealthCheckResponse.SERVING)
        await self._server.start()
        await self._relay.listen(sockets)
        self.announce(f"Serving {self._engine.info['name']} at {self.address}")

    async def stop(self, seconds: float | None = None) -> None:
        """Takes no more requests; those in progress have `seconds`, or `Limits.drain_seconds`, to end."""
        if self._server is None:
            return
        seconds = self._engine.limits.drain_seconds if seconds is None else seconds
        await self._relay.stop_listening()
        await self._health.enter_graceful_shutdown()
        ending = asyncio.ensure_future(self._server.stop(seconds + _END_SECONDS))
        await self._service.drain(seconds)
        await asyncio.wait([ending], timeout=_END_SECONDS)
        await self._server.stop(0)  # what else may be open is no call, such as a watch of the health
        await ending
        self._relay.close()
        self._server = None
        await self._running.aclose()

    # A process of its own

    def run(self) -> None:
        """Serves until SIGTERM or SIGINT; a second one ends the requests in progress at once."""
        run_in_loop(self.serve())

    async def serve(self) -> None:
        """Serves until SIGTERM or SIGINT, if this is the main thread, or until it is cancelled."""
        loop = asyncio.get_running_loop()
        signals: asyncio.Queue[int] = asyncio.Queue()
        takes_signals = threading.current_thread() is threading.main_thread() and sys.platform != "win32"
        await self.start()
        numbers = (signal.SIGTERM, signal.SIGINT) if takes_signals else ()
        for number in numbers:
            loop.add_signal_handler(number, signals.put_nowait, number)
        stopping: asyncio.Future[None] | None = None
        try:
            await signals.get()
            stopping = asyncio.ensure_future(self.stop())
            again = asyncio.ensure_future(signals.get())
            await asyncio.wait([stopping, again], return_when=asyncio.FIRST_COMPLETED)
            again.cancel()
        finally:
            if stopping is None or not stopping.done():
                if stopping is not None:
                    stopping.cancel()
                await self._service.drain(0)
                await self.stop(0)
            for number in numbers:
                loop.remove_signal_handler(number)


def _channel_options(limits: Limits) -> list[tuple[str, int]]:
    return [
        ("grpc.max_receive_message_length", limits.message_bytes),
        ("grpc.max_send_message_length", -1),  # the service keeps to `message_bytes`, with an error that says so
        ("grpc.max_metadata_size", limits.header_bytes),
        ("grpc.http2.bdp_probe", 0),  # else gRPC stores megabytes of every stream before anybody asks for its message
        ("grpc.max_concurrent_streams", max(1, int(max_calls(limits) * limits.account_share))),
        ("grpc.http2.write_buffer_size", _UNSENT_STREAM_BYTES),
        ("grpc.max_connection_idle_ms", _IDLE_MS),
        ("grpc.compression_enabled_algorithms_bitset", _IDENTITY_ONLY),
        ("grpc.server.max_pending_requests", _UNLIMITED),  # the relay bounds those of each address
        ("grpc.server.max_pending_requests_hard_limit", _UNLIMITED),
        ("grpc.keepalive_time_ms", _KEEPALIVE_MS),
        ("grpc.keepalive_timeout_ms", _KEEPALIVE_TIMEOUT_MS),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.min_recv_ping_interval_without_data_ms", _CLIENT_PING_MS),
    ]


def _print_address(address: str) -> None:
    sys.stderr.write(f"{visible_line(address)} (Ctrl-C stops)\n")
    sys.stderr.flush()
