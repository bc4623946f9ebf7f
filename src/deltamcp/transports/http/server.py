"""Runs the application under uvicorn, on sockets of its own, until a signal; streams end first."""

import asyncio
import contextlib
import copy
import functools
import logging
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol, Unpack, cast

import uvicorn

from deltamcp.auth.safe_url import is_loopback
from deltamcp.calls.engine import Engine
from deltamcp.catalog.text.clean_text import visible_line
from deltamcp.errors import ConfigurationError
from deltamcp.runtime.log import WARNING_FILTER
from deltamcp.runtime.quota import Quota
from deltamcp.transports.http.app import ServerApp, make_app
from deltamcp.transports.http.origins import LOOPBACK
from deltamcp.transports.http.protocol import bounded_protocol
from deltamcp.transports.options import HttpOptions, HttpServerOptions
from deltamcp.transports.sockets import allowed_connections, bind_sockets, check_files, listen_error

_POLL_SECONDS = 0.1
"""How often a server that stops looks whether it was told again to."""


_DESCRIPTORS_SHARE = 3 / 4
"""The part of the process's descriptors for connections; the rest is for files, stores and upstreams."""


class OtherServer(Protocol):
    """A server of another protocol that starts and stops with this one, in the same event loop."""

    async def start(self) -> None: ...
    async def stop(self) -> None: ...


class HttpServer(uvicorn.Server):
    """uvicorn's server, which listens once the lifespan has started, and then prints its address to stderr.

    At shutdown it first ends the streams that would keep it from exiting.
    """

    def __init__(self, config: uvicorn.Config, app: ServerApp, engine: Engine) -> None:
        super().__init__(config)
        self._app = app
        self._engine = engine
        self._running = contextlib.AsyncExitStack()
        self._others: list[tuple[Any, Sequence[socket.socket]]] = []
        self._other_servers: list[OtherServer] = []
        self.announce: Callable[[str], None] = _print_address
        """Gets a sentence without its end that says what is served where, once the server listens."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Makes SIGTERM and SIGINT stop the server; uvicorn itself would raise them again afterwards."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self.handle_exit) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def add_application(self, app: Any, sockets: Sequence[socket.socket]) -> None:
        """Serves another ASGI application too, at sockets of its own and without TLS."""
        self._others.append((app, sockets))

    def add_server(self, server: OtherServer) -> None:
        """Starts and stops another server with this one."""
        self._other_servers.append(server)

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        """Serves until a signal, at `sockets` or at the host and port of the configuration.

        Raises:
            ConfigurationError: the server cannot listen at this address.
            Exception: the author's lifespan raised it.
        """
        async with self._running:
            if sockets is None:
                sockets = bind_sockets(self.config.host, self.config.port)
            for bound in sockets:
                self._running.callback(bound.close)
            await super().serve(sockets)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        assert sockets, "`serve` has bound them"
        port = sockets[0].getsockname()[1]
        await self._running.enter_async_context(self._engine.lifespan.running())
        try:
            await super().startup(sockets)
        except OSError as error:  # another process began to listen after both had bound the port
            raise listen_error(self.config.host, port, error) from None
        for app, bound in self._others:
            await self._listen(app, bound)
        for server in self._other_servers:
            await server.start()
        if not self.should_exit:
            name, host = self._engine.info["name"], self.config.host
            scheme = "https" if self.config.is_ssl else "http"
            url = f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}{self._app.path}"
            self.announce(f"Serving {name} at {url}")

    async def _listen(self, app: Any, sockets: Sequence[socket.socket]) -> None:
        config: Any = copy.copy(self.config)
        config.loaded_app = app
        make = functools.partial(
            config.http_protocol_class, config=config, server_state=self.server_state, app_state=self.lifespan.state
        )
        for bound in sockets:
            server = await asyncio.get_running_loop().create_server(make, sock=bound, backlog=config.backlog)
            self.servers.append(server)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._app.drain()
        stopping = [asyncio.ensure_future(server.stop()) for server in self._other_servers]
        await super().shutdown(sockets)
        while any(not one.done() for one in stopping) and not self.force_exit:
            await asyncio.wait(stopping, timeout=_POLL_SECONDS)
        if not self.force_exit:
            await self._running.aclose()


def _print_address(address: str) -> None:
    sys.stderr.write(f"{visible_line(address)} (Ctrl-C stops)\n")
    sys.stderr.flush()


def make_server(
    engine: Engine, host: str = "127.0.0.1", port: int = 8000, path: str = "/mcp", **options: Unpack[HttpServerOptions]
) -> HttpServer:
    """Returns a server that is not started yet. By default it accepts loopback names and the host it listens at.

    Raises:
        ConfigurationError: the host can be reached from other machines, and there is no `auth`; or there is no TLS with
            these files.
    """
    tls = check_files(options.pop("tls_cert", None), options.pop("tls_key", None))
    if options.get("auth") is None and not is_loopback(host):
        raise ConfigurationError(
            f"At {host} other machines reach the server; pass auth=ResourceServer(...), auth=StaticTokens(...) or, to "
            "let everybody in, auth=OpenAccess()."
        )
    is_default = options.get("allowed_hosts") is None and not options.get("compat")
    if is_default and host not in ("0.0.0.0", "::", *LOOPBACK):  # noqa: S104
        options["allowed_hosts"] = [host, *LOOPBACK]
    app = make_app(engine, path, **cast(HttpOptions, options))
    logging.getLogger("uvicorn.error").addFilter(WARNING_FILTER)
    limits = engine.limits
    connections = Quota(allowed_connections(limits.connections, _DESCRIPTORS_SHARE), limits.account_share)
    config = uvicorn.Config(
        app,
        host,
        port,
        http=bounded_protocol(limits, connections, app.proxies),
        ws="none",
        lifespan="off",  # the server enters the engine's lifespan itself, whose errors uvicorn would hide
        access_log=False,
        proxy_headers=False,  # `HttpApp` reads them, with all of their hops
        log_config=None,
        log_level="warning",
        server_header=False,
        ssl_certfile=None if tls is None else tls.cert,
        ssl_keyfile=None if tls is None else tls.key,
        timeout_keep_alive=60,
        timeout_graceful_shutdown=max(1, int(limits.drain_seconds)),
    )
    return HttpServer(config, app, engine)
