"""Settings of the interpreter: in a process that runs one server, and while much is made that stays."""

import contextlib
import gc
import importlib
import os
import sys
from collections.abc import Iterator

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
        lifespan.add_task(_load_modules)
    lifespan.add_task(_configure_interpreter)


async def _configure_interpreter() -> None:
    """Shortens what other callers wait for threads that compute, and for garbage collection.

    Objects that exist now, modules and catalogue, are exempt from garbage collection: a full collection would visit
    some 100,000 of them and pause every caller for 30 to 65 ms. Objects that are no longer referenced are freed as
    before; only those in a reference cycle stay.
    """
    sys.setswitchinterval(_SWITCH_SECONDS)
    gc.freeze()


def keep_grpc_out_of_forks() -> None:
    """Has gRPC do nothing in processes that this one starts, before gRPC is imported.

    uvloop forks, and gRPC's handlers in the child, which only wants to become another program, made some of them end
    with a segmentation fault while calls came in.
    """
    os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")


_FIRST_USED = ("deltamcp.results.expression", "deltamcp.deltas.delta", "deltamcp.gcf", "jsonpatch", "jsonschema_rs")
"""Modules that the library imports where it first needs them, so that a server on stdio starts at once."""


async def _load_modules() -> None:
    """Loads what calls need for the first time, some 0.4 s, so that no caller waits for the first call of another."""
    for name in _FIRST_USED:
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
