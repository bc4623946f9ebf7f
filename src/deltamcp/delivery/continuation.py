"""Replies that fit a budget of tokens: the first part of a result, the parts that `continue` returns, and references.

References are arguments that name a stored result, or a part of one, instead of repeating it.
"""

from collections.abc import Callable, Mapping
from typing import Literal, TypeVar
from urllib.parse import unquote

from msgspec import UNSET
from msgspec.structs import replace

from deltamcp.delivery.sent_results import ToldWords
from deltamcp.delivery.stored_results import ResultOrigin, ResultRoot, StoredResults
from deltamcp.errors import UsageError
from deltamcp.results import blocks, document, reference
from deltamcp.results.budget import DEFAULT_MAX_TOKENS
from deltamcp.results.content import ResultData, is_self_describing, single_data
from deltamcp.results.document import RawJSON, find_rows
from deltamcp.results.notes import MIN_HINT_TOKENS, Handle, add_notes, whole_note
from deltamcp.results.policy import META_KEY, ResolvedPolicy, ResultPolicy
from deltamcp.results.queries.query import Query, run_query
from deltamcp.results.shown_result import ShownResult, is_linked, select
from deltamcp.results.stored_result import StoredHeader, StoredResult, parse_continue_arguments
from deltamcp.results.value_shape import page_sentence
from deltamcp.results.window import Window, with_note, without_words
from deltamcp.runtime.threads import Computations
from deltamcp.values import JSON, Caller, Content, Text, TextResource, ToolResult
from deltamcp.work import Work, WorkLimitError

_MAX_REFERENCED_RESULTS = 64
"""The most stored results that the arguments of one call may refer to; all of them are read from the store."""
_MAX_RESOURCE_BYTES = 8 * 1024 * 1024
"""The largest part of a stored result that is read as a resource: its text is copied and escaped."""
_NO_TEXTS = "[The result has no text or value that fields and grep could select from.]"
_NO_STRUCTURE = "No part of the result both fits and matches the output schema. "

T = TypeVar("T")


