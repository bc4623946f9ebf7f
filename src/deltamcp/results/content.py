"""Tool results: of the return values of functions, of the messages of other servers, and the one value in them.

The official SDK sends a list as one text for each item, and FastMCP as one text; both repeat it, and any text or
number, as `structuredContent: {"result": ...}`. Servers written by hand do so under names of their own: those of the
reference servers are `content` and `entities`. SDKs before structured content sent the texts alone.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias, cast

import msgspec
from msgspec import UNSET, DecodeError, Struct, UnsetType
from msgspec.structs import replace

from deltamcp.errors import ToolErrorCode
from deltamcp.results import document
from deltamcp.values import (
    CONTENT_TYPES,
    JSON,
    SERVER_KEY,
    Annotations,
    Audio,
    BlobResource,
    Completion,
    Content,
    Contents,
    EmbeddedResource,
    ErrorInfo,
    Image,
    PromptMessage,
    PromptResult,
    RawResult,
    ResourceLink,
    Text,
    TextResource,
    ToolResult,
)
from deltamcp.wire import jsonrpc
from deltamcp.work import Work, unlimited_work

_FlatContent: TypeAlias = Text | Image | Audio | ResourceLink


def parse_tool_result(fields: dict[str, JSON]) -> ToolResult:
    """Reads a result of `tools/call`."""
    raw_meta, structured = fields.get("_meta"), fields.get("structuredContent", msgspec.UNSET)
    # The server's identity must not reach a client of another server that passes this result on.
    meta = {key: raw_meta[key] for key in raw_meta if key != SERVER_KEY} if isinstance(raw_meta, dict) else {}
    blocks = fields.get("content")
    content = list(map(_parse_content, blocks)) if isinstance(blocks, list) else []
    return ToolResult(content, structured, fields.get("isError") is True, meta or None)


def _parse_content(item: Any) -> Content:
    """Converts a content block if the conversion loses nothing; else returns the object as the server sent it."""
    if not isinstance(item, dict):
        return Text(jsonrpc.encode(item).decode())
    if len(item) == 2 and item.get("type") == "text" and isinstance(item.get("text"), str):  # as most blocks are
        return Text(item["text"])
    try:
        content = _parse_embedded(item) if item.get("type") == "resource" else msgspec.convert(item, _FlatContent)
    except (msgspec.ValidationError, KeyError, TypeError):
        return cast(Content, item)
    return content if msgspec.to_builtins(content) == item else cast(Content, item)


def _parse_embedded(item: dict[str, JSON]) -> EmbeddedResource:
    resource = item["resource"]
    return EmbeddedResource(
        msgspec.convert(resource, BlobResource) if "blob" in resource else msgspec.convert(resource, TextResource),
        msgspec.convert(item.get("annotations"), Annotations | None),
        item.get("_meta"),
    )


_JSON_ONLY_TYPES = frozenset({dict, int, float, bool})
"""Types that can only be sent as JSON; tools mostly return these, apart from text."""
_SEQUENCE_TYPES = (list, tuple)
_CONTENT_CLASSES = frozenset(CONTENT_TYPES)
_BYTES_TYPES = (bytes, bytearray)
_PARSED_CHARS = 64 * 1024
"""Longer texts are not parsed only to learn whether they are JSON."""


class ResultData(Struct, frozen=True, gc=False):
    """A tool result that consists of one text or one JSON value."""

    data: str | bytes
    """Text as `str`, JSON as `bytes`."""
    structured: JSON | UnsetType = UNSET
    """The JSON value, where the tool's output schema promises structured content."""
    value: Any = None
    """The tool's return value, where available."""
    original_result: ToolResult | None = None
    """The `ToolResult` that the data was taken from, where an author or another server made one."""


NULL_DATA = ResultData(b"null")
"""The data of a tool that returned None, where a reply needs a value."""


