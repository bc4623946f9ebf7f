"""A process that has imported the command line, and forks itself for each command that a test runs.

What runs is a process as any other, with its own descriptors, folder, environment, signals and exit code. It only saves
the start of an interpreter and the imports: on a busy machine `list --help` took 25 ms of CPU, and 340 as `delta-mcp`.
"""

import atexit
import contextlib
import ctypes
import functools
import gc
import importlib
import marshal
import os
import pkgutil
import re
import runpy
import select
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
import types
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, NamedTuple

from tests.support.conditions import HANG_SECONDS
from tests.support.fork_request import MESSAGE_BYTES, NUMBER, interpreter_variables
from tests.support.paths import FORKED_PROGRAM, FORKED_PYTHON, PROGRAM, ROOT

_LEFT_OUT = re.compile(r"grpc|docket|redis|worker|__main__")
"""Modules of the library that a forked process imports by itself: few need them, or they start threads."""
_IMPORTED = (
    "cryptography.hazmat.primitives.ciphers.aead",
    "jsonpatch",
    "mcp.server.mcpserver",
    "jsonschema_rs",
    "pydantic.dataclasses",
    "rapidfuzz",
    "encodings.utf_16_be",
    "rich.console",
    "rich.table",
    "uvicorn.loops.auto",
    "uvicorn.lifespan.off",
    "uvloop",
)
"""What the library imports when it is first needed."""
_HUGE_PAGE_BYTES, _MADV_COLLAPSE = 2 << 20, 25


class Start(NamedTuple):
    """What a forked process is to run: words of the command line, or a program of Python's.

    Of the programs `-m` and `-c` the first word is a module and a text.
    """

    words: Sequence[str]
    cwd: str
    environment: Mapping[str, str]
    program: str | None = None
    bar_seconds: float | None = None
    """After how many seconds a progress bar appears, where not after as many as always."""


class ForkedProcess:
    """A process that the fork server has started; it is used as a `subprocess.Popen` is."""

    returncode: int | None = None

    def __init__(self, pid: int, ended: int) -> None:
        self.pid = pid
        self._ended = ended

    def poll(self) -> int | None:
        if self.returncode is None and select.select([self._ended], [], [], 0)[0]:
            self.wait()
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def wait(self, timeout: float = HANG_SECONDS) -> int:
        """Returns the exit code, or minus the signal that ended the process; kills it where it does not end."""
        if self.returncode is not None:
            return self.returncode
        try:
            if not select.select([self._ended], [], [], timeout)[0]:
                os.kill(self.pid, signal.SIGKILL)
                raise subprocess.TimeoutExpired(str(self.pid), timeout)
            self.returncode = int(NUMBER.unpack(os.read(self._ended, NUMBER.size))[0])
            return self.returncode
        finally:
            os.close(self._ended)


def fork(start: Start, stdin: int, stdout: int, stderr: int) -> ForkedProcess:
    """Starts a process with these three descriptors, which stay open here."""
    reader, writer = os.pipe()
    request = marshal.dumps((list(start.words), start.cwd, dict(start.environment), start.program, start.bar_seconds))
    socket.send_fds(fork_server(), [request], [stdin, stdout, stderr, writer])
    os.close(writer)
    (pid,) = NUMBER.unpack(os.read(reader, NUMBER.size))
    return ForkedProcess(pid, reader)


def run_forked(start: Start, stdin: bytes = b"") -> "subprocess.CompletedProcess[bytes]":
    """Runs a process with pipes for its input and output until it ends."""
    with contextlib.ExitStack() as streams:
        (given, giver), (out, out_end), (err, err_end) = (_pipe(streams) for _ in range(3))
        process = fork(start, given.fileno(), out_end.fileno(), err_end.fileno())
        for end in (given, out_end, err_end):
            end.close()
        said: list[bytes] = []
        threads = [
            threading.Thread(target=_give, args=(giver, stdin)),
            threading.Thread(target=lambda: said.append(err.read())),
        ]
        limit = threading.Timer(HANG_SECONDS, os.kill, (process.pid, signal.SIGKILL))
        for thread in (limit, *threads):
            thread.start()
        printed = out.read()
        for thread in threads:
            thread.join()
        limit.cancel()
        return subprocess.CompletedProcess(list(start.words), process.wait(), printed, said[0])


