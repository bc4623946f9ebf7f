"""MCP-lite over HTTP: its paths, what they take, and the status of each response.

Every path takes JSON-RPC. Those of lists, and `await`, also take the parameters alone and then return the result alone.
Nothing here has a session.
"""

import enum
import math
import time

from msgspec.structs import replace

from deltamcp.calls.engine import Engine
from deltamcp.dialects.mcp_lite_bodies import PROMISE, LiteResponse
from deltamcp.errors import Fault
from deltamcp.transports import asgi_messages
from deltamcp.transports.asgi_messages import Headers, HttpRequest
from deltamcp.transports.body_reader import BodyReader
from deltamcp.transports.calls_in_flight import CallsInFlight
from deltamcp.transports.http_reply import HttpReply
from deltamcp.transports.mcp_lite_messages import MAX_BATCH, refusal
from deltamcp.transports.mcp_lite_negotiation import (
    ReplyForm,
    accepts_json,
    check_media_type,
    preferred_form,
    preferred_wait,
)
from deltamcp.transports.mcp_lite_options import McpLiteSettings
from deltamcp.transports.mcp_lite_response import make_stamp, write_response
from deltamcp.transports.mcp_lite_stream import LiteStreams
from deltamcp.transports.quota import TOO_MANY_CALLS, UNREAD, HttpQuotas
from deltamcp.values import (
    JSON,
    Answer,
    EngineAsk,
    Failure,
    Message,
    Notification,
    Page,
    RedeemPromise,
    Request,
    RequestId,
    Terms,
)
from deltamcp.wire import jsonrpc

_ALLOW = (b"allow", b"POST")
_ONLY_JSON = Failure(Fault.NOT_ACCEPTABLE, "Accept application/json; only a single request is answered by events.")
_Headers = tuple[tuple[bytes, bytes], ...]
_NO_HEADERS: _Headers = ()


class LitePath(enum.Enum):
    """What a path is for."""

    CALLS = "calls"
    TOOLS = "tools"
    """Returns an object with the tools."""
    TOOL_ARRAY = "tool array"
    PROMPTS = "prompts"
    AWAIT = "await"


_PATHS: dict[str, LitePath] = {
    "listtools": LitePath.TOOL_ARRAY,
    "tools": LitePath.TOOLS,
    "tools/list": LitePath.TOOLS,
    "calltools": LitePath.CALLS,
    "calltool": LitePath.CALLS,
    "rpc": LitePath.CALLS,
    "tools/call": LitePath.CALLS,
    # The heading of MCP-lite 0.042, 4.2.2, read literally.
    "calltoolsEndpoint": LitePath.CALLS,
}


