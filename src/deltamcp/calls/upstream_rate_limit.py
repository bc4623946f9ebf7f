"""Converts an upstream's "too many requests" error into a result that tells the model how long to wait."""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from deltamcp.errors import ToolError
from deltamcp.values import JSON

_DEFAULT_WAIT_SECONDS = 30
"""The wait where the upstream states none; the same as Delta-MCP's."""
_MAX_WAIT_SECONDS = 7 * 86_400
"""Longer waits are useless to a caller, and a JavaScript timer of more than 24 days fires at once."""
_MAX_CHAINED_ERRORS = 16
"""How many exceptions of a chain of causes are examined."""
_MAX_HEADERS = 1000
_STATUS_NAMES = ("status", "status_code", "statusCode", "code")
_WAIT_NAMES = ("retry_after", "retryAfter")
_RESET_HEADERS = ("x-ratelimit-reset", "ratelimit-reset")
_STATUS_PATTERN = re.compile(r"([1-5][0-9]{2})(\s.*)?", re.DOTALL)
_LEADING_DIGITS = re.compile(r"\s*([-+]?[0-9]{1,20})")
"""What JavaScript's `parseInt` reads."""
_SECONDS_PATTERN = re.compile(r"([0-9]+(?:\.[0-9]*)?)\s*(?:s|sec|seconds?)?")


def rate_limit_result(error: object, upstream: str, now: float) -> dict[str, JSON] | None:
    """Returns the result for an upstream error with status 429; None for any other error. Never raises.

    The error may be an exception or a response of any HTTP library, an exception that has one as its cause, or a dict
    with `status` and `headers`. The first status in the chain of causes decides, so a 503 from a retry after a 429 does
    not count, and neither does a 429 that the author hid with `raise ... from None`. Do not pass data that a tool
    returned: there `{"status": 429}` is an answer.

    `now` is the time in seconds since the epoch, for upstreams that state a date. The result has a `message` where the
    error is a ToolError, whose text is written for the model. The text of any other exception is left out, because it
    often contains the requested URL, and URLs contain keys.
    """
    try:
        holders = _limited_holders(error)
        if holders is None:
            return None
        wait = _choose_wait(holders, now)
        result: dict[str, JSON] = {"type": "rate_limited", "retryAfterSeconds": wait, "upstream": upstream}
        if isinstance(error, ToolError) and (message := str(error).strip()):
            result["message"] = message.encode(errors="replace").decode()
        return result
    except Exception:  # attributes of foreign objects may raise anything
        return None


def original_rate_limit_result(error: BaseException, upstream: str) -> dict[str, JSON] | None:
    """Returns the result of `rate_limit_result` as Delta-MCP 0.2 writes it, mistakes included. Never raises.

    The result has the text of any exception as its `message`. A wait is the digits that `Retry-After` begins with, so
    1.5 seconds are 1, and a date is 30.
    """
    try:
        holders = _limited_holders(error)
        if holders is None:
            return None
        stated = next((value for value in _retry_after_values(holders) if value is not None), None)
        digits = _LEADING_DIGITS.match(_to_text(stated)) if stated is not None else None
        seconds = -1 if digits is None else int(float(digits[1]))
        wait = seconds if seconds >= 0 else _DEFAULT_WAIT_SECONDS
        result: dict[str, JSON] = {"type": "rate_limited", "retryAfterSeconds": wait, "upstream": upstream}
        message = str(error).encode(errors="replace").decode()
        return {**result, "message": message} if message else result
    except Exception:  # attributes of foreign objects may raise anything
        return None


def _limited_holders(error: object) -> list[object] | None:
    """Returns the objects that may state a wait, if the first status in the chain of causes is 429; else None."""
    examined: list[object] = []
    for link in _error_chain(error):
        response = _get_member(link, "response")
        holders = [link, response, _get_member(response, "response")]
        examined = [*holders, *examined]
        for holder in holders:
            limited = _is_rate_limit(holder)
            if limited is not None:
                return examined if limited else None
    return None


