"""Delta-MCP as its own clients know it, and the extension through which others reach the same: byte for byte.

Written from the specification of the original, not from our source.
"""

import abc
import asyncio
import contextlib
import json
import logging
import re
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import httpx2
import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.shared.exceptions import MCPError

from deltamcp import ConfigurationError, DeltaServer, ToolError
from deltamcp.transports import memory
from tests.conftest import ROOT

EXTENSION = "io.github.delta-mcp/progressive-disclosure"
DELTA = "delta-mcp/0.2.0"
BASELINE = "2025-11-25"
HANDSHAKE_VERSIONS = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"]
MODERN = "2026-07-28"
CAP = 60
PATIENCE = 10

ANSWER = (
    b'{"protocolVersion":"delta-mcp/0.2.0","baselineVersion":"2025-11-25",'
    b'"serverInfo":{"name":"demo","version":"1.2"},'
    b'"capabilities":{"tools":{"progressiveDisclosure":true,"lazyLoading":true},"encoding":{"compactJson":true}},'
    b'"encoding":{"format":"json"}}'
)
ANSWER_OVER_HTTP = ANSWER.replace(b'"compactJson":true', b'"compactJson":true,"cbor":true')
SUMMARIES = (
    b'{"tools":[{"name":"write_file","description":"Write a file \xe2\x9c\x8d."},{"name":"add","description":"Add two '
    b'numbers."},{"name":"list_dir","description":"List a directory."},{"name":"fails","description":"Fail and say so."'
    b'},{"name":"breaks","description":"Break."}]}'
)
NAMES = ["write_file", "add", "list_dir", "fails", "breaks"]

# A server and the ways to it


def demo(**options: Any) -> DeltaServer:
    server = DeltaServer("demo", "1.2", **options)

    @server.tool(
        summary="Write a file ✍.",
        title="Write",
        annotations={"destructiveHint": True, "readOnlyHint": False},
        meta={"example.org/kind": "files"},
        output_schema={"type": "object", "properties": {"written": {"type": "boolean"}}, "required": ["written"]},
    )
    async def write_file(path: str, text: str = "") -> dict[str, Any]:
        """Write a file – and everything else there is to say about that, which takes more than sixty characters."""
        return {"written": True, "path": path}

    @server.tool
    async def add(a: int, b: int = 2) -> int:
        """Add two numbers."""
        return a + b

    @server.tool
    async def list_dir(path: str = ".") -> list[str]:
        """List a directory."""
        return ["a", "b"]

    @server.tool
    async def fails() -> str:
        """Fail and say so."""
        raise ToolError("the disk is full")

    @server.tool
    async def breaks() -> str:
        """Break."""
        raise RuntimeError("secret")

    return server


class Peer(abc.ABC):
    """A client that sends what it is told and gives back the bytes of the answer."""

    answer = ANSWER
    """What it is owed for a delta `initialize` that offers no encodings."""

    def __init__(self) -> None:
        self._ids = 0
        self.heard: list[dict[str, Any]] = []

    @abc.abstractmethod
    async def _exchange(self, body: bytes, headers: dict[str, str]) -> bytes: ...

    @abc.abstractmethod
    async def note(self, method: str, **params: Any) -> None: ...

    async def raw(self, method: str, params: Any = None, **headers: str) -> bytes:
        """The whole answer; `params` are left out where they are None."""
        self._ids += 1
        body = {"jsonrpc": "2.0", "id": self._ids, "method": method}
        if params is not None:
            body["params"] = params
        return await self._exchange(json.dumps(body).encode(), headers)

    async def call(self, method: str, params: Any = None) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(await self.raw(method, params), object_pairs_hook=without_twins)
        return answer

    async def result(self, method: str, params: Any = None) -> bytes:
        """The bytes of `result` alone."""
        raw = await self.raw(method, params)
        found = re.fullmatch(rb'\{"jsonrpc":"2\.0","id":%d,"result":(\{.*\})\}' % self._ids, raw, re.DOTALL)
        assert found, raw
        return found[1]

    async def error(self, method: str, params: Any = None) -> bytes:
        """The bytes of `error` alone."""
        raw = await self.raw(method, params)
        found = re.fullmatch(rb'\{"jsonrpc":"2\.0","id":%d,"error":(\{.*\})\}' % self._ids, raw, re.DOTALL)
        assert found, raw
        return found[1]

    async def initialize(self, version: str, capabilities: Any = None) -> bytes:
        result = await self.result(
            "initialize",
            {
                "protocolVersion": version,
                "clientInfo": {"name": "delta-mcp-client", "version": "0.2.0"},
                "capabilities": capabilities or {},
            },
        )
        await self.note("notifications/initialized")
        return result

    async def delta(self, version: str = DELTA, progressive: Any = True) -> bytes:
        tools = {"progressiveDisclosure": progressive, "lazyLoading": True}
        return await self.initialize(version, {"tools": tools})

    async def standard(self, version: str = BASELINE) -> bytes:
        return await self.initialize(version)

    async def declaring(self, version: str = BASELINE) -> bytes:
        """A plain client of the handshake era that knows the extension."""
        return await self.initialize(version, {"experimental": {EXTENSION: {}}})


