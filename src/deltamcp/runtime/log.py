"""Records of the log: without secrets, one line each, repeated warnings with a count, those of clients in bounds.

What clients, upstreams and authors' functions say gets into records. In a line of the log their ends of lines, their
control characters and whatever else hides or reorders text are escapes such as `\n` and `\u001b`, in tracebacks too.

A plain handler waits until somebody reads the pipe, and with it the event loop and every client.
"""

import datetime
import logging
import os
import re
import select
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from types import TracebackType
from typing import Any, TextIO

from deltamcp.catalog.text.clean_text import visible_line
from deltamcp.wire import jsonrpc

_UNWRITABLE = "a record of %s, line %d, cannot be written: %s"
FIELDS = ("request_id", "operation", "principal", "outcome", "milliseconds")
"""The attributes of a record that have a field of their own, where a record has them."""


class LineFormatter(logging.Formatter):
    """Writes a record as one line.

    Secrets are taken out before anything is escaped: the escape of a line's end would be part of the word behind it.
    """

    def __init__(self, format_: str | None = None, redact: Callable[[str], str] = str) -> None:
        super().__init__(format_)
        self.redact = redact

    def format(self, record: logging.LogRecord) -> str:
        try:
            return visible_line(self.write(record))
        except Exception as error:  # else Python prints what it was given, in lines of its own
            name = type(error).__name__
            told = {"msg": _UNWRITABLE, "args": (record.filename, record.lineno, name)}
            nothing = {"exc_info": None, "exc_text": None, "stack_info": None}
            return visible_line(self.write(logging.makeLogRecord({**record.__dict__, **told, **nothing})))

    def write(self, record: logging.LogRecord) -> str:
        """Returns the text of a record without secrets; it may have several lines."""
        return self.redact(super().format(record))


class JsonFormatter(LineFormatter):
    """Writes a record as a JSON object in one line."""

    def write(self, record: logging.LogRecord) -> str:
        time = datetime.datetime.fromtimestamp(record.created, datetime.UTC)
        entry: dict[str, object] = {
            "time": time.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "process": record.process,
            "message": record.getMessage(),
        }
        entry |= {name: getattr(record, name) for name in FIELDS if getattr(record, name, None) is not None}
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        if record.stack_info:
            entry["stack"] = self.formatStack(record.stack_info)
        return _encode({name: self.redact(value) if isinstance(value, str) else value for name, value in entry.items()})


def _encode(entry: dict[str, object]) -> str:
    try:
        return jsonrpc.encode(entry).decode()
    except (TypeError, ValueError, UnicodeError):  # half of a surrogate pair, or an attribute of another type
        plain = {name: str(value).encode("utf-8", "backslashreplace").decode() for name, value in entry.items()}
        return jsonrpc.encode(plain).decode()


_PIECE_BYTES = getattr(select, "PIPE_BUF", 512)
"""What a pipe that is ready for output takes without waiting, and whole where several processes write."""


logger: logging.Logger = logging.getLogger("deltamcp")

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


_VARYING = re.compile(r"\d+")
_MAX_TEXTS = 100


class RepeatedWarnings:
    """Counts the warnings about one thing since it was well. Those that differ in numbers only are the same."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    @property
    def count(self) -> int:
        return self._counts.total()

    def add(self, text: str) -> str | None:
        """Returns what is logged of a warning: itself, with its number the 2nd, the 4th, the 8th time; else None."""
        kind = _VARYING.sub("0", text)
        if len(self._counts) >= _MAX_TEXTS and kind not in self._counts:
            kind = ""
        self._counts[kind] += 1
        times = self._counts[kind]
        if times & (times - 1):
            return None
        return text if times == 1 else f"{text} ({times} times)"

    def clear(self) -> None:
        """Begins anew: the thing is well."""
        self._counts.clear()


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
