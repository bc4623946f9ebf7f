"""Runs tasks through one gateway: scripts as they are, and each with one mistake."""

import contextlib
import functools
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import anyio
from mcp import StdioServerParameters
from mcp.client.client import Client
from mcp.client.stdio import stdio_client
from mcp_types import Tool

from bench.agents.agent import MISTAKES, Agent, Mistake, PlainAgent
from bench.agents.setting import FIRST_OPERATIONS, REAL, Setting
from bench.agents.tasks import REPEATING_TASKS, TASKS, Task
from bench.agents.transcript import Exchange, Transcript
from deltamcp import tokens
from deltamcp.wire import jsonrpc
from tests.interop.install import program

START_SECONDS = 120.0
"""The longest that a server may take to be listed."""
UNREADABLE = (LookupError, TypeError, ValueError, AttributeError)
"""How a reply shows that is not what a script expects."""


@dataclass(frozen=True)
class Run:
    """One task, worked on once."""

    task: Task
    mistake: Mistake | None
    given: Any
    right: Any
    exchanges: list[Exchange]

    @property
    def is_right(self) -> bool:
        return bool(self.given == self.right)

    @property
    def tokens(self) -> int:
        return sum(each.written + each.read for each in self.exchanges)


@dataclass(frozen=True)
class Report:
    """What agents paid."""

    definitions: int
    """The tokens of the gateway's tools, as hosts put them before a model."""
    runs: list[Run]

    @property
    def plain(self) -> list[Run]:
        return [run for run in self.runs if run.mistake is None]

    @property
    def mistaken(self) -> list[Run]:
        return [run for run in self.runs if run.mistake is not None]

    def extra(self, run: Run) -> int:
        """What a mistake cost."""
        return run.tokens - next(plain.tokens for plain in self.plain if plain.task is run.task)


def missing_servers() -> list[str]:
    """The published servers that are not installed."""
    missing = []
    for name in REAL:
        try:
            found = Path(program(name)[-1]).is_file()
        except FileNotFoundError:
            found = False
        missing += [] if found else [name]
    return missing


async def run_tasks(corpus: Path, preview_above: int | None = None) -> Report:
    """Work on every task without a mistake, and with each kind of mistake that its script can make."""
    async with _place(corpus, preview_above) as place:
        return await _run_tasks(place)


async def run_repeating_tasks(corpus: Path) -> list[tuple[Run, Run]]:
    """Work on every task that makes a call again, by an agent that names what it has, and by one that does not."""
    async with _place(corpus) as place:
        return await _run_repeating_tasks(place)


async def run_all_tasks(corpus: Path) -> tuple[Report, list[tuple[Run, Run]]]:
    """Do what both of these do, behind one gateway."""
    async with _place(corpus) as place:
        return await _run_tasks(place), await _run_repeating_tasks(place)


class _Place(NamedTuple):
    """Where agents work: a gateway over the servers of a setting, and its tools as hosts put them before a model."""

    setting: Setting
    client: Client
    definitions: list[dict[str, Any]]


@contextlib.asynccontextmanager
async def _place(corpus: Path, preview_above: int | None = None) -> AsyncIterator[_Place]:
    with _setting(corpus) as setting:
        async with _gateway(setting, preview_above) as client:
            listed = (await client.list_tools()).tools
            definitions = [tool.model_dump(by_alias=True, exclude_none=True) for tool in listed]
            await _wait_until_listed(client)
            yield _Place(setting, client, definitions)


async def _run_tasks(place: _Place) -> Report:
    runs = [await _run(task, mistake, *place) for task in TASKS for mistake in (None, *MISTAKES)]
    definitions = sum(_definition_cost(tool) for tool in place.definitions)
    return Report(definitions, [run for run in runs if run is not None])


async def _run_repeating_tasks(place: _Place) -> list[tuple[Run, Run]]:
    pairs = []
    for task in REPEATING_TASKS:
        naming = await _run(task, None, *place)
        silent = await _run(task, None, *place, functools.partial(Agent, names_results=False))
        assert naming is not None and silent is not None, "neither makes a mistake"
        pairs.append((naming, silent))
    return pairs


async def run_plain_tasks(corpus: Path) -> Report:
    """Work on every task with the tools themselves: all of them listed, and their results whole."""
    with _setting(corpus) as setting:
        async with _gateway(setting, None) as client:  # afterwards the lists of all servers are known
            await _wait_until_listed(client)
        async with _gateway(setting, None, "--disclosure", "full", "--raw") as client:
            definitions = [tool.model_dump(by_alias=True, exclude_none=True) for tool in await _all_tools(client)]
            runs = [await _run(task, None, setting, client, definitions, PlainAgent) for task in TASKS]
    return Report(sum(_definition_cost(tool) for tool in definitions), [run for run in runs if run is not None])


async def _all_tools(client: Client) -> list[Tool]:
    """The tools of every server but the one that does not start, once they are listed."""
    with anyio.fail_after(START_SECONDS):
        while True:
            listed = (await client.list_tools()).tools
            names = " ".join(tool.name for tool in listed)
            if all(operation.replace(".", "_") in names for operation in FIRST_OPERATIONS):
                return listed
            await anyio.sleep(0.1)


def _definition_cost(tool: dict[str, Any]) -> int:
    """The tokens of a tool's name, description and input schema as compact JSON."""
    shown = {name: tool[name] for name in ("name", "description", "inputSchema")}
    return tokens.count(jsonrpc.encode(shown).decode())


async def _run(
    task: Task,
    mistake: Mistake | None,
    setting: Setting,
    client: Client,
    definitions: list[dict[str, Any]],
    kind: Callable[[Client, Transcript, Mistake | None], Agent] = Agent,
) -> Run | None:
    """Returns what came of a task; None if its script has no place for the mistake."""
    setting.reset()
    transcript = Transcript([task.question, task.known, jsonrpc.encode(definitions).decode()])
    agent = kind(client, transcript, mistake)
    try:
        given = await task.script(agent)
    except UNREADABLE as error:
        given = f"could not be read: {error!r}"
    if agent.made_mistake != (mistake is not None):
        return None
    return Run(task, mistake, given, task.answer(setting), transcript.exchanges)


@contextlib.contextmanager
def _setting(corpus: Path) -> Iterator[Setting]:
    with tempfile.TemporaryDirectory(prefix="agents-") as folder:
        setting = Setting(corpus.resolve(), Path(folder).resolve())
        setting.reset()
        yield setting


@contextlib.asynccontextmanager
async def _gateway(setting: Setting, preview_above: int | None, *options: str) -> AsyncIterator[Client]:
    words = ["gateway", *options, str(setting.write_configuration(preview_above))]
    command = str(Path(sys.executable).parent / "delta-mcp")
    parameters = StdioServerParameters(command=command, args=words, env=setting.environment)
    with (setting.folder / "gateway.log").open("w") as log:
        async with Client(stdio_client(parameters, log)) as client:
            yield client


async def _wait_until_listed(client: Client) -> None:
    """Wait until the gateway knows every server: an agent comes to one that has been used before."""
    with anyio.fail_after(START_SECONDS):
        for operation in FIRST_OPERATIONS:
            while (await client.call_tool("get_schema", {"operation": operation})).is_error:  # noqa: ASYNC110
                await anyio.sleep(0.1)
