"""HTTP as the original server of Delta-MCP speaks it, from its specification: order, statuses, texts."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import httpx2
import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from deltamcp import (
    ConfigurationError,
    Context,
    DeltaServer,
    HostAuth,
    Limits,
    Principal,
    Rate,
    RateLimits,
    ResourceServer,
    ResultPolicy,
)
from deltamcp.auth.authenticator import Credentials
from deltamcp.auth.bearer import TokenFault, refusal
from deltamcp.errors import Fault
from deltamcp.transports.http.delta_mcp import DeltaMcpApp, write_challenge
from deltamcp.values import Failure
from deltamcp.wire.codecs import CODECS
from tests.support.asgi_client import AsgiClient
from tests.support.bytes_client import ANSWER, BASELINE
from tests.support.compat_client import DELTA_OFFER, PRM_PATH, STANDARD_OFFER, CompatClient, compat_client
from tests.support.conditions import HANG_SECONDS
from tests.support.demo_server import DEMO_TOOLS, demo_server, full_tool_list
from tests.support.fake_issuer import RESOURCE, serve_issuer
from tests.support.http_server import serve_http
from tests.support.properties import examples
from tests.support.strategies import any_json

APP = "https://app.example"
LIST = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
INVALID = b'{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"Invalid Request"}}'
UNREADABLE = b'{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"Parse error"}}'
MISSING_VERSION = b'{"error":"Missing MCP-Protocol-Version header"}'
METADATA = 'resource_metadata="https://tools.example/.well-known/oauth-protected-resource/mcp"'


def only_ada(scope: Mapping[str, Any]) -> Principal | None:
    sent = dict(scope["headers"]).get(b"authorization", b"")
    if sent == b"Bearer broken":
        raise RuntimeError("the database of users is gone")
    return Principal(sent.removeprefix(b"Bearer ").decode()) if sent in (b"Bearer ada", b"Bearer bob") else None


# The order of checks: each request breaks every rule from its own on, and the first rule answers


@pytest.mark.parametrize(
    ("method", "headers", "body", "status", "expected"),
    [
        ("OPTIONS", {"origin": "https://evil.example"}, b"", 403, b""),
        ("GET", {"origin": "https://evil.example"}, b"", 403, b""),
        ("POST", {"origin": "https://evil.example"}, b"{", 403, b""),
        ("POST", {"origin": "http://localhost"}, b"{", 403, b""),
        ("POST", {"origin": f"{APP}/"}, b"{", 403, b""),
        ("OPTIONS", {"origin": APP}, b"", 204, b""),
        ("OPTIONS", {}, b"", 405, b""),
        ("GET", {"origin": APP}, b"", 405, b""),
        ("GET", {"accept": "text/event-stream"}, b"", 405, b""),
        ("DELETE", {}, b"", 405, b""),
        ("HEAD", {}, b"", 405, b""),
        ("PUT", {}, b"{", 405, b""),
        ("POST", {}, b"x" * 2000, 401, b""),
        ("POST", {"authorization": "Bearer eve"}, b"x" * 2000, 401, b""),
        ("POST", {"authorization": "Bearer ada"}, b"x" * 2000, 413, b""),
        ("POST", {"authorization": "Bearer ada"}, b"{", 400, UNREADABLE),
        ("POST", {"authorization": "Bearer ada"}, b"\xff", 400, UNREADABLE),
        ("POST", {"authorization": "Bearer ada"}, b"", 400, UNREADABLE),
        ("POST", {"authorization": "Bearer ada"}, b"42", 400, INVALID),
        ("POST", {"authorization": "Bearer ada"}, b"null", 400, INVALID),
        ("POST", {"authorization": "Bearer ada"}, json.dumps([LIST]).encode(), 400, INVALID),
        ("POST", {"authorization": "Bearer ada"}, b'{"jsonrpc":"2.0","id":1,"result":{}}', 400, INVALID),
        ("POST", {"authorization": "Bearer ada"}, b'{"jsonrpc":"1.0","id":1,"method":"x"}', 400, INVALID),
        ("POST", {"authorization": "Bearer ada"}, json.dumps(LIST).encode(), 400, MISSING_VERSION),
        ("POST", {"authorization": "Bearer ada"}, b'{"jsonrpc":"2.0","method":"x"}', 400, MISSING_VERSION),
        (
            "POST",
            {"authorization": "Bearer ada", "mcp-protocol-version": "2026-07-28"},
            json.dumps(LIST).encode(),
            400,
            b'{"error":"Unsupported MCP-Protocol-Version: 2026-07-28"}',
        ),
        (
            "POST",
            {"authorization": "Bearer ada", "mcp-protocol-version": 'x"' + "y" * 200},
            json.dumps({**LIST, "method": "initialize"}).encode(),
            400,
            b'{"error":"Unsupported MCP-Protocol-Version: x\\"' + b"y" * 98 + b'"}',
        ),
        (
            "POST",
            {"authorization": "Bearer ada", "mcp-protocol-version": BASELINE},
            b'{"jsonrpc":"2.0","id":7,"method":"x/y"}',
            200,
            b'{"jsonrpc":"2.0","id":7,"error":{"code":-32601,"message":"Unknown method: x/y"}}',
        ),
        (
            "POST",
            {"authorization": "Bearer ada", "mcp-protocol-version": BASELINE},
            b'{"jsonrpc":"2.0","method":"x/y"}',
            202,
            b"",
        ),
    ],
)
async def test_the_first_rule_that_a_request_breaks_answers_it(method, headers, body, status, expected):
    server = demo_server(limits=Limits(message_bytes=1024))
    async with compat_client(server, allowed_origins=[APP], auth=HostAuth(only_ada)) as client:
        answer = await client.http.request(method, "/any/path", content=body, headers=headers)
        assert (answer.status_code, answer.content) == (status, expected)
        assert answer.headers["mcp-protocol-version"] == BASELINE
        assert answer.headers.get("content-type") == ("application/json" if expected else None)
        assert answer.headers.get("allow") == ("POST" if status == 405 else None)
        assert answer.headers.get("www-authenticate") == ('Bearer realm="delta-mcp"' if status == 401 else None)
        assert answer.headers.get("connection") == ("close" if status == 413 else None)
        allowed = headers.get("origin") == APP
        assert answer.headers.get("access-control-allow-origin") == (APP if allowed else None)
        assert answer.headers.get("vary") == ("Origin" if allowed else None)
        assert ("access-control-allow-methods" in answer.headers) == (status == 204)
        assert "mcp-session-id" not in answer.headers


async def test_a_preflight_names_what_the_original_s_does():
    async with compat_client(demo_server(), allowed_origins=[APP]) as client:
        answer = await client.http.options("/", headers={"origin": APP, "access-control-request-method": "POST"})
        assert dict(answer.headers) == {
            "mcp-protocol-version": BASELINE,
            "access-control-allow-origin": APP,
            "vary": "Origin",
            "access-control-expose-headers": "Mcp-Session-Id, MCP-Protocol-Version, WWW-Authenticate",
            "access-control-allow-methods": "POST, OPTIONS",
            "access-control-allow-headers": "Content-Type, Accept, Authorization, MCP-Protocol-Version, Mcp-Session-Id",
            "access-control-max-age": "86400",
        }


async def test_two_origins_or_two_tokens_count_as_neither():
    async with compat_client(demo_server(), allowed_origins=[APP], auth=HostAuth(only_ada)) as client:
        twice = [("origin", APP), ("origin", APP), ("authorization", "Bearer ada")]
        assert (await client.http.post("/", headers=twice)).status_code == 403
    async with compat_client(demo_server(), auth=ResourceServer(RESOURCE, "https://issuer.example")) as client:
        twice = [("authorization", "Bearer a"), ("authorization", "Bearer b")]
        assert (await client.http.post("/", headers=twice)).headers["www-authenticate"].endswith(METADATA)


async def test_a_body_that_is_too_large_ends_the_connection():
    async with serve_http(demo_server(limits=Limits(message_bytes=1024)), compat=True) as url:
        async with asyncio.timeout(HANG_SECONDS):
            reader, writer = await asyncio.open_connection("127.0.0.1", httpx2.URL(url).port)
            writer.write(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 2000\r\n\r\n" + b"x" * 2000)
            head, _, body = (await reader.read()).partition(b"\r\n\r\n")  # to the end of the connection
            writer.close()
        assert head.startswith(b"HTTP/1.1 413 ") and b"connection: close" in head.lower() and body == b""


async def test_what_fails_inside_is_500_without_a_word_and_the_server_lives(caplog):
    async with compat_client(demo_server(), auth=HostAuth(only_ada)) as client:
        answer = await client.post(LIST, {"authorization": "Bearer broken"})
        assert (answer.status_code, answer.content) == (500, b"")
        assert answer.headers["mcp-protocol-version"] == BASELINE
        assert (await client.post(LIST, {"authorization": "Bearer ada"})).status_code == 200
    assert "the database of users is gone" in caplog.text


async def test_a_request_that_takes_too_long_is_504_and_is_stopped():
    server = DeltaServer("x", limits=Limits(handler_seconds=0.05))
    stopped = asyncio.Event()

    @server.tool
    async def hang() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    async with compat_client(server) as client:
        answer = await client.request("tools/call", {"name": "hang"})
        assert (answer.status_code, answer.content) == (504, b"")
        assert stopped.is_set()
        assert (await client.post(LIST)).status_code == 200


async def test_a_call_ends_when_its_client_leaves():
    server = DeltaServer("x")
    began, stopped = asyncio.Event(), asyncio.Event()

    @server.tool
    async def hang() -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    async with server.engine.lifespan.running(), asyncio.timeout(HANG_SECONDS):
        app = server.asgi(compat=True)
        client = AsgiClient(app)
        client.headers["mcp-protocol-version"] = BASELINE
        call = client.request(1, "tools/call", name="hang", arguments={})
        await began.wait()
        call.leave()
        await call.task
        await stopped.wait()
        assert isinstance(app, DeltaMcpApp)
        assert not any(getattr(app._quotas, name)._held for name in app._quotas.__slots__)


# Sessions


@pytest.mark.parametrize("results", [None, ResultPolicy(compat=True)])
async def test_the_answer_to_a_delta_client_is_the_originals_to_the_byte(results):
    async with compat_client(demo_server(results=results)) as client:
        offer = {**DELTA_OFFER, "capabilities": {"tools": {"progressiveDisclosure": True}, "encoding": {"cbor": True}}}
        answer = await client.request("initialize", offer, id_=5)
        assert answer.content == b'{"jsonrpc":"2.0","id":5,"result":%b}' % ANSWER


async def test_a_plain_client_is_promised_nothing_that_needs_a_stream():
    server = demo_server()
    server.prompt(lambda: "x", name="ask")
    server.resource("notes://all", name="notes")(lambda: "x")
    async with compat_client(server) as client:
        result = (await client.request("initialize", {**STANDARD_OFFER, "protocolVersion": "2025-06-18"})).json()[
            "result"
        ]
        assert result["protocolVersion"] == "2025-06-18"
        del result["capabilities"]["experimental"]
        assert result["capabilities"] == {name: {"listChanged": False} for name in ("tools", "prompts", "resources")}
        session = await client.open_session(STANDARD_OFFER)
        for method, params in (
            ("resources/subscribe", {"uri": "notes://all"}),
            ("logging/setLevel", {"level": "info"}),
        ):
            assert (await client.request(method, params, session)).json()["error"]["code"] == -32601


async def test_initialize_opens_a_session_also_as_a_notification_or_without_a_version():
    async with compat_client(demo_server()) as client:
        note = await client.post({"jsonrpc": "2.0", "method": "initialize", "params": DELTA_OFFER})
        assert (note.status_code, note.content) == (202, b"")
        assert "inputSchema" not in (await client.tools({"mcp-session-id": note.headers["mcp-session-id"]}))[0]
        bare = await client.request("initialize", headers={"mcp-protocol-version": ""})
        assert bare.json()["result"]["protocolVersion"] == BASELINE
        assert bare.headers["mcp-session-id"] != note.headers["mcp-session-id"]
        again = await client.request("initialize", DELTA_OFFER, {"mcp-session-id": note.headers["mcp-session-id"]})
        assert again.headers["mcp-session-id"] != note.headers["mcp-session-id"]
        wrong = await client.request("initialize", {"capabilities": 5})
        assert (wrong.status_code, wrong.json()["error"]["code"]) == (200, -32602)
        assert "mcp-session-id" not in wrong.headers


@pytest.mark.parametrize("session", [{}, {"mcp-session-id": "nobody"}])
async def test_without_a_session_there_are_full_schemas_and_the_originals_results_and_texts(session):
    async with compat_client(demo_server()) as client:
        listed = await client.request("tools/list", headers=session)
        assert listed.content == b'{"jsonrpc":"2.0","id":1,"result":%b}' % await full_tool_list(demo_server())
        described = await client.request("tools/describe", {"name": "add"}, session)
        assert described.json()["result"] == listed.json()["result"]["tools"][DEMO_TOOLS.index("add")]
        called = await client.request("tools/call", {"name": "add", "arguments": {"a": 1}}, session)
        assert called.json()["result"] == {"content": [{"type": "text", "text": "3"}]}
        unknown = await client.request("tools/call", {"name": "nope"}, session)
        assert unknown.json()["error"] == {"code": -32602, "message": "Unknown tool: nope"}


async def test_a_session_is_only_its_own_principals():
    async with compat_client(demo_server(), auth=HostAuth(only_ada)) as client:
        ada, bob = {"authorization": "Bearer ada"}, {"authorization": "Bearer bob"}
        opened = await client.request("initialize", DELTA_OFFER, ada)
        session = {"mcp-session-id": opened.headers["mcp-session-id"]}
        assert "inputSchema" not in (await client.tools({**session, **ada}))[0]
        assert "inputSchema" in (await client.tools({**session, **bob}))[0]


async def test_sessions_are_bounded_and_the_one_unused_for_longest_goes_first():
    async with compat_client(demo_server(limits=Limits(sessions=3, account_share=1))) as client:
        first, second, third = [await client.open_session() for _ in range(3)]
        await client.tools(first)
        await client.open_session()
        assert "inputSchema" in (await client.tools(second))[0]
        assert "inputSchema" not in (await client.tools(first))[0]
        assert "inputSchema" not in (await client.tools(third))[0]


async def test_replicas_share_sessions(tmp_path):
    store = f"sqlite:///{tmp_path}/sessions.db"
    async with compat_client(demo_server(store=store)) as one, compat_client(demo_server(store=store)) as other:
        session = await one.open_session()
        assert "inputSchema" not in (await other.tools(session))[0]
        assert "inputSchema" in (await other.tools(await one.open_session(STANDARD_OFFER)))[0]
        assert "inputSchema" in (await other.tools({"mcp-session-id": "0" * 32}))[0]


async def test_a_tool_knows_who_calls():
    server = DeltaServer("x")

    @server.tool
    async def whoami(ctx: Context) -> str:
        return ctx.principal.id

    async with compat_client(server, auth=HostAuth(only_ada)) as client:
        answer = await client.request("tools/call", {"name": "whoami"}, {"authorization": "Bearer bob"})
        assert answer.json()["result"]["content"][0]["text"] == '"bob"'


# Codecs


@pytest.mark.parametrize(
    ("content_type", "accept", "sent", "received"),
    [
        ("", "", "json", "json"),
        ("text/plain", "text/event-stream", "json", "json"),
        ("application/json", "*/*", "json", "json"),
        ("application/json", "application/json; variant=compact, application/json", "json", "compact-json"),
        ("application/json; variant=compact", "application/json", "compact-json", "json"),
        ("application/json; variant=compact", "", "compact-json", "compact-json"),
        ("application/json; variant=compact", "*/*", "compact-json", "compact-json"),
        ("application/cbor", "", "cbor", "cbor"),
        ("application/cbor", "application/json", "cbor", "json"),
        ("application/json", "application/cbor;q=0", "json", "cbor"),
        ("application/json; VARIANT=COMPACT", "", "json", "json"),
    ],
)
async def test_codecs_are_chosen_by_what_headers_contain(content_type, accept, sent, received):
    async with compat_client(demo_server()) as client:
        body = CODECS[sent].encode({"jsonrpc": "2.0", "id": 1, "method": "tools/describe", "params": {"name": "add"}})
        answer = await client.post(body, {"content-type": content_type, "accept": accept})
        assert answer.headers["content-type"] == CODECS[received].content_type
        assert CODECS[received].decode(answer.content)["result"]["name"] == "add"


async def test_what_cannot_be_read_is_refused_in_json_whatever_the_codec():
    async with compat_client(demo_server()) as client:
        for kind in ("application/cbor", "application/json; variant=compact"):
            answer = await client.post(b"\xff{", {"content-type": kind, "accept": kind})
            assert (answer.status_code, answer.content) == (400, UNREADABLE)
            assert answer.headers["content-type"] == "application/json"


_HEADER = st.text(st.characters(codec="latin-1", categories=["L", "N", "P", "S"]), max_size=20)


@settings(max_examples=examples(200), derandomize=True)
@given(
    body=st.binary(max_size=200) | any_json.map(lambda value: json.dumps(value).encode()),
    method=st.sampled_from(["initialize", "tools/list", "tools/call", "tools/describe", "ping", "x"]),
    params=any_json,
    is_message=st.booleans(),
    headers=st.fixed_dictionaries(
        {},
        optional={
            "content-type": st.sampled_from([codec.content_type for codec in CODECS.values()]) | _HEADER,
            "accept": st.sampled_from([codec.content_type for codec in CODECS.values()]) | _HEADER,
            "mcp-protocol-version": st.just(BASELINE) | _HEADER,
            "mcp-session-id": _HEADER,
            "authorization": _HEADER,
        },
    ),
)
def test_whatever_is_sent_gets_an_answer_of_the_protocol(body, method, params, is_message, headers):
    if is_message:
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()

    async def send() -> httpx2.Response:
        async with compat_client(demo_server()) as client:
            encoded = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
            return await client.http.post("/", content=body, headers=encoded)

    answer = asyncio.run(send())
    assert answer.status_code in (200, 202, 400)
    assert answer.headers["mcp-protocol-version"] == BASELINE


# Credentials


async def test_the_document_comes_before_the_origin_and_the_challenge_names_it():
    async with serve_issuer() as issuer:
        auth = ResourceServer(RESOURCE, issuer.url)
        async with compat_client(demo_server(), auth=auth) as client:
            for path in (PRM_PATH, f"{PRM_PATH}/mcp", f"{PRM_PATH}?x=1"):
                answer = await client.http.get(path, headers={"origin": "https://evil.example"})
                assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (200, "*")
                assert answer.headers["content-type"] == "application/json"
                assert answer.json()["resource"] == RESOURCE
            assert (await client.http.options(PRM_PATH, headers={"origin": APP})).status_code == 403
            good = await client.post(LIST, {"authorization": f"Bearer {issuer.token()}"})
            assert good.status_code == 200
            for header, reason in [
                (None, None),
                ("Basic eA==", None),
                ("Bearer", None),
                (f"Bearer {issuer.token(exp=1)}", "expired"),
                (f"Bearer {issuer.token(exp=...)}", "missing_expiry"),
                (f"Bearer {issuer.token(aud='https://other.example')}", "invalid_audience"),
                (f"Bearer {issuer.token()[:-2]}xx", "invalid_signature"),
                ("Bearer a.b.c.d.e", "invalid_signature"),
                (f"Bearer {issuer.token(iss='https://other.example')}", "Token validation failed"),
            ]:
                answer = await client.post(LIST, {} if header is None else {"authorization": header})
                assert (answer.status_code, answer.content) == (401, b"")
                error = "" if reason is None else f', error="invalid_token", error_description="{reason}"'
                assert answer.headers["www-authenticate"] == f'Bearer realm="delta-mcp", {METADATA}{error}'


def test_every_reason_to_refuse_a_token_has_one_of_the_originals_words():
    auth = ResourceServer("https://tools.example", "https://issuer.example")
    words = set()
    for fault in TokenFault:
        challenge = write_challenge(auth, refusal(fault))
        assert challenge.startswith(f'Bearer realm="delta-mcp", resource_metadata="https://tools.example{PRM_PATH}"')
        words.add(challenge.partition(', error="invalid_token", error_description=')[2].strip('"'))
    assert words == {
        "",
        "expired",
        "missing_expiry",
        "invalid_audience",
        "invalid_signature",
        "introspection_failed",
        "Token validation failed",
    }


async def test_missing_scopes_are_403_with_the_scopes():
    async with serve_issuer() as issuer:
        auth = ResourceServer(RESOURCE, issuer.url, scopes=["write"])
        async with compat_client(demo_server(), auth=auth) as client:
            answer = await client.post(LIST, {"authorization": f"Bearer {issuer.token()}"})
            assert (answer.status_code, answer.content) == (403, b"")
            assert 'error="insufficient_scope"' in answer.headers["www-authenticate"]


class Busy:
    """Cannot tell at the moment who calls."""

    documents: Mapping[str, bytes] = {}

    async def authenticate(self, credentials: Credentials) -> Principal | Failure:
        return Failure(Fault.OVERLOADED, "Not now.", retry_seconds=4.2)

    def challenge(self, failure: Failure) -> str | None:
        return None

    async def close(self) -> None:
        pass


async def test_rates_come_before_everything_but_probes():
    auth = ResourceServer(RESOURCE, "https://issuer.example")
    server = demo_server(rate_limits=RateLimits(per_address=Rate(1, 60)))
    async with compat_client(server, auth=auth, allowed_origins=[APP]) as client:
        assert (await client.http.get(PRM_PATH)).status_code == 200
        for request in (("GET", PRM_PATH), ("OPTIONS", "/"), ("POST", "/"), ("DELETE", "/")):
            answer = await client.http.request(*request, headers={"origin": APP})
            assert (answer.status_code, answer.content) == (429, b"")
            assert 0 < int(answer.headers["retry-after"]) <= 60
            assert answer.headers["mcp-protocol-version"] == BASELINE
        for path in ("/healthz", "/readyz"):
            assert (await client.http.get(path)).status_code == 200


async def test_a_principal_has_a_rate_of_its_own():
    server = demo_server(rate_limits=RateLimits(per_principal=Rate(2, 60)))
    async with compat_client(server, auth=HostAuth(only_ada)) as client:
        sent = [await client.post(LIST, {"authorization": f"Bearer {name}"}) for name in ("ada", "ada", "ada", "bob")]
        assert [answer.status_code for answer in sent] == [200, 200, 429, 200]


async def test_what_the_original_has_no_status_for_is_a_status_without_a_body_too():
    async with compat_client(demo_server(), auth=Busy()) as client:
        answer = await client.post(LIST)
        assert (answer.status_code, answer.content, answer.headers["retry-after"]) == (503, b"", "5")


# How it is served


async def test_an_authors_own_pages_stand_beside_it_and_their_origins_are_checked():
    async def show(request: Request) -> PlainTextResponse:
        return PlainTextResponse(f"{request.method} here")

    routes = [Route("/page", show, methods=["GET", "POST"])]
    async with compat_client(demo_server(), routes=routes, allowed_origins=[APP]) as client:
        assert (await client.http.get("/page", headers={"origin": APP})).text == "GET here"
        assert (await client.http.post("/page")).text == "POST here"
        assert (await client.http.get("/page", headers={"origin": "https://evil.example"})).status_code == 403
        assert (await client.post(LIST, path="/pages")).status_code == 200


async def test_every_response_has_the_id_of_its_request_if_that_is_asked_for():
    async with compat_client(demo_server(), request_ids=True, auth=HostAuth(only_ada)) as client:
        for token, status in (("ada", 200), ("eve", 401), ("broken", 500)):
            answer = await client.post(LIST, {"authorization": f"Bearer {token}", "x-request-id": "abc"})
            assert (answer.status_code, answer.headers["x-request-id"]) == (status, "abc")


async def test_a_trusted_proxy_says_whose_rate_it_is():
    server = demo_server(rate_limits=RateLimits(per_address=Rate(1, 60)))
    async with compat_client(server, trusted_proxies=["127.0.0.1"]) as client:
        sent = [await client.post(LIST, {"x-forwarded-for": f"192.0.2.{last}"}) for last in (1, 1, 2)]
        assert [answer.status_code for answer in sent] == [200, 429, 200]


def test_an_option_that_would_be_without_effect_is_refused():
    with pytest.raises(ConfigurationError, match="leave out allowed_hosts"):
        demo_server().asgi(compat=True, allowed_hosts=["tools.example"])


async def test_it_serves_every_path_on_a_socket():
    async with serve_http(demo_server(), compat=True) as url, httpx2.AsyncClient() as http:
        client = CompatClient(http)
        for place in (url, url.removesuffix("/mcp"), f"{url}/x/y"):
            answer = await client.post(LIST, path=place)
            assert answer.headers["mcp-protocol-version"] == BASELINE
            assert [tool["name"] for tool in answer.json()["result"]["tools"]] == DEMO_TOOLS
