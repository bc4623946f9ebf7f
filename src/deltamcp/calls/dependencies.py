"""The values of a function's dependencies: made before a call, each once, and closed after it."""

import contextlib
import functools
import inspect
import logging
import types
from collections.abc import AsyncIterator, Callable, Hashable, Mapping
from typing import Any

from deltamcp.catalog.function_shape import Dependency, FunctionShape
from deltamcp.catalog.registration import source_line
from deltamcp.context import Context
from deltamcp.runtime.threads import Threads

logger = logging.getLogger("deltamcp")


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
