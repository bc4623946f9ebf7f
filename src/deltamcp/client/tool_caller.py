"""Calls tools: checks the arguments, sends the call, and completes a reply that has only what changed."""

import asyncio
import functools
import secrets
from collections import OrderedDict
from contextlib import suppress
from typing import Any, NamedTuple

import msgspec

from deltamcp.client.callbacks import ClientCallbacks
from deltamcp.client.connection import OnProgress
from deltamcp.client.connector import Connector
from deltamcp.client.links.link import BYTES_PER_VALUE
from deltamcp.client.lists import Definition, ServerLists
from deltamcp.client.notifications import NotificationListener
from deltamcp.client.options import ClientOptions
from deltamcp.client.pending_call import CallState, PendingCall, ended_state, parse_task, promise_protocol
from deltamcp.client.reply import Reply, ToolCall
from deltamcp.client.result_reader import PartReader, ResultPages
from deltamcp.deltas.delta import apply_delta
from deltamcp.deltas.edits import InvalidDeltaError
from deltamcp.deltas.edits import InvalidDeltaError as UnreadableError
from deltamcp.deltas.root import root_of
from deltamcp.dialects.tasks import KEY_PREFIX
from deltamcp.errors import (
    FAULTS,
    ArgumentsError,
    ClientError,
    ConnectionLostError,
    DeadlineError,
    Fault,
    PeerError,
    UnreachableError,
)
from deltamcp.results import changes
from deltamcp.results.document import parse_path
from deltamcp.results.policy import META_KEY, ResultPolicy
from deltamcp.values import JSON, Era
from deltamcp.wire import jsonrpc
from deltamcp.work import Work, WorkLimitError

_MAX_BYTES = 32 * 1024 * 1024
"""Size of all cached results as JSON. The cache drops the least recently used first; if a server sends changes to a
dropped result, the client reads the complete result."""
_MAX_ENTRIES = 4096
"""Results, handles and calls that are cached; the least recently used are dropped first."""


