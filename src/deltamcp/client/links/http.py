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

from deltamcp.catalog.headers import TOKEN
from deltamcp.client.links.http1 import BrokenError, Connection, Origin, Response
from deltamcp.client.links.link import LIMITS, NO_HEADERS, Ears, messages
from deltamcp.errors import ClientError, ConfigurationError, ConnectionLostError, HttpStatusError, UnauthorizedError
from deltamcp.values import JSON, RequestId
from deltamcp.values import Response as Answer
from deltamcp.wire import sse
from deltamcp.wire.codecs import JSON_CODEC, Codec, of_content_type

Token: TypeAlias = str | Callable[[], str | Awaitable[str]]
"""A bearer token, or what gives one; it is asked again where the server refuses the last one."""

VERSION = "mcp-protocol-version"
_AT_ONCE = 256
"""Requests in flight, a socket each; further ones wait. Answers to a server's questions never do."""
_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")
_VISIBLE = re.compile(r"[\x21-\x7e]{1,1024}")
_OURS = frozenset({"host", "content-length", "transfer-encoding", "connection"})
"""What only the writer of a request can know."""
_RETRY_SECONDS = 1.0
_CLOSE_SECONDS = 2.0


class _End(NamedTuple):
    """Where a stream stopped, and how long to wait before asking for the rest."""

    last: str
    wait: float


class HttpLink:
    """Streamable HTTP."""

    mirrors = True

    def __init__(self, who: str, url: str, headers: Mapping[str, str], token: Token | None) -> None:
        self.codec = JSON_CODEC
        self.ended = False
        self._who = who
        self._origin = Origin(url, LIMITS.message_bytes)
        self._headers = {_name(name): _value(value, name) for name, value in headers.items()}
        self._token = token
        self._bearer: str | None = None
        self._session: str | None = None
        self._room = asyncio.Semaphore(_AT_ONCE)
        self._heads: dict[tuple[object, ...], bytes] = {}
        self._version = ""

    async def open(self, ears: Ears) -> None:
        self._ears = ears
        if self._token is not None:
            self._bearer = _value(await _told(self._token), "the token")

    async def send(self, message: dict[str, JSON], headers: Mapping[str, str] = NO_HEADERS) -> None:
        body = self.codec.encode(message)
        self._version = headers.get(VERSION, self._version)
        if "method" not in message or "id" not in message:
            await self._post(headers, body, None)
            return
        async with self._room:
            if self.ended:
                raise ConnectionLostError(f"{self._who}: the connection was closed.", maybe_done=False)
            await self._post(headers, body, message["id"])

    async def post(self, message: dict[str, JSON]) -> None:
        """A message whose answer, if it has one, comes another way."""
        await self._post(NO_HEADERS, self.codec.encode(message), None)

    async def stream(self) -> Connection | None:
        """A stream of events, from where there is one; whoever reads it closes it."""
        response = await self._exchange("GET", NO_HEADERS, b"")
        if response.status >= 300:
            raise self._refusal(response)
        return response.events

    async def _post(self, headers: Mapping[str, str], body: bytes, id_: RequestId | None) -> None:
        session = self._session
        response = await self._exchange("POST", headers, body)
        end = await self._take(response, id_, session)
        # MCP 2025-11-25: a stream that closed early goes on where it is asked for, if it said where. Not so in
        # 2026-07-28, whose requests name their method in a header.
        while id_ is not None and end.last and "mcp-method" not in headers and self._ears.awaits(id_):
            await asyncio.sleep(end.wait)
            try:
                again = await self._exchange("GET", {**self._spoken(), "last-event-id": _written(end.last)}, b"")
            except ConnectionLostError as lost:
                # Of the POST, not of this GET: that one was read, or nobody would have begun to answer it.
                raise ConnectionLostError(str(lost)) from None
            if again.events is None:
                break
            end = await self._follow(again.events, id_, end)
        if id_ is not None and self._ears.awaits(id_):
            raise ConnectionLostError(f"{self._who} closed the connection before it had answered.")

    def _spoken(self) -> dict[str, str]:
        return {VERSION: self._version} if self._version else {}

    async def _exchange(self, method: str, headers: Mapping[str, str], body: bytes) -> Response:
        response = await self._asked(method, headers, body)
        if response.status == 401 and callable(self._token):
            self._bearer = _value(await _told(self._token), "the token")
            self._heads.clear()
            response = await self._asked(method, headers, body)
        return response

    async def _asked(self, method: str, headers: Mapping[str, str], body: bytes) -> Response:
        try:
            return await self._origin.exchange(self._head(method, headers), body)
        except BrokenError as error:
            raise ConnectionLostError(f"{self._who} cannot be reached: {error}.", maybe_done=error.sent) from None

    def _head(self, method: str, headers: Mapping[str, str]) -> bytes:
        """The same few are sent with every call of the same tool, so what they amount to is remembered."""
        key = (method, self._session, self.codec, *headers.items())
        head = self._heads.get(key)
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
            if self._session is not None:
                ours["mcp-session-id"] = self._session
            head = self._origin.head(method, {**ours, **self._headers, **headers})
            if len(self._heads) > 512:
                self._heads.clear()
            self._heads[key] = head
        return head

    # Answers

    async def _take(self, response: Response, id_: RequestId | None, session: str | None) -> _End:
        """Hears an answer to what was sent in a session out; where it stopped if it was a stream."""
        if response.status == 404 and session is not None:
            self.ended = True
            raise ConnectionLostError(f"{self._who} has forgotten this session.", maybe_done=False)
        if self._session is None and b"mcp-session-id" in response.headers:
            named = response.headers[b"mcp-session-id"].decode("latin-1")
            # MCP 2025-11-25 "Session Management": visible ASCII only. Another one could not be sent back.
            self._session = named if _VISIBLE.fullmatch(named) else None
        if response.events is not None:
            return await self._follow(response.events, id_, None)
        for message in messages(response.body, _codec_of(response)) if response.body else ():
            self._ears.hear(message)
        if response.status >= 300 and (id_ is None or self._ears.awaits(id_)):
            error = _error_of(response)
            if id_ is None or error is None or response.status in (401, 403):
                raise self._refusal(response)
            self._ears.hear(Answer(id_, error=error))
        elif id_ is not None and self._ears.awaits(id_):
            self._origin.forget()  # whose answer this was, nobody knows, nor what comes next
            kind = response.headers.get(b"content-type", b"nothing").decode("latin-1").partition(";")[0][:60]
            raise HttpStatusError(
                f"{self._who} answered with {kind} that is no message; is this the address of an MCP server?"
            )
        return _End("", 0.0)

    def _refusal(self, response: Response) -> ClientError:
        status = response.status
        if status == 403:
            return HttpStatusError(f"{self._who} refuses this request (HTTP 403); ask who runs it.")
        if status == 401:
            challenge = response.headers.get(b"www-authenticate", b"").decode("latin-1")
            return UnauthorizedError(
                f"{self._who} wants {'a' if self._bearer is None else 'another'} token (HTTP 401); give one, or ask "
                "who runs it.",
                challenge,
            )
        if status in (301, 302, 303, 307, 308):
            place = response.headers.get(b"location", b"").decode("latin-1").partition("?")[0]
            return HttpStatusError(f"{self._who} has moved to {place or 'elsewhere'}; use that address.")
        if status in (408, 429, 502, 503, 504):
            # By RFC 6585 a 429 was not acted on; of the others nobody knows.
            return ConnectionLostError(
                f"{self._who} answered HTTP {status}; try later.",
                maybe_done=status != 429,
                retry_after=_seconds(response.headers.get(b"retry-after", b"")),
            )
        return HttpStatusError(f"{self._who} answered HTTP {status}; is this the address of an MCP server?")

    async def _follow(self, stream: Connection, id_: RequestId | None, before: _End | None) -> _End:
        """Reads events until the message is answered or the stream closes."""
        last, wait = before or ("", _RETRY_SECONDS)
        reader = sse.Reader(LIMITS.message_bytes)
        try:
            async for chunk in stream.chunks():
                for event in reader.feed(chunk):
                    last = event.id if event.id and event.id.isprintable() else last
                    wait = wait if event.retry_ms is None else event.retry_ms / 1000
                    for message in messages(event.data, JSON_CODEC) if event.data else ():
                        self._ears.hear(message)
                if id_ is not None and not self._ears.awaits(id_):
                    break
        except (BrokenError, ValueError) as error:
            self._origin.drop(stream)
            if not last:
                raise ConnectionLostError(f"{self._who} broke off its answer: {error}.") from None
        except BaseException:
            self._origin.drop(stream)
            raise
        else:
            self._origin.release(stream)
        return _End(last, wait)

    # What is said unasked

    async def listen(self, headers: Mapping[str, str], opened: Callable[[], None]) -> bool:
        end = _End("", _RETRY_SECONDS)
        while not self.ended:
            with suppress(ConnectionLostError):
                resumed = {"last-event-id": _written(end.last)} if end.last else {}
                response = await self._exchange("GET", {**headers, **resumed}, b"")
                opened()
                if response.events is None:
                    return False  # MCP 2025-11-25: a server need not offer it, and says so by 405
                end = await self._follow(response.events, None, end)
            await asyncio.sleep(end.wait)
        return False

    async def close(self) -> None:
        """Tells the server, if it kept a session, that it need not."""
        if self._session is not None and not self.ended:
            with suppress(ClientError, BrokenError, TimeoutError):
                async with asyncio.timeout(_CLOSE_SECONDS):
                    await self._origin.exchange(self._head("DELETE", self._spoken()), b"")
        self.ended = True
        self._origin.close()


