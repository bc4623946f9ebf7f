"""A record of the log as one line of text, which a terminal shows and never acts on.

What clients, upstreams and authors' functions say gets into records. In a line of the log their ends of lines, their
control characters and whatever else hides or reorders text are escapes such as `\\n` and `\\u001b`, in tracebacks too.
"""

import logging
from collections.abc import Callable

from deltamcp.catalog.clean_text import visible_line

_UNWRITABLE = "a record of %s, line %d, cannot be written: %s"


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
