"""What became of every call, and whether that is allowed."""

import dataclasses
from collections import Counter
from typing import Any

MAX_SHOWN = 20


@dataclasses.dataclass
class Ledger:
    """Counts calls by the kind of client and their outcome, and lists what must not happen."""

    outcomes: Counter[tuple[str, str]] = dataclasses.field(default_factory=Counter)
    wrong: list[str] = dataclasses.field(default_factory=list)
    answered: set[str] = dataclasses.field(default_factory=set)
    """The nonces of writes that were answered."""
    open: set[str] = dataclasses.field(default_factory=set)
    """The nonces of writes of which the client was told that they may have been done, or that failed for a client that
    tells nothing."""

    def count(self, client: str, outcome: str) -> None:
        self.outcomes[client, outcome] += 1

    def report(self, client: str, what: str) -> None:
        self.outcomes[client, "wrong"] += 1
        if len(self.wrong) < MAX_SHOWN:
            self.wrong.append(f"{client}: {what}")

    def check_answer(self, client: str, principal: str, nonce: str, answer: Any) -> bool:
        """Whether an answer is for the caller and to the call; it is reported otherwise."""
        if isinstance(answer, dict) and (answer.get("principal"), answer.get("nonce")) == (principal, nonce):
            return True
        self.report(client, f"{principal}'s call {nonce} got {str(answer)[:200]}")
        return False

    def check_effects(self, effects: dict[str, int]) -> None:
        """Compares what was done with what was answered."""
        twice = [nonce for nonce, times in effects.items() if times > 1]
        lost = [nonce for nonce in self.answered if effects.get(nonce, 0) != 1]
        unasked = [nonce for nonce in effects if nonce not in self.answered | self.open]
        for what, nonces in (("executed twice", twice), ("answered but not executed", lost), ("never told", unasked)):
            if nonces:
                self.wrong.append(f"{len(nonces)} writes {what}: {nonces[:3]}")
