"""How MCP-lite reports each fault: over HTTP, stdio and gRPC, to programs and to people.

HTTP has status 200 for every response to a request whose id could be read, also for an error; other statuses report
what HTTP itself has one for.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from deltamcp.errors import Fault, ToolErrorCode


class LiteFault(NamedTuple):
    """A row of the table."""

    code: int
    """The JSON-RPC code; MCP-lite has the five of JSON-RPC itself."""
    http_status: int
    grpc_status: str
    """The name of a status code of gRPC."""
    reason: str
    """`error.data.reason`, which programs read."""
    retryable: bool = False
    """Whether the same request may succeed later."""


LITE_FAULTS: Mapping[Fault, LiteFault] = MappingProxyType(
    {
        Fault.PARSE: LiteFault(-32700, 400, "INVALID_ARGUMENT", "PARSE_ERROR"),
        Fault.INVALID_REQUEST: LiteFault(-32600, 400, "INVALID_ARGUMENT", "INVALID_REQUEST"),
        Fault.UNKNOWN_METHOD: LiteFault(-32601, 200, "UNIMPLEMENTED", "METHOD_NOT_FOUND"),
        Fault.INVALID_PARAMS: LiteFault(-32602, 200, "INVALID_ARGUMENT", "INVALID_PARAMS"),
        # MCP-lite, A.5: an unknown tool has the code of an unknown method.
        Fault.NOT_FOUND: LiteFault(-32601, 200, "NOT_FOUND", "TOOL_NOT_FOUND"),
        Fault.RESOURCE_NOT_FOUND: LiteFault(-32602, 200, "NOT_FOUND", "RESOURCE_NOT_FOUND"),
        Fault.HEADER_MISMATCH: LiteFault(-32600, 400, "INVALID_ARGUMENT", "INVALID_REQUEST"),
        Fault.MISSING_CAPABILITY: LiteFault(-32603, 200, "FAILED_PRECONDITION", "MISSING_CAPABILITY"),
        Fault.UNSUPPORTED_VERSION: LiteFault(-32600, 400, "INVALID_ARGUMENT", "INVALID_REQUEST"),
        Fault.INTERNAL: LiteFault(-32603, 200, "INTERNAL", "INTERNAL"),
        Fault.TIMEOUT: LiteFault(-32603, 200, "DEADLINE_EXCEEDED", "TIMEOUT", retryable=True),
        Fault.OVERLOADED: LiteFault(-32603, 503, "UNAVAILABLE", "OVERLOADED", retryable=True),
        Fault.CANCELLED: LiteFault(-32603, 200, "CANCELLED", "CANCELLED"),
        Fault.TOO_LARGE: LiteFault(-32603, 413, "RESOURCE_EXHAUSTED", "PAYLOAD_TOO_LARGE"),
        Fault.TOO_SLOW: LiteFault(-32600, 408, "DEADLINE_EXCEEDED", "TIMEOUT", retryable=True),
        Fault.WRONG_HOST: LiteFault(-32600, 421, "INVALID_ARGUMENT", "INVALID_REQUEST"),
        Fault.WRONG_ORIGIN: LiteFault(-32600, 403, "PERMISSION_DENIED", "FORBIDDEN"),
        Fault.WRONG_PATH: LiteFault(-32601, 404, "UNIMPLEMENTED", "METHOD_NOT_FOUND"),
        Fault.WRONG_HTTP_METHOD: LiteFault(-32600, 405, "UNIMPLEMENTED", "INVALID_REQUEST"),
        Fault.WRONG_MEDIA_TYPE: LiteFault(-32600, 415, "INVALID_ARGUMENT", "INVALID_REQUEST"),
        Fault.NOT_ACCEPTABLE: LiteFault(-32600, 406, "INVALID_ARGUMENT", "INVALID_REQUEST"),
        Fault.SESSION_REQUIRED: LiteFault(-32600, 400, "INVALID_ARGUMENT", "INVALID_REQUEST"),
        Fault.SESSION_UNKNOWN: LiteFault(-32600, 404, "INVALID_ARGUMENT", "INVALID_REQUEST"),
        Fault.UNAUTHORIZED: LiteFault(-32600, 401, "UNAUTHENTICATED", "UNAUTHENTICATED"),
        Fault.INSUFFICIENT_SCOPE: LiteFault(-32600, 403, "PERMISSION_DENIED", "FORBIDDEN"),
        Fault.RATE_LIMITED: LiteFault(-32603, 429, "RESOURCE_EXHAUSTED", "RATE_LIMITED", retryable=True),
        Fault.PROMISE_UNKNOWN: LiteFault(-32602, 200, "NOT_FOUND", "PROMISE_UNKNOWN"),
        Fault.SHUTTING_DOWN: LiteFault(-32603, 503, "UNAVAILABLE", "SERVER_SHUTDOWN", retryable=True),
    }
)

FAULTS_OF_TOOL_ERRORS: Mapping[str, Fault] = MappingProxyType(
    {
        ToolErrorCode.INVALID_PARAMS: Fault.INVALID_PARAMS,
        ToolErrorCode.INTERNAL: Fault.INTERNAL,
        ToolErrorCode.TIMEOUT: Fault.TIMEOUT,
        ToolErrorCode.RATE_LIMITED: Fault.RATE_LIMITED,
    }
)
"""The errors that MCP reports as a tool's, so that a model reads them, and MCP-lite as the protocol's."""
