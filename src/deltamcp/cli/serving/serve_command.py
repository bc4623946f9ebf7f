"""Runs a server as the options of `delta-mcp serve` say: on stdio, HTTP or gRPC, in one process or several."""

import argparse
import logging
import multiprocessing
import os
import shutil
import signal
import socket
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

import msgspec
from msgspec import Struct

from deltamcp.calls.rate_limits import RateLimits
from deltamcp.cli.serving import monitoring_options, network_options
from deltamcp.cli.serving.monitoring_options import LogOptions, MetricsOptions
from deltamcp.cli.serving.network_options import AuthOptions, parse_address
from deltamcp.cli.serving.processes import (
    CHANGED_EXIT_CODE,
    POLL_SECONDS,
    FileWatch,
    Ready,
    ServerProcess,
    SharedState,
    Workers,
    shared_state,
)
from deltamcp.cli.serving.server_target import ServerSource
from deltamcp.cli.terminal.output import print_error, print_notice, print_traceback
from deltamcp.errors import ConfigurationError, DeltaError
from deltamcp.results.policy import ResultPolicy
from deltamcp.runtime.metric_values import MetricFolder
from deltamcp.runtime.process import dedicate_process, run_in_loop
from deltamcp.server import DeltaServer

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from deltamcp.auth.authenticator import Authenticator
    from deltamcp.calls.engine import Engine
    from deltamcp.transports.grpc.server import GrpcServer
    from deltamcp.transports.http.server import HttpServer
    from deltamcp.transports.metrics import Metrics
    from deltamcp.transports.options import HttpServerOptions

logger: logging.Logger = logging.getLogger("deltamcp")

STORE_VARIABLE = "DELTA_MCP_STORE"
_STOPPED = "stopped"
_ON_TERMINAL = "delta-mcp: This speaks MCP over stdin; for HTTP add --http 127.0.0.1:8000."
"""What a user is told who starts a server by hand and would wait for it."""
_CLOSE_SECONDS = 2.0
"""How long the server's lifespan may take to close after the calls had their time to end."""


class ServeCommand(Struct, frozen=True):
    """Which server to run, where it listens if it serves HTTP or gRPC, and where its log goes."""

    source: ServerSource
    host: str = "127.0.0.1"
    port: int = 0
    path: str = "/mcp"
    protocol: Literal["mcp", "mcp-lite"] = "mcp"
    """What the server speaks over stdio."""
    http: "HttpServerOptions" = {}
    grpc: tuple[str, int] | None = None
    shares_grpc_port: bool = False
    metrics: MetricsOptions = MetricsOptions()
    tracing: bool = False
    store: str | None = None
    state_key_file: Path | None = None
    has_worker: bool = True
    auth: AuthOptions = AuthOptions()
    rate_limits: RateLimits | None = None
    log: LogOptions = LogOptions()
    debug: bool = False


class BoundSockets(NamedTuple):
    """The sockets of a server, which the process that starts it has bound."""

    server: list[socket.socket]
    metrics: list[socket.socket]


def add_serving_options(verb: argparse.ArgumentParser) -> None:
    """Adds where a server listens, to whom, and what it shares with other processes."""
    verb.add_argument("--http", metavar="HOST:PORT", help="serve Streamable HTTP instead of stdio; port 0 is any free")
    verb.add_argument("--path", default="/mcp", help="the HTTP endpoint (default /mcp)")
    verb.add_argument(
        "--mcp-lite", action="store_true", help="speak MCP-lite over stdio, not MCP; over HTTP both are served"
    )
    network_options.add_grpc_option(verb)
    network_options.add_http_options(verb)
    network_options.add_auth_options(verb)
    monitoring_options.add_metrics_options(verb)
    monitoring_options.add_tracing_option(verb)
    verb.add_argument(
        "--reload", action="store_true", help="with --http: restart when the file, or a module in its folder, changes"
    )
    add_store_option(verb, "the store to use instead of the server's own: sqlite:///path, redis://")
    network_options.add_state_key_option(verb)
    verb.add_argument(
        "--no-worker", action="store_true", help="run no promises here: `delta-mcp worker` does, with the same --store"
    )
    network_options.add_rate_options(verb)
    verb.add_argument(
        "--workers",
        type=int,
        default=1,
        metavar="N",
        help="with --http: serve in N processes, which share a store and a state key; SIGHUP replaces them in turn",
    )


def add_store_option(verb: argparse.ArgumentParser, purpose: str) -> None:
    """Adds `--store`, which a variable may say instead: every user of a machine can read command lines."""
    stored = os.environ.get(STORE_VARIABLE) or None
    verb.add_argument("--store", metavar="URL", default=stored, help=f"{purpose}; or set {STORE_VARIABLE}")


