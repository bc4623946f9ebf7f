"""`delta-mcp audit` counts what servers cost a model, `bench` measures any of them."""

import argparse
import asyncio
import functools
import itertools
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from deltamcp.cli.terminal import output, targets
from deltamcp.cli.terminal.arguments import parse_object
from deltamcp.cli.terminal.command_parser import add_repeatable, whole_number
from deltamcp.cli.terminal.output import ProgressBar, WaitingBar
from deltamcp.client.options import COMMAND_LINE, ClientOptions
from deltamcp.costs.audit import (
    AskServer,
    AuditedGateway,
    AuditReport,
    ConfiguredGateway,
    ServerAnswer,
    audit,
    configured_gateway,
    gateway_sentence,
    measure,
    measurement_table,
    uncounted_sentences,
    unique_servers,
)
from deltamcp.costs.cost import Cost
from deltamcp.errors import ConfigurationError
from deltamcp.gateway.config import GatewayConfig, is_gateway_file, read_gateway_file, review_servers
from deltamcp.gateway.trust.approvals import Approvals, EntryApprovals
from deltamcp.hosts import files
from deltamcp.hosts.files import ConfiguredServer
from deltamcp.hosts.host_entry import gateway_words, starts_gateway
from deltamcp.version import VERSION

if TYPE_CHECKING:
    from rich.console import Console

DEFAULT_SECONDS = 30.0
LARGEST_TOOLS = 10
"""How many tools the table shows."""


def set_up(verb: argparse.ArgumentParser) -> None:
    verb.add_argument(
        "config",
        nargs="?",
        metavar="CONFIG",
        help="a file of mcpServers, FILE#NAME for one of them, a gateway.toml, a Python file, or an OpenAPI document; "
        "every host's files here unless given",
    )
    verb.add_argument("--project", action="store_true", help="start what this folder's own files tell of, too")
    add_repeatable(verb, "--only", "NAME", "a server to ask")
    verb.add_argument(
        "--timeout",
        type=float,
        default=DEFAULT_SECONDS,
        metavar="SECONDS",
        help=f"for each server (default {DEFAULT_SECONDS:g})",
    )
    verb.add_argument(
        "--model",
        type=_parse_model,
        default="o200k",
        metavar="NAME",
        help="whose tokens to count, such as gpt-5 or claude-opus-4-6; or a factor to multiply those of o200k by",
    )
    verb.add_argument("--json", action="store_true", help="one JSON object instead of a table")
    verb.add_argument("--html", type=Path, metavar="FILE", help="write a page with a chart as well")
    verb.set_defaults(run=run)


def _parse_model(text: str) -> str | float:
    try:
        factor = float(text)
    except ValueError:
        return text
    if not 0 < factor < 100:
        raise argparse.ArgumentTypeError(f"a model's name, or a factor above 0 and below 100, not {text!r}")
    return factor


def run(args: argparse.Namespace) -> None:
    if args.timeout <= 0:
        raise ConfigurationError("--timeout takes seconds, more than none.")
    if args.html and not args.html.parent.is_dir():
        raise ConfigurationError(f"There is no folder {args.html.parent} to write {args.html.name} to.")
    found, gateways = _find_all(args.config, args.project)
    _check_names([*found, *(server for gateway in gateways for server in gateway.behind)], args.only)
    servers = _select_servers(found, args.only)
    gateways = [msgspec.structs.replace(one, behind=_select_servers(one.behind, args.only)) for one in gateways]
    ask = functools.partial(_ask_server, seconds=args.timeout)
    report = asyncio.run(_audit_with_progress(servers, gateways, ask, args))
    if args.html:
        from deltamcp.cli.terminal import report_pages

        report_pages.write(args.html, report_pages.audit_page(report))
    if args.json:
        output.print_json(msgspec.to_builtins(report))
    else:
        _print_report(report)
    behind = [server for gateway in report.gateways for server in gateway.servers]
    if not any(server.cost for server in (*report.servers, *behind)):
        raise SystemExit(1)


def _find_all(config: str | None, project: bool) -> tuple[list[ConfiguredServer], list[ConfiguredGateway]]:
    """Returns the servers that hosts start, and their gateways, each once."""
    path = Path(config or "").expanduser()
    if config is not None and path.suffix == ".toml" and path.is_file() and is_gateway_file(path):
        return _servers_of_gateway(path), []
    found = _find_servers(config, project)
    servers = [one for one in found if one.skip_reason is not None or not starts_gateway(one.entry)]
    others = {msgspec.json.encode(one.entry, order="sorted"): one for one in reversed(found) if one not in servers}
    return servers, [_read_gateway(one, gateway_words(one.entry)) for one in reversed(others.values())]