class McpLiteEndpoint:
    """Serves the requests that `HttpApp` has admitted."""

    def __init__(self, engine: Engine, quotas: HttpQuotas, settings: McpLiteSettings) -> None:
        self._engine = engine
        self._settings = settings
        self._lite = engine.dialects.mcp_lite(settings.dialect)
        self._calls = CallsInFlight(engine, quotas.calls)
        self._streams = LiteStreams(engine, self._lite, self._calls)
        self._bodies = BodyReader(engine.limits)
        names = dict(_PATHS)
        if settings.prompts:
            names["prompts"] = LitePath.PROMPTS
        if settings.await_tool:
            names["await"] = LitePath.AWAIT
        self._prefix = f"/{settings.prefix.strip('/')}"
        places = (self._prefix.rstrip("/"), "") if settings.root_aliases else (self._prefix.rstrip("/"),)
        self.paths = {f"{place}/{name}": use for place in places for name, use in names.items()}
        """The paths, relative to where the application is mounted, and what each is for."""
        self._no_path = Failure(
            Fault.WRONG_PATH,
            f"There is no such path; send JSON-RPC to {self._prefix}/rpc, or {{}} to {self._prefix}/listtools.",
        )

    def owns(self, path: str) -> bool:
        """Whether a path is one of MCP-lite, or would be if there were such a path."""
        return path in self.paths or path == self._prefix or path.startswith(f"{self._prefix}/")

    def drain(self) -> None:
        """Tells calls that are cancelled from now on that the server stops, and ends event streams in time."""
        self._calls.draining = True
        self._streams.drain()

    async def serve(self, incoming: HttpRequest, path: str) -> None:
        """Sends the response to a request at a path that this endpoint owns."""
        try:
            use = self.paths.get(path)
            refused = self._no_path if use is None else _check_head(incoming)
            if refused is not None:
                await self.refuse(incoming, refused)
            elif use is LitePath.CALLS:
                await self._answer(await self._bodies.read(incoming, incoming.codec), incoming)
            elif use is not None:
                parsed = await self._bodies.read_object(incoming)
                if isinstance(parsed, dict):
                    if accepts_json(_accept(incoming)):
                        await self._answer_object(parsed, use, incoming)
                    else:
                        await self.refuse(incoming, _ONLY_JSON)
                else:
                    await self._answer(parsed, incoming)
        finally:
            incoming.release()
            if incoming.response_bytes:  # those of a batch whose client has left
                incoming.release_responses()

    async def refuse(self, incoming: HttpRequest, failure: Failure, id_: RequestId | None = None) -> None:
        """Refuses a request that no tool has seen."""
        headers = asgi_messages.failure_headers(incoming, failure)
        if failure.fault is Fault.WRONG_HTTP_METHOD:
            headers = (_ALLOW,)
        status = self._lite.http_status(failure)
        await asgi_messages.send_refusal(incoming, failure, status, self._lite.refuse(failure, id_), headers)

    # JSON-RPC

    async def _answer(self, message: Message | list[Message] | Failure, incoming: HttpRequest) -> None:
        match message:
            case Request():
                await self._answer_request(message, incoming)
            case list() if accepts_json(_accept(incoming)):
                async with incoming.place_of_batch(self._engine.limits.body_seconds) as is_free:
                    await (self._answer_batch(message, incoming) if is_free else self.refuse(incoming, TOO_MANY_CALLS))
            case list():
                await self.refuse(incoming, _ONLY_JSON)
            case Notification():
                await asgi_messages.respond_accepted(incoming.send)
            case Failure():
                await self.refuse(incoming, message)
            case _:
                failure, id_ = refusal(message)
                await self.refuse(incoming, failure, id_)

    async def _answer_request(self, request: Request, incoming: HttpRequest) -> None:
        started = time.monotonic()
        understood = self._lite.read(request, incoming.caller)
        if _wants_events(incoming, understood):
            await self._streams.answer(request, understood, incoming, started)
            return
        reply = HttpReply(incoming, asgi_messages.ONLY_JSON, incoming.account, self._engine.limits)
        body, response, headers = await self._perform(request, understood, incoming, reply, started)
        if body is None:
            await reply.abandon()
            return
        if not reply.reserve(len(body)):
            body, response = write_response(self._lite, request, UNREAD, started)
        incoming.release()
        failure = response if isinstance(response, Failure) else None
        status = 200 if failure is None else self._lite.http_status(failure)
        if isinstance(response, LiteResponse) and response.response_type == PROMISE:
            status = self._settings.promise_http_status
            headers = (*headers, _retry_after(response))
        await reply.finish(body, status, failure=failure, headers=headers)

    async def _perform(
        self,
        request: Request,
        understood: tuple[Terms, EngineAsk] | Failure,
        incoming: HttpRequest,
        reply: HttpReply,
        started: float,
    ) -> tuple[bytes | None, LiteResponse | Failure | None, _Headers]:
        """Returns the response, what it says, and its headers; no response if the client has disconnected."""
        headers = _NO_HEADERS
        if isinstance(understood, Failure):
            return *write_response(self._lite, request, understood, started), headers
        terms, ask = understood
        if type(ask) is RedeemPromise:
            ask, headers = _wait_as_preferred(ask, incoming.headers, request)
        outcome = await self._calls.perform(ask, terms, reply, request.id, incoming.account)
        if outcome is None:
            return None, None, headers
        return *write_response(self._lite, request, outcome, started), headers

    async def _answer_batch(self, messages: list[Message], incoming: HttpRequest) -> None:
        """Performs the requests of a batch one after the other, and sends their responses as one body."""
        if not self._settings.batches:
            await self.refuse(incoming, Failure(Fault.INVALID_REQUEST, "This server takes no batches."))
            return
        if len(messages) > MAX_BATCH:
            await self.refuse(
                incoming, Failure(Fault.INVALID_REQUEST, f"A batch may have at most {MAX_BATCH} messages.")
            )
            return
        last = HttpReply(incoming, asgi_messages.ONLY_JSON, incoming.account, self._engine.limits)
        bodies: list[bytes] = []
        for message in messages:
            await self._engine.computations.take_turn(incoming.account)
            if isinstance(message, Request):
                started = time.monotonic()
                reply = HttpReply(incoming, asgi_messages.ONLY_JSON, incoming.account, self._engine.limits)
                understood = self._lite.read(message, incoming.caller)
                body, _, _ = await self._perform(message, understood, incoming, reply, started)
                if body is None:
                    return
                if not last.reserve(len(body), in_batch=True):
                    body, _ = write_response(self._lite, message, UNREAD, started)
                bodies.append(body)
            elif not isinstance(message, Notification):
                bodies.append(self._lite.refuse(*refusal(message)))
        incoming.release()
        if bodies:
            await last.finish(b"[%b]" % b",".join(bodies), 200)
        else:
            await asgi_messages.respond_accepted(incoming.send)

    # Parameters alone

    async def _answer_object(self, params: dict[str, JSON], use: LitePath, incoming: HttpRequest) -> None:
        """Performs the request that a path stands for, and sends its result alone."""
        started = time.monotonic()
        request = _named_request(use, params)
        reply = HttpReply(incoming, asgi_messages.ONLY_JSON, incoming.account, self._engine.limits)
        shape = params.get("shape", "array" if use is LitePath.TOOL_ARRAY else "object")
        understood = self._lite.read(request, incoming.caller)
        if shape not in ("array", "object"):
            understood = Failure(Fault.INVALID_PARAMS, 'shape must be "array" or "object".')
        if isinstance(understood, Failure):
            await self._refuse_object(incoming, understood)
            return
        terms, ask = understood
        status, headers = 200, _NO_HEADERS
        if type(ask) is RedeemPromise:
            ask, headers = _wait_as_preferred(ask, incoming.headers, request)
        elif shape == "array" and use is not LitePath.AWAIT:
            ask = replace(ask, whole=True)  # an array has no place for a cursor
        outcome = await self._calls.perform(ask, terms, reply, request.id, incoming.account)
        if outcome is None:
            await reply.abandon()
            return
        if isinstance(outcome, Answer) and isinstance(outcome.value, Page):
            body = self._lite.write_list(outcome.value, is_array=shape == "array")
        else:
            response = self._lite.respond(request, outcome, make_stamp(started))
            if isinstance(response, Failure):
                await self._refuse_object(incoming, response)
                return
            if response.response_type == PROMISE:
                status, headers = self._settings.promise_http_status, (*headers, _retry_after(response))
            body = jsonrpc.encode({**response.result, "_meta": response.meta})
        if not reply.reserve(len(body)):
            await self._refuse_object(incoming, UNREAD)
            return
        incoming.release()
        await reply.finish(body, status, headers=headers)

    async def _refuse_object(self, incoming: HttpRequest, failure: Failure) -> None:
        """Sends an error with a status that says so: 200 is for errors with the id of their request."""
        status = self._lite.http_status(failure)
        body, headers = self._lite.refuse(failure), asgi_messages.failure_headers(incoming, failure)
        await asgi_messages.send_refusal(incoming, failure, 400 if status == 200 else status, body, headers)


