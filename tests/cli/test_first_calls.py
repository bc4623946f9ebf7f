"""A process that serves HTTP has loaded what its first calls need before it takes connections.

An import holds the interpreter's lock, so that on a busy machine every caller waits for that of another.
"""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest

from deltamcp import connect
from tests.support import rows_server
from tests.support.paths import FORKED_PYTHON, PROGRAM
from tests.support.program import running_program
from tests.support.raw_client import META

NOTING = """
import atexit, json, os, pathlib, sys
import uvicorn

before = set()
startup = uvicorn.Server.startup

async def note_modules(self, sockets=None):
    before.update(sys.modules)
    await startup(self, sockets)

def write_modules():
    found = sorted({*sys.modules} - before)
    if before:
        pathlib.Path(f"modules-{os.getpid()}.json").write_text(json.dumps(found))

uvicorn.Server.startup = note_modules
"""
LIBRARY = """
import noting
from deltamcp import Context, DeltaServer, ResultPolicy

server = DeltaServer("library", results=ResultPolicy(max_tokens=500, deltas=True), disclosure={disclosure!r})

@server.tool
async def rows(count: int = 500) -> list[dict[str, int | str]]:
    return [{{"id": number, "title": f"Order {{number}}"}} for number in range(count)]

@server.tool(input_schema={{"type": "object", "properties": {{"a": {{"type": "integer"}}}}}})
async def foreign(arguments: dict) -> str:
    return "text " * 2000

@server.tool
def threaded() -> str:
    return "x"

@server.tool
async def greet(ctx: Context) -> str:
    return str((await ctx.elicit("Who?", str)).content)

@server.tool(promise={promise!r})
async def promised() -> str:
    return "x"

@server.tool
async def fail() -> str:
    raise RuntimeError("it fails")

@server.resource("notes://{{number}}")
async def note(number: int) -> str:
    return "x"

@server.prompt
async def ask(topic: str) -> str:
    return topic

@server.tool(pinned=True)
async def write_modules() -> None:
    noting.write_modules()
"""
OF_NO_CONSEQUENCE = {"docket.tasks", "docket._redis_credentials", "docket._redis_memory", "docket._redis_sentinel"}
"""Small modules, which docket imports where it opens its queue; 9 ms together."""
OF_NO_CONSEQUENCE |= {"encodings.utf_16_le", "encodings.idna", "stringprep"}


class Caller:
    """Posts requests as programs of both protocols do."""

    def __init__(self, web: httpx2.AsyncClient, url: str) -> None:
        self._web, self._url = web, url

    async def modern(self, method: str, **params: Any) -> dict[str, Any]:
        headers = {"mcp-protocol-version": "2026-07-28", "mcp-method": method}
        name = params.get("name") or params.get("uri")
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": META}}
        reply = await self._web.post(self._url, json=body, headers=headers | ({"mcp-name": name} if name else {}))
        found: dict[str, Any] = reply.json()
        return found

    async def call(self, name: str, **arguments: Any) -> dict[str, Any]:
        return await self.modern("tools/call", name=name, arguments=arguments)

    async def lite(self, path: str, accept: str = "application/json", **body: Any) -> int:
        url = self._url.removesuffix("/mcp")
        reply = await self._web.post(f"{url}/mcp-lite/v1/{path}", json=body, headers={"accept": accept})
        return reply.status_code

    async def session(self) -> None:
        """A session of a client that shakes hands, and the same call twice, of which the second is a change."""
        headers = {"accept": "application/json, text/event-stream", "mcp-protocol-version": "2025-11-25"}

        async def send(method: str, **params: Any) -> httpx2.Response:
            body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
            return await self._web.post(self._url, json=body, headers=headers)

        client = {"name": "test", "version": "0"}
        opened = await send("initialize", protocolVersion="2025-11-25", capabilities={}, clientInfo=client)
        headers["mcp-session-id"] = opened.headers["mcp-session-id"]
        for count in (300, 300, 301):
            assert (await send("tools/call", name="rows", arguments={"count": count})).status_code == 200


async def with_caller(url: str, run: Callable[[Caller], Awaitable[None]]) -> None:
    async with httpx2.AsyncClient(timeout=60) as web:
        await run(Caller(web, url))


