"""Work: counts the steps of a computation that a peer has asked for, and ends it at a limit.

Steps are counted, not timed, so that the same request always ends in the same way. A step is one value visited, or
`CHARS_PER_STEP` characters scanned by compiled code; either takes about a microsecond or less.
"""

import sys

from deltamcp.errors import UsageError

CHARS_PER_STEP = 256


class WorkLimitError(UsageError):
    """A computation has used all its steps; the text tells the caller to ask for less."""


class Work:
    """The steps that one computation may still take."""

    __slots__ = ("_left",)

    def __init__(self, steps: int) -> None:
        self._left = steps

    @property
    def left(self) -> int:
        """The steps that the computation may still take."""
        return max(0, self._left)

    def spend(self, steps: int = 1) -> None:
        """Counts steps, before the computation takes them.

        Raises:
            WorkLimitError: the computation may take no further steps.
        """
        self._left -= steps
        if self._left < 0:
            raise WorkLimitError("This would take too much work; ask for less at once.")

    def scan(self, chars: int) -> None:
        """Counts the steps of compiled code that scans so many characters or bytes.

        Raises:
            WorkLimitError: the computation may take no further steps.
        """
        self.spend(1 + chars // CHARS_PER_STEP)

    def stop(self) -> None:
        """Ends the computation at its next step, because nobody waits for it any more. Any thread may call it."""
        self._left = -1


def unlimited_work() -> Work:
    """Returns work without a limit, for a computation whose size no peer decides."""
    return Work(sys.maxsize)
