"""`delta-mcp list`, `describe`, `call` and `redeem`: a server's tools and what they cost, one of them, calls.

Of a list each tool is a line. A server of this library tells the client every operation, also those that a host reaches
only by meta-tools. `redeem` waits for a call that a server goes on with; it takes the token of a promise of MCP-lite or
of a task of MCP.
"""

import argparse
import asyncio
from typing import TYPE_CHECKING, NamedTuple

from deltamcp import tokens
from deltamcp.catalog.disclosure import definition_tokens
from deltamcp.catalog.text import tool_text
from deltamcp.catalog.text.clean_text import visible_line
from deltamcp.cli.terminal import arguments, content, output, targets
from deltamcp.cli.terminal.arguments import CallCommand
from deltamcp.cli.terminal.content import print_listing, server_summary
from deltamcp.cli.terminal.elicitation import Elicitation, add_answer_option
from deltamcp.cli.terminal.output import ProgressBar
from deltamcp.client.client import DeltaClient
from deltamcp.client.options import ClientOptions
from deltamcp.client.pending_call import CallState
from deltamcp.client.reply import Reply
from deltamcp.errors import ConfigurationError, ResultLostError, UsageError
from deltamcp.results.policy import MIN_MAX_TOKENS, RequestPolicy, ResultPolicy
from deltamcp.results.queries.query import Query, check_query
from deltamcp.values import JSON

if TYPE_CHECKING:
    from rich.console import Console


_DEFAULT_PAGE_SIZE = 50
"""Rows per page if the user gives only the number of a page; the original Delta-MCP has the same default."""
_UNBOUNDED = 1_000_000_000
_REDEEM_USAGE = "Usage: delta-mcp redeem TARGET TOKEN; delta-mcp call TARGET TOOL --detach prints a token."


def set_up(verb: argparse.ArgumentParser) -> None:
    targets.set_up_verb(verb, "delta-mcp list [OPTIONS] TARGET...", "TARGET", run)
    verb.add_argument("--as-host", action="store_true", help="the tools that a host sees, with their descriptions")


def run(args: argparse.Namespace, target: list[str]) -> None:
    print_listing(args, target, _fetch_listing(args, target), _print_tools)


def _print_tools(listing: dict[str, JSON], console: "Console") -> None:
    tools, costs = listing["tools"], listing["tokens"]
    console.print(_surface_line(listing["surface"]))
    rows = ([tool["name"], output.quoted_lines(_about(tool))] for tool in tools)
    output.print_table("", ["", ""], [], rows, console)
    count = f"{len(tools)} tool{'s' * (len(tools) != 1)}"
    console.print(f"{count}: {costs['full']:,} tokens in full, {costs['index']:,} as these lines.")


def _about(tool: dict[str, JSON]) -> str:
    """Returns the summary of a line of the index, or the description of a definition."""
    about = tool.get("summary", tool.get("description"))
    return about if isinstance(about, str) else ""


def _surface_line(surface: dict[str, JSON]) -> str:
    if surface["shown"] == "host":
        return "What a host sees:"
    if not surface["hidden"]:
        return "Plain tools, as a host sees them:"
    hidden, seen = surface["hidden"], surface["hostTools"]
    return (
        f"{hidden} operation{'s' * (hidden != 1)} behind the {seen} tool{'s' * (seen != 1)} that a host sees "
        "(--as-host lists those):"
    )


async def _fetch_listing(args: argparse.Namespace, target: list[str]) -> dict[str, JSON]:
    options: ClientOptions = {"timeout": targets.LIST_SECONDS, "progressive": not args.as_host}
    async with targets.make_client(args, target, **options) as client:
        definitions = await client.describe()
        index = [{"name": tool.name, "summary": tool.summary} for tool in await client.tools()]
        summary, has_operations = server_summary(client), client.server.progressive is not None and not args.as_host
    names = [tool["name"] for tool in index]
    host_names = await _fetch_host_names(args, target) if has_operations else set(names)
    tools = definitions if args.as_host else index
    lines = [(tool["name"], _about(tool)) for tool in tools]
    from deltamcp.costs.cost import count_index_tokens  # imported late, so that calls start faster

    return {
        "server": summary,
        "surface": {
            "shown": "host" if args.as_host else "operations",
            "hostTools": len(host_names),
            "hidden": sum(name not in host_names for name in names),
        },
        "tools": tools,
        "tokens": {"full": sum(map(definition_tokens, definitions)), "index": count_index_tokens(lines)},
    }


