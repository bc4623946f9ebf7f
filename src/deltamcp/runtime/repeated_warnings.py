"""Warnings that come again and again: told when they are new, then ever more seldom, with their number."""

import re
from collections import Counter

_VARYING = re.compile(r"\d+")
_MAX_TEXTS = 100


class RepeatedWarnings:
    """Counts the warnings about one thing since it was well. Those that differ in numbers only are the same."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    @property
    def count(self) -> int:
        return self._counts.total()

    def add(self, text: str) -> str | None:
        """Returns what is logged of a warning: itself, with its number the 2nd, the 4th, the 8th time; else None."""
        kind = _VARYING.sub("0", text)
        if len(self._counts) >= _MAX_TEXTS and kind not in self._counts:
            kind = ""
        self._counts[kind] += 1
        times = self._counts[kind]
        if times & (times - 1):
            return None
        return text if times == 1 else f"{text} ({times} times)"

    def clear(self) -> None:
        """Begins anew: the thing is well."""
        self._counts.clear()
