"""The body of an HTTP response, read up to a size, however it is compressed."""

import zlib
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import httpx2

ACCEPTED_ENCODINGS = "gzip, deflate"
_PIECE_BYTES = 64 * 1024


class UnreadableBodyError(Exception):
    """A body is compressed in a way that was not accepted, or is not what its headers say."""


async def read_body(response: "httpx2.Response", max_bytes: int) -> tuple[bytes, bool]:
    """Reads at most `max_bytes` of a body; returns them, decompressed, and whether they are the whole body.

    Raises:
        UnreadableBodyError: the body cannot be decompressed.
    """
    body = bytearray()
    async for piece in _pieces(response):
        body += piece
        if len(body) > max_bytes:
            return bytes(body[:max_bytes]), False
    return bytes(body), True


async def _pieces(response: "httpx2.Response") -> AsyncIterator[bytes]:
    """Yields a body in pieces of a limited size: a kilobyte may hold a megabyte."""
    encoding = response.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("identity", "gzip", "x-gzip", "deflate"):
        raise UnreadableBodyError
    inflate = None if encoding == "identity" else _Inflate(encoding)
    async for chunk in response.aiter_raw():
        for piece in (chunk,) if inflate is None else inflate.pieces(chunk):
            yield piece
    if inflate is not None:
        inflate.finish()


class _Inflate:
    """Decompresses a body chunk by chunk."""

    def __init__(self, encoding: str) -> None:
        self._is_gzip = encoding != "deflate"
        self._member: Any = None

    def pieces(self, chunk: bytes) -> Iterator[bytes]:
        try:
            while chunk:
                if self._member is None or (self._member.eof and self._is_gzip):  # gzip: one member may follow another
                    self._member = zlib.decompressobj(_window_bits(self._is_gzip, chunk))
                yield from self._member_pieces(chunk)
                chunk = self._member.unused_data if self._is_gzip else b""
        except zlib.error as error:
            raise UnreadableBodyError from error

    def _member_pieces(self, chunk: bytes) -> Iterator[bytes]:
        piece = self._member.decompress(chunk, _PIECE_BYTES)
        yield piece
        while self._member.unconsumed_tail or len(piece) == _PIECE_BYTES:
            piece = self._member.decompress(self._member.unconsumed_tail, _PIECE_BYTES)
            yield piece

    def finish(self) -> None:
        if self._member is not None and not self._member.eof:
            raise UnreadableBodyError


def _window_bits(is_gzip: bool, chunk: bytes) -> int:
    if is_gzip:
        return zlib.MAX_WBITS | 16
    # RFC 9110 8.4.1.2: some servers send deflate data without the zlib header.
    return zlib.MAX_WBITS if chunk[0] & 0x0F == zlib.DEFLATED else -zlib.MAX_WBITS
