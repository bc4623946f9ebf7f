"""HTTP/2 by hand (RFC 9113): frames, headers without a table or Huffman codes (RFC 7541), and a connection for gRPC."""

import contextlib
import enum
import time
from collections.abc import Iterable
from typing import NamedTuple

from bench.hostile.attacked_server import ATTACKER, HttpCaller

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DEFAULT_WINDOW = 65_535
LARGEST_WINDOW = 2**31 - 1
MAX_FRAME = 16_384


class FrameType(enum.IntEnum):
    DATA = 0
    HEADERS = 1
    PRIORITY = 2
    RST_STREAM = 3
    SETTINGS = 4
    PUSH_PROMISE = 5
    PING = 6
    GOAWAY = 7
    WINDOW_UPDATE = 8
    CONTINUATION = 9


class Flag(enum.IntFlag):
    END_STREAM = 1
    ACK = 1
    END_HEADERS = 4
    PADDED = 8


class Setting(enum.IntEnum):
    HEADER_TABLE_SIZE = 1
    MAX_CONCURRENT_STREAMS = 3
    INITIAL_WINDOW_SIZE = 4
    MAX_FRAME_SIZE = 5
    MAX_HEADER_LIST_SIZE = 6


class Frame(NamedTuple):
    kind: int
    flags: int
    stream: int
    payload: bytes


def write_frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return len(payload).to_bytes(3) + bytes((kind, flags)) + stream.to_bytes(4) + payload


def write_settings(settings: Iterable[tuple[int, int]] = ()) -> bytes:
    payload = b"".join(key.to_bytes(2) + value.to_bytes(4) for key, value in settings)
    return write_frame(FrameType.SETTINGS, 0, 0, payload)


def write_headers(headers: Iterable[tuple[str, str]]) -> bytes:
    """A block of headers, each a literal that is not indexed."""
    return b"".join(b"\x00" + _text(name) + _text(value) for name, value in headers)


FIRST_STORED = 62
"""The index of the field that was stored last (RFC 7541, 2.3.3)."""


def write_stored_header(name: str, value: str) -> bytes:
    """A header that the server stores in its table."""
    return b"\x40" + _text(name) + _text(value)


def _text(text: str) -> bytes:
    data = text.encode("latin-1")
    return _integer(len(data)) + data


def _integer(value: int) -> bytes:
    """An integer with a prefix of seven bits."""
    if value < 127:
        return bytes((value,))
    value -= 127
    written = bytearray((127,))
    while value >= 128:
        written.append(value % 128 + 128)
        value //= 128
    return bytes((*written, value))


def grpc_headers(port: int, path: str, more: Iterable[tuple[str, str]] = ()) -> list[tuple[str, str]]:
    """The headers of a call."""
    return [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", path),
        (":authority", f"127.0.0.1:{port}"),
        ("te", "trailers"),
        ("content-type", "application/grpc"),
        *more,
    ]


def grpc_message(message: bytes) -> bytes:
    """A message with gRPC's prefix: not compressed, and its length."""
    return b"\x00" + len(message).to_bytes(4) + message


class StreamReply(NamedTuple):
    """What a server sent on a stream."""

    data: bytes
    status: str
    """The status of the call, if the server wrote it out: of several calls on a connection it does so once."""


