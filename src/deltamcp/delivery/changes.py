"""A result to a caller that may have had it before: unchanged, what changed, or whole."""

import asyncio
import functools
import logging
import time
from typing import Literal, NamedTuple

from msgspec.structs import replace

from deltamcp import tokens
from deltamcp.context import Channel
from deltamcp.delivery.continuation import Reading
from deltamcp.delivery.sent_results import Call, Holding, Place, Sent
from deltamcp.delivery.stored_results import Keeping, Rooted
from deltamcp.deltas.root import ALGORITHM, digits
from deltamcp.results import outcome, shape
from deltamcp.results.content import Source, json_or_text
from deltamcp.results.kept import Head, Kept, wanted
from deltamcp.results.notes import Handle
from deltamcp.results.outcome import MOST, REANCHOR, Before, Known, Telling, Way
from deltamcp.results.policy import META_KEY, RESET, Shaping
from deltamcp.values import JSON, Contents, Manifest, Principal, Text, TextResource, ToolResult
from deltamcp.wire import jsonrpc

_SURELY = 400
"""Bytes of a result that a token stands for at most, so that what is cheap is known to be so without counting it."""
_LARGE = 256 * 1024
"""Bytes of a result whose changes may take longer to find than others should wait; a thread does."""
_WORTH = 300
"""Bytes of a result that is worth the tokens of a root, to who may send it back."""
_UNBOUNDED = 1 << 40
_BOUND = 2.0
"""What a pack with ids of a session may cost of one without, so that ids mean the same in all of a caller's texts."""

logger = logging.getLogger("deltamcp")


