"""`deltamcp.middleware`: what is cached answers its own caller alone, and only what may be repeated is repeated."""

import logging
from collections.abc import Callable
from typing import Any

import pytest

from deltamcp import CallFailedError, Context, DeltaServer, FunctionCall, ToolError, ToolFailure, ToolResult, connect
from deltamcp.middleware import cache_calls, log_calls, retry_calls, time_calls
from deltamcp.values import Text
from tests.support.era_client import ERAS, era_client, first_text
from tests.support.scope_client import serve_scopes

READ_ONLY = {"readOnlyHint": True}


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def counting_server(*middleware: Any) -> DeltaServer:
    """A server whose tools say how often they ran."""
    server = DeltaServer("counting", middleware=middleware)
    runs = {"look": 0, "change": 0, "who": 0, "cart": 0, "ask": 0, "fail": 0}

    def count(name: str) -> int:
        runs[name] += 1
        return runs[name]

    @server.tool(annotations=READ_ONLY)
    def look(word: str = "") -> str:
        return f"{word}{count('look')}"

    @server.tool
    def change(word: str = "") -> int:
        return count("change")

    @server.tool(annotations=READ_ONLY)
    async def who(ctx: Context) -> str:
        return f"{ctx.principal.id} {count('who')}"

    @server.tool(annotations=READ_ONLY)
    async def cart(ctx: Context) -> str:
        return f"{await ctx.state.get('cart')} {count('cart')}"

    @server.tool
    async def put(item: str, ctx: Context) -> None:
        await ctx.state.set("cart", item)

    @server.tool(annotations=READ_ONLY)
    async def ask(ctx: Context) -> str:
        answer = await ctx.elicit("Which?", str)
        return f"{answer.content} {count('ask')}"

    @server.tool(annotations=READ_ONLY)
    def fail() -> ToolResult:
        return ToolResult([Text(str(count("fail")))], is_error=True)

    return server


# Caching


async def test_a_read_only_call_is_answered_for_its_time():
    clock = Clock()
    async with connect(counting_server(cache_calls(60, clock=clock))) as client:
        assert [await client.call("look"), await client.call("look")] == ["1", "1"]
        assert await client.call("look", word="a") == "a2"
        clock.now = 59
        assert await client.call("look") == "1"
        clock.now = 60
        assert await client.call("look") == "3"
        assert [await client.call("change"), await client.call("change")] == [1, 2]


async def test_errors_are_not_kept():
    async with connect(counting_server(cache_calls(60))) as client:
        assert [(await client.call_tool("fail")).text for _ in range(2)] == ["1", "2"]


async def test_the_values_not_used_for_longest_go_first():
    async with connect(counting_server(cache_calls(60, entries=2))) as client:
        for word in "aba":
            await client.call("look", word=word)
        assert await client.call("look", word="c") == "c3"
        assert await client.call("look", word="a") == "a1"
        assert await client.call("look", word="b") == "b4"


@pytest.mark.parametrize("era", ERAS)
async def test_a_principal_and_its_scopes_have_values_of_their_own(era):
    async with serve_scopes(era, counting_server(cache_calls(60)), "read") as client:

        async def who(user: str, scope: str) -> str:
            client.use_scopes(scope, sub=user)
            client._client.headers.pop("mcp-session-id", None)
            await client.begin()
            text: str = (await client.call("who"))[2]["result"]["content"][0]["text"]
            return text

        assert await who("ada", "read") == "ada 1"
        assert await who("bob", "read") == "bob 2"
        assert await who("ada", "read write") == "ada 3"
        if era == "modern":  # sessions are conversations
            assert await who("ada", "read") == "ada 1"


async def test_a_conversation_has_values_of_its_own():
    server = counting_server(cache_calls(60))
    async with connect(server) as one, connect(server) as other:
        await one.call("put", item="milk")
        await other.call("put", item="tea")
        assert await one.call("cart") == "milk 1"
        assert await other.call("cart") == "tea 2"
        assert await one.call("cart") == "milk 1"


@pytest.mark.parametrize("speak", ERAS)
async def test_what_a_user_answered_is_not_kept(speak):
    answers = iter(["a", "b"])
    server = counting_server(cache_calls(60))
    async with connect(server, on_elicitation=lambda question: {"value": next(answers)}, speak=speak) as client:
        assert await client.call("ask") == "a 1"
        assert await client.call("ask") == "b 2"


async def test_one_cache_for_two_servers_does_not_mix_them_up():
    cache = cache_calls(60)
    one, other = DeltaServer("one", middleware=[cache]), DeltaServer("other", middleware=[cache])
    one.tool(lambda: "one", name="name", annotations=READ_ONLY)
    other.tool(lambda: "other", name="name", annotations=READ_ONLY)
    both = DeltaServer("both")
    both.mount(one, "one")
    both.mount(other, "other")
    async with connect(both) as client:
        assert [await client.call("one_name"), await client.call("other_name")] == ["one", "other"]
        one.remove_tool("name")
        one.tool(lambda: "new", name="name", annotations=READ_ONLY)
        assert await client.call("one_name") == "new"


