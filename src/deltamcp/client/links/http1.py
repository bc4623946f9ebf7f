"""An HTTP/1.1 client for one origin: a pool of connections, each with one exchange at a time.

Written on httptools because a general client costs more than everything else in a call (decision 5.4).
It never sends a request twice: only its caller knows whether a request that failed may be repeated.
"""

import asyncio
import base64
import os
import socket
import ssl
import urllib.request
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from ipaddress import ip_address
from typing import Any, NamedTuple, TypeAlias, cast
from urllib.parse import SplitResult, quote, unquote, urlsplit

import httptools

from deltamcp.auth.safe_url import Address, is_loopback
from deltamcp.errors import ConfigurationError

_IDLE_SECONDS = 3.0
"""Servers commonly close idle connections after 5 s; a request sent at that moment cannot be repeated safely."""
_CONNECT_SECONDS = 10.0
_MAX_BUFFERED_BYTES = 256 * 1024
"""How much of a stream of events is buffered for its reader before the connection stops reading."""
_EVENT_STREAM = b"text/event-stream"
_CHALLENGES = b"www-authenticate"
_DRAIN_SECONDS = 1.0
_MAX_HEAD_BYTES = 64 * 1024
"""The largest head of a response, and the most that the framing of its body may take beyond its share; common servers
send less than 8 kB."""
_MAX_FRAMING_SHARE = 16
"""How many times its body's bytes a response may have: a chunk of one byte has six, without extensions."""
_MAX_CHUNK_BYTES = 64 * 1024
"""How much of a stream of events is read before other tasks get their turn."""


class BrokenExchangeError(Exception):
    """The server did not send a complete response."""

    def __init__(self, reason: str, *, sent: bool) -> None:
        super().__init__(reason)
        self.sent = sent
        """Whether the server may have read any of the request."""


class OversizedResponseError(BrokenExchangeError):
    """The server's response is larger than the client allows."""


class HttpResponse(NamedTuple):
    """A response: status, headers (lower case) and body; or, in `events`, a connection to read a stream from."""

    status: int
    headers: dict[bytes, bytes]
    body: bytes
    events: "HttpConnection | None" = None


class HttpConnection(asyncio.Protocol):
    """One socket. If a response is a stream of events, `chunks` reads it."""

    def __init__(self, max_body_bytes: int) -> None:
        self._max_body_bytes = max_body_bytes
        self._transport: asyncio.Transport | None = None
        self._failure: BrokenExchangeError | None = None
        self._on_drained: Callable[[HttpConnection], None] | None = None
        self.idle_since: float = 0.0
        self._reset(bodiless=False)
        self._complete = True

    def _reset(self, bodiless: bool) -> None:
        self._response_waiter: asyncio.Future[HttpResponse] | None = None
        self._chunk_waiter: asyncio.Future[None] | None = None
        self._parser: Any = None
        self._headers: dict[bytes, bytes] = {}
        self._head_bytes = self._buffered_bytes = 0
        self._wire_bytes = self._body_bytes = 0
        self._body = bytearray()
        self._chunks: deque[bytes] = deque()
        self._streaming = self._complete = self._headers_complete = self._paused = False
        self._bodiless = bodiless

    @property
    def is_usable(self) -> bool:
        """Whether another exchange may begin on this connection."""
        return self._is_open and self._complete and not self._paused and self._failure is None

    @property
    def is_streaming(self) -> bool:
        """Whether the server is still sending a stream of events."""
        return self._is_open and self._streaming and not self._complete

    @property
    def _is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    async def exchange(self, request: bytes, bodiless: bool = False) -> HttpResponse:
        """Sends a request and returns its response.

        Args:
            bodiless: whether the response has no body whatever its headers say, as to CONNECT.

        Raises:
            BrokenExchangeError: the server did not send a complete response.
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
        """Yields the body of a stream of events as it arrives.

        Raises:
            BrokenExchangeError: the stream failed; if the server merely closes it, it ends.
        """
        while True:
            while self._chunks:
                chunk = self._chunks.popleft()
                self._buffered_bytes -= len(chunk)
                if self._buffered_bytes < _MAX_BUFFERED_BYTES // 2:
                    self._resume()
                for start in range(0, len(chunk), _MAX_CHUNK_BYTES):
                    yield chunk[start : start + _MAX_CHUNK_BYTES]
                    if start + _MAX_CHUNK_BYTES < len(chunk) or self._chunks:
                        await asyncio.sleep(0)
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
        """Discards the rest of a stream, and calls `on_drained` if it ends soon, so that the socket can be used again.

        Most servers send only the end of the stream after the response.
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

    # Callbacks of the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        if self._complete:
            self._fail("the server sent data without a request")
            return
        if not self._headers_complete:
            self._head_bytes += len(data)
            if self._head_bytes > _MAX_HEAD_BYTES + len(data):
                self._fail(f"the answer's headers are larger than {_MAX_HEAD_BYTES} bytes")
                return
        self._wire_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._fail("the server changed to another protocol")
        except httptools.HttpParserError:
            self._fail("the answer is not HTTP")
        if self._wire_bytes > 2 * _MAX_HEAD_BYTES + len(data) + _MAX_FRAMING_SHARE * self._body_bytes:
            self._fail("the answer is framed in more bytes than it has")

    def connection_lost(self, exc: Exception | None) -> None:
        if self._complete:
            return
        if self._headers_complete and (self._streaming or self._is_close_delimited()):
            # A response without a length ends with its connection (RFC 9112, 6.3).
            self.on_message_complete()
        else:
            self._fail("the server hung up before it had answered")

    def _is_close_delimited(self) -> bool:
        return b"content-length" not in self._headers and b"transfer-encoding" not in self._headers

    def _fail(self, reason: str, kind: type[BrokenExchangeError] = BrokenExchangeError) -> None:
        self._failure = kind(reason, sent=True)
        if self._response_waiter is not None and not self._response_waiter.done():
            self._response_waiter.set_exception(self._failure)
        self._wake_reader()
        self.close()

    def _wake_reader(self) -> None:
        if self._chunk_waiter is not None and not self._chunk_waiter.done():
            self._chunk_waiter.set_result(None)

    # Callbacks of the parser

    def on_message_begin(self) -> None:
        if self._complete:
            self._fail("the server answered twice")
        self._headers = {}

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._headers_complete:  # trailers come later; none of them means anything here
            name = name.lower()
            if name == _CHALLENGES and name in self._headers:  # RFC 9110, 11.6.1: a list, in one line or several
                value = b"%b, %b" % (self._headers[name], value)
            self._headers[name] = value

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
        self._body_bytes += len(body)
        if self._complete or self._on_drained is not None or self._failure is not None:
            return
        if not self._streaming:
            self._body += body
            if len(self._body) > self._max_body_bytes:
                self._fail(f"the answer is larger than {self._max_body_bytes} bytes", OversizedResponseError)
            return
        self._chunks.append(body)
        self._buffered_bytes += len(body)
        self._wake_reader()
        if self._buffered_bytes > _MAX_BUFFERED_BYTES and not self._paused and self._transport is not None:
            self._paused = True
            self._transport.pause_reading()

    def on_message_complete(self) -> None:
        status = self._parser.get_status_code()
        if status < 200 or self._complete:  # interim responses such as 100 Continue come before the final one
            return
        self._complete = True
        if not self._parser.should_keep_alive() and self._transport is not None:
            self._transport.close()
        if self._on_drained is not None:
            on_drained, self._on_drained = self._on_drained, None
            on_drained(self)
        elif self._streaming:
            self._wake_reader()
        else:
            self._deliver_response(HttpResponse(status, self._headers, bytes(self._body)))

    def _deliver_response(self, response: HttpResponse) -> None:
        if self._response_waiter is not None and not self._response_waiter.done():
            self._response_waiter.set_result(response)


