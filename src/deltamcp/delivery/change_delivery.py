"""Delivery to callers that may have an earlier result: "unchanged", a delta or the whole, whichever costs least."""

import logging
import time
from collections.abc import Callable
from itertools import islice
from typing import Literal, NamedTuple, TypeVar

from msgspec.structs import replace

from deltamcp import tokens
from deltamcp.delivery.continuation import Continuation
from deltamcp.delivery.sent_results import CallKey, LastSent, RowLocation, SentResults, SharedReplies
from deltamcp.delivery.stored_results import UNSCOPED, ResultRoot, StoredResults
from deltamcp.deltas.root import ALGORITHM, root_digits
from deltamcp.errors import UsageError
from deltamcp.results import changes
from deltamcp.results.changes import (
    MAX_DELTA_SHARE,
    REANCHOR_AFTER_DELTAS,
    ChangeText,
    ComparableResult,
    PathToWhole,
    SentBefore,
)
from deltamcp.results.content import ResultData, json_or_text
from deltamcp.results.notes import Handle, add_notes
from deltamcp.results.policy import META_KEY, RESET, ResolvedPolicy
from deltamcp.results.shown_result import ShownResult, select
from deltamcp.results.stored_result import StoredHeader, StoredResult
from deltamcp.runtime.threads import Computations
from deltamcp.values import JSON, Caller, Contents, Manifest, Text, TextResource, ToolResult
from deltamcp.wire import jsonrpc
from deltamcp.work import Work

_MAX_BYTES_PER_TOKEN = 400
"""The most bytes of a result that one token stands for; it tells that a text is cheap without counting the result."""
_ROOT_NOTE_BYTES = 300
"""Results above this size get a note with their root, for a caller that may send the root back."""
_NO_BUDGET = 1 << 40
_MAX_RESULTS_OF_ROWS = 64
"""The number of earlier results to whose rows one result may refer; each of them is looked up in the store."""
_MAX_SESSION_SHARE = 2.0
"""The most that a text with the symbol ids of a session may cost, as a multiple of the whole result.

Such a text is preferred even if it costs more, so that an id means the same in every reply to a caller.
"""

T = TypeVar("T")
logger = logging.getLogger("deltamcp")


