"""Calls of operations that may be promised, and what clients ask about promises.

A call is checked, its record is stored, its key is queued; then the server waits for the outcome, for as long as the
operation allows, and answers with the outcome or with the promise. `promise_runs.py` runs it.
"""

import asyncio
import contextlib
import hashlib
import logging
import math
from collections.abc import AsyncGenerator, Coroutine, Iterable
from typing import Any, assert_never

import msgspec

from deltamcp.calls.call_spans import CONTEXT_KEYS
from deltamcp.calls.promise_runs import PromiseRuns, error_outcome
from deltamcp.calls.request_context import RequestContext
from deltamcp.calls.tool_calls import PreparedCall, ToolCalls
from deltamcp.catalog.catalog import Catalog
from deltamcp.catalog.operation import Operation
from deltamcp.context import ProgressReport
from deltamcp.delivery.call_policy import ResultOverride
from deltamcp.dialects import tasks
from deltamcp.errors import Fault, PeerError, ToolErrorCode
from deltamcp.limits import Limits
from deltamcp.promises import promised_call, record
from deltamcp.promises.promise_store import PromiseQueue, PromiseStore, PromiseWatch
from deltamcp.promises.promised_call import PromisedCall, make_promised_call, owner_digest
from deltamcp.promises.record import PromiseRecord
from deltamcp.promises.token import key_of, make_token, shown_key
from deltamcp.runtime.http_request_id import HTTP_REQUEST_ID
from deltamcp.stores.store import StoreError, StoreFullError
from deltamcp.values import (
    JSON,
    NO_INPUTS,
    Answer,
    AnswerPromise,
    Caller,
    CallTool,
    CancelPromise,
    Era,
    Failure,
    GetPromise,
    InputRequest,
    Inputs,
    Outcome,
    Promise,
    PromiseAsk,
    PromiseStatus,
    PromiseWish,
    RedeemPromise,
    ResultShape,
)
from deltamcp.wire import jsonrpc

_MAX_WAIT_SECONDS = 30.0
"""The longest poll; proxies commonly end a request after 60 s."""
_HEAL_SECONDS = 5.0
"""How often whoever waits for an outcome looks whether somebody is still at it."""
_CANCEL_SECONDS = 2.0
"""How long a client that cancels a call waits for it to stop."""
_MAX_ANSWER_BYTES = 256 * 1024
"""All answers to the questions of one call; a model's answer is shorter."""
_MAX_NAME_CHARS = 256
_MIN_LIFE_SECONDS = 1.0

_UNKNOWN = Failure(Fault.PROMISE_UNKNOWN, "There is no such promise.")
_UNREACHABLE = Failure(Fault.INTERNAL, "Promises cannot be reached now; try again in a few seconds.")

logger = logging.getLogger("deltamcp")


