"""Parses and writes paths inside a JSON value: JSON Pointers (RFC 6901), and the dotted paths that models write."""

import re

from deltamcp.errors import UsageError

_MAX_CHARS = 10_000
"""The longest path; a result is nested at most some hundred levels deep."""
_DOTTED = re.compile(r"\[(\d+)\]|\.?([^.\[]+)")


def parse_path(path: str) -> list[str]:
    """Parse a path: `/items/3/body`, `items.3.body` and `items[3].body` are the same; the empty path is the root.

    Raises:
        UsageError: the path is too long.
    """
    if len(path) > _MAX_CHARS:
        raise UsageError(f"path may have at most {_MAX_CHARS:,} characters.")
    if not path:
        return []
    if path.startswith("/"):
        return [step.replace("~1", "/").replace("~0", "~") for step in path[1:].split("/")]
    path = path.removeprefix("$")
    return [index or name for index, name in _DOTTED.findall(path)]


def pointer(*names: str | int) -> str:
    """Write the JSON Pointer of a path, from its keys and indexes."""
    return "".join(f"/{str(name).replace('~', '~0').replace('/', '~1')}" for name in names)
