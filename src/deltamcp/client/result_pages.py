"""Reads a result page by page and row by row, to its end; as the original Delta-MCP does, a server may number pages."""

import contextlib
from collections.abc import AsyncGenerator, Sequence
from typing import Any

from deltamcp.client.links.link import TotalSize
from deltamcp.client.lists import ServerLists
from deltamcp.client.part_reader import PartReader
from deltamcp.client.reply import Reply, call_failed_error
from deltamcp.client.tool_caller import ToolCaller
from deltamcp.errors import ClientError
from deltamcp.results.document import find_rows
from deltamcp.values import JSON
from deltamcp.wire import jsonrpc
from deltamcp.work import unlimited_work


class ResultPages:
    """The pages and rows of the results of one client's calls."""

    def __init__(self, calls: ToolCaller, lists: ServerLists, parts: PartReader, max_bytes: int) -> None:
        self._calls, self._lists, self._parts, self._max_bytes = calls, lists, parts, max_bytes

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
                reply = await self._calls.send(name, arguments, self._lists.cached_definition(name))
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
