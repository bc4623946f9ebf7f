"""Delivery to callers that may have an earlier result: "unchanged", a delta or the whole, whichever costs least."""

import logging
import time
from collections.abc import Callable
from itertools import islice
from typing import Literal, NamedTuple, TypeVar

from msgspec.structs import replace

from deltamcp import tokens
from deltamcp.catalog.text.clean_text import value_excerpt
from deltamcp.delivery.continuation import Continuation
from deltamcp.delivery.sent_results import CallKey, LastSent, RowLocation, SentResults, SharedReplies
from deltamcp.delivery.stored_results import UNSCOPED, ResultRoot, StoredResults
from deltamcp.deltas.root import ALGORITHM, root_digits
from deltamcp.errors import MissingScopesError, UsageError
from deltamcp.results import changes
from deltamcp.results.blocks import add_notes
from deltamcp.results.changes import (
    MAX_DELTA_SHARE,
    REANCHOR_AFTER_DELTAS,
    ChangeText,
    ComparableResult,
    PathToWhole,
    SentBefore,
)
from deltamcp.results.content import ResultData, json_or_text
from deltamcp.results.encode import legend_of
from deltamcp.results.policy import META_KEY, RESET, ResolvedPolicy
from deltamcp.results.shown_result import PREVIEW_TOKENS, FirstReply, ShownResult, StoredHeader, select
from deltamcp.results.stored_result import StoredResult
from deltamcp.results.window import Budget, Handle, WholeNote, without_words
from deltamcp.runtime.threads import Computations
from deltamcp.stores.store import StoreError
from deltamcp.values import JSON, Caller, Contents, Manifest, Text, TextResource, ToolResult
from deltamcp.wire import jsonrpc
from deltamcp.work import Work

_MAX_BYTES_PER_TOKEN = 400
"""The most bytes of a result that one token stands for; it tells that a text is cheap without counting the result."""
_NAMED_ABOVE_BYTES = 300
"""Whole results above this size say their handle, for a caller that may ask what changed since."""
_NO_BUDGET = 1 << 40
_MAX_RESULTS_OF_ROWS = 64
"""The number of earlier results to whose rows one result may refer; each of them is looked up in the store."""
_MAX_SESSION_SHARE = 2.0
"""The most that a text with the symbol ids of a session may cost, as a multiple of the whole result.

Such a text is preferred even if it costs more, so that an id means the same in every reply to a caller.
"""

T = TypeVar("T")
logger: logging.Logger = logging.getLogger("deltamcp")


