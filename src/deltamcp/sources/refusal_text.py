"""What helps in the body of a refusal: its messages, without the page or the trace around them."""

import html
import re
from collections.abc import Iterator
from typing import Any

import msgspec

_TITLE = re.compile(r"<(title|h1)[^>]*>([^<]*)<", re.IGNORECASE)
_BLOCK = re.compile(r"<(script|style|head)\b.*?(</\1\s*>|\Z)", re.IGNORECASE | re.DOTALL)
_TAG = re.compile(r"<[^<>]*>")
_MESSAGES = (
    *("detail", "message", "error_description", "error_message", "errormessage", "msg", "reason", "description"),
    *("title", "error", "fault", "faultstring"),
)
"""The members that say what is wrong, the most telling first: RFC 9457, 3.1, RFC 6749, 5.2, and what services write."""
_LISTS = ("errors", "invalid-params", "invalid_params", "violations", "details", "error", "detail", "causes")
_PLACES = ("loc", "pointer", "field", "name", "path", "param", "parameter", "property", "location", "source")
_CODES = ("code", "type", "status")
_MAX_DEPTH = 4
_MAX_MESSAGES = 10


def helpful_text(text: str, kind: str) -> str:
    """Returns the messages in a body of a media type; the body itself where it has none that are known."""
    if kind.endswith(("/json", "+json")):
        try:
            value = msgspec.json.decode(text)
        except (ValueError, RecursionError):
            return text
        found = list(dict.fromkeys(_messages(value, 0)))[:_MAX_MESSAGES]
        return "; ".join(found) or text
    if kind in ("text/html", "application/xhtml+xml") or text[:100].lstrip().lower().startswith(("<!doctype", "<html")):
        title = _TITLE.search(text)
        words = " ".join(html.unescape(title[2] if title else _TAG.sub(" ", _BLOCK.sub(" ", text))).split())
        return words or text
    return text


def _messages(value: Any, depth: int) -> Iterator[str]:
    if depth > _MAX_DEPTH:
        return
    if isinstance(value, str):
        if value.strip():
            yield value.strip()
    elif isinstance(value, list):
        for item in value[:_MAX_MESSAGES]:
            yield from _messages(item, depth + 1)
    elif isinstance(value, dict):
        yield from _object_messages({str(key).lower(): member for key, member in value.items()}, depth)


def _object_messages(value: dict[str, Any], depth: int) -> Iterator[str]:
    message = next((text for key in _MESSAGES if isinstance(text := value.get(key), str) and text.strip()), None)
    inner = [
        member for key in dict.fromkeys((*_MESSAGES, *_LISTS)) if isinstance(member := value.get(key), dict | list)
    ]
    where = next((_place(value[key]) for key in _PLACES if value.get(key)), "")
    if message is not None:
        code = next((str(value[key]) for key in _CODES if isinstance(value.get(key), str)), "")
        mark = f" ({code})" if code and code not in message and "://" not in code and code != "about:blank" else ""
        yield f"{f'{where}: ' if where and depth else ''}{message.strip()}{mark}"
    for member in inner:
        if isinstance(member, dict) and not any(key in member for key in (*_MESSAGES, *_LISTS)):
            for name, texts in list(member.items())[:_MAX_MESSAGES]:  # such as {"email": ["is taken"]}
                for text in _messages(texts, depth + 1):
                    yield f"{name}: {text}"
        else:
            yield from _messages(member, depth + 1)


def _place(value: Any) -> str:
    if isinstance(value, list):
        return ".".join(str(part) for part in value if isinstance(part, str | int))[:200]
    if isinstance(value, dict):
        return _place(value.get("pointer") or value.get("parameter") or "")
    return str(value)[:200] if isinstance(value, str | int) else ""
