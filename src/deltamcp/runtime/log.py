"""Records of the log as lines, of text or of JSON, which a terminal shows and never acts on.

What clients, upstreams and authors' functions say gets into records. In a line of the log their ends of lines, their
control characters and whatever else hides or reorders text are escapes such as `\\n` and `\\u001b`, in tracebacks too.
"""

import datetime
import logging
from collections.abc import Callable

from deltamcp.catalog.clean_text import visible_line
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
