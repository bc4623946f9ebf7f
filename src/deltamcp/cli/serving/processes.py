"""Server processes: several that share listening sockets, and one that is started anew when its files change.

Operations files are not among these files while the server runs: it loads them again by itself, without a restart.
The files are few and known by name, so that the process compares their times itself and needs no package that asks the
operating system for changes.
"""

import contextlib
import logging
import multiprocessing
import os
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from msgspec import Struct

from deltamcp.cli.serving import monitoring_options
from deltamcp.cli.serving.monitoring_options import LogOptions
from deltamcp.limits import Limits
from deltamcp.runtime.files import FileState, file_state

logger: logging.Logger = logging.getLogger("deltamcp.workers")

_LASTING_SECONDS = 60.0
"""A worker that ran for so long is replaced at once when it ends; one that did not, after a pause that doubles."""
_FIRST_PAUSE = 0.5
_LONGEST_PAUSE = 30.0
_END_SECONDS = 5.0
"""How long a worker that was told to end may take beside the time for its calls; then it is killed."""
_MEMORY_FOLDER = Path("/dev/shm")  # noqa: S108 - the folder that is made in it is its owner's alone


class Ready(Struct, frozen=True):
    """What a worker says once it serves."""

    address: str
    """Says what is served where."""
    notes: list[str]
    """What the operator should know of how the workers share their state."""
    drain_seconds: float
    """The time that calls have to finish when the worker ends."""


class SharedState(Struct, frozen=True):
    """What the workers of one server share where its author and its operator have set nothing."""

    folder: Path
    """A folder that only the user who runs the server can read."""
    state_key: bytes

    @property
    def metrics_folder(self) -> Path:
        return self.folder / "metrics"

    @property
    def store_url(self) -> str:
        return f"sqlite:///{self.folder}/store.db"


@contextlib.contextmanager
def shared_state() -> Iterator[SharedState]:
    """Makes state for workers to share, and deletes it at the end; it is in memory if there is room."""
    folder = Path(tempfile.mkdtemp(prefix="delta-mcp-", dir=_memory_folder()))
    try:
        shared = SharedState(folder, os.urandom(32))
        shared.metrics_folder.mkdir(mode=0o700)
        yield shared
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _memory_folder() -> Path | None:
    """Returns a file system in memory with room for a full store; containers often have one of 64 MB."""
    try:
        is_large = shutil.disk_usage(_MEMORY_FOLDER).free > 2 * Limits().stored_bytes
    except OSError:
        return None
    return _MEMORY_FOLDER if is_large and os.access(_MEMORY_FOLDER, os.W_OK) else None


class _Worker(Struct):
    number: int
    process: BaseProcess
    messages: Connection | None
    """Where the worker says that it is ready; None once it has."""
    start_time: float
    ready: Ready | None = None
    kill_time: float | None = None
    """When to kill the worker, which was told to end."""

    @property
    def name(self) -> str:
        return f"worker {self.number} (process {self.process.pid})"

    def end(self) -> None:
        """Tells the worker to finish its calls and end."""
        self.process.terminate()
        self.kill_time = time.monotonic() + _END_SECONDS + (0 if self.ready is None else self.ready.drain_seconds)