CheckAddresses: TypeAlias = Callable[[Sequence[Address]], Awaitable[None]]
"""Raises an error if a host must not be connected to, because of its addresses."""


class HttpConnectionPool:
    """The connections to the origin of one URL, directly or through the environment's proxy."""

    def __init__(self, url: str, max_body_bytes: int, check: CheckAddresses | None = None) -> None:
        """`check` gets the addresses of the URL's host, and only these are connected to; a proxy finds them itself.

        Raises:
            ConfigurationError: this is not a URL, or its proxy cannot be used.
        """
        self._max_body_bytes = max_body_bytes
        self._check = check
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
        self._ssl_context: ssl.SSLContext | None = None

    def head(self, method: str, url: str, headers: dict[str, str]) -> bytes:
        """Returns the encoded head of a request to a URL of the pool's origin, without its length.

        Raises:
            ValueError: a header's value has a line break in it.
        """
        if self._proxy is not None and not self._is_https:
            headers = {**headers, **self._proxy.headers}
        if any("\r" in value or "\n" in value for value in headers.values()):
            raise ValueError("a header with a line break in it")
        parts = urlsplit(url)
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        # RFC 3987: characters that are not ASCII are percent-encoded.
        target = quote(target, safe="%/?:@!$&'()*+,;=-._~[]")
        if self._is_forwarded:
            target = f"http://{self._authority}{target}"
        lines = [f"{method} {target} HTTP/1.1".encode(), f"host: {self._authority}".encode("latin-1")]
        lines += [f"{name}: {value}".encode("latin-1") for name, value in headers.items()]
        return b"\r\n".join(lines)

    async def exchange(self, head: bytes, body: bytes) -> HttpResponse:
        """Sends a request and returns its response; the caller gives a stream of events back by `release` or `drop`.

        Raises:
            BrokenExchangeError: the server did not send a complete response.
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
        """Takes a connection back to use it again; one with an unfinished stream only if the stream ends soon."""
        self._busy.discard(connection)
        if self._closed:
            connection.close()
        elif connection.is_streaming:
            self._busy.add(connection)
            connection.drain(self.release)
        elif connection.is_usable and not self._is_forwarded:
            # tinyproxy 1.11 closes the connection after each response it forwards, without announcing it.
            loop = asyncio.get_running_loop()
            connection.idle_since = loop.time()
            self._idle.append(connection)
            if self._sweep_timer is None:
                self._sweep_timer = loop.call_later(_IDLE_SECONDS, self._sweep)
        else:
            connection.close()

    def drop(self, connection: HttpConnection) -> None:
        """Closes a connection, which in the modern era cancels the request on it."""
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
        """Closes all idle connections."""
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

    async def _open_checked(self) -> HttpConnection:
        """Connects to an address that was checked: the host's name may stand for another one the next time."""
        assert self._check is not None, "there is a check"
        addresses = await resolve_host(self._host, self._port)
        await self._check(addresses)
        failure = OSError("the host is not known")
        for address in addresses:
            try:
                return await self._open_directly(str(address))
            except OSError as error:
                failure = error
        raise failure

    async def _open_directly(self, host: str) -> HttpConnection:
        _, connection = await asyncio.get_running_loop().create_connection(
            lambda: HttpConnection(self._max_body_bytes),
            host,
            self._port,
            ssl=self._ssl_context,
            server_hostname=self._host if self._is_https else None,
        )
        return connection

    async def _open_connection(self) -> HttpConnection:
        loop = asyncio.get_running_loop()
        if self._is_https and self._ssl_context is None:
            self._ssl_context = await asyncio.to_thread(_make_ssl_context)
        if self._proxy is None and self._check is None:
            return await self._open_directly(self._host)
        if self._proxy is None:
            return await self._open_checked()
        transport, connection = await loop.create_connection(
            lambda: HttpConnection(self._max_body_bytes), self._proxy.host, self._proxy.port
        )
        if not self._is_https:
            return connection
        authority = f"[{self._host}]:{self._port}" if ":" in self._host else f"{self._host}:{self._port}"
        lines = [f"CONNECT {authority} HTTP/1.1", f"host: {authority}"]
        lines += [f"{name}: {value}" for name, value in self._proxy.headers.items()]
        try:
            response = await connection.exchange("\r\n".join([*lines, "", ""]).encode("latin-1"), bodiless=True)
        except BrokenExchangeError:
            raise BrokenExchangeError("the proxy hung up or did not answer in HTTP", sent=False) from None
        if not 200 <= response.status < 300:
            connection.close()
            raise BrokenExchangeError(f"the proxy answered HTTP {response.status}", sent=False)
        tunnel = HttpConnection(self._max_body_bytes)
        assert self._ssl_context is not None, "the URL is https"
        upgraded = await loop.start_tls(transport, tunnel, self._ssl_context, server_hostname=self._host)
        assert upgraded is not None, "TLS is up"
        tunnel.connection_made(upgraded)
        return tunnel


