"""Runs an author's functions: async ones on the loop, plain ones in a thread, each within a deadline."""

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
    """What the catalogue holds: an author's function and how to call it."""

    @property
    def function(self) -> Callable[..., Any]: ...
    @property
    def is_async(self) -> bool: ...
    @property
    def context_name(self) -> str | None: ...


class FunctionRunner:
    """Functions get a `Context` where they take one."""

    def __init__(self, lifespan: ServerLifespan, threads: Threads, state: RequestState, seconds: float) -> None:
        """`seconds` is the deadline of a function that sets none of its own."""
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
        """What the function returns."""
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
        what: str,
        key: list[JSON],
        inputs: Inputs,
        request: RequestContext,
        body: Callable[[Mapping[str, JSON], Deadline], Coroutine[Any, Any, Outcome]],
    ) -> Outcome:
        """Performs what is not a tool: its errors are protocol errors, for there is no result to carry them.

        `key` names the request for its sealed state, `what` names it in errors.
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
                return Failure(Fault.TIMEOUT, f"{what} took too long.")
            if not is_cancelled():
                return Failure(Fault.INTERNAL, log_failure(what, error))
            raise
        except BaseException as error:
            return Failure(Fault.INTERNAL, log_failure(what, error))
