"""What gateways show of themselves: a socket for other commands, and pages where the command line asks for them."""

import argparse
import asyncio
import contextlib
import functools
import logging
import socket
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import Struct

from deltamcp.cli.serving import network_options
from deltamcp.cli.serving.network_options import AuthOptions, parse_address
from deltamcp.cli.terminal.output import print_notice
from deltamcp.errors import ConfigurationError

if TYPE_CHECKING:
    from deltamcp.auth.authenticator import Authenticator
    from deltamcp.dashboard.api import AskedGateway, GatewayApi
    from deltamcp.gateway.gateway import Gateway

logger: logging.Logger = logging.getLogger("deltamcp")

_HOST, _PORT = "127.0.0.1", 8765
_NAMELESS_AUTH = ("open", "presence")
"""Forms of `--auth` that do not say who calls."""


class DashboardOptions(Struct, frozen=True):
    """Where the pages are served, and what who is logged in may do."""

    host: str = _HOST
    port: int | None = None
    """None takes one that many know, or any that is free."""
    may_write: bool = False
    auth: AuthOptions = AuthOptions()
    """Who may call the gateway; asked of browsers only where other machines reach the pages."""
    allowed_hosts: tuple[str, ...] = ()
    tls_cert: str | None = None
    tls_key: str | None = None


def add_write_option(verb: argparse.ArgumentParser) -> None:
    verb.add_argument(
        "--dashboard-write",
        action="store_true",
        help="let the dashboard call tools, approve definitions, restart servers and cancel calls",
    )


def add_options(verb: argparse.ArgumentParser) -> None:
    """Adds the options of a gateway's own pages."""
    verb.add_argument(
        "--dashboard",
        nargs="?",
        const="",
        metavar="HOST:PORT",
        help=f"show pages of this gateway, at {_HOST}:{_PORT} unless given; delta-mcp dashboard shows all gateways",
    )
    add_write_option(verb)


def read_options(args: argparse.Namespace) -> DashboardOptions | None:
    """Returns the options of a gateway's own pages; None if nobody asks for them.

    Raises:
        ConfigurationError: the address is none, or other machines reach it and nothing says who may call.
    """
    if args.dashboard is None:
        if args.dashboard_write:
            raise ConfigurationError(
                "--dashboard-write needs --dashboard; or use delta-mcp dashboard --dashboard-write."
            )
        return None
    if args.workers != 1:
        raise ConfigurationError("--dashboard shows one process: leave out --workers, or use delta-mcp dashboard.")
    if args.reload:
        raise ConfigurationError("--dashboard and --reload exclude each other: a login would end with each change.")
    host, port = parse_address("--dashboard", args.dashboard) if args.dashboard else (_HOST, None)
    auth = AuthOptions() if _is_loopback(host) else network_options.read_auth_options(args, host)
    if not _is_loopback(host) and auth.auth in _NAMELESS_AUTH:
        raise ConfigurationError(
            f"At {host} other machines reach the dashboard; --auth {auth.auth} says of nobody who it is."
        )
    return DashboardOptions(
        host, port, args.dashboard_write, auth, tuple(args.allow_host or ()), args.tls_cert, args.tls_key
    )


def _is_loopback(host: str) -> bool:
    from deltamcp.auth.safe_url import is_loopback

    return is_loopback(host)


class BoundPages(NamedTuple):
    """Sockets for pages, and the addresses by which browsers reach them."""

    sockets: list[socket.socket]
    url: str
    names: frozenset[str]


def bind_pages(options: DashboardOptions) -> BoundPages:
    """
    Raises:
        ConfigurationError: nothing can listen at this address.
    """
    from deltamcp.transports.http.origins import LOOPBACK
    from deltamcp.transports.sockets import bind_sockets

    if options.port is None:
        try:
            sockets = bind_sockets(options.host, _PORT)
        except ConfigurationError:  # of another gateway, most likely
            sockets = bind_sockets(options.host, 0)
    else:
        sockets = bind_sockets(options.host, options.port)
    port = sockets[0].getsockname()[1]
    shown = f"[{options.host}]" if ":" in options.host else options.host
    hosts = {shown, *options.allowed_hosts, *(LOOPBACK if _is_loopback(options.host) else ())}
    scheme = "http" if options.tls_cert is None else "https"
    names = {name for host in hosts for name in (host, f"{host}:{port}")}
    return BoundPages(sockets, f"{scheme}://{shown}:{port}", frozenset(names))


