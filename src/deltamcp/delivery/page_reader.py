"""Reads several pages of a service's results for one call, and says which call returns the next one."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple

from msgspec import UNSET

from deltamcp.errors import ToolError
from deltamcp.results.content import convert_return_value, parse_object_or_list, parse_tool_result
from deltamcp.results.pages import (
    changed_arguments,
    join_pages,
    next_page_note,
    read_service_result,
    result_meta,
)
from deltamcp.values import JSON, RawResult, ServiceResult, Text, ToolResult
from deltamcp.wire import jsonrpc
from deltamcp.work import unlimited_work

_MAX_BYTES = 8 * 1024 * 1024
"""No more pages are asked for once those that are there have as much, which is the largest result of one request."""

CallOperation = Callable[[dict[str, JSON]], Awaitable[Any]]
"""Calls the same operation with other arguments, and returns what its function returns."""


class ReadPages(NamedTuple):
    """What came of a call that may have pages."""

    value: Any
    """The value of one page, or of all that were read."""
    notes: list[str]
    """What the model reads below the result."""
    meta: dict[str, JSON]
    """What a gateway reads of it."""


async def read_pages(
    first: ServiceResult, arguments: Mapping[str, JSON], wanted: int, may_follow: bool, call: CallOperation
) -> ReadPages:
    """Reads up to `wanted` pages, of which the first is there.

    A page that fails, or that is no JSON, ends the reading; what was read until then is the result.

    Args:
        arguments: Those of the first page.
        may_follow: Whether the caller may ask for several pages at once.
    """
    following, own_notes = first.next_arguments, [*first.notes]
    page = _json(first.value) if wanted > 1 and following is not None else UNSET
    pages: list[JSON] = [] if page is UNSET else [page]
    size = _size(page) if pages else 0
    asked: list[Mapping[str, JSON]] = [arguments]
    problem = ""
    while pages and len(pages) < wanted and following is not None and size < _MAX_BYTES and following not in asked:
        asked.append(following)
        try:
            value = await call(dict(following))
        except ToolError as error:
            problem = f"(Page {len(pages) + 1} could not be read: {error})"
            break
        answer = read_service_result(value) or ServiceResult(value)
        page = _json(answer.value)
        if page is UNSET:
            problem = f"(Page {len(pages) + 1} is no JSON.)"
            break
        pages.append(page)
        size += _size(page)
        following = answer.next_arguments
        own_notes += (note for note in answer.notes if note not in own_notes)
    if following in asked and not problem:
        following = None
    notes = [*own_notes, problem] if problem else own_notes
    lines = [] if len(pages) < 2 else [f"({len(pages)} pages{', all there are' if following is None else ''}.)"]
    changed = {} if following is None else changed_arguments(arguments, following)
    if changed:
        lines.append(next_page_note(changed, may_follow))
    page_note = "\n".join(lines)
    value = join_pages(pages) if len(pages) > 1 else first.value
    return ReadPages(value, [*notes, *([page_note] if page_note else [])], result_meta(notes, following, page_note))


def _json(value: Any) -> Any:
    """Returns a page as JSON; UNSET if it is none."""
    if isinstance(value, RawResult):
        value = parse_tool_result(value.fields)
    if isinstance(value, ToolResult):
        only = value.content[0] if len(value.content) == 1 else None
        if value.is_error or value.structured is not UNSET or not isinstance(only, Text):
            return UNSET
        return parse_object_or_list(only.text, unlimited_work())
    try:
        return UNSET if isinstance(convert_return_value(value, None), ToolResult) else value
    except ValueError:
        return UNSET


def _size(page: JSON) -> int:
    return len(jsonrpc.encode(page))
