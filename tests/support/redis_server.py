"""A Redis server of a test's own."""

import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.conditions import HANG_SECONDS


@contextmanager
def redis_server(port: int, directory: Path) -> Iterator[subprocess.Popen[bytes]]:
    program = shutil.which("redis-server")
    if program is None:
        pytest.skip("there is no redis-server on PATH")
    command = [program, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", str(directory)]
    log = directory / "log"
    log.unlink(missing_ok=True)
    process = subprocess.Popen([*command, "--logfile", str(log)])
    try:
        end = time.monotonic() + HANG_SECONDS
        while not (log.exists() and "Ready to accept connections" in log.read_text()):
            assert process.poll() is None and time.monotonic() < end, "redis-server did not start"
            time.sleep(0.02)
        yield process
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
