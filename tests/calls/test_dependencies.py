"""Dependencies: values made for a call, hidden from the client, each once, and closed when the call has ended."""

import asyncio
import contextlib
import functools
import itertools
import json
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Annotated, Any

import pytest

from deltamcp import ConfigurationError, Context, DeltaServer, Depends, ToolError, connect
from deltamcp.limits import Limits
from tests.support.conditions import HANG_SECONDS, wait_until
from tests.support.era_client import ERAS, era_client

MAIN = threading.main_thread()


class Recorder:
    """The dependencies of a test, and what they did in order."""

    def __init__(self) -> None:
        self.events: list[str] = []

    def plain(self) -> str:
        assert threading.current_thread() is not MAIN
        return "plain"

    async def later(self) -> str:
        assert threading.current_thread() is MAIN
        return "later"

    def generated(self) -> Iterator[str]:
        with self._opened("generated"):
            assert threading.current_thread() is not MAIN
            yield "generated"
            assert threading.current_thread() is not MAIN

    async def generated_later(self) -> AsyncIterator[str]:
        with self._opened("generated later"):
            yield "generated later"

    @contextlib.contextmanager
    def managed(self) -> Iterator[str]:
        with self._opened("managed"):
            yield "managed"

    @contextlib.asynccontextmanager
    async def managed_later(self) -> AsyncIterator[str]:
        with self._opened("managed later"):
            yield "managed later"

    @contextlib.contextmanager
    def _opened(self, name: str) -> Iterator[None]:
        self.events.append(f"+{name}")
        try:
            yield
        except BaseException as error:
            self.events.append(f"!{type(error).__name__}")
            raise
        finally:
            self.events.append(f"-{name}")


FORMS = ["plain", "later", "generated", "generated_later", "managed", "managed_later"]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("is_async", [True, False])
async def test_a_function_gets_the_value_and_the_client_does_not_see_it(form, is_async):
    recorder = Recorder()
    server, word = DeltaServer("x"), form.replace("_", " ")
    provider = getattr(recorder, form)
    during: list[list[str]] = []

    def plain(query: str, by_annotation: Annotated[str, Depends(provider)], by_default: str = Depends(provider)) -> str:
        during.append(list(recorder.events))
        assert by_annotation == by_default == word
        return query + by_default

    async def later(
        query: str, by_annotation: Annotated[str, Depends(provider)], by_default: str = Depends(provider)
    ) -> str:
        return plain(query, by_annotation, by_default)

    server.tool(later if is_async else plain, name="find")
    assert list(server.engine.catalog.operations["find"].tool["inputSchema"]["properties"]) == ["query"]
    async with connect(server) as client:
        assert await client.call("find", query="a ") == f"a {word}"
    if form not in ("plain", "later"):
        assert during == [[f"+{word}"]]
        assert recorder.events == [f"+{word}", f"-{word}"]


def decorated(function: Any) -> Any:
    @functools.wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:
        return function(*arguments, **named)

    return call


class Callables:
    """Objects whose call is one of the forms."""

    def __init__(self, recorder: Recorder, form: str) -> None:
        self.form = getattr(recorder, form)


class Generated(Callables):
    def __call__(self) -> Iterator[str]:
        yield from self.form()


class GeneratedLater(Callables):
    async def __call__(self) -> AsyncIterator[str]:
        async with contextlib.asynccontextmanager(self.form)() as value:
            yield value


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("disguise", [decorated, functools.partial, lambda function: lambda: function()])
async def test_what_a_function_returns_decides_however_it_is_wrapped(form, disguise):
    recorder = Recorder()
    await check_value_and_end(disguise(getattr(recorder, form)), form.replace("_", " "), recorder)


@pytest.mark.parametrize(("kind", "form"), [(Generated, "generated"), (GeneratedLater, "generated_later")])
async def test_what_the_call_of_an_object_returns_decides(kind, form):
    recorder = Recorder()
    await check_value_and_end(kind(recorder, form), form.replace("_", " "), recorder)


