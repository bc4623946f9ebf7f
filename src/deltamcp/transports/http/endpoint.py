"""The MCP endpoint over HTTP: finds the dialect of a request, serves those of the modern era, and sends event streams.

Requests of the modern era have no session; their headers must agree with their bodies. Those of the handshake era go to
`SessionRequests`. The server cancels a request whose client disconnects. The exception is a request of the handshake
era whose response has begun as an event stream: its events have ids, and the client may reconnect.
"""

import asyncio
import functools
import time
from collections.abc import Awaitable, Callable

from deltamcp.calls.engine import Engine
from deltamcp.calls.failures import encode_response
from deltamcp.dialects import versions
from deltamcp.dialects.dialect import StatelessDialect
from deltamcp.dialects.modern import check_headers
from deltamcp.errors import Fault
from deltamcp.transports.http import asgi
from deltamcp.transports.http.asgi import Headers
from deltamcp.transports.http.exchange import BodyReader, Exchange, HttpAnswer, choose_codecs, refusal, refuse_message
from deltamcp.transports.http.reply import RETRY_MS, CallsInFlight, HttpReply, serve
from deltamcp.transports.http.session_requests import SessionRequests
from deltamcp.transports.sessions.shared_streams import watched_bytes
from deltamcp.transports.sessions.streams import FollowedStream, SubscriptionStream
from deltamcp.transports.subscription import FOLLOWED_BYTES, FollowedPromises, Subscription
from deltamcp.values import (
    Failure,
    Listen,
    Message,
    Notification,
    Outcome,
    Request,
)
from deltamcp.wire import sse

_HANDSHAKE_VERSIONS = frozenset(version.encode() for version in versions.HANDSHAKE)


