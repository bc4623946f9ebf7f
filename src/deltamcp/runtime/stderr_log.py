"""The log on stderr, which a reader may leave full: a record that does not fit is dropped and counted.

A plain handler waits until somebody reads the pipe, and with it the event loop and every client.
"""

import logging
import os
import select
import sys
import threading
from types import TracebackType
from typing import Any, TextIO

from deltamcp.runtime.log import LineFormatter

_PIECE_BYTES = getattr(select, "PIPE_BUF", 512)
"""What a pipe that is ready for output takes without waiting, and whole where several processes write."""


logger = logging.getLogger("deltamcp")

_NAME = "deltamcp.log"
_DROPPED = "%d records of this log were dropped, because nobody read it"


class StderrHandler(logging.StreamHandler[TextIO]):
    """Writes records to stderr as far as that does not wait; the next record that fits says how many were dropped."""

    def __init__(self) -> None:
        super().__init__(sys.stderr)
        self.setFormatter(LineFormatter())
        self._dropped = 0

    def emit(self, record: logging.LogRecord) -> None:
        fd = _pollable_fd(self.stream)
        if fd is None:
            super().emit(record)
            return
        try:
            text = self.format(record) + self.terminator
            if self._dropped:
                dropped = logging.LogRecord(_NAME, logging.WARNING, "", 0, _DROPPED, (self._dropped,), None)
                self.filter(dropped)  # which adds what the format may ask for
                text = f"\n{self.format(dropped)}\n{text}"
            self._dropped = 0 if _write(fd, text.encode()) else self._dropped + 1
        except Exception:
            self.handleError(record)


def _pollable_fd(stream: TextIO) -> int | None:
    """Returns the descriptor of a stream; None if it has none, or the platform cannot poll it."""
    if not hasattr(select, "poll"):
        return None
    try:
        return stream.fileno()
    except (OSError, ValueError):
        return None


def _write(fd: int, data: bytes) -> bool:
    """Writes bytes as far as that does not wait; returns whether all were written."""
    poll = select.poll()
    poll.register(fd, select.POLLOUT)
    written = 0
    while written < len(data):
        if not poll.poll(0):
            return False
        try:
            written += os.write(fd, data[written : written + _PIECE_BYTES])
        except OSError:  # the reader has gone
            return False
    return True


def take_unhandled_records() -> None:
    """Writes warnings and errors for which the program has no handler by a `StderrHandler`, as Python does by its own.

    It is for a process that does nothing but serve.
    """
    handler = StderrHandler()
    handler.setLevel(logging.WARNING)
    logging.lastResort = handler


def take_what_python_prints() -> None:
    """Logs warnings, and the errors for which Python would print a traceback, such as those of authors' threads.

    It is for a process that does nothing but serve; what its program does with them itself stays as it is.
    """
    if not logging.getLogger().handlers and logging.lastResort is not None:  # which takes nothing of "py.warnings"
        logging.getLogger("py.warnings").addHandler(logging.lastResort)
    logging.captureWarnings(True)
    if sys.unraisablehook is sys.__unraisablehook__:
        sys.unraisablehook = _log_unraisable
    if threading.excepthook is threading.__excepthook__:
        threading.excepthook = _log_thread_failure


def _log_unraisable(failed: Any) -> None:
    logger.error("%s: %r", failed.err_msg or "Exception ignored in", failed.object, exc_info=_exc_info(failed))


def _log_thread_failure(failed: threading.ExceptHookArgs) -> None:
    if failed.exc_type is not SystemExit:  # by which a thread ends, as `threading.excepthook` of Python knows
        name = "A thread" if failed.thread is None else f"The thread {failed.thread.name}"
        logger.error("%s failed", name, exc_info=_exc_info(failed))


def _exc_info(failed: Any) -> tuple[type[BaseException], BaseException, TracebackType | None]:
    return failed.exc_type, failed.exc_value or failed.exc_type(), failed.exc_traceback
