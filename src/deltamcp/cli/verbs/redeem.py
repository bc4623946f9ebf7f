"""`delta-mcp redeem` waits for a call that a server goes on with, and prints its result; or tells of it, or cancels it.

The token is that of a promise of MCP-lite or of a task of MCP.
"""

import argparse
import asyncio
from typing import NamedTuple

from deltamcp.cli.terminal import content, output, targets
from deltamcp.cli.terminal.elicitation import Elicitation, add_answer_option
from deltamcp.cli.terminal.progress import ProgressBar
from deltamcp.client.pending_call import CallState
from deltamcp.client.reply import Reply
from deltamcp.errors import ConfigurationError
from deltamcp.values import JSON

_USAGE = "Usage: delta-mcp redeem TARGET TOKEN; delta-mcp call TARGET TOOL --detach prints a token."


def set_up(verb: argparse.ArgumentParser) -> None:
    usage = "delta-mcp redeem [OPTIONS] TARGET TOKEN"
    description = "TARGET is the URL of the server, or names an entry with one; delta-mcp call --detach prints a TOKEN."
    targets.set_up_verb(verb, usage, "TARGET TOKEN", run, description)
    verb.add_argument("--wait", type=float, metavar="SECONDS", help="how long to wait (default until the call ends)")
    verb.add_argument("--status", action="store_true", help="only print how far the call is")
    verb.add_argument("--cancel", action="store_true", help="cancel the call")
    verb.add_argument("--all", action="store_true", help="the whole value, however many pages it has")
    add_answer_option(verb)


def run(args: argparse.Namespace, words: list[str]) -> None:
    if len(words) < 2:
        raise ConfigurationError(_USAGE)
    if args.status and args.cancel:
        raise ConfigurationError("Give --status or --cancel, not both.")
    *target, token = words
    targets.check_remote(target, "redeem")
    with ProgressBar("Waiting for the call") as progress_bar:
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


class _Redeemed(NamedTuple):
    """What to print of a call that has ended."""

    reply: Reply
    value: JSON = None
    """The whole value, if the user wants all of it."""


async def _redeem(
    args: argparse.Namespace, target: list[str], token: str, progress_bar: ProgressBar
) -> _Redeemed | CallState:
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
            return _Redeemed(reply, await client.whole(reply))
        if content.shows_part(reply) and not reply.is_error:
            output.print_notice("delta-mcp: this is a part; --all shows the rest.")
        return _Redeemed(reply)


def _write_state(state: CallState, as_json: bool) -> None:
    if as_json:
        told = {"status": state.status, "progress": state.progress, "total": state.total, "message": state.message}
        output.print_json({key: value for key, value in told.items() if value is not None})
        return
    done = "" if state.progress is None else f", {state.progress:g}"
    if state.progress is not None and state.total:
        done = f", {state.progress / state.total:.0%}"
    output.print_line(f"{state.status}{done}{f': {state.message}' if state.message else ''}")
