"""`delta-mcp call`: one call of one tool, and as much of its result as is wanted."""

import argparse
import asyncio
import json
import re
import sys
from typing import Any, NamedTuple

from deltamcp.cli import output, targets
from deltamcp.cli.asking import ask_the_user
from deltamcp.cli.waiting import Waiting
from deltamcp.client.client import DeltaClient
from deltamcp.client.options import ClientOptions
from deltamcp.client.reply import Reply
from deltamcp.context import Elicited
from deltamcp.errors import ArgumentsError, ConfigurationError
from deltamcp.results.policy import ResultPolicy
from deltamcp.values import JSON

_PAIR = re.compile(r"([A-Za-z_][\w.\-]*)(:?=)(.*)", re.DOTALL)
_PAGE_SIZE = 50
"""Rows a page where only a page's number is given, as Delta-MCP has it."""


class Asked(NamedTuple):
    """What the words come to."""

    target: list[str]
    tool: str
    arguments: dict[str, JSON]
    texts: dict[str, str]
    """Arguments as they were typed, to be read by the tool's schema."""


def set_up(verb: argparse.ArgumentParser) -> None:
    verb.usage = "delta-mcp call [OPTIONS] TARGET... TOOL [JSON | NAME=VALUE...]"
    verb.description = "NAME=VALUE is read by the tool's schema, NAME:=VALUE as JSON; - reads JSON from standard input."
    targets.options_to(verb)
    verb.add_argument("--page", type=int, metavar="N", help="this page of the rows, from 1")
    verb.add_argument("--page-size", type=int, metavar="N", help=f"rows a page (default {_PAGE_SIZE})")
    verb.add_argument("--select", metavar="FIELDS", help="only these fields, as a,b.c; or a JMESPath expression")
    verb.add_argument("--max-tokens", type=int, metavar="N", help="as much as fits, and how to read on")
    verb.add_argument("--all", action="store_true", help="the whole value, however many pages it has")
    targets.words_to(verb, "TARGET TOOL ...")
    verb.set_defaults(run=lambda given: run(given, targets.words_of(given, verb)))


def run(given: argparse.Namespace, words: list[str]) -> None:
    if given.all and any(one is not None for one in (given.page, given.max_tokens, given.page_size)):
        raise ConfigurationError("--all is everything; leave out --page, --page-size and --max-tokens.")
    asked = read(words)
    with Waiting(f"Calling {asked.tool}") as waiting:
        shown, failed = asyncio.run(_called(given, asked, waiting))
    if given.json or not isinstance(shown, str):
        output.as_json(shown)
    else:
        print(output.printable(shown), file=sys.stderr if failed else sys.stdout)
    if failed:
        raise SystemExit(1)


def read(words: list[str]) -> Asked:
    """
    Raises:
        ConfigurationError: no tool is named, or its arguments are not JSON.
    """
    rest, arguments, texts = list(words), {}, dict[str, str]()
    if rest and (rest[-1][:1] == "{" or rest[-1] == "-"):
        text = rest.pop()
        arguments = arguments_of(sys.stdin.read() if text == "-" else text)
    else:
        while rest and (pair := _PAIR.fullmatch(rest[-1])):
            name, how, value = pair.groups()
            if how == ":=":
                arguments[name] = _json(value, name)
            else:
                texts[name] = value
            rest.pop()
    if len(rest) < 2:
        raise ConfigurationError("Usage: delta-mcp call TARGET... TOOL [JSON | NAME=VALUE...]; JSON begins with {.")
    return Asked(rest[:-1], rest[-1], arguments, texts)


def arguments_of(text: str) -> dict[str, JSON]:
    """
    Raises:
        ConfigurationError: it is no JSON object.
    """
    value = _json(text, "The arguments")
    if not isinstance(value, dict):
        raise ConfigurationError("The arguments must be a JSON object.")
    return value


def _json(text: str, what: str) -> JSON:
    try:
        return json.loads(text)
    except ValueError as error:
        raise ConfigurationError(
            f"{what}: this is not JSON ({error}); quote it for the shell, as '{{\"a\": 1}}'."
        ) from None


