"""Every error: what it means, what is sent, whether to try again.

`Fault` names what can go wrong, `FAULTS` says how each era of the protocol reports it. Inside the library a refusal
is a value (`values.Failure` carries a `Fault`); the exceptions below are the ones an author of tools
raises or a program that embeds a server sees.

    DeltaError
    ├── ToolError             raised by an author; the model reads its text
    ├── ResourceNotFoundError      raised by an author of a templated resource
    ├── InputDeclinedError         the user said no, or went away, where an answer was needed
    ├── PeerError             the other side answered our request with an error
    ├── UnfitError            a meta-tool was called with what it cannot use; the model reads its text
    ├── ConfigurationError    a mistake in how a server or client was put together, told at once
    └── ClientError           a client could not do what it was asked to
        ├── UnreachableError       nobody answers there, or nothing that can be understood; try later
        │   ├── HttpStatusError    an HTTP status that no MCP server gives; is the address right?
        │   └── UnauthorizedError  it wants a token, or another one
        ├── ConnectionLostError    the connection broke; `maybe_done` tells whether to think before trying again
        ├── DeadlineError          no answer in time; it was cancelled, and may have been done
        ├── ArgumentsError         a tool's arguments do not fit its schema; nothing was sent
        └── CallFailedError        the tool ran and says that it failed; `reply` is what it said
"""

import enum
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple


class Fault(enum.Enum):
    """What went wrong, independent of who speaks which dialect."""

    PARSE = enum.auto()
    INVALID_REQUEST = enum.auto()
    UNKNOWN_METHOD = enum.auto()
    INVALID_PARAMS = enum.auto()
    NOT_FOUND = enum.auto()
    RESOURCE_NOT_FOUND = enum.auto()
    HEADER_MISMATCH = enum.auto()
    MISSING_CAPABILITY = enum.auto()
    UNSUPPORTED_VERSION = enum.auto()
    INTERNAL = enum.auto()
    TIMEOUT = enum.auto()
    OVERLOADED = enum.auto()
    CANCELLED = enum.auto()
    TOO_LARGE = enum.auto()
    TOO_SLOW = enum.auto()
    WRONG_HOST = enum.auto()
    WRONG_ORIGIN = enum.auto()
    WRONG_PATH = enum.auto()
    WRONG_HTTP_METHOD = enum.auto()
    WRONG_MEDIA_TYPE = enum.auto()
    NOT_ACCEPTABLE = enum.auto()
    SESSION_REQUIRED = enum.auto()
    SESSION_UNKNOWN = enum.auto()


class FaultRow(NamedTuple):
    """How the protocol reports one fault."""

    handshake: int
    """JSON-RPC code up to 2025-11-25."""
    modern: int
    """JSON-RPC code from 2026-07-28 on."""
    handshake_http: int
    modern_http: int


FAULTS: Mapping[Fault, FaultRow] = MappingProxyType(
    {
        Fault.PARSE: FaultRow(-32700, -32700, 400, 400),
        Fault.INVALID_REQUEST: FaultRow(-32600, -32600, 400, 400),
        # Handshake-era clients take a status other than 200 for a broken transport, so errors that
        # answer a well-formed request travel with 200 there.
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
    }
)


class DeltaError(Exception):
    """Everything this library raises on purpose."""


class ToolError(DeltaError):
    """Raise it in a tool, resource or prompt: its text is meant for the model and is sent as it stands."""


class ResourceNotFoundError(DeltaError):
    """Raise it where a templated resource has nothing at the given address."""


class InputDeclinedError(DeltaError):
    """The client cannot be asked, or its user declined, where the function needs an answer."""


class PeerError(DeltaError):
    """The other side, a client or a server, answered a request of ours with a JSON-RPC error."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code = code
        self.data = data


class UnfitError(DeltaError):
    """A meta-tool was called with what it cannot use; the text, for the model, says how to mend it."""


class ConfigurationError(DeltaError):
    """A server or a client was put together wrongly; raised where the mistake is made."""


class ClientError(DeltaError):
    """A client could not do what it was asked to."""


class UnreachableError(ClientError):
    """A server that cannot be started or reached, or speaks nothing we know."""


class HttpStatusError(UnreachableError):
    """Whoever is at the address answers HTTP, but not as an MCP server of the era it was spoken to in would."""


class UnauthorizedError(UnreachableError):
    """The server wants a token, or another one. `challenge` is its `WWW-Authenticate`."""

    def __init__(self, message: str, challenge: str) -> None:
        super().__init__(message)
        self.challenge = challenge


class ConnectionLostError(ClientError):
    """The connection ended before the answer came.

    `maybe_done` is False where the server surely did nothing, so that the same can be asked again; `retry_after` is
    how many seconds it asked to be left alone.
    """

    def __init__(self, message: str, *, maybe_done: bool = True, retry_after: float = 0.0) -> None:
        super().__init__(message)
        self.maybe_done = maybe_done
        self.retry_after = retry_after


class DeadlineError(ClientError):
    """No answer came in time. The server was told to stop; whether it did, nobody knows."""


class ArgumentsError(ClientError):
    """Arguments that a tool's schema does not admit. Nothing was sent."""


class CallFailedError(ClientError):
    """A tool ran and says that it failed. `reply` is everything it said."""

    def __init__(self, message: str, reply: Any) -> None:
        super().__init__(message)
        self.reply = reply
