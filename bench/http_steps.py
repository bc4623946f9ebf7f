"""`python -m bench.http_steps`: what the CPU time of one request over HTTP is spent on, without sockets.

Requests of the modern era go through uvicorn's protocol on a transport that drops what is written. Each step is timed
inside whole requests, because in a loop of its own it would take half as long: its code and data would stay in the
processor's caches.
"""

import argparse
import asyncio
import functools
import json
import statistics
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable
from typing import Any

import uvloop
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from deltamcp import DeltaServer
from deltamcp.dialects.modern import ModernMcp
from deltamcp.limits import Limits
from deltamcp.runtime.quota import Quota
from deltamcp.transports.http import endpoint
from deltamcp.transports.http.asgi import WHOLE_BODY, WHOLE_RESPONSE
from deltamcp.transports.http.exchange import BodyReader, Exchange
from deltamcp.transports.http.protocol import bounded_protocol
from deltamcp.transports.http.reply import CallsInFlight, HttpReply

_ROUNDS = 9
_REQUESTS = 4_000
_META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": {"name": "bench", "version": "1"},
}
_BODY = b'{"jsonrpc":"2.0","id":1,"result":{}}'
_STEPS: tuple[tuple[Any, str, str], ...] = (
    (endpoint, "choose_codecs", "media types"),
    (BodyReader, "read_arrived", "body: bounds, JSON, quota"),
    (ModernMcp, "read", "dialect reads the request"),
    (endpoint, "check_headers", "headers agree with the body"),
    (HttpReply, "__init__", "reply"),
    (CallsInFlight, "perform", "engine performs the ask"),
    (endpoint, "_write", "dialect writes the outcome"),
    (Exchange, "respond", "response is sent"),
)


class _Nowhere(asyncio.Transport):
    """Counts what is written, and drops it."""

    def __init__(self) -> None:
        super().__init__()
        self.responses = 0

    def write(self, data: Any) -> None:
        self.responses += 1

    def writelines(self, list_of_data: Any) -> None:
        self.responses += 1

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Nothing is ever unsent."""

    def close(self) -> None:
        """There is nothing to close."""

    def is_closing(self) -> bool:
        return False

    def resume_reading(self) -> None:
        """It was never paused."""

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("127.0.0.1", 8000) if name in ("peername", "sockname") else default


def _server() -> DeltaServer:
    server = DeltaServer("bench", "1")

    @server.tool
    async def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    return server


def _request(method: str, params: dict[str, Any], name: str | None) -> bytes:
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": _META}}).encode()
    lines = [
        "POST /mcp HTTP/1.1",
        "host: 127.0.0.1:8000",
        "content-type: application/json",
        "accept: application/json, text/event-stream",
        "mcp-protocol-version: 2026-07-28",
        f"mcp-method: {method}",
        *([] if name is None else [f"mcp-name: {name}"]),
        f"content-length: {len(body)}",
    ]
    return "\r\n".join([*lines, "", ""]).encode() + body


def _timed(function: Callable[..., Any], spent: list[int]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:
        began = time.perf_counter_ns()
        made = function(*arguments, **named)
        if not asyncio.iscoroutine(made):
            spent.append(time.perf_counter_ns() - began)
            return made
        return _await(made, spent, began)

    return call


async def _await(awaited: Awaitable[Any], spent: list[int], began: int) -> Any:
    made = await awaited
    spent.append(time.perf_counter_ns() - began)
    return made


async def _measure(app: Any, protocol: type[HttpToolsProtocol], request: bytes) -> float:
    """Returns the least CPU time of a request over rounds, in µs."""
    config = Config(app, http="httptools", access_log=False, lifespan="off", proxy_headers=False)
    config.load()
    served = protocol(config, ServerState(), {}, asyncio.get_running_loop())
    transport = _Nowhere()
    served.connection_made(transport)
    times = []
    for _ in range(_ROUNDS):
        began = time.thread_time()
        for _ in range(_REQUESTS):
            before = transport.responses
            served.data_received(request)
            while transport.responses == before:  # noqa: ASYNC110 - an event would take time of its own
                await asyncio.sleep(0)
        times.append((time.thread_time() - began) / _REQUESTS)
    served.connection_lost(None)
    return min(times) * 1e6


async def _answer(scope: Any, receive: Any, send: Any) -> None:
    await receive()
    head = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(_BODY))]
    await send({"type": "http.response.start", "status": 200, "headers": head})
    await send({"type": "http.response.body", "body": _BODY})


async def _answer_at_once(scope: Any, receive: Any, send: Any) -> None:
    scope[WHOLE_BODY](len(_BODY) * 100)
    scope[WHOLE_RESPONSE](200, _BODY, ())


async def _run() -> None:
    bounded = bounded_protocol(Limits(), Quota(100, 1.0), None)
    request = _request("tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}}, "add")
    print(f"{await _measure(_answer, HttpToolsProtocol, request):6.1f}  uvicorn and an application of four lines")
    print(f"{await _measure(_answer_at_once, bounded, request):6.1f}  the same, with this library's HTTP protocol")
    app = _server().asgi()
    print(f"{await _measure(app, bounded, request):6.1f}  a call; of that, medians of the time by the clock:")
    spent: dict[str, list[int]] = defaultdict(list)
    for owner, name, title in _STEPS:
        setattr(owner, name, _timed(getattr(owner, name), spent[title]))
    await _measure(app, bounded, request)
    for title, times in spent.items():
        print(f"{statistics.median(times) / 1e3:10.1f}  {title}")


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    uvloop.run(_run())
