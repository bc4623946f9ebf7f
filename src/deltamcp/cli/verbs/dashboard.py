"""`delta-mcp status`, `restart`, `logs` and `cancel`, which ask the gateways of this user that run; and their pages."""

import argparse
import asyncio
import datetime
import time
from collections.abc import Awaitable, Callable
from typing import Any

from deltamcp.cli.serving import gateway_dashboard
from deltamcp.cli.serving.gateway_dashboard import DashboardOptions
from deltamcp.cli.serving.network_options import parse_address
from deltamcp.cli.terminal import output
from deltamcp.cli.terminal.command_parser import whole_number
from deltamcp.dashboard.gateway_socket import RemoteGateway, find_gateways
from deltamcp.errors import ConfigurationError, UsageError

_NONE = "No gateway of yours runs here; delta-mcp gateway starts one."
_DEFAULT_LINES = 50


def _add_gateway_option(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("--gateway", metavar="ID", help="the gateway to ask, as status numbers them; all unless given")


async def _chosen(args: argparse.Namespace) -> list[RemoteGateway]:
    """
    Raises:
        ConfigurationError: none runs, or none of the number that was given.
    """
    found = await find_gateways()
    if not found:
        raise ConfigurationError(_NONE)
    if args.gateway is None:
        return found
    chosen = [one for one in found if one.id == args.gateway]
    if not chosen:
        ids = ", ".join(one.id for one in found)
        raise ConfigurationError(f"No gateway here has the number {args.gateway}; there are {ids}.")
    return chosen


async def _having(server: str, args: argparse.Namespace) -> list[RemoteGateway]:
    """Returns the gateways that have a server.

    Raises:
        ConfigurationError: there is none.
    """
    names: dict[str, list[RemoteGateway]] = {}
    for gateway in await _chosen(args):
        for row in await gateway.ask("servers"):
            names.setdefault(row["name"], []).append(gateway)
    if server not in names:
        raise ConfigurationError(f"No gateway here has a server {server!r}{output.suggest(server, names)}")
    return names[server]


def _run(main: Callable[[argparse.Namespace], Awaitable[None]]) -> Callable[[argparse.Namespace], None]:
    def run(args: argparse.Namespace) -> None:
        try:
            asyncio.run(main(args))  # type: ignore[arg-type]
        except UsageError as error:  # of the gateway, which is a sentence for people
            raise ConfigurationError(str(error)) from None

    return run


def set_up(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("address", nargs="?", metavar="HOST:PORT", help="where to show the pages (127.0.0.1:8765)")
    gateway_dashboard.add_write_option(verb)
    verb.set_defaults(run=_show_dashboard)


def _show_dashboard(args: argparse.Namespace) -> None:
    options = DashboardOptions(may_write=args.dashboard_write)
    if args.address:
        host, port = parse_address("delta-mcp dashboard", args.address)
        options = DashboardOptions(host, port, args.dashboard_write)
    gateway_dashboard.run_dashboard(options)


# status


def set_up_status(verb: argparse.ArgumentParser) -> None:
    _add_gateway_option(verb)
    verb.add_argument("--json", action="store_true", help="one JSON object instead of tables")
    verb.set_defaults(run=_run(_show_status))


async def _show_status(args: argparse.Namespace) -> None:
    found = []
    for gateway in await _chosen(args):
        asked = [await gateway.ask(name) for name in ("about", "servers", "home", "pending")]
        found.append(dict(zip(("about", "servers", "home", "pending"), asked, strict=True)))
    if args.json:
        output.print_json({"gateways": found})
        return
    console = output.make_console()
    for number, one in enumerate(found):
        if number:
            console.print()
        about = one["about"]
        page = f", its page is {about['page']}" if about["page"] else ""
        console.print(f"Gateway {about['id']}: {about['label']}, in {about['folder']}, {_ago(about['began'])}{page}")
        rows = [[row["name"], _state(row), row["protocol"] or "", *_figures(row)] for row in one["servers"]]
        headings = ["tools", "plain", "here", "calls", "failed", "ms"]
        output.print_table("", ["server", "state", "protocol"], headings, rows, console)
        for need in one["home"]["attention"]:
            console.print(f"- {need['title']}. {need['advice']}{' ' + need['command'] if need['command'] else ''}")
            for line in need["details"]:
                console.print(f"    {line}")
        for call in one["pending"]["calls"]:
            console.print(f"{call['id']}: {call['server']} {call['name']}, {_ago(call['since'])}")
        for promise in one["pending"]["promises"]:
            console.print(f"{promise['id']}: {promise['tool']}, {promise['status']}, {_ago(promise['since'])}")


def _state(row: Any) -> str:
    return "needs a login" if row["wantsLogin"] else "down" if row["isDown"] else str(row["state"])


def _figures(row: Any) -> list[str]:
    latency = "" if row["p50"] is None else f"{row['p50']:.0f}"
    return [f"{row[name]:,}" for name in ("tools", "plain", "here", "calls", "failed")] + [latency]


def _ago(at: float) -> str:
    seconds = max(0, int(time.time() - at))
    for size, unit in ((86_400, "day"), (3_600, "hour"), (60, "minute")):
        if seconds >= size:
            count = seconds // size
            return f"for {count} {unit}{'s' * (count != 1)}"
    return f"for {seconds} s"


# restart, cancel


def set_up_restart(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("name", metavar="NAME", help="a server behind a gateway of yours that runs")
    _add_gateway_option(verb)
    verb.set_defaults(run=_run(_restart))


async def _restart(args: argparse.Namespace) -> None:
    for gateway in await _having(args.name, args):
        await gateway.ask("restart", {"server": args.name})
        output.print_line(f"{args.name} is started anew by gateway {gateway.id}; delta-mcp status tells how that went.")


def set_up_cancel(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("id", metavar="CALL", help="a call that runs, as status lists them")
    _add_gateway_option(verb)
    verb.set_defaults(run=_run(_cancel))


async def _cancel(args: argparse.Namespace) -> None:
    gateways = await _chosen(args)
    holders = []
    for gateway in gateways:
        pending = await gateway.ask("pending")
        if any(one["id"] == args.id for one in (*pending["calls"], *pending["promises"])):
            holders.append(gateway)
    if not holders:
        raise ConfigurationError(f"No call {args.id} runs here; delta-mcp status lists those that do.")
    if len(holders) > 1:
        ids = " or ".join(one.id for one in holders)
        raise ConfigurationError(f"Several gateways have a call {args.id}; add --gateway {ids}.")
    await holders[0].ask("cancel", {"id": args.id})
    output.print_line(f"{args.id} is told to stop.")


# logs


def set_up_logs(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("name", nargs="?", metavar="NAME", help="a server, for its stderr; without it, the calls")
    verb.add_argument(
        "-n",
        "--lines",
        type=whole_number("lines", 10_000),
        default=_DEFAULT_LINES,
        metavar="N",
        help=f"(default {_DEFAULT_LINES})",
    )
    verb.add_argument("-f", "--follow", action="store_true", help="go on with what comes")
    _add_gateway_option(verb)
    verb.set_defaults(run=_run(_show_logs))


async def _show_logs(args: argparse.Namespace) -> None:
    if args.name is None:
        gateways = await _chosen(args)
        await asyncio.gather(*(_show_calls(gateway, args) for gateway in gateways))
    else:
        gateways = await _having(args.name, args)
        await asyncio.gather(*(_show_stderr(gateway, args) for gateway in gateways))


async def _show_stderr(gateway: RemoteGateway, args: argparse.Namespace) -> None:
    shown: list[Any] = []
    while True:
        lines = (await gateway.ask("server", {"server": args.name}))["stderr"]
        last = shown[-1] if shown else None
        fresh = lines[lines.index(last) + 1 :] if last in lines else lines[-args.lines :]
        for line in fresh:
            output.print_line(f"{_clock(line['at'])} {line['text']}")
        shown = lines or shown
        if not args.follow:
            if not lines:
                output.print_line(f"{args.name} has written nothing to stderr, as far as gateway {gateway.id} knows.")
            return
        await asyncio.sleep(1.0)


async def _show_calls(gateway: RemoteGateway, args: argparse.Namespace) -> None:
    found = await gateway.ask("calls", {"limit": args.lines})
    for call in reversed(found["calls"]):
        _print_call(call)
    if not found["calls"]:
        since = _clock((await gateway.ask("about"))["watchedSince"])
        output.print_line(f"No call came to gateway {gateway.id} since {since}, when somebody first looked.")
    seq, state = found["seq"], ""
    while args.follow:
        changes = await gateway.ask("changes", {"seq": seq, "state": state})
        for call in reversed(changes["calls"]):
            _print_call(call)
        seq, state = changes["seq"], changes["state"]


def _print_call(call: Any) -> None:
    cost = "" if call["after"] is None else f", {call['before']:,} -> {call['after']:,} tokens"
    name = f"{call['server']}.{call['tool']}" if call["server"] else call["tool"]
    output.print_line(f"{_clock(call['at'])} {name}: {call['outcome']}, {call['ms']:.0f} ms{cost}, by {call['client']}")


def _clock(at: float) -> str:
    return datetime.datetime.fromtimestamp(at).strftime("%H:%M:%S")
