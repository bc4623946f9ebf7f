"""CORS: what browsers let pages of allowed origins do, with requests as browsers send them, and with a browser."""

import asyncio
import contextlib
import json
import os
import shutil
import signal
from pathlib import Path
from typing import Any

import httpx2
import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route

from deltamcp import DeltaServer, HostAuth, Limits
from deltamcp.transports.http.origins import REQUEST_HEADERS
from deltamcp.transports.http.server import make_server
from tests.support.asgi_client import ACCEPT_BOTH, INITIALIZE, asgi_client
from tests.support.conditions import HANG_SECONDS
from tests.support.http_server import serve_uvicorn
from tests.support.raw_client import META

APP = "https://app.example"
BROWSER = next(filter(None, map(shutil.which, ("chromium-headless-shell", "chromium"))), None)


def make_app_server() -> DeltaServer:
    server = DeltaServer("x", limits=Limits(ping_seconds=0.05))

    @server.tool
    async def add(a: int, b: int) -> int:
        return a + b

    @server.tool
    async def pad(size: int) -> str:
        return "x" * size

    return server


def client(app: Any) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://localhost:8000")


def call(tool: str, **arguments: Any) -> dict[str, Any]:
    params = {"name": tool, "arguments": arguments, "_meta": META}
    return {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params}


def modern(tool: str) -> dict[str, str]:
    return {"mcp-protocol-version": "2026-07-28", "mcp-method": "tools/call", "mcp-name": tool, "accept": ACCEPT_BOTH}


def is_readable(response: httpx2.Response, origin: str = APP) -> bool:
    headers = response.headers
    exposed = "mcp-session-id, mcp-protocol-version, www-authenticate, retry-after, preference-applied, x-request-id"
    return (
        headers.get_list("access-control-allow-origin"),
        headers.get("vary"),
        headers.get("access-control-expose-headers"),
    ) == (
        [origin],
        "Origin",
        exposed,
    )


@pytest.mark.parametrize("asked", ["content-type", "Mcp-Param-Region, X-Api-Key", "", "a b,\x7f", None])
async def test_a_preflight_allows_the_methods_and_headers_of_mcp(asked):
    headers = {"origin": APP, "access-control-request-method": "POST"}
    if asked is not None:
        headers["access-control-request-headers"] = asked
    async with client(make_app_server().asgi(allowed_origins=[APP], auth=HostAuth(lambda scope: None))) as http:
        response = await http.options("/mcp", headers=headers)
    assert response.status_code == 204 and is_readable(response)
    assert "content-length" not in response.headers
    assert response.headers["access-control-allow-methods"] == "POST, GET, DELETE"
    allowed = response.headers["access-control-allow-headers"].split(", ")
    extra = ["mcp-param-region", "x-api-key"] if asked and "Region" in asked else []
    assert allowed == [*REQUEST_HEADERS, *extra]


async def test_a_preflight_of_another_origin_is_refused():
    headers = {"origin": "https://evil.example", "access-control-request-method": "POST"}
    async with client(make_app_server().asgi(allowed_origins=[APP])) as http:
        response = await http.options("/mcp", headers=headers)
    assert response.status_code == 403
    assert not [name for name in response.headers if name.startswith("access-control")]


async def test_options_without_a_preflight_is_no_method():
    async with client(make_app_server().asgi(allowed_origins=[APP])) as http:
        assert (await http.options("/mcp", headers={"origin": APP})).status_code == 405


async def test_every_response_can_be_read_by_the_page():
    app = make_app_server().asgi(allowed_origins=[APP], routes={"/hello": PlainTextResponse("hello")})
    async with client(app) as http:
        http.headers["origin"] = APP
        responses = [
            await http.post("/mcp", json=call("add", a=1, b=2), headers=modern("add")),
            await http.post("/mcp", json=call("pad", size=200_000), headers=modern("pad")),
            await http.post("/mcp", json=call("none"), headers=modern("none")),
            await http.post("/mcp", json=call("add"), headers=modern("other")),
            await http.post("/mcp", content=b"{", headers={"content-type": "application/json"}),
            await http.put("/mcp"),
            await http.get("/other"),
            await http.get("/hello"),
        ]
    assert [response.status_code for response in responses] == [200, 200, 400, 400, 400, 405, 404, 200]
    assert all(map(is_readable, responses))


async def test_event_streams_and_sessions_can_be_read_by_the_page():
    async with asgi_client(make_app_server()) as asgi:
        asgi.headers["origin"] = "http://localhost:6274"
        opened = asgi.request(0, "initialize", **INITIALIZE)
        _, headers = await opened.start()
        asgi.headers["mcp-session-id"] = headers["mcp-session-id"]
        stream = asgi.get()
        _, streamed = await stream.start()
        stream.leave()
        assert streamed["content-type"] == "text/event-stream"
        for found in (headers, streamed):
            assert found["access-control-allow-origin"] == "http://localhost:6274" and found["vary"] == "Origin"


async def test_a_refused_caller_can_read_why():
    async with client(make_app_server().asgi(allowed_origins=[APP], auth=HostAuth(lambda scope: None))) as http:
        response = await http.post("/mcp", json={}, headers={"origin": APP})
        assert response.status_code == 401 and is_readable(response)


