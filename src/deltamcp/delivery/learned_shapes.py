"""What operations were seen to return, by who called them: kept in memory, and written to a file only on request."""

import asyncio
import contextlib
import logging
from collections import OrderedDict
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

import msgspec

from deltamcp.catalog.items.operation import Operation
from deltamcp.errors import UsageError
from deltamcp.results import document
from deltamcp.results.content import ResultData
from deltamcp.results.learned_shape import LearnedShape, learn, tellable_shape
from deltamcp.results.value_shape import ValueShape, shape_of
from deltamcp.runtime.files import read_own_file, replace_own_file
from deltamcp.runtime.threads import Computations
from deltamcp.values import LOCAL, Caller, Principal
from deltamcp.work import Work

_MAX_SHAPES = 1_000
"""Shapes of all callers; the principal who called longest ago loses all of its shapes first."""
_MAX_SHAPES_EACH = 400
_LEARNED_RESULTS = 8
"""The different results of an operation that are looked at; later ones hardly say more, and take time."""
_MAX_RESULT_BYTES = 1024 * 1024
_FORMAT = 1
_MAX_FILE_BYTES = 16 * 1024 * 1024

logger: logging.Logger = logging.getLogger("deltamcp")


class _SeenResults:
    """The results of one operation that were looked at."""

    def __init__(self, shape: LearnedShape | None = None) -> None:
        self.shape = shape
        self.digests: set[int] = set()
        """A result that comes again says nothing new, and its names may be data."""


class LearnedShapes:
    """Remembers what operations return, for each principal apart."""

    def __init__(self, computations: Computations) -> None:
        self._computations = computations
        self._by_owner: OrderedDict[str, OrderedDict[str, _SeenResults]] = OrderedDict()  # the last used one comes last
        self._may_be_told: Callable[[str], bool] = lambda name: True
        self._path: Path | None = None

    def withhold(self, may_be_told: Callable[[str], bool]) -> None:
        """Has names left out that nobody is told, such as values of secrets."""
        self._may_be_told = may_be_told

    def keep(self, path: Path | None) -> None:
        """Reads what the local user's calls taught an earlier process, and writes what they teach this one.

        Args:
            path: The file for it; None to write none from now on.
        """
        if path == self._path:
            return
        self._path = path
        if path is None:
            return
        kept: dict[str, LearnedShape] = {}
        with contextlib.suppress(ValueError, RecursionError):
            version, found = msgspec.json.decode(
                read_own_file(path, _MAX_FILE_BYTES) or b"", type=tuple[int, dict[str, LearnedShape]]
            )
            kept = found if version == _FORMAT else {}
        shapes = self._by_owner.setdefault(LOCAL.owner, OrderedDict())
        for id_, shape in list(kept.items())[:_MAX_SHAPES_EACH]:
            shapes.setdefault(id_, _SeenResults(shape))

    def of(self, principal: Principal) -> Mapping[str, LearnedShape]:
        """Returns what a principal's own calls have taught, by the ids of operations."""
        shapes = self._by_owner.get(principal.owner)
        if not shapes:
            return MappingProxyType({})
        return {id_: seen.shape for id_, seen in shapes.items() if seen.shape is not None}

    async def learn(self, operation: Operation, source: ResultData, caller: Caller) -> None:
        """Learns from a result, unless the operation declares the names of what it returns."""
        data = source.data
        if operation.declares_names or len(data) > _MAX_RESULT_BYTES:
            return
        seen, digest = self._find_or_add(caller.principal, operation.id), hash(data)
        if len(seen.digests) >= _LEARNED_RESULTS or digest in seen.digests:
            return

        def shape(work: Work) -> ValueShape:
            return shape_of(data if isinstance(data, str) else document.decode_counted(data, work), work)

        try:
            found = await self._computations.run(caller.account, shape)
        except UsageError:  # it has too many values
            return
        seen.shape = learn(seen.shape, found, self._may_be_told)
        seen.digests.add(digest)
        if self._path is not None and caller.principal is LOCAL:
            await self._write(self._path)

    def _find_or_add(self, principal: Principal, id_: str) -> _SeenResults:
        owner = principal.owner
        shapes = self._by_owner.setdefault(owner, OrderedDict())
        self._by_owner.move_to_end(owner)
        seen = shapes.get(id_)
        if seen is None:
            seen = shapes[id_] = _SeenResults()
        shapes.move_to_end(id_)
        if len(shapes) > _MAX_SHAPES_EACH:
            shapes.popitem(last=False)
        while len(self._by_owner) > 1 and sum(map(len, self._by_owner.values())) > _MAX_SHAPES:
            self._by_owner.popitem(last=False)
        return seen

    async def _write(self, path: Path) -> None:
        """Writes only what may be told: the file has no name that one result alone had."""
        shapes = {id_: tellable_shape(shape) for id_, shape in self.of(LOCAL).items()}
        content = msgspec.json.encode((_FORMAT, shapes))
        try:
            await asyncio.to_thread(replace_own_file, path, content)
        except OSError as error:
            logger.info("what operations return is not kept: %s", error.strerror)
