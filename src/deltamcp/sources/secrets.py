"""Secrets of an operations file: removes the values of its variables from error messages and logs."""

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import httpx2

_MIN_SECRET_CHARS = 6
"""Shorter secrets are not redacted, as they would match in too many places."""


class Secrets:
    """Replaces secrets in texts by `...`."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._texts = sorted((text for text in set(texts) if len(text) >= _MIN_SECRET_CHARS), key=len, reverse=True)

    def redact(self, text: str) -> str:
        for secret in self._texts:
            text = text.replace(secret, "...")
        return text


def quiet_client(**options: Any) -> "httpx2.AsyncClient":
    """Creates an HTTP client that does not log addresses, which may contain keys, unless its logger has a level."""
    import httpx2  # 60 ms to import, needed only by HTTP services

    log = logging.getLogger("httpx2")
    if log.level == logging.NOTSET:
        log.setLevel(logging.WARNING)
    return httpx2.AsyncClient(**options)