def _written(id_: str) -> str:
    """An event's id as a header carries it: the same bytes."""
    return id_.encode().decode("latin-1")


def _name(text: str) -> str:
    if not TOKEN.fullmatch(text) or text.lower() in _OURS:
        raise ConfigurationError(f"{text!r:.40} is no name of an HTTP header that can be given.")
    return text.lower()


def _value(text: str, what: str) -> str:
    """What could end the header and begin another is refused, and not repeated."""
    if not isinstance(text, str) or not _VALUE.fullmatch(text):
        raise ConfigurationError(f"The value of {what!r:.40} cannot stand in an HTTP header.")
    return text.strip()


async def _told(token: Token) -> str:
    if isinstance(token, str):
        return token
    given = token()
    return await given if isawaitable(given) else given


def _codec_of(response: Response) -> Codec:
    return of_content_type(response.headers.get(b"content-type", b"").decode("latin-1"))


def _error_of(response: Response) -> dict[str, JSON] | None:
    """An error that names no request: told in reply to one, it is about that. Delta-MCP's are plain texts."""
    try:
        said = _codec_of(response).decode(response.body)
    except ValueError:
        return None
    error = said.get("error") if isinstance(said, dict) else None
    if isinstance(error, str):
        return {"code": 0, "message": error}
    return error if isinstance(error, dict) else None


def _seconds(text: bytes) -> float:
    return float(text) if text.isdigit() and len(text) < 9 else 0.0
