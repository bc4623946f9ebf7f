"""Metrics of a server that an operator watches: counters, durations, and what is in progress.

The processes of one server write theirs to files of one folder, so that each of them can tell the sum.
"""

import bisect
import contextlib
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TypeAlias

import msgspec
from msgspec import Struct

BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""The upper bounds of the durations that a histogram counts together, in seconds; one more has the rest."""

Key: TypeAlias = tuple[str, ...]
"""The name of a metric and the values of its labels."""

_ENDED = "ended"
_LOCK = "lock"


class Snapshot(Struct):
    """The values at one moment, of one process or of several."""

    counters: list[tuple[Key, float]] = []
    histograms: list[tuple[Key, list[float]]] = []
    """The `counts` of each `Histogram`."""
    gauges: list[tuple[Key, float]] = []


class Histogram:
    """How many durations there were up to each of `BUCKETS`, and their sum."""

    __slots__ = ("counts",)

    def __init__(self) -> None:
        self.counts: list[float] = [0.0] * (len(BUCKETS) + 2)
        """The numbers of durations between two bounds, the number of the rest, and the sum."""

    def add(self, seconds: float) -> None:
        counts = self.counts
        counts[bisect.bisect_left(BUCKETS, seconds)] += 1
        counts[-1] += seconds


class MetricValues:
    """The values of one process. Only the event loop's thread changes them."""

    def __init__(self, gauges: Callable[[], Mapping[Key, float]]) -> None:
        """`gauges` returns what is in progress now."""
        self._counters: dict[Key, float] = {}
        self._histograms: dict[Key, Histogram] = {}
        self._gauges = gauges

    def add(self, key: Key, amount: float = 1) -> None:
        """Adds to a counter."""
        self._counters[key] = self._counters.get(key, 0) + amount

    def set_counter(self, key: Key, count: float) -> None:
        """Sets a counter that something else counts."""
        self._counters[key] = count

    def histogram(self, key: Key) -> "Histogram":
        """Returns the histogram of this key."""
        return self._histograms.setdefault(key, Histogram())

    def snapshot(self) -> Snapshot:
        histograms = [(key, [*histogram.counts]) for key, histogram in self._histograms.items()]
        return Snapshot(list(self._counters.items()), histograms, list(self._gauges().items()))


def total(snapshots: Iterator[Snapshot]) -> Snapshot:
    """Returns the sum of several snapshots."""
    counters: dict[Key, float] = {}
    histograms: dict[Key, list[float]] = {}
    gauges: dict[Key, float] = {}
    for snapshot in snapshots:
        for key, count in snapshot.counters:
            counters[key] = counters.get(key, 0) + count
        for key, counts in snapshot.histograms:
            before = histograms.get(key)
            histograms[key] = (
                counts if before is None else [one + other for one, other in zip(before, counts, strict=True)]
            )
        for key, gauge in snapshot.gauges:
            gauges[key] = gauges.get(key, 0) + gauge
    return Snapshot(list(counters.items()), list(histograms.items()), list(gauges.items()))


class MetricFolder:
    """The folder in which the processes of one server keep their snapshots."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def write(self, snapshot: Snapshot) -> None:
        """Stores the snapshot of this process in place of its last one."""
        self._replace(str(os.getpid()), snapshot)

    def read_total(self) -> Snapshot:
        """Returns the sum of the snapshots of all processes, the counts of those that have ended included."""
        with self._lock(exclusive=False):
            return total(_read(file) for file in sorted(self._path.glob("*.json")))

    def fold(self, pid: int) -> None:
        """Adds the counts of a process that has ended to those of others that have. What was in progress is not."""
        file, ended = self._path / f"{pid}.json", self._path / f"{_ENDED}.json"
        with self._lock(exclusive=True):
            if file.exists():
                snapshots = [_read(found) for found in (file, ended) if found.exists()]
                summed = total(iter(snapshots))
                summed.gauges = []
                self._replace(_ENDED, summed)
                file.unlink()

    def _replace(self, name: str, snapshot: Snapshot) -> None:
        # A reader finds the old file or the new one, never a part of it.
        new = self._path / f"{name}.new"
        new.write_bytes(msgspec.json.encode(snapshot))
        new.replace(self._path / f"{name}.json")

    @contextlib.contextmanager
    def _lock(self, *, exclusive: bool) -> Iterator[None]:
        """Keeps `read_total` from counting a process that is folded in twice, or not at all."""
        import fcntl

        with (self._path / _LOCK).open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH)
            yield


def _read(file: Path) -> Snapshot:
    return msgspec.json.decode(file.read_bytes(), type=Snapshot)
