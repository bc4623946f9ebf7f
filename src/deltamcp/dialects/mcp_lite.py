"""The dialect MCP-lite 0.042: tools by single requests, with promises and without sessions.

Its requests say nothing of their client, so that the endpoint chooses the dialect and not the message. A dialect knows
no clock: the transport says in a `Stamp` when a response is made and how long that took.

A client that calls again to answer questions may put its answers where MCP has them, into `params._meta`, or into
`_meta` among the arguments, which is all that a model or a client of the original gRPC service can set.
"""

from collections.abc import Callable, Mapping
from typing import Any, Literal, assert_never, cast

from msgspec import Struct
from msgspec.structs import replace

from deltamcp.catalog.items.operation import MAX_WAIT_MS, REDEEM
from deltamcp.catalog.view import View
from deltamcp.dialects import mcp_lite_bodies as bodies
from deltamcp.dialects import methods, progressive_disclosure, result_bodies, versions
from deltamcp.dialects.dialect import Agreement
from deltamcp.dialects.mcp_lite_bodies import FAULTS_OF_TOOL_ERRORS, LITE_FAULTS, ContentStyle, LiteResponse
from deltamcp.dialects.methods import in_lite_conversation
from deltamcp.dialects.modern import CLIENT_KEY
from deltamcp.dialects.tasks import MAX_IDEMPOTENCY_KEY_CHARS
from deltamcp.errors import Fault
from deltamcp.values import (
    JSON,
    NO_INPUTS,
    PROMISE_ALLOWED,
    SERVER_KEY,
    SESSION_CONTEXT_KEY,
    About,
    Answer,
    Caller,
    CallTool,
    CancelPromise,
    Definitions,
    EngineAsk,
    Era,
    Failure,
    GetPromise,
    InputRequired,
    Inputs,
    Kind,
    ListItems,
    Outcome,
    Page,
    Principal,
    Promise,
    PromiseAsk,
    PromiseStatus,
    PromiseWish,
    RedeemPromise,
    Request,
    RequestId,
    ResourceRequired,
    ResultShape,
    Surface,
    Terms,
    ToolResult,
)
from deltamcp.wire import jsonrpc
from deltamcp.wire.canonical import format_time
from deltamcp.wire.jsonrpc import MAX_SHOWN_CHARS

_Object = dict[str, JSON]
_MAX_QUERY_CHARS = 1000
_STATUS_ACTIONS = ("status", "checkin")
_ACTIONS = ("redeem", "cancel", *_STATUS_ACTIONS)


class InvalidParamError(Exception):
    """A parameter is missing or wrong.

    `pointer` says where it is in `params`, and `keyword` which rule of JSON Schema it breaks.
    """

    def __init__(self, pointer: str, message: str, keyword: str) -> None:
        super().__init__(message)
        self._problem: _Object = {"pointer": pointer, "message": message, "keyword": keyword}

    def failure(self) -> Failure:
        return Failure(Fault.INVALID_PARAMS, str(self), {"errors": [self._problem]})


class ReadCall(Struct, frozen=True, gc=False):
    """A call, and what its `_meta` says of its client."""

    ask: CallTool
    meta: _Object
    takes_questions: bool


def read_call(params: _Object, meta: _Object, declares_meta: Callable[[str, Caller], bool], caller: Caller) -> ReadCall:
    """Reads `tools/call`; `declares_meta` is whether a tool has an argument `_meta` of its own.

    Raises:
        InvalidParamError: a parameter is missing or wrong.
    """
    name = params.get("name")
    if type(name) is not str:
        raise InvalidParamError("/name", "params.name must be a string.", "required" if name is None else "type")
    arguments = params.get("arguments", {})
    if type(arguments) is not dict:
        raise InvalidParamError("/arguments", "params.arguments must be an object.", "type")
    reserved: _Object = {}
    if "_meta" in arguments and not declares_meta(name, caller):
        reserved = _object(arguments, "_meta", "/arguments")
        arguments = {key: value for key, value in arguments.items() if key != "_meta"}
        meta = {**reserved, **meta}
    if not meta and "inputResponses" not in params and "requestState" not in params:
        return ReadCall(CallTool(name, arguments, NO_INPUTS, PROMISE_ALLOWED), meta, takes_questions=True)
    accepted = _accepted_types(meta)
    wish = _promise_wish(meta) if accepted is None or "promise" in accepted else None
    ask = CallTool(name, arguments, _read_inputs(params, meta, reserved), wish)
    return ReadCall(ask, meta, accepted is None or "elicitation" in accepted)


