"""The log of a server that `delta-mcp` runs: what it has, how it is written, and where it goes."""

import argparse
import logging
import os
import sys
import threading
from collections.abc import Callable
from io import TextIOWrapper
from pathlib import Path
from types import TracebackType
from typing import Any

from msgspec import Struct

from deltamcp.cli.terminal.output import print_notice
from deltamcp.errors import ConfigurationError
from deltamcp.runtime.http_request_id import HttpRequestIdFilter
from deltamcp.runtime.log import JsonFormatter, LineFormatter
from deltamcp.runtime.own_files import open_own_file_to_append
from deltamcp.runtime.stderr_log import StderrHandler

LEVELS = ("debug", "info", "warning", "error")
FORMATS = ("text", "json")
_STDERR_FORMAT = "%(levelname)s %(name)s: %(message)s%(request_suffix)s"
_FILE_FORMAT = f"%(asctime)s {_STDERR_FORMAT}"

logger = logging.getLogger("deltamcp")


class LogOptions(Struct, frozen=True):
    """What is logged, how and where."""

    level: str = "info"
    format: str = "text"
    file: Path | None = None
    """None for stderr."""


class LogFile(logging.FileHandler):
    """Appends every record with one write, so that the records of several processes stay whole.

    Only the user who runs the server can read the file.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path, "a", "utf-8")

    def _open(self) -> TextIOWrapper:
        return os.fdopen(open_own_file_to_append(Path(self.baseFilename)), "a", encoding="utf-8")

    def emit(self, record: logging.LogRecord) -> None:
        try:
            if self.stream is None:
                self.stream = self._open()
            os.write(self.stream.fileno(), f"{self.format(record)}{self.terminator}".encode())
        except Exception:
            self.handleError(record)


def add_options(verb: argparse.ArgumentParser) -> None:
    verb.add_argument(
        "--log-level",
        choices=LEVELS,
        default="info",
        help="the least that is logged (default info; debug also has a line for every call)",
    )
    verb.add_argument("--log-format", choices=FORMATS, default="text", help="lines of text, or one JSON object a line")
    verb.add_argument("--log-file", type=Path, metavar="FILE", help="where the log goes instead of to stderr")


def read_options(args: argparse.Namespace) -> LogOptions:
    return LogOptions(args.log_level, args.log_format, args.log_file)


def configure_log(options: LogOptions) -> None:
    """Sends what the server and its functions log to stderr or to a file; for a process that does nothing else.

    Raises:
        ConfigurationError: the file cannot be written, or is another user's.
    """
    path = options.file
    try:
        handler = StderrHandler() if path is None else LogFile(path)
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be written: {error.strerror}; name another --log-file.") from None
    handler.addFilter(HttpRequestIdFilter())
    plain = LineFormatter(_STDERR_FORMAT if path is None else _FILE_FORMAT)
    handler.setFormatter(JsonFormatter() if options.format == "json" else plain)
    logging.basicConfig(level=options.level.upper(), handlers=[handler])
    _take_what_python_prints()
    if options.level == "debug":
        logging.getLogger("deltamcp.calls").setLevel(logging.INFO)
        logging.getLogger("httpcore2").setLevel(logging.INFO)  # it would log headers, which hold keys


def redact_log(redact: Callable[[str], str]) -> None:
    """Has a function take secrets out of everything that the log has from now on, tracebacks included."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler.formatter, LineFormatter):
            handler.formatter.redact = redact


def _take_what_python_prints() -> None:
    """Logs warnings, and the errors for which Python would print a traceback, such as those of authors' threads."""
    logging.captureWarnings(True)
    sys.unraisablehook = _log_unraisable
    threading.excepthook = _log_thread_failure


def _log_unraisable(failed: Any) -> None:
    logger.error("%s: %r", failed.err_msg or "Exception ignored in", failed.object, exc_info=_exc_info(failed))


def _log_thread_failure(failed: threading.ExceptHookArgs) -> None:
    if failed.exc_type is not SystemExit:  # by which a thread ends, as `threading.excepthook` of Python knows
        name = "A thread" if failed.thread is None else f"The thread {failed.thread.name}"
        logger.error("%s failed", name, exc_info=_exc_info(failed))


def _exc_info(failed: Any) -> tuple[type[BaseException], BaseException, TracebackType | None]:
    return failed.exc_type, failed.exc_value or failed.exc_type(), failed.exc_traceback


def tell(sentence: str, options: LogOptions) -> None:
    """Tells the operator a sentence: a plain line on stderr, or a record where the log on stderr is JSON."""
    if options.format == "json" and options.file is None:
        logger.info("%s", sentence)
    else:
        print_notice(sentence)