def without_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    assert len(found) == len(pairs), f"a key is there twice: {[key for key, _ in pairs]}"
    return found


class MemoryPeer(Peer):
    def __init__(self, link: memory.Link) -> None:
        super().__init__()
        self._link = link

    async def _exchange(self, body: bytes, headers: dict[str, str]) -> bytes:
        self._link.send(body)
        while True:
            async with asyncio.timeout(PATIENCE):
                raw = await self._link.receive()
            if "method" not in (message := json.loads(raw)):
                return raw
            self.heard.append(message)

    async def note(self, method: str, **params: Any) -> None:
        self._link.send(json.dumps({"jsonrpc": "2.0", "method": method, "params": params}).encode())


class StdioPeer(Peer):
    def __init__(self, process: asyncio.subprocess.Process) -> None:
        super().__init__()
        assert process.stdin is not None and process.stdout is not None
        self._in, self._out = process.stdin, process.stdout

    async def _exchange(self, body: bytes, headers: dict[str, str]) -> bytes:
        self._in.write(body + b"\n")
        while True:
            async with asyncio.timeout(3 * PATIENCE):
                raw = await self._out.readline()
            assert raw.endswith(b"\n"), "the server went away"
            if "method" not in (message := json.loads(raw)):
                return raw.rstrip(b"\r\n")
            self.heard.append(message)

    async def note(self, method: str, **params: Any) -> None:
        self._in.write(json.dumps({"jsonrpc": "2.0", "method": method, "params": params}).encode() + b"\n")


class HttpPeer(Peer):
    answer = ANSWER_OVER_HTTP

    def __init__(self, http: httpx2.AsyncClient) -> None:
        super().__init__()
        self.http = http
        self.headers = {"content-type": "application/json", "accept": "application/json, text/event-stream"}

    async def post(self, body: bytes, **headers: str) -> httpx2.Response:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return await self.http.post("/mcp", content=body, headers={**self.headers, **named})

    async def _exchange(self, body: bytes, headers: dict[str, str]) -> bytes:
        message = json.loads(body)
        if MODERN in json.dumps(message.get("params", {}).get("_meta", {})):
            headers = {"mcp_protocol_version": MODERN, "mcp_method": message["method"], **headers}
            if message["method"] in ("tools/call", "resources/read", "prompts/get"):
                headers["mcp_name"] = message["params"]["name"]
        answer = await self.post(body, **headers)
        assert answer.headers["content-type"] == "application/json"
        if message["method"] == "initialize":
            self.headers["mcp-session-id"] = answer.headers["mcp-session-id"]
            self.headers["mcp-protocol-version"] = BASELINE
        return answer.content

    async def note(self, method: str, **params: Any) -> None:
        answer = await self.post(json.dumps({"jsonrpc": "2.0", "method": method, "params": params}).encode())
        assert (answer.status_code, answer.content) == (202, b"")


@contextlib.asynccontextmanager
async def in_memory(server: DeltaServer) -> AsyncIterator[MemoryPeer]:
    async with memory.connect(server.engine) as link:
        yield MemoryPeer(link)


@contextlib.asynccontextmanager
async def over_stdio(script: str) -> AsyncIterator[StdioPeer]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", script, stdin=-1, stdout=-1, cwd=ROOT, limit=2**24
    )
    try:
        yield StdioPeer(process)
    finally:
        assert process.stdin is not None
        process.stdin.close()
        try:
            async with asyncio.timeout(3 * PATIENCE):
                code = await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()
            raise
    assert code == 0


@contextlib.asynccontextmanager
async def over_http(server: DeltaServer) -> AsyncIterator[Callable[[], HttpPeer]]:
    """Peers of one server, as many as are asked for."""
    async with server.engine.life.running():
        transport = httpx2.ASGITransport(app=server.asgi())
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as http:
            yield lambda: HttpPeer(http)


STDIO_DEMO = "from tests.test_delta_dialect import demo; demo().run()"
Door = Callable[[], contextlib.AbstractAsyncContextManager[Peer]]


@contextlib.asynccontextmanager
async def http_demo() -> AsyncIterator[Peer]:
    async with over_http(demo()) as join:
        yield join()


DOORS: dict[str, Door] = {
    "memory": lambda: in_memory(demo()),
    "stdio": lambda: over_stdio(STDIO_DEMO),
    "http": http_demo,
}


@pytest.fixture(params=DOORS)
def door(request: pytest.FixtureRequest) -> Door:
    return DOORS[request.param]


def modern(declared: bool = True, **params: Any) -> dict[str, Any]:
    """Params of a request of the modern era, with the extension or without."""
    meta = {
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientCapabilities": {"extensions": {EXTENSION: {}}} if declared else {},
        "io.modelcontextprotocol/clientInfo": {"name": "raw", "version": "1"},
    }
    return {**params, "_meta": meta}


