"""The log of a server that `delta-mcp` runs: what it has, how it is written, and where it goes."""

import argparse
import logging
import os
from collections.abc import Callable
from io import TextIOWrapper
from pathlib import Path

from msgspec import Struct

from deltamcp.cli.terminal.output import print_notice
from deltamcp.errors import ConfigurationError
from deltamcp.runtime.http_request_id import HttpRequestIdFilter
from deltamcp.runtime.log import JsonFormatter, LineFormatter
from deltamcp.runtime.own_files import open_own_file_to_append
from deltamcp.runtime.stderr_log import StderrHandler, take_what_python_prints

LEVELS = ("debug", "info", "warning", "error")
FORMATS = ("text", "json")
_STDERR_FORMAT = "%(levelname)s %(name)s: %(message)s%(request_suffix)s"
_FILE_FORMAT = f"%(asctime)s {_STDERR_FORMAT}"
_LOST = "The log cannot be written to %s: %s; its records are lost until it can."

logger = logging.getLogger("deltamcp")


class LogOptions(Struct, frozen=True):
    """What is logged, how and where."""

    level: str = "info"
    format: str = "text"
    file: Path | None = None
    """None for stderr."""


class LogFile(logging.FileHandler):
    """Appends every record with one write, so that the records of several processes stay whole.

    Only the user who runs the server can read the file. While it cannot be written, as on a full disk, records are lost
    and stderr says so once: what Python prints in this case is the record's error, raw and with its secrets.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path, "a", "utf-8")
        self._is_lost = False

    def _open(self) -> TextIOWrapper:
        return os.fdopen(open_own_file_to_append(Path(self.baseFilename)), "a", encoding="utf-8")

    def emit(self, record: logging.LogRecord) -> None:
        try:
            if self.stream is None:
                self.stream = self._open()
            os.write(self.stream.fileno(), f"{self.format(record)}{self.terminator}".encode())
        except OSError as error:
            if not self._is_lost:
                path = self.baseFilename
                self._is_lost = True
                StderrHandler().handle(logging.makeLogRecord({"msg": _LOST, "args": (path, error.strerror)}))
        else:
            self._is_lost = False


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
    take_what_python_prints()
    if options.level == "debug":
        logging.getLogger("deltamcp.calls").setLevel(logging.INFO)
        logging.getLogger("httpcore2").setLevel(logging.INFO)  # it would log headers, which hold keys


def redact_log(redact: Callable[[str], str]) -> None:
    """Has a function take secrets out of everything that the log has from now on, tracebacks included."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler.formatter, LineFormatter):
            handler.formatter.redact = redact


def tell(sentence: str, options: LogOptions) -> None:
    """Tells the operator a sentence: a plain line on stderr, or a record where the log on stderr is JSON."""
    if options.format == "json" and options.file is None:
        logger.info("%s", sentence)
    else:
        print_notice(sentence)
