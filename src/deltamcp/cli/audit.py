"""`delta-mcp audit`: what the servers of this machine's hosts cost a model now, and would behind the gateway."""

import argparse
import asyncio
import contextlib
import functools
import json
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import parse_qsl, urlsplit

import msgspec
from msgspec import Struct

from deltamcp import tokens
from deltamcp.bench.cost import METHOD, Cost, Listing, ToolCost, costs
from deltamcp.client import configs
from deltamcp.client.configs import Found
from deltamcp.errors import ConfigurationError
from deltamcp.sources.secrets import Secrets
from deltamcp.values import JSON

AT_ONCE = 4
SECONDS = 30.0
LARGEST = 10
"""Tools in the table."""
_PROBLEM_CHARS = 300
_TELLING = ("key", "token", "secret", "password", "passwd", "auth", "credential", "header", "bearer")
"""Options with one of these in their names are followed by what must not be shown."""


class Looked(Struct, frozen=True):
    """What a server says of itself."""

    tools: list[dict[str, JSON]]
    instructions: str = ""


Look: TypeAlias = Callable[[dict[str, Any]], Awaitable[Looked]]


class Server(Struct, frozen=True):
    """One server, wherever it is written down, with nothing of it that may be secret."""

    name: str
    runs: str
    """The program, or the host of the address."""
    places: list[str]
    cost: Cost | None = None
    problem: str | None = None
    """Why it could not be asked, as a sentence."""


class Skipped(Struct, frozen=True):
    """A server that was not asked, or a file that could not be read."""

    name: str
    place: str
    why: str


class Report(Struct, frozen=True):
    """What is told, as a table, as JSON or as a page."""

    tokenizer: str
    together: Cost
    servers: list[Server]
    tools: list[ToolCost]
    skipped: list[Skipped]
    refused: dict[str, str]
    method: str = METHOD


