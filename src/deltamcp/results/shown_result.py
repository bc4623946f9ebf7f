"""A result on its way to the model: what of it is shown, and as how much of it fits a first reply.

The pipeline of docs/decisions/0003-results.md: values in, a window out. Candidates are tried from the best to the
smallest. The caller of this module has chosen a handle, and stores the whole result under it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import UNSET, Struct
from msgspec.structs import replace

from deltamcp import tokens
from deltamcp.errors import UsageError
from deltamcp.results import blocks, document, truncation
from deltamcp.results.content import ResultData
from deltamcp.results.document import RawJSON, find_rows, pointer
from deltamcp.results.policy import ResolvedPolicy
from deltamcp.results.queries.grep import count_lines
from deltamcp.results.queries.query import project_rows, run_query
from deltamcp.results.truncation import Envelope
from deltamcp.results.value_shape import page_sentence, shape_of, shape_text
from deltamcp.results.window import (
    MIN_HINT_TOKENS,
    Budget,
    FirstNote,
    Frame,
    Handle,
    Note,
    OutlineNote,
    PlainNote,
    Window,
    selection_note,
    whole_note,
)
from deltamcp.values import JSON
from deltamcp.wire import jsonrpc
from deltamcp.work import Work, WorkLimitError

_DIRECT_BYTES_PER_TOKEN = 24
"""Values of at most this size per token of the budget are encoded whole; of larger ones, an excerpt first."""
_EXCERPT_BYTES_PER_TOKEN = 8
"""The size of the first excerpt that is encoded; where the value is hopeless, little more work was done."""
_EXCERPT_FACTOR = 2
"""How many times its share of the whole an excerpt may cost: a lookup needs values that repeat."""
_MEMBERS_PER_STEP = 4
_UNITS_PER_TOKEN = 2
"""The most rows, or members of an object, that a token can stand for: in a table, every line break is a token."""
PREVIEW_TOKENS = 460
"""The tokens of a preview: the shape, the first rows or lines, and the handle. With the request, 500 at most."""
_SHAPE_TOKENS = 120
_NO_NOTE = PlainNote("")
_NO_STRUCTURE = "No part of the result both fits and matches the output schema. "


class FirstReply(Struct, frozen=True):
    """The first reply to a call: what the function returned, and what decides how much of it the caller is shown."""

    source: ResultData
    policy: ResolvedPolicy
    admits: Callable[[JSON], bool] | None = None
    """Whether a value matches the output schema; None if the tool promises none."""
    names_whole: bool = False
    """Whether a reply with the whole result says the handle, so that the next call can ask what changed since."""
    reason: str = ""
    """A sentence that begins the note, and a space; or nothing."""

    def simplify(self) -> "FirstReply":
        """Returns the same for a result whose query or tables take too much work: all of it, as plain JSON."""
        policy = replace(self.policy, fields=None, grep=None, tables=False, preview_above=0)
        reason = "The query would take too much work, so all is shown. " if self.policy.has_query else ""
        return replace(self, policy=policy, reason=self.reason + reason)

    def show(self, find_handle: Callable[[], Handle | None], work: Work) -> "FirstPart":
        """Returns the whole if it fits, else the part that does.

        Only a reply that says the handle asks for it; it is None where the result is not stored.
        """
        shown = self._select(work)
        whole = None if shown.is_projected else self._whole(shown, find_handle, work)
        if whole is not None:
            return whole
        handle = find_handle()
        window = replace(shown, is_structured=self.admits is not None).part_window(handle, work)
        if self.admits is None or (window.value is not UNSET and self.admits(window.value)):
            return FirstPart(window, shown)
        shown = replace(shown, is_structured=False, reason=_NO_STRUCTURE)
        return FirstPart(shown.part_window(handle, work), shown, is_admitted=False)

    def _select(self, work: Work) -> "ShownResult":
        """Selects what to show, and finds the rows of that."""
        source, data = self.source, self.source.data
        shown = select(data, self.policy, work)
        if self.admits is not None and (
            shown.is_outlined or (shown.is_projected and not self.admits(document.decode(shown.data)))  # type: ignore[arg-type]
        ):
            policy = replace(self.policy, fields=None, grep=None)
            shown = ShownResult(data, policy, reason="The output schema asks for every field. ")
        value = None if shown.is_projected else source.value
        rows = None if isinstance(shown.data, str) else find_rows(shown.data, shown.policy.rows, work, value)
        reason = self.reason + shown.reason + self._page_reason(shown, rows, work)
        return replace(shown, reason=reason, value=value, rows=rows, is_structured=source.structured is not UNSET)

    def _page_reason(self, shown: "ShownResult", rows: list[str] | None, work: Work) -> str:
        """Returns what the server says of more rows than the result has, for a note."""
        data, policy = self.source.data, shown.policy
        if isinstance(data, str) or policy.max_tokens < MIN_HINT_TOKENS:
            return ""
        if shown.is_projected:
            rows = find_rows(data, policy.rows, work)
        sentence = page_sentence(data, rows, work)
        return f"{sentence} " if sentence else ""

    def _whole(self, shown: "ShownResult", find_handle: Callable[[], Handle | None], work: Work) -> "FirstPart | None":
        handle = find_handle() if self.names_whole else None
        name = "" if handle is None else handle.name
        window = shown.whole_window(work, whole_note(name, shown.reason))
        if window is None:
            return None
        original = self.source.original_result
        if original is None or window.form == "table":
            return FirstPart(window, shown, is_whole=True)
        policy = shown.policy
        is_compact = not shown.is_structured and document.strip_space(self.source.data, work) == window.text.encode()
        most = Budget.of(policy).cost_of(window.texts, work) if is_compact else policy.max_tokens
        return FirstPart(window, shown, is_whole=True, keeps_original=blocks.cost(original, policy, work) <= most)


class FirstPart(Struct, frozen=True):
    """What a first reply shows of a result."""

    window: Window
    shown: "ShownResult"
    is_whole: bool = False
    """Whether that is the whole result."""
    keeps_original: bool = False
    """Whether the whole result is sent as the author or another server made it."""
    is_admitted: bool = True
    """Whether it matches the output schema, if the tool promises one."""


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
    is_outlined: bool = False
    """Whether only the shape of the data is shown, because the caller's query selects nothing of it."""
    is_structured: bool = False
    """Whether the reply has the value as structured content too."""
    reason: str = ""
    """A sentence that begins the note, and a space; or nothing."""

    # The whole

    def whole_window(self, work: Work, note: Note = _NO_NOTE) -> Window | None:
        """Returns a window with the whole text or JSON.

        It is None where it does not fit, has more rows than a page, is too large to be shown without a preview, or is
        only outlined.
        """
        if self.is_outlined:
            return None
        data = self.data
        policy = self.policy
        if self.may_preview:
            policy = replace(policy, max_tokens=min(policy.max_tokens, policy.preview_above))
        frame = Frame(policy, note, work, structured=self.is_structured)
        if isinstance(data, str):
            value = data if frame.structured else UNSET
            window = frame.add_note(Window("whole", 0, 1, 1, data, form="text", value=value))
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
        """Returns the rows, each encoded; None where there are none."""
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

    @property
    def may_preview(self) -> bool:
        """Whether a result that is large is shown by its shape and its beginning, until its caller asks for more.

        So is what a query selects: one that selects nearly all, by mistake, is as large as the result.
        """
        return self.policy.preview_above > 0 and not self.is_structured

    def part_window(self, handle: Handle | None, work: Work) -> Window:
        """Returns the window of a reply to which the whole does not belong; the handle is None where it is not stored.

        A value of which only selected fields are shown may fit whole.
        """
        return next(window for window in self._candidates(handle, work) if window is not None)

    def _candidates(self, handle: Handle | None, work: Work) -> Iterator[Window | None]:
        """Yields the windows that a reply may have, from the best to the smallest; the last one fits always."""
        if self.is_projected:
            yield self.whole_window(work, selection_note(handle, self.reason))
        if self.is_outlined and handle is not None:
            yield self._shape_window(handle, work)
        shown = self._as_preview(work) if self.may_preview and handle is not None else self
        yield from shown.parts(handle, work)

    def parts(self, handle: Handle | None, work: Work) -> Iterator[Window | None]:
        """Yields the windows with a part of the data, from the best to the smallest; the last one fits always."""
        data, policy = self.data, self.policy
        units = self._units(work)
        link = jsonrpc.encode(handle.link).decode() if handle is not None and policy.may_link else ""
        count = None if units is None else len(units)
        note = FirstNote(handle, policy.max_tokens, self.reason, count, self.is_projected)
        frame = Frame(policy, note, work, link, self.is_structured)
        if isinstance(data, str):
            yield truncation.text_window(data, 0, "characters", frame, policy.tail)
            return
        if units is None and policy.grep is not None:
            # What matches is an object by index or name, of which some whole members say more than a part of each.
            matches = document.units(data, work)
            yield truncation.members_window(matches, 0, frame) if isinstance(matches, Mapping) else None
        listed = None if units is None or self.rows is None else _rows_window(data, units, self.rows, frame)
        if listed is not None and listed.next is not None:
            yield listed
        if document.kind(data) in ("object", "list"):
            # Where all rows fit, the members beside them do not; a summary that has all rows too shows more of them.
            summarized = truncation.summary_window(data, _show_summary, frame, self.value)
            if listed is None or (summarized is not None and not _cuts_part(summarized, self.rows or ())):
                yield summarized
        yield listed
        yield truncation.text_window(str(memoryview(data), "utf-8"), 0, "JSON characters", frame)

    def _as_preview(self, work: Work) -> "ShownResult":
        """Returns the same within the budget of a preview, with its shape in the note."""
        budget = min(self.policy.max_tokens, PREVIEW_TOKENS)
        # The lines that match a pattern are counted in the reason.
        has_outline = budget > 2 * _SHAPE_TOKENS and self.policy.grep is None
        reason = f"{self.outline(work)} " if has_outline else ""
        return replace(self, policy=replace(self.policy, max_tokens=budget), reason=self.reason + reason)

    def outline(self, work: Work) -> str:
        """Returns the shape of the data, or the number of lines of a text, in a sentence."""
        if isinstance(self.data, str):
            work.scan(len(self.data))
            return f"{count_lines(self.data)} lines, {len(self.data)} characters of text."
        value = self.value if self.value is not None else document.decode_counted(self.data, work)
        return f"Shape: {shape_text(shape_of(value, work), _SHAPE_TOKENS, self.policy.model)}."

    def _shape_window(self, handle: Handle, work: Work) -> Window | None:
        """Returns a window with the shape alone; None where it does not fit, or takes more work than there is."""
        try:
            text = self.outline(work)
        except WorkLimitError:
            raise
        except UsageError:  # it has too many values
            return None
        frame = Frame(self.policy, OutlineNote(handle, self.reason), work)
        window = frame.add_note(Window("whole", 0, 0, 1, text, form="text", cuts=("",)))
        return window if frame.fits(window) else None


