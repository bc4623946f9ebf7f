"""Tool results of several content blocks: counts their tokens, and cuts them to a budget.

Texts count, those of embedded resources too, and structured content as compact JSON. Structured content that says what
the text says counts once, because hosts show one of the two. Images, sound and links do not count.
"""

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from msgspec import UNSET, DecodeError, to_builtins
from msgspec.structs import replace

from deltamcp import tokens
from deltamcp.results.content import parse_tool_result
from deltamcp.results.policy import META_KEY, ResolvedPolicy
from deltamcp.results.truncation import find_largest
from deltamcp.results.window import Budget, Handle, may_link
from deltamcp.values import JSON, Content, EmbeddedResource, RawResult, ResourceLink, Text, TextResource, ToolResult
from deltamcp.wire import jsonrpc
from deltamcp.work import Work


def encode_blocks(result: ToolResult) -> bytes:
    """Encodes the content and structured content of a result as JSON, in the form MCP gives them."""
    structured = {} if result.structured is UNSET else {"structuredContent": result.structured}
    return jsonrpc.encode({"content": result.content, **structured})


def visible_texts(result: ToolResult) -> list[str]:
    """Returns every text of a result that a host may show to the model."""
    texts = [_block_text(block) for block in result.content]
    return texts if result.structured is UNSET else [*texts, jsonrpc.encode(result.structured).decode()]


def texts_of(result: ToolResult) -> list[str]:
    """Returns the texts of a result's blocks of text."""
    return [_block_text(block) for block in result.content if _is_text(block)]


def others_of(result: ToolResult) -> list[Content]:
    """Returns the blocks of a result that are no text."""
    return [block for block in result.content if not _is_text(block)]


def _is_text(block: Content | dict[str, JSON]) -> bool:
    return isinstance(block, Text) or (isinstance(block, dict) and block.get("type") == "text")


def fits(result: ToolResult, policy: ResolvedPolicy, work: Work) -> bool:
    texts = visible_texts(result)
    work.spend(len(texts))
    return Budget.of(policy).admits(texts, work)


def cost(result: ToolResult, policy: ResolvedPolicy, work: Work) -> int:
    """Returns the tokens of everything that a host may show of a result."""
    texts = visible_texts(result)
    work.spend(len(texts))
    return Budget.of(policy).cost_of(texts, work)


def truncate_blocks(
    result: ToolResult, policy: ResolvedPolicy, handle: Handle | None, promised: bool, work: Work
) -> ToolResult:
    """Returns the result with as much of its texts as fits the budget, and a note on how to read the rest.

    Structured content is left out, because it would no longer match the text. Where the tool's output schema
    `promised` structured content, the result is an error.
    """
    texts = [_block_text(block) for block in result.content]
    ends = list(accumulate(map(len, texts)))
    reason = "" if result.structured is UNSET and not promised else "The structured content is left out. "
    candidates: dict[int, ToolResult] = {}

    def cut_cost(chars: int) -> int:
        work.spend(4 * len(texts))
        content = [
            cut
            for block, text, end in zip(result.content, texts, ends, strict=True)
            if (cut := _cut_block(block, max(0, chars - end + len(text)))) is not None
        ]
        content.append(Text(_rest_note(reason, chars, texts, handle)))
        if handle is not None and may_link(policy):
            content.append(handle.link)
        candidates[chars] = replace(result, content=content, structured=UNSET, is_error=promised)
        return cost(candidates[chars], policy, work)

    shown = find_largest(min(ends[-1], Budget.of(policy).max_chars), policy.max_tokens * 3, cut_cost, policy.max_tokens)
    meta = {**(result.meta or {}), META_KEY: {"handle": handle.name} if handle is not None else {"rest": "not stored"}}
    if shown is None:
        # The links and embedded resources alone exceed the budget.
        return ToolResult([Text(_rest_note(reason, 0, texts, handle))], is_error=promised, meta=meta)
    return replace(candidates[shown], meta=meta)


def _rest_note(reason: str, shown: int, texts: list[str], handle: Handle | None) -> str:
    total = sum(map(len, texts))
    if handle is None:
        shown_part = f"{reason}{shown} of {total} characters"
        return f"[{shown_part}. The rest could not be stored; call again with narrower arguments.]"
    place = next((place for place, end in enumerate(accumulate(map(len, texts))) if end > shown), 0)
    call = f'{handle.continue_tool}(handle="{handle.name}", path="/content/{place}")'
    return f"[{reason}{shown} of {total} characters; {call} and further on has the rest.]"


