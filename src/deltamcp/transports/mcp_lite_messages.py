"""The messages of MCP-lite that are no requests: which of them are accepted, and why others are refused."""

from deltamcp.errors import Fault
from deltamcp.values import Failure, Malformed, Message, Notification, RequestId, Response

MAX_BATCH = 16
"""The messages of a batch, each of which may be a call."""


def is_notification(message: Notification) -> bool:
    """Whether a message without an id is accepted; a call without one could not be answered."""
    return message.method.startswith("notifications/")


def refusal(message: Message) -> tuple[Failure, RequestId | None]:
    """Returns why a message gets an error that is no request."""
    match message:
        case Malformed():
            return Failure(message.fault, message.reason), message.id
        case Response():
            return Failure(Fault.INVALID_REQUEST, "MCP-lite asks clients nothing, so that they answer nothing."), None
        case _:
            return Failure(Fault.INVALID_REQUEST, "A request needs an id; only notifications/* have none."), None