async def _fetch_host_names(args: argparse.Namespace, target: list[str]) -> set[str]:
    """Asks the server once more, as a host does: what it lists depends on what the client declares."""
    async with targets.make_client(args, target, timeout=targets.LIST_SECONDS, progressive=False) as client:
        return {tool.name for tool in await client.tools()}


def set_up_describe(verb: argparse.ArgumentParser) -> None:
    targets.set_up_verb(verb, "delta-mcp describe [OPTIONS] TARGET... TOOL", "TARGET TOOL", run_describe)


def run_describe(args: argparse.Namespace, words: list[str]) -> None:
    if len(words) < 2:
        raise targets.missing_word(words, "describe TARGET... TOOL", "tool", "list")
    label = f"Waiting for {targets.name_target(words)}"
    with ProgressBar(label), targets.explain_word(words[:-1], words[-1], "tool"):
        definition = asyncio.run(_fetch_definition(args, words[:-1], words[-1]))
    if args.json:
        output.print_json(definition)
        return
    text = tool_text.full_text(definition, visible_line(words[-1]))
    output.print_text(text)
    figures = f"{tokens.count(text):,} tokens so, {definition_tokens(definition):,} in full"
    console = output.make_console()
    console.print()
    console.print(f"{figures}.", style="dim")


async def _fetch_definition(args: argparse.Namespace, target: list[str], tool: str) -> dict[str, JSON]:
    async with targets.make_client(args, target, timeout=targets.LIST_SECONDS) as client:
        return (await client.describe(tool))[0]


# Calls


def set_up_call(verb: argparse.ArgumentParser) -> None:
    usage = "delta-mcp call [OPTIONS] TARGET... TOOL [JSON | NAME=VALUE...]"
    description = (
        "NAME=VALUE is read by the tool's schema, NAME:=VALUE as JSON; - reads JSON from standard input. "
        f"{targets.TARGET_HELP}"
    )
    targets.set_up_verb(verb, usage, "TARGET TOOL ...", run_call, description)
    verb.add_argument("--page", type=int, metavar="N", help="this page of the rows, from 1")
    verb.add_argument(
        "--page-size", type=int, metavar="N", help=f"rows a page (default the server's own, or {_DEFAULT_PAGE_SIZE})"
    )
    verb.add_argument("--fields", metavar="FIELDS", help="only these fields, as a,b.c; or a JMESPath expression")
    verb.add_argument("--grep", metavar="PATTERN", help="only the lines or rows that match this regular expression")
    verb.add_argument("--since", metavar="HANDLE", help="only what changed since the result with this handle")
    verb.add_argument("--max-tokens", type=int, metavar="N", help="as much as fits into so many")
    verb.add_argument("--all", action="store_true", help="the whole value, however many pages it has")
    verb.add_argument(
        "--detach", action="store_true", help="print the token of a call that goes on, for delta-mcp redeem, and end"
    )
    add_answer_option(verb)


def run_call(args: argparse.Namespace, words: list[str]) -> None:
    _check_options(args)
    command = arguments.parse_call(words, "call TARGET... TOOL [JSON | NAME=VALUE...]", "tool", "list")
    if args.detach:
        targets.check_remote(command.target, "--detach")
    with (
        ProgressBar(f"Calling {command.name} of {targets.name_target(command.target)}") as progress_bar,
        targets.explain_word(command.target, command.name, "tool"),
    ):
        called = asyncio.run(_call(args, command, progress_bar))
    if isinstance(called, CallState):
        _write_token(called, args.json)
        return
    reply, value, is_complete = called
    if reply.is_error:
        content.write_error(reply, args.json)
        if "stderr" in reply.text and not (args.json or args.debug) and "://" not in command.target[0]:
            output.print_notice("delta-mcp: --debug shows the stderr of a server that this command starts.")
        raise SystemExit(1)
    if args.all and is_complete and not reply.selects_nothing and (args.json or reply.texts):
        content.write_value(value, args.json)
    elif args.json:
        output.print_json(reply.raw)
    elif _shows_selection(args, reply):
        output.write_lines(reply.texts[0])
    elif not reply.selects_nothing:
        content.write_reply(reply, with_bytes=args.max_tokens is None)
    if reply.selects_nothing:
        output.print_notice(f"delta-mcp: {' '.join(reply.texts)}")
    if not is_complete or reply.selects_nothing:
        raise SystemExit(1)


