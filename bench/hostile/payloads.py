"""The bodies of attacks, put together as bytes: making them must not cost the attacker what they cost the server."""

import json
from collections.abc import Iterator
from typing import Any

import cbor2

from bench import messages
from deltamcp.values import Era

MESSAGE_BYTES = 4 * 1024 * 1024 - 4096
"""The most that a message is allowed to have by default, here and in the official SDK, less an envelope."""
LEAST_BYTES = 30_000
_CONTENT = b'"@@@"'


def sizes(most: int = MESSAGE_BYTES, least: int = LEAST_BYTES) -> Iterator[int]:
    """Sizes from the largest down by a third: what a limit refuses, an attacker sends just below that limit."""
    while most >= least:
        yield most
        most = most * 2 // 3


def items(item: bytes, size: int) -> bytes:
    """A JSON array of about so many bytes that repeats one item."""
    return b"[" + b",".join([item] * max(1, size // (len(item) + 1))) + b"]"


def request(method: str, params: dict[str, Any], content: bytes = b"", era: Era = Era.MODERN) -> bytes:
    """A request in which `content`, JSON already, stands where the parameters have the text "@@@"."""
    return messages.request(era, method, params).replace(_CONTENT, content)


def call(tool: str, arguments: bytes, meta: dict[str, Any] | None = None, era: Era = Era.MODERN) -> bytes:
    """A call whose arguments are JSON already, with more members of `_meta`."""
    body = request("tools/call", {"name": tool, "arguments": "@@@"}, arguments, era)
    if not meta:
        return body
    more = json.dumps(meta, separators=(",", ":"))[1:-1].encode()
    if era is Era.HANDSHAKE:
        return body.replace(b'"params":{', b'"params":{"_meta":{' + more + b"},", 1)
    return body.replace(b'"_meta":{', b'"_meta":{' + more + b",", 1)


def cbor_array(item: bytes, size: int) -> bytes:
    """A CBOR array of about so many bytes that repeats one item."""
    number = max(1, size // len(item))
    return b"\x9a" + number.to_bytes(4) + item * number


def cbor_request(method: str, params: dict[str, Any], content: bytes) -> bytes:
    """A request in CBOR in which `content`, CBOR already, stands where the parameters have the text "@@@"."""
    return cbor2.dumps(json.loads(messages.request(Era.MODERN, method, params))).replace(cbor2.dumps("@@@"), content)


def words(count: int) -> str:
    """So many different words that a search takes as alternatives."""
    return "|".join(f"w{number:04x}q" for number in range(count))