def units(text: str) -> int:
    return len(text.encode("utf-16-le")) // 2


async def full_list(server: DeltaServer, version: str = BASELINE) -> bytes:
    async with in_memory(server) as peer:
        await peer.standard(version)
        return await peer.result("tools/list")


# initialize: CS-01, CS-10


async def test_the_answer_to_a_delta_client_is_the_originals_to_the_byte(door):
    async with door() as peer:
        assert await peer.delta() == peer.answer


@pytest.mark.parametrize("version", ["delta-mcp/0.2.0", "delta-mcp/0.9.9", "delta-mcp/0.0.1", "delta-mcp/0"])
async def test_a_compatible_version_gets_ours(version):
    async with in_memory(demo()) as peer:
        assert await peer.delta(version) == ANSWER
        assert await peer.result("tools/list") == SUMMARIES


@pytest.mark.parametrize(
    "version",
    ["delta-mcp/9.0.0", "delta-mcp/1.0.0", "delta-mcp/", "delta-mcp/00.2", "delta-mcp/x.2", "delta-mcp", "mcp2/0.2.0"],
)
async def test_an_incompatible_version_gets_the_baseline_and_full_schemas(version):
    async with in_memory(demo()) as peer:
        plain = await peer.standard()
    async with in_memory(demo()) as peer:
        answer = await peer.delta(version)
        assert answer == plain
        assert json.loads(answer)["protocolVersion"] == BASELINE
        assert b"progressiveDisclosure" not in answer and b"baselineVersion" not in answer
        assert await peer.result("tools/list") == await full_list(demo())


async def test_an_incompatible_delta_client_gets_the_baseline_on_every_transport(door):
    async with door() as peer:
        assert json.loads(await peer.delta("delta-mcp/9.0.0"))["protocolVersion"] == BASELINE
        assert await peer.result("tools/list") == await full_list(demo())


async def test_what_we_do_not_do_is_not_advertised():
    for open_ in (lambda peer: peer.delta(), lambda peer: peer.standard()):
        async with in_memory(demo()) as peer:
            answer = await open_(peer)
            for word in (b'"cbor":', b"schemaHashReferencing", b"codeExecution", b"oauth21"):
                assert word not in answer
    async with in_memory(demo()) as peer:
        assert "listChanged" not in json.loads(await peer.delta())["capabilities"]["tools"]


async def test_more_about_a_server_than_the_original_knows_is_not_in_its_answer():
    async with in_memory(demo(title="Demo", instructions="Read me.", website_url="https://example.org")) as peer:
        assert await peer.delta() == ANSWER


async def test_a_server_always_has_a_name_and_a_version():
    async with in_memory(DeltaServer("x")) as peer:
        info = json.loads(await peer.delta())["serverInfo"]
        assert list(info) == ["name", "version"]
        assert info["name"] and info["version"]


async def test_the_client_need_not_say_who_it_is_or_what_it_can():
    async with in_memory(demo()) as peer:
        assert await peer.result("initialize", {"protocolVersion": DELTA}) == ANSWER
        await peer.note("notifications/initialized")
        assert await peer.result("tools/list") == await full_list(demo())


@pytest.mark.parametrize("flag", [True, 1, 0.5, "yes", "false", [], {}])
async def test_the_progressive_flag_counts_when_javascript_finds_it_true(flag):
    async with in_memory(demo()) as peer:
        assert await peer.delta(progressive=flag) == ANSWER
        assert await peer.result("tools/list") == SUMMARIES


@pytest.mark.parametrize("flag", [False, 0, "", None])
async def test_without_the_progressive_flag_there_are_full_schemas(flag):
    async with in_memory(demo()) as peer:
        assert await peer.delta(progressive=flag) == ANSWER
        assert await peer.result("tools/list") == await full_list(demo())


async def test_the_flag_is_nothing_to_a_plain_client():
    async with in_memory(demo()) as peer:
        await peer.initialize(BASELINE, {"tools": {"progressiveDisclosure": True, "lazyLoading": True}})
        assert await peer.result("tools/list") == await full_list(demo())


# tools/list and tools/describe: CS-02


async def test_a_progressive_list_is_names_and_summaries_in_the_order_of_registration(door):
    async with door() as peer:
        await peer.delta()
        assert await peer.result("tools/list") == SUMMARIES
        assert await peer.result("tools/list", {}) == SUMMARIES


async def test_a_progressive_list_ignores_its_params():
    async with in_memory(demo()) as peer:
        await peer.delta()
        for params in ({"cursor": "zz"}, {"cursor": 5}, {"detail": "full"}):
            assert await peer.result("tools/list", params) == SUMMARIES


@pytest.mark.parametrize("progressive", [True, False])
async def test_a_delta_session_gets_its_list_in_one_piece(progressive):
    async with in_memory(demo(page_size=2)) as peer:
        await peer.delta(progressive=progressive)
        assert await peer.result("tools/list") == (SUMMARIES if progressive else await full_list(demo()))


