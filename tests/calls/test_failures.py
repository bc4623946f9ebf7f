"""What the caller of something that failed is told: where the log is, by what receives the library's errors."""

import logging
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from deltamcp.calls.failures import log_failure
from deltamcp.errors import PeerError


@pytest.fixture
def library_log() -> Iterator[logging.Logger]:
    """The library's logger, cut off from those above it."""
    logger = logging.getLogger("deltamcp")
    logger.propagate = False
    yield logger
    logger.propagate = True
    for handler in tuple(logger.handlers):
        logger.removeHandler(handler)
        handler.close()


def log_said() -> str:
    text = log_failure("The tool add", ValueError("secret"))
    assert text.startswith("The tool add failed (error ") and text.endswith(" says why.")
    assert "secret" not in text
    return text.partition("); ")[2].removesuffix(" says why.")


def test_where_nobody_configured_logging_it_is_stderr():
    """In a process of its own: pytest configures logging in this one."""
    said = "from deltamcp.calls.failures import log_failure; print(log_failure('The tool add', ValueError('secret')))"
    done = subprocess.run([sys.executable, "-c", said], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("; the server's log, which is its stderr, says why.\n")
    assert "ValueError: secret" in done.stderr


def test_a_handler_on_stderr_is_named(library_log, capsys):
    library_log.addHandler(logging.StreamHandler(sys.stderr))
    assert log_said() == "the server's log, which is its stderr,"
    assert "ValueError: secret" in capsys.readouterr().err


def test_a_file_is_named_without_its_folder(library_log, tmp_path: Path, capsys):
    library_log.addHandler(logging.StreamHandler(sys.stderr))
    library_log.addHandler(logging.FileHandler(tmp_path / "mine.log"))
    assert log_said() == "the server's log, mine.log,"
    assert "ValueError: secret" in (tmp_path / "mine.log").read_text()


def test_what_receives_no_errors_is_not_named(library_log, tmp_path: Path, capsys):
    quiet = logging.FileHandler(tmp_path / "critical.log")
    quiet.setLevel(logging.CRITICAL)
    library_log.addHandler(quiet)
    library_log.addHandler(logging.StreamHandler(sys.stderr))
    assert log_said() == "the server's log, which is its stderr,"
    assert (tmp_path / "critical.log").read_text() == ""


def test_another_place_has_no_name(library_log):
    class Elsewhere(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None: ...

    library_log.addHandler(Elsewhere())
    assert log_said() == "the server's log"


def test_a_clients_refusal_is_told_and_not_logged():
    assert log_failure("The tool add", PeerError(-1, "no")) == (
        "The tool add failed: the client refused a request (no)."
    )
