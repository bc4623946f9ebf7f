"""Words of names and of prose, in one form each."""

import re
from functools import lru_cache

WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")

_ENDINGS = (
    *("ations", "ation", "ators", "ator", "ating", "ates", "ated", "ate"),
    *("ings", "ing", "ers", "ies", "ied", "er", "ed", "es", "s", "e", "y"),
)
_VOWEL = re.compile("[aeiouy]")
_IDLE = frozenset(
    WORD.findall(
        "about all an and any are as at be by can code do does for from get how if in into is it its me my not of on "
        "or our please should so some that the their them there they this to use used using want was we what when "
        "where which who why will with work works you"
    )
)
_ERRANDS = frozenset(
    WORD.findall("add allow change fix implement improve introduce make new remove rename support update write")
)
_ERRAND = 0.4
"""What is to be done counts less than what it is done to."""


@lru_cache(maxsize=50_000)
def stem(word: str) -> str:
    """One form for the forms of a word: frame, frames and framing are `fram`."""
    word = word.lower()
    for ending in _ENDINGS:
        rest = word.removesuffix(ending)
        if rest != word and len(rest) >= 3 and _VOWEL.search(rest):
            word = rest
            break
    return word[:-1] if len(word) > 3 and word[-1] == word[-2] else word


@lru_cache(maxsize=50_000)
def words(text: str) -> tuple[str, ...]:
    """The words of `HTTPServer`, `http_server` or a sentence, stemmed."""
    return tuple(stem(word) for word in WORD.findall(text) if len(word) > 1)


def wanted(task: str) -> dict[str, float]:
    """The words of a task that say what it is about, stemmed, and how much each counts."""
    said = [word for word in map(str.lower, WORD.findall(task)) if len(word) > 1 and word not in _IDLE]
    return {stem(word): _ERRAND if word in _ERRANDS else 1.0 for word in said}
