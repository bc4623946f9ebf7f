"""One call of an operation, from top to bottom: prepare, run, map errors, deliver."""

import asyncio
import time
from collections.abc import Awaitable, Coroutine, Mapping, Sequence
from typing import Any

from msgspec import Struct

from deltamcp.calls.failures import is_cancelled, log_failure, missing_capability
from deltamcp.calls.function_runner import FunctionRunner
from deltamcp.calls.observers import CallObserver, Observation, ObservedCall
from deltamcp.calls.request_context import RequestContext
from deltamcp.calls.request_state import RequestState
from deltamcp.catalog import tool_text
from deltamcp.catalog.operation import Operation
from deltamcp.catalog.signature import InvalidArgumentsError
from deltamcp.context import InputPending, MissingCapabilityError
from deltamcp.delivery.call_policy import ResultOverride, policy_for_call, take_root
from deltamcp.delivery.change_delivery import ChangeDelivery
from deltamcp.delivery.continuation import Continuation
from deltamcp.delivery.delivery import DeliveredCall, Delivery
from deltamcp.errors import InputDeclinedError, ResourceNotFoundError, ToolError, UnfitError
from deltamcp.results import content, reference
from deltamcp.results.upstream_rate_limit import rate_limit_result
from deltamcp.runtime.deadline import Deadline, run_with_hook
from deltamcp.stores.store import StoreError
from deltamcp.values import JSON, Answer, CallTool, Era, Failure, Outcome, ResultShape, Text, ToolResult
from deltamcp.wire import jsonrpc

_SIGNATURE_TOKENS = 120
"""What the signature beside an argument error may cost."""
_SHOWN_ARGUMENTS = 500
"""Characters of the arguments that a user is shown when asked for consent."""


class _PreparedCall(Struct):
    """A call whose arguments are checked and bound."""

    delivered: DeliveredCall
    name: str
    """What the caller called it by."""
    arguments: dict[str, Any]
    """For the function."""
    answers: Mapping[str, JSON]
    """What the client has answered to the function's questions."""
    key: list[JSON]
    """The request, as its sealed state knows it."""
    request: RequestContext
    delivery: Delivery
    deadline: Deadline


