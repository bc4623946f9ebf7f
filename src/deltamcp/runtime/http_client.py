"""The HTTP client for services and authorization servers, imported when the first of them is called."""

import logging
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import httpx2


def quiet_client(**options: Any) -> "httpx2.AsyncClient":
    """Creates an HTTP client that does not log addresses, which may contain keys, unless its logger has a level."""
    import httpx2  # 60 ms to import, and most servers need no HTTP client

    log = logging.getLogger("httpx2")
    if log.level == logging.NOTSET:
        log.setLevel(logging.WARNING)
    return httpx2.AsyncClient(**options)
