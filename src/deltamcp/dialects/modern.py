"""The dialect of MCP 2026-07-28, the modern era: every request states its client's version and capabilities."""

from collections.abc import Collection, Mapping
from typing import Any, assert_never

from msgspec import Raw

from deltamcp.catalog import param_headers as mirrored
from deltamcp.catalog.items.operation import Operation
from deltamcp.dialects import methods, progressive_disclosure, result_bodies, tasks, versions
from deltamcp.dialects.dialect import Agreement
from deltamcp.dialects.methods import in_named_conversation
from deltamcp.errors import FAULTS, Fault
from deltamcp.values import (
    JSON,
    SERVER_KEY,
    About,
    Answer,
    Ask,
    Caller,
    CallTool,
    Contents,
    Era,
    Failure,
    InputRequired,
    LogLevel,
    Manifest,
    Outcome,
    Page,
    Promise,
    RawResult,
    Request,
    RequestId,
    ResourceRequired,
    SubscriptionEnd,
    Surface,
    Terms,
    ToolResult,
)
from deltamcp.wire import jsonrpc

VERSION_KEY = "io.modelcontextprotocol/protocolVersion"
CLIENT_KEY = "io.modelcontextprotocol/clientInfo"
CAPABILITIES_KEY = "io.modelcontextprotocol/clientCapabilities"
LOG_LEVEL_KEY = "io.modelcontextprotocol/logLevel"
SUBSCRIPTION_KEY = "io.modelcontextprotocol/subscriptionId"


