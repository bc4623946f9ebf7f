"""Settings of the interpreter: in a process that runs one server, and while much is made that stays."""

import asyncio
import contextlib
import gc
import importlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator
from typing import Any

from deltamcp import tokens
from deltamcp.runtime.lifespan import ServerLifespan

_SWITCH_SECONDS = 0.001
"""How long a thread may keep the interpreter's lock while another waits for it. With two threads that compute, the
p99 of other calls was 65 ms at Python's default of 5 ms, and 9 ms at this."""
_MANY_OBJECTS = 50_000
"""So many new objects take some 20 ms to be searched, in which no thread runs."""


def dedicate_process(lifespan: ServerLifespan, *, loads_modules: bool) -> None:
    """Sets this process up for one server when that opens. Every way to start a process for a server calls it.

    `loads_modules` is whether the start may take longer, so that no caller waits for what calls load.
    """
    if loads_modules:
        lifespan.add_opener(lambda: _load_modules(lifespan.first_modules))
    lifespan.add_opener(_configure_interpreter)


def _configure_interpreter() -> None:
    """Shortens what other callers wait for threads that compute, and for garbage collection.

    Objects that exist now, modules and catalog, are exempt from garbage collection: a full collection would visit
    some 100,000 of them and pause every caller for 30 to 65 ms. Objects that are no longer referenced are freed as
    before; only those in a reference cycle stay.
    """
    sys.setswitchinterval(_SWITCH_SECONDS)
    gc.freeze()


def run_in_loop(main: Coroutine[Any, Any, None]) -> None:
    """Runs a server until it ends, in uvloop's event loop where that is installed: calls take a third less time."""
    try:
        import uvloop
    except ImportError:  # as on Windows
        asyncio.run(main)
        return
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main)


@contextlib.contextmanager
def hangups_taken(call: Callable[[], None]) -> Iterator[None]:
    """Calls a function on the running loop at SIGHUP, where nothing else takes that signal.

    A terminal that closes sends it, too; then the process ends, as it would have.
    """
    is_free = (
        sys.platform != "win32"
        and threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGHUP) is signal.SIG_DFL
    )
    if not is_free:
        yield
        return
    loop, had_terminal = asyncio.get_running_loop(), _has_terminal()

    def take() -> None:
        if had_terminal and not _has_terminal():
            loop.remove_signal_handler(signal.SIGHUP)
            os.kill(os.getpid(), signal.SIGHUP)
        else:
            call()

    loop.add_signal_handler(signal.SIGHUP, take)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGHUP)


def _has_terminal() -> bool:
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY))
    except OSError:
        return False
    return True


def keep_grpc_out_of_forks() -> None:
    """Has gRPC do nothing in processes that this one starts, before gRPC is imported.

    uvloop forks, and gRPC's handlers in the child, which only wants to become another program, made some of them end
    with a segmentation fault while calls came in.
    """
    os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")


def keep_grpc_off_stderr() -> None:
    """Has gRPC write no log of its own, before it is imported, unless the operator wants that.

    Any client can have it write lines, which go past every handler of the log, and it waits where nobody reads them.
    """
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")


_FIRST_USED = (
    "cryptography.hazmat.primitives.ciphers.aead",
    "deltamcp.catalog.search.index",
    "deltamcp.deltas.delta",
    "deltamcp.gcf",
    "deltamcp.results.queries.expression",
    "deltamcp.results.queries.pattern",
    "deltamcp.results.symbol_graphs",
    "jsonpatch",
    "jsonschema_rs",
    "pydantic_core",
    "rapidfuzz.fuzz",
    "rapidfuzz.process",
)
"""Modules that the library imports where it first needs them, so that a server on stdio starts at once. Those that
only some servers need are in `ServerLifespan.first_modules`."""


def _load_modules(others: Iterable[str]) -> None:
    """Loads what calls need for the first time, so that no caller waits for the first call of another.

    It takes some 0.4 s, and with promises or servers behind this one twice as long.
    """
    for name in (*_FIRST_USED, *sorted(others)):
        with contextlib.suppress(ImportError):  # the call that needs it says so
            importlib.import_module(name)
    import pydantic

    pydantic.TypeAdapter(int)  # it looks for plugins among the installed packages
    tokens.count("xqzxqz")  # no token of a vocabulary: for the first such word it makes tables of pairs, in 100 ms


@contextlib.contextmanager
def collection_paused() -> Iterator[None]:
    """Pauses it where much is made that stays: modules, items of large lists, or what is decoded from a file.

    Very many objects are then taken for old, so that no search goes through them at once. Fewer stay young, because
    garbage that is taken for old is found only by a search of everything, which Python puts off for long.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            if gc.get_count()[0] > _MANY_OBJECTS:
                gc.freeze()
                gc.unfreeze()
            gc.enable()
