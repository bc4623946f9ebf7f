"""Excerpts of what a peer sent, for error texts; a large value takes no longer to write than a small one."""

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

MAX_PROBLEMS = 5
"""Problems that are described for one value: a model corrects the first few, and the next call reports the rest."""
EXCERPT_CHARS = 80
MESSAGE_CHARS = 300
"""The characters of what a validator says about a value, which it may repeat."""
_NAME_CHARS = 100
"""The characters of a name inside a path."""
_PATH_CHARS = 300
_MAX_BITS = 4096
"""Larger integers are named, as writing one takes the square of its length."""


def value_excerpt(value: Any) -> str:
    """Returns a value as JSON, cut to `EXCERPT_CHARS` characters."""
    text = ""
    for piece in _pieces(value):
        text += piece
        if len(text) > EXCERPT_CHARS:
            return text[: EXCERPT_CHARS - 1] + "…"
    return text


def path_text(path: Iterable[int | str]) -> str:
    """Returns the place of a value in the arguments, such as `body.items.3`."""
    return cut(".".join(cut(str(part), _NAME_CHARS) for part in path), _PATH_CHARS) or "arguments"


def cut(text: str, limit: int) -> str:
    """Returns a text, cut to so many characters."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _pieces(value: Any) -> Iterator[str]:
    match value:
        case str():
            yield _json(value[: EXCERPT_CHARS + 1])
        case dict():
            yield "{"
            for index, (key, child) in enumerate(value.items()):
                yield f"{',' if index else ''}{_json(str(key)[: EXCERPT_CHARS + 1])}:"
                yield from _pieces(child)
            yield "}"
        case list() | tuple():
            yield "["
            for index, child in enumerate(value):
                yield "," if index else ""
                yield from _pieces(child)
            yield "]"
        case int() if value.bit_length() > _MAX_BITS:
            yield "an integer"
        case None | bool() | int() | float():
            yield _json(value)
        case _:
            yield type(value).__name__


def _json(value: str | float | None) -> str:
    return msgspec.json.encode(value).decode("utf-8", "replace")
