"""Calls of operations: prepare, then run and deliver, or map an error to an outcome."""

import asyncio
import operator
import time
from collections.abc import Awaitable, Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from deltamcp.calls.failures import crash_result, is_cancelled, missing_capability, missing_scopes, remote_failure
from deltamcp.calls.function_runner import FunctionRunner
from deltamcp.calls.middleware import Origin
from deltamcp.calls.observers import CallObserver, Observation, ObservedCall
from deltamcp.calls.rate_limits import Rates, original_rate_limit_result, rate_limit_result
from deltamcp.calls.request_context import CONSENT_PREFIX, Answers, RequestContext, RequestState
from deltamcp.calls.user_questions import Consent, Consents, ModelQuestions, can_model_ask, may_ask_through_model
from deltamcp.catalog.arguments import InvalidArgumentsError, problem_details, undeclared_note
from deltamcp.catalog.items.operation import Operation
from deltamcp.catalog.text import tool_text
from deltamcp.catalog.text.clean_text import cut, value_excerpt
from deltamcp.context import InputPending, MissingCapabilityError
from deltamcp.delivery.change_delivery import ChangeDelivery
from deltamcp.delivery.continuation import Continuation
from deltamcp.delivery.delivery import (
    Delivery,
    DeliveryRequest,
    HeldResults,
    ResultOverride,
    policy_for_call,
    reserve_note,
    take_query,
    take_since_argument,
)
from deltamcp.errors import (
    InputDeclinedError,
    MissingScopesError,
    NeedsResource,
    RemoteError,
    ResourceNotFoundError,
    ToolError,
    ToolErrorCode,
    ToolFailure,
    UsageError,
)
from deltamcp.results import content, delta_mcp_shapes, reference
from deltamcp.results.blocks import add_last_notes, count_result
from deltamcp.results.content import server_error
from deltamcp.results.pages import read_pages, read_service_result
from deltamcp.runtime.deadline import Deadline, run_with_hook
from deltamcp.stores.store import StoreError
from deltamcp.values import (
    JSON,
    SESSION_CONTEXT_KEY,
    Answer,
    CallTool,
    Era,
    ErrorInfo,
    Failure,
    InputRequired,
    Outcome,
    RawResult,
    ResultShape,
    ServiceResult,
    Text,
    ToolResult,
)
from deltamcp.wire import jsonrpc

SAVINGS_KEY = "io.github.delta-mcp/savings"
"""The key of `_meta`: in a request it asks for the figures of its result, in a result it has them."""


async def add_savings(value: Any, result: ToolResult | RawResult) -> ToolResult | RawResult:
    """Returns a result with the tokens of what the function returned, and of the result itself.

    A thread counts them, so that other requests do not wait.
    """
    figures = await asyncio.to_thread(_count, value, result)
    if isinstance(result, ToolResult):
        return replace(result, meta={**(result.meta or {}), SAVINGS_KEY: figures})
    meta = result.fields.get("_meta")
    fields = {**result.fields, "_meta": {**(meta if isinstance(meta, dict) else {}), SAVINGS_KEY: figures}}
    return RawResult(jsonrpc.encode(fields), fields)


def _count(value: Any, result: ToolResult | RawResult) -> dict[str, JSON]:
    after = count_result(result)
    if value is result:
        return {"before": after, "after": after}
    try:
        whole = value if isinstance(value, RawResult) else content.tool_result(value, None)
        return {"before": count_result(whole), "after": after}
    except ValueError:  # a value that cannot be sent
        return {"before": after, "after": after}


_is_active = operator.attrgetter("is_active")

OWN_OPERATION = "(own)"
"""Stands in place of an operation that only some are offered, after its category, in figures that others may see."""
_NAME_CHARS = 256
"""The characters of an unknown name that observers get, which is the longest name of a tool."""


class PreparedCall(Struct):
    """A call whose arguments are checked and bound."""

    delivery_request: DeliveryRequest
    name: str
    """The name that the caller used."""
    arguments: dict[str, Any]
    """The arguments of the function."""
    answers: Answers
    sent_arguments: dict[str, JSON]
    """The caller's arguments, with the values of references in their place."""
    key: list[JSON]
    """Identifies the request, to bind its sealed state to it."""
    request: RequestContext
    delivery: Delivery
    seconds: float
    """How long the function may take."""
    note: str = ""
    """What the model is to know of its arguments and pages, below the reply."""
    meta: dict[str, JSON] = {}
    """What a gateway is to know of its pages."""


