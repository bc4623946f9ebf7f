"""Calls of the meta-tools: what each does, and which operation it runs."""

import time

from msgspec.structs import replace

from deltamcp.calls.failures import log_failure
from deltamcp.calls.operation_search import OperationSearch
from deltamcp.calls.request_context import RequestContext
from deltamcp.calls.tool_calls import ToolCalls
from deltamcp.catalog import discovery
from deltamcp.catalog.meta_tools import Meta
from deltamcp.catalog.routing import route
from deltamcp.catalog.view import View
from deltamcp.delivery.call_policy import ResultOverride
from deltamcp.delivery.change_delivery import ChangeDelivery
from deltamcp.delivery.continuation import Continuation
from deltamcp.delivery.sent_results import CallKey, call_digest
from deltamcp.errors import UnfitError
from deltamcp.results import content, project
from deltamcp.results.content import Source
from deltamcp.results.policy import ROOT, Wish, read_root, root_held, wish_of
from deltamcp.values import JSON, Answer, CallTool, Outcome, Text, ToolResult


class MetaCalls:
    """`discover`, `get_schema`, `execute`, `query` and `continue`."""

    def __init__(
        self, search: OperationSearch, continuation: Continuation, changes: ChangeDelivery, tool_calls: ToolCalls
    ) -> None:
        self._search = search
        self._continuation = continuation
        self._changes = changes
        self._tool_calls = tool_calls

    async def call(self, meta: Meta, ask: CallTool, request: RequestContext) -> Outcome:
        try:
            return await self._call(meta, ask, request)
        except UnfitError as error:
            return Answer(content.error_result(str(error)))
        except Exception as error:
            return Answer(content.error_result(log_failure(f"The tool {ask.name}", error)))

    async def _call(self, meta: Meta, ask: CallTool, request: RequestContext) -> Outcome:
        caller = request.terms.caller
        match meta:
            case Meta.DISCOVER:
                return Answer(await self._discover(ask.arguments, request))
            case Meta.GET_SCHEMA:
                text = discovery.schemas(request.view, *discovery.read_get_schema(ask.arguments))
                return Answer(await self._continuation.first_reply(Source(text), request.view.shaping, caller))
            case Meta.CONTINUE:
                return Answer(await self._continuation.next_reply(ask.arguments, caller, wish_of(request.terms.meta)))
            case Meta.EXECUTE | Meta.QUERY:
                return await self._execute(meta, ask, request)

    async def _discover(self, arguments: dict[str, JSON], request: RequestContext) -> ToolResult:
        """The operations there are, or what changed of them since the caller held the list."""
        caller, root = request.terms.caller, root_held(request.terms.meta)
        if ROOT in arguments:
            arguments = dict(arguments)
            root = read_root(arguments.pop(ROOT))
        await self._changes.accept_root(root, caller)
        policy = replace(request.view.shaping, pack_root=root)
        source = Source(await self._discovery_text(request.view, arguments))
        if not policy.tells_changes:
            return await self._continuation.first_reply(source, policy, caller)
        call = CallKey(caller, call_digest([Meta.DISCOVER.value, arguments]))
        return await self._changes.deliver(source, policy, call, time.monotonic())

    async def _discovery_text(self, view: View, arguments: dict[str, JSON]) -> str:
        asked = discovery.read_discover(arguments)
        if not asked.queries:
            return discovery.listing(view, asked)
        limit = asked.cursor + asked.limit + 1
        found = await self._search.find(view, asked.queries, limit, discovery.among(view, asked))
        return discovery.found(view, found[asked.cursor :], asked)

    async def _execute(self, meta: Meta, ask: CallTool, request: RequestContext) -> Outcome:
        try:
            operation, params, fields, root, repair = route(request.view, ask.arguments)
        except UnfitError:
            self._tool_calls.observe_unknown(ask.arguments.get("operation"), request)
            raise
        if meta is Meta.QUERY and not operation.read_only:
            raise UnfitError(
                f"{operation.id} does not say that it only reads; use {request.view.called(Meta.EXECUTE)}."
            )
        note = f"({repair})" if repair else ""
        project.check(fields)
        override = ResultOverride(Wish(fields=fields, pack_root=root), note)
        outcome = await self._tool_calls.call(operation, CallTool(operation.id, params, ask.inputs), request, override)
        if not note or not isinstance(outcome, Answer) or not isinstance(outcome.value, ToolResult):
            return outcome
        return Answer(replace(outcome.value, content=[*outcome.value.content, Text(note)]))
