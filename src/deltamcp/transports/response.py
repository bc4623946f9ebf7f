"""Encodes responses, with a failure in place of a result that cannot be encoded."""

import logging

from deltamcp.dialects.dialect import Dialect
from deltamcp.errors import Fault
from deltamcp.values import Failure, Outcome, Request

logger = logging.getLogger("deltamcp")


def encode_response(dialect: Dialect, request: Request, outcome: Outcome, version: str) -> bytes:
    """Returns the response with an outcome; if JSON cannot express the outcome, the response with a failure."""
    try:
        return dialect.write(request, outcome, version)
    except ValueError as error:
        logger.error("a result could not be written as JSON: %s", error)
        return dialect.write(request, Failure(Fault.INTERNAL, "The result could not be written as JSON."), version)
