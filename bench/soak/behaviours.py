"""What the peers of a soak do over HTTP. Each behaviour runs once, on connections of its own, and tells its outcome."""

import asyncio
import json
import random
import time
from collections.abc import Awaitable, Callable
from typing import Any

from bench import messages
from bench.soak.raw_http import HttpReply, connection
from bench.soak.tally import Tally
from deltamcp import connect
from deltamcp.client.reply import Reply
from deltamcp.errors import ClientError
from deltamcp.values import Era

Behaviour = Callable[[int, Tally], Awaitable[str]]
"""Takes a server's port, and returns the kind of its outcome. It raises `UnexpectedError` at others."""

_ELICITATION: dict[str, Any] = {"io.modelcontextprotocol/clientCapabilities": {"elicitation": {}}}
BUSY = "refused, because the server is busy"


class UnexpectedError(Exception):
    """Something happened that no peer should see."""


async def post(port: int, method: str, params: dict[str, Any], meta: dict[str, Any] | None = None) -> HttpReply:
    body = json.loads(messages.request(Era.MODERN, method, params))
    body["params"]["_meta"] |= meta or {}
    headers = messages.headers(Era.MODERN, method, params.get("name") or params.get("uri"))
    async with connection(port) as opened:
        await opened.send("POST", headers, json.dumps(body).encode())
        return await opened.reply()


async def call(port: int, name: str, meta: dict[str, Any] | None = None, /, **params: Any) -> dict[str, Any]:
    """The result of a call, of which `params` may have more than the arguments."""
    params = {"name": name, "arguments": {}} | params
    reply = await post(port, "tools/call", params, meta)
    if reply.status == 503:
        raise ConnectionRefusedError
    if reply.status != 200:
        raise UnexpectedError(f"status {reply.status}: {reply.body[:100]!r}")
    found: dict[str, Any] = messages.parse_reply(reply.body).get("result") or {}
    return found


def text(result: dict[str, Any]) -> str:
    return "\n".join(block.get("text", "") for block in result.get("content", []))


def expect(is_right: bool, what: object) -> None:
    if not is_right:
        raise UnexpectedError(str(what))


async def steady_calls(port: int, tally: Tally) -> str:
    """Calls on one connection, whose latency is judged."""
    body, headers = messages.call(Era.MODERN), messages.headers(Era.MODERN, "tools/call", "add")
    async with connection(port) as opened:
        for _ in range(50):
            began = time.monotonic()
            await opened.send("POST", headers, body)
            reply = await opened.reply()
            tally.took(time.monotonic() - began)
            expect(reply.status == 200 and b'"5"' in reply.body, reply)
            await asyncio.sleep(0.005)
    return "answered"


async def cut_result(port: int, _: Tally) -> str:
    first = await call(port, "rows", arguments={"count": random.choice([500, 1_000, 5_000])})
    shown = text(first)
    expect("row" in shown, shown)
    handle = next((word.split('"')[1] for word in shown.split("handle=")[1:]), None)
    if handle is None:
        return "cut, and not stored"
    if random.random() < 0.3:
        await asyncio.sleep(7)  # beyond its life
    more = await call(port, "continue", arguments={"handle": handle, "page": 2})
    if more.get("isError"):
        return "expired, or not stored"
    expect("row" in text(more), more)
    return "continued"


async def read_resource(port: int, _: Tally) -> str:
    reply = await post(port, "resources/read", {"uri": "soak://clock"})
    expect(reply.status == 200, reply)
    return "read"


async def failing_tool(port: int, _: Tally) -> str:
    result = await call(port, "fail", arguments={"kind": random.choice(["tool", "other"])})
    expect(result.get("isError") is True, result)
    return "told of the error"


async def unanswered_question(port: int, _: Tally) -> str:
    result = await call(port, "ask", _ELICITATION)
    expect(result.get("resultType") == "input_required", result)
    return "left unanswered"


