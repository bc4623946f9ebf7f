"""What a caller is told when something breaks: a sentence, and an id that the server's log explains."""

import asyncio
import logging
import secrets

from deltamcp.context import MissingCapabilityError
from deltamcp.errors import Fault, PeerError
from deltamcp.values import Failure

logger = logging.getLogger("deltamcp")


def log_failure(what: str, error: BaseException) -> str:
    """Logs an error in full under an id, and gives the sentence that a caller may read."""
    if isinstance(error, PeerError):
        return f"{what} failed: the client refused a request ({error})."
    reference = secrets.token_hex(4)
    logger.error("%s failed, error %s", what, reference, exc_info=error)
    return f"{what} failed (error {reference}); the server's log says why."


def missing_capability(error: MissingCapabilityError) -> Failure:
    return Failure(Fault.MISSING_CAPABILITY, str(error), {"requiredCapabilities": error.required})


def is_cancelled() -> bool:
    """Whether somebody cancelled this request, rather than a function raising CancelledError of its own."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
