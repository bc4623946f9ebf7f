"""Makes the windows of a result that does not fit one reply: of the first reply, and of every further one.

The pipeline of docs/decisions/0003-results.md: values in, windows out. The caller of this module has chosen a handle,
and stores the whole result under it.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import Raw
from msgspec.structs import replace

from deltamcp import tokens
from deltamcp.results import document, notes, pagination, reference, summary, truncation
from deltamcp.results.document import RawJSON, Units
from deltamcp.results.notes import Handle
from deltamcp.results.pointer import pointer
from deltamcp.results.policy import ResolvedPolicy
from deltamcp.results.window import Frame, Window
from deltamcp.values import JSON
from deltamcp.wire import jsonrpc
from deltamcp.work import Work

_MIN_HINT_TOKENS = 200
"""In a smaller budget a reply has neither a link nor hints on what else can be done with the result."""
_FIELDS_NOTE = ' Not all fields are shown; path="" has them.'
_DIRECT_BYTES_PER_TOKEN = 24
"""Values of at most this size per token of the budget are encoded whole; of larger ones, an excerpt first."""
_EXCERPT_BYTES_PER_TOKEN = 8
"""The size of the first excerpt that is encoded; where the value is hopeless, little more work was done."""
_EXCERPT_FACTOR = 2
"""How many times its share of the whole an excerpt may cost: a lookup needs values that repeat."""
_MEMBERS_PER_STEP = 4
_UNITS_PER_TOKEN = 2
"""The most rows, or members of an object, that a token can stand for: in a table, every line break is a token."""


def whole_window(
    data: str | bytes,
    policy: ResolvedPolicy,
    structured: bool,
    rows: Sequence[str] | None,
    work: Work,
    note: str = "",
    value: Any = None,
) -> Window | None:
    """Return a window with the whole text or JSON; None where it does not fit, or has more rows than a page.

    `value` is the decoded `data`, where available.
    """
    frame = Frame(policy, lambda window: note, work, structured=structured)
    if isinstance(data, str):
        window = Window("whole", 0, 1, 1, data, form="text")
    elif (
        not _has_more_rows(data, rows, policy, value, work)
        and _may_fit(data, rows, frame, value)
        and document.estimate_values(data, work) <= document.MAX_VALUES
    ):
        window = frame.make_window("whole", document.decode_counted(data, work), 0, 1, 1)
    else:
        return None
    return window if frame.fits(window) else None


def _has_more_rows(data: bytes, rows: Sequence[str] | None, policy: ResolvedPolicy, value: Any, work: Work) -> bool:
    size = policy.page_size
    return size is not None and rows is not None and len(_row_units(data, rows, value, work)) > size


def _may_fit(data: bytes, rows: Sequence[str] | None, frame: Frame, value: Any) -> bool:
    """Whether a value is not so large that its table cannot fit.

    How much a table saves shows only when it is written, so larger and larger excerpts of a large value are written.
    """
    if len(data) <= frame.budget.tokens * _DIRECT_BYTES_PER_TOKEN:
        return True
    if not frame.has_tables:
        return False
    budget = frame.budget.tokens
    count = len(_row_units(data, rows, value, frame.work)) if rows is not None else _largest_object(value, frame.work)
    if count > budget * _UNITS_PER_TOKEN:
        return False
    size = budget * _EXCERPT_BYTES_PER_TOKEN
    while size < len(data):
        part = document.excerpt(data, size, frame.work)
        shown = None if rows is None else document.LazyItems.at(part, rows)
        further_rows = 0 if shown is None else count - len(shown)
        text = frame.make_window("whole", part, 0, 1, 1).text
        cost = tokens.count(text, frame.policy.model)
        if cost > (budget - further_rows) * _EXCERPT_FACTOR or len(text) > frame.budget.max_chars * _EXCERPT_FACTOR:
            return False
        size *= 2 if cost > budget else 4
    return True


def _largest_object(value: Any, work: Work) -> int:
    """Return the most members of the value, or of an object in it."""
    if not isinstance(value, dict):
        return 0
    work.spend(len(value) // _MEMBERS_PER_STEP)
    return max(len(value), *(len(member) for member in value.values() if isinstance(member, dict)), 0)


def _row_units(data: bytes, path: Sequence[str], value: Any, work: Work) -> Sequence[RawJSON]:
    return document.LazyItems.at(value, path) or document.items(document.at(data, path, work), work)


# The first reply


def first_window(
    data: str | bytes,
    rows: list[str] | None,
    policy: ResolvedPolicy,
    handle: Handle | None,
    structured: bool,
    work: Work,
    projected: bool = False,
    reason: str = "",
    value: Any = None,
) -> Window:
    """Return the window of the first reply with a result that the server stores under a handle.

    Args:
        data: the text or JSON to show.
        rows: the path to the rows; None where there are none.
        policy: the budget and form of the reply.
        handle: the handle of the stored result; None where the server could not store it.
        structured: the reply has the value as structured content too.
        work: counts the steps.
        projected: the data has only the selected fields of the stored result, and may fit whole.
        reason: a sentence that begins the note.
        value: the decoded `data`, where available.
    """
    whole = (
        whole_window(data, policy, structured, rows, work, notes.all_fields_note(handle, reason), value)
        if projected
        else None
    )
    if whole is not None:
        return whole
    units = None if isinstance(data, str) or rows is None else _row_units(data, rows, value, work)
    hints, link = "", ""
    if handle is not None and policy.max_tokens >= _MIN_HINT_TOKENS:
        hints = f' {{"{reference.KEY}":"{handle.name}"}} as an argument passes it on.'
        hints = _FIELDS_NOTE + hints if projected else hints
    if handle is not None and is_linked(policy):
        link = jsonrpc.encode(handle.link).decode()

    def note(window: Window) -> str:
        size = "" if units is None else notes.row_count_note(window, len(units))
        return f"[{reason}{size}{notes.first_note(window, handle, policy.max_tokens)}{hints}]"

    frame = Frame(policy, note, work, link, structured)
    if isinstance(data, str):
        return truncation.text_window(data, 0, "characters", frame, policy.tail)
    listed = None if units is None or rows is None else _rows_window(data, units, rows, frame)
    if listed is not None and listed.next is not None:
        return listed
    summarized = _summary_window(data, frame, value) if document.kind(data) in ("object", "list") else None
    # Where all rows fit, the members beside them do not; a summary that has all rows too shows more of those members.
    if listed is not None and (summarized is None or _cuts_part(summarized, rows or ())):
        return listed
    return summarized or _raw_window(data, 0, frame)


def _cuts_part(window: Window, path: Sequence[str]) -> bool:
    """Whether a window lacks any of the part at a path."""
    prefix = pointer(*path) + "/"
    return any(prefix.startswith(cut + "/") or cut.startswith(prefix) for cut in window.cuts)


def is_linked(policy: ResolvedPolicy, window: Window | None = None) -> bool:
    """Whether a reply has a link to the stored result. A window that lacks only unselected fields has none."""
    return (
        policy.links
        and policy.max_tokens >= _MIN_HINT_TOKENS
        and (window is None or window.unit != "whole" or bool(window.cuts))
    )


def _rows_window(data: bytes, units: Sequence[RawJSON], path: list[str], frame: Frame) -> Window | None:
    # In structured content nothing is abridged, because programs would take an abridged value for the value.
    wrap, cuts = _envelope(data, path, len(data) if frame.structured else frame.budget.tokens, (), frame.work)
    # The note counts the cuts of the envelope too.
    inner = replace(frame, note=lambda window: frame.note(_with_cuts(window, cuts)))
    window = pagination.rows_window(units, 0, wrap, path, inner)
    return None if window is None else _with_cuts(window, cuts)


def _with_cuts(window: Window, cuts: Sequence[str]) -> Window:
    return replace(window, cuts=(*cuts, *window.cuts)) if cuts else window


def _envelope(
    data: RawJSON, path: Sequence[str], space: int, above: tuple[str, ...], work: Work
) -> tuple[Callable[[list[JSON]], JSON], list[str]]:
    """Return a function that puts rows back into the value around them, and pointers to what is cut in that value.

    The members beside the rows are abridged to `space` bytes.
    """
    if not path:
        return lambda rows: rows, []
    if document.kind(data) == "list":  # a declared path through a list: only the one item is shown
        return _envelope(document.at(data, path[:1], work), path[1:], space, (*above, path[0]), work)
    members = document.members(data, work)
    inner, cuts = _envelope(members[path[0]], path[1:], space // 2, (*above, path[0]), work)
    beside = {name: value for name, value in members.items() if name != path[0]}
    value, inner_cuts = summary.Summary(jsonrpc.encode(beside), work).abridge(space)
    names = [name for name in members if name in value or name == path[0]]
    left_out = {name: mark for name, mark in value.items() if name not in members}

    def wrap(rows: list[JSON]) -> JSON:
        return {name: inner(rows) if name == path[0] else value[name] for name in names} | left_out

    return wrap, [pointer(*above) + cut for cut in inner_cuts] + cuts


def _summary_window(data: bytes, frame: Frame, value: Any) -> Window | None:
    def show(frame: Frame, shown: JSON, cuts: tuple[str, ...]) -> Window:
        return frame.make_window("whole", shown, 0, 0, 1, cuts)

    return summary.summary_window(data, show, frame, value)


def _raw_window(data: RawJSON, start: int, frame: Frame) -> Window:
    """Return a window of the JSON as characters, which any value has."""
    text = str(memoryview(data), "utf-8")
    return truncation.text_window(text, start, "JSON characters", frame)


# Further replies


def read_window(
    units: Units, start: int, policy: ResolvedPolicy, path: str, work: Work, until: int | None = None, problem: str = ""
) -> Window:
    """Return a window of the units at `path`, from `start` to at most `until`; its note begins with the problem.

    Where not even one unit fits, or the value is a scalar, the window shows the JSON as characters from the beginning.
    """
    frame = _continuation_frame(policy, path, problem, work)
    if isinstance(units, str):
        return truncation.text_window(units, start, "characters", frame, until=until)
    if until is not None:
        frame = replace(frame, policy=replace(policy, page_size=until - start))
    window: Window | None = None
    if isinstance(units, Mapping):
        window = pagination.members_window(units, start, frame)
    elif not isinstance(units, bytes):
        window = pagination.rows_window(units, start, lambda rows: rows, (), frame)
    return window or read_raw_window(units_json(units).decode(), 0, policy, path, work, problem)


def read_raw_window(text: str, start: int, policy: ResolvedPolicy, path: str, work: Work, problem: str = "") -> Window:
    """Return a window of the JSON at `path` as characters, from the character at `start` on."""
    return truncation.text_window(text, start, "JSON characters", _continuation_frame(policy, path, problem, work))


def _continuation_frame(policy: ResolvedPolicy, path: str, problem: str, work: Work) -> Frame:
    return Frame(policy, lambda window: notes.continuation_note(window, path, policy.max_tokens, problem), work)


def units_json(units: Units) -> bytes:
    """Encode units as JSON."""
    if isinstance(units, bytes):
        return units
    if isinstance(units, document.PackedItems):
        return units.json
    if isinstance(units, Mapping):
        return jsonrpc.encode({key: Raw(memoryview(unit)) for key, unit in units.items()})
    return jsonrpc.encode(units if isinstance(units, str) else [Raw(memoryview(unit)) for unit in units])
