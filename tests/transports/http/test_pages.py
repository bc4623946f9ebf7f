"""Pages beside the MCP endpoint: documents about authorization, and the author's own routes."""

from collections.abc import Mapping
from typing import Any

import httpx2
import pytest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route

from deltamcp import ConfigurationError, DeltaServer, Principal
from deltamcp.auth.authenticator import Credentials
from deltamcp.errors import Fault
from deltamcp.gateway.config import GatewayConfig
from deltamcp.gateway.connections import CALLBACK_PATH, START_PATH, Connections
from deltamcp.values import Failure
from tests.support.lite_client import lite_server

METADATA = "/.well-known/oauth-protected-resource"


class Closed:
    """Refuses everybody, and has one document."""

    documents: Mapping[str, bytes] = {METADATA: b'{"resource":"https://tools.example/mcp"}'}

    async def authenticate(self, credentials: Credentials) -> Principal | Failure:
        return Failure(Fault.UNAUTHORIZED, "No.")

    def challenge(self, failure: Failure) -> str | None:
        return "Bearer"

    async def close(self) -> None:
        pass


async def hello(request: Any) -> PlainTextResponse:
    return PlainTextResponse(f"hello {request.path_params.get('name', 'you')}")


def client(app: Any, base: str = "http://localhost") -> httpx2.AsyncClient:
    return httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url=base)


@pytest.mark.parametrize("mounted", [False, True])
async def test_documents_are_for_everybody_and_every_web_page(mounted):
    server = DeltaServer("x")
    app = Starlette(routes=server.routes(auth=Closed())) if mounted else server.asgi(auth=Closed())
    async with client(app, "http://any.example") as http:
        found = await http.get(METADATA, headers={"origin": "https://evil.example"})
        assert found.json() == {"resource": "https://tools.example/mcp"}
        assert found.headers["access-control-allow-origin"] == "*"
        asked = {"access-control-request-method": "GET", "access-control-request-headers": "mcp-protocol-version"}
        preflight = await http.options(METADATA, headers={"origin": "https://evil.example", **asked})
        assert preflight.status_code == 204 and "content-length" not in preflight.headers
        assert (
            preflight.headers["access-control-allow-origin"] == preflight.headers["access-control-allow-headers"] == "*"
        )
        assert (await http.post(METADATA)).status_code == 405
    async with client(app) as http:
        assert (await http.post("/mcp", json={})).status_code == 401


ROUTES = [Route("/hello", hello), Route("/hello/{name}", hello), Mount("/files", PlainTextResponse("file"))]
APPS = {"/hello": PlainTextResponse("hello you")}


@pytest.mark.parametrize("routes", [ROUTES, APPS])
async def test_the_authors_routes_need_no_credentials_but_a_host_and_an_origin(routes):
    async with client(DeltaServer("x").asgi(auth=Closed(), routes=routes)) as http:
        assert (await http.get("/hello")).text == "hello you"
        assert (await http.get("/hello", headers={"host": "evil.example"})).status_code == 421
        assert (await http.get("/hello", headers={"origin": "https://evil.example"})).status_code == 403
        assert (await http.get("/other")).status_code == 404
        assert (await http.post("/mcp", json={})).status_code == 401


SEARCH = {"name": "search_documents", "arguments": {"query": "x"}}
LITE_CALL = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": SEARCH}
GUARDED = {
    "/mcp-lite/v1/rpc": ("POST", LITE_CALL),
    "/mcp-lite/v1/calltools": ("POST", LITE_CALL),
    "/mcp-lite/v1/tools/call": ("POST", LITE_CALL),
    "/mcp-lite/v1/listtools": ("POST", {}),
    "/metrics": ("GET", None),
    f"{START_PATH}?id=1": ("GET", None),
    f"{CALLBACK_PATH}?state=1": ("GET", None),
}


@pytest.mark.parametrize("headers", [{"host": "evil.example"}, {"origin": "https://evil.example"}])
@pytest.mark.parametrize("path", GUARDED)
async def test_a_foreign_host_or_origin_reaches_no_other_page(path, headers, tmp_path):
    server: Any = lite_server()
    config = GatewayConfig(upstreams=[])
    server.engine.pages = Connections(config, lambda: server.engine, tmp_path).pages
    method, body = GUARDED[path]
    async with server.engine.lifespan.running(), client(server.asgi(mcp_lite=True, metrics=True)) as http:
        refused = await http.request(method, path, json=body, headers=headers)
        assert refused.status_code == (421 if "host" in headers else 403) and server.seen == []
        served = await http.request(method, path, json=body)
        assert served.status_code == (404 if "login" in path else 200)


async def test_starlette_routes_have_their_parameters_methods_and_mounts():
    async with client(DeltaServer("x").asgi(routes=ROUTES)) as http:
        assert (await http.get("/hello/ann")).text == "hello ann"
        assert (await http.get("/files/a/b")).text == "file"
        assert (await http.post("/hello")).status_code == 405


@pytest.mark.parametrize("routes", [{"hello": hello}, {"/healthz": hello}, {"/hello": "text"}, ["/hello"]])
def test_routes_that_cannot_be_served_are_refused(routes):
    with pytest.raises(ConfigurationError, match="routes"):
        DeltaServer("x").asgi(routes=routes)


def test_an_application_lists_its_routes_itself():
    with pytest.raises(ConfigurationError, match="Put your routes beside"):
        DeltaServer("x").routes(routes=ROUTES)
