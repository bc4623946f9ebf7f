"""Servers asked for their tools, each once and within its time, and what they cost; nothing secret is told of them."""

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import parse_qsl, urlsplit

import msgspec
from msgspec import Struct

from deltamcp import tokens
from deltamcp.bench.cost import METHOD, Cost, ServerListing, ToolCost, count_costs
from deltamcp.client.configs.files import ConfiguredServer
from deltamcp.sources.secrets import Secrets
from deltamcp.values import JSON

AT_ONCE = 4
_PROBLEM_CHARS = 300
_TELLING = ("key", "token", "secret", "password", "passwd", "auth", "credential", "header", "bearer")
"""Options with one of these in their names are followed by what must not be shown."""


class ServerAnswer(Struct, frozen=True):
    """What a server says of itself."""

    tools: list[dict[str, JSON]]
    instructions: str = ""


AskServer: TypeAlias = Callable[[dict[str, Any]], Awaitable[ServerAnswer]]


class AuditedServer(Struct, frozen=True):
    """One server, wherever it is written down, with nothing of it that may be secret."""

    name: str
    runs: str
    """The program, or the host of the address."""
    places: list[str]
    cost: Cost | None = None
    problem: str | None = None
    """Why it could not be asked, as a sentence."""


class SkippedEntry(Struct, frozen=True):
    """A server that was not asked, or a file that could not be read."""

    name: str
    place: str
    why: str


class AuditReport(Struct, frozen=True):
    """What `delta-mcp audit` reports, as a table, as JSON or as a page."""

    tokenizer: str
    together: Cost
    servers: list[AuditedServer]
    tools: list[ToolCost]
    skipped: list[SkippedEntry]
    refused: dict[str, str]
    method: str = METHOD


async def audit(
    found: Iterable[ConfiguredServer], ask: AskServer, seconds: float, on_answer: Callable[[], None] = lambda: None
) -> AuditReport:
    """Asks each server once, some at a time, each within so many seconds; `on_answer` is called after each.

    What goes wrong with one server is reported of that one.
    """
    found = list(found)
    unique = unique_servers(found)
    gate = asyncio.Semaphore(AT_ONCE)

    async def answer_of(entry: dict[str, Any]) -> ServerAnswer | str:
        async with gate:
            try:
                async with asyncio.timeout(seconds):
                    return await ask(entry)
            except TimeoutError:
                return f"It did not answer within {seconds:g} seconds."
            except Exception as error:  # whatever it is, the others are asked
                return _problem(error, entry)
            finally:
                on_answer()

    outcomes = await asyncio.gather(*(answer_of(same[0].entry) for same in unique.values()))
    answers = {name: one for name, one in zip(unique, outcomes, strict=True) if isinstance(one, ServerAnswer)}
    counted = count_costs([ServerListing(name, one.tools, one.instructions) for name, one in answers.items()])
    return AuditReport(
        tokenizer="o200k, exact" if tokens.is_exact() else "an estimate of o200k, 4 % off on average",
        together=counted.together,
        servers=[
            AuditedServer(
                name,
                _runs(same[0].entry),
                [_place(one) for one in same],
                counted.servers.get(name),
                None if isinstance(one, ServerAnswer) else one,
            )
            for (name, same), one in zip(unique.items(), outcomes, strict=True)
        ],
        tools=counted.tools,
        skipped=[SkippedEntry(one.name, _place(one), one.skip_reason) for one in found if one.skip_reason is not None],
        refused=counted.refused,
    )


def unique_servers(found: Iterable[ConfiguredServer]) -> dict[str, list[ConfiguredServer]]:
    """What is to be asked, by a name of its own: entries that are the same are one server in several places."""
    same: dict[bytes, list[ConfiguredServer]] = {}
    for one in found:
        if one.skip_reason is None:
            same.setdefault(msgspec.json.encode(one.entry, order="sorted"), []).append(one)
    made: dict[str, list[ConfiguredServer]] = {}
    for places in same.values():
        name, host = places[0].name, places[0].host
        names = (name, f"{name} ({host})", *(f"{name} ({host} {n})" for n in range(2, len(same) + 2)))
        made[next(name for name in names if name not in made)] = places
    return made


def uncounted_sentences(report: AuditReport) -> list[str]:
    """What is not in the figures, and why, in sentences."""
    failed = (one for one in report.servers if one.problem)
    return [
        *(f"{server.name} ({server.runs}) was not counted. {server.problem}" for server in failed),
        *(f"{one.name} ({one.place}) was passed over: {one.why}." if one.name else one.why for one in report.skipped),
        *(f"{name} is not in the figures behind the planned gateway. {why}" for name, why in report.refused.items()),
    ]


# What is reported of a server


def _place(one: ConfiguredServer) -> str:
    path, home = str(one.path), str(Path.home())
    return f"{one.host}: ~{path.removeprefix(home)}" if path.startswith(home + os.sep) else f"{one.host}: {path}"


def _runs(entry: dict[str, Any]) -> str:
    if "url" in entry:
        with contextlib.suppress(ValueError):
            return urlsplit(entry["url"]).hostname or "an address"
        return "an address"
    command: str = entry["command"]
    return command.replace("\\", "/").rpartition("/")[2]


def _problem(error: Exception, entry: dict[str, Any]) -> str:
    text = " ".join(Secrets(_secrets(entry)).redact(str(error) or f"{type(error).__name__}.").split())
    return text if len(text) <= _PROBLEM_CHARS else f"{text[: _PROBLEM_CHARS - 1]}…"


def _secrets(entry: dict[str, Any]) -> set[str]:
    """Everything of an entry but the program and the first word it is given, most often a package or a verb."""
    made = set(entry.get("env", {}).values())
    for value in entry.get("headers", {}).values():
        made |= {value, *value.split()}
    if "url" in entry:
        with contextlib.suppress(ValueError):
            parts = urlsplit(entry["url"])
            made |= {parts.netloc.rpartition("@")[0], parts.username or "", parts.password or "", parts.query}
            made |= {parts.path, *parts.path.split("/"), *(value for _, value in parse_qsl(parts.query))}
    is_told, is_first = False, True
    for word in entry.get("args", ()):
        option, _, value = word.partition("=")
        made.add(value)
        if word.startswith("-"):
            is_told = any(part in option.casefold() for part in _TELLING)
            continue
        if is_told or not is_first:
            made |= {word, *word.split()}
        is_told, is_first = False, is_first and is_told
    return made
