"""POST in the modern era: every request stands alone, its headers checked against its body."""

from deltamcp.calls.engine import Engine
from deltamcp.dialects import modern
from deltamcp.errors import FAULTS, Fault
from deltamcp.transports import asgi
from deltamcp.transports.asgi import Incoming
from deltamcp.transports.calls_in_flight import Calls
from deltamcp.transports.duplex import Subscription, written
from deltamcp.transports.event_streams import Following, Stream
from deltamcp.transports.http_reply import Reply
from deltamcp.values import ANONYMOUS, Ask, Failure, Listen, Message, Principal, Request, RequestId, Terms
from deltamcp.wire import jsonrpc

_MIRRORED = (b"mcp-protocol-version", b"mcp-method", b"mcp-name", b"mcp-param-")


class ModernPosts:
    """Answers them; a subscription is given back to be followed."""

    def __init__(self, engine: Engine, calls: Calls) -> None:
        self._engine = engine
        self._calls = calls
        self._stamp = modern.Stamp(engine.info, engine.cache_seconds)

    async def answer(self, message: Message | list[Message], incoming: Incoming) -> Following | None:
        if type(message) is not Request:
            await asgi.answer_no_request(message, incoming.send)
            return None
        principal = incoming.principal
        understood = self._understand(message, incoming, principal)
        if isinstance(understood, Failure):
            row = FAULTS[understood.fault]
            body = jsonrpc.error(message.id, row.modern, understood)
            await asgi.answer(incoming, row.modern_http, body)
            return None
        terms, ask = understood
        accepts = incoming.accepts or asgi.ONLY_JSON
        if isinstance(ask, Listen):
            if accepts.events:
                return self._listen(message.id, ask)
            refused = Failure(Fault.NOT_ACCEPTABLE, "Accept text/event-stream.")
            await asgi.refuse(incoming.send, refused, message.id)
            return None
        caller = incoming.client if principal is ANONYMOUS else principal.id
        reply = Reply(incoming, accepts, caller, self._engine.limits)
        outcome = await self._calls.perform(ask, terms, reply, message.id)
        if outcome is None:
            await reply.abandon()
            return None
        status = FAULTS[outcome.fault].modern_http if isinstance(outcome, Failure) else 200
        await reply.finish(written(self._stamp.write, message.id, outcome, terms.version), status)
        return None

    def _understand(self, request: Request, incoming: Incoming, principal: Principal) -> tuple[Terms, Ask] | Failure:
        meta = modern.envelope(request)
        if isinstance(meta, Failure):
            return meta
        headers = incoming.headers
        repeated = not incoming.tidy and incoming.repeats(_MIRRORED)
        mismatch = modern.check_headers(request, meta, headers, repeated)
        if mismatch is not None:
            return mismatch
        understood = modern.read(request, meta, principal)
        if isinstance(understood, Failure):
            return understood
        visible = self._engine.catalog.view(principal.scopes).operations
        return modern.check_parameter_headers(understood[1], headers, visible) or understood

    def _listen(self, id_: RequestId, ask: Listen) -> Following:
        wanted = self._engine.honoured(ask.filter)
        stream = Stream(None, self._engine.limits)
        stream.append(modern.acknowledge(id_, wanted))
        subscription = Subscription(id_, wanted, stream.append)
        self._engine.hub.join(subscription)

        def close() -> None:
            stream.append(modern.closing(id_))
            stream.end()

        return Following(stream, 0, close=close, left=lambda: self._engine.hub.leave(subscription))