def _servers_of_gateway(path: Path) -> list[ConfiguredServer]:
    """Returns the servers of a configuration of the gateway.

    Raises:
        ConfigurationError: the file has faults.
    """
    found = read_gateway_file(path, EntryApprovals(Approvals()))
    started = configured_gateway(ConfiguredServer("", "gateway", path, {}), found).behind
    return [*started, *(ConfiguredServer(one.name, "gateway", path, {}, one.reason) for one in found.skipped)]


def _read_gateway(server: ConfiguredServer, words: list[str]) -> ConfiguredGateway:
    from deltamcp.cli.verbs import gateway  # imported late, so that other verbs start faster

    try:
        return configured_gateway(server, gateway.parse_source(words).read())
    except ConfigurationError as error:
        return ConfiguredGateway(server, GatewayConfig(upstreams=[]), [], problem=str(error))


def _find_servers(config: str | None, project: bool) -> list[ConfiguredServer]:
    """Returns the servers of a file, or of all hosts' files; those that wait for approval are skipped."""
    if config is None:
        found = files.find_servers(Path.home(), Path.cwd(), sys.platform, os.environ, trusted=project)
    else:
        found = targets.find_servers(config)
    entries = EntryApprovals(Approvals())
    part = f"#{config.rpartition('#')[2]}" if config and not Path(config).expanduser().exists() else ""
    reviewed: list[ConfiguredServer] = []
    for path, listed in itertools.groupby(found, lambda server: server.path):
        servers = [*listed]
        is_read = any(server.written and server.skip_reason != files.UNTRUSTED for server in servers)
        reviewed += review_servers(path, servers, entries, part)[0] if is_read else servers
    return reviewed


def _gateway_words(config: str | None) -> Sequence[str]:
    if config is None:
        return ()
    return ("--openapi", config) if targets.is_api_document(config) else (config,)


def _check_names(servers: Sequence[ConfiguredServer], only: Sequence[str]) -> None:
    """
    Raises:
        ConfigurationError: no server has such a name.
    """
    names = {server.name for server in servers}
    for name in only:
        if name not in names:
            known = ", ".join(sorted(name for name in names if name)) or "none"
            raise ConfigurationError(f"No server is called {name!r}; there are {known}.")


def _select_servers(servers: list[ConfiguredServer], only: Sequence[str]) -> list[ConfiguredServer]:
    return [server for server in servers if not only or server.name in only]


async def _ask_server(entry: dict[str, Any], seconds: float) -> ServerAnswer:
    from deltamcp.cli.verbs import login  # imported late, as what follows, so that other verbs start faster
    from deltamcp.client.client import DeltaClient, GatewayClient
    from deltamcp.client.oauth.oauth import LoginRequiredError, OAuth
    from deltamcp.gateway.api_server import ApiServer, is_api, name_api
    from deltamcp.gateway.connections import cache_folder

    auth = OAuth(asks_user=False)
    options: ClientOptions = {"listen": False, "quiet": True, "auth": auth, "timeout": seconds}
    options |= {"start_timeout": seconds, "info": {"name": COMMAND_LINE, "version": VERSION}}
    target = ApiServer(name_api(entry), entry, cache_folder()) if is_api(entry) else entry
    try:
        async with GatewayClient(target, **options) as client:
            if client.server.progressive is None:
                return ServerAnswer(await client.describe(), client.server.instructions or "")
            operations = await client.fetch_tools()
            if isinstance(target, ApiServer):  # no host has another way to it
                return ServerAnswer(operations, client.server.instructions or "")
        options["progressive"] = False  # as a host asks a server of this library
        async with DeltaClient(entry, **options) as host:
            return ServerAnswer(await host.describe(), host.server.instructions or "", operations)
    except LoginRequiredError as error:
        raise login.say_how(error) from None


async def _audit_with_progress(
    servers: list[ConfiguredServer], gateways: list[ConfiguredGateway], ask: AskServer, args: argparse.Namespace
) -> AuditReport:
    asked = unique_servers([*servers, *(server for gateway in gateways for server in gateway.behind)])
    with WaitingBar(asked) as waiting_bar:
        words = _gateway_words(args.config)
        return await audit(servers, ask, args.timeout, waiting_bar.note_answer, args.model, words, gateways)


