"""Attacks on MCP-lite over gRPC, served beside HTTP by one process: costly messages."""

import contextlib
from collections.abc import Callable

from bench.hostile import protobuf
from bench.hostile.attack import Answered, Attack, Prepared
from bench.hostile.attacked_server import AttackedServer
from bench.hostile.http2 import Http2Connection, grpc_headers, grpc_message
from bench.hostile.payloads import MESSAGE_BYTES
from bench.hostile.protobuf import entry, field, list_value, tool_request
from bench.hostile.servers.options import ServerOptions

CALL_TOOL = "/mcplite.MCPLite/CallTool"
CALL_TOOL_STREAM = "/mcplite.MCPLite/CallToolStream"
GET_TOOLS = "/mcplite.MCPLite/GetTools"
GRPC = ServerOptions(grpc_port=-1)

_SIZES = (MESSAGE_BYTES, 1_200_000, 390_000)
"""The last has as many values as a message may have."""
_MANY = 50
_NULLS = field(1, protobuf.NULL_VALUE)
_LISTS = field(1, protobuf.EMPTY_LIST)
_UNKNOWN = b"\xf8\x01\x00"
"""A field that no message of MCP-lite has."""


def _values(item: bytes) -> Callable[[int], bytes]:
    """A call of `count` with a list of so many bytes of one value."""
    return lambda size: tool_request("count", entry("items", list_value(protobuf.repeated(item, size))))


def _nested(depth: int) -> bytes:
    """A value in so many lists, as an item of a list."""
    value = protobuf.NULL_VALUE
    for _ in range(depth):
        value = list_value(field(1, value))
    return field(1, value)


def _entries(size: int) -> bytes:
    return tool_request("count", protobuf.repeated(entry("", protobuf.NULL_VALUE), size))


def _different_entries(size: int) -> bytes:
    item = len(entry("00000", protobuf.NULL_VALUE))
    return tool_request("count", b"".join(entry(f"{n:05x}", protobuf.NULL_VALUE) for n in range(size // item)))


def _unknown_fields(size: int) -> bytes:
    return tool_request("count") + protobuf.repeated(_UNKNOWN, size)


def _names(size: int) -> bytes:
    """The name of the tool, without end: the last one counts."""
    return protobuf.repeated(field(1, b"count"), size)


MESSAGES: dict[str, Callable[[int], bytes]] = {
    "nulls": _values(_NULLS),
    "lists": _values(_LISTS),
    "objects": _values(field(1, protobuf.EMPTY_STRUCT)),
    "nested lists": _values(_nested(25)),
    "entries": _entries,
    "different entries": _different_entries,
    "unknown fields": _unknown_fields,
    "names": _names,
}


def call_together(server: AttackedServer, message: bytes, count: int, path: str = CALL_TOOL) -> list[str]:
    """Sends a message on so many connections, and returns the statuses of the calls."""
    with contextlib.ExitStack() as stack:
        opened = [stack.enter_context(Http2Connection(server.grpc_port)) for _ in range(count)]
        streams = [(one, one.open_stream(grpc_headers(one.port, path))) for one in opened]
        data = grpc_message(message)
        for one, stream in streams:
            one.send_data(stream, data[:-1], ends=False)
        for one, stream in streams:  # all are whole at about the same time
            one.send_data(stream, data[-1:])
        replies = [one.wait(stream) for one, stream in streams]
    return [reply.status or f"{len(reply.data)} bytes" for reply in replies]


def _large_messages(count: int) -> Callable[[AttackedServer, Prepared], Answered]:
    def run(server: AttackedServer, _: Prepared) -> Answered:
        said: dict[str, None] = {}
        for make in MESSAGES.values():
            for size in _SIZES:
                said |= dict.fromkeys(call_together(server, make(size), count))
        return Answered("; ".join(list(said)[:4]))

    return run


def _large_responses(server: AttackedServer, _: Prepared) -> Answered:
    """Calls tools with large results on many connections at once, then with a large `_meta` that comes back."""
    said: dict[str, None] = {}
    for request in (
        *(tool_request(name) for name in ("read_large_text", "list_rows", "list_numbers")),
        protobuf.call_request(
            {"name": "echo", "arguments": {"text": "x"}, "meta": {"session_context": [{}] * 6_000}}, {}
        ),
    ):
        said |= dict.fromkeys(call_together(server, request, _MANY))
    return Answered("; ".join(list(said)[:4]))


def make_calls_once(server: AttackedServer) -> Prepared:
    """Makes each kind of call once, so that what is loaded at its first use is not counted."""
    for path, message in (
        (GET_TOOLS, b""),
        (CALL_TOOL, tool_request("echo", entry("text", protobuf.text_value("x")))),
        (CALL_TOOL_STREAM, tool_request("read_in_pieces", entry("pieces", protobuf.from_json(3)))),
    ):
        with Http2Connection(server.grpc_port) as connection:
            reply = connection.wait(connection.call(path, message))
        if not reply.data:
            raise RuntimeError(f"{path} is not answered: {reply.status}")


GRPC_ATTACKS: tuple[Attack, ...] = (
    Attack(
        "grpc-fields",
        "gRPC: messages of 4 MB of small fields",
        _large_messages(1),
        make_calls_once,
        options=GRPC,
        more_seconds=10,
    ),
    Attack(
        "grpc-fields-at-once",
        "gRPC: the same, eight at once",
        _large_messages(8),
        make_calls_once,
        options=GRPC,
        more_seconds=20,
    ),
    Attack(
        "grpc-responses",
        "gRPC: calls with large results, on 50 connections",
        _large_responses,
        make_calls_once,
        options=GRPC,
        more_seconds=60,
    ),
)
