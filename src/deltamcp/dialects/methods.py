"""The methods of each era, and the functions that read the parameters of a request as an `Ask`.

`HANDSHAKE` and `MODERN` are the tables of methods, and each has one for clients with tasks; a method that is not in its
table does not exist there.
"""

import hashlib
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import cast

from msgspec.structs import replace

from deltamcp.catalog.items.resource import MAX_URI_CHARS
from deltamcp.dialects import tasks
from deltamcp.errors import Fault
from deltamcp.values import (
    JSON,
    NO_INPUTS,
    PROMISE_ALLOWED,
    SESSION_CONTEXT_KEY,
    AnswerPromise,
    Ask,
    Caller,
    CallTool,
    CancelPromise,
    Complete,
    Describe,
    Discover,
    Failure,
    Filter,
    GetPromise,
    GetPrompt,
    Inputs,
    Kind,
    Listen,
    ListItems,
    ListManifest,
    LogLevel,
    Ping,
    PromiseWish,
    ReadResource,
    RedeemPromise,
    Request,
    SetLevel,
    Watch,
)
from deltamcp.wire.jsonrpc import MAX_SHOWN_CHARS

LOG_LEVELS: tuple[LogLevel, ...] = (
    "debug",
    "info",
    "notice",
    "warning",
    "error",
    "critical",
    "alert",
    "emergency",
)
"""RFC 5424 severities, least severe first."""

_MAX_TOKEN_CHARS = 256
"""The longest progress token, which every notification of progress repeats; the same as `Limits.id_chars`."""

_MAX_URIS = 1000
_MAX_URIS_CHARS = 65_536
"""The URIs of one subscription, which the server holds as long as it is open."""

_MAX_TASKS = 100
"""The tasks of one subscription."""
_MAX_TTL = 2**53

_Params = dict[str, JSON]
_Reader = Callable[[_Params], Ask | Failure]


class _InvalidParamError(Exception):
    """A parameter is missing or has the wrong type; the text names the parameter."""


def read(request: Request, methods: "Mapping[str, _Reader]") -> Ask | Failure:
    """Returns the ask of a request, or the reason it is invalid."""
    reader = methods.get(request.method)
    if reader is None:
        return Failure(
            Fault.UNKNOWN_METHOD,
            f"There is no method {request.method[:MAX_SHOWN_CHARS]!r}.",
            {"method": request.method[:MAX_SHOWN_CHARS]},
        )
    try:
        return reader(request.params)
    except _InvalidParamError as error:
        return Failure(Fault.INVALID_PARAMS, str(error))


def _text(params: _Params, name: str, where: str = "params") -> str:
    value = params.get(name)
    if type(value) is not str:
        state = "missing" if value is None else "not a string"
        raise _InvalidParamError(f"{where}.{name} must be a string; it is {state}.")
    return value


def _object(params: _Params, name: str, where: str = "params") -> dict[str, JSON]:
    value = params.get(name)
    if value is None:
        return {}
    if type(value) is not dict:
        raise _InvalidParamError(f"{where}.{name} must be an object.")
    return value


def _texts(params: _Params, name: str, where: str = "params") -> dict[str, str]:
    values = _object(params, name, where)
    for key, value in values.items():
        if type(value) is not str:
            raise _InvalidParamError(f"{where}.{name}.{key[:MAX_SHOWN_CHARS]} must be a string.")
    return values


def _inputs(params: _Params) -> Inputs:
    if "inputResponses" not in params and "requestState" not in params:
        return NO_INPUTS
    state = params.get("requestState")
    if state is not None and type(state) is not str:
        raise _InvalidParamError("params.requestState must be a string.")
    responses = _object(params, "inputResponses")
    for key, value in responses.items():
        if type(value) is not dict:
            raise _InvalidParamError(f"params.inputResponses.{key[:MAX_SHOWN_CHARS]} must be an object.")
    return Inputs(responses, state)


