"""Calls of meta-tools, which find, describe and run operations and return the rest of stored results."""

import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from msgspec.structs import replace

from deltamcp.calls.failures import crash_result, missing_scopes
from deltamcp.calls.observers import DisclosureObservers
from deltamcp.calls.operation_search import OperationSearch
from deltamcp.calls.request_context import RequestContext
from deltamcp.calls.tool_calls import ToolCalls
from deltamcp.catalog import discovery
from deltamcp.catalog.meta_tools import (
    RUNNING_META_TOOLS,
    ExecuteArguments,
    MetaTool,
    UnknownOperationError,
    parse_execute_arguments,
)
from deltamcp.delivery.change_delivery import ChangeDelivery
from deltamcp.delivery.continuation import Continuation
from deltamcp.delivery.delivery import ResultOverride
from deltamcp.delivery.learned_shapes import LearnedShapes
from deltamcp.delivery.sent_results import CallKey, call_digest
from deltamcp.delivery.stored_results import ResultOrigin
from deltamcp.errors import MissingScopesError, ToolErrorCode, UsageError
from deltamcp.results import content
from deltamcp.results.blocks import add_notes
from deltamcp.results.content import ResultData
from deltamcp.results.policy import RequestPolicy, requested_policy, requested_since, take_since
from deltamcp.results.shown_result import FirstReply
from deltamcp.runtime.threads import Computations
from deltamcp.values import JSON, Answer, CallTool, Outcome, ToolResult

if TYPE_CHECKING:
    from deltamcp.promises.calls import PromiseCalls


_NO_POLICY = RequestPolicy()
"""The policy of `execute` without fields, grep and since; to check one takes 15 µs."""