class Continuation:
    """Returns as much of a result as fits, stores the whole result, and returns further parts of it on request."""

    def __init__(self, stored: StoredResults, computations: Computations) -> None:
        self._stored = stored
        self._computations = computations
        self.told: ToldWords = ToldWords()

    async def first_reply(
        self,
        source: ResultData,
        policy: ResolvedPolicy,
        caller: Caller,
        origin: ResultOrigin,
        admits: Callable[[JSON], bool] | None = None,
        root: ResultRoot | None = None,
        named_above: int | None = None,
        reason: str = "",
    ) -> ToolResult:
        """Returns the reply to a call: the whole result if it fits, else its first part.

        Args:
            admits: Whether a value matches the output schema; None if the tool promises none.
            root: The result's root. A result with a root is stored even if it fits, to be the base of a delta.
            named_above: Whole results of more bytes are stored too, and the reply says their handle, so that the next
                call can ask what changed since; None for none.
            reason: A sentence that begins the note, and a space; or nothing.
        """
        size = len(source.data)
        sample = self._stored.sample_name(caller) if named_above is not None and size > named_above else ""
        part = _FirstPart(source, policy, admits, "" if root is None else root.root, sample, reason)
        try:
            whole = await self._run(caller, part.choose)
        except WorkLimitError:
            part = part.simplify()
            whole = await self._run(caller, part.choose)
        if whole is not None:
            stored = None
            if root is not None or sample:
                stored, _ = await self._stored.store(source.data, caller, origin, part.show_nothing, root)
            if sample:
                whole = part.with_handle(whole, stored)
            whole = self._explain(whole, caller)
            return _whole_reply(whole, source, part.keeps_original, stored, says_handle=bool(sample))

        async def show_part(handle: Handle | None) -> tuple[StoredHeader, tuple[Window, bool]]:
            nonlocal part
            try:
                window, holds = await self._run(caller, lambda work: part.window(handle, work))
            except WorkLimitError:
                part = part.simplify()
                await self._run(caller, part.choose)
                window, holds = await self._run(caller, lambda work: part.window(handle, work))
            return part.header(is_part=window.is_part, first=window.next or 0), (window, holds)

        handle, (window, holds) = await self._stored.store(source.data, caller, origin, show_part, root)
        window = self._explain(window, caller)
        content: list[Content] = [Text(window.text)]
        meta = _window_meta(window, "")
        if part.shown.is_outlined:
            meta["selects"] = "nothing"
        if handle is None:
            meta["rest"] = "not stored"
        else:
            meta = {"handle": handle.name, **meta}
            content += [handle.link] if is_linked(part.shown.policy, window) else []
        # Clients accept a result without the structured content of its output schema only as an error.
        structured = window.value if admits is not None and holds else UNSET
        return add_notes(ToolResult(content, structured, not holds, {META_KEY: meta}), window.notes)

    async def single_data(self, result: ToolResult, caller: Caller, keeps_structure: bool) -> ResultData | None:
        """Returns the one text or JSON value that a result consists of; None if it has more.

        `keeps_structure` is whether the caller expects the structured content as the tool made it.
        """
        try:
            return await self._run(caller, lambda work: single_data(result, work, keeps_structure))
        except WorkLimitError:
            return None

    async def first_reply_of_blocks(
        self, result: ToolResult, policy: ResolvedPolicy, caller: Caller, origin: ResultOrigin, promised: bool
    ) -> ToolResult:
        """Returns the reply for a result of several blocks: texts as far as they fit, and all images and sounds.

        A query is asked of the texts. `promised` is whether the output schema requires structured content.
        """
        if policy.query and (texts := blocks.texts_of(result)):
            reply = await self.first_reply(ResultData("\n".join(texts)), policy, caller, origin)
            return replace(reply, content=[*reply.content, *blocks.others_of(result)])
        if policy.grep is not None or (policy.fields is not None and policy.fields_requested):
            result = add_notes(result, [_NO_TEXTS])
        if await self._run(caller, lambda work: blocks.fits(result, policy, work)):
            return result

        async def show_part(handle: Handle | None) -> tuple[StoredHeader, ToolResult]:
            cut = await self._run(caller, lambda work: blocks.truncate_blocks(result, policy, handle, promised, work))
            return StoredHeader("json", None, replace(policy, fields=None), is_part=True), cut

        return (await self._stored.store(blocks.encode_blocks(result), caller, origin, show_part))[1]

    async def next_reply(
        self, arguments: Mapping[str, JSON], caller: Caller, requested: ResultPolicy | None = None
    ) -> ToolResult:
        """Returns the reply to `continue`; `requested` is the policy in the request.

        Raises:
            UsageError: nothing is stored under the handle, or the arguments do not fit the result.
            MissingScopesError: the caller lacks scopes for the result.
            StoreError: the store cannot be reached.
        """
        read = parse_continue_arguments(arguments)
        stored, path = await self._stored.find(read.handle, caller), ""
        if read.since:
            base = await self._stored.find(read.since, caller)
            window = await self._run(caller, lambda work: stored.read_changes(base, read, requested, work))
        else:
            window, path = await self._run(caller, lambda work: stored.read(read, requested, work))
        window = self._explain(window, caller)
        meta = {META_KEY: {"handle": read.handle, **_window_meta(window, path)}}
        return add_notes(ToolResult([Text(window.text)], meta=meta), window.notes)

    def _explain(self, window: Window, caller: Caller) -> Window:
        """Returns a window that explains what its conversation was not told yet."""
        words = window.words
        window = without_words(window, self.told.of(caller))
        self.told.add(caller, words)
        return window

    async def resolve_references(self, arguments: dict[str, JSON], caller: Caller, strict: bool) -> dict[str, JSON]:
        """Returns the arguments with every `{"$result": ...}` replaced by the stored value that it names.

        Unless `strict`, an object that names no stored result is taken for the tool's own and stays.

        Raises:
            UsageError: a reference names no stored value.
            MissingScopesError: the caller lacks scopes for a result that a reference names.
            StoreError: the store cannot be reached.
        """
        found = await self._run(caller, lambda work: list(reference.find_references(arguments, work)))
        opened: dict[str, StoredResult | None] = {}
        for name in (each[reference.KEY] for each in found):
            if not isinstance(name, str):
                if strict:
                    raise UsageError(f"{reference.KEY} must be a string.")
            elif name not in opened:
                if len(opened) == _MAX_REFERENCED_RESULTS:
                    raise UsageError(f"One call's arguments may refer to at most {_MAX_REFERENCED_RESULTS} results.")
                opened[name] = await self._open_referenced(name, caller, strict)
        results = {name: stored for name, stored in opened.items() if stored is not None}
        return await self._run(caller, lambda work: _resolve(arguments, found, results, strict, work))

    async def _open_referenced(self, name: str, caller: Caller, strict: bool) -> StoredResult | None:
        try:
            return await self._stored.open(name, caller)
        except UsageError:
            if strict:
                raise
            return None

    async def stored_resource(self, uri: str, caller: Caller) -> tuple[TextResource, ResultOrigin] | None:
        """Returns the stored result at a URI, or the part of it that the URI names; None if there is none.

        Raises:
            MissingScopesError: the caller lacks scopes for the result.
            StoreError: the store cannot be reached.
            UsageError: the part is too large for one reply.
        """
        place = self._stored.parse_uri(unquote(uri))
        if place is None:
            return None
        name, path = place
        try:
            stored = await self._stored.open(name, caller)
            data = await self._run(caller, lambda work: stored.parts(work).at(path))
        except WorkLimitError:
            raise
        except UsageError:
            return None
        if len(data) > _MAX_RESOURCE_BYTES:
            raise UsageError(
                f"This has more than {_MAX_RESOURCE_BYTES >> 20} MiB; read a part of it, by a path after the URI, or "
                f"by the tool {self._stored.handle(name).continue_tool}."
            )
        if isinstance(data, str) or document.kind(data) == "text":
            read = TextResource(uri, data if isinstance(data, str) else document.decode(data), "text/plain")
        else:
            read = TextResource(uri, str(memoryview(data), "utf-8"), "application/json")
        return read, ResultOrigin(stored.origin, stored.scopes)

    async def _run(self, caller: Caller, compute: Callable[[Work], T]) -> T:
        return await self._computations.run(caller.account, compute)


