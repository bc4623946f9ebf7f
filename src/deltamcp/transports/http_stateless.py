"""POST requests of the modern era, which have no session; their headers must agree with their bodies."""

from deltamcp.calls.engine import Engine
from deltamcp.dialects import versions
from deltamcp.dialects.dialect import StatelessDialect
from deltamcp.dialects.mirrored_headers import check_headers, check_parameter_headers
from deltamcp.errors import Fault
from deltamcp.transports import asgi_messages
from deltamcp.transports.asgi_messages import HttpRequest
from deltamcp.transports.calls_in_flight import CallsInFlight
from deltamcp.transports.change_stream import watched_bytes
from deltamcp.transports.event_streams import FollowedStream, SubscriptionStream
from deltamcp.transports.followed_promises import FOLLOWED_BYTES, FollowedPromises
from deltamcp.transports.http_reply import HttpReply
from deltamcp.transports.quota import UNREAD
from deltamcp.transports.response import encode_response
from deltamcp.transports.subscription import Subscription
from deltamcp.values import Ask, EngineAsk, Failure, Listen, Message, Request, SetLevel, Terms, Watch

_MIRRORED = (b"mcp-protocol-version", b"mcp-method", b"mcp-name", b"mcp-param-")


class StatelessPosts:
    """Answers POST requests; for a subscription, returns the event stream that is the response."""

    def __init__(self, engine: Engine, calls: CallsInFlight) -> None:
        self._engine = engine
        self._calls = calls

    async def answer(
        self, message: Message | list[Message], dialect: StatelessDialect, incoming: HttpRequest
    ) -> FollowedStream | None:
        """Sends the response to a body, or returns the event stream that is the response."""
        if type(message) is not Request:
            await asgi_messages.refuse_message(message, incoming)
            return None
        understood = self._read(message, dialect, incoming)
        if isinstance(understood, Failure):
            body = dialect.write(message, understood, versions.MODERN[0])
            await asgi_messages.respond_to(incoming, dialect.http_status(understood), body)
            return None
        terms, ask = understood
        match ask:
            case Listen():
                if incoming.accepts is not None and incoming.accepts.events:
                    listened = await self._listen(message, dialect, terms.version, ask, incoming)
                else:
                    listened = Failure(Fault.NOT_ACCEPTABLE, "Accept text/event-stream.")
                if isinstance(listened, FollowedStream):
                    return listened
                await asgi_messages.refuse(incoming, listened, message.id)
                return None
            case SetLevel() | Watch():
                raise AssertionError("only a session reads asks that change it")
            case _:
                await self._perform(message, ask, dialect, terms, incoming)
                return None

    async def _perform(
        self, request: Request, ask: EngineAsk, dialect: StatelessDialect, terms: Terms, incoming: HttpRequest
    ) -> None:
        account = incoming.account
        reply = HttpReply(incoming, incoming.accepts or asgi_messages.ONLY_JSON, account, self._engine.limits)
        outcome = await self._calls.perform(ask, terms, reply, request.id, account)
        if outcome is None:
            await reply.abandon()
            return
        body = encode_response(dialect, request, outcome, terms.version)
        if not reply.reserve(len(body)):
            outcome = UNREAD
            body = encode_response(dialect, request, outcome, terms.version)
        failure = outcome if isinstance(outcome, Failure) else None
        incoming.release()
        await reply.finish(body, 200 if failure is None else dialect.http_status(failure), failure=failure)

    def _read(self, request: Request, dialect: StatelessDialect, incoming: HttpRequest) -> tuple[Terms, Ask] | Failure:
        caller = incoming.caller
        headers = incoming.headers
        repeated = not incoming.has_unique_headers and incoming.has_repeated(_MIRRORED)
        mismatch = check_headers(request, headers, repeated)
        if mismatch is not None:
            return mismatch
        understood = dialect.read(request, caller)
        if isinstance(understood, Failure):
            return understood
        visible = self._engine.catalog.view(caller.principal).operations
        return check_parameter_headers(understood[1], headers, visible) or understood

    async def _listen(
        self, request: Request, dialect: StatelessDialect, version: str, ask: Listen, incoming: HttpRequest
    ) -> FollowedStream | Failure:
        quotas, account, hub = incoming.quotas, incoming.account, self._engine.hub
        accepted = await self._engine.accept_filter(ask.filter, incoming.caller)
        size = watched_bytes(accepted.uris) + FOLLOWED_BYTES * len(accepted.tokens) + 1
        if not quotas.watched.take(account, size):
            return Failure(Fault.OVERLOADED, "Too much is subscribed to; end a subscription first.")
        if not quotas.streams.take(account):
            quotas.watched.give_back(account, size)
            return Failure(Fault.OVERLOADED, "Too many streams are open; close one first.")
        stream = SubscriptionStream(self._engine.limits, quotas.responses, account)
        subscription = Subscription(dialect, request, version, accepted, stream.append, incoming.caller.principal)
        subscription.acknowledge()
        hub.subscribe(subscription)
        followed = FollowedPromises(self._engine, accepted.tokens, incoming.caller, subscription.notify_of_promise)

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
