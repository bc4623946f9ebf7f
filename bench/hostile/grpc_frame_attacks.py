"""Attacks on gRPC by frames of HTTP/2 that no client would send, or not so many, on one and on many connections."""

import contextlib
import gzip
import selectors
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import NamedTuple

from bench.hostile import protobuf
from bench.hostile.attack import Answered, Attack, Prepared, RequestParts
from bench.hostile.attacked_server import ATTACKER, OTHER, AttackedServer, discover_request
from bench.hostile.grpc_attacks import CALL_TOOL, CALL_TOOL_STREAM, GET_TOOLS, GRPC, make_calls_once
from bench.hostile.http2 import (
    DEFAULT_WINDOW,
    FIRST_STORED,
    LARGEST_WINDOW,
    PREFACE,
    Flag,
    FrameType,
    Http2Connection,
    Setting,
    grpc_headers,
    grpc_message,
    write_frame,
    write_headers,
    write_settings,
    write_stored_header,
)
from bench.hostile.protobuf import entry, tool_request

_SOME, _MANY = 8, 64
"""So many connections, beside one."""
_SECONDS = 3.0
_AFTER_SECONDS = 0.5
_CHUNK = 200
"""How many times a connection repeats its frames before the next one has its turn."""
_STREAMS = 100
"""How many streams a connection has open at once, where it leaves them open."""
_ECHO = tool_request("echo", entry("text", protobuf.text_value("x")))
_PIECES = tool_request("read_in_pieces", entry("pieces", protobuf.from_json(100_000)))

WATCH = "/grpc.health.v1.Health/Watch"

MakeFrames = Callable[[int], bytes]
"""The bytes that follow on a connection, by how often it was asked before."""


class FrameAttack(NamedTuple):
    """What every connection sends."""

    name: str
    title: str
    make: MakeFrames
    reads: bool = True
    """Whether the attacker reads what the server sends."""
    window: int = LARGEST_WINDOW
    """How much the server may send on a stream before it has to wait."""
    times: int | None = None
    """How often each connection sends; None for as long as there is time."""


def _call(stream: int, path: str, message: bytes, ends: bool = True) -> bytes:
    """A whole call, in frames."""
    headers = write_headers(grpc_headers(1, path))
    opened = write_frame(FrameType.HEADERS, Flag.END_HEADERS, stream, headers)
    flags = Flag.END_STREAM if ends else 0
    return opened + write_frame(FrameType.DATA, flags, stream, grpc_message(message))


def _reset(stream: int) -> bytes:
    return write_frame(FrameType.RST_STREAM, 0, stream, (8).to_bytes(4))


def _many(make: Callable[[int], bytes], count: int = _CHUNK) -> MakeFrames:
    """Frames of so many streams, whose numbers go on from one time to the next."""
    return lambda time: b"".join(make(2 * (time * count + place) + 1) for place in range(count))


def _repeat(frame: bytes, count: int = _CHUNK) -> MakeFrames:
    frames = frame * count
    return lambda _: frames


def _half_open(stream: int) -> bytes:
    """A call whose message never comes to its end."""
    headers = write_headers(grpc_headers(1, CALL_TOOL))
    data = (b"\x00" + (4_000_000).to_bytes(4)) + bytes(500)
    return write_frame(FrameType.HEADERS, Flag.END_HEADERS, stream, headers) + write_frame(
        FrameType.DATA, 0, stream, data
    )


def _without_message(stream: int) -> bytes:
    return write_frame(FrameType.HEADERS, Flag.END_HEADERS, stream, write_headers(grpc_headers(1, CALL_TOOL)))


def _endless_headers(time: int) -> bytes:
    """Headers that go on for ever, in frames that continue them."""
    block = write_headers([("x-more", "y" * 100)] * 100)
    if not time:
        return write_frame(FrameType.HEADERS, 0, 1, write_headers(grpc_headers(1, CALL_TOOL)))
    return write_frame(FrameType.CONTINUATION, 0, 1, block) * 20


def _long_metadata(stream: int) -> bytes:
    more = [(f"x-{number}", "y" * 500) for number in range(14)]
    headers = write_headers(grpc_headers(1, GET_TOOLS, more))
    return write_frame(FrameType.HEADERS, Flag.END_HEADERS | Flag.END_STREAM, stream, headers)


def _repeated_field(stream: int) -> bytes:
    """A header section that names one field of 4 kB ten thousand times, by one byte each (RFC 7541, 2.3.2)."""
    stored = write_stored_header("x-bomb", "y" * 4_000) if stream == 1 else b""
    headers = write_headers(grpc_headers(1, GET_TOOLS)) + stored + bytes((0x80 | FIRST_STORED,)) * 10_000
    return write_frame(FrameType.HEADERS, Flag.END_HEADERS | Flag.END_STREAM, stream, headers)