def tool_result(value: Any, structured: Callable[[Any], JSON] | None) -> ToolResult:
    """Converts a tool's return value into a tool result.

    `structured` checks and converts the value where the tool has an output schema. The server sends text and content
    blocks unchanged, and anything else as compact JSON. With an output schema it sends the JSON in `structuredContent`
    too, because clients that validate read it there, and other clients read the text.

    Raises:
        ValueError: the value cannot be sent; the text says why.
    """
    if structured is None and type(value) in _JSON_ONLY_TYPES:
        return ToolResult([Text(jsonrpc.encode_finite(value).decode())])
    converted = convert_return_value(value, structured)
    if isinstance(converted, ToolResult):
        return converted
    text = converted.data if isinstance(converted.data, str) else converted.data.decode()
    return ToolResult([Text(text)], structured=converted.structured)


def convert_return_value(value: Any, structured: Callable[[Any], JSON] | None) -> ResultData | ToolResult:
    """Converts a tool's return value as `tool_result` does, but keep a single text or JSON value as data.

    The caller can then send a part of the data, or its changes.

    Raises:
        ValueError: the value cannot be sent; the text says why.
    """
    if isinstance(value, ToolResult):
        return _check_tool_result(value, structured)
    if isinstance(value, RawResult):  # its server has checked it
        return parse_tool_result(value.fields)
    if structured is not None:
        value = structured(value)
        data = jsonrpc.encode_finite(value)
        return ResultData(_make_text(value).text if isinstance(value, str) else data, value, value)
    if isinstance(value, str):
        return ResultData(_make_text(value).text)
    if value is None:
        return ToolResult([])
    if is_symbol_graph(value):
        from deltamcp.results import symbol_graphs

        return ResultData(symbol_graphs.graph_text(value), value=value)
    if isinstance(value, CONTENT_TYPES):
        return ToolResult(_check_content([value]))
    if isinstance(value, _SEQUENCE_TYPES) and _has_content(value):
        return ToolResult(_check_content([_as_content(item) for item in value]))
    if isinstance(value, _BYTES_TYPES):
        raise ValueError("the tool returned bytes; return Image, Audio or EmbeddedResource instead")
    return ResultData(jsonrpc.encode_finite(value), value=value)


def _has_content(items: Sequence[Any]) -> bool:
    return bool(items) and (isinstance(items[0], CONTENT_TYPES) or not _CONTENT_CLASSES.isdisjoint(map(type, items)))


def _as_content(item: Any) -> Content:
    """Returns an item of a list in which there is content: a text as text, any other value as its JSON.

    Raises:
        ValueError: the item cannot be sent.
    """
    if isinstance(item, CONTENT_TYPES):
        return item
    return _make_text(item if isinstance(item, str) else jsonrpc.encode_finite(item).decode())


def data_size(result: ResultData | ToolResult) -> int:
    """Returns the size of a result's texts, in characters, or of its JSON, in bytes."""
    return len(result.data) if isinstance(result, ResultData) else sum(map(_text_size, result.content))


def _text_size(block: Any) -> int:
    text = block.get("text") if isinstance(block, dict) else getattr(block, "text", None)
    return len(text) if isinstance(text, str) else 0


def is_symbol_graph(value: Any) -> bool:
    """Whether the value is a GCF graph of symbols."""
    return isinstance(value, symbol_graph_type())


def symbol_graph_type() -> type | tuple[()]:
    """Returns the type of GCF graphs; the empty tuple where the program has not imported GCF, to save its import."""
    graph = sys.modules.get("deltamcp.gcf.graph_model")
    return () if graph is None else graph.Payload


def is_self_describing(data: str | bytes) -> bool:
    """Whether a client that parses JSON objects and lists, and takes all else as text, reads the data correctly.

    Of a long text it is not known.
    """
    if not isinstance(data, str):
        return data[:1] in (b"{", b"[")
    return len(data) <= _PARSED_CHARS and parse_object_or_list(data, unlimited_work()) is UNSET


def json_or_text(text: str, work: Work) -> str | bytes:
    """Returns a text that is a JSON object or list as JSON, and any other text unchanged."""
    return text if parse_object_or_list(text, work) is UNSET else text.encode()


def parse_object_or_list(text: str, work: Work) -> JSON | UnsetType:
    """Returns the value of a text that is a JSON object or list; a text of very many values stays a text."""
    work.scan(len(text))
    if text.lstrip()[:1] not in ("{", "["):
        return UNSET
    try:
        return document.decode_counted(text.encode(), work)
    except (DecodeError, RecursionError, UnicodeEncodeError, document.TooManyValuesError):
        return UNSET