@contextlib.asynccontextmanager
async def serve_pages(
    find_gateways: "Callable[[], Awaitable[Sequence[AskedGateway]]]", options: DashboardOptions, bound: BoundPages
) -> AsyncIterator[None]:
    """Serves pages inside the block, and shows at the terminal how to log in, again after each login."""
    from deltamcp.auth.authenticator import Credentials
    from deltamcp.dashboard.web.app import DashboardApp, Logins, pages_served
    from deltamcp.transports.sockets import check_files
    from deltamcp.values import Principal

    tls = check_files(options.tls_cert, options.tls_key)
    authenticator: Authenticator | None = network_options.make_authenticator(options.auth)

    async def check_token(token: str, scope: Any) -> bool:
        assert authenticator is not None, "only then is it asked"
        found = await authenticator.authenticate(Credentials(f"Bearer {token}", scope))
        return isinstance(found, Principal) and found.is_authenticated

    logins = Logins(functools.partial(_show_login, bound.url))
    app = DashboardApp(
        find_gateways,
        logins,
        bound.names,
        may_write=options.may_write,
        is_secure=tls is not None,
        check_token=None if authenticator is None else check_token,
    )
    async with pages_served(app, bound.sockets, tls):
        logins.make_code()
        try:
            yield
        finally:
            if authenticator is not None:
                await authenticator.close()


def _show_login(url: str, code: str) -> None:
    """Shows the address that lets in one browser, where only the user sees it: no file and no pipe gets a code."""
    if sys.stderr.isatty():
        print_notice(f"The dashboard, for one browser: {url}/login?code={code}")
    else:
        print_notice(f"The dashboard is at {url}; delta-mcp dashboard, at a terminal, lets you in.")


def show_gateway(gateway: "Gateway", label: str, options: DashboardOptions | None) -> None:
    """Has a gateway answer other programs of its user while it runs, and show pages if that is asked for.

    Raises:
        ConfigurationError: nothing can listen at the address of the pages.
    """
    from deltamcp.dashboard.gateway_socket import gateway_socket

    began = time.time()

    @functools.cache
    def make_api() -> "GatewayApi":
        from deltamcp.dashboard.api import GatewayApi  # imported when somebody looks

        return GatewayApi(gateway, label, began, "" if bound is None else bound.url)

    bound = None if options is None else bind_pages(options)
    gateway.open_beside(functools.partial(gateway_socket, make_api))
    if options is not None and bound is not None:

        @contextlib.asynccontextmanager
        async def show_pages() -> AsyncIterator[None]:
            api = make_api()
            await api.ask("about")  # which begins to note the calls

            async def find_gateways() -> "Sequence[AskedGateway]":
                return [api]

            async with serve_pages(find_gateways, options, bound):
                yield

        gateway.open_beside(show_pages)


def run_dashboard(options: DashboardOptions) -> None:
    """Shows all gateways of the user until a signal.

    Raises:
        ConfigurationError: there is no terminal to show the login at, or nothing can listen at the address.
    """
    from deltamcp.dashboard.gateway_socket import find_gateways

    if not sys.stderr.isatty():
        raise ConfigurationError("delta-mcp dashboard shows at a terminal how to log in; here is none.")
    if not _is_loopback(options.host):
        raise ConfigurationError(
            f"At {options.host} other machines reach the dashboard; delta-mcp gateway --dashboard has --auth for that."
        )
    bound = bind_pages(options)

    async def serve() -> None:
        await find_gateways()  # which says what is wrong before anything is shown
        async with serve_pages(find_gateways, options, bound):
            print_notice("(Ctrl-C stops)")
            await asyncio.Event().wait()

    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(serve())
