"""Writes responses of MCP-lite, with the time that the dialect itself does not know, and says what has none."""

import logging
import time

from deltamcp.dialects.mcp_lite import McpLite, Stamp
from deltamcp.dialects.mcp_lite_bodies import LiteResponse
from deltamcp.errors import Fault
from deltamcp.values import Answer, Failure, Malformed, Outcome, Page, Request, RequestId, Response

logger = logging.getLogger("deltamcp")


def make_stamp(started: float) -> Stamp:
    """Returns the stamp of a response that is made now; `started` is by the monotonic clock."""
    return Stamp(time.time(), int((time.monotonic() - started) * 1000))


def write_response(
    lite: McpLite, request: Request, outcome: Outcome, started: float
) -> tuple[bytes, LiteResponse | Failure | None]:
    """Returns the response with an outcome, and what it says; None for a list, which is written once for all.

    If JSON cannot express the outcome, the response is a failure.
    """
    if isinstance(outcome, Answer) and isinstance(outcome.value, Page):
        return lite.write(request, outcome), None
    return write_stamped_response(lite, request, outcome, started)


def write_stamped_response(
    lite: McpLite, request: Request, outcome: Outcome, started: float
) -> tuple[bytes, LiteResponse | Failure]:
    """Returns the response with an outcome, and what it says; also that of a list has the time."""
    response = lite.respond(request, outcome, make_stamp(started))
    try:
        return lite.encode(request.id, response), response
    except ValueError as error:
        logger.error("a result could not be written as JSON: %s", error)
        failure = lite.respond(request, Failure(Fault.INTERNAL, "The result could not be written as JSON."))
        return lite.encode(request.id, failure), failure


MAX_BATCH = 16
"""The messages of a batch, each of which may be a call."""


def why_refused(message: Malformed | Response) -> tuple[Failure, RequestId | None]:
    """Returns why a message gets an error."""
    if isinstance(message, Malformed):
        return Failure(message.fault, message.reason), message.id
    return Failure(Fault.INVALID_REQUEST, "MCP-lite asks clients nothing, so that they answer nothing."), None
