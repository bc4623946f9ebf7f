"""The bytes of a response, whatever an author put in it."""

import logging

from deltamcp.dialects.dialect import Dialect
from deltamcp.errors import Fault
from deltamcp.values import Failure, Outcome, Request

logger = logging.getLogger("deltamcp")


def encode_response(dialect: Dialect, request: Request, outcome: Outcome, version: str) -> bytes:
    """An outcome as its dialect writes it; a failure where it cannot be written."""
    try:
        return dialect.write(request, outcome, version)
    except ValueError as error:
        logger.error("an answer could not be written: %s", error)
        return dialect.write(request, Failure(Fault.INTERNAL, "The answer could not be written as JSON."), version)
