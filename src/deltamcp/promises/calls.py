"""Calls of operations that may be promised.

A call is checked, its record is stored, its key is queued; then the server waits for the outcome, for as long as the
operation allows, and answers with the outcome or with the promise. `runs.py` runs the call, `asks.py`
serves what clients ask about it later.
"""

import asyncio
import contextlib
import hashlib
import logging
import math
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterable
from typing import Any

import msgspec
from msgspec.structs import replace

from deltamcp.calls.observers import CONTEXT_KEYS
from deltamcp.calls.request_context import RequestContext
from deltamcp.calls.tool_calls import PreparedCall, ToolCalls
from deltamcp.catalog.catalog import Catalog
from deltamcp.catalog.items.operation import Operation
from deltamcp.context import InputPending
from deltamcp.delivery.delivery import ResultOverride
from deltamcp.dialects import tasks
from deltamcp.errors import Fault, ToolErrorCode
from deltamcp.limits import Limits
from deltamcp.promises import record
from deltamcp.promises.asks import UNKNOWN_PROMISE, PromiseAsks
from deltamcp.promises.record import (
    PromisedCall,
    PromiseRecord,
    encode_call,
    key_of,
    make_promised_call,
    make_token,
    owner_digest,
    shown_key,
)
from deltamcp.promises.runs import PromiseOutcomes, PromiseRuns, error_outcome
from deltamcp.promises.store import PromiseQueue, PromiseStore
from deltamcp.runtime.http_request_id import HTTP_REQUEST_ID
from deltamcp.stores.store import StoreError, StoreFullError
from deltamcp.values import (
    Caller,
    CallTool,
    CancelPromise,
    Failure,
    Outcome,
    Promise,
    PromiseAsk,
    PromiseWish,
    RedeemPromise,
    ResultShape,
)

_MAX_NAME_CHARS = 256
_MIN_LIFE_SECONDS = 1.0

logger: logging.Logger = logging.getLogger("deltamcp")


