"""The runner of authors' functions, which makes what they depend on: async ones on the loop, plain ones in a thread.

A generator function yields the parts of its result one after the other. Each goes to the client as soon as it is there,
where the client takes parts; all of them together are the value of the call. The function goes on when the part is
sent, so that it does not run ahead of a slow reader.
"""

import asyncio
import contextlib
import functools
import inspect
import logging
import types
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Hashable, Mapping
from typing import Any, Protocol, TypeAlias

from deltamcp.calls.failures import is_cancelled, log_failure, missing_capability, remote_failure
from deltamcp.calls.middleware import (
    Item,
    Middleware,
    MiddlewareStep,
    Origin,
    ServerHooks,
    mount_chain,
    run_steps,
)
from deltamcp.calls.request_context import RequestContext, RequestState
from deltamcp.catalog.arguments import InvalidArgumentsError
from deltamcp.catalog.items.function import Dependency, FunctionShape, source_line
from deltamcp.catalog.items.operation import Operation
from deltamcp.catalog.items.prompt import Completer, Prompt
from deltamcp.catalog.items.resource import Resource
from deltamcp.context import Channel, Context, InputPending, MissingCapabilityError, OwnServer, RequestProgress
from deltamcp.errors import Fault, InputDeclinedError, RemoteError, ToolError
from deltamcp.limits import Limits
from deltamcp.runtime.deadline import Deadline, run_with_hook
from deltamcp.runtime.quota import Quota
from deltamcp.runtime.seal import Seal, SessionContext
from deltamcp.runtime.threads import Threads
from deltamcp.values import JSON, SESSION_CONTEXT_KEY, Failure, Inputs, Outcome
from deltamcp.wire import jsonrpc

logger: logging.Logger = logging.getLogger("deltamcp")


_PART_BYTES = 64
"""What a part takes beside its data."""
_TOO_MANY = "Too many parts of unfinished results are in memory for this client; read those first, and try again."


class PartQuotas:
    """The parts of results in memory, until all of a result are there."""

    def __init__(self, quota: Quota, seconds: float) -> None:
        """`seconds` is how long a part waits for other calls of its account to end."""
        self.quota = quota
        self.seconds = seconds


class _Parts:
    """The parts of one call so far, which count for its account."""

    def __init__(self, quotas: PartQuotas, account: str, channel: Channel) -> None:
        self.values: list[Any] = []
        self._quota = quotas.quota
        self._seconds = quotas.seconds
        self._account = account
        self._channel = channel
        self._bytes = 0

    async def add(self, part: Any) -> None:
        """Keeps a part, and sends it.

        Raises:
            ToolError: the account may not have so many bytes of parts.
        """
        size = _part_bytes(part)
        if self._bytes + size > self._quota.share:
            raise ToolError(f"The result has more than {self._quota.share} bytes; ask for less at once.")
        if not await self._quota.take_in_turn(self._account, size, self._seconds):
            raise ToolError(_TOO_MANY)
        self._bytes += size
        self.values.append(part)
        await self._channel.send_part(part)

    def release(self) -> None:
        """Ends the count of the parts."""
        if self._bytes:
            self._quota.give_back(self._account, self._bytes)
            self._bytes = 0


def collecting(
    function: Callable[..., Any], is_async: bool, channel: Channel, context: Context, quotas: PartQuotas
) -> Callable[..., Any]:
    """Returns a function that runs a generator function to its end, sends its parts, and returns the value.

    What it returns is async if the generator is; else it runs in a thread. Either ends after the next part if the call
    is cancelled.
    """
    loop = asyncio.get_running_loop()
    parts = _Parts(quotas, context.terms.caller.account, channel)

    async def collect(**arguments: Any) -> Any:
        try:
            async with contextlib.aclosing(function(**arguments)) as generator:
                async for part in generator:
                    await parts.add(part)
                    # Neither the generator nor a client that has left need have waited for anything.
                    await asyncio.sleep(0)
            return join_parts(parts.values)
        finally:
            parts.release()

    def collect_in_thread(**arguments: Any) -> Any:
        try:
            with contextlib.closing(function(**arguments)) as generator:
                for part in generator:
                    if context.cancelled:
                        break
                    context.wait(parts.add(part))
            return join_parts(parts.values)
        finally:
            with contextlib.suppress(RuntimeError):  # the loop has closed
                loop.call_soon_threadsafe(parts.release)

    return collect if is_async else collect_in_thread


