"""An address: one POST a message, answered by JSON or by a stream of events. Both eras.

What differs between them: a server of the handshake era may name a session, and a stream that closed early goes on
where it is asked for (MCP 2025-11-25, "Resumability and Redelivery"). The modern era has neither.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from inspect import isawaitable
from typing import NamedTuple, TypeAlias

from deltamcp.catalog.param_headers import HEADER_NAME
from deltamcp.client.links.http1 import BrokenExchangeError, HttpConnection, HttpConnectionPool, HttpResponse
from deltamcp.client.links.link import LIMITS, NO_HEADERS, MessageReceiver, read_messages
from deltamcp.errors import ClientError, ConfigurationError, ConnectionLostError, HttpStatusError, UnauthorizedError
from deltamcp.values import JSON, RequestId
from deltamcp.values import Response as Answer
from deltamcp.wire import sse
from deltamcp.wire.codecs import JSON_CODEC, Codec, codec_for_content_type

BearerToken: TypeAlias = str | Callable[[], str | Awaitable[str]]
"""A bearer token, or what gives one; it is asked again where the server refuses the last one."""

VERSION_HEADER = "mcp-protocol-version"
_MAX_IN_FLIGHT = 256
"""Requests in flight, a socket each; further ones wait. Answers to a server's questions never do."""
_HEADER_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")
_SESSION_ID = re.compile(r"[\x21-\x7e]{1,1024}")
_RESERVED_HEADERS = frozenset({"host", "content-length", "transfer-encoding", "connection"})
"""What only the writer of a request can know."""
_RETRY_SECONDS = 1.0
_CLOSE_SECONDS = 2.0


class _StreamEnd(NamedTuple):
    """Where a stream stopped, and how long to wait before asking for the rest."""

    last_event_id: str
    retry_seconds: float