def _open_headers(stream: int) -> bytes:
    """The first 16 kB of a header section, whose rest never comes."""
    headers = write_headers(grpc_headers(1, CALL_TOOL, [("x-more", "y" * 16_000)]))
    return write_frame(FrameType.HEADERS, 0, stream, headers)


_COMPRESSED = gzip.compress(bytes(4_000_000))


def _compressed_message(stream: int) -> bytes:
    """A message of 4 kB, which would have 4 MB."""
    headers = write_headers(grpc_headers(1, CALL_TOOL, [("grpc-encoding", "gzip")]))
    data = b"\x01" + len(_COMPRESSED).to_bytes(4) + _COMPRESSED
    return write_frame(FrameType.HEADERS, Flag.END_HEADERS, stream, headers) + write_frame(
        FrameType.DATA, Flag.END_STREAM, stream, data
    )


def _empty_data(time: int) -> bytes:
    """Frames of data without any, on a stream that stays open."""
    begin = _without_message(1) if not time else b""
    return begin + write_frame(FrameType.DATA, 0, 1) * _CHUNK


def _late_data(time: int) -> bytes:
    """Data of a byte on a stream that the server has ended."""
    begin = _call(1, "/x.Y/Z", b"") if not time else b""
    return begin + write_frame(FrameType.DATA, 0, 1, b"x") * _CHUNK


def _padding(time: int) -> bytes:
    """Data of 255 bytes of padding on a stream that the server has ended."""
    begin = _call(1, "/x.Y/Z", b"") if not time else b""
    return begin + write_frame(FrameType.DATA, Flag.PADDED, 1, b"\xff" + bytes(255)) * _CHUNK


def _crumbs(time: int) -> bytes:
    """Settings of which each lets the server send one byte more on each of many streams."""
    if not time:
        return _many(lambda one: _call(one, CALL_TOOL_STREAM, _PIECES), 20)(0)
    windows = range(time * _CHUNK, (time + 1) * _CHUNK)
    return b"".join(write_settings([(Setting.INITIAL_WINDOW_SIZE, window)]) for window in windows)


_WINDOWS = write_frame(FrameType.WINDOW_UPDATE, 0, 0, (1).to_bytes(4))
_PING = write_frame(FrameType.PING, 0, 0, bytes(8))
_UNKNOWN = write_frame(0xFA, 0, 0)
_SETTINGS = write_settings([(Setting.INITIAL_WINDOW_SIZE, DEFAULT_WINDOW)])

FRAME_ATTACKS = (
    FrameAttack("calls", "calls as fast as they are answered", _many(lambda one: _call(one, CALL_TOOL, _ECHO), 20)),
    FrameAttack("lists", "lists of tools", _many(lambda one: _call(one, GET_TOOLS, b""), 20)),
    FrameAttack("paths", "methods that do not exist", _many(lambda one: _call(one, f"/x.Y/Z{one}", b""), 20)),
    FrameAttack(
        "resets",
        "streams that are reset at once",
        _many(lambda one: _without_message(one) + _reset(one)),
    ),
    FrameAttack(
        "cancelled",
        "calls that are reset at once",
        _many(lambda one: _call(one, CALL_TOOL, _ECHO) + _reset(one), 50),
    ),
    FrameAttack("half-open", "100 calls whose message does not end", _many(_half_open, _STREAMS), times=1),
    FrameAttack("no-message", "100 calls without a message", _many(_without_message, _STREAMS), times=1),
    FrameAttack(
        "zero-window",
        "20 streams of 100 MB, of which the client takes nothing",
        _many(lambda one: _call(one, CALL_TOOL_STREAM, _PIECES), 20),
        window=0,
        times=1,
    ),
    FrameAttack(
        "unread",
        "20 streams of 100 MB that nobody reads",
        _many(lambda one: _call(one, CALL_TOOL_STREAM, _PIECES), 20),
        reads=False,
        times=1,
    ),
    FrameAttack("pings", "pings", _repeat(_PING)),
    FrameAttack("pings-unread", "pings, the answers unread", _repeat(_PING), reads=False),
    FrameAttack("settings", "settings", _repeat(_SETTINGS)),
    FrameAttack("settings-unread", "settings, the answers unread", _repeat(_SETTINGS), reads=False),
    FrameAttack("windows", "updates of windows", _repeat(_WINDOWS)),
    FrameAttack("empty-data", "data frames without data", _empty_data),
    FrameAttack("headers", "headers without end", _endless_headers),
    FrameAttack("metadata", "7 kB of metadata in each call", _many(_long_metadata, 20)),
    FrameAttack("hpack", "header sections of 10 kB that stand for 40 MB", _many(_repeated_field, 5)),
    FrameAttack(
        "open-headers", "a header section whose rest never comes", _many(_open_headers, 1), reads=False, times=1
    ),
    FrameAttack("gzip", "compressed messages of 4 kB that stand for 4 MB", _many(_compressed_message, 5)),
    FrameAttack("late-data", "data on a stream that has ended", _late_data),
    FrameAttack("late-data-unread", "data on a stream that has ended, the answers unread", _late_data, reads=False),
    FrameAttack("padding", "data on a stream that has ended, all of it padding", _padding),
    FrameAttack("unknown", "frames of types that nobody knows", _repeat(_UNKNOWN)),
    FrameAttack("crumbs", "20 streams of 100 MB, which are taken a byte at a time", _crumbs, window=0),
    FrameAttack("watches", "100 watches of the health", _many(lambda one: _call(one, WATCH, b""), _STREAMS), times=1),
)


