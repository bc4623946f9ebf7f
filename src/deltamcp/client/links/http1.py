"""HTTP/1.1 for one origin: connections that are kept, one exchange at a time on each.

Written on httptools because a general client costs more than everything else in a call (decision 6.4).
Nothing is ever sent twice here: whether a request that broke may be repeated is its sender's to know.
"""

import asyncio
import base64
import os
import ssl
import urllib.request
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import Any, NamedTuple, cast
from urllib.parse import SplitResult, quote, unquote, urlsplit

import httptools

from deltamcp.errors import ConfigurationError

_IDLE_SECONDS = 3.0
"""Servers commonly hang up after 5; a request that meets their farewell on its way cannot be repeated safely."""
_CONNECT_SECONDS = 10.0
_MAX_BUFFERED_BYTES = 256 * 1024
"""Bytes of a stream of events that may wait for their reader before the server has to."""
_EVENT_STREAM = b"text/event-stream"
_DRAIN_SECONDS = 1.0
_MAX_HEAD_BYTES = 256 * 1024
"""Of an answer before its body; common servers send below 8 kB."""


class BrokenExchangeError(Exception):
    """The exchange did not come to its end."""

    def __init__(self, reason: str, *, sent: bool) -> None:
        super().__init__(reason)
        self.sent = sent
        """Whether the server may have read any of it."""


class HttpResponse(NamedTuple):
    """A status and headers (lower case) with the whole body; or a stream of events, still to be read."""

    status: int
    headers: dict[bytes, bytes]
    body: bytes
    events: "HttpConnection | None" = None


