"""The modern era, 2026-07-28: every request says who sends it and what they understand."""

import functools
from collections.abc import Mapping
from typing import Any, assert_never

from msgspec import Raw

from deltamcp.catalog import headers as mirrored
from deltamcp.catalog.operation import Operation
from deltamcp.dialects import delta_mcp, params, result_bodies, versions
from deltamcp.errors import FAULTS, Fault
from deltamcp.values import (
    ANONYMOUS,
    JSON,
    About,
    Answer,
    Ask,
    CallTool,
    Contents,
    Era,
    Failure,
    Filter,
    InputRequired,
    LogLevel,
    Manifest,
    Outcome,
    Page,
    Principal,
    Request,
    RequestId,
    Surface,
    Terms,
    ToolResult,
)
from deltamcp.wire import jsonrpc

VERSION_KEY = "io.modelcontextprotocol/protocolVersion"
CLIENT_KEY = "io.modelcontextprotocol/clientInfo"
CAPABILITIES_KEY = "io.modelcontextprotocol/clientCapabilities"
LOG_LEVEL_KEY = "io.modelcontextprotocol/logLevel"
SERVER_KEY = "io.modelcontextprotocol/serverInfo"
SUBSCRIPTION_KEY = "io.modelcontextprotocol/subscriptionId"

NAMED_BY: Mapping[str, str] = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
"""The parameter that `Mcp-Name` repeats."""


def is_modern(request: Request) -> bool:
    """Whether a message without headers speaks this era."""
    meta = params.meta(request.params)
    return request.method == "server/discover" or (meta is not None and VERSION_KEY in meta)


def envelope(request: Request) -> dict[str, JSON] | Failure:
    """A request's `_meta`. MCP 2026-07-28, "Per-request protocol fields": without them it is malformed."""
    meta = params.meta(request.params)
    if meta is None:
        return Failure(Fault.INVALID_PARAMS, "params._meta must be an object with the protocol's fields.")
    if type(meta.get(VERSION_KEY)) is not str:
        return Failure(Fault.INVALID_PARAMS, f'params._meta["{VERSION_KEY}"] must be a string.')
    if type(meta.get(CAPABILITIES_KEY)) is not dict:
        return Failure(Fault.INVALID_PARAMS, f'params._meta["{CAPABILITIES_KEY}"] must be an object.')
    if type(meta.get(CLIENT_KEY, {})) is not dict:
        return Failure(Fault.INVALID_PARAMS, f'params._meta["{CLIENT_KEY}"] must be an object.')
    return meta


def read(request: Request, meta: dict[str, JSON], principal: Principal = ANONYMOUS) -> tuple[Terms, Ask] | Failure:
    """A request with its `envelope`."""
    version = meta[VERSION_KEY]
    if version not in versions.MODERN:
        return Failure(
            Fault.UNSUPPORTED_VERSION,
            f"The protocol version {version[:40]!r} is not supported.",
            {"supported": list(versions.MODERN), "requested": version},
        )
    if request.method in delta_mcp.METHODS and not _is_extended(meta[CAPABILITIES_KEY]):
        return Failure(
            Fault.MISSING_CAPABILITY,
            f"{request.method} belongs to the extension {delta_mcp.EXTENSION}; declare it in your capabilities.",
            {"requiredCapabilities": {"extensions": {delta_mcp.EXTENSION: {}}}},
        )
    ask = params.read(request, params.MODERN)
    if isinstance(ask, Failure):
        return ask
    log_level: LogLevel | None = None
    if LOG_LEVEL_KEY in meta:
        wanted = params.level_or_failure(meta[LOG_LEVEL_KEY], f'params._meta["{LOG_LEVEL_KEY}"]')
        if isinstance(wanted, Failure):
            return wanted
        log_level = wanted
    client = meta.get(CLIENT_KEY) or {}
    capabilities = meta[CAPABILITIES_KEY]
    surface = Surface.PROGRESSIVE if _is_extended(capabilities) else None
    return Terms(Era.MODERN, version, capabilities, client, meta, log_level, principal, surface), ask


def _is_extended(capabilities: dict[str, JSON]) -> bool:
    return "extensions" in capabilities and delta_mcp.declares(capabilities["extensions"])


# Headers


def check_headers(
    request: Request, meta: dict[str, JSON], headers: Mapping[bytes, bytes], repeated: bool
) -> Failure | None:
    """MCP 2026-07-28, "Server Validation": what the headers say must be what the body says.

    `repeated` tells that a mirrored header came more than once.
    """
    if repeated:
        return Failure(Fault.HEADER_MISMATCH, "An Mcp-* header was sent more than once.")
    method = request.method
    key = NAMED_BY.get(method)
    name = None if key is None else request.params.get(key)
    said = (meta[VERSION_KEY], method, name if type(name) is str else None)
    sent = (headers.get(b"mcp-protocol-version"), headers.get(b"mcp-method"), headers.get(b"mcp-name"))
    return _mirror(said, sent)


