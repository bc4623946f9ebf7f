"""The search with an embedder: vectors of what is new are fetched first, then words and meaning are blended.

An embedder that fails costs nothing but its part: the search goes on by words, and the log says why.
"""

import asyncio
import inspect
import logging
from collections.abc import Collection, Sequence
from itertools import chain, zip_longest

from deltamcp.catalog.catalog import Catalog
from deltamcp.catalog.operation import Operation
from deltamcp.catalog.search import fusion
from deltamcp.catalog.search.fusion import Embedder, Fusion, Vector
from deltamcp.catalog.view import View

_WORD_HITS = 50
"""Hits by words that are blended with meaning, for each query."""
_AT_ONCE = 256
"""Texts given to the embedder in one call."""

logger = logging.getLogger("deltamcp")


class EmbeddedSearch:
    """One catalogue's operations as vectors, kept as the catalogue changes."""

    def __init__(self, catalog: Catalog, embedder: Embedder, weight: float) -> None:
        self._catalog = catalog
        self._embedder = embedder
        self._fusion = Fusion(weight)
        self._embedded: set[str] = set()
        self._version = -1
        self._updating = asyncio.Lock()

    async def search(self, view: View, queries: list[str], limit: int, among: Collection[str]) -> list[Operation]:
        """As a view searches."""
        try:
            async with self._updating:
                await self._update()
            vectors = await self._embed(queries)
        except Exception as error:
            logger.error("the embedder failed, so tools are searched by words only", exc_info=error)
            return view.search(queries, limit, among)
        index = self._catalog.index()
        hidden = len(index) - len(among)
        ranked = [
            [hit.id for hit in self._fusion.blend(index.search([query], _WORD_HITS), vector, limit + hidden)]
            for query, vector in zip(queries, vectors, strict=True)
        ]
        # The best of each query first, then the second of each.
        names = dict.fromkeys(name for name in chain.from_iterable(zip_longest(*ranked)) if name in among)
        return [view.operations[name] for name in names][:limit]

    async def _update(self) -> None:
        if self._version == self._catalog.version:
            return
        version, operations = self._catalog.version, dict(self._catalog.operations)
        missing = self._fusion.missing({name: _text(operation) for name, operation in operations.items()})
        for start in range(0, len(missing), _AT_ONCE):
            part = missing[start : start + _AT_ONCE]
            self._fusion.put(part, await self._embed([text for _, text in part]))
        for name in self._embedded - operations.keys():
            self._fusion.drop(name)
        self._embedded, self._version = set(operations), version

    async def _embed(self, texts: list[str]) -> Sequence[Vector]:
        if inspect.iscoroutinefunction(self._embedder):
            vectors: Sequence[Vector] = await self._embedder(texts)
            return vectors
        made = await asyncio.to_thread(self._embedder, texts)
        return await made if inspect.isawaitable(made) else made


def _text(operation: Operation) -> str:
    return fusion.text(operation.tool, operation.id.rpartition(".")[0])