def _accepted_types(meta: _Object) -> set[str] | None:
    accepted = meta.get("accept_response_types")
    if accepted is None:
        return None
    if type(accepted) is not list or not all(type(kind) is str for kind in accepted):
        raise InvalidParamError(
            "/_meta/accept_response_types", "_meta.accept_response_types must be an array of strings.", "type"
        )
    return {kind.lower() for kind in accepted}


def _promise_wish(meta: _Object) -> PromiseWish:
    key = meta.get("idempotency_key")
    if key is None:
        return PROMISE_ALLOWED
    if type(key) is not str or not 0 < len(key) <= MAX_IDEMPOTENCY_KEY_CHARS:
        raise InvalidParamError(
            "/_meta/idempotency_key",
            f"_meta.idempotency_key must be a string of 1 to {MAX_IDEMPOTENCY_KEY_CHARS} characters.",
            "type",
        )
    return PromiseWish(idempotency_key=key)


# Answers to questions


def _read_inputs(params: _Object, meta: _Object, reserved: _Object) -> Inputs:
    """Returns the answers of the first place that has any."""
    if "inputResponses" in params or "requestState" in params:
        return _inputs(params, "inputResponses", "requestState", "")
    if "input_responses" in meta or "request_state" in meta or "answers" in meta:
        where = "/arguments/_meta" if reserved else "/_meta"
        inputs = _inputs(meta, "input_responses", "request_state", where, _object(meta, "answers", where))
        return replace(inputs, action=_action(meta, where)) if "action" in meta else inputs
    return NO_INPUTS


def _action(meta: _Object, where: str) -> Literal["accept", "decline", "cancel"]:
    match meta["action"]:
        case "accept" | "decline" | "cancel" as action:
            return action  # type: ignore[no-any-return]
        case _:
            raise InvalidParamError(f"{where}/action", "action must be accept, decline or cancel.", "enum")


def _inputs(place: _Object, responses_key: str, state_key: str, where: str, fields: _Object | None = None) -> Inputs:
    state = place.get(state_key)
    if state is not None and type(state) is not str:
        raise InvalidParamError(f"{where}/{state_key}", f"{state_key} must be a string.", "type")
    responses = _object(place, responses_key, where)
    for key, value in responses.items():
        if type(value) is not dict:
            shown = key[:MAX_SHOWN_CHARS]
            raise InvalidParamError(
                f"{where}/{responses_key}/{shown}", f"{responses_key}.{shown} must be an object.", "type"
            )
    return Inputs(responses, state, fields or {})


def _object(place: _Object, key: str, where: str) -> _Object:
    value = place.get(key, {})
    if type(value) is not dict:
        raise InvalidParamError(f"{where}/{key}", f"{key} must be an object.", "type")
    return value


# Promises


def read_promise_call(call: CallTool, is_await: bool) -> PromiseAsk:
    """Reads a call of `redeem`, or of NLWeb's `await`, as what it asks of a promise.

    Raises:
        InvalidParamError: an argument is missing or wrong.
    """
    arguments = call.arguments
    token_key = "promise_token" if is_await else "promise"
    token = arguments.get(token_key)
    if type(token) is not str:
        keyword = "required" if token is None else "type"
        raise InvalidParamError(f"/arguments/{token_key}", f"{token_key} must be the token of a promise.", keyword)
    action = arguments.get("action", "redeem")
    if action not in _ACTIONS:
        raise InvalidParamError("/arguments/action", f"action must be one of {', '.join(_ACTIONS)}.", "enum")
    if action == "cancel":
        return CancelPromise(token)
    if action in _STATUS_ACTIONS and not is_await:
        return GetPromise(token)
    wait_ms = arguments.get("wait_ms", 0)
    if type(wait_ms) is not int or not 0 <= wait_ms <= MAX_WAIT_MS:
        keyword = "type" if type(wait_ms) is not int else "minimum" if wait_ms < 0 else "maximum"
        raise InvalidParamError("/arguments/wait_ms", f"wait_ms must be an integer from 0 to {MAX_WAIT_MS}.", keyword)
    return RedeemPromise(token, wait_ms / 1000, _promise_inputs(call))