class PromiseCalls:
    """Makes promises, and serves the asks about them."""

    def __init__(
        self, tool_calls: ToolCalls, store: PromiseStore, queue: PromiseQueue, catalog: Catalog, limits: Limits
    ) -> None:
        self.store = store
        self.runs = PromiseRuns(tool_calls, store, queue, catalog, limits)
        self._tool_calls = tool_calls
        self._limits = limits
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self, key: str) -> None:
        """Runs the call behind a promise; `key` is one that `PromiseQueue.enqueue` was given."""
        await self.runs.run(key)

    # Making promises

    async def call(
        self, operation: Operation, ask: CallTool, request: RequestContext, override: ResultOverride | None
    ) -> Outcome | None:
        """Returns the outcome of a call, or its promise; None if the call is to run while its client waits."""
        if ask.promise is None:
            return tasks.refuse_call(ask.name, request.terms) if operation.promise_policy == "always" else None
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

    async def _promise(
        self, call: PreparedCall, wish: PromiseWish, request: RequestContext, override: ResultOverride | None
    ) -> Outcome:
        operation, name = call.delivery_request.operation, wish.idempotency_key
        token = make_token()
        key = key_of(token)
        assert key is not None
        try:
            digest = _call_digest(call)
            promised = promised_call.encode(_describe(key, call, request, override))
        except ValueError as error:
            return Failure(Fault.INVALID_PARAMS, f"The arguments of {call.name} cannot be stored: {error}.")
        if name is not None:
            named = await self._find_named(name, digest, call, wish, request)
            if named is not None:
                return named
        made = await self.store.create(key, self._new_record(call, wish, request), promised)
        if made is None:
            return _not_called(call.name, ToolErrorCode.RATE_LIMITED, "too many of your calls are queued or at work")
        if name is not None and not await self.store.add_name(_name_owner(request), name, token, digest, made):
            await self._drop(key, made)
            return await self._find_named(name, digest, call, wish, request) or _UNKNOWN
        with self.store.watching(key) as watch:
            watch.wake(made)
            try:
                await self.runs.enqueue(key, made.next_run)
            except Exception as error:
                logger.error("the promise %s could not be queued: %s", shown_key(key), error)
                await self._drop(key, made)
                return _not_called(call.name, ToolErrorCode.INTERNAL, "calls cannot be queued now")
            try:
                found = await self._wait(key, made, watch, _sync_seconds(operation, wish), request)
            except asyncio.CancelledError:
                if name is None:  # nobody has the token, nor can ask for it
                    self._start(self._cancel_unseen(key))
                raise
        if found is not None and found.questions and name is None and _may_ask_first(operation, wish):
            self._start(self._cancel_unseen(key))
            return self._tool_calls.ask(found.questions, call)
        outcome = await self._settle(token, key, found)
        if found is not None and found.status.is_final and name is None:
            self._start(self._forget(key, found))
        return outcome

    def _new_record(self, call: PreparedCall, wish: PromiseWish, request: RequestContext) -> PromiseRecord:
        operation, caller, now = call.delivery_request.operation, request.terms.caller, self.store.clock()
        seconds, total = wish.seconds, self._limits.promise_total_seconds
        if seconds is None or not math.isfinite(seconds):
            seconds = self.runs.run_seconds(operation.timeout) + self._limits.promise_result_seconds
        return PromiseRecord(
            owner_digest(caller),
            caller.account,
            operation.name,
            operation.manifest_entry(ResultShape.MCP)["digest"],
            "",
            now,
            now,
            now + min(max(seconds, _MIN_LIFE_SECONDS), total),
            now + total,
            may_rerun=operation.may_rerun,
            answers=dict(call.answers.by_key),
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

    # Asks

    async def perform(self, ask: PromiseAsk, request: RequestContext) -> Outcome:
        """Performs what a client asks about a promise."""
        try:
            key = key_of(ask.token)
            if key is None:
                return _UNKNOWN
            with self.store.watching(key) as watch:
                found = await watch.read()
                if found is None or found.owner != owner_digest(request.terms.caller):
                    return _UNKNOWN
                if found.is_expired(self.store.clock()):
                    return _expiry_outcome(request)
                found = await self._heal(key, found)
                match ask:
                    case RedeemPromise():
                        return await self._redeem(ask, key, found, watch, request)
                    case GetPromise():
                        return Answer(await self._snapshot(ask.token, key, found))
                    case AnswerPromise():
                        answered = await self._answer(key, found, ask.inputs, request)
                        if isinstance(answered, Failure):
                            return answered
                        return Answer(await self._snapshot(ask.token, key, answered))
                    case CancelPromise():
                        return await self._cancel(ask, key, found, watch, request)
                    case _:
                        assert_never(ask)
        except StoreError as error:
            logger.debug("a promise cannot be reached: %s", error)
            return _UNREACHABLE

    async def follow(self, token: str, caller: Caller) -> AsyncGenerator[Promise, None]:
        """Yields a promise as it is, and then after each change, until the call has ended; nothing if it is unknown.

        Raises:
            StoreError: the store cannot be read.
        """
        key = key_of(token)
        if key is None:
            return
        with self.store.watching(key) as watch:
            found = await watch.read()
            while found is not None and found.owner == owner_digest(caller):
                if found.is_expired(self.store.clock()):
                    return
                yield await self._snapshot(token, key, found)
                if found.status.is_final:
                    return
                revision = found.revision
                while found is not None and found.revision == revision:
                    found = await watch.next(revision, _HEAL_SECONDS)
                    found = found if found is None else await self._heal(key, found)

    async def own_tokens(self, tokens: Iterable[str], caller: Caller) -> frozenset[str]:
        """Returns those of some tokens whose promises the caller may redeem.

        Raises:
            StoreError: the store cannot be read.
        """
        owner, now = owner_digest(caller), self.store.clock()
        found = {token: await self.store.read(key) for token in tokens if (key := key_of(token)) is not None}
        return frozenset(
            token for token, one in found.items() if one is not None and one.owner == owner and not one.is_expired(now)
        )

    async def _redeem(
        self, ask: RedeemPromise, key: str, found: PromiseRecord, watch: PromiseWatch, request: RequestContext
    ) -> Outcome:
        if ask.inputs is not NO_INPUTS:
            answered = await self._answer(key, found, ask.inputs, request)
            if isinstance(answered, Failure):
                return answered
            found = answered
        seconds = math.inf if ask.wait_seconds is None else min(ask.wait_seconds, _MAX_WAIT_SECONDS)
        current = await self._wait(key, found, watch, seconds, request)
        while current is not None and current.questions and seconds == math.inf and _can_be_asked(request):
            answers = await _ask_client(current.questions, ask.token, request)
            answered = await self._answer(key, current, Inputs(answers), request)
            if isinstance(answered, Failure):
                return answered
            current = await self._wait(key, answered, watch, seconds, request)
        return await self._settle(ask.token, key, current)

    async def _answer(
        self, key: str, found: PromiseRecord, inputs: Inputs, request: RequestContext
    ) -> PromiseRecord | Failure:
        if len(jsonrpc.encode([found.answers, found.drafts, inputs.responses, inputs.fields])) > _MAX_ANSWER_BYTES:
            return Failure(
                Fault.INVALID_PARAMS,
                f"The answers to the questions of one call may have {_MAX_ANSWER_BYTES:,} bytes; answer with less.",
            )
        asks_again = request.terms.result_shape is ResultShape.MCP_LITE
        answered = await self.store.update(key, lambda current: record.answer(current, inputs, asks_again))
        if answered is None:
            return _UNKNOWN
        if answered.is_changed and answered.record.status is PromiseStatus.QUEUED:
            await self._enqueue(key, answered.record.next_run)
        return answered.record

    async def _cancel(
        self, ask: CancelPromise, key: str, found: PromiseRecord, watch: PromiseWatch, request: RequestContext
    ) -> Outcome:
        # 2025-11-25, "Tasks": cancelling a task that has ended is an error, and else it is cancelled before the reply.
        is_strict = request.terms.era is Era.HANDSHAKE
        if found.status.is_final and is_strict:
            return Failure(Fault.INVALID_PARAMS, f"The call has ended: its status is {found.status.value}.")
        seconds = self._limits.promise_result_seconds
        cancelled = await self.store.update(key, lambda current: record.cancel(current, self.store.clock(), seconds))
        if cancelled is None:
            return _UNKNOWN
        found = cancelled.record
        if cancelled.is_changed and found.status.is_final:
            await self.runs.release(found)
        if not found.status.is_final:
            found = await self._wait(key, found, watch, _CANCEL_SECONDS, request) or found
        if not found.status.is_final and is_strict:
            ended = await self.store.update(
                key,
                lambda current: record.end(current, PromiseStatus.CANCELLED, "", self.store.clock(), seconds),
            )
            found = found if ended is None else ended.record
        return Answer(await self._snapshot(ask.token, key, found))

    # Waiting

    async def _wait(
        self, key: str, found: PromiseRecord, watch: PromiseWatch, seconds: float, request: RequestContext
    ) -> PromiseRecord | None:
        """Waits until the call has ended or asks something, and reports its progress meanwhile; None if it is gone."""
        clock = asyncio.get_running_loop().time
        ends = clock() + seconds
        current: PromiseRecord | None = found
        progress = found.progress
        while current is not None and not current.status.is_final and not current.questions:
            if current.progress is not None and current.progress != progress:
                progress = current.progress
                await _report(current, request)
            left = ends - clock()
            if left <= 0:
                break
            revision = current.revision
            current = await watch.next(revision, min(left, _HEAL_SECONDS))
            if current is not None and current.revision == revision:
                current = await self._heal(key, current)
        return current

    async def _heal(self, key: str, found: PromiseRecord) -> PromiseRecord:
        try:
            return await self.runs.heal(key, found)
        except StoreError:
            raise
        except Exception as error:  # of the queue
            logger.warning("the promise %s could not be queued again: %s", shown_key(key), error)
            return found

    async def _enqueue(self, key: str, attempt: int) -> None:
        try:
            await self.runs.enqueue(key, attempt)
        except Exception as error:  # whoever asks for the outcome later queues it again
            logger.warning("the promise %s could not be queued: %s", shown_key(key), error)

    # Replies

    async def _settle(self, token: str, key: str, found: PromiseRecord | None) -> Outcome:
        """Returns the outcome of a call that has ended, else the promise."""
        if found is None:
            return _UNKNOWN
        if found.status.is_final:
            return await self._outcome(key, found)
        return record.snapshot(found, token, self.store.clock())

    async def _snapshot(self, token: str, key: str, found: PromiseRecord) -> Promise:
        outcome = await self._outcome(key, found) if found.status.is_final else None
        return record.snapshot(found, token, self.store.clock(), outcome)

    async def _outcome(self, key: str, ended: PromiseRecord) -> Outcome:
        if ended.status is PromiseStatus.CANCELLED:
            return error_outcome(ToolErrorCode.CANCELLED, f"{ended.operation} was cancelled.")
        if not ended.outcome:
            text = f"{ended.operation} ran, but its result could not be stored, because the store is full."
            return error_outcome(ToolErrorCode.RESULT_TOO_LARGE, text)
        try:
            outcome = await self.store.read_outcome(key, ended)
        except ValueError as error:
            logger.error("the outcome of the promise %s cannot be read: %s", shown_key(key), error)
            outcome = None
        return outcome or _EXPIRED

    # Promises that nobody has

    async def _drop(self, key: str, made: PromiseRecord) -> None:
        await self.runs.release(made)
        with contextlib.suppress(StoreError):
            await self.store.forget(key, made)

    async def _forget(self, key: str, ended: PromiseRecord) -> None:
        with contextlib.suppress(StoreError):  # it expires
            await self.store.forget(key, ended)

    async def _cancel_unseen(self, key: str) -> None:
        seconds = self._limits.promise_result_seconds
        with contextlib.suppress(StoreError):
            cancelled = await self.store.update(
                key, lambda current: record.cancel(current, self.store.clock(), seconds)
            )
            if cancelled is not None and cancelled.record.status.is_final:
                await self.runs.release(cancelled.record)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


_EXPIRED = error_outcome(ToolErrorCode.PROMISE_EXPIRED, "The promise has expired; call the tool again.")


def _expiry_outcome(request: RequestContext) -> Outcome:
    """Returns what the owner of an expired promise is told: MCP has one error for expired and unknown ones."""
    return _EXPIRED if request.terms.result_shape is ResultShape.MCP_LITE else _UNKNOWN


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
    return make_promised_call(
        key, call.name, call.sent_arguments, request.terms, override, trace, HTTP_REQUEST_ID.get()
    )


def _name_owner(request: RequestContext) -> str:
    """Returns whose names of calls are apart from all others': callers that cannot be told apart have an account."""
    caller = request.terms.caller
    return f"{owner_digest(caller)} {caller.account if caller.shares_handles else ''}"


def _can_be_asked(request: RequestContext) -> bool:
    return request.terms.era is Era.HANDSHAKE


async def _ask_client(questions: dict[str, InputRequest], token: str, request: RequestContext) -> dict[str, JSON]:
    """Asks the questions of a call in the request that waits for its outcome."""

    async def ask(question: InputRequest) -> JSON:
        try:
            return await request.channel.request(question.method, tasks.with_related_task(question.params, token))
        except PeerError as error:
            logger.debug("the client refused a question: %s", error)
            return {"action": "cancel"}

    answers = await asyncio.gather(*map(ask, questions.values()))
    return dict(zip(questions, answers, strict=True))


async def _report(current: PromiseRecord, request: RequestContext) -> None:
    """Passes on how far the call has come to a client that waits for it."""
    token = request.terms.meta.get("progressToken")
    if type(token) not in (str, int):
        if not request.channel.takes_every_progress:
            return
        token = None
    assert current.progress is not None
    await request.channel.report(ProgressReport(current.progress, current.total, current.message, token))
