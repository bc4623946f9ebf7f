"""Names that are like an unknown one, to suggest what was meant."""

import re
from collections.abc import Sequence

MIN_SIMILARITY = 0.6
"""Below it two names are hardly meant for each other."""

_SEPARATORS = re.compile(r"[-_.\s/]+")


class SimilarNames:
    """Ranks a set of names; made once for many unknown ones, because to make it takes longer than to rank."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = list(names)
        self._compared = [_normalize(name) for name in self.names]

    def rank(self, name: str, limit: int) -> list[tuple[str, float]]:
        """Returns the names that are most like an unknown one, and how much from 0 to 1, best first."""
        from rapidfuzz import fuzz, process  # 30 ms to import, needed only where a name is wrong

        found = process.extract(_normalize(name), self._compared, scorer=fuzz.ratio, limit=limit)
        return [(self.names[index], score / 100) for _, score, index in found]


def _normalize(name: str) -> str:
    """Returns a name without case and separators, and each of its words without the s of a plural."""
    words = _SEPARATORS.split(name.casefold())
    return " ".join(word.removesuffix("s") for word in words)