def start_forked(start: Start, stderr: IO[bytes]) -> tuple[ForkedProcess, IO[bytes], IO[bytes]]:
    """Starts a process with pipes; returns it, and the ends that are its input and its output."""
    with contextlib.ExitStack() as theirs, contextlib.ExitStack() as ours:
        given, giver = os.pipe()
        theirs.callback(os.close, given)
        stdin = ours.enter_context(os.fdopen(giver, "wb"))
        out, out_end = os.pipe()
        theirs.callback(os.close, out_end)
        stdout = ours.enter_context(os.fdopen(out, "rb"))
        process = fork(start, given, out_end, stderr.fileno())
        ours.pop_all()
        return process, stdin, stdout


def _pipe(streams: contextlib.ExitStack) -> tuple[IO[bytes], IO[bytes]]:
    reader, writer = os.pipe()
    return streams.enter_context(os.fdopen(reader, "rb")), streams.enter_context(os.fdopen(writer, "wb", 0))


def _give(stream: IO[bytes], data: bytes) -> None:
    with contextlib.suppress(BrokenPipeError), stream:
        while data:
            data = data[stream.write(data) :]


def _write_program(path: Path, program: Path, place: str, start: str) -> None:
    variables = interpreter_variables(dict(os.environ))
    path.write_text(
        f"#!{sys.executable} -IS\nimport sys\n\n"
        f"sys.path.append({str(Path(__file__).parent)!r})\n"
        "from fork_request import main\n\n"
        f"main({place!r}, {str(program)!r}, {variables!r}, {start})\n"
    )
    path.chmod(0o700)


@functools.cache
def fork_server() -> socket.socket:
    """Starts the fork server of this process, which ends with it, and makes FORKED_PROGRAM and FORKED_PYTHON.

    Processes that fork from this one later use the same.
    """
    folder = FORKED_PROGRAM.parent
    folder.mkdir(mode=0o700)
    place = str(folder / "socket")
    programs = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    programs.bind(place)
    programs.listen(100)
    _write_program(FORKED_PROGRAM, PROGRAM, place, "sys.argv[1:]")
    _write_program(FORKED_PYTHON, Path(sys.executable), place, "sys.argv[2:], (*sys.argv[1:], '-')[0]")
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, MESSAGE_BYTES)
    with theirs, programs:
        numbers = [theirs.fileno(), programs.fileno()]
        process = subprocess.Popen(
            [sys.executable, "-m", __spec__.name, str(FORKED_PROGRAM), *map(str, numbers)],
            cwd=ROOT,
            pass_fds=numbers,
            stdin=subprocess.DEVNULL,
        )

    owner = os.getpid()

    def end() -> None:
        if os.getpid() != owner:
            return  # a fork of the process of the tests, which uses the same server
        ours.close()
        process.wait()
        shutil.rmtree(folder, ignore_errors=True)

    atexit.register(end)
    return ours


class _Running(NamedTuple):
    """A process that has been forked, as the fork server knows it."""

    pid: int
    process: int
    """A descriptor of the process, which can be read when it has ended."""
    ended: int
    """Where to tell how it ended."""

    def tell(self) -> None:
        _, status = os.waitpid(self.pid, 0)
        with contextlib.suppress(ConnectionError):
            os.write(self.ended, NUMBER.pack(os.waitstatus_to_exitcode(status)))
        self.close()

    def close(self) -> None:
        os.close(self.process)
        os.close(self.ended)


def _serve(requests: socket.socket, programs: socket.socket) -> Start:
    """Forks for each request, and returns what to run in the processes that are to run it.

    Requests come from the process of the tests, and from programs that stand for what they ask for. What has been
    forked is waited for here: who asked is told how it ended, and it is killed where nobody is left to be told.
    """
    running: dict[int, _Running] = {}  # by both of their descriptors
    poll = select.poll()
    for source in (requests, programs):
        poll.register(source, select.POLLIN)
    while True:
        ready = dict(poll.poll())
        for descriptor in ready.keys() & running.keys():
            if (known := running.get(descriptor)) is None:
                continue  # it has been told of by its other descriptor
            if descriptor == known.ended:
                os.kill(known.pid, signal.SIGKILL)
            for own in (known.process, known.ended):
                poll.unregister(own)
                del running[own]
            known.tell()
        if requests.fileno() in ready:
            message, descriptors, *_ = socket.recv_fds(requests, MESSAGE_BYTES, 4)
            if not message:
                for known in running.values():
                    os.kill(known.pid, signal.SIGKILL)
                os._exit(0)
        elif programs.fileno() in ready:
            program, _ = programs.accept()
            try:
                message, descriptors, *_ = socket.recv_fds(program, MESSAGE_BYTES, 3)
            except ConnectionError:
                message, descriptors = b"", []  # it has been killed
            descriptors.append(program.detach())
        else:
            continue
        *streams, ended = descriptors
        if message and (pid := os.fork()):
            with contextlib.suppress(ConnectionError):
                os.write(ended, NUMBER.pack(pid))
            known = _Running(pid, os.pidfd_open(pid), ended)
            running[known.process] = running[known.ended] = known
            poll.register(known.process, select.POLLIN)
            poll.register(known.ended, 0)
        elif message:
            for source in (requests, programs):
                source.close()
            for known in {*running.values()}:
                known.close()
            os.close(ended)
            return _start(Start(*marshal.loads(message)), streams)
        else:
            os.close(ended)
        for descriptor in streams:
            os.close(descriptor)


