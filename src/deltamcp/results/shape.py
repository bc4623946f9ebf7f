"""A result that does not fit, made to: the first reply, which says where the rest is, and every further one.

The pipeline of decision 0004. Values in, windows out; who calls has chosen a handle, and keeps the whole under it.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from deltamcp.results import document, notes, paginate, reference, summarise, truncate
from deltamcp.results.document import Encoded, Units
from deltamcp.results.notes import Handle
from deltamcp.results.pointer import pointer
from deltamcp.results.policy import Shaping
from deltamcp.results.window import Frame, Window
from deltamcp.values import JSON
from deltamcp.wire import jsonrpc

_LINKED_FROM = 200
"""Tokens of a budget that has room for a link, and for how to pass a result on, beside the note."""
_FIELDS = ' Not all fields are shown; path="" has them.'
_MOST_SHRUNK = 24
"""Bytes of JSON a token may stand for in a table; a value of more in all is not tried whole."""


def whole(
    source: str | bytes, shaping: Shaping, structured: bool, rows: Sequence[str] | None, note: str = ""
) -> Window | None:
    """A text or JSON in its shortest form, where all of it fits; None where it does not, or has too many rows."""
    around = Frame(shaping, lambda window: note, structured=structured)
    if isinstance(source, str):
        window = Window("whole", 0, 1, 1, source, form="text")
    elif len(source) <= shaping.max_tokens * _MOST_SHRUNK and not _has_more_rows(source, rows, shaping):
        window = around.shown("whole", document.decode(source), 0, 1, 1)
    else:
        return None
    return window if around.cost(window) <= shaping.max_tokens else None


def _has_more_rows(source: bytes, rows: Sequence[str] | None, shaping: Shaping) -> bool:
    size = shaping.page_size
    return size is not None and rows is not None and len(document.items(document.at(source, rows))) > size


# The first reply


def begin(
    source: str | bytes,
    rows: list[str] | None,
    shaping: Shaping,
    handle: Handle | None,
    structured: bool,
    projected: bool = False,
    why: str = "",
    value: Any = None,
) -> Window:
    """What is shown of a result that is kept under a handle; without one, because it could not be.

    Args:
        rows: where its rows are.
        projected: it is less than what is kept, and may be shown whole.
        why: a sentence the note begins with.
        value: what `source` is of, where that is at hand.
    """
    fewer = whole(source, shaping, structured, rows, notes.fewer(handle)) if projected else None
    if fewer is not None:
        return fewer
    named = handle if is_linked(shaping) else None
    fields = _FIELDS if projected and named is not None else ""
    passing = f' {{"{reference.KEY}":"{named.name}"}} as an argument passes it on.' if named is not None else ""

    def note(window: Window) -> str:
        return f"[{why}{notes.opening(window, handle, shaping.max_tokens)}{fields}{passing}]"

    link = jsonrpc.encode(named.link).decode() if named is not None else ""
    around = Frame(shaping, note, link, structured)
    if isinstance(source, str):
        return truncate.window(source, 0, "characters", around, shaping.tail)
    return (
        (_rows(source, rows, around, value) if rows is not None else None)
        or (_summary(source, around, value) if document.kind(source) in ("object", "list") else None)
        or _raw(source, 0, around)
    )


def is_linked(shaping: Shaping, window: Window | None = None) -> bool:
    """Whether a link goes with a reply. Where only fields were left out, on purpose, a word on it is enough."""
    return shaping.max_tokens >= _LINKED_FROM and (window is None or window.unit != "whole" or bool(window.cuts))


def _rows(source: bytes, path: list[str], around: Frame, value: Any) -> Window | None:
    # Beside structured content nothing is abridged: programs would take it for what it is.
    wrap, cuts = _envelope(source, path, len(source) if around.structured else around.budget.tokens, ())
    # The cuts of the envelope are part of what a note tells.
    inner = replace(around, note=lambda window: around.note(_also(window, cuts)))
    units = document.Live.at(value, path) or document.items(document.at(source, path))
    window = paginate.rows(units, 0, wrap, path, inner)
    # Where the rows are all there, it is what stands beside them that was too much, and deserves the room.
    return None if window is None or window.next is None else _also(window, cuts)


def _also(window: Window, cuts: Sequence[str]) -> Window:
    return replace(window, cuts=(*cuts, *window.cuts)) if cuts else window


def _envelope(
    data: Encoded, path: Sequence[str], room: int, above: tuple[str, ...]
) -> tuple[Callable[[list[JSON]], JSON], list[str]]:
    """What puts rows back where they were, among whatever stands beside them, which gets `room` bytes."""
    if not path:
        return lambda rows: rows, []
    if document.kind(data) == "list":  # a declared path through a list: only the one item is shown
        return _envelope(document.items(data)[int(path[0])], path[1:], room, (*above, path[0]))
    members = document.members(data)
    inner, cuts = _envelope(members[path[0]], path[1:], room // 2, (*above, path[0]))
    beside = {name: value for name, value in members.items() if name != path[0]}
    value, cut = summarise.Summary(jsonrpc.encode(beside)).abridged(room)
    names = [name for name in members if name in value or name == path[0]]
    left_out = {name: told for name, told in value.items() if name not in members}

    def wrap(rows: list[JSON]) -> JSON:
        return {name: inner(rows) if name == path[0] else value[name] for name in names} | left_out

    return wrap, [pointer(*above) + one for one in cut] + cuts


def _summary(source: bytes, around: Frame, value: Any) -> Window | None:
    def show(frame: Frame, shown: JSON, cuts: tuple[str, ...]) -> Window:
        return frame.shown("whole", shown, 0, 0, 1, cuts)

    return summarise.window(source, show, around, value)


def _raw(source: Encoded, start: int, around: Frame) -> Window:
    """The JSON itself as a text: what can be shown of anything."""
    text = str(memoryview(source), "utf-8")
    return truncate.window(text, start, "JSON characters", around)


# Further replies


def read(units: Units, start: int, shaping: Shaping, path: str, until: int | None = None) -> Window:
    """A window of the view at `path` from `start` on; of what has no windows, its JSON from the beginning.

    It ends at `until` if not before.
    """
    around = _reading(shaping, path)
    if isinstance(units, str):
        return truncate.window(units, start, "characters", around, until=until)
    if until is not None:
        around = replace(around, shaping=replace(shaping, page_size=until - start))
    window: Window | None = None
    if isinstance(units, Mapping):
        window = paginate.members(units, start, around)
    elif isinstance(units, list):
        window = paginate.rows(units, start, lambda rows: rows, (), around)
    return window or read_raw(raw(units).decode(), 0, shaping, path)


def read_raw(text: str, start: int, shaping: Shaping, path: str) -> Window:
    """A window of the JSON of what is at `path`, from a character on."""
    return truncate.window(text, start, "JSON characters", _reading(shaping, path))


def _reading(shaping: Shaping, path: str) -> Frame:
    return Frame(shaping, lambda window: notes.following(window, path, shaping.max_tokens))


def raw(units: Units) -> bytes:
    """The JSON of a view."""
    return units if isinstance(units, bytes) else jsonrpc.encode(units)