def _shows_selection(args: argparse.Namespace, reply: Reply) -> bool:
    """Whether a reply has all that the user selected, so that nothing is to be told of the rest."""
    is_asked = args.fields is not None or args.grep is not None
    return is_asked and bool(reply.texts) and reply.is_selection and "rest" not in reply.delta_meta


def _write_token(state: CallState, as_json: bool) -> None:
    if as_json:
        output.print_json({"token": state.token, "status": state.status})
    else:
        output.print_line(str(state.token))


def _check_options(args: argparse.Namespace) -> None:
    """
    Raises:
        ConfigurationError: the options contradict each other, or a value is invalid.
    """
    if args.detach and any((args.all, args.page, args.max_tokens, args.page_size, args.fields, args.grep, args.since)):
        raise ConfigurationError("--detach prints no result; leave out the options that say how much of it.")
    if args.all and any(option is not None for option in (args.page, args.max_tokens, args.page_size)):
        raise ConfigurationError("--all is everything; leave out --page, --page-size and --max-tokens.")
    for option, minimum in (("page", 1), ("page_size", 1), ("max_tokens", MIN_MAX_TOKENS)):
        value = getattr(args, option)
        if value is not None and value < minimum:
            raise ConfigurationError(f"--{option.replace('_', '-')} is {minimum} or more, not {value}.")
    for option, query in (("fields", Query(fields=args.fields)), ("grep", Query(grep=args.grep))):
        try:
            check_query(query)
        except UsageError as error:
            takes = "fields, as a,b.c, or JMESPath" if option == "fields" else "a regular expression"
            raise ConfigurationError(f"--{option} takes {takes}: {str(error).splitlines()[0]}") from None


class _CallResult(NamedTuple):
    """What to print of a call."""

    reply: Reply
    value: JSON = None
    """The whole value, if the user wants all of it."""
    is_complete: bool = True
    """False if the user wants all of the value, and the rest of it cannot be read."""


async def _call(args: argparse.Namespace, command: CallCommand, progress_bar: ProgressBar) -> _CallResult | CallState:
    """Calls the tool, and reads all of its result if the user wants that; returns the state of a detached call."""
    elicitation = Elicitation(args.answer, progress_bar.hide)
    async with targets.make_client(args, command.target, on_elicitation=elicitation.answer) as client:
        definition = (await client.describe(command.name))[0]
        converted = arguments.convert_by_schema(
            command.texts, definition.get("inputSchema"), client.server.resolves_references
        )
        sent = {**command.arguments, **converted}
        if args.detach:
            pending = await elicitation.send(lambda: client.start(command.name, **sent))
            return pending.state if pending.token is not None else _CallResult(await pending.reply())
        reply = await elicitation.send(lambda: _fetch_reply(client, args, command.name, sent, progress_bar))
        if args.all and not reply.is_error:
            return await _read_whole(client, args, reply)
        is_part = content.shows_part(reply) and not (_shows_selection(args, reply) or reply.selects_nothing)
        if args.page is None and is_part and not reply.is_error:
            output.print_notice("delta-mcp: this is a part; --page N or --all shows the rest.")
        return _CallResult(reply)


async def _read_whole(client: DeltaClient, args: argparse.Namespace, reply: Reply) -> _CallResult:
    """Reads all of a result; says on stderr why the rest of it cannot be read."""
    if reply.selects_all or ((args.fields or args.grep) and "rest" not in reply.delta_meta):
        return _CallResult(reply, reply.value)
    try:
        return _CallResult(reply, await client.whole(reply))
    except ResultLostError as error:
        output.print_notice(f"delta-mcp: {error}")
        return _CallResult(reply, is_complete=False)


