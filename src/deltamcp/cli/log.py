"""The log of a server that `delta-mcp` runs: what it has, and where it goes."""

import argparse
import logging
import os
from pathlib import Path

from deltamcp.errors import ConfigurationError
from deltamcp.runtime.stderr_log import StderrHandler

LEVELS = ("debug", "info", "warning", "error")
_STDERR_FORMAT = "%(levelname)s %(name)s: %(message)s"
_FILE_FORMAT = f"%(asctime)s {_STDERR_FORMAT}"


class LogFile(logging.FileHandler):
    """Appends every record with one write, so that the records of several processes stay whole."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, "a", "utf-8")

    def emit(self, record: logging.LogRecord) -> None:
        try:
            if self.stream is None:
                self.stream = self._open()
            line = f"{self.format(record)}{self.terminator}"
            os.write(self.stream.fileno(), line.encode("utf-8", "backslashreplace"))
        except Exception:
            self.handleError(record)


def add_options(verb: argparse.ArgumentParser) -> None:
    verb.add_argument(
        "--log-level",
        choices=LEVELS,
        default="info",
        help="the least that is logged (default info; debug also has a line for every call)",
    )
    verb.add_argument("--log-file", type=Path, metavar="FILE", help="where the log goes instead of to stderr")


def configure_log(level: str, path: Path | None) -> None:
    """Sends what the server and its functions log to stderr or to a file; for a process that does nothing else.

    Raises:
        ConfigurationError: the file cannot be written.
    """
    try:
        handler = StderrHandler() if path is None else LogFile(path)
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be written: {error.strerror}; name another --log-file.") from None
    log_format = _STDERR_FORMAT if path is None else _FILE_FORMAT
    logging.basicConfig(level=level.upper(), format=log_format, handlers=[handler])
    if level == "debug":
        logging.getLogger("deltamcp.calls").setLevel(logging.INFO)
        logging.getLogger("httpcore2").setLevel(logging.INFO)  # it would log headers, which hold keys
