"""What a server did about a fault, how good that is, and when ours is at least as good as the better peer."""

import dataclasses
import enum
from collections.abc import Iterable
from typing import Any

from bench.peers import OURS


class Grade(enum.IntEnum):
    """How good an outcome is; each fault says which outcome has which grade."""

    HARMED = 0
    """Somebody is harmed: a client that waits for ever, a lost or changed value, other callers, the process."""
    SAFE = 1
    """Nobody is harmed, but the client is not told what it needs, or not in the protocol's words."""
    RIGHT = 2
    """What the protocol or good sense asks for."""


@dataclasses.dataclass(frozen=True)
class Outcome:
    grade: Grade
    text: str
    """A few words, for the table."""

    def as_json(self) -> dict[str, Any]:
        return {"grade": self.grade.name.lower(), "text": self.text}


def right(text: str) -> Outcome:
    return Outcome(Grade.RIGHT, text)


def safe(text: str) -> Outcome:
    return Outcome(Grade.SAFE, text)


def harmed(text: str) -> Outcome:
    return Outcome(Grade.HARMED, text)


def worst(outcomes: Iterable[Outcome]) -> Outcome:
    """The outcomes of several faults as one: the lowest grade, and every different text."""
    found = list(outcomes)
    return Outcome(min(one.grade for one in found), " · ".join(one.text for one in found))


def shortfall(outcomes: dict[str, Outcome]) -> str:
    """How ours falls short of the better peer; empty if it does not."""
    ours = outcomes[OURS]
    better = max((one for name, one in outcomes.items() if name != OURS), key=lambda one: one.grade, default=None)
    if better is None:
        return "" if ours.grade is Grade.RIGHT else f"{ours.text} is {ours.grade.name.lower()}"
    return "" if ours.grade >= better.grade else f"{ours.text}, where a peer does better: {better.text}"
