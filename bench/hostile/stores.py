"""Stores that stop answering: a Redis process that is halted, a SQLite file that another process has locked."""

import contextlib
import os
import shutil
import signal
import sqlite3
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from bench.ports import find_free_port, wait_for_port


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
    port = find_free_port()
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
            wait_for_port(port, process)
            yield AttackedStore(f"redis://127.0.0.1:{port}/0", hang)
        finally:
            process.kill()
            process.wait()


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