async def test_describe_gives_the_bare_definition_as_the_full_list_has_it(door):
    full = await full_list(demo())
    async with door() as peer:
        await peer.delta()
        bare = [await peer.result("tools/describe", {"name": name}) for name in NAMES]
    assert b'{"tools":[' + b",".join(bare) + b"]}" == full
    for name, definition in zip(NAMES, map(json.loads, bare), strict=True):
        assert definition["name"] == name
        assert definition["inputSchema"]["type"] == "object"


async def test_a_second_describe_is_the_first_again():
    async with in_memory(demo()) as peer:
        await peer.delta()
        first = await peer.result("tools/describe", {"name": "add"})
        assert await peer.result("tools/describe", {"name": "add"}) == first


async def test_describe_works_for_standard_clients_too():
    async with in_memory(demo()) as peer:
        await peer.standard()
        bare = [await peer.result("tools/describe", {"name": name}) for name in NAMES]
    assert b'{"tools":[' + b",".join(bare) + b"]}" == await full_list(demo())


async def test_what_is_registered_later_is_listed_and_described_and_what_is_removed_is_unknown():
    server = demo()
    async with in_memory(server) as peer:
        await peer.delta()

        @server.tool
        async def late() -> str:
            """Come late."""
            return "x"

        server.remove_tool("add")
        tools = json.loads(await peer.result("tools/list"))["tools"]
        assert [tool["name"] for tool in tools] == ["write_file", "list_dir", "fails", "breaks", "late"]
        assert json.loads(await peer.result("tools/describe", {"name": "late"}))["description"] == "Come late."
        assert await peer.error("tools/describe", {"name": "add"}) == b'{"code":-32602,"message":"Unknown tool: add"}'


async def test_a_tool_that_not_everybody_may_see_is_nowhere():
    server = demo()

    @server.tool(scopes=["admin"])
    async def secret() -> str:
        """Only for some."""
        return "x"

    async with in_memory(server) as peer:
        await peer.delta()
        assert await peer.result("tools/list") == SUMMARIES
        for method in ("tools/describe", "tools/call"):
            assert await peer.error(method, {"name": "secret"}) == b'{"code":-32602,"message":"Unknown tool: secret"}'
        several = await peer.call("tools/describe", {"names": ["add", "secret"]})
        assert several["error"]["data"] == {"unknownNames": ["secret"]}
        entries = (await peer.call("tools/manifest"))["result"]["entries"]
        assert [entry["name"] for entry in entries] == NAMES


# Errors: CS-02, CS-03


@pytest.mark.parametrize(
    ("method", "params", "error"),
    [
        ("tools/describe", {"name": "nope"}, b'{"code":-32602,"message":"Unknown tool: nope"}'),
        ("tools/describe", {"name": 'n\u00f6"pe'}, b'{"code":-32602,"message":"Unknown tool: n\xc3\xb6\\"pe"}'),
        ("tools/describe", {"name": ""}, b'{"code":-32602,"message":"Unknown tool: "}'),
        ("tools/describe", {}, b'{"code":-32602,"message":"Unknown tool: undefined"}'),
        ("tools/describe", None, b'{"code":-32602,"message":"Unknown tool: undefined"}'),
        ("tools/call", {"name": "nope", "arguments": {}}, b'{"code":-32602,"message":"Unknown tool: nope"}'),
        ("tools/call", {"name": "nope"}, b'{"code":-32602,"message":"Unknown tool: nope"}'),
        ("tools/call", {}, b'{"code":-32602,"message":"Unknown tool: undefined"}'),
        ("tools/call", None, b'{"code":-32602,"message":"Unknown tool: undefined"}'),
        ("nope", None, b'{"code":-32601,"message":"Unknown method: nope"}'),
        ("tools/nope", {"name": "add"}, b'{"code":-32601,"message":"Unknown method: tools/nope"}'),
        ("prompts/list", {}, b'{"code":-32601,"message":"Unknown method: prompts/list"}'),
        ("", {}, b'{"code":-32601,"message":"Unknown method: "}'),
    ],
)
@pytest.mark.parametrize("progressive", [True, False])
async def test_errors_are_the_originals_to_the_byte(method, params, error, progressive):
    async with in_memory(demo()) as peer:
        await peer.delta(progressive=progressive)
        assert await peer.error(method, params) == error


@pytest.mark.parametrize(("name", "text"), [(None, "null"), (True, "true"), (False, "false"), (5, "5"), (1.5, "1.5")])
@pytest.mark.parametrize("method", ["tools/describe", "tools/call"])
async def test_a_name_that_is_no_string_is_written_as_javascript_writes_it(method, name, text):
    async with in_memory(demo()) as peer:
        await peer.delta()
        expected = b'{"code":-32602,"message":"Unknown tool: %s"}' % text.encode()
        assert await peer.error(method, {"name": name}) == expected