def _call_tool(params: _Params, promise: PromiseWish | None = None) -> Ask:
    is_retry = "inputResponses" in params or "requestState" in params
    inputs = _inputs(params) if is_retry else NO_INPUTS
    return CallTool(_text(params, "name"), _object(params, "arguments"), inputs, promise)


def _call_tool_or_task(params: _Params) -> Ask:
    """Reads a call of 2025-11-25, whose client may ask for a task in place of the result."""
    if params.get("task") is None:
        return _call_tool(params)
    ttl = _object(params, "task").get("ttl")
    if ttl is not None and (type(ttl) not in (int, float) or not 0 <= ttl <= _MAX_TTL):
        raise _InvalidParamError("params.task.ttl must be a number of milliseconds.")
    return _call_tool(params, PromiseWish(at_once=True, seconds=None if ttl is None else ttl / 1000))


def _call_tool_or_promise(params: _Params) -> Ask:
    """Reads a call of a client that declares the extension for tasks."""
    key = _object(params, "_meta").get(tasks.IDEMPOTENCY_KEY)
    if key is None:
        return _call_tool(params, PROMISE_ALLOWED)
    if type(key) is not str or not 0 < len(key) <= tasks.MAX_IDEMPOTENCY_KEY_CHARS:
        raise _InvalidParamError(
            f'params._meta["{tasks.IDEMPOTENCY_KEY}"] must be a string of 1 to {tasks.MAX_IDEMPOTENCY_KEY_CHARS} '
            "characters."
        )
    return _call_tool(params, PromiseWish(idempotency_key=key))


def _task_id(params: _Params) -> str:
    return _text(params, "taskId")


def _read_resource(params: _Params) -> Ask:
    return ReadResource(_uri(params), _inputs(params))


def _get_prompt(params: _Params) -> Ask:
    arguments = _object(params, "arguments")
    for key, value in arguments.items():
        if value is not None and type(value) is not str:
            raise _InvalidParamError(f"params.arguments.{key[:MAX_SHOWN_CHARS]} must be a string.")
    return GetPrompt(_text(params, "name"), arguments, _inputs(params))


def _complete(params: _Params) -> Ask:
    reference = _object(params, "ref")
    argument = _object(params, "argument")
    context = _object(params, "context")
    kind = reference.get("type")
    if kind not in ("ref/prompt", "ref/resource"):
        raise _InvalidParamError('params.ref.type must be "ref/prompt" or "ref/resource".')
    target = _text(reference, "name" if kind == "ref/prompt" else "uri", "params.ref")
    return Complete(
        "prompt" if kind == "ref/prompt" else "template",
        target,
        _text(argument, "name", "params.argument"),
        _text(argument, "value", "params.argument"),
        _texts(context, "arguments", "params.context"),
    )


def _describe(params: _Params) -> Ask:
    names = params.get("names")
    if names is None:
        return Describe((_text(params, "name"),), alone=True)
    if type(names) is not list or not all(type(name) is str for name in names):
        raise _InvalidParamError("params.names must be an array of strings.")
    return Describe(tuple(names), alone=False)


def _manifest(params: _Params) -> Ask:
    return ListManifest(None if params.get("cursor") is None else _text(params, "cursor"))


def _lister(kind: Kind) -> Callable[[_Params], Ask]:
    def read_list(params: _Params) -> Ask:
        cursor = params.get("cursor")
        return ListItems(kind, None if cursor is None else _text(params, "cursor"))

    return read_list


def log_level(value: JSON, where: str) -> LogLevel:
    """Returns a value as a log level; `where` names the parameter in the error.

    Raises:
        _InvalidParamError: the value is no log level.
    """
    if value not in LOG_LEVELS:
        raise _InvalidParamError(f"{where} must be one of {', '.join(LOG_LEVELS)}.")
    return cast("LogLevel", value)


def _set_level(params: _Params) -> Ask:
    return SetLevel(log_level(params.get("level"), "params.level"))


