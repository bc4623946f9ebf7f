"""The client at servers of this library that speak MCP-lite, over HTTP and over gRPC."""

import asyncio
import sys
from typing import Any

import pytest

from deltamcp import Context, DeltaServer, ResultPolicy, StaticTokens, ToolFailure
from deltamcp.auth.static_tokens import make_token
from deltamcp.client.client import connect
from deltamcp.client.oauth.oauth import OAuth
from deltamcp.client.oauth.token_storage import (
    ClientIdentity,
    IssuedTokens,
    IssuerLogin,
    LoginRecord,
    MemoryStorage,
    encode_record,
)
from deltamcp.errors import (
    ArgumentsError,
    CallFailedError,
    ConfigurationError,
    ConnectionLostError,
    DeadlineError,
    NeedsResource,
    PeerError,
    ResourceNeededError,
    UnauthorizedError,
    UnreachableError,
)
from tests.client.certificates import Authority
from tests.support.lite_address import Binding, serve_lite
from tests.support.paths import FORKED_PROGRAM
from tests.support.processes import free_port

LARGE = 2**53 + 1
RIGHT, RIGHT_LINE = make_token("ada")


@pytest.fixture(params=["http", "grpc"])
def binding(request: Any) -> Binding:
    found: Binding = request.param
    return found


@pytest.fixture
def server() -> DeltaServer:
    server = DeltaServer("lite")

    @server.tool
    def echo(value: dict[str, Any], number: int = 0) -> dict[str, Any]:
        """Returns its arguments."""
        return {"value": value, "number": number}

    @server.tool
    def rows(count: int) -> list[dict[str, Any]]:
        """Returns rows."""
        return [{"n": n, "text": f"row {n} " * 20} for n in range(count)]

    @server.tool
    def pay(amount: int) -> str:
        """Declines."""
        raise ToolFailure("CARD_DECLINED", "Card was declined", retryable=True, details={"amount": amount})

    @server.tool
    def think() -> str:
        """Needs more."""
        raise NeedsResource("Needs 40k more tokens", kind="tokens", required=60_000)

    @server.tool
    async def greet(ctx: Context) -> str:
        """Asks for a name."""
        answer = await ctx.elicit("Who are you?", {"type": "object", "properties": {"name": {"type": "string"}}})
        return f"Hello {answer.content['name'] if answer.content else 'nobody'}"

    @server.tool
    async def steps(ctx: Context) -> str:
        """Reports its progress."""
        for done in range(1, 4):
            await ctx.report_progress(done, 3, f"step {done}")
        return "done"

    @server.tool
    async def hang() -> str:
        """Never returns."""
        await asyncio.sleep(600)
        return "never"

    return server


async def test_tools_are_listed_described_and_called(server, binding):
    async with serve_lite(server, binding) as address, connect(address) as client:
        assert {tool.name for tool in await client.tools()} >= {"echo", "rows", "pay"}
        [definition] = await client.describe("echo")
        assert definition["inputSchema"]["properties"]["number"]["type"] == "integer"
        assert await client.call("echo", value={"a": [1, 2.5, None, True, "ü"]}, number=7) == {
            "value": {"a": [1, 2.5, None, True, "ü"]},
            "number": 7,
        }
        assert client.server.is_lite
        assert client.server.name == ("lite" if binding == "http" else "unnamed")


async def test_deltas_work_over_http(server):
    async with serve_lite(server, "http") as address, connect(address, deltas=True) as client:
        first = await client.call_tool("rows", {"count": 60})
        again = await client.call_tool("rows", {"count": 60})
        assert first.value == again.value
        assert len(again.text) < len(first.text) / 10


async def test_large_integers_arrive_and_come_back_exactly(server, binding):
    async with serve_lite(server, binding) as address, connect(address) as client:
        assert (await client.call("echo", value={}, number=LARGE))["number"] == LARGE


