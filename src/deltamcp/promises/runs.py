"""Runs of calls behind promises: a worker gives the key of a run, and the record says what came of it.

Starting is the change from queued to working, which one worker wins. A worker that is given a run that is in progress
elsewhere knows that the other one died over it, once that one gives no sign of life. What comes of a run is not lost
while the store is out of reach.
"""

import asyncio
import contextlib
import functools
import hashlib
import logging
from collections.abc import Awaitable, Callable, Hashable, Mapping
from typing import TypeVar

from deltamcp.calls.failures import log_failure, refuse_withheld
from deltamcp.calls.request_context import CONSENT_PREFIX, Answers, PromisedRun, RequestContext
from deltamcp.calls.tool_calls import ToolCalls
from deltamcp.catalog.catalog import Catalog
from deltamcp.context import Channel, ProgressReport
from deltamcp.errors import Fault, ToolErrorCode
from deltamcp.limits import Limits
from deltamcp.promises import record
from deltamcp.promises.record import PromisedCall, PromiseRecord, encode_outcome, shown_key
from deltamcp.promises.store import PromiseQueue, PromiseStore, PromiseWatch
from deltamcp.results.blocks import add_notes
from deltamcp.results.content import server_error
from deltamcp.runtime.http_request_id import HTTP_REQUEST_ID
from deltamcp.stores.store import StoreError, StoreFullError, StoreUnreachableError
from deltamcp.values import (
    Answer,
    CallTool,
    Failure,
    InputRequired,
    Outcome,
    PromiseStatus,
    ResultShape,
    ToolResult,
)
from deltamcp.wire import jsonrpc

_PROGRESS_SECONDS = 0.5
"""The time between two changes of the record because of progress; what is reported meanwhile goes into the next."""
STORE_RETRIES = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0)
"""The pauses after which a worker tries again to store what came of a run, while the store cannot be reached."""
T = TypeVar("T")
_SIGN_SECONDS = 20.0
"""How long a worker may have a run before it is doubted: it gives its first sign of life meanwhile."""
_STOP_SECONDS = 30.0
"""How long a cancelled function may take to end; then the promise is cancelled all the same."""
_GIVE_UP_SECONDS = 1.0
"""How long a function may take to end where its worker stops."""
_LOOK_SECONDS = 5.0
_MAX_LOOKS = 6
"""How often a worker looks whether the other one that has its run is dead, before it leaves that to others."""
_MAX_DEATHS = 3
"""How many workers may die over a call that may run again: it may be the call that kills them."""
logger: logging.Logger = logging.getLogger("deltamcp")


def error_outcome(code: ToolErrorCode, text: str, *, retryable: bool = False) -> Answer:
    """Returns the outcome of a call that failed for a reason of the server."""
    return Answer(server_error(text, code, retryable=retryable))


