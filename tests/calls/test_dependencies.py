"""Dependencies: values made for a call, hidden from the client, each once, and closed when the call has ended."""

import asyncio
import contextlib
import json
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Annotated, Any

import pytest

from deltamcp import ConfigurationError, Context, DeltaServer, Depends, ToolError, connect
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
        assert (await client.read("book://0"))[0]["text"] == "Emma"
        assert (await client.prompt("review"))["messages"][0]["content"]["text"] == "short: Emma"
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


async def test_a_dependency_cannot_swallow_an_exception():
    def swallow() -> Iterator[None]:
        with contextlib.suppress(Exception):
            yield

    server = DeltaServer("x")

    @server.tool
    def find(db: Annotated[None, Depends(swallow)]) -> str:
        raise ToolError("No such book.")

    async with era_client(server) as client:
        assert await client.refusal_of("find") == "No such book."


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