class ToolCalls:
    """Calls operations, both those that clients call by name and those that meta-tools run."""

    def __init__(
        self,
        runner: FunctionRunner,
        state: RequestState,
        consents: Consents,
        model_questions: ModelQuestions,
        continuation: Continuation,
        changes: ChangeDelivery,
        deliveries: Mapping[ResultShape, Delivery],
        observers: Sequence[CallObserver],
        rates: Rates | None,
        held: HeldResults,
    ) -> None:
        self._runner = runner
        self._state = state
        self._consents = consents
        self._model_questions = model_questions
        self._continuation = continuation
        self._changes = changes
        self._deliveries = deliveries
        self._held = held
        self._observers = tuple(observers)
        self._rates = rates if rates is not None and rates.limits_tools else None
        self._reports_savings = False

    def add_observer(self, observer: CallObserver) -> None:
        """Notifies one more observer, the last."""
        self._observers = (*self._observers, observer)

    def report_savings(self, is_on: bool) -> None:
        """Has every result say, or no longer, what it would have cost and costs, also to clients that do not ask."""
        self._reports_savings = is_on

    async def call(
        self, operation: Operation, ask: CallTool, request: RequestContext, override: ResultOverride | None
    ) -> Outcome:
        """Calls an operation; `override` is what a meta-tool that runs it says of its result."""
        active = _active(self._observers)
        observations = _observe(operation, ask, request, active) if active or operation.origin is not None else ()
        outcome: Outcome | None = None
        try:
            if (
                not operation.is_direct
                and request.promise is None
                and may_ask_through_model(request.terms, override is not None)
            ):
                request.terms = replace(request.terms, asks_through_model=True)
                taken = await self._take_answers(operation, ask, request)
                if not isinstance(taken, CallTool):
                    outcome = taken
                    return outcome
                ask = taken
            call = await self._prepare(operation, ask, request, override)
            if not isinstance(call, PreparedCall):
                outcome = call
                return outcome
            deadline: Deadline | None = None
            try:
                delivered, account = call.delivery_request, request.terms.caller.account
                is_computed = delivered.policy is not None or request.terms.result_shape is ResultShape.DELTA_MCP
                if is_computed and self._held.must_wait(account):
                    await self._held.take_turn(account, returned=False)
                deadline = Deadline(call.seconds)
                if operation.is_direct and not self._runner.has_middleware and operation.origin is None:
                    value = await run_with_hook(operation.function(**call.arguments), deadline)
                else:
                    value = await self._run(call, deadline)
                call.delivery_request.pages = 1 if override is None else override.pages
                service_result = read_service_result(value)
                if service_result is not None and not (isinstance(value, RawResult) and delivered.policy is None):
                    value = await self._read_pages(service_result, call, deadline, override is not None)
                for observation in observations:
                    observation.call.value = value
                if is_computed and self._held.must_wait(account):
                    await self._held.take_turn(account, returned=True)
                result = await call.delivery.deliver(value, delivered)
                if call.meta and isinstance(result, ToolResult):
                    result = replace(result, meta={**(result.meta or {}), **call.meta})
                # Other shapes are for programs. That a result is empty is said behind meta-tools, and of other servers'
                # wherever a policy shapes them.
                is_shaped = delivered.policy is not None and isinstance(value, RawResult)
                tells_empty = is_shaped or not delivered.is_flat
                if (call.note or tells_empty) and request.terms.result_shape is ResultShape.MCP:
                    result = add_last_notes(result, call.note, tells_empty)
                if self._reports_savings or SAVINGS_KEY in request.terms.meta:
                    result = await add_savings(value, result)
                sealed = None if request.session is None else request.session.sealed
                if sealed is not None and isinstance(result, ToolResult):
                    result = replace(result, meta={**(result.meta or {}), SESSION_CONTEXT_KEY: sealed})
                outcome = Answer(result)
            except BaseException as error:
                outcome = self._map_error(error, call, deadline)
                if isinstance(outcome, InputRequired) and request.terms.asks_through_model:
                    outcome = await self._ask_through_model(outcome, operation, ask, request, override is not None)
            return outcome
        finally:
            for observation in reversed(observations):
                observation.finish(outcome)

    async def _take_answers(self, operation: Operation, ask: CallTool, request: RequestContext) -> CallTool | Outcome:
        """Returns the call with the answers among its arguments; or its outcome, if they cannot be used."""
        try:
            return await self._model_questions.take_answers(ask, operation, request.terms.caller)
        except UsageError as error:
            return Answer(server_error(str(error), ToolErrorCode.INVALID_PARAMS))
        except StoreError as error:
            return Answer(crash_result(f"The tool {ask.name}", error))

    async def _ask_through_model(
        self, required: InputRequired, operation: Operation, ask: CallTool, request: RequestContext, is_meta: bool
    ) -> Outcome:
        """Returns the outcome of a call that asks what its client cannot: a result for the model."""
        if not can_model_ask(required):
            return required
        try:
            return Answer(
                await self._model_questions.ask_model(required, ask, operation, request.terms.caller, is_meta)
            )
        except StoreError as error:
            return Answer(crash_result(f"The tool {ask.name}", error))

    async def check(
        self, operation: Operation, ask: CallTool, request: RequestContext, override: ResultOverride | None
    ) -> PreparedCall | Outcome:
        """Checks and counts a call that runs later; returns its outcome if it cannot or need not run.

        Observers are notified of a call that does not run; of others when they run.
        """
        call = await self._prepare(operation, ask, request, override)
        if not isinstance(call, PreparedCall):
            self.observe_refused(operation, ask, request, call)
        return call

    async def use_consents(self, call: PreparedCall) -> Outcome | None:
        """Uses the consents that came with a call which runs later; returns its outcome if one cannot be used.

        Every run of the call may then rely on them, and no other call.
        """
        caller, name = call.delivery_request.terms.caller, call.delivery_request.operation.id
        for key in call.answers.by_key:
            if key.startswith(CONSENT_PREFIX):
                try:
                    await self._consents.use(name, call.answers, key, caller)
                except ToolError as error:
                    return Answer(content.error_result(str(error)))
        return None

    def ask(self, pending: InputPending, call: PreparedCall) -> Outcome:
        """Returns the outcome that makes the client send a call again, with answers to questions."""
        return self._state.ask(pending, call.delivery_request.terms.caller, call.key, call.answers)

    def observe_refused(self, operation: Operation, ask: CallTool, request: RequestContext, outcome: Outcome) -> None:
        """Notifies observers of a call of an operation that does not run."""
        for observation in reversed(_observe(operation, ask, request, _active(self._observers))):
            observation.finish(outcome)

    def observe_unknown(self, name: JSON, request: RequestContext, outcome: Outcome | None = None) -> None:
        """Notifies observers of a call of an operation that does not exist, or that the caller may not see."""
        observers = _active(self._observers)
        if observers:
            shown = cut(name, _NAME_CHARS) if isinstance(name, str) else value_excerpt(name)
            Observation(ObservedCall(shown, False, {}, request), observers).finish(outcome)

    # Prepare

    async def _prepare(
        self, operation: Operation, ask: CallTool, request: RequestContext, override: ResultOverride | None
    ) -> PreparedCall | Outcome:
        """Returns the call, ready to run; or its outcome, if the function cannot or need not run."""
        terms, promise = request.terms, request.promise
        if self._rates is not None and promise is None:
            refusal = await self._rates.check_tool(operation, ask.name, terms.caller)
            if refusal is not None:
                return Answer(refusal)
        delivery = self._deliveries[terms.result_shape]
        started = time.monotonic()
        try:
            sent_arguments = ask.arguments
            if promise is None and reference.has_reference(sent_arguments):
                sent_arguments = await self._continuation.resolve_references(
                    sent_arguments, terms.caller, strict=request.view.may_cut_results
                )
                sent_arguments = reference.join_lines(sent_arguments, ask.arguments, operation.tool["inputSchema"])
            whole_arguments = sent_arguments
            policy = policy_for_call(operation, request.view, terms, override)
            if policy is not None:
                if override is None:
                    sent_arguments, policy = take_query(operation, policy, sent_arguments)
                sent_arguments, policy = take_since_argument(operation, policy, sent_arguments)
                if policy.since is not None:
                    await self._changes.accept_since(policy.since, terms.caller)
            sent_arguments, page = delivery.read_page(operation, sent_arguments, policy)
            undeclared = operation.undeclared_arguments(sent_arguments)
            arguments = operation.bind(sent_arguments)
        except UsageError as error:
            return Answer(server_error(str(error), ToolErrorCode.INVALID_PARAMS))
        except MissingScopesError as error:
            return missing_scopes(error, terms.caller)
        except StoreError as error:
            return Answer(crash_result(f"The tool {ask.name}", error))
        except InvalidArgumentsError as error:
            return _refuse_arguments(error, operation, ask.name)
        note = undeclared_note(ask.name, undeclared) if undeclared else ""
        if note and policy is not None:
            policy = reserve_note(policy, note)
        key = ["tools/call", operation.name, ask.arguments if promise is None else promise.sent_arguments]
        is_lite = terms.result_shape is ResultShape.MCP_LITE
        answers = (
            promise.answers
            if promise is not None
            else self._state.read_answers(ask.inputs, terms.caller, key, asks_again=is_lite or terms.asks_through_model)
        )
        if isinstance(answers, Failure):
            return answers
        request.memo = answers.memo
        if is_lite and answers.refusal is not None:
            return Answer(_refuse_questions(ask.name, answers.refusal))
        delivery_request = DeliveryRequest(operation, terms, sent_arguments, policy, page, override is None, started)
        if page is not None:
            found = await delivery.find_page(delivery_request)
            if found is not None:
                return Answer(found)
        seconds = self._runner.seconds if promise is None else promise.seconds
        seconds = operation.timeout or seconds
        return PreparedCall(
            delivery_request, ask.name, arguments, answers, whole_arguments, key, request, delivery, seconds, note
        )

    # Run

    def _run(self, call: PreparedCall, deadline: Deadline) -> Awaitable[Any]:
        """Runs a function that needs more than its arguments."""
        operation = call.delivery_request.operation
        return self._runner.run_call(
            operation,
            call.delivery_request.arguments,
            call.arguments,
            call.request,
            call.answers.by_key,
            deadline,
            Consent(self._consents, call.answers) if operation.consent_policy == "confirm" else None,
        )

    async def _read_pages(self, first: ServiceResult, call: PreparedCall, deadline: Deadline, may_follow: bool) -> Any:
        """Returns the value of as many pages as the caller asked for, and adds to the call what is to be said of them.

        Each page is called as the first was: within the same deadline, through middleware and rate limits.
        """
        delivered = call.delivery_request
        operation = delivered.operation

        async def call_again(arguments: dict[str, JSON]) -> Any:
            if self._rates is not None:
                refusal = await self._rates.check_tool(operation, call.name, delivered.terms.caller)
                if refusal is not None:
                    raise ToolError("it was asked for too often; go on later.")
            try:
                bound = operation.bind(arguments)
            except InvalidArgumentsError as error:
                raise ToolError(str(error)) from None
            following = replace(call, arguments=bound, delivery_request=replace(delivered, arguments=arguments))
            if operation.is_direct and not self._runner.has_middleware and operation.origin is None:
                return await run_with_hook(operation.function(**bound), deadline)
            return await self._run(following, deadline)

        follows = may_follow and operation.is_read_only and operation.consent_policy == "allow"
        read = await read_pages(first, delivered.arguments, delivered.pages, follows, call_again)
        call.meta = read.meta
        if read.notes:
            note = "\n".join(read.notes)
            call.note = f"{call.note}\n{note}" if call.note else note
            if delivered.policy is not None:
                delivered.policy = reserve_note(delivered.policy, note)
        return read.value

    # Map errors

    def _map_error(self, error: BaseException, call: PreparedCall, deadline: Deadline | None) -> Outcome:
        """Returns the outcome of a call that raised an error or was stopped; re-raises if the request was cancelled."""
        match error:
            case MissingCapabilityError() if call.delivery_request.terms.era is Era.MODERN:
                return missing_capability(error)
            case InputPending():
                return self._state.ask(error, call.delivery_request.terms.caller, call.key, call.answers)
            case asyncio.CancelledError():
                if deadline is not None and deadline.expired and deadline.undo_cancel():
                    sentence = f"{call.name} was stopped: it took too long."
                    return Answer(server_error(sentence, ToolErrorCode.TIMEOUT, retryable=True))
                if is_cancelled():
                    raise error
                return Answer(crash_result(f"The tool {call.name}", error))
            case RemoteError() if call.delivery_request.is_flat:
                return remote_failure(error)
            case NeedsResource():
                return self._state.ask_for_resource(error, call.delivery_request.terms.caller, call.key, call.answers)
            case InvalidArgumentsError():  # of a middleware
                return _refuse_arguments(error, call.delivery_request.operation, call.name)
            case _:
                return Answer(self._error_result(error, call))

    def _error_result(self, error: BaseException, call: PreparedCall) -> ToolResult:
        """Returns the error result that the model reads."""
        # An author who names the failure says what it means, even where its cause is another service's status.
        limited = None if type(error) is ToolFailure else _upstream_limit(error, call.delivery_request)
        if limited is not None:
            return limited
        match error:
            case ToolFailure():
                return _failure_result(error, call.name)
            case InputDeclinedError():
                return server_error(str(error), ToolErrorCode.DECLINED)
            case RemoteError():  # the client called a meta-tool, which works
                return server_error(str(error), ToolErrorCode.UPSTREAM_ERROR)
            case ToolError() | ResourceNotFoundError():
                return content.error_result(str(error))
            case _:
                return crash_result(f"The tool {call.name}", error)


