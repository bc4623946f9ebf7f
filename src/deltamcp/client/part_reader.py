"""Reads parts of results, and all of a result part by part: from the server that has it whole, or from this client.

This client cuts the results of servers that do not know Delta-MCP, and keeps them for a while.
"""

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

from msgspec import UNSET
from msgspec.structs import replace

from deltamcp.client.connector import Connector
from deltamcp.client.links.link import DEFAULT_MAX_BYTES, TotalSize
from deltamcp.client.lists import ServerLists
from deltamcp.client.reply import Reply
from deltamcp.delivery.continuation import Continuation
from deltamcp.delivery.stored_results import UNSCOPED, StoredResults
from deltamcp.errors import ArgumentsError, ResultLostError, UsageError
from deltamcp.limits import Limits
from deltamcp.results.content import ResultData
from deltamcp.results.document import parse_path
from deltamcp.results.policy import META_KEY, RequestPolicy, ResultPolicy, resolve_policy
from deltamcp.results.shown_result import FirstReply
from deltamcp.results.window import RAW_PREFIX
from deltamcp.runtime.threads import Computations
from deltamcp.stores.memory import MemoryStore
from deltamcp.values import JSON, LOCAL, Caller
from deltamcp.wire import jsonrpc

_MAX_HANDLES = 10_000
_CALLER = Caller(LOCAL)
ContinueCall: TypeAlias = Callable[[dict[str, JSON]], Awaitable[Reply]]
"""Calls the server's `continue` tool with these arguments."""

_MIN_PART_BYTES = 1024
"""The size that a part counts at least, so that a result in endless small parts ends, too."""


class PartReader:
    """The parts of results that have a handle."""

    def __init__(self, connector: Connector, lists: ServerLists, max_bytes: int) -> None:
        self._connector, self._lists, self._max_bytes = connector, lists, max_bytes
        self._local_results: LocalResults | None = None

    async def fit(self, reply: Reply, want: ResultPolicy) -> Reply:
        """Cuts a reply to the limits in `want`, and keeps the complete result."""
        if self._local_results is None:
            self._local_results = LocalResults()
        return await self._local_results.fit(reply, want)

    async def read_on(self, arguments: dict[str, JSON]) -> Reply:
        """Returns the part that the arguments of `continue` select.

        Raises:
            ArgumentsError: the handle has expired, or the result has no such part.
        """
        if self._local_results is not None and self._local_results.has_handle(str(arguments["handle"])):
            return await self._local_results.read_on(arguments)
        params = {"name": await self._lists.continue_tool_name(), "arguments": arguments}
        reply = Reply(await self._connector.request("tools/call", params), max_bytes=self._max_bytes)
        if reply.is_error:
            raise ArgumentsError(reply.text)
        return reply

    async def read_all(self, handle: str) -> JSON:
        """Returns the complete result that the server stores under a handle.

        Raises:
            ResultLostError: the result cannot be read.
        """
        return await read_all(handle, self.read_on, self._max_bytes)

    async def recover(self, first: Reply) -> JSON:
        """Returns the complete result of which `first` is the first reply.

        Raises:
            ResultLostError: the rest of the result cannot be read.
        """
        return await recover(first, self.read_on, self._max_bytes)


class LocalResults:
    """Applies a Delta-MCP server's result pipeline in the client."""

    def __init__(self) -> None:
        limits = Limits()
        stored = StoredResults(MemoryStore(), limits, "client", "client", "read_on")
        self._continuation = Continuation(stored, Computations(limits.work_steps))
        self._handles: OrderedDict[str, None] = OrderedDict()

    async def fit(self, reply: Reply, want: ResultPolicy) -> Reply:
        """Returns a reply that shows as much of the result as the policy allows.

        A reply that was a part stays one: `rest` in its `_meta` says that there is more on the server.
        """
        if reply.is_error:  # a failure is shown as it is, whatever was asked of the result
            want = replace(want, fields=None, **({"grep": None} if isinstance(want, RequestPolicy) else {}))
        result, policy = reply.result(), replace(resolve_policy(want), fields_requested=True)
        if len(reply.content) > 1 or (reply.content and not reply.texts and result.structured is UNSET):
            fitted = Reply.of(
                await self._continuation.first_reply_of_blocks(result, policy, _CALLER, UNSCOPED, promised=False)
            )
        else:
            value = reply.value
            data = value if isinstance(value, str) else jsonrpc.encode(value)
            fitted = Reply.of(
                await self._continuation.first_reply(
                    FirstReply(ResultData(data, value=value), policy), _CALLER, UNSCOPED
                )
            )
        if isinstance(fitted.delta_meta.get("handle"), str):
            self._handles[fitted.delta_meta["handle"]] = None
            if len(self._handles) > _MAX_HANDLES:
                self._handles.popitem(last=False)
        if reply.is_error:
            fitted.raw["isError"] = True
        if not reply.is_part or reply.selects_all:
            return fitted
        meta = fitted.raw.get("_meta", {})
        marked = {**meta, META_KEY: {**meta.get(META_KEY, {}), "rest": "not stored"}}
        return Reply({**fitted.raw, "_meta": marked})

    def has_handle(self, handle: str) -> bool:
        return handle in self._handles

    async def read_on(self, arguments: Mapping[str, JSON]) -> Reply:
        """Returns the part of a stored result that the arguments of `continue` select.

        Raises:
            ArgumentsError: the handle has expired, or the arguments select nothing.
        """
        try:
            return Reply.of(await self._continuation.next_reply(arguments, _CALLER))
        except UsageError as error:
            raise ArgumentsError(str(error)) from None


