"""Deliveries, which make the reply to a call, and that to MCP and MCP-lite clients: the whole, a part, or what changed.

`delta_mcp_delivery.py` has that to clients of Delta-MCP; there is one for each `values.ResultShape`.
"""

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol

from msgspec import UNSET, Struct
from msgspec.structs import replace

from deltamcp import tokens
from deltamcp.catalog.items.operation import Operation
from deltamcp.catalog.meta_tools import MetaTool
from deltamcp.catalog.view import View
from deltamcp.delivery.change_delivery import ChangeDelivery
from deltamcp.delivery.continuation import Continuation
from deltamcp.delivery.learned_shapes import LearnedShapes
from deltamcp.delivery.sent_results import CallKey, call_digest
from deltamcp.delivery.stored_results import ResultOrigin
from deltamcp.errors import ToolErrorCode, UsageError
from deltamcp.results import content
from deltamcp.results.content import ResultData
from deltamcp.results.policy import (
    META_KEY,
    ROOT_KEY,
    SINCE_KEY,
    RequestPolicy,
    ResolvedPolicy,
    ResultPolicy,
    override_policy,
    requested_policy,
    take_since,
)
from deltamcp.results.queries.query import parse_query
from deltamcp.results.shown_result import FirstReply
from deltamcp.values import JSON, Caller, RawResult, ResultShape, Surface, Terms, Text, ToolResult

logger: logging.Logger = logging.getLogger("deltamcp")


class PageRequest(Struct, frozen=True):
    """The page of a result that a caller requests."""

    snapshot: str | None
    """The name under which the server stores the whole result; None if the tool takes pages itself, and so runs for
    each page."""
    page: JSON
    page_size: JSON
    default_size: JSON
    """The page size of a request that gives none; None if only the tool knows it."""


class DeliveryRequest(Struct):
    """A call, as far as the delivery of its result needs it."""

    operation: Operation
    terms: Terms
    arguments: dict[str, JSON]
    """The caller's arguments, without those that are for the server."""
    policy: ResolvedPolicy | None
    """None if the result is sent as it is."""
    page: PageRequest | None
    is_flat: bool
    """Whether the caller used the tool's own name, so that its output schema applies; meta-tools have none."""
    started: float
    """When the call started, by the monotonic clock."""
    pages: int = 1
    """How many pages of a service's results the caller asked for."""

    @property
    def origin(self) -> ResultOrigin:
        return ResultOrigin(self.operation.id, self.operation.scopes)


class Delivery(Protocol):
    """Delivers results in one shape."""

    def read_page(
        self, operation: Operation, arguments: dict[str, JSON], policy: ResolvedPolicy | None
    ) -> tuple[dict[str, JSON], PageRequest | None]:
        """Splits the caller's arguments into those of the function and the page that the others request."""
        ...

    async def find_page(self, call: DeliveryRequest) -> ToolResult | None:
        """Returns a page of a result that the server has stored; None if the function has to run."""
        ...

    async def deliver(self, value: Any, call: DeliveryRequest) -> ToolResult | RawResult:
        """Returns the reply, made from the value that the function returned; MCP's without a policy may be raw."""
        ...


def convert(value: Any, operation: Operation) -> ResultData | ToolResult:
    """Converts the value that a function returned to one text or JSON value, or to a complete result."""
    try:
        return content.convert_return_value(
            value, operation.structured_content if operation.output_schema is not None else None
        )
    except ValueError as error:
        return refuse_value(operation, error)


def refuse_value(operation: Operation, error: ValueError) -> ToolResult:
    """Returns the error result of a call whose function returned a value that cannot be sent."""
    logger.error("tool %s returned a value that cannot be sent: %s", operation.name, error)
    message = f"{operation.name} returned a value that cannot be sent: {error}."
    return content.server_error(message, ToolErrorCode.INTERNAL)


_NOTHING_ASKED = RequestPolicy()


class ResultOverride(NamedTuple):
    """The result options that a meta-tool sets for the operation it runs."""

    policy: ResultPolicy
    note: str = ""
    """A text that the server adds to the reply; its tokens count towards the budget."""
    pages: int = 1
    """How many pages of a service's results to read."""