def _check_tool_result(value: ToolResult, structured: Callable[[Any], JSON] | None) -> ToolResult:
    if structured is not None and not value.is_error:
        if value.structured is UNSET:
            raise ValueError("the tool has an output schema but gave no structured content")
        value = replace(value, structured=structured(value.structured))
    jsonrpc.encode_finite((value.content, value.meta, None if value.structured is UNSET else value.structured))
    return value


def _make_text(value: str) -> Text:
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ValueError("the tool returned text with a lone surrogate") from None
    return Text(value)


def _check_content(content: list[Content]) -> list[Content]:
    jsonrpc.encode_finite(content)
    return content


def error_result(message: str, error: ErrorInfo | None = None) -> ToolResult:
    """Returns a tool error: the message for the model, in which a question mark replaces each lone surrogate."""
    return ToolResult([Text(message.encode(errors="replace").decode())], is_error=True, error=error)


def server_error(
    message: str, code: ToolErrorCode, *, retryable: bool = False, details: dict[str, JSON] | None = None
) -> ToolResult:
    """Returns a tool error that the server itself reports."""
    return error_result(message, ErrorInfo(code.value, retryable, details or {}, by_server=True))


def resource_contents(value: Any, uri: str, mime_type: str | None) -> Contents:
    """Converts a resource function's return value: text, bytes, JSON, or resource contents.

    Raises:
        ValueError: the value cannot be sent.
    """
    if isinstance(value, Contents):
        return value
    items = value if isinstance(value, list) and value and _are_contents(value) else [value]
    contents: list[TextResource | BlobResource] = []
    for item in items:
        if isinstance(item, TextResource | BlobResource):
            contents.append(item)
        elif isinstance(item, str):
            contents.append(TextResource(uri, _make_text(item).text, mime_type or "text/plain"))
        elif isinstance(item, _BYTES_TYPES):
            contents.append(BlobResource(uri, bytes(item), mime_type or "application/octet-stream"))
        else:
            contents.append(TextResource(uri, jsonrpc.encode_finite(item).decode(), mime_type or "application/json"))
    return Contents(contents)


def _are_contents(value: list[Any]) -> bool:
    return all(isinstance(item, TextResource | BlobResource) for item in value)


def prompt_result(value: Any, description: str | None) -> PromptResult:
    """Converts a prompt function's return value: a text, a content block, a message, or a list of these.

    Raises:
        ValueError: the value cannot be sent.
    """
    if isinstance(value, PromptResult):
        return value
    messages = [_prompt_message(item) for item in (value if isinstance(value, _SEQUENCE_TYPES) else [value])]
    return PromptResult(messages, description)


def _prompt_message(item: Any) -> PromptMessage:
    if isinstance(item, PromptMessage):
        return item
    if isinstance(item, CONTENT_TYPES):
        return PromptMessage("user", item)
    if isinstance(item, str):
        return PromptMessage("user", _make_text(item))
    raise ValueError(f"a prompt returned {type(item).__name__}; return text, content or PromptMessage")


def completion(value: Any) -> Completion:
    """Converts a completion function's return value; MCP allows at most 100 suggestions.

    Raises:
        ValueError: the value is not a list of text.
    """
    if isinstance(value, Completion):
        return value
    values = [_make_text(item).text for item in value]
    if len(values) <= 100:
        return Completion(values)
    return Completion(values[:100], total=len(values), has_more=True)


WRAPPER = "result"
"""The member by which SDKs make an object, which structured content has to be, of any other value."""


def single_data(result: ToolResult, work: Work, keeps_structure: bool) -> ResultData | None:
    """Returns the one text or JSON value that a tool result consists of; None where it has more.

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
    """Returns the texts of a result's blocks; None where a block is no text."""
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
    """Returns what an object wraps: its only member, by the name that SDKs give it or, beside one text, by any name."""
    if not isinstance(structured, dict) or len(structured) != 1:
        return UNSET
    [(name, inner)] = structured.items()
    return inner if name == WRAPPER or len(texts) == 1 else UNSET


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
    """Returns the items for which the official SDK makes a text each: lists in a list are opened, None has no text."""
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
