"""A server process that is started anew whenever one of the server's Python files changes.

Operations files are not among these files while the server runs: it loads them again by itself, without a restart.
The files are few and known by name, so that the process compares their times itself and needs no package that asks the
operating system for changes.
"""

import multiprocessing
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

CHANGED_EXIT_CODE = 75
"""The exit code by which the process asks to be started anew; EX_TEMPFAIL in sysexits.h."""
POLL_SECONDS = 0.25
"""The interval between two looks at the files; a change counts when two looks find the same state."""

FileState: TypeAlias = tuple[int, int, int] | None


class FileWatch:
    """Watches the modules that this process imports from a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder.resolve()
        # A module has the path by which it was found, which may lead over a symbolic link.
        self._prefixes = (f"{self._folder}{os.sep}", f"{folder.absolute()}{os.sep}")
        self._start_ns = time.time_ns()
        self._start_files = self._folder_files()

    def wait_for_change(self, error: BaseException | None = None) -> Path | None:
        """Blocks until a file has changed since the watch was made, and returns the file.

        After an error the files that its traceback names count too, and every Python and JSON file in the folder: a
        module that could not be imported is not among the modules, and a missing one may come. The result is None if
        the process that started this one is gone.
        """
        parent = multiprocessing.parent_process()
        start_states = {path: self._state_at_start(path) for path in self._watched_files(error)}
        last_states: dict[Path, FileState] = {}
        while parent is None or parent.is_alive():
            watched = self._watched_files(error)
            if error is None:  # modules that were imported since
                start_states |= {path: self._state_at_start(path) for path in watched - start_states.keys()}
            states = {path: _file_state(path) for path in watched | start_states.keys()}
            changed = sorted(path for path, state in states.items() if state != start_states.get(path))
            if changed and states == last_states:
                return changed[0]
            last_states = states
            time.sleep(POLL_SECONDS)
        return None

    def _state_at_start(self, path: Path) -> FileState:
        """Returns the state to compare a file's later states with; None for a file that came or was written since.

        A time in the future comes from another clock, and says nothing.
        """
        state = _file_state(path)
        is_new = path.parent == self._folder and path not in self._start_files
        was_written = state is not None and self._start_ns < state[0] <= time.time_ns()
        return None if is_new or was_written else state

    def _watched_files(self, error: BaseException | None) -> set[Path]:
        names = {getattr(module, "__dict__", {}).get("__file__") for module in tuple(sys.modules.values())}
        files: set[Path] = set()
        if error is not None:
            names |= _named_files(error)
            files = self._folder_files()
        return files | {
            Path(name)
            for name in names
            if isinstance(name, str) and name.startswith(self._prefixes) and "site-packages" not in name
        }

    def _folder_files(self) -> set[Path]:
        return {path for path in self._folder.iterdir() if path.suffix in (".py", ".json")}


def _named_files(error: BaseException) -> set[str]:
    """Returns the files that the traceback of an error names, and those of the errors behind it."""
    names = {frame.filename for frame in traceback.extract_tb(error.__traceback__)}
    if isinstance(error, SyntaxError) and error.filename is not None:
        names.add(error.filename)
    return names if error.__cause__ is None else names | _named_files(error.__cause__)


def _file_state(path: Path) -> FileState:
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_size, stat.st_ino


class ServerProcess:
    """Runs a function in a new process, again and again as long as it exits with `CHANGED_EXIT_CODE`."""

    def __init__(self, function: Callable[..., None], *arguments: Any) -> None:
        self._function, self._arguments = function, arguments
        self._stopped = threading.Event()
        self._process: multiprocessing.process.BaseProcess | None = None

    def run(self) -> int:
        """Returns the exit code of the process that ended otherwise; 0 after SIGTERM, SIGINT, SIGHUP or `stop`.

        A second signal kills the process.
        """
        context = multiprocessing.get_context("spawn")
        names = ("SIGTERM", "SIGINT", "SIGHUP")  # Windows has no SIGHUP
        numbers = [getattr(signal, name) for name in names if hasattr(signal, name)]
        old_handlers = {number: signal.signal(number, lambda *_: self.stop()) for number in numbers}
        try:
            while True:
                process = context.Process(target=self._function, args=self._arguments)
                process.start()
                self._process = process
                if self._stopped.is_set():
                    process.terminate()
                process.join()
                if self._stopped.is_set():
                    return 0
                if process.exitcode != CHANGED_EXIT_CODE:
                    code = process.exitcode or 0
                    return code if code >= 0 else 128 - code
        finally:
            for number, handler in old_handlers.items():
                signal.signal(number, handler)

    def stop(self) -> None:
        """Ends the process, and kills it if it was told to end before; the caller may use any thread."""
        was_stopped = self._stopped.is_set()
        self._stopped.set()
        if self._process is not None:
            (self._process.kill if was_stopped else self._process.terminate)()
