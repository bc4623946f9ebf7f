"""A reply of several content blocks that does not fit: its texts while there is room, everything else as it is."""

from itertools import accumulate

from msgspec import UNSET, to_builtins
from msgspec.structs import replace

from deltamcp.results.budget import find_largest
from deltamcp.results.notes import Handle
from deltamcp.results.policy import META_KEY, ResolvedPolicy
from deltamcp.results.result_windows import is_linked
from deltamcp.results.window import budget_of
from deltamcp.values import JSON, Content, EmbeddedResource, ResourceLink, Text, TextResource, ToolResult
from deltamcp.wire import jsonrpc


def encode_blocks(result: ToolResult) -> bytes:
    """All of a reply, as MCP has it."""
    structured = {} if result.structured is UNSET else {"structuredContent": result.structured}
    return jsonrpc.encode({"content": result.content, **structured})


def visible_texts(result: ToolResult) -> list[str]:
    """Everything a model may be shown of a reply as text."""
    texts = [_block_text(block) for block in result.content]
    return texts if result.structured is UNSET else [*texts, jsonrpc.encode(result.structured).decode()]


def fits(result: ToolResult, policy: ResolvedPolicy) -> bool:
    return budget_of(policy).cost_of(visible_texts(result)) <= policy.max_tokens


def truncate_blocks(result: ToolResult, policy: ResolvedPolicy, handle: Handle | None, promised: bool) -> ToolResult:
    """As much of the texts as fits.

    Structured content goes, as the text says something else; where it was `promised`, the reply is an error.
    """
    texts = [_block_text(block) for block in result.content]
    ends = list(accumulate(map(len, texts)))
    reason = "" if result.structured is UNSET and not promised else "The structured content is left out. "
    budget = budget_of(policy)
    made: dict[int, ToolResult] = {}

    def cost(keep: int) -> int:
        content = [
            cut
            for block, text, end in zip(result.content, texts, ends, strict=True)
            if (cut := _cut_block(block, max(0, keep - end + len(text)))) is not None
        ]
        content.append(Text(_rest_note(reason, keep, texts, handle)))
        if handle is not None and is_linked(policy):
            content.append(handle.link)
        made[keep] = replace(result, content=content, structured=UNSET, is_error=promised)
        return budget.cost_of(visible_texts(made[keep]))

    kept = find_largest(min(ends[-1], policy.max_chars), policy.max_tokens * 3, cost, policy.max_tokens)
    meta = {**(result.meta or {}), META_KEY: {"handle": handle.name} if handle is not None else {}}
    if kept is None:
        # Links and embedded resources are more than there is room for by themselves.
        return ToolResult([Text(_rest_note(reason, 0, texts, handle))], is_error=promised, meta=meta)
    return replace(made[kept], meta=meta)


def _rest_note(reason: str, keep: int, texts: list[str], handle: Handle | None) -> str:
    total = sum(map(len, texts))
    if handle is None:
        return f"[{reason}{keep} of {total} characters; the rest could not be kept.]"
    place = next((place for place, end in enumerate(accumulate(map(len, texts))) if end > keep), 0)
    on = f'{handle.continue_tool}(handle="{handle.name}", path="/content/{place}")'
    return f"[{reason}{keep} of {total} characters; {on} and further on has the rest.]"


def _block_text(block: Content | dict[str, JSON]) -> str:
    """What a model reads of a block; nothing of media, which are not text."""
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


def _cut_block(block: Content, keep: int) -> Content | None:
    """The beginning of a block that has text; None where nothing of it is left."""
    text = _block_text(block)
    if keep >= len(text):
        return block
    if not keep or isinstance(block, ResourceLink):
        return None
    match to_builtins(block):
        case {"type": "text"}:
            return Text(text[:keep])
        case {"type": "resource", "resource": {"uri": str(uri)} as resource}:
            return EmbeddedResource(TextResource(uri, text[:keep], resource.get("mimeType")))
        case _:
            return None
