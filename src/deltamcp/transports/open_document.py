"""Documents that anybody may read, also a page of another origin: what a server says about its authorization."""

from deltamcp.transports import asgi_messages
from deltamcp.transports.asgi_messages import JSON_TYPE, Scope, Send

_OPEN = (b"access-control-allow-origin", b"*")
_PREFLIGHT = (
    _OPEN,
    (b"access-control-allow-methods", b"GET, HEAD, OPTIONS"),
    # Browser clients of MCP send this header with every request, which makes browsers ask first.
    (b"access-control-allow-headers", b"MCP-Protocol-Version"),
    (b"access-control-max-age", b"86400"),
)
_CACHE = (b"cache-control", b"max-age=300")


async def serve_document(document: bytes, scope: Scope, send: Send) -> None:
    """Sends a JSON document to whoever asks for it."""
    match scope["method"]:
        case "GET":
            await asgi_messages.respond(send, 200, document, (JSON_TYPE, _OPEN, _CACHE))
        case "HEAD":
            length = (b"content-length", b"%d" % len(document))
            headers = [JSON_TYPE, _OPEN, _CACHE, length]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            await send({"type": "http.response.body", "body": b""})
        case "OPTIONS":
            await asgi_messages.respond(send, 204, b"", _PREFLIGHT)
        case _:
            await asgi_messages.respond(send, 405, b"", (_OPEN, (b"allow", b"GET, HEAD, OPTIONS")))