class PromiseCalls:
    """Makes promises. `perform` and `follow` serve what clients ask about them, `run` is for workers."""

    def __init__(
        self, tool_calls: ToolCalls, store: PromiseStore, queue: PromiseQueue, catalog: Catalog, limits: Limits
    ) -> None:
        self.store = store
        self._outcomes = PromiseOutcomes(store, catalog, limits)
        self._runs = PromiseRuns(tool_calls, store, self._outcomes, queue, catalog, limits)
        self._asks = PromiseAsks(store, self._runs, self._outcomes, limits)
        self.run: Callable[[str], Coroutine[Any, Any, None]] = self._runs.run
        self.follow: Callable[[str, Caller], AsyncGenerator[Promise, None]] = self._asks.follow
        self.own_tokens: Callable[[Iterable[str], Caller], Awaitable[frozenset[str]]] = self._asks.own_tokens
        self.drain: Callable[[float], None] = self._asks.drain
        self._tool_calls = tool_calls
        self._limits = limits
        self._tasks: set[asyncio.Task[None]] = set()

    async def call(
        self, operation: Operation, ask: CallTool, request: RequestContext, override: ResultOverride | None
    ) -> Outcome | None:
        """Returns the outcome of a call, or its promise; None if the call is to run while its client waits."""
        if ask.promise is None:
            refused = tasks.refuse_call(ask.name, request.terms) if operation.promise_policy == "always" else None
            if refused is not None:
                self._tool_calls.observe_refused(operation, ask, request, refused)
            return refused
        call = await self._tool_calls.check(operation, ask, request, override)
        if not isinstance(call, PreparedCall):
            return call
        try:
            return await self._promise(call, ask.promise, request, override)
        except StoreFullError as error:
            logger.error("a call could not be promised: %s", error)
            return _not_called(ask.name, ToolErrorCode.RATE_LIMITED, "the server has no room for more promises")
        except StoreError as error:
            logger.debug("a call could not be promised: %s", error)
            return _not_called(ask.name, ToolErrorCode.INTERNAL, "promises cannot be stored now")

    async def perform(self, ask: PromiseAsk, request: RequestContext) -> Outcome:
        """Performs what a client asks about a promise; it may cancel a call by the name that it gave it, too."""
        if not isinstance(ask, CancelPromise) or not ask.token.startswith(tasks.KEY_PREFIX):
            return await self._asks.perform(ask, request)
        try:
            named = await self.store.find_name(_name_owner(request), ask.token.removeprefix(tasks.KEY_PREFIX))
        except StoreError as error:
            logger.debug("a promise cannot be found by its name: %s", error)
            named = None
        return UNKNOWN_PROMISE if named is None else await self._asks.perform(CancelPromise(named[0]), request)

    async def _promise(
        self, call: PreparedCall, wish: PromiseWish, request: RequestContext, override: ResultOverride | None
    ) -> Outcome:
        operation, name = call.delivery_request.operation, wish.idempotency_key
        token = make_token()
        key = key_of(token)
        assert key is not None
        try:
            digest = _call_digest(call)
            promised = _describe(key, call, request, override)
            data = encode_call(promised)
        except ValueError as error:
            return Failure(Fault.INVALID_PARAMS, f"The arguments of {call.name} cannot be stored: {error}.")
        if name is not None:
            named = await self._find_named(name, digest, call, wish, request)
            if named is not None:
                return named
        refused = await self._tool_calls.use_consents(call)
        if refused is not None:
            return refused
        new = self._new_record(call, wish, request)
        made = await self.store.create(key, new, promised, data, self._call_seconds(call))
        if made is None:
            return _not_called(call.name, ToolErrorCode.RATE_LIMITED, "too many of your calls are queued or at work")
        if name is not None and not await self.store.add_name(_name_owner(request), name, token, digest, made):
            await self._drop(key, made)
            return await self._find_named(name, digest, call, wish, request) or UNKNOWN_PROMISE
        try:
            with self.store.watching(key) as watch:
                watch.wake(made)
                if not await self._queue(key, made):
                    if name is not None:
                        with contextlib.suppress(StoreError):
                            await self.store.delete_name(_name_owner(request), name)
                    await self._drop(key, made)
                    return _not_called(call.name, ToolErrorCode.INTERNAL, "calls cannot be queued now")
                found = await self._asks.wait(key, made, watch, _sync_seconds(operation, wish), request)
            if found is not None and found.questions and name is None and _may_ask_first(operation, wish):
                self._start(self._cancel_unseen(key, is_asked_again=True))
                return self._tool_calls.ask(InputPending(found.questions, found.memo), call)
            outcome = await self._asks.settle(token, key, found, request)
        except StoreError as error:
            # The call may run by now: its client must not take it for one that failed, and call again.
            logger.debug("the promise %s cannot be waited for: %s", shown_key(key), error)
            return record.snapshot(made, token, self.store.clock())
        except asyncio.CancelledError:
            if name is None:  # nobody has the token, nor can ask for it
                self._start(self._cancel_unseen(key))
            raise
        if found is not None and found.status.is_final and name is None:
            self._start(self._forget(key, found))
        return outcome

    async def _queue(self, key: str, made: PromiseRecord) -> bool:
        """Queues a call; False if the queue fails and the call will not run.

        Raises:
            StoreError: the queue fails, and the store does not say whether the call will run.
        """
        try:
            await self._runs.enqueue(key, made.next_run)
            return True
        except Exception as error:
            logger.error("the promise %s could not be queued: %s", shown_key(key), error)
        # The queue may have the key although it did not say so, and a worker may be at it.
        now, seconds = self.store.clock(), self._limits.promise_result_seconds
        withdrawn = await self.store.update(key, lambda found: record.withdraw(found, now, seconds))
        return withdrawn is not None and not withdrawn.is_changed

    def _call_seconds(self, call: PreparedCall) -> float:
        """Returns for how long the call is needed after a run begins: the run, a question, and the next run."""
        limits, timeout = self._limits, call.delivery_request.operation.timeout
        return self._runs.run_seconds(timeout) + limits.input_seconds + limits.promise_result_seconds

    def _new_record(self, call: PreparedCall, wish: PromiseWish, request: RequestContext) -> PromiseRecord:
        operation, caller, now = call.delivery_request.operation, request.terms.caller, self.store.clock()
        seconds, total = wish.seconds, self._limits.promise_total_seconds
        if seconds is None or not math.isfinite(seconds):
            seconds = self._runs.run_seconds(operation.timeout) + self._limits.promise_result_seconds
        return PromiseRecord(
            owner_digest(caller),
            caller.account,
            operation.name,
            tuple(sorted(operation.scopes)),
            operation.manifest_entry(ResultShape.MCP)["digest"],
            "",
            now,
            now,
            now + min(max(seconds, _MIN_LIFE_SECONDS), total),
            now + total,
            may_rerun=operation.may_rerun,
            answers=dict(call.answers.by_key),
            memo=call.answers.memo,
        )

    async def _find_named(
        self, name: str, digest: str, call: PreparedCall, wish: PromiseWish, request: RequestContext
    ) -> Outcome | None:
        """Returns what a call came to that the client has made before under the same name; None if it has not."""
        if len(name) > _MAX_NAME_CHARS:
            return Failure(Fault.INVALID_PARAMS, f"An idempotency key has at most {_MAX_NAME_CHARS} characters.")
        found = await self.store.find_name(_name_owner(request), name)
        if found is None:
            return None
        token, found_digest = found
        if found_digest != digest:
            text = "The idempotency key was used for another tool or other arguments; use another key."
            return Failure(Fault.INVALID_PARAMS, text)
        seconds = _sync_seconds(call.delivery_request.operation, wish)
        return await self.perform(RedeemPromise(token, seconds), request)

    async def cancel(self, key: str) -> bool:
        """Cancels a call as the user who runs the server asks; returns False if there is none, or it has ended.

        Raises:
            StoreError: the store cannot be reached.
        """
        seconds = self._limits.promise_result_seconds
        asked = await self.store.update(key, lambda current: record.cancel(current, self.store.clock(), seconds))
        if asked is None or not (asked.is_changed or asked.record.cancel_requested):
            return False
        if asked.is_changed and asked.record.status.is_final:
            await self._outcomes.release(key, asked.record)
        return not asked.record.status.is_final or asked.is_changed

    # Promises that nobody has

    async def _drop(self, key: str, made: PromiseRecord) -> None:
        await self._outcomes.release(key, made)
        with contextlib.suppress(StoreError):
            await self.store.forget(key, made)

    async def _forget(self, key: str, ended: PromiseRecord) -> None:
        with contextlib.suppress(StoreError):  # it expires
            await self.store.forget(key, ended)

    async def _cancel_unseen(self, key: str, is_asked_again: bool = False) -> None:
        """Cancels a call whose token nobody has; `is_asked_again` if the next request of its client has its memo."""
        seconds = self._limits.promise_result_seconds
        with contextlib.suppress(StoreError):
            cancelled = await self.store.update(
                key, lambda current: record.cancel(current, self.store.clock(), seconds)
            )
            if cancelled is not None and cancelled.record.status.is_final:
                ended = cancelled.record
                await self._drop(key, replace(ended, memo=None) if is_asked_again else ended)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _not_called(name: str, code: ToolErrorCode, reason: str) -> Outcome:
    return error_outcome(code, f"{name} was not called: {reason}. Try again later.", retryable=True)


