"""Rate limits: how often an address, a principal and a principal's calls of one tool may come.

An upstream's "too many requests" becomes a result that tells the model how long to wait.
"""

import logging
import math
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from msgspec import Struct

from deltamcp.catalog.items.operation import Operation
from deltamcp.errors import ConfigurationError, Fault, ToolError, ToolErrorCode
from deltamcp.results.content import server_error
from deltamcp.stores.store import SharedStore, StoreError, TokenBuckets, hash_key
from deltamcp.values import JSON, Caller, Failure, ToolResult

logger: logging.Logger = logging.getLogger("deltamcp")

EVERY_TOOL = "*"


class Rate(Struct, frozen=True):
    """How many requests may come in how many seconds; unused ones add up to `burst`, which is `count` unless set."""

    count: int
    """How many requests."""
    seconds: float = 1.0
    """In how many seconds."""
    burst: int | None = None
    """How many may come at once; `count` by default."""

    def __post_init__(self) -> None:
        numbers = (self.count, self.seconds, 1 if self.burst is None else self.burst)
        if not all(isinstance(number, int | float) and 0 < number < math.inf for number in numbers):
            raise ConfigurationError(f"{self!r} must have a count, seconds and a burst above 0.")

    @property
    def size(self) -> int:
        """The requests that may come at once."""
        return self.count if self.burst is None else self.burst

    def __str__(self) -> str:
        return f"{self.count} in {self.seconds:g} s"


class RateLimits(Struct, frozen=True, kw_only=True):
    """The rate limits of a server: `DeltaServer(rate_limits=RateLimits(...))`. What is left out has no limit."""

    per_address: Rate | None = None
    """HTTP and gRPC requests of one client address, before authentication."""
    per_principal: Rate | None = None
    """HTTP and gRPC requests of one principal; callers who are not authenticated have their address's limit only."""
    per_tool: Rate | Mapping[str, Rate] | None = None
    """Calls of one tool by one caller, over every transport: a rate for each tool, or rates by the tools' names, where
    "*" stands for all others."""

    def __post_init__(self) -> None:
        given = [self.per_address, self.per_principal, *self.tool_rates.values()]
        if not all(rate is None or isinstance(rate, Rate) for rate in given):
            raise ConfigurationError("RateLimits takes Rate(count, seconds), and for per_tool also a dict of them.")

    @property
    def tool_rates(self) -> Mapping[str, Rate]:
        """The rates by the names of tools."""
        if isinstance(self.per_tool, Mapping):
            return self.per_tool
        return {} if self.per_tool is None else {EVERY_TOOL: self.per_tool}

    def replace(self, other: "RateLimits") -> "RateLimits":
        """Returns these limits with those that the other ones set."""
        return RateLimits(
            per_address=other.per_address or self.per_address,
            per_principal=other.per_principal or self.per_principal,
            per_tool=other.per_tool or self.per_tool,
        )


def warn_of_unknown_tools(limits: RateLimits, operations: Iterable[Operation]) -> None:
    """Logs the names in `per_tool` that no tool has: their limits would limit nothing."""
    known = {EVERY_TOOL}.union(*((operation.name, operation.id) for operation in operations))
    if unknown := sorted(limits.tool_rates.keys() - known):
        logger.warning("rate_limits names tools that do not exist: %s", ", ".join(unknown))


class Rates:
    """Takes tokens from the buckets of a server's rate limits.

    The buckets are in the store, where all replicas take from them; while it does not answer, in this process.
    """

    def __init__(self, limits: RateLimits, store: SharedStore, server_name: str) -> None:
        self._limits = limits
        self._tool_rates = limits.tool_rates
        self._store = store
        self._owner = f"rate {server_name}"
        self._own = TokenBuckets(time.monotonic)

    @property
    def limits_tools(self) -> bool:
        return bool(self._tool_rates)

    async def check_address(self, address: str) -> Failure | None:
        """Counts a request for an address; returns a failure if there were too many."""
        return await self._check("per_address", self._limits.per_address, address, "of this address")

    async def check_principal(self, caller: Caller) -> Failure | None:
        """Counts a request for an authenticated caller's principal; returns a failure if there were too many."""
        rate = None if caller.is_anonymous else self._limits.per_principal
        return await self._check("per_principal", rate, caller.principal.key, "of this principal")

    async def _check(self, limit: str, rate: Rate | None, key: str, whose: str) -> Failure | None:
        if rate is None or not (seconds := await self._take(f"{limit} {key}", rate)):
            return None
        text = f"Too many requests {whose}: {rate} are allowed; try again in {math.ceil(seconds)} s."
        return Failure(Fault.RATE_LIMITED, text, {"limit": limit}, retry_seconds=seconds)

    async def check_tool(self, operation: Operation, name: str, caller: Caller) -> ToolResult | None:
        """Counts a call of a tool; returns the error result that the caller gets if there were too many."""
        rates = self._tool_rates
        rate = rates.get(operation.name) or rates.get(operation.id) or rates.get(EVERY_TOOL)
        if rate is None:
            return None
        seconds = await self._take(f"per_tool {operation.id} {caller.account}", rate)
        if not seconds:
            return None
        sentence = (
            f"{name} was not called, because it was called too often: {rate} are allowed. "
            f"Wait {math.ceil(seconds)} s before you call it again."
        )
        details = {"retry_after_ms": math.ceil(seconds * 1000)}
        return server_error(sentence, ToolErrorCode.RATE_LIMITED, retryable=True, details=details)

    async def _take(self, key: str, rate: Rate) -> float:
        bucket = hash_key(self._owner, key)
        try:
            return await self._store.take_token(bucket, rate.count / rate.seconds, rate.size)
        except StoreError as error:
            logger.debug("rates are counted in this process: %s", error)
            return self._own.take(bucket, rate.count / rate.seconds, rate.size)


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
