"""The log as JSON, one object a line, for programs that collect logs."""

import datetime
import logging

from deltamcp.runtime.log_line import LineFormatter
from deltamcp.wire import jsonrpc

FIELDS = ("request_id", "operation", "principal", "outcome", "milliseconds")
"""The attributes of a record that have a field of their own, where a record has them."""


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
