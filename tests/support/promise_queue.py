"""Servers that give promises, with a queue in this process whose workers can be made to wait or to die."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from deltamcp import DeltaServer
from deltamcp.context import Channel, ProgressReport
from deltamcp.promises.calls import PromiseCalls
from deltamcp.values import (
    LOCAL,
    PROMISE_ALLOWED,
    Ask,
    Caller,
    CallTool,
    Era,
    Outcome,
    Principal,
    Promise,
    PromiseWish,
    RedeemPromise,
    ResultShape,
    Terms,
)


class TaskQueue:
    """Runs each key in a task of its own, once the queue is open."""

    def __init__(self, server: DeltaServer) -> None:
        self.server = server
        self.keys: list[str] = []
        self.is_open = True
        self.tasks: set[asyncio.Task[None]] = set()
        self.lost_seconds = 30.0

    async def enqueue(self, key: str) -> None:
        if key not in self.keys:
            self.keys.append(key)
            if self.is_open:
                self.work(key)

    def work(self, key: str) -> None:
        task = asyncio.get_running_loop().create_task(promise_calls(self.server).run(key))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    def open(self) -> None:
        """Runs what was queued while it was closed."""
        self.is_open = True
        for key in self.keys:
            self.work(key)

    async def kill(self) -> None:
        """Stops the workers, as a process that ends does."""
        tasks = list(self.tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def queue_for(server: DeltaServer) -> TaskQueue:
    """Gives a server a queue."""
    queue = TaskQueue(server)
    server.engine._promise_queue = queue
    return queue


def promise_calls(server: DeltaServer) -> PromiseCalls:
    found = server.engine.promise_calls
    assert found is not None
    return found


@dataclass
class RecordingChannel(Channel):
    """The way back to a client, which answers questions as it is told."""

    answers: Mapping[str, Any] = field(default_factory=dict)
    """The client's results by the methods of questions."""
    reports: list[ProgressReport] = field(default_factory=list)
    requests: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    fairness_key: str = "x"
    headers: Mapping[bytes, bytes] = field(default_factory=dict)
    takes_every_progress: bool = True

    async def report(self, progress: ProgressReport) -> None:
        self.reports.append(progress)

    async def request(self, method: str, params: dict[str, Any]) -> Any:
        self.requests.append((method, params))
        return self.answers[method]


@dataclass
class PromiseClient:
    """A client of a server, without a transport."""

    server: DeltaServer
    principal: Principal = LOCAL
    era: Era = Era.MODERN
    result_shape: ResultShape = ResultShape.MCP_LITE
    meta: dict[str, Any] = field(default_factory=dict)
    channel: RecordingChannel = field(default_factory=RecordingChannel)

    @property
    def caller(self) -> Caller:
        return self.server.engine.identify(self.principal, address="192.0.2.1")

    async def ask(self, ask: Ask) -> Any:
        version = "2026-07-28" if self.era is Era.MODERN else "2025-11-25"
        capabilities: dict[str, Any] = {"elicitation": {"form": {}}, "roots": {}}
        terms = Terms(
            self.era, version, capabilities, {}, self.meta, caller=self.caller, result_shape=self.result_shape
        )
        engine: Any = self.server.engine
        outcome: Outcome = await engine.perform(ask, terms, self.channel, 1)
        return outcome

    async def call(self, tool: str, wish: PromiseWish | None = PROMISE_ALLOWED, **arguments: Any) -> Any:
        return await self.ask(CallTool(tool, arguments, promise=wish))

    async def start(self, tool: str, **arguments: Any) -> Promise:
        """Calls a tool and returns the promise, however fast the tool is."""
        promise = await self.call(tool, PromiseWish(at_once=True), **arguments)
        assert isinstance(promise, Promise), promise
        return promise

    async def redeem(self, promise: Promise, seconds: float | None = 30.0) -> Any:
        return await self.ask(RedeemPromise(promise.token, seconds))


def text_of(outcome: Any) -> str:
    text: str = outcome.value.content[0].text
    return text


def code_of(outcome: Any) -> str | None:
    """Returns the code of a tool's error; None if it is none."""
    error = outcome.value.error
    return None if error is None else error.code
