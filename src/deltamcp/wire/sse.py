"""Server-sent events, as far as MCP uses them. Pure."""

COMMENT = b":\n\n"
"""Keeps proxies from closing a silent stream."""


def event(data: bytes, id_: str | None = None) -> bytes:
    """One message. JSON holds no raw line breaks, so one `data:` line carries it."""
    if id_ is None:
        return b"event: message\ndata: %b\n\n" % data
    return b"id: %b\nevent: message\ndata: %b\n\n" % (id_.encode(), data)


def priming(id_: str, retry_ms: int) -> bytes:
    """MCP 2025-11-25: the first event, empty, so that a client knows where to reconnect and how soon."""
    return b"id: %b\nretry: %d\ndata: \n\n" % (id_.encode(), retry_ms)
