"""Names that are like an unknown one, to suggest what was meant."""

import re
from collections.abc import Sequence

MIN_SIMILARITY = 0.6
"""Below it two names are hardly meant for each other."""

_SEPARATORS = re.compile(r"[-_. /]+")
_PLURAL = re.compile(r"s(?=[ \n]|$)")


class SimilarNames:
    """Ranks a set of names; made once for many unknown ones, because to make it takes longer than to rank."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = list(names)
        self._compared = _normalize("\n".join(self.names)).split("\n")  # at once, which is four times as fast

    def rank(self, name: str, limit: int) -> list[tuple[str, float]]:
        """Returns the names that are most like an unknown one, and how much from 0 to 1, best first."""
        from rapidfuzz import fuzz, process  # 30 ms to import, needed only where a name is wrong

        found = process.extract(_normalize(" ".join(name.split())), self._compared, scorer=fuzz.ratio, limit=limit)
        return [(self.names[index], score / 100) for _, score, index in found]


def _normalize(lines: str) -> str:
    """Returns names, one on each line, without case and separators, and words without the s of a plural."""
    return _PLURAL.sub("", _SEPARATORS.sub(" ", lines.casefold()))
