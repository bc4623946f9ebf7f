"""The errors of the library: the faults a server reports to clients, and the exceptions authors and callers see.

`Fault` lists what can go wrong with a request; `FAULTS` gives the code and HTTP status by which each era of the
protocol reports it. Inside the library a refused request is a value: a `values.Failure` with a `Fault`. The exceptions
are for authors, who raise them in their functions, and for programs that embed a server or use a client.

    DeltaError
    ├── ToolError                  an author raises it; the model reads its text
    │   └── ToolFailure            the same with a code that programs read
    │       └── UpstreamError      the service behind an operation failed
    ├── NeedsResource              an author raises it where the caller may grant more of a resource and call again
    ├── ResourceNotFoundError      an author raises it in a templated resource
    ├── InputDeclinedError         the user declined or cancelled a question that the function needs an answer to
    ├── PeerError                  the peer answered a request of this side with an error
    │   └── RemoteError            another server refused a request that was passed on; the client gets its error
    ├── UsageError                 what a caller sent cannot be used; the model reads the text
    ├── ConfigurationError         a server or client is configured wrongly; raised on construction
    └── ClientError                a client could not do what its caller asked for
        ├── UnreachableError       no server answers at the address, or no known protocol; try later
        │   ├── HttpStatusError    the server answers with an HTTP status that MCP does not use; check the address
        │   └── UnauthorizedError  the server requires a token, or rejects the one it got
        ├── ConnectionLostError    the connection broke; `maybe_done` says whether the call may have been executed
        ├── DeadlineError          no answer in time; the client cancelled the call, which may have been executed
        ├── ArgumentsError         the arguments do not match the tool's schema; the client sent nothing
        ├── CallFailedError        the tool reported a failure; `reply` is its answer
        ├── ResourceNeededError    the call needs more of a resource, such as tokens or credit
        └── ResponseTypeError      the result is of a type that this client does not know
"""

import enum
import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple


class Fault(enum.Enum):
    """What went wrong with a request, independent of the protocol version."""

    PARSE = enum.auto()
    """The message is no JSON, or not what its `Content-Type` says."""
    INVALID_REQUEST = enum.auto()
    """It is JSON, and no request of JSON-RPC or of this revision."""
    UNKNOWN_METHOD = enum.auto()
    """There is no such method here."""
    INVALID_PARAMS = enum.auto()
    """The parameters do not fit the method; the text says which."""
    NOT_FOUND = enum.auto()
    """There is no tool or prompt of this name, or the caller may not see it."""
    RESOURCE_NOT_FOUND = enum.auto()
    """There is no resource at this URI, or the caller may not see it."""
    HEADER_MISMATCH = enum.auto()
    """A header and the body name different methods, tools or revisions."""
    MISSING_CAPABILITY = enum.auto()
    """The call needs something that the client does not declare."""
    UNSUPPORTED_VERSION = enum.auto()
    """The server does not speak this revision; the error lists those it does."""
    INTERNAL = enum.auto()
    """The server failed, and its log says why. The client did nothing wrong."""
    TIMEOUT = enum.auto()
    """The call took longer than a limit. The same call may succeed later."""
    OVERLOADED = enum.auto()
    """A limit of calls, streams or bytes is reached. The client may ask again later."""
    CANCELLED = enum.auto()
    """The client cancelled the request."""
    TOO_LARGE = enum.auto()
    """The message is larger than a limit."""
    TOO_SLOW = enum.auto()
    """The body did not arrive in time."""
    WRONG_HOST = enum.auto()
    """The `Host` header is not among the allowed hosts."""
    WRONG_ORIGIN = enum.auto()
    """The `Origin` header is not among the allowed origins."""
    WRONG_PATH = enum.auto()
    """There is nothing at this path."""
    WRONG_HTTP_METHOD = enum.auto()
    """The path does not take this HTTP method."""
    WRONG_MEDIA_TYPE = enum.auto()
    """The `Content-Type` is none that the server reads."""
    NOT_ACCEPTABLE = enum.auto()
    """The `Accept` header allows none of what the server writes."""
    SESSION_REQUIRED = enum.auto()
    """The header `Mcp-Session-Id` is missing; the client should send `initialize` first."""
    SESSION_UNKNOWN = enum.auto()
    """The session has ended, or is another principal's; the client should send `initialize` again."""
    UNAUTHORIZED = enum.auto()
    """The credentials are missing or refused; the text says why."""
    INSUFFICIENT_SCOPE = enum.auto()
    """The token lacks a scope, which the challenge names."""
    RATE_LIMITED = enum.auto()
    """The caller asks more often than a rate allows; `Retry-After` says when to ask again."""
    PROMISE_UNKNOWN = enum.auto()
    """There is no such promise or task, it has expired, or it is another principal's."""
    SHUTTING_DOWN = enum.auto()
    """The server is stopping. The client may ask again, at another replica at once."""


