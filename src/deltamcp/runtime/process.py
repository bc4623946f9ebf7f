"""Settings of the interpreter in a process that runs one server."""

import gc
import sys

from deltamcp import tokens

_SWITCH_SECONDS = 0.001
"""How long a thread may keep the interpreter's lock while another waits for it. With two threads that compute, the
p99 of other calls was 65 ms at Python's default of 5 ms, and 9 ms at this."""


async def configure_process() -> None:
    """Shortens what other callers wait for threads that compute, and for garbage collection.

    Objects that exist now, modules and catalogue, are exempt from garbage collection: a full collection would visit
    some 100,000 of them and pause every caller for 30 to 65 ms. Objects that are no longer referenced are freed as
    before; only those in a reference cycle stay.
    """
    sys.setswitchinterval(_SWITCH_SECONDS)
    gc.freeze()


async def load_vocabulary() -> None:
    """Loads the vocabulary that counts tokens, for some 0.2 s, so that no caller waits for another's first count."""
    tokens.count("")
