"""A keyed set as it is told again and again: deltas, and every so often the whole (SPEC 10a.7, 10a.8)."""

from dataclasses import dataclass

from deltamcp.gcf.keyed.codec import encode_generic_delta, encode_generic_full
from deltamcp.gcf.keyed.delta import diff_generic_sets
from deltamcp.gcf.keyed.model import GenericSet

DEFAULT_REANCHOR_N = 15


@dataclass(frozen=True, slots=True)
class Reanchor:
    """When to tell the whole again: on every n-th turn or, with 0, once the deltas weigh as much as it does."""

    every: int


def fixed_n(n: int = DEFAULT_REANCHOR_N) -> Reanchor:
    """The whole on every n-th turn."""
    if n < 1:
        raise ValueError("a turn is at least the first")
    return Reanchor(n)


def size_guard() -> Reanchor:
    """The whole as soon as the deltas since it last was told, this one included, have as many bytes."""
    return Reanchor(0)


class GenericDeltaSession:
    """Tells one reader what a keyed set is now. Deltas do not name the tool: the full payload before them did."""

    def __init__(self, base: GenericSet, tool: str = "", policy: Reanchor | None = None) -> None:
        self._current = base
        self._tool = tool
        self._policy = policy or fixed_n()
        self._delta_bytes = 0
        self.turn = 0

    def current_full(self) -> str:
        """The whole set as it is now: the first text to send, and the one to repeat if it was lost."""
        return encode_generic_full(self._current, self._tool)

    def next(self, new: GenericSet) -> tuple[str, bool]:
        """The text that tells the reader of `new`, and whether it is the whole."""
        delta = self._encode_delta(new)
        whole = not delta or self._is_full_due(new, delta)
        text = encode_generic_full(new, self._tool) if whole else delta
        self._current, self.turn = new, self.turn + 1
        self._delta_bytes = 0 if whole else self._delta_bytes + len(delta.encode())
        return text, whole

    def _is_full_due(self, new: GenericSet, delta: str) -> bool:
        if self._policy.every:
            return (self.turn + 1) % self._policy.every == 0
        return self._delta_bytes + len(delta.encode()) >= len(encode_generic_full(new, self._tool).encode())

    def _encode_delta(self, new: GenericSet) -> str:
        """Empty where there is none: the set has other fields now."""
        old = self._current
        if (old.key, old.fields, old.name) != (new.key, new.fields, new.name):
            return ""
        return encode_generic_delta(diff_generic_sets(old, new))
