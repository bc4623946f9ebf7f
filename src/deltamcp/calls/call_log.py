"""The call log: writes one line for every call to the logger `deltamcp.calls`, once its level is set.

    logging.getLogger("deltamcp.calls").setLevel(logging.INFO)

A line has a hash of the arguments, which shows that two calls had the same arguments and reveals nothing else of them.
"""

import hashlib
import json
import logging
from typing import assert_never

from deltamcp.calls.observers import ObservedCall
from deltamcp.errors import Fault
from deltamcp.values import JSON, Answer, Failure, InputRequired, Outcome, Promise, ResourceRequired, ToolResult

logger = logging.getLogger("deltamcp.calls")


class CallLog:
    """Logs every call, while its logger is enabled."""

    @property
    def is_active(self) -> bool:
        """Whether the logger has a level of its own; INFO at the root logger does not turn the call log on."""
        return logger.level != logging.NOTSET and logger.isEnabledFor(logging.INFO)

    def call_started(self, call: ObservedCall) -> None:
        """Does nothing: the log has a line for a call when it has finished."""

    def call_finished(self, call: ObservedCall) -> None:
        principal, outcome = call.caller.principal.key, call.outcome
        if not call.is_known:
            is_refused = isinstance(outcome, Failure) and outcome.fault is Fault.INSUFFICIENT_SCOPE
            word, name = outcome_word(outcome) if is_refused else "unknown", call.name[:100]
            fields = {"operation": name, "principal": principal, "outcome": word}
            logger.info("operation=%r principal=%s outcome=%s", name, principal, word, extra=fields)
            return
        word, milliseconds = outcome_word(outcome), round(call.seconds * 1000, 1)
        logger.info(
            "operation=%s principal=%s arguments=%s outcome=%s ms=%.1f",
            call.name,
            principal,
            _hash(call.arguments),
            word,
            milliseconds,
            extra={"operation": call.name, "principal": principal, "outcome": word, "milliseconds": milliseconds},
        )


def _hash(arguments: dict[str, JSON]) -> str:
    try:
        text = json.dumps(arguments, sort_keys=True)
    except ValueError:  # an integer too long to write
        return "unwritable"
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def outcome_word(outcome: Outcome | None) -> str:
    """Returns how a call ended, in one word: "done", "error", "cancelled" or a fault's name.

    Other words are "input_required", "resource_required" and, where the call goes on after the reply, "promise".
    """
    if type(outcome) is Answer and type(outcome.value) is ToolResult:  # nearly all of them
        return "error" if outcome.value.is_error else "done"
    match outcome:
        case None:
            return "cancelled"
        case Answer():
            return "done"
        case Failure(fault):
            return fault.name.lower()
        case InputRequired():
            return "input_required"
        case ResourceRequired():
            return "resource_required"
        case Promise():
            return "promise"
        case _:
            assert_never(outcome)