def _start(start: Start, streams: Sequence[int]) -> Start:
    """Makes a process that has just been forked what it is to run."""
    for number, descriptor in enumerate(streams):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.chdir(start.cwd)
    os.environ.clear()
    os.environ.update(start.environment)
    time.tzset()
    sys.path[1:1] = filter(None, start.environment.get("PYTHONPATH", "").split(os.pathsep))
    sys.stdin = os.fdopen(0, closefd=False)
    sys.stdout = os.fdopen(1, "w", closefd=False)
    sys.stderr = os.fdopen(2, "w", 1, errors="backslashreplace", closefd=False)
    return start


def _use_huge_pages() -> None:
    """Moves what this process has allocated into huge pages, where the kernel can.

    A fork copies a table entry for each page: `--version` took 13 ms of CPU, and 18 with small pages.
    """
    madvise = ctypes.CDLL(None).madvise
    madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    for line in Path("/proc/self/maps").read_text().splitlines():
        addresses, rights, _, _, _, *name = line.split()
        if rights.startswith("rw") and name in ([], ["[heap]"]):
            start, end = (int(address, 16) for address in addresses.split("-"))
            for place in range(-(-start // _HUGE_PAGE_BYTES), end // _HUGE_PAGE_BYTES):
                madvise(place * _HUGE_PAGE_BYTES, _HUGE_PAGE_BYTES, _MADV_COLLAPSE)


def _main(forked_program: str, requests: socket.socket, programs: socket.socket) -> None:
    import pydantic

    import deltamcp
    from deltamcp import tokens
    from deltamcp.cli import main
    from deltamcp.cli.terminal import output
    from deltamcp.client import target

    target._OWN_PROGRAM = (forked_program,)  # type: ignore[assignment]  # of another length
    for module in pkgutil.walk_packages(deltamcp.__path__, "deltamcp."):
        if not _LEFT_OUT.search(module.name):
            importlib.import_module(module.name)
    for name in _IMPORTED:
        importlib.import_module(name)
    main.make_parser(main.VERBS)
    pydantic.TypeAdapter(int)  # looks for plugins among the installed packages
    tokens.count("é, é xqzxqz")  # makes the tokenizer's tables, for 100 ms; the last is no token of a vocabulary
    gc.collect()
    gc.freeze()  # a search for garbage would copy what forked processes share
    _use_huge_pages()
    start = _serve(requests, programs)
    sys.argv[:] = [start.program or str(PROGRAM), *start.words]
    main_module = sys.modules["__main__"]  # which processes that `multiprocessing` spawns run first
    main_module.__spec__, main_module.__file__ = None, sys.argv[0]
    sys.path[0] = str(Path(sys.argv[0]).parent)
    if start.bar_seconds is not None:
        output._DELAY_SECONDS = start.bar_seconds
    code = 0
    try:
        main.main() if start.program is None else _run_program(start.program)
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
        if isinstance(error.code, str):
            print(error.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
        code = 1
    _end(code)


def _run_program(program: str) -> None:
    match program:
        case "-m":
            sys.path[0] = str(Path.cwd())
            runpy.run_module(sys.argv.pop(1), run_name="__main__", alter_sys=True)
        case "-c":
            sys.path[0] = ""
            text = sys.argv.pop(1)
            sys.modules["__main__"] = types.ModuleType("__main__")
            exec(compile(text, "<string>", "exec"), sys.modules["__main__"].__dict__)
        case path:
            runpy.run_path(path, run_name="__main__")


def _end(code: int) -> None:
    """Ends this process as an interpreter does, except that it clears no modules.

    With that, `list --help` took 200 ms of CPU, not 25.
    """
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            code = 120  # what the documentation of `sys.exit` promises then
    os._exit(code)


if __name__ == "__main__":
    _main(sys.argv[1], *(socket.socket(fileno=int(number)) for number in sys.argv[2:]))
