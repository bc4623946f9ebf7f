"""Ports of the loopback: free ones, and waiting until a server process listens at one."""

import contextlib
import socket
import subprocess
import time
from typing import Any

START_SECONDS = 180.0
_CLOSED_SECONDS = 90.0
"""The system keeps the port of a closed connection for a minute."""


def find_free_port() -> int:
    """Returns a port at which nobody listens.

    Raises:
        OSError: there is none, a minute after connections began to be closed.
    """
    end = time.monotonic() + _CLOSED_SECONDS
    while True:
        with socket.socket() as free:
            # Without it there is none for a minute after tens of thousands of connections.
            free.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                free.bind(("127.0.0.1", 0))
            except OSError:  # nor is there one with it after some 28,000, which is how many ports Linux gives out
                if time.monotonic() > end:
                    raise
                time.sleep(1)
                continue
            port: int = free.getsockname()[1]
        return port


def wait_for_port(port: int, process: "subprocess.Popen[Any]") -> None:
    """Returns when the process listens.

    Raises:
        RuntimeError: the process ended, or does not listen in time.
    """
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end and process.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.02)
    raise RuntimeError(f"{process.args!r} does not listen")
