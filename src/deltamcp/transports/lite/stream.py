"""MCP-lite's event streams: the response to one POST as events, the last of which is `done` or `error`.

Events: `message` has a part of the result and its number; `heartbeat` says that the server is at work, and how far it
has come; `done` has the whole result; `error` an error of the protocol.
"""

import asyncio
import time
from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from deltamcp.context import ProgressReport
from deltamcp.dialects.mcp_lite import McpLite
from deltamcp.dialects.mcp_lite_bodies import FAILURE
from deltamcp.errors import ToolError
from deltamcp.limits import Limits
from deltamcp.transports.http import asgi
from deltamcp.transports.http.exchange import Exchange, HttpAnswer
from deltamcp.transports.http.reply import WatchedChannel
from deltamcp.transports.lite.responses import make_stamp, write_stamped_response
from deltamcp.transports.quota import UNREAD_PARTS
from deltamcp.values import JSON, EngineAsk, Failure, Outcome, RedeemPromise, Request, Terms
from deltamcp.wire import jsonrpc, sse
from deltamcp.wire.timestamps import format_time

_HEADERS = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store, no-transform"),
    (b"x-accel-buffering", b"no"),
)


def wait_to_end(understood: tuple[Terms, EngineAsk] | Failure, request: Request) -> tuple[Terms, EngineAsk] | Failure:
    """Returns a request that waits for a promise until its call has ended, unless the arguments say a time."""
    if isinstance(understood, Failure) or type(understood[1]) is not RedeemPromise:
        return understood
    return (
        understood
        if "wait_ms" in request.params["arguments"]
        else (understood[0], replace(understood[1], wait_seconds=None))
    )


def write_last_event(lite: McpLite, request: Request, started: float, outcome: Outcome) -> HttpAnswer:
    """Writes an outcome as the data of the event that ends a stream."""
    body, response = write_stamped_response(lite, request, outcome, started)
    if not isinstance(response, Failure):
        return HttpAnswer(200, _with_meta(body, response.meta))
    meta: dict[str, Any] = {"response_type": FAILURE}
    lite.add_stamp(meta, make_stamp(started))
    return HttpAnswer(200, _with_meta(body, meta), failure=response)


def _with_meta(body: bytes, meta: dict[str, Any]) -> bytes:
    """Returns a JSON-RPC response that has `_meta` beside its result or error too."""
    return b'%b,"_meta":%b}' % (body[:-1], jsonrpc.encode(meta))


class LiteStream(WatchedChannel):
    """One event stream, and the `Channel` of the call that it answers.

    Whoever sends an event waits until the client has read what was sent before, so that a slow reader slows down the
    call and does not fill the memory. Close it in any case.
    """

    takes_every_progress = True
    unasked = "MCP-lite's clients are asked by the result of a call."

    def __init__(self, exchange: Exchange, limits: Limits) -> None:
        super().__init__(exchange, limits)
        self._asgi_send = exchange.send
        self._sending = asyncio.Lock()
        self._parts = 0
        self._is_open = False
        self._sent_at = 0.0
        self._end_timer: asyncio.TimerHandle | None = None
        self._heart: asyncio.Task[None] | None = None

    # The stream

    async def open(self) -> None:
        """Sends the headers and a first heartbeat, so that proxies pass on the headers at once."""
        await self._asgi_send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
        self._is_open = True
        await self._send("heartbeat", _heartbeat())

    async def finish(self, response: HttpAnswer) -> None:
        """Sends the event that ends the stream; what comes later is dropped."""
        kind = "done"
        if response.failure is not None:
            kind = "error"
            if self.exchange.metrics is not None:
                self.exchange.metrics.count_refusal(response.failure)
        await self._end(sse.encode_named_event(kind, response.body))

    async def abandon(self) -> None:
        await self._end(b"")

    async def _end(self, event: bytes) -> None:
        async with self._sending:
            if self._is_open:
                self._is_open = False
                await asgi.send_event(self._asgi_send, event)
                await asgi.end_events(self._asgi_send)

    async def close(self) -> None:
        """Ends the stream, if nothing has ended it."""
        if self._end_timer is not None:
            self._end_timer.cancel()
        await self._end(b"")

    # The call

    def on_wait(self) -> None:
        super().on_wait()
        self._heart = asyncio.get_running_loop().create_task(self._send_heartbeats())

    def on_end(self) -> None:
        super().on_end()
        if self._heart is not None:
            self._heart.cancel()
            self._heart = None

    def end_after(self, seconds: float) -> None:
        """Cancels the call if it has not ended after so many seconds."""
        if self._end_timer is None:
            self._end_timer = asyncio.get_running_loop().call_later(seconds, self._cancel)

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _send_heartbeats(self) -> None:
        clock = asyncio.get_running_loop().time
        while True:
            silence = clock() - self._sent_at
            if silence >= self._limits.ping_seconds:
                await self._send("heartbeat", _heartbeat())
                silence = 0.0
            await asyncio.sleep(self._limits.ping_seconds - silence)

    # The channel

    async def report(self, progress: ProgressReport) -> None:
        await self._send("heartbeat", _heartbeat(progress.fields()))

    async def send_part(self, part: JSON) -> None:
        self._parts += 1
        data = jsonrpc.encode_finite({"partial": part, "seq": self._parts})
        if len(data) <= asgi.PIECE_BYTES:
            await self._send("message", data)
            return
        quota, account = self.exchange.quotas.responses, self.exchange.caller.account
        size = min(len(data), quota.share)
        if not await quota.take_in_turn(account, size, self._limits.send_seconds):
            raise ToolError(UNREAD_PARTS)
        # A call that is cancelled here must not leave half of an event in the stream.
        await asyncio.shield(self._send_large(data, size))

    async def _send_large(self, data: bytes, size: int) -> None:
        try:
            await self._send("message", data)
        finally:
            self.exchange.quotas.responses.give_back(self.exchange.caller.account, size)

    async def _send(self, kind: str, data: bytes) -> None:
        async with self._sending:
            if self._is_open:
                await asgi.send_event(self._asgi_send, sse.encode_named_event(kind, data))
                self._sent_at = asyncio.get_running_loop().time()


def _heartbeat(fields: Mapping[str, JSON] | None = None) -> bytes:
    return jsonrpc.encode({"ts": format_time(time.time()), **(fields or {})})
