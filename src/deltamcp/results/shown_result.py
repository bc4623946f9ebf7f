"""A result on its way to the model: what of it is shown, and as how much of it fits a first reply.

The pipeline of docs/decisions/0003-results.md: values in, a window out. Candidates are tried from the best to the
smallest. Whoever asks has chosen a handle, and stores the whole result under it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from typing import Any, Literal

from msgspec import UNSET, Struct
from msgspec.structs import replace

from deltamcp.errors import UsageError
from deltamcp.results import blocks, document, truncation
from deltamcp.results.blocks import add_notes
from deltamcp.results.content import ResultData, is_self_describing
from deltamcp.results.document import RawJSON, find_rows, pointer
from deltamcp.results.policy import META_KEY, ResolvedPolicy
from deltamcp.results.queries.grep import count_lines
from deltamcp.results.queries.query import project_rows, run_query
from deltamcp.results.value_shape import page_sentence, shape_of, shape_text
from deltamcp.results.window import (
    MIN_HINT_TOKENS,
    Budget,
    FirstNote,
    Frame,
    Handle,
    Note,
    OutlineNote,
    SelectionNote,
    WholeNote,
    Window,
    may_link,
    without_words,
)
from deltamcp.values import JSON, Content, Text, ToolResult
from deltamcp.wire import jsonrpc
from deltamcp.work import Work, WorkLimitError

PREVIEW_TOKENS = 460
"""The tokens of a preview: the shape, the first rows or lines, and the handle. With the request, 500 at most."""
_SHAPE_TOKENS = 120
_NO_NOTE = WholeNote()
_NO_STRUCTURE = "No part of the result both fits and matches the output schema. "


class StoredHeader(Struct, frozen=True, omit_defaults=True):
    """The header that a store has before the bytes of a result."""

    kind: Literal["text", "json"]
    rows: list[str] | None
    """The path to the rows, after the policy's field selection; None where there are none."""
    policy: ResolvedPolicy
    root: str = ""
    """The root hash, where the result may be the base of a delta; else empty."""
    deltas: int = 0
    """How many deltas the caller got since the server last sent it the whole result."""
    is_part: bool = False
    """Whether the caller was shown only a part of what the policy selects."""
    first: int = 0
    """Where the first reply ended and reading without a path continues; 0 where reading starts over."""
    origin: str = ""
    """What returned the result, such as an operation, for whom it is refused."""
    scopes: tuple[str, ...] = ()
    """The scopes that whoever reads the result needs."""

    @property
    def is_shown_whole(self) -> bool:
        """Whether the caller was shown all of the result."""
        return not self.is_part and not self.policy.has_query


class FirstReply(Struct, frozen=True):
    """The first reply to a call: what the function returned, and what decides how much of it the caller is shown."""

    source: ResultData
    policy: ResolvedPolicy
    admits: Callable[[JSON], bool] | None = None
    """Whether a value matches the output schema; None if the tool promises none."""
    names_whole: bool = False
    """Whether a reply with the whole result says the handle, so that the next call can ask what changed since."""
    root: str | None = None
    """The root of a result that is stored even if it fits, to be the base of a delta; None for others."""
    reason: str = ""
    """A sentence that begins the note, and a space; or nothing."""

    def simplify(self) -> "FirstReply":
        """Returns the same for a result whose query or tables take too much work: all of it, as plain JSON."""
        policy = replace(self.policy, fields=None, grep=None, tables=False, preview_above=0)
        reason = "The query would take too much work, so all is shown. " if self.policy.has_query else ""
        return replace(self, policy=policy, reason=self.reason + reason)

    def show(self, handle: Handle | None, told: Set[str], work: Work) -> "FirstPart":
        """Returns the whole if it fits, else the part that does.

        Args:
            handle: The name under which the result is to be stored; None where it is not, or not yet.
            told: The words on forms of results that the conversation was told.
        """
        shown = self._select(work)
        whole = None if shown.is_projected else self._whole(shown, handle, told, work)
        if whole is not None:
            return whole
        window = replace(shown, is_structured=self.admits is not None).part_window(handle, work)
        if self.admits is None or (window.value is not UNSET and self.admits(window.value)):
            return self._part(shown, window, handle, told)
        shown = replace(shown, is_structured=False, reason=_NO_STRUCTURE)
        return self._part(shown, shown.part_window(handle, work), handle, told, is_admitted=False)

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
        reason = self.reason + shown.reason
        if not isinstance(data, str) and shown.policy.max_tokens >= MIN_HINT_TOKENS:
            all_rows = find_rows(data, shown.policy.rows, work) if shown.is_projected else rows
            sentence = page_sentence(data, all_rows, work)
            reason += f"{sentence} " if sentence else ""
        return replace(shown, reason=reason, value=value, rows=rows, is_structured=source.structured is not UNSET)

    def _whole(self, shown: "ShownResult", handle: Handle | None, told: Set[str], work: Work) -> "FirstPart | None":
        """Returns the whole result; None where it does not fit."""
        name = handle.name if handle is not None and self.names_whole else ""
        window = shown.whole_window(work, WholeNote(name, shown.reason))
        if window is None:
            return None
        source, original, stored = (
            self.source,
            self.source.original_result,
            handle if self.names_whole or self.root is not None else None,
        )
        # Programs need the form if the text is not evidently JSON, or if the result is the base of a delta.
        needs_form = window.form == "table" or stored is not None or not is_self_describing(source.data)
        meta: dict[str, JSON] = {"form": window.form} if needs_form else {}
        if stored is not None:
            meta["handle"] = stored.name
        if original is not None and window.form != "table" and self._keeps(original, shown, window, work):
            reply, notes = original, [f"[handle {name}.]"] if name else []
        else:
            window = without_words(window, told)
            reply, notes = ToolResult([Text(window.text)], source.structured), window.notes
        reply = replace(reply, meta={**(reply.meta or {}), META_KEY: meta}) if meta else reply
        kind: Literal["text", "json"] = "text" if isinstance(source.data, str) else "json"
        header = StoredHeader(kind, shown.rows, shown.policy, self.root or "")
        return FirstPart(add_notes(reply, notes), window.words, header, is_whole=True)

    def _keeps(self, original: ToolResult, shown: "ShownResult", window: Window, work: Work) -> bool:
        """Whether the whole result is sent as the author or another server made it: where that costs no more."""
        policy = shown.policy
        is_compact = not shown.is_structured and document.strip_space(self.source.data, work) == window.text.encode()
        most = Budget.of(policy).cost_of(window.texts, work) if is_compact else policy.max_tokens
        return blocks.cost(original, policy, work) <= most

    def _part(
        self,
        shown: "ShownResult",
        window: Window,
        handle: Handle | None,
        told: Set[str],
        is_admitted: bool = True,
    ) -> "FirstPart":
        """Returns a part; `is_admitted` is whether it matches the output schema, if the tool promises one."""
        kind: Literal["text", "json"] = "text" if isinstance(self.source.data, str) else "json"
        window = without_words(window, told)
        meta, is_part, notes = window.meta(""), window.is_part, window.notes
        header = StoredHeader(kind, shown.rows, shown.policy, self.root or "", 0, is_part, window.next or 0)
        content: list[Content] = [Text(window.text)]
        if shown.is_outlined:
            meta["selects"] = "nothing"
        elif not is_part and shown.policy.has_callers_query:
            meta["selects"] = "all"
        if handle is None:
            meta["rest"] = "not stored"
        else:
            meta = {"handle": handle.name, **meta}
            # A window that lacks only unselected fields has no link.
            content += [handle.link] if is_part and may_link(shown.policy) else []
        # Clients accept a result without the structured content of its output schema only as an error.
        structured = window.value if self.admits is not None and is_admitted else UNSET
        reply = ToolResult(content, structured, not is_admitted, {META_KEY: meta})
        return FirstPart(add_notes(reply, notes), window.words, header)