class McpEndpoint:
    """Serves the requests that `HttpApp` has admitted."""

    def __init__(self, engine: Engine, calls: CallsInFlight, bodies: BodyReader, sessions: SessionRequests) -> None:
        self._engine = engine
        self._calls = calls
        self._bodies = bodies
        self._in_sessions = sessions
        self._closers: set[Callable[[], None]] = set()

    def serve(self, exchange: Exchange) -> Awaitable[None]:
        """Sends the response to a request. Await what it returns."""
        return self._post(exchange) if exchange.method == "POST" else self._serve_other(exchange)

    async def _serve_other(self, exchange: Exchange) -> None:
        if exchange.method not in ("GET", "DELETE") or _is_modern_version(exchange.headers):
            wrong = Failure(Fault.WRONG_HTTP_METHOD, f"This endpoint does not take {exchange.method}; send POST.")
            await exchange.refuse(refusal(wrong))
        elif exchange.method == "GET":
            await self._follow(await self._in_sessions.listen(exchange), exchange)
        else:
            failure = await self._in_sessions.end(exchange)
            if failure is None:
                await asgi.respond(exchange.send, 200, b"")
            else:
                await exchange.refuse(refusal(failure))

    def drain(self) -> None:
        """Ends the streams that do not end by themselves."""
        for close in tuple(self._closers):
            close()

    async def _post(self, exchange: Exchange) -> None:
        codec = choose_codecs(exchange)
        if isinstance(codec, Failure):
            await exchange.refuse(refusal(codec))
            return
        message = self._bodies.read_arrived(exchange, codec) or await self._bodies.read(exchange, codec)
        if isinstance(message, Failure):
            await exchange.refuse(refusal(message))
            return
        dialects = self._engine.dialects
        dialect = dialects.find_stateless(message) if isinstance(message, Request) else None
        if dialect is None and _is_modern_version(exchange.headers):
            dialect = dialects.newest
        if dialect is None:
            await self._in_sessions.answer(message, exchange)
        elif not isinstance(message, Request):
            await self._take_no_request(message, exchange)
        else:
            understood = dialect.read(message, exchange.caller)
            operations = self._engine.catalog.view(exchange.caller.principal).operations
            understood = check_headers(message, understood, exchange.headers, exchange.repeated, operations)
            version = versions.MODERN[0]
            if not isinstance(understood, Failure):
                version, ask = understood[0].version, understood[1]
                if isinstance(ask, Listen):
                    await self._follow(await self._listen(message, dialect, version, ask, exchange), exchange, message)
                    return
            reply = HttpReply(exchange, self._engine.limits)
            performing = self._calls.perform(understood, reply, message.id)
            await serve(reply, performing, functools.partial(_write, message, dialect, version))

    # The modern era

    async def _take_no_request(self, message: Message | list[Message], exchange: Exchange) -> None:
        if isinstance(message, Notification):
            await asgi.respond_accepted(exchange.send)
        else:
            await exchange.refuse(refuse_message(message))

    async def _listen(
        self, request: Request, dialect: StatelessDialect, version: str, ask: Listen, exchange: Exchange
    ) -> FollowedStream | Failure:
        if not exchange.accepts.events:
            return Failure(Fault.NOT_ACCEPTABLE, "Accept text/event-stream.")
        quotas, account, hub = exchange.quotas, exchange.caller.account, self._engine.hub
        accepted = await self._engine.accept_filter(ask.filter, exchange.caller)
        size = watched_bytes(accepted.uris) + FOLLOWED_BYTES * len(accepted.tokens) + 1
        if not quotas.watched.take(account, size):
            return Failure(Fault.OVERLOADED, "Too much is subscribed to; end a subscription first.")
        if not quotas.streams.take(account):
            quotas.watched.give_back(account, size)
            return Failure(Fault.OVERLOADED, "Too many streams are open; close one first.")
        stream = SubscriptionStream(self._engine.limits, quotas.responses, account)
        subscription = Subscription(dialect, request, version, accepted, stream.append, exchange.caller.principal)
        subscription.acknowledge()
        hub.subscribe(subscription)
        followed = FollowedPromises(self._engine, accepted.tokens, exchange.caller, subscription.notify_of_promise)

        def close() -> None:
            subscription.end()
            stream.end()

        def leave() -> None:
            hub.unsubscribe(subscription)
            followed.stop()
            stream.forget()
            quotas.streams.give_back(account)
            quotas.watched.give_back(account, size)

        return FollowedStream(stream, 0, close=close, on_leave=leave)

    # Streams

    async def _follow(
        self, followed: FollowedStream | Failure, exchange: Exchange, request: Request | None = None
    ) -> None:
        """Sends the events of a stream until it ends, the client disconnects, or the client's token expires."""
        if isinstance(followed, Failure):
            await exchange.refuse(refusal(followed, None if request is None else request.id))
            return
        stream, after, primed, close, on_leave = followed
        receive, send, expires_at = exchange.receive, exchange.send, exchange.caller.principal.expires_at
        follower = stream.follow()
        leaving = asyncio.ensure_future(asgi.wait_for_disconnect(receive))
        leaving.add_done_callback(lambda _: follower.wake())
        self._closers.add(close)
        try:
            await asgi.start_events(send)
            if primed:
                await asgi.send_event(send, sse.encode_priming_event(stream.event_id(after), RETRY_MS))
            if self._calls.draining:
                close()
            while not leaving.done():
                if time.time() >= expires_at:
                    close()
                for number, event in stream.events_after(after):
                    if number > after + 1:
                        await asgi.send_event(send, b": %d events are forgotten\n\n" % (number - after - 1))
                    after = stream.sent = number
                    await asgi.send_event(send, event)
                if stream.ended or stream.follower is not follower:
                    break
                if not await follower.wait(self._engine.limits.ping_seconds):
                    await asgi.send_event(send, sse.KEEP_ALIVE)
        finally:
            leaving.cancel()
            stream.unfollow(follower)
            self._closers.discard(close)
            on_leave()
        await asgi.end_events(send)


def _write(request: Request, dialect: StatelessDialect, version: str, outcome: Outcome) -> HttpAnswer:
    body = encode_response(dialect, request, outcome, version)
    if isinstance(outcome, Failure):
        return HttpAnswer(dialect.http_status(outcome), body, failure=outcome)
    return HttpAnswer(200, body)


def _is_modern_version(headers: Headers) -> bool:
    """Whether the version header names a modern or an unknown version; the modern era has an error for the latter."""
    version = headers.get(b"mcp-protocol-version")
    return version is not None and version not in _HANDSHAKE_VERSIONS and version.strip() not in _HANDSHAKE_VERSIONS