def _promise_inputs(call: CallTool) -> Inputs:
    """Returns the answers in `input`, by the ids of fields or, as no field is an object, by the keys of questions."""
    if "input" not in call.arguments:
        return call.inputs
    answers = _object(call.arguments, "input", "/arguments")
    responses = {key: value for key, value in answers.items() if type(value) is dict}
    fields = {key: value for key, value in answers.items() if key not in responses}
    return Inputs({**call.inputs.responses, **responses}, call.inputs.state, {**call.inputs.fields, **fields})


def redeem_action(request: Request) -> JSON:
    """Returns the action that a call of `redeem` names; None if the request is none or names none."""
    arguments = request.params.get("arguments")
    return arguments.get("action") if isinstance(arguments, dict) else None


# Lists


def read_list(params: _Object) -> tuple[ListItems, bool]:
    """Reads `tools/list`; returns also whether the client wants an index, without schemas.

    Raises:
        InvalidParamError: a parameter is wrong.
    """
    detail = params.get("detail", "full")
    if detail not in ("full", "index"):
        raise InvalidParamError("/detail", 'detail must be "full" or "index".', "enum")
    cursor, type_, query = (_optional_text(params, key) for key in ("cursor", "type", "query"))
    return ListItems(Kind.TOOLS, cursor, False, type_, query), detail == "index"


def _optional_text(params: _Object, key: str) -> str | None:
    value = params.get(key)
    if value is None:
        return None
    if type(value) is not str or len(value) > _MAX_QUERY_CHARS:
        raise InvalidParamError(f"/{key}", f"{key} must be a string of at most {_MAX_QUERY_CHARS} characters.", "type")
    return value


AWAIT = "await"
"""NLWeb's tool for promises, which MCP-lite calls `redeem`."""
_ELICITATION: dict[str, JSON] = {"elicitation": {"form": {}, "url": {}}}


class Stamp(Struct, frozen=True, gc=False):
    """When a response is made, in seconds since 1970, and how many milliseconds that took."""

    time: float
    milliseconds: int


class LiteOptions(Struct, frozen=True):
    """What an operator sets of the dialect."""

    content_style: ContentStyle = "mcp"
    default_type: str | None = None
    """The `@type` of tools that have none of their own; None leaves it out."""
    await_tool: bool = False
    """Whether promises can also be redeemed by NLWeb's `await`."""
    prompts: bool = False
    """Whether prompts can be listed and used."""


