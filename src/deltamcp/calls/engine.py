"""The engine: performs one ask and returns its outcome. Read this module first.

A transport reads bytes, a dialect reads them as `Terms` and an `Ask`, `Engine.perform` returns an `Outcome`, and the
same dialect writes that. The engine only dispatches: one module of this package performs each kind of ask, and
`tool_calls.py` calls operations. An exception in an author's function becomes an error result that the model reads, or
a failure with an id under which the server's log has the traceback; clients see nothing else of it.
"""

import asyncio
import contextlib
import functools
import hashlib
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, assert_never

from deltamcp.calls.failures import refuse_withheld
from deltamcp.calls.function_runner import FunctionRunner
from deltamcp.calls.lists import Capabilities, Lists
from deltamcp.calls.meta_calls import MetaCalls
from deltamcp.calls.middleware import ServerHooks
from deltamcp.calls.observers import CallLog, CallObserver, DisclosureObservers
from deltamcp.calls.operation_search import OperationSearch
from deltamcp.calls.rate_limits import RateLimits, Rates
from deltamcp.calls.request_context import RequestContext, RequestState
from deltamcp.calls.resources import FunctionRequest, Prompts, Resources
from deltamcp.calls.tool_calls import ToolCalls
from deltamcp.calls.user_questions import Consents, ModelQuestions
from deltamcp.catalog.catalog import Catalog
from deltamcp.catalog.items.operation import Operation
from deltamcp.catalog.meta_tools import MetaTool
from deltamcp.context import Channel, StateStore
from deltamcp.delivery.change_delivery import ChangeDelivery
from deltamcp.delivery.continuation import Continuation
from deltamcp.delivery.delivery import Delivery, HeldResults, McpDelivery, McpLiteDelivery
from deltamcp.delivery.delta_mcp_delivery import DeltaMcpDelivery
from deltamcp.delivery.learned_shapes import LearnedShapes
from deltamcp.delivery.sent_results import RecentReplies
from deltamcp.delivery.stored_results import StoredResults
from deltamcp.dialects import tasks
from deltamcp.dialects.registry import Dialects
from deltamcp.limits import Limits
from deltamcp.replicas import Replica
from deltamcp.runtime.change_hub import ChangeHub
from deltamcp.runtime.lifespan import ServerLifespan
from deltamcp.runtime.local_sessions import LocalSessions
from deltamcp.runtime.metric_values import Key
from deltamcp.runtime.seal import Seal
from deltamcp.runtime.threads import Computations
from deltamcp.stores.store import SharedStore, StoreError
from deltamcp.values import (
    ANONYMOUS,
    JSON,
    LOCAL,
    Answer,
    AnswerPromise,
    Caller,
    CallTool,
    CancelPromise,
    Complete,
    Describe,
    Discover,
    Done,
    EngineAsk,
    Filter,
    GetPromise,
    GetPrompt,
    ListItems,
    ListManifest,
    Outcome,
    Ping,
    Principal,
    ReadResource,
    RedeemPromise,
    RequestId,
    ResultShape,
    Terms,
)

if TYPE_CHECKING:
    from deltamcp.promises.calls import PromiseCalls
    from deltamcp.promises.store import PromiseQueue

_ADDRESS_CHARS = 64