async def check_value_and_end(provider: Any, word: str, recorder: Recorder) -> None:
    server = DeltaServer("x")

    @server.tool
    async def find(value: Annotated[str, Depends(provider)]) -> str:
        assert len(recorder.events) == (0 if word in ("plain", "later") else 1)
        return value

    async with connect(server) as client:
        assert await client.call("find") == word
    assert recorder.events == ([] if word in ("plain", "later") else [f"+{word}", f"-{word}"])


async def test_a_value_that_is_a_context_manager_is_not_entered():
    server = DeltaServer("x")

    @server.tool
    def find(lock: Annotated[Any, Depends(lambda: threading.Lock())]) -> bool:
        return bool(lock.locked())

    async with connect(server) as client:
        assert await client.call("find") is False


class Pool:
    """Gives a new number each time."""

    __hash__ = None  # type: ignore[assignment]

    def __init__(self) -> None:
        self.numbers = itertools.count(1)

    def get(self) -> int:
        return next(self.numbers)

    def __call__(self) -> int:
        return next(self.numbers)


@pytest.mark.parametrize("find_provider", [lambda pool: pool.get, lambda pool: pool])
async def test_a_method_and_an_object_without_a_hash_run_once_in_a_call(find_provider):
    pool = Pool()

    def other(number: Annotated[int, Depends(find_provider(pool))]) -> int:
        return number

    server = DeltaServer("x")

    @server.tool
    def find(
        a: Annotated[int, Depends(find_provider(pool))],
        b: Annotated[int, Depends(find_provider(pool))],
        c: Annotated[int, Depends(other)],
    ) -> list[int]:
        return [a, b, c]

    async with connect(server) as client:
        assert await client.call("find") == [1, 1, 1]
        assert await client.call("find") == [2, 2, 2]


async def test_a_client_cannot_supply_the_value():
    server = DeltaServer("x")

    @server.tool
    async def find(query: str, db: str = Depends(lambda: "ours")) -> str:
        return db

    @server.tool(input_schema={"type": "object"})
    async def seek(arguments: dict[str, Any], db: str = Depends(lambda: "ours")) -> str:
        return db

    async with era_client(server) as client:
        assert "no such argument" in await client.refusal_of("find", query="a", db="theirs")
        assert (await client.result_of("seek", db="theirs"))["content"][0]["text"] == "ours"


async def test_a_function_of_an_operations_file_gets_dependencies_and_context(tmp_path):
    file = tmp_path / "operations.json"
    file.write_text(json.dumps({"operations": {"a": {"find": {"name": "find", "inputSchema": {"type": "object"}}}}}))
    server = DeltaServer("x")

    def find(ctx: Context, db: str = Depends(lambda: "ours"), **arguments: Any) -> str:
        return f"{db} {arguments} {ctx.request_id is not None}"

    server.operations(file, functions={"find": find})
    async with era_client(server) as client:
        result = await client.result_of("find", db="theirs", ctx="theirs", query="a")
        assert result["content"][0]["text"] == "ours {'query': 'a'} True"


async def test_resources_prompts_and_completions_get_dependencies():
    server = DeltaServer("x")
    Books = Annotated[list[str], Depends(lambda: ["Emma"])]

    @server.resource("book://{number}")
    def book(number: int, books: Books) -> str:
        return books[number]

    @server.prompt
    async def review(books: Books, style: str = "short") -> str:
        return f"{style}: {books[0]}"

    @server.completion(prompt="review", argument="style")
    def styles(value: str, books: Books) -> list[str]:
        return [value + books[0]]

    async with connect(server) as client:
        assert (await client.read_resource("book://0"))[0]["text"] == "Emma"
        assert (await client.get_prompt("review"))["messages"][0]["content"]["text"] == "short: Emma"
        assert await client.complete({"type": "ref/prompt", "name": "review"}, "style", "s") == ["sEmma"]


