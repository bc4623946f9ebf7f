"""The `Host` and `Origin` headers that the server accepts, and what pages of other origins may do (CORS)."""

import logging
from collections.abc import Iterable

from deltamcp.catalog.param_headers import HEADER_NAME
from deltamcp.errors import Fault
from deltamcp.runtime.log import WARNING_FILTER
from deltamcp.transports.http import asgi
from deltamcp.transports.http.asgi import Header, HeaderList, Headers
from deltamcp.transports.http.exchange import Exchange
from deltamcp.values import Failure

logger: logging.Logger = logging.getLogger("deltamcp.http")
logger.addFilter(WARNING_FILTER)

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
_ONCE = frozenset((b"host", b"origin"))
_MAX_NAMES = 300
"""The characters of a Host and an Origin that are remembered or logged; names of hosts have at most 253."""
_MAX_REMEMBERED = 1024


class AllowedNames:
    """Protects a server from web pages that reach for it, also by a name that they let point to its address."""

    def __init__(self, hosts: Iterable[str], origins: Iterable[str]) -> None:
        self._hosts = frozenset(host.lower() for host in hosts)
        self._origins = frozenset(origin.lower().rstrip("/") for origin in origins)
        self._admitted: set[tuple[bytes | None, bytes | None]] = set()

    def check(self, exchange: Exchange) -> Failure | None:
        """Returns a failure if the Host or the Origin is not allowed, else lets its pages read the response."""
        names = (exchange.headers.get(b"host"), exchange.headers.get(b"origin"))
        refused = None
        # RFC 9112, 3.2: a server must refuse more than one Host, which is a means of request smuggling.
        if exchange.repeated and exchange.repeated & _ONCE:
            refused = Failure(Fault.WRONG_HOST, "The request has more than one Host or Origin header.")
        elif names not in self._admitted:
            if not self._is_host(names[0]) and "*" not in self._hosts:
                refused = Failure(Fault.WRONG_HOST, "This Host is not among the allowed_hosts.")
            elif names[1] is not None and not self._is_origin(names[1], names[0]):
                refused = Failure(Fault.WRONG_ORIGIN, "This Origin is not among the allowed_origins.")
            elif len(self._admitted) < _MAX_REMEMBERED and sum(len(name or b"") for name in names) < _MAX_NAMES:
                self._admitted.add(names)
        if refused is not None:
            host, origin = (name and name[:_MAX_NAMES] for name in names)
            logger.warning("refused Host %r, Origin %r: %s", host, origin, refused.message)
        elif names[1] is not None:
            exchange.add_headers(_cors_headers(names[1]))
        return refused

    def _is_host(self, host: bytes | None) -> bool:
        name = (host or b"").decode("latin-1").lower()
        bare, _, port = name.rpartition(":")
        return name in self._hosts or (port.isdigit() and bare in self._hosts)

    def _is_origin(self, origin: bytes, host: bytes | None) -> bool:
        """Whether an origin is allowed, is that of an allowed host, or is that of the request's own host."""
        text = origin.decode("latin-1").lower()
        if text in self._origins or "*" in self._origins:
            return True
        origin_host = text.partition("://")[2].encode("latin-1")
        return self._is_host(origin_host) or (bool(origin_host) and origin_host == (host or b"").lower())


REQUEST_HEADERS = (
    "accept",
    "authorization",
    "content-type",
    "last-event-id",
    "mcp-method",
    "mcp-name",
    "mcp-protocol-version",
    "mcp-session-id",
    "prefer",
    "traceparent",
    "tracestate",
    "baggage",
    "x-request-id",
)
"""The request headers of both eras of MCP, and of MCP-lite, beside `Mcp-Param-*`."""
_READABLE = b"mcp-session-id, mcp-protocol-version, www-authenticate, retry-after, preference-applied, x-request-id"
MCP_METHODS = (b"access-control-allow-methods", b"POST, GET, DELETE")
ONLY_POST = (b"access-control-allow-methods", b"POST")
# Chromium keeps the answer no longer, https://fetch.spec.whatwg.org/#http-access-control-max-age.
_MAX_AGE = (b"access-control-max-age", b"7200")
_MAX_ASKED_CHARS = 4096


def _cors_headers(origin: bytes) -> HeaderList:
    """Returns the headers by which the browser lets a page of an allowed origin read a response."""
    return (
        (b"access-control-allow-origin", origin),
        (b"access-control-expose-headers", _READABLE),
        (b"vary", b"Origin"),
    )


def is_preflight(headers: Headers) -> bool:
    """Whether a browser asks which requests a page may make."""
    return b"origin" in headers and b"access-control-request-method" in headers


async def answer_preflight(methods: Header, exchange: Exchange) -> None:
    """Allows every header that a page of an allowed origin asks for: tools and authenticators may have their own.

    `methods` is the header that allows the methods of the page's path.
    """
    asked = exchange.headers.get(b"access-control-request-headers", b"").decode("latin-1")[:_MAX_ASKED_CHARS]
    names = [name for name in map(str.strip, asked.lower().split(",")) if HEADER_NAME.fullmatch(name)]
    allowed = ", ".join(dict.fromkeys((*REQUEST_HEADERS, *names)))
    await asgi.respond_no_content(
        exchange.send, (methods, (b"access-control-allow-headers", allowed.encode()), _MAX_AGE)
    )