async def _fetch_reply(
    client: DeltaClient, args: argparse.Namespace, tool: str, sent: dict[str, JSON], progress_bar: ProgressBar
) -> Reply:
    size = args.page_size if args.page_size is not None or args.page is None else _DEFAULT_PAGE_SIZE
    if client.server.is_delta and size is not None:
        # The original Delta-MCP takes page and size as arguments that the tool's schema does not have.
        paged = {**sent, "page": args.page or 1, "pageSize": size}
        return Reply(await client.request("tools/call", {"name": tool, "arguments": paged}), is_delta=True)
    if client.server.is_delta and args.all and args.fields is None and args.grep is None and args.since is None:
        # A policy would be applied here, and to the first page only.
        return await client.call_tool(tool, sent, progress=progress_bar.show_progress)
    uses_server_pages = args.page is not None and args.page_size is None and args.max_tokens is None
    reply = await client.call_tool(
        tool, sent, want=_result_policy(args, None if uses_server_pages else size), progress=progress_bar.show_progress
    )
    if uses_server_pages and not reply.is_error:
        if reply.delta_meta.get("unit") == "rows":
            size = reply.delta_meta["end"]
        else:
            reply = await client.fit(reply, ResultPolicy(max_tokens=_UNBOUNDED, page_size=size))
    if args.page is None or args.page == 1 or reply.is_error:
        return reply
    total = reply.delta_meta.get("total", 0) if reply.delta_meta.get("unit") == "rows" else 0
    pages = max(1, -(-total // size))
    if reply.handle is None or args.page > pages:
        raise ConfigurationError(f"--page {args.page}: the result has {pages} page{'s' * (pages != 1)}.")
    return await client.read_on(reply.handle, offset=(args.page - 1) * size)


def _result_policy(args: argparse.Namespace, size: int | None) -> ResultPolicy | None:
    if args.all:
        size = _UNBOUNDED
    if all(given is None for given in (args.fields, args.grep, args.since, size, args.max_tokens)):
        return None
    # Only --max-tokens limits the tokens of a page or a selection.
    max_tokens = args.max_tokens if args.max_tokens is not None else _UNBOUNDED
    return RequestPolicy(
        max_tokens=max_tokens,
        page_size=size,
        fields=args.fields,
        grep=args.grep,
        since=args.since,
        tables=False if args.json else None,
    )


# Calls that a server goes on with


def set_up_redeem(verb: argparse.ArgumentParser) -> None:
    usage = "delta-mcp redeem [OPTIONS] TARGET TOKEN"
    description = "TARGET is the URL of the server, or names an entry with one; delta-mcp call --detach prints a TOKEN."
    targets.set_up_verb(verb, usage, "TARGET TOKEN", run_redeem, description)
    verb.add_argument("--wait", type=float, metavar="SECONDS", help="how long to wait (default until the call ends)")
    verb.add_argument("--status", action="store_true", help="only print how far the call is")
    verb.add_argument("--cancel", action="store_true", help="cancel the call")
    verb.add_argument("--all", action="store_true", help="the whole value, however many pages it has")
    add_answer_option(verb)


def run_redeem(args: argparse.Namespace, words: list[str]) -> None:
    if len(words) < 2:
        raise ConfigurationError(_REDEEM_USAGE)
    if args.status and args.cancel:
        raise ConfigurationError("Give --status or --cancel, not both.")
    *target, token = words
    targets.check_remote(target, "redeem")
    with ProgressBar(f"Waiting for the call of {targets.name_target(target)}") as progress_bar:
        found = asyncio.run(_redeem(args, target, token, progress_bar))
    if isinstance(found, CallState):
        _write_state(found, args.json)
    elif found.reply.is_error:
        content.write_error(found.reply, args.json)
        raise SystemExit(1)
    elif args.all:
        content.write_value(found.value, args.json)
    elif args.json:
        output.print_json(found.reply.raw)
    else:
        content.write_reply(found.reply)


async def _redeem(
    args: argparse.Namespace, target: list[str], token: str, progress_bar: ProgressBar
) -> _CallResult | CallState:
    elicitation = Elicitation(args.answer, progress_bar.hide)
    async with targets.make_client(args, target, on_elicitation=elicitation.answer) as client:
        pending = client.pending(token)
        if args.status:
            return await pending.status()
        if args.cancel:
            state = await pending.cancel()
            return state if state.is_final else await pending.status()
        reply = await elicitation.send(lambda: pending.reply(timeout=args.wait, progress=progress_bar.show_progress))
        if args.all and not reply.is_error:
            return _CallResult(reply, await client.whole(reply))
        if content.shows_part(reply) and not reply.is_error:
            output.print_notice("delta-mcp: this is a part; --all shows the rest.")
        return _CallResult(reply)


def _write_state(state: CallState, as_json: bool) -> None:
    if as_json:
        told = {"status": state.status, "progress": state.progress, "total": state.total, "message": state.message}
        output.print_json({key: value for key, value in told.items() if value is not None})
        return
    done = "" if state.progress is None else f", {state.progress:g}"
    if state.progress is not None and state.total:
        done = f", {state.progress / state.total:.0%}"
    output.print_line(f"{state.status}{done}{f': {state.message}' if state.message else ''}")