async def test_dependencies_have_dependencies_and_each_runs_once_in_a_call():
    calls: list[str] = []

    @contextlib.asynccontextmanager
    async def lifespan(server: DeltaServer) -> AsyncIterator[str]:
        yield "pool"

    server = DeltaServer("x", lifespan=lifespan)

    def connection(ctx: Context) -> Iterator[str]:
        calls.append("open")
        yield f"{ctx.lifespan} connection"
        calls.append("close")

    async def users(connection: Annotated[str, Depends(connection)]) -> AsyncIterator[str]:
        calls.append("users")
        yield f"users by {connection}"
        calls.append("users end")

    @server.tool
    def find(a: Annotated[str, Depends(users)], b: Annotated[str, Depends(connection)]) -> list[str]:
        return [a, b]

    async with connect(server) as client:
        assert await client.call("find") == ["users by pool connection", "pool connection"]
        assert calls == ["open", "users", "users end", "close"]
        await client.call("find")
        assert calls.count("open") == 2


@pytest.mark.parametrize("form", FORMS[2:])
async def test_an_exception_of_the_function_reaches_the_dependency_and_the_caller(form):
    recorder = Recorder()
    server = DeltaServer("x")

    @server.tool
    def find(db: Annotated[str, Depends(getattr(recorder, form))]) -> str:
        raise ToolError("No such book.")

    async with era_client(server) as client:
        assert await client.refusal_of("find") == "No such book."
    assert recorder.events == [f"+{form.replace('_', ' ')}", "!ToolError", f"-{form.replace('_', ' ')}"]


def swallow(outer: str) -> Iterator[str]:
    with contextlib.suppress(Exception):
        yield outer


async def swallow_later(outer: str) -> AsyncIterator[str]:
    with contextlib.suppress(Exception):
        yield outer


@pytest.mark.parametrize("swallow", [swallow, swallow_later])
async def test_a_dependency_cannot_swallow_an_exception(swallow):
    recorder = Recorder()
    swallow = functools.partial(swallow, outer=Depends(recorder.generated))
    server = DeltaServer("x")

    @server.tool
    def find(db: Annotated[str, Depends(swallow)]) -> str:
        raise ToolError("No such book.")

    async with era_client(server) as client:
        assert await client.refusal_of("find") == "No such book."
    assert recorder.events == ["+generated", "!ToolError", "-generated"]


def close_badly(outer: str) -> Iterator[str]:
    try:
        yield outer
    finally:
        raise RuntimeError("cannot close")


async def close_badly_later(outer: str) -> AsyncIterator[str]:
    try:
        yield outer
    finally:
        raise RuntimeError("cannot close")


@pytest.mark.parametrize("close_badly", [close_badly, close_badly_later])
async def test_the_error_of_the_function_comes_before_an_error_of_closing(close_badly, caplog):
    recorder = Recorder()
    server = DeltaServer("x")
    close_badly = functools.partial(close_badly, outer=Depends(recorder.generated))

    @server.tool
    def find(found: bool, db: Annotated[str, Depends(close_badly)]) -> str:
        if not found:
            raise ToolError("No such book.")
        return "found"

    async with era_client(server) as client:
        assert await client.refusal_of("find", found=False) == "No such book."
        assert "RuntimeError: cannot close" in caplog.text and "test_dependencies.py:" in caplog.text
        assert "find failed" in await client.refusal_of("find", found=True)
    assert [event for event in recorder.events if event[0] == "!"] == ["!ToolError", "!RuntimeError"]


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt, GeneratorExit, asyncio.CancelledError])
async def test_whatever_a_dependency_raises_the_server_goes_on(error):
    async def leave() -> str:
        raise error

    server = DeltaServer("x")

    @server.tool
    async def find(db: Annotated[str, Depends(leave)]) -> str:
        return db

    async with era_client(server) as client:
        assert "find failed" in await client.refusal_of("find")
        assert "find failed" in await client.refusal_of("find")


