"""What can be connected to: a server in this process, an address, a command line, an entry of an `mcpServers` file."""

import os
import re
import shlex
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeAlias, runtime_checkable
from urllib.parse import urlsplit

from msgspec import Struct

from deltamcp.calls.engine import Engine
from deltamcp.client.links.http import BearerToken, HttpLink
from deltamcp.client.links.http1 import basic_authorization, split_url
from deltamcp.client.links.link import ClientLink
from deltamcp.errors import ConfigurationError
from deltamcp.values import JSON


@runtime_checkable
class ServerLike(Protocol):
    """A `DeltaServer`, as far as a client wants to know."""

    @property
    def engine(self) -> Engine: ...


Target: TypeAlias = "ServerLike | str | Sequence[str] | Mapping[str, JSON]"

_URL_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*://")
_INHERITED_VARIABLES = re.compile(
    "HOME|LANG|LC_ALL|LOGNAME|PATH|SHELL|TERM|TMPDIR|USER|"
    "APPDATA|COMSPEC|LOCALAPPDATA|PATHEXT|SYSTEMDRIVE|SYSTEMROOT|TEMP|TMP|USERPROFILE",
    re.IGNORECASE,
)
"""What a server of a configuration file sees of our environment: what programs need to run, and nobody's secrets."""


class Program(Struct, frozen=True):
    """A server that is started."""

    command: tuple[str, ...]
    env: dict[str, str] | None = None
    """Beside what programs need to run; without it all of our own environment."""
    cwd: str | None = None

    @property
    def label(self) -> str:
        """What it is called in errors: its own words, without the values of options, which may be secrets."""
        return f"The server {Path(self.command[0]).name!r}"

    def make_link(self, quiet: bool) -> ClientLink:
        from deltamcp.client.links.process import ProcessLink

        inherited = dict(os.environ)
        if self.env is not None:
            inherited = {
                name: value for name, value in inherited.items() if _INHERITED_VARIABLES.fullmatch(name)
            } | self.env
        # On Windows `npx` is a script with an extension, which only a search finds.
        program = shutil.which(self.command[0], path=inherited.get("PATH")) or self.command[0]
        return ProcessLink(self.label, (program, *self.command[1:]), inherited, self.cwd, quiet)


class Address(Struct, frozen=True):
    """A server that is reached over HTTP."""

    url: str
    headers: dict[str, str] = {}
    only_sse: bool = False
    """Its entry says that it is of 2024-11-05."""

    @property
    def label(self) -> str:
        parts = urlsplit(self.url)
        return f"The server at {parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"

    @property
    def _authorization(self) -> dict[str, str]:
        parts = urlsplit(self.url)
        return {} if parts.username is None else {"authorization": basic_authorization(parts)}

    def link_factories(self, headers: Mapping[str, str], token: BearerToken | None) -> list[Callable[[], ClientLink]]:
        """Streamable HTTP, and what was before it."""
        every = {**self._authorization, **self.headers, **headers}

        def streamable() -> ClientLink:
            return HttpLink(self.label, self.url, every, token)

        def with_sse() -> ClientLink:
            from deltamcp.client.links.sse import SseLink

            return SseLink(self.label, self.url, every, token)

        return [with_sse] if self.only_sse else [streamable, with_sse]


class InProcessServer(Struct, frozen=True):
    """A server in this process."""

    engine: Engine
    label = "The server"

    def make_link(self) -> ClientLink:
        from deltamcp.client.links.memory import MemoryLink

        return MemoryLink(self.engine)


Endpoint: TypeAlias = InProcessServer | Program | Address


def parse_target(target: Target) -> Endpoint:
    """
    Raises:
        ConfigurationError: it is nothing that can be connected to; the text says what is.
    """
    if isinstance(target, str):
        return _parse_text(target)
    if isinstance(target, Mapping):
        return parse_entry(target)
    if isinstance(target, Sequence) and target and all(isinstance(word, str) for word in target):
        return parse_words(list(target))
    if isinstance(target, ServerLike):
        return InProcessServer(target.engine)
    raise ConfigurationError(
        "A client connects to a DeltaServer, a URL, a command line (a text or a list of words), or an entry of an "
        f"mcpServers file, not to {target!r:.80}."
    )


def parse_words(words: list[str]) -> Endpoint:
    """A target as the command line has it: its words."""
    if len(words) == 1 and shutil.which(words[0]) is None:
        return _parse_text(words[0])  # quoted as a whole, or no command line
    if _URL_SCHEME.match(words[0]):
        raise ConfigurationError(
            f"{words[1]!r} after the address is not understood; a tool's arguments are NAME=VALUE or JSON."
        )
    return Program(tuple(words))


def _parse_text(text: str) -> Endpoint:
    if _URL_SCHEME.match(text):
        if not text.lower().startswith(("http://", "https://")):
            raise ConfigurationError(f"{text.partition('://')[0]}:// is no way to a server; use http:// or https://.")
        split_url(text)
        return Address(text)
    file, mark, name = text.rpartition("#")
    if mark and file.endswith((".json", ".jsonc", ".toml")):
        from deltamcp.client.configs import files

        return parse_entry(files.find_entry(Path(file).expanduser(), name))
    if text.endswith((".json", ".jsonc", ".toml")):
        raise ConfigurationError(f"{text} is a file; name a server in it, as {text}#NAME.")
    try:
        words = shlex.split(text, posix=os.name != "nt")
    except ValueError:
        words = []
    if not words:
        raise ConfigurationError(f"{text!r:.80} is no command line; quote it rightly, or give a list of words.")
    return Program(tuple(words))


def parse_entry(entry: Mapping[str, Any]) -> Endpoint:
    """An entry of an `mcpServers` file, its variables already filled in."""
    url, command = entry.get("url"), entry.get("command")
    if isinstance(url, str) and not command:
        split_url(url)
        return Address(url, _text_map(entry, "headers"), entry.get("type", entry.get("transport")) == "sse")
    if not isinstance(command, str) or not command:
        raise ConfigurationError("An entry needs a command or a url.")
    words = entry.get("args") or []
    if not isinstance(words, list) or not all(isinstance(word, str | int | float) for word in words):
        raise ConfigurationError("The args of an entry are a list of texts.")
    cwd = entry.get("cwd")
    return Program((command, *map(str, words)), _text_map(entry, "env"), cwd if isinstance(cwd, str) else None)


def _text_map(entry: Mapping[str, Any], name: str) -> dict[str, str]:
    found = entry.get(name) or {}
    if not isinstance(found, Mapping):
        raise ConfigurationError(f"The {name} of an entry is an object of texts.")
    return {str(key): str(value) for key, value in found.items()}