class HttpConnection(asyncio.Protocol):
    """One socket. Where an answer is a stream of events, `chunks` reads it."""

    def __init__(self, max_body_bytes: int) -> None:
        self._max_body_bytes = max_body_bytes
        self._transport: asyncio.Transport | None = None
        self._failure: BrokenExchangeError | None = None
        self._on_drained: Callable[[HttpConnection], None] | None = None
        self.idle_since = 0.0
        self._reset(bodiless=False)
        self._complete = True

    def _reset(self, bodiless: bool) -> None:
        self._response_waiter: asyncio.Future[HttpResponse] | None = None
        self._chunk_waiter: asyncio.Future[None] | None = None
        self._parser: Any = None
        self._headers: dict[bytes, bytes] = {}
        self._head_bytes = self._buffered_bytes = 0
        self._body = bytearray()
        self._chunks: deque[bytes] = deque()
        self._streaming = self._complete = self._headers_complete = self._paused = False
        self._bodiless = bodiless

    @property
    def is_usable(self) -> bool:
        """Whether another exchange may begin on it."""
        return self._is_open and self._complete and not self._paused and self._failure is None

    @property
    def is_streaming(self) -> bool:
        """Whether there is more of a stream of events to come."""
        return self._is_open and self._streaming and not self._complete

    @property
    def _is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    async def exchange(self, request: bytes, bodiless: bool = False) -> HttpResponse:
        """`bodiless` where an answer has none whatever it says: to CONNECT.

        Raises:
            BrokenError: no whole answer came.
        """
        transport = self._transport
        if transport is None or transport.is_closing():
            raise BrokenExchangeError("the server hung up", sent=False)
        self._reset(bodiless)
        self._parser = httptools.HttpResponseParser(self)
        waiter: asyncio.Future[HttpResponse] = asyncio.get_running_loop().create_future()
        self._response_waiter = waiter
        transport.write(request)
        try:
            return await waiter
        except asyncio.CancelledError:
            self.close()
            raise
        finally:
            self._response_waiter = None

    async def chunks(self) -> AsyncIterator[bytes]:
        """The body of a stream of events, as it comes.

        Raises:
            BrokenError: it ended early, other than by the server's closing it.
        """
        while True:
            while self._chunks:
                chunk = self._chunks.popleft()
                self._buffered_bytes -= len(chunk)
                if self._buffered_bytes < _MAX_BUFFERED_BYTES // 2:
                    self._resume()
                yield chunk
            if self._complete:
                return
            if self._failure is not None:
                raise self._failure
            self._chunk_waiter = asyncio.get_running_loop().create_future()
            try:
                await self._chunk_waiter
            finally:
                self._chunk_waiter = None

    def drain(self, on_drained: Callable[["HttpConnection"], None]) -> None:
        """The rest of a stream is of no interest; `done` is called if it ends soon, so that the socket is of use again.

        Most servers say nothing after the answer but that the stream has ended.
        """
        self._on_drained = on_drained
        self._chunks.clear()
        self._resume()
        asyncio.get_running_loop().call_later(_DRAIN_SECONDS, self._close_undrained)

    def _close_undrained(self) -> None:
        if self._on_drained is not None:
            self.close()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def _resume(self) -> None:
        if self._paused and self._transport is not None:
            self._paused = False
            self._transport.resume_reading()

    # What the loop tells

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        if self._complete:
            self._fail("the server said something that nobody had asked for")
            return
        if not self._headers_complete:
            self._head_bytes += len(data)
            if self._head_bytes > _MAX_HEAD_BYTES + len(data):
                self._fail(f"the answer's headers are larger than {_MAX_HEAD_BYTES} bytes")
                return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._fail("the server changed to another protocol")
        except httptools.HttpParserError:
            self._fail("the answer is not HTTP")

    def connection_lost(self, exc: Exception | None) -> None:
        if self._complete:
            return
        if self._headers_complete and (self._streaming or self._is_close_delimited()):
            # An answer without a length ends with its connection (RFC 9112, 6.3).
            self.on_message_complete()
        else:
            self._fail("the server hung up before it had answered")

    def _is_close_delimited(self) -> bool:
        return b"content-length" not in self._headers and b"transfer-encoding" not in self._headers

    def _fail(self, reason: str) -> None:
        self._failure = BrokenExchangeError(reason, sent=True)
        if self._response_waiter is not None and not self._response_waiter.done():
            self._response_waiter.set_exception(self._failure)
        self._wake_reader()
        self.close()

    def _wake_reader(self) -> None:
        if self._chunk_waiter is not None and not self._chunk_waiter.done():
            self._chunk_waiter.set_result(None)

    # What the parser tells

    def on_message_begin(self) -> None:
        if self._complete:
            self._fail("the server answered twice")
        self._headers = {}

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.lower()] = value

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if status < 200 or self._complete:
            return
        self._headers_complete = True
        if self._bodiless:
            self._deliver_response(HttpResponse(status, self._headers, b""))
        kind = self._headers.get(b"content-type", b"")
        if status == 200 and kind[: len(_EVENT_STREAM)].lower() == _EVENT_STREAM:
            self._streaming = True
            self._deliver_response(HttpResponse(status, self._headers, b"", self))

    def on_body(self, body: bytes) -> None:
        if self._complete or self._on_drained is not None:
            return
        if not self._streaming:
            self._body += body
            if len(self._body) > self._max_body_bytes:
                self._fail(f"the answer is larger than {self._max_body_bytes} bytes")
            return
        self._chunks.append(body)
        self._buffered_bytes += len(body)
        self._wake_reader()
        if self._buffered_bytes > _MAX_BUFFERED_BYTES and not self._paused and self._transport is not None:
            self._paused = True
            self._transport.pause_reading()

    def on_message_complete(self) -> None:
        status = self._parser.get_status_code()
        if status < 200 or self._complete:  # 100 Continue and the like come before the answer
            return
        self._complete = True
        if not self._parser.should_keep_alive() and self._transport is not None:
            self._transport.close()
        if self._on_drained is not None:
            done, self._on_drained = self._on_drained, None
            done(self)
        elif self._streaming:
            self._wake_reader()
        else:
            self._deliver_response(HttpResponse(status, self._headers, bytes(self._body)))

    def _deliver_response(self, response: HttpResponse) -> None:
        if self._response_waiter is not None and not self._response_waiter.done():
            self._response_waiter.set_result(response)


