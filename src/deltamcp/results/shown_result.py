"""A result on its way to the model: what of it is shown, and as how much of it fits a first reply.

The pipeline of docs/decisions/0003-results.md: values in, a window out. Candidates are tried from the best to the
smallest. The caller of this module has chosen a handle, and stores the whole result under it.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from deltamcp import tokens
from deltamcp.errors import UsageError
from deltamcp.results import document, pagination, reference, summary, truncation
from deltamcp.results.document import RawJSON
from deltamcp.results.notes import FirstNote, Handle, PlainNote, all_fields_note
from deltamcp.results.pagination import Envelope, find_rows
from deltamcp.results.pointer import pointer
from deltamcp.results.policy import ResolvedPolicy
from deltamcp.results.projection import find_missing, project_rows
from deltamcp.results.window import Frame, Note, Window
from deltamcp.values import JSON
from deltamcp.wire import jsonrpc
from deltamcp.work import Work, WorkLimitError

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
_NO_NOTE = PlainNote("")


class ShownResult(Struct, frozen=True):
    """What is shown of a result, and how."""

    data: str | bytes
    """The text or JSON to show."""
    policy: ResolvedPolicy
    """The budget and form of the reply. It has no fields where those of the caller do not apply."""
    value: Any = None
    """The decoded `data`, where available."""
    rows: list[str] | None = None
    """The path to the rows; None where there are none."""
    is_projected: bool = False
    """Whether the data has only the selected fields of the stored result."""
    is_structured: bool = False
    """Whether the reply has the value as structured content too."""
    reason: str = ""
    """A sentence that begins the note, and a space; or nothing."""

    # The whole

    def whole_window(self, work: Work, note: Note = _NO_NOTE) -> Window | None:
        """Return a window with the whole text or JSON; None where it does not fit, or has more rows than a page."""
        data = self.data
        frame = Frame(self.policy, note, work, structured=self.is_structured)
        if isinstance(data, str):
            window = frame.add_note(Window("whole", 0, 1, 1, data, form="text"))
        elif (
            not self._has_more_rows(work)
            and self._may_fit(data, frame)
            and document.estimate_values(data, work) <= document.MAX_VALUES
        ):
            window = frame.make_window("whole", document.decode_counted(data, work), 0, 1, 1)
        else:
            return None
        return window if frame.fits(window) else None

    def _has_more_rows(self, work: Work) -> bool:
        size = self.policy.page_size
        return size is not None and self.rows is not None and len(self._units(work) or ()) > size

    def _units(self, work: Work) -> Sequence[RawJSON] | None:
        """Return the rows, each encoded; None where there are none."""
        if self.rows is None or isinstance(self.data, str):
            return None
        lazy = document.LazyItems.at(self.value, self.rows)
        return lazy or document.items(document.at(self.data, self.rows, work), work)

    def _may_fit(self, data: bytes, frame: Frame) -> bool:
        """Whether a value is not so large that its table cannot fit.

        How much a table saves shows only when it is written, so larger and larger excerpts of a large value are
        written.
        """
        budget, work = frame.budget.tokens, frame.work
        if len(data) <= budget * _DIRECT_BYTES_PER_TOKEN:
            return True
        if not frame.has_tables:
            return False
        units = self._units(work)
        count = len(units) if units is not None else _largest_object(self.value, work)
        if count > budget * _UNITS_PER_TOKEN:
            return False
        size = budget * _EXCERPT_BYTES_PER_TOKEN
        while size < len(data):
            part = document.excerpt(data, size, work)
            shown = None if self.rows is None else document.LazyItems.at(part, self.rows)
            further_rows = 0 if shown is None else count - len(shown)
            text = frame.make_window("whole", part, 0, 1, 1).text
            cost = tokens.count(text, frame.policy.model)
            if cost > (budget - further_rows) * _EXCERPT_FACTOR or len(text) > frame.budget.max_chars * _EXCERPT_FACTOR:
                return False
            size *= 2 if cost > budget else 4
        return True

    # A part

    def part_window(self, handle: Handle | None, work: Work) -> Window:
        """Return the window of a reply to which the whole does not belong; the handle is None where it is not stored.

        A value of which only selected fields are shown may fit whole.
        """
        return next(window for window in self._candidates(handle, work) if window is not None)

    def _candidates(self, handle: Handle | None, work: Work) -> Iterator[Window | None]:
        """Yield the windows that a reply may have, from the best to the smallest; the last one fits always."""
        data, policy = self.data, self.policy
        if self.is_projected:
            yield self.whole_window(work, all_fields_note(handle, self.reason))
        units = self._units(work)
        link = jsonrpc.encode(handle.link).decode() if handle is not None and is_linked(policy) else ""
        note = FirstNote(
            handle, policy.max_tokens, self.reason, None if units is None else len(units), self._hints(handle)
        )
        frame = Frame(policy, note, work, link, self.is_structured)
        if isinstance(data, str):
            yield truncation.text_window(data, 0, "characters", frame, policy.tail)
            return
        listed = None if units is None or self.rows is None else _rows_window(data, units, self.rows, frame)
        if listed is not None and listed.next is not None:
            yield listed
        if document.kind(data) in ("object", "list"):
            # Where all rows fit, the members beside them do not; a summary that has all rows too shows more of them.
            summarized = summary.summary_window(data, _show_summary, frame, self.value)
            if listed is None or (summarized is not None and not _cuts_part(summarized, self.rows or ())):
                yield summarized
        yield listed
        yield truncation.text_window(str(memoryview(data), "utf-8"), 0, "JSON characters", frame)

    def _hints(self, handle: Handle | None) -> str:
        if handle is None or self.policy.max_tokens < _MIN_HINT_TOKENS:
            return ""
        hints = f' {{"{reference.KEY}":"{handle.name}"}} as an argument passes it on.'
        return _FIELDS_NOTE + hints if self.is_projected else hints


def _largest_object(value: Any, work: Work) -> int:
    """Return the most members of the value, or of an object in it."""
    if not isinstance(value, dict):
        return 0
    work.spend(len(value) // _MEMBERS_PER_STEP)
    return max(len(value), *(len(member) for member in value.values() if isinstance(member, dict)), 0)


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


def _show_summary(frame: Frame, shown: JSON, cuts: tuple[str, ...]) -> Window:
    return frame.make_window("whole", shown, 0, 0, 1, cuts)


def _rows_window(data: bytes, units: Sequence[RawJSON], path: list[str], frame: Frame) -> Window | None:
    # In structured content nothing is abridged, because programs would take an abridged value for the value.
    space = len(data) if frame.structured else frame.budget.tokens
    envelope, cuts = _envelope(data, path, space, frame.work)
    return pagination.rows_window(units, 0, envelope, replace(frame, cuts=tuple(cuts)))


def _envelope(data: RawJSON, path: Sequence[str], space: int, work: Work) -> tuple[Envelope, list[str]]:
    """Return what is around rows, and pointers to what is cut in it.

    The members beside the rows are abridged to `space` bytes, at each level to half of what the level above has.
    """
    levels: list[tuple[str, dict[str, JSON]]] = []
    cuts: list[str] = []
    for depth, name in enumerate(path):
        if document.kind(data) == "list":  # a declared path through a list: only the one item is shown
            data = document.at(data, [name], work)
            continue
        members = document.members(data, work)
        beside = {key: value for key, value in members.items() if key != name}
        value, inner_cuts = summary.Summary(jsonrpc.encode(beside), work).abridge(space)
        assert isinstance(value, dict), "an object is abridged to an object"
        names = [key for key in members if key in value or key == name]
        left_out = {key: mark for key, mark in value.items() if key not in members}
        levels.append((name, {key: value.get(key) for key in names} | left_out))
        cuts += [pointer(*path[:depth]) + cut for cut in inner_cuts]
        data, space = members[name], space // 2
    return Envelope(tuple(levels), tuple(path)), cuts


# Selected fields


def selected_fields(data: RawJSON, policy: ResolvedPolicy, work: Work) -> bytes:
    """Return the JSON of a result with only the fields that the policy selects.

    Raises:
        UsageError: the policy's expression is invalid or does not apply to the result.
    """
    assert policy.fields is not None, "callers check that the policy selects fields"
    value, rows = document.decode_counted(data, work), find_rows(data, policy.rows, work)
    return jsonrpc.encode(project_rows(value, policy.fields, rows, work))


def select(data: str | bytes, policy: ResolvedPolicy, work: Work) -> ShownResult:
    """Return what a policy shows of a result: the fields that it selects.

    That is the whole result where the policy's expression does not apply, or where it has none of the fields that the
    caller requested: the tool has run, so its result must not get lost.

    Raises:
        WorkLimitError: the selection would take more steps than there are.
    """
    if isinstance(data, str) or policy.fields is None:
        return ShownResult(data, policy)
    whole = ShownResult(data, replace(policy, fields=None))
    try:
        value, rows = document.decode_counted(data, work), find_rows(data, policy.rows, work)
        projected = jsonrpc.encode(project_rows(value, policy.fields, rows, work))
    except WorkLimitError:
        raise
    except UsageError:
        return replace(whole, reason="The expression in fields does not apply. ")
    reason = ""
    if policy.fields_requested:
        missing = find_missing(value, policy.fields, rows, work)
        reason = missing.sentence(policy.max_tokens) + " " if missing.paths else ""
        if missing.are_all:
            return replace(whole, reason=reason)
    is_projected = projected != data
    return ShownResult(projected if is_projected else data, policy, is_projected=is_projected, reason=reason)