class FrameFlood:
    """So many connections that send frames for as long as the server takes them."""

    def __init__(self, port: int, attack: FrameAttack, connections: int) -> None:
        self._port = port
        self._attack = attack
        self._connections = connections
        self._tally: Counter[str] = Counter()
        self._selector = selectors.DefaultSelector()
        self._resting: list[Http2Connection] = []

    def run(self, seconds: float) -> str:
        """Sends for so long; what came of it, in a few words."""
        end = time.monotonic() + seconds
        try:
            for _ in range(self._connections):
                self._connect()
            while time.monotonic() < end:
                if not self._selector.get_map():
                    time.sleep(0.1)
                for key, ready in self._selector.select(0.1):
                    if time.monotonic() > end:
                        break
                    self._serve(key, ready)
            for key in list(self._selector.get_map().values()):
                self._count(key.data[0])
        finally:
            for key in list(self._selector.get_map().values()):
                key.data[0].close()
            for connection in self._resting:
                connection.close()
            self._selector.close()
        return ", ".join(f"{count:,} {what}" for what, count in self._tally.most_common(5)) or "nothing came back"

    def _connect(self) -> None:
        try:
            connection = Http2Connection(self._port, window=self._attack.window, seconds=2)
        except OSError:
            self._tally["not connected"] += 1
            return
        events = selectors.EVENT_WRITE | (selectors.EVENT_READ if self._attack.reads else 0)
        self._selector.register(connection, events, [connection, 0])

    def _serve(self, key: selectors.SelectorKey, ready: int) -> None:
        connection, times = key.data
        if ready & selectors.EVENT_READ:
            connection.read()
        if connection.is_closed or connection.goaway:
            self._count(connection)
            self._selector.unregister(connection)
            connection.close()
            self._connect()
        elif ready & selectors.EVENT_WRITE and connection.has_unsent:
            connection.write_some()
        elif self._attack.times is not None and times >= self._attack.times:
            self._rest(key)
        elif ready & selectors.EVENT_WRITE:
            connection.write_some(self._attack.make(times))
            key.data[1] += 1

    def _rest(self, key: selectors.SelectorKey) -> None:
        """Sends nothing more on a connection, which stays open."""
        if self._attack.reads:
            self._selector.modify(key.fileobj, selectors.EVENT_READ, key.data)
        else:
            self._selector.unregister(key.fileobj)
            self._resting.append(key.data[0])

    def _count(self, connection: Http2Connection) -> None:
        for reply in connection.ended.values():
            self._tally[(reply.status.partition(" ")[0] and f"status {reply.status[:40]}") or "answers"] += 1
        if connection.goaway:
            self._tally[f"closed: {connection.goaway[:40]}"] += 1
        elif connection.is_closed:
            self._tally["closed"] += 1


class OtherGrpcCaller:
    """Another client, from another address, that makes calls until the end of the block and counts those that fail.

    It shares a process with the attacker; what others wait is what such clients in other processes do.
    """

    def __init__(self, port: int) -> None:
        self._port = port
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.made = 0
        self.failures: Counter[str] = Counter()

    def __enter__(self) -> "OtherGrpcCaller":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ends.wait(0.01):
            self.made += 1
            try:
                with Http2Connection(self._port, OTHER, seconds=5) as connection:
                    reply = connection.wait(connection.call(CALL_TOOL, _ECHO))
            except OSError as error:
                self.failures[type(error).__name__] += 1
            else:
                if not reply.data:
                    self.failures[reply.status] += 1

    @property
    def broken(self) -> str:
        """What went wrong, as a sentence; empty if nothing did."""
        if not self.failures:
            return ""
        [(status, _)] = self.failures.most_common(1)
        return f"{self.failures.total()} of {self.made} calls of another client failed: {status}"


def _flood(attack: FrameAttack, connections: int) -> Callable[[AttackedServer, Prepared], Answered]:
    def run(server: AttackedServer, _: Prepared) -> Answered:
        with OtherGrpcCaller(server.grpc_port) as other:
            said = FrameFlood(server.grpc_port, attack, connections).run(_SECONDS)
            time.sleep(_AFTER_SECONDS)
        return Answered(f"{said}; {other.made} calls of another client", other.broken)

    return run


