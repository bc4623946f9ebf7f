"""The interface of dialects, which read a request as `Terms` and an `Ask`, and write an `Outcome` as bytes.

To add a dialect, add one module with one class, and one row in `registry.py`.
"""

from collections.abc import Collection, Mapping
from typing import Protocol

from msgspec import Struct

from deltamcp.values import (
    JSON,
    About,
    Ask,
    Caller,
    Failure,
    LogLevel,
    Outcome,
    Promise,
    Request,
    RequestId,
    ResultShape,
    Surface,
    Terms,
)


class Agreement(Struct, frozen=True):
    """The result of the negotiation in `initialize`, which applies to the whole session."""

    version: str
    capabilities: dict[str, JSON]
    client: dict[str, JSON]
    surface: Surface | None = None
    result_shape: ResultShape = ResultShape.MCP
    encoding: str = "json"
    """The encoding of all later messages; over HTTP the headers of a request may choose another."""
    log_level: LogLevel | None = "info"
    """The lowest level of log messages that the client is sent; None for none."""


class Dialect(Protocol):
    """Reads requests and writes responses and notifications in one family of protocol versions."""

    def recognizes(self, request: Request) -> bool:
        """Whether a request that belongs to no session is in this dialect."""
        ...

    def read(self, request: Request, caller: Caller, agreement: Agreement | None = None) -> tuple[Terms, Ask] | Failure:
        """Returns the terms and the ask of a request, or the reason it is invalid; `agreement` is its session's."""
        ...

    def write(self, request: Request, outcome: Outcome, version: str) -> bytes:
        """Returns the response to a request.

        Raises:
            ValueError: a result contains a value that JSON cannot express.
        """
        ...

    def notify(self, method: str, params: Mapping[str, JSON], subscription: RequestId | None = None) -> bytes:
        """Returns a notification; `subscription` is the id of the subscription that it belongs to, if any."""
        ...

    def capabilities(self, about: About) -> dict[str, JSON]:
        """Returns the server's capabilities as this dialect declares them."""
        ...

    def http_status(self, failure: Failure) -> int:
        """Returns the HTTP status of a response that reports a failure."""
        ...


class StatelessDialect(Dialect, Protocol):
    """A dialect in which every request states its client, and subscriptions are requests."""

    def notify_of_promise(self, promise: Promise, version: str, subscription: RequestId) -> bytes:
        """Returns the notification of a subscription that a promise has changed."""
        ...


class SessionDialect(Dialect, Protocol):
    """A dialect whose sessions begin with `initialize`."""

    name: str
    """The name of the dialect in the records of sessions."""

    def agree(self, params: dict[str, JSON], encodings: Collection[str]) -> Agreement | Failure:
        """Returns the agreement that a client's `initialize` leads to; `encodings` are those of the transport."""
        ...

    def introduce(self, request: Request, about: About, agreement: Agreement, encodings: Collection[str]) -> bytes:
        """Returns the response to `initialize`."""
        ...
