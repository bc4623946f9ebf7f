"""`DeltaClient`: any MCP server, and everything Delta-MCP adds where the server has it."""

import contextlib
import functools
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from importlib import metadata
from types import TracebackType
from typing import Any, Unpack, get_args

import msgspec

from deltamcp.client.callbacks import ClientCallbacks
from deltamcp.client.connection import OnProgress
from deltamcp.client.connector import Connector
from deltamcp.client.definitions import Definition, Tool
from deltamcp.client.links.link import ClientLink
from deltamcp.client.lists import ServerLists
from deltamcp.client.local_results import LocalResults
from deltamcp.client.negotiation import ClientProfile, Encoding, ProtocolChoice, ServerInfo
from deltamcp.client.notifications import NotificationListener
from deltamcp.client.options import ClientOptions
from deltamcp.client.recovery import ResultLostError, read_all, recover
from deltamcp.client.reply import Reply
from deltamcp.client.result_cache import ResultCache
from deltamcp.client.target import Address, InProcessServer, Program, Target, parse_target
from deltamcp.deltas.edits import InvalidDeltaError as UnreadableError
from deltamcp.errors import FAULTS, ArgumentsError, CallFailedError, ClientError, ConfigurationError, Fault, PeerError
from deltamcp.results.pagination import find_rows
from deltamcp.results.policy import META_KEY, ResultPolicy
from deltamcp.values import JSON
from deltamcp.wire import jsonrpc

_HEADER_MISMATCH = FAULTS[Fault.HEADER_MISMATCH].modern
_STALE_DEFINITION_CODES = (_HEADER_MISMATCH, FAULTS[Fault.INVALID_PARAMS].modern)
"""What a server says to arguments that its tool no longer has."""