def _largest_object(value: Any, work: Work) -> int:
    """Returns the most members of the value, or of an object in it."""
    if not isinstance(value, dict):
        return 0
    work.spend(len(value) // _MEMBERS_PER_STEP)
    return max(len(value), *(len(member) for member in value.values() if isinstance(member, dict)), 0)


def _cuts_part(window: Window, path: Sequence[str]) -> bool:
    """Whether a window lacks any of the part at a path."""
    prefix = pointer(*path) + "/"
    return any(prefix.startswith(cut + "/") or cut.startswith(prefix) for cut in window.cuts)


def _show_summary(frame: Frame, shown: JSON, cuts: tuple[str, ...]) -> Window:
    return frame.make_window("whole", shown, 0, 0, 1, cuts)


def _rows_window(data: bytes, units: Sequence[RawJSON], path: list[str], frame: Frame) -> Window | None:
    # In structured content nothing is abridged, because programs would take an abridged value for the value.
    space = len(data) if frame.structured else frame.budget.tokens
    return truncation.rows_window(units, 0, _envelope(data, path, space, frame.work), frame)


def _envelope(data: RawJSON, path: Sequence[str], space: int, work: Work) -> Envelope:
    """Returns what is around rows.

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
        value, inner_cuts = truncation.Summary(jsonrpc.encode(beside), work).abridge(space)
        assert isinstance(value, dict), "an object is abridged to an object"
        names = [key for key in members if key in value or key == name]
        left_out = {key: mark for key, mark in value.items() if key not in members}
        levels.append((name, {key: value.get(key) for key in names} | left_out))
        cuts += [pointer(*path[:depth]) + cut for cut in inner_cuts]
        data, space = members[name], space // 2
    return Envelope(tuple(levels), tuple(path), tuple(cuts))


# What is shown


def select(data: str | RawJSON, policy: ResolvedPolicy, work: Work) -> ShownResult:
    """Returns what a policy shows of a result: what its query selects.

    Of a query of the caller's that selects nothing, that is the shape of the result, which the function has returned
    and must not lose. An author's fields that do not apply are not its caller's mistake: the whole is shown.

    Raises:
        WorkLimitError: the selection would take more steps than there are.
    """
    own = data if isinstance(data, str | bytes) else bytes(memoryview(data))
    if not policy.has_query:
        return ShownResult(own, policy)
    if not policy.has_callers_query:
        return _select_by_author(own, policy, work)
    found = run_query(own, policy.query, policy.rows, policy.max_tokens, work)
    reason = f"{found.sentence} " if found.sentence else ""
    if found.is_miss:
        return ShownResult(own, replace(policy, fields=None, grep=None), reason=reason, is_outlined=True)
    is_projected = found.data != own
    return ShownResult(found.data, policy, is_projected=is_projected, reason=reason)


def _select_by_author(data: str | bytes, policy: ResolvedPolicy, work: Work) -> ShownResult:
    """Selects the fields of a policy that the caller did not write: those that do not apply are not its mistake."""
    if isinstance(data, str) or policy.fields is None:
        return ShownResult(data, policy)
    try:
        value, rows = document.decode_counted(data, work), find_rows(data, policy.rows, work)
        selected = jsonrpc.encode(project_rows(value, policy.fields, rows, work))
    except WorkLimitError:
        raise
    except UsageError:
        return ShownResult(data, replace(policy, fields=None), reason="The expression in fields does not apply. ")
    return ShownResult(data if selected == data else selected, policy, is_projected=selected != data)
