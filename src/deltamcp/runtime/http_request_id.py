"""The id of the HTTP request that is served, for log records and observers only."""

import logging
from contextvars import ContextVar

HTTP_REQUEST_ID: ContextVar[str] = ContextVar("deltamcp_http_request_id", default="")
"""The request's `X-Request-Id`; empty outside of a request, and where the server has no request ids."""


class HttpRequestIdFilter(logging.Filter):
    """Gives each record `request_id`, None outside of a request, and `request_suffix` to end a line with."""

    def filter(self, record: logging.LogRecord) -> bool:
        id_ = HTTP_REQUEST_ID.get()
        record.request_id = id_ or None
        record.request_suffix = f" request={id_}" if id_ else ""
        return True
