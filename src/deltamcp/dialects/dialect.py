"""What every dialect does: it reads a request as `Terms` and an `Ask`, and writes an `Outcome` as bytes.

A new dialect is one file with one class, and one row in `registry.py`.
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
    Request,
    RequestId,
    ResultShape,
    Surface,
    Terms,
)


class Agreement(Struct, frozen=True):
    """What client and server settled by `initialize`, for the rest of a session."""

    version: str
    capabilities: dict[str, JSON]
    client: dict[str, JSON]
    surface: Surface | None = None
    result_shape: ResultShape = ResultShape.MCP
    encoding: str = "json"
    """What both write from now on; over HTTP a request may still say otherwise."""
    log_level: LogLevel = "info"


class Dialect(Protocol):
    """One way to say what a request means."""

    def recognizes(self, request: Request) -> bool:
        """Whether a request that belongs to no session is in this dialect."""
        ...

    def read(self, request: Request, caller: Caller, agreement: Agreement | None = None) -> tuple[Terms, Ask] | Failure:
        """What a request means, or why it cannot be understood; `agreement` is that of its session."""
        ...

    def write(self, request: Request, outcome: Outcome, version: str) -> bytes:
        """The response to a request.

        Raises:
            ValueError: a result holds what JSON cannot say.
        """
        ...

    def notify(self, method: str, params: Mapping[str, JSON], subscription: RequestId | None = None) -> bytes:
        """A notification; one that a client subscribed to carries the subscription's id."""
        ...

    def capabilities(self, about: About) -> dict[str, JSON]:
        """What the server can do, as this dialect declares it."""
        ...

    def http_status(self, failure: Failure) -> int:
        """The status of a response that reports a failure, over HTTP."""
        ...


class SessionDialect(Dialect, Protocol):
    """A dialect whose clients introduce themselves once, by `initialize`."""

    def agree(self, params: dict[str, JSON], encodings: Collection[str]) -> Agreement | Failure:
        """What a client's `initialize` comes to, with the best of the `encodings` that its transport has."""
        ...

    def introduce(self, request: Request, about: About, agreement: Agreement, encodings: Collection[str]) -> bytes:
        """The response to `initialize`."""
        ...
