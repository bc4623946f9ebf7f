"""`DeltaServer`: functions and configuration in, transports out."""

import asyncio
import contextlib
import logging
import os
import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Unpack, overload

import msgspec

from deltamcp.calls.engine import Engine
from deltamcp.calls.observers import CallObserver
from deltamcp.calls.operation_search import OperationSearch
from deltamcp.catalog.catalog import Catalog
from deltamcp.catalog.completer import Completer
from deltamcp.catalog.disclosure import Disclosure, SurfaceCosts
from deltamcp.catalog.json_schema import normalize_draft
from deltamcp.catalog.operation import ID_SEGMENT, Operation, ToolOptions
from deltamcp.catalog.prompt import Prompt, PromptOptions
from deltamcp.catalog.resource import Resource, ResourceOptions
from deltamcp.catalog.search.fusion import Embedder
from deltamcp.context import Context
from deltamcp.errors import ConfigurationError
from deltamcp.limits import Limits
from deltamcp.results.policy import ResultPolicy
from deltamcp.stores.store import Store, open_store
from deltamcp.values import JSON, Icon, Kind

if TYPE_CHECKING:
    from starlette.routing import BaseRoute

    from deltamcp.sources.operations_loader import OperationsFile
    from deltamcp.transports.http import HttpApp

F = TypeVar("F", bound=Callable[..., Any])
logger = logging.getLogger("deltamcp")
_NAME = re.compile(r"[A-Za-z0-9_.\-]{1,128}")
"""MCP 2025-11-25, "Tool Names"; hosts refuse others."""

Lifespan = Callable[["DeltaServer"], contextlib.AbstractAsyncContextManager[Any]]