def _print_report(report: AuditReport) -> None:
    console = output.make_console()

    counted = [server for server in report.servers if server.cost]
    if counted:
        has_places = len({tuple(server.places) for server in counted}) > 1
        rows: list[list[str | list[str]]] = [
            [server.name, *[server.places] * has_places, *_figures(server.cost)] for server in counted
        ]
        rows += [["together", *[""] * has_places, *_figures(report.together)]] * (len(counted) > 1)
        figures = ("tools", "now", "meta-tools", "one tool", "instructions")
        title = f"Tokens before a conversation begins, {report.date} ({report.tokenizer})"
        output.print_table(title, ("server", *["in"] * has_places), figures, rows, console)
        console.print()
        if len(report.hosts) > 1:
            rows = [[host.host, f"{len(host.servers)}", *_figures(host.cost)] for host in report.hosts]
            title = "In each host, a server of several hosts in each of them"
            output.print_table(title, ("host",), ("servers", *figures), rows, console)
            console.print()
        largest = [
            [tool.name, tool.server, f"{tool.now:,}", "" if tool.schema is None else f"{tool.schema:,}"]
            for tool in report.tools[:LARGEST_TOOLS]
        ]
        output.print_table("The largest tools", ("tool", "server"), ("now", "when used"), largest, console)
        console.print()
        console.print(_summary(report))
    for gateway in report.gateways:
        _print_gateway(gateway, report, console)
    for sentence in uncounted_sentences(report):
        console.print(sentence)
    if report.next_steps:
        console.print()
        console.print("What you can do now:")
    for sentence in report.next_steps:
        console.print(f"- {sentence}")
    if not report.servers and not report.skipped and not report.gateways:
        console.print("No host here has servers; name a file of mcpServers: delta-mcp audit CONFIG")


def _print_gateway(gateway: AuditedGateway, report: AuditReport, console: "Console") -> None:
    counted = [server for server in gateway.servers if server.cost]
    if not counted:
        return
    rows = [[server.name, f"{server.cost.tools:,}", f"{server.cost.now:,}"] for server in counted if server.cost]
    rows += [["together", f"{gateway.together.tools:,}", f"{gateway.together.now:,}"]] * (len(counted) > 1)
    title = f"Behind the gateway {gateway.name} ({gateway.place}), {report.date} ({report.tokenizer})"
    output.print_table(title, ("server",), ("tools", "without it"), rows, console)
    console.print()
    console.print(gateway_sentence(gateway))


def _figures(cost: Cost | None) -> list[str]:
    assert cost is not None, "only servers with a cost have a row"
    return [f"{figure:,}" for figure in (cost.tools, cost.now, cost.surface, cost.one_tool, cost.instructions)]


def _summary(report: AuditReport) -> str:
    cost = report.together
    gain = (
        f", {1 - cost.surface / cost.now:.1%} less" if cost.now > cost.surface else ": these tools are too few to gain"
    )
    return (
        f"Behind the gateway {cost.surface:,} tokens instead of {cost.now:,}{gain}. A conversation that uses "
        f"one tool would cost {cost.one_tool:,}: the meta-tools, one discover ({cost.overview:,}), "
        f"one get_schema ({cost.schema:,})."
    )


def set_up_bench(verb: argparse.ArgumentParser) -> None:
    targets.set_up_verb(verb, "delta-mcp bench [OPTIONS] TARGET...", "TARGET", run_bench)
    verb.add_argument("--tool", metavar="NAME", help="the tool to call; one that only reads unless given")
    verb.add_argument("--arguments", default="{}", metavar="JSON", help="what to call it with")
    verb.add_argument(
        "--rounds", type=whole_number("rounds", 1_000), default=20, metavar="N", help="times each is asked (default 20)"
    )


def run_bench(args: argparse.Namespace, words: list[str]) -> None:
    arguments = parse_object(args.arguments)
    connect = functools.partial(targets.make_client, args, words)
    label = f"Measuring {targets.name_target(words)}"
    with ProgressBar(label) as progress_bar:
        report: dict[str, Any] = asyncio.run(
            measure(connect, args.tool, arguments, args.rounds, lambda step: progress_bar.set_label(f"{label}: {step}"))
        )
    if args.json:
        output.print_json(report)
    else:
        output.print_text(measurement_table(report))