async def _called(given: argparse.Namespace, asked: Asked, waiting: Waiting) -> tuple[JSON, bool]:
    """What is to be shown, and whether the tool failed."""

    async def asked_back(question: dict[str, JSON]) -> Elicited:
        waiting.step_aside()
        return await ask_the_user(question)

    more: ClientOptions = {"on_elicitation": asked_back} if targets.is_watched() else {}
    async with targets.client(given, asked.target, **more) as client:
        typed = await _typed(client, asked.tool, asked.texts) if asked.texts else {}
        arguments = {**typed, **asked.arguments}
        reply = await client.call_tool(asked.tool, arguments, want=_want(given), progress=waiting.at)
        if given.page is not None and not reply.is_error:
            reply = await _turned(client, reply, given.page)
        if reply.is_error:
            return (reply.raw if given.json else reply.text or "The tool failed and did not say why."), True
        if given.all:
            return (reply.value if given.select else await client.whole(reply)), False
        return (reply.raw if given.json else _text(reply)), False


def _want(given: argparse.Namespace) -> ResultPolicy | None:
    fields: list[str] | str | None = given.select
    if fields is not None and re.fullmatch(r"[\w.\-]+(,[\w.\-]+)*", str(fields)):
        fields = str(fields).split(",")
    size = given.page_size if given.page_size is not None or given.page is None else _PAGE_SIZE
    if given.all:
        size = _UNBOUNDED
    if fields is None and size is None and given.max_tokens is None:
        return None
    # A page, or a selection, is wanted whole: nothing but --max-tokens says otherwise.
    most = given.max_tokens if given.max_tokens is not None else _UNBOUNDED
    return ResultPolicy(max_tokens=most, page_size=size, fields=fields, tables=False if given.json else None)


_UNBOUNDED = 1_000_000_000


async def _turned(client: DeltaClient, reply: Reply, page: int) -> Reply:
    if page < 1:
        raise ConfigurationError("--page counts from 1.")
    if page == 1:
        return reply
    if reply.handle is None:
        raise ConfigurationError("The result has only one page; leave --page out.")
    try:
        return await client.read_on(reply.handle, page=page)
    except ArgumentsError as error:
        raise ConfigurationError(f"--page {page}: {error}") from None


async def _typed(client: DeltaClient, tool: str, texts: dict[str, str]) -> dict[str, JSON]:
    """Texts as the tool's schema has them: 5 is a number where a number is wanted, and a text where a text is."""
    definition: Any = (await client.describe(tool))[0]
    schema = definition.get("inputSchema")
    properties = schema.get("properties") if isinstance(schema, dict) else None
    return {
        name: _as_told(text, properties.get(name) if isinstance(properties, dict) else None)
        for name, text in texts.items()
    }


def _as_told(text: str, schema: Any) -> JSON:
    kinds = _kinds(schema)
    if kinds == {"string"}:
        return text
    try:
        value = json.loads(text)
    except ValueError:
        return text
    if isinstance(value, str) or ("string" in kinds and not _is_of(value, kinds)):
        return text
    return value


def _kinds(schema: Any) -> set[str]:
    """The types a schema names, in its branches too."""
    if not isinstance(schema, dict):
        return set()
    named = schema.get("type")
    kinds = {named} if isinstance(named, str) else set(named) if isinstance(named, list) else set()
    for branch in (*schema.get("anyOf", ()), *schema.get("oneOf", ())):
        kinds |= _kinds(branch)
    if not kinds and all(isinstance(one, str) for one in schema.get("enum", (0,))):
        return {"string"}
    return kinds


def _is_of(value: JSON, kinds: set[str]) -> bool:
    names = {bool: {"boolean"}, int: {"integer", "number"}, float: {"number"}, list: {"array"}, dict: {"object"}}
    return bool(names.get(type(value), {"null"}) & kinds)


def _text(reply: Reply) -> str:
    """What a person reads: the texts, and a word on what is none."""
    if not reply.content and "structuredContent" in reply.raw:
        return json.dumps(reply.raw["structuredContent"], indent=2, ensure_ascii=False)
    return "\n".join(map(_block, reply.content))


def _block(block: Any) -> str:
    match block:
        case {"type": "text", "text": str(text)}:
            return text
        case {"type": "image" | "audio" as kind, "data": str(data)}:
            return f"[{kind}, {block.get('mimeType', 'unknown')}, {len(data) * 3 // 4:,} bytes; --json has it]"
        case {"type": "resource_link", "uri": str(uri)}:
            return f"[{block.get('title') or block.get('name') or 'resource'}: {uri}]"
        case {"type": "resource", "resource": {"text": str(text)}}:
            return text
        case _:
            return json.dumps(block, ensure_ascii=False)
