"""Where relevance stops: which hits of a ranking are shown, and which of them are weak.

Both measures come from the query and its hits alone, so they hold for any catalogue. The shares were chosen on four of
the seven query sets of the retrieval benchmark and confirmed on the other three.
"""

from collections.abc import Sequence

from deltamcp.catalog.search.index import Hit

_SCORE_SHARE = 0.65
"""The score, relative to the best, that a hit needs if the best has every word of the query; less if it has fewer."""
_WEAK_SHARE = 0.25
"""Score times fit under which a hit is weak: one in ten such hits is right, of the others every second."""


def relevant_hits(hits: Sequence[Hit]) -> list[Hit]:
    """Returns the hits, best first, up to where relevance stops.

    The more of the query the best hit has, the less likely is it that one with a lower score was meant.
    """
    return [hit for hit in hits if hit.score >= _SCORE_SHARE * hits[0].coverage]


def is_weak(hit: Hit) -> bool:
    """Returns whether a hit has so little of the query that it is probably not what was meant."""
    return hit.score * hit.fit < _WEAK_SHARE
