"""Parses targets: a server in this process, a URL, a command line, a file, or an entry of an `mcpServers` file."""

import contextlib
import functools
import os
import re
import shlex
import shutil
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable
from urllib.parse import SplitResult, urlsplit

from msgspec import Struct
from msgspec.structs import replace

from deltamcp.errors import ConfigurationError
from deltamcp.limits import Limits
from deltamcp.runtime.files import missing_file_error
from deltamcp.runtime.process import keep_grpc_out_of_forks
from deltamcp.values import JSON

if TYPE_CHECKING:
    from deltamcp.calls.engine import Engine
    from deltamcp.client.links.link import ClientLink, TokenSource
    from deltamcp.client.links.process import ProcessGuard


@runtime_checkable
class ServerLike(Protocol):
    """The part of a `DeltaServer` that a client uses."""

    @property
    def engine(self) -> "Engine": ...


@runtime_checkable
class UnmadeServer(Protocol):
    """A server for this process that is made anew for each connection, such as that of a document which may change."""

    @property
    def label(self) -> str:
        """The server's name in error messages."""
        ...

    @property
    def requests(self) -> JSON:
        """Where the server that was made last sends requests, and with what; None if it sends none."""
        ...

    def make(self) -> "AbstractAsyncContextManager[Engine]":
        """Makes the server, and ends it.

        Raises:
            ConfigurationError: it cannot be made.
        """
        ...


Target: TypeAlias = "ServerLike | UnmadeServer | str | Sequence[str] | Mapping[str, JSON]"

_LITE_SCHEME = "mcplite+"
"""Before http:// or https:// in the address of an MCP-lite server."""
_LITE_PATH = "/mcp-lite/v1"
"""The path of an MCP-lite server whose address has none (MCP-lite, 4.1)."""
_CONFIGURATION_SUFFIXES = (".json", ".jsonc", ".toml")
_URL_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*://")
_PATH_SECRET = re.compile(r"(?=.*\d)(?=.*[A-Za-z])[\w~%.-]{16,}")
"""A part of an address's path that may be a key, as some services have it there; error messages leave it out."""
_INHERITED_VARIABLES = re.compile(
    "HOME|LANG|LC_ALL|LOGNAME|PATH|SHELL|TERM|TMPDIR|USER|"
    "APPDATA|COMSPEC|LOCALAPPDATA|PATHEXT|SYSTEMDRIVE|SYSTEMROOT|TEMP|TMP|USERPROFILE",
    re.IGNORECASE,
)
"""The environment variables that a server of a configuration file inherits: those that programs need to run, none that
commonly hold secrets."""


# -P: modules of the current directory do not hide those that this library imports.
_OWN_PROGRAM = (sys.executable, "-P", "-m", "deltamcp")


class Program(Struct, frozen=True):
    """A server that the client starts as a process."""

    command: tuple[str, ...]
    env: dict[str, str] | None = None
    """Variables to add to those that programs need to run; if None, the server inherits the whole environment."""
    cwd: str | None = None
    file: str = ""
    """The file that the program serves, if the target is a file."""

    @property
    def label(self) -> str:
        """The server's name in error messages: only the program or file, because arguments may be secrets."""
        return f"The server {Path(self.file or self.command[0]).name!r}"

    def speaking_lite(self) -> "Program":
        """Returns the same program for MCP-lite; only of a file that it serves the client knows how to ask for that."""
        return replace(self, command=(*self.command, "--mcp-lite")) if self.file else self

    def make_link(
        self,
        quiet: bool,
        limits: Limits,
        on_stderr: Callable[[str], None] | None = None,
        guard: "ProcessGuard | None" = None,
    ) -> "ClientLink":
        from deltamcp.client.links.process import ProcessLink

        inherited = dict(os.environ)
        if self.env is not None:
            inherited = {
                name: value for name, value in inherited.items() if _INHERITED_VARIABLES.fullmatch(name)
            } | self.env
        # On Windows `npx` is a script with an extension, which only `which` finds.
        program = shutil.which(self.command[0], path=inherited.get("PATH"))
        command = (program or self.command[0], *self.command[1:])
        if program is None and self.command[0] == "delta-mcp":  # of an environment that is not on the PATH
            command = (*_OWN_PROGRAM, *self.command[1:])
        return ProcessLink(self.label, command, inherited, self.cwd, quiet, limits, on_stderr, guard)


