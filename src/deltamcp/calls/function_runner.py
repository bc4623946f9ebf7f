"""The runner of authors' functions: async ones on the loop, plain ones in a thread, each with a deadline."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Protocol

from deltamcp.calls.failures import is_cancelled, log_failure, missing_capability
from deltamcp.calls.request_context import RequestContext
from deltamcp.calls.request_state import RequestState
from deltamcp.context import Context, InputPending, MissingCapabilityError
from deltamcp.errors import Fault, InputDeclinedError, ToolError
from deltamcp.runtime.deadline import Deadline, run_with_hook
from deltamcp.runtime.lifespan import ServerLifespan
from deltamcp.runtime.threads import Threads
from deltamcp.values import JSON, Failure, Inputs, Outcome


class Runnable(Protocol):
    """An item of the catalogue that has an author's function."""

    @property
    def function(self) -> Callable[..., Any]: ...
    @property
    def is_async(self) -> bool: ...
    @property
    def context_name(self) -> str | None: ...


class FunctionRunner:
    """Runs functions, and passes a `Context` to those that declare one."""

    def __init__(self, lifespan: ServerLifespan, threads: Threads, state: RequestState, seconds: float) -> None:
        """`seconds` is the time of a function whose author set no timeout."""
        self._lifespan = lifespan
        self._threads = threads
        self._state = state
        self.seconds = seconds

    def context(self, request: RequestContext, answers: Mapping[str, JSON], deadline: Deadline) -> Context:
        return Context(request.terms, request.channel, request.request_id, answers, self._lifespan.state, deadline)

    async def run(
        self,
        runnable: Runnable,
        arguments: dict[str, Any],
        request: RequestContext,
        answers: Mapping[str, JSON],
        deadline: Deadline,
    ) -> Any:
        """Runs a function and returns its value. Exceptions of the function pass through."""
        context: Context | None = None
        if runnable.context_name is not None:
            context = self.context(request, answers, deadline)
            arguments = {**arguments, runnable.context_name: context}
        if runnable.is_async:
            return await run_with_hook(runnable.function(**arguments), deadline)
        try:
            run = self._threads.run(request.channel.fairness_key, runnable.function, arguments)
            return await run_with_hook(run, deadline)
        except asyncio.CancelledError:
            if context is not None:
                context.cancelled = True
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
        deadline = Deadline(self.seconds, request.channel)
        try:
            return await body(answers, deadline)
        except MissingCapabilityError as error:
            return missing_capability(error)
        except (ToolError, InputDeclinedError) as error:
            return Failure(Fault.INTERNAL, str(error))
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
