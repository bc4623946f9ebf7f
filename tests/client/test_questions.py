"""A server's requests to the client during a call: elicitation, sampling and roots, in both eras."""

import asyncio
import contextlib
from pathlib import Path
from typing import Any

import pytest

from deltamcp import Context, DeltaServer, Elicited, elicitation, roots, sampling
from deltamcp.client.client import connect
from deltamcp.errors import ClientError, DeltaError, PeerError
from tests.support import fake_stdio
from tests.support.conditions import HANG_SECONDS
from tests.support.fake_http import ANY, Fake, FakeConnection, FakeRequest, serve_fake
from tests.support.http_server import serve_http

FORM = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
ELICIT = {"method": "elicitation/create", "params": {"mode": "form", "message": "Who?", "requestedSchema": FORM}}
MESSAGES = [{"role": "user", "content": {"type": "text", "text": "2+2?"}}]
SAMPLE = {"method": "sampling/createMessage", "params": {"messages": MESSAGES, "maxTokens": 10}}
ROOTS = {"method": "roots/list", "params": {}}
TOOLS = [{"name": "ask", "inputSchema": ANY}, {"name": "echo", "inputSchema": ANY}]
SPEAK: list[Any] = ["modern", "handshake"]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"


@pytest.fixture(params=["answer", -32601], ids=["modern", "handshake"])
def discover(request: Any) -> Any:
    return request.param


def make_server() -> DeltaServer:
    server = DeltaServer("asks")

    @server.tool
    async def greet(ctx: Context) -> str:
        """Asks who is there."""
        answer = await ctx.elicit("Who?", FORM)
        return f"Hello {answer.content['name']}" if answer.accepted else answer.action

    @server.tool
    async def think(ctx: Context) -> str:
        """Has the model think."""
        answer = await ctx.sample("2+2?", max_tokens=10)
        text: str = answer["content"]["text"]
        return text

    @server.tool
    async def where(ctx: Context) -> list[str]:
        """Asks where to work."""
        return [root["uri"] for root in await ctx.roots()]

    @server.tool
    async def all_at_once(ctx: Context) -> dict[str, Any]:
        """Asks three things in one round."""
        return await ctx.ask(a=elicitation("Who?", FORM), b=sampling("2+2?", 10), c=roots())

    @server.tool
    async def one_by_one(ctx: Context) -> list[str]:
        """Asks three things, one after another."""
        return [(await ctx.elicit(f"Number {n}?", FORM)).content["name"] for n in range(3)]

    return server


def answered(question: dict[str, Any]) -> Elicited:
    return Elicited("accept", {"name": "Ada"})


def sampled(question: dict[str, Any]) -> dict[str, Any]:
    return {"role": "assistant", "content": {"type": "text", "text": "four"}, "model": "m", "stopReason": "endTurn"}


@pytest.mark.parametrize("by", ["memory", "http"])
@pytest.mark.parametrize("speak", SPEAK)
async def test_every_question_is_answered(speak, by):
    server = make_server()
    async with serve_http(server) as url:
        target: Any = url if by == "http" else server
        async with connect(
            target, speak=speak, on_elicitation=answered, on_sampling=sampled, roots=["file:///work", "file:///tmp"]
        ) as client:
            assert await client.call("greet") == "Hello Ada"
            assert await client.call("think") == "four"
            assert await client.call("where") == ["file:///work", "file:///tmp"]
            at_once = await client.call("all_at_once")
            assert at_once["a"] == {"action": "accept", "content": {"name": "Ada"}}
            assert at_once["b"]["content"]["text"] == "four"
            assert [root["uri"] for root in at_once["c"]["roots"]] == ["file:///work", "file:///tmp"]
            assert await client.call("one_by_one") == ["Ada", "Ada", "Ada"]