class McpLite:
    """Reads requests and writes responses of MCP-lite."""

    def __init__(
        self, info: dict[str, JSON], view: Callable[[Principal], View], input_seconds: float, options: LiteOptions
    ) -> None:
        """
        Args:
            view: Returns what a principal sees of the catalog.
            input_seconds: How long a client has to answer questions.
        """
        self._info = info
        self._version = info.get("version")
        self._view = view
        self._input_seconds = input_seconds
        self._options = options
        self._promise_tools = (REDEEM, AWAIT) if options.await_tool else (REDEEM,)
        self._methods = methods.MCP_LITE_WITH_PROMPTS if options.prompts else methods.MCP_LITE
        self._list_key = f"mcp-lite {options.default_type}"
        self._list_meta = {"response_type": bodies.ANSWER, "server_version": self._version}

    def recognizes(self, request: Request) -> bool:
        return False

    # Reading

    def read(
        self, request: Request, caller: Caller, agreement: Agreement | None = None
    ) -> tuple[Terms, EngineAsk] | Failure:
        try:
            return self._read(request, caller)
        except InvalidParamError as error:
            return error.failure()

    def _read(self, request: Request, caller: Caller) -> tuple[Terms, EngineAsk] | Failure:
        params = request.params
        meta = params.get("_meta")
        if meta is None:
            meta = {}
        elif type(meta) is not dict:
            raise InvalidParamError("/_meta", "params._meta must be an object.", "type")
        elif "progressToken" in meta and methods.has_long_token(meta):
            return methods.LONG_TOKEN
        surface = None
        capabilities = _ELICITATION
        ask: EngineAsk | Failure
        match request.method:
            case "tools/call":
                call = read_call(params, meta, self._declares_meta, caller)
                meta = call.meta
                if not call.takes_questions:
                    capabilities = {}
                ask = call.ask
                if ask.name in self._promise_tools and self._view(caller.principal).redeems_promises(ask.name):
                    ask = read_promise_call(ask, is_await=ask.name == AWAIT)
            case "tools/list":
                ask, is_index = read_list(params)
                surface = Surface.PROGRESSIVE if is_index else None
            case _:
                ask = cast("EngineAsk | Failure", methods.read(request, self._methods))
        if isinstance(ask, Failure):
            return ask
        client = meta.get(CLIENT_KEY)
        terms = Terms(
            Era.MODERN,
            versions.MODERN[0],
            capabilities,
            client if type(client) is dict else {},
            meta,
            None,
            in_lite_conversation(caller, meta),
            surface,
            ResultShape.MCP_LITE,
        )
        return terms, ask

    def _declares_meta(self, name: str, caller: Caller) -> bool:
        """Whether a tool has an argument `_meta` of its own, so that it is not reserved."""
        operation = self._view(caller.principal).operations.get(name)
        return operation is not None and "_meta" in operation.parameter_names

    # Writing

    def respond(self, request: Request, outcome: Outcome, stamp: Stamp | None = None) -> LiteResponse | Failure:
        """Returns the body of a response and its `_meta`; or the failure, with all of its data, that it reports."""
        response = self._respond(request, outcome, 0.0 if stamp is None else stamp.time)
        if isinstance(response, Failure):
            return _complete(response)
        sent = request.params.get("_meta")
        if type(sent) is dict and SESSION_CONTEXT_KEY in sent:  # so that a client may always keep the last one
            response.meta.setdefault(SESSION_CONTEXT_KEY, sent[SESSION_CONTEXT_KEY])
        if stamp is not None:
            self.add_stamp(response.meta, stamp)
        return response

    def add_stamp(self, meta: dict[str, Any], stamp: Stamp) -> None:
        """Adds to `_meta` what a stamp says, and the server's version."""
        meta["timestamp"] = format_time(stamp.time)
        meta["processing_time_ms"] = stamp.milliseconds
        meta["server_version"] = self._version

    def _respond(self, request: Request, outcome: Outcome, now: float) -> LiteResponse | Failure:
        match outcome:
            case Answer():
                return self._answer(request, outcome, now)
            case Failure():
                return outcome
            case InputRequired():
                return bodies.elicitation(outcome, now + self._input_seconds)
            case ResourceRequired():
                return bodies.resource_request(outcome, now + self._input_seconds)
            case Promise():
                if outcome.outcome is not None:
                    return self._respond(request, outcome.outcome, now)
                return bodies.promise_questions(outcome) if outcome.requests else bodies.promise(outcome, now)
            case _:
                assert_never(outcome)

    def _answer(self, request: Request, answer: Answer, now: float) -> LiteResponse | Failure:
        value = answer.value
        if isinstance(value, ToolResult):
            return _tool_failure(value) or bodies.tool_result(value, self._options.content_style)
        if isinstance(value, Promise):
            return self._promise_state(request, value, now)
        if isinstance(value, Page):
            return self._respond_page(value)
        if isinstance(value, Definitions):
            tools = [self._with_type(item) for item in value.tools]
            result: dict[str, Any] = dict(tools[0]) if value.alone else {"tools": tools}
            return LiteResponse(result, {**result.pop("_meta", {}), **self._list_meta})
        if isinstance(value, About):
            return LiteResponse(self._introduction(value), {"response_type": bodies.ANSWER, SERVER_KEY: self._info})
        result = result_bodies.body(answer, versions.MODERN[0], {})
        return LiteResponse(result, {**result.pop("_meta", {}), "response_type": bodies.ANSWER})

    def _introduction(self, about: About) -> dict[str, JSON]:
        """Returns what the server has beside MCP-lite's own methods, for clients that send `server/discover`."""
        offered: dict[str, JSON] = {"tools": {}, **({"prompts": {}} if self._options.prompts else {})}
        introduced: dict[str, JSON] = {"capabilities": progressive_disclosure.extend(offered, "extensions")}
        return introduced if about.instructions is None else {**introduced, "instructions": about.instructions}

    def _respond_page(self, page: Page) -> LiteResponse:
        """Returns a list, with nothing that would differ when it is asked for again."""
        result: dict[str, Any] = {page.kind.value: [self._with_type(item) for item in page.items]}
        if page.next_cursor is not None:
            result["nextCursor"] = page.next_cursor
        return LiteResponse(result, dict(self._list_meta))

    def _promise_state(self, request: Request, value: Promise, now: float) -> LiteResponse | Failure:
        """Returns what a client gets that asked for the status of a call, or cancelled it."""
        if redeem_action(request) != "cancel":
            return bodies.promise(value, now)
        if value.outcome is not None:
            return self._respond(request, value.outcome, now)
        if value.status is PromiseStatus.CANCELLED:
            return bodies.cancelled_failure()
        return bodies.promise(value, now, is_cancelling=True)

    def _with_type(self, item: dict[str, JSON]) -> dict[str, JSON]:
        if self._options.default_type is None or "inputSchema" not in item or "@type" in item:
            return item
        return {"name": item["name"], "@type": self._options.default_type, **item}

    def write(self, request: Request, outcome: Outcome, version: str = "", stamp: Stamp | None = None) -> bytes:
        if isinstance(outcome, Answer) and isinstance(outcome.value, Page):
            cached = outcome.value.encoded
            encoded = cached.get(self._list_key)
            if encoded is None:
                encoded = cached[self._list_key] = _encode(self._respond_page(outcome.value))
            return jsonrpc.encode_result(request.id, encoded)
        return self.encode(request.id, self.respond(request, outcome, stamp))

    def write_list(self, page: Page, is_array: bool) -> bytes:
        """Returns a list alone: as an array, or in an object."""
        key = f"{self._list_key} array" if is_array else f"{self._list_key} object"
        encoded = page.encoded.get(key)
        if encoded is None:
            response = self._respond_page(page)
            encoded = jsonrpc.encode(response.result[page.kind.value] if is_array else response.result)
            page.encoded[key] = encoded
        return encoded

    def encode(self, id_: RequestId | None, response: LiteResponse | Failure) -> bytes:
        """Returns the JSON-RPC response of what `respond` returned.

        Raises:
            ValueError: a result contains a value that JSON cannot express.
        """
        if isinstance(response, Failure):
            return jsonrpc.encode_error(id_, LITE_FAULTS[response.fault].code, response)
        assert id_ is not None, "only errors answer a request without an id"
        return jsonrpc.encode_result(id_, _encode(response))

    def refuse(self, failure: Failure, id_: RequestId | None = None) -> bytes:
        """Returns the response to a message that is no request, or whose sender is not admitted."""
        return self.encode(id_, _complete(failure))

    def notify(self, method: str, params: Mapping[str, JSON], subscription: RequestId | None = None) -> bytes:
        return jsonrpc.encode_notification(method, dict(params))

    def capabilities(self, about: About) -> dict[str, JSON]:
        return about.capabilities

    def http_status(self, failure: Failure) -> int:
        return LITE_FAULTS[failure.fault].http_status


