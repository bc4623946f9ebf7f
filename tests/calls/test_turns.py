"""What is cheap once: searches, suggestions and their like take turns by account, one in an iteration of the loop."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from deltamcp import DeltaServer
from deltamcp.catalog.view import View
from deltamcp.values import Caller, CallTool, Complete, Describe, Era, GetPrompt, Kind, ListItems, ReadResource, Terms
from tests.support.engine_calls import SilentChannel
from tests.support.loop_iterations import LoopIterations

MANY = 40
MALLORY, ANN = Caller(None, account="address 10.0.0.6"), Caller(None, account="address 10.0.0.1")  # type: ignore[arg-type]


def make() -> Any:
    server = DeltaServer("office", disclosure="meta")
    for number in range(6):
        server.tool(lambda issue: issue, name=f"create_issue_{number}", description="Creates an issue.")

    @server.prompt
    def greet(name: str) -> str:
        return f"Greet {name}."

    @server.resource("place://{a}-{b}")
    def place(a: str, b: str) -> str:
        return a

    @server.completion(prompt="greet", argument="name")
    def complete(value: str) -> list[str]:
        return [value]

    return server


ASKS: dict[str, tuple[Any, type, str]] = {
    "a search": (CallTool("discover", {"query": "create an issue"}), View, "search"),
    "a search in a list": (ListItems(Kind.TOOLS, None, query="create an issue"), View, "search"),
    "a category": (CallTool("discover", {"category": "no such"}), View, "nearest_names"),
    "an unknown tool": (CallTool("create_isue", {}), View, "nearest_names"),
    "an unknown operation": (CallTool("execute", {"operation": "create_isue"}), View, "nearest_names"),
    "an unknown schema": (CallTool("get_schema", {"operation": "create_isue"}), View, "nearest_names"),
    "an unknown prompt": (GetPrompt("gret", {}), View, "nearest_names"),
    "a completion of an unknown prompt": (Complete("prompt", "gret", "name", "A", {}), View, "nearest_names"),
    "a description of an unknown tool": (Describe(("create_isue",), alone=True), View, "nearest_names"),
    "an unknown operation as a resource": (ReadResource("office://operations/create_isue"), View, "nearest_names"),
}


def record(monkeypatch: pytest.MonkeyPatch, place: Any, name: str, note: Callable[[], None]) -> None:
    made = getattr(place, name)

    def noted(*arguments: Any, **more: Any) -> Any:
        note()
        return made(*arguments, **more)

    monkeypatch.setattr(place, name, noted)


@pytest.mark.parametrize("ask", ASKS)
async def test_accounts_take_turns_in_iterations_of_their_own(ask, monkeypatch):
    server, (asked, place, name) = make(), ASKS[ask]
    iterations = LoopIterations()
    begun: list[tuple[str, int]] = []
    asker: dict[Any, str] = {}
    record(monkeypatch, place, name, lambda: begun.append((asker[asyncio.current_task()], iterations.count)))

    async def perform(caller: Caller) -> None:
        asker[asyncio.current_task()] = caller.account
        terms = Terms(Era.MODERN, "2026-07-28", {}, {}, {}, caller=caller)
        await server.engine.perform(asked, terms, SilentChannel(), 1)

    async with server.engine.lifespan.running():
        tasks = [asyncio.create_task(perform(MALLORY)) for _ in range(MANY)]
        await asyncio.sleep(0)
        await asyncio.gather(*tasks, asyncio.create_task(perform(ANN)))
    assert len(begun) == MANY + 1
    counts = [iteration for _, iteration in begun]
    assert max(map(counts.count, counts)) == 1, "one in an iteration"
    assert [account for account, _ in begun].index(ANN.account) < 5, "accounts take turns"


async def test_ten_unknown_names_are_compared_in_ten_turns(monkeypatch):
    server = make()
    iterations, begun = LoopIterations(), []
    record(monkeypatch, View, "nearest_names", lambda: begun.append(iterations.count))
    terms = Terms(Era.MODERN, "2026-07-28", {}, {}, {}, caller=ANN)
    names = [f"create_isue_{number}" for number in range(10)]
    async with server.engine.lifespan.running():
        await server.engine.perform(CallTool("get_schema", {"operation": names}), terms, SilentChannel(), 1)
    assert len(begun) == len(set(begun)) == 10


async def test_a_uri_that_fits_templates_in_many_ways_waits_for_its_turn(monkeypatch):
    server = make()
    iterations, begun = LoopIterations(), []
    found = View.resource_at

    def resource_at(view: View, uri: str, principal: Any, work: Any) -> Any:
        work.spend(2_000)  # as a long URI does
        begun.append(iterations.count)
        return found(view, uri, principal, work)

    monkeypatch.setattr(View, "resource_at", resource_at)

    async def perform() -> None:
        terms = Terms(Era.MODERN, "2026-07-28", {}, {}, {}, caller=MALLORY)
        await server.engine.perform(ReadResource("place://a-b"), terms, SilentChannel(), 1)

    async with server.engine.lifespan.running():
        await asyncio.gather(*(perform() for _ in range(10)))
    assert len(begun) == len(set(begun)) == 10
