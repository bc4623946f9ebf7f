"""Results as Delta-MCP's clients expect them: that protocol's shapes, and pages by the arguments `page` and `pageSize`.

A page is cut from a snapshot of the result, so that the function does not run again and each page goes on where the
one before it ended.
"""

import hashlib
from typing import Any

import msgspec
from msgspec.structs import replace

from deltamcp import tokens
from deltamcp.catalog.operation import Operation
from deltamcp.delivery.continuation import Continuation
from deltamcp.delivery.delivery import DeliveryRequest, PageRequest, convert
from deltamcp.delivery.stored_results import StoredResults
from deltamcp.results import content, delta_mcp_shapes, document
from deltamcp.results.content import ResultData
from deltamcp.results.notes import Handle
from deltamcp.results.policy import META_KEY, ResolvedPolicy
from deltamcp.results.result_windows import is_linked
from deltamcp.results.stored_result import StoredHeader, select_fields
from deltamcp.results.window import budget_of
from deltamcp.values import JSON, Caller, ResourceLink, Text, ToolResult
from deltamcp.wire import jsonrpc

_PAGE_ARGUMENTS = ("page", "pageSize")


class DeltaMcpDelivery:
    """Delivers in Delta-MCP's shapes. What they leave out is stored, and `continue` reads on in it."""

    def __init__(self, stored: StoredResults, continuation: Continuation) -> None:
        self._stored = stored
        self._continuation = continuation

    def read_page(
        self, operation: Operation, arguments: dict[str, JSON], policy: ResolvedPolicy | None
    ) -> tuple[dict[str, JSON], PageRequest | None]:
        declared = not operation.parameter_names.isdisjoint(_PAGE_ARGUMENTS)
        if policy is None or policy.auto_page is False or (declared and policy.auto_page is not True):
            return arguments, None
        own = {name: value for name, value in arguments.items() if name not in _PAGE_ARGUMENTS}
        key = msgspec.json.encode([operation.name, own], order="deterministic")
        page, page_size = (arguments.get(name) for name in _PAGE_ARGUMENTS)
        request = PageRequest(f"page {hashlib.sha256(key).hexdigest()}", page, page_size)
        return (arguments if declared else own), request

    async def find_page(self, call: DeliveryRequest) -> ToolResult | None:
        request, caller = call.page, call.terms.caller
        # Anonymous callers would be shown each other's: a tool may look at who calls.
        if request is None or call.policy is None or request.page in (None, 1) or caller.is_anonymous:
            return None
        snapshot = await self._stored.recall(request.snapshot, caller)
        if snapshot is None:
            return None
        name, value = snapshot
        return _reply(value, call.policy, request, None if name is None else self._stored.handle(name))

    async def deliver(self, value: Any, call: DeliveryRequest) -> ToolResult:
        operation, policy = call.operation, call.policy
        made = convert(value, operation)
        if isinstance(made, ResultData):
            return await self._deliver_data(made, call)
        if made.is_error:
            return made
        source = content.single_data(made) or (None if made.content else content.NULL_DATA)
        if source is not None:
            reply = await self._deliver_data(source, call)
            return replace(reply, meta={**made.meta, **(reply.meta or {})}) if made.meta else reply
        if policy is None:
            return made
        promised = call.is_flat and operation.output_schema is not None
        return await self._continuation.first_reply_of_blocks(made, policy, call.terms.caller, promised)

    async def _deliver_data(self, source: ResultData, call: DeliveryRequest) -> ToolResult:
        """A result in the protocol's shapes, where it needs one of them; without a policy it never does."""
        policy, caller = call.policy, call.terms.caller
        data = source.data if policy is None else select_fields(source.data, policy)[0]
        value = data if isinstance(data, str) else document.decode(data)
        if policy is None:
            return _json_reply(value)
        handle = None
        if not policy.compat:
            if data == source.data and not _shape(value, policy, call.page, 0).cut:
                return _json_reply(value)
            handle = await self._store(source, value, policy, caller)
        if call.page is not None and isinstance(value, list) and not caller.is_anonymous:
            await self._stored.remember(call.page.snapshot, [handle and handle.name, value], caller)
        return _reply(value, policy, call.page, handle)

    async def _store(self, source: ResultData, value: JSON, policy: ResolvedPolicy, caller: Caller) -> Handle | None:
        head = StoredHeader("text" if isinstance(value, str) else "json", None, policy)
        handle, _ = await self._stored.store(source.data, caller, lambda _: (head, None))
        return handle


def _reply(value: JSON, policy: ResolvedPolicy, page: PageRequest | None, handle: Handle | None) -> ToolResult:
    if policy.compat:
        return _json_reply(delta_mcp_shapes.original_shape(value, policy.max_tokens, policy.page_size, *_numbers(page)))
    if handle is None or not is_linked(policy):
        return _json_reply(_shape(value, policy, page, 0).value, handle)
    # The same pages whatever the handle, which chance makes longer or shorter: each of its characters counts as one.
    nameless = jsonrpc.encode(handle.link).decode().replace(handle.name, "")
    reserved = tokens.count(nameless, policy.model) + 2 * len(handle.name) + 1
    return _json_reply(_shape(value, policy, page, reserved).value, handle, handle.link)


def _numbers(page: PageRequest | None) -> tuple[JSON, JSON]:
    return (None, None) if page is None else (page.page, page.page_size)


def _shape(
    value: JSON, policy: ResolvedPolicy, page: PageRequest | None, reserved: int
) -> delta_mcp_shapes.ShapedValue:
    """The protocol's shape of a value; `reserved` tokens are for something else."""
    budget = budget_of(replace(policy, max_tokens=policy.max_tokens - reserved))
    number, size = _numbers(page)
    most, after = policy.max_tokens, policy.page_size
    return delta_mcp_shapes.budgeted_shape(
        value, budget.admits, most, number, size, after, pages_by_argument=page is not None
    )


def _json_reply(value: JSON, handle: Handle | None = None, *links: ResourceLink) -> ToolResult:
    """A value as the protocol has it: JSON in one text, whatever it is."""
    meta = None if handle is None else {META_KEY: {"handle": handle.name}}
    return ToolResult([Text(delta_mcp_shapes.stringify(value)), *links], meta=meta)