def _name_in_other_bytes(server: AttackedServer, _: Prepared) -> Answered:
    """Calls a method whose name is no UTF-8; the fuzzer found it. Another client calls afterwards."""
    with Http2Connection(server.grpc_port, seconds=5) as connection:
        said = connection.wait(connection.call("/x\xcd(y/z", b"")).status
    with OtherGrpcCaller(server.grpc_port) as other:
        time.sleep(1)
    return Answered(f"{said}; {other.made} calls of another client", other.broken)


def _unfinished_messages(count: int) -> Callable[[AttackedServer, Prepared], Answered]:
    """Messages of 4 MB, four on each connection, whose last byte never comes."""
    data = grpc_message(bytes(4_000_000))[:-1]

    def run(server: AttackedServer, _: Prepared) -> Answered:
        with contextlib.ExitStack() as stack, OtherGrpcCaller(server.grpc_port) as other:
            opened = [stack.enter_context(Http2Connection(server.grpc_port, seconds=0.5)) for _ in range(count)]
            streams = [(one, one.open_stream(grpc_headers(1, CALL_TOOL))) for one in opened for _ in range(4)]
            end = time.monotonic() + _SECONDS
            for one, stream in streams:
                if time.monotonic() < end:
                    one.send_data(stream, data, ends=False)
            time.sleep(_AFTER_SECONDS)
            closed = sum(one.is_closed or bool(one.goaway) for one in opened)
        return Answered(f"{closed} of {count} connections closed; {other.made} calls of another client", other.broken)

    return run


def _take_all_connections(server: AttackedServer, _: Prepared) -> Answered:
    """Opens more connections than the server has, and keeps them."""
    with contextlib.ExitStack() as stack, OtherGrpcCaller(server.grpc_port) as other:
        opened = 0
        for _ in range(8_200):
            one = stack.enter_context(socket.socket())
            one.settimeout(2)
            with contextlib.suppress(OSError):
                one.bind((ATTACKER, 0))
                one.connect(("127.0.0.1", server.grpc_port))
                one.sendall(PREFACE + write_settings())
                opened += 1
        time.sleep(1)
    return Answered(f"{opened} connections; {other.made} calls of another client", other.broken)


def _connect_often(server: AttackedServer, _: Prepared) -> Answered:
    """Opens connections and closes them."""
    end, opened = time.monotonic() + _SECONDS, 0
    while time.monotonic() < end:
        with contextlib.suppress(OSError), Http2Connection(server.grpc_port, seconds=2):
            opened += 1
    return Answered(f"{opened:,} connections")


def _connect_many(server: AttackedServer, _: Prepared) -> Answered:
    """Opens connections, which do nothing more."""
    with contextlib.ExitStack() as stack:
        opened = 0
        for _ in range(900):
            with contextlib.suppress(OSError):
                stack.enter_context(Http2Connection(server.grpc_port, seconds=2))
                opened += 1
        time.sleep(2)
    return Answered(f"{opened} connections")


def _others_call(server: AttackedServer, _: Prepared) -> dict[str, RequestParts]:
    """Those who wait call over HTTP and over gRPC."""
    frames = PREFACE + write_settings() + _call(1, CALL_TOOL, _ECHO)
    return {"server/discover": discover_request(), "gRPC": (frames, None)}


def _rows(connections: int, attacks: Iterable[FrameAttack]) -> list[Attack]:
    return [
        Attack(
            f"grpc-{one.name}-{connections}",
            f"gRPC, {connections} connection{'s' if connections > 1 else ''}: {one.title}",
            _flood(one, connections),
            make_calls_once,
            others=_others_call,
            options=GRPC,
        )
        for one in attacks
    ]


def _row(name: str, title: str, run: Callable[[AttackedServer, Prepared], Answered]) -> Attack:
    return Attack(f"grpc-{name}", f"gRPC: {title}", run, make_calls_once, others=_others_call, options=GRPC)


GRPC_FRAME_ATTACKS: tuple[Attack, ...] = (
    _row("name", "a call of a method whose name is no UTF-8", _name_in_other_bytes),
    *(row for count in (1, _SOME, _MANY) for row in _rows(count, FRAME_ATTACKS)),
    *(
        _row(
            f"unfinished-{count}", f"{4 * count} messages of 4 MB without their last byte", _unfinished_messages(count)
        )
        for count in (1, _SOME, _MANY)
    ),
    _row("connects", "connections that are opened and closed", _connect_often),
    _row("idle", "900 connections that do nothing", _connect_many),
    _row("all-connections", "8,200 connections of one address", _take_all_connections),
)
