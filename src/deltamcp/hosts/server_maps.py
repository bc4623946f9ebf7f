"""Finds the objects of a host's file whose members are servers."""

from collections.abc import Iterator
from typing import NamedTuple

from deltamcp.values import JSON


class ServerMap(NamedTuple):
    """An object whose members are servers, by name."""

    keys: tuple[str, ...]
    """The names of the members that lead to it."""
    project: str
    """The folder of the project that the servers are for; empty if they are for all."""
    servers: dict[str, JSON]


def find_server_maps(node: JSON, key: str, project: str = "", keys: tuple[str, ...] = ()) -> Iterator[ServerMap]:
    """Yields each object at a dotted key, as `HostFile.key` has them; `*` matches the folder of a project."""
    if not isinstance(node, dict):
        return
    if not key:
        yield ServerMap(keys, project, node)
    head, _, rest = key.partition(".")
    for name, value in node.items():
        if rest and name == key:  # VS Code's settings write a dotted path as one name
            yield from find_server_maps(value, "", project, (*keys, name))
        elif key and head in ("*", name):
            yield from find_server_maps(value, rest, name if head == "*" else project, (*keys, name))
