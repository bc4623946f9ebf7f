"""The filter for warnings that any client can cause."""

import logging

import pytest

from deltamcp.runtime.log import WarningFilter


def test_one_warning_of_a_kind_passes_in_ten_seconds_and_says_how_many_did_not(monkeypatch, caplog):
    now = [1_000.0]
    monkeypatch.setattr("deltamcp.runtime.log.time.monotonic", lambda: now[0])
    logger = logging.getLogger("deltamcp.test")
    rare = WarningFilter()
    logger.addFilter(rare)
    with caplog.at_level(logging.INFO, "deltamcp.test"):
        for number in range(1_000):
            logger.warning("refused %s", number)
        logger.warning("something else")
        logger.error("always")
        logger.error("always")
        now[0] += 10
        logger.warning("refused %s", "again")
    logger.removeFilter(rare)
    assert caplog.messages == [
        "refused 0",
        "something else",
        "always",
        "always",
        "refused again (and 999 more like it)",
    ]
    assert len(rare._next) == 2


@pytest.mark.parametrize("level", [logging.INFO, logging.ERROR])
def test_other_levels_are_not_counted(level):
    record = logging.LogRecord("x", level, "", 0, "text", None, None)
    assert all(WarningFilter().filter(record) for _ in range(5))