async def test_errors_are_the_originals_on_every_transport(door):
    async with door() as peer:
        await peer.delta()
        unknown = b'{"code":-32602,"message":"Unknown tool: nope"}'
        assert await peer.error("tools/describe", {"name": "nope"}) == unknown
        assert await peer.error("tools/call", {"name": "nope"}) == unknown
        assert await peer.error("tools/describe") == b'{"code":-32602,"message":"Unknown tool: undefined"}'
        assert await peer.error("x/y") == b'{"code":-32601,"message":"Unknown method: x/y"}'
        assert await peer.result("ping") == b"{}"


async def test_calls_work_without_arguments_and_failures_are_results():
    async with in_memory(demo()) as peer:
        await peer.delta()
        forms: list[dict[str, Any]] = [{}, {"arguments": {}}, {"arguments": {"path": "x"}}]
        for arguments in forms:
            answer = await peer.call("tools/call", {"name": "list_dir", **arguments})
            assert json.loads(answer["result"]["content"][0]["text"]) == ["a", "b"]
        told = (await peer.call("tools/call", {"name": "fails"}))["result"]
        assert told["isError"] is True
        assert told["content"][0]["type"] == "text" and "the disk is full" in told["content"][0]["text"]
        broken = (await peer.call("tools/call", {"name": "breaks"}))["result"]
        assert broken["isError"] is True and "secret" not in json.dumps(broken)


async def test_a_call_whose_arguments_are_null_has_none():
    async with in_memory(demo()) as peer:
        await peer.delta()
        answer = await peer.call("tools/call", {"name": "list_dir", "arguments": None})
        assert json.loads(answer["result"]["content"][0]["text"]) == ["a", "b"]


# Notifications and JSON-RPC: CS-10


async def test_notifications_are_never_answered_and_the_stream_stays_healthy(door):
    async with door() as peer:
        await peer.delta()
        await peer.note("no/such/notification")
        await peer.note("tools/list")
        await peer.note("tools/describe", name="nope")
        await peer.note("tools/call", name="nope")
        assert await peer.result("tools/list") == SUMMARIES
        assert peer.heard == []


async def test_what_is_no_request_is_an_error_without_an_id_and_changes_nothing():
    async with in_memory(demo()) as peer:
        await peer.delta()
        for body, code in [(b"{", -32700), (b"42", -32600), (b'"hello"', -32600), (b"null", -32600), (b"[]", -32600)]:
            answer = json.loads(await peer._exchange(body, {}))
            assert (answer["id"], answer["error"]["code"]) == (None, code)
        assert await peer.result("tools/list") == SUMMARIES


# CS-13: sessions


async def test_standard_and_delta_sessions_stand_side_by_side_over_http():
    full = await full_list(demo())
    async with over_http(demo()) as join:
        delta, standard, later = join(), join(), join()
        assert await delta.delta() == ANSWER_OVER_HTTP
        await standard.standard()
        assert delta.headers["mcp-session-id"] != standard.headers["mcp-session-id"]
        for _ in range(2):
            assert await delta.result("tools/list") == SUMMARIES
            assert await standard.result("tools/list") == full
            assert b"inputSchema" in await delta.result("tools/describe", {"name": "add"})
        await later.delta(progressive=False)
        assert await later.result("tools/list") == full
        gone = await standard.http.delete("/mcp", headers=standard.headers)
        assert gone.status_code == 200
        assert await delta.result("tools/list") == SUMMARIES


async def test_many_sessions_at_once_each_get_their_own():
    full = await full_list(demo())
    async with over_http(demo()) as join:

        async def client(number: int) -> None:
            peer = join()
            await (peer.delta() if number % 2 else peer.standard())
            expected = SUMMARIES if number % 2 else full
            for _ in range(3):
                assert await peer.result("tools/list") == expected

        async with asyncio.TaskGroup() as group:
            for number in range(20):
                group.create_task(client(number))


async def test_nobody_without_a_session_gets_summaries():
    async with over_http(demo()) as join:
        delta = join()
        await delta.delta()
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}).encode()
        without = await join().post(body, mcp_protocol_version=BASELINE)
        assert b'{"name":"add","description":"Add two numbers."}' not in without.content
        unknown = await join().post(body, mcp_protocol_version=BASELINE, mcp_session_id="nobody")
        assert unknown.status_code == 404


@pytest.mark.parametrize("header", [None, "2025-11-25", "2025-06-18", "2025-03-26"])
async def test_the_headers_of_the_originals_client_are_accepted(header):
    async with over_http(demo()) as join:
        peer = join()
        peer.headers["accept"] = "application/json, application/json"
        if header is not None:
            peer.headers["mcp-protocol-version"] = header
        assert await peer.delta() == ANSWER_OVER_HTTP
        if header is None:
            del peer.headers["mcp-protocol-version"]
        else:
            peer.headers["mcp-protocol-version"] = header
        assert await peer.result("tools/list") == SUMMARIES


