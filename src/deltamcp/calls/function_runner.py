"""The runner of authors' functions: async ones on the loop, plain ones in a thread, each with a deadline."""

import asyncio
import functools
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any

from deltamcp.calls.dependencies import DependencyValues
from deltamcp.calls.failures import is_cancelled, log_failure, missing_capability, remote_failure
from deltamcp.calls.middleware import Middleware, MiddlewareStep, run_steps
from deltamcp.calls.parts import PartQuotas, collecting
from deltamcp.calls.request_context import RequestContext
from deltamcp.calls.request_state import RequestState
from deltamcp.calls.server_hooks import Item, ServerHooks, mount_chain
from deltamcp.catalog.argument_problem import InvalidArgumentsError
from deltamcp.catalog.completer import Completer
from deltamcp.catalog.operation import Operation
from deltamcp.catalog.prompt import Prompt
from deltamcp.catalog.resource import Resource
from deltamcp.context import Context, InputPending, MissingCapabilityError
from deltamcp.errors import Fault, InputDeclinedError, RemoteError, ToolError
from deltamcp.limits import Limits
from deltamcp.runtime.deadline import Deadline, run_with_hook
from deltamcp.runtime.quota import Quota
from deltamcp.runtime.seal import Seal, SessionContext
from deltamcp.runtime.threads import Threads
from deltamcp.values import JSON, SESSION_CONTEXT_KEY, Failure, Inputs, Kind, Outcome