async def consent(port: int, _: Tally) -> str:
    asked = await call(port, "delete", _ELICITATION, arguments={"id": 7})
    expect(asked.get("resultType") == "input_required", asked)
    answers = {key: {"action": "accept", "content": {}} for key in asked["inputRequests"]}
    retry = {"arguments": {"id": 7}, "inputResponses": answers, "requestState": asked["requestState"]}
    done = text(await call(port, "delete", _ELICITATION, **retry))
    if "could not be recorded" in done:
        return "not recorded"
    expect(done == "deleted 7", done)
    again = text(await call(port, "delete", _ELICITATION, **retry))
    expect("used before" in again or "could not be recorded" in again, again)
    return "used once"


async def leave_during_call(port: int, _: Tally) -> str:
    name = random.choice(["wait", "block"])
    body = messages.call(Era.MODERN, name, {"seconds": 1.5})
    async with connection(port) as opened:
        await opened.send("POST", messages.headers(Era.MODERN, "tools/call", name), body)
        await asyncio.sleep(random.random() * 0.2)
    return "left"


async def leave_during_body(port: int, _: Tally) -> str:
    body = messages.call(Era.MODERN)
    async with connection(port) as opened:
        await opened.send("POST", messages.headers(Era.MODERN, "tools/call", "add"), body[:40], len(body))
        await asyncio.sleep(random.choice([0.05, 0.05, 4]))
    return "left"


async def silent_connection(port: int, _: Tally) -> str:
    async with connection(port) as opened:
        opened.writer.write(b"POST /mcp HTTP/1.1\r\nHost: x\r\n" if random.random() < 0.5 else b"")
        await asyncio.sleep(random.choice([0.1, 4]))
    return "left"


async def slow_reader(port: int, _: Tally) -> str:
    body = messages.call(Era.MODERN, "text", {"chars": 2_000_000})
    async with connection(port, limit=1 << 12) as opened:
        await opened.send("POST", messages.headers(Era.MODERN, "tools/call", "text"), body)
        for _pause in range(5):
            await opened.reader.read(1_000)
            await asyncio.sleep(0.2)
    return "left unread"


async def large_body(port: int, _: Tally) -> str:
    body = b" " * 5_000_000
    try:
        async with connection(port) as opened:
            await opened.send("POST", messages.headers(Era.MODERN, "tools/call", "add"), body)
            status, _headers = await opened.head()
    except (ConnectionError, asyncio.IncompleteReadError):
        return "reset"
    expect(status == 413, status)
    return "refused, 413"


async def malformed_body(port: int, _: Tally) -> str:
    body = random.choice([b"{", b"\xff\xfe", b"[]", b'{"jsonrpc":"2.0","id":1,"method":"tools/call"}', b"[" * 10_000])
    headers = messages.headers(Era.MODERN, "tools/call", "add")
    if random.random() < 0.3:
        headers["Content-Type"] = "application/cbor"
    async with connection(port) as opened:
        await opened.send("POST", headers, body)
        status, _headers = await opened.head()
    expect(400 <= status < 500, status)
    return "refused, 4xx"


async def session(port: int, _: Tally) -> str:
    """A handshake session with an event stream, which ends in one of the ways that clients know."""
    async with connection(port) as opened, connection(port) as stream:
        await opened.send("POST", messages.headers(None, "initialize"), _initialize())
        began = await opened.reply()
        expect(began.status == 200, began)
        id_ = began.headers["mcp-session-id"]
        headers = messages.headers(Era.HANDSHAKE, "", session=id_)
        await opened.send("POST", headers, messages.INITIALIZED)
        await opened.reply()
        await stream.send("GET", headers | {"Accept": "text/event-stream"})
        status, _headers = await stream.head()
        expect(status == 200, status)
        for name, arguments in (("add", {"a": 2, "b": 3}), ("report", {"steps": 5}), ("change", {})):
            await opened.send("POST", headers, messages.call(Era.HANDSHAKE, name, arguments))
            reply = await opened.reply()
            expect(reply.status == 200, reply)
        match random.choice(["delete", "cancel", "question", "abandon", "cut"]):
            case "delete":
                await opened.send("DELETE", headers)
                reply = await opened.reply()
                expect(reply.status in (200, 202, 204), reply)
                return "deleted"
            case "cancel":
                await opened.send("POST", headers, messages.call(Era.HANDSHAKE, "wait", {"seconds": 2}, id=9))
                async with connection(port) as other:
                    cancelled = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 9}}
                    await other.send("POST", headers, json.dumps(cancelled).encode())
                    await other.reply()
                return "cancelled a call"
            case "question":
                await opened.send("POST", headers, messages.call(Era.HANDSHAKE, "ask", {}, id=9))
                await asyncio.sleep(0.3)
                return "left a question unanswered"
            case "cut":
                await opened.send("POST", headers, messages.call(Era.HANDSHAKE, "report", {"steps": 50}, id=9))
                await asyncio.sleep(0.1)
                return "left a stream"
            case _:
                return "abandoned"


