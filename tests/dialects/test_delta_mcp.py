"""The Delta-MCP dialect, byte for byte, and the MCP extension that offers the same to other clients.

Written from the specification of the original, not from our source.
"""

import asyncio
import json
import logging
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.shared.exceptions import MCPError

from deltamcp import ConfigurationError, DeltaServer
from tests.support.bytes_client import (
    ANSWER,
    ANSWER_OVER_HTTP,
    BASELINE,
    DELTA_VERSION,
    EXTENSION,
    HANDSHAKE_VERSIONS,
    BytesClient,
    http_clients,
    memory_client,
    modern_params,
    utf16_length,
)
from tests.support.demo_server import (
    DEMO_CONNECTIONS,
    DEMO_TOOLS,
    STDIO_DEMO,
    DemoConnection,
    demo_server,
    full_tool_list,
)
from tests.support.paths import ROOT
from tests.support.properties import examples

CAP = 60
SUMMARIES = (
    b'{"tools":[{"name":"write_file","description":"Write a file \xe2\x9c\x8d."},{"name":"add","description":"Add two '
    b'numbers."},{"name":"list_dir","description":"List a directory."},{"name":"fails","description":"Fail and say so."'
    b'},{"name":"breaks","description":"Break."}]}'
)


@pytest.fixture(params=DEMO_CONNECTIONS)
def door(request: pytest.FixtureRequest) -> DemoConnection:
    return DEMO_CONNECTIONS[request.param]


# initialize: CS-01, CS-10


async def test_the_answer_to_a_delta_client_is_the_originals_to_the_byte(door):
    async with door() as peer:
        assert await peer.delta() == peer.answer


@pytest.mark.parametrize("version", ["delta-mcp/0.2.0", "delta-mcp/0.9.9", "delta-mcp/0.0.1", "delta-mcp/0"])
async def test_a_compatible_version_gets_ours(version):
    async with memory_client(demo_server()) as peer:
        assert await peer.delta(version) == ANSWER
        assert await peer.result("tools/list") == SUMMARIES


@pytest.mark.parametrize(
    "version",
    ["delta-mcp/9.0.0", "delta-mcp/1.0.0", "delta-mcp/", "delta-mcp/00.2", "delta-mcp/x.2", "delta-mcp", "mcp2/0.2.0"],
)
async def test_an_incompatible_version_gets_the_baseline_and_full_schemas(version):
    async with memory_client(demo_server()) as peer:
        plain = await peer.standard()
    async with memory_client(demo_server()) as peer:
        answer = await peer.delta(version)
        assert answer == plain
        assert json.loads(answer)["protocolVersion"] == BASELINE
        assert b"progressiveDisclosure" not in answer and b"baselineVersion" not in answer
        assert await peer.result("tools/list") == await full_tool_list(demo_server())


async def test_an_incompatible_delta_client_gets_the_baseline_on_every_transport(door):
    async with door() as peer:
        assert json.loads(await peer.delta("delta-mcp/9.0.0"))["protocolVersion"] == BASELINE
        assert await peer.result("tools/list") == await full_tool_list(demo_server())


async def test_what_we_do_not_do_is_not_advertised():
    for open_ in (lambda peer: peer.delta(), lambda peer: peer.standard()):
        async with memory_client(demo_server()) as peer:
            answer = await open_(peer)
            for word in (b'"cbor":', b"schemaHashReferencing", b"codeExecution", b"oauth21"):
                assert word not in answer
    async with memory_client(demo_server()) as peer:
        assert "listChanged" not in json.loads(await peer.delta())["capabilities"]["tools"]


async def test_more_about_a_server_than_the_original_knows_is_not_in_its_answer():
    async with memory_client(
        demo_server(title="Demo", instructions="Read me.", website_url="https://example.org")
    ) as peer:
        assert await peer.delta() == ANSWER


async def test_a_server_always_has_a_name_and_a_version():
    async with memory_client(DeltaServer("x")) as peer:
        info = json.loads(await peer.delta())["serverInfo"]
        assert list(info) == ["name", "version"]
        assert info["name"] and info["version"]


async def test_the_client_need_not_say_who_it_is_or_what_it_can():
    async with memory_client(demo_server()) as peer:
        assert await peer.result("initialize", {"protocolVersion": DELTA_VERSION}) == ANSWER
        await peer.note("notifications/initialized")
        assert await peer.result("tools/list") == await full_tool_list(demo_server())


