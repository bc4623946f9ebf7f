"""Records of the log: each is one line that steers no terminal, without secrets, as text and as JSON."""

import json
import logging
import sys
import unicodedata
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltamcp.runtime.log import JsonFormatter, LineFormatter
from deltamcp.runtime.secrets import Secrets

FORMATTERS = pytest.mark.parametrize("formatter", [LineFormatter, JsonFormatter])
CONTROLS = "\x00\x07\x08\t\n\x0b\x0c\r\x1b\x7f\x85\x9b\x9d\u200b\u200f\u2028\u2029\u202e\u2067\ufeff\ud800\U000e0041"
TEXTS = st.text(st.characters(codec=None) | st.sampled_from(CONTROLS))


def record(message: str, *arguments: Any, **attributes: Any) -> logging.LogRecord:
    return logging.makeLogRecord({"name": "mine", "msg": message, "args": arguments, "levelname": "INFO", **attributes})


def failed(text: str) -> Any:
    try:
        raise ValueError(text)
    except ValueError:
        return sys.exc_info()


def steers(line: str) -> set[str]:
    """Returns the characters of a line that Unicode calls controls, formats, surrogates or ends of lines."""
    joiners = {"\u200c", "\u200d"}
    return {char for char in line if unicodedata.category(char) in ("Cc", "Cf", "Cs", "Zl", "Zp")} - joiners


@FORMATTERS
@given(message=TEXTS, logger=TEXTS, error=TEXTS)
def test_whatever_is_logged_is_one_line_that_steers_nothing(formatter, message, logger, error):
    logged = record("%s", message, name=logger, exc_info=failed(error), stack_info=error, principal=message)
    assert not steers(formatter("%(name)s: %(message)s").format(logged))


def test_a_traceback_is_readable_in_its_line():
    line = LineFormatter("%(message)s").format(record("it failed", exc_info=failed("no\nway")))
    assert line.startswith("it failed\\nTraceback (most recent call last):\\n  File ")
    assert line.endswith("\\nValueError: no\\nway")


@FORMATTERS
@pytest.mark.parametrize("secret", ["tok-12345678", "-----BEGIN\nMIGH\nEND", "a\x9b2J\u202esecret", 'quo"ted\\one'])
@pytest.mark.parametrize("before", ["", "\n", "\t", "\x1b[", "\u2028", "="])
def test_no_secret_survives_because_something_is_escaped(formatter, secret, before):
    redact = Secrets([secret], words=["hunter22"]).redact
    texts = f"{before}{secret}", f"{before}hunter22"
    for text in texts:
        logged = record("%s", text, exc_info=failed(text), stack_info=text, principal=text)
        line = formatter(redact=redact).format(logged)
        told = str(json.loads(line)) if formatter is JsonFormatter else line
        assert "hunter22" not in told and "12345678" not in told and "MIGH" not in told
        assert "secret" not in told and "ted" not in told.replace("Traceback (most recent", "")


@FORMATTERS
def test_a_record_that_cannot_be_written_is_told_in_one_line(formatter, capsys):
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter("%(levelname)s %(message)s"))
    handler.handle(record("%d", "\nFORGED", filename="app.py", lineno=7, exc_info=failed("\nFORGED")))
    (line,) = capsys.readouterr().err.splitlines()
    assert "a record of app.py, line 7, cannot be written: TypeError" in line and "FORGED" not in line
