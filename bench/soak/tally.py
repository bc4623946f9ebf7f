"""What the peers of a soak met: outcomes by kind, and how long calls took."""

import statistics
import time
from collections import Counter


class Tally:
    """Counts outcomes of behaviours, and stores the times of the calls whose latency is judged."""

    def __init__(self) -> None:
        self.outcomes: Counter[tuple[str, str]] = Counter()
        self.unexpected: Counter[str] = Counter()
        self.latencies: list[tuple[float, float]] = []
        """When a call ended, and how long it took, in seconds."""

    def count(self, behaviour: str, outcome: str) -> None:
        self.outcomes[behaviour, outcome] += 1

    def surprise(self, behaviour: str, what: str) -> None:
        self.unexpected[f"{behaviour}: {what[:200]}"] += 1

    def took(self, seconds: float) -> None:
        self.latencies.append((time.monotonic(), seconds))

    def percentiles(self, since: float, until: float) -> tuple[float, float]:
        """The median and the 99th percentile, in milliseconds, of the calls that ended in a span of time."""
        found = sorted(seconds * 1e3 for ended, seconds in self.latencies if since <= ended < until)
        if not found:
            return 0.0, 0.0
        return statistics.median(found), found[min(len(found) - 1, int(len(found) * 0.99))]
