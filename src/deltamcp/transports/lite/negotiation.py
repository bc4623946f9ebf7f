"""What the headers of a request to MCP-lite say: its media type, what it accepts, and how long it waits."""

import enum
import functools
import re

from deltamcp.catalog.lite_tools import MAX_WAIT_MS
from deltamcp.errors import Fault
from deltamcp.transports.http.asgi import Headers
from deltamcp.values import Failure

_MAX_CACHED_BYTES = 256
_JSON_RANGES = (b"application/json", b"application/*", b"*/*")
_EVENT_RANGES = (b"text/event-stream", b"text/*", b"*/*")
_QUALITY = re.compile(rb"(?:0(?:\.\d{0,3})?|1(?:\.0{0,3})?)")
_CHARSET = re.compile(rb'charset\s*=\s*"?([^\s";]+)')
_WAIT = re.compile(rb'(?:^|[,;])\s*wait\s*=\s*"?(\d{1,9})"?\s*(?=[,;]|$)', re.IGNORECASE)


class ReplyForm(enum.Enum):
    """What a client prefers as the response."""

    JSON = "json"
    EVENTS = "events"


def check_media_type(headers: Headers) -> Failure | None:
    """Returns a failure if a body is no JSON in UTF-8; a request without a body needs no media type."""
    content_type = headers.get(b"content-type")
    if content_type == b"application/json" and b"content-encoding" not in headers:
        return None
    if content_type is None:
        length = headers.get(b"content-length", b"0" if b"transfer-encoding" not in headers else b"")
        is_json = length == b"0"
    else:
        is_json = _is_json(content_type[:_MAX_CACHED_BYTES])
    if is_json and b"content-encoding" not in headers:
        return None
    return Failure(Fault.WRONG_MEDIA_TYPE, "Send application/json in UTF-8, not compressed.")


@functools.lru_cache(maxsize=256)
def _is_json(content_type: bytes) -> bool:
    type_, _, parameters = content_type.lower().partition(b";")
    charset = _CHARSET.search(parameters)
    return type_.strip() == b"application/json" and (charset is None or charset[1] in (b"utf-8", b"utf8", b"us-ascii"))


def preferred_form(accept: bytes) -> ReplyForm | None:
    """Returns what an `Accept` header prefers, JSON if it prefers neither; None if it has no type of MCP-lite."""
    return _preferred_form(accept) if len(accept) <= _MAX_CACHED_BYTES else _preferred_form.__wrapped__(accept)


def accepts_json(accept: bytes) -> bool:
    """Whether an `Accept` header has JSON, though perhaps not as what it prefers."""
    return _quality(_read_ranges(accept), _JSON_RANGES) > 0


@functools.lru_cache(maxsize=256)
def _preferred_form(accept: bytes) -> ReplyForm | None:
    ranges = _read_ranges(accept)
    json, events = _quality(ranges, _JSON_RANGES), _quality(ranges, _EVENT_RANGES)
    if not json and not events:
        return None
    return ReplyForm.EVENTS if events > json else ReplyForm.JSON


def _read_ranges(accept: bytes) -> dict[bytes, float]:
    return dict(map(_read_range, accept.lower().split(b",")))


def _read_range(part: bytes) -> tuple[bytes, float]:
    type_, *parameters = (piece.strip() for piece in part.split(b";"))
    given = next((piece[2:] for piece in parameters if piece.startswith(b"q=")), b"1")
    return type_, float(given) if _QUALITY.fullmatch(given) else 0.0


def _quality(ranges: dict[bytes, float], names: tuple[bytes, ...]) -> float:
    """Returns the quality of the most specific range, RFC 9110, 12.5.1."""
    return next((ranges[name] for name in names if name in ranges), 0.0)


def preferred_wait(headers: Headers) -> int | None:
    """Returns the seconds of `Prefer: wait=10` (RFC 7240), up to what the server waits; None without one."""
    header = headers.get(b"prefer")
    found = None if header is None else _WAIT.search(header)
    return None if found is None else min(int(found[1]), MAX_WAIT_MS // 1000)