class PromiseOutcomes:
    """Writes outcomes and questions of runs. A run that is no longer its worker's changes nothing."""

    def __init__(self, store: PromiseStore, catalog: Catalog, limits: Limits) -> None:
        self._store = store
        self._catalog = catalog
        self._limits = limits

    async def write(self, key: str, started: PromiseRecord, outcome: Outcome | None) -> None:
        """Writes the outcome of a run; None if it was cancelled."""
        attempt = started.attempt
        if outcome is None:
            await self.write_cancelled(key, attempt)
            return
        if isinstance(outcome, InputRequired):
            problem = await self._ask(key, started, outcome)
            if problem is None:
                return
            outcome = problem
        name = await self._put(key, started, outcome)
        status = PromiseStatus.FAILED if isinstance(outcome, Failure) else PromiseStatus.COMPLETED
        await self._finish(key, attempt, status, name)

    async def _ask(self, key: str, started: PromiseRecord, asked_for: InputRequired) -> Failure | None:
        """Writes the questions of a run; returns the failure of a run whose questions nobody can answer."""
        questions, memo = asked_for.requests, asked_for.memo
        try:
            jsonrpc.encode(questions)
        except ValueError as error:
            return Failure(Fault.INTERNAL, log_failure(f"A question of the tool {started.operation}", error))
        attempt, seconds = started.attempt, self._limits.input_seconds + self._limits.promise_result_seconds
        asked = await retry(
            lambda: self._store.update(
                key, lambda found: record.ask(found, attempt, questions, self._store.clock(), seconds, memo)
            )
        )
        if asked is not None and asked.is_changed and asked.record.status.is_final:  # it was cancelled meanwhile
            await self.release(key, asked.record)
        if asked is None or asked.is_changed or asked.record.status is not PromiseStatus.WORKING:
            return None
        return Failure(Fault.INTERNAL, "The tool waits for answers, but asked nothing.")

    async def _put(self, key: str, started: PromiseRecord, outcome: Outcome) -> str:
        """Stores an outcome, or an error in its place; returns its name, which is empty if the store has no room."""
        try:
            data = encode_outcome(outcome)
        except ValueError as error:
            outcome = error_outcome(ToolErrorCode.INTERNAL, log_failure(f"The tool {started.operation}", error))
            data = encode_outcome(outcome)
        if len(data) > self._limits.promise_result_bytes:
            outcome = _too_large(started.operation, len(data))
            data = encode_outcome(outcome)
        try:
            return await retry(functools.partial(self._store.put_outcome, key, started, outcome, data))
        except StoreFullError as error:
            logger.error("the outcome of the promise %s was not stored: %s", shown_key(key), error)
            return ""

    async def write_cancelled(self, key: str, attempt: int) -> None:
        """Writes that a run ended because its client cancelled the call."""
        await self._finish(key, attempt, PromiseStatus.CANCELLED, "")

    async def write_unknown(self, key: str, found: PromiseRecord) -> None:
        """Writes that nobody knows what a run did, whose worker has died or stops."""
        name = await self._put(key, found, _unknown_outcome(found))
        await self._finish(key, found.attempt, PromiseStatus.COMPLETED, name)

    async def _finish(self, key: str, attempt: int, status: PromiseStatus, outcome: str) -> None:
        seconds = self._limits.promise_result_seconds
        ended = await retry(
            lambda: self._store.update(
                key, lambda found: record.finish(found, attempt, status, outcome, self._store.clock(), seconds)
            )
        )
        if ended is not None and ended.is_changed:
            await self.release(key, ended.record)

    async def release(self, key: str, ended: PromiseRecord) -> None:
        """Deletes the call of a promise that has ended; if that fails, it expires."""
        try:
            if ended.memo is not None and ended.status is PromiseStatus.CANCELLED:
                await self._abandon(key, ended)
            await self._store.delete_call(key, ended)
        except StoreError as error:
            logger.debug("the call of a promise stays until it expires: %s", error)

    async def _abandon(self, key: str, cancelled: PromiseRecord) -> None:
        """Ends what a run left elsewhere for the next one, which does not come."""
        call = await self._store.read_call(key, cancelled)
        if call is None:
            return
        principal = call.principal.restore()
        operation = self._catalog.of(principal).operations.get(cancelled.operation)
        if operation is None or operation.abandon is None:
            return
        try:
            await operation.abandon(cancelled.memo, principal)
        except Exception:
            logger.exception("what the promise %s waits for could not be ended", shown_key(key))


def _too_large(operation: str, size: int) -> Answer:
    text = f"{operation} ran, but its result of {size:,} bytes is too large to store; call it with narrower arguments."
    return error_outcome(ToolErrorCode.RESULT_TOO_LARGE, text)


def _unknown_outcome(found: PromiseRecord) -> Answer:
    reason = "every worker that ran it died" if found.may_rerun else "that could do things twice"
    text = (
        f"{found.operation} was interrupted, and may have been executed in part or as a whole. It was not run again, "
        f"because {reason}; check what it did before you call it again."
    )
    return error_outcome(ToolErrorCode.OUTCOME_UNKNOWN, text)


async def retry(work: Callable[[], Awaitable[T]]) -> T:
    """Does what a run depends on, although the store may be out of reach for a while."""
    for pause in STORE_RETRIES:
        try:
            return await work()
        except StoreUnreachableError as error:
            logger.debug("a run waits for the store: %s", error)
            await asyncio.sleep(pause)
    return await work()


