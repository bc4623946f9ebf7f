"""`connect` makes a `DeltaClient`, which talks to any MCP server, and uses Delta-MCP's extensions where it can.

Of a `GatewayClient` a gateway asks more than programs do of a client.
"""

import contextlib
import functools
import warnings
from collections.abc import AsyncGenerator, Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, Unpack, get_args

from msgspec import UNSET, UnsetType
from typing_extensions import deprecated

from deltamcp.catalog.param_headers import ParameterHeader
from deltamcp.client.callbacks import ClientCallbacks, RequestSender
from deltamcp.client.connection import OnProgress
from deltamcp.client.connector import Connector
from deltamcp.client.links.link import DEFAULT_MAX_BYTES, ClientLink, TokenSource, make_token_source, message_limits
from deltamcp.client.lists import ServerLists, Tool
from deltamcp.client.negotiation import ClientProfile, Encoding, ProtocolChoice, ServerInfo, known_choice
from deltamcp.client.notifications import NotificationListener
from deltamcp.client.options import ClientOptions
from deltamcp.client.pending_call import PendingCall
from deltamcp.client.reply import Reply, call_failed_error
from deltamcp.client.result_reader import PartReader
from deltamcp.client.target import Address, Endpoint, GrpcAddress, InProcessServer, Program, Target, parse_target
from deltamcp.client.tool_caller import ToolCaller
from deltamcp.errors import ArgumentsError, ClientError, ConfigurationError, UsageError
from deltamcp.results.policy import RequestPolicy, ResultPolicy
from deltamcp.results.queries.query import parse_query
from deltamcp.values import JSON, Era, LogLevel, RawResult
from deltamcp.version import VERSION

_UNBOUNDED = 1_000_000_000
_ALL_OF_IT = ResultPolicy(max_tokens=_UNBOUNDED, page_size=_UNBOUNDED)
"""For programs, which no budget of a model concerns; servers have bounds of their own."""
_GATEWAY_ONLY = (
    *("disconnect", "fetch_tools", "forward", "is_connected"),
    *("lists_ttl_seconds", "lower_log_level", "notify", "operation_ids"),
)
"""What `GatewayClient` has, and 0.1 had here."""


