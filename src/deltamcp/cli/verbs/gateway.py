"""`delta-mcp gateway` offers the servers of a configuration, or one server, through one: on stdio, HTTP or gRPC."""

import argparse
import functools
import logging
import os
import shlex
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import msgspec
from msgspec import Struct

from deltamcp.catalog.text.clean_text import json_text
from deltamcp.cli.serving import gateway_dashboard, monitoring_options
from deltamcp.cli.serving.gateway_dashboard import DashboardOptions
from deltamcp.cli.serving.serve_command import add_serving_options, parse_tokens, serve
from deltamcp.cli.terminal import targets
from deltamcp.cli.terminal.command_parser import CommandParser, add_repeatable
from deltamcp.cli.terminal.output import suggest
from deltamcp.client.target import is_python_file, served_command
from deltamcp.errors import ConfigurationError
from deltamcp.gateway.api_server import make_entry, name_api
from deltamcp.gateway.config import (
    DEFAULT_RESULTS,
    GatewayConfig,
    GatewayFile,
    SkippedServer,
    UpstreamConfig,
    configuration_files,
    entry_fault,
    read_gateway_file,
    read_gateway_server,
)
from deltamcp.gateway.item_names import name_address, name_command
from deltamcp.gateway.trust.approvals import Approvals, EntryApprovals, approval_hint, log_line
from deltamcp.hosts import files
from deltamcp.hosts.files import VariableExpander
from deltamcp.hosts.hosts import Machine, installed_folder
from deltamcp.results.policy import ResultPolicy, merge_policies
from deltamcp.runtime.files import missing_file_error, user_folder
from deltamcp.runtime.process import collection_paused
from deltamcp.server import DeltaServer

logger: logging.Logger = logging.getLogger("deltamcp")

_USAGE = "delta-mcp gateway [OPTIONS] [CONFIG | URL | FILE.py | -- COMMAND...]"
_DESCRIPTION = (
    "CONFIG is a file of servers as your host writes it (mcpServers), FILE#NAME for one of them, or a gateway.toml of "
    "delta-mcp; without it, your own gateway.toml. A URL, a Python file or a command line, best after --, is wrapped "
    "alone; --openapi offers an HTTP API. Our options stand before it, or after a word that is a file or a URL."
)
_CONFIGURATION_SUFFIXES = (".json", ".jsonc", ".toml")


class GatewayOptions(Struct, frozen=True):
    """What the command line says of a gateway; None where it leaves that to the configuration."""

    disclosure: Literal["meta", "full", "auto"] | None = None
    query: bool | None = None
    destructive: bool | None = None
    prefix: bool | None = None
    max_tokens: int | None = None
    is_raw: bool = False
    only: tuple[str, ...] = ()
    is_read_only: bool = False
    savings: bool | None = None
    has_ledger: bool = True

    def apply(self, config: GatewayConfig) -> GatewayConfig:
        """Returns a configuration with these options in place of what it says.

        Raises:
            ConfigurationError: `only` names a server that is not there.
        """
        given = {
            name: value
            for name in ("disclosure", "query", "destructive", "prefix", "savings")
            if (value := getattr(self, name)) is not None
        }
        upstreams = [one for one in config.upstreams if not self.only or one.name in self.only]
        if self.is_read_only:
            upstreams = [msgspec.structs.replace(one, read_only=True) for one in upstreams]
        results = config.results
        if self.is_raw:
            results = None
            upstreams = [msgspec.structs.replace(one, results=False) for one in upstreams]
        elif self.max_tokens is not None:
            budget = ResultPolicy(max_tokens=self.max_tokens, preview_above=0)
            results = merge_policies(budget, results)
            upstreams = [
                msgspec.structs.replace(one, results=merge_policies(budget, one.results)) if one.results else one
                for one in upstreams
            ]
        return msgspec.structs.replace(config, upstreams=upstreams, results=results, **given)


class ApiOptions(Struct, frozen=True):
    """What the command line says of an API that is offered alone. Its texts may have variables."""

    document: str
    base_url: str | None = None
    headers: tuple[str, ...] = ()

    def read(self) -> GatewayFile:
        """
        Raises:
            ConfigurationError: a variable is not set, or an option is wrong.
        """
        given: dict[str, Any] = {"openapi": self.document, "headers": dict(map(targets.parse_header, self.headers))}
        if self.base_url is not None:
            given["base_url"] = self.base_url
        expander = VariableExpander(Machine.detect(), Path.cwd())
        entry = make_entry(given, expander, Path.cwd())
        name = name_api(entry)
        found = _wrap(name, entry, expander.filled)
        if problem := expander.missing_text or entry_fault(found.config.upstreams[0]):
            raise ConfigurationError(f"{name} cannot be offered: {problem}.")
        return found


