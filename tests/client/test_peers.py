"""The client against the official SDK's server and over every transport: `call` returns the function's value."""

import asyncio
import contextlib
import subprocess
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from deltamcp import Context, DeltaServer, Elicited, ResultPolicy
from deltamcp.client.client import DeltaClient, connect
from deltamcp.errors import CallFailedError, DeltaError
from tests.support.conditions import HANG_SECONDS
from tests.support.http_server import serve_http
from tests.support.paths import FORKED_PYTHON, PEER_COMMAND, SDK_PEER
from tests.support.processes import free_port, wait_until_it_listens
from tests.support.properties import examples

FORM = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}


# The official SDK


@pytest.fixture(scope="module")
def sdk_url() -> Iterator[str]:
    port = free_port()
    with subprocess.Popen([str(FORKED_PYTHON), str(SDK_PEER), str(port)], stderr=subprocess.DEVNULL) as process:
        try:
            wait_until_it_listens(process, port)
            yield f"http://127.0.0.1:{port}/mcp"
        finally:
            process.kill()


@pytest.fixture(params=["stdio", "http"])
def sdk(request: Any) -> Any:
    return [str(FORKED_PYTHON), str(SDK_PEER)] if request.param == "stdio" else request.getfixturevalue("sdk_url")


@pytest.mark.diagonal("sdk", "speak", "encoding")
@pytest.mark.parametrize("speak", ["auto", "modern", "handshake"])
@pytest.mark.parametrize("encoding", ["json", "cbor"])
async def test_the_official_sdk(sdk: Any, speak: Any, encoding: Any):
    async with connect(sdk, speak=speak, encoding=encoding, quiet=True, deltas=True) as client:
        assert client.server.name == "sdk"
        assert client.server.protocol == ("2025-11-25" if speak == "handshake" else "2026-07-28")
        assert {tool.name for tool in await client.tools()} == {"add", "weather", "rows", "words", "fails"}
        assert await client.call("add", a=1, b=2) in (3, {"result": 3})
        assert await client.call("weather", city="Bern") == {"city": "Bern", "celsius": 21.5}
        assert (await client.call_tool("weather", {"city": "Bern"})).raw["structuredContent"]["celsius"] == 21.5
        with pytest.raises(CallFailedError, match="fails"):
            await client.call("fails")
        assert (await client.read_resource("mem://one"))[0]["text"] == "first"
        assert (await client.get_prompt("greet", {"name": "Ada"}))["messages"][0]["content"]["text"] == "Hello Ada"
        (definition,) = await client.describe("weather")
        assert definition["outputSchema"]["properties"]["celsius"]["type"] == "number"
        assert await asyncio.gather(*(client.call("add", a=n, b=0) for n in range(50))) in (
            list(range(50)),
            [{"result": n} for n in range(50)],
        )
        rows = [row async for row in client.rows("rows", {"n": 300})]
        assert rows == [{"id": at, "square": at * at} for at in range(300)]


async def test_a_budget_for_results_of_the_official_sdk(sdk: Any):
    """The SDK's server sends a block for every row, and all rows again as structured content."""
    async with connect(sdk, quiet=True) as client:
        small = await client.call_tool("rows", {"n": 300}, want=ResultPolicy(max_tokens=300))
        assert len(str(small.raw)) < 5000
        assert small.is_part


async def test_null_for_an_optional_argument_of_the_official_sdk(sdk: Any):
    """`b: int = 1` does not allow null; a model that writes null means to leave the argument out."""
    async with connect(sdk, quiet=True) as client:
        assert await client.call("add", a=1, b=None) in (2, {"result": 2})


async def test_a_wrapped_result_of_the_official_sdk_is_given_as_the_function_returned_it(sdk: Any):
    """The client does not undo a server's wrapping (as `x-fastmcp-wrap-result`): it returns the structured content."""
    async with connect(sdk, quiet=True) as client:
        reply = await client.call_tool("words", {"text": "123"})
        assert reply.value == reply.raw["structuredContent"]


# DeltaServer over every transport


def make_server() -> DeltaServer:
    server = DeltaServer("matrix")

    @server.tool
    async def wrap(value: Any) -> dict[str, Any]:
        """Wraps what it is given."""
        return {"value": value}

    @server.tool(results=ResultPolicy(max_tokens=300))
    async def many(n: int) -> list[dict[str, Any]]:
        """Many rows."""
        return [{"id": at, "name": f"row {at}", "text": "text", "t": None} for at in range(n)]

    @server.tool
    async def hello(ctx: Context) -> str:
        """Asks who is there."""
        return f"Hello {(await ctx.elicit('Who?', FORM)).content['name']}"

    @server.tool
    async def steps(ctx: Context) -> str:
        """Tells how far it is."""
        await ctx.report_progress(1, 2)
        await ctx.report_progress(2, 2)
        return "done"

    return server


