"""Counts the tokens of a tool's result as a host shows it to a model. Pure: does no I/O.

Texts count, those of embedded resources too, and structured content as compact JSON. Structured content that says what
the text says counts once, because hosts show one of the two. Images, sound and links do not count.
"""

from typing import Any

from msgspec import UNSET, DecodeError

from deltamcp import tokens
from deltamcp.values import JSON, EmbeddedResource, RawResult, Text, TextResource, ToolResult
from deltamcp.wire import jsonrpc

_WRAPPED = {"result"}
"""The one key under which FastMCP and the official SDK put a structured result that is no object."""


def count_result(result: ToolResult | RawResult) -> int:
    """Counts the tokens of a result, by `tokens.count`, which counts very long texts by samples."""
    return sum(map(tokens.count, shown_texts(result)))


def shown_texts(result: ToolResult | RawResult) -> list[str]:
    """Returns the texts of a result that a model reads."""
    if isinstance(result, RawResult):
        blocks, structured = result.fields.get("content"), result.fields.get("structuredContent", UNSET)
        texts = [] if not isinstance(blocks, list) else [text for block in blocks if (text := _block_text(block))]
    else:
        structured = result.structured
        texts = [text for block in result.content if (text := _block_text(block))]
    if structured is not UNSET and not (len(texts) == 1 and _says(texts[0], structured)):
        texts.append(jsonrpc.encode(structured).decode())
    return texts


def _block_text(block: Any) -> str | None:
    match block:
        case Text(text):
            return text
        case EmbeddedResource(TextResource(text=text)):
            return text
        case {"type": "text", "text": str(text)} | {"type": "resource", "resource": {"text": str(text)}}:
            return text
        case _:
            return None


def _says(text: str, structured: JSON) -> bool:
    """Whether a text is the structured content: as JSON, or, where that only wraps it, as it is."""
    if isinstance(structured, dict) and structured.keys() == _WRAPPED and structured["result"] == text:
        return True
    try:
        value = jsonrpc.decode(text.encode())
    except (DecodeError, RecursionError, UnicodeEncodeError, ValueError):
        return False
    return bool(
        value == structured
        or (isinstance(structured, dict) and structured.keys() == _WRAPPED and structured["result"] == value)
    )
