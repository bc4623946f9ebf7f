"""The search for operations: updates the search index, calls the author's embedder, and blends the hits of both.

If the embedder fails, the server searches by words only and logs the reason.
"""

import asyncio
import inspect
import logging
from collections.abc import Hashable, Sequence, Set
from typing import TYPE_CHECKING

from deltamcp.catalog.catalog import Catalog
from deltamcp.catalog.items.function import is_async
from deltamcp.catalog.items.operation import Operation
from deltamcp.catalog.view import FoundOperation, OperationIndex, View
from deltamcp.runtime.process import collection_paused
from deltamcp.runtime.threads import Computations

if TYPE_CHECKING:
    from deltamcp.catalog.search.fusion import Embedder, Vector
    from deltamcp.catalog.search.index import SearchIndex

_MAX_INDEXED_ON_LOOP = 100
"""The number of operations that the event loop indexes, in 7 ms; more than these are indexed in a thread."""
_WORD_HITS = 50
"""The number of hits by words that are blended with hits by meaning, for each query."""
_EMBEDDER_BATCH = 256
"""The number of texts in one call of the embedder."""
_EMBEDDER_SECONDS = 10.0
"""How long a search waits for the embedder, which goes on to embed a large catalog afterwards."""

logger: logging.Logger = logging.getLogger("deltamcp")


class OperationSearch:
    """Searches the operations of one catalog; callers take turns."""

    def __init__(
        self, catalog: Catalog, embedder: "Embedder | None", weight: float, computations: Computations
    ) -> None:
        self._computations = computations
        self._embeddings = _Embeddings(catalog, embedder, weight) if embedder is not None else None
        self._building: dict[OperationIndex, asyncio.Future[SearchIndex]] = {}

    def missing_names(self, view: View, queries: Sequence[str]) -> dict[str, str]:
        """Returns the names in queries that no operation has; none where an embedder finds what has another name."""
        if self._embeddings is not None:
            return {}
        return {query: name for query in queries if (name := view.missing_name(query))}

    async def find(
        self, view: View, queries: list[str], limit: int, names: Set[str], caller: Hashable
    ) -> dict[str, list[FoundOperation]]:
        """Returns for each query up to `limit` operations of `names`, best first, up to where relevance stops."""
        vectors = await self._embeddings.embed_queries(queries) if self._embeddings is not None else None
        index = view.index
        if index not in self._building and index.unindexed_count > _MAX_INDEXED_ON_LOOP:
            building = self._building[index] = asyncio.ensure_future(asyncio.to_thread(_build, index))
            building.add_done_callback(lambda _: self._building.pop(index))
        found: dict[str, list[FoundOperation]] = {}
        for number, query in enumerate(queries):
            await self._computations.take_turn(caller)  # one query takes up to 15 ms, with 10,000 operations
            # Shielded: the thread goes on if this call is cancelled, and no call may read the index meanwhile.
            while index in self._building:
                await asyncio.shield(self._building[index])
                await self._computations.take_turn(caller)
            if vectors is None or self._embeddings is None:
                found[query] = view.search(query, limit, names)
            else:
                found[query] = self._embeddings.search(view, query, vectors[number], limit, names)
        return found


class _Embeddings:
    """The vectors of all operations, updated when the catalog changes."""

    def __init__(self, catalog: Catalog, embedder: "Embedder", weight: float) -> None:
        from deltamcp.catalog.search.fusion import Fusion

        self._catalog = catalog
        self._embedder = embedder
        self._fusion = Fusion(weight)
        self._embedded: set[str] = set()
        self._version = -1
        self._updating: asyncio.Task[None] | None = None

    async def embed_queries(self, queries: list[str]) -> "Sequence[Vector] | None":
        """Returns the queries' vectors when every operation has one; None if the embedder failed or is too slow."""
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

    def search(self, view: View, query: str, vector: "Vector", limit: int, names: Set[str]) -> list[FoundOperation]:
        index = self._catalog.search_index()
        hidden = len(index) - len(names)
        ranked = self._fusion.blend(index.search(query, _WORD_HITS, names), vector, limit + hidden)
        return view.found_operations([hit for hit in ranked if hit.id in names][:limit])

    async def _update(self) -> None:
        version, operations = self._catalog.version, dict(self._catalog.operations)
        missing = self._fusion.missing_texts({name: _text(operation) for name, operation in operations.items()})
        for start in range(0, len(missing), _EMBEDDER_BATCH):
            part = missing[start : start + _EMBEDDER_BATCH]
            self._fusion.put(part, await self._embed([text for _, text in part]))
        for name in self._embedded - operations.keys():
            self._fusion.drop(name)
        self._embedded, self._version = set(operations), version

    async def _embed(self, texts: list[str]) -> "Sequence[Vector]":
        if is_async(self._embedder):
            returned = self._embedder(texts)
        else:
            returned = await asyncio.to_thread(self._embedder, texts)
        vectors: Sequence[Vector] = await returned if inspect.isawaitable(returned) else returned
        if len(vectors) != len(texts):
            raise ValueError(f"the embedder returned {len(vectors)} vectors for {len(texts)} texts")
        return vectors


def _build(index: OperationIndex) -> "SearchIndex":
    with collection_paused():
        return index.search_index()


def _text(operation: Operation) -> str:
    from deltamcp.catalog.search.fusion import embedding_text

    return embedding_text(operation.tool, operation.id.rpartition(".")[0])