class GatewaySource(Struct, frozen=True):
    """A gateway that a command line describes; each process that serves reads its configuration anew."""

    words: tuple[str, ...]
    options: GatewayOptions
    dashboard: DashboardOptions | None = None
    api: ApiOptions | None = None

    @property
    def label(self) -> str:
        return self.words[0] if self.words else "The gateway" if self.api is None else self.api.document

    @property
    def folder(self) -> Path:
        return Path()

    def check(self) -> None:
        self.read_startable()

    def files(self) -> Sequence[Path]:
        """Returns the files that the configuration is read from; none if the command line alone says it."""
        path = _find_file(list(self.words)) if self.api is None else None
        return [] if path is None else configuration_files(path)

    def read(self, known: Mapping[str, UpstreamConfig] = MappingProxyType({})) -> GatewayFile:
        """Returns the configuration, without the servers that the options leave out.

        Args:
            known: As of `read_gateway_file`.

        Raises:
            ConfigurationError: there is none, or it has faults.
        """
        found = _read_words(list(self.words), known) if self.api is None else self.api.read()
        named = [*(one.name for one in found.config.upstreams), *(one.name for one in found.skipped)]
        for name in self.options.only:
            if name not in named:
                hint = suggest(name, named, otherwise=f"it has {', '.join(named) or 'none'}")
                raise ConfigurationError(f"There is no server {name!r} in {self.label}{hint}")
        skipped = tuple(one for one in found.skipped if not self.options.only or one.name in self.options.only)
        return msgspec.structs.replace(found, config=self.options.apply(found.config), skipped=skipped)

    def read_startable(self) -> GatewayFile:
        """Returns the configuration of a gateway that is to start.

        Raises:
            ConfigurationError: there is none, it has faults, or no server of it can be started.
        """
        found = self.read()
        if not found.config.upstreams:
            raise ConfigurationError(_nothing_to_start(self.label, found.skipped))
        return found

    def load(self) -> DeltaServer:
        with collection_paused():
            from deltamcp.gateway.gateway import Gateway
            from deltamcp.gateway.ledger import Ledger
            from deltamcp.gateway.ledger_figures import LedgerFile
            from deltamcp.gateway.live_configuration import LiveConfiguration

        live = LiveConfiguration(self)
        if not live.found.config.upstreams:
            raise ConfigurationError(_nothing_to_start(self.label, live.found.skipped))
        for server in live.found.skipped:
            level = logging.INFO if server.reason == files.DISABLED else logging.WARNING
            logger.log(level, "%s", log_line(server))
        ledger = Ledger(LedgerFile()) if self.options.has_ledger else None
        gateway = Gateway(live.found.config, ledger=ledger, live=live if self.files() else None)
        monitoring_options.redact_log(gateway.redact)
        gateway_dashboard.show_gateway(gateway, self.label, self.dashboard)
        return gateway.server


def set_up(verb: argparse.ArgumentParser) -> None:
    verb.usage, verb.description = _USAGE, _DESCRIPTION
    verb.add_argument(
        "--disclosure",
        choices=("meta", "full", "auto"),
        help="behind meta-tools (default), as one flat list, or whatever costs the model less",
    )
    verb.add_argument("--no-query", action="store_true", help="run read-only operations through execute, too")
    verb.add_argument(
        "--destructive", action="store_true", help="run operations that say they destroy through a tool of their own"
    )
    verb.add_argument(
        "--prefix",
        action=argparse.BooleanOptionalAction,
        help="begin names with that of their server (default: if there are several)",
    )
    verb.add_argument(
        "--openapi", metavar="DOCUMENT", help="offer an HTTP API: the file or the address of its OpenAPI document"
    )
    verb.add_argument(
        "--base-url", metavar="URL", help="with --openapi: where the API is, if not where its document says"
    )
    add_repeatable(
        verb,
        "--header",
        "NAME:VALUE",
        "with --openapi: a header of every request, such as 'Authorization: Bearer ${TOKEN}'",
    )
    verb.add_argument("--max-tokens", type=parse_tokens, metavar="N", help="of a result (default 20,000)")
    verb.add_argument("--raw", action="store_true", help="pass results on as they are, of any size")
    add_repeatable(verb, "--only", "NAME", "a server to offer")
    verb.add_argument("--read-only", action="store_true", help="offer only tools that say they are read-only")
    verb.add_argument("--savings", action="store_true", help="say in the _meta of every result what it saved")
    verb.add_argument("--no-ledger", action="store_true", help="do not count what delta-mcp stats shows")
    verb.add_argument(
        "--check", action="store_true", help="start every server once, tell how that went and what it costs, and end"
    )
    gateway_dashboard.add_options(verb)
    monitoring_options.add_options(verb)
    add_serving_options(verb)
    targets.add_words_argument(verb, "CONFIG")

    def run(args: argparse.Namespace) -> None:
        words = targets.read_words(args, verb)
        options, dashboard = _read_options(args), gateway_dashboard.read_options(args)
        source = GatewaySource(tuple(words), options, dashboard, _read_api(args, words))
        if args.check:
            from deltamcp.cli.serving.gateway_check import run_check

            run_check(source.read_startable())
        else:
            serve(args, source)

    verb.set_defaults(run=run)


