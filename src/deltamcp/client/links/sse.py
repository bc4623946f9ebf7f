"""The link over the deprecated HTTP with SSE of MCP 2024-11-05: one stream from the server, one URL to post to.

MCP 2025-11-25, "Backwards Compatibility": a server that refuses a POST may be such a server.
"""

import asyncio
from collections.abc import Callable, Mapping
from urllib.parse import urljoin

from deltamcp.client.links.http import HttpLink
from deltamcp.client.links.http1 import BrokenExchangeError, HttpConnection, origin
from deltamcp.client.links.link import NO_HEADERS, MessageReceiver, TokenSource, read_messages, too_large_error
from deltamcp.errors import ClientError, ConfigurationError, ConnectionLostError, UnreachableError
from deltamcp.limits import Limits
from deltamcp.values import JSON
from deltamcp.wire import sse
from deltamcp.wire.codecs import JSON_CODEC

_MAX_URL_BYTES = 8192
"""The longest address to post to; common servers accept no longer ones."""


class SseLink:
    """Reads the server's stream of events, and posts messages to the URL that the stream names."""

    carries_headers = False
    pid: int | None = None

    def __init__(
        self, label: str, url: str, headers: Mapping[str, str], tokens: TokenSource | None, limits: Limits
    ) -> None:
        self.codec = JSON_CODEC
        self.ended: bool = False
        self._label, self._url, self._limits = label, url, limits
        self._stream_link = HttpLink(label, url, headers, tokens, limits)
        self._make_post_link: Callable[[str], HttpLink] = lambda post_url: HttpLink(
            label, post_url, headers, tokens, limits
        )
        self._post_link: HttpLink | None = None
        self._read_task: asyncio.Task[None] | None = None

    async def open(self, receiver: MessageReceiver) -> None:
        self._receiver = receiver
        await self._stream_link.open(receiver)
        stream = await self._stream_link.open_stream()
        if stream is None:
            raise UnreachableError(f"{self._label} offers no stream of events.")
        endpoint: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._read_task = asyncio.create_task(self._read_stream(stream, endpoint))
        post_url = await endpoint
        try:
            post_url = urljoin(self._url, post_url)
            if origin(post_url) != origin(self._url):
                raise UnreachableError(f"{self._label} names an address to post to at another origin; that is refused.")
            self._post_link = self._make_post_link(post_url)
        except (ValueError, ConfigurationError):
            raise UnreachableError(f"{self._label} names an invalid address to post to.") from None
        await self._post_link.open(receiver)

    async def _read_stream(self, stream: HttpConnection, endpoint: "asyncio.Future[str]") -> None:
        reader = sse.SseReader(self._limits.message_bytes)
        lost: ClientError = ConnectionLostError(f"{self._label} closed its stream.")
        try:
            async for chunk in stream.chunks():
                for event in reader.feed(chunk):
                    if event.kind == "endpoint" and not endpoint.done():
                        endpoint.set_result(event.data[:_MAX_URL_BYTES].decode("utf-8", "replace"))
                    elif event.kind == "message" and event.data:
                        for message in read_messages(event.data, JSON_CODEC, self._limits):
                            self._receiver.receive(message)
        except ValueError:
            lost = too_large_error(f"An event of {self._label}", self._limits.message_bytes)
        except BrokenExchangeError as error:
            lost = ConnectionLostError(f"{self._label} broke off its stream: {error}.")
        finally:
            self.ended = True
            if not endpoint.done():
                endpoint.set_exception(UnreachableError(f"{self._label} names no address to post to."))
            self._receiver.fail_pending(lost)

    async def send(
        self, message: dict[str, JSON], headers: Mapping[str, str] = NO_HEADERS, ends_at: float | None = None
    ) -> None:
        if self.ended or self._post_link is None:
            raise ConnectionLostError(f"{self._label} closed its stream.", maybe_done=False)
        await self._post_link.post(message)

    async def listen(self, headers: Mapping[str, str], on_open: Callable[[], None]) -> bool:
        """Returns True: all messages come on the one stream."""
        on_open()
        return True

    async def close(self) -> None:
        self.ended = True
        if self._read_task is not None:
            self._read_task.cancel()
            await asyncio.wait([self._read_task])
        for link in (self._stream_link, self._post_link):
            if link is not None:
                await link.close()
