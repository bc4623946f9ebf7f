"""A server whose tools misbehave, one fault each.

    delta-mcp serve tests/support/misbehaving_server.py [--http 127.0.0.1:PORT]

`FAULTS_LIMITS` is a JSON object of `Limits`; `FAULTS_TRACE` names a file to which tools append what befalls them.
"""

import asyncio
import contextlib
import json
import math
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from deltamcp import Context, DeltaServer, Kind, Limits, Text, ToolError, ToolResult

SECRET = "hunter2-db-password"
SURROGATE = "\ud800"

server = DeltaServer("faults", "1.0", limits=Limits(**json.loads(os.environ.get("FAULTS_LIMITS", "{}"))))


def note(*words: object) -> None:
    """One line of the trace."""
    trace = os.environ.get("FAULTS_TRACE")
    if trace:
        with Path(trace).open("a") as file:
            file.write(" ".join(map(str, words)) + "\n")


# Well-behaved


@server.tool
async def add(a: int, b: int) -> int:
    """Adds two whole numbers."""
    note("add", a, b)
    return a + b


@server.tool
async def echo(value: Any) -> Any:
    """Gives back what it was given."""
    return {"value": value}


# Time


@server.tool
def plain_sleep(seconds: float, tag: str = "-") -> str:
    """Sleeps in a thread."""
    note("started", tag)
    time.sleep(seconds)
    note("finished", tag)
    return f"slept {tag}"


@server.tool
async def async_sleep(seconds: float, tag: str = "-") -> str:
    """Sleeps on the loop and traces how that ended."""
    note("started", tag)
    try:
        await asyncio.sleep(seconds)
    except asyncio.CancelledError:
        note("cancelled", tag)
        raise
    note("finished", tag)
    return f"slept {tag}"


def is_released(tag: str) -> bool:
    """Whether the test has put the file there that ends a call."""
    return Path(f"{os.environ['FAULTS_TRACE']}.{tag}").exists()


@server.tool
def plain_wait(tag: str) -> str:
    """Waits in a thread until the test releases it."""
    note("started", tag)
    while not is_released(tag):
        time.sleep(0.01)
    note("finished", tag)
    return f"waited {tag}"


@server.tool
async def async_wait(tag: str) -> str:
    """Waits on the loop until the test releases it."""
    note("started", tag)
    try:
        while not is_released(tag):  # noqa: ASYNC110 - another process releases it
            await asyncio.sleep(0.01)
    except asyncio.CancelledError:
        note("cancelled", tag)
        raise
    note("finished", tag)
    return f"waited {tag}"


@server.tool
async def block_loop_until_released(tag: str) -> str:
    """Holds the event loop until the test releases it."""
    while not is_released(tag):
        time.sleep(0.01)  # noqa: ASYNC251
    return "blocked"


@server.tool
async def advance_clock(seconds: float) -> str:
    """Moves the clock of this process forward."""
    now = time.monotonic
    time.monotonic = lambda: now() + seconds
    return "later"


@server.tool
async def never(tag: str = "-") -> str:
    """Does not return."""
    note("started", tag)
    try:
        await asyncio.Event().wait()
    finally:
        note("ended", tag)
    return "impossible"


@server.tool
async def stubborn(tag: str = "-") -> str:
    """Takes no notice of the first cancellation and answers after it."""
    note("started", tag)
    try:
        await asyncio.sleep(60)
    except asyncio.CancelledError:
        note("ignored", tag)
    return f"still here {tag}"


@server.tool
async def block_loop(seconds: float) -> str:
    """Holds the event loop."""
    note("started", "block")
    time.sleep(seconds)  # noqa: ASYNC251
    return "blocked"


@server.tool(timeout=0.2)
async def late(tag: str = "-") -> str:
    """Takes longer than it may."""
    try:
        await asyncio.sleep(60)
    except asyncio.CancelledError:
        note("cancelled", tag)
        raise
    return "never"


@server.tool(timeout=0.2)
def plain_late() -> str:
    """Takes longer than it may, in a thread."""
    time.sleep(1.0)
    return "too late"


@server.tool
async def speak(seconds: float, ctx: Context, tag: str = "-") -> str:
    """Reports progress, then sleeps: an event stream that has begun."""
    note("started", tag)
    await ctx.report_progress(1, 2, "halfway")
    try:
        await asyncio.sleep(seconds)
    except asyncio.CancelledError:
        note("cancelled", tag)
        raise
    note("finished", tag)
    return f"spoke {tag}"


@server.tool
async def chatty(count: int, ctx: Context, tag: str = "-", size: int = 0) -> str:
    """Reports progress all the time."""
    note("started", tag)
    try:
        for step in range(count):
            await ctx.report_progress(step, count, "x" * size)
            await asyncio.sleep(0)
    except asyncio.CancelledError:
        note("cancelled", tag)
        raise
    note("finished", tag)
    return f"said {tag}"


class Reply(BaseModel):
    ok: bool


@server.tool
async def ask(ctx: Context) -> str:
    """Asks the user."""
    answer = await ctx.elicit("Go on?", Reply, key="go")
    return f"user said {answer.action}"


@server.tool
async def announce() -> str:
    """Announces a change of the tool list."""
    server.list_changed(Kind.TOOLS)
    return "announced"


# Exceptions


class Unprintable(Exception):
    """Cannot even be turned into text."""

    def __str__(self) -> str:
        raise RuntimeError(f"no text, but a {SECRET}")

    __repr__ = __str__


class Alien(BaseException):
    """No `Exception`, and nothing anybody catches."""