@pytest.mark.parametrize("flag", [True, 1, 0.5, "yes", "false", [], {}])
async def test_the_progressive_flag_counts_when_javascript_finds_it_true(flag):
    async with memory_client(demo_server()) as peer:
        assert await peer.delta(progressive=flag) == ANSWER
        assert await peer.result("tools/list") == SUMMARIES


@pytest.mark.parametrize("flag", [False, 0, "", None])
async def test_without_the_progressive_flag_there_are_full_schemas(flag):
    async with memory_client(demo_server()) as peer:
        assert await peer.delta(progressive=flag) == ANSWER
        assert await peer.result("tools/list") == await full_tool_list(demo_server())


async def test_the_flag_is_nothing_to_a_plain_client():
    async with memory_client(demo_server()) as peer:
        await peer.initialize(BASELINE, {"tools": {"progressiveDisclosure": True, "lazyLoading": True}})
        assert await peer.result("tools/list") == await full_tool_list(demo_server())


# tools/list and tools/describe: CS-02


async def test_a_progressive_list_is_names_and_summaries_in_the_order_of_registration(door):
    async with door() as peer:
        await peer.delta()
        assert await peer.result("tools/list") == SUMMARIES
        assert await peer.result("tools/list", {}) == SUMMARIES


async def test_a_progressive_list_ignores_its_params():
    async with memory_client(demo_server()) as peer:
        await peer.delta()
        for params in ({"cursor": "zz"}, {"cursor": 5}, {"detail": "full"}):
            assert await peer.result("tools/list", params) == SUMMARIES


@pytest.mark.parametrize("progressive", [True, False])
async def test_a_delta_session_gets_its_list_in_one_piece(progressive):
    async with memory_client(demo_server(page_size=2)) as peer:
        await peer.delta(progressive=progressive)
        assert await peer.result("tools/list") == (SUMMARIES if progressive else await full_tool_list(demo_server()))


async def test_describe_gives_the_bare_definition_as_the_full_list_has_it(door):
    full = await full_tool_list(demo_server())
    async with door() as peer:
        await peer.delta()
        bare = [await peer.result("tools/describe", {"name": name}) for name in DEMO_TOOLS]
    assert b'{"tools":[' + b",".join(bare) + b"]}" == full
    for name, definition in zip(DEMO_TOOLS, map(json.loads, bare), strict=True):
        assert definition["name"] == name
        assert definition["inputSchema"]["type"] == "object"


async def test_a_second_describe_is_the_first_again():
    async with memory_client(demo_server()) as peer:
        await peer.delta()
        first = await peer.result("tools/describe", {"name": "add"})
        assert await peer.result("tools/describe", {"name": "add"}) == first


async def test_describe_works_for_standard_clients_too():
    async with memory_client(demo_server()) as peer:
        await peer.standard()
        bare = [await peer.result("tools/describe", {"name": name}) for name in DEMO_TOOLS]
    assert b'{"tools":[' + b",".join(bare) + b"]}" == await full_tool_list(demo_server())


async def test_what_is_registered_later_is_listed_and_described_and_what_is_removed_is_unknown():
    server = demo_server()
    async with memory_client(server) as peer:
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
    server = demo_server()

    @server.tool(scopes=["admin"])
    async def secret() -> str:
        """Only for some."""
        return "x"

    async with memory_client(server) as peer:
        await peer.delta()
        assert await peer.result("tools/list") == SUMMARIES
        for method in ("tools/describe", "tools/call"):
            assert await peer.error(method, {"name": "secret"}) == b'{"code":-32602,"message":"Unknown tool: secret"}'
        several = await peer.call("tools/describe", {"names": ["add", "secret"]})
        assert several["error"]["data"] == {"unknownNames": ["secret"]}
        entries = (await peer.call("tools/manifest"))["result"]["entries"]
        assert [entry["name"] for entry in entries] == DEMO_TOOLS


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
    async with memory_client(demo_server()) as peer:
        await peer.delta(progressive=progressive)
        assert await peer.error(method, params) == error