class DeltaClient:
    """A client of one MCP server. Use it within `async with`; calls may run concurrently.

    The client returns definitions and results as the JSON objects that the server sent; it does not convert them to
    types of its own.

        async with connect("http://localhost:8000/mcp") as client:
            print(await client.tools())
            print(await client.call("search", query="delta"))
    """

    def __init__(self, target: Target, **options: Unpack[ClientOptions]) -> None:
        """
        Args:
            target: a `DeltaServer`, a URL, a command line (a text or a list of words), a Python file (`FILE.py` or
                `FILE.py:NAME`, served by a process of its own), an entry of an `mcpServers` file (a dict), or
                `FILE#NAME` for an entry in a file.
            options: see `ClientOptions`.

        Raises:
            ConfigurationError: the target is none of these, or there is no such option.
        """
        _check_options(options)
        self._options = options
        self._max_bytes = options.get("max_bytes", DEFAULT_MAX_BYTES)
        self._endpoint = _speaking(parse_target(target), options)
        callbacks = ClientCallbacks(
            options.get("on_elicitation"), options.get("on_sampling"), options.get("roots"), options.get("sender")
        )
        profile = ClientProfile(
            options.get("info") or _own_info(),
            "mcp-lite" if _is_lite(self._endpoint) else options.get("speak", "auto"),
            options.get("encoding", "json"),
            options.get("progressive", True),
            callbacks.elicitation is not None,
            callbacks.sampling is not None,
            callbacks.roots is not None,
            "sender" in options,
        )
        known = known_choice(options.get("known_protocol", "")) if profile.protocol_choice == "auto" else "auto"
        self._connector = Connector(
            self._endpoint.label,
            self._link_factories(),
            profile,
            profile if known == "auto" else profile.choose_protocol(known),
            callbacks,
            self._receive_notification,
            options.get("start_timeout", 30.0),
            options.get("timeout"),
            self._reset_after_reconnect,
            self._receive_end,
            options.get("reconnect", True),
        )
        self._lists = ServerLists(self._connector, options.get("cache_seconds", 300.0), self._max_bytes)
        self._notifications = NotificationListener(self._connector, self._lists, options)
        self._parts = PartReader(self._connector, self._lists, self._max_bytes)
        self._calls = ToolCaller(
            self._connector, self._lists, self._parts, self._notifications, callbacks, options, self._max_bytes
        )

    @property
    def endpoint(self) -> Endpoint:
        """Where its server is, as the target says."""
        return self._endpoint

    @property
    def options(self) -> ClientOptions:
        """The options that it was made with."""
        return self._options

    def _link_factories(self) -> list[Callable[[], ClientLink]]:
        endpoint, limits = self._endpoint, message_limits(self._max_bytes)
        match endpoint:
            case InProcessServer():
                return [functools.partial(endpoint.make_link, limits)]
            case Program():
                quiet, on_stderr = self._options.get("quiet", False), self._options.get("on_stderr")
                guard = self._options.get("guard")
                return [functools.partial(endpoint.make_link, quiet, limits, on_stderr, guard)]
            case GrpcAddress():
                headers, tokens = self._options.get("headers", {}), self._token_source(endpoint)
                return [functools.partial(endpoint.make_link, headers, tokens, limits)]
            case Address():
                return endpoint.link_factories(self._options.get("headers", {}), self._token_source(endpoint), limits)

    def _token_source(self, endpoint: Address | GrpcAddress) -> TokenSource | None:
        if "auth" in self._options:
            if isinstance(endpoint, GrpcAddress) and self._options["auth"].resource is None:
                raise ConfigurationError(
                    "Over gRPC nobody finds the server's authorization server; name its http address: "
                    "OAuth(resource='https://host/mcp')."
                )
            return self._options["auth"].token_source(endpoint.url)
        return make_token_source(self._options["token"]) if "token" in self._options else None

    async def __aenter__(self) -> Self:
        """Starts the server or connects to it, and negotiates the protocol.

        Raises:
            UnreachableError: the server cannot be started or reached; the text says why and what to do.
        """
        try:
            await self._connector.open()
            await self._notifications.start()
        except BaseException:
            await self._connector.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lists.invalidate()
        try:
            await self._notifications.stop()
        finally:
            await self._connector.close()

    @property
    def server(self) -> ServerInfo:
        """The server's name, version, protocol and capabilities."""
        return self._connector.server

    def _receive_notification(self, method: str, params: dict[str, JSON]) -> None:
        self._notifications.receive(method, params)

    def _reset_after_reconnect(self) -> None:
        self._lists.invalidate()
        self._calls.forget_results()
        self._notifications.restart()

    def forget_lists(self) -> None:
        """Has the client fetch definitions again when it needs them next, whether or not they may have changed."""
        self._lists.invalidate()

    def _receive_end(self, error: ClientError) -> None:
        self._lists.invalidate()
        self._calls.forget_results()
        on_end = self._options.get("on_end")
        if on_end is not None:
            on_end(str(error))

    @property
    def pid(self) -> int | None:
        """The process that the client started; None if there is none."""
        connection = self._connector.connection
        return None if connection is None else connection.link.pid

    async def ping(self) -> None:
        """Asks the server for a sign of life; one of MCP 2026-07-28, which has no `ping`, for its description.

        Raises:
            PeerError, ConnectionLostError, DeadlineError: as in `call`.
        """
        await self.request("server/discover" if self.server.era is Era.MODERN and not self.server.is_lite else "ping")

    # Tools

    async def tools(self) -> list[Tool]:
        """Returns the name and a one-line summary of each tool; a Delta-MCP server sends no schemas for this."""
        return await self._lists.index()

    async def describe(self, *names: str) -> list[dict[str, JSON]]:
        """Returns the definitions of the named tools, in the order of the names; of every tool if none is named.

        The client fetches definitions in as few requests as the server allows, caches them, and fetches them again only
        when they may have changed.

        Raises:
            ClientError: the server has no such tool; the text suggests similar names.
        """
        return [definition.copy() for definition in await self._lists.definitions(names)]

    async def list_tools(self) -> list[dict[str, JSON]]:
        """Returns the definition of every tool that the server lists, as `describe` does; `tools` costs less."""
        return await self.describe()

    async def call(
        self,
        name: str,
        /,
        *,
        fields: JSON | UnsetType = UNSET,
        grep: JSON | UnsetType = UNSET,
        since: JSON | UnsetType = UNSET,
        **arguments: JSON,
    ) -> JSON:
        """Calls a tool and returns its result as a value, or what `fields` and `grep` select of it.

        Args:
            fields: dotted paths, or a JMESPath expression. It is an argument of the tool, if that has one of this name.
            grep: a regular expression; the value is the lines that match, the rows by their index, or the members. It
                is an argument of the tool, if that has one of this name.
            since: the handle of an earlier result of the tool, so that the server need not send what is the same. It is
                an argument of the tool, if that has one of this name.

        The value is complete: if the server sent only a part of a large result, the client reads the rest. Servers of
        the original Delta-MCP store nothing, and run the tool again for every page. Of their paged results, the value
        is the page that `page` requests; without `page`, all pages, if the tool declares that it is read-only or
        idempotent. If the rest cannot be read, `call` returns the `Reply`, whose `is_part` is true.

        Raises:
            ArgumentsError: the arguments do not match the tool's schema, and the client sent nothing; or `fields` and
                `grep` cannot be read, or select nothing.
            CallFailedError: the tool reported an error.
            ResultLostError: the server stored the rest of the result, and has it no more.
            PeerError: the server answered with a JSON-RPC error.
            ConnectionLostError: the connection broke; the text says whether the tool may have run.
            DeadlineError: the server did not answer in time.
        """
        options = (("fields", fields), ("grep", grep), ("since", since))
        given = {key: value for key, value in options if value is not UNSET}
        own = await self._calls.own_arguments(name, given) if given else {}
        query: Any = {key: value for key, value in given.items() if key not in own and value is not None}
        if query.keys() <= {"since"}:
            return await self._calls.pages.value(name, await self.call_tool(name, {**arguments, **own}, **query))
        selected = await self.call_tool(name, {**arguments, **own}, want=_ALL_OF_IT, **query)
        if selected.is_error:
            raise call_failed_error(name, selected)
        if selected.selects_nothing:
            raise ArgumentsError(f"{name}: {' '.join(selected.texts[1:])}")
        return selected.value if selected.is_selection else selected

    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, JSON] | None = None,
        *,
        want: ResultPolicy | None = None,
        fields: list[str] | str | None = None,
        grep: str | None = None,
        since: str | None = None,
        timeout: float | None = None,
        progress: OnProgress | None = None,
    ) -> Reply:
        """Calls a tool and returns the server's reply, even if it is a part of the result or reports an error.

        Args:
            want: limits on the result: tokens, rows per page, fields. If the server does not know Delta-MCP, the client
                applies them itself.
            fields: what to select of the result, as in `call`; never an argument of the tool.
            grep: the same.
            since: the handle of an earlier result of the tool. The text of the reply is what changed since then, if
                that is shorter; its value is the whole. With `""` the server sends all, and stores it for the next
                call.
            timeout: seconds to wait for the answer; the client's `timeout` unless given.
            progress: called with the server's progress notifications.

        Raises:
            ArgumentsError, PeerError, ConnectionLostError, DeadlineError: as in `call`.
        """
        if fields is not None or grep is not None or since is not None:
            want = _selecting(want, fields, grep, since)
        definition, checked = await self._calls.check_arguments(name, dict(arguments or {}))
        return await self._calls.send(name, checked, definition, want, timeout, progress)

    async def start(self, name: str, /, **arguments: JSON) -> PendingCall:
        """Calls a tool without waiting for its result, if the server goes on with the call after its reply.

        Such a reply is a promise of MCP-lite or a task of MCP. A server may also answer at once; then the call has
        ended, and `result` returns without waiting.

        Raises:
            ArgumentsError, PeerError, ConnectionLostError, DeadlineError: as in `call`.
        """
        definition, checked = await self._calls.check_arguments(name, arguments)
        return await self._calls.start(name, checked, definition)

    def pending(self, token: str) -> PendingCall:
        """Returns the call that the server goes on with under this token, which `start` returned, here or elsewhere."""
        return self._calls.take_up(token)

    # Results that the server sent in part

    async def fit(self, reply: Reply, want: ResultPolicy) -> Reply:
        """Cuts a reply to the limits in `want`; `read_on` and `whole` return the rest of it.

        Use it for replies of servers that do not know Delta-MCP; the client keeps the complete result.
        """
        return await self._parts.fit(reply, want)

    async def read_on(
        self,
        handle: str,
        *,
        page: int | None = None,
        offset: int | None = None,
        path: str | None = None,
        fields: list[str] | str | None = None,
        grep: str | None = None,
        since: str | None = None,
    ) -> Reply:
        """Returns another part of a result that the server sent in part. The server does not run the tool again.

        Args:
            handle: the `Reply.handle` of an earlier reply.
            page: the number of a page of rows, from 1.
            offset: the first row, key or character to return.
            path: a JSON Pointer to the part to read.
            fields: the fields to return of each row, or a JMESPath expression.
            grep: a regular expression; the server returns the lines, items or members that match.
            since: the handle of another result; the server returns what changed since that one.

        Raises:
            ArgumentsError: the handle has expired, or the result has no such part.
        """
        options = {"page": page, "offset": offset, "path": path, "fields": fields, "grep": grep, "since": since}
        selection = {key: value for key, value in options.items() if value is not None}
        return await self._parts.read_on({"handle": handle, **selection})

    async def whole(self, reply: Reply) -> JSON:
        """Returns the complete value of a reply, reading the parts that the reply does not show.

        Raises:
            ResultLostError: the rest of the result cannot be read.
        """
        return await self._calls.pages.whole(reply)

    async def pages(
        self, name: str, arguments: Mapping[str, JSON] | None = None, *, want: ResultPolicy | None = None
    ) -> AsyncGenerator[Reply, None]:
        """Calls a tool and yields its result page by page.

        The server runs the tool once; only servers of the original Delta-MCP run it for every page.

        Raises:
            CallFailedError: the tool reported an error.
        """
        reply = await self.call_tool(name, arguments, want=want)
        async with contextlib.aclosing(self._calls.pages.pages_from(reply, name)) as pages:
            async for page in pages:
                yield page

    async def rows(
        self, name: str, arguments: Mapping[str, JSON] | None = None, *, want: ResultPolicy | None = None
    ) -> AsyncGenerator[JSON, None]:
        """Calls a tool and yields the rows of its result one by one, over all pages.

        Raises:
            CallFailedError: the tool reported an error.
            ClientError: the server repeats a page, so that the rows have no end; or the rest cannot be read.
        """
        reply = await self.call_tool(name, arguments, want=want)
        async with contextlib.aclosing(self._calls.pages.rows_from(reply, name)) as rows:
            async for row in rows:
                yield row

    # Resources, prompts and other requests

    async def list_resources(self) -> list[dict[str, JSON]]:
        """Returns every resource that the server lists; none if it offers no resources."""
        return await self._lists.fetch_offered("resources", "resources/list", "resources")

    async def list_resource_templates(self) -> list[dict[str, JSON]]:
        """Returns every resource template that the server lists; none if it offers no templates."""
        return await self._lists.fetch_offered("resources", "resources/templates/list", "resourceTemplates")

    async def read_resource(self, uri: str) -> list[dict[str, JSON]]:
        """Reads a resource and returns its contents."""
        result = await self.request("resources/read", {"uri": uri})
        return [item for item in _as_list(result.get("contents")) if isinstance(item, dict)]

    async def subscribe(self, uri: str) -> None:
        """Subscribes to a resource: the client calls `on_change` with the URI whenever the resource changes."""
        await self._notifications.subscribe(uri)

    async def unsubscribe(self, uri: str) -> None:
        """Ends the subscription to a resource."""
        await self._notifications.unsubscribe(uri)

    async def list_prompts(self) -> list[dict[str, JSON]]:
        """Returns every prompt that the server lists; none if it offers no prompts."""
        return await self._lists.fetch_offered("prompts", "prompts/list", "prompts")

    async def get_prompt(self, name: str, arguments: Mapping[str, str] | None = None) -> dict[str, JSON]:
        """Returns a prompt, filled in with the arguments: its `messages`, and its `description` if it has one."""
        return await self.request("prompts/get", {"name": name, "arguments": dict(arguments or {})})

    async def complete(self, ref: Mapping[str, JSON], argument: str, value: str, **context: str) -> list[str]:
        """Returns the server's suggestions for an argument of a prompt or a resource template.

        Args:
            ref: `{"type": "ref/prompt", "name": ...}` or `{"type": "ref/resource", "uri": ...}`.
            argument: the argument's name.
            value: what the user has typed of it.
            context: arguments that already have a value.
        """
        params: dict[str, JSON] = {"ref": dict(ref), "argument": {"name": argument, "value": value}}
        if context:
            params["context"] = {"arguments": context}
        completion: Any = (await self.request("completion/complete", params)).get("completion")
        return _as_list(completion.get("values") if isinstance(completion, dict) else None)

    async def request(
        self, method: str, params: Mapping[str, JSON] | None = None, *, timeout: float | None = None
    ) -> dict[str, JSON]:
        """Sends any request and returns its result as the server sent it.

        If the connection breaks, the client sends the request again only if the method just reads, or the server
        certainly did not receive it.

        Raises:
            PeerError: the server answered with a JSON-RPC error.
            ConnectionLostError, DeadlineError: as in `call`.
        """
        repeatable = method.endswith(("/list", "/read", "/get", "/describe", "/manifest")) or method == "ping"
        params = params or {}
        own_meta = params.get("_meta")
        return await self._connector.request(
            method,
            params,
            {**(own_meta if isinstance(own_meta, dict) else {}), **self._notifications.log_level_meta},
            repeatable=repeatable,
            timeout=timeout,
        )

    # Names of 0.1, until 0.3

    @deprecated("DeltaClient.resources is called list_resources; the old name goes with 0.3.")
    async def resources(self) -> list[dict[str, JSON]]:
        return await self.list_resources()

    @deprecated("DeltaClient.templates is called list_resource_templates; the old name goes with 0.3.")
    async def templates(self) -> list[dict[str, JSON]]:
        return await self.list_resource_templates()

    @deprecated("DeltaClient.read is called read_resource; the old name goes with 0.3.")
    async def read(self, uri: str) -> list[dict[str, JSON]]:
        return await self.read_resource(uri)

    @deprecated("DeltaClient.prompts is called list_prompts; the old name goes with 0.3.")
    async def prompts(self) -> list[dict[str, JSON]]:
        return await self.list_prompts()

    @deprecated("DeltaClient.prompt is called get_prompt, which takes a dict; the old name goes with 0.3.")
    async def prompt(self, name: str, /, **arguments: str) -> dict[str, JSON]:
        return await self.get_prompt(name, arguments)

    if not TYPE_CHECKING:  # it would give every misspelt name a type

        def __getattr__(self, name: str) -> Any:
            if name not in _GATEWAY_ONLY:
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

            text = f"DeltaClient.{name} is for gateways only; it goes with 0.3."
            warnings.warn(text, DeprecationWarning, stacklevel=2)
            return vars(GatewayClient)[name].__get__(self, type(self))


