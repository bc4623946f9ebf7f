"""What is said around a window: how much there is, and how to read on; in a small budget, in fewer words."""

from msgspec import Struct

from deltamcp.results.window import Window
from deltamcp.values import ResourceLink

ELLIPSIS = "…"
RAW_PREFIX = "raw:"
"""Before a path: the characters of the JSON that is there."""

_BRIEF_BELOW_TOKENS = 100
_CUT_NOTE = f'"{ELLIPSIS}" marks what is cut'
_MAX_PATH_BYTES = 24
"""Of a path that is repeated; each may be a token, and a path may be longer than a reply."""


class Handle(Struct, frozen=True):
    """Where the whole of a result can be read."""

    name: str
    continue_tool: str
    """What reads on in it is called so."""
    link: ResourceLink
    """The same for hosts."""


def first_note(window: Window, handle: Handle | None, tokens: int) -> str:
    """To a caller that does not know the handle, within a reply of so many tokens. Without one nothing was kept."""
    if handle is None:
        return f"{_span_text(window)}. The rest could not be kept; ask for less of it."
    cut = next((short for cut in window.cuts if (short := _short_path(cut))), "")
    call = f'{handle.continue_tool}(handle="{handle.name}"'
    places = {
        "whole": f', path="{cut}")' if cut else ")",
        "JSON characters": f', path="{RAW_PREFIX}", offset={window.end})',
    }
    on = call + places.get(window.unit, f", offset={window.end})" if window.next is not None else ")")
    brief = tokens < _BRIEF_BELOW_TOKENS
    match window.unit:
        case "whole":
            return on if brief else f"{_CUT_NOTE}. {on} shows it."
        case "characters":
            left = window.total - window.end - len(window.tail)
            return f"{left} of {window.total} characters left out. {on}{'' if brief else ' reads on.'}"
        case _ if window.next is None:
            return f"{_span_text(window)}. {on} has all."
        case _ if brief:
            return f"{_span_text(window)}. {on}"
        case _:
            inside = f" {_CUT_NOTE}; path=... shows it." if window.cuts and window.unit == "rows" else ""
            return f"{_span_text(window)}{_pages_text(window)}. {on} reads on.{inside}"


def all_fields_note(handle: Handle | None) -> str:
    """Where nothing is missing but fields that were not wanted."""
    return "" if handle is None else f'[All fields: {handle.continue_tool}(handle="{handle.name}", path="")]'


def continuation_note(window: Window, path: str, tokens: int) -> str:
    """To a caller that knows the handle and the path."""
    place = ""
    if window.unit == "JSON characters":
        place = f'path="{RAW_PREFIX}{path}", ' if _short_path(path) == path else f'"{RAW_PREFIX}" before path, '
    rest = f"next: {place}offset={window.end}" if window.next is not None else "the last"
    cut = f"; {_CUT_NOTE}, path=... shows it" if window.cuts and tokens >= _BRIEF_BELOW_TOKENS else ""
    return f"[{_span_text(window)}; {rest}{cut}]"


def _span_text(window: Window) -> str:
    shown = window.end - window.start
    if window.total <= shown:
        return f"{window.total} {window.unit}"
    return f"{window.start + 1}-{window.end} of {window.total} {window.unit}"


def _pages_text(window: Window) -> str:
    return f", page 1 of about {-(-window.total // window.end)}" if window.end else ""


def _short_path(path: str) -> str:
    return path if len(path.encode()) <= _MAX_PATH_BYTES else ""
