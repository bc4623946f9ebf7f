"""Texts of others: without characters that hide or reorder what a reader sees, and as excerpts for error texts.

Hidden are control characters, ANSI's escape among them; marks that reorder text (UAX #9); characters without width,
with which a text carries words that nobody sees; joiners and variation selectors where they join or vary nothing.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec

from deltamcp.values import JSON

HIDDEN_CLASS = (
    "\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f"
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f"
    "\u3164\ud800-\udfff\ufeff\uffa0\ufff0-\ufffb"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
"""The characters, as a class of regular expressions, that no text needs. Tabs and ends of lines are not among them."""
_HIDDEN = re.compile(f"[{HIDDEN_CLASS}]+")
_SEPARATOR = re.compile("\r\n?|[\u2028\u2029]")
_LINE_ENDS = {ord("\n"): "\\n", ord("\r"): "\\r", ord("\t"): "\\t"}
_MODIFIERS = re.compile("[\u200c\u200d\ufe00-\ufe0f]+")
"""Joiners and variation selectors, which scripts and emoji need."""
_JOINERS = "\u200c\u200d"
_KEYCAPS = "0123456789#*"
"""The ASCII characters that a variation selector makes an emoji of."""


def clean(text: str) -> str:
    """Removes hidden characters; whatever else ends a line or a paragraph becomes a line feed."""
    if text.isascii() and text.isprintable():
        return text
    return _modify(_HIDDEN.sub("", _SEPARATOR.sub("\n", text)), lambda removed: "")


def visible(text: str) -> str:
    r"""Writes hidden characters as `\u202e`, for a reader who wants to know of them."""
    if text.isascii() and text.isprintable():
        return text
    shown = _HIDDEN.sub(lambda found: _escape(found[0]), _SEPARATOR.sub(lambda found: _escape(found[0]), text))
    return _modify(shown, _escape)


def visible_line(text: str) -> str:
    r"""Writes hidden characters and ends of lines as escapes, so that the text stays on its line."""
    return visible(text.translate(_LINE_ENDS)) if not text.isprintable() else visible(text)


def json_text(value: JSON) -> str:
    """Writes a value as JSON on one line, with its hidden characters escaped: it decodes to the same value."""
    return visible(msgspec.json.encode(value).decode())


def _modify(text: str, replace: Callable[[str], str]) -> str:
    """Replaces joiners and variation selectors that join or vary nothing."""

    def replace_run(found: re.Match[str]) -> str:
        run = found[0]
        before = text[found.start() - 1] if found.start() else ""
        after = text[found.end() : found.end() + 1]
        selector = run[0] if run[0] not in _JOINERS and (before in _KEYCAPS or not before.isascii()) else ""
        joins = bool(before) and not before.isascii() and bool(after) and not after.isascii()
        kept = (selector if before else "") + (next((one for one in run if one in _JOINERS), "") if joins else "")
        return kept if run == kept else kept + replace(_without(run, kept))

    return _MODIFIERS.sub(replace_run, text)


def _without(run: str, kept: str) -> str:
    for one in kept:
        run = run.replace(one, "", 1)
    return run


def _escape(run: str) -> str:
    """Writes characters as JSON escapes them."""
    units = run.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[place]:02x}{units[place + 1]:02x}" for place in range(0, len(units), 2))


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


def clean_excerpt(text: str, limit: int) -> str:
    """Returns a text without hidden characters, cut to so many; the rest of a very long one is not looked at."""
    return cut(clean(text[: 2 * limit]).strip(), limit)


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