class HttpConnectionPool:
    """The connections to one address."""

    def __init__(self, url: str, max_body_bytes: int) -> None:
        """`most` bounds an answer's bytes.

        Raises:
            ConfigurationError: it is no address, or its proxy is none that can be used.
        """
        self._max_body_bytes = max_body_bytes
        self._idle: deque[HttpConnection] = deque()
        self._busy: set[HttpConnection] = set()
        self._closed = False
        self._sweep_timer: asyncio.TimerHandle | None = None
        parts = split_url(url)
        self._is_https = parts.scheme == "https"
        self._host, self._port = str(parts.hostname), parts.port or (443 if self._is_https else 80)
        self._authority = parts.netloc.rpartition("@")[2]
        self._proxy = _proxy_for(parts)
        self._is_forwarded = self._proxy is not None and not self._is_https
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        # What is not ASCII in an address is told as RFC 3987 has it.
        target = quote(target, safe="%/?:@!$&'()*+,;=-._~[]")
        if self._is_forwarded:
            target = f"http://{self._authority}{target}"
        self._target = target.encode()
        self._ssl_context: ssl.SSLContext | None = None

    def head(self, method: str, headers: dict[str, str]) -> bytes:
        """The first part of a request: all but its length and body.

        Raises:
            ValueError: a value would end its header and begin another.
        """
        if self._proxy is not None and not self._is_https:
            headers = {**headers, **self._proxy.headers}
        if any("\r" in value or "\n" in value for value in headers.values()):
            raise ValueError("a header with a line break in it")
        lines = [f"{method} ".encode() + self._target + b" HTTP/1.1", f"host: {self._authority}".encode("latin-1")]
        lines += [f"{name}: {value}".encode("latin-1") for name, value in headers.items()]
        return b"\r\n".join(lines)

    async def exchange(self, head: bytes, body: bytes) -> HttpResponse:
        """One request and its answer; a stream of events is given back to be read, then left by `release` or `drop`.

        Raises:
            BrokenError: no answer came.
        """
        if self._closed:
            raise BrokenExchangeError("the connection is closed", sent=False)
        connection = self._take_idle() or await self._connect()
        if self._closed:
            connection.close()
            raise BrokenExchangeError("the connection is closed", sent=False)
        self._busy.add(connection)
        try:
            response = await connection.exchange(b"%b\r\ncontent-length: %d\r\n\r\n%b" % (head, len(body), body))
        except BaseException:
            self.drop(connection)
            raise
        if response.events is None:
            self.release(connection)
        return response

    def release(self, connection: HttpConnection) -> None:
        """What is done with may be used again; a stream that was left before its end, if that comes soon."""
        self._busy.discard(connection)
        if self._closed:
            connection.close()
        elif connection.is_streaming:
            self._busy.add(connection)
            connection.drain(self.release)
        elif connection.is_usable and not self._is_forwarded:
            # tinyproxy 1.11 hangs up after every answer it forwards, and does not say so in the answer.
            loop = asyncio.get_running_loop()
            connection.idle_since = loop.time()
            self._idle.append(connection)
            if self._sweep_timer is None:
                self._sweep_timer = loop.call_later(_IDLE_SECONDS, self._sweep)
        else:
            connection.close()

    def drop(self, connection: HttpConnection) -> None:
        """Hangs up, which in the modern era is how a request is cancelled."""
        self._busy.discard(connection)
        connection.close()

    def close(self) -> None:
        self._closed = True
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
        self.close_idle()
        for connection in self._busy:
            connection.close()
        self._busy.clear()

    def close_idle(self) -> None:
        """Hangs up on whatever is kept for later."""
        for connection in self._idle:
            connection.close()
        self._idle.clear()

    def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        while self._idle and loop.time() - self._idle[0].idle_since >= _IDLE_SECONDS:
            self._idle.popleft().close()
        self._sweep_timer = loop.call_later(_IDLE_SECONDS, self._sweep) if self._idle else None

    def _take_idle(self) -> HttpConnection | None:
        now = asyncio.get_running_loop().time()
        while self._idle:
            connection = self._idle.pop()
            if connection.is_usable and now - connection.idle_since < _IDLE_SECONDS:
                return connection
            connection.close()
        return None

    async def _connect(self) -> HttpConnection:
        try:
            async with asyncio.timeout(_CONNECT_SECONDS):
                return await self._open_connection()
        except TimeoutError:
            raise BrokenExchangeError("no connection could be made in time", sent=False) from None
        except ssl.SSLError as error:
            raise BrokenExchangeError(
                f"its certificate or TLS is not right: {error.reason or error}", sent=False
            ) from None
        except OSError as error:
            reason = os.strerror(error.errno).lower() if error.errno and error.errno > 0 else error.strerror
            raise BrokenExchangeError(reason or "the host is not known", sent=False) from None

    async def _open_connection(self) -> HttpConnection:
        loop = asyncio.get_running_loop()
        if self._is_https and self._ssl_context is None:
            self._ssl_context = await asyncio.to_thread(_make_ssl_context)
        if self._proxy is None:
            _, made = await loop.create_connection(
                lambda: HttpConnection(self._max_body_bytes),
                self._host,
                self._port,
                ssl=self._ssl_context,
                server_hostname=self._host if self._is_https else None,
            )
            return made
        transport, made = await loop.create_connection(
            lambda: HttpConnection(self._max_body_bytes), self._proxy.host, self._proxy.port
        )
        if not self._is_https:
            return made
        authority = f"[{self._host}]:{self._port}" if ":" in self._host else f"{self._host}:{self._port}"
        asked = [f"CONNECT {authority} HTTP/1.1", f"host: {authority}"]
        asked += [f"{name}: {value}" for name, value in self._proxy.headers.items()]
        try:
            answer = await made.exchange("\r\n".join([*asked, "", ""]).encode("latin-1"), bodiless=True)
        except BrokenExchangeError:
            raise BrokenExchangeError("the proxy hung up or did not answer in HTTP", sent=False) from None
        if not 200 <= answer.status < 300:
            made.close()
            raise BrokenExchangeError(f"the proxy answered HTTP {answer.status}", sent=False)
        tunnel = HttpConnection(self._max_body_bytes)
        assert self._ssl_context is not None, "it is a secure address"
        upgraded = await loop.start_tls(transport, tunnel, self._ssl_context, server_hostname=self._host)
        assert upgraded is not None, "TLS is up"
        tunnel.connection_made(upgraded)
        return tunnel