@functools.lru_cache(maxsize=512)
def _mirror(said: tuple[str, str, str | None], sent: tuple[bytes | None, bytes | None, bytes | None]) -> Failure | None:
    """The same few headers come with every call of the same tool, so what they amount to is remembered."""
    failure = _compare("MCP-Protocol-Version", sent[0], said[0])
    if failure is None and said[0] in versions.MODERN:
        failure = _compare("Mcp-Method", sent[1], said[1])
        if failure is None and said[2] is not None:
            failure = _compare("Mcp-Name", sent[2], said[2])
    return failure


def check_parameter_headers(
    ask: Ask, headers: Mapping[bytes, bytes], operations: Mapping[str, Operation]
) -> Failure | None:
    """The same for the arguments that one of a caller's tools asks to have mirrored."""
    if not isinstance(ask, CallTool):
        return None
    operation = operations.get(ask.name)
    for parameter in operation.parameter_headers if operation is not None else ():
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
    if not mirrored.same(text, value):
        return Failure(Fault.HEADER_MISMATCH, f"The header {name} does not match the body.")
    return None


# Writing


class Stamp:
    """What this era adds to results: who answers, and how long lists stay fresh."""

    def __init__(self, info: dict[str, JSON], cache_seconds: float) -> None:
        self._info = info
        # On every result, so no more than the specification asks for; the rest is `server/discover`'s.
        self._short = {key: info[key] for key in ("name", "version") if key in info}
        self._meta = Raw(jsonrpc.encode({SERVER_KEY: self._short}))
        self._ttl = int(cache_seconds * 1000)

    def write(self, id_: RequestId, outcome: Outcome, version: str) -> bytes:
        """What came of a request, as its answer.

        Raises:
            ValueError: a result holds what JSON cannot say.
        """
        match outcome:
            case Answer():
                return jsonrpc.result(id_, self._answer(outcome, version))
            case Failure():
                return jsonrpc.error(id_, FAULTS[outcome.fault].modern, outcome)
            case InputRequired():
                return jsonrpc.result(id_, jsonrpc.encode(self._questions(outcome)))
            case _:
                assert_never(outcome)

    def _answer(self, answer: Answer, version: str) -> bytes:
        value = answer.value
        made: dict[str, Any]
        if isinstance(value, ToolResult):
            made = {"resultType": "complete"}
            result_bodies.tool(value, version, made)
            return self._encode(made)
        if isinstance(value, Page):
            encoded = value.encoded.get(version)
            if encoded is None:
                encoded = value.encoded[version] = self._encode(
                    result_bodies.body(answer, version, {"resultType": "complete", **self._fresh(value.public)})
                )
            return encoded
        made = {"resultType": "complete"}
        if isinstance(value, Contents):
            # What an author reads for one caller is that caller's.
            made |= {"ttlMs": value.ttl_ms, "cacheScope": "private"}
        elif isinstance(value, Manifest):
            made |= self._fresh(value.public and value.meta is None)
        elif isinstance(value, About):
            extended = About(value.info, _extended(value.capabilities), value.instructions)
            made |= {
                "supportedVersions": list(versions.MODERN),
                **self._fresh(public=True),
                "_meta": {SERVER_KEY: self._info},
            }
            return self._encode(result_bodies.body(Answer(extended), version, made))
        return self._encode(result_bodies.body(answer, version, made))

    def _fresh(self, public: bool) -> dict[str, JSON]:
        return {"ttlMs": self._ttl, "cacheScope": "public" if public else "private"}

    def _encode(self, made: dict[str, Any]) -> bytes:
        own = made.get("_meta")
        made["_meta"] = self._meta if own is None else {SERVER_KEY: self._short, **own}
        return jsonrpc.encode(made)

    def _questions(self, outcome: InputRequired) -> dict[str, Any]:
        body: dict[str, Any] = {"resultType": "input_required", "inputRequests": {}}
        for key, question in outcome.requests.items():
            asked: dict[str, Any] = {"method": question.method}
            body["inputRequests"][key] = asked | {"params": question.params} if question.params else asked
        if outcome.state is not None:
            body["requestState"] = outcome.state
        return body | {"_meta": self._meta}


def _extended(capabilities: dict[str, JSON]) -> dict[str, JSON]:
    return (
        {**capabilities, "extensions": {delta_mcp.EXTENSION: delta_mcp.SETTINGS}}
        if "tools" in capabilities
        else capabilities
    )


def acknowledge(subscription: RequestId, wanted: Filter) -> bytes:
    """The first message of a subscription."""
    return notify(
        "notifications/subscriptions/acknowledged", {"notifications": params.acknowledged(wanted)}, subscription
    )


def notify(method: str, params: dict[str, JSON], subscription: RequestId) -> bytes:
    """A notification on a subscription."""
    return jsonrpc.notification(method, {"_meta": {SUBSCRIPTION_KEY: subscription}, **params})


def closing(subscription: RequestId) -> bytes:
    """The last message of a subscription that the server ends."""
    return jsonrpc.result(
        subscription, jsonrpc.encode({"resultType": "complete", "_meta": {SUBSCRIPTION_KEY: subscription}})
    )
