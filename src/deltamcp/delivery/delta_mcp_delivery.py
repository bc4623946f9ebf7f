"""Delivery to Delta-MCP clients: that protocol's result shapes, and pages by the arguments `page` and `pageSize`.

The server cuts pages from a stored snapshot of the result, so that the function runs once and no row is repeated or
missing between two pages. A tool that declares `page` or `pageSize` runs for every page; the server cuts the page from
what it returns only if that is more than a page.
"""

import hashlib
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from deltamcp import tokens
from deltamcp.catalog.items.operation import Operation
from deltamcp.delivery.continuation import Continuation
from deltamcp.delivery.delivery import DeliveryRequest, HeldResults, PageRequest, convert
from deltamcp.delivery.stored_results import StoredResults
from deltamcp.errors import UsageError
from deltamcp.results import content, delta_mcp_shapes, document
from deltamcp.results.content import ResultData
from deltamcp.results.policy import META_KEY, ResolvedPolicy
from deltamcp.results.shown_result import StoredHeader, select
from deltamcp.results.window import Budget, Handle, may_link
from deltamcp.runtime.threads import Computations
from deltamcp.values import JSON, ResourceLink, Text, ToolResult
from deltamcp.wire import jsonrpc
from deltamcp.work import Work, WorkLimitError

_PAGE_ARGUMENTS = ("page", "pageSize")
_CHARS_PER_STEP = 16
"""Characters of a text that one step writes, searches and cuts."""
_STEPS_PER_ITEM = 4
"""Steps that an item of a list takes each time that the list is divided into pages."""

T = TypeVar("T")


class DeltaMcpDelivery:
    """Delivers results in Delta-MCP's shapes. The server stores a result that they cut; `continue` returns the rest."""

    def __init__(
        self, stored: StoredResults, continuation: Continuation, computations: Computations, held: HeldResults
    ) -> None:
        self._stored = stored
        self._continuation = continuation
        self._computations = computations
        self._held = held

    def read_page(
        self, operation: Operation, arguments: dict[str, JSON], policy: ResolvedPolicy | None
    ) -> tuple[dict[str, JSON], PageRequest | None]:
        if policy is None or policy.auto_page is False:
            return arguments, None
        declared = operation.parameter_names.intersection(_PAGE_ARGUMENTS)
        passed = {name: value for name, value in arguments.items() if name not in _PAGE_ARGUMENTS or name in declared}
        # As `continue` does, these take an empty text for an argument that is left out.
        page, page_size = (None if arguments.get(name) == "" else arguments.get(name) for name in _PAGE_ARGUMENTS)
        if declared and policy.auto_page is None:
            # A tool that takes no page size pages by its own, which a caller's would cut a second time.
            size = page_size if "pageSize" in declared or policy.compat else None
            return passed, PageRequest(None, page, size, _declared_page_size(operation, policy))
        own = {name: value for name, value in arguments.items() if name not in _PAGE_ARGUMENTS}
        key = msgspec.json.encode([operation.name, own], order="deterministic")
        return passed, PageRequest(f"page {hashlib.sha256(key).hexdigest()}", page, page_size, policy.page_size)

    async def find_page(self, call: DeliveryRequest) -> ToolResult | None:
        request, caller = call.page, call.terms.caller
        if request is None or request.snapshot is None or call.policy is None or request.page in (None, 1):
            return None
        # Anonymous callers would get each other's snapshots, and a tool's result may depend on its caller.
        if caller.is_anonymous:
            return None
        data = await self._stored.recall(request.snapshot, caller)
        if data is None:
            return None
        try:
            name, value = await self._run(call, lambda work: document.decode_counted(data, work))
        except UsageError:
            return None
        return await self._reply(value, call, None if name is None else self._stored.handle(name))

    async def deliver(self, value: Any, call: DeliveryRequest) -> ToolResult:
        result = convert(value, call.operation)
        with self._held.hold(call.terms.caller.account, content.data_size(result)):
            return await self._deliver_result(result, call)

    async def _deliver_result(self, result: ResultData | ToolResult, call: DeliveryRequest) -> ToolResult:
        operation, policy = call.operation, call.policy
        if isinstance(result, ResultData):
            return await self._deliver_data(result, call)
        if result.is_error:
            return result
        source = await self._continuation.single_data(result, call.terms.caller, call.is_flat)
        if source is None and not result.content:
            source = content.NULL_DATA
        if source is not None:
            reply = await self._deliver_data(source, call)
            return replace(reply, meta={**result.meta, **(reply.meta or {})}) if result.meta else reply
        if policy is None:
            return result
        promised = call.is_flat and operation.output_schema is not None
        return await self._continuation.first_reply_of_blocks(result, policy, call.terms.caller, call.origin, promised)

    async def _deliver_data(self, source: ResultData, call: DeliveryRequest) -> ToolResult:
        """Returns the reply in one of the protocol's shapes, or as plain JSON if the result fits or has no policy."""
        policy, caller = call.policy, call.terms.caller
        if policy is None:
            try:
                return await self._run(call, lambda work: _json_reply(_decode(source.data, work)))
            except document.TooManyValuesError:
                return ToolResult([Text(str(memoryview(source.data), "utf-8"))])  # type: ignore[arg-type]
        chosen = policy

        def choose(work: Work) -> tuple[JSON, bool]:
            data = select(source.data, chosen, work).data
            value = _decode(data, work)
            return value, data != source.data or chosen.compat or _shape(value, chosen, call.page, 0, work).cut

        try:
            value, is_cut = await self._run(call, choose)
        except UsageError:
            # The selection or the pages take too much work; the function has run, so the caller gets what fits.
            value, is_cut = source.data if isinstance(source.data, str) else source.data.decode(), True
        if not is_cut:
            return await self._run(call, lambda work: _json_reply(value))
        handle = None if policy.compat else await self._store(source, policy, call)
        snapshot = None if call.page is None else call.page.snapshot
        if snapshot is not None and isinstance(value, list) and not caller.is_anonymous:
            size = len(source.data)
            data = await self._run(call, lambda work: _encode_snapshot(value, size, handle, work))
            await self._stored.remember(snapshot, data, caller)
        return await self._reply(value, call, handle)

    async def _store(self, source: ResultData, policy: ResolvedPolicy, call: DeliveryRequest) -> Handle | None:
        head = StoredHeader("text" if isinstance(source.data, str) else "json", None, policy)
        return await self._stored.store(head, source.data, call.terms.caller, call.origin)

    async def _reply(self, value: JSON, call: DeliveryRequest, handle: Handle | None) -> ToolResult:
        assert call.policy is not None, "without a policy nothing is cut"
        policy, page = call.policy, call.page
        try:
            return await self._run(call, lambda work: _reply(value, policy, page, handle, work))
        except WorkLimitError:
            text = value if isinstance(value, str) else delta_mcp_shapes.stringify(value)
            return await self._run(call, lambda work: _reply(text, policy, page, handle, work))

    async def _run(self, call: DeliveryRequest, compute: Callable[[Work], T]) -> T:
        return await self._computations.run(call.terms.caller.account, compute)


