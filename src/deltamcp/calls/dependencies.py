"""The values of a function's dependencies: made before a call, each once, and closed after it."""

import contextlib
import functools
import types
from collections.abc import AsyncIterator, Callable, Coroutine, Hashable, Mapping
from typing import Any

from deltamcp.catalog.function_shape import Dependency, FunctionShape
from deltamcp.context import Context
from deltamcp.runtime.threads import Threads


class DependencyValues:
    """Makes the values for one call. Leaving it as a context manager closes what the author's functions opened."""

    def __init__(self, threads: Threads, fairness_key: Hashable, context: Context) -> None:
        self._threads = threads
        self._fairness_key = fairness_key
        self._context = context
        self._stack = contextlib.AsyncExitStack()
        self._values: dict[int, Any] = {}
        """Values by the identity of the author's function."""

    async def __aenter__(self) -> "DependencyValues":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: types.TracebackType | None
    ) -> None:
        # A dependency cannot swallow an exception: the call would have no value.
        await self._stack.__aexit__(kind, error, traceback)

    async def arguments(self, shape: FunctionShape) -> dict[str, Any]:
        """Returns the keyword arguments of a function that do not come from the caller."""
        values = {name: await self._value(dependency) for name, dependency in shape.dependencies.items()}
        return values if shape.context_name is None else {**values, shape.context_name: self._context}

    async def _value(self, dependency: Dependency) -> Any:
        key = id(dependency.provider)
        if key not in self._values:
            self._values[key] = await self._make(dependency, await self.arguments(dependency.shape))
        return self._values[key]

    async def _make(self, dependency: Dependency, arguments: Mapping[str, Any]) -> Any:
        call = functools.partial(dependency.function, **arguments)
        match dependency.kind:
            case "plain":
                return await self._run_in_thread(call)
            case "async":
                return await call()
            case "async manager":
                return await self._stack.enter_async_context(call())
            case "manager":
                return await self._stack.enter_async_context(self._enter_in_thread(call()))

    @contextlib.asynccontextmanager
    async def _enter_in_thread(self, manager: contextlib.AbstractContextManager[Any]) -> AsyncIterator[Any]:
        value = await self._run_in_thread(manager.__enter__)
        try:
            yield value
        except BaseException as error:
            await self._run_in_thread(functools.partial(manager.__exit__, type(error), error, error.__traceback__))
            raise
        await self._run_in_thread(functools.partial(manager.__exit__, None, None, None))

    def _run_in_thread(self, function: Callable[[], Any]) -> Coroutine[Any, Any, Any]:
        return self._threads.run(self._fairness_key, function, {})
