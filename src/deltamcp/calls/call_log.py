"""Who ran what: a line a call in the log `deltamcp.calls.call_log`, once somebody sets that logger's level.

    logging.getLogger("deltamcp.calls.call_log").setLevel(logging.INFO)

Arguments are told by hash: two calls with the same ones can be seen to be, and nothing of them is.
"""

import hashlib
import json
import logging
import time

from deltamcp.catalog.operation import Operation
from deltamcp.values import JSON, Answer, Failure, Outcome, Principal, ToolResult

logger = logging.getLogger("deltamcp.calls.call_log")


def is_on() -> bool:
    """Only where the logger has a level of its own; the root's INFO does not ask for a line a call."""
    return logger.level != logging.NOTSET and logger.isEnabledFor(logging.INFO)


def record(
    operation: Operation, principal: Principal, arguments: dict[str, JSON], outcome: Outcome | None, began: float
) -> None:
    """`began` is `time.perf_counter()`'s; without an outcome the call was cancelled. Never raises: the call is done."""
    logger.info(
        "operation=%s principal=%s arguments=%s outcome=%s ms=%.1f",
        operation.id,
        principal.id,
        _hash(arguments),
        _came_of(outcome),
        (time.perf_counter() - began) * 1000,
    )


def record_unknown(name: JSON, principal: Principal) -> None:
    """A call of what is not there, or not for this caller."""
    if is_on():
        logger.info("operation=%r principal=%s outcome=unknown", str(name)[:100], principal.id)


def _hash(arguments: dict[str, JSON]) -> str:
    try:
        text = json.dumps(arguments, sort_keys=True)
    except ValueError:  # an integer too long to write
        return "unwritable"
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _came_of(outcome: Outcome | None) -> str:
    match outcome:
        case None:
            return "cancelled"
        case Answer(ToolResult(is_error=True)):
            return "error"
        case Answer():
            return "done"
        case Failure(fault):
            return fault.name.lower()
        case _:
            return "input_required"