def _encode_snapshot(value: list[JSON], size: int, handle: Handle | None, work: Work) -> bytes:
    work.scan(size)  # as much as it took to decode the value, so that the steps suffice here too
    return jsonrpc.encode([handle and handle.name, value])


def _decode(data: str | bytes, work: Work) -> JSON:
    return data if isinstance(data, str) else document.decode_counted(data, work)


def _reply(
    value: JSON, policy: ResolvedPolicy, page: PageRequest | None, handle: Handle | None, work: Work
) -> ToolResult:
    if policy.compat:
        work.spend(len(value) if isinstance(value, list | dict) else 0)
        number, size = (None, None) if page is None else (page.page, page.page_size)
        return _json_reply(delta_mcp_shapes.original_shape(value, policy.max_tokens, policy.page_size, number, size))
    if handle is None or not may_link(policy):
        return _json_reply(_shape(value, policy, page, 0, work).value, handle)
    # Handles are random and differ in tokens; counting each character as a token makes pages the same for all of them.
    nameless = jsonrpc.encode(handle.link).decode().replace(handle.name, "")
    reserved = tokens.count(nameless, policy.model) + 2 * len(handle.name) + 1
    return _json_reply(_shape(value, policy, page, reserved, work).value, handle, handle.link)


def _shape(
    value: JSON, policy: ResolvedPolicy, page: PageRequest | None, reserved: int, work: Work
) -> delta_mcp_shapes.ShapedValue:
    """Returns a value in the protocol's shape, within the budget less `reserved` tokens."""
    budget = Budget.of(replace(policy, max_tokens=policy.max_tokens - reserved))
    if isinstance(value, str):
        work.spend(len(value) // _CHARS_PER_STEP)
    elif isinstance(value, list | dict):
        work.spend(_STEPS_PER_ITEM * len(value))

    def fits(text: str) -> bool:
        work.scan(len(text))
        return budget.admits([text], work)

    if page is None:
        return delta_mcp_shapes.budgeted_shape(
            value, fits, policy.max_tokens, paginate_after=policy.page_size, pages_by_argument=False
        )
    shape = delta_mcp_shapes.budgeted_shape if page.snapshot is not None else delta_mcp_shapes.own_page_shape
    return shape(value, fits, policy.max_tokens, page.page, page.page_size, page.default_size)


def _declared_page_size(operation: Operation, policy: ResolvedPolicy) -> JSON:
    """Returns the page size that a tool's schema has as its default, else the policy's; None if the tool takes none."""
    match operation.tool["inputSchema"]:
        case {"properties": {"pageSize": {"default": int() | float() as default}}}:
            return default
        case _:
            return policy.page_size if "pageSize" in operation.parameter_names else None


def _json_reply(value: JSON, handle: Handle | None = None, *links: ResourceLink) -> ToolResult:
    """Returns a value in the form of every Delta-MCP result: JSON in one text.

    Only programs that read `_meta` learn of the handle, and of the tool that reads on, which is not listed.
    """
    meta = None if handle is None else {META_KEY: {"handle": handle.name, "tool": handle.continue_tool}}
    return ToolResult([Text(delta_mcp_shapes.stringify(value)), *links], meta=meta)
