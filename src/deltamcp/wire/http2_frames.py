"""The frames of HTTP/2 (RFC 9113), as far as a server must know them to bound what a connection costs."""

import enum
import struct
from typing import NamedTuple

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
MAX_FRAME_BYTES = 16_384
"""The largest payload that a client may send, unless the server allows more (RFC 9113, 4.2)."""
MAX_WINDOW = 2**31 - 1
"""The most that one frame adds to a window (RFC 9113, 6.9)."""
_HEAD = struct.Struct(">HBBBI")
_MAX_CONTINUATIONS = 8
"""Frames that continue one header section; clients need one for each 16 kB of it, and gRPC bounds none (CVE-2024-27316
and its like)."""


_MAX_FIELDS = 512
"""Fields of a header section, one byte each if they repeat one of 4 kB; gRPC stores some 200 bytes for each."""


class FrameType(enum.IntEnum):
    """RFC 9113, 6."""

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


class Flag(enum.IntEnum):
    """RFC 9113, 6; their sums are plain integers, which are read five times as fast as an `IntFlag`."""

    END_STREAM = 1
    ACK = 1
    END_HEADERS = 4
    PADDED = 8
    PRIORITY = 32


class ErrorCode(enum.IntEnum):
    """RFC 9113, 7; those that are sent here."""

    PROTOCOL_ERROR = 1
    FRAME_SIZE_ERROR = 6
    CANCEL = 8
    ENHANCE_YOUR_CALM = 11


class Http2Error(Exception):
    """Why a connection has to be closed: what the client sends is no HTTP/2, or more than the server takes."""

    def __init__(self, code: ErrorCode, text: str) -> None:
        super().__init__(text)
        self.code = code


class Http2Frame(NamedTuple):
    """A frame; that of a header section has all of the section, without padding and priority."""

    kind: int
    flags: int
    stream: int
    payload: bytes

    @property
    def is_significant(self) -> bool:
        """Whether a server has to read it; priorities, unknown types and data without any it need not."""
        return self.kind in _READ and (self.kind != FrameType.DATA or bool(self.flags) or bool(self.payload))


_MAY_END = (FrameType.DATA, FrameType.HEADERS)
_READ = frozenset(FrameType) - {FrameType.PRIORITY}
"""The types that mean something to a server, which ignores priorities and unknown types (RFC 9113, 5.3 and 5.5)."""


def write_frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return _HEAD.pack(len(payload) >> 8, len(payload) & 0xFF, kind, flags, stream) + payload


def write_headers(frame: Http2Frame, name: bytes, value: bytes) -> bytes:
    """Returns the frames of a header section with one field more, which the tables of neither side get to know."""
    # RFC 7541, 6.2.2: a literal without indexing, whose strings have less than 127 bytes.
    block = b"%b\x00%c%b%c%b" % (frame.payload, len(name), name, len(value), value)
    if len(block) <= MAX_FRAME_BYTES:
        return write_frame(FrameType.HEADERS, frame.flags | Flag.END_HEADERS, frame.stream, block)
    parts = [block[at : at + MAX_FRAME_BYTES] for at in range(0, len(block), MAX_FRAME_BYTES)]
    frames = [write_frame(FrameType.HEADERS, frame.flags & ~Flag.END_HEADERS, frame.stream, parts[0])]
    for part in parts[1:]:
        flags = Flag.END_HEADERS if part is parts[-1] else 0
        frames.append(write_frame(FrameType.CONTINUATION, flags, frame.stream, part))
    return b"".join(frames)


def write_goaway(last_stream: int, error: Http2Error) -> bytes:
    """Returns the frame that tells a client why its connection is closed."""
    payload = struct.pack(">II", last_stream, error.code) + str(error).encode()
    return write_frame(FrameType.GOAWAY, 0, 0, payload)


def write_reset(stream: int, code: ErrorCode) -> bytes:
    return write_frame(FrameType.RST_STREAM, 0, stream, code.to_bytes(4))


def write_window_update(stream: int, size: int) -> bytes:
    return write_frame(FrameType.WINDOW_UPDATE, 0, stream, size.to_bytes(4))


