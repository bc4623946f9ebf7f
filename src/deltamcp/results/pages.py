"""Results that a service gives in pages: several read for one call, as one value, and what is said of the next.

A result says in `_meta` which arguments the call for the next page has, and which notes are below its text: a gateway
before the server reads both there, takes the notes off, and writes its own.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple

from msgspec import UNSET
from msgspec.structs import replace

from deltamcp.errors import ToolError
from deltamcp.results.content import convert_return_value, parse_object_or_list, parse_tool_result
from deltamcp.results.policy import META_KEY
from deltamcp.values import JSON, RawResult, ServiceResult, Text, ToolResult
from deltamcp.wire import jsonrpc
from deltamcp.work import unlimited_work

PAGES_KEY = "io.github.delta-mcp/pages"
"""The key of `_meta`: in a definition, true where results may have pages; in a result, an object whose `next` has all
arguments of the call for the next page, and whose `note` is the text that says so below the result."""
NOTES_KEY = "io.github.delta-mcp/notes"
"""The key of a result's `_meta`: the other texts below the result, which are no part of it."""
MAX_PAGES = 20
"""The most pages of one call."""
_LIST_NAMES = ("items", "data", "results", "records", "entries", "values", "value", "rows", "list", "content", "hits")
_MAX_NEXT_CHARS = 1_000
"""A note with a longer cursor would cost more than the page."""


def main_list(value: JSON) -> tuple[str, ...] | None:
    """Returns the path of the rows of a page: empty if it is a list, the names of members that lead to its list.

    None if it has no list. Of several lists the one with a usual name is meant, else the longest.
    """
    if isinstance(value, list):
        return ()
    if not isinstance(value, dict):
        return None
    lists = {name: member for name, member in value.items() if isinstance(member, list)}
    if lists:
        usual = next((name for name in lists for one in _LIST_NAMES if name.lower() == one), None)
        return (usual if usual is not None else max(lists, key=lambda name: len(lists[name])),)
    for name, member in value.items():  # such as {"data": {"items": []}}
        if isinstance(member, dict) and any(isinstance(inner, list) for inner in member.values()):
            inner_path = main_list(member)
            return None if inner_path is None else (name, *inner_path)
    return None


def rows_at(value: JSON, path: Sequence[str]) -> list[JSON] | None:
    """Returns the list at a path; None if there is none."""
    for name in path:
        if not isinstance(value, dict):
            return None
        value = value.get(name)
    return value if isinstance(value, list) else None


def join_pages(pages: Sequence[JSON]) -> JSON:
    """Returns pages as one value: the last one with the rows of all; a list of the pages if they have no rows."""
    path = main_list(pages[0])
    rows = None if path is None else [rows_at(page, path) for page in pages]
    if path is None or rows is None or not all(isinstance(one, list) for one in rows):
        return [*pages]
    joined: list[JSON] = [row for one in rows if one is not None for row in one]
    return _with_list(pages[-1], path, joined)


def _with_list(value: JSON, path: Sequence[str], rows: list[JSON]) -> JSON:
    if not path:
        return rows
    assert isinstance(value, dict), "the path leads through objects"
    return {**value, path[0]: _with_list(value[path[0]], path[1:], rows)}


def next_page_note(changed: Mapping[str, JSON], may_follow: bool) -> str:
    """Writes the note that names the call for the next page by the arguments that differ."""
    shown = jsonrpc.encode({**changed}).decode()
    more = "; pages=N reads N at once" if may_follow else ""
    if len(shown) > _MAX_NEXT_CHARS:
        return f"(There are more pages, behind a cursor too long to show{more}.)"
    return f"(Next page: the same call with {shown}{more}.)"


def read_service_result(value: Any) -> ServiceResult | None:
    """Returns a function's value as that of a service, if it says something about pages or has notes.

    Of another server's result the value is that result without its notes.
    """
    if isinstance(value, ServiceResult):
        return value
    if not isinstance(value, RawResult):
        return None
    meta = value.fields.get("_meta")
    if not isinstance(meta, dict) or (PAGES_KEY not in meta and NOTES_KEY not in meta):
        return None
    told, noted = meta.get(PAGES_KEY), meta.get(NOTES_KEY)
    pages: dict[str, Any] = told if isinstance(told, dict) else {}
    following, page_note = pages.get("next"), pages.get("note")
    notes = [one for one in noted if isinstance(one, str)] if isinstance(noted, list) else []
    result = _without_notes(parse_tool_result(value.fields), [*notes, *([page_note] if page_note else [])])
    return ServiceResult(result, following if isinstance(following, dict) else None, tuple(notes))


def result_meta(notes: Sequence[str], following: Mapping[str, JSON] | None, page_note: str) -> dict[str, JSON]:
    """Returns what `read_service_result` reads in the `_meta` of a result."""
    pages: dict[str, JSON] = {} if following is None else {"next": {**following}}
    if page_note:
        pages["note"] = page_note
    return {**({PAGES_KEY: pages} if pages else {}), **({NOTES_KEY: [*notes]} if notes else {})}


def _without_notes(result: ToolResult, notes: Sequence[JSON]) -> ToolResult:
    """Returns a result without the notes at its end, and without what `_meta` says of them."""
    blocks = list(result.content)
    for note in reversed(notes):
        last = blocks[-1] if blocks else None
        if not isinstance(last, Text):
            break
        if not isinstance(note, str):
            continue
        if last.text == note:
            blocks.pop()
        elif last.text.endswith(f"\n{note}"):
            blocks[-1] = replace(last, text=last.text.removesuffix(f"\n{note}"))
    left_out = (META_KEY, PAGES_KEY, NOTES_KEY)
    meta = {key: member for key, member in (result.meta or {}).items() if key not in left_out}
    return replace(result, content=blocks, meta=meta or None)


def changed_arguments(arguments: Mapping[str, JSON], following: Mapping[str, JSON]) -> dict[str, JSON]:
    """Returns the arguments of a call that differ from those of another."""
    return {name: value for name, value in following.items() if name not in arguments or arguments[name] != value}


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
