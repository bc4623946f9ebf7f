"""Checks of the HTTP headers that repeat values of the body: MCP 2026-07-28, "Server Validation"."""

from collections.abc import Collection, Mapping

from deltamcp.catalog import param_headers as mirrored
from deltamcp.catalog.operation import Operation
from deltamcp.dialects import tasks, versions
from deltamcp.dialects.modern import VERSION_KEY
from deltamcp.errors import Fault
from deltamcp.values import JSON, Ask, CallTool, Failure, Request, Terms

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
_HEADERS = (b"mcp-protocol-version", b"mcp-method", b"mcp-name")
_ONCE = (*_HEADERS, b"mcp-param-")


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
    meta = request.params.get("_meta")
    version = meta.get(VERSION_KEY) if type(meta) is dict else None
    if type(version) is not str:
        return understood
    if repeated and any(name.startswith(_ONCE) for name in repeated):
        return Failure(Fault.HEADER_MISMATCH, "An Mcp-* header was sent more than once.")
    method = request.method
    key = NAMED_BY.get(method)
    name = None if key is None else request.params.get(key)
    sent_version, sent_method, sent_name = map(headers.get, _HEADERS)
    if (
        sent_name is None
        or type(name) is not str
        or sent_method != method.encode()
        or sent_version != version.encode()
        or not mirrored.is_verbatim(sent_name, name)
        or version not in versions.MODERN
    ):  # nearly no call; the comparisons take three times as long
        failure = _compare("MCP-Protocol-Version", sent_version, version)
        if failure is None and version in versions.MODERN:
            failure = _compare("Mcp-Method", sent_method, method)
            if failure is None and type(name) is str and (sent_name is not None or method not in _NAMED_IF_AT_ALL):
                failure = _compare("Mcp-Name", sent_name, name)
        if failure is not None:
            return failure
    if isinstance(understood, Failure) or not isinstance(understood[1], CallTool):
        return understood
    operation = operations.get(understood[1].name)
    if operation is None or not operation.parameter_headers:
        return understood
    return _check_parameters(understood[1], headers, operation) or understood


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
