"""Formats a tool's reply for people."""

import base64
import binascii
import json
from typing import Any

from deltamcp.client.reply import Reply


def format_reply(reply: Reply) -> str:
    """Returns the reply's texts, and a placeholder for each block that is not a text.

    In a reply that shows a part, a short line with its range replaces the server's note to the model.
    """
    if reply.is_part and reply.texts:
        first, *others = reply.texts
        tail = others[1:]  # after the note comes the end of a text that was cut in the middle
        return "\n".join(part for part in (first, _part_note(reply), *tail) if part)
    if not reply.content and "structuredContent" in reply.raw:
        return json.dumps(reply.raw["structuredContent"], indent=2, ensure_ascii=False)
    return "\n".join(map(_format_block, reply.content))


def _part_note(reply: Reply) -> str:
    unit, start, end, total = (reply.told.get(key) for key in ("unit", "start", "end", "total"))
    if not isinstance(start, int) or not isinstance(end, int) or not isinstance(total, int):
        return "[a part]"
    return f"[{start + 1}-{end} of {total} {unit}]"


def _format_block(block: Any) -> str:
    match block:
        case {"type": "text", "text": str(text)}:
            return text
        case {"type": "image" | "audio" as kind, "data": str(data)}:
            return f"[{kind}, {block.get('mimeType', 'unknown')}, {_decoded_size(data)}; --json has it]"
        case {"type": "resource_link", "uri": str(uri)}:
            return f"[{block.get('title') or block.get('name') or 'resource'}: {uri}]"
        case {"type": "resource", "resource": {"text": str(text)}}:
            return text
        case {"type": "resource", "resource": {"blob": str(data)} as resource}:
            kind = resource.get("mimeType", "unknown")
            return f"[{resource.get('uri', 'resource')}, {kind}, {_decoded_size(data)}; --json has it]"
        case _:
            return json.dumps(block, ensure_ascii=False)


def _decoded_size(data: str) -> str:
    try:
        return f"{len(base64.b64decode(data)):,} bytes"
    except (binascii.Error, ValueError):
        return "unreadable"
