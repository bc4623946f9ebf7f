"""Secrets in the library's own log, whatever handlers a program has."""

import logging

import pytest

from deltamcp.runtime.secrets import Secrets, secrets_left_out

logger = logging.getLogger("deltamcp")
REDACT = Secrets(["tok-12345678"]).redact


def test_texts_and_arguments_have_no_secrets(caplog: pytest.LogCaptureFixture) -> None:
    with secrets_left_out(REDACT):
        logger.warning("%s: %s", "tok-12345678", ValueError("with tok-12345678"))
        logger.warning("100 %d", 1)
    logger.warning("tok-12345678 afterwards")
    assert [record.message for record in caplog.records] == ["...: with ...", "100 1", "tok-12345678 afterwards"]


def test_a_traceback_has_no_secrets_and_stays_one_without_them(caplog: pytest.LogCaptureFixture) -> None:
    with secrets_left_out(REDACT):
        for text in ("with tok-12345678", "with none"):
            try:
                raise ValueError(text)
            except ValueError:
                logger.exception("%s failed", "it")
    with_secret, without = caplog.records
    assert "tok-12345678" not in caplog.text
    assert with_secret.message.startswith("it failed\nTraceback") and with_secret.message.endswith(
        "ValueError: with ..."
    )
    assert without.exc_info is not None and without.message == "it failed"
