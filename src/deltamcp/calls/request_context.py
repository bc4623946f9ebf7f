"""The context of one request, which the engine passes to the modules that perform it."""

from msgspec import Struct

from deltamcp.catalog.view import View
from deltamcp.context import Channel
from deltamcp.values import RequestId, Terms


class RequestContext(Struct):
    """The terms of a request, its caller's view of the catalogue, and the channel to its client."""

    terms: Terms
    view: View
    channel: Channel
    request_id: RequestId