class FaultRow(NamedTuple):
    """How each era of the protocol reports one fault: the JSON-RPC code and the HTTP status."""

    handshake: int
    """JSON-RPC code up to 2025-11-25."""
    modern: int
    """JSON-RPC code from 2026-07-28 on."""
    handshake_http: int
    """HTTP status up to 2025-11-25."""
    modern_http: int
    """HTTP status from 2026-07-28 on."""


FAULTS: Mapping[Fault, FaultRow] = MappingProxyType(
    {
        Fault.PARSE: FaultRow(-32700, -32700, 400, 400),
        Fault.INVALID_REQUEST: FaultRow(-32600, -32600, 400, 400),
        # Handshake-era clients take a status other than 200 for a broken transport, so the server sends errors
        # that answer a well-formed request with 200 there.
        Fault.UNKNOWN_METHOD: FaultRow(-32601, -32601, 200, 404),
        Fault.INVALID_PARAMS: FaultRow(-32602, -32602, 200, 400),
        Fault.NOT_FOUND: FaultRow(-32602, -32602, 200, 400),
        # 2026-07-28 retires -32002 in favour of -32602.
        Fault.RESOURCE_NOT_FOUND: FaultRow(-32002, -32602, 200, 400),
        Fault.HEADER_MISMATCH: FaultRow(-32600, -32020, 400, 400),
        Fault.MISSING_CAPABILITY: FaultRow(-32602, -32021, 200, 400),
        Fault.UNSUPPORTED_VERSION: FaultRow(-32600, -32022, 400, 400),
        # 2026-07-28 gives -32603 no status of its own; the error answers the request, so 200.
        Fault.INTERNAL: FaultRow(-32603, -32603, 200, 200),
        Fault.TIMEOUT: FaultRow(-32603, -32603, 200, 200),
        Fault.OVERLOADED: FaultRow(-32603, -32603, 503, 503),
        # Codes of our own lie outside -32768...-32000, as 2026-07-28 asks; this one is LSP's.
        Fault.CANCELLED: FaultRow(-32800, -32800, 200, 200),
        Fault.TOO_LARGE: FaultRow(-32600, -32600, 413, 413),
        Fault.TOO_SLOW: FaultRow(-32600, -32600, 408, 408),
        Fault.WRONG_HOST: FaultRow(-32600, -32600, 421, 421),
        Fault.WRONG_ORIGIN: FaultRow(-32600, -32600, 403, 403),
        Fault.WRONG_PATH: FaultRow(-32600, -32600, 404, 404),
        Fault.WRONG_HTTP_METHOD: FaultRow(-32600, -32600, 405, 405),
        Fault.WRONG_MEDIA_TYPE: FaultRow(-32600, -32600, 415, 415),
        Fault.NOT_ACCEPTABLE: FaultRow(-32600, -32600, 406, 406),
        Fault.SESSION_REQUIRED: FaultRow(-32600, -32600, 400, 400),
        Fault.SESSION_UNKNOWN: FaultRow(-32600, -32600, 404, 404),
        # MCP 2025-11-25 and 2026-07-28, "Authorization", "Error Handling"; neither gives these a JSON-RPC code.
        Fault.UNAUTHORIZED: FaultRow(-32600, -32600, 401, 401),
        Fault.INSUFFICIENT_SCOPE: FaultRow(-32600, -32600, 403, 403),
        Fault.RATE_LIMITED: FaultRow(-32603, -32603, 429, 429),
        # MCP 2025-11-25 "Tasks" and SEP-2663: one code for unknown, expired and foreign ids.
        Fault.PROMISE_UNKNOWN: FaultRow(-32602, -32602, 200, 400),
        Fault.SHUTTING_DOWN: FaultRow(-32603, -32603, 503, 503),
    }
)