def add_target_options(verb: argparse.ArgumentParser) -> None:
    """Adds the server to run, and the options that every way to run it has."""
    verb.add_argument(
        "target",
        metavar="FILE|MODULE[:NAME]",
        help="where the DeltaServer is, NAME is 'server' or the only one unless given; or an operations.json",
    )
    verb.add_argument(
        "--disclosure",
        choices=("full", "meta", "auto"),
        help="how an operations.json is shown (auto unless given: whatever costs the model less)",
    )
    verb.add_argument("--prefix", help="what an operations.json's meta-tools are called by: PREFIX_discover and so on")
    verb.add_argument(
        "--query",
        action="store_true",
        help="run read-only operations of an operations.json through a tool, query",
    )
    verb.add_argument(
        "--max-tokens", type=parse_tokens, metavar="N", help="of a result of an operations.json, beyond which it is cut"
    )
    monitoring_options.add_options(verb)


def parse_tokens(text: str) -> int:
    """Reads the budget of results, as a type of argparse."""
    try:
        return ResultPolicy(max_tokens=int(text)).max_tokens or 0
    except (ValueError, ConfigurationError) as error:
        raise argparse.ArgumentTypeError(f"a number of tokens, not {text!r}: {error}") from None


def serve(args: argparse.Namespace, source: ServerSource) -> None:
    """Runs a server as the options of `add_serving_options` say.

    Raises:
        ConfigurationError: the options exclude each other, or the server cannot be loaded.
    """
    host, port = ("", 0) if args.http is None else parse_address("--http", args.http)
    grpc = network_options.read_grpc_address(args)
    hosts = [*([] if args.http is None else [host]), *([] if grpc is None else [grpc[0]])]
    if args.reload and args.http is None:
        raise ConfigurationError(
            "--reload needs --http HOST:PORT: over stdio the host's connection would end with the server's process."
        )
    if args.metrics is not None and args.http is None:
        raise ConfigurationError("--metrics needs --http HOST:PORT: over stdio and gRPC nobody could read them.")
    if args.workers != 1:
        _check_workers(args)
    _check_mcp_lite(args, hosts)
    if args.compat and args.http is None:
        raise ConfigurationError("--compat needs --http HOST:PORT: over stdio every client gets its own protocol.")
    command = ServeCommand(
        source=source,
        host=host,
        port=port,
        path=f"/{args.path.strip('/')}",
        protocol="mcp-lite" if args.mcp_lite else "mcp",
        http=network_options.read_http_options(args) if hosts else {},
        grpc=grpc,
        metrics=monitoring_options.read_metrics_options(args),
        tracing=args.tracing,
        store=args.store,
        state_key_file=args.state_key_file,
        has_worker=not args.no_worker,
        auth=network_options.read_auth_options(args, *hosts),
        rate_limits=network_options.read_rate_limits(args),
        log=monitoring_options.read_options(args),
        debug=args.debug,
    )
    if args.reload:
        raise SystemExit(make_process(command)[0].run())
    if args.workers > 1:
        raise SystemExit(run_workers(command, args.workers))
    try:
        monitoring_options.configure_log(command.log)
        if args.http is not None:
            server = _load_configured(command)
            _make_http_server(command, server, command.metrics.bind(command.log)).run()
        elif grpc is not None:
            _serve_grpc(command, grpc)
        else:
            _serve_stdio(command)
            return  # the host that has ended it knows
        logger.info(_STOPPED)
    except Exception as error:
        if args.debug or isinstance(error, DeltaError):
            raise
        _print_failure(command, error)
        raise SystemExit(1) from None


def _serve_stdio(command: ServeCommand) -> None:
    from deltamcp.transports.stdio.server import serve, take_streams

    is_terminal = sys.stdin.isatty()
    streams = take_streams()  # before the author's file runs, which may print
    engine = _dedicate_process(command, _load_configured(command), over_stdio=True)
    if is_terminal:
        print_notice(_ON_TERMINAL)
    run_in_loop(serve(engine, streams, command.protocol))


def _serve_grpc(command: ServeCommand, address: tuple[str, int]) -> None:
    server = _load_configured(command)
    _dedicate_process(command, server)
    auth = network_options.make_authenticator(command.auth)
    _make_grpc_server(command, address, server, auth, None).run()


def make_process(command: ServeCommand) -> tuple[ServerProcess, int]:
    """Returns a process that serves HTTP and restarts when its files change, and the port at which it will listen.

    Raises:
        ConfigurationError: there is no such file, it cannot listen at this address, or the log cannot be written.
    """
    # Bound here, the address stays the same, and connections wait while the server restarts.
    bound = _bind_for_processes(command)
    return ServerProcess(serve_until_changed, command, bound), bound.server[0].getsockname()[1]