def _block_text(block: Content | dict[str, JSON]) -> str:
    """Returns the text of a block that the model reads; empty for media."""
    match block:
        case Text():
            return block.text
        case EmbeddedResource(TextResource(text=text)):
            return text
        case ResourceLink():
            return jsonrpc.encode(block).decode()
        case {"type": "text", "text": str(text)} | {"type": "resource", "resource": {"text": str(text)}}:
            return text
        case {"type": "resource_link"}:
            return jsonrpc.encode(block).decode()
        case _:
            return ""


def _cut_block(block: Content, chars: int) -> Content | None:
    """Returns the block with the first `chars` characters of its text; None where no text is left."""
    text = _block_text(block)
    if chars >= len(text):
        return block
    if not chars or isinstance(block, ResourceLink):
        return None
    match to_builtins(block):
        case {"type": "text"}:
            return Text(text[:chars])
        case {"type": "resource", "resource": {"uri": str(uri)} as resource}:
            return EmbeddedResource(TextResource(uri, text[:chars], resource.get("mimeType")))
        case _:
            return None


_WRAPPED = {"result"}
"""The one key under which FastMCP and the official SDK put a structured result that is no object."""


def count_result(result: ToolResult | RawResult) -> int:
    """Counts the tokens of a result, by `tokens.count`, which counts very long texts by samples."""
    return sum(map(tokens.count, shown_texts(result)))


def shown_texts(result: ToolResult | RawResult) -> list[str]:
    """Returns the texts of a result that a model reads."""
    if isinstance(result, RawResult):
        blocks, structured = result.fields.get("content"), result.fields.get("structuredContent", UNSET)
        texts = [] if not isinstance(blocks, list) else [text for block in blocks if (text := _counted_text(block))]
    else:
        structured = result.structured
        texts = [text for block in result.content if (text := _counted_text(block))]
    if structured is not UNSET and not (len(texts) == 1 and _says(texts[0], structured)):
        texts.append(jsonrpc.encode(structured).decode())
    return texts


def _counted_text(block: Any) -> str | None:
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


# Notes

EMPTY_NOTE = "(empty result)"
"""The note of a reply that a model could take for one that was lost."""


def add_last_notes(result: ToolResult | RawResult, note: str, tells_empty: bool) -> ToolResult | RawResult:
    """Adds what the model must know below a result: a note, if there is one, and if it is to be told, that it is empty.

    Empty is a result with neither structured content nor blocks other than empty texts.
    """
    reply = parse_tool_result(result.fields) if isinstance(result, RawResult) else result
    is_empty = reply.structured is UNSET and not any(
        block.text.strip() if isinstance(block, Text) else True for block in reply.content
    )
    notes = [EMPTY_NOTE] if tells_empty and is_empty else []
    if note:
        notes.append(note)
    return add_notes(reply, notes) if notes else result


def add_notes(reply: ToolResult, notes: Sequence[str]) -> ToolResult:
    """Returns a reply with notes below its text; `lengths` in its `_meta` tells programs where the text ends, and
    `notes` how many blocks at the end are notes.

    Text and notes are one block: client libraries pass several texts to the model as JSON, with an escape for every
    quote and line break. A whole JSON value stays a block of its own, because programs parse it; so do several texts.
    """
    texts = [block for block in reply.content if isinstance(block, Text)]
    if not notes:
        return reply
    meta = reply.meta or {}
    own: dict[str, JSON] = meta.get(META_KEY, {})
    if len(texts) != 1 or _is_whole_json(texts[0].text, own):
        count = own.get("notes", 0) + len(notes)
        return replace(
            reply, content=[*reply.content, *map(Text, notes)], meta={**meta, META_KEY: {**own, "notes": count}}
        )
    text = texts[0].text
    noted = replace(texts[0], text="\n".join(part for part in (text, *notes) if part))
    lengths = [*own.get("lengths", [len(text)]), *map(len, notes)]
    content = [noted if block is texts[0] else block for block in reply.content]
    return replace(reply, content=content, meta={**meta, META_KEY: {**own, "lengths": lengths}})


def _is_whole_json(text: str, meta: dict[str, JSON]) -> bool:
    is_json = meta["form"] == "json" if "form" in meta else text[:1] in ("{", "[")
    return is_json and meta.get("unit", "whole") == "whole" and "cuts" not in meta
