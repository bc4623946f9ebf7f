"""`delta-mcp resources`, `read`, `prompts` and `prompt` print what a server has beside its tools."""

import argparse
import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from deltamcp.catalog.text.clean_text import visible_line
from deltamcp.cli.terminal import arguments, content, output, targets
from deltamcp.cli.terminal.arguments import CallCommand
from deltamcp.cli.terminal.content import print_listing, server_summary
from deltamcp.cli.terminal.elicitation import Elicitation, add_answer_option
from deltamcp.cli.terminal.output import ProgressBar, suggest
from deltamcp.client.client import DeltaClient
from deltamcp.errors import FAULTS, ClientError, ConfigurationError, Fault, PeerError
from deltamcp.values import JSON

if TYPE_CHECKING:
    from rich.console import Console


_NOT_FOUND_CODES = FAULTS[Fault.RESOURCE_NOT_FOUND].handshake, FAULTS[Fault.RESOURCE_NOT_FOUND].modern


def set_up(verb: argparse.ArgumentParser) -> None:
    targets.set_up_verb(verb, "delta-mcp resources [OPTIONS] TARGET...", "TARGET", run)


def run(args: argparse.Namespace, target: list[str]) -> None:
    print_listing(args, target, _fetch_listing(args, target), _print_resources)


def _print_resources(listing: dict[str, JSON], console: "Console") -> None:
    resources, templates = listing["resources"], listing["resourceTemplates"]
    if resources or templates:
        rows = [_row(item, "uri") for item in resources] + [_row(item, "uriTemplate") for item in templates]
        output.print_table("", ["", "", ""], [], rows, console)
    console.print(
        f"{len(resources)} resource{'s' * (len(resources) != 1)}, "
        f"{len(templates)} template{'s' * (len(templates) != 1)}."
    )


def _row(item: dict[str, JSON], key: str) -> list[str]:
    about = item.get("description") or item.get("title") or item.get("name") or ""
    return [str(item.get(key, "")), str(item.get("mimeType") or ""), str(about)]


async def _fetch_listing(args: argparse.Namespace, target: list[str]) -> dict[str, JSON]:
    async with targets.make_client(args, target, timeout=targets.LIST_SECONDS) as client:
        return {
            "server": server_summary(client),
            "resources": await client.list_resources(),
            "resourceTemplates": await client.list_resource_templates(),
        }


def set_up_read(verb: argparse.ArgumentParser) -> None:
    targets.set_up_verb(verb, "delta-mcp read [OPTIONS] TARGET... URI", "TARGET URI", run_read)
    add_answer_option(verb)


def run_read(args: argparse.Namespace, words: list[str]) -> None:
    if len(words) < 2:
        raise targets.missing_word(words, "read TARGET... URI", "resource", "resources")
    label = f"Waiting for {targets.name_target(words)}"
    with ProgressBar(label) as progress_bar, targets.explain_word(words[:-1], words[-1], "resource"):
        result = asyncio.run(_read(args, words[:-1], words[-1], progress_bar))
    if args.json:
        output.print_json(result)
        return
    contents = result.get("contents")
    content.write_blocks(
        [{"type": "resource", "resource": item} for item in (contents if isinstance(contents, list) else ())]
    )


async def _read(args: argparse.Namespace, target: list[str], uri: str, progress_bar: ProgressBar) -> dict[str, JSON]:
    elicitation = Elicitation(args.answer, progress_bar.hide)
    async with targets.make_client(args, target, on_elicitation=elicitation.answer) as client:
        try:
            return await elicitation.send(lambda: client.request("resources/read", {"uri": uri}))
        except PeerError as error:
            known = await _list_uris(client) if error.code in _NOT_FOUND_CODES else [uri]
            if uri in known:
                raise
            otherwise = f"{targets.list_command('resources', target)} lists those there are"
            raise ClientError(f"{str(error).rstrip('.')}{suggest(uri, known, otherwise=otherwise)}") from None


async def _list_uris(client: DeltaClient) -> list[str]:
    resources, templates = await client.list_resources(), await client.list_resource_templates()
    listed = [item.get("uri") for item in resources] + [item.get("uriTemplate") for item in templates]
    return [uri for uri in listed if isinstance(uri, str)]


def set_up_prompts(verb: argparse.ArgumentParser) -> None:
    targets.set_up_verb(verb, "delta-mcp prompts [OPTIONS] TARGET...", "TARGET", run_prompts)


def run_prompts(args: argparse.Namespace, target: list[str]) -> None:
    print_listing(args, target, _fetch_prompts(args, target), _print_prompts)


def _print_prompts(listing: dict[str, JSON], console: "Console") -> None:
    prompts = listing["prompts"]
    if prompts:
        output.print_table("", ["", ""], [], map(_prompt_row, prompts), console)
    console.print(f"{len(prompts)} prompt{'s' * (len(prompts) != 1)}.")


def _prompt_row(prompt: dict[str, JSON]) -> list[str]:
    arguments = prompt.get("arguments")
    names = [
        f"{argument.get('name')}{'' if argument.get('required') is True else '?'}"
        for argument in (arguments if isinstance(arguments, list) else ())
        if isinstance(argument, dict)
    ]
    return [f"{prompt.get('name')}({', '.join(names)})", str(prompt.get("description") or prompt.get("title") or "")]


async def _fetch_prompts(args: argparse.Namespace, target: list[str]) -> dict[str, JSON]:
    async with targets.make_client(args, target, timeout=targets.LIST_SECONDS) as client:
        return {"server": server_summary(client), "prompts": await client.list_prompts()}


def set_up_prompt(verb: argparse.ArgumentParser) -> None:
    usage = "delta-mcp prompt [OPTIONS] TARGET... NAME [JSON | ARGUMENT=TEXT...]"
    targets.set_up_verb(verb, usage, "TARGET NAME ...", run_prompt)
    add_answer_option(verb)


def run_prompt(args: argparse.Namespace, words: list[str]) -> None:
    command = arguments.parse_call(words, "prompt TARGET... NAME [JSON | ARGUMENT=TEXT...]", "prompt", "prompts")
    with (
        ProgressBar(f"Waiting for {targets.name_target(command.target)}") as progress_bar,
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
        _check(command, filled, await client.list_prompts())
        sent = {name: text for name, text in filled.items() if text is not None}
        params: dict[str, JSON] = {"name": command.name, "arguments": sent}
        return await elicitation.send(lambda: client.request("prompts/get", params))


def _as_text(value: JSON) -> str | None:
    """MCP has only texts as arguments of prompts; null is no argument."""
    return value if value is None or isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _check(command: CallCommand, filled: Mapping[str, str | None], prompts: Sequence[Any]) -> None:
    """
    Raises:
        ConfigurationError: there is no such prompt, or these are not its arguments.
    """
    name = command.name
    by_name = {prompt.get("name"): prompt.get("arguments") for prompt in prompts if isinstance(prompt, dict)}
    if name not in by_name:
        names = [known for known in by_name if isinstance(known, str)]
        otherwise = f"{targets.list_command('prompts', command.target)} lists those there are"
        raise ConfigurationError(f"There is no prompt {name!r}{suggest(name, names, otherwise=otherwise)}")
    listed = by_name[name]
    declared = {
        argument.get("name"): argument
        for argument in (listed if isinstance(listed, list) else ())
        if isinstance(argument, dict)
    }
    for argument in filled:
        if argument not in declared:
            known = [known for known in declared if isinstance(known, str)]
            otherwise = f"it takes {', '.join(known) or 'none'}"
            raise ConfigurationError(f"{name} has no argument {argument!r}{suggest(argument, known, '', otherwise)}")
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
