"""Python's search for garbage in cycles, which costs a start more than it finds."""

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def collection_paused() -> Iterator[None]:
    """Pauses it where much is made that stays: modules, or what is decoded from a file."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
