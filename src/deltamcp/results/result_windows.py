"""A result that does not fit, made to: the first reply, which says where the rest is, and every further one.

The pipeline of decision 0004. Values in, windows out; who calls has chosen a handle, and keeps the whole under it.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from deltamcp.results import document, notes, pagination, reference, summary, truncation
from deltamcp.results.document import RawJSON, Units
from deltamcp.results.notes import Handle
from deltamcp.results.pointer import pointer
from deltamcp.results.policy import ResolvedPolicy
from deltamcp.results.window import Frame, Window
from deltamcp.values import JSON
from deltamcp.wire import jsonrpc

_MIN_LINK_TOKENS = 200
"""Tokens of a budget that has room for a link, and for how to pass a result on, beside the note."""
_FIELDS_NOTE = ' Not all fields are shown; path="" has them.'
_MAX_BYTES_PER_TOKEN = 24
"""Bytes of JSON a token may stand for in a table; a value of more in all is not tried whole."""


def whole_window(
    data: str | bytes, policy: ResolvedPolicy, structured: bool, rows: Sequence[str] | None, note: str = ""
) -> Window | None:
    """A text or JSON in its shortest form, where all of it fits; None where it does not, or has too many rows."""
    around = Frame(policy, lambda window: note, structured=structured)
    if isinstance(data, str):
        window = Window("whole", 0, 1, 1, data, form="text")
    elif len(data) <= policy.max_tokens * _MAX_BYTES_PER_TOKEN and not _has_more_rows(data, rows, policy):
        window = around.make_window("whole", document.decode(data), 0, 1, 1)
    else:
        return None
    return window if around.cost(window) <= policy.max_tokens else None


def _has_more_rows(data: bytes, rows: Sequence[str] | None, policy: ResolvedPolicy) -> bool:
    size = policy.page_size
    return size is not None and rows is not None and len(document.items(document.at(data, rows))) > size


# The first reply


def first_window(
    data: str | bytes,
    rows: list[str] | None,
    policy: ResolvedPolicy,
    handle: Handle | None,
    structured: bool,
    projected: bool = False,
    reason: str = "",
    value: Any = None,
) -> Window:
    """What is shown of a result that is kept under a handle; without one, because it could not be.

    Args:
        rows: where its rows are.
        projected: it is less than what is kept, and may be shown whole.
        why: a sentence the note begins with.
        value: what `source` is of, where that is at hand.
    """
    fewer = whole_window(data, policy, structured, rows, notes.all_fields_note(handle)) if projected else None
    if fewer is not None:
        return fewer
    named = handle if is_linked(policy) else None
    fields = _FIELDS_NOTE if projected and named is not None else ""
    passing = f' {{"{reference.KEY}":"{named.name}"}} as an argument passes it on.' if named is not None else ""

    def note(window: Window) -> str:
        return f"[{reason}{notes.first_note(window, handle, policy.max_tokens)}{fields}{passing}]"

    link = jsonrpc.encode(named.link).decode() if named is not None else ""
    around = Frame(policy, note, link, structured)
    if isinstance(data, str):
        return truncation.text_window(data, 0, "characters", around, policy.tail)
    return (
        (_rows_window(data, rows, around, value) if rows is not None else None)
        or (_summary_window(data, around, value) if document.kind(data) in ("object", "list") else None)
        or _raw_window(data, 0, around)
    )


def is_linked(policy: ResolvedPolicy, window: Window | None = None) -> bool:
    """Whether a link goes with a reply. Where only fields were left out, on purpose, a word on it is enough."""
    return policy.max_tokens >= _MIN_LINK_TOKENS and (window is None or window.unit != "whole" or bool(window.cuts))


def _rows_window(data: bytes, path: list[str], around: Frame, value: Any) -> Window | None:
    # Beside structured content nothing is abridged: programs would take it for what it is.
    wrap, cuts = _envelope(data, path, len(data) if around.structured else around.budget.tokens, ())
    # The cuts of the envelope are part of what a note tells.
    inner = replace(around, note=lambda window: around.note(_with_cuts(window, cuts)))
    units = document.LazyItems.at(value, path) or document.items(document.at(data, path))
    window = pagination.rows_window(units, 0, wrap, path, inner)
    # Where the rows are all there, it is what stands beside them that was too much, and deserves the room.
    return None if window is None or window.next is None else _with_cuts(window, cuts)


def _with_cuts(window: Window, cuts: Sequence[str]) -> Window:
    return replace(window, cuts=(*cuts, *window.cuts)) if cuts else window


def _envelope(
    data: RawJSON, path: Sequence[str], space: int, above: tuple[str, ...]
) -> tuple[Callable[[list[JSON]], JSON], list[str]]:
    """What puts rows back where they were, among whatever stands beside them, which gets `room` bytes."""
    if not path:
        return lambda rows: rows, []
    if document.kind(data) == "list":  # a declared path through a list: only the one item is shown
        return _envelope(document.items(data)[int(path[0])], path[1:], space, (*above, path[0]))
    members = document.members(data)
    inner, cuts = _envelope(members[path[0]], path[1:], space // 2, (*above, path[0]))
    beside = {name: value for name, value in members.items() if name != path[0]}
    value, cut = summary.Summary(jsonrpc.encode(beside)).abridge(space)
    names = [name for name in members if name in value or name == path[0]]
    left_out = {name: told for name, told in value.items() if name not in members}

    def wrap(rows: list[JSON]) -> JSON:
        return {name: inner(rows) if name == path[0] else value[name] for name in names} | left_out

    return wrap, [pointer(*above) + one for one in cut] + cuts


def _summary_window(data: bytes, around: Frame, value: Any) -> Window | None:
    def show(frame: Frame, shown: JSON, cuts: tuple[str, ...]) -> Window:
        return frame.make_window("whole", shown, 0, 0, 1, cuts)

    return summary.summary_window(data, show, around, value)


def _raw_window(data: RawJSON, start: int, around: Frame) -> Window:
    """The JSON itself as a text: what can be shown of anything."""
    text = str(memoryview(data), "utf-8")
    return truncation.text_window(text, start, "JSON characters", around)


# Further replies


def read_window(units: Units, start: int, policy: ResolvedPolicy, path: str, until: int | None = None) -> Window:
    """A window of the view at `path` from `start` on; of what has no windows, its JSON from the beginning.

    It ends at `until` if not before.
    """
    around = _continuation_frame(policy, path)
    if isinstance(units, str):
        return truncation.text_window(units, start, "characters", around, until=until)
    if until is not None:
        around = replace(around, policy=replace(policy, page_size=until - start))
    window: Window | None = None
    if isinstance(units, Mapping):
        window = pagination.members_window(units, start, around)
    elif isinstance(units, list):
        window = pagination.rows_window(units, start, lambda rows: rows, (), around)
    return window or read_raw_window(units_json(units).decode(), 0, policy, path)


def read_raw_window(text: str, start: int, policy: ResolvedPolicy, path: str) -> Window:
    """A window of the JSON of what is at `path`, from a character on."""
    return truncation.text_window(text, start, "JSON characters", _continuation_frame(policy, path))


def _continuation_frame(policy: ResolvedPolicy, path: str) -> Frame:
    return Frame(policy, lambda window: notes.continuation_note(window, path, policy.max_tokens))


def units_json(units: Units) -> bytes:
    """The JSON of a view."""
    return units if isinstance(units, bytes) else jsonrpc.encode(units)