class DeltaServer:
    """An MCP server of functions.

    Registering returns the function unchanged. What is registered or removed while the server runs is
    announced to the clients that listen.
    """

    def __init__(
        self,
        name: str,
        version: str = "0",
        *,
        title: str | None = None,
        instructions: str | None = None,
        website_url: str | None = None,
        icons: list[Icon] | None = None,
        lifespan: Lifespan | None = None,
        limits: Limits | None = None,
        page_size: int | None = None,
        cache_seconds: float = 60.0,
        state_key: bytes | None = None,
        disclosure: Disclosure | Literal["full", "meta", "auto"] = "full",
        strict: bool = False,
        embedder: Embedder | None = None,
        embedder_weight: float = 0.7,
        results: ResultPolicy | None = None,
        store: Store | str = "memory://",
        observers: Sequence[CallObserver] = (),
    ) -> None:
        """
        Args:
            name: shown to clients, with `version`, `title`, `website_url` and `icons`.
            instructions: how to use the server, for the model.
            lifespan: an async context manager around the server's life; what it yields is `Context.lifespan`.
            page_size: items a list page holds; everything on one page by default, as many hosts read only that.
            cache_seconds: how long clients may keep lists without asking again (2026-07-28).
            state_key: 32 bytes that seal what clients carry between the rounds of one request (2026-07-28);
                replicas behind one address need the same.
            disclosure: what `tools/list` shows: every tool, four meta-tools that stand for them, or whichever costs
                the model less. Clients that negotiate Delta-MCP get names and summaries in any case.
            embedder: turns texts into vectors, plain or async; `discover` then searches by meaning as well as by words,
                meaning having `embedder_weight` of the say.
            results: how results are made to fit, for every tool that does not say otherwise: a budget in tokens, rows a
                page, tables. Without it, plain tools send what they return and meta-tools have 20,000 tokens.
            store: where results that did not fit are stored, for `continue` to read on in: `"memory://"`,
                `"sqlite:///path"`, `"redis://host:port/0"`, or a `Store` of your own. Replicas need the same.
            observers: told of every call of an operation: who called, what came of it, what it cost.
            strict: a tool whose summary is longer than 60 characters is refused, as Delta-MCP does, instead of cut.
        """
        if state_key is not None and len(state_key) != 32:
            raise ConfigurationError("state_key must be 32 bytes.")
        info: dict[str, JSON] = {"name": name, "version": version}
        for key, value in (("title", title), ("websiteUrl", website_url), ("icons", icons)):
            if value:
                info[key] = msgspec.to_builtins(value)
        if results is not None and not isinstance(results, ResultPolicy):
            raise ConfigurationError("results must be a ResultPolicy(...).")
        if isinstance(disclosure, str):
            disclosure = Disclosure(disclosure)
        self._strict = strict
        self._lifespan = lifespan
        self._files: list[OperationsFile] = []
        self._results = results
        self._store = open_store(store) if isinstance(store, str) else store
        self._catalog = Catalog(name, page_size, disclosure, results)
        self._engine = Engine(
            self._catalog,
            info,
            instructions,
            limits or Limits(),
            self._run_lifespan,
            state_key,
            cache_seconds,
            OperationSearch(self._catalog, embedder, embedder_weight),
            self._store,
            observers,
        )

    @property
    def engine(self) -> Engine:
        """What the transports serve."""
        return self._engine

    @property
    def costs(self) -> SurfaceCosts:
        """What the catalogue costs a model in tokens, whole and behind meta-tools, and from when on which is dearer."""
        return self._catalog.view().surface_costs

    # Registering

    def operations(
        self, path: str | os.PathLike[str], functions: Mapping[str, Callable[..., Any]] | None = None
    ) -> None:
        """Offers what an `operations.json` describes, and follows the file while the server runs.

        Args:
            functions: for operations without a handler of their own, by the operation's name.

        Raises:
            ConfigurationError: the file is wrong; the text has every fault in it.
        """
        from deltamcp.sources.operations_loader import OperationsFile  # 15 ms that most servers do without

        file = OperationsFile(Path(path), functions or {}, os.environ)
        file.activate(file.load(), self._exchange)
        self._files.append(file)

    def _exchange(self, old: list[str], new: list[Operation]) -> None:
        self._catalog.replace(old, [self._check(operation) for operation in new])
        self._warn_of_cut_summaries(new)
        self._announce(Kind.TOOLS)

    @contextlib.asynccontextmanager
    async def _run_lifespan(self) -> AsyncIterator[Any]:
        """The author's lifespan, and inside it the tasks that follow operations files."""
        async with contextlib.AsyncExitStack() as stack:
            stack.push_async_callback(self._store.close)
            state = None if self._lifespan is None else await stack.enter_async_context(self._lifespan(self))
            for file in self._files:
                stack.push_async_callback(file.close)
                watching = asyncio.create_task(file.watch(self._exchange))
                stack.push_async_callback(asyncio.wait, [watching])
                stack.callback(watching.cancel)
            if self._catalog.disclosure.surface == "auto":
                view = self._catalog.view()
                logger.info("disclosure %s: %s", view.surface.value, view.surface_costs)
            yield state

    @overload
    def tool(self, function: F) -> F: ...
    @overload
    def tool(self, **options: Unpack[ToolOptions]) -> Callable[[F], F]: ...
    def tool(self, function: Any = None, **options: Any) -> Any:
        """Offers a function as a tool; its name, description and schemas are the function's own unless given.

        Plain functions run in a thread, async ones on the loop. Under an `input_schema` the function takes the
        arguments as one dict. `ToolOptions` lists what can be said.
        """

        def register(function: F) -> F:
            for schema in (options.get("input_schema"), options.get("output_schema")):
                _check_schema(schema)
            operation = self._check(Operation(function, Context, **options))
            self._add(operation)
            self._warn_of_cut_summaries([operation])
            return function

        return register if function is None else register(function)

    def resource(self, uri: str, **options: Unpack[ResourceOptions]) -> Callable[[F], F]:
        """Offers what a function returns at an address, or at every address of a template like `repo://{id}/readme`."""

        def register(function: F) -> F:
            self._add(Resource(function, Context, uri, **options))
            return function

        return register

    @overload
    def prompt(self, function: F) -> F: ...
    @overload
    def prompt(self, **options: Unpack[PromptOptions]) -> Callable[[F], F]: ...
    def prompt(self, function: Any = None, **options: Any) -> Any:
        """Offers a function's messages as a prompt; its parameters are the prompt's arguments."""

        def register(function: F) -> F:
            self._add(Prompt(function, Context, **options))
            return function

        return register if function is None else register(function)

    def completion(self, *, argument: str, prompt: str | None = None, template: str | None = None) -> Callable[[F], F]:
        """Suggests values for one argument of a prompt (by name) or of a resource template (by its URI template)."""
        if (prompt is None) == (template is None):
            raise ConfigurationError("A completion belongs to a prompt=... or to a template=..., one of them.")

        def register(function: F) -> F:
            kind, target = ("prompt", prompt) if prompt is not None else ("template", template)
            self._catalog.completions[kind, str(target), argument] = Completer(function, Context)
            return function

        return register

    def _check(self, operation: Operation) -> Operation:
        if not _NAME.fullmatch(operation.name):
            raise ConfigurationError(
                f"The tool name {operation.name!r} must be 1 to 128 letters, digits, '_', '-' or '.'; pass name=..."
            )
        in_tree = operation.id != operation.name or self._catalog.disclosure.surface != "full"
        if in_tree and not all(map(ID_SEGMENT.fullmatch, operation.id.split("."))):
            raise ConfigurationError(
                f"{operation.name}: the id {operation.id!r} must be words of letters, digits, '_' or '-', joined by "
                "dots; pass category=... and action=..."
            )
        if operation.is_summary_too_long and self._strict:
            raise ConfigurationError(
                f'Tool "{operation.name}" description exceeds 60 chars in summary mode; pass a shorter summary=...'
            )
        # Behind meta-tools the one that runs the others has the legend.
        operation.resolve_result_policy(self._results, flat=self._catalog.disclosure.surface != "meta")
        return operation

    def _warn_of_cut_summaries(self, operations: list[Operation]) -> None:
        cut = [operation.name for operation in operations if operation.is_summary_cut]
        if cut:
            shown = ", ".join(cut[:5]) + (f" and {len(cut) - 5} more" if len(cut) > 5 else "")
            logger.warning("the first sentence is cut to 60 characters in the index: give a `summary` to %s", shown)

    def _add(self, item: Operation | Resource | Prompt) -> None:
        self._announce(self._catalog.add(item))

    def _announce(self, kind: Kind) -> None:
        self._publish(kind)
        if kind is Kind.TOOLS and self._catalog.disclosure.surface != "full":
            self._publish(Kind.RESOURCES)  # which operations are too

    def remove_tool(self, name: str) -> None:
        self._remove(Kind.TOOLS, name)

    def remove_prompt(self, name: str) -> None:
        self._remove(Kind.PROMPTS, name)

    def remove_resource(self, uri: str) -> None:
        """By its address, or by its template."""
        self._remove(Kind.TEMPLATES if "{" in uri else Kind.RESOURCES, uri)

    def _remove(self, kind: Kind, name: str) -> None:
        self._catalog.remove(kind, name)
        self._announce(kind)

    def _publish(self, change: Kind | str) -> None:
        self._engine.hub.publish(change, self._engine.lifespan.loop)

    def list_changed(self, kind: Kind) -> None:
        """Announces a change of a list that registering and removing did not make."""
        self._publish(kind)

    def resource_updated(self, uri: str) -> None:
        """Tells the clients that watch a resource that it has changed. From any thread."""
        self._publish(uri)

    # Transports

    @contextlib.asynccontextmanager
    async def lifespan(self, app: Any = None) -> AsyncIterator[None]:
        """The server's life as an application that embeds it joins it: `Starlette(lifespan=server.lifespan, ...)`.

        The server is open before the application takes its first request, and closed when the application shuts down.
        What the author's lifespan raises on its way in fails the application's start.
        """
        async with self._engine.lifespan.running():
            yield

    def asgi(
        self,
        path: str = "/mcp",
        *,
        allowed_hosts: Sequence[str] | None = None,
        allowed_origins: Sequence[str] | None = None,
    ) -> "HttpApp":
        """The server as an ASGI application, to run under any ASGI server or to mount in another application.

        Args:
            path: the endpoint.
            allowed_hosts: `Host` values accepted, such as "tools.example" or "tools.example:8443"; "*" for all.
                The loopback names by default, which is right for a server on this machine only.
            allowed_origins: `Origin` values accepted besides the allowed hosts' own.
        """
        from deltamcp.transports.http import HttpApp

        return HttpApp(self._engine, path, allowed_hosts=allowed_hosts, allowed_origins=allowed_origins)

    def routes(
        self,
        path: str = "/mcp",
        *,
        allowed_hosts: Sequence[str] | None = None,
        allowed_origins: Sequence[str] | None = None,
    ) -> "list[BaseRoute]":
        """The server's routes, to stand beside others in a Starlette or FastAPI application; arguments as `asgi`'s.

        Raises:
            ConfigurationError: Starlette is not installed.
        """
        try:
            from starlette.routing import Route
        except ImportError:
            raise ConfigurationError("server.routes() needs Starlette: pip install starlette.") from None
        app = self.asgi(path, allowed_hosts=allowed_hosts, allowed_origins=allowed_origins)
        return [Route(path, app)]

    @overload
    def run(self, transport: Literal["stdio"] = "stdio") -> None: ...
    @overload
    def run(
        self,
        transport: Literal["http"],
        *,
        host: str = ...,
        port: int = ...,
        path: str = ...,
        allowed_hosts: Sequence[str] | None = ...,
        allowed_origins: Sequence[str] | None = ...,
    ) -> None: ...
    def run(
        self,
        transport: Literal["stdio", "http"] = "stdio",
        *,
        host: str = "127.0.0.1",
        port: int = 8000,
        path: str = "/mcp",
        allowed_hosts: Sequence[str] | None = None,
        allowed_origins: Sequence[str] | None = None,
    ) -> None:
        """Serves until the client leaves or the process is told to stop: `run()`, `run("http", port=8000)`.

        Over HTTP, at `host` and `port`; the other arguments are `asgi`'s.
        """
        if transport == "stdio":
            from deltamcp.transports import stdio

            asyncio.run(stdio.serve(self._engine))
        elif transport == "http":
            from deltamcp.transports import uvicorn_server

            uvicorn_server.make_server(
                self._engine, host, port, path, allowed_hosts=allowed_hosts, allowed_origins=allowed_origins
            ).run()
        else:
            raise ConfigurationError(f'There is no transport {transport!r}; pick "stdio" or "http".')


def _check_schema(schema: dict[str, JSON] | None) -> None:
    """Under a schema of others that cannot be compiled everything passes; an author is told instead."""
    if schema is not None:
        _, fault = normalize_draft(schema)
        if fault is not None:
            raise ConfigurationError(f"The schema is wrong at /{'/'.join(map(str, fault[0]))}. {fault[1]}")
