"""Delivery to MCP and MCP-lite clients: the whole result, as much of it as fits, or what has changed."""

from typing import Any

from msgspec import UNSET
from msgspec.structs import replace

from deltamcp.catalog.items.operation import Operation
from deltamcp.delivery.change_delivery import ChangeDelivery
from deltamcp.delivery.continuation import Continuation
from deltamcp.delivery.delivery import DeliveryRequest, HeldResults, PageRequest, convert, refuse_value
from deltamcp.delivery.learned_shapes import LearnedShapes
from deltamcp.delivery.sent_results import CallKey, call_digest
from deltamcp.results import content
from deltamcp.results.content import ResultData
from deltamcp.results.policy import META_KEY, ResolvedPolicy
from deltamcp.results.shown_result import FirstReply
from deltamcp.values import JSON, RawResult, ResultShape, Surface, Text, ToolResult

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
        with self._held.hold(call.terms.caller.account, content.data_size(result)):
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
        operation, caller = call.operation, call.terms.caller
        if call.is_flat and operation.output_schema is not None:
            # A delta does not match the output schema.
            return await self._continuation.first_reply(
                FirstReply(source, policy, operation.is_valid_output), caller, call.origin
            )
        if policy.may_send_changes(caller):
            key_parts: list[JSON] = [operation.id, call.arguments, policy.fields, policy.grep]
            digest = call_digest(key_parts if call.pages == 1 else [*key_parts, call.pages])
            key = CallKey(caller, digest, call.origin, operation.is_read_only)
            return await self._changes.deliver(source, policy, key, call.started)
        above = _NAMED_ABOVE_BYTES_FOR_STRANGERS if caller.shares_handles else _NAMED_ABOVE_BYTES
        is_named = not call.is_flat and policy.deltas is not False and len(source.data) > above
        asked = FirstReply(source, policy, names_whole=is_named, reason=_no_changes(policy))
        return await self._continuation.first_reply(asked, caller, call.origin)


def _no_changes(policy: ResolvedPolicy) -> str:
    return "Results of this operation always come whole. " if policy.deltas is False and policy.since else ""


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
