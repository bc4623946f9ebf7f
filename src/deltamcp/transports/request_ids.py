"""Request ids over HTTP: `X-Request-Id`, by which the log of a server and those of its proxies and clients meet."""

import itertools
import re
import secrets

from deltamcp.runtime.http_request_id import HTTP_REQUEST_ID
from deltamcp.transports.http.asgi import Headers

_HEADER = b"x-request-id"
_WELL_FORMED = re.compile(rb"[\x21-\x7e]{1,128}")
"""Visible ASCII: a log line cannot be forged with it, and a header neither."""


class HttpRequestIds:
    """Takes the id that a request has, or makes one that no other request has."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._prefix = b""

    def begin(self, headers: Headers) -> tuple[tuple[bytes, bytes], ...]:
        """Sets the id of the request that is served, and returns the headers of its response."""
        id_ = headers.get(_HEADER)
        if id_ is None or _WELL_FORMED.fullmatch(id_) is None:
            if not self._prefix:  # not before, because processes may be forked
                self._prefix = secrets.token_hex(8).encode()
            id_ = b"%b-%d" % (self._prefix, next(self._numbers))
        HTTP_REQUEST_ID.set(id_.decode("ascii"))
        return ((_HEADER, id_),)
