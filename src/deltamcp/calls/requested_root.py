"""The root in a request's `_meta`: the sender has the result with this root, and asks for the changes since."""

from deltamcp.calls.request_context import RequestContext
from deltamcp.delivery.change_delivery import ChangeDelivery
from deltamcp.errors import Fault, UsageError
from deltamcp.results.policy import requested_root
from deltamcp.values import Failure


async def accept_root(request: RequestContext, changes: ChangeDelivery) -> str | Failure | None:
    """Returns the root, in a request's `_meta`, of the answer that the client has; None if the request has no root.

    If the client sends a reset instead of a root, the server forgets what it has sent to the client.
    """
    try:
        root = requested_root(request.terms.meta)
    except UsageError as error:
        return Failure(Fault.INVALID_PARAMS, str(error))
    await changes.accept_root(root, request.terms.caller)
    return root