class MetaCalls:
    """Performs calls of `discover`, `get_schema`, `execute`, `query` and `continue`."""

    def __init__(
        self,
        search: OperationSearch,
        continuation: Continuation,
        changes: ChangeDelivery,
        shapes: LearnedShapes,
        tool_calls: ToolCalls,
        computations: Computations,
        promise_calls: "Callable[[], PromiseCalls | None]",
        observers: DisclosureObservers,
        await_start: Callable[[str, RequestContext], Awaitable[bool]],
    ) -> None:
        """
        Args:
            promise_calls: Returns what makes promises, where the server gives some.
            await_start: Waits for the server that an unknown operation would be of, if that is starting; returns
                whether the view of the request is a new one.
        """
        self._await_start = await_start
        self._search = search
        self._continuation = continuation
        self._changes = changes
        self._shapes = shapes
        self._tool_calls = tool_calls
        self._computations = computations
        self._promise_calls = promise_calls
        self._observers = observers

    async def call(self, meta: MetaTool, ask: CallTool, request: RequestContext) -> Outcome:
        outcome: Outcome
        try:
            outcome = await self._call(meta, ask, request)
            if meta in RUNNING_META_TOOLS:
                return outcome
        except UsageError as error:
            outcome = Answer(content.server_error(str(error), ToolErrorCode.INVALID_PARAMS))
        except MissingScopesError as error:
            outcome = missing_scopes(error, request.terms.caller)
        except Exception as error:
            outcome = Answer(crash_result(f"The tool {ask.name}", error))
        self._observers.meta_tool_replied(meta, outcome, request)
        return outcome

    async def _call(self, meta: MetaTool, ask: CallTool, request: RequestContext) -> Outcome:
        caller = request.terms.caller
        match meta:
            case MetaTool.DISCOVER:
                return Answer(await self._discover(ask.arguments, request))
            case MetaTool.GET_SCHEMA:
                names, detail = discovery.parse_get_schema_arguments(ask.arguments)
                notices = request.view.notices(caller.principal)
                finding, found = discovery.find_schemas(request.view, names, notices), []
                for _ in names:
                    await self._computations.take_turn(caller.account)  # an unknown name takes up to 15 ms
                    found.append(next(finding))
                text = discovery.schemas_text(request.view, found, detail, self._shapes.of(caller.principal), notices)
                policy, origin = request.view.resolved_policy, _origin(meta, request)
                reply = FirstReply(ResultData(text), policy)
                return Answer(await self._continuation.first_reply(reply, caller, origin))
            case MetaTool.CONTINUE:
                return Answer(
                    await self._continuation.next_reply(ask.arguments, caller, requested_policy(request.terms.meta))
                )
            case MetaTool.EXECUTE | MetaTool.QUERY | MetaTool.EXECUTE_DESTRUCTIVE:
                return await self._execute(meta, ask, request)

    async def _discover(self, arguments: dict[str, JSON], request: RequestContext) -> ToolResult:
        """Lists or searches operations; a caller that names its last list gets the changes since then."""
        caller, arguments = request.terms.caller, dict(arguments)
        since = take_since(arguments)
        if since is None:
            since = requested_since(request.terms.meta)
        await self._changes.accept_since(since, caller)
        policy = replace(request.view.resolved_policy, since=since)
        source = ResultData(await self._discovery_text(request, arguments))
        origin = _origin(MetaTool.DISCOVER, request)
        if not policy.deltas and since is None:
            return await self._continuation.first_reply(FirstReply(source, policy), caller, origin)
        given = {name: value for name, value in arguments.items() if value is not None and value != ""}
        call = CallKey(caller, call_digest([MetaTool.DISCOVER.value, given]), origin)
        return await self._changes.deliver(source, policy, call, time.monotonic())

    async def _discovery_text(self, request: RequestContext, arguments: dict[str, JSON]) -> str:
        view, discover = request.view, discovery.parse_discover_arguments(arguments)
        caller, notices = request.terms.caller.account, view.notices(request.terms.caller.principal)
        if discover.category:
            await self._computations.take_turn(caller)  # an unknown one is compared with all of them
        if not discover.queries:
            return await self._computations.run(
                caller, lambda work: discovery.listing_text(view, discover, work, notices)
            )
        names = discovery.searched_names(view, discover)
        limit = discover.cursor + discovery.MAX_HITS + 1
        found = await self._search.find(view, discover.queries, limit, names, caller)
        found = {query: hits[discover.cursor :] for query, hits in found.items()}
        missing = self._search.missing_names(view, discover.queries)
        shapes = self._shapes.of(request.terms.caller.principal)
        return discovery.hits_text(view, found, discover, shapes, notices, missing)

    async def _execute(self, meta: MetaTool, ask: CallTool, request: RequestContext) -> Outcome:
        try:
            operation, params, query, since, pages, repair = await self._parse_execute_arguments(ask.arguments, request)
        except UsageError as error:
            self._tool_calls.observe_unknown(ask.arguments.get("operation"), request)
            if isinstance(error, UnknownOperationError):
                await self._computations.take_turn(request.terms.caller.account)
                notices = request.view.notices(request.terms.caller.principal)
                raise UsageError(discovery.unknown_operation_text(request.view, error.name, notices)) from None
            raise
        except MissingScopesError as error:
            refused = missing_scopes(error, request.terms.caller)
            self._tool_calls.observe_unknown(ask.arguments.get("operation"), request, refused)
            return refused
        if meta is MetaTool.QUERY and not operation.is_read_only:
            declared = "declared destructive" if operation.is_destructive else "not declared read-only"
            right = request.view.meta_tool_name(request.view.running_meta_tool(operation))
            raise UsageError(f"{operation.id} is {declared}; use {right}.")
        if meta is MetaTool.EXECUTE and operation.is_destructive:
            twin = request.view.running_meta_tool(operation)
            if twin is MetaTool.EXECUTE_DESTRUCTIVE:
                raise UsageError(f"{operation.id} is declared destructive; use {request.view.meta_tool_name(twin)}.")
        note = f"({repair})" if repair else ""
        asks = since is not None or query.fields is not None or query.grep is not None
        policy = RequestPolicy(fields=query.fields, grep=query.grep, since=since) if asks else _NO_POLICY
        override = ResultOverride(policy, note, pages)
        call = CallTool(operation.id, params, ask.inputs, ask.promise)
        if operation.promise_policy != "never" and (promises := self._promise_calls()) is not None:
            promised = await promises.call(operation, call, request, override)
            if promised is not None:
                return promised
        outcome = await self._tool_calls.call(operation, call, request, override)
        if not note or not isinstance(outcome, Answer) or not isinstance(outcome.value, ToolResult):
            return outcome
        return Answer(add_notes(outcome.value, [note]))

    async def _parse_execute_arguments(self, arguments: dict[str, JSON], request: RequestContext) -> ExecuteArguments:
        """Parses the arguments; if the operation would be that of a server that is starting, waits for that.

        Raises:
            UsageError, MissingScopesError: as of `parse_execute_arguments`.
        """
        try:
            return parse_execute_arguments(request.view, arguments)
        except UnknownOperationError as error:
            if not await self._await_start(error.name, request):
                raise
        return parse_execute_arguments(request.view, arguments)


def _origin(meta: MetaTool, request: RequestContext) -> ResultOrigin:
    """Returns the origin of a text about operations: which of them it is about depends on the caller's scopes."""
    return ResultOrigin(request.view.meta_tool_name(meta), request.view.scopes)