class GatewayClient(DeltaClient):
    """A client that forwards the requests of others, and whose owner decides when it connects."""

    def disconnect(self) -> None:
        """Gives up the connection, which closes when no request is in flight; a client may be entered again."""
        self._connector.disconnect()

    @property
    def is_connected(self) -> bool:
        """Whether requests have a connection to go to."""
        return self._connector.is_connected

    @property
    def lists_ttl_seconds(self) -> float | None:
        """For how long the lists that were fetched last are valid; None if the server notifies of changes, or does not
        say."""
        return self._lists.ttl_seconds

    async def fetch_tools(self) -> list[dict[str, JSON]]:
        """Returns the definitions of all tools, fetched now: of the operations, where a server of this library lists
        meta-tools in their place. The client does not keep them."""
        fetched = await self._lists.fetch_operations()
        return [fetched.definitions[tool.name].raw for tool in fetched.index if tool.name in fetched.definitions]

    @property
    def operation_ids(self) -> Mapping[str, str]:
        """By tool name, the ids in the tree of the server's operations that `fetch_tools` found."""
        return self._lists.operation_ids

    async def notify(self, method: str, params: Mapping[str, JSON] | None = None) -> None:
        """Sends a notification.

        Raises:
            ClientError: it could not be sent.
        """
        await self._connector.notify(method, params or {})

    async def lower_log_level(self, level: LogLevel) -> None:
        """Asks a server of the handshake era to log messages of this level outside of requests, too.

        Raises:
            ConnectionLostError: the connection broke.
        """
        connection = self._connector.connection
        if connection is not None:
            await connection.lower_log_level(level)

    async def forward(
        self,
        method: str,
        params: Mapping[str, JSON],
        meta: Mapping[str, JSON] | None = None,
        *,
        capabilities: Mapping[str, JSON] | None = None,
        repeatable: bool = False,
        timeout: float | None = None,
        progress: OnProgress | None = None,
        parameter_headers: tuple[ParameterHeader, ...] = (),
        log_level: LogLevel | None = None,
        sender: RequestSender | None = None,
    ) -> RawResult:
        """Sends a request of somebody else, and returns its result as the server encoded it.

        If the server asks for input by its result (2026-07-28), that is the result.

        Args:
            meta: the `_meta` of that request, as far as it is for the server.
            capabilities: what the sender of that request can do, for a server that reads it in every request.
            repeatable: whether the client may send it again if the connection breaks.
            parameter_headers: the arguments that the tool wants in headers.
            log_level: the lowest level of log messages that the sender wants; None if it wants none.
            sender: answers what a server of the handshake era asks meanwhile, and takes what it logs.

        Raises:
            PeerError: the server answered with a JSON-RPC error.
            ConnectionLostError, DeadlineError: as in `call`.
        """
        return await self._connector.forward(
            method,
            params,
            meta or {},
            repeatable=repeatable,
            timeout=timeout,
            progress=progress,
            parameter_headers=parameter_headers if self._connector.mirrors_arguments else (),
            capabilities=capabilities,
            log_level=log_level,
            sender=sender,
        )