class HttpLink:
    """Streamable HTTP."""

    carries_headers = True

    def __init__(self, label: str, url: str, headers: Mapping[str, str], token: BearerToken | None) -> None:
        self.codec = JSON_CODEC
        self.ended = False
        self._label = label
        self._pool = HttpConnectionPool(url, LIMITS.message_bytes)
        self._headers = {_check_header_name(name): _check_header_value(value, name) for name, value in headers.items()}
        self._token = token
        self._bearer: str | None = None
        self._session_id: str | None = None
        self._request_slots = asyncio.Semaphore(_MAX_IN_FLIGHT)
        self._head_cache: dict[tuple[object, ...], bytes] = {}
        self._version = ""

    async def open(self, receiver: MessageReceiver) -> None:
        self._receiver = receiver
        if self._token is not None:
            self._bearer = _check_header_value(await _get_token(self._token), "the token")

    async def send(self, message: dict[str, JSON], headers: Mapping[str, str] = NO_HEADERS) -> None:
        body = self.codec.encode(message)
        self._version = headers.get(VERSION_HEADER, self._version)
        if "method" not in message or "id" not in message:
            await self._post(headers, body, None)
            return
        async with self._request_slots:
            if self.ended:
                raise ConnectionLostError(f"{self._label}: the connection was closed.", maybe_done=False)
            await self._post(headers, body, message["id"])

    async def post(self, message: dict[str, JSON]) -> None:
        """A message whose answer, if it has one, comes another way."""
        await self._post(NO_HEADERS, self.codec.encode(message), None)

    async def open_stream(self) -> HttpConnection | None:
        """A stream of events, from where there is one; whoever reads it closes it."""
        response = await self._exchange("GET", NO_HEADERS, b"")
        if response.status >= 300:
            raise self._status_error(response)
        return response.events

    async def _post(self, headers: Mapping[str, str], body: bytes, id_: RequestId | None) -> None:
        session_id = self._session_id
        response = await self._exchange("POST", headers, body)
        end = await self._receive_response(response, id_, session_id)
        # MCP 2025-11-25: a stream that closed early goes on where it is asked for, if it said where. Not so in
        # 2026-07-28, whose requests name their method in a header.
        while id_ is not None and end.last_event_id and "mcp-method" not in headers and self._receiver.is_awaiting(id_):
            await asyncio.sleep(end.retry_seconds)
            try:
                again = await self._exchange(
                    "GET", {**self._version_headers(), "last-event-id": _encode_event_id(end.last_event_id)}, b""
                )
            except ConnectionLostError as lost:
                # Of the POST, not of this GET: that one was read, or nobody would have begun to answer it.
                raise ConnectionLostError(str(lost)) from None
            if again.events is None:
                break
            end = await self._read_events(again.events, id_, end)
        if id_ is not None and self._receiver.is_awaiting(id_):
            raise ConnectionLostError(f"{self._label} closed the connection before it had answered.")

    def _version_headers(self) -> dict[str, str]:
        return {VERSION_HEADER: self._version} if self._version else {}

    async def _exchange(self, method: str, headers: Mapping[str, str], body: bytes) -> HttpResponse:
        response = await self._exchange_once(method, headers, body)
        if response.status == 401 and callable(self._token):
            self._bearer = _check_header_value(await _get_token(self._token), "the token")
            self._head_cache.clear()
            response = await self._exchange_once(method, headers, body)
        return response

    async def _exchange_once(self, method: str, headers: Mapping[str, str], body: bytes) -> HttpResponse:
        try:
            return await self._pool.exchange(self._head(method, headers), body)
        except BrokenExchangeError as error:
            raise ConnectionLostError(f"{self._label} cannot be reached: {error}.", maybe_done=error.sent) from None

    def _head(self, method: str, headers: Mapping[str, str]) -> bytes:
        """The same few are sent with every call of the same tool, so what they amount to is remembered."""
        key = (method, self._session_id, self.codec, *headers.items())
        head = self._head_cache.get(key)
        if head is None:
            ours = {
                "content-type": self.codec.content_type,
                "accept": f"{self.codec.content_type}, application/json, text/event-stream"
                if self.codec is not JSON_CODEC
                else "application/json, text/event-stream",
            }
            if method == "GET":
                ours = {"accept": "text/event-stream"}
            if self._bearer is not None:
                ours["authorization"] = f"Bearer {self._bearer}"
            if self._session_id is not None:
                ours["mcp-session-id"] = self._session_id
            head = self._pool.head(method, {**ours, **self._headers, **headers})
            if len(self._head_cache) > 512:
                self._head_cache.clear()
            self._head_cache[key] = head
        return head

    # Answers

    async def _receive_response(
        self, response: HttpResponse, id_: RequestId | None, session_id: str | None
    ) -> _StreamEnd:
        """Hears an answer to what was sent in a session out; where it stopped if it was a stream."""
        if response.status == 404 and session_id is not None:
            self.ended = True
            raise ConnectionLostError(f"{self._label} has forgotten this session.", maybe_done=False)
        if self._session_id is None and b"mcp-session-id" in response.headers:
            named = response.headers[b"mcp-session-id"].decode("latin-1")
            # MCP 2025-11-25 "Session Management": visible ASCII only. Another one could not be sent back.
            self._session_id = named if _SESSION_ID.fullmatch(named) else None
        if response.events is not None:
            return await self._read_events(response.events, id_, None)
        for message in read_messages(response.body, _response_codec(response)) if response.body else ():
            self._receiver.receive(message)
        if response.status >= 300 and (id_ is None or self._receiver.is_awaiting(id_)):
            error = _response_error(response)
            if id_ is None or error is None or response.status in (401, 403):
                raise self._status_error(response)
            self._receiver.receive(Answer(id_, error=error))
        elif id_ is not None and self._receiver.is_awaiting(id_):
            self._pool.close_idle()  # whose answer this was, nobody knows, nor what comes next
            kind = response.headers.get(b"content-type", b"nothing").decode("latin-1").partition(";")[0][:60]
            raise HttpStatusError(
                f"{self._label} answered with {kind} that is no message; is this the address of an MCP server?"
            )
        return _StreamEnd("", 0.0)

    def _status_error(self, response: HttpResponse) -> ClientError:
        status = response.status
        if status == 403:
            return HttpStatusError(f"{self._label} refuses this request (HTTP 403); ask who runs it.")
        if status == 401:
            challenge = response.headers.get(b"www-authenticate", b"").decode("latin-1")
            return UnauthorizedError(
                f"{self._label} wants {'a' if self._bearer is None else 'another'} token (HTTP 401); give one, or ask "
                "who runs it.",
                challenge,
            )
        if status in (301, 302, 303, 307, 308):
            place = response.headers.get(b"location", b"").decode("latin-1").partition("?")[0]
            return HttpStatusError(f"{self._label} has moved to {place or 'elsewhere'}; use that address.")
        if status in (408, 429, 502, 503, 504):
            # By RFC 6585 a 429 was not acted on; of the others nobody knows.
            return ConnectionLostError(
                f"{self._label} answered HTTP {status}; try later.",
                maybe_done=status != 429,
                retry_after=_parse_seconds(response.headers.get(b"retry-after", b"")),
            )
        return HttpStatusError(f"{self._label} answered HTTP {status}; is this the address of an MCP server?")

    async def _read_events(
        self, stream: HttpConnection, id_: RequestId | None, before: _StreamEnd | None
    ) -> _StreamEnd:
        """Reads events until the message is answered or the stream closes."""
        last, wait = before or ("", _RETRY_SECONDS)
        reader = sse.SseReader(LIMITS.message_bytes)
        try:
            async for chunk in stream.chunks():
                for event in reader.feed(chunk):
                    last = event.id if event.id and event.id.isprintable() else last
                    wait = wait if event.retry_ms is None else event.retry_ms / 1000
                    for message in read_messages(event.data, JSON_CODEC) if event.data else ():
                        self._receiver.receive(message)
                if id_ is not None and not self._receiver.is_awaiting(id_):
                    break
        except (BrokenExchangeError, ValueError) as error:
            self._pool.drop(stream)
            if not last:
                raise ConnectionLostError(f"{self._label} broke off its answer: {error}.") from None
        except BaseException:
            self._pool.drop(stream)
            raise
        else:
            self._pool.release(stream)
        return _StreamEnd(last, wait)

    # What is said unasked

    async def listen(self, headers: Mapping[str, str], on_open: Callable[[], None]) -> bool:
        end = _StreamEnd("", _RETRY_SECONDS)
        while not self.ended:
            with suppress(ConnectionLostError):
                resumed = {"last-event-id": _encode_event_id(end.last_event_id)} if end.last_event_id else {}
                response = await self._exchange("GET", {**headers, **resumed}, b"")
                on_open()
                if response.events is None:
                    return False  # MCP 2025-11-25: a server need not offer it, and says so by 405
                end = await self._read_events(response.events, None, end)
            await asyncio.sleep(end.retry_seconds)
        return False

    async def close(self) -> None:
        """Tells the server, if it kept a session, that it need not."""
        if self._session_id is not None and not self.ended:
            with suppress(ClientError, BrokenExchangeError, TimeoutError):
                async with asyncio.timeout(_CLOSE_SECONDS):
                    await self._pool.exchange(self._head("DELETE", self._version_headers()), b"")
        self.ended = True
        self._pool.close()


