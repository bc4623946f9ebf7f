"""HTML as values: elements whose texts are escaped, so that no text of a server can become markup. Pure: does no I/O.

Hidden characters, such as those of ANSI and those that reorder text, are written as escapes that a reader sees.
"""

import html
from collections.abc import Iterable, Iterator
from typing import TypeAlias, Union

from deltamcp.catalog.text.clean_text import visible


class Html(str):
    """A text that is HTML already."""

    __slots__ = ()


Child: TypeAlias = Union[str, int, float, Html, Iterable["Child"], None]  # noqa: UP007 - it names itself
"""What an element may contain; a plain text is escaped, and None is nothing."""
_VOID = frozenset({"br", "hr", "input", "link", "meta"})


def escape(text: str) -> Html:
    """Returns a text as HTML, which shows what of it would be hidden."""
    return Html(html.escape(visible(text)))


def element(name: str, /, *children: Child, **attributes: str | int | bool | None) -> Html:
    """Returns an element. An underscore at the end of an attribute's name is left out, others are hyphens.

    An attribute that is True has no value, and one that is False or None is not there.
    """
    parts = [f"<{name}"]
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        written = key.rstrip("_").replace("_", "-")
        parts.append(f" {written}" if value is True else f' {written}="{html.escape(visible(str(value)))}"')
    parts.append(">")
    if name not in _VOID:
        parts += _children(children)
        parts.append(f"</{name}>")
    return Html("".join(parts))


def join(*children: Child) -> Html:
    """Returns children without an element around them."""
    return Html("".join(_children(children)))


def _children(children: Iterable[Child]) -> Iterator[str]:
    for child in children:
        if child is None:
            continue
        if isinstance(child, Html):
            yield child
        elif isinstance(child, str):
            yield escape(child)
        elif isinstance(child, int | float):
            yield str(child)
        else:
            yield from _children(child)