@pytest.mark.parametrize(("name", "text"), [(None, "null"), (True, "true"), (False, "false"), (5, "5"), (1.5, "1.5")])
@pytest.mark.parametrize("method", ["tools/describe", "tools/call"])
async def test_a_name_that_is_no_string_is_written_as_javascript_writes_it(method, name, text):
    async with memory_client(demo_server()) as peer:
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
    async with memory_client(demo_server()) as peer:
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
    async with memory_client(demo_server()) as peer:
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
    async with memory_client(demo_server()) as peer:
        await peer.delta()
        for body, code in [(b"{", -32700), (b"42", -32600), (b'"hello"', -32600), (b"null", -32600), (b"[]", -32600)]:
            answer = json.loads(await peer._exchange(body, {}))
            assert (answer["id"], answer["error"]["code"]) == (None, code)
        assert await peer.result("tools/list") == SUMMARIES


# CS-13: sessions


async def test_standard_and_delta_sessions_stand_side_by_side_over_http():
    full = await full_tool_list(demo_server())
    async with http_clients(demo_server()) as join:
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
    full = await full_tool_list(demo_server())
    async with http_clients(demo_server()) as join:

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
    async with http_clients(demo_server()) as join:
        delta = join()
        await delta.delta()
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}).encode()
        without = await join().post(body, mcp_protocol_version=BASELINE)
        assert b'{"name":"add","description":"Add two numbers."}' not in without.content
        unknown = await join().post(body, mcp_protocol_version=BASELINE, mcp_session_id="nobody")
        assert unknown.status_code == 404


@pytest.mark.parametrize("header", [None, "2025-11-25", "2025-06-18", "2025-03-26"])
async def test_the_headers_of_the_originals_client_are_accepted(header):
    async with http_clients(demo_server()) as join:
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
    server = demo_server()
    full = await full_tool_list(demo_server())
    async with (
        memory_client(server) as delta,
        memory_client(server) as standard,
        memory_client(server) as declaring,
    ):
        await delta.delta()
        await standard.standard()
        await declaring.declaring()
        for _ in range(2):
            assert await delta.result("tools/list") == SUMMARIES
            assert await standard.result("tools/list") == full
            assert await declaring.result("tools/list") == SUMMARIES


async def test_both_eras_share_a_connection_and_each_request_gets_what_it_declared():
    full = await full_tool_list(demo_server())
    async with memory_client(demo_server()) as peer:
        await peer.delta()
        for _ in range(2):
            plain = await peer.call("tools/list", modern_params(declared=False))
            assert plain["result"]["tools"] == json.loads(full)["tools"]
            assert await peer.result("tools/list") == SUMMARIES
            declared = await peer.call("tools/list", modern_params())
            assert declared["result"]["tools"] == json.loads(SUMMARIES)["tools"]
    async with memory_client(demo_server()) as peer:
        await peer.standard()
        assert (await peer.call("tools/list", modern_params()))["result"]["tools"] == json.loads(SUMMARIES)["tools"]
        assert await peer.result("tools/list") == full


# The official SDK: CS-12


async def test_the_official_client_sees_an_ordinary_server():
    parameters = StdioServerParameters(command=sys.executable, args=["-c", STDIO_DEMO], cwd=ROOT)
    async with Client(stdio_client(parameters), mode="legacy") as client:
        assert client.server_capabilities.tools is not None
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert list(tools) == DEMO_TOOLS
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
        with_summary = await full_tool_list(server(summary="Short."), version)
        assert with_summary == await full_tool_list(server(), version)
        assert b"ummary" not in with_summary and b"Short." not in with_summary


async def test_the_full_list_stays_the_same_whoever_else_asks():
    server = demo_server()
    before = {version: await full_tool_list(server, version) for version in HANDSHAKE_VERSIONS}
    async with memory_client(server) as peer:
        plain = await peer.result("tools/list", modern_params(declared=False))
    async with memory_client(server) as delta, memory_client(server) as declaring:
        await delta.delta()
        await declaring.declaring("2025-06-18")
        for peer in (delta, declaring):
            await peer.result("tools/list")
            await peer.result("tools/describe", {"names": DEMO_TOOLS})
            await peer.result("tools/manifest")
            await peer.result("tools/list", modern_params())
        assert await delta.result("tools/list", modern_params(declared=False)) == plain
        assert {version: await full_tool_list(server, version) for version in HANDSHAKE_VERSIONS} == before


# Sixty characters


def register(server: DeltaServer, **options: Any) -> None:
    async def tool() -> None: ...

    server.tool(name="the_tool", **options)(tool)


