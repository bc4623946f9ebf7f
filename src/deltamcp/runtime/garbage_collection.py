"""The garbage collector of a process that runs one server."""

import gc


async def freeze_startup_objects() -> None:
    """Exempts the objects that exist now, modules and catalogue, from garbage collection.

    A full collection would otherwise visit some 100,000 of them, which pauses every caller for 30 to 65 ms. Objects
    that are no longer referenced are freed as before; only those in a reference cycle stay.
    """
    gc.freeze()