class Http2Connection:
    """A connection on which frames are written by hand; it reads what comes only when it is told to."""

    def __init__(self, port: int, source: str = ATTACKER, window: int = LARGEST_WINDOW, seconds: float = 20.0) -> None:
        self.port = port
        self._socket = HttpCaller(port, source, seconds).connect()
        self._seconds = seconds
        self._received = bytearray()
        self._unsent = bytearray()
        self._next_stream = 1
        self._window = DEFAULT_WINDOW
        self._initial_window = DEFAULT_WINDOW
        self._windows: dict[int, int] = {}
        self._data: dict[int, bytearray] = {}
        self.ended: dict[int, StreamReply] = {}
        """Streams that the server has ended."""
        self.pings = 0
        self.goaway = ""
        """Why the server ends the connection; empty if it does not."""
        self.is_closed = False
        self.write(PREFACE + write_settings([(Setting.INITIAL_WINDOW_SIZE, window)]))
        if window > DEFAULT_WINDOW:
            self.write(write_frame(FrameType.WINDOW_UPDATE, 0, 0, (window - DEFAULT_WINDOW).to_bytes(4)))

    def __enter__(self) -> "Http2Connection":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.is_closed = True
        self._socket.close()

    def fileno(self) -> int:
        return self._socket.fileno()

    def write(self, data: bytes) -> None:
        """Writes bytes; what cannot be written any more is told by `is_closed`."""
        try:
            self._socket.sendall(data)
        except OSError:
            self.is_closed = True

    def write_some(self, data: bytes = b"") -> None:
        """Writes as much as the server takes at once; the rest waits for the next time."""
        self._unsent += data
        try:
            self._socket.settimeout(0)
            del self._unsent[: self._socket.send(self._unsent)]
        except BlockingIOError:
            pass
        except OSError:
            self.is_closed = True
        finally:
            with contextlib.suppress(OSError):
                self._socket.settimeout(self._seconds)

    @property
    def has_unsent(self) -> bool:
        return bool(self._unsent)

    def open_stream(self, headers: list[tuple[str, str]], ends: bool = False) -> int:
        """Sends the headers of a request and returns the number of its stream."""
        stream = self._next_stream
        self._next_stream += 2
        self._windows[stream] = self._initial_window
        flags = Flag.END_HEADERS | (Flag.END_STREAM if ends else 0)
        self.write(write_frame(FrameType.HEADERS, flags, stream, write_headers(headers)))
        return stream

    def send_data(self, stream: int, data: bytes, ends: bool = True) -> None:
        """Sends data as fast as the server's windows allow."""
        at = 0
        until = time.monotonic() + self._seconds
        while not self.is_closed and stream not in self.ended and time.monotonic() < until:
            room = min(self._window, self._windows.get(stream, 0), MAX_FRAME, len(data) - at)
            if room <= 0 and at < len(data):
                self.read(0.2)
                continue
            is_last = at + room >= len(data)
            flags = Flag.END_STREAM if is_last and ends else 0
            self.write(write_frame(FrameType.DATA, flags, stream, data[at : at + room]))
            at += room
            self._window -= room
            self._windows[stream] -= room
            if is_last:
                return

    def call(self, path: str, message: bytes, more: Iterable[tuple[str, str]] = ()) -> int:
        """Makes a call, and returns its stream without waiting for the response."""
        stream = self.open_stream(grpc_headers(self.port, path, more))
        self.send_data(stream, grpc_message(message))
        return stream

    def wait(self, stream: int) -> StreamReply:
        """Waits for the end of a stream; its status says so if there is none in time."""
        until = time.monotonic() + self._seconds
        while stream not in self.ended and not self.is_closed and time.monotonic() < until:
            self.read(0.2)
        return self.ended.get(stream, StreamReply(b"", "closed" if self.is_closed else "no answer"))

    def read(self, seconds: float = 0.0) -> None:
        """Reads what has come, or comes within so many seconds, and acknowledges what HTTP/2 asks for."""
        if self.is_closed:
            return
        try:
            self._socket.settimeout(max(seconds, 0.000_001))
            data = self._socket.recv(1 << 18)
        except TimeoutError:
            return
        except OSError:
            data = b""
        finally:
            with contextlib.suppress(OSError):
                self._socket.settimeout(self._seconds)
        if not data:
            self.is_closed = True
            return
        self._received += data
        for frame in self._frames():
            self._take(frame)

    def _frames(self) -> Iterable[Frame]:
        while len(self._received) >= 9:
            size = int.from_bytes(self._received[:3])
            if len(self._received) < 9 + size:
                return
            kind, flags = self._received[3:5]
            stream = int.from_bytes(self._received[5:9]) & 0x7FFFFFFF
            payload = bytes(self._received[9 : 9 + size])
            del self._received[: 9 + size]
            yield Frame(kind, flags, stream, payload)

    def _take(self, frame: Frame) -> None:
        match frame.kind:
            case FrameType.SETTINGS if not frame.flags & Flag.ACK:
                self._take_settings(frame.payload)
            case FrameType.PING if not frame.flags & Flag.ACK:
                self.write(write_frame(FrameType.PING, Flag.ACK, 0, frame.payload))
            case FrameType.PING:
                self.pings += 1
            case FrameType.WINDOW_UPDATE:
                more = int.from_bytes(frame.payload) & 0x7FFFFFFF
                if frame.stream:
                    self._windows[frame.stream] = self._windows.get(frame.stream, 0) + more
                else:
                    self._window += more
            case FrameType.DATA:
                self._data.setdefault(frame.stream, bytearray()).extend(frame.payload)
            case FrameType.GOAWAY:
                self.goaway = frame.payload[8:].decode("latin-1") or f"error {int.from_bytes(frame.payload[4:8])}"
            case _:
                pass
        if frame.kind in (FrameType.DATA, FrameType.HEADERS) and frame.flags & Flag.END_STREAM:
            self._end(frame.stream, _written_status(frame.payload) if frame.kind == FrameType.HEADERS else "")
        elif frame.kind == FrameType.RST_STREAM and frame.stream not in self.ended:
            self._end(frame.stream, f"reset {int.from_bytes(frame.payload)}")

    def _take_settings(self, payload: bytes) -> None:
        for at in range(0, len(payload), 6):
            key, value = int.from_bytes(payload[at : at + 2]), int.from_bytes(payload[at + 2 : at + 6])
            if key == Setting.INITIAL_WINDOW_SIZE:
                for stream in self._windows:
                    self._windows[stream] += value - self._initial_window
                self._initial_window = value
        self.write(write_frame(FrameType.SETTINGS, Flag.ACK, 0))

    def _end(self, stream: int, status: str) -> None:
        self.ended[stream] = StreamReply(bytes(self._data.pop(stream, b"")), status)
        self._windows.pop(stream, None)


def _written_status(block: bytes) -> str:
    """The status and its text among the trailers, as far as they are written out without a table or Huffman codes."""
    parts = []
    for name in (b"grpc-status", b"grpc-message"):
        literal = bytes((len(name),)) + name
        _, found, rest = block.partition(literal)
        if found and rest and rest[0] < 127:
            parts.append(rest[1 : 1 + rest[0]].decode("latin-1"))
    return " ".join(parts)[:120].strip()
