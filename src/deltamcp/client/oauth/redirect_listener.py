"""Listens on this machine for the browser that comes back from the login (RFC 8252, 7.3)."""

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator
from urllib.parse import urlsplit

from deltamcp.auth.safe_url import is_loopback, read_address
from deltamcp.client.oauth.code_grant import has_state
from deltamcp.errors import UnauthorizedError

_ANY_URI = "http://127.0.0.1/callback"
_MAX_HEAD_BYTES = 16 * 1024
_READ_SECONDS = 5.0
_MAX_CONNECTIONS = 16
"""Browsers ask for icons beside the page, and open connections that they do not use. A further connection takes the
place of the one that has said nothing for longest: else whoever opens that many keeps the browser from coming back."""
_REQUEST_LINE = re.compile(rb"GET (/[\x21-\x7e]*) HTTP/1\.[01]\r\n")
_PAGE = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title></head>
<body style="font-family: system-ui; max-width: 34em; margin: 4em auto"><h1>{title}</h1><p>{text}</p></body></html>"""
_DONE = _PAGE.format(title="Back to your program", text="You can close this page, and return to the program.")
_UNKNOWN = _PAGE.format(title="Not here", text="This address is only for a login that is under way.")


class RedirectListener:
    """Waits for one request with the right state; answers any other with a page that says nothing."""

    def __init__(self, redirect_uri: str, state: str) -> None:
        self.redirect_uri = redirect_uri
        self._path = urlsplit(redirect_uri).path or "/"
        self._state = state
        self._redirected: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._silent: dict[asyncio.StreamWriter, None] = {}
        """The connections that have not sent a request yet, the oldest first."""

    async def wait(self, seconds: float) -> str:
        """Returns the address that the browser asked for.

        Raises:
            UnauthorizedError: the browser did not come back in time.
        """
        try:
            async with asyncio.timeout(seconds):
                return await self._redirected
        except TimeoutError:
            raise UnauthorizedError(f"Nobody logged in within {seconds:g} s; try again.") from None

    async def serve_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._silent) >= _MAX_CONNECTIONS:
            oldest = next(iter(self._silent))
            del self._silent[oldest]
            oldest.transport.abort()
        self._silent[writer] = None
        try:
            async with asyncio.timeout(_READ_SECONDS):
                head = await reader.readuntil(b"\r\n\r\n")
                self._silent.pop(writer, None)
                writer.write(self._answer(head))
                await writer.drain()
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass
        finally:
            self._silent.pop(writer, None)
            writer.close()

    def _answer(self, head: bytes) -> bytes:
        line = _REQUEST_LINE.match(head)
        target = "" if line is None else line[1].decode("ascii")
        if target.partition("?")[0] != self._path or not has_state(target, self._state):
            return _response("404 Not Found", _UNKNOWN)
        if not self._redirected.done():
            self._redirected.set_result(target)
        return _response("200 OK", _DONE)


def _response(status: str, page: str) -> bytes:
    body = page.encode()
    head = (
        f"HTTP/1.1 {status}\r\ncontent-type: text/html; charset=utf-8\r\ncontent-length: {len(body)}\r\n"
        "cache-control: no-store\r\nreferrer-policy: no-referrer\r\n"
        "content-security-policy: default-src 'none'; style-src 'unsafe-inline'\r\nconnection: close\r\n\r\n"
    )
    return head.encode() + body


@contextlib.asynccontextmanager
async def listen_for_redirect(redirect_uri: str, preferred_uri: str, state: str) -> AsyncIterator[RedirectListener]:
    """Listens on this machine while the login is under way.

    Args:
        redirect_uri: the http address that the program demands, at any free port if it has none; empty for any.
        preferred_uri: an address that an earlier registration names, taken if its port is free; empty for none.

    Raises:
        UnauthorizedError: the port of `redirect_uri` is taken.
    """
    listener: RedirectListener | None = None

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if listener is None:
            writer.close()
        else:
            await listener.serve_connection(reader, writer)

    server = await _bind(serve, redirect_uri, preferred_uri)
    demanded = urlsplit(redirect_uri or _ANY_URI)
    if demanded.port is None:  # RFC 8252, 7.3: an authorization server allows any port
        demanded = demanded._replace(netloc=f"{demanded.netloc}:{server.sockets[0].getsockname()[1]}")
    listener = RedirectListener(demanded.geturl(), state)
    try:
        yield listener
    finally:
        server.close()


async def _bind(serve: object, redirect_uri: str, preferred_uri: str) -> asyncio.Server:
    for uri in (redirect_uri,) if redirect_uri else (preferred_uri, _ANY_URI):
        parts = urlsplit(uri)
        if not is_loopback(parts.hostname or ""):
            continue
        host = str(parts.hostname) if redirect_uri and read_address(str(parts.hostname)) else "127.0.0.1"
        try:
            return await asyncio.start_server(serve, host, parts.port or 0, limit=_MAX_HEAD_BYTES)  # type: ignore[arg-type]
        except OSError as error:
            if uri != preferred_uri:
                reason = error.strerror or "no reason is known"
                raise UnauthorizedError(f"The browser cannot come back to this machine: {reason}.") from None
    raise AssertionError("the last attempt returns or raises")