class ToolCalls:
    """Calls operations, by whatever name or meta-tool they were found."""

    def __init__(
        self,
        runner: FunctionRunner,
        state: RequestState,
        continuation: Continuation,
        changes: ChangeDelivery,
        deliveries: Mapping[ResultShape, Delivery],
        observers: Sequence[CallObserver],
    ) -> None:
        self._runner = runner
        self._state = state
        self._continuation = continuation
        self._changes = changes
        self._deliveries = deliveries
        self._observers = tuple(observers)

    def call(
        self, operation: Operation, ask: CallTool, request: RequestContext, override: ResultOverride | None
    ) -> Coroutine[Any, Any, Outcome]:
        """Calls an operation; `override` is what a meta-tool that runs it says of its result. Await what it returns."""
        for observer in self._observers:
            if observer.is_active:
                return self._call_observed(operation, ask, request, override)
        return self._call(operation, ask, request, override, None)

    async def _call_observed(
        self, operation: Operation, ask: CallTool, request: RequestContext, override: ResultOverride | None
    ) -> Outcome:
        call = ObservedCall(operation.id, True, ask.arguments, request.terms.caller)
        observation, outcome = Observation(call, self._active_observers()), None
        try:
            outcome = await self._call(operation, ask, request, override, observation)
        finally:
            observation.finish(outcome)
        return outcome

    def _active_observers(self) -> list[CallObserver]:
        return [observer for observer in self._observers if observer.is_active]

    def observe_unknown(self, name: JSON, request: RequestContext, outcome: Outcome | None = None) -> None:
        """Tells observers of a call of what is not there, or not for this caller."""
        observers = self._active_observers()
        if observers:
            Observation(ObservedCall(str(name), False, {}, request.terms.caller), observers).finish(outcome)

    async def _call(
        self,
        operation: Operation,
        ask: CallTool,
        request: RequestContext,
        override: ResultOverride | None,
        observation: Observation | None,
    ) -> Outcome:
        call = await self._prepare(operation, ask, request, override)
        if not isinstance(call, _PreparedCall):
            return call
        try:
            value = await self._run(call)
            if observation is not None:
                observation.call.value = value
            return Answer(await call.delivery.deliver(value, call.delivered))
        except BaseException as error:
            return self._map_error(error, call)

    # Prepare

    async def _prepare(
        self, operation: Operation, ask: CallTool, request: RequestContext, override: ResultOverride | None
    ) -> _PreparedCall | Outcome:
        """The call, ready to run; or its outcome, where it cannot or need not run."""
        terms = request.terms
        delivery = self._deliveries[terms.result_shape]
        started = time.monotonic()
        try:
            policy = policy_for_call(operation, request.view, terms, override)
            given = ask.arguments
            if reference.has_reference(given):
                given = await self._continuation.resolve_references(
                    given, terms.caller, strict=request.view.may_cut_results
                )
            if policy is not None:
                given, policy = take_root(operation, policy, given)
                await self._changes.accept_root(policy.pack_root, terms.caller)
            given, page = delivery.read_page(operation, given, policy)
            arguments = operation.bind(given)
        except UnfitError as error:
            return Answer(content.error_result(str(error)))
        except StoreError as error:
            return Answer(content.error_result(log_failure(f"The tool {ask.name}", error)))
        except InvalidArgumentsError as error:
            signature = tool_text.signature_and_summary(operation.tool, ask.name, "", _SIGNATURE_TOKENS)
            return Answer(content.error_result(f"Invalid arguments for {ask.name}. {error} Call {signature}."))
        key = ["tools/call", operation.name, ask.arguments]
        answers = self._state.read_answers(ask.inputs, terms.caller, key)
        if isinstance(answers, Failure):
            return answers
        delivered = DeliveredCall(operation, terms, given, policy, page, override is None, started)
        if page is not None:
            found = await delivery.find_page(delivered)
            if found is not None:
                return Answer(found)
        deadline = Deadline(operation.timeout or self._runner.seconds, request.channel)
        return _PreparedCall(delivered, ask.name, arguments, answers, key, request, delivery, deadline)

    # Run

    def _run(self, call: _PreparedCall) -> Awaitable[Any]:
        operation = call.delivered.operation
        if operation.call_policy == "confirm":
            return self._confirm_and_run(call)
        if operation.is_async and operation.context_name is None:
            return run_with_hook(operation.function(**call.arguments), call.deadline)
        return self._runner.run(operation, call.arguments, call.request, call.answers, call.deadline)

    async def _confirm_and_run(self, call: _PreparedCall) -> Any:
        await run_with_hook(self._confirm(call), call.deadline)
        return await self._runner.run(
            call.delivered.operation, call.arguments, call.request, call.answers, call.deadline
        )

    async def _confirm(self, call: _PreparedCall) -> None:
        """Asks the user for consent.

        Raises:
            ToolError, InputDeclinedError: the user cannot be asked, or said no.
        """
        operation = call.delivered.operation
        context = self._runner.context(call.request, call.answers, call.deadline)
        if context.terms.era is Era.HANDSHAKE and not context.can("elicitation"):
            raise ToolError(f"{operation.id} runs only with the user's consent, and this client cannot ask for it.")
        arguments = jsonrpc.encode(call.delivered.arguments).decode()
        shown = arguments if len(arguments) <= _SHOWN_ARGUMENTS else arguments[: _SHOWN_ARGUMENTS - 1] + "…"
        form: dict[str, JSON] = {"type": "object", "properties": {}}
        answer = await context.elicit(f"Run {operation.id} with {shown}?", form, key=f"confirm {operation.id}")
        if not answer.accepted:
            raise InputDeclinedError(f"The user declined to run {operation.id}.")

    # Map errors

    def _map_error(self, error: BaseException, call: _PreparedCall) -> Outcome:
        """The outcome of a call whose function raised, or was stopped. A cancelled request is raised on."""
        match error:
            case MissingCapabilityError() if call.delivered.terms.era is Era.MODERN:
                return missing_capability(error)
            case InputPending():
                return self._state.ask(error, call.delivered.terms.caller, call.key, call.answers)
            case asyncio.CancelledError():
                if call.deadline.expired and call.deadline.undo_cancel():
                    return Answer(content.error_result(f"{call.name} was stopped: it took too long."))
                if is_cancelled():
                    raise error
                return Answer(content.error_result(log_failure(f"The tool {call.name}", error)))
            case _:
                return Answer(self._error_result(error, call))

    def _error_result(self, error: BaseException, call: _PreparedCall) -> ToolResult:
        """What the model reads of an error that a function raised."""
        limited = _upstream_limit(error, call.delivered)
        if limited is not None:
            return limited
        if isinstance(error, ToolError | InputDeclinedError | ResourceNotFoundError):
            return content.error_result(str(error))
        return content.error_result(log_failure(f"The tool {call.name}", error))


def _upstream_limit(error: BaseException, call: DeliveredCall) -> ToolResult | None:
    """An upstream's "too many requests" as a result the model can act on; None for any other failure.

    Where an output schema promises something else, clients accept it only as an error.
    """
    operation = call.operation
    limit = rate_limit_result(error, operation.name, time.time())
    if limit is None:
        return None
    return ToolResult(
        [Text(jsonrpc.encode(limit).decode())], is_error=call.is_flat and operation.output_schema is not None
    )
