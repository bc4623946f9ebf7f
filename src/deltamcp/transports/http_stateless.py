"""POST requests of the modern era, which have no session; their headers must agree with their bodies."""

from deltamcp.calls.engine import Engine
from deltamcp.dialects import versions
from deltamcp.dialects.dialect import Dialect
from deltamcp.dialects.mirrored_headers import check_headers, check_parameter_headers
from deltamcp.errors import Fault
from deltamcp.transports import asgi_messages
from deltamcp.transports.asgi_messages import HttpRequest
from deltamcp.transports.calls_in_flight import CallsInFlight
from deltamcp.transports.event_streams import EventStream, FollowedStream
from deltamcp.transports.http_reply import HttpReply
from deltamcp.transports.response import encode_response
from deltamcp.transports.subscription import Subscription
from deltamcp.values import ANONYMOUS, Ask, EngineAsk, Failure, Listen, Message, Request, SetLevel, Terms, Watch

_MIRRORED = (b"mcp-protocol-version", b"mcp-method", b"mcp-name", b"mcp-param-")


class StatelessPosts:
    """Answers POST requests; for a subscription, returns the event stream that is the response."""

    def __init__(self, engine: Engine, calls: CallsInFlight) -> None:
        self._engine = engine
        self._calls = calls

    async def answer(
        self, message: Message | list[Message], dialect: Dialect, incoming: HttpRequest
    ) -> FollowedStream | None:
        """Sends the response to a body, or returns the event stream that is the response."""
        if type(message) is not Request:
            await asgi_messages.refuse_message(message, incoming.send)
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
                    return self._listen(message, dialect, terms.version, ask)
                refused = Failure(Fault.NOT_ACCEPTABLE, "Accept text/event-stream.")
                await asgi_messages.refuse(incoming.send, refused, message.id)
                return None
            case SetLevel() | Watch():
                raise AssertionError("only a session reads asks that change it")
            case _:
                await self._perform(message, ask, dialect, terms, incoming)
                return None

    async def _perform(
        self, request: Request, ask: EngineAsk, dialect: Dialect, terms: Terms, incoming: HttpRequest
    ) -> None:
        principal = terms.caller.principal
        fairness_key = (incoming.scope.get("client") or ("",))[0] if principal is ANONYMOUS else principal.id
        reply = HttpReply(incoming, incoming.accepts or asgi_messages.ONLY_JSON, fairness_key, self._engine.limits)
        outcome = await self._calls.perform(ask, terms, reply, request.id)
        if outcome is None:
            await reply.abandon()
            return
        status = dialect.http_status(outcome) if isinstance(outcome, Failure) else 200
        await reply.finish(encode_response(dialect, request, outcome, terms.version), status)

    def _read(self, request: Request, dialect: Dialect, incoming: HttpRequest) -> tuple[Terms, Ask] | Failure:
        caller = self._engine.identify(incoming.principal)
        headers = incoming.headers
        repeated = not incoming.has_unique_headers and incoming.has_repeated(_MIRRORED)
        mismatch = check_headers(request, headers, repeated)
        if mismatch is not None:
            return mismatch
        understood = dialect.read(request, caller)
        if isinstance(understood, Failure):
            return understood
        visible = self._engine.catalog.view(caller.principal.scopes).operations
        return check_parameter_headers(understood[1], headers, visible) or understood

    def _listen(self, request: Request, dialect: Dialect, version: str, ask: Listen) -> FollowedStream:
        hub, stream = self._engine.hub, EventStream(None, self._engine.limits)
        accepted = self._engine.capabilities.supported_filter(ask.filter)
        subscription = Subscription(dialect, request, version, accepted, stream.append)
        subscription.acknowledge()
        hub.subscribe(subscription)

        def close() -> None:
            subscription.end()
            stream.end()

        return FollowedStream(stream, 0, close=close, on_leave=lambda: hub.unsubscribe(subscription))
