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


def mount_chain(item: Item, hooks: ServerHooks) -> Iterator[Origin]:
    """Yields the item as each server on the way to its own has it, with that server's hooks; the outermost first."""
    origin: object | None = Origin(item, hooks)
    while isinstance(origin, Origin):
        yield origin
        origin = origin.item.origin