class PromiseRuns:
    """Runs calls behind promises in this process, and queues those whose worker has died."""

    def __init__(
        self,
        tool_calls: ToolCalls,
        store: PromiseStore,
        outcomes: PromiseOutcomes,
        queue: PromiseQueue,
        catalog: Catalog,
        limits: Limits,
    ) -> None:
        self._tool_calls = tool_calls
        self._store = store
        self._queue = queue
        self._catalog = catalog
        self._limits = limits
        self._outcomes = outcomes
        self._running: set[str] = set()
        """The runs of this process, by the keys that were queued: the next run of a call may come before one's end."""
        store.add_busy_check(lambda: bool(self._running))

    async def enqueue(self, key: str, attempt: int) -> None:
        """Queues a run. It may raise any exception of the queue."""
        await self._queue.enqueue(_run_key(key, attempt))

    def run_seconds(self, timeout: float | None) -> float:
        """Returns the deadline of a run."""
        return timeout or self._limits.promise_seconds

    # A worker calls this

    async def run(self, key: str) -> None:
        """Runs the call behind a promise; `key` is one that was queued. It does nothing where there is nothing to do.

        Raises:
            StoreError: the store does not say what to run; the caller may try again.
        """
        run = key
        key, _, number = run.rpartition(".")
        if run in self._running:
            return
        self._running.add(run)
        try:
            with self._store.watching(key) as watch:
                started = await self._start(key, int(number))
                if started is not None:
                    await self._run(key, started, watch)
        finally:
            self._running.discard(run)

    async def _start(self, key: str, attempt: int) -> PromiseRecord | None:
        """Returns the record of a run that this worker is to perform; None if there is none, or not for this one."""
        may_be_ours = False
        for pause in (*STORE_RETRIES[:3], None):
            try:
                started = await self._store.update(
                    key,
                    lambda found: record.start(
                        found, attempt, self._store.worker, self._store.clock(), self._least_seconds(found)
                    ),
                    is_news=False,
                )
            except StoreUnreachableError:
                if pause is None:
                    raise
                may_be_ours = True  # it may have happened all the same
                await asyncio.sleep(pause)
                continue
            if started is None or not record.is_run(started.record, attempt):
                return None
            if started.is_changed or (may_be_ours and started.record.worker == self._store.worker):
                return started.record
            await self._take_over(key, started.record)
            return None
        return None

    def _least_seconds(self, found: PromiseRecord) -> float:
        operation = self._catalog.operations.get(found.operation)
        timeout = None if operation is None else operation.timeout
        return self.run_seconds(timeout) + self._limits.promise_result_seconds

    async def _take_over(self, key: str, found: PromiseRecord) -> None:
        """Waits until the worker that has the run ends it or is dead."""
        attempt = found.attempt
        with self._store.watching(key) as watch:
            for _ in range(_MAX_LOOKS):
                if found.worker == self._store.worker or not await self._store.is_alive(found.worker):
                    await self._bury(key, found)
                    return
                current = await watch.next(found.revision, _LOOK_SECONDS)
                if current is None or not record.is_run(current, attempt):
                    return
                found = current

    async def _run(self, key: str, started: PromiseRecord, watch: PromiseWatch) -> None:
        call = asyncio.get_running_loop().create_task(self._call(key, started))
        stop = asyncio.get_running_loop().create_task(_wait_for_stop(watch, started))
        try:
            await asyncio.wait([call, stop], return_when=asyncio.FIRST_COMPLETED)
            if not call.done():
                call.cancel()
                await asyncio.wait([call], timeout=_STOP_SECONDS)
        except asyncio.CancelledError:  # the worker stops
            call.cancel()
            await asyncio.wait([call], timeout=_GIVE_UP_SECONDS)
            await self._give_up(key, started, call)
            raise
        finally:
            stop.cancel()
        await self._outcomes.write(key, started, _outcome_of(call))

    async def _give_up(self, key: str, started: PromiseRecord, call: "asyncio.Task[Outcome]") -> None:
        """Leaves a run to other workers, unless it has just ended."""
        try:
            if call.done() and not call.cancelled():
                await self._outcomes.write(key, started, _outcome_of(call))
            else:
                await self._bury(key, started, died=False)
        except Exception as error:
            logger.warning("the promise %s is left to other workers: %s", shown_key(key), error)

    async def _call(self, key: str, started: PromiseRecord) -> Outcome:
        call = await retry(lambda: self._store.read_call(key, started))
        if call is None:  # the account has more queued than it may store
            logger.error("the call of the promise %s is gone from the store", shown_key(key))
            text = f"{started.operation} did not run: your other calls took its room in the store. Call it again."
            return error_outcome(ToolErrorCode.INTERNAL, text, retryable=True)
        terms = call.terms(started.expires_at - self._store.clock())
        write = functools.partial(self._write_progress, key, started.attempt)
        headers = {name.encode(): value.encode("latin-1", "replace") for name, value in call.trace.items()}
        channel = PromiseChannel(call.account, headers, write)
        run = PromisedRun(
            promise_id(key),
            started.attempt,
            _answers(key, started),
            self._limits.promise_seconds,
            call.arguments if call.unresolved is None else call.unresolved,
            call.conversation,
        )
        if self._catalog.prepare is not None:
            await self._catalog.prepare(terms.caller.principal)
        view = self._catalog.view(terms.caller.principal)
        request = RequestContext(terms, view, channel, f"promise {shown_key(key)}", run)
        refused = refuse_withheld((started.operation,), request) if view.withholds else None
        if refused is not None:
            return refused
        operation = view.operations.get(started.operation)
        if operation is None:
            return Failure(Fault.NOT_FOUND, f"The tool {call.name} no longer exists.")
        if operation.manifest_entry(ResultShape.MCP)["digest"] != started.catalog:
            logger.info("%s has changed since it was called; its arguments are checked once more", operation.name)
        HTTP_REQUEST_ID.set(call.http_request_id)  # of this task's context alone
        try:
            outcome = await self._tool_calls.call(
                operation, CallTool(call.name, call.arguments), request, call.result_override()
            )
        finally:
            channel.close()
        return _add_note(outcome, call)

    async def _write_progress(self, key: str, attempt: int, report: ProgressReport) -> None:
        await self._store.update(
            key, lambda found: record.report(found, attempt, report.progress, report.total, report.message)
        )

    # Dead workers and lost keys

    async def heal(self, key: str, found: PromiseRecord) -> PromiseRecord:
        """Returns the record after mending what no worker will: a dead worker's run, a run that was never queued."""
        now = self._store.clock()
        if found.status is PromiseStatus.WORKING and now - found.started_at >= _SIGN_SECONDS:
            if not await self._is_at_work(key, found):
                return await self._bury(key, found)
        elif found.status is PromiseStatus.QUEUED and now - found.updated_at >= self._queue.lost_seconds:
            await self.enqueue(key, found.next_run)
        return found

    async def _is_at_work(self, key: str, found: PromiseRecord) -> bool:
        if found.worker == self._store.worker:
            return _run_key(key, found.attempt) in self._running
        return await self._store.is_alive(found.worker)

    async def _bury(self, key: str, found: PromiseRecord, died: bool = True) -> PromiseRecord:
        """Queues a run again whose worker is dead or stops, if the call may run again; else ends the promise."""
        attempt = found.attempt
        if found.cancel_requested:
            await self._outcomes.write_cancelled(key, attempt)
        elif found.may_rerun and found.deaths < _MAX_DEATHS:
            requeued = await self._store.update(key, lambda current: record.requeue(current, attempt, died))
            if requeued is not None and requeued.is_changed:
                await self.enqueue(key, requeued.record.next_run)
        else:
            await self._outcomes.write_unknown(key, found)
        return await self._store.read(key) or found


