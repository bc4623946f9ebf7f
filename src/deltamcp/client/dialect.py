"""Writes the parts of a request that differ between eras: `_meta`, headers, capabilities. Pure: does no I/O."""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from deltamcp.catalog import param_headers as mirrored
from deltamcp.catalog.param_headers import ParameterHeader
from deltamcp.dialects import modern, progressive_disclosure, tasks, versions
from deltamcp.errors import FAULTS, ClientError, Fault, ResourceNeededError, ResponseTypeError
from deltamcp.values import JSON, Era

_VERSION_HEADER = "mcp-protocol-version"
_MAX_SHOWN_CHARS = 200


class ClientDialect(Struct, frozen=True):
    """The protocol that one connection uses."""

    era: Era
    version: str
    request_meta: dict[str, JSON]
    """The `_meta` of every request; empty in the handshake era."""
    is_delta: bool = False
    """Whether the server speaks the original Delta-MCP: results are JSON texts, and arguments select pages."""
    is_lite: bool = False
    """Whether the server speaks MCP-lite: `_meta` says of which type a result is."""

    def read_result(self, result: dict[str, JSON]) -> dict[str, JSON]:
        """Returns a result in the form of MCP.

        Raises:
            ClientError: the result is none that this client can use.
        """
        return read_lite_result(result) if self.is_lite else result

    def for_sender(self, capabilities: Mapping[str, JSON] | None) -> "ClientDialect":
        """Returns the dialect of a request of somebody else, who can do this; None if the client can do as much."""
        if capabilities is None or modern.CAPABILITIES_KEY not in self.request_meta:
            return self
        return replace(self, request_meta={**self.request_meta, modern.CAPABILITIES_KEY: dict(capabilities)})

    def request_params(self, params: Mapping[str, JSON], meta: Mapping[str, JSON]) -> dict[str, JSON]:
        """Returns a request's params with their `_meta`."""
        if self.request_meta or meta:
            return {**params, "_meta": {**meta, **self.request_meta}}
        return dict(params)

    def may_become_task(self, method: str, params: Mapping[str, JSON]) -> bool:
        """Whether a server may answer this request with a task, which goes on until it is cancelled by its id."""
        if method != "tools/call" or self.is_lite:
            return False
        if self.era is Era.HANDSHAKE:
            return "task" in params
        capabilities = self.request_meta.get(modern.CAPABILITIES_KEY)
        return isinstance(capabilities, dict) and tasks.is_declared(capabilities.get("extensions"))

    def headers(
        self, method: str, params: Mapping[str, JSON], parameter_headers: tuple[ParameterHeader, ...] = ()
    ) -> dict[str, str]:
        """Returns the HTTP headers of a message; `parameter_headers` are the arguments that the tool wants in them."""
        if self.is_lite:
            return {}
        if self.era is Era.HANDSHAKE:
            # There is no version before `initialize` has been answered.
            return {_VERSION_HEADER: self.version} if self.version else {}
        headers = {_VERSION_HEADER: self.version, "mcp-method": method}
        name = params.get(modern.NAMED_BY.get(method, ""))
        if isinstance(name, str):
            headers["mcp-name"] = mirrored.encode(name)
        for parameter in parameter_headers:
            value = mirrored.value_at(params.get("arguments"), parameter.path)
            if value is not None:
                headers[parameter.header.decode()] = mirrored.encode(_header_text(value))
        return headers


def _header_text(value: JSON) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else str(value)


def modern_dialect(version: str, info: dict[str, JSON], capabilities: dict[str, JSON]) -> ClientDialect:
    """Returns the dialect of the modern era, in which every request names the client and its capabilities."""
    meta = {modern.VERSION_KEY: version, modern.CLIENT_KEY: info, modern.CAPABILITIES_KEY: capabilities}
    return ClientDialect(Era.MODERN, version, meta)


def handshake_dialect(version: str, is_delta: bool = False) -> ClientDialect:
    return ClientDialect(Era.HANDSHAKE, version, {}, is_delta)


def mcp_lite_dialect(info: dict[str, JSON], capabilities: dict[str, JSON]) -> ClientDialect:
    """Returns MCP-lite's dialect. Its requests may say what those of MCP must say."""
    meta: dict[str, JSON] = {modern.CLIENT_KEY: info, modern.CAPABILITIES_KEY: capabilities}
    if "elicitation" not in capabilities:
        meta["accept_response_types"] = ["answer", "promise", "failure", "request-for-more-resource"]
    return ClientDialect(Era.MODERN, versions.MODERN[0], meta, is_lite=True)


UNNEGOTIATED = ClientDialect(Era.HANDSHAKE, "", {})
"""The dialect of `initialize` itself."""


def client_capabilities(
    era: Era, *, elicits: bool, samples: bool, has_roots: bool, progressive: bool
) -> dict[str, JSON]:
    """Returns the client's `capabilities`. MCP 2026-07-28 has `extensions`; earlier revisions have `experimental`."""
    capabilities: dict[str, JSON] = {}
    if elicits:
        capabilities["elicitation"] = {"form": {}, "url": {}}
    if samples:
        capabilities["sampling"] = {}
    if has_roots:
        capabilities["roots"] = {}
    extensions: dict[str, JSON] = {progressive_disclosure.NAME: {}} if progressive else {}
    if era is Era.MODERN:
        capabilities["extensions"] = {**extensions, tasks.EXTENSION: {}}
    elif extensions:
        capabilities["experimental"] = extensions
    return capabilities


