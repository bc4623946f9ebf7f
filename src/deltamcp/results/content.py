"""What an author's function returned, as the content a client is shown."""

import sys
from collections.abc import Callable
from typing import Any

from msgspec import UNSET, DecodeError, Struct, UnsetType
from msgspec.json import decode as _decode
from msgspec.structs import replace

from deltamcp.values import (
    CONTENT_TYPES,
    JSON,
    BlobResource,
    Completion,
    Content,
    Contents,
    PromptMessage,
    PromptResult,
    Text,
    TextResource,
    ToolResult,
)
from deltamcp.wire import jsonrpc

_JSON_ONLY_TYPES = frozenset({dict, int, float, bool})
"""What is JSON and nothing else: most of what tools return, apart from text."""
_SEQUENCE_TYPES = (list, tuple)
_BYTES_TYPES = (bytes, bytearray)


class ResultData(Struct, frozen=True, gc=False):
    """A result that is one text, or one JSON value."""

    data: str | bytes
    """Text as `str`, JSON as `bytes`."""
    structured: JSON | UnsetType = UNSET
    """The value again, where an output schema promises it."""
    value: Any = None
    """What was returned, where it is still at hand."""
    original_result: ToolResult | None = None
    """The reply made by hand, or by another server, that it is out of."""


NULL_DATA = ResultData(b"null")
"""What a function returned that returned nothing, where that has to be said."""


def tool_result(value: Any, structured: Callable[[Any], JSON] | None) -> ToolResult:
    """A tool's return value as a whole reply. `structured` checks and converts it where the tool has an output schema.

    Text is sent as it is and content as content; anything else is compact JSON, once. With an output
    schema the JSON goes into `structuredContent` too, because peers that validate need it there and
    peers that do not read the text.

    Raises:
        ValueError: the value cannot be sent; the text says why.
    """
    if structured is None and type(value) in _JSON_ONLY_TYPES:
        return ToolResult([Text(jsonrpc.encode_finite(value).decode())])
    made = convert_return_value(value, structured)
    if isinstance(made, ToolResult):
        return made
    text = made.data if isinstance(made.data, str) else made.data.decode()
    return ToolResult([Text(text)], structured=made.structured)


def convert_return_value(value: Any, structured: Callable[[Any], JSON] | None) -> ResultData | ToolResult:
    """The same before it is made a reply, for those who may not send all of it.

    Raises:
        ValueError: the value cannot be sent; the text says why.
    """
    if isinstance(value, ToolResult):
        return _check_tool_result(value, structured)
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


def is_symbol_graph(value: Any) -> bool:
    """Whether it is a graph of symbols, which goes out as GCF."""
    return isinstance(value, symbol_graph_type())


def symbol_graph_type() -> type | tuple[()]:
    """What graphs of symbols are; nothing where nobody has imported it, who need not wait for that either."""
    graph = sys.modules.get("deltamcp.gcf.graph.model")
    return () if graph is None else graph.Payload


def single_data(result: ToolResult) -> ResultData | None:
    """The one text or JSON value that a reply made by hand consists of; None where it is more than that.

    A text that is a JSON object or list is that value: servers of others have no other way to send one. Structured
    content that says the same as the text is sent because an output schema promises it.
    """
    if not result.content and result.structured is not UNSET:
        return ResultData(jsonrpc.encode(result.structured), result.structured, original_result=result)
    text = _only_text(result)
    if text is None:
        return None
    value = _parse_object_or_list(text)
    if result.structured is UNSET:
        return ResultData(text if value is UNSET else text.encode(), original_result=result)
    if value is UNSET or value != result.structured:
        return None
    return ResultData(text.encode(), result.structured, original_result=result)


def _only_text(result: ToolResult) -> str | None:
    if len(result.content) != 1:
        return None
    block: Any = result.content[0]
    if isinstance(block, dict):  # as a server of others sent it
        text = block.get("text") if block.get("type") == "text" else None
        return text if isinstance(text, str) else None
    return block.text if isinstance(block, Text) else None


def is_self_describing(data: str | bytes) -> bool:
    """Whether a program that reads JSON objects and lists as values, and all else as text, takes it for what it is."""
    return _parse_object_or_list(data) is UNSET if isinstance(data, str) else data[:1] in (b"{", b"[")


def json_or_text(text: str) -> str | bytes:
    """A text as JSON, where it is an object or a list."""
    return text if _parse_object_or_list(text) is UNSET else text.encode()


def _parse_object_or_list(text: str) -> JSON | UnsetType:
    if text.lstrip()[:1] not in ("{", "["):
        return UNSET
    try:
        return _decode(text)
    except (DecodeError, RecursionError, UnicodeEncodeError):
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


def error_result(message: str) -> ToolResult:
    """A failure the model reads; what UTF-8 lacks in it becomes a question mark."""
    return ToolResult([Text(message.encode(errors="replace").decode())], is_error=True)


def resource_contents(value: Any, uri: str, mime_type: str | None) -> Contents:
    """A resource function's return value: text, bytes, JSON, or contents made by hand.

    Raises:
        ValueError: the value cannot be sent.
    """
    if isinstance(value, Contents):
        return value
    items = value if isinstance(value, list) and value and _are_contents(value) else [value]
    made: list[TextResource | BlobResource] = []
    for item in items:
        if isinstance(item, TextResource | BlobResource):
            made.append(item)
        elif isinstance(item, str):
            made.append(TextResource(uri, _make_text(item).text, mime_type or "text/plain"))
        elif isinstance(item, _BYTES_TYPES):
            made.append(BlobResource(uri, bytes(item), mime_type or "application/octet-stream"))
        else:
            made.append(TextResource(uri, jsonrpc.encode_finite(item).decode(), mime_type or "application/json"))
    return Contents(made)


def _are_contents(value: list[Any]) -> bool:
    return all(isinstance(item, TextResource | BlobResource) for item in value)


def prompt_result(value: Any, description: str | None) -> PromptResult:
    """A prompt function's return value: a text, a message, or several of either.

    Raises:
        ValueError: the value cannot be sent.
    """
    if isinstance(value, PromptResult):
        return value
    messages = [_message(item) for item in (value if isinstance(value, _SEQUENCE_TYPES) else [value])]
    return PromptResult(messages, description)


def _message(item: Any) -> PromptMessage:
    if isinstance(item, PromptMessage):
        return item
    if isinstance(item, CONTENT_TYPES):
        return PromptMessage("user", item)
    if isinstance(item, str):
        return PromptMessage("user", _make_text(item))
    raise ValueError(f"a prompt returned {type(item).__name__}; return text, content or PromptMessage")


def completion(value: Any) -> Completion:
    """A completion function's return value; clients take at most 100 suggestions.

    Raises:
        ValueError: the value is not a list of text.
    """
    if isinstance(value, Completion):
        return value
    values = [_make_text(item).text for item in value]
    if len(values) <= 100:
        return Completion(values)
    return Completion(values[:100], total=len(values), has_more=True)
