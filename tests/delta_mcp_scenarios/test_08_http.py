"""CS-08: HTTP, its version header and its codecs."""

from typing import Any

import uvicorn

from deltamcp import connect
from deltamcp.wire.codecs import COMPACT_CODEC
from tests.support.compat_client import CompatClient
from tests.support.http_server import serve_uvicorn
from tests.support.six_tool_server import SIX_TOOLS, six_tool_server

NO_VERSION = {"mcp-protocol-version": ""}


async def test_cs_08_01_initialize_needs_no_version_header(http: CompatClient) -> None:
    assert (await http.request("initialize", headers=NO_VERSION)).status_code == 200


async def test_cs_08_02_every_other_request_needs_it(http: CompatClient) -> None:
    assert (await http.request("tools/list", headers=NO_VERSION)).status_code == 400


async def test_cs_08_03_compact_json_is_answered_in_compact_json(http: CompatClient) -> None:
    kind = COMPACT_CODEC.content_type
    body = COMPACT_CODEC.encode({"jsonrpc": "2.0", "id": 3, "method": "initialize"})
    answer = await http.post(body, {"content-type": kind, "accept": kind, **NO_VERSION})
    assert (answer.status_code, answer.headers["content-type"]) == (200, kind)
    assert answer.content.startswith(b'{"j":"2.0","i":3,"r":{')
    assert COMPACT_CODEC.decode(answer.content)["result"]["serverInfo"]["name"] == "six-tools"


async def test_cs_08_04_a_client_introduces_itself_in_json_and_goes_on_in_compact_json() -> None:
    app, kinds = six_tool_server().asgi(compat=True), []

    async def record(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http" and scope["method"] == "POST":
            kinds.append(dict(scope["headers"])[b"content-type"].decode())
        await app(scope, receive, send)

    async with (
        serve_uvicorn(uvicorn.Server(uvicorn.Config(record, port=0, log_level="warning"))) as url,
        connect(url, speak="delta-mcp", encoding="compact-json") as client,
    ):
        assert [tool.name for tool in await client.tools()] == SIX_TOOLS
    first, *others = kinds
    assert first == "application/json"
    assert set(others) == {COMPACT_CODEC.content_type}


async def test_cs_08_05_there_is_no_stream_to_get(http: CompatClient) -> None:
    answer = await http.http.get("/", headers={"accept": "text/event-stream", "mcp-protocol-version": "2025-11-25"})
    assert (answer.status_code, answer.headers["allow"]) == (405, "POST")