class Address(Struct, frozen=True):
    """A server that the client reaches over HTTP."""

    url: str
    headers: dict[str, str] = {}
    only_sse: bool = False
    """Whether the entry asks for the HTTP with SSE of 2024-11-05."""
    is_lite: bool = False
    """Whether the server speaks MCP-lite; the URL is then its base address."""

    @property
    def label(self) -> str:
        parts = urlsplit(self.url)
        path = "/".join("..." if _PATH_SECRET.fullmatch(part) else part for part in parts.path.split("/"))
        return f"The server at {parts.scheme}://{parts.netloc.rpartition('@')[2]}{path}"

    def speaking_lite(self) -> "Address":
        """Returns the address of the same server for MCP-lite."""
        if self.is_lite:
            return self
        url = self.url if urlsplit(self.url).path.strip("/") else self.url.rstrip("/") + _LITE_PATH
        return Address(url, self.headers, is_lite=True)

    def link_factories(
        self, headers: Mapping[str, str], tokens: "TokenSource | None", limits: Limits
    ) -> "list[Callable[[], ClientLink]]":
        """Returns functions that make the links to try: that of MCP-lite; or Streamable HTTP, then HTTP with SSE."""
        all_headers, tokens = _credentials(urlsplit(self.url), {**self.headers, **headers}, tokens)

        def make_link(kind: str) -> "ClientLink":
            from deltamcp.client.links import http

            links: dict[str, Callable[..., ClientLink]] = {
                "mcp-lite": http.McpLiteLink,
                "http": http.HttpLink,
                "sse": http.SseLink,
            }
            return links[kind](self.label, self.url, all_headers, tokens, limits)

        kinds = ["mcp-lite"] if self.is_lite else ["sse"] if self.only_sse else ["http", "sse"]
        return [functools.partial(make_link, kind) for kind in kinds]


class GrpcAddress(Struct, frozen=True):
    """An MCP-lite server that the client reaches over gRPC."""

    url: str
    headers: dict[str, str] = {}

    @property
    def label(self) -> str:
        parts = urlsplit(self.url)
        return f"The server at {parts.scheme}://{parts.netloc.rpartition('@')[2]}"

    def speaking_lite(self) -> "GrpcAddress":
        """Returns this: a server over gRPC speaks nothing else."""
        return self

    def make_link(self, headers: Mapping[str, str], tokens: "TokenSource | None", limits: Limits) -> "ClientLink":
        """
        Raises:
            ConfigurationError: the packages of gRPC are not installed.
        """
        keep_grpc_out_of_forks()
        try:
            from deltamcp.client.links.grpc import GrpcLink
        except ModuleNotFoundError as error:
            raise ConfigurationError("gRPC needs more packages: pip install 'delta-mcp[grpc]'.") from error
        parts = urlsplit(self.url)
        all_headers, tokens = _credentials(parts, {**self.headers, **headers}, tokens)
        is_secure = parts.scheme == "grpcs"
        port = parts.port or (443 if is_secure else 80)
        return GrpcLink(self.label, str(parts.hostname), port, is_secure, all_headers, tokens, limits)


class InProcessServer(Struct, frozen=True):
    """A server in this process."""

    run: "Callable[[], AbstractAsyncContextManager[Engine]]"
    """Opens the server for one connection."""
    label: str = "The server"
    is_lite: bool = False

    def speaking_lite(self) -> "InProcessServer":
        """Returns the same server for MCP-lite."""
        return replace(self, is_lite=True)

    def make_link(self, limits: Limits) -> "ClientLink":
        from deltamcp.client.links.link import MemoryLink
        from deltamcp.transports.stdio.server import DUPLEXES

        return MemoryLink(self.run, limits, DUPLEXES["mcp-lite" if self.is_lite else "mcp"])


Endpoint: TypeAlias = InProcessServer | Program | Address | GrpcAddress


def parse_target(target: Target) -> Endpoint:
    """Converts what the caller passed to `connect` into an endpoint.

    Raises:
        ConfigurationError: the client cannot connect to this; the text says to what it can.
    """
    if isinstance(target, str):
        return _parse_text(target)
    if isinstance(target, Mapping):
        return parse_entry(target)
    if isinstance(target, Sequence) and target and all(isinstance(word, str) for word in target):
        return parse_words(list(target))
    if isinstance(target, UnmadeServer):
        return InProcessServer(target.make, target.label)
    if isinstance(target, ServerLike):
        return InProcessServer(functools.partial(_opened, target.engine))
    raise ConfigurationError(
        "A client connects to a DeltaServer, a URL, a command line (a text or a list of words), a Python file, or an "
        f"entry of an mcpServers file, not to {target!r:.80}."
    )


@contextlib.asynccontextmanager
async def _opened(engine: "Engine") -> AsyncIterator["Engine"]:
    async with engine.lifespan.running():
        yield engine


def parse_words(words: list[str]) -> Endpoint:
    """Converts a target that is given as a list of words, as on a command line."""
    if len(words) == 1 and (is_python_file(words[0]) or shutil.which(words[0]) is None):
        return _parse_text(words[0])  # a quoted command line, a URL, a file or FILE#NAME
    if is_whole_target(words[0]):
        place = "address" if _URL_SCHEME.match(words[0]) else "file"
        raise ConfigurationError(
            f"{words[1]!r} after the {place} is not understood; a tool's arguments are NAME=VALUE or JSON."
        )
    return Program(tuple(words))


def is_whole_target(word: str) -> bool:
    """Whether a word by itself is a URL, a file or FILE#NAME; after any other comes the rest of a command line."""
    if _URL_SCHEME.match(word) or is_python_file(word):
        return True
    file = word.rpartition("#")[0] or word
    return file.endswith(_CONFIGURATION_SUFFIXES) and Path(file).expanduser().is_file() and shutil.which(word) is None


