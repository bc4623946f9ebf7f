"""Tasks over HTTP: the headers of their methods, subscriptions as event streams, and whose tasks they are."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

from deltamcp import DeltaServer, Principal
from deltamcp.auth.authenticator import HostAuth
from tests.support.asgi_client import ACCEPT_BOTH, AsgiExchange
from tests.support.conditions import wait_until
from tests.support.promise_queue import queue_for

MODERN = "2026-07-28"
PRINCIPALS = {"ann": Principal("ann"), "bob": Principal("bob")}


def find_principal(scope: Mapping[str, Any]) -> Principal | None:
    return PRINCIPALS.get(dict(scope["headers"]).get(b"authorization", b"").decode())


class Users:
    """Sends requests of the modern era as a user, with the extension for tasks."""

    def __init__(self, server: DeltaServer, go_on: asyncio.Event) -> None:
        self._server = server
        self._app = server.asgi(auth=HostAuth(find_principal))
        self.go_on = go_on

    def watch_count(self) -> int:
        """How many wait for changes of promises."""
        promise_calls = self._server.engine.promise_calls
        assert promise_calls is not None
        return sum(map(len, promise_calls.store._watches.values()))

    def send(self, user: str, method: str, headers: dict[str, str] | None = None, **params: Any) -> AsgiExchange:
        meta = {
            "io.modelcontextprotocol/protocolVersion": MODERN,
            "io.modelcontextprotocol/clientCapabilities": {"extensions": {"io.modelcontextprotocol/tasks": {}}},
        }
        name = params.get("taskId") or params.get("name")
        sent = {
            "authorization": user,
            "accept": ACCEPT_BOTH,
            "content-type": "application/json",
            "mcp-protocol-version": MODERN,
            "mcp-method": method,
            **({} if name is None else {"mcp-name": name}),
            **(headers or {}),
        }
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta}}
        return AsgiExchange(self._app, "POST", sent, json.dumps(body).encode())

    async def ask(self, user: str, method: str, headers: dict[str, str] | None = None, **params: Any) -> Any:
        exchange = self.send(user, method, headers, **params)
        await exchange.start()
        return await exchange.json()


@contextlib.asynccontextmanager
async def users() -> AsyncIterator[Users]:
    server = DeltaServer("printers")
    go_on = asyncio.Event()

    @server.tool(promise="always")
    async def print_it() -> str:
        await go_on.wait()
        return "printed"

    queue = queue_for(server)
    async with server.engine.lifespan.running():
        yield Users(server, go_on)
        await queue.kill()


async def read_notification(stream: AsgiExchange) -> Any:
    while True:
        event = await stream.event()
        if event.get("data"):
            return json.loads(event["data"])


async def test_a_task_is_unknown_to_everybody_but_its_owner():
    async with users() as client:
        id_ = (await client.ask("ann", "tools/call", name="print_it", arguments={}))["result"]["taskId"]
        unknown = await client.ask("bob", "tasks/get", taskId="prom_0123456789abcdefghjkmnpqrs")
        for method in ("tasks/get", "tasks/update", "tasks/cancel"):
            assert await client.ask("bob", method, taskId=id_, inputResponses={}) == unknown
        assert unknown["error"]["code"] == -32602
        assert (await client.ask("ann", "tasks/get", taskId=id_))["result"]["status"] == "working"


async def test_the_task_id_must_be_in_the_header_mcp_name():
    async with users() as client:
        id_ = (await client.ask("ann", "tools/call", name="print_it", arguments={}))["result"]["taskId"]
        for method in ("tasks/get", "tasks/update", "tasks/cancel"):
            refused = await client.ask("ann", method, {"mcp-name": "another"}, taskId=id_, inputResponses={})
            assert refused["error"]["code"] == -32020


async def test_only_the_owner_of_a_task_is_told_of_its_changes():
    async with users() as client:
        id_ = (await client.ask("ann", "tools/call", name="print_it", arguments={}))["result"]["taskId"]
        wanted = {"taskIds": [id_]}
        foreign = client.send("bob", "subscriptions/listen", notifications=wanted)
        await foreign.start()
        assert (await read_notification(foreign))["params"]["notifications"] == {}
        own = client.send("ann", "subscriptions/listen", notifications=wanted)
        await own.start()
        assert (await read_notification(own))["params"]["notifications"] == wanted
        client.go_on.set()
        while (told := await read_notification(own))["params"]["status"] == "working":
            pass
        assert told["method"] == "notifications/tasks"
        assert told["params"]["result"]["content"][0]["text"] == "printed"
        for stream in (own, foreign):
            stream.leave()
            await stream.task


async def test_a_client_that_leaves_is_no_longer_followed():
    async with users() as client:
        id_ = (await client.ask("ann", "tools/call", name="print_it", arguments={}))["result"]["taskId"]
        await wait_until(lambda: client.watch_count() == 1, "the worker watches what it runs")
        stream = client.send("ann", "subscriptions/listen", notifications={"taskIds": [id_]})
        await stream.start()
        await wait_until(lambda: client.watch_count() == 2)
        stream.leave()
        await stream.task
        await wait_until(lambda: client.watch_count() == 1)