def policy_for_call(
    operation: Operation, view: View, terms: Terms, override: ResultOverride | None
) -> ResolvedPolicy | None:
    """Returns the policy of a call; None if the result is sent as it is.

    It is if the tool says so and the request asks for no part of it, if neither server, tool nor request sets a policy,
    or if the request says that its sender fits the result itself.

    Raises:
        UsageError: the policy in the request is invalid, or the server cannot follow it.
    """
    policy = operation.resolved_policy
    if override is None and META_KEY not in terms.meta:
        return policy
    requested = requested_policy(terms.meta)
    if requested is not None and requested.whole:
        policy = None
    elif requested is not None:
        if view.meta_tool_name(MetaTool.CONTINUE) in view.operations:
            raise UsageError(
                f"This server has its own tool {view.meta_tool_name(MetaTool.CONTINUE)}, so it cannot cut results."
            )
        policy = override_policy(requested, policy or view.resolved_policy)
        own = operation.resolved_policy
        # A request cannot turn on what the author turned off.
        if own is not None and (own.deltas is False or own.dedup is False):
            deltas = own.deltas if own.deltas is False else policy.deltas
            policy = replace(policy, deltas=deltas, dedup=own.dedup or False)
    passes = operation.results is False or (requested is not None and requested.whole)
    if override is None or (passes and override.policy == _NOTHING_ASKED and policy is None):
        return policy  # a result that passes as it is has no note either
    policy = override_policy(override.policy, policy or view.resolved_policy)
    return reserve_note(policy, override.note) if override.note else policy


def reserve_note(policy: ResolvedPolicy, note: str) -> ResolvedPolicy:
    """Returns the policy of a result that leaves room for a note below it."""
    return replace(policy, max_tokens=policy.max_tokens - tokens.count(note, policy.model) - 1)


def take_query(
    operation: Operation, policy: ResolvedPolicy, arguments: dict[str, JSON]
) -> tuple[dict[str, JSON], ResolvedPolicy]:
    """Moves `fields` and `grep` from the arguments of a plain tool to the policy, if its function does not take them.

    Raises:
        UsageError: they are no query.
    """
    if operation.query_arguments and not arguments.keys().isdisjoint(operation.query_arguments):
        arguments = dict(arguments)
        given = {name: arguments.pop(name, None) for name in operation.query_arguments}
        query = parse_query(given.get("fields"), given.get("grep"))
        policy = override_policy(RequestPolicy(fields=query.fields, grep=query.grep), policy)
    return arguments, policy


def take_since_argument(
    operation: Operation, policy: ResolvedPolicy, arguments: dict[str, JSON]
) -> tuple[dict[str, JSON], ResolvedPolicy]:
    """Moves which result the caller has from the arguments to the policy, as the function does not take it.

    Raises:
        UsageError: the argument is no text.
    """
    if not operation.takes_since or (SINCE_KEY not in arguments and ROOT_KEY not in arguments):
        return arguments, policy
    arguments = dict(arguments)
    since = take_since(arguments)
    return arguments, policy if since is None else replace(policy, since=since)


_COUNTED_BYTES = 16 * 1024
"""Smaller results are not counted; their replies are made at once."""
_UNCOUNTED: contextlib.AbstractContextManager[None] = contextlib.nullcontext()
_BYTES_PER_ACCOUNT = 8 * 1024 * 1024
"""The results of one account beyond which its next call waits; each is there in three forms for a while."""
_BYTES = 64 * 1024 * 1024
"""The results of all accounts beyond which every account has one at a time."""
_ACCOUNTS_AT_ONCE = 8
"""Other accounts whose turn may come when a result is gone."""


class _Queue:
    """The calls of one account that wait."""

    __slots__ = ("is_scheduled", "new", "returned")

    def __init__(self) -> None:
        self.returned: deque[asyncio.Future[None]] = deque()
        """Calls whose functions have returned; they come first, because their values are in memory."""
        self.new: deque[asyncio.Future[None]] = deque()
        self.is_scheduled = False

    def pop(self) -> "asyncio.Future[None] | None":
        """Returns the next call that was not cancelled; None if none waits."""
        for turns in (self.returned, self.new):
            while turns:
                turn = turns.popleft()
                if not turn.done():
                    return turn
        return None