async def listed(server: DeltaServer) -> str:
    async with memory_client(server) as peer:
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
    assert utf16_length(text) > CAP
    with pytest.raises(ConfigurationError, match="60 chars") as caught:
        register(DeltaServer("x", strict=True), **options(text))
    assert "the_tool" in str(caught.value)


@pytest.mark.parametrize("text", SHORT)
@pytest.mark.parametrize("strict", [True, False])
async def test_what_fits_is_listed_as_it_is(text, strict, caplog):
    assert utf16_length(text) <= CAP
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
    assert 0 < utf16_length(summary) <= CAP
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


@settings(max_examples=examples(200), derandomize=True)
@given(st.text(max_size=200), st.one_of(st.none(), st.text(max_size=200)))
def test_no_summary_is_ever_too_long(description, summary):
    server = DeltaServer("x")
    register(server, description=description, **({} if summary is None else {"summary": summary}))
    found = asyncio.run(listed(server))
    assert utf16_length(found) <= CAP
    if summary and utf16_length(summary) <= CAP and summary.strip() == summary and summary.isprintable():
        assert found == summary


# The extension


@pytest.mark.parametrize("http", [False, True])
async def test_the_modern_era_advertises_the_extension(http):
    async with DEMO_CONNECTIONS["http" if http else "memory"]() as peer:
        for declared in (True, False):
            capabilities = (await peer.call("server/discover", modern_params(declared)))["result"]["capabilities"]
            assert isinstance(capabilities["extensions"][EXTENSION], dict)
            assert "experimental" not in capabilities


@pytest.mark.parametrize("version", HANDSHAKE_VERSIONS)
async def test_the_handshake_era_advertises_it_as_experimental_and_takes_it_so(version):
    async with memory_client(demo_server()) as peer:
        capabilities = json.loads(await peer.declaring(version))["capabilities"]
        assert isinstance(capabilities["experimental"][EXTENSION], dict)
        assert "extensions" not in capabilities
        assert await peer.result("tools/list") == SUMMARIES
        bare = [await peer.result("tools/describe", {"name": name}) for name in DEMO_TOOLS]
        assert b'{"tools":[' + b",".join(bare) + b"]}" == await full_tool_list(demo_server(), version)
        assert await peer.result("tools/describe", {"names": DEMO_TOOLS}) == await full_tool_list(
            demo_server(), version
        )


@pytest.mark.parametrize("capabilities", [{}, {"experimental": {}}, {"experimental": {"x/y": {}}}])
async def test_who_does_not_declare_it_gets_the_full_list(capabilities):
    async with memory_client(demo_server()) as peer:
        capabilities_of_the_answer = json.loads(await peer.initialize(BASELINE, capabilities))["capabilities"]
        assert EXTENSION in capabilities_of_the_answer["experimental"]
        assert await peer.result("tools/list") == await full_tool_list(demo_server())


async def test_a_plain_client_with_the_extension_keeps_the_errors_of_mcp():
    async with memory_client(demo_server()) as peer, memory_client(demo_server()) as plain:
        await peer.declaring()
        await plain.standard()
        for method, params in [("x/y", {}), ("tools/call", {"name": "nope"}), ("tools/list", {"cursor": "zz"})]:
            assert await peer.error(method, params) == await plain.error(method, params)


@pytest.mark.parametrize("kind", DEMO_CONNECTIONS)
async def test_a_declared_extension_gives_summaries_in_the_modern_era(kind):
    async with DEMO_CONNECTIONS[kind]() as peer:
        full = (await peer.call("tools/list", modern_params(declared=False)))["result"]
        short = (await peer.call("tools/list", modern_params()))["result"]
        assert short["tools"] == json.loads(SUMMARIES)["tools"]
        assert [tool["name"] for tool in full["tools"]] == DEMO_TOOLS
        assert all("inputSchema" in tool for tool in full["tools"])
        assert short["cacheScope"] == "private"
        assert (short["resultType"], short["ttlMs"]) == ("complete", full["ttlMs"])
        assert (await peer.call("tools/list", modern_params(declared=False)))["result"] == full


