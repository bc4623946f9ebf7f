"""The links over HTTP: Streamable HTTP of both eras, the deprecated HTTP with SSE of MCP 2024-11-05, MCP-lite."""

import asyncio
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple
from urllib.parse import urljoin

from deltamcp.catalog.param_headers import HEADER_NAME
from deltamcp.client.links.http1 import (
    BrokenExchangeError,
    HttpConnection,
    HttpConnectionPool,
    HttpResponse,
    OversizedResponseError,
    origin,
)
from deltamcp.client.links.link import (
    NO_HEADERS,
    MessageReceiver,
    RefusedForNowError,
    TokenSource,
    UnaddressedError,
    peer_error,
    read_messages,
    too_large_error,
)
from deltamcp.errors import (
    ClientError,
    ConfigurationError,
    ConnectionLostError,
    HttpStatusError,
    UnauthorizedError,
    UnreachableError,
)
from deltamcp.limits import Limits
from deltamcp.values import JSON, Malformed, Message, Notification, RequestId, Response
from deltamcp.wire import frames
from deltamcp.wire.codecs import JSON_CODEC, Codec, codec_for_content_type
from deltamcp.wire.frames import SseEvent

VERSION_HEADER = "mcp-protocol-version"
_MAX_IN_FLIGHT = 256
"""Requests in flight, each on its own socket; further requests wait. Answers to a server's requests never wait."""
_HEADER_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")
_SESSION_ID = re.compile(r"[\x21-\x7e]{1,1024}")
_RESERVED_HEADERS = frozenset({"host", "content-length", "transfer-encoding", "connection"})
"""Headers that the link writes itself."""
_FOR_NOW = (429, 503)
"""The statuses of a refusal that `Retry-After` says the end of."""
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_PERMANENT_REDIRECTS = frozenset({301, 308})
_MAX_REDIRECTS = 5
_RETRY_SECONDS = 1.0
_MIN_RETRY_SECONDS, _MAX_RETRY_SECONDS = 0.01, 60.0
"""How long the client waits before it resumes a stream, whatever the server asks for."""
_MAX_EVENT_ID_CHARS = 1024
_MAX_SHOWN_CHARS = 200
"""The most characters of a redirect's address that an error quotes."""
_CLOSE_SECONDS = 2.0
_MAX_RENEWALS = 2
"""How many further tokens a request is sent with: one that another request or process got meanwhile, and a new one."""
_INSUFFICIENT_SCOPE = b"insufficient_scope"


class _StreamEnd(NamedTuple):
    """Where a stream of events ended, and how long to wait before resuming it."""

    last_event_id: str
    retry_seconds: float