async def test_headers_of_a_route_of_the_authors_own_come_first():
    page = PlainTextResponse("hello", headers={"Access-Control-Allow-Origin": "*"})
    async with client(make_app_server().asgi(allowed_origins=[APP], routes={"/hello": page})) as http:
        response = await http.get("/hello", headers={"origin": APP})
        assert response.headers.get_list("access-control-allow-origin") == ["*"]


@pytest.mark.parametrize(
    ("origin", "status"), [("http://any.example", 200), ("https://evil.example", 403), ("null", 403)]
)
async def test_any_host_is_not_any_origin(origin, status):
    async with client(make_app_server().asgi(allowed_hosts=["*"])) as http:
        headers = {**modern("add"), "host": "any.example", "origin": origin}
        response = await http.post("/mcp", json=call("add", a=1, b=2), headers=headers)
        assert response.status_code == status


async def test_the_fast_way_to_send_a_response_has_the_headers_too():
    server = make_app_server()
    async with serve_uvicorn(make_server(server.engine, port=0, allowed_origins=[APP])) as address:
        async with httpx2.AsyncClient() as http:
            headers = {**modern("add"), "origin": APP}
            response = await http.post(f"{address}/mcp", json=call("add", a=1, b=2), headers=headers)
            plain = await http.post(f"{address}/mcp", json=call("add", a=1, b=2), headers=modern("add"))
    assert response.json()["result"]["content"][0]["text"] == "3" and is_readable(response)
    assert "vary" not in plain.headers


# A browser

PAGE = """<script>
const url = new URLSearchParams(location.search).get("url"), found = {};
const base = {"content-type": "application/json", "accept": "application/json, text/event-stream"};
const post = (body, more) => fetch(url, {method: "POST", headers: {...base, ...more}, body: JSON.stringify(body)});
const meta = %META%;
async function run() {
  try {
    const modern = {"mcp-protocol-version": "2026-07-28", "mcp-method": "tools/call", "mcp-name": "add"};
    const params = {name: "add", arguments: {a: 1, b: 2}, _meta: meta};
    const called = await post({jsonrpc: "2.0", id: 1, method: "tools/call", params}, {...modern, "mcp-param-a": "1"});
    found.called = (await called.json()).result.content[0].text;
    const opened = await post({jsonrpc: "2.0", id: 1, method: "initialize", params: %INITIALIZE%}, {});
    const session = {"mcp-session-id": opened.headers.get("mcp-session-id"), "mcp-protocol-version": "2025-11-25"};
    found.session = session["mcp-session-id"] !== null;
    // Without no-store, which an EventSource has too, Chromium 156 sends the DELETE below twice.
    const listen = {...session, accept: "text/event-stream", "last-event-id": "x"};
    const stream = await fetch(url, {headers: listen, cache: "no-store"});
    found.stream = stream.headers.get("content-type");
    await stream.body.cancel();
    found.ended = (await fetch(url, {method: "DELETE", headers: session})).status;
    const denied = await post({}, {authorization: "Bearer wrong", "mcp-session-id": "none"});
    found.denied = denied.status;
  } catch (error) { found.error = error.name; }
  await fetch("/found", {method: "POST", body: JSON.stringify(found)});
}
run();
</script>"""


async def show_in_browser(url: str, told: asyncio.Event, place: Path) -> None:
    """Shows a page in a browser until the page has told what it found."""
    assert BROWSER is not None
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--no-proxy-server", "--remote-debugging-port=0"]
    process = await asyncio.create_subprocess_exec(
        BROWSER,
        *options,
        f"--user-data-dir={place}",
        url,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(HANG_SECONDS):
            await told.wait()
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


@pytest.mark.skipif(BROWSER is None, reason="needs Chromium: apt install chromium-headless-shell")
@pytest.mark.parametrize("is_allowed", [True, False])
async def test_a_page_in_a_browser_calls_the_server_if_its_origin_is_allowed(is_allowed, tmp_path):
    found: dict[str, Any] = {}
    told = asyncio.Event()

    async def show(_: Request) -> Response:
        return HTMLResponse(PAGE.replace("%META%", json.dumps(META)).replace("%INITIALIZE%", json.dumps(INITIALIZE)))

    async def take(request: Request) -> Response:
        found.update(await request.json())
        told.set()
        return Response()

    page = Starlette(routes=[Route("/", show), Route("/found", take, methods=["POST"])])
    async with serve_uvicorn(uvicorn.Server(uvicorn.Config(page, port=0, log_level="warning"))) as page_address:
        origin = page_address.replace("127.0.0.1", "localhost")
        origins = [origin] if is_allowed else []
        server = make_server(make_app_server().engine, port=0, allowed_hosts=["127.0.0.1"], allowed_origins=origins)
        async with serve_uvicorn(server) as address:
            await show_in_browser(f"{origin}/?url={address}/mcp", told, tmp_path)
    if is_allowed:
        assert found == {"called": "3", "session": True, "stream": "text/event-stream", "ended": 200, "denied": 400}
    else:
        assert found == {"error": "TypeError"}