def forwarding_capabilities(era: Era) -> dict[str, JSON]:
    """Returns the `capabilities` of a client that sends requests of others: all that it can pass a question on for.

    In the modern era the request itself says what its sender can be asked. The client's own requests are about tasks,
    and for the whole catalog.
    """
    if era is Era.MODERN:
        return {"extensions": {progressive_disclosure.NAME: {}, tasks.EXTENSION: {}}}
    return {
        "elicitation": {"form": {}, "url": {}},
        "sampling": {"tools": {}, "context": {}},
        "roots": {"listChanged": True},
    }


def initialize_params(
    info: dict[str, JSON], capabilities: dict[str, JSON], as_delta: bool, encoding: str, progressive: bool
) -> dict[str, JSON]:
    """Returns the params of `initialize`; `as_delta` for the original Delta-MCP."""
    if not as_delta:
        return {"protocolVersion": versions.HANDSHAKE[0], "capabilities": capabilities, "clientInfo": info}
    encodings: dict[str, JSON] = {"compactJson": encoding != "json"}
    if encoding == "cbor":
        encodings["cbor"] = True
    extra = {"tools": {"progressiveDisclosure": progressive, "lazyLoading": progressive}, "encoding": encodings}
    return {"protocolVersion": versions.DELTA_MCP, "capabilities": {**capabilities, **extra}, "clientInfo": info}


def supported_versions(code: int, data: JSON) -> list[str]:
    """Returns the versions that a modern server's error names; empty if the error is not about the version."""
    supported = (
        data.get("supported") if code == FAULTS[Fault.UNSUPPORTED_VERSION].modern and isinstance(data, dict) else ()
    )
    return [version for version in supported if isinstance(version, str)] if isinstance(supported, list) else []


def is_delta_refusal(message: str) -> bool:
    """Whether this is the original Delta-MCP's error for `server/discover`, over stdio or over HTTP."""
    return message in (
        "Unknown method: server/discover",
        f"Unsupported MCP-Protocol-Version: {versions.MODERN[0]}",
    )


def read_lite_result(result: dict[str, JSON]) -> dict[str, JSON]:
    """Returns an answer or a failure as it is, a question as `input_required`, a promise as a task.

    Raises:
        ResponseTypeError: the result is of a type that this client does not know.
        ResourceNeededError: the call needs more of a resource.
    """
    meta = _object(result.get("_meta"))
    kind = meta.get("response_type", "answer")
    # NLWeb, which MCP-lite comes from, writes the types in lower case and with a capital.
    match kind.lower() if isinstance(kind, str) else kind:
        case "answer":
            return result
        case "failure":
            return _read_failure(result)
        case "promise":
            return _read_promise(result, meta)
        case "elicitation" if "promise_token" in meta:
            return {**_read_promise(result, meta), "inputRequests": _questions(result), "status": "input_required"}
        case "elicitation":
            asked: dict[str, JSON] = {"resultType": "input_required", "inputRequests": _questions(result)}
            return asked | ({"requestState": meta["request_state"]} if "request_state" in meta else {})
        case "request-for-more-resource":
            raise _resource_needed_error(result, meta)
        case _:
            raise ResponseTypeError(kind)


def _read_failure(result: dict[str, JSON]) -> dict[str, JSON]:
    message = _object(result.get("error")).get("message")
    content = result.get("content") or ([{"type": "text", "text": message}] if isinstance(message, str) else [])
    return {**result, "content": content, "isError": True}


def _read_promise(result: dict[str, JSON], meta: dict[str, JSON]) -> dict[str, JSON]:
    promise = _object(result.get("promise"))
    token = meta.get("promise_token", promise.get("token"))
    if not isinstance(token, str) or not token:
        raise ClientError("The server promises a result, and gives no token to redeem.")
    task = {
        "resultType": "task",
        "taskId": token,
        "status": promise.get("status", "working"),
        "statusMessage": promise.get("message"),
        "progress": promise.get("progress"),
        "total": 1 if "progress" in promise else None,
        "pollIntervalMs": meta.get("retry_after_ms"),
    }
    return {key: value for key, value in task.items() if value is not None}


def _questions(result: dict[str, JSON]) -> dict[str, JSON]:
    elicitation = _object(result.get("elicitation"))
    requests = elicitation.get("requests")
    if not isinstance(requests, dict) or not requests:
        text = elicitation.get("text") or _text(result) or "something"
        raise ClientError(f"The server asks, in a form that this client does not know: {str(text)[:_MAX_SHOWN_CHARS]}")
    return requests


def _resource_needed_error(result: dict[str, JSON], meta: dict[str, JSON]) -> ResourceNeededError:
    request = _object(result.get("resource_request"))
    message, resources, state = request.get("message"), request.get("resources"), meta.get("request_state")
    return ResourceNeededError(
        message if isinstance(message, str) else _text(result) or "The call needs more of a resource.",
        [item for item in resources if isinstance(item, dict)] if isinstance(resources, list) else [],
        state if isinstance(state, str) else None,
    )


def _text(result: dict[str, JSON]) -> str:
    blocks: Any = result.get("content")
    texts = [block.get("text") for block in blocks if isinstance(block, dict)] if isinstance(blocks, list) else []
    return "\n".join(text for text in texts if isinstance(text, str))


def _object(value: JSON) -> dict[str, JSON]:
    return value if isinstance(value, dict) else {}
