"""Long results, read page by page: the first is the answer, the others are kept for `continue`."""

from collections.abc import Mapping

from msgspec import UNSET
from msgspec.structs import replace

from deltamcp import tokens
from deltamcp.catalog.meta_tools import UnfitError
from deltamcp.limits import Limits
from deltamcp.results.pages import pages
from deltamcp.stores.memory import MemoryStore
from deltamcp.values import JSON, Content, Principal, Text, ToolResult


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
        name = self._kept.put(principal.id, parts, result.is_error)
        # Beside a page of it the whole structure would be sent after all.
        return replace(result, content=_content(parts, 1, name, tool), structured=UNSET)

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
        return ToolResult(_content(kept.pages, page, name, tool), is_error=kept.is_error)


def _content(pages: list[str], page: int, name: str, tool: str) -> list[Content]:
    rest = f'. {tool}(session_id="{name}", page={page + 1}) reads on' if page < len(pages) else ", the last"
    return [Text(pages[page - 1]), Text(f"[Page {page} of {len(pages)}{rest}.]")]
