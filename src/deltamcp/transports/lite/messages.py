"""The messages of MCP-lite that are neither requests nor notifications: why they are refused.

A message without an id is a notification, whatever its method (JSON-RPC 2.0, section 4.1): it gets no response, and
calls nothing, because nobody could be told what came of it.
"""

from deltamcp.errors import Fault
from deltamcp.values import Failure, Malformed, RequestId, Response

MAX_BATCH = 16
"""The messages of a batch, each of which may be a call."""


def why_refused(message: Malformed | Response) -> tuple[Failure, RequestId | None]:
    """Returns why a message gets an error."""
    if isinstance(message, Malformed):
        return Failure(message.fault, message.reason), message.id
    return Failure(Fault.INVALID_REQUEST, "MCP-lite asks clients nothing, so that they answer nothing."), None
