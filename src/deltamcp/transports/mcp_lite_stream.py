"""MCP-lite's event streams: the response to one POST as events, the last of which is `done` or `error`.

Events: `message` has a part of the result and its number; `heartbeat` says that the server is at work, and how far it
has come; `done` has the whole result; `error` an error of the protocol.
"""

import asyncio
import time
from collections.abc import Hashable, Mapping
from typing import Any

from msgspec.structs import replace

from deltamcp.calls.engine import Engine
from deltamcp.context import ProgressReport
from deltamcp.dialects.mcp_lite import McpLite
from deltamcp.dialects.mcp_lite_bodies import FAILURE
from deltamcp.errors import InputDeclinedError, ToolError
from deltamcp.limits import Limits
from deltamcp.transports import asgi_messages
from deltamcp.transports.asgi_messages import HttpRequest
from deltamcp.transports.calls_in_flight import CallsInFlight
from deltamcp.transports.mcp_lite_response import make_stamp, write_stamped_response
from deltamcp.transports.quota import UNREAD, UNREAD_PARTS
from deltamcp.values import JSON, EngineAsk, Failure, Outcome, RedeemPromise, Request, Terms
from deltamcp.wire import jsonrpc, sse
from deltamcp.wire.timestamps import format_time

_HEADERS = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store, no-transform"),
    (b"x-accel-buffering", b"no"),
)
_DRAIN_SHARE = 0.9
"""The part of the time to drain after which a stream ends: the rest is for its last event."""


class LiteStreams:
    """Answers requests by event streams."""

    def __init__(self, engine: Engine, lite: McpLite, calls: CallsInFlight) -> None:
        self._limits = engine.limits
        self._lite = lite
        self._calls = calls
        self._open: set[LiteStream] = set()

    def drain(self) -> None:
        """Ends the calls of open streams that do not end by themselves in time."""
        for stream in self._open:
            stream.end_after(self._limits.drain_seconds * _DRAIN_SHARE)

    async def answer(
        self, request: Request, understood: tuple[Terms, EngineAsk] | Failure, incoming: HttpRequest, started: float
    ) -> None:
        """Sends the response to a request, which the dialect has read."""
        stream = LiteStream(incoming, self._limits)
        self._open.add(stream)
        try:
            await stream.open()
            outcome = await self._perform(request, understood, stream, incoming)
            if outcome is not None:
                await self._finish(request, outcome, stream, incoming, started)
        finally:
            self._open.discard(stream)
            await stream.close()

    async def _perform(
        self,
        request: Request,
        understood: tuple[Terms, EngineAsk] | Failure,
        stream: "LiteStream",
        incoming: HttpRequest,
    ) -> Outcome | None:
        if isinstance(understood, Failure):
            return understood
        terms, ask = understood
        if isinstance(ask, RedeemPromise) and "wait_ms" not in request.params["arguments"]:
            ask = replace(ask, wait_seconds=None)
        stream.begin_call()
        try:
            return await self._calls.perform(ask, terms, stream, request.id, incoming.account)
        finally:
            stream.end_call()

    async def _finish(
        self, request: Request, outcome: Outcome, stream: "LiteStream", incoming: HttpRequest, started: float
    ) -> None:
        body, response = write_stamped_response(self._lite, request, outcome, started)
        if not incoming.reserve_response(len(body)):
            body, response = write_stamped_response(self._lite, request, UNREAD, started)
        incoming.release()
        if isinstance(response, Failure):
            if incoming.metrics is not None:
                incoming.metrics.count_refusal(response)
            meta: dict[str, Any] = {"response_type": FAILURE}
            self._lite.add_stamp(meta, make_stamp(started))
            await stream.send_last("error", _with_meta(body, meta))
        else:
            await stream.send_last("done", _with_meta(body, response.meta))


def _with_meta(body: bytes, meta: dict[str, Any]) -> bytes:
    """Returns a JSON-RPC response that has `_meta` beside its result or error too."""
    return b'%b,"_meta":%b}' % (body[:-1], jsonrpc.encode(meta))