WAYS = ["memory", "http", "stdio"]
SPEAK = ["modern", "handshake", "delta-mcp"]
ENCODINGS = ["json", "compact-json", "cbor"]


@contextlib.asynccontextmanager
async def by(way: str, **options: Any) -> AsyncIterator[DeltaClient]:
    if way == "stdio":
        async with connect(PEER_COMMAND, quiet=True, **options) as client:
            yield client
        return
    server = make_server()
    if way == "memory":
        async with connect(server, **options) as client:
            yield client
        return
    async with serve_http(server) as url, connect(url, **options) as client:
        yield client


VALUES: list[Any] = [
    None,
    True,
    -(2**53),
    1.5e300,
    'ü\u2028\x00\\"',
    {"jsonrpc": 1, "j": 2, "~j": 3, "~~": 4, "method": {"m": [{"params": "p"}]}, "": None},
    {
        "inputSchema": {"type": "tp", "properties": {"name": 1, "n": 2, "text": 3}},
        "content": [],
        "tools": {},
        "id": "i",
    },
    [[[[[]]]], {}, {"result": {"r": {"error": {"e": "msg"}}}}],
]


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("speak", SPEAK)
@pytest.mark.parametrize("way", ["memory", "http"])
async def test_ours_by_every_way(way: str, speak: Any, encoding: Any):
    told: list[Any] = []
    options: Any = {"on_elicitation": lambda question: Elicited("accept", {"name": "Ada"})}
    async with asyncio.timeout(HANG_SECONDS), by(way, speak=speak, encoding=encoding, **options) as client:
        assert {tool.name for tool in await client.tools()} >= {"wrap", "many", "hello", "steps"}
        for value in VALUES:
            assert await client.call("wrap", value=value) == {"value": value}
        expected = [{"id": at, "name": f"row {at}", "text": "text", "t": None} for at in range(100)]
        assert [row async for row in client.rows("many", {"n": 100})] == expected
        await client.call_tool("steps", progress=lambda *step: told.append(step))
        if speak != "delta-mcp":
            assert await client.call("hello") == "Hello Ada"
            assert await client.call("many", n=100) == expected
            assert told == [(1, 2, None), (2, 2, None)]
        with pytest.raises(DeltaError):
            await client.call("nowhere")


@pytest.mark.diagonal("encoding", "speak")
@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("speak", ["auto", *SPEAK])
async def test_ours_as_a_process(speak: Any, encoding: Any):
    options: Any = {"on_elicitation": lambda question: Elicited("accept", {"name": "Ada"})}
    async with asyncio.timeout(HANG_SECONDS), by("stdio", speak=speak, encoding=encoding, **options) as client:
        for value in VALUES:
            assert await client.call("echo", value={"v": value}) == {"v": value}
        assert [row["id"] async for row in client.rows("rows")] == list(range(400))
        if speak != "delta-mcp":
            assert await client.call("name_of") == "Ada"


@pytest.mark.parametrize("encoding", ["compact-json", "cbor"])
async def test_the_encoding_that_was_asked_for_is_really_used(encoding: Any):
    for speak in ("modern", "delta-mcp"):
        async with by("http", speak=speak, encoding=encoding) as client:
            assert client.server.encoding == encoding


JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(-(2**53), 2**53)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["id", "i", "~i", "name", "n", "text", "type", "tp", "r", "cnt", "a", ""])
            | st.text("ab~", max_size=3),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@settings(max_examples=examples(12), database=None, phases=[Phase.generate])
@given(values=st.lists(JSON_VALUES, min_size=1, max_size=8))
@pytest.mark.parametrize("deltas", [False, True])
def test_any_value_comes_back_the_same_by_every_encoding(values: list[Any], deltas: bool):
    async def check() -> None:
        server = DeltaServer("any", results=ResultPolicy(deltas=True) if deltas else None)

        @server.tool
        async def wrap(value: Any) -> dict[str, Any]:
            """Wraps it."""
            return {"value": value}

        shown: list[Any] = []

        @server.tool
        async def now() -> Any:
            """What it is now."""
            return {"now": shown[-1], "rows": [{"id": at, "v": value} for at, value in enumerate(shown)]}

        async with serve_http(server) as url:
            for speak, encoding in (("modern", "cbor"), ("handshake", "json"), ("delta-mcp", "compact-json")):
                options: Any = {"speak": speak, "encoding": encoding, "deltas": deltas, "listen": False}
                async with connect(url, **options) as client:
                    shown.clear()
                    for value in values:
                        assert await client.call("wrap", value=value) == {"value": value}
                        shown.append(value)
                        expected = {"now": value, "rows": [{"id": at, "v": each} for at, each in enumerate(shown)]}
                        assert await client.call("now") == expected

    asyncio.run(check())