class ClientFrames:
    """Reads the frames that a client sends, header sections whole.

    It stores at most one frame and one header section beside what it was fed last.
    """

    def __init__(self, header_bytes: int) -> None:
        """`header_bytes` is the size of the largest header section, as it is compressed."""
        self._header_bytes = header_bytes
        self._received = bytearray()
        self._section: list[bytes] = []
        """A header section whose last frame is yet to come."""
        self._section_bytes = 0
        self._continuations = 0
        self._first = (0, 0)
        """Whether the section ends its stream, and which that is."""
        self.has_preface: bool = False
        """Whether the client has begun with the preface of HTTP/2."""

    def feed(self, data: bytes) -> None:
        """Takes bytes of the client.

        Raises:
            Http2Error: the client does not begin as HTTP/2 does.
        """
        self._received += data
        if self.has_preface:
            return
        begin = bytes(self._received[: len(PREFACE)])
        if not PREFACE.startswith(begin):
            raise Http2Error(ErrorCode.PROTOCOL_ERROR, "this is no HTTP/2")
        self.has_preface = len(begin) == len(PREFACE)
        if self.has_preface:
            del self._received[: len(PREFACE)]

    @property
    def is_in_headers(self) -> bool:
        """Whether the rest of a header section is yet to come."""
        return bool(self._section) or (len(self._received) > 3 and self._received[3] == FrameType.HEADERS)

    def read(self) -> Http2Frame | None:
        """Returns the next frame; None until it is whole.

        Raises:
            Http2Error: it is too large, or may not come now.
        """
        received = self._received
        while self.has_preface and len(received) >= _HEAD.size:
            high, low, kind, flags, stream = _HEAD.unpack_from(received)
            size = high << 8 | low
            stream &= 0x7FFF_FFFF
            self._check(kind, size, stream)
            if len(received) < _HEAD.size + size:
                return None
            payload = bytes(received[_HEAD.size : _HEAD.size + size])
            del received[: _HEAD.size + size]
            if kind == FrameType.HEADERS:
                payload = _strip(payload, flags)
                self._first = (flags & Flag.END_STREAM, stream)
            elif kind == FrameType.CONTINUATION:
                self._continuations += 1
            else:
                return Http2Frame(kind, flags, stream, payload)
            self._section.append(payload)
            self._section_bytes += len(payload)
            if flags & Flag.END_HEADERS:
                return self._end_section()
        return None

    def _check(self, kind: int, size: int, stream: int) -> None:
        if size > MAX_FRAME_BYTES:
            raise Http2Error(ErrorCode.FRAME_SIZE_ERROR, f"a frame has at most {MAX_FRAME_BYTES} bytes")
        if bool(self._section) != (kind == FrameType.CONTINUATION) or (self._section and stream != self._first[1]):
            raise Http2Error(ErrorCode.PROTOCOL_ERROR, "a header section is continued by its own frames only")
        if kind == FrameType.PUSH_PROMISE:
            raise Http2Error(ErrorCode.PROTOCOL_ERROR, "clients push nothing")
        if kind in (FrameType.HEADERS, FrameType.CONTINUATION) and (
            self._section_bytes + size > self._header_bytes or self._continuations >= _MAX_CONTINUATIONS
        ):
            text = f"a header section has at most {self._header_bytes} bytes in {1 + _MAX_CONTINUATIONS} frames"
            raise Http2Error(ErrorCode.ENHANCE_YOUR_CALM, text)

    def _end_section(self) -> Http2Frame:
        block = self._section[0] if len(self._section) == 1 else b"".join(self._section)
        self._section.clear()
        self._continuations = self._section_bytes = 0
        if len(block) > _MAX_FIELDS and count_fields(block) > _MAX_FIELDS:
            raise Http2Error(ErrorCode.ENHANCE_YOUR_CALM, f"a header section has at most {_MAX_FIELDS} fields")
        flags, stream = self._first
        return Http2Frame(FrameType.HEADERS, flags, stream, block)


def _strip(payload: bytes, flags: int) -> bytes:
    """Returns the payload of a frame that begins a header section without padding and priority (RFC 9113, 6.2).

    Raises:
        Http2Error: it has more padding than payload.
    """
    begin, end = 0, len(payload)
    if flags & Flag.PADDED:
        begin, end = 1, end - (payload[0] if payload else 0)
    if flags & Flag.PRIORITY:
        begin += 5
    if begin > end:
        raise Http2Error(ErrorCode.PROTOCOL_ERROR, "a frame has more padding than payload")
    return payload[begin:end]


def count_fields(block: bytes) -> int:
    """Returns how many fields a header section has (RFC 7541, 6), a change of the table's size among them.

    What cannot be read counts as one more; gRPC says what is wrong with it.
    """
    count = at = 0
    while at < len(block):
        count += 1
        first = block[at]
        if first & 0x80:  # an indexed field
            _, at = _read_integer(block, at, 7)
        elif first & 0xE0 == 0x20:  # the size of the table
            _, at = _read_integer(block, at, 5)
        else:  # a literal, with the index of its name or the name itself
            name, at = _read_integer(block, at, 6 if first & 0x40 else 4)
            for _ in range(1 if name else 2):
                size, at = _read_integer(block, at, 7)
                at += size
    return count


def _read_integer(block: bytes, at: int, bits: int) -> tuple[int, int]:
    """Returns an integer whose first byte has so many of its bits, and where it ends (RFC 7541, 5.1)."""
    if at >= len(block):
        return 0, at
    most = (1 << bits) - 1
    value = block[at] & most
    at += 1
    shift = 0
    while value >= most and at < len(block):
        value += (block[at] & 0x7F) << shift
        shift += 7
        at += 1
        if not block[at - 1] & 0x80:
            break
    return value, at


class ServerFrames:
    """Follows the frames that a server sends, which are passed on as they are."""

    def __init__(self) -> None:
        self._head = b""
        self._left = 0
        """The rest of a payload."""

    @property
    def is_between(self) -> bool:
        """Whether the last frame is whole, so that another one may follow."""
        return not self._head and not self._left

    def feed(self, data: bytes) -> tuple[list[int], int | None]:
        """Takes bytes of the server.

        Returns:
            The streams that the server ends in these bytes, by their last frame or by a reset; and the last place where
            a frame ends, None if none does.
        """
        ended = []
        known = len(self._head)
        at, place = self._left, None
        if known:
            data = self._head + data
        elif at <= len(data):
            place = at
        while at + _HEAD.size <= len(data):
            high, low, kind, flags, stream = _HEAD.unpack_from(data, at)
            if kind == FrameType.RST_STREAM or (kind in _MAY_END and flags & Flag.END_STREAM):
                ended.append(stream & 0x7FFF_FFFF)
            at += _HEAD.size + (high << 8 | low)
            if at <= len(data):
                place = at - known
        self._head = data[at:]
        self._left = max(0, at - len(data))
        return ended, place