def _parse_text(text: str) -> Endpoint:
    if _URL_SCHEME.match(text):
        return _parse_url(text)
    if is_python_file(text):
        return _serve_file(text)
    file, mark, name = text.rpartition("#")
    if mark and file.endswith(_CONFIGURATION_SUFFIXES):
        from deltamcp.hosts import files

        return parse_entry(files.find_entry(Path(file).expanduser(), name))
    if text.endswith(_CONFIGURATION_SUFFIXES) and not _is_command(text):
        from deltamcp.hosts import files

        path = Path(text).expanduser()
        return _serve_file(text) if files.is_operations_file(path) else parse_entry(files.find_only_entry(path))
    if _names_python_file(text) and shutil.which(text) is None:
        raise missing_file_error(_python_path(text))
    try:
        words = shlex.split(text, posix=os.name != "nt")
    except ValueError:
        words = []
    if not words:
        raise ConfigurationError(f"{text!r:.80} is no command line; quote it rightly, or give a list of words.")
    return Program(tuple(words))


def _is_command(text: str) -> bool:
    """Whether a text that ends as the name of a file is a command line with that file: `server --config a.toml`."""
    return not Path(text).expanduser().is_file() and len(text.split()) > 1 and shutil.which(text.split()[0]) is not None


def _parse_url(url: str, headers: dict[str, str] | None = None, kind: JSON = None) -> Address | GrpcAddress:
    """Converts a URL, with the `headers` and the `type` of its entry if it is of an entry.

    Raises:
        ConfigurationError: the URL is none of a server.
    """
    from deltamcp.client.links.http1 import split_url

    scheme, mark, rest = url.partition("://")
    is_lite = scheme.lower().startswith(_LITE_SCHEME)
    if scheme.lower() in ("grpc", "grpcs"):
        split_url(f"http://{rest}")
        if urlsplit(url).path.strip("/"):
            raise ConfigurationError("The address of a gRPC server has no path; write grpc://host:port.")
        return GrpcAddress(f"{scheme.lower()}://{rest}", headers or {})
    if is_lite:
        url = f"{scheme[len(_LITE_SCHEME) :]}{mark}{rest}"
    if not url.lower().startswith(("http://", "https://")):
        raise ConfigurationError(
            f"{scheme}:// is no way to a server; use http:// or https://, mcplite+http:// or grpc://."
        )
    split_url(url)
    address = Address(url, headers or {}, kind == "sse")
    return address.speaking_lite() if is_lite or kind == "mcp-lite" else address


def _credentials(
    parts: SplitResult, headers: Mapping[str, str], tokens: "TokenSource | None"
) -> "tuple[dict[str, str], TokenSource | None]":
    """Returns the headers to send, and where tokens come from: a header of the caller's own is sent instead of any."""
    from deltamcp.client.links.http1 import basic_authorization

    all_headers = {} if parts.username is None else {"authorization": basic_authorization(parts)}
    all_headers |= headers
    return all_headers, None if any(name.lower() == "authorization" for name in all_headers) else tokens


def is_python_file(text: str) -> bool:
    """Whether this is a Python file to serve, as `FILE.py` or `FILE.py:NAME`; not one that is a program by itself."""
    path = _python_path(text).expanduser()
    if path.suffix != ".py" or not path.is_file():
        return False
    return not (shutil.which(text) and path.read_bytes()[:2] == b"#!")


def _python_path(text: str) -> Path:
    return Path(text if text.endswith(".py") else text.rpartition(":")[0])


def _names_python_file(text: str) -> bool:
    """Whether a text, which need not be there, is a Python file by its name; a command line has several words."""
    return _python_path(text).suffix == ".py" and not re.search(r"\s", text)


def served_command(file: str) -> tuple[str, ...]:
    """Returns the command that serves a file as `delta-mcp serve` does, in a process of its own."""
    return (*_OWN_PROGRAM, "serve", str(Path(file).expanduser()))


def _serve_file(file: str) -> Program:
    return Program(served_command(file), file=file)


def parse_entry(entry: Mapping[str, Any]) -> Endpoint:
    """Converts an entry of an `mcpServers` file whose variables are already expanded."""
    url, command = entry.get("url"), entry.get("command")
    if isinstance(url, str) and not command:
        return _parse_url(url, _text_map(entry, "headers"), entry.get("type", entry.get("transport")))
    if not isinstance(command, str) or not command:
        raise ConfigurationError("An entry needs a command or a url.")
    words = entry.get("args") or []
    if not isinstance(words, list) or not all(isinstance(word, str | int | float) for word in words):
        raise ConfigurationError("The args of an entry are a list of texts.")
    cwd = entry.get("cwd")
    return Program((command, *map(str, words)), _text_map(entry, "env"), cwd if isinstance(cwd, str) else None)


def _text_map(entry: Mapping[str, Any], name: str) -> dict[str, str]:
    texts = entry.get(name) or {}
    if not isinstance(texts, Mapping):
        raise ConfigurationError(f"The {name} of an entry is an object of texts.")
    return {str(key): str(value) for key, value in texts.items()}
