"""What a tool returned or raised, as its caller's reply: whole, as much as fits, or in another protocol's shape."""

import logging
import time
from typing import Any, NamedTuple

from msgspec import UNSET
from msgspec.structs import replace

from deltamcp import tokens
from deltamcp.catalog.meta_tools import Meta
from deltamcp.catalog.operation import Operation
from deltamcp.catalog.view import View
from deltamcp.context import Channel
from deltamcp.delivery.changes import Outcomes
from deltamcp.delivery.continuation import Reading
from deltamcp.delivery.delta_mcp import Paging, Turn
from deltamcp.delivery.sent_results import Call, digest
from deltamcp.errors import UnfitError
from deltamcp.results import content
from deltamcp.results.content import Source
from deltamcp.results.policy import META_KEY, ROOT, ResultPolicy, Shaping, nearer, read_root, wish_of
from deltamcp.results.rate_limit import rate_limited
from deltamcp.values import JSON, RequestId, Surface, Terms, Text, ToolResult
from deltamcp.wire import jsonrpc

logger = logging.getLogger("deltamcp")


class Caller(NamedTuple):
    """Who calls, what they see, and how they are reached."""

    terms: Terms
    view: View
    channel: Channel
    request_id: RequestId


class Wishes(NamedTuple):
    """What a meta-tool says of the result of an operation it runs."""

    policy: ResultPolicy
    beside: str = ""
    """A text that goes out with the reply, and counts."""


def shaping_of(operation: Operation, view: View, terms: Terms, wishes: Wishes | None) -> Shaping | None:
    """How a result is made to fit; None where nobody asks for that, and it is sent as it is.

    Raises:
        UnfitError: it is asked for in a way that cannot be read, or kept to.
    """
    shaping = operation.shaping
    if wishes is None and META_KEY not in terms.meta:
        return shaping
    said = wish_of(terms.meta)
    if said is not None:
        if view.called(Meta.CONTINUE) in view.operations:
            raise UnfitError(f"{view.called(Meta.CONTINUE)} is another tool here, so what is cut could not be read.")
        shaping = nearer(said, shaping or view.shaping)
        own = operation.shaping
        if own is not None and (own.deltas is False or own.dedup is False):  # who says no is not overruled by who asks
            deltas = own.deltas if own.deltas is False else shaping.deltas
            shaping = replace(shaping, deltas=deltas, dedup=own.dedup or False)
    if wishes is None:
        return shaping
    shaping = nearer(wishes.policy, shaping or view.shaping)
    if not wishes.beside:
        return shaping
    return replace(shaping, max_tokens=shaping.max_tokens - tokens.count(wishes.beside, shaping.model) - 1)


def held(operation: Operation, shaping: Shaping, arguments: dict[str, JSON]) -> tuple[dict[str, JSON], Shaping]:
    """The arguments without the root that the caller says it holds, which is not the function's.

    Raises:
        UnfitError: it is no root.
    """
    if not operation.takes_root or ROOT not in arguments:
        return arguments, shaping
    arguments = dict(arguments)
    return arguments, replace(shaping, pack_root=read_root(arguments.pop(ROOT)))


class Ran(NamedTuple):
    """The call that a result is of."""

    caller: Caller
    arguments: dict[str, JSON]
    flat: bool
    """Called by its own name, not through a meta-tool."""
    since: float
    """When it began, by the monotonic clock."""


class Fitting:
    """Replies to calls of tools."""

    def __init__(self, reading: Reading, paging: Paging, outcomes: Outcomes) -> None:
        self._reading = reading
        self._paging = paging
        self._outcomes = outcomes

    async def reply(
        self, value: Any, operation: Operation, shaping: Shaping | None, turn: Turn | None, ran: Ran
    ) -> ToolResult:
        """What a function returned; `turn` is the page of it that a client of Delta-MCP asks for.

        Called `flat`, by its own name, a tool is held to its output schema; a meta-tool promises none.
        """
        terms, flat = ran.caller.terms, ran.flat
        structured = operation.structured if operation.output_schema is not None else None
        try:
            if shaping is None and not terms.delta:
                reply = content.tool_result(value, structured)
                return _told_form(reply, value) if terms.surface is Surface.PROGRESSIVE else reply
            made = content.returned(value, structured)
        except ValueError as error:
            logger.error("tool %s returned a value that cannot be sent: %s", operation.name, error)
            return content.error_result(f"{operation.name} returned a value that cannot be sent: {error}.")
        if isinstance(made, Source):
            return await self._begin(made, operation, shaping, turn, ran)
        if made.is_error:
            return made
        source = content.source_of(made) or (content.NOTHING if terms.delta and not made.content else None)
        if source is not None:
            reply = await self._begin(source, operation, shaping, turn, ran)
            return replace(reply, meta={**made.meta, **(reply.meta or {})}) if made.meta else reply
        if shaping is None:
            return made
        return await self._reading.begin_blocks(made, shaping, terms.principal, flat and structured is not None)

    async def _begin(
        self, source: Source, operation: Operation, shaping: Shaping | None, turn: Turn | None, ran: Ran
    ) -> ToolResult:
        principal = ran.caller.terms.principal
        if ran.caller.terms.delta or shaping is None:
            return await self._paging.begin(source, shaping, turn, principal)
        if ran.flat and operation.output_schema is not None:
            # Its schema promises the whole, which a delta is not.
            return await self._reading.begin(source, shaping, principal, operation.admits)
        if shaping.tells_changes:
            channel = ran.caller.channel
            sign = digest([operation.id, ran.arguments, shaping.fields])
            call = Call(principal, channel.conversation, sign, operation.read_only)
            return await self._outcomes.reply(source, shaping, call, ran.since)
        return await self._reading.begin(source, shaping, principal)


def _told_form(reply: ToolResult, value: Any) -> ToolResult:
    """To a program that knows Delta-MCP: whether a text that could be either is JSON or not."""
    block = reply.content[0] if len(reply.content) == 1 and reply.structured is UNSET else None
    if not isinstance(block, Text) or isinstance(value, Text | ToolResult | list | dict):
        return reply
    is_text = isinstance(value, str) or content.is_pack(value)
    if content.is_as_it_looks(block.text if is_text else block.text.encode()):
        return reply
    return replace(reply, meta={META_KEY: {"form": "text" if is_text else "json"}})


def limited(error: BaseException, operation: Operation, flat: bool) -> ToolResult | None:
    """An upstream's "too many requests" as a result the model can act on; None for any other failure.

    Where an output schema promises something else, as to who calls it `flat`, clients accept it only as an error.
    """
    said = rate_limited(error, operation.name, time.time())
    if said is None:
        return None
    return ToolResult([Text(jsonrpc.encode(said).decode())], is_error=flat and operation.output_schema is not None)
