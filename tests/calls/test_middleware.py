"""Middleware runs once around each call, however it was made, and may change it, answer it or refuse it."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from deltamcp import (
    CallFailedError,
    CallNext,
    ConfigurationError,
    Context,
    DeltaServer,
    FunctionCall,
    Kind,
    ResultPolicy,
    ToolError,
    connect,
)
from tests.support.era_client import ERAS, compact_json, era_client, first_text, token_cost

SeenCalls = list[tuple[Kind, str, dict[str, Any]]]


def call_recorder(seen: SeenCalls) -> Any:
    async def record(call: FunctionCall, call_next: CallNext) -> Any:
        seen.append((call.kind, call.name, dict(call.arguments)))
        return await call_next(call)

    return record


def shop(*middleware: Any, **options: Any) -> DeltaServer:
    server = DeltaServer("shop", middleware=middleware, **options)

    @server.tool(category="orders", annotations={"readOnlyHint": True})
    async def rows(count: int = 3) -> list[int]:
        return list(range(count))

    @server.tool(category="orders")
    def double(count: int) -> int:
        return count * 2

    @server.tool(policy="confirm")
    async def delete(number: int) -> str:
        return f"deleted {number}"

    @server.tool
    async def fail() -> str:
        raise ToolError("No.")

    @server.resource("order://{number}")
    def order(number: int) -> str:
        return f"Order {number}"

    @server.prompt
    def ask(topic: str) -> str:
        return f"Ask about {topic}"

    return server


@pytest.mark.parametrize("era", ERAS)
async def test_a_call_by_its_own_name_is_seen_once(era):
    seen: SeenCalls = []
    async with era_client(shop(call_recorder(seen)), era) as client:
        assert first_text(await client.result_of("rows", count=2)) == "[0,1]"
        assert first_text(await client.result_of("double", count="4")) == "8"
    assert seen == [(Kind.TOOLS, "orders.rows", {"count": 2}), (Kind.TOOLS, "orders.double", {"count": "4"})]


async def test_a_call_through_a_meta_tool_is_seen_once():
    seen: SeenCalls = []
    async with era_client(shop(call_recorder(seen), disclosure="meta")) as client:
        await client.result_of("discover")
        await client.result_of("execute", operation="orders.rows", params={"count": 2})
    assert seen == [(Kind.TOOLS, "orders.rows", {"count": 2})]


async def test_a_call_of_a_delta_mcp_client_is_seen_once():
    seen: SeenCalls = []
    async with connect(shop(call_recorder(seen)), speak="delta-mcp") as client:
        assert await client.call("rows", count=2) == [0, 1]
    assert seen == [(Kind.TOOLS, "orders.rows", {"count": 2})]


async def test_resources_and_prompts_are_seen_and_completions_are_not():
    seen: SeenCalls = []
    server = shop(call_recorder(seen))

    @server.completion(prompt="ask", argument="topic")
    def topics(value: str) -> list[str]:
        return ["orders"]

    async with connect(server) as client:
        await client.read_resource("order://7")
        await client.get_prompt("ask", {"topic": "orders"})
        await client.complete({"type": "ref/prompt", "name": "ask"}, "topic", "o")
    assert seen == [(Kind.RESOURCES, "order://{number}", {"number": "7"}), (Kind.PROMPTS, "ask", {"topic": "orders"})]


async def test_what_is_unknown_forbidden_or_invalid_reaches_no_middleware():
    seen: SeenCalls = []
    server = shop(call_recorder(seen))
    server.tool(lambda: "x", name="secret", scopes=["admin"])
    async with era_client(server) as client:
        assert "count" in await client.refusal_of("double", count="many")
        assert "error" in await client.ask("tools/call", name="secret", arguments={})
        assert "error" in await client.ask("prompts/get", name="ask", arguments={})
    assert seen == []


async def test_the_first_middleware_is_the_outermost():
    order: list[str] = []

    def layer(name: str) -> Any:
        async def run(call: FunctionCall, call_next: CallNext) -> Any:
            order.append(f"+{name}")
            value = await call_next(call)
            order.append(f"-{name}")
            return value

        return run

    async with era_client(shop(layer("a"), layer("b"))) as client:
        await client.result_of("rows")
    assert order == ["+a", "+b", "-b", "-a"]


async def test_changed_arguments_are_validated_again_and_the_result_is_fitted():
    async def more(call: FunctionCall, call_next: CallNext) -> Any:
        call.arguments["count"] = "300" if call.arguments.get("count") else "many"
        return await call_next(call)

    async with era_client(shop(more, results=ResultPolicy(max_tokens=100))) as client:
        result = await client.result_of("rows", count=1)
        assert first_text(result).startswith("[0,1,2,3,") and token_cost(result) <= 100
        refusal = await client.refusal_of("rows")
        assert refusal.startswith("Invalid arguments for rows. count:")
        answer = await client.ask("prompts/get", name="ask", arguments={"topic": "orders"})
        assert answer["error"]["code"] == -32602


async def test_changed_arguments_are_what_the_user_is_asked_about():
    questions: list[str] = []

    async def other(call: FunctionCall, call_next: CallNext) -> Any:
        call.arguments["number"] = 8
        return await call_next(call)

    def agree(question: Any) -> dict[str, Any]:
        questions.append(str(question))
        return {}

    async with connect(shop(other), on_elicitation=agree) as client:
        assert await client.call("delete", number=7) == "deleted 8"
    assert len(questions) == 1
    assert "8" in questions[0] and "7" not in questions[0]


@pytest.mark.parametrize("speak", ["modern", "handshake"])
async def test_each_run_of_other_arguments_needs_a_consent_of_its_own(speak: Any):
    questions: list[str] = []

    async def twice(call: FunctionCall, call_next: CallNext) -> Any:
        first = await call_next(call)
        call.arguments = {"number": 1_000_000}
        return [first, await call_next(call)]

    def agree_to_the_first(question: Any) -> dict[str, Any] | None:
        questions.append(str(question))
        return None if "1000000" in str(question) else {}

    async with connect(shop(twice), speak=speak, on_elicitation=agree_to_the_first) as client:
        with pytest.raises(CallFailedError, match="declined"):
            await client.call("delete", number=7)
    assert len(questions) == 2 and "1000000" in questions[1]


async def test_a_middleware_may_answer_refuse_repeat_and_change_the_value():
    async def rule(call: FunctionCall, call_next: CallNext) -> Any:
        match call.name:
            case "orders.rows":
                return ["cached"]
            case "orders.double":
                return [await call_next(call), await call_next(call)]
            case "fail":
                try:
                    return await call_next(call)
                except ToolError as error:
                    return f"It said {error}"
            case _:
                raise ToolError("Not today.")

    async with era_client(shop(rule)) as client:
        assert first_text(await client.result_of("rows")) == '["cached"]'
        assert first_text(await client.result_of("double", count=1)) == "[2,2]"
        assert first_text(await client.result_of("fail")) == "It said No."
        assert await client.refusal_of("delete", number=1) == "Not today."
        answer = await client.ask("resources/read", uri="order://1")
        assert answer["error"]["message"] == "Not today."


async def test_a_middleware_that_fails_answers_like_a_tool_that_fails(caplog):
    async def broken(call: FunctionCall, call_next: CallNext) -> Any:
        raise RuntimeError("secret")

    async with era_client(shop(broken)) as client:
        assert "secret" not in await client.refusal_of("rows")
    assert "secret" in caplog.text


async def test_the_deadline_counts_middleware():
    async def stuck(call: FunctionCall, call_next: CallNext) -> Any:
        await asyncio.Event().wait()

    server = DeltaServer("x", middleware=[stuck])
    server.tool(lambda: "x", name="find", timeout=0.01)
    async with era_client(server) as client:
        assert "took too long" in await client.refusal_of("find")


async def test_a_middleware_has_the_context_of_the_call():
    @contextlib.asynccontextmanager
    async def lifespan(server: DeltaServer) -> AsyncIterator[str]:
        yield "pool"

    async def describe(call: FunctionCall, call_next: CallNext) -> Any:
        return [call.context.lifespan, call.context.principal.id, call.context.client["name"]]

    async with era_client(shop(describe, lifespan=lifespan)) as client:
        assert first_text(await client.result_of("rows")) == compact_json(["pool", "local", "raw"])


@pytest.mark.parametrize("era", ERAS)
async def test_questions_of_a_middleware_and_its_function_stay_apart(era):
    form = {"type": "object", "properties": {"word": {"type": "string"}}}

    async def ask(call: FunctionCall, call_next: CallNext) -> Any:
        word = (await call.context.elicit("One?", form)).content["word"]
        return f"{word} {await call_next(call)}"

    server = DeltaServer("x", middleware=[ask])

    @server.tool
    async def second(ctx: Context) -> str:
        return str((await ctx.elicit("Two?", form)).content["word"])

    answers = {"One?": "one", "Two?": "two"}
    async with connect(server, speak=era, on_elicitation=lambda asked: {"word": answers[asked["message"]]}) as client:
        assert await client.call("second") == "one two"


def test_a_middleware_must_be_async():
    with pytest.raises(ConfigurationError, match="async"):
        DeltaServer("x", middleware=[lambda call, call_next: call_next(call)])