def make_exception(kind: str) -> BaseException:
    made: dict[str, BaseException] = {
        "secret": RuntimeError(f"cannot connect with {SECRET}"),
        "chained": ValueError(f"{SECRET} is no number"),
        "group": ExceptionGroup(f"two of {SECRET}", [ValueError(SECRET), OSError(SECRET)]),
        "unprintable": Unprintable(),
        "exit": SystemExit(3),
        "interrupt": KeyboardInterrupt(),
        "alien": Alien(SECRET),
        "cancelled": asyncio.CancelledError(SECRET),
        "generator_exit": GeneratorExit(),
        "stop": StopIteration(SECRET),
        "stop_async": StopAsyncIteration(SECRET),
        "recursion": RecursionError(SECRET),
        "memory": MemoryError(),
        "timeout": TimeoutError(SECRET),
        "told": ToolError("the disk is full"),
        "told_surrogate": ToolError(f"odd {SURROGATE} text"),
        "told_nothing": ToolError(),
    }
    return made[kind]


@server.tool
async def raise_async(kind: str) -> str:
    """Raises on the loop."""
    raise make_exception(kind)


@server.tool
async def raise_async_later(kind: str) -> str:
    """Raises on the loop, after it was suspended."""
    await asyncio.sleep(0.01)
    raise make_exception(kind)


@server.tool
def raise_plain(kind: str) -> str:
    """Raises in a thread."""
    raise make_exception(kind)


@server.tool
def leave() -> str:
    """Ends the program, or so it thinks."""
    sys.exit(3)


# Results


def make_value(kind: str) -> Any:
    loop: list[Any] = [1]
    loop.append(loop)
    deep: Any = 1
    for _ in range(5_000):
        deep = [deep]
    values: dict[str, Any] = {
        "nan": math.nan,
        "infinity": {"rows": [{"ok": 1}, {"ratio": math.inf}]},
        "surrogate": f"odd {SURROGATE} text",
        "surrogate_inside": {"rows": [f"odd {SURROGATE} text"]},
        "surrogate_key": {SURROGATE: 1},
        "loop": loop,
        "deep": deep,
        "object": object(),
        "object_inside": {"rows": [object()]},
        "tuple_key": {(1, 2): 3},
        "function": make_value,
        "generator": (number for number in range(3)),
        "big": "x" * 5_000_000,
        "big_integer": 10**6_000,
        "wide_integer": 2**64 + 1,
        "wide_integer_inside": {"value": 2**64 + 1},
        "bytes": b"\xff\xfe",
        "content_surrogate": Text(f"odd {SURROGATE} text"),
        "result_surrogate": ToolResult([Text(f"odd {SURROGATE} text")]),
        "result_nan": ToolResult([Text("fine")], structured={"ratio": math.nan}),
        "nothing": None,
        "mix": [Text("fine"), object()],
    }
    return values[kind]


@server.tool
async def give(kind: str) -> Any:
    """Returns what can hardly be sent."""
    return make_value(kind)


@server.tool
def give_plain(kind: str) -> Any:
    """Returns what can hardly be sent, from a thread."""
    return make_value(kind)


class Measured(BaseModel):
    name: str
    ratio: float


@server.tool
async def give_model() -> Measured:
    """Returns a number that is none, in a model with a schema."""
    return Measured(name="x", ratio=math.nan)


@server.tool
async def give_wrong_type() -> Measured:
    """Returns something else than it promised."""
    return {"name": 1}  # type: ignore[return-value]


# Standard streams


@server.tool
def chatter() -> str:
    """Writes to standard output in every way there is."""
    print("printed")
    sys.stdout.write("written without an end")
    sys.stdout.flush()
    with contextlib.suppress(Exception):
        sys.stdout.buffer.write(b'{"jsonrpc":"2.0","id":1,"result":{}}\n')
        sys.stdout.buffer.flush()
    if sys.__stdout__ is not None:
        print("printed past any replacement", file=sys.__stdout__, flush=True)
    os.write(1, b"below python\n")
    subprocess.run(["/bin/echo", "from a child"], check=True)
    return "said"


@server.tool
def listens_to_stdin() -> str:
    """Reads standard input, where the protocol is."""
    return repr(sys.stdin.readline())


@server.tool
def child_reads_stdin() -> str:
    """Starts a program that reads standard input to its end."""
    done = subprocess.run(["/bin/cat"], check=True, capture_output=True)
    return repr(done.stdout)


# Resources, prompts, completions


@server.resource("fault://secret", name="secret")
async def secret_resource() -> str:
    """Raises."""
    raise RuntimeError(SECRET)


@server.resource("fault://exit", name="exit")
async def exit_resource() -> str:
    """Ends the program, or so it thinks."""
    raise SystemExit(3)


@server.resource("fault://surrogate", name="surrogate")
async def surrogate_resource() -> str:
    """Returns what is no Unicode text."""
    return SURROGATE


@server.prompt
async def secret_prompt() -> str:
    """Raises."""
    raise RuntimeError(SECRET)


@server.prompt
def exit_prompt() -> str:
    """Ends the program, or so it thinks."""
    raise SystemExit(3)


@server.prompt
async def surrogate_prompt() -> str:
    """Returns what is no Unicode text."""
    return SURROGATE


@server.prompt
async def greet(name: str) -> str:
    """Greets."""
    return f"Hello, {name}"


@server.completion(prompt="greet", argument="name")
async def complete_name(value: str) -> list[str]:
    raise RuntimeError(SECRET)


if __name__ == "__main__":
    server.run()