class _FirstPart:
    """The part of a result that a first reply shows. Computations call its methods, and so may call them twice."""

    def __init__(
        self,
        source: ResultData,
        policy: ResolvedPolicy,
        admits: Callable[[JSON], bool] | None,
        root: str,
        sample: str,
        reason: str = "",
    ) -> None:
        """`sample` is a name as long as the handle that the note of a whole result says; empty if it says none."""
        self._sample = sample
        self.shown = ShownResult(source.data, policy)
        self.keeps_original = False
        """Whether the whole result is sent as the author or another server made it."""
        self._source = source
        self._given_policy = policy
        self._admits = admits
        self._root = root
        self._reason = reason

    def simplify(self) -> "_FirstPart":
        """Returns the same part for a result whose fields or tables take too much work: all of it, as plain JSON."""
        given = self._given_policy
        policy = replace(given, fields=None, grep=None, tables=False, preview_above=0)
        reason = "The query would take too much work, so all is shown. " if given.query else ""
        return _FirstPart(self._source, policy, self._admits, self._root, self._sample, self._reason + reason)

    def choose(self, work: Work) -> Window | None:
        """Selects the fields to show, and returns the whole as a window if it fits."""
        source, data = self._source, self._source.data
        shown = select(data, self._given_policy, work)
        if self._admits is not None and (
            shown.is_outlined or (shown.is_projected and not self._admits(document.decode(shown.data)))  # type: ignore[arg-type]
        ):
            policy = replace(self._given_policy, fields=None, grep=None)
            shown = ShownResult(data, policy, reason="The output schema asks for every field. ")
        value = None if shown.is_projected else source.value
        rows = None if isinstance(shown.data, str) else find_rows(shown.data, shown.policy.rows, work, value)
        page = self._page_reason(shown, rows, work)
        shown = replace(shown, reason=self._reason + shown.reason + page)
        shown = self.shown = replace(shown, value=value, rows=rows, is_structured=source.structured is not UNSET)
        if shown.is_projected:
            return None
        whole = shown.whole_window(work, whole_note(self._sample, shown.reason))
        original = source.original_result
        if whole is not None and original is not None and whole.form != "table":
            is_compact = not shown.is_structured and document.strip_space(data, work) == whole.text.encode()
            most = shown.policy.budget.cost_of(whole.texts) if is_compact else shown.policy.max_tokens
            self.keeps_original = blocks.cost(original, shown.policy, work) <= most
        return whole

    def with_handle(self, whole: Window, handle: Handle | None) -> Window:
        """Returns the window of a whole result with the name under which it is stored in its note, if it is."""
        return with_note(whole, whole_note("" if handle is None else handle.name, self.shown.reason))

    def _page_reason(self, shown: ShownResult, rows: list[str] | None, work: Work) -> str:
        """Returns what the server says of more rows than the result has, for a note."""
        data, policy = self._source.data, shown.policy
        if isinstance(data, str) or policy.max_tokens < MIN_HINT_TOKENS:
            return ""
        if shown.is_projected:
            rows = find_rows(data, policy.rows, work)
        sentence = page_sentence(data, rows, work)
        return f"{sentence} " if sentence else ""

    def window(self, handle: Handle | None, work: Work) -> tuple[Window, bool]:
        """Returns the part that fits, and whether it matches the output schema."""
        window = replace(self.shown, is_structured=self._admits is not None).part_window(handle, work)
        if self._admits is not None and (window.value is UNSET or not self._admits(window.value)):
            return replace(self.shown, is_structured=False, reason=_NO_STRUCTURE).part_window(handle, work), False
        return window, True

    async def show_nothing(self, handle: Handle | None) -> tuple[StoredHeader, None]:
        return self.header(), None

    def header(self, is_part: bool = False, first: int = 0) -> StoredHeader:
        kind: Literal["text", "json"] = "text" if isinstance(self._source.data, str) else "json"
        return StoredHeader(kind, self.shown.rows, self.shown.policy, self._root, is_part=is_part, first=first)