def _check_head(incoming: HttpRequest) -> Failure | None:
    method, headers = incoming.scope["method"], incoming.headers
    if method != "POST":
        return Failure(Fault.WRONG_HTTP_METHOD, f"MCP-lite does not take {method}; send POST.")
    refused = check_media_type(headers)
    if refused is None and preferred_form(_accept(incoming)) is None:
        refused = Failure(Fault.NOT_ACCEPTABLE, "Accept application/json or text/event-stream.")
    return refused


def _accept(incoming: HttpRequest) -> bytes:
    return incoming.headers.get(b"accept", b"*/*")


def _wants_events(incoming: HttpRequest, understood: tuple[Terms, EngineAsk] | Failure) -> bool:
    """Whether the client prefers an event stream, by its headers or by `_meta.stream`."""
    if preferred_form(_accept(incoming)) is ReplyForm.EVENTS:
        return True
    return not isinstance(understood, Failure) and understood[0].meta.get("stream") is True


def _named_request(use: LitePath, params: dict[str, JSON]) -> Request:
    """Returns the JSON-RPC request that parameters alone stand for at a path; nobody sees its id."""
    if use is LitePath.AWAIT:
        return Request(0, "tools/call", {"name": "await", "arguments": params})
    return Request(0, "prompts/list" if use is LitePath.PROMPTS else "tools/list", params)


def _retry_after(response: LiteResponse) -> tuple[bytes, bytes]:
    """Returns the header that says when to ask for a promise again."""
    return b"retry-after", b"%d" % math.ceil(response.meta["retry_after_ms"] / 1000)


def _wait_as_preferred(ask: RedeemPromise, headers: Headers, request: Request) -> tuple[EngineAsk, _Headers]:
    """Returns the ask with the time that the `Prefer` header says, unless the arguments say one."""
    seconds = preferred_wait(headers)
    if seconds is None or "wait_ms" in request.params["arguments"]:
        return ask, ()
    return replace(ask, wait_seconds=float(seconds)), ((b"preference-applied", b"wait=%d" % seconds),)