class Engine:
    """Performs the requests of all transports of one server."""

    def __init__(
        self,
        catalog: Catalog,
        info: dict[str, JSON],
        instructions: str | None,
        limits: Limits,
        hooks: ServerHooks,
        hub: ChangeHub,
        search: OperationSearch,
        computations: Computations,
        cache_seconds: float,
        conversation: Literal["process"] | None,
        store: SharedStore,
        state_keys: Sequence[bytes],
        rate_limits: RateLimits | None,
        promise_queue: "PromiseQueue | None",
        pages: Mapping[str, Callable[[Any], Any]],
    ) -> None:
        """
        Args:
            conversation: "process" if every connection and session is that of one conversation.
            promise_queue: Carries promised calls to workers; without one, every call runs while its client waits.
            pages: Pages of the server itself beside its HTTP endpoint, by their paths: each is made for an
                `Authenticator`, or None, and is an ASGI application.
        """
        self._conversation = conversation
        self.catalog = catalog
        self.info = info
        self.limits = limits
        self.store = store
        self.hub = hub
        self.computations = computations
        self.dialects: Dialects = Dialects(info, cache_seconds, catalog.view, limits.input_seconds)
        catalog.instructions = instructions
        self.capabilities: Capabilities = Capabilities(catalog, info)
        self.lifespan: ServerLifespan = hooks.lifespan
        self.local_sessions: LocalSessions = LocalSessions()
        self.rates: Rates | None = None if rate_limits is None else Rates(rate_limits, store, info["name"])
        continue_tool = f"{catalog.disclosure.meta_tool_prefix}{MetaTool.CONTINUE.value}"
        stored = StoredResults(store, limits, info["name"], catalog.scheme, continue_tool)
        self.stored_results: StoredResults = stored
        continuation = Continuation(stored, computations)
        changes = self._changes = ChangeDelivery(stored, continuation, computations)
        self._recent_replies = RecentReplies()
        self.learned_shapes: LearnedShapes = LearnedShapes(computations)
        held = HeldResults()
        deliveries: dict[ResultShape, Delivery] = {
            ResultShape.MCP: McpDelivery(continuation, changes, self.learned_shapes, held),
            ResultShape.DELTA_MCP: DeltaMcpDelivery(stored, continuation, computations, held),
            ResultShape.MCP_LITE: McpLiteDelivery(continuation, changes, self.learned_shapes, held),
        }
        state = RequestState(Seal(state_keys, limits.input_seconds), limits.input_seconds)
        consents = Consents(store, info["name"], limits.input_seconds)
        model_questions = ModelQuestions(store, info["name"], limits.input_seconds)
        states = StateStore(store, info["name"], limits)
        runner = FunctionRunner(
            hooks,
            state,
            Seal(state_keys, limits.session_idle_seconds),
            limits,
            # What it returns runs functions by this same runner.
            lambda *call: FunctionRequest(self._resources, self._prompts, states, *call),
        )
        self._tool_calls = ToolCalls(
            runner,
            state,
            consents,
            model_questions,
            continuation,
            changes,
            deliveries,
            (CallLog(), *hooks.observers),
            self.rates,
            held,
        )
        self.make_seal: Callable[[float], Seal] = functools.partial(Seal, state_keys)
        """Makes what encrypts with the server's state keys; its argument is the seconds for which that is valid."""
        self.pages = pages
        self._promise_queue = promise_queue
        self._metrics: list[Callable[[], Mapping[Key, float]]] = []
        disclosure_observers = DisclosureObservers(hooks.observers)
        self._meta_calls = MetaCalls(
            search,
            continuation,
            changes,
            self.learned_shapes,
            self._tool_calls,
            computations,
            lambda: self.promise_calls,
            disclosure_observers,
            self._await_start,
        )
        self._lists = Lists(self.capabilities, changes, search, computations, disclosure_observers, self._await_start)
        self._resources = Resources(self.capabilities, runner, continuation, changes, computations, cache_seconds)
        self._prompts = Prompts(self.capabilities, self._lists, runner)

    @functools.cached_property
    def replica(self) -> Replica | None:
        """This process among the replicas of the server, for transports that share sessions; None if there are none."""
        if not self.store.shared:
            return None
        replica = Replica(self.store, self.info["name"], self.hub)
        self.lifespan.add_task(replica.run)
        return replica

    @functools.cached_property
    def promise_calls(self) -> "PromiseCalls | None":
        """What makes and serves promises; None if the server has no queue for them."""
        if self._promise_queue is None:
            return None
        from deltamcp.promises.calls import PromiseCalls
        from deltamcp.promises.store import PromiseStore

        store = PromiseStore(self.store, self.info["name"], self.limits, self.replica)
        calls = PromiseCalls(self._tool_calls, store, self._promise_queue, self.catalog, self.limits)
        if self.store.shared:  # else promises end with this process
            self.lifespan.add_drainer(calls.drain)
        return calls

    def add_observer(self, observer: CallObserver) -> None:
        """Notifies one more observer of the calls that start from now on; it comes after the author's."""
        self._tool_calls.add_observer(observer)

    def add_metrics(self, read: Callable[[], Mapping[Key, float]]) -> None:
        """Adds counters and gauges that the server itself keeps, which `read` returns, to the page of metrics."""
        self._metrics.append(read)

    def own_metrics(self) -> dict[Key, float]:
        """Returns the counters and gauges that the server itself keeps; the page of metrics names them."""
        return {key: value for read in self._metrics for key, value in read().items()}

    def report_savings(self, is_on: bool = True) -> None:
        """Has every result say in its `_meta`, or no longer, what it would have cost a model and does cost."""
        self._tool_calls.report_savings(is_on)

    def identify(
        self, principal: Principal, connection: str | None = None, address: str = "", opener: str = ""
    ) -> Caller:
        """Returns the caller of a request, by its principal and the connection, session or address it came by.

        What the caller stores counts towards its principal, if that is known; else towards its address, of a session
        the account that opened it, `opener`; over stdio and in memory towards the connection.
        """
        if len(address) > _ADDRESS_CHARS:  # behind a proxy it may be any text
            address = hashlib.sha256(address.encode(errors="surrogatepass")).hexdigest()
        conversation = connection if self._conversation == "process" else None
        if principal.key == ANONYMOUS.key or principal is LOCAL:
            account = opener or (f"address {address}" if connection is None else f"connection {connection}")
            # Other processes that use the same store are the local principal too.
            shares = principal is not LOCAL or not self.store.private
            return Caller(principal, connection, shares, account, conversation=conversation)
        account = f"principal {principal.key}"
        return Caller(principal, connection, False, account, conversation=conversation)

    def perform(
        self, ask: EngineAsk, terms: Terms, channel: Channel, request_id: RequestId
    ) -> Coroutine[Any, Any, Outcome]:
        """Returns a coroutine that performs an ask; transports themselves serve sessions and subscriptions."""
        if self.catalog.prepare is not None:
            performing = self._perform_prepared(self.catalog.prepare, ask, terms, channel, request_id)
        else:
            performing = self._perform(ask, terms, channel, request_id)
        return (
            self._perform_remembered(performing, terms.caller, request_id) if terms.caller.is_remembered else performing
        )

    async def _perform_remembered(
        self, performing: Coroutine[Any, Any, Outcome], caller: Caller, request_id: RequestId
    ) -> Outcome:
        """Performs an ask in a known conversation, whose next replies may refer to this one if the client gets it."""
        self._recent_replies.add(caller, request_id)
        try:
            return await performing
        except asyncio.CancelledError:
            await self._changes.forget(caller)
            raise

    async def withdraw_reply(self, caller: Caller, request_id: RequestId) -> None:
        """Handles that the client of a connection cancelled a request: it ignores a reply that was on its way.

        What the request's conversation was sent no longer counts as known to its model.
        """
        caller = self._recent_replies.pop(caller, request_id)
        if caller.is_remembered:
            await self._changes.forget(caller)

    async def _perform_prepared(
        self,
        prepare: Callable[[Principal], Awaitable[None]],
        ask: EngineAsk,
        terms: Terms,
        channel: Channel,
        request_id: RequestId,
    ) -> Outcome:
        await prepare(terms.caller.principal)
        return await self._perform(ask, terms, channel, request_id)

    def _perform(
        self, ask: EngineAsk, terms: Terms, channel: Channel, request_id: RequestId
    ) -> Coroutine[Any, Any, Outcome]:
        if isinstance(ask, CallTool):
            return self._call_tool(ask, terms, channel, request_id)
        request = RequestContext(terms, self.catalog.view(terms.caller.principal), channel, request_id)
        match ask:
            case ListItems():
                return self._lists.list_items(ask, request)
            case Describe():
                return self._lists.describe(ask, request)
            case ListManifest():
                return self._lists.list_manifest(ask, request)
            case ReadResource():
                return self._resources.read(ask, request)
            case GetPrompt():
                return self._prompts.get(ask, request)
            case Complete():
                return self._prompts.complete(ask, request)
            case Discover():
                return _answer(Answer(self.capabilities.about(terms.caller.principal)))
            case Ping():
                return _answer(Answer(Done()))
            case RedeemPromise() | GetPromise() | AnswerPromise() | CancelPromise():
                if self.promise_calls is None or not self.capabilities.gives_promises(terms.caller.principal):
                    return _answer(tasks.refuse_ask(terms))
                return self.promise_calls.perform(ask, request)
            case _:
                assert_never(ask)

    async def accept_filter(self, requested: Filter, caller: Caller) -> Filter:
        """Returns the part of a client's filter that it gets: what the server has, and its own promises."""
        tokens: frozenset[str] = frozenset()
        if requested.tokens and self.promise_calls is not None:
            with contextlib.suppress(StoreError):  # it is not told of any, and may ask for them
                tokens = await self.promise_calls.own_tokens(requested.tokens, caller)
        if self.catalog.prepare is not None:
            await self.catalog.prepare(caller.principal)
        kinds = self.capabilities.offered_kinds(requested.kinds, caller.principal)
        return Filter(kinds, requested.uris, tokens)

    def _call_tool(
        self, ask: CallTool, terms: Terms, channel: Channel, request_id: RequestId
    ) -> Coroutine[Any, Any, Outcome]:
        request = RequestContext(terms, self.catalog.view(terms.caller.principal), channel, request_id)
        if request.view.withholds:
            refused = refuse_withheld((ask.name,), request)
            if refused is not None:
                self._tool_calls.observe_unknown(ask.name, request, refused)
                return _answer(refused)
        operation = request.view.operations.get(ask.name)
        if operation is not None:
            if operation.promise_policy != "never":
                return self._call_promised(operation, ask, request)
            principal = request.terms.caller.principal
            if ask.promise is not None and ask.promise.at_once and self.capabilities.gives_promises(principal):
                return _answer(tasks.refuse_task(ask.name))
            return self._tool_calls.call(operation, ask, request, None)
        meta = request.view.meta_tools.get(ask.name)
        if meta is not None:
            return self._meta_calls.call(meta, ask, request)
        return self._call_unknown(ask, request)

    async def _call_unknown(self, ask: CallTool, request: RequestContext) -> Outcome:
        """Refuses a call of a tool that is not known, unless its server is starting and then lists it."""
        if await self._await_start(ask.name, request) and ask.name in request.view.operations:
            return await self._call_tool(ask, request.terms, request.channel, request.request_id)
        unknown = await self._lists.unknown("tool", ask.name, request)
        self._tool_calls.observe_unknown(ask.name, request, unknown)
        return unknown

    async def _await_start(self, name: str, request: RequestContext) -> bool:
        """Waits for the server that an unknown operation would be of, if that is starting; then renews the view."""
        principal = request.terms.caller.principal
        if not await self.catalog.wait_for_start(name, principal):
            return False
        if self.catalog.prepare is not None:
            await self.catalog.prepare(principal)
        request.view = self.catalog.view(principal)
        return True

    async def _call_promised(self, operation: Operation, ask: CallTool, request: RequestContext) -> Outcome:
        if self.promise_calls is not None:
            outcome = await self.promise_calls.call(operation, ask, request, None)
            if outcome is not None:
                return outcome
        return await self._tool_calls.call(operation, ask, request, None)


async def _answer(outcome: Outcome) -> Outcome:
    return outcome
