"""What came of the runs of calls behind promises, written so that it is not lost while the store is out of reach."""

import asyncio
import functools
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from deltamcp.calls.failures import log_failure
from deltamcp.catalog.catalog import Catalog
from deltamcp.errors import Fault, ToolErrorCode
from deltamcp.limits import Limits
from deltamcp.promises import record, stored_outcome
from deltamcp.promises.record import PromiseRecord, shown_key
from deltamcp.promises.store import PromiseStore
from deltamcp.results.content import server_error
from deltamcp.stores.store import StoreError, StoreFullError, StoreUnreachableError
from deltamcp.values import Answer, Failure, InputRequired, Outcome, PromiseStatus
from deltamcp.wire import jsonrpc

STORE_RETRIES = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0)
"""The pauses after which a worker tries again to store what came of a run, while the store cannot be reached."""

T = TypeVar("T")
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
            data = stored_outcome.encode(outcome)
        except ValueError as error:
            outcome = error_outcome(ToolErrorCode.INTERNAL, log_failure(f"The tool {started.operation}", error))
            data = stored_outcome.encode(outcome)
        if len(data) > self._limits.promise_result_bytes:
            outcome = _too_large(started.operation, len(data))
            data = stored_outcome.encode(outcome)
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
