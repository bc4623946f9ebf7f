"""The hooks of a server: what its author runs with or around its functions, also where the server is mounted."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from deltamcp.calls.middleware import Middleware
from deltamcp.calls.observers import CallObserver
from deltamcp.catalog.completer import Completer
from deltamcp.catalog.operation import Operation
from deltamcp.catalog.prompt import Prompt
from deltamcp.catalog.resource import Resource
from deltamcp.runtime.lifespan import ServerLifespan

Item = Operation | Resource | Prompt | Completer
"""An item of the catalogue that has an author's function."""


class ServerHooks(NamedTuple):
    """A server's lifespan, and what its author wants around calls of its functions."""

    lifespan: ServerLifespan
    middleware: Sequence[Middleware]
    observers: Sequence[CallObserver]


class Origin(NamedTuple):
    """Where a mounted item comes from: the item of the mounted server, and that server's hooks."""

    item: Item
    hooks: ServerHooks


def levels(item: Item, hooks: ServerHooks) -> Iterator[Origin]:
    """Returns the item as each server has it that it is mounted in, outermost first."""
    level: Origin | None = Origin(item, hooks)
    while level is not None:
        yield level
        level = level.item.origin
