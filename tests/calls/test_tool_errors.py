"""The errors of tools: what an author raises, and which codes the server gives its own."""

import asyncio
import logging
from typing import Annotated, Any

import pytest
from pydantic import Field

from deltamcp import (
    Context,
    DeltaServer,
    InputDeclinedError,
    NeedsResource,
    Rate,
    RateLimits,
    ResultPolicy,
    ToolError,
    ToolFailure,
    connect,
)
from deltamcp.errors import UpstreamError
from deltamcp.values import (
    ANONYMOUS_CALLER,
    Caller,
    CallTool,
    Era,
    ErrorInfo,
    Inputs,
    Principal,
    ResourceRequired,
    Terms,
)
from tests.support.engine_calls import SilentChannel, call_as

OTHER_CALLER = Caller(Principal("other"))


def make_server(**options: Any) -> DeltaServer:
    server = DeltaServer("shop", **options)

    @server.tool
    async def pay(amount: Annotated[int, Field(ge=1)]) -> str:
        if amount > 100:
            raise ToolFailure("CARD_DECLINED", "The card was declined.", details={"limit": 100})
        if amount == 13:
            raise ToolFailure("BUSY", "The bank is busy.", retryable=True)
        if amount == 14:
            raise ToolFailure("TIMEOUT", "The bank did not answer.")
        if amount == 15:
            raise ToolFailure("BAD", "Bad details.", details={"at": object()})
        if amount == 16:
            raise ToolError("No.")
        if amount == 18:
            raise UpstreamError("The bank is closed.", retryable=True)
        if amount == 17:
            raise InputDeclinedError("The user said no.")
        return "paid"

    @server.tool
    async def crash() -> None:
        raise ValueError("secret")

    @server.tool(timeout=0.01)
    async def sleep() -> None:
        await asyncio.sleep(60)

    @server.tool
    async def summarize(ctx: Context, text: str) -> str:
        granted = ctx.resources.get("tokens", 0)
        if granted < 60_000:
            raise NeedsResource("It is long.", kind="tokens", required=60_000, available=granted, unit="token")
        return "short"

    return server


@pytest.mark.parametrize(
    ("amount", "error"),
    [
        (101, ErrorInfo("CARD_DECLINED", details={"limit": 100})),
        (13, ErrorInfo("BUSY", retryable=True)),
        (14, ErrorInfo("TIMEOUT")),
        (16, None),
        (18, ErrorInfo("UPSTREAM_ERROR", retryable=True)),
        (17, ErrorInfo("DECLINED", by_server=True)),
    ],
)
async def test_ml_26_a_failure_that_an_author_raises_is_a_result_with_its_code(amount, error):
    result = await call_as(make_server(), ANONYMOUS_CALLER, "pay", amount=amount)
    assert result.is_error and result.error == error


async def test_details_that_are_no_json_are_the_authors_bug_and_not_sent(caplog):
    result = await call_as(make_server(), ANONYMOUS_CALLER, "pay", amount=15)
    assert result.error is not None and (result.error.code, result.error.by_server) == ("INTERNAL", True)
    assert "object at" not in str(result.content)


@pytest.mark.parametrize(
    ("tool", "arguments", "code", "retryable"),
    [
        ("pay", {"amount": 0}, "INVALID_PARAMS", False),
        ("pay", {"amount": {"$result": "handle"}}, "INVALID_PARAMS", False),
        ("crash", {}, "INTERNAL", False),
        ("sleep", {}, "TIMEOUT", True),
    ],
)
async def test_ml_27_errors_that_are_not_the_tools_own_are_marked(tool, arguments, code, retryable, caplog):
    result = await call_as(make_server(results=ResultPolicy()), ANONYMOUS_CALLER, tool, **arguments)
    assert result.is_error and result.error is not None
    assert (result.error.code, result.error.by_server, result.error.retryable) == (code, True, retryable)


async def test_ml_11_wrong_arguments_are_listed_by_pointer():
    result = await call_as(make_server(), ANONYMOUS_CALLER, "pay", amount=0, extra=1)
    assert result.error is not None
    errors = result.error.details["errors"]
    assert [(error["pointer"], error["keyword"]) for error in errors] == [
        ("/amount", "minimum"),
        ("/extra", "additionalProperties"),
    ]
    assert errors[0]["message"] in str(result.content[0])


