"""The log of a server: who may read its file, and what of Python's own texts is in it."""

import logging
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from deltamcp.cli.serving.monitoring_options import LogFile, LogOptions, configure_log
from deltamcp.errors import ConfigurationError

ONLY_POSIX = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no modes of files")


def log(path: Path) -> None:
    handler = LogFile(path)
    handler.handle(logging.makeLogRecord({"msg": "x"}))
    handler.close()


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@ONLY_POSIX
def test_only_the_user_can_read_a_log_file_also_one_that_others_could(tmp_path):
    path = tmp_path / "new.log"
    log(path)
    assert mode(path) == 0o600
    path.chmod(0o664)
    log(path)
    assert mode(path) == 0o600 and path.read_text() == "x\nx\n"


@ONLY_POSIX
def test_a_log_file_of_another_owner_is_refused_for_root_too(tmp_path, monkeypatch):
    path = tmp_path / "theirs.log"
    path.write_text("theirs")
    path.chmod(0o666)
    monkeypatch.setattr(os, "geteuid", lambda: path.stat().st_uid + 1)
    with pytest.raises(ConfigurationError, match=r"theirs\.log cannot be written: it is another user's file; name"):
        configure_log(LogOptions(file=path))
    assert path.read_text() == "theirs" and mode(path) == 0o666


@ONLY_POSIX
def test_a_link_of_another_user_makes_no_file(tmp_path, monkeypatch):
    link = tmp_path / "link.log"
    link.symlink_to(tmp_path / "made.log")
    if os.getuid() == 0:
        os.chown(link, 12345, 12345, follow_symlinks=False)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(ConfigurationError, match="it is another user's link"):
        configure_log(LogOptions(file=link))
    assert not (tmp_path / "made.log").exists()


@ONLY_POSIX
def test_a_link_of_the_user_and_a_device_are_followed(tmp_path):
    link = tmp_path / "link.log"
    link.symlink_to(tmp_path / "made.log")
    log(link)
    assert mode(tmp_path / "made.log") == 0o600
    before = mode(Path(os.devnull))
    log(Path(os.devnull))
    assert mode(Path(os.devnull)) == before


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has a device that is always full")
def test_a_log_file_that_cannot_be_written_is_told_once_without_the_records():
    program = """if True:
        import logging
        from pathlib import Path
        from deltamcp.cli.serving.monitoring_options import LogOptions, configure_log

        configure_log(LogOptions(file=Path("/dev/full")))
        for _ in range(2):
            try:
                raise RuntimeError("hunter22\\nFORGED\\x1b[2J")
            except RuntimeError:
                logging.exception("it failed")
    """
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    reason = "No space left on device"
    told = f"The log cannot be written to /dev/full: {reason}; its records are lost until it can.\n"
    assert (done.stdout, done.stderr.decode()) == (b"", told)


PROGRAM = """
import threading, warnings
from pathlib import Path
from deltamcp.cli.serving.monitoring_options import LogOptions, configure_log, redact_log

configure_log(LogOptions(file=Path("x.log")))
redact_log(lambda text: text.replace("hunter22", "..."))


def fail(*_):
    raise RuntimeError("hunter22\\nFORGED")


thread = threading.Thread(target=fail, name="the\\nthread")
thread.start()
thread.join()
type("Unraisable", (), {"__del__": fail})()
warnings.warn("hunter22\\nFORGED")
"""


def test_what_python_would_print_of_threads_and_warnings_is_in_the_log_without_secrets(tmp_path):
    done = subprocess.run([sys.executable, "-c", PROGRAM], cwd=tmp_path, capture_output=True, check=True)
    lines = (tmp_path / "x.log").read_text().splitlines()
    assert len(lines) == 3 and all("...\\nFORGED" in line for line in lines), lines
    assert "The thread the\\nthread failed" in lines[0]
    assert (done.stdout, done.stderr) == (b"", b"")