@pytest.mark.parametrize("speak", SPEAK)
async def test_callbacks_may_be_async_and_see_the_question(speak):
    seen: list[Any] = []

    async def elicit(question: dict[str, Any]) -> dict[str, Any]:
        await asyncio.sleep(0)
        seen.append(question)
        return {"name": "Eve"}

    async def sample(question: dict[str, Any]) -> str:
        await asyncio.sleep(0)
        seen.append(question)
        return "five"

    async with connect(make_server(), speak=speak, on_elicitation=elicit, on_sampling=sample) as client:
        assert await client.call("greet") == "Hello Eve"
        assert await client.call("think") == "five"
    assert seen[0]["message"] == "Who?"
    assert seen[0]["requestedSchema"]["required"] == ["name"]
    assert seen[1]["maxTokens"] == 10


@pytest.mark.parametrize("speak", SPEAK)
@pytest.mark.parametrize(
    ("answer", "told"),
    [(Elicited("decline"), "decline"), (Elicited("cancel"), "cancel"), (None, "decline")],
)
async def test_a_user_may_say_no(speak, answer, told):
    async with connect(make_server(), speak=speak, on_elicitation=lambda question: answer) as client:
        assert await client.call("greet") == told


@pytest.mark.parametrize("speak", SPEAK)
async def test_a_client_without_callbacks_says_that_it_cannot_be_asked(speak):
    async with connect(make_server(), speak=speak) as client:
        for name in ("greet", "think", "where"):
            with pytest.raises(DeltaError):
                await asyncio.wait_for(client.call(name), HANG_SECONDS)


async def test_only_what_can_be_answered_is_declared(log, discover):
    cases: list[tuple[dict[str, Any], set[str]]] = [
        ({}, set()),
        ({"on_elicitation": answered}, {"elicitation"}),
        ({"on_sampling": sampled}, {"sampling"}),
        ({"roots": ["file:///x"]}, {"roots"}),
        ({"roots": []}, {"roots"}),
    ]
    for options, declared in cases:
        log.unlink(missing_ok=True)
        async with connect(fake_stdio.command(log=log, discover=discover), **options) as client:
            await client.call("echo")
        if discover == "answer":
            told = fake_stdio.messages(log, "tools/call")[0]["params"]["_meta"]
            capabilities = told["io.modelcontextprotocol/clientCapabilities"]
        else:
            capabilities = fake_stdio.messages(log, "initialize")[0]["params"]["capabilities"]
        found = set(capabilities) & {"elicitation", "sampling", "roots"}
        assert found == declared or (options == {"roots": []} and found <= declared)


@pytest.mark.parametrize("speak", SPEAK)
@pytest.mark.parametrize("is_async", [False, True])
async def test_a_callback_that_fails_fails_that_call_only(speak, is_async):
    def fails(question: dict[str, Any]) -> Any:
        raise ZeroDivisionError("private-to-the-client")

    async def fails_later(question: dict[str, Any]) -> Any:
        raise ZeroDivisionError("private-to-the-client")

    server = make_server()
    server.tool(name="fine")(lambda: 1)
    async with connect(server, speak=speak, on_elicitation=fails_later if is_async else fails) as client:
        with pytest.raises((DeltaError, ZeroDivisionError)):
            await asyncio.wait_for(client.call("greet"), HANG_SECONDS)
        assert await client.call("fine") == 1


async def test_what_a_callback_trips_over_is_not_told_to_the_server(log, discover):
    def fails(question: dict[str, Any]) -> Any:
        raise ZeroDivisionError("private-to-the-client")

    script = fake_stdio.command(log=log, discover=discover, tools=TOOLS)
    async with connect(script, on_elicitation=fails) as client:
        with contextlib.suppress(DeltaError, ZeroDivisionError):
            await asyncio.wait_for(client.call_tool("ask", {"questions": {"q": ELICIT}}), HANG_SECONDS)
    assert "private-to-the-client" not in log.read_text()


@pytest.mark.parametrize("speak", SPEAK)
async def test_other_calls_go_on_while_a_user_thinks(speak):
    asked, answer = asyncio.Event(), asyncio.Event()

    async def slow(question: dict[str, Any]) -> Elicited:
        asked.set()
        await answer.wait()
        return Elicited("accept", {"name": "late"})

    server = make_server()
    server.tool(name="fine")(lambda: 1)
    async with connect(server, speak=speak, on_elicitation=slow) as client:
        call = asyncio.create_task(client.call("greet"))
        await asyncio.wait_for(asked.wait(), HANG_SECONDS)
        assert await client.call("fine") == 1
        answer.set()
        assert await call == "Hello late"


