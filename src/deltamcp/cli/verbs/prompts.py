"""`delta-mcp prompts` prints a server's prompts, one per line; `delta-mcp prompt` the messages of one, filled in."""

import argparse
import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from deltamcp.catalog.clean_text import visible_line
from deltamcp.cli.terminal import arguments, content, output, targets
from deltamcp.cli.terminal.arguments import CallCommand
from deltamcp.cli.terminal.elicitation import Elicitation, add_answer_option
from deltamcp.cli.terminal.output import suggest
from deltamcp.cli.terminal.progress import ProgressBar
from deltamcp.cli.terminal.server_listing import print_listing, server_summary
from deltamcp.errors import ConfigurationError
from deltamcp.values import JSON

if TYPE_CHECKING:
    from rich.console import Console

_USAGE = "Usage: delta-mcp prompt TARGET... NAME [JSON | ARGUMENT=TEXT...]; delta-mcp prompts TARGET... names them."


def set_up(verb: argparse.ArgumentParser) -> None:
    targets.set_up_verb(verb, "delta-mcp prompts [OPTIONS] TARGET...", "TARGET", run)


def run(args: argparse.Namespace, target: list[str]) -> None:
    print_listing(args, _fetch_listing(args, target), _print_prompts)


def _print_prompts(listing: dict[str, JSON], console: "Console") -> None:
    prompts = listing["prompts"]
    if prompts:
        output.print_table("", ["", ""], [], map(_row, prompts), console)
    console.print(f"{len(prompts)} prompt{'s' * (len(prompts) != 1)}.")


def _row(prompt: dict[str, JSON]) -> list[str]:
    arguments = prompt.get("arguments")
    names = [
        f"{argument.get('name')}{'' if argument.get('required') is True else '?'}"
        for argument in (arguments if isinstance(arguments, list) else ())
        if isinstance(argument, dict)
    ]
    return [f"{prompt.get('name')}({', '.join(names)})", str(prompt.get("description") or prompt.get("title") or "")]


async def _fetch_listing(args: argparse.Namespace, target: list[str]) -> dict[str, JSON]:
    async with targets.make_client(args, target, timeout=targets.LIST_SECONDS) as client:
        return {"server": server_summary(client), "prompts": await client.prompts()}


def set_up_prompt(verb: argparse.ArgumentParser) -> None:
    usage = "delta-mcp prompt [OPTIONS] TARGET... NAME [JSON | ARGUMENT=TEXT...]"
    targets.set_up_verb(verb, usage, "TARGET NAME ...", run_prompt)
    add_answer_option(verb)


def run_prompt(args: argparse.Namespace, words: list[str]) -> None:
    command = arguments.parse_call(words, _USAGE)
    with (
        ProgressBar("Waiting for the server") as progress_bar,
        targets.explain_word(command.target, command.name, "prompt"),
    ):
        result = asyncio.run(_get(args, command, progress_bar))
    if args.json:
        output.print_json(result)
    else:
        content.write_blocks(_message_blocks(result.get("messages")))


async def _get(args: argparse.Namespace, command: CallCommand, progress_bar: ProgressBar) -> dict[str, JSON]:
    filled = {**command.texts, **{name: _as_text(value) for name, value in command.arguments.items()}}
    elicitation = Elicitation(args.answer, progress_bar.hide)
    async with targets.make_client(args, command.target, on_elicitation=elicitation.answer) as client:
        _check(command.name, filled, await client.prompts())
        sent = {name: text for name, text in filled.items() if text is not None}
        params: dict[str, JSON] = {"name": command.name, "arguments": sent}
        return await elicitation.send(lambda: client.request("prompts/get", params))


def _as_text(value: JSON) -> str | None:
    """MCP has only texts as arguments of prompts; null is no argument."""
    return value if value is None or isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _check(name: str, filled: Mapping[str, str | None], prompts: Sequence[Any]) -> None:
    """
    Raises:
        ConfigurationError: there is no such prompt, or these are not its arguments.
    """
    by_name = {prompt.get("name"): prompt.get("arguments") for prompt in prompts if isinstance(prompt, dict)}
    if name not in by_name:
        names = [known for known in by_name if isinstance(known, str)]
        raise ConfigurationError(f"There is no prompt {name!r}{suggest(name, names)}")
    listed = by_name[name]
    declared = {
        argument.get("name"): argument
        for argument in (listed if isinstance(listed, list) else ())
        if isinstance(argument, dict)
    }
    for argument in filled:
        if argument not in declared:
            known = [known for known in declared if isinstance(known, str)]
            raise ConfigurationError(f"{name} has no argument {argument!r}{suggest(argument, known)}")
    present = {argument for argument, text in filled.items() if text is not None}
    missing = [
        argument for argument, about in declared.items() if about.get("required") is True and argument not in present
    ]
    if missing:
        raise ConfigurationError(f"{name} needs {' '.join(f'{argument}=TEXT' for argument in missing)}.")


def _message_blocks(messages: JSON) -> list[JSON]:
    """Returns the content of a prompt's messages; of several, each with a line that says whose it is."""
    blocks: list[JSON] = []
    listed = [message for message in messages if isinstance(message, dict)] if isinstance(messages, list) else []
    for message in listed:
        if len(listed) > 1:
            blocks.append({"type": "text", "text": visible_line(f"[{message.get('role')}]")})
        blocks.append(message.get("content"))
    return blocks