async def test_two_connections_in_memory_do_not_disturb_each_other():
    server = demo()
    full = await full_list(demo())
    async with in_memory(server) as delta, in_memory(server) as standard, in_memory(server) as declaring:
        await delta.delta()
        await standard.standard()
        await declaring.declaring()
        for _ in range(2):
            assert await delta.result("tools/list") == SUMMARIES
            assert await standard.result("tools/list") == full
            assert await declaring.result("tools/list") == SUMMARIES


async def test_both_eras_share_a_connection_and_each_request_gets_what_it_declared():
    full = await full_list(demo())
    async with in_memory(demo()) as peer:
        await peer.delta()
        for _ in range(2):
            plain = await peer.call("tools/list", modern(declared=False))
            assert plain["result"]["tools"] == json.loads(full)["tools"]
            assert await peer.result("tools/list") == SUMMARIES
            declared = await peer.call("tools/list", modern())
            assert declared["result"]["tools"] == json.loads(SUMMARIES)["tools"]
    async with in_memory(demo()) as peer:
        await peer.standard()
        assert (await peer.call("tools/list", modern()))["result"]["tools"] == json.loads(SUMMARIES)["tools"]
        assert await peer.result("tools/list") == full


# The official SDK: CS-12


async def test_the_official_client_sees_an_ordinary_server():
    parameters = StdioServerParameters(command=sys.executable, args=["-c", STDIO_DEMO], cwd=ROOT)
    async with Client(stdio_client(parameters), mode="legacy") as client:
        assert client.server_capabilities.tools is not None
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert list(tools) == NAMES
        assert all(tool.input_schema["type"] == "object" for tool in tools.values())
        assert tools["add"].input_schema["properties"].keys() == {"a", "b"}
        listed = (await client.call_tool("list_dir", {})).content[0]
        assert listed.type == "text" and json.loads(listed.text) == ["a", "b"]
        with pytest.raises(MCPError, match="nope"):
            await client.call_tool("nope", {})
        assert (await client.call_tool("fails", {})).is_error


# The full list is what it was


async def test_the_full_list_knows_nothing_of_summaries():
    def server(**options: Any) -> DeltaServer:
        made = DeltaServer("x")

        @made.tool(description="A description. " * 10, **options)
        async def tool(a: int) -> None: ...

        return made

    for version in HANDSHAKE_VERSIONS:
        with_summary = await full_list(server(summary="Short."), version)
        assert with_summary == await full_list(server(), version)
        assert b"ummary" not in with_summary and b"Short." not in with_summary


async def test_the_full_list_stays_the_same_whoever_else_asks():
    server = demo()
    before = {version: await full_list(server, version) for version in HANDSHAKE_VERSIONS}
    async with in_memory(server) as peer:
        plain = await peer.result("tools/list", modern(declared=False))
    async with in_memory(server) as delta, in_memory(server) as declaring:
        await delta.delta()
        await declaring.declaring("2025-06-18")
        for peer in (delta, declaring):
            await peer.result("tools/list")
            await peer.result("tools/describe", {"names": NAMES})
            await peer.result("tools/manifest")
            await peer.result("tools/list", modern())
        assert await delta.result("tools/list", modern(declared=False)) == plain
        assert {version: await full_list(server, version) for version in HANDSHAKE_VERSIONS} == before


# Sixty characters


def register(server: DeltaServer, **options: Any) -> None:
    async def tool() -> None: ...

    server.tool(name="the_tool", **options)(tool)


async def listed(server: DeltaServer) -> str:
    async with in_memory(server) as peer:
        await peer.delta()
        (tool,) = json.loads(await peer.result("tools/list"))["tools"]
        assert list(tool) == ["name", "description"]
        found: str = tool["description"]
        return found


LONG = [
    "x" * 61,
    "😀" * 31,
    "x" * 59 + "😀",
    "é" * 61,
    "one two three " * 10,
    "A first sentence. " + "And then another one. " * 5,
    "A first paragraph.\n\n" + "And then another one. " * 5,
]
SHORT = ["x" * 60, "😀" * 30, "x" * 58 + "😀", "é" * 60, "x", "Adds. Quickly.", "Adds e.g. 1 and 2"]


@pytest.mark.parametrize("text", LONG)
@pytest.mark.parametrize("options", [lambda text: {"summary": text}, lambda text: {"description": text}])
def test_a_strict_server_refuses_what_is_longer(text, options):
    assert units(text) > CAP
    with pytest.raises(ConfigurationError, match="60 chars") as caught:
        register(DeltaServer("x", strict=True), **options(text))
    assert "the_tool" in str(caught.value)


@pytest.mark.parametrize("text", SHORT)
@pytest.mark.parametrize("strict", [True, False])
async def test_what_fits_is_listed_as_it_is(text, strict, caplog):
    assert units(text) <= CAP
    for options in ({"summary": text}, {"description": text}, {"summary": text, "description": "y" * 200}):
        server = DeltaServer("x", strict=strict)
        register(server, **options)
        assert await listed(server) == text
    assert caplog.records == []