def _encode(response: LiteResponse) -> bytes:
    return jsonrpc.encode({**response.result, "_meta": response.meta})


def _tool_failure(value: ToolResult) -> Failure | None:
    """Returns the protocol's error for a tool's error that MCP-lite reports so; None for any other result."""
    if not value.is_error or value.error is None or not value.error.by_server:
        return None
    fault = FAULTS_OF_TOOL_ERRORS.get(value.error.code)
    if fault is None:
        return None
    details = value.error.details
    retry_ms = details.get("retry_after_ms", 0)
    seconds = retry_ms / 1000 if isinstance(retry_ms, int | float) else 0.0
    data = {**details, "retryable": True} if value.error.retryable else details
    return Failure(fault, bodies.error_text(value), data, retry_seconds=seconds)


def _complete(failure: Failure) -> Failure:
    """Returns a failure with the data that every error of MCP-lite has."""
    row = LITE_FAULTS[failure.fault]
    data: dict[str, JSON] = {"reason": row.reason, "retryable": row.retryable}
    if failure.retry_seconds > 0:
        data["retry_after_ms"] = round(failure.retry_seconds * 1000)
    if isinstance(failure.data, dict):
        data |= failure.data
    if data["reason"] != row.reason:  # such as what is wrong with a token
        data |= {"reason": row.reason, "detail": data["reason"]}
    return Failure(
        failure.fault, failure.message, data, failure.retry_seconds, failure.missing_scopes, failure.granted_scopes
    )