def connect(target: Target, **options: Unpack[ClientOptions]) -> DeltaClient:
    """Returns a client to use with `async with`.

    Args:
        target: a `DeltaServer`, a URL, a command line (a text or a list of words), a Python file (`FILE.py` or
            `FILE.py:NAME`, served by a process of its own), an entry of an `mcpServers` file (a dict), or `FILE#NAME`
            for an entry in a file.
        options: see `ClientOptions`.

    Raises:
        ConfigurationError: the target is none of these, or there is no such option.
    """
    return DeltaClient(target, **options)


def _selecting(want: ResultPolicy | None, fields: JSON, grep: JSON, since: JSON) -> ResultPolicy:
    """Returns a policy with a query, and with what the caller has.

    Raises:
        ArgumentsError: they cannot be read.
    """
    if since is not None and not isinstance(since, str):
        raise ArgumentsError("since is the handle of a result, a text.")
    try:
        query = parse_query(fields, grep)
    except UsageError as error:
        raise ArgumentsError(str(error)) from None
    limits = {name: getattr(want, name) for name in ResultPolicy.__struct_fields__} if want is not None else {}
    chosen = {
        name: value
        for name, value in (("fields", query.fields), ("grep", query.grep), ("since", since))
        if value is not None
    }
    return RequestPolicy(**{**limits, **chosen})


