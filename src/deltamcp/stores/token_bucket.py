"""Token buckets: how one is emptied and refilled, and the buckets of one process.

A bucket is one number: when it will be full if nobody takes from it. Each token that is taken moves that by the time
that a token takes to be refilled.
"""

from collections.abc import Callable

CLOCK_SECONDS = 1e-6
"""The resolution of clocks; who waited until a bucket had a token again finds it, however the numbers were rounded."""


def take_token(full_at: float, now: float, rate: float, burst: int) -> tuple[float, float]:
    """Takes a token; returns when the bucket is full again, and 0.0 or the seconds until it has a token."""
    # A bucket lacks no more than all its tokens, also if its rate was lower or the clock was ahead before.
    full_at = min(max(full_at, now), now + burst / rate)
    missing = full_at + 1 / rate - now - burst / rate
    return (full_at + 1 / rate, 0.0) if missing <= CLOCK_SECONDS else (full_at, missing)


MAX_BUCKETS = 200_000
"""The buckets of one process, some 250 bytes each; beyond it the next in turn is forgotten, however full it is."""


class TokenBuckets:
    """The buckets of one process by name. Each call forgets one that is full, if there is one next in turn."""

    __slots__ = ("_clock", "_full_at")

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._full_at: dict[str, float] = {}

    def __len__(self) -> int:
        return len(self._full_at)

    def take(self, bucket: str, rate: float, burst: int) -> float:
        """Takes a token; returns 0.0, or the seconds until the bucket has one."""
        now = self._clock()
        full_at = self._full_at.pop(bucket, now)
        # Two for each that is added, so that those which are full go in the end, whatever their rates are.
        for _ in range(min(2, len(self._full_at))):
            other = next(iter(self._full_at))
            others_full_at = self._full_at.pop(other)
            if others_full_at > now and len(self._full_at) < MAX_BUCKETS - 1:
                self._full_at[other] = others_full_at
        self._full_at[bucket], seconds = take_token(full_at, now, rate, burst)
        return seconds