class _PendingValue(NamedTuple):
    """The path of a value that is still to be read, and the container and key to put it under."""

    path: str
    container: Any
    key: str | int


async def recover(first: Reply, continue_call: ContinueCall, max_bytes: int = DEFAULT_MAX_BYTES) -> JSON:
    """Returns the complete result of which `first` is the first reply.

    Raises:
        ResultLostError: the rest of the result cannot be read.
        ClientError: the result is larger than `max_bytes`.
    """
    if not first.is_part:
        return first.value
    handle = first.delta_meta.get("handle")
    if handle is None or "rest" in first.delta_meta:
        raise ResultLostError("the server sent a part, and no handle to read the rest by")
    return first.whole(await read_all(str(handle), continue_call, max_bytes))


async def read_all(handle: str, continue_call: ContinueCall, max_bytes: int = DEFAULT_MAX_BYTES) -> JSON:
    """Returns the complete result that the server stores under a handle.

    Raises:
        ResultLostError: the result cannot be read.
        ClientError: the result is larger than `max_bytes`.
    """
    total = TotalSize("The result", max_bytes)
    result: list[JSON] = [None]
    # A list instead of recursion: values may be nested deeper than Python's recursion limit.
    pending_values = [_PendingValue("", result, 0)]
    while pending_values:
        pending = pending_values.pop()
        reader = _ValueReader(pending.path)
        while reader.arguments is not None:
            reply = await continue_call({"handle": handle, **reader.arguments})
            total.add(reply.text.encode(errors="replace"), _MIN_PART_BYTES)
            reader.add_reply(reply)
        pending.container[pending.key] = reader.value
        pending_values += reader.missing
    return result[0]


class _ValueReader:
    """Reads one value window by window; `missing` lists the values in it that were too large for their window."""

    def __init__(self, path: str) -> None:
        self.value: Any = None
        self.missing: list[_PendingValue] = []
        self.arguments: dict[str, JSON] | None = {"path": path, "offset": 0}
        """The arguments of the next `continue`; None when the value is complete."""
        self._path = path
        self._texts: list[str] = []

    def add_reply(self, reply: Reply) -> None:
        assert self.arguments is not None, "the value is not complete"
        meta = reply.delta_meta
        if not {"unit", "start", "end", "total"} <= meta.keys():
            raise ResultLostError(f"{self._path[:200]!r}, {self.arguments['offset']}: {reply.text[:200]}")
        unit, start, end, total = meta["unit"], meta["start"], meta["end"], meta["total"]
        raw = unit == "JSON characters"
        if raw and self.arguments["path"] == self._path:
            # The value has no rows or keys to show in windows; the server sends the text of its JSON instead.
            self._texts, self.arguments = [], {"path": RAW_PREFIX + self._path, "offset": 0}
        if start != self.arguments["offset"] or not start <= end <= total or start == end < total:
            raise ResultLostError(
                f"{self._path[:200]!r}, {self.arguments['offset']}: answered by {start}-{end} of {total}"
            )
        if raw or unit == "characters":
            self._texts.append(_first_text(reply) if end > start else "")
        elif unit in ("rows", "keys"):
            self._append_part(reply.decode(_first_text(reply)), meta)
        else:
            raise ResultLostError(f"{self._path[:200]!r} is shown in the unknown unit {unit!r}")
        if end < total:
            self.arguments = {**self.arguments, "offset": end}
            return
        self.arguments = None
        if raw:
            self.value, self.missing = reply.decode("".join(self._texts)), []
        elif unit == "characters":
            self.value = "".join(self._texts)

    def _append_part(self, part: Any, meta: dict[str, Any]) -> None:
        if self.value is None:
            self.value = part
        elif isinstance(part, list):
            self.value += part
        else:
            self.value |= part
        if len(self.value) != meta["end"]:
            raise ResultLostError(f"{self._path[:200]!r}: {len(self.value)} {meta['unit']} instead of {meta['end']}")
        for cut in {"/" + cut.split("/")[1] for cut in meta.get("cuts", ())}:
            (step,) = parse_path(cut)
            self.missing.append(
                _PendingValue(self._path + cut, self.value, int(step) if isinstance(part, list) else step)
            )


def _first_text(reply: Reply) -> str:
    if not reply.texts:
        raise ResultLostError("a reply without a text")
    return reply.texts[0]