class DeltaError(Exception):
    """The base class of the exceptions that this library raises on purpose."""


class ToolError(DeltaError):
    """An author raises it in a tool, resource or prompt; the server sends its text to the model unchanged."""


class NoConversationError(ToolError):
    """A function keeps state of a conversation, and the request names none."""

    def __init__(self) -> None:
        super().__init__(
            "This needs the state of a conversation, and the request belongs to none: the client can open a session, "
            'or name a conversation in _meta, under "io.github.delta-mcp/conversation".'
        )


class ToolErrorCode(enum.StrEnum):
    """The codes of errors that the server itself reports as a tool's; authors choose others."""

    INVALID_PARAMS = "INVALID_PARAMS"
    """The arguments do not fit the schema of the tool. The text says which; the model may mend them."""
    INTERNAL = "INTERNAL"
    """The function raised something else than a `ToolError`. The server's log has it."""
    TIMEOUT = "TIMEOUT"
    """The call took longer than the tool's `timeout`, or than a limit."""
    RATE_LIMITED = "RATE_LIMITED"
    """The caller, or the service behind the tool, is at its rate. The text says when to call again."""
    PROMISE_EXPIRED = "PROMISE_EXPIRED"
    """The promise has expired, and its outcome is kept no more. The tool can be called again."""
    CANCELLED = "CANCELLED"
    """The call was cancelled."""
    DECLINED = "DECLINED"
    """The user declined, or does not consent to the call."""
    INPUT_REQUIRED = "INPUT_REQUIRED"
    """The call needs an answer of the user, whom the client cannot ask. The text tells the model how to pass it on."""
    OUTCOME_UNKNOWN = "OUTCOME_UNKNOWN"
    """The process that ran the call is gone. It may have had its effect; calling again may repeat that."""
    RESULT_TOO_LARGE = "RESULT_TOO_LARGE"
    """The result is larger than a limit."""
    RESULT_TOO_DEEP = "RESULT_TOO_DEEP"
    """The result is nested more deeply than a limit."""
    UPSTREAM_ERROR = "UPSTREAM_ERROR"
    """The service behind the operation failed or refused."""


class ToolFailure(ToolError):  # noqa: N818 - MCP-lite calls it a failure, and keeps errors for the protocol
    """An author raises it where the call failed for a reason of its subject, such as a declined card."""

    def __init__(
        self, code: str, message: str, *, retryable: bool = False, details: "Mapping[str, Any] | None" = None
    ) -> None:
        """
        Args:
            code: What programs read, in capitals: "CARD_DECLINED".
            message: What the model reads.
            retryable: Whether the same call may succeed later.
            details: Further JSON for programs.

        Raises:
            TypeError: one of them is of another type, which clients could not read.
        """
        if not isinstance(code, str) or not isinstance(retryable, bool) or not isinstance(details, Mapping | None):
            raise TypeError('ToolFailure takes texts, a truth value and a dict: ToolFailure("CARD_DECLINED", "Why.").')
        super().__init__(message)
        self.code = code
        self.retryable = retryable
        self.details: dict[str, Any] = dict(details or {})


class UpstreamError(ToolFailure):
    """A service or server behind an operation refused, broke off or could not be reached."""

    def __init__(self, message: str, *, retryable: bool = False) -> None:
        super().__init__(ToolErrorCode.UPSTREAM_ERROR.value, message, retryable=retryable)


class NeedsResource(DeltaError):  # noqa: N818 - named after MCP-lite's response type
    """An author raises it where the caller may grant more of a resource, and then call again.

    MCP-lite sends it as `request-for-more-resource`; MCP, which has no such result, as a tool's error.
    """

    def __init__(
        self,
        message: str,
        *,
        kind: str,
        required: float | None = None,
        available: float | None = None,
        unit: str | None = None,
    ) -> None:
        """
        Raises:
            TypeError: one of them is of another type, which clients could not read.
        """
        numbers_fit = all(
            number is None or (type(number) in (int, float) and math.isfinite(number))
            for number in (required, available)
        )
        if not isinstance(kind, str) or not isinstance(unit, str | None) or not numbers_fit:
            raise TypeError('NeedsResource takes texts and finite numbers: NeedsResource("Why.", kind="tokens").')
        super().__init__(message)
        self.kind = kind
        self.required = required
        self.available = available
        self.unit = unit