@pytest.mark.parametrize("kind", DEMO_CONNECTIONS)
async def test_describe_in_the_modern_era(kind):
    async with DEMO_CONNECTIONS[kind]() as peer:
        full = (await peer.call("tools/list", modern_params(declared=False)))["result"]["tools"]
        for definition in full:
            bare = (await peer.call("tools/describe", modern_params(name=definition["name"])))["result"]
            assert bare.pop("resultType") == "complete"
            meta = bare.pop("_meta", {})
            assert definition.get("_meta", {}).items() <= meta.items()
            assert bare == {key: value for key, value in definition.items() if key != "_meta"}
        several = (await peer.call("tools/describe", modern_params(names=DEMO_TOOLS[::-1])))["result"]
        assert several["tools"] == full[::-1]
        assert several["resultType"] == "complete"
        unknown = (await peer.call("tools/describe", modern_params(name="nope")))["error"]
        assert unknown["code"] == -32602 and "nope" in unknown["message"]


@pytest.mark.parametrize("kind", DEMO_CONNECTIONS)
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
    async with DEMO_CONNECTIONS[kind]() as peer:
        error = (await peer.call(method, modern_params(declared=False, **params)))["error"]
        assert error["code"] == -32021
        assert error["data"] == {"requiredCapabilities": {"extensions": {EXTENSION: {}}}}


# Meta servers


async def test_a_meta_server_gives_a_delta_client_the_real_operations():
    server = demo_server(disclosure="meta")
    full = await full_tool_list(demo_server())
    openings: list[Callable[[BytesClient], Awaitable[bytes]]] = [
        lambda peer: peer.delta(),
        lambda peer: peer.declaring(),
    ]
    for opening in openings:
        async with memory_client(server) as peer:
            await opening(peer)
            assert await peer.result("tools/list") == SUMMARIES
            bare = [await peer.result("tools/describe", {"name": name}) for name in DEMO_TOOLS]
            assert b'{"tools":[' + b",".join(bare) + b"]}" == full
            assert await peer.result("tools/describe", {"names": DEMO_TOOLS}) == full
            entries = (await peer.call("tools/manifest"))["result"]["entries"]
            assert [entry["name"] for entry in entries] == DEMO_TOOLS
            called = await peer.call("tools/call", {"name": "add", "arguments": {"a": 1}})
            assert called["result"]["content"][0]["text"] == "3"
            told = (await peer.call("tools/call", {"name": "fails"}))["result"]
            assert told["isError"] is True
    async with memory_client(server) as peer:
        await peer.delta()
        for method in ("tools/call", "tools/describe"):
            assert await peer.error(method, {"name": "nope"}) == b'{"code":-32602,"message":"Unknown tool: nope"}'


async def test_a_meta_server_answers_the_extension_in_the_modern_era_and_stays_itself_for_others():
    server = demo_server(disclosure="meta")
    async with memory_client(server) as peer:
        meta_tools = await peer.result("tools/list", modern_params(declared=False))
        assert not {tool["name"] for tool in json.loads(meta_tools)["tools"]} & set(DEMO_TOOLS)
        short = (await peer.call("tools/list", modern_params()))["result"]
        assert (short["tools"], short["cacheScope"]) == (json.loads(SUMMARIES)["tools"], "private")
        several = (await peer.call("tools/describe", modern_params(names=DEMO_TOOLS)))["result"]["tools"]
        assert several == json.loads(await full_tool_list(demo_server()))["tools"]
        called = await peer.call("tools/call", modern_params(name="add", arguments={"a": 1}))
        assert called["result"]["content"][0]["text"] == "3"
        assert await peer.result("tools/list", modern_params(declared=False)) == meta_tools


async def test_a_meta_server_without_the_flag_gives_a_delta_client_the_real_operations_in_full():
    async with memory_client(demo_server(disclosure="meta")) as peer:
        assert json.loads(await peer.delta(progressive=False))["protocolVersion"] == DELTA_VERSION
        assert await peer.result("tools/list") == await full_tool_list(demo_server())


async def test_operations_in_categories_go_by_the_name_they_are_listed_under():
    server = DeltaServer("x", disclosure="meta")

    @server.tool(category="batch.posts", summary="Make a post.")
    async def create(title: str) -> str:
        return title

    async with memory_client(server) as peer:
        await peer.delta()
        (tool,) = json.loads(await peer.result("tools/list"))["tools"]
        described = json.loads(await peer.result("tools/describe", {"name": tool["name"]}))
        assert described["name"] == tool["name"]
        called = await peer.call("tools/call", {"name": tool["name"], "arguments": {"title": "t"}})
        assert called["result"]["content"][0]["text"] == '"t"'