async def resolve_host(host: str, port: int) -> list[Address]:
    """Returns the addresses that a host's name stands for, in the order in which they are to be tried.

    Raises:
        OSError: it stands for none.
    """
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [ip_address(address[0]) for *_, address in found]


def split_url(url: str) -> SplitResult:
    """
    Raises:
        ConfigurationError: this is not an HTTP URL.
    """
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018 - the property raises if the port is invalid
    except ValueError:
        raise ConfigurationError("This is not a valid address; write https://host/path.") from None
    if parts.scheme not in ("http", "https") or not parts.hostname or any(mark in url for mark in "\r\n \t"):
        raise ConfigurationError("An address begins with http:// or https:// and has a host.")
    return parts


def origin(url: str) -> tuple[str, str | None, int]:
    """Returns the origin of a URL (RFC 6454).

    Raises:
        ValueError: this is not a URL.
    """
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port or (443 if parts.scheme == "https" else 80)


class _Proxy(NamedTuple):
    host: str
    port: int
    headers: dict[str, str]


def _proxy_for(parts: SplitResult) -> _Proxy | None:
    """Returns the proxy that the environment or the system names for this URL.

    Raises:
        ConfigurationError: the proxy is not an HTTP proxy; the client does not bypass it silently.
    """
    host = str(parts.hostname)
    proxy_url = urllib.request.getproxies().get(parts.scheme)
    if not proxy_url or is_loopback(host) or urllib.request.proxy_bypass(host):
        return None
    proxy = urlsplit(proxy_url if "://" in proxy_url else f"http://{proxy_url}")
    if proxy.scheme != "http" or not proxy.hostname:
        raise ConfigurationError(
            f"The proxy for {host} cannot be used; name one that begins with http://, or set NO_PROXY."
        )
    headers = {} if proxy.username is None else {"proxy-authorization": basic_authorization(proxy)}
    return _Proxy(proxy.hostname, proxy.port or 80, headers)


def basic_authorization(parts: SplitResult) -> str:
    """Returns the `authorization` value for the name and password in a URL (RFC 7617)."""
    pair = f"{unquote(parts.username or '')}:{unquote(parts.password or '')}"
    return f"Basic {base64.b64encode(pair.encode()).decode()}"


def _make_ssl_context() -> ssl.SSLContext:
    from httpx2 import create_ssl_context  # 60 ms to import; it finds the certificates of every system

    return create_ssl_context()