def _observe(
    operation: Operation, ask: CallTool, request: RequestContext, observers: Sequence[CallObserver]
) -> list[Observation]:
    call = ObservedCall(operation.id, True, ask.arguments, request)
    if operation.is_own:
        call.label = f"{operation.id.partition('.')[0]}.{OWN_OPERATION}"
    observations = [Observation(call, observers)]
    origin = operation.origin
    while isinstance(origin, Origin):  # to a mounted server's observers the operation has the id that it has there
        assert isinstance(origin.item, Operation), "an operation comes from one"
        mounted_call = ObservedCall(origin.item.id, True, ask.arguments, request)
        observations.append(Observation(mounted_call, _active(origin.hooks.observers)))
        origin = origin.item.origin
    return observations


def _active(observers: Sequence[CallObserver]) -> list[CallObserver]:
    return list(filter(_is_active, observers))


def _failure_result(failure: ToolFailure, name: str) -> ToolResult:
    try:
        jsonrpc.encode_finite((failure.code, failure.details))
    except ValueError as problem:
        return crash_result(f"The tool {name}", problem)
    return content.error_result(str(failure), ErrorInfo(failure.code, failure.retryable, failure.details))


def _refuse_arguments(error: InvalidArgumentsError, operation: Operation, name: str) -> Outcome:
    signature = tool_text.signature_line(operation.tool, name)
    return Answer(
        server_error(
            f"Invalid arguments for {name}. {error} Call {signature}.",
            ToolErrorCode.INVALID_PARAMS,
            details={"errors": problem_details(error.problems)},
        )
    )


