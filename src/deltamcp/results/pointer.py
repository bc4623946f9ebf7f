"""A place inside a JSON value: a JSON Pointer (RFC 6901), or the dotted path models like to write."""

import re

_DOTTED = re.compile(r"\[(\d+)\]|\.?([^.\[]+)")


def parse_path(path: str) -> list[str]:
    """`/items/3/body`, `items.3.body` and `items[3].body` are the same place; the empty path is the whole."""
    if not path:
        return []
    if path.startswith("/"):
        return [step.replace("~1", "/").replace("~0", "~") for step in path[1:].split("/")]
    path = path.removeprefix("$")
    return [index or name for index, name in _DOTTED.findall(path)]


def pointer(*names: str | int) -> str:
    """The JSON Pointer of names one below the other."""
    return "".join(f"/{str(name).replace('~', '~0').replace('/', '~1')}" for name in names)
