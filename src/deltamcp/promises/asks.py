"""What clients ask about promises: redeem, status, answers, cancelling."""

import asyncio
import logging
import math
import time
from collections.abc import AsyncGenerator, Iterable
from typing import assert_never

from deltamcp.calls.failures import missing_scopes
from deltamcp.calls.request_context import RequestContext
from deltamcp.context import CAPABILITY, ProgressReport
from deltamcp.dialects.tasks import with_related_task
from deltamcp.errors import Fault, InputDeclinedError, MissingScopesError, PeerError, ToolErrorCode
from deltamcp.limits import Limits
from deltamcp.promises import record
from deltamcp.promises.record import PromiseRecord, key_of, owner_digest, shown_key
from deltamcp.promises.runs import PromiseOutcomes, PromiseRuns, error_outcome
from deltamcp.promises.store import PromiseStore, PromiseWatch
from deltamcp.stores.store import StoreError
from deltamcp.values import (
    JSON,
    NO_INPUTS,
    Answer,
    AnswerPromise,
    Caller,
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

UNKNOWN_PROMISE = Failure(Fault.PROMISE_UNKNOWN, "There is no such promise.")
"""What everybody but the owner is told, whether there is such a promise or not."""
_UNREACHABLE = Failure(
    Fault.OVERLOADED, "Promises cannot be reached now; try again in a few seconds.", retry_seconds=2.0
)

logger: logging.Logger = logging.getLogger("deltamcp")


class PromiseAsks:
    """Performs what clients ask about promises, and waits for their calls."""

    def __init__(self, store: PromiseStore, runs: PromiseRuns, outcomes: PromiseOutcomes, limits: Limits) -> None:
        self._store = store
        self._runs = runs
        self._outcomes = outcomes
        self._limits = limits
        self._waits: set[PromiseWatch] = set()

    def drain(self, seconds: float) -> None:
        """Answers clients that wait for an outcome with the promise: another replica, or the next process, has it."""
        for watch in self._waits:
            watch.stop()

    async def perform(self, ask: PromiseAsk, request: RequestContext) -> Outcome:
        """Performs what a client asks about a promise."""
        try:
            key = key_of(ask.token)
            if key is None:
                return UNKNOWN_PROMISE
            with self._store.watching(key) as watch:
                found = await watch.read()
                if found is None or found.owner != owner_digest(request.terms.caller):
                    return UNKNOWN_PROMISE
                refused = _refuse_scopes(found, request.terms.caller)
                if refused is not None:
                    return refused
                if found.is_expired(self._store.clock()):
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
        with self._store.watching(key) as watch:
            found = await watch.read()
            while found is not None and _may_follow(found, caller):
                if found.is_expired(self._store.clock()):
                    return
                yield await self._snapshot(token, key, found)
                if found.status.is_final:
                    return
                revision = found.revision
                while found is not None and found.revision == revision and not found.is_expired(self._store.clock()):
                    found = await watch.next(revision, _HEAL_SECONDS)
                    found = found if found is None else await self._heal(key, found)

    async def own_tokens(self, tokens: Iterable[str], caller: Caller) -> frozenset[str]:
        """Returns those of some tokens whose promises the caller may redeem.

        Raises:
            StoreError: the store cannot be read.
        """
        now = self._store.clock()
        found = {token: await self._store.read(key) for token in tokens if (key := key_of(token)) is not None}
        return frozenset(
            token
            for token, one in found.items()
            if one is not None and _may_follow(one, caller) and not one.is_expired(now)
        )

    async def _redeem(
        self, ask: RedeemPromise, key: str, found: PromiseRecord, watch: PromiseWatch, request: RequestContext
    ) -> Outcome:
        if ask.inputs is not NO_INPUTS:
            answered = await self._answer(key, found, ask.inputs, request)
            if isinstance(answered, Failure):
                return answered
            found = answered
        is_task = request.terms.era is Era.HANDSHAKE
        if ask.wait_seconds is not None:
            seconds = min(ask.wait_seconds, _MAX_WAIT_SECONDS)
        else:  # a stream tells nothing to a caller whose token has expired; `tasks/result` is answered by an outcome
            seconds = math.inf if is_task else request.terms.caller.principal.expires_at - time.time()
        task = ask.token if is_task else None
        current = await self.wait(key, found, watch, seconds, request, task)
        while is_task and current is not None and current.questions:
            answers = await _ask_client(current.questions, ask.token, request)
            if isinstance(answers, Failure):
                return answers
            answered = await self._answer(key, current, Inputs(answers), request)
            if isinstance(answered, Failure):
                return answered
            current = await self.wait(key, answered, watch, seconds, request, task)
        return await self.settle(ask.token, key, current, request)

    async def _answer(
        self, key: str, found: PromiseRecord, inputs: Inputs, request: RequestContext
    ) -> PromiseRecord | Failure:
        if len(jsonrpc.encode([found.answers, found.drafts, inputs.responses, inputs.fields])) > _MAX_ANSWER_BYTES:
            return Failure(
                Fault.INVALID_PARAMS,
                f"The answers to the questions of one call may have {_MAX_ANSWER_BYTES:,} bytes; answer with less.",
            )
        asks_again = request.terms.result_shape is ResultShape.MCP_LITE
        problem: str | None = None

        def take(current: PromiseRecord) -> PromiseRecord | None:
            nonlocal problem
            problem = record.answer_problem(current, inputs, asks_again)
            return None if problem is not None else record.answer(current, inputs, asks_again)

        answered = await self._store.update(key, take)
        if problem is not None:
            return Failure(Fault.INVALID_PARAMS, f"{problem} Answer again.")
        if answered is None:
            return UNKNOWN_PROMISE
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
        cancelled = await self._store.update(key, lambda current: record.cancel(current, self._store.clock(), seconds))
        if cancelled is None:
            return UNKNOWN_PROMISE
        found = cancelled.record
        if cancelled.is_changed and found.status.is_final:
            await self._outcomes.release(key, found)
        if not found.status.is_final:
            found = await self.wait(key, found, watch, _CANCEL_SECONDS, request) or found
        if not found.status.is_final and is_strict:
            ended = await self._store.update(
                key,
                lambda current: record.end(current, PromiseStatus.CANCELLED, "", self._store.clock(), seconds),
            )
            if ended is not None and ended.is_changed:
                await self._outcomes.release(key, ended.record)
            found = found if ended is None else ended.record
        return Answer(await self._snapshot(ask.token, key, found))

    # Waiting

    async def wait(
        self,
        key: str,
        found: PromiseRecord,
        watch: PromiseWatch,
        seconds: float,
        request: RequestContext,
        task: str | None = None,
    ) -> PromiseRecord | None:
        """Waits until the call has ended, asks something or has expired, and reports its progress; None if it is gone.

        `task` is the token of the promise if the messages of its client name it.
        """
        clock = asyncio.get_running_loop().time
        ends = clock() + seconds
        current: PromiseRecord | None = found
        progress = found.progress
        if request.terms.era is Era.MODERN:  # in 2025-11-25 only an outcome answers `tasks/result`
            self._waits.add(watch)
        try:
            while current is not None and not current.status.is_final and not current.questions:
                if current.progress is not None and current.progress != progress:
                    progress = current.progress
                    await _report(current, request, task)
                left = ends - clock()
                if left <= 0 or watch.is_stopped or current.is_expired(self._store.clock()):
                    break
                revision = current.revision
                current = await watch.next(revision, min(left, _HEAL_SECONDS))
                if current is not None and current.revision == revision:
                    current = await self._heal(key, current)
        finally:
            self._waits.discard(watch)
        return current

    async def _heal(self, key: str, found: PromiseRecord) -> PromiseRecord:
        try:
            return await self._runs.heal(key, found)
        except StoreError:
            raise
        except Exception as error:  # of the queue
            logger.warning("the promise %s could not be queued again: %s", shown_key(key), error)
            return found

    async def _enqueue(self, key: str, attempt: int) -> None:
        try:
            await self._runs.enqueue(key, attempt)
        except Exception as error:  # whoever asks for the outcome later queues it again
            logger.warning("the promise %s could not be queued: %s", shown_key(key), error)

    # Replies

    async def settle(self, token: str, key: str, found: PromiseRecord | None, request: RequestContext) -> Outcome:
        """Returns the outcome of a call that has ended, else the promise."""
        if found is None:
            return UNKNOWN_PROMISE
        if found.status.is_final:
            return await self._outcome(key, found)
        if found.is_expired(self._store.clock()):
            return _expiry_outcome(request)
        return record.snapshot(found, token, self._store.clock())

    async def _snapshot(self, token: str, key: str, found: PromiseRecord) -> Promise:
        outcome = await self._outcome(key, found) if found.status.is_final else None
        return record.snapshot(found, token, self._store.clock(), outcome)

    async def _outcome(self, key: str, ended: PromiseRecord) -> Outcome:
        if ended.status is PromiseStatus.CANCELLED:
            return error_outcome(ToolErrorCode.CANCELLED, f"{ended.operation} was cancelled.")
        if not ended.outcome:
            text = f"{ended.operation} ran, but its result could not be stored, because the store is full."
            return error_outcome(ToolErrorCode.RESULT_TOO_LARGE, text)
        try:
            outcome = await self._store.read_outcome(key, ended)
        except ValueError as error:
            logger.error("the outcome of the promise %s cannot be read: %s", shown_key(key), error)
            outcome = None
        return outcome or _EXPIRED


_EXPIRED = error_outcome(ToolErrorCode.PROMISE_EXPIRED, "The promise has expired; call the tool again.")


def _may_follow(found: PromiseRecord, caller: Caller) -> bool:
    return found.owner == owner_digest(caller) and _refuse_scopes(found, caller) is None


def _refuse_scopes(found: PromiseRecord, caller: Caller) -> Failure | None:
    """Returns the failure of a request about a call that its sender could not make; None if it could."""
    missing = frozenset(found.scopes) - caller.principal.scopes
    if not missing:
        return None
    if not caller.principal.is_authenticated:
        return UNKNOWN_PROMISE
    return missing_scopes(MissingScopesError(found.operation, missing), caller)


def _expiry_outcome(request: RequestContext) -> Outcome:
    """Returns what the owner of an expired promise is told: MCP has one error for expired and unknown ones."""
    return _EXPIRED if request.terms.result_shape is ResultShape.MCP_LITE else UNKNOWN_PROMISE


async def _ask_client(
    questions: dict[str, InputRequest], token: str, request: RequestContext
) -> dict[str, JSON] | Failure:
    """Asks the questions of a call in the request that waits for its outcome.

    They may be those of a call that the same user made by another client, which can be asked more.
    """
    missing = {CAPABILITY[question.method] for question in questions.values()} - request.terms.capabilities.keys()
    if missing:
        text = f"The call asks for what this client does not support: {', '.join(sorted(missing))}."
        return Failure(Fault.MISSING_CAPABILITY, text)

    async def ask(question: InputRequest) -> JSON:
        try:
            return await request.channel.request(question.method, with_related_task(question.params, token))
        except PeerError as error:
            logger.debug("the client refused a question: %s", error)
            return {"action": "cancel"}

    try:
        answers = await asyncio.gather(*map(ask, questions.values()))
    except InputDeclinedError as error:  # no answer in time
        return Failure(Fault.TIMEOUT, str(error))
    return dict(zip(questions, answers, strict=True))


async def _report(current: PromiseRecord, request: RequestContext, task: str | None) -> None:
    """Passes on how far the call has come to a client that waits for it."""
    token = request.terms.meta.get("progressToken")
    if type(token) not in (str, int):
        if not request.channel.takes_every_progress:
            return
        token = None
    assert current.progress is not None
    await request.channel.report(ProgressReport(current.progress, current.total, current.message, token, task))
