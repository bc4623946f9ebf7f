"""Calls tools: checks the arguments, sends the call, and completes a reply that has only what changed."""

import asyncio

import msgspec

from deltamcp.client.connection import OnProgress
from deltamcp.client.connector import Connector
from deltamcp.client.definitions import Definition
from deltamcp.client.lists import ServerLists
from deltamcp.client.notifications import NotificationListener
from deltamcp.client.options import ClientOptions
from deltamcp.client.part_reader import PartReader
from deltamcp.client.reply import Reply, ToolCall
from deltamcp.client.result_cache import ResultCache
from deltamcp.deltas.edits import InvalidDeltaError as UnreadableError
from deltamcp.errors import FAULTS, ArgumentsError, ClientError, Fault, PeerError
from deltamcp.results.policy import META_KEY, ResultPolicy
from deltamcp.values import JSON
from deltamcp.wire import jsonrpc

_LONG_TABLE_CHARS = 16 * 1024
"""Longer tables are read in a thread, because they take some 10 ms."""
_HEADER_MISMATCH = FAULTS[Fault.HEADER_MISMATCH].modern
_STALE_DEFINITION_CODES = (_HEADER_MISMATCH, FAULTS[Fault.INVALID_PARAMS].modern)
"""Errors a server may answer with when the client called a tool by an outdated definition."""


class ToolCaller:
    """Sends the calls of one client."""

    def __init__(
        self,
        connector: Connector,
        lists: ServerLists,
        parts: PartReader,
        notifications: NotificationListener,
        options: ClientOptions,
        max_bytes: int,
    ) -> None:
        self._connector, self._lists, self._parts, self._notifications = connector, lists, parts, notifications
        self._deltas, self._validates = options.get("deltas", False), options.get("validate", True)
        self._max_bytes = max_bytes
        self._result_cache = ResultCache()

    def forget_results(self) -> None:
        """Forgets the results that the server may send changes to."""
        self._result_cache.clear()

    async def check_arguments(self, name: str, arguments: dict[str, JSON]) -> tuple[Definition | None, dict[str, JSON]]:
        """Returns the tool's definition and the arguments to send.

        The definition is None if the server does not list the tool; the server may accept the call all the same.

        Raises:
            ArgumentsError: the arguments do not match the tool's schema.
        """
        if not self._validates and not self._connector.mirrors_arguments:
            return self._lists.cached_definition(name), arguments
        definition = self._lists.cached_definition(name) or await self._lists.definition(name)
        if definition is None or not self._validates:
            return definition, arguments
        resolves = self._connector.server.resolves_references
        checked, problems = definition.check_arguments(arguments, resolves)
        if problems and not self._lists.is_current(name):
            self._lists.invalidate()
            definition = await self._lists.definition(name)
            checked, problems = (
                (arguments, []) if definition is None else definition.check_arguments(arguments, resolves)
            )
        if problems:
            raise ArgumentsError(f"{name}: {' '.join(problems)}")
        return definition, checked

    async def send(
        self,
        name: str,
        arguments: dict[str, JSON],
        definition: Definition | None,
        want: ResultPolicy | None = None,
        timeout: float | None = None,
        progress: OnProgress | None = None,
    ) -> Reply:
        """Sends a call whose arguments are checked, and returns the reply with its complete value."""
        server = self._connector.server
        call_key = _call_key(name, arguments) if self._deltas and server.progressive else ""
        meta = self._request_meta(want, call_key)
        params = {"name": name, "arguments": arguments}
        try:
            raw = await self._request(params, meta, definition, timeout, progress)
        except PeerError as error:
            if error.code in _STALE_DEFINITION_CODES:
                self._lists.invalidate()
            if error.code != _HEADER_MISMATCH or definition is None:
                raise
            # MCP 2026-07-28, "Client Behavior": on a header mismatch, fetch the definition again and retry once.
            raw = await self._request(params, meta, await self._lists.definition(name), timeout, progress)
        reply = Reply(raw, server.is_delta, ToolCall(name, arguments), self._max_bytes)
        self._lists.continue_tool = reply.delta_meta.get("tool", self._lists.continue_tool)
        if reply.delta_meta.get("form") == "table" and len(reply.text) > _LONG_TABLE_CHARS:
            await asyncio.to_thread(lambda: reply.value)  # the reply keeps it
        if "root" in reply.delta_meta:
            await self._resolve_value(reply, call_key or _call_key(name, arguments))
        elif want is not None and server.progressive is None and not reply.delta_meta:
            return await self._parts.fit(reply, want)
        return reply

    def _request_meta(self, want: ResultPolicy | None, call_key: str) -> dict[str, JSON]:
        meta: dict[str, JSON] = dict(self._notifications.log_level_meta)
        policy: dict[str, JSON] = {} if want is None else msgspec.to_builtins(want)
        if call_key and "pack_root" not in policy:
            policy = {**policy, "pack_root": self._result_cache.root_for(call_key) or ""}
        if policy:
            meta[META_KEY] = policy
        return meta

    async def _request(
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

    async def _resolve_value(self, reply: Reply, call_key: str) -> None:
        """Sets `reply.value` to the complete result; reads it by its handle if the reply's base is not in the cache."""
        try:
            reply.value = self._result_cache.resolve_value(reply, call_key)
        except UnreadableError:
            handle = reply.delta_meta.get("handle")
            if not isinstance(handle, str):
                raise ClientError(
                    "The server sent changes to a result that this client does not have, and no handle to read it by."
                ) from None
            reply.value = await self._parts.read_all(handle)
            self._result_cache.store_whole(reply, call_key, reply.value)


def _call_key(name: str, arguments: dict[str, JSON]) -> str:
    return f"{name} {jsonrpc.encode(arguments).decode()}"
