"""Token budgets, and the search for the largest part of a result that fits one."""

from collections.abc import Callable, Iterable, Sequence

from msgspec import Struct

from deltamcp import tokens
from deltamcp.work import Work

DEFAULT_MAX_TOKENS = 20_000
"""The budget of a result where a policy applies and names none: hosts cut results at about 25,000 tokens."""
MIN_MAX_TOKENS = 50
"""The smallest budget that a policy may name; in less, a note and a handle leave no space for data."""
DELTA_MCP_MAX_TOKENS = 500
"""The default of Delta-MCP 0.2, for `compat`."""


_ASCII_PER_STEP, _NON_ASCII_PER_STEP = 8, 2
"""Characters whose tokens are counted in the time of a step, or more."""


class Budget(Struct, frozen=True):
    """How many tokens of a model a text may cost."""

    tokens: int
    model: str | float = "o200k"
    max_chars: int = 1 << 62
    """Texts of more characters do not fit, whatever their tokens."""

    def spend_count(self, text: str, work: Work) -> None:
        """Counts the steps that counting the tokens of a text takes."""
        work.spend(self._steps(text))

    def _steps(self, text: str) -> int:
        if len(text) > self.max_chars:
            return 0
        return len(text) // (_ASCII_PER_STEP if text.isascii() else _NON_ASCII_PER_STEP)

    def cost(self, text: str) -> int:
        """Returns the tokens of a text; for a text over `max_chars`, a number above the budget."""
        if len(text) > self.max_chars:
            return max(self.tokens + 1, self.tokens * len(text) // self.max_chars)
        return tokens.count(text, self.model)

    def cost_of(self, parts: Iterable[str], work: Work) -> int:
        """Returns the tokens of several texts: the larger of joined by line breaks and counted one by one."""
        parts = [part for part in parts if part]
        work.spend(sum(map(self._steps, parts)))
        joined = self.cost("\n".join(parts))
        return joined if joined > self.tokens else max(joined, sum(map(self.cost, parts)))

    def admits(self, parts: Sequence[str], work: Work) -> bool:
        """Returns whether the texts together, by `cost_of`, are within the budget."""
        # The first count loads the vocabulary for a third of a second, which a small text can do without.
        text = "\n".join(filter(None, parts))
        if len(text) <= self.max_chars and tokens.max_count(text, self.model) <= self.tokens:
            return True
        return self.cost_of(parts, work) <= self.tokens


def find_largest(
    upper: int, guess: int, cost: Callable[[int], int], budget: int, grain: int = 1, lower: int = 0
) -> int | None:
    """Returns the largest number from `lower` to `upper` whose cost is within the budget; None where there is none.

    The search starts at `guess` and assumes that costs grow with the number. Where they do not, the number found still
    fits. With a `grain` above 1 the number found may be that much below the largest.
    """
    fits, fails = lower - 1, upper + 1
    at = max(lower, min(guess, upper))
    for step in range(64):
        spent = cost(at)
        if spent <= budget:
            fits = at
        else:
            fails = at
        if fails - fits <= (grain if fits >= lower else 1):
            break
        scaled = at * budget // spent if spent else upper
        # Notes have a fixed cost, which makes scaled guesses too small: the number doubles until one fails.
        at = max(scaled, 2 * at) if fails > upper else scaled if step < 6 else (fits + fails) // 2
        at = max(fits + grain, min(at, fails - grain)) if fails - fits > 2 * grain else (fits + fails) // 2
        at = max(at, lower, fits + 1)
    return fits if fits >= lower else None
