"""The server that a command runs: in a Python file or module, or in an operations file."""

import argparse
import importlib
import importlib.util
import sys
import traceback
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Protocol

from msgspec import Struct

from deltamcp.catalog.disclosure import Disclosure
from deltamcp.cli.terminal.output import traceback_lines
from deltamcp.errors import ConfigurationError, DeltaError
from deltamcp.results.policy import ResultPolicy, merge_policies
from deltamcp.runtime.files import missing_file_error
from deltamcp.server import DeltaServer

FILE_SUFFIXES = (".py", ".json")
_IMPORTLIB = Path(importlib.__file__).parent


class ServerSource(Protocol):
    """Where a command has its server from. It is passed to every process that serves, which loads the server itself."""

    @property
    def label(self) -> str:
        """What the user named, for error messages."""
        ...

    @property
    def folder(self) -> Path:
        """The folder of the server's own modules, whose changes `--reload` notices."""
        ...

    def check(self) -> None:
        """
        Raises:
            ConfigurationError: there is nothing that can be loaded; found without loading it.
        """
        ...

    def load(self) -> DeltaServer:
        """
        Raises:
            ConfigurationError: there is no server; the text says what to do.
        """
        ...


class OperationsFileOptions(Struct, frozen=True):
    """What a command line says of an operations file; it goes before what the file says."""

    disclosure: Literal["full", "meta", "auto"] | None = None
    prefix: str | None = None
    query: bool = False
    max_tokens: int | None = None

    @classmethod
    def read(cls, args: argparse.Namespace) -> "OperationsFileOptions":
        return cls(args.disclosure, args.prefix, args.query, args.max_tokens)


class ServerTarget(Struct, frozen=True):
    """A server that a Python file, a module or an operations file defines."""

    target: str
    options: OperationsFileOptions = OperationsFileOptions()

    @property
    def label(self) -> str:
        return self.target

    @property
    def folder(self) -> Path:
        path = Path(split_target(self.target)[0])
        return path.parent if path.suffix in FILE_SUFFIXES else Path()

    def check(self) -> None:
        check_target(split_target(self.target)[0])

    def load(self) -> DeltaServer:
        return load(self.target, self.options)


def load(target: str, options: OperationsFileOptions | None = None) -> DeltaServer:
    """Returns the server that a file or module defines.

    Raises:
        ConfigurationError: the target defines no server; the text says what to do.
    """
    if target.endswith(".json"):
        return _operations_server(Path(target), options or OperationsFileOptions())
    if options not in (None, OperationsFileOptions()):
        raise ConfigurationError(
            "--disclosure, --prefix, --query and --max-tokens are for operations files; a server in Python says "
            "DeltaServer(disclosure=..., results=...)."
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


def _operations_server(path: Path, options: OperationsFileOptions) -> DeltaServer:
    from deltamcp.sources.operations_loader import read_document  # takes 15 ms, and most servers are no such file

    document = read_document(path)
    sys.path.insert(0, str(path.parent.resolve()))  # for functions the file refers to
    disclosure = Disclosure(options.disclosure or "auto", options.prefix or "", options.query or document.query)
    given = None if options.max_tokens is None else ResultPolicy(max_tokens=options.max_tokens)
    results = merge_policies(given, document.results) if given or document.results else None
    server = DeltaServer(document.title or path.stem, document.version or "0", disclosure=disclosure, results=results)
    server.operations(path, results=given)
    return server


def check_target(file_or_module: str) -> None:
    """
    Raises:
        ConfigurationError: this is a path, and there is no file that can be served.
    """
    path = Path(file_or_module)
    if path.is_dir():
        raise ConfigurationError(
            f"{file_or_module} is a folder; name a Python file, a module or an operations file in it."
        )
    if path.suffix in FILE_SUFFIXES and not path.is_file():
        raise missing_file_error(path)
    if path.is_file() and path.suffix not in FILE_SUFFIXES:
        raise ConfigurationError(f"{file_or_module} is neither a Python file (.py) nor an operations file (.json).")


def _import_module(file_or_module: str) -> Any:
    """
    Raises:
        ConfigurationError: there is no such file or module, or it fails; the text ends with its traceback.
    """
    check_target(file_or_module)
    try:
        if file_or_module.endswith(".py"):
            return _import_file(Path(file_or_module))
        sys.path.insert(0, "")
        return importlib.import_module(file_or_module)
    except DeltaError:
        raise
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and error.name and f"{file_or_module}.".startswith(f"{error.name}."):
            raise ConfigurationError(
                f"There is no file or module {file_or_module}; name a file, as FILE.py, or a module that Python finds."
            ) from error
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
    lines = traceback_lines(traceback.format_exception(type(error), error, frames))
    reason = "".join(traceback.format_exception_only(error)[-1:]).splitlines()[0].rstrip(".")
    where = (
        f" ({Path(error.filename or file_or_module).name}, line {error.lineno})"
        if isinstance(error, SyntaxError)
        else _author_line(file_or_module, frames)
    )
    return ConfigurationError(f"{file_or_module} cannot be imported: {reason}{where}.", list(lines))


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