class Workers:
    """Keeps a number of processes running, each of which calls a function with arguments and a `Connection`.

    The function sends a `Ready` through the connection once it serves. The first worker starts alone, so that a mistake
    of the server's author is told once.
    """

    def __init__(
        self,
        count: int,
        sockets: Sequence[socket.socket],
        log_options: LogOptions,
        on_end: Callable[[int], None],
        function: Callable[..., None],
        *arguments: Any,
    ) -> None:
        """
        Args:
            sockets: Those that the workers share, to be closed when they end; the function finds them in its arguments.
            on_end: Gets the process id of every worker that has ended.
        """
        self._count = count
        self._sockets = sockets
        self._log_options = log_options
        self._on_end = on_end
        self._function, self._arguments = function, arguments
        self._workers: dict[int, _Worker] = {}
        self._ending: list[_Worker] = []
        self._newcomer: _Worker | None = None
        """A worker that will take the place of the one with its number once it is ready."""
        self._to_replace: deque[int] = deque()
        self._replaced = 0
        """How many workers were replaced since that was last told."""
        self._start_times: dict[int, float] = {}
        self._early_ends: dict[int, int] = {}
        self._has_served = False
        self._is_stopping = False
        self._exit_code = 0

    def run(self) -> int:
        """Returns 0 after SIGTERM or SIGINT; the exit code of the first worker if that never served.

        A second such signal kills the workers. SIGHUP replaces them one after another; the new one serves before the
        old one is told to end.
        """
        reader, writer = socket.socketpair()
        numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
        with reader, writer:
            writer.setblocking(False)
            old_handlers = {number: signal.signal(number, lambda *_: None) for number in numbers}
            old_fd = signal.set_wakeup_fd(writer.fileno())
            try:
                self._start(1)
                while self._processes() or self._start_times:
                    self._step(reader)
                if self._is_stopping:
                    logger.info("stopped: all workers have ended")
            finally:
                signal.set_wakeup_fd(old_fd)
                for number, handler in old_handlers.items():
                    signal.signal(number, handler)
        return self._exit_code

    def _processes(self) -> list[_Worker]:
        newcomers = [] if self._newcomer is None else [self._newcomer]
        return [*self._workers.values(), *self._ending, *newcomers]

    def _step(self, signals: socket.socket) -> None:
        """Waits for the next event and handles it."""
        workers = self._processes()
        times = [worker.kill_time for worker in workers if worker.kill_time is not None]
        due = min([*times, *self._start_times.values()], default=None)
        messages = [worker.messages for worker in workers if worker.messages is not None]
        sentinels = [worker.process.sentinel for worker in workers]
        timeout = None if due is None else max(0.0, due - time.monotonic())
        happened = wait([signals, *messages, *sentinels], timeout)
        for worker in workers:
            if worker.messages is not None and worker.messages in happened:
                self._read_message(worker, worker.messages)
            if worker.process.sentinel in happened:
                self._handle_end(worker)
        if signals in happened:
            for number in signals.recv(64):
                self._handle_signal(number)
        now = time.monotonic()
        for worker in self._processes():
            if worker.kill_time is not None and worker.kill_time <= now:
                logger.error("%s did not end in time and is killed", worker.name)
                worker.kill_time = None
                worker.process.kill()
        for number in [number for number, start in self._start_times.items() if start <= now]:
            del self._start_times[number]
            self._start(number)

    # Starting

    def _start(self, number: int) -> None:
        self._workers[number] = self._make_worker(number)

    def _make_worker(self, number: int) -> _Worker:
        context = multiprocessing.get_context("spawn")
        messages, sender = context.Pipe(duplex=False)
        arguments = (*self._arguments, sender)
        process = context.Process(target=self._function, args=arguments, name=f"worker {number}")
        process.start()
        sender.close()
        return _Worker(number, process, messages, time.monotonic())

    def _read_message(self, worker: _Worker, messages: Connection) -> None:
        worker.messages = None
        with messages:
            try:
                worker.ready = messages.recv()
            except (EOFError, OSError):  # it has ended
                return
        if self._is_stopping:
            return
        if worker is self._newcomer:
            self._take_place(worker)
        elif not self._has_served:
            self._has_served = True
            self._announce(worker.ready)

    def _take_place(self, newcomer: _Worker) -> None:
        self._newcomer = None
        old = self._workers.pop(newcomer.number, None)
        if old is not None:
            self._tell_to_end(old)
        self._start_times.pop(newcomer.number, None)
        self._workers[newcomer.number] = newcomer
        self._replaced += 1
        self._replace_next()
        self._tell_when_replaced()

    def _announce(self, ready: Ready) -> None:
        """Says that the first worker serves, and starts the others."""
        monitoring_options.tell(f"{ready.address} with {self._count} workers (Ctrl-C stops)", self._log_options)
        for note in ready.notes:
            logger.info("%s", note)
        for number in range(2, self._count + 1):
            self._start(number)

    # Ending

    def _handle_end(self, worker: _Worker) -> None:
        worker.process.join()
        assert worker.process.pid is not None, "it was started"
        self._on_end(worker.process.pid)
        if worker.messages is not None:
            worker.messages.close()
        code = worker.process.exitcode or 0
        if worker in self._ending:
            self._ending.remove(worker)
            self._tell_when_replaced()
            return
        if worker is self._newcomer:
            self._newcomer = None
            self._to_replace.clear()
            self._replaced = 0
            logger.error("%s %s before it served: the workers are not replaced", worker.name, _how(code))
            return
        del self._workers[worker.number]
        if self._is_stopping:
            return
        if not self._has_served:
            self._exit_code = code if code >= 0 else 128 - code
            return
        self._restart_later(worker, code)

    def _restart_later(self, worker: _Worker, code: int) -> None:
        has_lasted = time.monotonic() - worker.start_time >= _LASTING_SECONDS
        early_ends = 0 if has_lasted else self._early_ends.get(worker.number, 0)
        self._early_ends[worker.number] = early_ends + 1
        pause = 0.0 if has_lasted else min(_FIRST_PAUSE * 2**early_ends, _LONGEST_PAUSE)
        logger.error("%s %s: another starts in %g s", worker.name, _how(code), pause)
        self._start_times[worker.number] = time.monotonic() + pause

    def _tell_to_end(self, worker: _Worker) -> None:
        worker.end()
        self._ending.append(worker)

    def _handle_signal(self, number: int) -> None:
        if number == signal.SIGHUP:
            self._replace_all()
        elif self._is_stopping:
            for worker in self._processes():
                worker.process.kill()
        else:
            self._stop()

    def _stop(self) -> None:
        self._is_stopping = True
        self._start_times.clear()
        self._to_replace.clear()
        for bound in self._sockets:
            bound.close()
        for worker in self._processes():
            if worker not in self._ending:
                self._tell_to_end(worker)
        self._workers.clear()
        self._newcomer = None

    # Replacing

    def _replace_all(self) -> None:
        if self._is_stopping or not self._has_served:
            return
        logger.info("SIGHUP: the workers are replaced, one after another")
        self._to_replace = deque(range(1, self._count + 1))
        if self._newcomer is None:
            self._replace_next()

    def _replace_next(self) -> None:
        if self._to_replace:
            self._newcomer = self._make_worker(self._to_replace.popleft())

    def _tell_when_replaced(self) -> None:
        """Says that the last of those that were to be replaced has ended."""
        if self._replaced and not (self._to_replace or self._newcomer or self._ending or self._is_stopping):
            logger.info("all workers are replaced, and those before them have ended")
            self._replaced = 0


def _how(code: int) -> str:
    """Says how a process ended."""
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"


CHANGED_EXIT_CODE = 75
"""The exit code by which the process asks to be started anew; EX_TEMPFAIL in sysexits.h."""
POLL_SECONDS = 0.25
"""The interval between two looks at the files; a change counts when two looks find the same state."""


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
            states = {path: file_state(path) for path in watched | start_states.keys()}
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
        state = file_state(path)
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