def _resolve(
    arguments: dict[str, JSON],
    found: list[dict[str, JSON]],
    results: Mapping[str, StoredResult],
    strict: bool,
    work: Work,
) -> dict[str, JSON]:
    """Returns the arguments with the stored values in place of the references to them."""
    values: dict[int, JSON] = {}
    shared: dict[tuple[str, str, str], JSON] = {}
    parts = {name: stored.parts(work) for name, stored in results.items()}
    bytes_left, values_left = reference.MAX_BYTES, reference.MAX_VALUES
    for each in found:
        name, path = each[reference.KEY], each.get("path", "")
        if not isinstance(path, str):
            if strict:
                raise UsageError("path must be a string.")
            continue
        if name not in results:
            continue
        reference.check_reference(each)
        data = parts[name].at(path)
        fields = each.get("fields")
        if fields is not None:
            data = _select(data, fields, work)
        bytes_left -= len(data)
        values_left -= 1 if isinstance(data, str) else document.estimate_values(data, work)
        work.scan(len(data))
        if bytes_left < 0 or values_left < 0:
            raise UsageError(
                f"The results in one call's arguments come to more than {reference.MAX_BYTES >> 20} MiB "
                f"or {reference.MAX_VALUES} values."
            )
        if "patch" in each:
            value = data if isinstance(data, str) else document.decode_counted(data, work)
            values[id(each)] = reference.apply_patch(value, each["patch"], bytes_left, work)
            continue
        key = (name, path, repr(fields))
        if key not in shared:
            shared[key] = data if isinstance(data, str) else document.decode_counted(data, work)
        values[id(each)] = shared[key]
    resolved: dict[str, JSON] = reference.replace_references(arguments, values, work)
    return resolved


def _select(data: RawJSON | str, fields: JSON, work: Work) -> str | bytes:
    """Returns what a reference selects of a stored result.

    Raises:
        UsageError: that is nothing.
    """
    assert isinstance(fields, str | list), "it was checked"
    found = run_query(data, Query(fields), None, DEFAULT_MAX_TOKENS, work)
    if found.is_miss:
        raise UsageError(f"{reference.KEY}: {found.sentence}")
    return found.data


def _whole_reply(
    window: Window, source: ResultData, keeps_original: bool, stored: Handle | None, says_handle: bool
) -> ToolResult:
    # Programs need the form if the text is not evidently JSON, or if the result is the base of a delta.
    needs_form = window.form == "table" or stored is not None or not is_self_describing(source.data)
    meta: dict[str, JSON] = {"form": window.form} if needs_form else {}
    if stored is not None:
        meta["handle"] = stored.name
    reply, notes = ToolResult([Text(window.text)], source.structured), window.notes
    if source.original_result is not None and keeps_original:
        reply, notes = source.original_result, [f"[handle {stored.name}.]"] if says_handle and stored else []
    reply = replace(reply, meta={**(reply.meta or {}), META_KEY: meta}) if meta else reply
    return add_notes(reply, notes)


def _window_meta(window: Window, path: str) -> dict[str, JSON]:
    """Returns the fields from which a program can put a value together from several replies."""
    meta: dict[str, JSON] = {"form": window.form, "unit": window.unit, "path": path}
    if window.unit != "whole":
        meta |= {"start": window.start, "end": window.end, "total": window.total}
    if window.cuts:
        meta["cuts"] = list(window.cuts)
    return meta
