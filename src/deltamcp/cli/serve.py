"""`delta-mcp serve` runs a server that is written in Python or in an operations file, on stdio or HTTP."""

import argparse
import asyncio
import importlib
import importlib.util
import os
import signal
import socket
import sys
import threading
import time
import traceback
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from deltamcp.calls.rate_limits import RateLimits
from deltamcp.catalog.disclosure import Disclosure
from deltamcp.cli import auth_options, http_options, log, rate_options, state_keys
from deltamcp.cli.auth_options import AuthOptions
from deltamcp.cli.output import printable_text
from deltamcp.cli.reload import CHANGED_EXIT_CODE, POLL_SECONDS, FileWatch, ServerProcess
from deltamcp.errors import ConfigurationError, DeltaError
from deltamcp.server import DeltaServer
from deltamcp.sources.operations_loader import read_document

if TYPE_CHECKING:
    from deltamcp.transports.http_app import HttpOptions
    from deltamcp.transports.uvicorn_server import HttpServer

_FILE_SUFFIXES = (".py", ".json")
_CLOSE_SECONDS = 2.0
"""How long the server's lifespan may take to close after the calls had their time to end."""
_IMPORTLIB = Path(importlib.__file__).parent


class ServeCommand(Struct, frozen=True):
    """Which server to run, where it listens if it serves HTTP, and where its log goes."""

    target: str
    disclosure: str | None = None
    prefix: str | None = None
    host: str = "127.0.0.1"
    port: int = 0
    path: str = "/mcp"
    http: "HttpOptions" = {}
    store: str | None = None
    state_key_file: Path | None = None
    auth: AuthOptions = AuthOptions()
    rate_limits: RateLimits | None = None
    log_level: str = "info"
    log_file: Path | None = None
    debug: bool = False


def set_up(verb: argparse.ArgumentParser) -> None:
    add_target_options(verb)
    verb.add_argument("--http", metavar="HOST:PORT", help="serve Streamable HTTP instead of stdio; port 0 is any free")
    verb.add_argument("--path", default="/mcp", help="the HTTP endpoint (default /mcp)")
    http_options.add_options(verb)
    auth_options.add_options(verb)
    verb.add_argument(
        "--reload", action="store_true", help="with --http: restart when the file, or a module in its folder, changes"
    )
    verb.add_argument(
        "--store", metavar="URL", help="the store to use instead of the server's own: sqlite:///path, redis://"
    )
    state_keys.add_options(verb)
    rate_options.add_options(verb)
    verb.set_defaults(run=run)


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
    log.add_options(verb)


def run(args: argparse.Namespace) -> None:
    host, port = ("", 0) if args.http is None else _parse_address(args.http)
    if args.reload and args.http is None:
        raise ConfigurationError(
            "--reload needs --http HOST:PORT: over stdio the host's connection would end with the server's process."
        )
    command = ServeCommand(
        target=args.target,
        disclosure=args.disclosure,
        prefix=args.prefix,
        host=host,
        port=port,
        path=f"/{args.path.strip('/')}",
        http={} if args.http is None else http_options.read_options(args),
        store=args.store,
        state_key_file=args.state_key_file,
        auth=AuthOptions() if args.http is None else auth_options.read_options(args, host),
        rate_limits=rate_options.read_limits(args),
        log_level=args.log_level,
        log_file=args.log_file,
        debug=args.debug,
    )
    if args.reload:
        raise SystemExit(make_process(command)[0].run())
    try:
        log.configure_log(command.log_level, command.log_file)
        if args.http is None:
            _serve_stdio(command)
        else:
            _make_http_server(command).run()
    except Exception as error:
        if args.debug or isinstance(error, DeltaError):
            raise
        _print_failure(command, error)
        raise SystemExit(1) from None


def _serve_stdio(command: ServeCommand) -> None:
    from deltamcp.transports import stdio

    streams = stdio.take_streams()  # before the author's file runs, which may print
    asyncio.run(stdio.serve(_load_configured(command).engine, streams))


