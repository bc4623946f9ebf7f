"""Cross-origin requests of web pages (CORS): which methods and headers a page of an allowed origin may use."""

from deltamcp.catalog.param_headers import HEADER_NAME
from deltamcp.transports.http import asgi
from deltamcp.transports.http.asgi import Header, HeaderList
from deltamcp.transports.http.exchange import Exchange

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


def response_headers(origin: bytes) -> HeaderList:
    """Returns the headers by which the browser lets a page of an allowed origin read a response."""
    return (
        (b"access-control-allow-origin", origin),
        (b"access-control-expose-headers", _READABLE),
        (b"vary", b"Origin"),
    )


def is_preflight(exchange: Exchange) -> bool:
    """Whether a browser asks which requests a page may make."""
    headers = exchange.headers
    return exchange.method == "OPTIONS" and b"origin" in headers and b"access-control-request-method" in headers


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
