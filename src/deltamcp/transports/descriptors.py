"""The descriptors of a process, as far as they limit its connections."""

import sys


def allowed_connections(wanted: int, share: float, each: int = 1) -> int:
    """Returns how many connections the process can have; it raises its own limit on descriptors as far as it may.

    Args:
        share: the part of the descriptors that these connections may have, so that accepting one never fails.
        each: the descriptors of one connection.
    """
    if sys.platform == "win32":
        return wanted
    import resource

    descriptors, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if descriptors == resource.RLIM_INFINITY:
        return wanted
    needed = int(wanted * each / share) + 1
    if descriptors < needed:
        descriptors = needed if most == resource.RLIM_INFINITY else min(needed, most)
        resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, most))
    return min(wanted, int(descriptors * share / each))