class HttpLink:
    """A link to one URL over Streamable HTTP: one POST per message, answered with JSON or a stream of events.

    A server of the handshake era may open a session, and the client may resume a stream that closed early (MCP
    2025-11-25, "Resumability and Redelivery"). The modern era has neither.
    """

    carries_headers = True
    pid: int | None = None

    def __init__(
        self, label: str, url: str, headers: Mapping[str, str], tokens: TokenSource | None, limits: Limits
    ) -> None:
        self.codec = JSON_CODEC
        self.ended: bool = False
        self._label = label
        self._url = url
        self._limits = limits
        self._pool = HttpConnectionPool(url, limits.message_bytes)
        self._headers = {check_header_name(name): check_header_value(value, name) for name, value in headers.items()}
        self._tokens = tokens
        self._bearer: str | None = None
        self._session_id: str | None = None
        self._request_slots = asyncio.Semaphore(_MAX_IN_FLIGHT)
        self._head_cache: dict[tuple[object, ...], bytes] = {}
        self._version = ""

    async def open(self, receiver: MessageReceiver) -> None:
        self._receiver = receiver
        if self._tokens is not None:
            self._set_bearer(await self._tokens.token())

    async def send(
        self, message: dict[str, JSON], headers: Mapping[str, str] = NO_HEADERS, ends_at: float | None = None
    ) -> None:
        await self.send_to(self._url, message, headers)

    async def send_to(self, url: str, message: dict[str, JSON], headers: Mapping[str, str]) -> None:
        """Sends a message to a URL of the link's origin."""
        body = self.codec.encode(message)
        self._version = headers.get(VERSION_HEADER, self._version)
        if "method" not in message or "id" not in message:
            await self._post(url, headers, body, None)
            return
        async with self._request_slots:
            if self.ended:
                raise ConnectionLostError(f"{self._label}: the connection was closed.", maybe_done=False)
            await self._post(url, headers, body, message["id"], opens_session=message["method"] == "initialize")

    async def post(self, message: dict[str, JSON]) -> None:
        """Posts a message whose response, if it has one, comes on another stream."""
        await self._post(self._url, NO_HEADERS, self.codec.encode(message), None)

    async def open_stream(self) -> HttpConnection | None:
        """Opens a stream of events, which the caller closes; returns None if the server answers something else."""
        response = await self._exchange("GET", self._url, NO_HEADERS, b"")
        if response.status >= 300:
            raise self._status_error(response)
        return response.events

    async def _post(
        self, url: str, headers: Mapping[str, str], body: bytes, id_: RequestId | None, opens_session: bool = False
    ) -> None:
        session_id = self._session_id
        response = await self._exchange("POST", url, headers, body)
        if opens_session:
            self._open_session(response)
        end = await self._receive_response(response, id_, session_id)
        # MCP 2025-11-25: a client may resume a stream that closed early from its last event id. MCP 2026-07-28, whose
        # requests have the header `mcp-method`, does not allow it.
        while id_ is not None and end.last_event_id and "mcp-method" not in headers and self._receiver.is_awaiting(id_):
            self._receiver.receive_detach(id_)
            await asyncio.sleep(end.retry_seconds)
            try:
                resumed = await self._exchange(
                    "GET", url, {**self._version_headers(), "last-event-id": _encode_event_id(end.last_event_id)}, b""
                )
            except ConnectionLostError as lost:
                # The server has read the POST, because it began to answer, so the call may have been done.
                raise ConnectionLostError(str(lost)) from None
            if resumed.events is None:
                break
            end = await self._read_events(resumed.events, id_, end)
        if id_ is not None and self._receiver.is_awaiting(id_):
            raise ConnectionLostError(f"{self._label} closed the connection before it had answered.")

    def _version_headers(self) -> dict[str, str]:
        return {VERSION_HEADER: self._version} if self._version else {}

    async def _exchange(self, method: str, url: str, headers: Mapping[str, str], body: bytes) -> HttpResponse:
        bearer = self._bearer
        response = await self._exchange_once(method, url, headers, body)
        if response.status not in (401, 403) or self._tokens is None:
            return response
        for _ in range(_MAX_RENEWALS):
            if not _is_token_refused(response):
                break
            bearer = await self._tokens.renew(bearer, _challenge(response))
            if bearer is None:
                break
            self._set_bearer(bearer)
            response = await self._exchange_once(method, url, headers, body)
        return response

    def _set_bearer(self, token: str | None) -> None:
        self._bearer = None if token is None else check_header_value(token, "the token")
        self._head_cache.clear()

    async def _exchange_once(self, method: str, url: str, headers: Mapping[str, str], body: bytes) -> HttpResponse:
        """Sends a request and follows redirects within the origin, which gets the same credentials (RFC 9110, 15.4)."""
        for _ in range(1 + _MAX_REDIRECTS):
            try:
                response = await self._pool.exchange(self._head(method, url, headers), body)
            except OversizedResponseError:
                raise too_large_error(f"An answer of {self._label}", self._limits.message_bytes) from None
            except BrokenExchangeError as error:
                raise ConnectionLostError(f"{self._label} cannot be reached: {error}.", maybe_done=error.sent) from None
            next_url = _redirect_url(method, url, response)
            if next_url is None:
                return response
            # A server may send browsers that GET its address elsewhere, and still take messages there.
            if method == "POST" and url == self._url and response.status in _PERMANENT_REDIRECTS:
                self._url = next_url
            url = next_url
        raise HttpStatusError(f"{self._label} redirects more than {_MAX_REDIRECTS} times; use the address it ends at.")

    def _head(self, method: str, url: str, headers: Mapping[str, str]) -> bytes:
        """Returns the encoded head of a request; heads are cached, because calls of one tool have the same headers."""
        key = (method, url, self._session_id, self.codec, *headers.items())
        head = self._head_cache.get(key)
        if head is None:
            own_headers = {
                "content-type": self.codec.content_type,
                "accept": f"{self.codec.content_type}, application/json, text/event-stream"
                if self.codec is not JSON_CODEC
                else "application/json, text/event-stream",
            }
            if method == "GET":
                own_headers = {"accept": "text/event-stream"}
            if self._bearer is not None:
                own_headers["authorization"] = f"Bearer {self._bearer}"
            if self._session_id is not None:
                own_headers["mcp-session-id"] = self._session_id
            head = self._pool.head(method, url, {**own_headers, **self._headers, **headers})
            if len(self._head_cache) > 512:
                self._head_cache.clear()
            self._head_cache[key] = head
        return head

    # Responses

    def _open_session(self, response: HttpResponse) -> None:
        """Takes the session that the answer to `initialize` names.

        MCP 2025-11-25 "Session Management": no other answer assigns one, though mcp 1.30 sends an id with the 400 that
        it answers `server/discover` with. An id is visible ASCII only; the client could not send another one back.
        """
        new_id = response.headers.get(b"mcp-session-id", b"").decode("latin-1")
        if response.status < 300 and _SESSION_ID.fullmatch(new_id):
            self._session_id = new_id

    async def _receive_response(
        self, response: HttpResponse, id_: RequestId | None, session_id: str | None
    ) -> _StreamEnd:
        """Passes the messages of a response to the receiver; returns where it ended if it was a stream.

        `session_id` is the session in which the request was sent.
        """
        if response.status == 404 and session_id is not None:
            self.ended = True
            raise ConnectionLostError(f"{self._label} has forgotten this session.", maybe_done=False)
        if response.events is not None:
            return await self._read_events(response.events, id_, None)
        codec = self._response_codec(response)
        unaddressed: UnaddressedError | None = None
        messages = self.read_body(response.body, codec, id_) if response.body and codec else ()
        if id_ is not None and response.status in _FOR_NOW and b"retry-after" in response.headers:
            _check_refusal(messages, _parse_seconds(response.headers[b"retry-after"]))
        for message in messages:
            if isinstance(message, UnaddressedError):
                unaddressed = message
            else:
                self._receiver.receive(message, id_)
        if id_ is None or not self._receiver.is_awaiting(id_):
            if id_ is None and response.status >= 300:
                raise self._status_error(response)
        elif unaddressed is not None and response.status not in (401, 403):
            self._receiver.receive(Response(id_, error=unaddressed.error))  # it is about the request of this response
        elif response.status >= 300:
            text = None if codec is None or response.status in (401, 403) else _error_text(response.body, codec)
            if text is None:
                raise self._status_error(response)
            self._receiver.receive(Response(id_, error={"code": 0, "message": text}))
        else:
            self._pool.close_idle()  # responses on these connections may be out of step with requests
            kind = response.headers.get(b"content-type", b"nothing").decode("latin-1").partition(";")[0][:60]
            raise HttpStatusError(
                f"{self._label} answered with {kind} that is no message; is this the address of an MCP server?"
            )
        return _StreamEnd("", 0.0)

    def read_body(self, body: bytes, codec: Codec, id_: RequestId | None) -> list[Message | UnaddressedError]:
        """Reads the body of the response to a request, or to a message without an id."""
        return read_messages(body, codec, self._limits)

    def read_event(self, event: frames.SseEvent, id_: RequestId | None) -> list[Message | UnaddressedError]:
        """Reads an event of the response to a request, or of a stream that belongs to none."""
        return read_messages(event.data, JSON_CODEC, self._limits)

    def _response_codec(self, response: HttpResponse) -> Codec | None:
        """Returns the codec of a response; None if the request did not accept it."""
        codec = codec_for_content_type(response.headers.get(b"content-type", b"").decode("latin-1"))
        return codec if codec in (self.codec, JSON_CODEC) else None

    def _status_error(self, response: HttpResponse) -> ClientError:
        status = response.status
        if status == 403 and _is_token_refused(response):
            return UnauthorizedError(
                f"{self._label} wants a token that allows more (HTTP 403); give one with the scopes that it names.",
                _challenge(response),
            )
        if status == 403:
            return HttpStatusError(f"{self._label} refuses this request (HTTP 403); ask who runs it.")
        if status == 401:
            return UnauthorizedError(
                f"{self._label} wants {'a' if self._bearer is None else 'another'} token (HTTP 401); give one, or ask "
                "who runs it.",
                _challenge(response),
            )
        if status in _REDIRECTS:
            location = response.headers.get(b"location", b"").decode("latin-1").partition("?")[0][:_MAX_SHOWN_CHARS]
            return HttpStatusError(f"{self._label} has moved to {location or 'elsewhere'}; use that address.")
        if status in (408, 429, 502, 503, 504):
            # RFC 6585: the server did not act on a request that it answers with 429. The others leave it open.
            return ConnectionLostError(
                f"{self._label} answered HTTP {status}; try later.",
                maybe_done=status != 429,
                retry_after=_parse_seconds(response.headers.get(b"retry-after", b"")),
            )
        return HttpStatusError(f"{self._label} answered HTTP {status}; is this the address of an MCP server?")

    async def _read_events(
        self, stream: HttpConnection, id_: RequestId | None, before: _StreamEnd | None
    ) -> _StreamEnd:
        """Reads events until the request is answered or the stream closes."""
        last_id, retry_seconds = before or ("", _RETRY_SECONDS)
        reader = frames.SseReader(self._limits.message_bytes)
        try:
            async for chunk in stream.chunks():
                for event in reader.feed(chunk):
                    last_id = event.id if event.id and _is_usable_id(event.id) else last_id
                    if event.retry_ms is not None:
                        retry_seconds = min(max(event.retry_ms / 1000, _MIN_RETRY_SECONDS), _MAX_RETRY_SECONDS)
                    for message in self.read_event(event, id_) if event.data else ():
                        self._receiver.receive(message, id_)
                if id_ is not None and not self._receiver.is_awaiting(id_):
                    break
        except ValueError:
            self._pool.drop(stream)
            raise too_large_error(f"An event of {self._label}", self._limits.message_bytes) from None
        except BrokenExchangeError as error:
            self._pool.drop(stream)
            if not last_id:
                raise ConnectionLostError(f"{self._label} broke off its answer: {error}.") from None
        except BaseException:
            self._pool.drop(stream)
            raise
        else:
            self._pool.release(stream)
        return _StreamEnd(last_id, retry_seconds)

    # Messages that belong to no request

    async def listen(self, headers: Mapping[str, str], on_open: Callable[[], None]) -> bool:
        end = _StreamEnd("", _RETRY_SECONDS)
        while not self.ended:
            with suppress(ConnectionLostError):
                resumed = {"last-event-id": _encode_event_id(end.last_event_id)} if end.last_event_id else {}
                try:
                    response = await self._exchange("GET", self._url, {**headers, **resumed}, b"")
                except UnauthorizedError:  # no user is asked to log in for messages that nobody waits for
                    return False
                finally:
                    on_open()
                if response.events is None:
                    return False  # MCP 2025-11-25: a server need not offer the stream, and answers 405
                end = await self._read_events(response.events, None, end)
            await asyncio.sleep(end.retry_seconds)
        return False

    async def close(self) -> None:
        """Ends the session, if there is one, and closes all connections."""
        if self._session_id is not None and not self.ended:
            with suppress(ClientError, BrokenExchangeError, TimeoutError):
                async with asyncio.timeout(_CLOSE_SECONDS):
                    await self._exchange_once("DELETE", self._url, self._version_headers(), b"")
        self.ended = True
        self._pool.close()