class FunctionRunner:
    """Runs functions: passes them what they declare besides arguments, and runs middleware around them."""

    def __init__(self, hooks: ServerHooks, state: RequestState, session_seal: Seal, limits: Limits) -> None:
        """`session_seal` seals what clients carry from request to request."""
        self._hooks = hooks
        self._session_seal = session_seal
        self._threads = Threads(limits.threads)
        self._closing_threads = Threads(limits.threads)
        self._parts = PartQuotas(Quota(limits.response_bytes, limits.account_share), limits.send_seconds)
        self._dependent_calls = asyncio.Semaphore(limits.calls)
        """Bounds the calls with dependencies, among them cancelled ones whose dependencies are not closed yet."""
        self._state = state
        self.seconds = limits.handler_seconds
        """The time of a function whose author set no timeout."""
        self.has_middleware = bool(hooks.middleware)

    def run_call(
        self,
        item: Operation | Resource | Prompt,
        sent_arguments: Mapping[str, JSON],
        arguments: dict[str, Any],
        request: RequestContext,
        answers: Mapping[str, JSON],
        deadline: Deadline,
        consent: Middleware | None = None,
    ) -> Awaitable[Any]:
        """Runs a function with the middleware around it and returns the value. Exceptions pass through.

        Args:
            sent_arguments: The caller's arguments, for the middleware.
            arguments: The same, bound to the function's parameters.
            consent: Asks for the user's consent, inside the middleware, so that the user sees what will run.
        """
        if consent is None and not self.has_middleware and item.origin is None:
            return self.run_function(item, arguments, request, answers, deadline)
        context = self._context(request, answers, deadline)
        steps: list[MiddlewareStep] = []
        for origin in mount_chain(item, self._hooks):
            context = context.with_lifespan(origin.hooks.lifespan.state)
            steps += [MiddlewareStep(one, _call_name(origin.item), context) for one in origin.hooks.middleware]
        if consent is not None:
            steps.append(MiddlewareStep(consent, _call_name(item), context))
        if not steps:
            return run_with_hook(self._call(item, arguments, request, context), deadline)

        async def run_function(arguments: dict[str, JSON]) -> Any:
            return await self._call(item, item.bind(arguments), request, context)

        return run_with_hook(run_steps(steps, _kind(item), _copy_json(dict(sent_arguments)), run_function), deadline)

    def run_function(
        self,
        item: Item,
        arguments: dict[str, Any],
        request: RequestContext,
        answers: Mapping[str, JSON],
        deadline: Deadline,
    ) -> Awaitable[Any]:
        """Runs a function without middleware and returns its value. Exceptions of the function pass through."""
        context: Context | None = None
        shape = item.function_shape
        if shape.context_name is not None or shape.dependencies or shape.is_generator:
            context = self._context(request, answers, deadline)
            if item.origin is not None:
                *_, origin = mount_chain(item, self._hooks)
                context = context.with_lifespan(origin.hooks.lifespan.state)
        return run_with_hook(self._call(item, arguments, request, context), deadline)

    def _context(self, request: RequestContext, answers: Mapping[str, JSON], deadline: Deadline) -> Context:
        state = self._hooks.lifespan.state
        promise, terms = request.promise, request.terms
        request.session = SessionContext(self._session_seal, terms.caller, terms.meta.get(SESSION_CONTEXT_KEY))
        return Context(
            terms,
            request.channel,
            request.request_id,
            answers,
            state,
            deadline,
            request.session,
            promise_id=None if promise is None else promise.id,
            attempt=1 if promise is None else promise.attempt,
            memo=request.memo,
        )

    async def _call(
        self, item: Item, arguments: dict[str, Any], request: RequestContext, context: Context | None
    ) -> Any:
        shape = item.function_shape
        if context is not None and shape.dependencies:
            call = functools.partial(self._call_with_dependencies, item, arguments, request, context)
            try:
                return await self._hooks.lifespan.run_in_task(call)
            except asyncio.CancelledError:
                context.mark_cancelled()
                raise
        if shape.context_name is not None:
            arguments = {**arguments, shape.context_name: context}
        return await self._start(item, arguments, request, context)

    async def _call_with_dependencies(
        self, item: Item, arguments: dict[str, Any], request: RequestContext, context: Context
    ) -> Any:
        """Ends only after the function, also a cancelled one in a thread, as it uses the values until then."""
        fairness_key = request.channel.fairness_key
        async with (
            self._dependent_calls,
            DependencyValues(self._threads, self._closing_threads, fairness_key, context) as values,
        ):
            function = self._function(item, request, context)
            call = functools.partial(function, **{**arguments, **await values.arguments(item.function_shape)})
            return await (call() if item.function_shape.is_async else self._threads.run_to_end(fairness_key, call))

    def _start(
        self, item: Item, arguments: dict[str, Any], request: RequestContext, context: Context | None
    ) -> Awaitable[Any]:
        function = self._function(item, request, context)
        if item.function_shape.is_async:
            started: Awaitable[Any] = function(**arguments)
            return started
        return self._call_in_thread(function, arguments, request, context)

    def _function(self, item: Item, request: RequestContext, context: Context | None) -> Callable[..., Any]:
        """Returns the function of an item that returns its value; that of a generator collects the parts."""
        function: Callable[..., Any] = item.function
        if not item.function_shape.is_generator:
            return function
        assert context is not None, "a generator gets a context"
        return collecting(function, item.function_shape.is_async, request.channel, context, self._parts)

    async def _call_in_thread(
        self, function: Callable[..., Any], arguments: dict[str, Any], request: RequestContext, context: Context | None
    ) -> Any:
        try:
            return await self._threads.run(request.channel.fairness_key, function, arguments)
        except asyncio.CancelledError:
            if context is not None:
                context.mark_cancelled()
            raise

    async def perform(
        self,
        subject: str,
        key: list[JSON],
        inputs: Inputs,
        request: RequestContext,
        body: Callable[[Mapping[str, JSON], Deadline], Coroutine[Any, Any, Outcome]],
    ) -> Outcome:
        """Performs a request that is no tool call. Its errors are protocol errors: only tools have error results.

        Args:
            subject: Begins the texts of errors, such as "The prompt greet".
            key: Identifies the request, to bind its sealed state to it.
            inputs: The client's answers to questions of earlier rounds.
            body: Runs the function and returns the outcome.
        """
        answers = self._state.read_answers(inputs, request.terms.caller, key)
        if isinstance(answers, Failure):
            return answers
        request.memo = answers.memo
        deadline = Deadline(self.seconds)
        try:
            return await body(answers.by_key, deadline)
        except MissingCapabilityError as error:
            return missing_capability(error)
        except RemoteError as error:
            return remote_failure(error)
        except (ToolError, InputDeclinedError) as error:
            return Failure(Fault.INTERNAL, str(error))
        except InvalidArgumentsError as error:  # of a middleware
            return Failure(Fault.INVALID_PARAMS, f"{subject} cannot take these arguments. {error}")
        except InputPending as pending:
            return self._state.ask(pending, request.terms.caller, key, answers)
        except asyncio.CancelledError as error:
            if deadline.expired and deadline.undo_cancel():
                return Failure(Fault.TIMEOUT, f"{subject} took too long.")
            if not is_cancelled():
                return Failure(Fault.INTERNAL, log_failure(subject, error))
            raise
        except BaseException as error:
            return Failure(Fault.INTERNAL, log_failure(subject, error))


def _copy_json(value: JSON) -> JSON:
    """Copies JSON, which has no cycles; `copy.deepcopy`, which looks for them, takes more than twice as long."""
    if type(value) is dict:
        return {name: _copy_json(member) for name, member in value.items()}
    if type(value) is list:
        return [_copy_json(item) for item in value]
    return value


def _call_name(item: Item) -> str:
    """Returns the name of an item that middleware gets."""
    match item:
        case Operation():
            return item.id
        case Prompt():
            return item.name
        case Resource():
            return item.uri
        case Completer():
            raise AssertionError("completions run without middleware")


def _kind(item: Operation | Resource | Prompt) -> Kind:
    match item:
        case Operation():
            return Kind.TOOLS
        case Prompt():
            return Kind.PROMPTS
        case Resource():
            return Kind.RESOURCES
