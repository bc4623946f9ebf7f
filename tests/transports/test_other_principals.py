"""What is one principal's is out of another's reach: sessions, streams, calls, results, sealed state."""

import contextlib
import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest

from deltamcp import Context, DeltaServer, Principal, ResultPolicy
from deltamcp.auth.authenticator import HostAuth
from tests.support.asgi_client import ACCEPT_BOTH, INITIALIZE, AsgiExchange

MODERN = "2026-07-28"
PRINCIPALS = {
    "ann": Principal("ann"),
    "bob": Principal("bob"),
    "ann of another issuer": Principal("ann", issuer="https://other.example"),
}
OTHERS = ["bob", "ann of another issuer"]
UNKNOWN_SESSION = "f" * 32


def find_principal(scope: Mapping[str, Any]) -> Principal | None:
    return PRINCIPALS.get(dict(scope["headers"]).get(b"authorization", b"").decode())


def make_server(log: list[str]) -> DeltaServer:
    server = DeltaServer("others", "1", state_key=b"k" * 32)

    @server.tool
    async def wait(ctx: Context) -> str:
        log.append("started")
        try:
            return (await ctx.elicit("How many?", int, key="count")).action
        except BaseException:
            log.append("ended")
            raise

    @server.tool(results=ResultPolicy(max_tokens=200))
    async def rows() -> list[dict[str, int]]:
        return [{"id": number, "square": number * number} for number in range(300)]

    return server


class Callers:
    """Sends requests as a principal."""

    def __init__(self, app: Any, log: list[str]) -> None:
        self._app = app
        self.log = log

    def send(self, name: str, verb: str = "POST", body: Any = None, **headers: str) -> AsgiExchange:
        sent = {"authorization": name, "accept": ACCEPT_BOTH, "content-type": "application/json"}
        data = b"" if body is None else json.dumps(body).encode()
        return AsgiExchange(self._app, verb, {**sent, **headers}, data)

    async def open_session(self, name: str) -> dict[str, str]:
        exchange = self.send(name, body=request("initialize", INITIALIZE))
        _, headers = await exchange.start()
        session = {"mcp-session-id": headers["mcp-session-id"], "mcp-protocol-version": "2025-11-25"}
        note = self.send(name, body={"jsonrpc": "2.0", "method": "notifications/initialized"}, **session)
        assert (await note.start())[0] == 202
        return session

    async def modern(self, name: str, tool: str, arguments: dict[str, Any], **more: Any) -> Any:
        meta = {
            "io.modelcontextprotocol/protocolVersion": MODERN,
            "io.modelcontextprotocol/clientInfo": {"name": "x", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}},
        }
        body = request("tools/call", {"name": tool, "arguments": arguments, "_meta": meta, **more})
        headers = {"mcp-protocol-version": MODERN, "mcp-method": "tools/call", "mcp-name": tool}
        exchange = self.send(name, body=body, **headers)
        await exchange.start()
        return await exchange.json()


def request(method: str, params: dict[str, Any], id_: int = 1) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id_, "method": method, "params": params}


@pytest.fixture
async def callers() -> AsyncIterator[Callers]:
    log: list[str] = []
    server = make_server(log)
    async with contextlib.AsyncExitStack() as stack:
        await stack.enter_async_context(server.engine.lifespan.running())
        yield Callers(server.asgi(auth=HostAuth(find_principal)), log)


async def failure(exchange: AsgiExchange) -> tuple[int, Any]:
    status, _ = await exchange.start()
    return status, await exchange.json()


@pytest.mark.parametrize("other", OTHERS)
@pytest.mark.parametrize("verb", ["POST", "GET", "DELETE"])
async def test_anothers_session_is_told_as_one_that_does_not_exist(callers, verb, other):
    session = await callers.open_session("ann")
    body = request("ping", {}) if verb == "POST" else None
    refused = await failure(callers.send(other, verb, body, **session))
    unknown = await failure(callers.send(other, verb, body, **{**session, "mcp-session-id": UNKNOWN_SESSION}))
    assert refused == unknown
    assert refused[0] == 404
    status, _ = await callers.send("ann", body=request("ping", {}), **session).start()
    assert status == 200, "it is still ann's"


@pytest.mark.parametrize("other", OTHERS)
async def test_another_can_neither_answer_nor_cancel_nor_read_a_call(callers, other):
    session = await callers.open_session("ann")
    call = callers.send("ann", body=request("tools/call", {"name": "wait", "arguments": {}}, 7), **session)
    status, _ = await call.start()
    assert status == 200
    question: dict[str, str] = {}
    while "data" not in question or "elicitation/create" not in question["data"]:
        question = await call.event()
    asked, event = json.loads(question["data"]), question.get("id", "0")
    forged = {"jsonrpc": "2.0", "id": asked["id"], "result": {"action": "accept", "content": {"value": 666}}}
    cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7}}
    for body in (forged, cancel):
        assert (await failure(callers.send(other, body=body, **session)))[0] == 404
    assert (await failure(callers.send(other, "GET", **session, **{"last-event-id": event})))[0] == 404
    own = await callers.open_session(other)
    for body in (forged, cancel):
        assert (await callers.send(other, body=body, **own).start())[0] == 202
    resumed = callers.send(other, "GET", **own, **{"last-event-id": event})
    await resumed.start()
    assert callers.log == ["started"]
    declined = {"jsonrpc": "2.0", "id": asked["id"], "result": {"action": "decline"}}
    assert (await callers.send("ann", body=declined, **session).start())[0] == 202
    answer: dict[str, str] = {}
    while '"result"' not in answer.get("data", ""):
        answer = await call.event()
    assert json.loads(answer["data"])["result"]["content"][0]["text"] == "decline"
    resumed.leave()


@pytest.mark.parametrize("other", OTHERS)
async def test_anothers_result_is_told_as_one_that_does_not_exist(callers, other):
    cut = (await callers.modern("ann", "rows", {}))["result"]
    handle = cut["_meta"]["io.github.delta-mcp/result"]["handle"]
    last = {"2": "3", "a": "b"}
    nowhere = handle[:-1] + last.get(handle[-1], "2" if handle[-1].isdigit() else "a")
    for given in ({"handle": handle}, {"handle": handle, "path": "/5"}):
        refused = (await callers.modern(other, "continue", given))["result"]
        unknown = (await callers.modern(other, "continue", {**given, "handle": nowhere}))["result"]
        assert refused["isError"] is True and "square" not in json.dumps(refused)
        assert json.dumps(refused).replace(handle, nowhere) == json.dumps(unknown)
    mine = (await callers.modern("ann", "continue", {"handle": handle, "path": "/5"}))["result"]
    assert not mine.get("isError")


@pytest.mark.parametrize("other", OTHERS)
async def test_state_that_was_sealed_for_one_is_not_opened_for_another(callers, other):
    asked = (await callers.modern("ann", "wait", {}))["result"]
    [key] = asked["inputRequests"]
    answers = {key: {"action": "accept", "content": {"value": 3}}}
    more = {"requestState": asked["requestState"], "inputResponses": answers}
    stolen = await callers.modern(other, "wait", {}, **more)
    assert "error" in stolen or stolen["result"].get("resultType") == "input_required", stolen
    kept = await callers.modern("ann", "wait", {}, **more)
    assert kept["result"]["content"][0]["text"] == "accept"