def add_to(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    verb = verbs.add_parser("audit", help="what your servers cost a model now, and would behind the gateway")
    verb.add_argument(
        "config", nargs="?", type=Path, metavar="CONFIG", help="a file of mcpServers; every host's here unless given"
    )
    verb.add_argument("--only", action="append", metavar="NAME", help="a server to ask; repeatable")
    verb.add_argument(
        "--timeout", type=float, default=SECONDS, metavar="SECONDS", help=f"for each server (default {SECONDS:g})"
    )
    verb.add_argument("--json", action="store_true", help="one JSON object instead of a table")
    verb.add_argument("--html", type=Path, metavar="FILE", help="write a page with a chart as well")
    verb.set_defaults(run=run)


def run(given: argparse.Namespace) -> None:
    if given.timeout <= 0:
        raise ConfigurationError("--timeout takes seconds, more than none.")
    if given.html and not given.html.parent.is_dir():
        raise ConfigurationError(f"There is no folder {given.html.parent} to write {given.html.name} to.")
    found = _wanted(_found(given.config), given.only)
    report = asyncio.run(_watched(found, functools.partial(_look, seconds=given.timeout), given.timeout))
    if given.html:
        _write(report, given.html)
    if given.json:
        print(json.dumps(msgspec.to_builtins(report), indent=2, ensure_ascii=False))
    else:
        _show(report)
    if not any(server.cost for server in report.servers):
        raise SystemExit(1)


def _found(config: Path | None) -> list[Found]:
    if config is not None:
        return configs.read(config)
    return configs.found_here(Path.home(), Path.cwd(), sys.platform, os.environ)


def _wanted(found: list[Found], only: Sequence[str] | None) -> list[Found]:
    names = {one.name for one in found}
    for name in only or ():
        if name not in names:
            known = ", ".join(sorted(name for name in names if name)) or "none"
            raise ConfigurationError(f"No server is called {name!r}; there are {known}.")
    return [one for one in found if not only or one.name in only]


async def _look(entry: dict[str, Any], seconds: float) -> Looked:
    from deltamcp.client.connect import connect  # nobody else who starts the command line waits for it

    asked = connect(entry, progressive=False, listen=False, quiet=True, timeout=seconds, start_timeout=seconds)
    async with asked as client:
        return Looked(await client.describe(), client.server.instructions or "")


# Asking


async def _watched(found: list[Found], look: Look, seconds: float) -> Report:
    async with _bar(len(_once(found))) as told:
        return await audit(found, look, seconds, told)


async def audit(found: Iterable[Found], look: Look, seconds: float, told: Callable[[], None] = lambda: None) -> Report:
    """Asks each server once, some at a time, each within so many seconds; `told` is called after each.

    What goes wrong with one is told of that one.
    """
    found = list(found)
    once = _once(found)
    gate = asyncio.Semaphore(AT_ONCE)

    async def outcome(entry: dict[str, Any]) -> Looked | str:
        async with gate:
            try:
                async with asyncio.timeout(seconds):
                    return await look(entry)
            except TimeoutError:
                return f"It did not answer within {seconds:g} seconds."
            except Exception as error:  # whatever it is, the others are asked
                return _problem(error, entry)
            finally:
                told()

    outcomes = await asyncio.gather(*(outcome(same[0].entry) for same in once.values()))
    looked = {name: one for name, one in zip(once, outcomes, strict=True) if isinstance(one, Looked)}
    counted = costs([Listing(name, one.tools, one.instructions) for name, one in looked.items()])
    return Report(
        tokenizer="o200k, exact" if tokens.is_exact() else "an estimate of o200k, 4 % off on average",
        together=counted.together,
        servers=[
            Server(
                name,
                _runs(same[0].entry),
                [_place(one) for one in same],
                counted.servers.get(name),
                None if isinstance(one, Looked) else one,
            )
            for (name, same), one in zip(once.items(), outcomes, strict=True)
        ],
        tools=counted.tools,
        skipped=[Skipped(one.name, _place(one), one.skipped) for one in found if one.skipped is not None],
        refused=counted.refused,
    )


def _once(found: Iterable[Found]) -> dict[str, list[Found]]:
    """What is to be asked, by a name of its own: entries that are the same are one server in several places."""
    same: dict[bytes, list[Found]] = {}
    for one in found:
        if one.skipped is None:
            same.setdefault(msgspec.json.encode(one.entry, order="sorted"), []).append(one)
    made: dict[str, list[Found]] = {}
    for places in same.values():
        name, host = places[0].name, places[0].host
        names = (name, f"{name} ({host})", *(f"{name} ({host} {n})" for n in range(2, len(same) + 2)))
        made[next(name for name in names if name not in made)] = places
    return made


@contextlib.asynccontextmanager
async def _bar(total: int) -> AsyncIterator[Callable[[], None]]:
    """For somebody who waits at a terminal, after a second."""
    if not sys.stderr.isatty():
        yield lambda: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("Asking servers"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    progress = Progress(*columns, console=Console(stderr=True), transient=True)
    task = progress.add_task("", total=total)
    shown = asyncio.get_running_loop().call_later(1, progress.start)
    try:
        yield functools.partial(progress.advance, task)
    finally:
        shown.cancel()
        progress.stop()


# What is told of a server


def _place(one: Found) -> str:
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
    text = " ".join(Secrets(_secrets(entry)).left_out(str(error) or f"{type(error).__name__}.").split())
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


# Shown to people


def _show(report: Report) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    console = Console(width=None if sys.stdout.isatty() else 160, highlight=False, markup=False, emoji=False)
    style = box.SIMPLE_HEAD if sys.stdout.isatty() else None

    def table(title: str, texts: Sequence[str], figures: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
        made = Table(title=title, title_justify="left", box=style, title_style="bold")
        for name in texts:
            made.add_column(name, overflow="fold")
        for name in figures:
            made.add_column(name, justify="right", no_wrap=True)
        for row in rows:
            made.add_row(*map(printable, row))
        console.print(made)
        console.print()

    asked = [server for server in report.servers if server.cost]
    if asked:
        is_spread = len({tuple(server.places) for server in asked}) > 1
        rows = [[server.name, *["\n".join(server.places)] * is_spread, *_figures(server.cost)] for server in asked]
        rows += [["together", *[""] * is_spread, *_figures(report.together)]] * (len(asked) > 1)
        figures = ("tools", "now", "behind", "one tool", "instructions")
        title = f"Tokens before a conversation begins ({report.tokenizer})"
        table(title, ("server", *["in"] * is_spread), figures, rows)
        largest = [
            [tool.name, tool.server, f"{tool.now:,}", "" if tool.schema is None else f"{tool.schema:,}"]
            for tool in report.tools[:LARGEST]
        ]
        table("The largest tools", ("tool", "server"), ("now", "when used"), largest)
        console.print(_summary(report), soft_wrap=True)
    for sentence in left_out(report):
        console.print(printable(sentence), soft_wrap=True)
    if not report.servers and not report.skipped:
        console.print("No host here has servers; name a file of mcpServers: delta-mcp audit CONFIG")


def _figures(cost: Cost | None) -> list[str]:
    assert cost is not None, "shown of those that were asked"
    return [f"{figure:,}" for figure in (cost.tools, cost.now, cost.surface, cost.one_tool, cost.instructions)]


def _summary(report: Report) -> str:
    cost = report.together
    less = (
        f", {1 - cost.surface / cost.now:.1%} less" if cost.now > cost.surface else ": these tools are too few to gain"
    )
    return (
        f"Behind the gateway {cost.surface:,} tokens instead of {cost.now:,}{less}. A conversation that uses one tool "
        f"costs {cost.one_tool:,}: the meta-tools, one discover ({cost.overview:,}), one get_schema ({cost.schema:,})."
    )


def left_out(report: Report) -> list[str]:
    """What is not in the figures, and why, in sentences."""
    failed = (one for one in report.servers if one.problem)
    return [
        *(f"{server.name} ({server.runs}) was not counted. {server.problem}" for server in failed),
        *(f"{one.name} ({one.place}) was passed over: {one.why}." if one.name else one.why for one in report.skipped),
        *(f"{name} is not in the figures behind the gateway. {why}" for name, why in report.refused.items()),
    ]


def printable(text: str) -> str:
    """Names are other people's: nothing in them steers a terminal or turns the writing around."""
    return "".join(char if char.isprintable() or char == "\n" else "\N{REPLACEMENT CHARACTER}" for char in text)


def _write(report: Report, path: Path) -> None:
    from deltamcp.cli.audit_page import page

    try:
        path.write_text(page(report), encoding="utf-8")
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be written: {error.strerror}.") from None
    print(f"Written to {path}", file=sys.stderr)
