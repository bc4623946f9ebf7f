"""Parses and writes paths inside a JSON value: JSON Pointers (RFC 6901), and the dotted paths that models write."""

import re

_DOTTED = re.compile(r"\[(\d+)\]|\.?([^.\[]+)")


def parse_path(path: str) -> list[str]:
    """Parse a path: `/items/3/body`, `items.3.body` and `items[3].body` are the same; the empty path is the root."""
    if not path:
        return []
    if path.startswith("/"):
        return [step.replace("~1", "/").replace("~0", "~") for step in path[1:].split("/")]
    path = path.removeprefix("$")
    return [index or name for index, name in _DOTTED.findall(path)]


def pointer(*names: str | int) -> str:
    """Write the JSON Pointer of a path, from its keys and indexes."""
    return "".join(f"/{str(name).replace('~', '~0').replace('/', '~1')}" for name in names)
