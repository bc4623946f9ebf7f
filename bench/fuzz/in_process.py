"""Sends cases to an ASGI application in this process, without sockets."""

import asyncio
from typing import Any
from urllib.parse import unquote

from bench import messages
from bench.fuzz.cases import HttpCase
from bench.fuzz.sender import RawReply
from bench.fuzz.valid_messages import HANDLE, SESSION, STATE, TOKEN
from deltamcp.values import Era


async def send_case(app: Any, case: HttpCase) -> RawReply:
    """Sends a case and returns the response, of an event stream its beginning; the client then leaves.

    Whatever the application raises, this raises.
    """
    left = asyncio.Event()
    parts = [case.body[:7], case.body[7:]] if case.chunked else [case.body]
    events = [{"type": "http.request", "body": part, "more_body": at + 1 < len(parts)} for at, part in enumerate(parts)]
    started: dict[str, Any] = {}
    body: list[bytes] = []

    async def receive() -> dict[str, Any]:
        if events:
            return events.pop(0)
        await left.wait()
        return {"type": "http.disconnect"}

    async def send(event: Any) -> None:
        if event["type"] == "http.response.start":
            started.update(event)
            return
        body.append(event.get("body", b""))
        if not event.get("more_body") or _header(started, b"content-type").startswith("text/event-stream"):
            left.set()

    path, _, query = case.target.partition("?")
    raw = [(name.lower().encode("utf-8"), value.encode("utf-8")) for name, value in case.headers]
    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": case.verb,
        "scheme": "http",
        "path": unquote(path),
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "headers": raw,
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 1),
    }
    await app(scope, receive, send)
    session = _header(started, b"mcp-session-id") or None
    return RawReply(started.get("status", 0), _header(started, b"content-type"), session, b"".join(body))


async def find_known(app: Any, token: str, is_modern: bool = True) -> dict[str, str]:
    """A session and, where there is a modern era, the handle of a stored result of the application."""
    bearer = {"Host": "localhost", "Authorization": f"Bearer {token}"}

    async def post(body: bytes, headers: dict[str, str]) -> RawReply:
        return await send_case(app, HttpCase("POST", "/mcp", "HTTP/1.1", list((headers | bearer).items()), body))

    opened = await post(messages.initialize(), messages.headers(None, "initialize"))
    if not is_modern:
        return {SESSION: opened.session or "", HANDLE: "a" * 16, STATE: "x", TOKEN: token}
    call = messages.call(Era.MODERN, "rows", {"count": 300})
    stored = await post(call, messages.headers(Era.MODERN, "tools/call", "rows"))
    handle = messages.parse_reply(stored.body)["result"]["_meta"]["io.github.delta-mcp/result"]["handle"]
    return {SESSION: opened.session or "", HANDLE: handle, STATE: "x", TOKEN: token}


def _header(started: dict[str, Any], name: bytes) -> str:
    return next((value.decode("latin-1") for key, value in started.get("headers", ()) if key == name), "")