def _sync_seconds(operation: Operation, wish: PromiseWish) -> float:
    if wish.at_once or operation.promise_policy == "always":
        return 0.0
    return operation.sync_seconds if wish.reply_seconds is None else min(operation.sync_seconds, wish.reply_seconds)


def _may_ask_first(operation: Operation, wish: PromiseWish) -> bool:
    """Whether a question is asked before there is a promise, and the client sends its call again with the answer.

    MCP's extension for tasks asks servers to do so ("Task Creation"), and nothing is stored while a user thinks.
    """
    return operation.promise_policy == "auto" and not wish.at_once


def _call_digest(call: PreparedCall) -> str:
    """Returns what tells calls of another tool, or with other arguments, apart."""
    named = [call.delivery_request.operation.id, call.sent_arguments]
    return hashlib.sha256(msgspec.json.encode(named, order="deterministic")).hexdigest()


def _describe(key: str, call: PreparedCall, request: RequestContext, override: ResultOverride | None) -> PromisedCall:
    headers = request.channel.headers
    trace = {name: headers[name.encode()].decode("latin-1") for name in CONTEXT_KEYS if name.encode() in headers}
    arguments, original = call.sent_arguments, call.key[2]
    unresolved = None if original is arguments else original
    return make_promised_call(
        key, call.name, arguments, unresolved, request.terms, override, trace, HTTP_REQUEST_ID.get()
    )


def _name_owner(request: RequestContext) -> str:
    """Returns whose names of calls are apart from all others': those of one session, or else of one address, where
    callers cannot be told apart otherwise."""
    caller = request.terms.caller
    return f"{owner_digest(caller)} {(caller.connection or caller.account) if caller.shares_handles else ''}"
