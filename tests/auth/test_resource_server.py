"""The resource server: its documents, its challenges, and who it says is calling."""

import json
import time
from typing import Any

import pytest

from deltamcp import ConfigurationError, Context, DeltaServer, Limits, ResourceServer
from deltamcp.auth.authenticator import Credentials
from deltamcp.auth.bearer import TOKEN_FAULTS, TokenFault
from deltamcp.errors import Fault
from deltamcp.values import Failure, Principal
from deltamcp.wire import frames
from tests.support.asgi_client import AsgiClient
from tests.support.fake_issuer import RESOURCE, serve_issuer
from tests.support.raw_client import META

METADATA_URL = "https://tools.example/.well-known/oauth-protected-resource/mcp"


async def authenticate(auth: ResourceServer, header: str | None) -> Principal | Failure:
    return await auth.authenticate(Credentials(header, {}))


def test_a_resource_server_that_cannot_verify_is_refused_with_what_to_pass() -> None:
    with pytest.raises(ConfigurationError, match="pass issuer="):
        ResourceServer(RESOURCE)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"resource": "http://tools.example/mcp"}, "resource"),
        ({"resource": "https://tools.example/mcp#part"}, "resource"),
        ({"resource": "https://user:word@tools.example/mcp"}, "resource"),
        ({"resource": "https://tools.example:port/mcp"}, "resource"),
        ({"resource": "tools.example"}, "resource"),
        ({"issuer": "http://issuer.example"}, "issuer"),
        ({"jwks_url": "http://issuer.example/jwks"}, "jwks_url"),
        ({"jwks_url": "file:///etc/keys"}, "jwks_url"),
        ({"algorithms": ["HS256"]}, "HS256"),
        ({"algorithms": ["none"]}, "none"),
        ({"algorithms": []}, "algorithms"),
        ({"scopes": ["two words"]}, "two words"),
        ({"leeway_seconds": 3600}, "leeway_seconds"),
        ({"leeway_seconds": -1}, "leeway_seconds"),
    ],
)
def test_options_that_would_be_unsafe_are_refused(options: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigurationError, match=named):
        ResourceServer(**{"resource": RESOURCE, "issuer": "https://issuer.example", **options})


@pytest.mark.parametrize(
    ("resource", "paths"),
    [
        (RESOURCE, ["", "/mcp"]),
        ("https://tools.example/a/b/", ["", "/a/b"]),
        ("https://tools.example", [""]),
        ("https://tools.example/", [""]),
    ],
)
def test_the_document_is_at_the_root_and_at_the_resource_s_path(resource: str, paths: list[str]) -> None:
    auth = ResourceServer(resource, "https://issuer.example", scopes=["read"], step_up=["write"], name="Tools")
    assert list(auth.documents) == [f"/.well-known/oauth-protected-resource{path}" for path in paths]
    for document in auth.documents.values():
        assert json.loads(document) == {
            "resource": resource,
            "authorization_servers": ["https://issuer.example"],
            "scopes_supported": ["read", "write"],
            "bearer_methods_supported": ["header"],
            "resource_name": "Tools",
        }


def test_every_fault_has_a_text_that_a_header_can_carry() -> None:
    assert set(TOKEN_FAULTS) == set(TokenFault)
    assert len(set(TOKEN_FAULTS.values())) == len(TOKEN_FAULTS)
    for text in TOKEN_FAULTS.values():
        assert text.isascii() and '"' not in text and "\\" not in text


async def test_a_request_without_token_learns_where_to_get_one_and_no_error() -> None:
    auth = ResourceServer(RESOURCE, "https://issuer.example", scopes=["read"], step_up=["write"])
    refused = await authenticate(auth, None)
    assert isinstance(refused, Failure)
    assert refused.data == {"reason": "missing"}
    assert auth.challenge(refused) == f'Bearer scope="read", resource_metadata="{METADATA_URL}"'


