"""The context of one request, which the engine passes to the modules that perform it."""

from msgspec import Struct

from deltamcp.calls.request_state import Answers
from deltamcp.catalog.view import View
from deltamcp.context import Channel
from deltamcp.runtime.seal import SessionContext
from deltamcp.values import JSON, RequestId, Terms


class PromisedRun(Struct, frozen=True):
    """A run of a call behind a promise: the call was checked and counted before, and its client does not wait."""

    id: str
    """Identifies the promise for the author; it cannot be redeemed."""
    attempt: int
    answers: Answers
    seconds: float
    """The deadline of an operation that sets none."""
    sent_arguments: dict[str, JSON]
    """The arguments as the client sent them, to which the state is bound that it gets."""


class RequestContext(Struct):
    """The terms of a request, its caller's view of the catalogue, and the channel to its client."""

    terms: Terms
    view: View
    channel: Channel
    request_id: RequestId
    promise: PromisedRun | None = None
    session: SessionContext | None = None
    """What the client carries from request to request; None unless a function has a `Context`."""
    memo: JSON = None
    """What the function left in the round before, when it asked questions."""