async def test_arguments_are_checked_before_they_are_sent(server, binding):
    async with serve_lite(server, binding) as address, connect(address) as client:
        with pytest.raises(ArgumentsError, match="number"):
            await client.call("echo", value={}, number="many")


async def test_the_servers_own_check_says_where_the_arguments_are_wrong(server, binding):
    async with serve_lite(server, binding) as address, connect(address, validate=False) as client:
        with pytest.raises(PeerError) as caught:
            await client.call("echo", value={}, number="many")
    assert caught.value.code == -32602
    assert caught.value.data["reason"] == "INVALID_PARAMS"
    assert [problem["pointer"] for problem in caught.value.data["errors"]] == ["/number"]


async def test_an_unknown_tool_is_an_error_with_suggestions(server, binding):
    async with serve_lite(server, binding) as address, connect(address, validate=False) as client:
        with pytest.raises(PeerError) as caught:
            await client.call("ech")
    assert caught.value.code == -32601
    assert caught.value.data["reason"] == "TOOL_NOT_FOUND"
    assert caught.value.data["requested_tool"] == "ech"
    assert "echo" in caught.value.data["available_tools"]


async def test_a_failure_has_its_code(server, binding):
    async with serve_lite(server, binding) as address, connect(address) as client:
        with pytest.raises(CallFailedError, match="Card was declined") as caught:
            await client.call("pay", amount=5)
    assert (caught.value.code, caught.value.retryable, caught.value.details) == ("CARD_DECLINED", True, {"amount": 5})


async def test_a_request_for_a_resource_says_what_is_needed(server, binding):
    async with serve_lite(server, binding) as address, connect(address) as client:
        with pytest.raises(ResourceNeededError, match="40k more") as caught:
            await client.call("think")
    assert caught.value.resources == [{"kind": "tokens", "required": 60_000}]


async def test_a_question_is_answered(server, binding):
    async with serve_lite(server, binding) as address:
        async with connect(address, on_elicitation=lambda params: {"name": "Ada"}) as client:
            assert await client.call("greet") == "Hello Ada"


async def test_budgets_pages_and_handles_work_as_over_mcp(server, binding):
    async with serve_lite(server, binding) as address, connect(address) as client:
        reply = await client.call_tool("rows", {"count": 300}, want=ResultPolicy(max_tokens=500))
        assert reply.is_part and reply.handle is not None
        assert [row["n"] for row in await client.whole(reply)] == list(range(300))
        assert [row["n"] async for row in client.rows("rows", {"count": 40})] == list(range(40))


async def test_progress_is_reported(server, binding):
    told: list[Any] = []
    async with serve_lite(server, binding) as address, connect(address) as client:
        reply = await client.call_tool("steps", progress=lambda *report: told.append(report))
    assert reply.value == "done"
    assert told[-1] == (3, 3, "step 3")


async def test_a_deadline_ends_a_call(server, binding):
    async with serve_lite(server, binding) as address, connect(address) as client:
        with pytest.raises(DeadlineError):
            await client.call_tool("hang", timeout=0.3)
        assert (await client.call("echo", value={}))["number"] == 0


async def test_a_token_is_sent_and_another_one_asked_for_when_it_is_refused(server, binding, monkeypatch):
    monkeypatch.setenv("LITE_TOKENS", RIGHT_LINE)
    auth = StaticTokens(variable="LITE_TOKENS")
    async with serve_lite(server, binding, auth=auth) as address:
        async with connect(address, token=RIGHT) as client:
            assert await client.tools()
        tokens = iter(["old", RIGHT])
        async with connect(address, token=lambda: next(tokens)) as client:
            assert await client.tools()
        for options in ({}, {"token": "wrong"}):
            with pytest.raises(UnauthorizedError, match="token"):
                async with connect(address, **options) as client:  # type: ignore[arg-type]
                    await client.tools()
        async with connect(address, headers={"Authorization": f"Bearer {RIGHT}"}) as client:
            assert await client.tools()