async def test_an_error_of_a_dependency_answers_like_the_functions_own(caplog):
    def closed() -> str:
        raise ToolError("The library is closed.")

    def broken() -> str:
        raise RuntimeError("secret")

    server = DeltaServer("x")

    @server.tool
    async def find(db: Annotated[str, Depends(closed)]) -> str:
        return db

    @server.tool
    async def seek(db: Annotated[str, Depends(broken)]) -> str:
        return db

    async with era_client(server) as client:
        assert await client.refusal_of("find") == "The library is closed."
        refusal = await client.refusal_of("seek")
    assert "secret" not in refusal
    assert "secret" in caplog.text


async def test_the_deadline_counts_the_dependencies_and_closes_them():
    recorder = Recorder()

    async def stuck(opened: Annotated[str, Depends(recorder.generated_later)]) -> None:
        await asyncio.Event().wait()

    server = DeltaServer("x")

    @server.tool(timeout=0.01)
    async def find(db: Annotated[None, Depends(stuck)]) -> str:
        return "found"

    async with era_client(server) as client:
        assert "took too long" in await client.refusal_of("find")
    assert recorder.events == ["+generated later", "!CancelledError", "-generated later"]


# Calls that are stopped


async def test_a_stopped_call_is_answered_at_once_and_its_dependencies_are_closed_after_its_thread():
    recorder = Recorder()
    gate = threading.Event()
    server = DeltaServer("x", limits=Limits(threads=1))

    @server.tool(timeout=1.0)
    def find(ctx: Context, db: Annotated[str, Depends(recorder.generated)]) -> str:
        gate.wait(HANG_SECONDS)
        recorder.events.append(f"cancelled: {ctx.cancelled}")
        return db

    async with connect(server) as client:
        # The second call does not even get a thread.
        for _ in range(2):
            assert "took too long" in (await client.call_tool("find")).text
        assert recorder.events == ["+generated"]
        gate.set()
        await wait_until(lambda: "-generated" in recorder.events)
    assert recorder.events == ["+generated", "cancelled: True", "!CancelledError", "-generated"]


async def test_a_stopped_call_is_answered_before_a_slow_dependency_is_closed():
    events: list[str] = []
    gate = asyncio.Event()

    async def slow() -> AsyncIterator[str]:
        try:
            yield "slow"
        finally:
            await asyncio.wait_for(gate.wait(), HANG_SECONDS)
            events.append("closed")

    server = DeltaServer("x")

    @server.tool(timeout=0.01)
    async def find(db: Annotated[str, Depends(slow)]) -> str:
        await asyncio.Event().wait()
        return db

    async with connect(server) as client:
        assert "took too long" in (await client.call_tool("find")).text
        assert events == []
        gate.set()
        await wait_until(lambda: events == ["closed"])


async def test_a_call_stopped_while_a_dependency_opens_closes_it():
    recorder = Recorder()
    gate = threading.Event()

    def opens_slowly() -> Iterator[str]:
        gate.wait(HANG_SECONDS)
        yield from recorder.generated()

    server = DeltaServer("x")

    @server.tool(timeout=0.01)
    async def find(db: Annotated[str, Depends(opens_slowly)]) -> str:
        return db

    async with connect(server) as client:
        assert "took too long" in (await client.call_tool("find")).text
        gate.set()
        await wait_until(lambda: "-generated" in recorder.events)
    assert recorder.events == ["+generated", "!CancelledError", "-generated"]


async def test_the_server_closes_the_dependencies_of_a_function_that_never_ends(monkeypatch):
    monkeypatch.setattr("deltamcp.runtime.lifespan._END_SECONDS", 0.01)
    recorder = Recorder()
    gate = threading.Event()
    server = DeltaServer("x")

    @server.tool(timeout=0.01)
    def find(db: Annotated[str, Depends(recorder.generated_later)]) -> str:
        gate.wait(HANG_SECONDS)
        return db

    async with connect(server) as client:
        assert "took too long" in (await client.call_tool("find")).text
        assert recorder.events == ["+generated later"]
    assert recorder.events == ["+generated later", "!CancelledError", "-generated later"]
    gate.set()