def _error_chain(error: object) -> Iterator[object]:
    """Yields an exception, its causes and contexts, and the only member of an exception group."""
    pending: list[object] = [error]
    seen = set[int]()
    while pending and len(seen) < _MAX_CHAINED_ERRORS:
        link = pending.pop(0)
        if link is None or id(link) in seen:
            continue
        seen.add(id(link))
        yield link
        if isinstance(link, BaseException):
            pending += [link.__cause__, None if link.__suppress_context__ else link.__context__]
        if isinstance(link, BaseExceptionGroup) and len(link.exceptions) == 1:
            pending += link.exceptions


def _get_member(holder: object, name: str) -> Any:
    try:
        return holder.get(name) if isinstance(holder, Mapping) else getattr(holder, name, None)
    except Exception:
        return None


def _is_rate_limit(holder: object) -> bool | None:
    """Whether an object has the status 429; None where it has no HTTP status."""
    for name in _STATUS_NAMES:
        status = _parse_status(_get_member(holder, name))
        # A `code` may be any number, so only 429 counts there.
        if status == 429 or (status is not None and name != "code"):
            return status == 429
    return None


def _parse_status(value: object) -> int | None:
    if isinstance(value, str):
        found = _STATUS_PATTERN.fullmatch(value.strip())
        return int(found[1]) if found else None
    if isinstance(value, int | float) and not isinstance(value, bool) and 100 <= value < 600:
        return int(value)
    return None


def _choose_wait(holders: Sequence[object], now: float) -> int:
    return next((seconds for seconds in _stated_waits(holders, now) if seconds is not None), _DEFAULT_WAIT_SECONDS)


def _retry_after_values(holders: Sequence[object]) -> Iterator[object]:
    for holder in holders:
        yield from _header_values(_get_member(holder, "headers"), "retry-after")
        for name in _WAIT_NAMES:
            yield _get_member(holder, name)


def _stated_waits(holders: Sequence[object], now: float) -> Iterator[int | None]:
    for value in _retry_after_values(holders):
        yield _parse_seconds(value, now)
    for holder in holders:
        for name in _RESET_HEADERS:
            for value in _header_values(_get_member(holder, "headers"), name):
                yield _parse_seconds(value, now, epoch=True)


def _header_values(headers: Any, name: str) -> list[object]:
    """Returns the values of a header, by its lower-case name, from a mapping, pairs, or an object with `get`."""
    values: list[object] = []
    try:
        if hasattr(headers, "get") and not hasattr(headers, "items"):
            return [headers.get(name), headers.get(name.title())]
        pairs = headers.items() if hasattr(headers, "items") else headers
        for key, value in islice(pairs, _MAX_HEADERS):
            if _to_text(key).lower() == name:
                values += value if isinstance(value, list | tuple) else [value]
    except Exception:
        return values
    return values


def _to_text(value: object) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)


def _parse_seconds(value: object, now: float, epoch: bool = False) -> int | None:
    """Returns the seconds to wait, from seconds or a date (RFC 9110, 10.2.3).

    With `epoch` a large number is a time since the epoch, in seconds or milliseconds.
    """
    try:
        if isinstance(value, str | bytes):
            text = _to_text(value).strip()
            number = _SECONDS_PATTERN.fullmatch(text)
            if number is None:
                return _seconds_until(text, now)
            value = float(number[1][:18])
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
            return None
        seconds = min(value, 10**18)
        if epoch and seconds >= 1e9:
            seconds = (seconds / 1000 if seconds >= 1e12 else seconds) - now
        return math.ceil(min(max(seconds, 0), _MAX_WAIT_SECONDS))
    except Exception:
        return None


def _seconds_until(date: str, now: float) -> int | None:
    from email.utils import mktime_tz, parsedate_tz  # 4 ms, seldom needed

    read = parsedate_tz(date)
    return None if read is None else math.ceil(min(max(mktime_tz(read) - now, 0), _MAX_WAIT_SECONDS))