def _redirect_url(method: str, url: str, response: HttpResponse) -> str | None:
    """Returns the URL to send the same request to; None if the response is no redirect that the client follows.

    After 303 only a GET is sent again: the server has acted on any other request. 301 and 302 leave it to the client
    whether a POST stays a POST, and a message is nothing else.
    """
    location = response.headers.get(b"location")
    if response.status not in _REDIRECTS or location is None or response.events is not None:
        return None
    if response.status == 303 and method != "GET":
        return None
    try:
        target = urljoin(url, location.decode("latin-1"))
        return target if origin(target) == origin(url) else None
    except ValueError:
        return None


def _is_usable_id(event_id: str) -> bool:
    """Whether the client can send an event's id back in a header."""
    return len(event_id) <= _MAX_EVENT_ID_CHARS and event_id.isprintable()


def _encode_event_id(id_: str) -> str:
    """Returns an event's id as a header value that is encoded to the same bytes."""
    return id_.encode().decode("latin-1")


def check_header_name(text: str) -> str:
    if not HEADER_NAME.fullmatch(text) or text.lower() in _RESERVED_HEADERS:
        raise ConfigurationError(f"{text!r:.40} is not an HTTP header that can be set.")
    return text.lower()


def check_header_value(text: str, name: str) -> str:
    """Refuses a value that could end the header and begin another; the error does not repeat it."""
    if not isinstance(text, str) or not _HEADER_VALUE.fullmatch(text):
        raise ConfigurationError(f"The value of {name!r:.40} cannot stand in an HTTP header.")
    return text.strip()