async def test_a_login_at_the_http_address_serves_the_other_addresses(server, binding, monkeypatch):
    monkeypatch.setenv("LITE_TOKENS", RIGHT_LINE)
    resource, storage = "https://tools.example/mcp", MemoryStorage()
    login = IssuerLogin(ClientIdentity("me"), IssuedTokens(RIGHT))
    await storage.save(resource, encode_record(LoginRecord().with_login("https://login.example", login)))
    async with serve_lite(server, binding, auth=StaticTokens(variable="LITE_TOKENS")) as address:
        async with connect(address, auth=OAuth(resource=resource, storage=storage)) as client:
            assert await client.tools()


def test_a_login_over_grpc_needs_an_http_address():
    with pytest.raises(ConfigurationError, match="name its http address"):
        connect("grpc://localhost:1", auth=OAuth())


async def test_nobody_at_the_address_is_said_so(binding):
    scheme = "mcplite+http" if binding == "http" else "grpc"
    with pytest.raises(
        (UnreachableError, ConnectionLostError), match=r"cannot be reached: [\w ]*(: C|c)onnection refused\.$"
    ):
        async with connect(f"{scheme}://127.0.0.1:{free_port()}", start_timeout=20) as client:
            await client.tools()


async def test_a_server_that_comes_back_is_asked_again(server):
    served = server.grpc(port=0)
    await served.start()
    async with connect(served.address) as client:
        assert await client.call("echo", value={"n": 1})
        port = served.port
        await served.stop()
        again = server.grpc(port=port)
        await again.start()
        try:
            assert [tool.name for tool in await client.tools()]
            assert (await client.call("echo", value={"n": 2}))["value"] == {"n": 2}
        finally:
            await again.stop()


async def test_grpcs_trusts_the_authorities_that_https_trusts(server, tmp_path, monkeypatch):
    authority = Authority(tmp_path)
    served = server.grpc(port=0, tls_cert=authority.server_file("127.0.0.1"))
    await served.start()
    try:
        assert served.address.startswith("grpcs://")
        with pytest.raises((UnreachableError, ConnectionLostError), match="cannot be reached"):
            async with connect(served.address, timeout=30) as client:
                await client.tools()
        monkeypatch.setenv("SSL_CERT_FILE", str(authority.file))
        async with connect(served.address) as client:
            assert (await client.call("echo", value={"a": 1}))["value"] == {"a": 1}
    finally:
        await served.stop()


async def test_a_file_and_a_command_line_speak_mcp_lite_over_stdio(tmp_path):
    file = tmp_path / "shelf.py"
    file.write_text(
        "from deltamcp import DeltaServer\n\nserver = DeltaServer('shelf', '1')\n\n\n"
        "@server.tool\ndef add(a: int, b: int) -> dict:\n    return {'sum': a + b}\n"
    )
    for target in (str(file), [str(FORKED_PROGRAM), "serve", "--mcp-lite", str(file)]):
        async with connect(target, speak="mcp-lite", quiet=True) as client:
            assert (client.server.protocol, client.server.name) == ("mcp-lite", "shelf")
            assert await client.call("add", a=1, b=2) == {"sum": 3}


async def test_a_server_in_this_process_speaks_mcp_lite(server):
    async with connect(server, speak="mcp-lite") as client:
        assert client.server.is_lite
        with pytest.raises(CallFailedError) as caught:
            await client.call("pay", amount=1)
    assert caught.value.code == "CARD_DECLINED"


def test_an_address_of_grpc_has_no_path():
    with pytest.raises(ConfigurationError, match="no path"):
        connect("grpc://localhost:1/mcp")


def test_without_the_packages_of_grpc_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "grpc", None)
    monkeypatch.delitem(sys.modules, "deltamcp.client.links.grpc", raising=False)
    monkeypatch.delitem(sys.modules, "deltamcp.client.links.grpc", raising=False)

    async def main() -> None:
        async with connect("grpc://127.0.0.1:1"):
            pass

    with pytest.raises(ConfigurationError, match=r"pip install 'delta-mcp\[grpc\]'"):
        asyncio.run(main())