class PromiseChannel(Channel):
    """A `Channel` without a client. Close it when the call has ended."""

    takes_every_progress = True
    unasked = "Nobody waits for this call, so that nobody can be asked in this way."

    def __init__(
        self,
        fairness_key: Hashable,
        headers: Mapping[bytes, bytes],
        write_progress: Callable[[ProgressReport], Awaitable[object]],
    ) -> None:
        self.fairness_key = fairness_key
        self.headers = headers
        self._write_progress = write_progress
        self._latest: ProgressReport | None = None
        self._writer: asyncio.Task[None] | None = None

    async def report(self, progress: ProgressReport) -> None:
        self._latest = progress
        if self._writer is None:
            self._writer = asyncio.get_running_loop().create_task(self._write())

    async def _write(self) -> None:
        while (latest := self._latest) is not None:
            self._latest = None
            with contextlib.suppress(StoreError, ValueError):  # of a text that is none; progress is told again
                await self._write_progress(latest)
            await asyncio.sleep(_PROGRESS_SECONDS)
        self._writer = None

    def close(self) -> None:
        """Stops writing progress."""
        if self._writer is not None:
            self._writer.cancel()


def _run_key(key: str, attempt: int) -> str:
    return f"{key}.{attempt}"


def promise_id(key: str) -> str:
    """Returns what identifies a promise for its author, who may send it elsewhere."""
    return hashlib.sha256(f"promise id {key}".encode()).hexdigest()[:32]


async def _wait_for_stop(watch: PromiseWatch, started: PromiseRecord) -> None:
    """Returns once the client has cancelled the call, or the run is no longer this worker's."""
    current = started
    while record.is_run(current, started.attempt) and not current.cancel_requested:
        try:
            found = await watch.next(current.revision, _LOOK_SECONDS)
        except StoreError as error:
            logger.debug("a run goes on while the store does not answer: %s", error)
            await asyncio.sleep(_LOOK_SECONDS)
            continue
        if found is None:  # the store has lost it, so that nobody can cancel it either
            await asyncio.get_running_loop().create_future()
        else:
            current = found


def _outcome_of(call: "asyncio.Task[Outcome]") -> Outcome | None:
    """Returns what a call came to; None if it was cancelled, or does not end though it was."""
    if not call.done() or call.cancelled():
        return None
    error = call.exception()
    if error is not None:
        return Failure(Fault.INTERNAL, log_failure("The call", error))
    return call.result()


def _answers(key: str, started: PromiseRecord) -> Answers:
    """Each run uses a consent once, which no other run does."""
    consents = {name: started.latest_expiry for name in started.answers if name.startswith(CONSENT_PREFIX)}
    return Answers(started.answers, consents, f"promise {key} {started.attempt}", memo=started.memo)


def _add_note(outcome: Outcome, call: PromisedCall) -> Outcome:
    if call.override is None or not call.override.note:
        return outcome
    match outcome:
        case Answer(ToolResult() as result):
            return Answer(add_notes(result, [call.override.note]))
        case _:
            return outcome
