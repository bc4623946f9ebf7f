"""The filter of warnings that clients cause, as many as they like."""

import logging
import time

_SECONDS = 10.0
"""The time between two warnings of one kind."""


class WarningFilter(logging.Filter):
    """Passes one warning of each kind in ten seconds, which says how many there were since the one before."""

    def __init__(self) -> None:
        super().__init__()
        self._next: dict[str, float] = {}
        self._left_out: dict[str, int] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno != logging.WARNING:
            return True
        kind, now = record.msg, time.monotonic()
        if now < self._next.get(kind, 0.0):
            self._left_out[kind] = self._left_out.get(kind, 0) + 1
            return False
        self._next[kind] = now + _SECONDS
        left_out = self._left_out.pop(kind, 0)
        if left_out:
            record.msg = f"{kind} (and {left_out} more like it)"
        return True


WARNING_FILTER = WarningFilter()
"""The filter of the loggers that log what clients cause."""