def make_process(command: ServeCommand) -> tuple[ServerProcess, int]:
    """Returns a process that serves HTTP and restarts when its files change, and the port at which it will listen.

    Raises:
        ConfigurationError: there is no such file, it cannot listen at this address, or the log cannot be written.
    """
    from deltamcp.transports.uvicorn_server import bind_sockets

    _check_target(split_target(command.target)[0])
    log.configure_log(command.log_level, command.log_file)
    # Bound here, the address stays the same, and connections wait while the server restarts.
    sockets = bind_sockets(command.host, command.port)
    return ServerProcess(serve_until_changed, command, sockets), sockets[0].getsockname()[1]


def serve_until_changed(command: ServeCommand, sockets: list[socket.socket]) -> None:
    """Serves HTTP in a process of its own, which exits with `CHANGED_EXIT_CODE` when a file of the server has changed.

    If the server cannot be loaded or started, the process tells why and waits for the change that repairs it.
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    path = Path(split_target(command.target)[0])
    watch = FileWatch(path.parent if path.suffix in _FILE_SUFFIXES else Path())
    changes: list[Path | None] = []
    try:
        log.configure_log(command.log_level, command.log_file)
        http_server = _make_http_server(command)

        def stop_on_change() -> None:
            changes.append(watch.wait_for_change())
            http_server.should_exit = True

        threading.Thread(target=stop_on_change, daemon=True).start()
        threading.Thread(target=_exit_if_blocked, args=(http_server, changes), daemon=True).start()
        http_server.run(sockets)
    except Exception as error:
        _print_failure(command, error)
        print("delta-mcp: Waiting for a change.", file=sys.stderr, flush=True)
        changes.append(watch.wait_for_change(error))
    if code := _exit_code(changes):
        raise SystemExit(code)


def _exit_if_blocked(http_server: "HttpServer", changes: list[Path | None]) -> None:
    """Ends the process if the server was told to stop and does not: a tool may block the event loop for ever."""
    while not http_server.should_exit:
        time.sleep(POLL_SECONDS)
    time.sleep((http_server.config.timeout_graceful_shutdown or 0) + _CLOSE_SECONDS)
    os._exit(_exit_code(changes))


def _exit_code(changes: list[Path | None]) -> int:
    """Returns the exit code of a server that has stopped, and tells which change it will restart for."""
    for path in filter(None, changes):
        print(f"{path.name} has changed: restarting.", file=sys.stderr, flush=True)
        return CHANGED_EXIT_CODE
    return 0


def _make_http_server(command: ServeCommand) -> "HttpServer":
    from deltamcp.transports import uvicorn_server

    server = _load_configured(command)
    options: HttpOptions = {**command.http, "auth": auth_options.make_authenticator(command.auth)}
    return uvicorn_server.make_server(server.engine, command.host, command.port, command.path, **options)


def _load_configured(command: ServeCommand) -> DeltaServer:
    """Returns the server with what the operator has set in place of what its author has."""
    keys = state_keys.read_keys(command.state_key_file, os.environ)
    server = load(command.target, command.disclosure, command.prefix)
    if command.store is not None or keys or command.rate_limits is not None:
        server.configure(store=command.store, state_key=keys or None, rate_limits=command.rate_limits)
    return server


def _print_failure(command: ServeCommand, error: Exception) -> None:
    if command.debug:
        traceback.print_exception(error)
    failure = f"{command.target} failed with {type(error).__name__}: {str(error).rstrip('.')}; --debug shows where."
    sentence = str(error) if isinstance(error, DeltaError) else failure
    print(f"delta-mcp: {printable_text(sentence)}", file=sys.stderr, flush=True)


def load(target: str, disclosure: str | None = None, prefix: str | None = None) -> DeltaServer:
    """Returns the server that a file or module defines; `disclosure` and `prefix` are for operations files.

    Raises:
        ConfigurationError: the target defines no server; the text says what to do.
    """
    if target.endswith(".json"):
        return _operations_server(Path(target), Disclosure(disclosure or "auto", prefix or ""))  # type: ignore[arg-type]
    if disclosure or prefix:
        raise ConfigurationError(
            "--disclosure and --prefix are for operations files; a server in Python says DeltaServer(disclosure=...)."
        )
    file_or_module, name = split_target(target)
    module = _import_module(file_or_module)
    servers = {known: value for known, value in vars(module).items() if isinstance(value, DeltaServer)}
    server = getattr(module, name or "server", None)
    if not isinstance(server, DeltaServer) and not name and len({id(found) for found in servers.values()}) == 1:
        server = next(iter(servers.values()))
    if not isinstance(server, DeltaServer):
        places = " or ".join(f"{file_or_module}:{known}" for known in servers)
        hint = f"say {places}" if servers else "make one, as server = DeltaServer(...)"
        raise ConfigurationError(f"{file_or_module} has no DeltaServer called {name or 'server'!r}; {hint}.")
    return server


def split_target(target: str) -> tuple[str, str]:
    """Splits FILE:NAME or MODULE:NAME; the name is empty if it is not given."""
    file_or_module, _, name = target.partition(":")
    if len(file_or_module) == 1 and name:  # a Windows drive
        drive, (file_or_module, _, name) = file_or_module, name.partition(":")
        file_or_module = f"{drive}:{file_or_module}"
    return file_or_module, name


def _operations_server(path: Path, disclosure: Disclosure) -> DeltaServer:
    document = read_document(path)
    sys.path.insert(0, str(path.parent.resolve()))  # for functions the file refers to
    server = DeltaServer(document.title or path.stem, document.version or "0", disclosure=disclosure)
    server.operations(path)
    return server


def _check_target(file_or_module: str) -> None:
    """
    Raises:
        ConfigurationError: this is a path, and there is no file that can be served.
    """
    path = Path(file_or_module)
    if path.is_dir():
        raise ConfigurationError(
            f"{file_or_module} is a folder; name a Python file, a module or an operations file in it."
        )
    if path.suffix in _FILE_SUFFIXES and not path.is_file():
        raise ConfigurationError(f"There is no file {file_or_module}.")
    if path.is_file() and path.suffix not in _FILE_SUFFIXES:
        raise ConfigurationError(f"{file_or_module} is neither a Python file (.py) nor an operations file (.json).")


def _import_module(file_or_module: str) -> Any:
    """
    Raises:
        ConfigurationError: there is no such file or module, or it fails; the text ends with its traceback.
    """
    _check_target(file_or_module)
    try:
        if file_or_module.endswith(".py"):
            return _import_file(Path(file_or_module))
        sys.path.insert(0, "")
        return importlib.import_module(file_or_module)
    except DeltaError:
        raise
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and error.name and f"{file_or_module}.".startswith(f"{error.name}."):
            raise ConfigurationError(f"There is no file or module {file_or_module}.") from error
        raise _import_error(file_or_module, error) from error


def _import_file(path: Path) -> Any:
    sys.path.insert(0, str(path.parent.resolve()))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None, "a .py file always has a loader"
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def _import_error(file_or_module: str, error: Exception) -> ConfigurationError:
    """Returns an error with the place in the author's files, and the traceback from there on."""
    frames = error.__traceback__
    while frames is not None and _is_import_frame(frames.tb_frame.f_code.co_filename):
        frames = frames.tb_next
    lines = traceback.format_exception(type(error), error, frames)
    reason = "".join(traceback.format_exception_only(error)[-1:]).splitlines()[0].rstrip(".")
    where = (
        f" ({Path(error.filename or file_or_module).name}, line {error.lineno})"
        if isinstance(error, SyntaxError)
        else _author_line(file_or_module, frames)
    )
    return ConfigurationError(f"{file_or_module} cannot be imported: {reason}{where}.\n{''.join(lines).rstrip()}")


def _author_line(file_or_module: str, frames: TracebackType | None) -> str:
    """Returns the last line of the traceback that is in the server's folder."""
    folder = Path(file_or_module).resolve().parent if file_or_module.endswith(".py") else Path.cwd()
    found = [
        f" ({Path(frame.filename).name}, line {frame.lineno})"
        for frame in traceback.extract_tb(frames)
        if Path(frame.filename).resolve().is_relative_to(folder) and "site-packages" not in frame.filename
    ]
    return found[-1] if found else ""


def _is_import_frame(file: str) -> bool:
    return file == __file__ or file.startswith("<frozen importlib") or Path(file).parent == _IMPORTLIB


def _parse_address(text: str) -> tuple[str, int]:
    host, separator, port = text.rpartition(":")
    if not separator or not port.isdigit() or int(port) > 65535:
        raise ConfigurationError(f"--http takes HOST:PORT, such as 127.0.0.1:8000, not {text!r}.")
    return host.strip("[]") or "127.0.0.1", int(port)
