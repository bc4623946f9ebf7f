"""What must not be repeated: what variables of a file stand for, in what others say and in what is logged."""

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import httpx2

_MIN_SECRET_CHARS = 6
"""A shorter secret would be found everywhere."""


class Secrets:
    """Texts to be left out of other texts."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._texts = sorted((text for text in set(texts) if len(text) >= _MIN_SECRET_CHARS), key=len, reverse=True)

    def redact(self, text: str) -> str:
        for secret in self._texts:
            text = text.replace(secret, "...")
        return text


def quiet_client(**options: Any) -> "httpx2.AsyncClient":
    """An HTTP client that does not log addresses, keys in them included, unless its logger was told to."""
    import httpx2  # 60 ms to import, needed only where something is behind HTTP

    log = logging.getLogger("httpx2")
    if log.level == logging.NOTSET:
        log.setLevel(logging.WARNING)
    return httpx2.AsyncClient(**options)
