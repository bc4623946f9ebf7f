"""Results that a service gives in pages: the rows of a page, several pages as one value, and what is said of the next.

A result says in `_meta` which arguments the call for the next page has, and which notes are below its text: a gateway
before the server reads both there, takes the notes off, and writes its own.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from deltamcp.results.content import parse_tool_result
from deltamcp.results.policy import META_KEY
from deltamcp.values import JSON, RawResult, ServiceResult, Text, ToolResult
from deltamcp.wire import jsonrpc

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