_FLAGS = {
    "toolsListChanged": (Kind.TOOLS,),
    "promptsListChanged": (Kind.PROMPTS,),
    "resourcesListChanged": (Kind.RESOURCES, Kind.TEMPLATES),
}


def _listen(params: _Params) -> Listen:
    notifications = params.get("notifications")
    if type(notifications) is not dict:
        raise _InvalidParamError("params.notifications must be an object.")
    uris = _strings(notifications, "resourceSubscriptions")
    if len(uris) > _MAX_URIS or sum(map(len, uris)) > _MAX_URIS_CHARS:
        raise _InvalidParamError(
            f"params.notifications.resourceSubscriptions may have at most {_MAX_URIS} URIs of {_MAX_URIS_CHARS} "
            "characters together; open several subscriptions."
        )
    kinds: set[Kind] = set()
    for flag, covered in _FLAGS.items():
        value = notifications.get(flag, False)
        if type(value) is not bool:
            raise _InvalidParamError(f"params.notifications.{flag} must be true or false.")
        if value:
            kinds.update(covered)
    tokens = _strings(notifications, "taskIds")
    if len(tokens) > _MAX_TASKS:
        raise _InvalidParamError(
            f"params.notifications.taskIds may have at most {_MAX_TASKS} ids; open several subscriptions."
        )
    return Listen(Filter(frozenset(kinds), frozenset(uris), frozenset(tokens)))


def _strings(notifications: _Params, name: str) -> list[str]:
    values = notifications.get(name, [])
    if type(values) is not list or not all(type(value) is str for value in values):
        raise _InvalidParamError(f"params.notifications.{name} must be an array of strings.")
    return values


def _listen_without_tasks(params: _Params) -> Ask | Failure:
    listen = _listen(params)
    return tasks.missing_extension("A subscription to tasks") if listen.filter.tokens else listen


def _uri(params: _Params) -> str:
    uri = _text(params, "uri")
    if len(uri) > MAX_URI_CHARS:
        raise _InvalidParamError(f"params.uri may have at most {MAX_URI_CHARS} characters.")
    return uri


def subscription_filter(accepted: Filter) -> dict[str, JSON]:
    """Returns a filter in the form of `notifications/subscriptions/acknowledged`."""
    notifications: dict[str, JSON] = {flag: True for flag, kinds in _FLAGS.items() if kinds[0] in accepted.kinds}
    if accepted.uris:
        notifications["resourceSubscriptions"] = sorted(accepted.uris)
    if accepted.tokens:
        notifications["taskIds"] = sorted(accepted.tokens)
    return notifications


_BOTH: dict[str, _Reader] = {
    "tools/list": _lister(Kind.TOOLS),
    "tools/call": _call_tool,
    "tools/describe": _describe,
    "tools/manifest": _manifest,
    "resources/list": _lister(Kind.RESOURCES),
    "resources/templates/list": _lister(Kind.TEMPLATES),
    "resources/read": _read_resource,
    "prompts/list": _lister(Kind.PROMPTS),
    "prompts/get": _get_prompt,
    "completion/complete": _complete,
}

HANDSHAKE: Mapping[str, _Reader] = MappingProxyType(
    {
        **_BOTH,
        "ping": lambda params: Ping(),
        "logging/setLevel": _set_level,
        "resources/subscribe": lambda params: Watch(_uri(params), on=True),
        "resources/unsubscribe": lambda params: Watch(_uri(params), on=False),
    }
)

HANDSHAKE_WITH_TASKS: Mapping[str, _Reader] = MappingProxyType(
    {
        **HANDSHAKE,
        "tools/call": _call_tool_or_task,
        "tasks/get": lambda params: GetPromise(_task_id(params)),
        "tasks/result": lambda params: RedeemPromise(_task_id(params), wait_seconds=None),
        "tasks/cancel": lambda params: CancelPromise(_task_id(params)),
    }
)
"""The methods of 2025-11-25."""