@pytest.mark.parametrize(
    ("header", "reason"),
    [
        ("", "wrong_scheme"),
        ("Basic YTpi", "wrong_scheme"),
        ("Bearer", "wrong_scheme"),
        ("Bearer ", "malformed"),
        ("Bearer a b", "malformed"),
        ('Bearer "a"', "malformed"),
        ("Bearer \xe9", "malformed"),
        ("Bearer " + "a" * 16385, "too_large"),
        ("DPoP a.b.c", "wrong_scheme"),
    ],
)
async def test_a_header_that_has_no_bearer_token_is_refused_with_its_reason(header: str, reason: str) -> None:
    auth = ResourceServer(RESOURCE, "https://issuer.example")
    refused = await authenticate(auth, header)
    assert isinstance(refused, Failure)
    assert (refused.fault, refused.data) == (Fault.UNAUTHORIZED, {"reason": reason})
    challenge = auth.challenge(refused)
    assert challenge is not None
    assert challenge.startswith(f'Bearer error="invalid_token", error_description="{TOKEN_FAULTS[TokenFault(reason)]}"')


async def test_a_good_token_names_its_principal_with_issuer_scopes_and_claims() -> None:
    async with serve_issuer() as issuer:
        auth = ResourceServer(RESOURCE, issuer.url)
        for spelling in ("Bearer", "bearer", "BEARER"):
            found = await authenticate(auth, f"{spelling} {issuer.token(scope='read write', team='blue')}")
            assert isinstance(found, Principal), found
            assert (found.id, found.issuer, found.key) == ("ada", issuer.url, f"{issuer.url} ada")
            assert found.scopes == {"read", "write"}
            assert found.claims["team"] == "blue"


async def test_scopes_that_every_request_needs_are_named_with_those_granted() -> None:
    async with serve_issuer() as issuer:
        auth = ResourceServer(RESOURCE, issuer.url, scopes=["base", "read"])
        refused = await authenticate(auth, f"Bearer {issuer.token(scope='read extra')}")
        assert isinstance(refused, Failure)
        assert refused.fault is Fault.INSUFFICIENT_SCOPE
        assert refused.missing_scopes == {"base"}
        challenge = auth.challenge(refused)
        assert challenge is not None
        assert challenge.startswith('Bearer error="insufficient_scope", ')
        assert 'scope="base extra read"' in challenge


async def test_a_broader_scope_stands_for_those_it_implies() -> None:
    async with serve_issuer() as issuer:
        implied = {"admin": ["write"], "write": ["read", "admin"]}
        auth = ResourceServer(RESOURCE, issuer.url, scopes=["read"], implied_scopes=implied)
        found = await authenticate(auth, f"Bearer {issuer.token(scope='admin')}")
        assert isinstance(found, Principal)
        assert found.scopes == {"admin", "write", "read"}


# Over HTTP


def make_server() -> DeltaServer:
    server = DeltaServer("notes")

    @server.tool
    def whoami(context: Context) -> str:
        """Says who calls."""
        return f"{context.principal.key} of {context.principal.claims['team']}"

    return server


async def send(app: Any, path: str, method: str = "GET", host: str = "evil.example", **headers: str) -> Any:
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"{}", "more_body": False}

    async def collect(event: Any) -> None:
        sent.append(event)

    raw = [(b"host", host.encode()), *((name.lower().encode(), value.encode()) for name, value in headers.items())]
    await app({"type": "http", "method": method, "path": path, "headers": raw, "client": None}, receive, collect)
    found = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    return sent[0]["status"], found, b"".join(event.get("body", b"") for event in sent[1:])


@pytest.mark.parametrize("path", ["", "/mcp"])
async def test_anybody_may_read_the_documents_from_any_origin(path: str) -> None:
    server = make_server()
    app = server.asgi(auth=ResourceServer(RESOURCE, "https://issuer.example"))
    url = f"/.well-known/oauth-protected-resource{path}"
    async with server.lifespan():
        status, headers, body = await send(app, url, origin="https://elsewhere.example")
        assert (status, json.loads(body)["resource"]) == (200, RESOURCE)
        assert headers["content-type"] == "application/json"
        assert headers["access-control-allow-origin"] == "*"
        status, headers, body = await send(app, url, "HEAD")
        assert (status, body, int(headers["content-length"]) > 0) == (200, b"", True)
        status, headers, _ = await send(app, url, "OPTIONS", origin="https://elsewhere.example")
        assert (status, headers["access-control-allow-headers"]) == (204, "*")
        assert (await send(app, url, "POST"))[0] == 405