class ModernMcp:
    """Reads and writes MCP messages without sessions.

    It adds the server's name to every result, and to lists how long clients may cache them.
    """

    def __init__(self, info: dict[str, JSON], cache_seconds: float) -> None:
        self._info = info
        # Every result repeats these: only the fields that the specification requires; `server/discover` has the rest.
        self._short = {key: info[key] for key in ("name", "version") if key in info}
        self._meta = Raw(jsonrpc.encode({SERVER_KEY: self._short}))
        self._ttl = int(cache_seconds * 1000)

    def recognizes(self, request: Request) -> bool:
        meta = request.params.get("_meta")
        return (type(meta) is dict and VERSION_KEY in meta) or request.method == "server/discover"

    # Reading

    def read(self, request: Request, caller: Caller, agreement: Agreement | None = None) -> tuple[Terms, Ask] | Failure:
        meta = _read_envelope(request)
        if type(meta) is Failure:
            return meta
        version = meta[VERSION_KEY]
        if version not in versions.MODERN:
            return Failure(
                Fault.UNSUPPORTED_VERSION,
                f"The protocol version {version[:40]!r} is not supported.",
                {"supported": list(versions.MODERN), "requested": version[:40]},
            )
        capabilities = meta[CAPABILITIES_KEY]
        progressive = has_tasks = False
        if "extensions" in capabilities:
            progressive = progressive_disclosure.is_declared(capabilities["extensions"])
            has_tasks = tasks.is_declared(capabilities["extensions"])
        if request.method in progressive_disclosure.METHODS and not progressive:
            return Failure(
                Fault.MISSING_CAPABILITY,
                f"{request.method} belongs to the extension {progressive_disclosure.NAME}; "
                "declare it in your capabilities.",
                {"requiredCapabilities": {"extensions": {progressive_disclosure.NAME: {}}}},
            )
        if request.method in tasks.METHODS and not has_tasks:
            return tasks.missing_extension(request.method)
        ask = methods.read(request, methods.MODERN_WITH_TASKS if has_tasks else methods.MODERN)
        if type(ask) is Failure:
            return ask
        log_level: LogLevel | None = None
        if LOG_LEVEL_KEY in meta:
            level = methods.read_log_level(meta[LOG_LEVEL_KEY], f'params._meta["{LOG_LEVEL_KEY}"]')
            if type(level) is Failure:
                return level
            log_level = level
        client = meta.get(CLIENT_KEY) or {}
        surface = Surface.PROGRESSIVE if progressive else None
        caller = in_named_conversation(caller, meta)
        return Terms(Era.MODERN, version, capabilities, client, meta, log_level, caller, surface), ask

    # Writing

    def write(self, request: Request, outcome: Outcome, version: str) -> bytes:
        match outcome:
            case Answer():
                return jsonrpc.encode_result(request.id, self._encode_answer(request, outcome, version))
            case Failure():
                return jsonrpc.encode_error(request.id, outcome.code or FAULTS[outcome.fault].modern, outcome)
            case InputRequired():
                return jsonrpc.encode_result(request.id, jsonrpc.encode(self._input_required(outcome)))
            case ResourceRequired():
                return self.write(request, Answer(result_bodies.resource_result(outcome)), version)
            case Promise():
                created = {"resultType": "task", **tasks.task_fields(outcome, version)}
                return jsonrpc.encode_result(request.id, self._encode(created))
            case _:
                assert_never(outcome)

    def _encode_answer(self, request: Request, answer: Answer, version: str) -> bytes:
        value = answer.value
        fields: dict[str, Any]
        if isinstance(value, ToolResult):
            fields = {"resultType": "complete"}
            result_bodies.tool(value, version, fields)
            own = fields.get("_meta")
            fields["_meta"] = self._meta if own is None else {SERVER_KEY: self._short, **own}
            return jsonrpc.encode(fields)
        if isinstance(value, RawResult):
            return result_bodies.encode_modern(value, request.method)
        if isinstance(value, Page):
            encoded = value.encoded.get(version)
            if encoded is None:
                encoded = value.encoded[version] = self._encode(
                    result_bodies.body(answer, version, {"resultType": "complete", **self._freshness(value.public)})
                )
            return encoded
        fields = {"resultType": "complete"}
        if isinstance(value, Promise):
            # The other methods of tasks only acknowledge the request.
            return self._encode(
                fields | self._detailed_task(value, version) if request.method == "tasks/get" else fields
            )
        if isinstance(value, SubscriptionEnd):
            return jsonrpc.encode({**fields, "_meta": {SUBSCRIPTION_KEY: request.id}})
        if isinstance(value, Contents):
            # An author's function may return other contents to another caller.
            fields |= {"ttlMs": value.ttl_ms, "cacheScope": "private"}
        elif isinstance(value, Manifest):
            fields |= self._freshness(value.public and value.meta is None)
        elif isinstance(value, About):
            extended = About(value.info, self.capabilities(value), value.instructions)
            fields |= {
                "supportedVersions": list(versions.MODERN),
                **self._freshness(public=True),
                "_meta": {SERVER_KEY: self._info},
            }
            return self._encode(result_bodies.body(Answer(extended), version, fields))
        return self._encode(result_bodies.body(answer, version, fields))

    def _detailed_task(self, promise: Promise, version: str) -> dict[str, Any]:
        call = Request(0, "tools/call", {})

        def encode_result(outcome: Outcome) -> Raw:
            if isinstance(outcome, ResourceRequired):
                outcome = Answer(result_bodies.resource_result(outcome))
            assert isinstance(outcome, Answer), "only an answer is a result"
            return Raw(self._encode_answer(call, outcome, version))

        return tasks.detailed_task(promise, version, encode_result)

    def _freshness(self, public: bool) -> dict[str, JSON]:
        return {"ttlMs": self._ttl, "cacheScope": "public" if public else "private"}

    def _encode(self, fields: dict[str, Any]) -> bytes:
        own = fields.get("_meta")
        fields["_meta"] = self._meta if own is None else {SERVER_KEY: self._short, **own}
        return jsonrpc.encode(fields)

    def _input_required(self, outcome: InputRequired) -> dict[str, Any]:
        body: dict[str, Any] = {
            "resultType": "input_required",
            "inputRequests": tasks.input_requests(outcome.requests),
        }
        if outcome.state is not None:
            body["requestState"] = outcome.state
        return body | {"_meta": self._meta}

    def capabilities(self, about: About) -> dict[str, JSON]:
        capabilities = progressive_disclosure.extend(about.capabilities, "extensions")
        if not about.gives_promises:
            return capabilities
        return {**capabilities, "extensions": {**capabilities.get("extensions", {}), tasks.EXTENSION: {}}}

    def notify(self, method: str, params: Mapping[str, JSON], subscription: RequestId | None = None) -> bytes:
        meta = {} if subscription is None else {"_meta": {SUBSCRIPTION_KEY: subscription}}
        return jsonrpc.encode_notification(method, {**meta, **params})

    def notify_of_promise(self, promise: Promise, version: str, subscription: RequestId) -> bytes:
        return self.notify("notifications/tasks", self._detailed_task(promise, version), subscription)

    def http_status(self, failure: Failure) -> int:
        return FAULTS[failure.fault].modern_http


def _read_envelope(request: Request) -> dict[str, JSON] | Failure:
    """Returns a request's `_meta`; a failure if it lacks one of MCP 2026-07-28's "Per-request protocol fields"."""
    meta: JSON = request.params.get("_meta")
    if type(meta) is not dict:
        return Failure(Fault.INVALID_PARAMS, "params._meta must be an object with the protocol's fields.")
    if type(meta.get(VERSION_KEY)) is not str:
        return Failure(Fault.INVALID_PARAMS, f'params._meta["{VERSION_KEY}"] must be a string.')
    if type(meta.get(CAPABILITIES_KEY)) is not dict:
        return Failure(Fault.INVALID_PARAMS, f'params._meta["{CAPABILITIES_KEY}"] must be an object.')
    if type(meta.get(CLIENT_KEY, {})) is not dict:
        return Failure(Fault.INVALID_PARAMS, f'params._meta["{CLIENT_KEY}"] must be an object.')
    if "progressToken" in meta and methods.has_long_token(meta):
        return methods.LONG_TOKEN
    return meta


