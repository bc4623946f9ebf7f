"""A process of a server that can be killed and started again."""

import subprocess
from collections.abc import Mapping
from pathlib import Path

from bench.peers import ROOT


class RestartableProcess:
    """Runs a command in the root of the repository; what it prints is added to a log."""

    def __init__(self, command: list[str], log: Path, environment: Mapping[str, str] | None = None) -> None:
        self._command = command
        self._log = log
        self._environment = environment
        self.process = self._start()

    def _start(self) -> "subprocess.Popen[bytes]":
        with self._log.open("ab") as log:
            return subprocess.Popen(
                self._command, cwd=ROOT, env=self._environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def restart(self) -> None:
        """Kills the process as a crash would, and starts another."""
        self.kill()
        self.process = self._start()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