def _challenge(response: HttpResponse) -> str:
    return response.headers.get(b"www-authenticate", b"").decode("latin-1")


def _is_token_refused(response: HttpResponse) -> bool:
    """Whether another token may help: after 401, and after 403 if the challenge says so (RFC 6750, 3.1)."""
    return response.status == 401 or (
        response.status == 403 and _INSUFFICIENT_SCOPE in response.headers.get(b"www-authenticate", b"")
    )


def _error_text(body: bytes, codec: Codec) -> str | None:
    """Returns the text of an error of the original Delta-MCP, which is no JSON-RPC."""
    try:
        decoded = codec.decode(body)
    except ValueError:
        return None
    error = decoded.get("error") if isinstance(decoded, dict) else None
    return error if isinstance(error, str) else None


def _check_refusal(messages: Iterable[Message | UnaddressedError], seconds: float) -> None:
    """
    Raises:
        RefusedForNowError: one of the messages is an error. No gateway sends it: the server itself refuses.
    """
    for message in messages:
        if isinstance(message, Response | UnaddressedError) and message.error is not None:
            raise RefusedForNowError(peer_error(message.error), seconds)


def _parse_seconds(text: bytes) -> float:
    return float(text) if text.isdigit() and len(text) < 9 else 0.0


# HTTP with SSE


