"""One request while it is served."""

from msgspec import Struct

from deltamcp.catalog.view import View
from deltamcp.context import Channel
from deltamcp.values import RequestId, Terms


class RequestContext(Struct):
    """Who sent a request, what they see of the catalogue, and the way back to them."""

    terms: Terms
    view: View
    channel: Channel
    request_id: RequestId
