"""What a server says of a call that it goes on with: a promise of MCP-lite, or a task of MCP. Pure: does no I/O."""

from typing import Any

from msgspec import Struct

from deltamcp.errors import ClientError, ToolErrorCode
from deltamcp.values import JSON

_FINAL = frozenset({"completed", "failed", "cancelled"})
_MAX_RETRY_MS = 3_600_000
_MAX_TOKEN_CHARS = 4096
"""The client sends the token with every question, over HTTP also in a header; servers of this library have 31."""
_MAX_PROGRESS = 1e300
"""Larger numbers cannot be computed with, and say nothing."""


class CallState(Struct, frozen=True):
    """A call as it was when the server last told."""

    token: str | None
    """Names the call at its server; None if the server answered at once."""
    status: str
    """`queued`, `working`, `input_required`, `cancelling`; at the end `completed`, `failed` or `cancelled`."""
    progress: float | None = None
    total: float | None = None
    message: str | None = None
    retry_seconds: float | None = None
    """How soon the server wants to be asked again; None if it does not say."""
    questions: dict[str, JSON] = {}
    """The questions of the call that wait for an answer, by their keys."""
    result: dict[str, JSON] | None = None
    error: dict[str, JSON] | None = None
    """The JSON-RPC error with which the call ended."""

    def __repr__(self) -> str:
        """Leaves the token out, which is a secret, and the result, which may be large."""
        return f"<CallState {self.status!r:.40}, progress {self.progress} of {self.total}>"

    @property
    def is_final(self) -> bool:
        """Whether the call has ended."""
        return self.status in _FINAL


def ended_state(result: dict[str, JSON], token: str | None = None) -> CallState:
    """Returns the state of a call that ended with this result."""
    error = result.get("error")
    is_cancelled = isinstance(error, dict) and error.get("code") == ToolErrorCode.CANCELLED
    return CallState(token, "cancelled" if is_cancelled else "completed", result=result)


def parse_task(task: Any) -> CallState:
    """Reads a task of MCP 2025-11-25 or 2026-07-28.

    Raises:
        ClientError: this is none.
    """
    token = task.get("taskId") if isinstance(task, dict) else None
    if not isinstance(token, str) or not token:
        raise ClientError("The server goes on with the call, and gives no id to ask for it by.")
    if len(token) > _MAX_TOKEN_CHARS:
        raise ClientError(f"The server goes on with the call, under an id of more than {_MAX_TOKEN_CHARS} characters.")
    status, message, questions = task.get("status"), task.get("statusMessage"), task.get("inputRequests")
    retry_ms = task.get("pollIntervalMs", task.get("pollInterval"))
    result, error = task.get("result"), task.get("error")
    return CallState(
        token,
        status if isinstance(status, str) else "working",
        _number(task.get("progress")),
        _number(task.get("total")),
        message if isinstance(message, str) else None,
        min(max(retry_ms, 0), _MAX_RETRY_MS) / 1000 if isinstance(retry_ms, int | float) else None,
        questions if isinstance(questions, dict) else {},
        result if isinstance(result, dict) else None,
        error if isinstance(error, dict) else None,
    )


def _number(value: JSON) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if -_MAX_PROGRESS <= value <= _MAX_PROGRESS else None  # which no NaN is
