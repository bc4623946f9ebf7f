"""Session that encodes the states of a keyed set for one reader, as deltas or in full (SPEC 10a.7, 10a.8)."""

from dataclasses import dataclass

from deltamcp.gcf.keyed.codec import encode_generic_delta, encode_generic_full
from deltamcp.gcf.keyed.delta import diff_generic_sets
from deltamcp.gcf.keyed.model import GenericSet

DEFAULT_REANCHOR_N = 15


@dataclass(frozen=True, slots=True)
class Reanchor:
    """When to send the full set again: on every n-th turn or, with 0, once the deltas have as many bytes."""

    every: int


def fixed_n(n: int = DEFAULT_REANCHOR_N) -> Reanchor:
    """Send the full set on every n-th turn."""
    if n < 1:
        raise ValueError("n is at least 1")
    return Reanchor(n)


def size_guard() -> Reanchor:
    """Send the full set once the deltas since the last full set, the next one included, have as many bytes."""
    return Reanchor(0)


class GenericDeltaSession:
    """Encodes the states of a keyed set for one reader. Only full sets name the tool; deltas do not repeat it."""

    def __init__(self, base: GenericSet, tool: str = "", policy: Reanchor | None = None) -> None:
        self._current = base
        self._tool = tool
        self._policy = policy or fixed_n()
        self._delta_bytes = 0
        self.turn = 0

    def current_full(self) -> str:
        """Return the full text of the current set: the first text to send, and the one to send if a text was lost."""
        return encode_generic_full(self._current, self._tool)

    def next(self, new: GenericSet) -> tuple[str, bool]:
        """Return the text that brings the reader to `new`, and whether it is a full set."""
        delta = self._encode_delta(new)
        full = not delta or self._is_full_due(new, delta)
        text = encode_generic_full(new, self._tool) if full else delta
        self._current, self.turn = new, self.turn + 1
        self._delta_bytes = 0 if full else self._delta_bytes + len(delta.encode())
        return text, full

    def _is_full_due(self, new: GenericSet, delta: str) -> bool:
        if self._policy.every:
            return (self.turn + 1) % self._policy.every == 0
        return self._delta_bytes + len(delta.encode()) >= len(encode_generic_full(new, self._tool).encode())

    def _encode_delta(self, new: GenericSet) -> str:
        """Return the delta to `new`; "" if there is none, because the set has another key, name or fields now."""
        old = self._current
        if (old.key, old.fields, old.name) != (new.key, new.fields, new.name):
            return ""
        return encode_generic_delta(diff_generic_sets(old, new))