async def test_a_short_description_of_several_lines_is_listed_as_it_is():
    for strict in (True, False):
        server = DeltaServer("x", strict=strict)
        register(server, description="Adds two numbers.\nBoth must be whole.")
        assert await listed(server) == "Adds two numbers.\nBoth must be whole."


async def test_a_refused_tool_is_not_there_and_its_name_is_free():
    server = DeltaServer("x", strict=True)
    with pytest.raises(ConfigurationError):
        register(server, description="x" * 61)
    register(server, description="Second try.")
    assert await listed(server) == "Second try."


def test_a_name_is_taken_once():
    server = DeltaServer("x")
    register(server, description="First.")
    with pytest.raises(ConfigurationError, match="the_tool"):
        register(server, description="Second.")


@pytest.mark.parametrize("text", LONG)
@pytest.mark.parametrize("options", [lambda text: {"summary": text}, lambda text: {"description": text}])
async def test_a_lenient_server_makes_it_fit(text, options):
    server = DeltaServer("x")
    register(server, **options(text))
    summary = await listed(server)
    assert 0 < units(summary) <= CAP
    assert text.startswith(summary.rstrip("….").rstrip())


async def test_a_sentence_that_had_to_be_cut_is_told_and_the_tool_named(caplog):
    with caplog.at_level(logging.WARNING, "deltamcp"):
        register(DeltaServer("x"), description="one two three " * 10)
    (record,) = caplog.records
    assert (record.name, record.levelname) == ("deltamcp", "WARNING")
    assert "the_tool" in record.getMessage()


async def test_a_first_sentence_that_fits_is_the_summary_and_nobody_is_warned(caplog):
    with caplog.at_level(logging.DEBUG, "deltamcp"):
        server = DeltaServer("x")
        register(server, description="A first sentence. " + "And then another one. " * 5)
    assert (await listed(server)).rstrip(".") == "A first sentence"
    assert caplog.records == []


async def test_a_tool_without_a_description_has_an_empty_one_in_the_list():
    for strict in (True, False):
        server = DeltaServer("x", strict=strict)
        register(server)
        assert await listed(server) == ""


@settings(deadline=None, max_examples=200, derandomize=True)
@given(st.text(max_size=200), st.one_of(st.none(), st.text(max_size=200)))
def test_no_summary_is_ever_too_long(description, summary):
    server = DeltaServer("x")
    register(server, description=description, **({} if summary is None else {"summary": summary}))
    found = asyncio.run(listed(server))
    assert units(found) <= CAP
    if summary and units(summary) <= CAP and summary.strip() == summary and summary.isprintable():
        assert found == summary


# The extension


@pytest.mark.parametrize("http", [False, True])
async def test_the_modern_era_advertises_the_extension(http):
    async with DOORS["http" if http else "memory"]() as peer:
        for declared in (True, False):
            capabilities = (await peer.call("server/discover", modern(declared)))["result"]["capabilities"]
            assert isinstance(capabilities["extensions"][EXTENSION], dict)
            assert "experimental" not in capabilities


@pytest.mark.parametrize("version", HANDSHAKE_VERSIONS)
async def test_the_handshake_era_advertises_it_as_experimental_and_takes_it_so(version):
    async with in_memory(demo()) as peer:
        capabilities = json.loads(await peer.declaring(version))["capabilities"]
        assert isinstance(capabilities["experimental"][EXTENSION], dict)
        assert "extensions" not in capabilities
        assert await peer.result("tools/list") == SUMMARIES
        bare = [await peer.result("tools/describe", {"name": name}) for name in NAMES]
        assert b'{"tools":[' + b",".join(bare) + b"]}" == await full_list(demo(), version)
        assert await peer.result("tools/describe", {"names": NAMES}) == await full_list(demo(), version)


@pytest.mark.parametrize("capabilities", [{}, {"experimental": {}}, {"experimental": {"x/y": {}}}])
async def test_who_does_not_declare_it_gets_the_full_list(capabilities):
    async with in_memory(demo()) as peer:
        capabilities_of_the_answer = json.loads(await peer.initialize(BASELINE, capabilities))["capabilities"]
        assert EXTENSION in capabilities_of_the_answer["experimental"]
        assert await peer.result("tools/list") == await full_list(demo())


async def test_a_plain_client_with_the_extension_keeps_the_errors_of_mcp():
    async with in_memory(demo()) as peer, in_memory(demo()) as plain:
        await peer.declaring()
        await plain.standard()
        for method, params in [("x/y", {}), ("tools/call", {"name": "nope"}), ("tools/list", {"cursor": "zz"})]:
            assert await peer.error(method, params) == await plain.error(method, params)


@pytest.mark.parametrize("kind", DOORS)
async def test_a_declared_extension_gives_summaries_in_the_modern_era(kind):
    async with DOORS[kind]() as peer:
        full = (await peer.call("tools/list", modern(declared=False)))["result"]
        short = (await peer.call("tools/list", modern()))["result"]
        assert short["tools"] == json.loads(SUMMARIES)["tools"]
        assert [tool["name"] for tool in full["tools"]] == NAMES
        assert all("inputSchema" in tool for tool in full["tools"])
        assert short["cacheScope"] == "private"
        assert (short["resultType"], short["ttlMs"]) == ("complete", full["ttlMs"])
        assert (await peer.call("tools/list", modern(declared=False)))["result"] == full


