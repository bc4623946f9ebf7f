"""The operations that exist and that a caller may not call, because it lacks their scopes."""

import functools
from collections.abc import Iterable, Mapping

from deltamcp.catalog.operation import Operation
from deltamcp.errors import MissingScopesError


class WithheldOperations:
    """Says which scopes a caller lacks for the operations that it names."""

    def __init__(self, operations: Mapping[str, Operation], granted: frozenset[str]) -> None:
        """`operations` by their names; `granted`: the scopes that the caller has."""
        self._operations = operations
        self.granted = granted

    def __bool__(self) -> bool:
        return bool(self._operations)

    @functools.cached_property
    def _by_id(self) -> dict[str, Operation]:
        return {operation.id: operation for operation in self._operations.values()}

    def find(self, name: str) -> Operation | None:
        """Finds an operation by id, with dots or slashes, or by tool name."""
        if not self._operations:
            return None
        return self._operations.get(name) or self._by_id.get(name) or self._by_id.get(name.replace("/", "."))

    def check(self, names: Iterable[str]) -> None:
        """
        Raises:
            MissingScopesError: at least one of the names is that of an operation here; it has what all of them need.
        """
        if not self._operations:
            return
        named = [operation for operation in map(self.find, names) if operation is not None]
        if named:
            needed = frozenset().union(*(operation.scopes for operation in named))
            raise MissingScopesError(", ".join(operation.id for operation in named), needed - self.granted)