def _part_bytes(part: Any) -> int:
    if isinstance(part, str):
        return _PART_BYTES + len(part)
    try:
        return _PART_BYTES + len(jsonrpc.encode(part))
    except (TypeError, ValueError, RecursionError):  # it cannot be sent, as the call will say in its end
        return _PART_BYTES


def join_parts(parts: list[Any]) -> Any:
    """Returns the value that parts make together: one text, if all are texts; else the list of them."""
    return "".join(parts) if all(isinstance(part, str) for part in parts) else parts


class OwnServerOfCall(OwnServer, Protocol):
    """What a function of a call may ask of its own server."""

    def in_mounted(self, origin: Origin) -> "OwnServerOfCall":
        """Returns the same for a function of a mounted server, whose items this server has from that one."""
        ...


AskOwnServer: TypeAlias = Callable[[RequestContext, Mapping[str, JSON], Deadline], OwnServerOfCall]
"""Returns what a function may ask of its server, within its request."""


class DependencyValues:
    """Makes the values for one call. Leaving it as a context manager closes what the author's functions opened.

    Whoever cancels the call waits until a thread that makes, uses or closes a value has ended.
    """

    def __init__(self, threads: Threads, closing_threads: Threads, fairness_key: Hashable, context: Context) -> None:
        """`closing_threads` close values: a function in `threads` may wait for one that is closed."""
        self._threads = threads
        self._closing_threads = closing_threads
        self._fairness_key = fairness_key
        self._context = context
        self._open: list[tuple[Dependency, contextlib.AbstractAsyncContextManager[Any]]] = []
        self._values: dict[Hashable, Any] = {}
        """Values by the keys of their dependencies."""

    async def __aenter__(self) -> "DependencyValues":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: types.TracebackType | None
    ) -> None:
        failure = error
        while self._open:
            dependency, manager = self._open.pop()
            try:
                # Whether it swallows the exception does not matter: the call would have no value.
                if failure is None:
                    await manager.__aexit__(None, None, None)
                else:
                    await manager.__aexit__(type(failure), failure, failure.__traceback__)
            except BaseException as raised:
                if failure is None:
                    failure = raised
                elif raised is not failure:
                    place = source_line(dependency.provider)
                    logger.error("the dependency %s failed after a call that failed", place, exc_info=raised)
        if failure is not None and failure is not error:
            raise failure

    async def arguments(self, shape: FunctionShape) -> dict[str, Any]:
        """Returns the keyword arguments of a function that do not come from the caller."""
        values = {name: await self._value(dependency) for name, dependency in shape.dependencies.items()}
        return values if shape.context_name is None else {**values, shape.context_name: self._context}

    async def _value(self, dependency: Dependency) -> Any:
        if dependency.key not in self._values:
            self._values[dependency.key] = await self._make(dependency, await self.arguments(dependency.shape))
        return self._values[dependency.key]

    async def _make(self, dependency: Dependency, arguments: Mapping[str, Any]) -> Any:
        call = functools.partial(dependency.provider, **arguments)
        made = await self._threads.run_to_end(self._fairness_key, call) if dependency.is_plain else call()
        if inspect.iscoroutine(made):
            made = await made
        manager = self._manager(made)
        if manager is None:
            return made
        value = await manager.__aenter__()
        self._open.append((dependency, manager))
        return value

    def _manager(self, made: Any) -> contextlib.AbstractAsyncContextManager[Any] | None:
        """Returns what opens and closes a value that a generator yields; None for any other value.

        A value with `__enter__`, such as a file or a connection, is for the function to enter.
        """
        match made:
            case types.GeneratorType():
                return self._enter_in_thread(contextlib.contextmanager(lambda: made)())
            case types.AsyncGeneratorType():
                return contextlib.asynccontextmanager(lambda: made)()
            case contextlib._GeneratorContextManager():  # noqa: SLF001 - it has no public name
                return self._enter_in_thread(made)
            case contextlib._AsyncGeneratorContextManager():  # noqa: SLF001 - it has no public name
                return made
            case _:
                return None

    @contextlib.asynccontextmanager
    async def _enter_in_thread(self, manager: contextlib.AbstractContextManager[Any]) -> AsyncIterator[Any]:
        values: list[Any] = []
        try:
            # A list, because a cancelled call does not get the value, and yet has to close it.
            await self._threads.run_to_end(self._fairness_key, lambda: values.append(manager.__enter__()))
            yield values[0]
        except BaseException as error:
            if values:
                await self._close(functools.partial(manager.__exit__, type(error), error, error.__traceback__))
            raise
        await self._close(functools.partial(manager.__exit__, None, None, None))

    async def _close(self, close: Callable[[], Any]) -> None:
        await self._closing_threads.run_in_any_case(self._fairness_key, close)


