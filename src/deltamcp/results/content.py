"""Converts the return values of an author's functions into MCP results: tools, resources, prompts, completions."""

import sys
from collections.abc import Callable
from typing import Any

from msgspec import UNSET, DecodeError, Struct, UnsetType
from msgspec.structs import replace

from deltamcp.errors import ToolErrorCode
from deltamcp.results import document
from deltamcp.results.foreign_result import parse_tool_result
from deltamcp.values import (
    CONTENT_TYPES,
    JSON,
    BlobResource,
    Completion,
    Content,
    Contents,
    ErrorInfo,
    PromptMessage,
    PromptResult,
    RawResult,
    Text,
    TextResource,
    ToolResult,
)
from deltamcp.wire import jsonrpc
from deltamcp.work import Work, unlimited_work

_JSON_ONLY_TYPES = frozenset({dict, int, float, bool})
"""Types that can only be sent as JSON; tools mostly return these, apart from text."""
_SEQUENCE_TYPES = (list, tuple)
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
    """Convert a tool's return value into a tool result.

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
    """Convert a tool's return value as `tool_result` does, but keep a single text or JSON value as data.

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
        return ResultData(jsonrpc.encode_finite(value), value, value)
    if isinstance(value, str):
        return ResultData(_make_text(value).text)
    if value is None:
        return ToolResult([])
    if is_symbol_graph(value):
        from deltamcp.results import symbol_graphs

        return ResultData(symbol_graphs.graph_text(value), value=value)
    if isinstance(value, CONTENT_TYPES):
        return ToolResult(_check_content([value]))
    if isinstance(value, _SEQUENCE_TYPES) and value and all(isinstance(item, CONTENT_TYPES) for item in value):
        return ToolResult(_check_content(list(value)))
    if isinstance(value, _BYTES_TYPES):
        raise ValueError("the tool returned bytes; return Image, Audio or EmbeddedResource instead")
    return ResultData(jsonrpc.encode_finite(value), value=value)


def data_size(result: ResultData | ToolResult) -> int:
    """Return the size of a result's texts, in characters, or of its JSON, in bytes."""
    return len(result.data) if isinstance(result, ResultData) else sum(map(_text_size, result.content))


def _text_size(block: Any) -> int:
    text = block.get("text") if isinstance(block, dict) else getattr(block, "text", None)
    return len(text) if isinstance(text, str) else 0


def is_symbol_graph(value: Any) -> bool:
    """Whether the value is a GCF graph of symbols."""
    return isinstance(value, symbol_graph_type())


def symbol_graph_type() -> type | tuple[()]:
    """Return the type of GCF graphs; the empty tuple where the program has not imported GCF, to save its import."""
    graph = sys.modules.get("deltamcp.gcf.graph.model")
    return () if graph is None else graph.Payload


def is_self_describing(data: str | bytes) -> bool:
    """Whether a client that parses JSON objects and lists, and takes all else as text, reads the data correctly.

    Of a long text it is not known.
    """
    if not isinstance(data, str):
        return data[:1] in (b"{", b"[")
    return len(data) <= _PARSED_CHARS and parse_object_or_list(data, unlimited_work()) is UNSET


def json_or_text(text: str, work: Work) -> str | bytes:
    """Return a text that is a JSON object or list as JSON, and any other text unchanged."""
    return text if parse_object_or_list(text, work) is UNSET else text.encode()


def parse_object_or_list(text: str, work: Work) -> JSON | UnsetType:
    """Return the value of a text that is a JSON object or list; a text of very many values stays a text."""
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
    """Return a tool error: the message for the model, in which a question mark replaces each lone surrogate."""
    return ToolResult([Text(message.encode(errors="replace").decode())], is_error=True, error=error)


def server_error(
    message: str, code: ToolErrorCode, *, retryable: bool = False, details: dict[str, JSON] | None = None
) -> ToolResult:
    """Return a tool error that the server itself reports."""
    return error_result(message, ErrorInfo(code.value, retryable, details or {}, by_server=True))


def resource_contents(value: Any, uri: str, mime_type: str | None) -> Contents:
    """Convert a resource function's return value: text, bytes, JSON, or resource contents.

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
    """Convert a prompt function's return value: a text, a content block, a message, or a list of these.

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
    """Convert a completion function's return value; MCP allows at most 100 suggestions.

    Raises:
        ValueError: the value is not a list of text.
    """
    if isinstance(value, Completion):
        return value
    values = [_make_text(item).text for item in value]
    if len(values) <= 100:
        return Completion(values)
    return Completion(values[:100], total=len(values), has_more=True)
