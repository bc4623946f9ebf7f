"""`delta-mcp serve` runs a server that is written in Python or in an operations file, on stdio or HTTP."""

import argparse
import importlib
import importlib.util
import logging
import socket
import sys
from pathlib import Path
from typing import Any

from deltamcp.catalog.disclosure import Disclosure
from deltamcp.errors import ConfigurationError
from deltamcp.server import DeltaServer
from deltamcp.sources.operations_loader import read_document


def set_up(verb: argparse.ArgumentParser) -> None:
    verb.add_argument(
        "target",
        metavar="FILE|MODULE[:NAME]",
        help="where the DeltaServer is, NAME is 'server' unless given; or an operations.json",
    )
    verb.add_argument(
        "--disclosure",
        choices=("full", "meta", "auto"),
        help="how an operations.json is shown (auto unless given: whatever costs the model less)",
    )
    verb.add_argument("--prefix", help="what an operations.json's meta-tools are called by: PREFIX_discover and so on")
    verb.add_argument("--http", metavar="HOST:PORT", help="serve Streamable HTTP instead of stdio")
    verb.add_argument("--path", default="/mcp", help="the HTTP endpoint (default /mcp)")
    verb.add_argument(
        "--allow-host",
        action="append",
        metavar="HOST",
        help="a Host header to accept besides loopback names; repeatable, '*' for any",
    )
    verb.add_argument(
        "--allow-origin", action="append", metavar="ORIGIN", help="an Origin header to accept; repeatable"
    )
    verb.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    if args.http is None:
        load(args.target, args.disclosure, args.prefix).run()
        return
    host, port = _parse_address(args.http)
    server = load(args.target, args.disclosure, args.prefix)
    path = f"/{args.path.strip('/')}"
    _check_port_free(host.strip("[]"), port)
    print(f"Serving {server.engine.info['name']} at http://{host}:{port}{path} (Ctrl-C stops)", file=sys.stderr)
    hosts = None if args.allow_host is None else [*args.allow_host, "localhost", "127.0.0.1", "[::1]"]
    server.run(
        "http",
        host=host.strip("[]"),
        port=port,
        path=path,
        allowed_hosts=hosts,
        allowed_origins=args.allow_origin,
    )


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
    place, _, name = target.partition(":")
    if len(place) == 1 and name:  # a Windows drive
        drive, (place, _, name) = place, name.partition(":")
        place = f"{drive}:{place}"
    module = _import_module(place)
    server = getattr(module, name or "server", None)
    if not isinstance(server, DeltaServer):
        raise ConfigurationError(f"{place} has no DeltaServer called {name or 'server'!r}; name it as {place}:NAME.")
    return server


def _operations_server(path: Path, disclosure: Disclosure) -> DeltaServer:
    document = read_document(path)
    sys.path.insert(0, str(path.parent.resolve()))  # for functions the file refers to
    server = DeltaServer(document.title or path.stem, document.version or "0", disclosure=disclosure)
    server.operations(path)
    return server


def _import_module(place: str) -> Any:
    path = Path(place)
    if path.is_dir():
        raise ConfigurationError(f"{place} is a folder; name a Python file, a module or an operations file in it.")
    if path.suffix == ".py" or path.is_file():
        if not path.is_file():
            raise ConfigurationError(f"There is no file {place}.")
        if path.suffix != ".py":
            raise ConfigurationError(f"{place} is neither a Python file (.py) nor an operations file (.json).")
        sys.path.insert(0, str(path.parent.resolve()))
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None and spec.loader is not None, "a .py file always has a loader"
        module = importlib.util.module_from_spec(spec)
        sys.modules[path.stem] = module
        spec.loader.exec_module(module)
        return module
    sys.path.insert(0, "")
    try:
        return importlib.import_module(place)
    except ModuleNotFoundError as error:
        if error.name is None or not place.startswith(error.name):
            raise
        raise ConfigurationError(f"There is no file or module {place}.") from error


def _check_port_free(host: str, port: int) -> None:
    """
    Raises:
        ConfigurationError: the server cannot listen at this address.
    """
    try:
        for family, kind, protocol, _, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
            with socket.socket(family, kind, protocol) as trial:
                trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                trial.bind(address)
    except OSError as error:
        raise ConfigurationError(f"Cannot listen at {host}:{port}: {error.strerror}; name another.") from None


def _parse_address(text: str) -> tuple[str, int]:
    host, separator, port = text.rpartition(":")
    if not separator or not port.isdigit() or int(port) > 65535:
        raise ConfigurationError(f"--http takes HOST:PORT, such as 127.0.0.1:8000, not {text!r}.")
    return host or "127.0.0.1", int(port)