def _bind_for_processes(command: ServeCommand) -> BoundSockets:
    from deltamcp.transports.sockets import bind_sockets

    command.source.check()
    monitoring_options.configure_log(command.log)
    return BoundSockets(bind_sockets(command.host, command.port), command.metrics.bind(command.log))


def serve_until_changed(command: ServeCommand, bound: BoundSockets) -> None:
    """Serves HTTP in a process of its own, which exits with `CHANGED_EXIT_CODE` when a file of the server has changed.

    If the server cannot be loaded or started, the process tells why and waits for the change that repairs it.
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    watch = FileWatch(command.source.folder)
    changes: list[Path | None] = []
    try:
        monitoring_options.configure_log(command.log)
        http_server = _make_http_server(command, _load_configured(command), bound.metrics)

        def stop_on_change() -> None:
            changes.append(watch.wait_for_change())
            http_server.should_exit = True

        threading.Thread(target=stop_on_change, daemon=True).start()
        threading.Thread(target=_exit_if_blocked, args=(http_server, changes), daemon=True).start()
        http_server.run(bound.server)
        if not any(changes):
            logger.info(_STOPPED)
    except Exception as error:
        _print_failure(command, error)
        print_notice("delta-mcp: Waiting for a change.")
        changes.append(watch.wait_for_change(error))
    if code := _exit_code(changes):
        raise SystemExit(code)


def _check_mcp_lite(args: argparse.Namespace, hosts: list[str]) -> None:
    """
    Raises:
        ConfigurationError: these options do not go with where the server listens, or with each other.
    """
    if args.mcp_lite and hosts:
        raise ConfigurationError("--mcp-lite is for stdio: over HTTP MCP-lite is served beside MCP, over gRPC alone.")
    if args.mcp_lite_option and not hosts:
        raise ConfigurationError("--mcp-lite-option needs --http HOST:PORT or --grpc HOST:PORT.")
    if args.mcp_lite_option and args.no_mcp_lite:
        raise ConfigurationError("--mcp-lite-option and --no-mcp-lite exclude each other.")


# Workers


def _check_workers(args: argparse.Namespace) -> None:
    """
    Raises:
        ConfigurationError: these options do not go with several workers.
    """
    if sys.platform == "win32":
        raise ConfigurationError("--workers needs a Unix system: Windows cannot tell a process to finish and end.")
    if args.workers < 1:
        raise ConfigurationError(f"--workers takes a number from 1, not {args.workers}.")
    if args.http is None and args.grpc is not None:
        raise ConfigurationError("--workers needs --http HOST:PORT beside --grpc.")
    if args.http is None:
        raise ConfigurationError("--workers needs --http HOST:PORT: over stdio a server has one client.")
    if args.reload:
        raise ConfigurationError("--workers and --reload exclude each other: leave out --workers while you develop.")
    if args.store == "memory://":
        raise ConfigurationError("--workers needs a store that processes share: leave out --store memory://.")


def run_workers(command: ServeCommand, count: int) -> int:
    """Serves HTTP in several processes until a signal, and returns the exit code.

    Raises:
        ConfigurationError: there is no such file, it cannot listen at this address, or the log cannot be written.
    """
    bound = _bind_for_processes(command)
    sockets = [*bound.server, *bound.metrics]
    if command.grpc is not None:
        reserved = network_options.reserve_grpc_port(*command.grpc)
        address = (command.grpc[0], reserved[0].getsockname()[1])
        command = msgspec.structs.replace(command, grpc=address, shares_grpc_port=True)
        sockets += reserved
    with shared_state() as shared:
        metrics = MetricFolder(shared.metrics_folder)
        workers = Workers(count, sockets, command.log, metrics.fold, serve_as_worker, command, shared, bound)
        return workers.run()


def serve_as_worker(command: ServeCommand, shared: SharedState, bound: BoundSockets, messages: "Connection") -> None:
    """Serves HTTP in one of several processes, which tells that which started it when it serves."""
    # A terminal sends both to all processes; the one that started this one tells it to end.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    assert parent is not None, "a worker is started by another process"
    try:
        monitoring_options.configure_log(command.log)
        server = _load_configured(command)
        notes = _share_state(server, shared)
        http_server = _make_http_server(command, server, bound.metrics, shared.metrics_folder)
        if command.grpc is not None:
            notes.append(f"MCP-lite over gRPC is at port {command.grpc[1]}")
        drain_seconds = http_server.config.timeout_graceful_shutdown or 0
        http_server.announce = lambda address: messages.send(Ready(address, notes, drain_seconds))

        def stop_with_parent() -> None:
            parent.join()
            http_server.should_exit = True

        threading.Thread(target=stop_with_parent, daemon=True).start()
        threading.Thread(target=_exit_if_blocked, args=(http_server, []), daemon=True).start()
        http_server.run(bound.server)
    except Exception as error:
        _print_failure(command, error)
        raise SystemExit(2 if isinstance(error, ConfigurationError) else 1) from None
    finally:
        if not parent.is_alive():  # else it deletes the folder itself
            shutil.rmtree(shared.folder, ignore_errors=True)


def _share_state(server: DeltaServer, shared: SharedState) -> list[str]:
    """Gives the server what the workers have to share and neither author nor operator has set; says what."""
    notes = []
    if not server.shares_store:
        server.configure(store=shared.store_url)
        notes.append(
            f"the workers share a store that ends with them, in {shared.folder}, because the server's own is in memory;"
            " --store URL names another"
        )
    if not server.shares_state_key:
        server.configure(state_key=shared.state_key)
        notes.append("the workers share a state key that ends with them; --state-key-file FILE names another")
    return notes


def _exit_if_blocked(http_server: "HttpServer", changes: list[Path | None]) -> None:
    """Ends the process if the server was told to stop and does not: a tool may block the event loop for ever."""
    while not http_server.should_exit:
        time.sleep(POLL_SECONDS)
    time.sleep((http_server.config.timeout_graceful_shutdown or 0) + _CLOSE_SECONDS)
    os._exit(_exit_code(changes))


def _exit_code(changes: list[Path | None]) -> int:
    """Returns the exit code of a server that has stopped, and tells which change it will restart for."""
    for path in filter(None, changes):
        print_notice(f"{path.name} has changed: restarting.")
        return CHANGED_EXIT_CODE
    return 0


def _make_http_server(
    command: ServeCommand,
    server: DeltaServer,
    metrics_sockets: list[socket.socket],
    metrics_folder: Path | None = None,
) -> "HttpServer":
    from deltamcp.transports.http.server import make_server

    metrics = command.metrics.make(metrics_folder)
    auth = network_options.make_authenticator(command.auth)
    options: HttpServerOptions = {**command.http, "auth": auth, "metrics": metrics}
    http_server = make_server(_dedicate_process(command, server), command.host, command.port, command.path, **options)
    http_server.announce = lambda address: monitoring_options.tell(f"{address} (Ctrl-C stops)", command.log)
    if metrics_sockets:
        http_server.add_application(metrics, metrics_sockets)
    if command.grpc is not None:
        counts = None if isinstance(metrics, bool) else metrics
        http_server.add_server(_make_grpc_server(command, command.grpc, server, auth, counts))
    return http_server


def _make_grpc_server(
    command: ServeCommand,
    address: tuple[str, int],
    server: DeltaServer,
    auth: "Authenticator | None",
    metrics: "Metrics | None",
) -> "GrpcServer":
    options = network_options.select_grpc_options(command.http)
    options |= {"auth": auth, "metrics": metrics, "reuse_port": command.shares_grpc_port}
    grpc_server = server.grpc(*address, **options)
    if command.shares_grpc_port:  # the process that started this one says where it is
        grpc_server.announce = lambda address: None
    else:
        grpc_server.announce = lambda address: monitoring_options.tell(f"{address} (Ctrl-C stops)", command.log)
    return grpc_server


def _load_configured(command: ServeCommand) -> DeltaServer:
    """Returns the server with what the operator has set in place of what its author has."""
    keys = network_options.read_keys(command.state_key_file, os.environ)
    server = command.source.load()
    if command.store is not None or keys or command.rate_limits is not None or not command.has_worker:
        server.configure(
            store=command.store,
            state_key=keys or None,
            rate_limits=command.rate_limits,
            promise_concurrency=None if command.has_worker else 0,
        )
    return server


def _dedicate_process(command: ServeCommand, server: DeltaServer, *, over_stdio: bool = False) -> "Engine":
    """Returns the engine of a server that is configured, with the observers that the operator wants.

    The process is the server's alone from now on.
    """
    if command.tracing:
        monitoring_options.trace_calls(server)
    dedicate_process(server.engine.lifespan, loads_modules=not over_stdio)
    return server.engine


def _print_failure(command: ServeCommand, error: Exception) -> None:
    if command.debug:
        print_traceback(error)
    if isinstance(error, DeltaError):
        print_error(error)
    else:
        failure = f"failed with {type(error).__name__}: {str(error).rstrip('.')}; --debug shows where."
        print_notice(f"delta-mcp: {command.source.label} {failure}")