async def test_a_kept_value_does_not_replace_consent():
    server = DeltaServer("vault", middleware=[cache_calls(60)])
    asked = []

    @server.tool(annotations=READ_ONLY, policy="confirm")
    def secret() -> str:
        return "42"

    def confirm(question: Any) -> dict[str, bool]:
        asked.append(question)
        return {}

    async with connect(server, on_elicitation=confirm) as client:
        assert [await client.call("secret"), await client.call("secret")] == ["42", "42"]
    assert len(asked) == 2


# Retries


def failing_server(error: Callable[[], Exception], times: int, **options: Any) -> tuple[DeltaServer, list[int]]:
    server = DeltaServer("failing", middleware=[retry_calls(3, 0.0)])
    runs: list[int] = []

    @server.tool(**options)
    async def work() -> int:
        runs.append(1)
        if len(runs) <= times:
            raise error()
        return len(runs)

    return server, runs


@pytest.mark.parametrize("annotations", [READ_ONLY, {"idempotentHint": True}])
@pytest.mark.parametrize("error", [ConnectionError, TimeoutError, lambda: ToolFailure("BUSY", "Busy.", retryable=True)])
async def test_what_may_be_repeated_is_repeated(annotations, error):
    server, _ = failing_server(error, 2, annotations=annotations)
    async with connect(server) as client:
        assert await client.call("work") == 3


@pytest.mark.parametrize(
    ("error", "annotations"),
    [
        (ConnectionError, {}),
        (ConnectionError, {"readOnlyHint": True, "destructiveHint": True}),
        (lambda: ToolError("No."), READ_ONLY),
        (lambda: ToolFailure("NO", "No."), READ_ONLY),
        (KeyError, READ_ONLY),
    ],
)
async def test_what_may_not_is_run_once(error, annotations):
    server, runs = failing_server(error, 1, annotations=annotations)
    async with connect(server) as client:
        with pytest.raises(CallFailedError):
            await client.call("work")
    assert len(runs) == 1


async def test_there_are_no_more_attempts_than_told():
    server, runs = failing_server(ConnectionError, 9, annotations=READ_ONLY)
    async with connect(server) as client:
        with pytest.raises(CallFailedError):
            await client.call("work")
    assert len(runs) == 3


async def test_a_user_is_not_asked_again_by_a_repetition():
    server = DeltaServer("asking", middleware=[retry_calls(3, 0.0)])
    asked: list[int] = []

    @server.tool(annotations=READ_ONLY)
    async def work(ctx: Context) -> str:
        await ctx.elicit("Which?", str)
        raise ConnectionError

    def answer(question: Any) -> dict[str, str]:
        asked.append(1)
        return {"value": "a"}

    async with connect(server, on_elicitation=answer, speak="handshake") as client:
        with pytest.raises(CallFailedError):
            await client.call("work")
    assert len(asked) == 1


# Timing and logging


async def test_each_call_is_timed_whatever_came_of_it():
    told: list[tuple[str, bool]] = []

    def report(call: FunctionCall, seconds: float) -> None:
        told.append((call.name, seconds >= 0))

    server = DeltaServer("timed", middleware=[time_calls(report)])
    server.tool(lambda: "done", name="work")

    @server.tool
    def fail() -> None:
        raise ToolError("No.")

    @server.prompt
    def ask() -> str:
        return "?"

    async with connect(server) as client:
        await client.call("work")
        await client.call_tool("fail")
        await client.get_prompt("ask")
    assert told == [("work", True), ("fail", True), ("ask", True)]


async def test_the_log_says_what_came_of_a_call_and_no_secret(caplog):
    logger = logging.getLogger("tests.calls")
    server = DeltaServer("logged", middleware=[log_calls(logger)])

    @server.tool
    def log_in(password: str) -> str:
        if password == "wrong":
            raise ToolError(f"{password} is wrong")
        return "welcome"

    @server.tool
    async def ask(ctx: Context) -> str:
        await ctx.elicit("Sure?", bool)
        return "asked"

    with caplog.at_level(logging.INFO, "tests.calls"):
        async with era_client(server) as peer:
            assert first_text(await peer.result_of("log_in", password="hunter2")) == "welcome"
            await peer.refusal_of("log_in", password="wrong")
            await peer.ask("tools/call", name="ask", arguments={})
    lines = [one.getMessage().partition(" after ")[0] for one in caplog.records if one.name == logger.name]
    assert lines[:2] == ["log_in for local: done", "log_in for local: failed with ToolError"]
    assert "hunter2" not in caplog.text and "wrong" not in caplog.text


async def test_arguments_are_logged_where_that_is_wished(caplog):
    logger = logging.getLogger("tests.calls")
    server = DeltaServer("logged", middleware=[log_calls(logger, logging.DEBUG, arguments=True)])
    server.tool(lambda word: word, name="echo", input_schema={"type": "object"})
    with caplog.at_level(logging.DEBUG, "tests.calls"):
        async with connect(server) as client:
            await client.call("echo", word="a")
    assert caplog.records[0].getMessage().startswith("echo {'word': 'a'} for local: done after ")