@pytest.mark.parametrize("kind", DOORS)
async def test_describe_in_the_modern_era(kind):
    async with DOORS[kind]() as peer:
        full = (await peer.call("tools/list", modern(declared=False)))["result"]["tools"]
        for definition in full:
            bare = (await peer.call("tools/describe", modern(name=definition["name"])))["result"]
            assert bare.pop("resultType") == "complete"
            meta = bare.pop("_meta", {})
            assert definition.get("_meta", {}).items() <= meta.items()
            assert bare == {key: value for key, value in definition.items() if key != "_meta"}
        several = (await peer.call("tools/describe", modern(names=NAMES[::-1])))["result"]
        assert several["tools"] == full[::-1]
        assert several["resultType"] == "complete"
        unknown = (await peer.call("tools/describe", modern(name="nope")))["error"]
        assert unknown["code"] == -32602 and "nope" in unknown["message"]


@pytest.mark.parametrize("kind", DOORS)
@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("tools/describe", {"name": "add"}),
        ("tools/describe", {"names": ["add"]}),
        ("tools/describe", {"name": "nope"}),
        ("tools/describe", {"names": []}),
        ("tools/describe", {}),
        ("tools/manifest", {}),
        ("tools/manifest", {"cursor": "zz"}),
    ],
)
async def test_undeclared_methods_say_what_to_declare(kind, method, params):
    async with DOORS[kind]() as peer:
        error = (await peer.call(method, modern(declared=False, **params)))["error"]
        assert error["code"] == -32021
        assert error["data"] == {"requiredCapabilities": {"extensions": {EXTENSION: {}}}}


# Meta servers


async def test_a_meta_server_gives_a_delta_client_the_real_operations():
    server = demo(disclosure="meta")
    full = await full_list(demo())
    openings: list[Callable[[Peer], Awaitable[bytes]]] = [lambda peer: peer.delta(), lambda peer: peer.declaring()]
    for opening in openings:
        async with in_memory(server) as peer:
            await opening(peer)
            assert await peer.result("tools/list") == SUMMARIES
            bare = [await peer.result("tools/describe", {"name": name}) for name in NAMES]
            assert b'{"tools":[' + b",".join(bare) + b"]}" == full
            assert await peer.result("tools/describe", {"names": NAMES}) == full
            entries = (await peer.call("tools/manifest"))["result"]["entries"]
            assert [entry["name"] for entry in entries] == NAMES
            called = await peer.call("tools/call", {"name": "add", "arguments": {"a": 1}})
            assert called["result"]["content"][0]["text"] == "3"
            told = (await peer.call("tools/call", {"name": "fails"}))["result"]
            assert told["isError"] is True
    async with in_memory(server) as peer:
        await peer.delta()
        for method in ("tools/call", "tools/describe"):
            assert await peer.error(method, {"name": "nope"}) == b'{"code":-32602,"message":"Unknown tool: nope"}'


async def test_a_meta_server_answers_the_extension_in_the_modern_era_and_stays_itself_for_others():
    server = demo(disclosure="meta")
    async with in_memory(server) as peer:
        meta_tools = await peer.result("tools/list", modern(declared=False))
        assert not {tool["name"] for tool in json.loads(meta_tools)["tools"]} & set(NAMES)
        short = (await peer.call("tools/list", modern()))["result"]
        assert (short["tools"], short["cacheScope"]) == (json.loads(SUMMARIES)["tools"], "private")
        several = (await peer.call("tools/describe", modern(names=NAMES)))["result"]["tools"]
        assert several == json.loads(await full_list(demo()))["tools"]
        called = await peer.call("tools/call", modern(name="add", arguments={"a": 1}))
        assert called["result"]["content"][0]["text"] == "3"
        assert await peer.result("tools/list", modern(declared=False)) == meta_tools


async def test_a_meta_server_without_the_flag_gives_a_delta_client_the_real_operations_in_full():
    async with in_memory(demo(disclosure="meta")) as peer:
        assert json.loads(await peer.delta(progressive=False))["protocolVersion"] == DELTA
        assert await peer.result("tools/list") == await full_list(demo())


async def test_operations_in_categories_go_by_the_name_they_are_listed_under():
    server = DeltaServer("x", disclosure="meta")

    @server.tool(category="batch.posts", summary="Make a post.")
    async def create(title: str) -> str:
        return title

    async with in_memory(server) as peer:
        await peer.delta()
        (tool,) = json.loads(await peer.result("tools/list"))["tools"]
        described = json.loads(await peer.result("tools/describe", {"name": tool["name"]}))
        assert described["name"] == tool["name"]
        called = await peer.call("tools/call", {"name": tool["name"], "arguments": {"title": "t"}})
        assert called["result"]["content"][0]["text"] == '"t"'
