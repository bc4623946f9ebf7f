"""Middleware that servers often need: `DeltaServer(middleware=[log_calls(), retry_calls(), cache_calls(60)])`.

The first of the list is the outermost. Each is a few lines over `FunctionCall` and `CallNext`, to be read and varied.
"""

import asyncio
import hashlib
import logging
import random
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import msgspec

from deltamcp.calls.middleware import CallNext, FunctionCall, Middleware
from deltamcp.context import InputPending, conversation_digest
from deltamcp.values import Kind, RawResult, ToolResult

__all__ = ["cache_calls", "log_calls", "retry_calls", "time_calls"]

_LOGGER = logging.getLogger("deltamcp")


def time_calls(report: Callable[[FunctionCall, float], None]) -> Middleware:
    """Returns middleware that tells `report` how many seconds each call took, whatever came of it."""

    async def time_call(call: FunctionCall, call_next: CallNext) -> Any:
        start = time.perf_counter()
        try:
            return await call_next(call)
        finally:
            report(call, time.perf_counter() - start)

    return time_call


def log_calls(logger: logging.Logger = _LOGGER, level: int = logging.INFO, *, arguments: bool = False) -> Middleware:
    """Returns middleware that logs each call, for whom it was, and what came of it.

    Args:
        arguments: Whether to log the arguments, too; they may have secrets.
    """

    async def log_call(call: FunctionCall, call_next: CallNext) -> Any:
        outcome, start = "done", time.perf_counter()
        try:
            return await call_next(call)
        except InputPending:
            outcome = "asks its caller"
            raise
        except BaseException as error:
            outcome = f"failed with {type(error).__name__}"  # its text may have what the log must not
            raise
        finally:
            seconds, sent = time.perf_counter() - start, f" {call.arguments!r}" if arguments else ""
            caller = call.context.principal.id
            logger.log(level, "%s%s for %s: %s after %.3f s", call.name, sent, caller, outcome, seconds)

    return log_call


def retry_calls(
    attempts: int = 3,
    seconds: float = 0.2,
    errors: tuple[type[Exception], ...] = (ConnectionError, TimeoutError),
) -> Middleware:
    """Returns middleware that repeats failed calls of what may be repeated: read-only or idempotent by annotations.

    It repeats after `errors`, and after a `ToolFailure` or another error with `retryable=True`. The tool's `timeout`
    includes the repetitions. A call that has asked its user something is not repeated.

    Args:
        attempts: How often a call runs at the most.
        seconds: The pause after the first failure, some of it by chance; it doubles with each one.
    """

    async def retry_call(call: FunctionCall, call_next: CallNext) -> Any:
        for attempt in range(1, attempts):
            try:
                return await call_next(call)
            except Exception as error:
                may_pass = isinstance(error, errors) or getattr(error, "retryable", False) is True
                if not may_pass or not call.is_repeatable or call.context.has_asked:
                    raise
            await asyncio.sleep(seconds * 2 ** (attempt - 1) * random.uniform(0.5, 1))  # noqa: S311 - no secret
        return await call_next(call)

    return retry_call


def cache_calls(seconds: float, entries: int = 1000, clock: Callable[[], float] = time.monotonic) -> Middleware:
    """Returns middleware that answers calls of read-only tools from what they returned for some seconds before.

    An answer is for the same function, arguments, principal with its scopes and claims, and conversation, and for what
    the caller grants and carries (`Context.resources`, `session_context`). A function whose value depends on something
    else of its caller, such as `Context.meta`, must not be annotated as read-only here. Errors, and calls that asked
    their user, are not kept. Whoever changes a returned value changes that of later calls.

    Args:
        entries: How many values are kept; the ones not used for longest go first.
    """
    kept: OrderedDict[bytes, _Kept] = OrderedDict()

    async def cache_call(call: FunctionCall, call_next: CallNext) -> Any:
        if call.kind is not Kind.TOOLS or not call.is_read_only:
            return await call_next(call)
        key = _cache_key(call)
        found = kept.get(key)
        if found is not None and found.function is call.function and clock() < found.expires_at:
            kept.move_to_end(key)
            return found.value
        began = clock()
        value = await call_next(call)
        if not call.context.has_asked and not _is_error(value):
            kept[key] = _Kept(call.function, value, began + seconds)
            kept.move_to_end(key)
            if len(kept) > entries:
                kept.popitem(last=False)
        return value

    return cache_call


class _Kept(msgspec.Struct, frozen=True):
    """A value that a function returned; the function has its name to itself as long as it is referred to."""

    function: Callable[..., Any] | None
    value: Any
    expires_at: float


def _cache_key(call: FunctionCall) -> bytes:
    context = call.context
    principal, conversation = context.principal, conversation_digest(context.terms.caller)
    who = [principal.owner, sorted(principal.scopes), principal.claims, conversation]
    what = [id(call.function), call.arguments, context.resources, context.session_context]
    return hashlib.sha256(msgspec.json.encode([who, what], order="deterministic")).digest()


def _is_error(value: Any) -> bool:
    if isinstance(value, RawResult):
        return value.fields.get("isError") is True
    return isinstance(value, ToolResult) and value.is_error
