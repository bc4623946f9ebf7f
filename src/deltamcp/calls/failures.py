"""Errors for callers: one sentence, with an id under which the server's log has the traceback."""

import asyncio
import logging
import secrets

from deltamcp.context import MissingCapabilityError
from deltamcp.errors import Fault, PeerError
from deltamcp.values import Failure

logger = logging.getLogger("deltamcp")


def log_failure(subject: str, error: BaseException) -> str:
    """Logs an error with its traceback under a new id, and returns a sentence for the caller.

    `subject` names the failed item and begins the sentence, such as "The tool add".
    """
    if isinstance(error, PeerError):
        return f"{subject} failed: the client refused a request ({error})."
    error_id = secrets.token_hex(4)
    logger.error("%s failed, error %s", subject, error_id, exc_info=error)
    return f"{subject} failed (error {error_id}); the server's log says why."


def missing_capability(error: MissingCapabilityError) -> Failure:
    return Failure(Fault.MISSING_CAPABILITY, str(error), {"requiredCapabilities": error.required})


def is_cancelled() -> bool:
    """Whether the current request was cancelled; False if a function raised CancelledError by itself."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
