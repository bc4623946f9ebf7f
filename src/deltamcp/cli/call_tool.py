"""`delta-mcp call`: one call of one tool, and as much of its result as is wanted."""

import argparse
import asyncio
import sys

from deltamcp.cli import arguments, output, reply_text, targets
from deltamcp.cli.arguments import CallCommand
from deltamcp.cli.elicitation import ask_user
from deltamcp.cli.progress import ProgressBar
from deltamcp.client.client import DeltaClient
from deltamcp.client.options import ClientOptions
from deltamcp.client.reply import Reply
from deltamcp.context import Elicited
from deltamcp.errors import ConfigurationError, UsageError
from deltamcp.results import projection
from deltamcp.results.budget import MIN_MAX_TOKENS
from deltamcp.results.policy import ResultPolicy
from deltamcp.values import JSON

_DEFAULT_PAGE_SIZE = 50
"""Rows a page where only a page's number is given, as Delta-MCP has it."""
_UNBOUNDED = 1_000_000_000


def set_up(verb: argparse.ArgumentParser) -> None:
    verb.usage = "delta-mcp call [OPTIONS] TARGET... TOOL [JSON | NAME=VALUE...]"
    verb.description = (
        "NAME=VALUE is read by the tool's schema, NAME:=VALUE as JSON; - reads JSON from standard input. "
        f"{targets.TARGET_HELP}"
    )
    targets.add_options(verb)
    verb.add_argument("--page", type=int, metavar="N", help="this page of the rows, from 1")
    verb.add_argument(
        "--page-size", type=int, metavar="N", help=f"rows a page (default the server's own, or {_DEFAULT_PAGE_SIZE})"
    )
    verb.add_argument("--select", metavar="FIELDS", help="only these fields, as a,b.c; or a JMESPath expression")
    verb.add_argument("--max-tokens", type=int, metavar="N", help="as much as fits into so many")
    verb.add_argument("--all", action="store_true", help="the whole value, however many pages it has")
    targets.add_words_argument(verb, "TARGET TOOL ...")
    verb.set_defaults(run=lambda given: run(given, targets.read_words(given, verb)))


def run(given: argparse.Namespace, words: list[str]) -> None:
    _check_options(given)
    command = arguments.parse_call(words)
    with ProgressBar(f"Calling {command.tool}") as progress_bar, targets.explain_tool_word(command.tool):
        value, failed = asyncio.run(_call(given, command, progress_bar))
    if given.json or not isinstance(value, str):
        output.print_json(value)
    else:
        print(output.printable_text(value), file=sys.stderr if failed else sys.stdout)
    if failed:
        raise SystemExit(1)


def _check_options(given: argparse.Namespace) -> None:
    """
    Raises:
        ConfigurationError: the options cannot be meant so.
    """
    if given.all and any(one is not None for one in (given.page, given.max_tokens, given.page_size)):
        raise ConfigurationError("--all is everything; leave out --page, --page-size and --max-tokens.")
    for option, least in (("page", 1), ("page_size", 1), ("max_tokens", MIN_MAX_TOKENS)):
        said = getattr(given, option)
        if said is not None and said < least:
            raise ConfigurationError(f"--{option.replace('_', '-')} is {least} or more, not {said}.")
    try:
        projection.check_fields(given.select)
    except UsageError as error:
        raise ConfigurationError(
            f"--select takes fields, as a,b.c, or JMESPath: {str(error).splitlines()[0]}"
        ) from None


async def _call(given: argparse.Namespace, command: CallCommand, progress_bar: ProgressBar) -> tuple[JSON, bool]:
    """What is to be shown, and whether the tool failed."""

    async def ask_back(question: dict[str, JSON]) -> Elicited:
        progress_bar.hide()
        return await ask_user(question)

    more: ClientOptions = {"on_elicitation": ask_back} if targets.is_interactive() else {}
    async with targets.make_client(given, command.target, **more) as client:
        definition = (await client.describe(command.tool))[0]
        sent = {**command.arguments, **arguments.convert_by_schema(command.texts, definition.get("inputSchema"))}
        reply = await _fetch_reply(client, given, command.tool, sent, progress_bar)
        if reply.is_error:
            return (reply.raw if given.json else reply.text or "The tool failed and did not say why."), True
        if given.all:
            return (reply.value if given.select else await client.whole(reply)), False
        if reply.is_part and sys.stderr.isatty():
            print("delta-mcp: this is a part; --page N or --all shows the rest.", file=sys.stderr)
        return (reply.raw if given.json else reply_text.format_reply(reply)), False


async def _fetch_reply(
    client: DeltaClient, given: argparse.Namespace, tool: str, sent: dict[str, JSON], progress_bar: ProgressBar
) -> Reply:
    size = given.page_size if given.page_size is not None or given.page is None else _DEFAULT_PAGE_SIZE
    if client.server.is_delta and size is not None:
        # There pages are turned by arguments that are not the tool's own.
        paged = {**sent, "page": given.page or 1, "pageSize": size}
        return Reply(await client.request("tools/call", {"name": tool, "arguments": paged}), is_delta=True)
    is_own = given.page is not None and given.page_size is None and given.max_tokens is None
    reply = await client.call_tool(
        tool, sent, want=_result_policy(given, None if is_own else size), progress=progress_bar.show_progress
    )
    if is_own and not reply.is_error:
        if reply.told.get("unit") == "rows":
            size = reply.told["end"]  # the server's own pages
        else:
            reply = await client.fit(reply, ResultPolicy(max_tokens=_UNBOUNDED, page_size=size))
    if given.page is None or given.page == 1 or reply.is_error:
        return reply
    total = reply.told.get("total", 0) if reply.told.get("unit") == "rows" else 0
    pages = max(1, -(-total // size))
    if reply.handle is None or given.page > pages:
        raise ConfigurationError(f"--page {given.page}: the result has {pages} page{'s' * (pages != 1)}.")
    return await client.read_on(reply.handle, offset=(given.page - 1) * size)


def _result_policy(given: argparse.Namespace, size: int | None) -> ResultPolicy | None:
    if given.all:
        size = _UNBOUNDED
    if given.select is None and size is None and given.max_tokens is None:
        return None
    # A page, or a selection, is wanted whole: nothing but --max-tokens says otherwise.
    most = given.max_tokens if given.max_tokens is not None else _UNBOUNDED
    return ResultPolicy(max_tokens=most, page_size=size, fields=given.select, tables=False if given.json else None)