_MAX_URL_BYTES = 8192
"""The longest address to post to; common servers accept no longer ones."""


class SseLink:
    """Reads the server's one stream of events, and posts messages to the one URL that the stream names.

    MCP 2025-11-25, "Backwards Compatibility": a server that refuses a POST may be such a server.
    """

    carries_headers = False
    pid: int | None = None

    def __init__(
        self, label: str, url: str, headers: Mapping[str, str], tokens: TokenSource | None, limits: Limits
    ) -> None:
        self.codec = JSON_CODEC
        self.ended: bool = False
        self._label, self._url, self._limits = label, url, limits
        self._make_link: Callable[[str], HttpLink] = lambda url: HttpLink(label, url, headers, tokens, limits)
        self._stream_link = self._make_link(url)
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
            self._post_link = self._make_link(post_url)
        except (ValueError, ConfigurationError):
            raise UnreachableError(f"{self._label} names an invalid address to post to.") from None
        await self._post_link.open(receiver)

    async def _read_stream(self, stream: HttpConnection, endpoint: "asyncio.Future[str]") -> None:
        reader = frames.SseReader(self._limits.message_bytes)
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


# MCP-lite


_LIST_PATHS, _CALL_PATHS = ("tools", "listtools"), ("rpc", "calltools")
"""MCP-lite names two paths for each of its endpoints (4.2 and Appendix A); a server may have one of them."""
_STREAM_HEADERS = {"accept": "text/event-stream, application/json;q=0.5"}
"""A server without streams answers with JSON."""

