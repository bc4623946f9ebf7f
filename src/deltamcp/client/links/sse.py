"""The HTTP with SSE of 2024-11-05, deprecated since: one stream of all that is said, an address to say things to.

MCP 2025-11-25, "Backwards Compatibility": a server that refuses a POST may be one of these.
"""

import asyncio
from collections.abc import Callable, Mapping
from urllib.parse import urljoin, urlsplit

from deltamcp.client.links.http import HttpLink, Token
from deltamcp.client.links.http1 import BrokenError, Connection
from deltamcp.client.links.link import LIMITS, NO_HEADERS, Ears, messages
from deltamcp.errors import ConfigurationError, ConnectionLostError, UnreachableError
from deltamcp.values import JSON
from deltamcp.wire import sse
from deltamcp.wire.codecs import JSON_CODEC


class SseLink:
    """A stream that is read as long as the connection lives."""

    mirrors = False

    def __init__(self, who: str, url: str, headers: Mapping[str, str], token: Token | None) -> None:
        self.codec = JSON_CODEC
        self.ended = False
        self._who, self._url = who, url
        self._get = HttpLink(who, url, headers, token)
        self._post: Callable[[str], HttpLink] = lambda place: HttpLink(who, place, headers, token)
        self._posting: HttpLink | None = None
        self._reading: asyncio.Task[None] | None = None

    async def open(self, ears: Ears) -> None:
        self._ears = ears
        await self._get.open(ears)
        stream = await self._get.stream()
        if stream is None:
            raise UnreachableError(f"{self._who} offers no stream of events.")
        found: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._reading = asyncio.create_task(self._read(stream, found))
        place = await found
        try:
            place = urljoin(self._url, place)
            if _origin(place) != _origin(self._url):
                raise UnreachableError(f"{self._who} wants to be spoken to at another host, which it may not.")
            self._posting = self._post(place)
        except (ValueError, ConfigurationError):
            raise UnreachableError(f"{self._who} names an address to speak to that is none.") from None
        await self._posting.open(ears)

    async def _read(self, stream: Connection, found: "asyncio.Future[str]") -> None:
        reader = sse.Reader(LIMITS.message_bytes)
        lost = ConnectionLostError(f"{self._who} closed its stream.")
        try:
            async for chunk in stream.chunks():
                for event in reader.feed(chunk):
                    if event.kind == "endpoint" and not found.done():
                        found.set_result(event.data.decode("utf-8", "replace"))
                    elif event.kind == "message" and event.data:
                        for message in messages(event.data, JSON_CODEC):
                            self._ears.hear(message)
        except (BrokenError, ValueError) as error:
            lost = ConnectionLostError(f"{self._who} broke off its stream: {error}.")
        finally:
            self.ended = True
            if not found.done():
                found.set_exception(UnreachableError(f"{self._who} names no address to speak to."))
            self._ears.lost(lost)

    async def send(self, message: dict[str, JSON], headers: Mapping[str, str] = NO_HEADERS) -> None:
        if self.ended or self._posting is None:
            raise ConnectionLostError(f"{self._who} closed its stream.", maybe_done=False)
        await self._posting.post(message)

    async def listen(self, headers: Mapping[str, str], opened: Callable[[], None]) -> bool:
        """Everything comes over the one stream."""
        opened()
        return True

    async def close(self) -> None:
        self.ended = True
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait([self._reading])
        for link in (self._get, self._posting):
            if link is not None:
                await link.close()


def _origin(url: str) -> tuple[str, str | None, int]:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port or (443 if parts.scheme == "https" else 80)