def _refuse_questions(name: str, action: str) -> ToolResult:
    """Returns the failure of a call whose questions the user declined: MCP-lite's functions are not asked to go on."""
    if action == "cancel":
        return server_error(f"{name} did not run: the user cancelled its questions.", ToolErrorCode.CANCELLED)
    return server_error(f"{name} did not run: the user declined its questions.", ToolErrorCode.DECLINED)


def _upstream_limit(error: BaseException, call: DeliveryRequest) -> ToolResult | None:
    """Returns an upstream's "too many requests" as a result that the model can act on; None for any other error.

    If the operation has an output schema, clients accept such a result only as an error.
    """
    operation = call.operation
    if call.policy is not None and call.policy.compat and call.terms.result_shape is ResultShape.DELTA_MCP:
        original = original_rate_limit_result(error, operation.name)
        return None if original is None else ToolResult([Text(delta_mcp_shapes.stringify(original))])
    limit = rate_limit_result(error, operation.name, time.time())
    if limit is None:
        return None
    text = jsonrpc.encode(limit).decode()
    if call.terms.result_shape is ResultShape.MCP_LITE:
        details = {"retry_after_ms": limit["retryAfterSeconds"] * 1000}
        return content.error_result(text, ErrorInfo(ToolErrorCode.RATE_LIMITED.value, True, details))
    return ToolResult([Text(text)], is_error=call.is_flat and operation.output_schema is not None)