class _Pending(NamedTuple):
    """A result for which `ChangeDelivery` chooses a reply, and its call."""

    call: CallKey
    policy: ResolvedPolicy
    source: ResultData
    shown: str | bytes
    """The result with only the requested fields."""
    result: ComparableResult
    before: SentBefore | None
    told: frozenset[str]
    """The words on forms of results that the conversation was told."""
    is_overtaken: bool
    """Whether the server replied to the same call while this one ran, so that the model reads the two in any order."""

    def is_cheaper(self, text: str, share: float, work: Work) -> bool:
        """Whether a text costs less than a share of the whole result, and fits the budget."""
        policy = self.policy
        Budget.of(policy).spend_count(text, work)
        cost = tokens.count(text, policy.model)
        if cost > (min(policy.max_tokens, PREVIEW_TOKENS) if policy.preview_above else policy.max_tokens):
            return False
        if cost < share * min(len(self.shown) // _MAX_BYTES_PER_TOKEN, policy.max_tokens):
            return True
        whole = ShownResult(self.shown, policy).whole_window(work)
        if whole is None:
            return cost < share * policy.max_tokens
        return cost < share * tokens.count("\n".join(without_words(whole, self.told).texts), policy.model)


class _Base(NamedTuple):
    """An earlier result, of which a reply may give the changes."""

    sent: LastSent
    handle: Handle
    stored: StoredResult


class ChangeDelivery:
    """Makes the cheapest reply from which the caller knows the result, and records what the server sent."""

    def __init__(self, stored: StoredResults, continuation: Continuation, computations: Computations) -> None:
        self._stored = stored
        self._continuation = continuation
        self._computations = computations
        self._sent = SentResults(stored.idle_seconds)
        self._shared_replies = SharedReplies(stored)

    async def accept_since(self, since: str | None, caller: Caller) -> None:
        """Forgets what the server has sent to the caller, if the caller sends a reset because it lost everything."""
        if since == RESET:
            await self.forget(caller)
        elif since == "":
            self._continuation.told.forget(caller)

    async def forget(self, caller: Caller) -> None:
        """Forgets what the server has sent in a conversation, whose client may not have received it."""
        self._continuation.told.forget(caller)
        await self._sent.reset(CallKey(caller, "", UNSCOPED))
        if caller.moves:
            await self._shared_replies.reset(caller)

    async def deliver(self, source: ResultData, policy: ResolvedPolicy, call: CallKey, since: float) -> ToolResult:
        """Returns the cheapest reply to a call, which started at `since` by the monotonic clock."""
        comparison = await self._compute(call, lambda work: _comparison(source, policy, work))
        if comparison is None:
            return await self._continuation.first_reply(FirstReply(source, policy), call.caller, call.origin)
        shown, result = comparison
        if call.caller.stays:
            # Two concurrent replies must neither be changes of one result, nor refer to each other's rows, nor assign
            # the same symbol ids.
            async with self._sent.lock(call):
                return await self._choose(source, shown, result, policy, call, since)
        return await self._choose(source, shown, result, policy, call, since)

    async def _choose(
        self,
        source: ResultData,
        shown: str | bytes,
        result: ComparableResult,
        policy: ResolvedPolicy,
        call: CallKey,
        since: float,
    ) -> ToolResult:
        before = await self._sent_before(result, policy, call)
        overtaken = call.caller.is_remembered and await self._is_overtaken(call, since)
        told = self._continuation.told.of(call.caller)
        pending = _Pending(call, policy, source, shown, result, before, told, overtaken)
        base = await self._find_base(pending)
        if base is None:
            return await self._sent_by_another_call(pending) or await self._reply_whole(pending)
        if isinstance(base, str):
            return await self._reply_whole(pending, base)
        sent, handle, stored = base
        if sent.root == result.root or await self._is_equivalent(pending, stored):
            return await self._reply_unchanged(pending, handle, sent) or await self._reply_whole(pending)
        delta_reply = await self._reply_delta(pending, sent, stored) if sent.deltas < REANCHOR_AFTER_DELTAS else None
        return delta_reply or await self._reply_whole(pending, _more_changed(pending, handle))

    async def _is_equivalent(self, pending: _Pending, stored: StoredResult) -> bool:
        """Whether the result differs from a stored one only in what the policy declares volatile."""
        if pending.policy.volatile is None:
            return False

        def compare(work: Work) -> bool:
            return pending.result.is_equivalent(stored.selected_value(pending.policy, work), pending.policy, work)

        return bool(await self._compute(pending.call, compare))

    async def _compute(self, call: CallKey, compute: Callable[[Work], T]) -> T | None:
        """Returns what a computation returns; None if it is too large: the function has run, so its result is sent."""
        try:
            return await self._computations.run(call.caller.account, compute)
        except UsageError:
            return None

    async def deliver_contents(self, read: Contents, call: CallKey, since: str) -> Contents:
        """Returns a resource's contents, or their changes, for a caller that sent the root of its last read."""
        if len(read.items) != 1 or not isinstance(item := read.items[0], TextResource):
            return read
        whole = item.text
        data = await self._compute(call, lambda work: json_or_text(whole, work))
        text, meta = await self._change_text(whole if data is None else data, call, since)
        if text is not None:
            item = TextResource(item.uri, text, "text/plain", item.meta)
        return replace(read, items=[item], meta={**(read.meta or {}), META_KEY: meta})

    async def deliver_manifest(self, page: Manifest, call: CallKey, since: str) -> Manifest:
        """Returns a page of the manifest for a caller that sent the root of its last one.

        Changes are a text in `_meta`; `entries` is then empty.
        """
        text, meta = await self._change_text(jsonrpc.encode(page.entries), call, since)
        if text is None:
            return replace(page, meta={META_KEY: meta})
        return replace(page, entries=[], meta={META_KEY: {**meta, "text": text}})

    async def _change_text(self, data: str | bytes, call: CallKey, since: str) -> tuple[str | None, dict[str, JSON]]:
        """Returns the text of the changes, None if the whole must be sent; and the `_meta` of the reply."""
        policy = ResolvedPolicy(max_tokens=_NO_BUDGET, tables=False, since=since)
        reply = await self.deliver(ResultData(data), policy, call, time.monotonic())
        meta = (reply.meta or {})[META_KEY]
        block = next(iter(reply.content))
        if meta["outcome"] == "full" or not isinstance(block, Text):
            return None, meta
        return block.text[: meta.get("lengths", [None])[0]], {key: meta[key] for key in meta if key != "lengths"}

    async def _sent_before(self, result: ComparableResult, policy: ResolvedPolicy, call: CallKey) -> SentBefore | None:
        """Returns the rows of this result that the caller has, as far as the results they came in are still stored."""
        if not policy.dedup or not call.caller.stays:
            return None
        places = await self._compute(call, result.pointers_by_digest)
        if places is None:
            return None
        sent = self._sent.sent_rows(call)
        repeated = {digest: sent[digest] for digest in places if digest in sent}
        referred = dict.fromkeys((address.partition("/")[0], root) for address, root in repeated.values())
        readable = {
            (name, root)
            for name, root in islice(referred, _MAX_RESULTS_OF_ROWS)
            if await self._stored.contains(name, root, call.caller)
        }
        rows = {
            digest: address
            for digest, (address, root) in repeated.items()
            if (address.partition("/")[0], root) in readable
        }
        return SentBefore(rows, self._sent.sent_symbols(call), policy.dedup == "deltas", places)

    async def _find_base(self, pending: _Pending) -> _Base | str | None:
        """Returns what the reply may give the changes of: the result that the caller names, or was last sent.

        It returns a sentence if the caller names one that cannot be a base, and None where there is none.
        """
        policy, call = pending.policy, pending.call
        if policy.deltas is False:
            return None
        if policy.since is not None:
            return await self._named_base(pending, policy.since) if policy.since not in ("", RESET) else None
        if not call.caller.is_remembered or pending.is_overtaken:
            return None
        sent = await self._last_sent(call)
        if sent is None or not sent.root:
            return None
        found = await self._stored.find_by_root(ResultRoot(sent.root, call.digest), call.caller)
        return None if found is None else _Base(sent, *found)

    async def _named_base(self, pending: _Pending, since: str) -> _Base | str:
        call, name = pending.call, since.strip()
        digits = root_digits(name)
        found = None
        if digits is not None:
            found = await self._stored.find_by_root(ResultRoot(digits, call.digest), call.caller)
        if found is None:
            try:
                found = self._stored.handle(name), await self._stored.open(name, call.caller)
            except (UsageError, MissingScopesError, StoreError):
                return f"Nothing is kept under {value_excerpt(name)} any more, so this is all. "
        handle, stored = found
        if stored.header.origin != call.origin.name:
            return f"{name} is a result of another operation, so this is all. "

        def root_of_base(work: Work) -> str:
            return stored.root_for(pending.policy) or pending.result.root_of_base(
                stored.selected_value(pending.policy, work), work
            )

        root = await self._compute(call, root_of_base)
        if not root:
            return f"{name} cannot be compared with this, so this is all. "
        return _Base(LastSent(root, stored.header.deltas, stored.header.is_part), handle, stored)

    async def _sent_by_another_call(self, pending: _Pending) -> ToolResult | None:
        """Returns the reply if the caller has this result from another call; None if not, or if it sent a root."""
        if pending.before is None or pending.policy.since is not None:
            return None
        name = pending.before.row_locations.get(pending.result.root)
        if name is None:
            return None
        return await self._reply_unchanged(
            pending, self._stored.handle(name), LastSent(pending.result.root), elsewhere=True
        )

    async def _reply_unchanged(
        self, pending: _Pending, handle: Handle, sent: LastSent, elsewhere: bool = False
    ) -> ToolResult | None:
        """Returns the reply "unchanged"; `elsewhere` means that the caller has the result from another call."""
        path = PathToWhole(handle, pending.call.is_safe)
        text = pending.result.unchanged_text(path, sent.root, pending.policy, elsewhere)
        if not await self._compute(pending.call, lambda work: pending.is_cheaper(text, 1.0, work)):
            return None
        await self._record_reply(pending, sent)
        return _reply(text, "unchanged", (sent.root, sent.root), handle)

    async def _reply_delta(self, pending: _Pending, sent: LastSent, base: StoredResult) -> ToolResult | None:
        if sent.is_part and pending.policy.since is None:
            return None  # the model has no whole to which the changes apply
        roots = (sent.root, pending.result.root)
        delta = await self._make_delta(pending, base, roots, sent.is_part)
        handle = None if delta is None else await self._store(pending, sent)
        if delta is None or handle is None:
            return None
        text = changes.changed_text(delta.text, PathToWhole(handle, pending.call.is_safe), roots, pending.policy.since)
        words = changes.delta_words(delta.text)
        untold = [word for word in words if word not in pending.told]
        note = f"[{changes.words_sentence(untold)[:-1]}]" if untold else ""
        explained = f"{text}\n{note}" if note else text
        if not await self._compute(
            pending.call,
            lambda work: pending.is_cheaper(text, MAX_DELTA_SHARE, work) and pending.is_cheaper(explained, 1.0, work),
        ):
            return None
        await self._record(pending, handle, sent.deltas + 1, delta, sent.is_part)
        self._continuation.told.add(pending.call.caller, words)
        reply = _reply(text, "delta", roots, handle, references=delta.references)
        return add_notes(reply, [note] if note else [])

    async def _make_delta(
        self, pending: _Pending, base: StoredResult, roots: tuple[str, str], is_part: bool
    ) -> ChangeText | None:
        """Returns the changes; None if the comparison fails: the function has run, so its result is sent whole."""

        def make(work: Work) -> ChangeText | None:
            value = base.selected_value(pending.policy, work)
            return pending.result.changes_since(value, roots, pending.policy, pending.before, is_part, work)

        try:
            return await self._compute(pending.call, make)
        except Exception:
            logger.exception("a delta of a result could not be made")
            return None

    async def _reply_whole(self, pending: _Pending, reason: str = "") -> ToolResult:
        """Returns the whole result; `reason` is a sentence that says why the changes alone would not do."""
        return await self._reply_with_references(pending, reason) or await self._reply_in_full(pending, reason)

    async def _reply_with_references(self, pending: _Pending, reason: str) -> ToolResult | None:
        before = pending.before
        if before is not None and pending.policy.since is not None:
            # A caller that gets the whole result because of its root may have no other results either.
            before = before.after_reset
        if before is None:
            return None
        sent_before = before

        def refer(work: Work) -> ChangeText | None:
            brief = pending.result.text_with_references(pending.policy, sent_before, work)
            if brief is None:
                return None
            share = 1.0 if brief.session is None else _MAX_SESSION_SHARE
            untold = [word for word in brief.words if word not in pending.told]
            explained = f"{brief.text_with_note}\n[{legend_of(untold)}]" if untold else brief.text_with_note
            return brief if pending.is_cheaper(explained, share, work) else None

        brief = await self._compute(pending.call, refer)
        if brief is None:
            return None
        handle = await self._store(pending)
        if handle is None:
            return None
        await self._record(pending, handle, 0, brief)
        reply = _reply(brief.text, "full", (None, pending.result.root), handle, brief.form, brief.references)
        named = WholeNote(handle.name, reason).text() if pending.policy.since is not None else ""
        legend = legend_of([word for word in brief.words if word not in pending.told])
        self._continuation.told.add(pending.call.caller, brief.words)
        return add_notes(reply, [note for note in (brief.note, named, f"[{legend}]" if legend else "") if note])

    async def _reply_in_full(self, pending: _Pending, reason: str) -> ToolResult:
        policy, call, result = pending.policy, pending.call, pending.result
        is_asked = policy.since is not None
        is_named = is_asked or (not call.caller.is_remembered and len(pending.source.data) > _NAMED_ABOVE_BYTES)
        asked = FirstReply(pending.source, policy, names_whole=is_named, root=result.root, reason=reason)
        result_root = ResultRoot(result.root, call.digest, pending.shown is not pending.source.data)
        reply = await self._continuation.first_reply(asked, call.caller, call.origin, result_root)
        meta = (reply.meta or {}).get(META_KEY, {})
        if "handle" in meta:
            is_part = meta.get("unit", "whole") != "whole" or "cuts" in meta
            await self._record(pending, self._stored.handle(meta["handle"]), 0, ChangeText(""), is_part)
        meta = {**meta, "outcome": "full", "root": ALGORITHM + result.root}
        return replace(reply, meta={**(reply.meta or {}), META_KEY: meta})

    async def _store(self, pending: _Pending, sent: LastSent | None = None) -> Handle | None:
        """Stores the result, as the next delta after `sent` or as the first of a new series."""
        deltas, is_part = (0, False) if sent is None else (sent.deltas + 1, sent.is_part)
        data, root, call = pending.source.data, pending.result.root, pending.call
        rows = pending.result.rows
        head = StoredHeader("text" if isinstance(data, str) else "json", rows, pending.policy, root, deltas, is_part)
        result_root = ResultRoot(root, call.digest, pending.shown is not data)
        return await self._stored.store(head, data, call.caller, call.origin, result_root)

    async def _last_sent(self, call: CallKey) -> LastSent | None:
        return await self._shared_replies.last_sent(call) if call.caller.moves else self._sent.last_sent(call)

    async def _is_overtaken(self, call: CallKey, began: float) -> bool:
        if call.caller.moves:
            return await self._shared_replies.is_overtaken(call, began)
        return self._sent.is_overtaken(call, began)

    async def _record_reply(self, pending: _Pending, result: LastSent) -> None:
        if pending.is_overtaken:
            result = LastSent("")  # "changed" would not say since which of the two
        if pending.call.caller.moves:
            await self._shared_replies.record(pending.call, result)
        else:
            self._sent.record(pending.call, result)

    async def _record(
        self, pending: _Pending, handle: Handle, deltas: int, text: ChangeText, is_part: bool = False
    ) -> None:
        """Records a reply. Later results may refer only to rows that the caller was shown."""
        root = pending.result.root
        await self._record_reply(pending, LastSent(root, deltas, is_part))
        if pending.before is None:
            return
        if text.session is not None:
            self._sent.record_symbols(pending.call, text.session)
        if is_part or pending.shown is not pending.source.data:
            return
        places, before = pending.before.pointers_by_digest, pending.before.row_locations
        # A row that this reply only refers to keeps the location where it was sent first.
        new = {
            digest: RowLocation(handle.name + pointer, root)
            for digest, pointer in places.items()
            if digest not in before
        }
        self._sent.record_rows(pending.call, new)


def _comparison(source: ResultData, policy: ResolvedPolicy, work: Work) -> tuple[str | bytes, ComparableResult] | None:
    """Returns the result with only the requested fields, and the same for comparison; None if it has none of them."""
    selected = select(source.data, policy, work)
    if selected.is_outlined or selected.policy.query != policy.query:
        return None
    shown = selected.data
    return shown, changes.comparable(shown, source.value if shown is source.data else None, policy, work)


def _more_changed(pending: _Pending, base: Handle) -> str:
    """Returns a sentence on how to read changes that cost more than a preview; empty where they need not be read so."""
    if pending.policy.since is None or not pending.policy.preview_above:
        return ""
    return f'{base.continue_tool}(since="{base.name}") has what changed. '


def _reply(
    text: str,
    kind: Literal["unchanged", "delta", "full"],
    roots: tuple[str | None, str],
    handle: Handle,
    form: str | None = None,
    references: str | None = None,
) -> ToolResult:
    """Returns a reply whose `_meta` lets a program follow it: the base of a delta, or the form of a whole result.

    `references` is the JSON Pointer to the rows that may be references.
    """
    base, root = roots
    meta: dict[str, JSON] = {"outcome": kind, "root": ALGORITHM + root, "handle": handle.name}
    if base is not None:
        meta["base"] = ALGORITHM + base
    if form is not None:
        meta["form"] = form
    if references is not None:
        meta["references"] = references
    return ToolResult([Text(text)], meta={META_KEY: meta})
