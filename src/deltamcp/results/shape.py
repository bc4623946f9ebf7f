"""A result that does not fit, made to: the first reply, which says where the rest is, and every further one.

The pipeline of decision 0004. Values in, windows out: keeping the whole, and giving it a handle, has been done before.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from deltamcp.results import document, paginate, reference, summarise, truncate
from deltamcp.results.document import Encoded, Units
from deltamcp.results.pointer import pointer
from deltamcp.results.policy import Shaping
from deltamcp.results.window import Frame, Window
from deltamcp.values import JSON, ResourceLink
from deltamcp.wire import jsonrpc

_LINKED_FROM = 200
"""Tokens of a budget that has room for a link, and for how to pass a result on, beside the note."""
_MOST_SHRUNK = 24
"""Bytes of JSON a token may stand for in a table; a value of more in all is not tried whole."""


class Handle(Struct, frozen=True):
    """Where the whole of a result can be read."""

    name: str
    tool: str
    """What reads on in it is called so."""
    link: ResourceLink
    """The same for hosts."""


def whole(source: str | bytes, shaping: Shaping, structured: bool) -> Window | None:
    """A text or JSON in its shortest form, where all of it fits; None where it does not."""
    around = Frame(shaping, lambda window: "", structured=structured)
    if isinstance(source, str):
        window = Window("whole", 0, 1, 1, source, form="text")
    elif len(source) <= shaping.max_tokens * _MOST_SHRUNK:
        window = around.shown("whole", document.decode(source), 0, 1, 1)
    else:
        return None
    return window if around.cost(window) <= shaping.max_tokens else None


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

    if projected and isinstance(source, bytes) and len(source) <= shaping.max_tokens * _MOST_SHRUNK:
        around = Frame(shaping, lambda _: _fewer(handle), structured=structured)
        window = around.shown("whole", document.decode(source), 0, 1, 1)
        if around.cost(window) <= shaping.max_tokens:
            return window
    named = handle if is_linked(shaping) else None
    passing = f' {{"{reference.KEY}":"{named.name}"}} as an argument passes it on.' if named is not None else ""

    def note(window: Window) -> str:
        return f"[{why}{_opening(window, handle)}{_FIELDS if projected else ''}{passing}]"

    link = jsonrpc.encode(named.link).decode() if named is not None else ""
    around = Frame(shaping, note, link, structured)
    if isinstance(source, str):
        return _some(truncate.window(source, 0, "characters", around, shaping.tail))
    return (
        (_rows(source, rows, around, value) if rows is not None else None)
        or (_summary(source, around) if document.kind(source) in ("object", "list") else None)
        or _raw(source, 0, around)
    )


def is_linked(shaping: Shaping, window: Window | None = None) -> bool:
    """Whether a link goes with a reply. Where only fields were left out, on purpose, a word on it is enough."""
    return shaping.max_tokens >= _LINKED_FROM and (window is None or window.unit != "whole" or bool(window.cuts))


def _rows(source: bytes, path: list[str], around: Frame, value: Any) -> Window | None:
    wrap, cuts = _envelope(source, path, around.budget.tokens, ())
    # The cuts of the envelope are part of what a note tells.
    inner = Frame(around.shaping, lambda window: around.note(_also(window, cuts)), around.further, around.structured)
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


def _summary(source: bytes, around: Frame) -> Window | None:
    return summarise.window(source, lambda frame, value, cuts: frame.shown("whole", value, 0, 0, 1, cuts), around)


def _raw(source: Encoded, start: int, around: Frame) -> Window:
    """The JSON itself as a text: what can be shown of anything."""
    text = bytes(memoryview(source)).decode()
    return _some(truncate.window(text, start, "JSON characters", around))


def _some(window: Window | None) -> Window:
    assert window is not None, "a budget of 50 tokens has room for a note and a character"
    return window


# Further replies


def read(units: Units, start: int, shaping: Shaping, path: str) -> Window:
    """A window of the view at `path` from `start` on; of what has no windows, its JSON from the beginning."""
    around = Frame(shaping, _following)
    if isinstance(units, str):
        return _some(truncate.window(units, start, "characters", around))
    window: Window | None = None
    if isinstance(units, Mapping):
        window = paginate.members(units, start, around)
    elif isinstance(units, list):
        window = paginate.rows(units, start, lambda rows: rows, (), around)
    return window or read_raw(units, 0, shaping, path)


def read_raw(units: Units, start: int, shaping: Shaping, path: str) -> Window:
    """A window of the view's JSON, from a character on."""
    return _raw(raw(units), start, Frame(shaping, lambda window: _following(window, path)))


def raw(units: Units) -> bytes:
    """The JSON of a view."""
    return units if isinstance(units, bytes) else jsonrpc.encode(units)


# What is said around them

_CUT = f'"{summarise.ELLIPSIS}" marks what is cut'
RAW = "raw:"
"""Before a path: the characters of the JSON that is there."""
_EXAMPLE_CHARS = 40
_FIELDS = ' Not all fields are shown; path="" has them.'


def _opening(window: Window, handle: Handle | None) -> str:
    """How much there is, and how to read on, to a caller that does not know the handle."""
    if handle is None:
        return f"{_span(window)}. The rest could not be kept; ask for less of it."
    call = f'{handle.tool}(handle="{handle.name}"'
    match window.unit:
        case "whole":
            return f'{_CUT}. {call}, path="{_example(window.cuts)}") shows it.'
        case "characters":
            left = window.total - window.end - len(window.tail)
            return f"{left} of {window.total} characters left out. {call}, offset={window.end}) reads on."
        case "JSON characters":
            return f'Characters 1-{window.end} of {window.total}. {call}, path="{RAW}", offset={window.end}) reads on.'
        case _:
            cut = f" {_CUT}; path=... shows it." if window.cuts else ""
            rest = f", offset={window.end}) reads on" if window.next is not None else ") has all"
            return f"{_span(window)}. {call}{rest}.{cut}"


def _fewer(handle: Handle | None) -> str:
    """What is said where nothing is missing but fields that were not wanted."""
    return "" if handle is None else f'[All fields: {handle.tool}(handle="{handle.name}", path="")]'


def _following(window: Window, path: str = "") -> str:
    """The note of a further reply, to a caller that knows the handle."""
    cut = f"; {_CUT}, path=... shows it" if window.cuts else ""
    place = ""
    if window.unit == "JSON characters":
        # A path may be longer than a reply.
        place = f'path="{RAW}{path}", ' if len(path) <= _EXAMPLE_CHARS else f'"{RAW}" before path, '
    rest = f"next: {place}offset={window.end}" if window.next is not None else "the last"
    return f"[{_span(window)}; {rest}{cut}]"


def _span(window: Window) -> str:
    shown = window.end - window.start
    if window.total <= shown:
        return f"{window.total} {window.unit}"
    pages = f", page 1 of about {-(-window.total // shown)}" if shown and not window.start else ""
    return f"{window.start + 1}-{window.end} of {window.total} {window.unit}{pages}"


def _example(cuts: tuple[str, ...]) -> str:
    return next((cut for cut in cuts if 0 < len(cut) <= _EXAMPLE_CHARS), "/...")