class _Pending(NamedTuple):
    """A result for which `ChangeDelivery` chooses a reply, and its call."""

    call: CallKey
    policy: ResolvedPolicy
    source: ResultData
    shown: str | bytes
    """The result with only the requested fields."""
    result: ComparableResult
    before: SentBefore | None

    def is_cheaper(self, text: str, share: float, work: Work) -> bool:
        """Whether a text costs less than a share of the whole result, and fits the budget."""
        policy = self.policy
        policy.budget.spend_count(text, work)
        cost = tokens.count(text, policy.model)
        if cost > policy.max_tokens:
            return False
        if cost < share * min(len(self.shown) // _MAX_BYTES_PER_TOKEN, policy.max_tokens):
            return True
        whole = ShownResult(self.shown, policy).whole_window(work)
        full = policy.max_tokens if whole is None else tokens.count("\n".join(whole.texts), policy.model)
        return cost < share * full


class ChangeDelivery:
    """Makes the cheapest reply from which the caller knows the result, and records what the server sent."""

    def __init__(self, stored: StoredResults, continuation: Continuation, computations: Computations) -> None:
        self._stored = stored
        self._continuation = continuation
        self._computations = computations
        self._sent = SentResults(stored.idle_seconds)
        self._shared_replies = SharedReplies(stored)

    async def accept_root(self, requested_root: str | None, caller: Caller) -> None:
        """Forgets what the server has sent to the caller, if the caller sends a reset because it lost everything."""
        if requested_root == RESET:
            await self._sent.reset(CallKey(caller, "", UNSCOPED))
            if caller.moves:
                await self._shared_replies.reset(caller)

    async def deliver(self, source: ResultData, policy: ResolvedPolicy, call: CallKey, since: float) -> ToolResult:
        """Returns the cheapest reply to a call, which started at `since` by the monotonic clock."""
        comparison = await self._compute(call, lambda work: _comparison(source, policy, work))
        if comparison is None:
            return await self._continuation.first_reply(source, policy, call.caller, call.origin)
        shown, result = comparison
        if policy.may_send_changes and call.caller.stays:
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
        overtaken = await self._is_overtaken(policy, call, since)
        pending = _Pending(call, policy, source, shown, result, await self._sent_before(result, policy, call))
        base = None if overtaken and policy.pack_root is None else await self._base(policy, call)
        if base is None:
            return await self._sent_by_another_call(pending) or await self._reply_whole(pending)
        sent, handle, stored = base
        if sent.root == result.root or await self._is_equivalent(pending, stored):
            return await self._reply_unchanged(pending, handle, sent) or await self._reply_whole(pending)
        delta_reply = await self._reply_delta(pending, sent, stored) if sent.deltas < REANCHOR_AFTER_DELTAS else None
        return delta_reply or await self._reply_whole(pending)

    async def _is_equivalent(self, pending: _Pending, stored: StoredResult) -> bool:
        """Whether the result differs from a stored one only in what the policy declares volatile."""
        if pending.policy.volatile is None:
            return False

        def compare(work: Work) -> bool:
            return pending.result.is_equivalent(stored.shown_value(work), pending.policy, work)

        return bool(await self._compute(pending.call, compare))

    async def _compute(self, call: CallKey, compute: Callable[[Work], T]) -> T | None:
        """Returns what a computation returns; None if it is too large: the function has run, so its result is sent."""
        try:
            return await self._computations.run(call.caller.account, compute)
        except UsageError:
            return None

    async def deliver_contents(self, read: Contents, call: CallKey, requested_root: str) -> Contents:
        """Returns a resource's contents, or their changes, for a caller that sent the root of its last read."""
        if len(read.items) != 1 or not isinstance(item := read.items[0], TextResource):
            return read
        whole = item.text
        data = await self._compute(call, lambda work: json_or_text(whole, work))
        text, meta = await self._change_text(whole if data is None else data, call, requested_root)
        if text is not None:
            item = TextResource(item.uri, text, "text/plain", item.meta)
        return replace(read, items=[item], meta={**(read.meta or {}), META_KEY: meta})

    async def deliver_manifest(self, page: Manifest, call: CallKey, requested_root: str) -> Manifest:
        """Returns a page of the manifest for a caller that sent the root of its last one.

        Changes are a text in `_meta`; `entries` is then empty.
        """
        text, meta = await self._change_text(jsonrpc.encode(page.entries), call, requested_root)
        if text is None:
            return replace(page, meta={META_KEY: meta})
        return replace(page, entries=[], meta={META_KEY: {**meta, "text": text}})

    async def _change_text(
        self, data: str | bytes, call: CallKey, requested_root: str
    ) -> tuple[str | None, dict[str, JSON]]:
        """Returns the text of the changes, None if the whole must be sent; and the `_meta` of the reply."""
        policy = ResolvedPolicy(max_tokens=_NO_BUDGET, tables=False, pack_root=requested_root)
        reply = await self.deliver(ResultData(data), policy, call, time.monotonic())
        meta = (reply.meta or {})[META_KEY]
        text = next(iter(reply.content))
        return (text.text if meta["outcome"] != "full" and isinstance(text, Text) else None), meta

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

    async def _base(self, policy: ResolvedPolicy, call: CallKey) -> tuple[LastSent, Handle, StoredResult] | None:
        """Returns the base of a delta: the result that the caller names or was last sent; None if it is not stored."""
        if policy.deltas is False or (not policy.deltas and policy.pack_root is None):
            return None
        sent = await self._last_sent(call)
        if policy.pack_root is None:
            found = (
                None
                if sent is None
                else await self._stored.find_by_root(ResultRoot(sent.root, call.digest), call.caller)
            )
            return None if sent is None or found is None else (sent, *found)
        digits = root_digits(policy.pack_root)
        found = None
        if digits is not None:
            found = await self._stored.find_by_root(ResultRoot(digits, call.digest), call.caller)
        if found is None:
            return None
        base = found[1]
        return (
            sent if sent is not None and sent.root == base.root else LastSent(base.root, base.deltas, base.is_part)
        ), *found

    async def _sent_by_another_call(self, pending: _Pending) -> ToolResult | None:
        """Returns the reply if the caller has this result from another call; None if not, or if it sent a root."""
        if pending.before is None or pending.policy.pack_root is not None:
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
        await self._record_reply(pending.call, sent)
        return _reply(text, "unchanged", (sent.root, sent.root), handle)

    async def _reply_delta(self, pending: _Pending, sent: LastSent, base: StoredResult) -> ToolResult | None:
        roots = (sent.root, pending.result.root)
        delta = await self._make_delta(pending, base, roots, sent.is_part)
        handle = None if delta is None else await self._store(pending, sent)
        if delta is None or handle is None:
            return None
        text = changes.changed_text(
            delta.text, PathToWhole(handle, pending.call.is_safe), roots, pending.policy.pack_root
        )
        if not await self._compute(pending.call, lambda work: pending.is_cheaper(text, MAX_DELTA_SHARE, work)):
            return None
        await self._record(pending, handle, sent.deltas + 1, delta, sent.is_part)
        return _reply(text, "delta", roots, handle, references=delta.references)

    async def _make_delta(
        self, pending: _Pending, base: StoredResult, roots: tuple[str, str], is_part: bool
    ) -> ChangeText | None:
        """Returns the changes; None if the comparison fails: the function has run, so its result is sent whole."""

        def make(work: Work) -> ChangeText | None:
            value = base.shown_value(work)
            return pending.result.changes_since(value, roots, pending.policy, pending.before, is_part, work)

        try:
            return await self._compute(pending.call, make)
        except Exception:
            logger.exception("a delta of a result could not be made")
            return None

    async def _reply_whole(self, pending: _Pending) -> ToolResult:
        return await self._reply_with_references(pending) or await self._reply_in_full(pending)

    async def _reply_with_references(self, pending: _Pending) -> ToolResult | None:
        before = pending.before
        if before is not None and pending.policy.pack_root is not None:
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
            return brief if pending.is_cheaper(brief.text_with_note, share, work) else None

        brief = await self._compute(pending.call, refer)
        if brief is None:
            return None
        handle = await self._store(pending)
        if handle is None:
            return None
        await self._record(pending, handle, 0, brief)
        reply = _reply(brief.text, "full", (None, pending.result.root), handle, brief.form, brief.references)
        return add_notes(reply, [brief.note] if brief.note else [])

    async def _reply_in_full(self, pending: _Pending) -> ToolResult:
        policy, call, result = pending.policy, pending.call, pending.result
        may_return = not call.caller.is_remembered and len(pending.shown) > _ROOT_NOTE_BYTES
        note = changes.root_note(result.root) if policy.pack_root is not None or may_return else ""
        budget = policy.max_tokens - tokens.count(note, policy.model) - 1 if note else policy.max_tokens
        policy = replace(policy, max_tokens=budget)
        result_root = ResultRoot(result.root, call.digest, pending.shown is not pending.source.data)
        reply = await self._continuation.first_reply(pending.source, policy, call.caller, call.origin, root=result_root)
        meta = (reply.meta or {}).get(META_KEY, {})
        if "handle" in meta:
            await self._record(pending, self._stored.handle(meta["handle"]), 0, ChangeText(""), "unit" in meta)
        meta = {**meta, "outcome": "full", "root": ALGORITHM + result.root}
        reply = replace(reply, meta={**(reply.meta or {}), META_KEY: meta})
        return add_notes(reply, [note] if note else [])

    async def _store(self, pending: _Pending, sent: LastSent | None = None) -> Handle | None:
        """Stores the result, as the next delta after `sent` or as the first of a new series."""
        deltas, is_part = (0, False) if sent is None else (sent.deltas + 1, sent.is_part)
        data, root, call = pending.source.data, pending.result.root, pending.call
        rows = pending.result.rows
        head = StoredHeader("text" if isinstance(data, str) else "json", rows, pending.policy, root, deltas, is_part)
        result_root = ResultRoot(root, call.digest, pending.shown is not data)

        async def make(handle: Handle | None) -> tuple[StoredHeader, None]:
            return head, None

        return (await self._stored.store(data, call.caller, call.origin, make, result_root))[0]

    async def _last_sent(self, call: CallKey) -> LastSent | None:
        return await self._shared_replies.last_sent(call) if call.caller.moves else self._sent.last_sent(call)

    async def _is_overtaken(self, policy: ResolvedPolicy, call: CallKey, since: float) -> bool:
        if call.caller.moves:
            return bool(policy.deltas) and await self._shared_replies.is_overtaken(call, since)
        return self._sent.is_overtaken(call, since)

    async def _record_reply(self, call: CallKey, result: LastSent) -> None:
        if call.caller.moves:
            await self._shared_replies.record(call, result)
        else:
            self._sent.record(call, result)

    async def _record(
        self, pending: _Pending, handle: Handle, deltas: int, text: ChangeText, is_part: bool = False
    ) -> None:
        """Records a reply. Later results may refer only to rows that the caller was shown."""
        root = pending.result.root
        await self._record_reply(pending.call, LastSent(root, deltas, is_part))
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
