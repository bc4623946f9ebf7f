"""`DeltaServer`: registers an author's functions as tools, resources and prompts, and serves them over transports."""

import contextlib
import functools
import logging
import os
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Unpack, overload

import msgspec

from deltamcp.calls.engine import Engine
from deltamcp.calls.middleware import Middleware, ServerHooks, check_middleware
from deltamcp.calls.observers import CallObserver
from deltamcp.calls.operation_search import OperationSearch
from deltamcp.calls.rate_limits import RateLimits, warn_of_unknown_tools
from deltamcp.calls.server_items import ServerItems, warn_of_cut_summaries
from deltamcp.catalog.catalog import Catalog, Mount, Visibility, VisibilityRule
from deltamcp.catalog.disclosure import Disclosure, SurfaceCosts
from deltamcp.catalog.items.function import registration
from deltamcp.catalog.items.function_operation import FunctionOperation
from deltamcp.catalog.items.operation import Operation, ToolOptions
from deltamcp.catalog.items.prompt import Completer, Prompt, PromptOptions
from deltamcp.catalog.items.resource import Resource, ResourceOptions
from deltamcp.catalog.json_schema import normalize_draft
from deltamcp.context import Context
from deltamcp.errors import ConfigurationError
from deltamcp.item_tools import item_tools
from deltamcp.limits import Limits
from deltamcp.promises.runner import DEFAULT_CONCURRENCY, PromiseRunner
from deltamcp.results.policy import ResultPolicy
from deltamcp.runtime.change_hub import ChangeHub
from deltamcp.runtime.deadline import Watchdog
from deltamcp.runtime.lifespan import ServerLifespan
from deltamcp.runtime.log import take_unhandled_records, take_what_python_prints
from deltamcp.runtime.process import dedicate_process, keep_grpc_off_stderr, keep_grpc_out_of_forks, run_in_loop
from deltamcp.runtime.seal import check_keys
from deltamcp.runtime.threads import Computations
from deltamcp.stores.circuit_breaker import CircuitBreaker
from deltamcp.stores.store import SharedStore, Store, open_store
from deltamcp.values import JSON, Icon, Kind, Principal

if TYPE_CHECKING:
    from starlette.routing import BaseRoute

    from deltamcp.catalog.search.fusion import Embedder
    from deltamcp.client.client import DeltaClient
    from deltamcp.sources.openapi.api import Api
    from deltamcp.sources.openapi.service import ApiService
    from deltamcp.sources.openapi.settings import ApiSettings
    from deltamcp.sources.operations_loader import OperationsFile
    from deltamcp.transports.grpc.server import GrpcServer
    from deltamcp.transports.http.app import ServerApp
    from deltamcp.transports.options import GrpcOptions, HttpOptions, HttpServerOptions

F = TypeVar("F", bound=Callable[..., Any])
logger: logging.Logger = logging.getLogger("deltamcp")

server_of_client: "Callable[[DeltaClient, str], DeltaServer] | None" = None
"""Returns a server with what the server of a client has, for `mount`; the package sets it, from the layers above."""

Lifespan = Callable[["DeltaServer"], contextlib.AbstractAsyncContextManager[Any]]