async def test_a_refused_request_gets_401_with_the_challenge_and_the_reason() -> None:
    server = make_server()
    app = server.asgi(auth=ResourceServer(RESOURCE, "https://issuer.example"))
    async with server.lifespan():
        status, headers, body = await send(app, "/mcp", "POST", "localhost", authorization="Bearer a.b")
        assert status == 401
        assert f'resource_metadata="{METADATA_URL}"' in headers["www-authenticate"]
        assert json.loads(body)["error"]["data"] == {"reason": "malformed"}


async def test_the_keys_are_asked_for_once_and_the_authenticator_closes_with_the_server() -> None:
    async with serve_issuer() as issuer:
        server = make_server()
        auth = ResourceServer(RESOURCE, issuer.url)
        app = server.asgi(auth=auth)
        async with server.lifespan():
            for _ in range(3):
                status, _, _ = await send(app, "/mcp", "POST", "localhost", authorization=f"Bearer {issuer.token()}")
                assert status != 401
            assert issuer.asked == {"/.well-known/oauth-authorization-server": 1, "/jwks": 1}
            assert len(auth._verified) > 0
        assert len(auth._verified) == 0


async def test_a_function_reads_its_caller_and_the_claims() -> None:
    async with serve_issuer() as issuer:
        server = make_server()
        async with server.lifespan():
            client = AsgiClient(server.asgi(auth=ResourceServer(RESOURCE, issuer.url)))
            client.headers["authorization"] = f"Bearer {issuer.token(team='blue')}"
            await client.initialize()
            exchange = client.request(1, "tools/call", name="whoami", arguments={})
            assert (await exchange.start())[0] == 200
            assert (await exchange.json())["result"]["content"][0]["text"] == f"{issuer.url} ada of blue"


async def test_two_credentials_in_one_request_are_refused() -> None:
    async with serve_issuer() as issuer:
        server = make_server()
        app = server.asgi(auth=ResourceServer(RESOURCE, issuer.url))
        async with server.lifespan():
            both = {"authorization": f"Bearer {issuer.token()}", "Authorization": "Bearer other"}
            status, _, _ = await send(app, "/mcp", "POST", "localhost", **both)
            assert status == 400


async def test_routes_of_another_application_have_the_documents_too() -> None:
    routes = make_server().routes(auth=ResourceServer(RESOURCE, "https://issuer.example"))
    found = [route.path for route in routes]  # type: ignore[attr-defined]
    assert {"/mcp", "/.well-known/oauth-protected-resource", "/.well-known/oauth-protected-resource/mcp"} <= set(found)


@pytest.mark.parametrize("era", ["handshake", "modern"])
async def test_a_stream_ends_when_its_token_expires(era: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with serve_issuer() as issuer:
        server = DeltaServer("notes", limits=Limits(ping_seconds=0.05))
        server.tool(lambda: "", name="nothing")
        async with server.lifespan():
            client = AsgiClient(server.asgi(auth=ResourceServer(RESOURCE, issuer.url)))
            client.headers["authorization"] = f"Bearer {issuer.token()}"
            if era == "handshake":
                await client.initialize()
                exchange = client.get()
            else:
                names = {"mcp-protocol-version": "2026-07-28", "mcp-method": "subscriptions/listen"}
                params = {"_meta": META, "notifications": {"toolsListChanged": True}}
                body = {"jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen", "params": params}
                exchange = client.post(body, **names)
            assert (await exchange.start())[0] == 200
            while (await exchange.next())["body"] != frames.KEEP_ALIVE:
                pass
            later = time.time() + 3600
            monkeypatch.setattr(time, "time", lambda: later)
            while (await exchange.next()).get("more_body"):
                pass
            await exchange.task
