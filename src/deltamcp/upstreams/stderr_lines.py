"""The lines that upstreams write to stderr: logged without secrets, and not without bound."""

import logging
import time
from collections.abc import Callable

logger = logging.getLogger("deltamcp")

_LINES_PER_SECOND = 20
_MAX_CHARS = 500


class StderrLines:
    """Logs what one upstream writes to stderr; of a flood, the first lines of every second and how many came."""

    def __init__(self, name: str, redact: Callable[[str], str]) -> None:
        self._name, self._redact = name, redact
        self._second = 0.0
        self._count = 0

    def add(self, line: str) -> None:
        now = time.monotonic()
        if now - self._second >= 1.0:
            if self._count > _LINES_PER_SECOND:
                logger.info("%s: %d more lines on stderr are left out", self._name, self._count - _LINES_PER_SECOND)
            self._second, self._count = now, 0
        self._count += 1
        if self._count <= _LINES_PER_SECOND and line.strip() and logger.isEnabledFor(logging.INFO):
            # Redacted before it is cut, which may be inside of a secret.
            logger.info("%s: %s", self._name, self._redact(line)[:_MAX_CHARS])