class HeldResults:
    """Counts results from the time that they are encoded until their replies are made.

    Whether a result is large shows only when it is there. So a call whose account holds a large result waits before its
    function runs, and once more before what that returned is encoded: until the account holds less than its bound, and
    one call in each iteration of the event loop. Calls of an account that holds no large result do not wait.
    """

    def __init__(self) -> None:
        self._bytes: dict[str, int] = {}
        self._in_all = 0
        self._waiting: dict[str, _Queue] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        """The event loop of the calls that wait."""

    @property
    def bytes(self) -> int:
        """The size of the results that all accounts hold."""
        return self._in_all

    def must_wait(self, account: str) -> bool:
        """Whether a call of the account has to wait for its turn."""
        return account in self._bytes or account in self._waiting

    async def take_turn(self, account: str, *, returned: bool) -> None:
        """Waits for the turn of a call; `returned` is whether its function has. Cancelling ends the wait."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._loop, self._waiting = loop, {}
        turn = loop.create_future()
        queue = self._waiting.setdefault(account, _Queue())
        (queue.returned if returned else queue.new).append(turn)
        self._schedule(account, queue)
        await turn

    def hold(self, account: str, size: int) -> contextlib.AbstractContextManager[None]:
        """Counts a result of this size for the account inside the `with` block."""
        return _UNCOUNTED if size < _COUNTED_BYTES else self._count(account, size)

    @contextlib.contextmanager
    def _count(self, account: str, size: int) -> Iterator[None]:
        self._bytes[account] = self._bytes.get(account, 0) + size
        self._in_all += size
        try:
            yield
        finally:
            self._in_all -= size
            left = self._bytes[account] - size
            if left:
                self._bytes[account] = left
            else:
                del self._bytes[account]
            self._pass_on(account)

    def _pass_on(self, account: str) -> None:
        """Has calls that wait begin, those of this account first."""
        others = [other for other, _ in zip(self._waiting, range(_ACCOUNTS_AT_ONCE), strict=False)]
        for other in (account, *others):
            queue = self._waiting.get(other)
            if queue is not None:
                self._schedule(other, queue)

    def _schedule(self, account: str, queue: _Queue) -> None:
        if not queue.is_scheduled and self._loop is not None and not self._loop.is_closed():
            queue.is_scheduled = True
            self._loop.call_soon(self._admit, account, queue)

    def _admit(self, account: str, queue: _Queue) -> None:
        """Lets one call begin. The next one follows after it has, because it may then hold a result."""
        queue.is_scheduled = False
        held = self._bytes.get(account, 0)
        if held >= _BYTES_PER_ACCOUNT or (held and self._in_all >= _BYTES):
            return
        turn = queue.pop()
        if turn is None:
            del self._waiting[account]
            return
        turn.set_result(None)
        self._schedule(account, queue)


_WRAPPER_TOKENS = 8
"""More than `{"result":}` costs in any vocabulary that is counted."""
_NAMED_ABOVE_BYTES, _NAMED_ABOVE_BYTES_FOR_STRANGERS = 1_000, 3_000
"""Whole results of meta-tools above this size say their handle: its 8 tokens, or the 20 of one that nobody must guess,
are 3 % of such a result, and what a repeated call saves by it is nearly all."""


class McpDelivery:
    """Delivers results by the policy of the call; without a policy, whole."""

    def __init__(
        self, continuation: Continuation, changes: ChangeDelivery, shapes: LearnedShapes, held: HeldResults
    ) -> None:
        self._continuation = continuation
        self._changes = changes
        self._shapes = shapes
        self._held = held

    def read_page(
        self, operation: Operation, arguments: dict[str, JSON], policy: ResolvedPolicy | None
    ) -> tuple[dict[str, JSON], PageRequest | None]:
        return arguments, None

    async def find_page(self, call: DeliveryRequest) -> ToolResult | None:
        return None

    async def deliver(self, value: Any, call: DeliveryRequest) -> ToolResult | RawResult:
        operation, policy = call.operation, call.policy
        if policy is None:
            is_plain = call.terms.result_shape is ResultShape.MCP and call.terms.surface is not Surface.PROGRESSIVE
            return value if isinstance(value, RawResult) and is_plain else self._deliver_whole(value, call)
        result = convert(value, operation)
        if operation.wraps_output:
            policy = replace(policy, max_tokens=policy.max_tokens - _WRAPPER_TOKENS)
        size = len(result.data) if isinstance(result, ResultData) else content.data_size(result)
        with self._held.hold(call.terms.caller.account, size):
            reply = await self._deliver_by_policy(result, policy, call)
            return _wrap(reply, call) if operation.wraps_output else reply

    async def _deliver_by_policy(
        self, result: ResultData | ToolResult, policy: ResolvedPolicy, call: DeliveryRequest
    ) -> ToolResult:
        operation = call.operation
        if isinstance(result, ResultData):
            return await self._deliver_data(result, policy, call)
        if result.is_error:
            return result
        source = await self._continuation.single_data(result, call.terms.caller, call.is_flat)
        if source is not None:
            reply = await self._deliver_data(source, policy, call)
            return replace(reply, meta={**result.meta, **(reply.meta or {})}) if result.meta else reply
        promised = call.is_flat and operation.output_schema is not None
        return await self._continuation.first_reply_of_blocks(result, policy, call.terms.caller, call.origin, promised)

    def _deliver_whole(self, value: Any, call: DeliveryRequest) -> ToolResult:
        operation = call.operation
        try:
            reply = content.tool_result(
                value, operation.structured_content if operation.output_schema is not None else None
            )
        except ValueError as error:
            return refuse_value(operation, error)
        if operation.wraps_output:
            reply = _wrap(reply, call)
        return _name_form(reply, value) if call.terms.surface is Surface.PROGRESSIVE else reply

    async def _deliver_data(self, source: ResultData, policy: ResolvedPolicy, call: DeliveryRequest) -> ToolResult:
        reply = await self._reply(source, policy, call)
        if not call.is_flat:  # only meta-tools tell what an operation returns
            await self._shapes.learn(call.operation, source, call.terms.caller)
        return reply

    async def _reply(self, source: ResultData, policy: ResolvedPolicy, call: DeliveryRequest) -> ToolResult:
        operation, caller, origin = call.operation, call.terms.caller, call.origin
        if call.is_flat and operation.output_schema is not None:
            # A delta does not match the output schema.
            asked = FirstReply(source, policy, operation.is_valid_output)
            return await self._continuation.first_reply(asked, caller, origin)
        if _may_send_changes(policy, caller):
            key_parts: list[JSON] = [operation.id, call.arguments, policy.fields, policy.grep]
            digest = call_digest(key_parts if call.pages == 1 else [*key_parts, call.pages])
            key = CallKey(caller, digest, origin, operation.is_read_only)
            return await self._changes.deliver(source, policy, key, call.started)
        above = _NAMED_ABOVE_BYTES_FOR_STRANGERS if caller.shares_handles else _NAMED_ABOVE_BYTES
        is_named = not call.is_flat and policy.deltas is not False and len(source.data) > above
        is_ignored = policy.deltas is False and bool(policy.since)
        reason = "Results of this operation always come whole. " if is_ignored else ""
        asked = FirstReply(source, policy, names_whole=is_named, reason=reason)
        return await self._continuation.first_reply(asked, caller, origin)


def _may_send_changes(policy: ResolvedPolicy, caller: Caller) -> bool:
    """Whether the server may send a result as changes or references to what the caller has."""
    if policy.deltas is None:
        return bool(policy.dedup) or policy.since is not None or caller.is_remembered
    return policy.deltas or bool(policy.dedup)


def _wrap(reply: ToolResult, call: DeliveryRequest) -> ToolResult:
    """Returns a reply whose structured content has the value as its only member, as SDKs send what is no object.

    Behind a meta-tool, which promises no structured content, the text is enough.
    """
    if reply.structured is UNSET:
        return reply
    return replace(reply, structured={"result": reply.structured} if call.is_flat else UNSET)


def _name_form(reply: ToolResult, value: Any) -> ToolResult:
    """Adds to `_meta` whether the text is JSON, if a program could not tell from the text."""
    block = reply.content[0] if len(reply.content) == 1 and reply.structured is UNSET else None
    if not isinstance(block, Text) or isinstance(value, Text | ToolResult | list | dict):
        return reply
    is_text = isinstance(value, str) or content.is_symbol_graph(value)
    if content.is_self_describing(block.text if is_text else block.text.encode()):
        return reply
    return replace(reply, meta={META_KEY: {"form": "text" if is_text else "json"}})


class McpLiteDelivery(McpDelivery):
    """Delivers as `McpDelivery` does."""

    def read_page(
        self, operation: Operation, arguments: dict[str, JSON], policy: ResolvedPolicy | None
    ) -> tuple[dict[str, JSON], PageRequest | None]:
        """Fills in the defaults of arguments that the caller left out."""
        defaults = operation.default_arguments
        return ({**defaults, **arguments} if defaults else arguments), None
