"""A number of tokens, and the largest part of something that stays within it."""

from collections.abc import Callable, Iterable

from msgspec import Struct

from deltamcp import tokens


class Budget(Struct, frozen=True):
    """Tokens of a model."""

    tokens: int
    model: str | float = "o200k"
    max_chars: int = 1 << 62
    """Characters that are too many, whatever they cost."""

    def cost(self, text: str) -> int:
        """In tokens; what is too long costs more than there is."""
        if len(text) > self.max_chars:
            return max(self.tokens + 1, self.tokens * len(text) // self.max_chars)
        return tokens.count(text, self.model)

    def cost_of(self, parts: Iterable[str]) -> int:
        """Of several texts, whether a host joins them or not."""
        parts = [part for part in parts if part]
        joined = self.cost("\n".join(parts))
        return joined if joined > self.tokens else max(joined, sum(map(self.cost, parts)))

    def admits(self, text: str) -> bool:
        return self.cost(text) <= self.tokens


def find_largest(
    most: int, guess: int, cost: Callable[[int], int], budget: int, grain: int = 1, least: int = 0
) -> int | None:
    """The largest number whose cost is within room; None where not even `least` is.

    Costs are taken to grow with the number. Where they do not, what is found still fits. A `grain` above 1 stops
    the search that much early.
    """
    fits, fails = least - 1, most + 1
    at = max(least, min(guess, most))
    for step in range(64):
        spent = cost(at)
        if spent <= budget:
            fits = at
        else:
            fails = at
        if fails - fits <= (grain if fits >= least else 1):
            break
        scaled = at * budget // spent if spent else most
        # Until something fails, at least twice as much: what is said around the parts makes first guesses too small.
        at = max(scaled, 2 * at) if fails > most else scaled if step < 6 else (fits + fails) // 2
        # A step that does not move is taken by one grain instead.
        at = max(fits + grain, min(at, fails - grain)) if fails - fits > 2 * grain else (fits + fails) // 2
        at = max(at, least, fits + 1)
    return fits if fits >= least else None