class ResourceNotFoundError(DeltaError):
    """An author raises it where a templated resource does not exist at the requested URI."""


class InputDeclinedError(DeltaError):
    """The function needs an answer from the user, but the client cannot ask, or the user declined."""


class PeerError(DeltaError):
    """The peer, a client or a server, answered a request of this side with a JSON-RPC error."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code = code
        self.data = data


class RemoteError(PeerError):
    """Another server answered a client's request, which this one passed on, with a JSON-RPC error."""

    def __init__(self, error: PeerError, method: str) -> None:
        """`method` is that of the request."""
        super().__init__(error.code, str(error), error.data)
        self.method = method


class UsageError(DeltaError):
    """What a caller sent cannot be used: a meta-tool's arguments, a policy in `_meta`, a root; the text says why."""


class MissingScopesError(DeltaError):
    """A caller named an operation whose scopes it does not have."""

    def __init__(self, operation: str, missing: frozenset[str]) -> None:
        super().__init__(f"{operation} needs scopes that the caller does not have: {', '.join(sorted(missing))}.")
        self.missing = missing


class ConfigurationError(DeltaError):
    """An author or caller configured a server or a client wrongly; raised where the mistake is made."""

    def __init__(self, sentence: str, details: Sequence[str] = ()) -> None:
        """`details` are lines to be read below the sentence, such as each fault of a file."""
        super().__init__("\n".join((sentence, *details)))
        self.sentence = sentence
        self.details: tuple[str, ...] = tuple(details)


class ClientError(DeltaError):
    """A client could not do what its caller asked for."""


class UnreachableError(ClientError):
    """The client cannot start or reach the server, or the two have no protocol version in common."""


class HttpStatusError(UnreachableError):
    """The server answered with an HTTP status that an MCP server of the requested era does not send."""


class UnauthorizedError(UnreachableError):
    """The server requires a token, or rejects the one it got, and no other can be had.

    `challenge` is the server's `WWW-Authenticate` header.
    """

    def __init__(self, message: str, challenge: str = "") -> None:
        super().__init__(message)
        self.challenge = challenge


class ConnectionLostError(ClientError):
    """The connection ended before the answer came.

    `maybe_done` is False where the server certainly did not execute the request, so that the caller can safely repeat
    it; `retry_after` is how many seconds the server asked the client to wait.
    """

    def __init__(self, message: str, *, maybe_done: bool = True, retry_after: float = 0.0) -> None:
        super().__init__(message)
        self.maybe_done = maybe_done
        self.retry_after = retry_after


class DeadlineError(ClientError):
    """No answer came in time. The client cancelled the request; the server may have executed it all the same."""


class ArgumentsError(ClientError):
    """The arguments do not match the tool's schema. The client sent nothing."""


class ResultLostError(ClientError):
    """A result was sent in part, and the rest of it cannot be read."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"The result cannot be read to its end: {reason}.")


class CallFailedError(ClientError):
    """The tool reported a failure. `reply` is its whole answer."""

    def __init__(
        self,
        message: str,
        reply: Any,
        *,
        code: str | None = None,
        retryable: bool = False,
        details: "Mapping[str, Any] | None" = None,
    ) -> None:
        super().__init__(message)
        self.reply = reply
        self.code = code
        """The failure's name for programs, such as CARD_DECLINED; None if the server gives none."""
        self.retryable = retryable
        """Whether the server says that the same call may succeed later."""
        self.details: dict[str, Any] = dict(details or {})


class ResourceNeededError(ClientError):
    """The call needs more of a resource than it has; it may be called again once that is granted."""

    def __init__(self, message: str, resources: list[dict[str, Any]], state: str | None) -> None:
        super().__init__(message)
        self.resources = resources
        """What is needed: objects with a `kind`, and perhaps `required`, `available` and `unit`."""
        self.state = state
        """The server's `request_state`, to send with the call that grants the resource."""


class ResponseTypeError(ClientError):
    """A result is of a type that this client does not know. `response_type` is the type."""

    def __init__(self, response_type: Any) -> None:
        super().__init__(f"The server answers with the response type {response_type!r:.60}, which is not known here.")
        self.response_type = response_type