def _check_options(options: ClientOptions) -> None:
    for name, value in options.items():
        if name not in ClientOptions.__annotations__:
            raise ConfigurationError(
                f"There is no option {name!r}; there are {', '.join(ClientOptions.__annotations__)}."
            )
        choices = {"speak": get_args(ProtocolChoice), "encoding": get_args(Encoding)}.get(name)
        if choices is not None and value not in choices:
            raise ConfigurationError(f"{name} is one of {', '.join(choices)}, not {value!r:.40}.")
    if "auth" in options and "token" in options:
        raise ConfigurationError("A client takes auth or token, not both.")


def _speaking(endpoint: Endpoint, options: ClientOptions) -> Endpoint:
    """Returns the endpoint for the protocol that the options choose.

    Raises:
        ConfigurationError: the target is for another protocol.
    """
    speak = options.get("speak", "auto")
    if speak == "mcp-lite":
        return endpoint.speaking_lite()
    if _is_lite(endpoint) and speak != "auto":
        raise ConfigurationError(
            f"The target is an MCP-lite server, and speak={speak!r} is not; leave one of them out."
        )
    return endpoint


def _is_lite(endpoint: Endpoint) -> bool:
    return isinstance(endpoint, GrpcAddress) or (isinstance(endpoint, Address) and endpoint.is_lite)


def _own_info() -> dict[str, JSON]:
    return {"name": "delta-mcp", "version": VERSION}


def _as_list(value: JSON) -> list[Any]:
    return value if isinstance(value, list) else []