def _encode_event_id(id_: str) -> str:
    """An event's id as a header carries it: the same bytes."""
    return id_.encode().decode("latin-1")


def _check_header_name(text: str) -> str:
    if not HEADER_NAME.fullmatch(text) or text.lower() in _RESERVED_HEADERS:
        raise ConfigurationError(f"{text!r:.40} is no name of an HTTP header that can be given.")
    return text.lower()


def _check_header_value(text: str, what: str) -> str:
    """What could end the header and begin another is refused, and not repeated."""
    if not isinstance(text, str) or not _HEADER_VALUE.fullmatch(text):
        raise ConfigurationError(f"The value of {what!r:.40} cannot stand in an HTTP header.")
    return text.strip()


async def _get_token(token: BearerToken) -> str:
    if isinstance(token, str):
        return token
    given = token()
    return await given if isawaitable(given) else given


def _response_codec(response: HttpResponse) -> Codec:
    return codec_for_content_type(response.headers.get(b"content-type", b"").decode("latin-1"))


def _response_error(response: HttpResponse) -> dict[str, JSON] | None:
    """An error that names no request: told in reply to one, it is about that. Delta-MCP's are plain texts."""
    try:
        said = _response_codec(response).decode(response.body)
    except ValueError:
        return None
    error = said.get("error") if isinstance(said, dict) else None
    if isinstance(error, str):
        return {"code": 0, "message": error}
    return error if isinstance(error, dict) else None


def _parse_seconds(text: bytes) -> float:
    return float(text) if text.isdigit() and len(text) < 9 else 0.0
