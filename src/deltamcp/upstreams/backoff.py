"""How long an upstream is left alone before it is started again. Pure: does no I/O."""

_FIRST_SECONDS = 0.5
_MAX_SECONDS = 60.0
_MAX_DOUBLINGS = 10
RAN_WELL_SECONDS = 5.0
"""An upstream that was ready for so long ran well: what happened before does not count against it."""


def wait_seconds(failures: int, chance: float) -> float:
    """Returns the seconds to wait after so many failures in a row; none after the first.

    The wait doubles with each failure. `chance`, from 0 to 1, spreads it over its upper half, so that upstreams that
    failed together do not start together.
    """
    if failures <= 1:
        return 0.0
    whole = min(_MAX_SECONDS, _FIRST_SECONDS * 2.0 ** min(failures - 2, _MAX_DOUBLINGS))
    return whole * (0.5 + chance / 2)