async def test_answers_come_under_the_keys_of_their_questions(log, discover):
    script = fake_stdio.command(log=log, discover=discover, tools=TOOLS)
    options: Any = {"on_elicitation": answered, "on_sampling": sampled, "roots": ["file:///work"]}
    async with connect(script, **options) as client:
        value = await client.call("ask", questions={"é": ELICIT, "s": SAMPLE, "r": ROOTS})
    assert value["answers"]["é"] == {"action": "accept", "content": {"name": "Ada"}}
    assert value["answers"]["s"]["content"]["text"] == "four"
    assert value["answers"]["r"]["roots"][0]["uri"] == "file:///work"


# Round trips of the modern era


async def test_every_round_is_a_request_of_its_own_with_the_state_of_the_last(log):
    async with connect(fake_stdio.command(log=log, tools=TOOLS), on_elicitation=answered) as client:
        await client.call_tool("ask", {"questions": {"q": ELICIT}, "rounds": 3})
        await client.call("echo", a=1)
    asks = [message for message in fake_stdio.messages(log, "tools/call") if message["params"]["name"] == "ask"]
    assert len({message["id"] for message in asks}) == 4
    assert [message["params"].get("requestState") for message in asks] == [None, "état 1", "état 2", "état 3"]
    assert "requestState" not in asks[0]["params"]
    assert "inputResponses" not in asks[0]["params"]
    assert all(message["params"]["arguments"] == asks[0]["params"]["arguments"] for message in asks)
    assert set(asks[1]["params"]["inputResponses"]) == {"q"}
    echo = next(message for message in fake_stdio.messages(log, "tools/call") if message["params"]["name"] == "echo")
    assert not {"requestState", "inputResponses"} & set(echo["params"])


@pytest.mark.parametrize(
    ("required", "sent"),
    [
        ({"requestState": "s"}, {"requestState": "s"}),
        ({"inputRequests": {"r": ROOTS}}, {"inputResponses": {"r": {"roots": [{"uri": "file:///w"}]}}}),
    ],
    ids=["only a state", "only questions"],
)
async def test_only_what_was_given_is_given_back(required, sent):
    async def asks(asked: FakeRequest, wire: FakeConnection) -> None:
        result = {"resultType": "input_required", **required}
        await wire.json({"jsonrpc": "2.0", "id": asked.id, "result": result})

    async with serve_fake(Fake(handshake=False)) as fake:
        fake.once("tools/call", asks)
        async with connect(fake.url, roots=[{"uri": "file:///w"}]) as client:
            await client.call("echo", a=1)
        first, second = fake.of("tools/call")
        assert first.id != second.id
        got = {key: value for key, value in second.params.items() if key in ("requestState", "inputResponses")}
        assert got == sent
        assert second.params["arguments"] == {"a": 1}
        assert second.headers["mcp-name"] == "echo"


async def test_a_server_that_asks_for_ever_is_given_up(log):
    async with connect(fake_stdio.command(log=log, tools=TOOLS), on_elicitation=answered) as client:
        with pytest.raises((ClientError, PeerError)):
            await asyncio.wait_for(client.call_tool("ask", {"questions": {"q": ELICIT}, "rounds": 10**9}), HANG_SECONDS)
        assert (await client.call("echo", a=1))["given"] == {"a": 1}


