"""Search by embeddings: stores the vectors of tools, and blends hits by words and by vectors into one ranking.

This module does not call the embedder. The caller gets the texts without a vector from `missing_texts`, embeds them,
adds the vectors with `put`, and passes the query's vector to `blend`.
"""

import math
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from hashlib import blake2b
from operator import mul
from typing import Any, TypeAlias

from deltamcp.catalog.search.index import Hit
from deltamcp.values import JSON

Vector: TypeAlias = Sequence[float]
Embedder: TypeAlias = Callable[[list[str]], Sequence[Vector] | Awaitable[Sequence[Vector]]]
"""Embeds texts of tools and of queries: returns vectors of one length in the same order; may be async."""

EMBEDDING_TEXT_CHARS = 1000
"""Characters that are embedded; sentence models read some 250 tokens and ignore the rest."""

_NEARNESS_SHARE = 0.5
"""The weight of nearness in the fit: the nearest of many tools is a quarter of the way near, whatever the query."""


def embedding_text(tool: Mapping[str, JSON], group: str = "") -> str:
    """Returns the text to embed for a tool."""
    texts = (tool.get("title"), tool.get("description"))
    return " ".join([group, str(tool.get("name", "")), *(part for part in texts if isinstance(part, str))])[
        :EMBEDDING_TEXT_CHARS
    ]


class Fusion:
    """Stores a vector for each tool, and blends similarity to a query with hits by words."""

    def __init__(self, weight: float = 0.7) -> None:
        """
        Args:
            weight: The weight of the embedding; the rest is the weight of words. 0.7 suits sentence models, 0.5 static
                word vectors.
        """
        self.weight = weight
        self._digests: dict[str, bytes] = {}
        self._vectors: dict[str, list[float]] = {}
        self._matrix: Any = None
        """The vectors as a numpy array; None after a change, and where numpy is not installed."""

    def __len__(self) -> int:
        return len(self._vectors)

    def missing_texts(self, texts: Mapping[str, str]) -> list[tuple[str, str]]:
        """Returns the texts, given by id, that are new or differ from the embedded ones."""
        return [(tool_id, text) for tool_id, text in texts.items() if self._digests.get(tool_id) != _digest(text)]

    def put(self, texts: Sequence[tuple[str, str]], vectors: Sequence[Vector]) -> None:
        """Stores the vectors of missing texts.

        Raises:
            ValueError: the embedder returned too few or too many vectors, or vectors of different lengths.
        """
        lengths = {len(vector) for vector in (*vectors, *list(self._vectors.values())[:1])}
        if len(texts) != len(vectors) or len(lengths) > 1:
            raise ValueError(f"{len(texts)} texts gave {len(vectors)} vectors of the lengths {sorted(lengths)}.")
        for (tool_id, text), vector in zip(texts, vectors, strict=True):
            self._digests[tool_id] = _digest(text)
            self._vectors[tool_id] = _unit_vector(vector)
        self._matrix = None

    def drop(self, id: str) -> None:
        """Removes a tool's vector, if there is one."""
        self._digests.pop(id, None)
        if self._vectors.pop(id, None) is not None:
            self._matrix = None

    def blend(self, hits: Sequence[Hit], query: Vector, limit: int = 5) -> list[Hit]:
        """Blends the hits of one query by words with those by its vector into one ranking, best first.

        Similarities are scaled to 0..1 between the farthest and the nearest tool, as scores by words are. Tools that
        the query names stay first. Callers pass more hits than `limit`, so that the hits include tools that score well
        in both.
        """
        by_words = {hit.id: hit for hit in hits}
        similarities = self._similarities(_unit_vector(query))
        scaled = _normalize(similarities)
        scores = {tool_id: (1 - self.weight) * hit.score for tool_id, hit in by_words.items()}
        for tool_id, similarity in scaled.items():
            scores[tool_id] = scores.get(tool_id, 0.0) + self.weight * similarity
        top = max(scores.values(), default=0.0) or 1.0
        named = {hit.id: rank for rank, hit in enumerate(hits) if hit.is_named}
        ranked = sorted(scores, key=lambda tool_id: (named.get(tool_id, len(hits)), -scores[tool_id], tool_id))
        average = sum(similarities.values()) / (len(similarities) or 1)
        blended: list[Hit] = []
        for tool_id in ranked[: max(limit, 0)]:
            hit = by_words.get(tool_id) or Hit(tool_id, 0.0, 0.0, 0.0)
            nearness = _nearness(similarities.get(tool_id, average), average)
            score = 1.0 if hit.is_named else scores[tool_id] / top
            blended.append(hit._replace(score=score, fit=max(hit.fit, _NEARNESS_SHARE * nearness)))
        return blended

    def _similarities(self, query: list[float]) -> dict[str, float]:
        """Returns the cosine similarity of each tool to the query."""
        if not self._vectors:
            return {}
        try:
            import numpy  # 60 ms to import, and not everyone has it
        except ImportError:  # 12 µs a vector of 384 in plain Python: 120 ms for 10,000 tools
            return {tool_id: sum(map(mul, vector, query)) for tool_id, vector in self._vectors.items()}
        if self._matrix is None:
            self._matrix = numpy.array(list(self._vectors.values()), dtype=numpy.float32)
        return dict(zip(self._vectors, (self._matrix @ numpy.array(query, dtype=numpy.float32)).tolist(), strict=True))


def _digest(text: str) -> bytes:
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def _unit_vector(vector: Iterable[float]) -> list[float]:
    values = [float(value) for value in vector]
    length = math.sqrt(sum(value * value for value in values))
    return [value / length for value in values] if length else values


def _normalize(values: dict[str, float]) -> dict[str, float]:
    low, high = min(values.values(), default=0.0), max(values.values(), default=0.0)
    width = high - low
    return {tool_id: (value - low) / width if width else 1.0 for tool_id, value in values.items()}


def _nearness(similarity: float, average: float) -> float:
    """Returns how much of the way from the average tool to a tool that says the same a tool is.

    Models differ in the similarity of any two texts, so the similarity alone does not tell whether texts are near.
    """
    return max(0.0, (similarity - average) / (1 - average)) if average < 1 else 0.0