_MAX_HEARTBEAT_BYTES = 16 * 1024


class McpLiteLink(HttpLink):
    """Posts each request to the path for its method below one address, and reads what comes back as JSON-RPC."""

    def __init__(
        self, label: str, url: str, headers: Mapping[str, str], tokens: TokenSource | None, limits: Limits
    ) -> None:
        super().__init__(label, url, headers, tokens, limits)
        self._base = url.rstrip("/")
        self._paths: dict[tuple[str, str], str] = {}
        """The path that the server has, of each pair of which it has answered to one."""

    async def send(
        self, message: dict[str, JSON], headers: Mapping[str, str] = NO_HEADERS, ends_at: float | None = None
    ) -> None:
        method = message.get("method")
        if "id" not in message or method is None:
            return  # MCP-lite has neither notifications of clients nor requests of servers
        if "progressToken" in message.get("params", {}).get("_meta", {}):
            headers = {**headers, **_STREAM_HEADERS}
        pair = _LIST_PATHS if method == "tools/list" else _CALL_PATHS
        known = self._paths.get(pair)
        if known is not None or method == "tools/call":
            await self.send_to(f"{self._base}/{known or pair[0]}", message, headers)
            return
        try:
            await self.send_to(f"{self._base}/{pair[0]}", message, headers)
            self._paths[pair] = pair[0]
        except HttpStatusError as error:
            try:
                await self.send_to(f"{self._base}/{pair[1]}", message, headers)
            except HttpStatusError:
                raise error from None
            self._paths[pair] = pair[1]

    def read_body(self, body: bytes, codec: Codec, id_: RequestId | None) -> list[Message | UnaddressedError]:
        """Reads a response; a list of tools is also in the two forms that MCP-lite has besides JSON-RPC."""
        messages = super().read_body(body, codec, id_)
        if id_ is None or not all(isinstance(message, Malformed) for message in messages):
            return messages
        try:
            decoded: Any = codec.decode(body)
        except ValueError:
            return messages
        if isinstance(decoded, list):
            return [Response(id_, {"tools": decoded})]
        return [Response(id_, decoded)] if isinstance(decoded, dict) and "tools" in decoded else messages

    def read_event(self, event: SseEvent, id_: RequestId | None) -> list[Message | UnaddressedError]:
        """Reads an event: `done` and `error` are responses.

        A `message` is a part of the result, which `done` has again. A `heartbeat` of our servers may have the progress
        of the call; what others have in it is ignored.
        """
        if event.kind in ("done", "error"):
            return read_messages(event.data, JSON_CODEC, self._limits)
        if event.kind != "heartbeat" or len(event.data) > _MAX_HEARTBEAT_BYTES:
            return []
        try:
            progress: Any = JSON_CODEC.decode(event.data)
        except ValueError:
            return []
        is_progress = isinstance(progress, dict) and "progress" in progress and id_ is not None
        return [Notification("notifications/progress", {**progress, "progressToken": id_})] if is_progress else []
