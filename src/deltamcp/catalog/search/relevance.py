"""Where relevance stops: which hits of a ranking are shown, and which of them are weak.

Both measures come from the query and its hits alone, so they hold for any catalogue. The shares were chosen on four of
the seven query sets of the retrieval benchmark; on the other three what is shown loses at most 0.4 points of recall.
"""

from collections.abc import Sequence

from deltamcp.catalog.search.index import Hit

_SCORE_SHARE = 0.65
"""The score, relative to the best, that a hit needs if the best has every word of the query; less if it has fewer."""
_NAMED_COVERAGE = 0.9
"""The coverage that other hits need where the query is the name of the best."""
_WEAK_SHARE = 0.1
"""Score times fit under which a hit is weak: 3 to 19 % of such hits are right in those sets, of others 23 to 68 %."""


def relevant_hits(hits: Sequence[Hit]) -> list[Hit]:
    """Returns the hits, best first, up to where relevance stops.

    The more of the query the best hit has, the less likely is it that one with a lower score was meant. Where the query
    is a name, only tools are shown that have its words as well.
    """
    if not hits:
        return []
    best = hits[0]
    min_score = _SCORE_SHARE * best.coverage
    min_coverage = _NAMED_COVERAGE if best.is_named and best.coverage == 1 else 0.0
    return [hit for hit in hits if hit.score >= min_score and hit.coverage >= min_coverage]


def is_weak(hit: Hit) -> bool:
    """Returns whether a hit has so little of the query that it is probably not what was meant."""
    return hit.score * hit.fit < _WEAK_SHARE
