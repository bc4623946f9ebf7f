"""The search for operations: the index brought up to date, an embedder asked where there is one, both blended.

An embedder that fails costs nothing but its part: the search goes on by words, and the log says why.
"""

import asyncio
import inspect
import logging
from collections.abc import Sequence, Set
from itertools import chain, zip_longest

from deltamcp.catalog.catalog import Catalog
from deltamcp.catalog.operation import Operation
from deltamcp.catalog.search import fusion
from deltamcp.catalog.search.fusion import Embedder, Fusion, Vector
from deltamcp.catalog.search.index import SearchIndex
from deltamcp.catalog.signature import is_async
from deltamcp.catalog.view import View

_MAX_INDEXED_ON_LOOP = 100
"""Operations brought into the index while everyone waits, 7 ms; more of them in a thread."""
_WORD_HITS = 50
"""Hits by words that are blended with meaning, for each query."""
_EMBEDDER_BATCH = 256
"""Texts given to the embedder in one call."""
_EMBEDDER_SECONDS = 10.0
"""How long a search waits for the embedder; the vectors of a large catalogue are made on meanwhile."""

logger = logging.getLogger("deltamcp")


class OperationSearch:
    """One catalogue's search."""

    def __init__(self, catalog: Catalog, embedder: Embedder | None, weight: float) -> None:
        self._catalog = catalog
        self._embeddings = _Embeddings(catalog, embedder, weight) if embedder is not None else None
        self._building: asyncio.Future[SearchIndex] | None = None

    async def find(self, view: View, queries: list[str], limit: int, among: Set[str]) -> list[Operation]:
        """The best for each query, best first, of those among which one is sought."""
        vectors = await self._embeddings.embed_queries(queries) if self._embeddings is not None else None
        if self._building is None and self._catalog.unindexed_count > _MAX_INDEXED_ON_LOOP:
            self._building = asyncio.ensure_future(asyncio.to_thread(self._catalog.search_index))
            self._building.add_done_callback(self._finish_build)
        # Shielded: the thread goes on when its first caller leaves, and nobody may look at the index meanwhile.
        while self._building is not None:
            await asyncio.shield(self._building)
        if vectors is None or self._embeddings is None:
            return view.search(queries, limit, among)
        return self._embeddings.search(view, queries, vectors, limit, among)

    def _finish_build(self, _: "asyncio.Future[SearchIndex]") -> None:
        self._building = None


class _Embeddings:
    """Operations as vectors, kept as the catalogue changes."""

    def __init__(self, catalog: Catalog, embedder: Embedder, weight: float) -> None:
        self._catalog = catalog
        self._embedder = embedder
        self._fusion = Fusion(weight)
        self._embedded: set[str] = set()
        self._version = -1
        self._updating: asyncio.Task[None] | None = None

    async def embed_queries(self, queries: list[str]) -> Sequence[Vector] | None:
        """The queries' vectors, once every operation has one; None where the embedder failed or is not done."""
        try:
            async with asyncio.timeout(_EMBEDDER_SECONDS):
                while self._version != self._catalog.version:
                    if self._updating is None or self._updating.done():
                        self._updating = asyncio.create_task(self._update())
                    await asyncio.shield(self._updating)
                return await self._embed(queries)
        except TimeoutError:
            logger.warning("the embedder is not done in %g s, so tools are searched by words only", _EMBEDDER_SECONDS)
        except Exception as error:
            logger.error("the embedder failed, so tools are searched by words only", exc_info=error)
        return None

    def search(
        self, view: View, queries: list[str], vectors: Sequence[Vector], limit: int, among: Set[str]
    ) -> list[Operation]:
        index = self._catalog.search_index()
        hidden = len(index) - len(among)
        ranked = [
            [hit.id for hit in self._fusion.blend(index.search([query], _WORD_HITS, among), vector, limit + hidden)]
            for query, vector in zip(queries, vectors, strict=True)
        ]
        # The best of each query first, then the second of each.
        names = dict.fromkeys(name for name in chain.from_iterable(zip_longest(*ranked)) if name in among)
        return [view.operations[name] for name in names if name in view.operations][:limit]

    async def _update(self) -> None:
        version, operations = self._catalog.version, dict(self._catalog.operations)
        missing = self._fusion.missing_texts({name: _text(operation) for name, operation in operations.items()})
        for start in range(0, len(missing), _EMBEDDER_BATCH):
            part = missing[start : start + _EMBEDDER_BATCH]
            self._fusion.put(part, await self._embed([text for _, text in part]))
        for name in self._embedded - operations.keys():
            self._fusion.drop(name)
        self._embedded, self._version = set(operations), version

    async def _embed(self, texts: list[str]) -> Sequence[Vector]:
        if is_async(self._embedder):
            made = self._embedder(texts)
        else:
            made = await asyncio.to_thread(self._embedder, texts)
        vectors: Sequence[Vector] = await made if inspect.isawaitable(made) else made
        if len(vectors) != len(texts):
            raise ValueError(f"the embedder gave {len(vectors)} vectors for {len(texts)} texts")
        return vectors


def _text(operation: Operation) -> str:
    return fusion.embedding_text(operation.tool, operation.id.rpartition(".")[0])
