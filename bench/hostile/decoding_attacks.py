"""Attacks by messages that are costly to decode or to validate, over HTTP."""

from collections.abc import Callable

from bench import messages
from bench.hostile import payloads
from bench.hostile.attack import (
    Answered,
    Attack,
    Prepared,
    attacker,
    send_sizes,
    send_together,
    summarize,
)
from bench.hostile.attacked_server import AttackedServer, HttpReply, modern_headers
from bench.hostile.payloads import sizes
from deltamcp.values import Era

_CBOR = {"Content-Type": "application/cbor"}


def _validation_json(server: AttackedServer, _: Prepared) -> Answered:
    return send_sizes(
        server,
        lambda size: payloads.call("total", b'{"values":' + payloads.items(b"[]", size) + b"}"),
        modern_headers("tools/call", "total"),
    )


def _validation_cbor(server: AttackedServer, _: Prepared) -> Answered:
    def make(size: int) -> bytes:
        params = {"name": "total", "arguments": {"values": "@@@"}}
        return payloads.cbor_request("tools/call", params, payloads.cbor_array(b"\x80", size))

    return send_sizes(server, make, modern_headers("tools/call", "total") | _CBOR)


def _parse(item: bytes) -> Callable[[AttackedServer, Prepared], Answered]:
    return lambda server, _: send_sizes(
        server,
        lambda size: payloads.request("server/discover", {"x": "@@@"}, payloads.items(item, size)),
        modern_headers("server/discover"),
    )


def _parse_cbor(item: bytes) -> Callable[[AttackedServer, Prepared], Answered]:
    return lambda server, _: send_sizes(
        server,
        lambda size: payloads.cbor_request("server/discover", {"x": "@@@"}, payloads.cbor_array(item, size)),
        modern_headers("server/discover") | _CBOR,
    )


def _parse_together(server: AttackedServer, _: Prepared) -> Answered:
    replies: list[HttpReply] = []
    for size in sizes():
        body = payloads.request("server/discover", {"x": "@@@"}, payloads.items(b"[]", size))
        replies += send_together(server, [body] * 8, modern_headers("server/discover"))
    return Answered(summarize(replies))


def _parse_cbor_together(server: AttackedServer, _: Prepared) -> Answered:
    replies: list[HttpReply] = []
    nested = b"\x81" * 100 + b"\x00"
    for size in sizes():
        body = payloads.cbor_request("server/discover", {"x": "@@@"}, payloads.cbor_array(nested, size))
        replies += send_together(server, [body] * 8, modern_headers("server/discover") | _CBOR)
    return Answered(summarize(replies))


def _batch(item: bytes) -> Callable[[AttackedServer, Prepared], Answered]:
    """Batches, which only sessions of one revision have."""

    def run(server: AttackedServer, session: Prepared) -> Answered:
        headers = messages.headers(Era.HANDSHAKE, "ping", session=session) | {"MCP-Protocol-Version": "2025-03-26"}
        return send_sizes(server, lambda size: payloads.items(item, size), headers)

    return run


def _open_batch_session(server: AttackedServer) -> Prepared:
    params = {"protocolVersion": "2025-03-26", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
    body = messages.request(Era.HANDSHAKE, "initialize", params)
    return attacker(server).post(body, messages.headers(None, "initialize")).session


DECODING_ATTACKS: tuple[Attack, ...] = (
    Attack("validation", "`total(values: list[int])` with 4 MB of `[]`", _validation_json, for_peers=True),
    Attack("validation-cbor", "the same in CBOR", _validation_cbor),
    Attack("parse", "4 MB of `[]` in JSON, only decoded", _parse(b"[]"), for_peers=True),
    Attack("parse-objects", 'the same of `{"a":0}`', _parse(b'{"a":0}')),
    Attack("parse-cbor", "4 MB of `[]` in CBOR", _parse_cbor(b"\x80")),
    Attack("parse-dates", "4 MB of CBOR dates", _parse_cbor(b"\xc1\x00")),
    Attack("parse-at-once", "4 MB of `[]` in JSON, eight at once", _parse_together, for_peers=True),
    Attack("parse-cbor-at-once", "4 MB of nested lists in CBOR, eight at once", _parse_cbor_together),
    Attack(
        "batch", "a batch of 4 MB of pings", _batch(b'{"jsonrpc":"2.0","id":1,"method":"ping"}'), _open_batch_session
    ),
    Attack("batch-invalid", "a batch of 4 MB of `1`", _batch(b"1"), _open_batch_session),
)
