"""Python's search for garbage in cycles, which costs a start more than it finds."""

import contextlib
import gc
from collections.abc import Iterator

_MANY_OBJECTS = 50_000
"""So many new objects take some 20 ms to be searched, in which no thread runs."""


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
