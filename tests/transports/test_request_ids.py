"""`X-Request-Id`: on every response, in the records of the request's log, and for observers."""

import asyncio
import logging
import re
from typing import Any

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.responses import PlainTextResponse

from deltamcp import DeltaServer, HostAuth, ObservedCall, Rate, RateLimits
from deltamcp.cli.serving.monitoring_options import _STDERR_FORMAT
from deltamcp.runtime.http_request_id import HTTP_REQUEST_ID, HttpRequestIdFilter
from deltamcp.transports.admission import HttpRequestIds
from deltamcp.transports.http.server import make_server
from tests.support.http_server import serve_uvicorn
from tests.support.raw_client import META

HEADERS = {"mcp-protocol-version": "2026-07-28", "mcp-method": "tools/call", "accept": "application/json"}


class Ids:
    """An observer that keeps the ids of calls."""

    is_active = True

    def __init__(self) -> None:
        self.seen: list[str] = []

    def call_started(self, call: ObservedCall) -> None:
        self.seen.append(call.http_request_id)

    def call_finished(self, call: ObservedCall) -> None:
        self.seen.append(call.http_request_id)


def make_logging_server(*observers: Ids, **options: Any) -> DeltaServer:
    server = DeltaServer("x", observers=observers, **options)

    @server.tool
    async def log_async() -> str:
        await asyncio.sleep(0)
        logging.getLogger("author").warning("async")
        return "done"

    @server.tool
    def log_in_thread() -> str:
        logging.getLogger("author").warning("in a thread")
        return "done"

    return server


def client(app: Any) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://localhost")


async def call(http: httpx2.AsyncClient, url: str, tool: str, **headers: str) -> httpx2.Response:
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": tool, "_meta": META}}
    return await http.post(url, json=message, headers={**HEADERS, "mcp-name": tool, **headers})


async def test_every_response_has_the_id_of_its_request():
    server = make_logging_server(rate_limits=RateLimits(per_address=Rate(6, 3600)))
    routes = {"/hello": PlainTextResponse("hello")}
    async with client(server.asgi(request_ids=True, auth=HostAuth(lambda _: None), routes=routes)) as http:
        http.headers["x-request-id"] = "abc-1"
        preflight = {"origin": "http://localhost", "access-control-request-method": "POST"}
        responses = [
            await http.post("/mcp", json={}),
            await http.options("/mcp", headers=preflight),
            await http.get("/nowhere"),
            await http.get("/hello"),
            await http.get("/hello", headers={"host": "evil.example"}),
            await http.get("/healthz"),
            await http.get("/hello"),
            await http.get("/hello"),
        ]
    assert [response.status_code for response in responses] == [401, 204, 404, 200, 421, 200, 200, 429]
    assert {tuple(response.headers.get_list("x-request-id")) for response in responses} == {("abc-1",)}


async def test_the_log_of_a_request_and_its_observers_have_its_id():
    observer = Ids()
    seen: list[tuple[str, str]] = []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            seen.append((record.getMessage(), record.request_id))  # type: ignore[attr-defined]

    handler = Handler()
    handler.addFilter(HttpRequestIdFilter())
    logging.getLogger("author").addHandler(handler)
    try:
        http_server = make_server(make_logging_server(observer).engine, port=0, request_ids=True)
        async with serve_uvicorn(http_server) as address, httpx2.AsyncClient() as http:
            first = await call(http, f"{address}/mcp", "log_async", **{"x-request-id": "one"})
            second = await call(http, f"{address}/mcp", "log_in_thread", **{"x-request-id": "two"})
            third = await call(http, f"{address}/mcp", "log_async")
    finally:
        logging.getLogger("author").removeHandler(handler)
    made = third.headers["x-request-id"]
    assert [first.headers["x-request-id"], second.headers["x-request-id"]] == ["one", "two"]
    assert seen == [("async", "one"), ("in a thread", "two"), ("async", made)]
    assert observer.seen == ["one", "one", "two", "two", made, made]
    assert re.fullmatch(r"[0-9a-f]{16}-\d+", made)


async def test_without_the_option_there_are_none():
    async with client(make_logging_server().asgi()) as http:
        response = await call(http, "/mcp", "log_async", **{"x-request-id": "one"})
        assert response.status_code == 200 and "x-request-id" not in response.headers


@given(st.binary(max_size=200))
def test_an_id_is_taken_only_if_it_is_short_and_visible(given_id):
    [(_, id_)] = HttpRequestIds().begin({b"x-request-id": given_id})
    is_good = 0 < len(given_id) <= 128 and all(0x21 <= byte <= 0x7E for byte in given_id)
    assert (id_ == given_id) == is_good
    assert re.fullmatch(rb"[\x21-\x7e]{1,128}", id_)


def test_no_two_requests_get_the_same_id():
    ids = [HttpRequestIds(), HttpRequestIds()]
    made = {one.begin({})[0][1] for one in ids for _ in range(100)}
    assert len(made) == 200


@pytest.mark.parametrize(("request_id", "line"), [("", "WARNING author: x"), ("one", "WARNING author: x request=one")])
def test_a_line_ends_with_the_id(request_id, line):
    token = HTTP_REQUEST_ID.set(request_id)
    record = logging.LogRecord("author", logging.WARNING, "", 1, "x", None, None)
    HttpRequestIdFilter().filter(record)
    HTTP_REQUEST_ID.reset(token)
    assert logging.Formatter(_STDERR_FORMAT).format(record) == line