@pytest.mark.parametrize("method", ["prompts/get", "resources/read"])
async def test_prompts_and_resources_may_ask_too(method):
    async def asks(asked: FakeRequest, wire: FakeConnection) -> None:
        if "requestState" in asked.params:
            name = asked.params["inputResponses"]["q"]["content"]["name"]
            contents = {"contents": [{"uri": "x:y", "text": name}], "messages": [], "description": name}
            await wire.json({"jsonrpc": "2.0", "id": asked.id, "result": {"resultType": "complete", **contents}})
            return
        result = {"resultType": "input_required", "inputRequests": {"q": ELICIT}, "requestState": "s"}
        await wire.json({"jsonrpc": "2.0", "id": asked.id, "result": result})

    async with serve_fake(Fake(handshake=False, prompts={}, resources={}, tools_={})) as fake:
        fake.always(method, asks)
        async with connect(fake.url, on_elicitation=answered) as client:
            if method == "prompts/get":
                assert (await client.get_prompt("p"))["description"] == "Ada"
            else:
                assert (await client.read_resource("x:y"))[0]["text"] == "Ada"
        first, second = fake.of(method)
        assert first.headers["mcp-name"] == second.headers["mcp-name"] == ("p" if method == "prompts/get" else "x:y")


async def test_a_question_that_was_never_offered_to_be_answered_is_refused(log, discover):
    """The server sends `tools/call` to the client, or sampling that the client did not declare."""
    script = fake_stdio.command(log=log, discover=discover, tools=TOOLS)
    async with connect(script, on_elicitation=answered) as client:
        if discover == "answer":
            with pytest.raises((ClientError, PeerError)):
                await asyncio.wait_for(client.call_tool("ask", {"questions": {"s": SAMPLE}}), HANG_SECONDS)
        else:
            strange = {"s": SAMPLE, "t": {"method": "tools/call", "params": {"name": "echo"}}, "p": {"method": "ping"}}
            value = await client.call("ask", questions=strange)
            assert value["answers"]["s"]["code"] == -32601
            assert value["answers"]["t"]["code"] == -32601
            assert value["answers"]["p"] == {}


@pytest.mark.parametrize(
    "questions",
    [[], "q", {"q": 1}, {"q": {}}, {"q": {"method": 7}}, {"q": {"method": "elicitation/create", "params": 3}}],
)
async def test_questions_that_make_no_sense_are_told(log, questions):
    async with connect(fake_stdio.command(log=log, tools=TOOLS), on_elicitation=answered) as client:
        try:
            await asyncio.wait_for(client.call_tool("ask", {"questions": questions}), HANG_SECONDS)
        except DeltaError as error:
            assert str(error)
        assert (await client.call("echo", a=1))["given"] == {"a": 1}


async def test_questions_over_http_in_the_old_way_are_answered_by_a_post_of_their_own():
    answers: list[Any] = []
    got = asyncio.Event()

    async def asks(asked: FakeRequest, wire: FakeConnection) -> None:
        await wire.events()
        await wire.event({"jsonrpc": "2.0", "id": "q-1", **ELICIT})
        await got.wait()
        await wire.event(fake.run(asked))
        await wire.end()

    async def answer(asked: FakeRequest, wire: FakeConnection) -> None:
        answers.append(asked)
        await wire.answer(202)
        got.set()

    async with serve_fake(Fake(modern=False, sessions=True)) as fake:
        fake.once("tools/call", asks)
        fake.always("response", answer)
        async with connect(fake.url, on_elicitation=answered) as client:
            assert (await asyncio.wait_for(client.call("echo", a=1), HANG_SECONDS))["given"] == {"a": 1}
    assert answers[0].message["id"] == "q-1"
    assert answers[0].message["result"] == {"action": "accept", "content": {"name": "Ada"}}
    assert answers[0].headers["mcp-session-id"] == "session-1"


async def test_defaults_of_a_form_are_filled_in():
    """2025-11-25, SEP-1034: clients that support defaults SHOULD send them."""
    server = DeltaServer("defaults")
    form = {
        "type": "object",
        "properties": {"name": {"type": "string", "default": "Bob"}, "n": {"type": "integer", "default": 3}},
    }

    @server.tool
    async def fill(ctx: Context) -> Any:
        """Asks."""
        return (await ctx.elicit("?", form)).content

    for speak in SPEAK:
        async with connect(server, speak=speak, on_elicitation=lambda question: Elicited("accept", {"n": 5})) as client:
            assert await client.call("fill") == {"name": "Bob", "n": 5}