def parse_source(words: list[str]) -> GatewaySource:
    """Returns the gateway that the words after `delta-mcp gateway` describe.

    Raises:
        ConfigurationError: they describe none.
    """
    verb = CommandParser("delta-mcp gateway")
    set_up(verb)
    args = verb.parse_args(words)
    return GatewaySource(tuple(targets.read_words(args, verb)), _read_options(args))


def _read_options(args: argparse.Namespace) -> GatewayOptions:
    if args.raw and args.max_tokens is not None:
        raise ConfigurationError("--raw and --max-tokens exclude each other.")
    return GatewayOptions(
        disclosure=args.disclosure,
        query=False if args.no_query else None,
        destructive=args.destructive or None,
        prefix=args.prefix,
        max_tokens=args.max_tokens,
        is_raw=args.raw,
        only=tuple(args.only),
        is_read_only=args.read_only,
        savings=args.savings or None,
        has_ledger=not args.no_ledger,
    )


def _read_api(args: argparse.Namespace, words: list[str]) -> ApiOptions | None:
    if args.openapi is None:
        if args.base_url is not None or args.header:
            raise ConfigurationError("--base-url and --header go with --openapi DOCUMENT.")
        return None
    if words:
        raise ConfigurationError(
            f"--openapi offers an API alone, without {words[0]}; beside other servers it stands in a gateway.toml, as "
            f"openapi = {json_text(args.openapi)} under [servers.NAME]."
        )
    return ApiOptions(args.openapi, args.base_url, tuple(args.header))


def _find_file(words: list[str]) -> Path | None:
    """Returns the file that has the configuration; None if the words are a server."""
    if not words:
        return own_file()
    word, path = words[0], Path(words[0]).expanduser()
    if len(words) > 1 or "://" in word or is_python_file(word):
        return None
    file, mark, _ = word.rpartition("#")
    if mark and Path(file).expanduser().is_file():
        return Path(file).expanduser()
    return None if shutil.which(word) else path


def _read_words(words: list[str], known: Mapping[str, UpstreamConfig]) -> GatewayFile:
    entries = _entry_approvals()
    if not words:
        return read_gateway_file(own_file(), entries, known)
    word = words[0]
    if len(words) > 1:
        return _wrap_command(words)
    if "://" in word:
        return _wrap(name_address(word), {"url": word})
    path = Path(word).expanduser()
    if is_python_file(word) or (path.suffix == ".json" and path.is_file() and files.is_operations_file(path)):
        return _wrap_command([*served_command(word)])
    file, mark, name = word.rpartition("#")
    if mark and Path(file).expanduser().is_file():
        return read_gateway_server(Path(file).expanduser(), name, entries, known)
    if targets.is_api_document(word) and not shutil.which(word):
        raise ConfigurationError(f"{word} is an OpenAPI document: delta-mcp gateway --openapi {shlex.quote(word)}")
    if path.is_file() and not shutil.which(word):
        return read_gateway_file(path, entries, known)
    if path.suffix in _CONFIGURATION_SUFFIXES:
        raise missing_file_error(path)
    if shutil.which(word) is None:
        raise ConfigurationError(
            f"{word} is neither a file nor a program here"
            f"{suggest(word, targets.servable_files(), otherwise='name a configuration, a URL or a command')}"
        )
    return _wrap_command(words)


@functools.cache
def _entry_approvals() -> EntryApprovals:
    """Returns those of this process, which remember what cannot be stored."""
    return EntryApprovals(Approvals())


def _wrap_command(words: list[str]) -> GatewayFile:
    # Nobody says which variables this server needs, so it has all, as it would without the gateway.
    return _wrap(name_command(words), {"command": words[0], "args": words[1:], "env": dict(os.environ)})


def _wrap(name: str, entry: dict[str, Any], filled: Mapping[str, str] | None = None) -> GatewayFile:
    upstream = UpstreamConfig(name=name, entry=entry, filled=dict(filled or {}))
    config = GatewayConfig(upstreams=[upstream], results=DEFAULT_RESULTS)
    return GatewayFile(config)


def own_file() -> Path:
    """Returns the user's own configuration of the gateway, or that which `install` has written for the only host.

    Raises:
        ConfigurationError: there is none, or there are several; the text says what to do.
    """
    folder = user_folder("config")
    own = folder / "gateway.toml"
    if own.is_file():
        return own
    installed = sorted(installed_folder().glob("*.toml"))
    if len(installed) == 1:
        return installed[0]
    if installed:
        raise ConfigurationError(f"Name the configuration of one host: {' or '.join(map(str, installed))}.")
    raise ConfigurationError(
        f"Name a configuration, such as the mcpServers file of your host, or write your own to {own}."
    )


def _nothing_to_start(label: str, skipped: tuple[SkippedServer, ...]) -> str:
    if not skipped:
        return f"{label} has no servers; add one to it."
    reasons = "; ".join(f"{one.name}: {one.reason}" for one in skipped)
    hints = "".join(approval_hint(one.name, one.reason) for one in skipped)
    return f"No server of {label} can be started: {reasons}.{hints}"