class ResultCache:
    """Results by their roots, by their server's handles, and by the calls that returned them."""

    def __init__(self) -> None:
        self._by_root: OrderedDict[str, bytes] = OrderedDict()
        self._size = 0
        self._root_by_handle: OrderedDict[str, str] = OrderedDict()
        self._root_by_call: OrderedDict[str, str] = OrderedDict()

    def root_for(self, call_key: str) -> str | None:
        """Returns the root of the cached result of a call; the client sends it with the next such call."""
        root = self._root_by_call.get(call_key)
        return root if root in self._by_root else None

    def resolve_value(self, reply: Reply, call_key: str = "") -> JSON:
        """Returns the result that a reply sends in whole, as changes or as unchanged, and caches it.

        A part of a result is returned as it is. `call_key` names the tool and its arguments.

        Raises:
            InvalidDeltaError: the reply's base is not in the cache, or the reply cannot be read.
        """
        meta = reply.delta_meta
        try:
            match meta.get("outcome"):
                case "unchanged":
                    value = self._load(meta["base"])
                case "delta":
                    base, work = self._load(meta["base"]), Work(_MAX_BYTES // BYTES_PER_VALUE)
                    value = self._restore(apply_delta(base, reply.texts[0], work=work), meta)
                case _ if "root" not in meta or reply.is_part:
                    return reply.value
                case _:
                    value = self._whole_value(reply, meta)
        except (KeyError, IndexError, ValueError, TypeError, WorkLimitError):
            raise InvalidDeltaError("the reply's base is not in the cache, or the reply cannot be read") from None
        self._store(meta["root"], value)
        if call_key:
            _remember(self._root_by_call, call_key, meta["root"])
        if "handle" in meta:
            _remember(self._root_by_handle, meta["handle"], meta["root"])
        return value

    def store_whole(self, reply: Reply, call_key: str, value: JSON) -> None:
        """Caches a complete result that the client has read by the reply's handle."""
        root = reply.delta_meta.get("root")
        if isinstance(root, str) and root_of(value) == root:
            self._store(root, value)
            _remember(self._root_by_call, call_key, root)

    def clear(self) -> None:
        """Drops all results, as after a reconnect: the server may not know what it has sent before."""
        self._by_root.clear()
        self._size = 0
        self._root_by_handle.clear()
        self._root_by_call.clear()

    def _store(self, root: str, value: JSON) -> None:
        """Stores bytes, because the caller may change the value that it is given."""
        data = jsonrpc.encode(value)
        self._size += len(data) - len(self._by_root.pop(root, b""))
        self._by_root[root] = data
        while self._size > _MAX_BYTES or len(self._by_root) > _MAX_ENTRIES:
            self._size -= len(self._by_root.popitem(last=False)[1])

    def _load(self, root: str) -> JSON:
        self._by_root.move_to_end(root)
        return jsonrpc.decode(self._by_root[root])

    def _whole_value(self, reply: Reply, meta: dict[str, Any]) -> JSON:
        if meta.get("form") == "text":
            return reply.texts[0]
        if "structuredContent" in reply.raw:
            return reply.raw["structuredContent"]
        return self._restore(reply.decode(reply.texts[0]), meta)

    def _restore(self, value: JSON, meta: dict[str, Any]) -> JSON:
        """Fills in the rows that the reply only refers to, and checks the result against the reply's root."""
        if "references" in meta:
            value = changes.restore_rows(value, parse_path(meta["references"]), self._load_part)
        if root_of(value) != meta["root"]:
            raise InvalidDeltaError("the result does not have the root that the reply names")
        return value

    def _load_part(self, handle: str, path: str) -> JSON:
        value: Any = self._load(self._root_by_handle[handle])
        for step in parse_path(path):
            value = value[int(step)] if isinstance(value, list) else value[step]
        part: JSON = value
        return part


def _remember(roots: OrderedDict[str, str], name: str, root: str) -> None:
    roots[name] = root
    roots.move_to_end(name)
    if len(roots) > _MAX_ENTRIES:
        roots.popitem(last=False)


_LONG_TABLE_CHARS = 16 * 1024
"""Longer tables are read in a thread, because they take some 10 ms."""
_HEADER_MISMATCH = FAULTS[Fault.HEADER_MISMATCH].modern
_STALE_DEFINITION_CODES = (_HEADER_MISMATCH, FAULTS[Fault.INVALID_PARAMS].modern)
"""Errors a server may answer with when the client called a tool by an outdated definition."""


_KEY_BYTES = 16
_CANCEL_SECONDS = 3.0
"""How long the client tries to cancel a call that its program waits for no more; servers take up to 2 s for it."""


class _SentCall(NamedTuple):
    """A call as it was sent."""

    name: str
    arguments: dict[str, JSON]
    want: ResultPolicy | None
    key: str
    """Names the results that the server may send changes to; empty if the client wants none."""


class ToolCaller:
    """Sends the calls of one client."""

    def __init__(
        self,
        connector: Connector,
        lists: ServerLists,
        parts: PartReader,
        notifications: NotificationListener,
        callbacks: ClientCallbacks,
        options: ClientOptions,
        max_bytes: int,
    ) -> None:
        self._connector, self._lists, self._parts, self._notifications = connector, lists, parts, notifications
        self._deltas, self._validates = options.get("deltas", False), options.get("validate", True)
        self._max_bytes = max_bytes
        self._callbacks = callbacks
        self._result_cache = ResultCache()
        self.pages: ResultPages = ResultPages(self.send, lists, parts, max_bytes)

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

    async def own_arguments(self, name: str, given: dict[str, JSON]) -> dict[str, JSON]:
        """Returns those of the arguments that the tool declares as its own; its server may take others for itself."""
        definition = await self._lists.definition(name)
        return {} if definition is None else {key: given[key] for key in definition.own_parameters & given.keys()}

    async def send(
        self,
        name: str,
        arguments: dict[str, JSON],
        definition: Definition | None,
        want: ResultPolicy | None = None,
        timeout: float | None = None,
        progress: OnProgress | None = None,
    ) -> Reply:
        """Sends a call whose arguments are checked, and returns the reply with its complete value.

        If the server goes on with the call after its reply, the client waits for the result.
        """
        timeout = self._connector.timeout if timeout is None else timeout
        start = asyncio.get_running_loop().time()
        sent = _SentCall(name, arguments, want, self._call_key(name, arguments))
        answer = await self._request(sent, definition, timeout, progress)
        if not isinstance(answer, CallState):
            return await self._read_result(sent, answer)
        pending = self._pending_call(sent, answer)
        try:
            passed = asyncio.get_running_loop().time() - start
            return await pending.reply(timeout=None if timeout is None else timeout - passed, progress=progress)
        except DeadlineError:
            await _cancel_quietly(pending)
            raise DeadlineError(f"{name} has not ended within {timeout:g} s, and was cancelled.") from None
        except PeerError:
            if pending.state.questions:  # which nobody will answer
                await _cancel_quietly(pending)
            raise
        except (ConnectionLostError, UnreachableError):
            raise
        except BaseException:
            await _cancel_quietly(pending)
            raise

    async def start(self, name: str, arguments: dict[str, JSON], definition: Definition | None) -> PendingCall:
        """Sends a call, and does not wait for its result if the server goes on with the call after its reply."""
        sent = _SentCall(name, arguments, None, self._call_key(name, arguments))
        answer = await self._request(sent, definition, as_promise=True)
        return self._pending_call(sent, answer if isinstance(answer, CallState) else ended_state(answer))

    def take_up(self, token: str) -> PendingCall:
        """Returns the call that a server knows by a token."""
        return self._pending_call(_SentCall("The call", {}, None, ""), CallState(token, "working"))

    def _pending_call(self, sent: "_SentCall", state: CallState) -> PendingCall:
        return PendingCall(
            sent.name,
            state,
            lambda: promise_protocol(self._connector),
            self._callbacks,
            functools.partial(self._read_result, sent),
            self.pages.value,
        )

    async def _request(
        self,
        sent: "_SentCall",
        definition: Definition | None,
        timeout: float | None = None,
        progress: OnProgress | None = None,
        *,
        as_promise: bool = False,
    ) -> dict[str, JSON] | CallState:
        """Returns the result of a call, or its state if the server goes on with it.

        Args:
            as_promise: whether to ask for a promise where the client decides that.
        """
        meta = self._request_meta(sent.want, sent.key)
        params: dict[str, JSON] = {"name": sent.name, "arguments": sent.arguments}
        server = self._connector.server
        support = "" if definition is None else definition.task_support
        as_task = server.takes_tasks and (support == "required" or (as_promise and support == "optional"))
        if as_task:
            params["task"] = {}
        may_repeat = definition is not None and definition.is_repeatable
        key = ""
        if server.idempotency_key and definition is not None and definition.gives_promises and not may_repeat:
            key = meta[server.idempotency_key] = secrets.token_urlsafe(_KEY_BYTES)
            may_repeat = True  # by the key the server recognizes a call that it has begun
        for attempt in range(2):
            try:
                raw = await self._connector.request(
                    "tools/call",
                    params,
                    meta,
                    repeatable=may_repeat,
                    timeout=timeout,
                    progress=progress,
                    parameter_headers=definition.parameter_headers
                    if definition is not None and self._connector.mirrors_arguments
                    else (),
                )
                break
            except (asyncio.CancelledError, DeadlineError):
                if key:  # the server goes on with a call that has a key, because its client may ask again
                    await _cancel_quietly(self._pending_call(sent, CallState(f"{KEY_PREFIX}{key}", "working")))
                raise
            except PeerError as error:
                if error.code in _STALE_DEFINITION_CODES:
                    self._lists.invalidate()
                if error.code != _HEADER_MISMATCH or definition is None or attempt:
                    raise
                # MCP 2026-07-28, "Client Behavior": on a header mismatch, fetch the definition again and retry once.
                definition = await self._lists.definition(sent.name)
        if as_task and "task" in raw:
            return parse_task(raw["task"])
        return parse_task(raw) if raw.get("resultType") == "task" and server.era is Era.MODERN else raw

    async def _read_result(self, sent: "_SentCall", raw: dict[str, JSON]) -> Reply:
        """Returns the reply with its complete value."""
        server = self._connector.server
        call = ToolCall(sent.name, sent.arguments)
        reply = Reply(raw, server.is_delta, call, self._max_bytes)
        self._lists.continue_tool = reply.delta_meta.get("tool", self._lists.continue_tool)
        if reply.delta_meta.get("form") == "table" and len(reply.text) > _LONG_TABLE_CHARS:
            await asyncio.to_thread(lambda: reply.value)  # the reply keeps it
        if "root" in reply.delta_meta:
            await self._resolve_value(reply, sent.key or _call_key(sent.name, sent.arguments))
        elif sent.want is not None and server.progressive is None and not reply.delta_meta:
            return await self._parts.fit(reply, sent.want)
        return reply

    def _call_key(self, name: str, arguments: dict[str, JSON]) -> str:
        return _call_key(name, arguments) if self._deltas and self._connector.server.progressive else ""

    def _request_meta(self, want: ResultPolicy | None, call_key: str) -> dict[str, JSON]:
        meta: dict[str, JSON] = dict(self._notifications.log_level_meta)
        policy: dict[str, JSON] = {} if want is None else msgspec.to_builtins(want)
        if call_key and policy.keys().isdisjoint(("since", "pack_root")):
            policy = {**policy, "pack_root": self._result_cache.root_for(call_key) or ""}
        if policy:
            meta[META_KEY] = policy
        return meta

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


async def _cancel_quietly(pending: PendingCall) -> None:
    """Cancels a call that nobody waits for any more; that it cannot be cancelled is no news to its program."""
    with suppress(ClientError, PeerError, TimeoutError):
        async with asyncio.timeout(_CANCEL_SECONDS):
            await pending.cancel()