class _Asked(NamedTuple):
    """A result that is to be told, and to whom."""

    call: Call
    shaping: Shaping
    source: Source
    shown: str | bytes
    """What of it is wanted."""
    result: Known
    before: Before | None

    def is_cheaper(self, text: str, share: float) -> bool:
        """Whether a text costs less than a share of the whole result, and fits."""
        shaping = self.shaping
        cost = tokens.count(text, shaping.model)
        if cost > shaping.max_tokens:
            return False
        if cost < share * min(len(self.shown) // _SURELY, shaping.max_tokens):
            return True
        whole = shape.whole(self.shown, shaping, False, None)
        full = shaping.max_tokens if whole is None else tokens.count("\n".join(whole.texts), shaping.model)
        return cost < share * full


class Outcomes:
    """What is sent, and noted of it."""

    def __init__(self, keeping: Keeping, reading: Reading) -> None:
        self._keeping = keeping
        self._reading = reading
        self._holding = Holding(keeping)

    async def hear(self, held: str | None, principal: Principal, channel: Channel) -> None:
        """What a caller says it holds, before its call is served: it may have lost everything it was ever sent."""
        if held == RESET:
            await self._holding.reset(Call(principal, channel.conversation, ""))

    async def reply(self, source: Source, shaping: Shaping, call: Call, since: float) -> ToolResult:
        """The cheapest of the three that tells the result of a call, which began at a time of the monotonic clock."""
        shown, why = wanted(source.data, shaping)
        if why:
            return await self._reading.begin(source, shaping, call.principal)
        overtaken = self._holding.is_overtaken(call, since)
        if shaping.dedup:
            # What two replies refer to at once, and the ids they give, must not cross.
            async with self._holding.turn(call):
                return await self._reply(source, shown, shaping, call, overtaken)
        return await self._reply(source, shown, shaping, call, overtaken)

    async def _reply(
        self, source: Source, shown: str | bytes, shaping: Shaping, call: Call, overtaken: bool
    ) -> ToolResult:
        result = outcome.known(shown, source.value if shown is source.data else None, shaping)
        asked = _Asked(call, shaping, source, shown, result, await self._before(result, shaping, call))
        held = None if overtaken and shaping.pack_root is None else await self._held(shaping, call)
        if held is None:
            return await self._known_otherwise(asked) or await self._whole(asked)
        sent, handle, base = held
        if sent.root == result.root or result.is_as(base.shown, shaping):
            return await self._unchanged(asked, handle, sent) or await self._whole(asked)
        changes = await self._changed(asked, sent, base) if sent.deltas < REANCHOR else None
        return changes or await self._whole(asked)

    async def contents(self, read: Contents, call: Call, held: str) -> Contents:
        """A resource's text to who sent the root of what it `held`."""
        if len(read.items) != 1 or not isinstance(item := read.items[0], TextResource):
            return read
        text, told = await self._text_since(json_or_text(item.text), call, held)
        if text is not None:
            item = TextResource(item.uri, text, "text/plain", item.meta)
        return replace(read, items=[item], meta={**(read.meta or {}), META_KEY: told})

    async def manifest(self, page: Manifest, call: Call, held: str) -> Manifest:
        """The same for a page of the manifest: what changed is told beside no entries."""
        text, told = await self._text_since(jsonrpc.encode(page.entries), call, held)
        if text is None:
            return replace(page, meta={META_KEY: told})
        return replace(page, entries=[], meta={META_KEY: {**told, "text": text}})

    async def _text_since(self, data: str | bytes, call: Call, held: str) -> tuple[str | None, dict[str, JSON]]:
        """What tells it, None where only the whole does; and what is told of it."""
        shaping = Shaping(max_tokens=_UNBOUNDED, tables=False, pack_root=held)
        reply = await self.reply(Source(data), shaping, call, time.monotonic())
        told = (reply.meta or {})[META_KEY]
        text = next(iter(reply.content))
        return (text.text if told["outcome"] != "full" and isinstance(text, Text) else None), told

    async def _before(self, result: Known, shaping: Shaping, call: Call) -> Before | None:
        """What of this result the caller was sent, as far as it can still read it again."""
        if not shaping.dedup or not call.is_remembered:
            return None
        sent = await self._holding.rows(call)
        places = result.places()
        again = {sign: sent[sign] for sign in places if sign in sent}
        kept = {
            (name, root)
            for name, root in {(where.partition("/")[0], root) for where, root in again.values()}
            if await self._keeping.has(name, root, call.principal)
        }
        rows = {sign: where for sign, (where, root) in again.items() if (where.partition("/")[0], root) in kept}
        return Before(rows, self._holding.symbols(call), shaping.dedup == "deltas", places)

    async def _held(self, shaping: Shaping, call: Call) -> tuple[Sent, Handle, Kept] | None:
        """What the caller has of this result, as it says or as is remembered, where that is kept."""
        if shaping.deltas is False or (not shaping.deltas and shaping.pack_root is None):
            return None
        sent = await self._holding.last(call)
        if shaping.pack_root is None:
            found = (
                None if sent is None else await self._keeping.by_root(Rooted(sent.root, call.digest), call.principal)
            )
            return None if sent is None or found is None else (sent, *found)
        given = digits(shaping.pack_root)
        found = None if given is None else await self._keeping.by_root(Rooted(given, call.digest), call.principal)
        if found is None:
            return None
        base = found[1]
        return (
            sent if sent is not None and sent.root == base.root else Sent(base.root, base.deltas, base.is_part)
        ), *found

    async def _known_otherwise(self, asked: _Asked) -> ToolResult | None:
        """Where another call gave the same, and the caller has not said that it holds nothing."""
        if asked.before is None or asked.shaping.pack_root is not None:
            return None
        name = asked.before.rows.get(asked.result.root)
        if name is None:
            return None
        return await self._unchanged(asked, self._keeping.handle(name), Sent(asked.result.root), elsewhere=True)

    async def _unchanged(self, asked: _Asked, handle: Handle, sent: Sent, elsewhere: bool = False) -> ToolResult | None:
        """`elsewhere`: another call gave it."""
        way = Way(handle, asked.call.is_safe)
        text = outcome.unchanged(asked.result.size, way, sent.root, asked.shaping.pack_root, elsewhere)
        if not asked.is_cheaper(text, 1.0):
            return None
        await self._holding.note(asked.call, sent.root, sent.deltas, sent.is_part)
        return _told(text, "unchanged", (sent.root, sent.root), handle)

    async def _changed(self, asked: _Asked, sent: Sent, base: Kept) -> ToolResult | None:
        roots = (sent.root, asked.result.root)
        changes = await self._since(asked, base.shown, roots, sent.is_part)
        handle = None if changes is None else await self._keep(asked, sent)
        if changes is None or handle is None:
            return None
        text = outcome.changed(changes.text, Way(handle, asked.call.is_safe), roots, asked.shaping.pack_root)
        if not asked.is_cheaper(text, MOST):
            return None
        await self._note(asked, handle, sent.deltas + 1, changes, sent.is_part)
        return _told(text, "delta", roots, handle, references=changes.references)

    async def _since(self, asked: _Asked, base: JSON, roots: tuple[str, str], is_part: bool) -> Telling | None:
        """The changes; none where they could not be made: the call is done, and its result can be sent whole."""
        tell = functools.partial(asked.result.since, base, roots, asked.shaping, asked.before, is_part)
        try:
            return tell() if len(asked.shown) <= _LARGE else await asyncio.to_thread(tell)
        except Exception:
            logger.exception("a delta of a result could not be made")
            return None

    async def _whole(self, asked: _Asked) -> ToolResult:
        return await self._brief(asked) or await self._plain(asked)

    async def _brief(self, asked: _Asked) -> ToolResult | None:
        before = asked.before
        if before is not None and asked.shaping.pack_root is not None:
            before = before.forgotten  # who is sent everything because of its root may hold nothing else either
        brief = None if before is None else asked.result.brief(asked.shaping, before)
        if brief is None or not asked.is_cheaper(brief.whole, 1.0 if brief.session is None else _BOUND):
            return None
        handle = await self._keep(asked)
        if handle is None:
            return None
        await self._note(asked, handle, 0, brief)
        reply = _told(brief.text, "full", (None, asked.result.root), handle, brief.form, brief.references)
        return replace(reply, content=[*reply.content, Text(brief.note)]) if brief.note else reply

    async def _plain(self, asked: _Asked) -> ToolResult:
        shaping, call, result = asked.shaping, asked.call, asked.result
        worth = not call.is_remembered and len(asked.shown) > _WORTH
        note = outcome.rooted(result.root) if shaping.pack_root is not None or worth else ""
        room = shaping.max_tokens - tokens.count(note, shaping.model) - 1 if note else shaping.max_tokens
        shaping = replace(shaping, max_tokens=room)
        rooted = Rooted(result.root, call.digest, asked.shown is not asked.source.data)
        reply = await self._reading.begin(asked.source, shaping, call.principal, rooted=rooted)
        told = (reply.meta or {}).get(META_KEY, {})
        if "handle" in told:
            await self._note(asked, self._keeping.handle(told["handle"]), 0, Telling(""), "unit" in told)
        content = [*reply.content, Text(note)] if note else reply.content
        told = {**told, "outcome": "full", "root": ALGORITHM + result.root}
        return replace(reply, content=content, meta={**(reply.meta or {}), META_KEY: told})

    async def _keep(self, asked: _Asked, sent: Sent | None = None) -> Handle | None:
        """As what follows on what was sent, or begins anew."""
        deltas, is_part = (0, False) if sent is None else (sent.deltas + 1, sent.is_part)
        data, root, call = asked.source.data, asked.result.root, asked.call
        rows = asked.result.rows
        head = Head("text" if isinstance(data, str) else "json", rows, asked.shaping, root, deltas, is_part)
        rooted = Rooted(root, call.digest, asked.shown is not data)
        return (await self._keeping.keep(data, call.principal, lambda handle: (head, None), rooted))[0]

    async def _note(self, asked: _Asked, handle: Handle, deltas: int, telling: Telling, is_part: bool = False) -> None:
        """That this is sent; to what was not shown, or is more than what was shown, nothing refers."""
        root = asked.result.root
        await self._holding.note(asked.call, root, deltas, is_part)
        if asked.before is None:
            return
        if telling.session is not None:
            self._holding.note_symbols(asked.call, telling.session)
        if is_part or asked.shown is not asked.source.data:
            return
        places, before = asked.before.places, asked.before.rows
        # What was only referred to stays where it was told.
        new = {sign: Place(handle.name + at, root) for sign, at in places.items() if sign not in before}
        await self._holding.note_rows(asked.call, new)


def _told(
    text: str,
    kind: Literal["unchanged", "delta", "full"],
    roots: tuple[str | None, str],
    handle: Handle,
    form: str | None = None,
    references: str | None = None,
) -> ToolResult:
    """With what a program needs to follow: the base of what is told by it, the form of what is told whole.

    `references` is where the rows are that may only be referred to.
    """
    base, root = roots
    said: dict[str, JSON] = {"outcome": kind, "root": ALGORITHM + root, "handle": handle.name}
    if base is not None:
        said["base"] = ALGORITHM + base
    if form is not None:
        said["form"] = form
    if references is not None:
        said["references"] = references
    return ToolResult([Text(text)], meta={META_KEY: said})
