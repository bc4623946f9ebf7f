"""The rule of the threat model, and what was measured of one attack on one server or client."""

import dataclasses
from typing import Any

MAX_WAIT_MS = 100.0
MAX_GROWTH_MB = 64.0
ATTEMPTS = 3
"""How often an attack on ours is made that breaks the rule, since what else the machine does is in the figures too."""


@dataclasses.dataclass
class Measured:
    """One attack on one program. None stands for what this attack does not concern, or what could not be measured."""

    waited_ms: float | None = None
    """The longest wait of another caller, less what its request usually takes on the same server without an attack."""
    baseline_ms: float | None = None
    """The longest wait of the same caller before the attack, less the same."""
    grown_mb: float | None = None
    """The largest size of the process during the attack, less its size before."""
    retained_mb: float | None = None
    """The size of the process after the attack and a rest, less its size before."""
    expired_mb: float | None = None
    """The same where everything that was stored lives for two seconds, and these have passed."""
    stored_mb: float = 0.0
    """The stored data that the attack made or refers to, which may stay."""
    answered: str = ""
    """What the attacker was answered."""
    broken: str = ""
    """What else went wrong, as a sentence: a reply that did not arrive, another caller's data that is gone."""
    timed_out: bool = False
    """Whether the attack was ended before it was over, so that the wait is at least the figure."""
    attempts: int = 1

    def breaches(self) -> list[str]:
        """Says how the rule is broken; nothing if it holds."""
        found = []
        if self.waited_ms is not None and self.waited_ms > MAX_WAIT_MS:
            found.append(f"others waited {format_wait(self)}")
        most = MAX_GROWTH_MB + self.stored_mb
        if self.grown_mb is not None and self.grown_mb > most:
            found.append(f"memory grew by {self.grown_mb:,.0f} MB")
        if self.retained_mb is not None and self.retained_mb > most:
            found.append(f"{self.retained_mb:,.0f} MB stayed")
        if self.expired_mb is not None and self.expired_mb > MAX_GROWTH_MB:
            found.append(f"{self.expired_mb:,.0f} MB stayed after all lifetimes")
        if self.broken:
            found.append(self.broken)
        return found

    @property
    def is_doubtful(self) -> bool:
        """Whether the rule is broken by so little that the rest of the machine may have done it."""
        most = 2 * (MAX_GROWTH_MB + self.stored_mb)
        figures = [((self.waited_ms or 0) / 10, MAX_WAIT_MS), (self.grown_mb or 0, most), (self.expired_mb or 0, most)]
        return bool(self.breaches()) and not self.timed_out and all(figure <= limit for figure, limit in figures)

    def as_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


def best_of(attempts: list[Measured]) -> Measured:
    """The attempt during which the machine did least else: each figure is the least of those measured.

    What an attack costs is in every attempt; what others on the machine cost is not.
    """
    best = dataclasses.replace(attempts[-1], attempts=len(attempts))
    for name in ("waited_ms", "baseline_ms", "grown_mb", "retained_mb", "expired_mb"):
        known = [figure for one in attempts if (figure := getattr(one, name)) is not None]
        setattr(best, name, min(known, default=None))
    best.timed_out = all(one.timed_out for one in attempts)
    best.broken = next((one.broken for one in attempts), "") if all(one.broken for one in attempts) else ""
    return best


def format_wait(measured: Measured) -> str:
    if measured.waited_ms is None:
        return "-"
    more = "> " if measured.timed_out and measured.waited_ms > MAX_WAIT_MS else ""
    if measured.waited_ms >= 1_000:
        return f"{more}{measured.waited_ms / 1_000:,.1f} s"
    return f"{more}{measured.waited_ms:,.0f} ms"


def format_megabytes(megabytes: float | None) -> str:
    return "-" if megabytes is None else f"{max(0.0, megabytes):,.0f} MB"