MODERN: Mapping[str, _Reader] = MappingProxyType(
    {
        **_BOTH,
        "server/discover": lambda params: Discover(),
        "subscriptions/listen": _listen_without_tasks,
    }
)

MODERN_WITH_TASKS: Mapping[str, _Reader] = MappingProxyType(
    {
        **MODERN,
        "tools/call": _call_tool_or_promise,
        "tasks/get": lambda params: GetPromise(_task_id(params)),
        "tasks/update": lambda params: AnswerPromise(_task_id(params), _inputs(params)),
        "tasks/cancel": lambda params: CancelPromise(_task_id(params)),
        "subscriptions/listen": _listen,
    }
)
"""The methods of clients that declare the extension for tasks."""

MCP_LITE: Mapping[str, Callable[[_Params], Ask]] = MappingProxyType(
    {
        "tools/describe": _describe,
        "tools/manifest": _manifest,
        "server/discover": lambda params: Discover(),
        "ping": lambda params: Ping(),
    }
)
"""The methods of MCP-lite beside those that `mcp_lite.py` reads. It has neither sessions nor subscriptions."""

MCP_LITE_WITH_PROMPTS: Mapping[str, Callable[[_Params], Ask]] = MappingProxyType(
    {**MCP_LITE, "prompts/list": _lister(Kind.PROMPTS), "prompts/get": _get_prompt}
)


def read_log_level(value: JSON, where: str) -> LogLevel | Failure:
    """Returns a value as a log level, or the failure of a request whose value is none."""
    try:
        return log_level(value, where)
    except _InvalidParamError as error:
        return Failure(Fault.INVALID_PARAMS, str(error))


LONG_TOKEN = Failure(
    Fault.INVALID_PARAMS, f"params._meta.progressToken may have at most {_MAX_TOKEN_CHARS} characters."
)


def has_long_token(meta: Mapping[str, JSON]) -> bool:
    """Whether a request's `_meta` has a progress token that is longer than an id may be."""
    token = meta.get("progressToken")
    if type(token) is str:
        return len(token) > _MAX_TOKEN_CHARS
    return type(token) is int and token.bit_length() > 3 * _MAX_TOKEN_CHARS


CONVERSATION_KEY = "io.github.delta-mcp/conversation"
"""The key in `_meta` under which a client names the conversation whose model reads the result: a text of its own.

Ids that hosts send for other purposes will not do: ChatGPT has one `openai/session` for its model and for its widgets,
Codex one `threadId` for its model and for scripts, and what those read, the model does not."""
_LITE_KEY = "conversation_id"
"""The member of MCP-lite's session context that names it."""
_MAX_CHARS = 256
_MIN_SECRET_CHARS = 16
"""Callers that cannot be told apart are in one conversation if they name one alike, so that a name must be hard to
guess."""


def in_named_conversation(caller: Caller, meta: Mapping[str, JSON]) -> Caller:
    """Returns the caller in the conversation that a request's `_meta` names; as it is if that names none."""
    return _in_conversation(caller, meta[CONVERSATION_KEY]) if CONVERSATION_KEY in meta else caller


def in_lite_conversation(caller: Caller, meta: Mapping[str, JSON]) -> Caller:
    """Returns the same for a request of MCP-lite, whose session context may name the conversation."""
    context = meta.get(SESSION_CONTEXT_KEY)
    if isinstance(context, dict) and _LITE_KEY in context:
        return _in_conversation(caller, context[_LITE_KEY])
    return in_named_conversation(caller, meta)


def _in_conversation(caller: Caller, name: JSON) -> Caller:
    least = _MIN_SECRET_CHARS if caller.shares_handles else 1
    if not isinstance(name, str) or not least <= len(name) <= _MAX_CHARS:
        return caller
    digest = hashlib.sha256(name.encode(errors="surrogatepass")).hexdigest()[:32]
    return replace(caller, conversation=f"named {digest}", moves=caller.moves or caller.connection is None)
