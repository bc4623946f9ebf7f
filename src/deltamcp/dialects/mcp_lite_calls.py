"""Reads the parameters of MCP-lite's `tools/call` and `tools/list`, and the arguments of its tool `redeem`.

A client that calls again to answer questions may put its answers where MCP has them, into `params._meta`, or into
`_meta` among the arguments, which is all that a model or a client of the original gRPC service can set.
"""

from collections.abc import Callable
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from deltamcp.catalog.lite_tools import MAX_WAIT_MS
from deltamcp.dialects.tasks import MAX_IDEMPOTENCY_KEY_CHARS
from deltamcp.errors import Fault
from deltamcp.values import (
    JSON,
    NO_INPUTS,
    PROMISE_ALLOWED,
    Caller,
    CallTool,
    CancelPromise,
    Failure,
    GetPromise,
    Inputs,
    Kind,
    ListItems,
    PromiseAsk,
    PromiseWish,
    RedeemPromise,
    Request,
)
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