async def brief_session(port: int) -> None:
    """Opens a session, calls, and ends it. What has expired goes when something of its kind comes."""
    async with connect(f"http://127.0.0.1:{port}/mcp", speak="handshake", deltas=True, listen=False) as client:
        for _ in range(2):
            await client.call("prices")


def _initialize() -> bytes:
    body = json.loads(messages.initialize())
    body["params"]["capabilities"] = {"elicitation": {}}
    return json.dumps(body).encode()


async def subscription(port: int, _: Tally) -> str:
    method = "subscriptions/listen"
    filter_ = {"toolsListChanged": True, "resourceSubscriptions": ["soak://clock"]}
    async with connection(port) as opened:
        body = messages.request(Era.MODERN, method, {"notifications": filter_})
        await opened.send("POST", messages.headers(Era.MODERN, method), body)
        status, _headers = await opened.head()
        expect(status == 200, status)
        await call(port, "change")
        async with asyncio.timeout(10):
            async for chunk in opened.chunks():
                if b"resources/updated" in chunk:
                    break
        await asyncio.sleep(random.random() * 3)
    return "notified"


async def delta_client(port: int, _: Tally) -> str:
    """This library's client, with its protocol, changes and encodings."""
    options: Any = {
        "encoding": random.choice(["json", "cbor"]),
        "deltas": random.random() < 0.7,
        "speak": random.choice(["auto", "handshake", "delta-mcp"]),
        "timeout": 15.0,
    }
    async with connect(f"http://127.0.0.1:{port}/mcp", **options) as client:
        for _call in range(5):
            try:
                found = await client.call("prices")
            except ClientError as error:
                expect("stored results cannot be reached now" in str(error), error)
                return "told that the store is away"
            if isinstance(found, Reply):
                expect(found.is_part, found)
                return "in part, because it was not stored"
            expect(len(found) == 50, found)
        found = await client.call("add", a=2, b=3)
        expect(found == 5, found)
    return f"{options['speak']}, {options['encoding']}"


async def file_operation(port: int, _: Tally) -> str:
    """An operation of the file, whose service fails now and then, and which a version of the file may lack."""
    reply = await post(port, "tools/call", {"name": "get_item", "arguments": {"id": random.randrange(100)}})
    if reply.status == 400:
        expect(b"There is no tool" in reply.body, reply.body)
        return "not there at the moment"
    expect(reply.status == 200, reply)
    result = messages.parse_reply(reply.body)["result"]
    if result.get("isError"):
        expect("a key for the service" not in text(result), result)
        return "told of the service's error"
    expect("item" in text(result) and "a key for the service" not in text(result), result)
    return "answered"


BEHAVIOURS: dict[Behaviour, int] = {
    steady_calls: 8,
    cut_result: 4,
    read_resource: 2,
    failing_tool: 2,
    unanswered_question: 2,
    consent: 2,
    leave_during_call: 3,
    leave_during_body: 1,
    silent_connection: 1,
    slow_reader: 2,
    large_body: 1,
    malformed_body: 2,
    session: 4,
    subscription: 2,
    delta_client: 3,
    file_operation: 3,
}
"""Behaviours, and how often each is chosen."""


async def behave(behaviour: Behaviour, port: int, tally: Tally) -> None:
    """Runs a behaviour once and counts its outcome."""
    name = behaviour.__name__.replace("_", " ")
    try:
        tally.count(name, await behaviour(port, tally))
    except ConnectionRefusedError:
        tally.count(name, BUSY)
    except Exception as error:
        tally.surprise(name, f"{type(error).__name__}: {error}")