NAMED_BY: Mapping[str, str] = {
    "tools/call": "name",
    "prompts/get": "name",
    "resources/read": "uri",
    # The extension for tasks, "Streamable HTTP: Routing Headers".
    "tasks/get": "taskId",
    "tasks/update": "taskId",
    "tasks/cancel": "taskId",
}
"""The parameter that the header `Mcp-Name` repeats, by method."""
_NAMED_IF_AT_ALL = tasks.METHODS
"""The methods that are not among those which the specification requires the header for ("Standard Request Headers").

The extension for tasks requires it of clients, but not of servers to refuse a request without it; FastMCP sends none.
"""
_ONCE = (b"mcp-protocol-version", b"mcp-method", b"mcp-name", b"mcp-param-")
_SENT: Mapping[str, bytes] = {text: text.encode() for text in (*versions.MODERN, *methods.MODERN_WITH_TASKS)}
"""The versions and methods as clients send them in headers."""


def check_headers(
    request: Request,
    understood: tuple[Terms, Ask] | Failure,
    headers: Mapping[bytes, bytes],
    repeated: Collection[bytes],
    operations: Mapping[str, Operation],
) -> tuple[Terms, Ask] | Failure:
    """Returns what was understood of a request; a failure if headers contradict its body, valid or not.

    `repeated` has the headers that the client sent more than once, `operations` those that the caller may call.
    """
    if type(understood) is Failure:
        return _check_standard_headers(request, headers, repeated) or understood
    terms, ask = understood
    key = NAMED_BY.get(request.method)
    if (
        repeated
        or headers.get(b"mcp-protocol-version") != _SENT[terms.version]
        or headers.get(b"mcp-method") != _SENT[request.method]
        or (key is not None and not mirrored.is_verbatim(headers.get(b"mcp-name"), request.params[key]))
    ):  # nearly no request; the comparisons take three times as long
        failure = _check_standard_headers(request, headers, repeated)
        if failure is not None:
            return failure
    if not isinstance(ask, CallTool):
        return understood
    operation = operations.get(ask.name)
    if operation is None or not operation.parameter_headers:
        return understood
    return _check_parameters(ask, headers, operation) or understood


def _check_standard_headers(
    request: Request, headers: Mapping[bytes, bytes], repeated: Collection[bytes]
) -> Failure | None:
    """Returns a failure if the headers that every request has contradict its body."""
    method, meta = request.method, request.params.get("_meta")
    version = meta.get(VERSION_KEY) if type(meta) is dict else None
    if type(version) is not str:
        return None
    if any(name.startswith(_ONCE) for name in repeated):
        return Failure(Fault.HEADER_MISMATCH, "An Mcp-* header was sent more than once.")
    failure = _compare("MCP-Protocol-Version", headers.get(b"mcp-protocol-version"), version)
    if failure is not None or version not in versions.MODERN:
        return failure
    failure = _compare("Mcp-Method", headers.get(b"mcp-method"), method)
    name, sent_name = request.params.get(NAMED_BY.get(method, "")), headers.get(b"mcp-name")
    if failure is not None or type(name) is not str or (sent_name is None and method in _NAMED_IF_AT_ALL):
        return failure
    return _compare("Mcp-Name", sent_name, name)


def _check_parameters(ask: CallTool, headers: Mapping[bytes, bytes], operation: Operation) -> Failure | None:
    """Returns a failure if the headers contradict the arguments that the called tool requires headers for."""
    for parameter in operation.parameter_headers:
        value = mirrored.value_at(ask.arguments, parameter.path)
        name = parameter.header.decode().replace("mcp-param-", "Mcp-Param-")
        sent = headers.get(parameter.header)
        if value is None:
            if sent is not None:
                return Failure(Fault.HEADER_MISMATCH, f"The header {name} has no value in the body to repeat.")
            continue
        failure = _compare(name, sent, value)
        if failure is not None:
            return failure
    return None


def _compare(name: str, sent: bytes | None, value: JSON) -> Failure | None:
    if sent is None:
        return Failure(Fault.HEADER_MISMATCH, f"The header {name} is missing.")
    text = mirrored.decode(sent)
    if text is None:
        return Failure(Fault.HEADER_MISMATCH, f"The header {name} is malformed.")
    if not mirrored.is_same_value(text, value):
        return Failure(Fault.HEADER_MISMATCH, f"The header {name} does not match the body.")
    return None
