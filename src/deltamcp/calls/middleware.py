"""What an author runs with or around functions: middleware and hooks, also where the server is mounted."""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias

from msgspec import Struct

from deltamcp.calls.observers import CallObserver
from deltamcp.catalog.catalog import Visibility
from deltamcp.catalog.items.function import is_async
from deltamcp.catalog.items.operation import Operation
from deltamcp.catalog.items.prompt import Completer, Prompt
from deltamcp.catalog.items.resource import Resource
from deltamcp.context import Context
from deltamcp.errors import ConfigurationError
from deltamcp.runtime.lifespan import ServerLifespan
from deltamcp.values import JSON, Kind


class FunctionCall(Struct):
    """A call, as a middleware sees it before the function runs: `async def timing(call, call_next)`.

    The caller may see the operation, and the arguments fit its schema. A middleware may change the arguments; the
    server validates them again before the function gets them.
    """

    kind: Kind
    """`Kind.TOOLS`, `Kind.RESOURCES` or `Kind.PROMPTS`."""
    name: str
    """The operation's id, the prompt's name, or the resource's URI or template."""
    arguments: dict[str, JSON]
    """The caller's arguments, or the variables of the URI. Changes do not reach the caller."""
    context: Context
    """What the function gets as its context."""
    function: Callable[..., Any] | None = None
    """What the author registered."""
    is_read_only: bool = False
    """Whether the call changes nothing: by the tool's annotations, and always of resources and prompts."""
    is_repeatable: bool = False
    """Whether a second run has no further effect: of what is read-only, of tools that are idempotent by their
    annotations, and of those with `on_redelivery="rerun"`."""


class CallNext(Protocol):
    """Runs the rest of a call and returns the function's value; it raises what the function raises."""

    def __call__(self, call: FunctionCall, /) -> Awaitable[Any]: ...


Middleware: TypeAlias = Callable[[FunctionCall, CallNext], Awaitable[Any]]
"""Returns the value of a call, from `call_next` or its own. It may raise a `ToolError`."""


class MiddlewareStep(NamedTuple):
    """A middleware, with the name of the item and the context as its server has them."""

    middleware: Middleware
    name: str
    context: Context

    def call(self, item: "Operation | Resource | Prompt", arguments: dict[str, JSON]) -> FunctionCall:
        """Returns what the middleware gets."""
        match item:
            case Operation():
                hints = item.is_read_only, item.may_rerun
                return FunctionCall(Kind.TOOLS, self.name, arguments, self.context, item.function, *hints)
            case Prompt():
                return FunctionCall(Kind.PROMPTS, self.name, arguments, self.context, item.function, True, True)
            case Resource():
                return FunctionCall(Kind.RESOURCES, self.name, arguments, self.context, item.function, True, True)


def check_middleware(middleware: Sequence[Middleware]) -> tuple[Middleware, ...]:
    """Checks that every middleware is async.

    Raises:
        ConfigurationError: one is not.
    """
    for one in middleware:
        if not is_async(one):
            raise ConfigurationError(f"A middleware must be an async function of call and call_next, not {one!r}.")
    return tuple(middleware)


async def run_steps(
    steps: Sequence[MiddlewareStep],
    item: Operation | Resource | Prompt,
    arguments: dict[str, JSON],
    run_function: Callable[[dict[str, JSON]], Awaitable[Any]],
) -> Any:
    """Runs the first step around the others and those around the function; returns the value of the first."""

    async def run_from(position: int, arguments: dict[str, JSON]) -> Any:
        if position == len(steps):
            return await run_function(arguments)
        step = steps[position]

        async def call_next(call: FunctionCall) -> Any:
            return await run_from(position + 1, call.arguments)

        return await step.middleware(step.call(item, arguments), call_next)

    return await run_from(0, arguments)


Item = Operation | Resource | Prompt | Completer
"""An item of the catalog that has an author's function."""


class ServerHooks(NamedTuple):
    """A server's lifespan, and what its author wants around calls of its functions, and shown of them."""

    lifespan: ServerLifespan
    middleware: Sequence[Middleware]
    observers: Sequence[CallObserver]
    visibility: Visibility


class Origin(NamedTuple):
    """Where a mounted item comes from: the item of the mounted server, and that server's hooks."""

    item: Item
    hooks: ServerHooks
    outer_uri: Callable[[str], str] | None = None
    """Turns a URI of that server into the one it has in the server around it; None for the outermost server."""


def mount_chain(item: Item, hooks: ServerHooks) -> Iterator[Origin]:
    """Yields the item as each server on the way to its own has it, with that server's hooks; the outermost first."""
    origin: object | None = Origin(item, hooks)
    while isinstance(origin, Origin):
        yield origin
        origin = origin.item.origin
