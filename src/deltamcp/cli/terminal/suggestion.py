"""Suggests names that are similar to one that does not exist."""

from collections.abc import Iterable

_MAX_SUGGESTIONS = 3
_MIN_SCORE = 65


def suggest(name: str, names: Iterable[str], prefix: str = "") -> str:
    """Returns the end of a sentence: `; did you mean ...?`, or a full stop if no name is similar.

    Args:
        prefix: what stands before every name, such as the dashes of options, which would make all names similar.
    """
    from rapidfuzz import process  # 30 ms to import, needed only where a name is wrong

    extracted = process.extract(name, list(names), limit=_MAX_SUGGESTIONS, score_cutoff=_MIN_SCORE)
    return f"; did you mean {' or '.join(prefix + match for match, *_ in extracted)}?" if extracted else "."