class LiteStream:
    """One event stream, and the `Channel` of the call that it answers.

    Whoever sends an event waits until the client has read what was sent before, so that a slow reader slows down the
    call and does not fill the memory. If the client disconnects, the call is cancelled.
    """

    takes_every_progress = True

    def __init__(self, incoming: HttpRequest, limits: Limits) -> None:
        self.fairness_key: Hashable = incoming.account
        self.departed = False
        """Whether the call was cancelled because the client disconnected."""
        self._incoming = incoming
        self._limits = limits
        self._sending = asyncio.Lock()
        self._parts = 0
        self._is_open = False
        self._sent_at = 0.0
        self._call: asyncio.Task[Any] | None = None
        self._end_timer: asyncio.TimerHandle | None = None
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def headers(self) -> Mapping[bytes, bytes]:
        return self._incoming.headers

    # The stream

    async def open(self) -> None:
        """Sends the headers and a first heartbeat, so that proxies pass on the headers at once."""
        await self._incoming.send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
        self._is_open = True
        await self._send("heartbeat", _heartbeat())

    async def send_last(self, kind: str, data: bytes) -> None:
        """Sends the event that ends the stream; what comes later is dropped."""
        async with self._sending:
            if self._is_open:
                self._is_open = False
                await asgi_messages.send_event(self._incoming.send, sse.encode_named_event(kind, data))
                await asgi_messages.end_events(self._incoming.send)

    async def close(self) -> None:
        """Ends a stream whose client has left."""
        async with self._sending:
            if self._is_open:
                self._is_open = False
                await asgi_messages.end_events(self._incoming.send)
        if self._incoming.response_bytes:
            self._incoming.release_responses()

    # The call

    def begin_call(self) -> None:
        """Watches the client from now on, and sends heartbeats, until `end_call`."""
        loop = asyncio.get_running_loop()
        self._call = asyncio.current_task()
        self._tasks = [loop.create_task(self._watch_client()), loop.create_task(self._send_heartbeats())]

    def end_call(self) -> None:
        self._call = None
        for task in self._tasks:
            task.cancel()
        self._tasks = []
        if self._end_timer is not None:
            self._end_timer.cancel()

    def end_after(self, seconds: float) -> None:
        """Cancels the call if it has not ended after so many seconds."""
        if self._end_timer is None:
            self._end_timer = asyncio.get_running_loop().call_later(seconds, self._cancel)

    def _cancel(self) -> None:
        if self._call is not None:
            self._call.cancel()

    async def _watch_client(self) -> None:
        await asgi_messages.wait_for_disconnect(self._incoming.receive)
        self.departed = True
        self._cancel()

    async def _send_heartbeats(self) -> None:
        clock = asyncio.get_running_loop().time
        while True:
            silence = clock() - self._sent_at
            if silence >= self._limits.ping_seconds:
                await self._send("heartbeat", _heartbeat())
                silence = 0.0
            await asyncio.sleep(self._limits.ping_seconds - silence)

    # The channel

    def on_wait(self) -> None:
        """Does nothing: the client is watched from `begin_call` on."""

    def on_end(self) -> None: ...

    async def notify(self, message: bytes) -> None:
        """Does nothing: MCP-lite has no notifications."""

    async def report(self, progress: ProgressReport) -> None:
        await self._send("heartbeat", _heartbeat(progress.fields()))

    async def send_part(self, part: JSON) -> None:
        self._parts += 1
        data = jsonrpc.encode_finite({"partial": part, "seq": self._parts})
        if len(data) <= asgi_messages.PIECE_BYTES:
            await self._send("message", data)
            return
        quota, account = self._incoming.quotas.responses, self._incoming.account
        size = min(len(data), quota.share)
        if not await quota.take_in_turn(account, size, self._limits.send_seconds):
            raise ToolError(UNREAD_PARTS)
        # A call that is cancelled here must not leave half of an event in the stream.
        await asyncio.shield(self._send_large(data, size))

    async def _send_large(self, data: bytes, size: int) -> None:
        try:
            await self._send("message", data)
        finally:
            self._incoming.quotas.responses.give_back(self._incoming.account, size)

    async def request(self, method: str, params: dict[str, JSON]) -> JSON:
        raise InputDeclinedError("MCP-lite's clients are asked by the result of a call.")

    async def detach(self) -> None:
        """Does nothing: the streams of MCP-lite cannot be resumed."""

    async def _send(self, kind: str, data: bytes) -> None:
        async with self._sending:
            if self._is_open:
                await asgi_messages.send_event(self._incoming.send, sse.encode_named_event(kind, data))
                self._sent_at = asyncio.get_running_loop().time()


def _heartbeat(fields: Mapping[str, JSON] | None = None) -> bytes:
    return jsonrpc.encode({"ts": format_time(time.time()), **(fields or {})})
