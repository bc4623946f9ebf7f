"""Mutations of JSON values and of bytes. The same `Random` gives the same mutation."""

import copy
import json
import random
from typing import Any

import cbor2

from deltamcp.wire.codecs import shorten_keys

ENCODINGS = {
    "json": "application/json",
    "compact-json": "application/json; variant=compact",
    "cbor": "application/cbor",
}
"""How messages are encoded, and the content type of each."""

TEXTS = (
    "", "0", "-1", " ", "\x00", "\t\r\n", "a" * 300, "a" * 5_000, "\u2028", "\u202e", "\u0301" * 40, "👩‍👩‍👧‍👦", "é",
    "\U0010ffff", "../../etc/passwd", "file:///etc/passwd", "http://127.0.0.1:1/", "%ff%fe", "%", "{session}",
    "{handle}", "null", "__proto__", "$ref", "$result", "_meta", "jsonrpc", "tools/call", "notifications/cancelled",
    "[?a]|[*]", "((((", "~1~0", "/0/0", "2026-07-28", "2025-11-25", "delta-mcp/0.2.0", "reset", "MQ==",
    "'; DROP TABLE x; --", "*", "\\ud800",
)  # fmt: skip
NUMBERS = (0, -1, 1, 2, 127, 128, 65_536, 2**31, 2**53 + 1, 2**63, -(2**63), 2**64, 2**70, 0.1, -0.0, 1e308, 5e-324)
KEYS = (
    "name", "arguments", "uri", "cursor", "ref", "argument", "context", "notifications", "requestState",
    "inputResponses", "_meta", "progressToken", "id", "method", "params", "result", "error", "handle", "offset",
    "limit", "path", "fields", "grep", "page", "pageSize", "pack_root", "$result", "patch", "level", "protocolVersion",
    "capabilities", "clientInfo", "task", "names", "root", "io.github.delta-mcp/result",
    "io.modelcontextprotocol/protocolVersion",
)  # fmt: skip
RAW = (
    b"NaN", b"Infinity", b"-Infinity", b"1e999", b"-0", b"01", b"+1", b".5", b"1.", b"0x1F", b"9" * 400, b'"\\ud800"',
    b'"\xff"', b'"\\u0000"', b"[" * 200 + b"]" * 200, b"{" * 50, b"nul", b"tru", b"'x'", b"/**/1", b'"\t"', b"",
)  # fmt: skip
"""JSON, or nearly, that no Python value gives."""
_MARK = "@raw@"


def mutate_message(message: Any, chance: random.Random) -> Any:
    """Returns a message with one to four of its values, or its keys, changed."""
    root = [copy.deepcopy(message)]
    for _ in range(chance.choice((1, 1, 1, 2, 2, 3, 4))):
        holder, place = chance.choice(list(_places(root)))
        _change(holder, place, chance)
    return root[0] if root else None


def _places(root: list[Any]) -> list[tuple[Any, Any]]:
    """Every place that holds a value: an object and a key, or a list and an index."""
    found: list[tuple[Any, Any]] = []
    pending: list[Any] = [root]
    while pending:
        holder = pending.pop()
        for place, value in list(holder.items() if isinstance(holder, dict) else enumerate(holder)):
            found.append((holder, place))
            if isinstance(value, dict | list):
                pending.append(value)
    return found


def _change(holder: Any, place: Any, chance: random.Random) -> None:
    value = holder[place]
    action = chance.choice(
        ("replace", "replace", "replace", "nudge", "nudge", "remove", "rename", "add", "wrap", "raw")
    )
    if action == "remove" and len(holder) > 1:
        del holder[place]
    elif action == "rename" and isinstance(holder, dict):
        holder[chance.choice((*KEYS, *TEXTS))] = holder.pop(place)
    elif action == "add" and isinstance(value, dict):
        value[chance.choice((*KEYS, *TEXTS))] = random_value(chance)
    elif action == "add" and isinstance(value, list):
        value.insert(chance.randint(0, len(value)), random_value(chance))
    elif action == "wrap":
        holder[place] = chance.choice(([value], {chance.choice(KEYS): value}, [value] * 50))
    elif action == "raw":
        holder[place] = _MARK + str(chance.randrange(len(RAW)))
    elif action == "nudge":
        holder[place] = _nudge(value, chance)
    else:
        holder[place] = random_value(chance)


def _nudge(value: Any, chance: random.Random) -> Any:
    """A value that is nearly the same."""
    if isinstance(value, bool) or value is None:
        return not value
    if isinstance(value, int | float):
        return chance.choice((value + 1, -value, value * 1_000, float(value), str(value)))
    if isinstance(value, str):
        at = chance.randint(0, len(value))
        return chance.choice(
            (
                value[:at],
                value[at:],
                value[:at] + chance.choice(TEXTS) + value[at:],
                value.upper(),
                value * 3,
                value + " ",
            )
        )
    if isinstance(value, list):
        return chance.choice((value[::-1], value * 2, value[:1], {"0": value}))
    return chance.choice(([value], list(value), {key: item for key, item in value.items() if chance.random() < 0.7}))


def random_value(chance: random.Random, depth: int = 3) -> Any:
    kind = chance.choice(("text", "text", "number", "constant", "list", "object") if depth else ("text", "number"))
    if kind == "text":
        return chance.choice(TEXTS)
    if kind == "number":
        return chance.choice(NUMBERS)
    if kind == "constant":
        return chance.choice((None, True, False))
    if kind == "list":
        return [random_value(chance, depth - 1) for _ in range(chance.randint(0, 4))]
    return {chance.choice((*KEYS, *TEXTS)): random_value(chance, depth - 1) for _ in range(chance.randint(0, 4))}


def encode(message: Any, encoding: str) -> bytes:
    """Encodes a message, and puts JSON that no Python value gives where a mutation asks for it."""
    if encoding == "cbor":
        return cbor2.dumps(message)
    data = json.dumps(shorten_keys(message) if encoding == "compact-json" else message, ensure_ascii=False)
    body = data.encode("utf-8", "surrogatepass")
    for number, raw in reversed(list(enumerate(RAW))):
        body = body.replace(f'"{_MARK}{number}"'.encode(), raw)
    return body


def mutate_bytes(data: bytes, chance: random.Random, times: int = 0) -> bytes:
    """Returns bytes with a few pieces changed: bits, bytes, pieces removed, doubled, moved, or cut off."""
    changed = bytearray(data)
    for _ in range(times or chance.choice((1, 1, 2, 3, 8))):
        size = len(changed)
        at = chance.randint(0, max(0, size - 1))
        end = min(size, at + chance.choice((1, 1, 2, 4, 16, 64)))
        action = chance.randrange(7)
        if action == 0 and size:
            changed[at] ^= 1 << chance.randrange(8)
        elif action == 1 and size:
            changed[at] = chance.choice((0, 9, 10, 13, 32, 34, 44, 58, 91, 93, 123, 125, 127, 128, 255))
        elif action == 2:
            del changed[at:end]
        elif action == 3:
            changed[at:at] = changed[at:end] * chance.choice((1, 2, 50))
        elif action == 4:
            changed[at:at] = bytes(chance.randrange(256) for _ in range(chance.choice((1, 2, 8))))
        elif action == 5:
            piece = changed[at:end]
            del changed[at:end]
            to = chance.randint(0, len(changed))
            changed[to:to] = piece
        elif action == 6:
            del changed[at:]
    return bytes(changed)
