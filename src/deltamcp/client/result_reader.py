"""Reads parts of results, and all of a result: part by part from the server that has it whole, or page by page.

This client cuts the results of servers that do not know Delta-MCP, and keeps them for a while. A server that numbers
its pages, as the original Delta-MCP does, is asked for one after the other.
"""

import contextlib
from collections import OrderedDict
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from msgspec import UNSET
from msgspec.structs import replace

from deltamcp.client.connector import Connector
from deltamcp.client.links.link import DEFAULT_MAX_BYTES, TotalSize
from deltamcp.client.lists import Definition, ServerLists
from deltamcp.client.reply import Reply, call_failed_error
from deltamcp.delivery.continuation import Continuation
from deltamcp.delivery.stored_results import UNSCOPED, StoredResults
from deltamcp.errors import ArgumentsError, ClientError, ResultLostError, UsageError
from deltamcp.limits import Limits
from deltamcp.results.content import ResultData
from deltamcp.results.document import find_rows, parse_path
from deltamcp.results.policy import META_KEY, RequestPolicy, ResultPolicy, resolve_policy
from deltamcp.results.shown_result import FirstReply
from deltamcp.results.window import RAW_PREFIX
from deltamcp.runtime.threads import Computations
from deltamcp.stores.store import MemoryStore
from deltamcp.values import JSON, LOCAL, Caller
from deltamcp.wire import jsonrpc
from deltamcp.work import unlimited_work

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


SendCall: TypeAlias = Callable[[str, dict[str, JSON], Definition | None], Awaitable[Reply]]
"""Calls a tool with these arguments."""


class ResultPages:
    """The pages and rows of the results of one client's calls."""

    def __init__(self, send: SendCall, lists: ServerLists, parts: PartReader, max_bytes: int) -> None:
        self._send, self._lists, self._parts, self._max_bytes = send, lists, parts, max_bytes

    async def value(self, name: str, reply: Reply) -> JSON:
        """Returns the complete value of a reply to a call of the named tool; the reply if the rest cannot be read.

        Of a page that the call asked for by its number, the value is the rows of this page; of a query that the call's
        arguments hold, what it selects.

        Raises:
            CallFailedError: the tool reported an error.
        """
        if reply.is_error:
            raise call_failed_error(name, reply)
        if not reply.is_part or reply.selects_all:
            return reply.value
        if reply.is_page and requested_page(reply) is not None:
            return await self._page_rows(reply)
        return await self.whole(reply) if reply.handle is not None or self._may_repeat(reply) else reply

    async def whole(self, reply: Reply) -> JSON:
        """Returns the complete value of a reply, reading the parts that the reply does not show.

        Raises:
            ResultLostError: the rest of the result cannot be read.
        """
        if reply.call is not None and reply.handle is None and self._may_repeat(reply):
            total = TotalSize(f"The result of {reply.call.name}", self._max_bytes)
            rows = []
            async for row in self.rows_from(reply, reply.call.name):
                total.add(jsonrpc.encode(row))
                rows.append(row)
            return rows
        return await self._parts.recover(reply)

    async def _page_rows(self, page: Reply) -> JSON:
        """Returns the rows of a page, each of them complete."""
        if not page.has_cut_rows:
            return page.value
        start = rows_before(page)
        return _result_rows(await self.whole(page))[start : start + len(page.value)]

    def _may_repeat(self, reply: Reply) -> bool:
        """Whether a reply is a first page, and the call may be repeated for every further page."""
        definition = None if reply.call is None else self._lists.cached_definition(reply.call.name)
        is_first = reply.is_page and not rows_before(reply)
        return is_first and definition is not None and definition.is_repeatable

    async def pages_from(self, reply: Reply, name: str) -> AsyncGenerator[Reply, None]:
        """Yields a reply to a call of the named tool, and the pages after it."""
        while True:
            if reply.is_error:
                raise call_failed_error(name, reply)
            yield reply
            meta, previous = reply.delta_meta, reply
            if reply.handle is not None and meta.get("unit") == "rows" and meta["end"] < meta["total"]:
                reply = await self._parts.read_on({"handle": reply.handle, "offset": meta["end"]})
                if reply.delta_meta.get("unit") != "rows" or reply.delta_meta["end"] <= meta["end"]:
                    raise _unreadable_rows_error(name, f"the rows from {meta['end']} on", "earlier ones")
            elif has_next(reply) and reply.call is not None:
                requested = page_number(reply) + 1
                # The original Delta-MCP takes the page number as an argument that the tool's schema need not have.
                arguments = {**reply.call.arguments, "page": requested}
                reply = await self._send(name, arguments, self._lists.cached_definition(name))
                if not (reply.is_page or reply.is_part or reply.is_error):
                    raise _unreadable_rows_error(name, f"page {requested}", "something else than a page")
                if repeats(reply, previous):
                    number = reply.shape.get("page")
                    sent = "the same rows again" if number in (None, requested) else f"page {number}"
                    raise _unreadable_rows_error(name, f"page {requested}", sent)
            else:
                return

    async def rows_from(self, reply: Reply, name: str) -> AsyncGenerator[JSON, None]:
        """Yields the rows of a reply to a call of the named tool, and of the pages after it."""
        read = rows_before(reply)
        async with contextlib.aclosing(self.pages_from(reply, name)) as pages:
            async for page in pages:
                is_of_rows = not page.is_part or page.is_page or page.delta_meta.get("unit") == "rows"
                if not is_of_rows or page.has_cut_rows:
                    for row in _result_rows(await self._parts.recover(page))[read:]:
                        yield row
                    return
                for row in _result_rows(page.value):
                    read += 1
                    yield row


def _unreadable_rows_error(name: str, requested: str, sent: str) -> ClientError:
    return ClientError(
        f"{name}: the server was asked for {requested} and sent {sent}, so its rows cannot be read to their end; "
        "call the tool with the page you want."
    )


def _result_rows(value: Any) -> Sequence[JSON]:
    if isinstance(value, list):
        return value
    path = find_rows(jsonrpc.encode(value), None, unlimited_work(), value) if isinstance(value, dict) else None
    for step in path or ():
        value = value[step]
    return value if isinstance(value, list) else [value]


def page_number(reply: Reply) -> int:
    """Returns the number of a page: the one that the reply states, else the one that its call requested."""
    for number in (reply.shape.get("page"), requested_page(reply)):
        if isinstance(number, int):
            return number
    return 1


def requested_page(reply: Reply) -> JSON:
    """Returns the page that a call requested; None if it requested none."""
    return None if reply.call is None else reply.call.arguments.get("page")


def rows_before(reply: Reply) -> int:
    """Returns the number of rows on the pages before a page; 0 for any other reply."""
    if not reply.is_page:
        return 0
    size = reply.shape.get("pageSize")
    return (page_number(reply) - 1) * (size if isinstance(size, int) else len(reply.shape["items"]))


def has_next(reply: Reply) -> bool:
    """Whether a reply is a page after which there is another."""
    return reply.is_page and reply.shape.get("hasMore") is True


def repeats(page: Reply, previous: Reply) -> bool:
    """Whether a page is not the page after the previous one, but that page again.

    Two pages of equal rows may have the same items; their numbers then show that they are two pages.
    """
    if not page.is_page:
        return False
    number, total = page.shape.get("page"), page.shape.get("totalPages")
    if isinstance(number, int) and number != page_number(previous) + 1:
        return True
    is_numbered = isinstance(number, int) and isinstance(total, int) and number <= total
    is_same_list = is_numbered and total == previous.shape.get("totalPages")
    return not is_same_list and page.shape["items"] == previous.shape["items"]
