"""The log as JSON: every record is one line that decodes, whatever it has."""

import datetime
import json
import logging
import sys
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from deltamcp.runtime.log import JsonFormatter


def entry(message: str, *arguments: Any, **attributes: Any) -> dict[str, Any]:
    record = logging.LogRecord(
        "mine", logging.WARNING, "file.py", 7, message, arguments, attributes.pop("exc_info", None)
    )
    record.__dict__ |= attributes
    line = JsonFormatter().format(record)
    assert "\n" not in line and "\r" not in line, "one line"
    found: dict[str, Any] = json.loads(line)
    return found


def test_it_has_the_time_the_level_the_logger_and_the_message():
    found = entry("%d books", 3)
    assert (found["level"], found["logger"], found["message"]) == ("warning", "mine", "3 books")
    assert datetime.datetime.fromisoformat(found["time"]).utcoffset() == datetime.timedelta()
    assert "exception" not in found and "request_id" not in found


def test_it_has_what_is_known_of_a_request_and_a_call():
    found = entry("x", request_id="r1", operation="find", principal="ada", outcome="done", milliseconds=1.5, other=1)
    assert {name: found[name] for name in ("request_id", "operation", "principal", "outcome", "milliseconds")} == {
        "request_id": "r1",
        "operation": "find",
        "principal": "ada",
        "outcome": "done",
        "milliseconds": 1.5,
    }
    assert "other" not in found


def test_an_exception_is_text():
    try:
        raise ValueError("no\nway")
    except ValueError:
        found = entry("it failed", exc_info=sys.exc_info())
    assert found["exception"].startswith("Traceback") and found["exception"].endswith("ValueError: no\nway")


@given(st.text(st.characters(codec=None)), st.text(st.characters(codec=None)) | st.integers() | st.binary())
def test_any_text_is_one_line_that_decodes(message, principal):
    found = entry("%s", message, principal=principal)
    assert found["message"].encode("utf-8", "backslashreplace") == message.encode("utf-8", "backslashreplace")
