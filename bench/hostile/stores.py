"""Stores that stop answering: a Redis process that is halted, a SQLite file that another process has locked."""

import contextlib
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple


class SkippedError(Exception):
    """What an attack needs is not there; the text is a sentence."""


class AttackedStore(NamedTuple):
    url: str
    hang: Callable[[], contextlib.AbstractContextManager[None]]
    """Keeps the store from answering until the end of the block."""


@contextlib.contextmanager
def redis() -> Iterator[AttackedStore]:
    """Starts a Redis server on a free port.

    Raises:
        SkippedError: there is none to start.
    """
    program = shutil.which("redis-server")
    if program is None:
        raise SkippedError("redis-server is not installed")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        command = [program, "--port", str(port), "--save", "", "--appendonly", "no", "--dir", folder]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)

        @contextlib.contextmanager
        def hang() -> Iterator[None]:
            os.kill(process.pid, signal.SIGSTOP)
            try:
                yield
            finally:
                os.kill(process.pid, signal.SIGCONT)

        try:
            _wait_for_port(port)
            yield AttackedStore(f"redis://127.0.0.1:{port}/0", hang)
        finally:
            process.kill()
            process.wait()


def _wait_for_port(port: int) -> None:
    for _ in range(200):
        with contextlib.suppress(ConnectionRefusedError), socket.create_connection(("127.0.0.1", port)):
            return
        time.sleep(0.02)
    raise SkippedError("redis-server does not start")


@contextlib.contextmanager
def sqlite() -> Iterator[AttackedStore]:
    """Makes a SQLite file."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "results.db"

        @contextlib.contextmanager
        def hang() -> Iterator[None]:
            with contextlib.closing(sqlite3.connect(file, isolation_level=None)) as connection:
                connection.execute("BEGIN EXCLUSIVE")
                yield

        yield AttackedStore(f"sqlite:///{file}", hang)
