"""Takes secrets out of log records, for whatever handlers a program has."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_FORMATTER = logging.Formatter()


class SecretFilter(logging.Filter):
    """Redacts the text and the traceback of a record; one without secrets stays as it is."""

    def __init__(self, redact: Callable[[str], str]) -> None:
        super().__init__()
        self._redact = redact

    def filter(self, record: logging.LogRecord) -> bool:
        text = record.getMessage()
        redacted = self._redact(text)
        if redacted != text:
            record.msg, record.args = redacted, None
        if record.exc_info:
            trace = _FORMATTER.formatException(record.exc_info)
            redacted = self._redact(trace)
            if redacted != trace:
                record.msg, record.args = f"{record.getMessage()}\n{redacted}", None
                record.exc_info = record.exc_text = None
        return True


@contextmanager
def secrets_left_out(redact: Callable[[str], str]) -> Iterator[None]:
    """Has a function take secrets out of the library's own log."""
    logger, filter_ = logging.getLogger("deltamcp"), SecretFilter(redact)
    logger.addFilter(filter_)
    try:
        yield
    finally:
        logger.removeFilter(filter_)