class FunctionRunner:
    """Runs functions: passes them what they declare besides arguments, and runs middleware around them."""

    def __init__(
        self,
        hooks: ServerHooks,
        state: RequestState,
        session_seal: Seal,
        limits: Limits,
        ask_own_server: AskOwnServer,
    ) -> None:
        """
        Args:
            session_seal: Seals what clients carry from request to request.
            ask_own_server: Makes what a function of one call may ask of its own server.
        """
        self._hooks = hooks
        self._ask_own_server = ask_own_server
        self._session_seal = session_seal
        self._threads = Threads(limits.threads)
        self._closing_threads = Threads(limits.threads)
        self._parts = PartQuotas(Quota(limits.response_bytes, limits.account_share), limits.send_seconds)
        self._dependent_calls = asyncio.Semaphore(limits.calls)
        """Bounds the calls with dependencies, among them cancelled ones whose dependencies are not closed yet."""
        self._state = state
        self.seconds: float = limits.handler_seconds
        """The time of a function whose author set no timeout."""
        self.has_middleware: bool = bool(hooks.middleware)

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
        return run_with_hook(
            self.run_within(item, sent_arguments, arguments, request, answers, deadline, consent), deadline
        )

    def run_within(
        self,
        item: Operation | Resource | Prompt,
        sent_arguments: Mapping[str, JSON],
        arguments: dict[str, Any],
        request: RequestContext,
        answers: Mapping[str, JSON],
        deadline: Deadline,
        consent: Middleware | None = None,
    ) -> Coroutine[Any, Any, Any]:
        """Runs a function as `run_call` does, within a call whose deadline has been started."""
        context, own_server = self._context(request, answers, deadline)
        steps: list[MiddlewareStep] = []
        for origin in mount_chain(item, self._hooks):
            if origin.outer_uri is not None:
                own_server = own_server.in_mounted(origin)
                context = context.in_server(origin.hooks.lifespan.state, own_server)
            steps += [MiddlewareStep(one, _call_name(origin.item), context) for one in origin.hooks.middleware]
        if consent is not None:
            steps.append(MiddlewareStep(consent, _call_name(item), context))
        if not steps:
            return self._call(item, arguments, request, context)

        async def run_function(arguments: dict[str, JSON]) -> Any:
            return await self._call(item, item.bind(arguments), request, context)

        return run_steps(steps, item, _copy_json(dict(sent_arguments)), run_function)

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
            context, own_server = self._context(request, answers, deadline)
            for origin in mount_chain(item, self._hooks) if item.origin is not None else ():
                if origin.outer_uri is not None:
                    own_server = own_server.in_mounted(origin)
                    context = context.in_server(origin.hooks.lifespan.state, own_server)
        return run_with_hook(self._call(item, arguments, request, context), deadline)

    def _context(
        self, request: RequestContext, answers: Mapping[str, JSON], deadline: Deadline
    ) -> tuple[Context, OwnServerOfCall]:
        state = self._hooks.lifespan.state
        promise, terms = request.promise, request.terms
        if request.session is None:
            request.session = SessionContext(self._session_seal, terms.caller, terms.meta.get(SESSION_CONTEXT_KEY))
            request.shared = RequestProgress()
        assert request.shared is not None, "it is set before"
        own_server = self._ask_own_server(request, answers, deadline)
        context = Context(
            terms,
            request.channel,
            request.request_id,
            answers,
            state,
            deadline,
            request.session,
            request.shared,
            own_server,
            promise_id=None if promise is None else promise.id,
            attempt=1 if promise is None else promise.attempt,
            memo=request.memo,
        )
        return context, own_server

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
