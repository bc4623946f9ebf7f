"""Long results, read page by page: the first is the answer, the others are kept for `continue`."""

from collections.abc import Mapping

from deltamcp import tokens
from deltamcp.catalog.discovery import UnfitError
from deltamcp.limits import Limits
from deltamcp.results.pages import pages
from deltamcp.stores.memory import MemoryStore
from deltamcp.values import JSON, Principal, Text, ToolResult


class Reading:
    """What callers have begun to read."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._kept = MemoryStore(limits)

    def begin(self, result: ToolResult, principal: Principal, tool: str) -> ToolResult:
        """A result, or the first page of a text that is too long; `tool` is what reads on."""
        texts = [item.text for item in result.content if isinstance(item, Text)]
        # A token has at least one byte, so short texts need no counting.
        short = sum(len(text.encode()) for text in texts) <= self._limits.long_result_tokens
        if short or len(texts) != len(result.content):
            return result
        text = "\n".join(texts)
        if tokens.count(text) <= self._limits.long_result_tokens:
            return result
        parts = pages(text, self._limits.result_page_tokens)
        return _page(parts, 1, self._kept.put(principal.id, parts), tool)

    def go_on(self, arguments: Mapping[str, JSON], principal: Principal, tool: str) -> ToolResult:
        """
        Raises:
            UnfitError: there is nothing to read on in, or no such page.
        """
        name, page = arguments.get("session_id"), arguments.get("page")
        if not isinstance(name, str):
            raise UnfitError("session_id must be the text that the page before gave.")
        kept = self._kept.get(principal.id, name)
        if kept is None:
            raise UnfitError("Nothing is kept under this session_id any more; execute the operation again.")
        if page is None:
            page = min(kept.read + 1, len(kept.pages))
        if type(page) is not int or not 1 <= page <= len(kept.pages):
            raise UnfitError(f"page must be a number from 1 to {len(kept.pages)}.")
        kept.read = page
        return _page(kept.pages, page, name, tool)


def _page(pages: list[str], page: int, name: str, tool: str) -> ToolResult:
    rest = f'. {tool}(session_id="{name}", page={page + 1}) reads on' if page < len(pages) else ", the last"
    return ToolResult([Text(pages[page - 1]), Text(f"[Page {page} of {len(pages)}{rest}.]")])