async def call_everything(caller: Caller) -> None:
    assert (await caller.modern("tools/list"))["result"]["tools"]
    cut = (await caller.call("rows"))["result"]["_meta"]["io.github.delta-mcp/result"]
    for selection in ({"page": 2}, {"grep": "Order 49"}, {"fields": ["id"]}, {"path": "/3"}):
        assert "result" in await caller.call("continue", handle=cut["handle"], **selection)
    for name in ("foreign", "threaded", "promised"):
        assert not (await caller.call(name))["result"].get("isError")
    assert (await caller.call("greet"))["result"]["resultType"] == "input_required"
    assert (await caller.call("fail"))["result"]["isError"]
    assert (await caller.call("rows", count="many"))["result"]["isError"]
    assert "Did you mean" in (await caller.call("rosw"))["error"]["message"]
    assert (await caller.modern("resources/read", uri="notes://4"))["result"]["contents"]
    assert (await caller.modern("prompts/get", name="ask", arguments={"topic": "x"}))["result"]["messages"]
    assert await caller.lite("listtools", type="query") == 200
    lite: dict[str, Any] = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "rows"}}
    assert await caller.lite("calltools", **lite) == await caller.lite("calltools", "text/event-stream", **lite) == 200
    await caller.session()
    await caller.call("write_modules")


async def discover_and_execute(caller: Caller) -> None:
    assert "result" in await caller.call("discover", query="retrun ordres")
    assert "result" in await caller.call("get_schema", ids=["rows"])
    assert (await caller.call("execute", id="rows", params={}))["result"]["_meta"]["io.github.delta-mcp/result"]
    assert "result" in await caller.call("execute", id="rosw", params={})
    await caller.call("write_modules")


def written(folder: Path) -> set[str]:
    files = list(folder.glob("modules-*.json"))
    assert files
    return {name for path in files for name in json.loads(path.read_text())} - OF_NO_CONSEQUENCE


@pytest.mark.parametrize(
    ("disclosure", "promise", "run", "words"),
    [
        ("full", "never", call_everything, ()),
        ("full", "auto", call_everything, ("--workers", "2")),
        ("meta", "never", discover_and_execute, ()),
    ],
)
def test_first_calls_import_nothing(
    tmp_path: Path, disclosure: str, promise: str, run: Callable[[Caller], Awaitable[None]], words: tuple[str, ...]
) -> None:
    (tmp_path / "noting.py").write_text(NOTING)
    (tmp_path / "library.py").write_text(LIBRARY.format(disclosure=disclosure, promise=promise))
    command = [str(PROGRAM), "serve", "library.py", "--http", "127.0.0.1:0", *words]
    with running_program(command, tmp_path) as program:
        url = program.wait_for(r"(http://127\.0\.0\.1:\d+/mcp)")[1]
        asyncio.run(with_caller(url, run))
        assert program.end() == 0
    assert written(tmp_path) == set()


GATEWAY = """
import sys
import noting
from deltamcp.cli.main import main

sys.argv = ["delta-mcp", "gateway", "gateway.toml", "--http", "127.0.0.1:0"]
noting.atexit.register(noting.write_modules)
main()
"""


def test_first_calls_of_a_gateway_import_nothing_though_no_server_was_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for purpose in ("STATE", "CACHE", "CONFIG"):
        monkeypatch.setenv(f"XDG_{purpose}_HOME", str(tmp_path / purpose.lower()))
    (tmp_path / "noting.py").write_text(NOTING)
    (tmp_path / "serving.py").write_text(GATEWAY)
    command = f"command = {json.dumps(str(FORKED_PYTHON))}\nargs = [{json.dumps(rows_server.__file__)}]"
    (tmp_path / "gateway.toml").write_text(f'disclosure = "full"\nquery = false\n[servers.rows]\n{command}\n')

    async def call(url: str) -> None:
        async with connect(url) as client:
            assert await client.call("rows", count=9000)

    for _ in range(2):  # the second time the tools are known, and the first call starts the server
        for path in tmp_path.glob("modules-*.json"):
            path.unlink()
        with running_program([sys.executable, "serving.py"], tmp_path) as program:
            asyncio.run(call(program.wait_for(r"(http://127\.0\.0\.1:\d+/mcp)")[1]))
            assert program.end() == 0
    assert written(tmp_path) == set()
