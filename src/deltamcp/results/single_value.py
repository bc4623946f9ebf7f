"""Finds the one value that a tool result consists of, however its server split and repeated it.

The official SDK sends a list as one text for each item, and FastMCP as one text; both repeat it, and any text or
number, as `structuredContent: {"result": ...}`. Servers written by hand do so under names of their own: those of the
reference servers are `content` and `entities`. SDKs before structured content sent the texts alone.
"""

from collections.abc import Iterator
from typing import Any

from msgspec import UNSET, DecodeError, UnsetType
from msgspec.structs import replace

from deltamcp.results import document
from deltamcp.results.content import ResultData, parse_object_or_list
from deltamcp.values import JSON, Text, ToolResult
from deltamcp.wire import jsonrpc
from deltamcp.work import Work

_WRAPPER = "result"
"""The member by which SDKs make an object, which structured content has to be, of any other value."""


def single_data(result: ToolResult, work: Work, keeps_structure: bool) -> ResultData | None:
    """Return the one text or JSON value that a tool result consists of; None where it has more.

    A text that is a JSON object or list counts as that value, because other servers send JSON that way. Structured
    content counts if it says what the texts say, and nothing else if there is none.

    Args:
        keeps_structure: Whether the caller expects the structured content as the server sent it. If not, a value that
            was wrapped is returned without its wrapper, and texts that are all objects are returned as their list.
    """
    texts = _texts(result)
    if texts is None:
        return None
    if result.structured is UNSET:
        return _data_of_texts(result, texts, work, keeps_structure)
    if _says(result.structured, texts, work):
        return _data_of_structure(result, result.structured, texts, work, keeps_structure)
    inner = _unwrap(result.structured, texts)
    if inner is UNSET or not _says(inner, texts, work):
        # Where there is no text, the structure is all that there is.
        return None if texts else _data_of_structure(result, result.structured, texts, work, keeps_structure)
    if keeps_structure:
        return _data_of_structure(result, result.structured, texts, work, keeps_structure)
    if isinstance(inner, str):
        return _data_of_texts(result, [inner], work, keeps_structure)
    return _data_of_structure(result, inner, texts, work, keeps_structure)


def _texts(result: ToolResult) -> list[str] | None:
    """Return the texts of a result's blocks; None where a block is no text."""
    texts: list[str] = []
    for block in result.content:
        text: Any = block.text if isinstance(block, Text) else None
        if isinstance(block, dict) and block.get("type") == "text":  # of another server, with members of its own
            text = block.get("text")
        if not isinstance(text, str):
            return None
        texts.append(text)
    return texts


def _data_of_texts(result: ToolResult, texts: list[str], work: Work, keeps_structure: bool) -> ResultData | None:
    original = result if keeps_structure else replace(result, structured=UNSET)
    if len(texts) == 1:
        value = parse_object_or_list(texts[0], work)
        return ResultData(texts[0] if value is UNSET else texts[0].encode(), original_result=original)
    if len(texts) < 2 or keeps_structure:
        return None
    if any(text.lstrip()[:1] != "{" or parse_object_or_list(text, work) is UNSET for text in texts):
        return None
    return ResultData(f"[{','.join(texts)}]".encode(), original_result=original)


def _data_of_structure(
    result: ToolResult, value: JSON, texts: list[str], work: Work, keeps_structure: bool
) -> ResultData:
    if keeps_structure:
        return ResultData(jsonrpc.encode(value), value, original_result=result)
    original = replace(result, structured=UNSET) if _is_clear_from(texts, value, work) else None
    return ResultData(jsonrpc.encode(value), original_result=original)


def _is_clear_from(texts: list[str], value: JSON, work: Work) -> bool:
    """Whether a reader of nothing but the texts, which say a value, knows the value.

    Of the official SDK's texts for a list, one item reads as if there were no list, and nulls and inner lists are gone.
    """
    if len(texts) == 1:
        return _is_value(texts[0], value, work)
    if not isinstance(value, list) or len(value) != len(texts) or len(value) < 2:
        return False
    return not any(
        item is None or isinstance(item, list) or (isinstance(item, str) and _is_json(item, work)) for item in value
    )


def _is_json(text: str, work: Work) -> bool:
    try:
        document.decode_counted(text.encode(), work)
    except (DecodeError, RecursionError, UnicodeEncodeError):
        return False
    except document.TooManyValuesError:
        pass
    return True


def _unwrap(structured: JSON, texts: list[str]) -> JSON | UnsetType:
    """Return what an object wraps: its only member, by the name that SDKs give it or, beside one text, by any name."""
    if not isinstance(structured, dict) or len(structured) != 1:
        return UNSET
    [(name, inner)] = structured.items()
    return inner if name == _WRAPPER or len(texts) == 1 else UNSET


def _says(value: JSON, texts: list[str], work: Work) -> bool:
    """Whether the texts are the value: in one text, or a list in one for each item."""
    if len(texts) == 1 and _is_value(texts[0], value, work):
        return True
    if not isinstance(value, list | None):
        return False
    items = list(_items(value, work))
    if len(items) != len(texts):
        return False
    return all(_is_value(text, item, work) for text, item in zip(texts, items, strict=True))


def _items(value: JSON, work: Work) -> Iterator[JSON]:
    """Return the items for which the official SDK makes a text each: lists in a list are opened, None has no text."""
    if isinstance(value, list):
        work.spend(len(value))
        for item in value:
            yield from _items(item, work)
    elif value is not None:
        yield value


def _is_value(text: str, value: JSON, work: Work) -> bool:
    if isinstance(value, str):
        work.scan(len(text))
        return text == value
    try:
        return _is_same(document.decode_counted(text.encode(), work), value)
    except (DecodeError, RecursionError, UnicodeEncodeError, document.TooManyValuesError):
        return False


def _is_same(value: JSON, other: JSON) -> bool:
    return value == other and _have_same_truths(value, other)


def _have_same_truths(value: JSON, other: JSON) -> bool:
    """Whether two values that Python takes for equal have true and false in the same places, not one and zero."""
    if isinstance(value, list) and isinstance(other, list):
        return all(map(_have_same_truths, value, other))
    if isinstance(value, dict) and isinstance(other, dict):
        return all(_have_same_truths(member, other[key]) for key, member in value.items())
    return isinstance(value, bool) == isinstance(other, bool)