def split_url(url: str) -> SplitResult:
    """
    Raises:
        ConfigurationError: it is no address of HTTP.
    """
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018 - asking is what finds it wrong
    except ValueError:
        raise ConfigurationError("This is no address that can be understood; write https://host/path.") from None
    if parts.scheme not in ("http", "https") or not parts.hostname or any(mark in url for mark in "\r\n \t"):
        raise ConfigurationError("An address begins with http:// or https:// and has a host.")
    return parts


class _Proxy(NamedTuple):
    host: str
    port: int
    headers: dict[str, str]


def _proxy_for(parts: SplitResult) -> _Proxy | None:
    """The proxy the environment, or the system, names for this address.

    Raises:
        ConfigurationError: it is none that we can go through; going past it in silence is not ours to decide.
    """
    host = str(parts.hostname)
    named = urllib.request.getproxies().get(parts.scheme)
    if not named or _is_loopback(host) or urllib.request.proxy_bypass(host):
        return None
    proxy = urlsplit(named if "://" in named else f"http://{named}")
    if proxy.scheme != "http" or not proxy.hostname:
        raise ConfigurationError(
            f"The proxy for {host} is none that can be used here; name one by http://, or NO_PROXY."
        )
    headers = {} if proxy.username is None else {"proxy-authorization": basic_authorization(proxy)}
    return _Proxy(proxy.hostname, proxy.port or 80, headers)


def basic_authorization(parts: SplitResult) -> str:
    """A name and password in an address, as RFC 7617 has them sent."""
    pair = f"{unquote(parts.username or '')}:{unquote(parts.password or '')}"
    return f"Basic {base64.b64encode(pair.encode()).decode()}"


def _is_loopback(host: str) -> bool:
    return host in ("localhost", "::1") or host.startswith("127.")


def _make_ssl_context() -> ssl.SSLContext:
    from httpx2 import create_ssl_context  # 60 ms; it knows the system's certificates on every system

    return create_ssl_context()