class DeltaServer:
    """An MCP server that offers Python functions as tools, resources and prompts.

    The decorators return the function unchanged. The author may register and remove items while the server runs; the
    server then notifies the clients that subscribed to changes.
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
        state_key: bytes | Sequence[bytes] | None = None,
        disclosure: Disclosure | Literal["full", "meta", "auto"] = "full",
        strict: bool = False,
        embedder: "Embedder | None" = None,
        embedder_weight: float = 0.7,
        results: ResultPolicy | None = None,
        store: Store | str = "memory://",
        observers: Sequence[CallObserver] = (),
        middleware: Sequence[Middleware] = (),
        rate_limits: RateLimits | None = None,
        promise_concurrency: int = DEFAULT_CONCURRENCY,
        conversation: Literal["process"] | None = None,
        as_tools: bool = False,
    ) -> None:
        """
        Args:
            name: The server's name. Clients show it to users, with `version`, `title`, `website_url` and `icons`.
            instructions: A text that tells the model how to use the server.
            lifespan: An async context manager that the server enters before its first request and leaves when it
                stops. Functions read the value that it yields as `Context.lifespan`.
            limits: Sizes, counts and times that the server enforces; see `Limits` for the defaults.
            page_size: The number of items on one page of a list. By default a list is one page, because many hosts
                read only the first.
            cache_seconds: How long clients may use a list before they request it again (2026-07-28).
            state_key: A key of 32 bytes that encrypts the state which a client sends back in the next round of a
                request (2026-07-28). Of several keys the first encrypts and all decrypt, so that a key can be replaced
                while clients hold state. Replicas behind one address need the same keys. By default each process makes
                one.
            disclosure: What `tools/list` shows: every tool ("full"), four meta-tools that find and run all tools
                ("meta"), or whichever of the two costs the model fewer tokens ("auto"). Clients that negotiate
                Delta-MCP always get names and summaries.
            strict: Whether to refuse a tool whose summary is longer than 60 characters, as Delta-MCP does. By default
                the server cuts the summary.
            embedder: A function, plain or async, that turns texts into vectors. With it `discover` searches by meaning
                as well as by words.
            embedder_weight: The weight of meaning in that search, from 0 to 1; words have the rest.
            results: How the server fits results to a budget of tokens, for every tool without a policy of its own.
                Without it plain tools send whole results, and results of meta-tools may have 20,000 tokens.
            store: Where the server stores results that did not fit, so that `continue` can return the rest:
                `"memory://"`, `"sqlite:///path"`, `"redis://host:port/0"` or your own `Store`. Replicas need the same
                store.
            observers: Objects that the server notifies of every call of an operation, however it was called. Calls of
                `discover`, `get_schema` and `continue` are not among them; an observer that has the methods of
                `DisclosureObserver`, too, is told of those and of lists of tools.
            middleware: Async functions that run around every call of an operation, resource or prompt, the first
                outermost: `async def timing(call, call_next)`. See `FunctionCall`.
            rate_limits: How often an address, a principal and a principal's calls of one tool may come, counted in the
                store. By default there are no such limits.
            promise_concurrency: How many calls behind promises this process runs at once; 0 leaves all of them to other
                processes, such as `delta-mcp worker`, and needs a store in Redis.
            conversation: "process" if every process that connects has one conversation, so that the server may send
                changes unasked. By default it does so only where a client names its conversation, because most hosts
                share a connection among several.
            as_tools: Whether tools reach resources and prompts, for hosts that know only tools: `list_resources` and
                `read_resource` once there is a resource, `list_prompts` and `get_prompt` once there is a prompt.
        """
        info: dict[str, JSON] = {"name": name, "version": version}
        for key, value in (("title", title), ("websiteUrl", website_url), ("icons", icons)):
            if value:
                info[key] = msgspec.to_builtins(value)
        if results is not None and not isinstance(results, ResultPolicy):
            raise ConfigurationError("results must be a ResultPolicy(...).")
        if isinstance(disclosure, str):
            disclosure = Disclosure(disclosure)
        self._name = name
        self._lifespan = lifespan
        self._files: list[OperationsFile] = []
        self._services: list[ApiService] = []
        limits = limits or Limits()
        catalog = Catalog(name, page_size, disclosure, results)
        hub = ChangeHub()
        watchdog = functools.partial(Watchdog, limits.stall_seconds, catalog.registered_label)
        running = ServerLifespan(self._run_lifespan, watchdog)
        hooks = ServerHooks(running, check_middleware(middleware), list(observers), Visibility())
        computations = Computations(limits.work_steps)
        search = OperationSearch(catalog, embedder, embedder_weight, computations)
        self._catalog, self._limits, self._hooks = catalog, limits, hooks
        self.items: ServerItems = ServerItems(catalog, hooks, hub, results, strict, item_tools if as_tools else None)
        """What the server offers, for servers that it is mounted in and programs that make items themselves."""
        self._make_engine = functools.partial(
            Engine, catalog, info, instructions, limits, hooks, hub, search, computations, cache_seconds, conversation
        )
        self._engine: Engine | None = None
        self._pages: dict[str, Callable[[Any], Any]] = {}
        self._store = self._open_store(store)
        self._keeps_in_process = store == "memory://"
        self._state_keys = check_keys(state_key)
        self._rate_limits = rate_limits
        self._promise_concurrency = promise_concurrency
        self._promise_runner: PromiseRunner | None = None

    def _open_store(self, store: Store | str) -> SharedStore:
        if isinstance(store, str):
            return open_store(store, self._limits)
        return CircuitBreaker(store, self._limits.store_seconds)

    def configure(
        self,
        *,
        store: Store | str | None = None,
        state_key: bytes | Sequence[bytes] | None = None,
        rate_limits: RateLimits | None = None,
        promise_concurrency: int | None = None,
    ) -> None:
        """Replaces what the author has set, for a program that runs the server of somebody else.

        Raises:
            ConfigurationError: the server has a transport already, or a value is not allowed.
        """
        if self._engine is not None:
            raise ConfigurationError(
                "The server has a transport already: set DeltaServer(store=..., state_key=...), or call asgi() later."
            )
        if store is not None:
            self._store = self._open_store(store)
            self._keeps_in_process = store == "memory://"
        if state_key is not None:
            self._state_keys = check_keys(state_key)
        if rate_limits is not None:
            self._rate_limits = (self._rate_limits or RateLimits()).replace(rate_limits)
        if promise_concurrency is not None:
            self._promise_concurrency = promise_concurrency

    def add_pages(self, pages: Mapping[str, Callable[[Any], Any]]) -> None:
        """Adds pages beside the HTTP endpoint, as `Engine.pages` has them, before the server has a transport."""
        self._pages.update(pages)

    @property
    def shares_store(self) -> bool:
        """Whether the store can be that of several processes; one in memory cannot."""
        return not self._keeps_in_process

    @property
    def shares_state_key(self) -> bool:
        """Whether other processes can have the same state keys; a key that the process makes they cannot."""
        return bool(self._state_keys)

    @property
    def engine(self) -> Engine:
        """The engine that every transport of this server passes requests to."""
        if self._engine is None:
            self._promise_runner = self._make_promise_runner()
            self._engine = self._make_engine(
                self._store, self._state_keys, self._rate_limits, self._promise_runner, self._pages
            )
        return self._engine

    def _make_promise_runner(self) -> PromiseRunner:
        redis_url = self._store.redis_url
        if not self._promise_concurrency and redis_url is None:
            raise ConfigurationError(
                "Without a worker of its own the server needs a store in Redis, which carries promises to others: "
                'store="redis://host:port/0".'
            )
        return PromiseRunner(
            self._hooks.lifespan, redis_url, self._name, self._limits, self._promise_concurrency, self._run_promise
        )

    def start_promises(self) -> None:
        """Runs promises whenever the server is open, also if none of its tools gives any yet.

        A server does so by itself if one of its tools gives promises.
        """
        assert self.engine.promise_calls is not None and self._promise_runner is not None, "the engine has a queue"
        self._promise_runner.start()

    async def _run_promise(self, key: str) -> None:
        promises = self.engine.promise_calls
        assert promises is not None, "the engine has a queue"
        await promises.run(key)

    @property
    def costs(self) -> SurfaceCosts:
        """The tokens that the catalog costs a model, as plain tools and behind meta-tools; its text compares them."""
        return self._catalog.view().surface_costs

    # Registering

    def operations(
        self,
        path: str | os.PathLike[str],
        functions: Mapping[str, Callable[..., Any]] | None = None,
        *,
        results: ResultPolicy | None = None,
    ) -> None:
        """Registers the operations of an `operations.json`, and reloads the file when it changes.

        Args:
            path: The file.
            functions: The functions of operations that have no handler in the file, by the operation's name.
            results: A policy that goes before the `results` of the file.

        Raises:
            ConfigurationError: the file has faults; the message lists all of them.
        """
        from deltamcp.sources.operations_loader import OperationsFile  # takes 15 ms, and most servers need no file

        file = OperationsFile(Path(path), functions or {}, os.environ, self._limits, results)
        file.activate(file.load(), self._replace_operations)
        self._files.append(file)
        self._hooks.lifespan.add_task(functools.partial(file.watch, self._replace_operations))

    def add_openapi(
        self,
        document: "str | os.PathLike[str] | bytes | Mapping[str, JSON] | Api",
        settings: "ApiSettings | None" = None,
        *,
        environment: Mapping[str, str] = os.environ,
    ) -> "Api":
        """Registers the operations of an HTTP API as tools, from its OpenAPI document.

        What cannot be offered is in `Api.faults`, with its place in the document, and in the log.

        Args:
            document: A file, an `http` address, the document as JSON or YAML, or as values; or an `Api` of these.
            settings: Where the API is, which operations are offered, and with what credentials.
            environment: The values of `${NAME}` in the settings.

        Raises:
            ConfigurationError: the document cannot be read, its API's address is not known, or a name is taken.
        """
        from deltamcp.sources.openapi.service import make_operations, open_api  # most servers need none

        api = open_api(document, settings, environment)
        service, operations = make_operations(api, environment, self._limits)
        self.items.replace_operations([], operations)
        self._services.append(service)
        return api

    def _replace_operations(self, old_names: list[str], operations: list[Operation]) -> None:
        self.items.replace_operations(old_names, operations)
        warn_of_cut_summaries(operations)

    @contextlib.asynccontextmanager
    async def _run_lifespan(self) -> AsyncIterator[Any]:
        """The author's lifespan, between the store and the operations files, which are closed with it."""
        async with contextlib.AsyncExitStack() as stack:
            stack.push_async_callback(self._store.close)
            state = None if self._lifespan is None else await stack.enter_async_context(self._lifespan(self))
            for file in self._files:
                stack.push_async_callback(file.close)
            for service in self._services:
                stack.push_async_callback(service.close)
            for lifespan in self.items.mounted_lifespans:
                await stack.enter_async_context(lifespan.running())
            if any(operation.promise_policy != "never" for operation in self._catalog.operations.values()):
                self.start_promises()
            if self._rate_limits is not None:
                warn_of_unknown_tools(self._rate_limits, self._catalog.operations.values())
            if self._catalog.disclosure.surface == "auto":
                view = self._catalog.view()
                logger.info("disclosure %s: %s", view.surface.value, view.surface_costs)
            yield state

    @overload
    def tool(self, function: F, /, **options: Unpack[ToolOptions]) -> F: ...
    @overload
    def tool(self, name: str | None = None, /, **options: Unpack[ToolOptions]) -> Callable[[F], F]: ...
    def tool(self, function: Any = None, /, **options: Any) -> Any:
        """Registers a function as a tool: `@server.tool`, `@server.tool("name", ...)` or `server.tool(function, ...)`.

        The tool takes its name, description and schemas from the function's name, docstring and annotations, unless the
        author passes them as options; see `ToolOptions`. The server runs a plain function in a thread and an async
        function on the event loop. With `input_schema=...` the function receives its arguments as one dict.

        Raises:
            ConfigurationError: the name, the id, a schema or the summary is not allowed.
        """

        function, options = _take_name(function, options)

        def register(function: F) -> F:
            with registration(function, "server.tool({})", may_yield=True):
                for schema in (options.get("input_schema"), options.get("output_schema")):
                    if schema is not True:  # taken from the return type
                        _check_schema(schema)
                operation = FunctionOperation(function, Context, **options)
                self.items.add(operation)
            warn_of_cut_summaries([operation])
            return function

        return register if function is None else register(function)

    def resource(self, uri: str, **options: Unpack[ResourceOptions]) -> Callable[[F], F]:
        """Registers a function that returns the contents of a resource: `@server.resource("notes://all", ...)`.

        `uri` is the address of one resource, or a template such as `repo://{id}/readme`, whose variables are the
        function's parameters. `ResourceOptions` lists the options.

        Raises:
            ConfigurationError: the URI is taken, or its variables and the function's parameters differ.
        """
        if not isinstance(uri, str):
            with registration(uri, 'server.resource("notes://all")({})'):
                raise ConfigurationError('a resource needs its URI, as in @server.resource("notes://all").')

        def register(function: F) -> F:
            with registration(function, f"server.resource({uri!r})({{}})"):
                self.items.add(Resource(function, Context, uri, **options))
            return function

        return register

    @overload
    def prompt(self, function: F, /, **options: Unpack[PromptOptions]) -> F: ...
    @overload
    def prompt(self, name: str | None = None, /, **options: Unpack[PromptOptions]) -> Callable[[F], F]: ...
    def prompt(self, function: Any = None, /, **options: Any) -> Any:
        """Registers a function that returns the messages of a prompt: `@server.prompt` or `@server.prompt("name")`.

        The function's parameters are the prompt's arguments. `PromptOptions` lists the options.

        Raises:
            ConfigurationError: the name is taken, or a parameter cannot be used.
        """
        function, options = _take_name(function, options)

        def register(function: F) -> F:
            with registration(function, "server.prompt({})"):
                self.items.add(Prompt(function, Context, **options))
            return function

        return register if function is None else register(function)

    def completion(self, *, argument: str, prompt: str | None = None, template: str | None = None) -> Callable[[F], F]:
        """Registers a function that suggests values for an argument while the user types it.

        Args:
            argument: The argument's name.
            prompt: The name of the prompt that has the argument.
            template: The URI template of the resource that has the argument. Pass either `prompt` or `template`.

        Raises:
            ConfigurationError: both or neither of `prompt` and `template` were passed.
        """
        if (prompt is None) == (template is None):
            raise ConfigurationError("A completion needs either prompt=... or template=..., not both.")

        def register(function: F) -> F:
            kind, target = ("prompt", prompt) if prompt is not None else ("template", template)
            with registration(function, "server.completion(...)({})"):
                self.items.add_completer((kind, str(target), argument), Completer(function, Context))
            return function

        return register

    def mount(self, other: "DeltaServer | DeltaClient", prefix: str = "") -> None:
        """Offers everything that another server offers, also what it registers later.

        With a prefix, the tool `search` becomes `prefix_search` with the id `prefix.search`, the prompt `ask` becomes
        `prefix_ask`, and the resource `notes://all` moves to `notes://prefix/all`. The functions keep their own
        server: its lifespan runs with this one's and is their `Context.lifespan`, its middleware runs inside this
        server's, its observers are notified, and its result policy comes before this server's. Everything else is this
        server's: store, limits, disclosure, instructions.

        A client stands for its server, elsewhere: `server.mount(connect("https://tools.example/mcp"), "tools")`. This
        server connects to it when it runs, and again after a loss, and offers what it lists then. Its resources keep
        their URIs, which its results mention. What it asks and reports reaches the caller of this server. Nobody
        reviews its definitions: a `Gateway` does.

        Raises:
            ConfigurationError: a name is taken, the servers would contain each other, this server runs already, or the
                client has options that only its own program can use.
        """
        if isinstance(other, DeltaServer):
            self.items.mount(other.items, prefix)
            return
        from deltamcp.client.client import DeltaClient  # most servers mount none

        if not isinstance(other, DeltaClient) or server_of_client is None:
            advice = " Mount its server." if isinstance(getattr(other, "server", None), DeltaServer) else ""
            raise ConfigurationError(
                f'mount(other, "prefix") takes a DeltaServer or connect(...) first, not {type(other).__name__}.{advice}'
            )
        Mount(prefix)
        self.items.mount(server_of_client(other, prefix).items, "")

    def remove_tool(self, name: str) -> None:
        """Removes a tool by its name."""
        self.items.remove(Kind.TOOLS, name)

    def remove_prompt(self, name: str) -> None:
        """Removes a prompt by its name."""
        self.items.remove(Kind.PROMPTS, name)

    def remove_resource(self, uri: str) -> None:
        """Removes a resource by its URI, or a template by its URI template."""
        self.items.remove(Kind.TEMPLATES if "{" in uri else Kind.RESOURCES, uri)

    def enable(
        self,
        *,
        tags: Collection[str] | None = None,
        names: Collection[str] | None = None,
        only: bool = False,
        principal: Principal | None = None,
    ) -> None:
        """Shows tools, resources and prompts again that `disable` hid; of several calls that fit one, the last counts.

        Without `tags` and `names` it shows everything again, or a principal what others see.

        Args:
            tags: Fits an item that has one of these tags. With `names`, too, an item has to fit both.
            names: Names of tools, prompts and resources, and URIs of resources and templates.
            only: Whether to hide everything that does not fit.
            principal: Whom this is for, such as `ctx.principal`; everybody by default. What is said of a principal
                comes after what is said of everybody.

        Raises:
            ConfigurationError: tags or names are one text, or there are none and `only`.
        """
        rule = _visibility_rule(True, tags, names)
        if tags is None and names is None:
            if only:
                raise ConfigurationError("enable(only=True) needs tags=... or names=..., or it would hide everything.")
            self.items.show_all(principal)
            return
        if only:
            self.items.show(VisibilityRule(False, None, None), principal)
        self.items.show(rule, principal)

    def disable(
        self,
        *,
        tags: Collection[str] | None = None,
        names: Collection[str] | None = None,
        principal: Principal | None = None,
    ) -> None:
        """Hides tools, resources and prompts, also those that are registered later: they are neither listed nor called.

        Clients that listen are told that their lists have changed. It holds in this process, as registering does, and
        may be called from any thread; the arguments are those of `enable`.

        Raises:
            ConfigurationError: there are neither tags nor names, or they are one text.
        """
        if tags is None and names is None:
            raise ConfigurationError(
                "disable() hides what has one of tags=... or names=...; pass at least one of them."
            )
        self.items.show(_visibility_rule(False, tags, names), principal)

    def list_changed(self, kind: Kind) -> None:
        """Notifies clients that a list has changed for another reason than registering and removing.

        The caller may use any thread.
        """
        self.items.list_changed(kind)

    def resource_updated(self, uri: str) -> None:
        """Notifies the clients that subscribed to a resource that it has changed. The caller may use any thread."""
        self.items.resource_updated(uri)

    # Transports

    @contextlib.asynccontextmanager
    async def lifespan(self, app: Any = None) -> AsyncIterator[None]:
        """Runs the server as a part of another application: `Starlette(lifespan=server.lifespan, ...)`.

        The server starts before the application takes its first request, and stops when the application shuts down.
        If the author's lifespan raises an exception at the start, the application does not start.
        """
        async with self._hooks.lifespan.running():
            yield

    def asgi(self, path: str = "/mcp", **options: Unpack["HttpOptions"]) -> "ServerApp":
        """Returns the server as an ASGI application, for any ASGI server or to mount in another application.

        `path` is that of the MCP endpoint; `HttpOptions` lists the other options.
        """
        from deltamcp.transports.http.app import make_app

        return make_app(self.engine, path, **options)

    def routes(self, path: str = "/mcp", **options: Unpack["HttpOptions"]) -> "list[BaseRoute]":
        """Returns the server's routes, for the route list of a Starlette or FastAPI application.

        They are the MCP endpoint, the paths of MCP-lite, `/healthz`, `/readyz` and the documents about authorization.
        The arguments are those of `asgi`, without `routes`: the application has its own list of them. Pass
        `lifespan=server.lifespan` to the application, so that the server starts and stops with it.

        Raises:
            ConfigurationError: Starlette is not installed, or there are `routes` among the options.
        """
        if "routes" in options:
            raise ConfigurationError("Put your routes beside server.routes() into the application's list of routes.")
        try:
            from starlette.routing import Route
        except ImportError:
            raise ConfigurationError("server.routes() needs Starlette: pip install starlette.") from None
        app = self.asgi(path, **options)
        return [Route(one, app) for one in app.paths]

    def grpc(self, host: str = "127.0.0.1", port: int = 50051, **options: Unpack["GrpcOptions"]) -> "GrpcServer":
        """Returns a server of MCP-lite over gRPC, to `await server.grpc(port=0).start()` beside another transport.

        `port` 0 is any free port; `GrpcOptions` lists the other options.

        Raises:
            ConfigurationError: the packages of gRPC are not installed, there is no TLS with these files, or other
                machines reach this address and there is no `auth`.
        """
        keep_grpc_out_of_forks()
        keep_grpc_off_stderr()
        try:
            from deltamcp.transports.grpc.server import GrpcServer
        except ModuleNotFoundError as error:
            raise ConfigurationError("gRPC needs more packages: pip install 'delta-mcp[grpc]'.") from error
        return GrpcServer(self.engine, host, port, **options)

    @overload
    def run(self, transport: Literal["stdio"] = "stdio", *, protocol: Literal["mcp", "mcp-lite"] = ...) -> None: ...
    @overload
    def run(
        self, transport: Literal["grpc"], *, host: str = ..., port: int = ..., **options: Unpack["GrpcOptions"]
    ) -> None: ...
    @overload
    def run(
        self,
        transport: Literal["http"],
        *,
        host: str = ...,
        port: int = ...,
        path: str = ...,
        **options: Unpack["HttpServerOptions"],
    ) -> None: ...
    def run(
        self,
        transport: Literal["stdio", "http", "grpc"] = "stdio",
        *,
        protocol: Literal["mcp", "mcp-lite"] = "mcp",
        host: str = "127.0.0.1",
        port: int | None = None,
        path: str = "/mcp",
        **options: Any,
    ) -> None:
        """Serves clients until the process receives SIGTERM or SIGINT: `run()`, `run("http")` or `run("grpc")`.

        Over stdio the server has one client, and also stops when that client closes its end; `protocol` is what it
        speaks there, because MCP-lite begins without a word that would tell. Over HTTP it listens at
        `host` and `port`, where 0 is any free port, and then prints its address to stderr; `path` is that of the
        endpoint, and `HttpServerOptions` lists the other options. Without a port it is 8000. Over gRPC it serves
        MCP-lite at port 50051 unless it gets another, and `GrpcOptions` lists the other options. Warnings and errors
        that no log handler takes, and what Python would print, go to stderr, as far as somebody reads it, a line each.

        Raises:
            ConfigurationError: there is no such transport, the server cannot listen at this address, or other
                machines reach this address and there is no `auth`.
            Exception: the author's lifespan raised it.
        """
        dedicate_process(self._hooks.lifespan, loads_modules=transport != "stdio")
        take_unhandled_records()
        take_what_python_prints()
        if transport == "stdio":
            from deltamcp.transports.stdio.server import DUPLEXES, serve, take_streams

            if protocol not in DUPLEXES:
                raise ConfigurationError(f'There is no protocol {protocol!r}; pick "mcp" or "mcp-lite".')
            run_in_loop(serve(self.engine, take_streams(), protocol))
        elif transport == "http":
            from deltamcp.transports.http.server import make_server

            make_server(self.engine, host, 8000 if port is None else port, path, **options).run()
        elif transport == "grpc":
            self.grpc(host, 50051 if port is None else port, **options).run()
        else:
            raise ConfigurationError(f'There is no transport {transport!r}; pick "stdio", "http" or "grpc".')


def _take_name(function: Any, options: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Returns the function, or None if there is a name in its place, and the options with that name."""
    if not isinstance(function, str):
        return function, options
    if "name" in options:
        raise ConfigurationError(f"There are two names, {function!r} and {options['name']!r}; pass one.")
    return None, {"name": function, **options}


def _visibility_rule(is_shown: bool, tags: Collection[str] | None, names: Collection[str] | None) -> VisibilityRule:
    """
    Raises:
        ConfigurationError: tags or names are one text.
    """
    for word, texts in (("tags", tags), ("names", names)):
        if isinstance(texts, str):
            raise ConfigurationError(f"{word} must be a list of texts: {word}=[{texts!r}].")
    return VisibilityRule(
        is_shown, None if tags is None else frozenset(tags), None if names is None else frozenset(names)
    )


def _check_schema(schema: dict[str, JSON] | None) -> None:
    """Raises an error for a schema that is invalid. A remote server's invalid schema would accept every value."""
    if schema is not None:
        _, fault = normalize_draft(schema)
        if fault is not None:
            raise ConfigurationError(f"the schema is wrong at /{'/'.join(map(str, fault[0]))}. {fault[1]}")