class FirstPart(Struct, frozen=True):
    """A first reply, and what is to be known of it afterwards."""

    reply: ToolResult
    words: tuple[str, ...]
    """The words that the reply explains, or that were told before."""
    header: StoredHeader
    """What is stored before the result, unless that is not stored."""
    is_whole: bool = False
    """Whether the reply has the whole result."""


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
        has_more_rows = policy.page_size is not None and self._row_count(work) > policy.page_size
        frame = Frame(policy, note, work, self.is_structured)
        if isinstance(data, str):
            value = data if frame.structured else UNSET
            window = frame.add_note(Window("whole", 0, 1, 1, data, form="text", value=value))
            return window if frame.fits(window) else None
        whole = None if has_more_rows else truncation.whole_window(data, self.rows, self.value, frame)
        return whole if whole is not None and frame.fits(whole) else None

    def _row_count(self, work: Work) -> int:
        if self.rows is None or isinstance(self.data, str):
            return 0
        return len(document.rows_at(self.data, self.rows, self.value, work))

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
            yield self.whole_window(work, SelectionNote(handle, self.reason))
        if self.is_outlined and handle is not None:
            yield self._shape_window(handle, work)
        shown = self._as_preview(work) if self.may_preview and handle is not None else self
        yield from shown.parts(handle, work)

    def parts(self, handle: Handle | None, work: Work) -> Iterator[Window | None]:
        """Yields the windows with a part of the data, from the best to the smallest; the last one fits always."""
        data, policy = self.data, self.policy
        units = None
        if self.rows is not None and not isinstance(data, str):
            units = document.rows_at(data, self.rows, self.value, work)
        count = None if units is None else len(units)
        note = FirstNote(handle, policy.max_tokens, self.reason, count, self.is_projected)
        frame = Frame(policy, note, work, self.is_structured, None if handle is None else handle.link)
        if isinstance(data, str):
            yield truncation.text_window(data, 0, "characters", frame, policy.tail)
            return
        if units is None and policy.grep is not None:
            # What matches is an object by index or name, of which some whole members say more than a part of each.
            matches = document.units(data, work)
            yield truncation.members_window(matches, 0, frame) if isinstance(matches, Mapping) else None
        listed = None
        if units is not None and self.rows is not None:
            # In structured content nothing is abridged, because programs would take an abridged value for the value.
            space = len(data) if frame.structured else policy.max_tokens
            envelope = truncation.envelope_of(data, self.rows, space, work)
            listed = truncation.rows_window(units, 0, envelope, frame)
        if listed is not None and listed.end < listed.total:
            yield listed
        if document.kind(data) in ("object", "list"):
            # Where all rows fit, the members beside them do not; a summary that has all rows too shows more of them.
            summarized = truncation.summary_window(data, truncation.show_summary, frame, self.value)
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


def _cuts_part(window: Window, path: Sequence[str]) -> bool:
    """Whether a window lacks any of the part at a path."""
    prefix = pointer(*path) + "/"
    return any(prefix.startswith(cut + "/") or cut.startswith(prefix) for cut in window.cuts)


# What is shown


def select(data: str | RawJSON, policy: ResolvedPolicy, work: Work) -> ShownResult:
    """Returns what a policy shows of a result: what its query selects.

    Of a query of the caller's that selects nothing, that is the shape of the result, which the function has returned
    and must not lose. An author's fields that do not apply are not its caller's mistake: the whole is shown.

    Raises:
        WorkLimitError: the selection would take more steps than there are.
    """
    own = data if isinstance(data, str | bytes) else bytes(memoryview(data))
    if policy.fields is None and policy.grep is None:
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