class DeltaClient:
    """One server, within `async with`. Calls may run side by side.

    Everything a server sent is there as it came: definitions and results are its own objects, never re-typed.
    """

    def __init__(self, target: Target, **options: Unpack[ClientOptions]) -> None:
        """`target` is a `DeltaServer`, a URL, a command line, an entry of an `mcpServers` file, or `FILE#NAME` for one
        in a file. `ClientOptions` lists what else can be said.

        Raises:
            ConfigurationError: there is no such target.
        """
        _check_options(options)
        self._options = options
        self._deltas = options.get("deltas", False)
        self._endpoint = parse_target(target)
        callbacks = ClientCallbacks(options.get("on_elicitation"), options.get("on_sampling"), options.get("roots"))
        profile = ClientProfile(
            options.get("info") or _own_info(),
            options.get("speak", "auto"),
            options.get("encoding", "json"),
            options.get("progressive", True),
            callbacks.elicitation is not None,
            callbacks.sampling is not None,
            callbacks.roots is not None,
        )
        self._connector = Connector(
            self._endpoint.label,
            self._link_factories(),
            profile,
            callbacks,
            self._receive_notification,
            options.get("start_timeout", 30.0),
            options.get("timeout"),
        )
        self._lists = ServerLists(self._connector, options.get("cache_seconds", 300.0))
        self._notifications = NotificationListener(self._connector, self._lists, options)
        self._result_cache = ResultCache()
        self._local_results: LocalResults | None = None
        self._connector.on_reconnect = self._reset_after_reconnect

    def _link_factories(self) -> list[Callable[[], ClientLink]]:
        endpoint = self._endpoint
        match endpoint:
            case InProcessServer():
                return [endpoint.make_link]
            case Program():
                return [functools.partial(endpoint.make_link, self._options.get("quiet", False))]
            case Address():
                return endpoint.link_factories(self._options.get("headers", {}), self._options.get("token"))

    async def __aenter__(self) -> "DeltaClient":
        """
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
        """Who answers, and what it can do."""
        return self._connector.server

    def _receive_notification(self, method: str, params: dict[str, JSON]) -> None:
        self._notifications.receive(method, params)

    def _reset_after_reconnect(self) -> None:
        self._lists.invalidate()
        self._result_cache.clear()
        self._notifications.restart()

    # Tools

    async def tools(self) -> list[Tool]:
        """The index: a name and a line for each tool."""
        return await self._lists.index()

    async def describe(self, *names: str) -> list[dict[str, JSON]]:
        """Definitions as the server has them, in this order; of every tool where none is named.

        They are fetched together, kept by their digest, and fetched again only when they changed.

        Raises:
            ClientError: there is no such tool; the text names the nearest.
        """
        return [definition.copy() for definition in await self._lists.definitions(names)]

    async def call(self, name: str, /, **arguments: JSON) -> JSON:
        """The value a tool gives for its arguments; whole, whatever part of it the server showed at first.

        Raises:
            ArgumentsError: they do not fit; nothing was sent.
            CallFailedError: the tool says that it failed.
            PeerError: the server refused.
            ConnectionLostError: the connection broke.
        """
        reply = await self.call_tool(name, arguments)
        if reply.is_error:
            raise _call_failed_error(name, reply)
        if reply.is_part and reply.handle is None and _next_page_number(reply) is not None:
            definition = self._lists.cached_definition(name)
            if definition is not None and definition.is_repeatable:  # for there every page runs the tool again
                return [row async for row in self.rows(name, arguments)]
        return await self.whole(reply)

    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, JSON] | None = None,
        *,
        want: ResultPolicy | None = None,
        timeout: float | None = None,
        progress: OnProgress | None = None,
    ) -> Reply:
        """What a tool answers, as it came; a tool's own failure is an answer too.

        Args:
            want: how the result is to fit: tokens, rows a page, fields. A server that knows nothing of it has its
                results made to fit here.
            progress: told how far the call is.

        Raises:
            ArgumentsError, PeerError, ConnectionLostError, DeadlineError: as in `call`.
        """
        definition, given = await self._check_arguments(name, dict(arguments or {}))
        return await self._call(name, given, definition, want, timeout, progress)

    async def _call(
        self,
        name: str,
        given: dict[str, JSON],
        definition: Definition | None,
        want: ResultPolicy | None = None,
        timeout: float | None = None,
        progress: OnProgress | None = None,
    ) -> Reply:
        call_key = f"{name} {jsonrpc.encode(given).decode()}" if self._deltas and self.server.progressive else ""
        meta = self._request_meta(want, call_key)
        params = {"name": name, "arguments": given}
        try:
            raw = await self._request_call(params, meta, definition, timeout, progress)
        except PeerError as error:
            if error.code in _STALE_DEFINITION_CODES:
                self._lists.invalidate()
            if error.code != _HEADER_MISMATCH or definition is None:
                raise
            # MCP 2026-07-28, "Client Behavior": what has to be mirrored in headers has changed.
            raw = await self._request_call(params, meta, await self._lists.definition(name), timeout, progress)
        reply = Reply(raw, self.server.is_delta)
        if "root" in reply.told:
            await self._resolve_value(reply, call_key or f"{name} {jsonrpc.encode(given).decode()}")
        elif want is not None and self.server.progressive is None:
            return await self.fit(reply, want)
        return reply

    async def _request_call(
        self,
        params: dict[str, JSON],
        meta: dict[str, JSON],
        definition: Definition | None,
        timeout: float | None,
        progress: OnProgress | None,
    ) -> dict[str, JSON]:
        return await self._connector.request(
            "tools/call",
            params,
            meta,
            repeatable=definition is not None and definition.is_repeatable,
            timeout=timeout,
            progress=progress,
            parameter_headers=definition.parameter_headers
            if definition is not None and self._connector.mirrors_arguments
            else (),
        )

    async def _check_arguments(
        self, name: str, arguments: dict[str, JSON]
    ) -> tuple[Definition | None, dict[str, JSON]]:
        """What is known of the tool, None where nothing is, for its server may know it all the same; and its arguments.

        Raises:
            ArgumentsError: they do not fit.
        """
        validates = self._options.get("validate", True)
        if not validates and not self._connector.mirrors_arguments:
            return self._lists.cached_definition(name), arguments
        definition = self._lists.cached_definition(name) or await self._lists.definition(name)
        if definition is None or not validates:
            return definition, arguments
        checked, problems = definition.check_arguments(arguments)
        if problems and not self._lists.is_current(name):
            self._lists.invalidate()
            definition = await self._lists.definition(name)
            checked, problems = (arguments, []) if definition is None else definition.check_arguments(arguments)
        if problems:
            raise ArgumentsError(f"{name}: {' '.join(problems)}")
        return definition, checked

    def _request_meta(self, want: ResultPolicy | None, call_key: str) -> dict[str, JSON]:
        meta: dict[str, JSON] = dict(self._notifications.log_level_meta)
        policy: dict[str, JSON] = {} if want is None else msgspec.to_builtins(want)
        if call_key and "pack_root" not in policy:
            policy = {**policy, "pack_root": self._result_cache.root_for(call_key) or ""}
        if policy:
            meta[META_KEY] = policy
        return meta

    async def _resolve_value(self, reply: Reply, call_key: str) -> None:
        """Puts the whole value together; what builds on something that is not held any more is read anew."""
        try:
            reply.value = self._result_cache.resolve_value(reply, call_key)
        except UnreadableError:
            handle = reply.told.get("handle")
            if not isinstance(handle, str):
                raise ClientError(
                    "The server tells changes of a result that is not held here, and no way to it."
                ) from None
            reply.value = await self._read_all(handle)
            self._result_cache.store_whole(reply, call_key, reply.value)

    # Results that were shown in part

    @property
    def _lazy_local_results(self) -> LocalResults:
        if self._local_results is None:
            self._local_results = LocalResults()
        return self._local_results

    async def fit(self, reply: Reply, want: ResultPolicy) -> Reply:
        """A reply that was not, made to fit here; `read_on` and `whole` have the rest of it."""
        return await self._lazy_local_results.fit(reply, want)

    async def read_on(
        self,
        handle: str,
        *,
        page: int | None = None,
        offset: int | None = None,
        path: str | None = None,
        fields: list[str] | str | None = None,
        grep: str | None = None,
    ) -> Reply:
        """Another part of a result that was shown in part, by `Reply.handle`. The tool is not run again.

        Raises:
            ArgumentsError: there is nothing under this handle any more, or not there.
        """
        asked = {"page": page, "offset": offset, "path": path, "fields": fields, "grep": grep}
        return await self._continue({"handle": handle, **{key: one for key, one in asked.items() if one is not None}})

    async def _continue(self, arguments: dict[str, JSON]) -> Reply:
        if self._local_results is not None and self._local_results.has_handle(str(arguments["handle"])):
            return await self._local_results.read_on(arguments)
        params = {"name": await self._lists.continue_tool_name(), "arguments": arguments}
        reply = Reply(await self._connector.request("tools/call", params))
        if reply.is_error:
            raise ArgumentsError(reply.text)
        return reply

    async def whole(self, reply: Reply) -> JSON:
        """All of what a reply shows or begins.

        Raises:
            ClientError: it is not to be had any more.
        """
        if not reply.is_part:
            return reply.value
        try:
            return await recover(reply, self._continue)
        except ResultLostError as error:
            raise ClientError(f"The result cannot be read to its end: {error}.") from None

    async def _read_all(self, handle: str) -> JSON:
        try:
            return await read_all(handle, self._continue)
        except ResultLostError as error:
            raise ClientError(f"The result cannot be read to its end: {error}.") from None

    async def pages(
        self, name: str, arguments: Mapping[str, JSON] | None = None, *, want: ResultPolicy | None = None
    ) -> AsyncGenerator[Reply, None]:
        """A result, page by page. The tool is run once; only servers of the original Delta-MCP run it for every page.

        Raises:
            CallFailedError: the tool says that it failed.
        """
        given = dict(arguments or {})
        reply = await self.call_tool(name, given, want=want)
        while True:
            if reply.is_error:
                raise _call_failed_error(name, reply)
            yield reply
            told = reply.told
            if reply.handle is not None and told.get("unit") == "rows" and told["end"] < told["total"]:
                reply = await self.read_on(reply.handle, offset=told["end"])
            elif (page := _next_page_number(reply)) is not None:
                # By an argument that is not the tool's own, as Delta-MCP has it.
                reply = await self._call(name, {**given, "page": page}, self._lists.cached_definition(name))
            else:
                return

    async def rows(
        self, name: str, arguments: Mapping[str, JSON] | None = None, *, want: ResultPolicy | None = None
    ) -> AsyncGenerator[JSON, None]:
        """The rows of a result one by one, whatever pages they come in."""
        async with contextlib.aclosing(self.pages(name, arguments, want=want)) as pages:
            async for page in pages:
                in_rows = not page.is_part or page.is_page or page.told.get("unit") == "rows"
                for row in _result_rows(page.value if in_rows else await self.whole(page)):
                    yield row

    # Resources, prompts, and whatever else a server understands

    async def resources(self) -> list[dict[str, JSON]]:
        return await self._lists.fetch_all("resources/list", "resources")

    async def templates(self) -> list[dict[str, JSON]]:
        return await self._lists.fetch_all("resources/templates/list", "resourceTemplates")

    async def read(self, uri: str) -> list[dict[str, JSON]]:
        """What a resource holds, as it came."""
        result = await self.request("resources/read", {"uri": uri})
        return [item for item in _as_list(result.get("contents")) if isinstance(item, dict)]

    async def subscribe(self, uri: str) -> None:
        """`on_change` is told of the URI whenever the resource changes."""
        await self._notifications.subscribe(uri)

    async def unsubscribe(self, uri: str) -> None:
        await self._notifications.unsubscribe(uri)

    async def prompts(self) -> list[dict[str, JSON]]:
        return await self._lists.fetch_all("prompts/list", "prompts")

    async def prompt(self, name: str, /, **arguments: str) -> dict[str, JSON]:
        """A prompt, filled in."""
        return await self.request("prompts/get", {"name": name, "arguments": arguments})

    async def complete(self, ref: Mapping[str, JSON], argument: str, value: str, **context: str) -> list[str]:
        """Suggestions for an argument of a prompt (`{"type": "ref/prompt", "name": ...}`) or a resource template."""
        params: dict[str, JSON] = {"ref": dict(ref), "argument": {"name": argument, "value": value}}
        if context:
            params["context"] = {"arguments": context}
        completion: Any = (await self.request("completion/complete", params)).get("completion")
        return _as_list(completion.get("values") if isinstance(completion, dict) else None)

    async def request(
        self, method: str, params: Mapping[str, JSON] | None = None, *, timeout: float | None = None
    ) -> dict[str, JSON]:
        """Any request there is, and its result as it came. It is not repeated unless it surely was not done.

        Raises:
            PeerError: the server refused.
        """
        repeatable = method.endswith(("/list", "/read", "/get", "/describe", "/manifest")) or method == "ping"
        return await self._connector.request(
            method,
            params or {},
            self._notifications.log_level_meta,
            repeatable=repeatable,
            timeout=timeout,
        )


def _check_options(options: ClientOptions) -> None:
    for name, value in options.items():
        if name not in ClientOptions.__annotations__:
            raise ConfigurationError(
                f"There is no option {name!r}; there are {', '.join(ClientOptions.__annotations__)}."
            )
        known = {"speak": get_args(ProtocolChoice), "encoding": get_args(Encoding)}.get(name)
        if known is not None and value not in known:
            raise ConfigurationError(f"{name} is one of {', '.join(known)}, not {value!r:.40}.")


def _own_info() -> dict[str, JSON]:
    return {"name": "delta-mcp", "version": metadata.version("delta-mcp")}


def _as_list(value: JSON) -> list[Any]:
    return value if isinstance(value, list) else []


def _call_failed_error(name: str, reply: Reply) -> CallFailedError:
    return CallFailedError(reply.text or f"{name} failed and did not say why.", reply)


def _next_page_number(reply: Reply) -> int | None:
    """Where the original Delta-MCP says that a list goes on."""
    page = reply.shape.get("page") if reply.is_page and reply.shape.get("hasMore") is True else None
    return page + 1 if isinstance(page, int) else None


def _result_rows(value: Any) -> Sequence[JSON]:
    if isinstance(value, list):
        return value
    path = find_rows(jsonrpc.encode(value), None, value) if isinstance(value, dict) else None
    for step in path or ():
        value = value[step]
    return value if isinstance(value, list) else [value]