async def test_ml_89_a_crash_has_the_id_that_the_log_has(caplog):
    with caplog.at_level(logging.ERROR, "deltamcp"):
        result = await call_as(make_server(), ANONYMOUS_CALLER, "crash")
    assert result.error is not None
    assert f"error {result.error.details['error_id']}" in caplog.text
    assert "secret" not in str(result)


async def test_a_tool_that_is_called_too_often_says_when_to_call_again():
    server = make_server(rate_limits=RateLimits(per_tool=Rate(1, 60)))
    await call_as(server, ANONYMOUS_CALLER, "pay", amount=1)
    result = await call_as(server, ANONYMOUS_CALLER, "pay", amount=1)
    assert result.error is not None and (result.error.code, result.error.retryable) == ("RATE_LIMITED", True)
    assert 0 < result.error.details["retry_after_ms"] <= 60_000


async def test_a_success_has_no_error():
    assert (await call_as(make_server(), ANONYMOUS_CALLER, "pay", amount=1)).error is None


async def test_mcp_clients_get_the_authors_code_in_meta():
    async with connect(make_server()) as client:
        reply = await client.call_tool("pay", {"amount": 101})
        meta = reply.result().meta or {}
        assert meta["io.github.delta-mcp/error"] == {"code": "CARD_DECLINED", "details": {"limit": 100}}
        crashed = await client.call_tool("crash", {})
        assert "io.github.delta-mcp/error" not in (crashed.result().meta or {})


# Resources


async def ask(
    server: Any, inputs: Inputs | None = None, text: str = "x", caller: Caller = ANONYMOUS_CALLER, **meta: Any
) -> Any:
    terms = Terms(Era.MODERN, "2026-07-28", {}, {}, meta, caller=caller)
    call = CallTool("summarize", {"text": text}, inputs or Inputs())
    return await server.engine.perform(call, terms, SilentChannel(), 1)


async def test_ml_28_a_call_that_needs_more_of_a_resource_says_so_and_is_called_again_with_it():
    server = make_server()
    outcome = await ask(server)
    assert isinstance(outcome, ResourceRequired) and outcome.message == "It is long."
    needed = outcome.resources[0]
    assert (needed.kind, needed.required, needed.available, needed.unit) == ("tokens", 60_000, 0, "token")
    outcome = await ask(server, Inputs(state=outcome.state), resources={"tokens": 60_000})
    assert outcome.value.content[0].text == "short"


@pytest.mark.parametrize("wrong", [{"text": "y"}, {"caller": OTHER_CALLER}])
async def test_ml_28_the_state_is_of_no_use_for_another_call_or_caller(wrong):
    server = make_server()
    state = (await ask(server)).state
    outcome = await ask(server, Inputs(state=state), **wrong)
    assert outcome.fault.name == "INVALID_PARAMS"


@pytest.mark.parametrize("granted", [None, 5, [], {"tokens": "60000"}, {"tokens": True}])
async def test_what_is_no_amount_grants_nothing(granted):
    assert isinstance(await ask(make_server(), resources=granted), ResourceRequired)


async def test_ml_28_mcp_clients_get_an_error_that_names_the_resource():
    async with connect(make_server()) as client:
        reply = await client.call_tool("summarize", {"text": "x"})
        assert reply.is_error and "tokens: 60000 needed, 0 available" in reply.text


@pytest.mark.parametrize(
    "raise_it",
    [
        lambda: ToolFailure(5, "No."),  # type: ignore[arg-type]
        lambda: ToolFailure("NO", "No.", retryable="yes"),  # type: ignore[arg-type]
        lambda: ToolFailure("NO", "No.", details=[1]),  # type: ignore[arg-type]
        lambda: NeedsResource("More.", kind=5),  # type: ignore[arg-type]
        lambda: NeedsResource("More.", kind="tokens", required="many"),  # type: ignore[arg-type]
        lambda: NeedsResource("More.", kind="tokens", available=float("nan")),
        lambda: NeedsResource("More.", kind="tokens", unit=object()),  # type: ignore[arg-type]
    ],
)
async def test_what_clients_could_not_read_is_told_to_the_author(raise_it, caplog):
    server = DeltaServer("shop")

    @server.tool
    async def broken() -> None:
        raise raise_it()

    result = await call_as(server, ANONYMOUS_CALLER, "broken")
    assert "TypeError: " in caplog.text and " takes texts" in caplog.text
    assert result.is_error and "The tool broken failed (error" in str(result.content[0])
