"""Writes what a server sent (texts, images, sounds, resources) and lists what it offers.

Into a pipe or a file, content of one block is written as its bytes, to which nothing is added. Everything else is
lines: the blocks one below the other, with a placeholder for each that is not a text.
"""

import argparse
import asyncio
import base64
import binascii
import json
import sys
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any

from deltamcp.catalog.text.clean_text import visible_line
from deltamcp.cli.terminal import output
from deltamcp.cli.terminal.output import ProgressBar
from deltamcp.cli.terminal.targets import name_target
from deltamcp.client.client import DeltaClient
from deltamcp.client.reply import Reply
from deltamcp.values import JSON

if TYPE_CHECKING:
    from rich.console import Console


def write_reply(reply: Reply, with_bytes: bool = True) -> None:
    """Writes a tool's reply. If it shows a part, a line that says which replaces the server's note to the model.

    Args:
        with_bytes: False for a placeholder instead of the bytes of an image, a sound or a resource.
    """
    if reply.is_part and reply.texts:
        first, *others = reply.texts
        tail = others[1:]  # after the note comes the end of a text that was cut in the middle
        note = _part_note(reply, sum(map(len, tail))) if shows_part(reply) else ""
        output.write_lines("\n".join(part for part in (first, note, *tail) if part))
    elif not reply.content and "structuredContent" in reply.raw:
        output.print_json(reply.raw["structuredContent"])
    elif with_bytes or reply.texts:
        write_blocks(reply.content)
    else:
        output.write_lines(_format_blocks(reply.content))


def write_error(reply: Reply, as_json: bool) -> None:
    """Writes a reply that reports an error: its text to stderr, or all of it as JSON to stdout."""
    if as_json:
        output.print_json(reply.raw)
    else:
        print(reply.text or "The tool failed and did not say why.", file=sys.stderr)


def write_value(value: JSON, as_json: bool) -> None:
    """Writes the whole value of a result."""
    if as_json or not isinstance(value, str):
        output.print_json(value)
    else:
        write_blocks([{"type": "text", "text": value}])


def write_blocks(blocks: Sequence[JSON]) -> None:
    """Writes content blocks, as the module says."""
    data = _block_bytes(blocks[0]) if len(blocks) == 1 and not sys.stdout.isatty() else None
    if data is not None:
        output.write_bytes(data)
    else:
        output.write_lines(_format_blocks(blocks))


def _format_blocks(blocks: Sequence[JSON]) -> str:
    hint = "> FILE saves it" if len(blocks) == 1 else "--json has it"
    return "\n".join(_block_text(block, hint) for block in blocks)


def shows_part(reply: Reply) -> bool:
    """Whether a reply lacks something asked for; what a query selects, or `continue` reads, may be all of that."""
    told = reply.delta_meta
    if reply.selects_all:
        return False
    reads_on = (
        reply.call is not None and reply.handle is not None and reply.call.arguments.get("handle") == reply.handle
    )
    if not reads_on or "cuts" in told:
        return reply.is_part
    return told.get("unit") != "whole" and (told.get("start"), told.get("end")) != (0, told.get("total"))


def _part_note(reply: Reply, tail_chars: int) -> str:
    match reply.shape:
        case {"page": int(page), "totalPages": int(pages), "totalItems": int(total)} if reply.is_page:
            return f"[page {page} of {pages}, {total} rows in all]"
        case {"preview": str(preview), "totalChars": int(total)}:
            return f"[1-{len(preview)} of {total} characters]"
        case _:
            return _window_note(reply, tail_chars)


def _window_note(reply: Reply, tail_chars: int) -> str:
    unit, start, end, total = (reply.delta_meta.get(key) for key in ("unit", "start", "end", "total"))
    if not isinstance(start, int) or not isinstance(end, int) or not isinstance(total, int):
        return "[a part]"
    of_part = " of a part" if "rest" in reply.delta_meta else ""
    if unit == "characters" and tail_chars:
        return f"[{end + 1}-{total - tail_chars} of {total} characters{of_part} are left out here]"
    return f"[{start + 1}-{end} of {total} {unit}{of_part}]"


def _block_bytes(block: Any) -> bytes | None:
    """Returns the bytes of a text, an image, a sound or an embedded resource; None for any other block."""
    match block:
        case {"type": "text", "text": str(text)} | {"type": "resource", "resource": {"text": str(text)}}:
            return text.encode(errors="replace")
        case {"type": "image" | "audio", "data": str(data)} | {"type": "resource", "resource": {"blob": str(data)}}:
            return _decode_base64(data)
        case _:
            return None


def _block_text(block: Any, hint: str) -> str:
    """Returns a text, or a placeholder that says what the block is; of bytes `hint` says how to get them."""
    match block:
        case {"type": "text", "text": str(text)} | {"type": "resource", "resource": {"text": str(text)}}:
            return text
        case {"type": "image" | "audio" as kind, "data": str(data)}:
            placeholder = f"[{kind}, {block.get('mimeType', 'unknown')}, {_size_text(data)}; {hint}]"
        case {"type": "resource_link", "uri": str(uri)}:
            placeholder = f"[{block.get('title') or block.get('name') or 'resource'}: {uri}]"
        case {"type": "resource", "resource": {"blob": str(data)} as resource}:
            kind = resource.get("mimeType", "unknown")
            placeholder = f"[{resource.get('uri', 'resource')}, {kind}, {_size_text(data)}; {hint}]"
        case _:
            placeholder = json.dumps(block, ensure_ascii=False)
    return visible_line(placeholder)


def _size_text(data: str) -> str:
    decoded = _decode_base64(data)
    return "unreadable" if decoded is None else f"{len(decoded):,} bytes"


def _decode_base64(data: str) -> bytes | None:
    try:
        return base64.b64decode(data)
    except (binascii.Error, ValueError):
        return None


def server_summary(client: DeltaClient) -> dict[str, JSON]:
    """Returns the server's name, version and protocol for `--json`."""
    server = client.server
    return {
        "name": server.name,
        "version": server.version,
        "protocol": server.protocol,
        "era": server.era.value,
        "encoding": server.encoding,
    }


def print_listing(
    args: argparse.Namespace,
    target: Sequence[str],
    request: Coroutine[Any, Any, dict[str, JSON]],
    print_items: Callable[[dict[str, JSON], "Console"], None],
) -> None:
    """Fetches a listing and prints it: with `--json` as it is, else the line about its `server` and the items below."""
    with ProgressBar(f"Waiting for {name_target(target)}"):
        listing = asyncio.run(request)
    if args.json:
        output.print_json(listing)
        return
    console = output.make_console()
    _print_server_line(listing["server"], console)
    print_items(listing, console)


def _print_server_line(summary: dict[str, JSON], console: "Console") -> None:
    name, protocol = f"{summary['name']} {summary['version']}".strip(), summary["protocol"]
    console.print(output.shorten(name), style="bold", end=" ")
    is_of_mcp = not protocol.startswith(("delta", "mcp-lite"))
    console.print(output.shorten(f"speaks {'MCP ' if is_of_mcp else ''}{protocol}"))