async def test_closing_a_dependency_needs_no_free_thread_and_ends_before_the_answer():
    recorder = Recorder()
    opened, held, gate, hold = asyncio.Event(), asyncio.Event(), asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()
    server = DeltaServer("x", limits=Limits(threads=1))

    @server.tool
    async def find(db: Annotated[str, Depends(recorder.generated)]) -> str:
        opened.set()
        await gate.wait()
        return db

    @server.tool
    def occupy() -> None:
        loop.call_soon_threadsafe(held.set)
        hold.wait(HANG_SECONDS)

    async with connect(server) as client:
        found = asyncio.create_task(client.call("find"))
        await opened.wait()
        occupied = asyncio.create_task(client.call_tool("occupy"))
        await held.wait()
        gate.set()
        assert await asyncio.wait_for(found, HANG_SECONDS) == "generated"
        assert recorder.events == ["+generated", "-generated"]
        hold.set()
        await occupied


async def test_no_more_dependencies_are_closed_at_once_than_there_are_threads():
    """Calls that were stopped do not count as calls in progress, and yet have dependencies to close."""
    closing, most = 0, 0
    hold, lock = threading.Event(), threading.Lock()
    server = DeltaServer("x", limits=Limits(threads=2))

    def slow() -> Iterator[str]:
        nonlocal closing, most
        try:
            yield "slow"
        finally:
            with lock:
                closing += 1
                most = max(most, closing)
            hold.wait(HANG_SECONDS)
            with lock:
                closing -= 1

    @server.tool(timeout=0.01)
    async def find(db: Annotated[str, Depends(slow)]) -> str:
        await asyncio.sleep(HANG_SECONDS)
        return db

    async with connect(server) as client:
        for _ in range(5):
            assert "took too long" in (await client.call_tool("find")).text
        await wait_until(lambda: closing == 2)
        hold.set()
        await wait_until(lambda: closing == 0)
    assert most == 2


async def test_calls_with_open_dependencies_are_bounded():
    opened = 0
    server = DeltaServer("x", limits=Limits(threads=4, calls=2))
    hold = threading.Event()

    def slow() -> Iterator[str]:
        nonlocal opened
        opened += 1
        try:
            yield "slow"
        finally:
            hold.wait(HANG_SECONDS)

    @server.tool(timeout=0.01)
    async def find(db: Annotated[str, Depends(slow)]) -> str:
        await asyncio.sleep(HANG_SECONDS)
        return db

    async with connect(server) as client:
        for _ in range(5):
            assert "took too long" in (await client.call_tool("find")).text
        assert opened == 2
        hold.set()


@pytest.mark.parametrize("era", ERAS)
async def test_a_dependency_may_ask_the_user(era):
    async def name(ctx: Context) -> str:
        answer = await ctx.elicit("Who?", {"type": "object", "properties": {"name": {"type": "string"}}})
        return str(answer.content["name"])

    server = DeltaServer("x")

    @server.tool
    async def greet(name: Annotated[str, Depends(name)]) -> str:
        return f"Hello {name}"

    async with connect(server, speak=era, on_elicitation=lambda question: {"name": "Ada"}) as client:
        assert await client.call("greet") == "Hello Ada"


def test_a_dependency_that_cannot_be_used_is_named():
    def needy(query: str) -> str:
        return query

    with pytest.raises(ConfigurationError, match=r"^test_dependencies\.py:\d+ find: the dependency "):

        @DeltaServer("x").tool
        def find(db: Annotated[str, Depends(needy)]) -> str:
            return db

    with pytest.raises(ConfigurationError, match=r"Depends\(get_db\)"):
        Depends(needy("x"))  # type: ignore[arg-type]
