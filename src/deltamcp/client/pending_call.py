"""`PendingCall`: a call that the server goes on with after its reply, be it a promise of MCP-lite or a task of MCP."""

import asyncio
import logging
import random
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from inspect import isawaitable
from typing import Any, Protocol

from msgspec import Struct

from deltamcp.client.callbacks import ClientCallbacks
from deltamcp.client.connection import OnProgress
from deltamcp.client.connector import Connector
from deltamcp.client.links.link import peer_error
from deltamcp.client.reply import Reply
from deltamcp.errors import (
    ClientError,
    ConnectionLostError,
    DeadlineError,
    PeerError,
    ToolErrorCode,
    UnauthorizedError,
    UnreachableError,
)
from deltamcp.values import JSON, Era

_FINAL = frozenset({"completed", "failed", "cancelled"})
_MAX_RETRY_MS = 3_600_000
_MAX_TOKEN_CHARS = 4096
"""The client sends the token with every question, over HTTP also in a header; servers of this library have 31."""
_MAX_PROGRESS = 1e300
"""Larger numbers cannot be computed with, and say nothing."""
_REPLY_SECONDS = 30.0
"""How long an answer may take beyond the time that the client asks the server to wait."""
logger: logging.Logger = logging.getLogger("deltamcp")

_WAIT_SECONDS = 20.0
"""How long the server is asked to wait for a change, where it can; proxies commonly cut idle connections after 60 s."""
_WATCH_SECONDS = 1.0
"""The same where somebody watches the call: `redeem` returns at its end or with a question, and not with progress."""
_SOON_SECONDS = 0.25
"""How soon the client asks again after a change; also its first wait, where the server does not say how long."""
_LEAST_SECONDS = 0.1
"""What the client waits though the server wants to be asked again sooner."""
_WAIT_FACTOR, _MAX_WAIT_SECONDS, _JITTER = 1.6, 5.0, 0.2
_PATIENCE_SECONDS = 120.0
"""How long the server may be unreachable before the client gives up asking; the call itself goes on."""
_MAX_QUESTIONS = 500
"""How many questions of one call the client answers."""
_BUSY_REASONS = ("RATE_LIMITED", "OVERLOADED", "SERVER_SHUTDOWN")
"""Errors of MCP-lite that say nothing of the call itself."""

ReadResult = Callable[[dict[str, JSON]], Awaitable[Reply]]
"""Makes the reply of a result as the server sent it."""


class CallState(Struct, frozen=True):
    """A call as it was when the server last told."""

    token: str | None
    """Names the call at its server; None if the server answered at once."""
    status: str
    """`queued`, `working`, `input_required`, `cancelling`; at the end `completed`, `failed` or `cancelled`."""
    progress: float | None = None
    total: float | None = None
    message: str | None = None
    retry_seconds: float | None = None
    """How soon the server wants to be asked again; None if it does not say."""
    questions: dict[str, JSON] = {}
    """The questions of the call that wait for an answer, by their keys."""
    result: dict[str, JSON] | None = None
    error: dict[str, JSON] | None = None
    """The JSON-RPC error with which the call ended."""

    def __repr__(self) -> str:
        """Leaves the token out, which is a secret, and the result, which may be large."""
        return f"<CallState {self.status!r:.40}, progress {self.progress} of {self.total}>"

    @property
    def is_final(self) -> bool:
        """Whether the call has ended."""
        return self.status in _FINAL


def ended_state(result: dict[str, JSON], token: str | None = None) -> CallState:
    """Returns the state of a call that ended with this result."""
    error = result.get("error")
    is_cancelled = isinstance(error, dict) and error.get("code") == ToolErrorCode.CANCELLED
    return CallState(token, "cancelled" if is_cancelled else "completed", result=result)


def parse_task(task: Any) -> CallState:
    """Reads a task of MCP 2025-11-25 or 2026-07-28.

    Raises:
        ClientError: this is none.
    """
    token = task.get("taskId") if isinstance(task, dict) else None
    if not isinstance(token, str) or not token:
        raise ClientError("The server goes on with the call, and gives no id to ask for it by.")
    if len(token) > _MAX_TOKEN_CHARS:
        raise ClientError(f"The server goes on with the call, under an id of more than {_MAX_TOKEN_CHARS} characters.")
    status, message, questions = task.get("status"), task.get("statusMessage"), task.get("inputRequests")
    retry_ms = task.get("pollIntervalMs", task.get("pollInterval"))
    result, error = task.get("result"), task.get("error")
    return CallState(
        token,
        status if isinstance(status, str) else "working",
        _number(task.get("progress")),
        _number(task.get("total")),
        message if isinstance(message, str) else None,
        min(max(retry_ms, 0), _MAX_RETRY_MS) / 1000 if isinstance(retry_ms, int | float) else None,
        questions if isinstance(questions, dict) else {},
        result if isinstance(result, dict) else None,
        error if isinstance(error, dict) else None,
    )


def _number(value: JSON) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if -_MAX_PROGRESS <= value <= _MAX_PROGRESS else None  # which no NaN is


class PromiseProtocol(Protocol):
    """Asks one server for calls by their tokens."""

    waits: bool
    """Whether `poll` has the server wait for a change."""

    async def poll(self, token: str, wait_seconds: float) -> CallState:
        """Returns the state of a call, with its result if it has ended; questions of it may be answered meanwhile.

        Raises:
            PeerError: the server knows no such call, or the call ended with this error.
        """

    async def status(self, token: str) -> CallState:
        """Returns the state of a call at once, perhaps without its result."""

    async def answer(self, token: str, responses: dict[str, JSON]) -> CallState | None:
        """Answers questions of a call; returns its state if the server tells that."""

    async def cancel(self, token: str) -> CallState | None:
        """Has the server cancel a call; returns its state if the server tells that."""


class RedeemedPromises:
    """Promises of MCP-lite, whose tool `redeem` does everything."""

    waits = True

    def __init__(self, connector: Connector) -> None:
        self._connector = connector

    async def poll(self, token: str, wait_seconds: float) -> CallState:
        return await self._redeem(token, {"wait_ms": round(wait_seconds * 1000)}, timeout=wait_seconds + _REPLY_SECONDS)

    async def status(self, token: str) -> CallState:
        return await self._redeem(token, {"action": "status"})

    async def answer(self, token: str, responses: dict[str, JSON]) -> CallState:
        return await self._redeem(token, {"input": responses})

    async def cancel(self, token: str) -> CallState:
        return await self._redeem(token, {"action": "cancel"})

    async def _redeem(self, token: str, options: dict[str, JSON], timeout: float = _REPLY_SECONDS) -> CallState:
        params = {"name": "redeem", "arguments": {"promise": token, **options}}
        result = await self._connector.request("tools/call", params, timeout=timeout)
        return parse_task(result) if result.get("resultType") == "task" else ended_state(result, token)


class ModernTasks:
    """Tasks of MCP 2026-07-28 (SEP-2663): `tasks/get` has everything, and answers at once."""

    waits = False

    def __init__(self, connector: Connector) -> None:
        self._connector = connector

    async def poll(self, token: str, wait_seconds: float) -> CallState:
        return parse_task(await self._connector.request("tasks/get", {"taskId": token}, timeout=_REPLY_SECONDS))

    async def status(self, token: str) -> CallState:
        return await self.poll(token, 0.0)

    async def answer(self, token: str, responses: dict[str, JSON]) -> None:
        params = {"taskId": token, "inputResponses": responses}
        await self._connector.request("tasks/update", params, timeout=_REPLY_SECONDS)

    async def cancel(self, token: str) -> None:
        await self._connector.request("tasks/cancel", {"taskId": token}, timeout=_REPLY_SECONDS)


class HandshakeTasks:
    """Tasks of MCP 2025-11-25: the result is apart from the status, and the server asks while it is waited for."""

    waits = False

    def __init__(self, connector: Connector) -> None:
        self._connector = connector

    async def poll(self, token: str, wait_seconds: float) -> CallState:
        state = await self.status(token)
        if state.status in ("input_required", "completed", "failed"):
            # It waits until the call has ended, and the server asks meanwhile (2025-11-25, "Input Required Status").
            return ended_state(await self._connector.request("tasks/result", {"taskId": token}), token)
        return state

    async def status(self, token: str) -> CallState:
        return parse_task(await self._connector.request("tasks/get", {"taskId": token}, timeout=_REPLY_SECONDS))

    async def answer(self, token: str, responses: dict[str, JSON]) -> None:
        raise AssertionError("tasks of 2025-11-25 tell no questions")

    async def cancel(self, token: str) -> CallState:
        return parse_task(await self._connector.request("tasks/cancel", {"taskId": token}, timeout=_REPLY_SECONDS))


def promise_protocol(connector: Connector) -> PromiseProtocol:
    """Returns the protocol by which the server goes on with calls.

    Raises:
        ClientError: the server speaks a protocol without that.
    """
    server = connector.server
    if server.is_lite:
        return RedeemedPromises(connector)
    if server.is_delta:
        raise ClientError("The server speaks the original Delta-MCP, in which a call ends with its reply.")
    return ModernTasks(connector) if server.era is Era.MODERN else HandshakeTasks(connector)


class PendingCall:
    """A call that the server goes on with. `client.start` and `client.pending` make it.

    The server keeps the call while no client is connected: a program can store the token, and another one take the call
    up again.
    """

    def __init__(
        self,
        name: str,
        state: CallState,
        protocol: Callable[[], PromiseProtocol],
        callbacks: ClientCallbacks,
        read_result: ReadResult,
        read_value: Callable[[str, Reply], Awaitable[JSON]],
    ) -> None:
        """
        Args:
            name: the tool's, for errors.
            protocol: returns how this server is asked.
            read_value: returns the complete value of a reply to a call of the named tool, or raises its failure.
        """
        self._name = name
        self.state: CallState = state
        self._protocol, self._callbacks = protocol, callbacks
        self._read_result, self._read_value = read_result, read_value
        self._reply: Reply | None = None
        self._answered: set[str] = set()

    @property
    def token(self) -> str | None:
        """Names the call at its server, for `client.pending`; None if the server answered at once. Keep it secret."""
        return self.state.token

    def __repr__(self) -> str:
        return f"<PendingCall of {self._name}, {self.state.status}>"

    async def status(self) -> CallState:
        """Asks the server how far the call is; does not wait for it."""
        if self.token is not None and not self.state.is_final:
            self.state = await self._protocol().status(self.token)
        return self.state

    async def cancel(self) -> CallState:
        """Has the server cancel the call; the call may end otherwise if it was about to.

        Raises:
            PeerError: the server knows the call no more.
        """
        if self.token is not None and not self.state.is_final:
            self.state = await self._protocol().cancel(self.token) or self.state
        return self.state

    async def result(self, *, timeout: float | None = None, progress: OnProgress | None = None) -> JSON:
        """Waits for the result and returns its value, as `client.call` does.

        Args:
            timeout: seconds to wait; the call goes on after them.

        Raises:
            CallFailedError: the tool reported an error, or the call was cancelled.
            DeadlineError: the call has not ended in time.
            ClientError: the server cannot be reached, or what it says of the call cannot be used.
            PeerError: the call ended with a JSON-RPC error, or the server knows it no more.
        """
        return await self._read_value(self._name, await self.reply(timeout=timeout, progress=progress))

    async def reply(self, *, timeout: float | None = None, progress: OnProgress | None = None) -> Reply:
        """Waits for the result and returns the server's reply, even if it reports an error."""
        deadline = asyncio.timeout(timeout)
        try:
            wait_seconds = _WAIT_SECONDS if progress is None else _WATCH_SECONDS
            async with deadline, aclosing(self._updates(wait_seconds)) as updates:
                told: tuple[float | None, str | None] = (None, None)
                async for state in updates:
                    if (state.progress, state.message) != told:
                        told = (state.progress, state.message)
                        await _report(state, progress)
        except TimeoutError:
            if not deadline.expired():
                raise
            raise DeadlineError(f"{self._name} has not ended within {timeout:g} s; it goes on.") from None
        if self._reply is None:
            if self.state.error is not None:
                raise peer_error(self.state.error)
            self._reply = await self._read_result(self.state.result or _cancelled_result())
        return self._reply

    def updates(self) -> AsyncGenerator[CallState, None]:
        """Yields the state of the call now and whenever it has changed, until the call has ended.

        The client answers the call's questions on the way.
        """
        return self._updates(_WATCH_SECONDS)

    async def _updates(self, wait_seconds: float) -> AsyncGenerator[CallState, None]:
        yield self.state
        waits = _Waits()
        while not self._has_outcome:
            assert self.token is not None, "a call without a token has its result"
            before = self.state
            try:
                protocol = self._protocol()
                await self._answer_questions(protocol)
                if not self._has_outcome:
                    await asyncio.sleep(waits.before_poll(self.state, protocol.waits))
                    self.state = await protocol.poll(self.token, wait_seconds)
                    self._check_end()
                waits.note_answer(has_changed=self.state != before)
            except (ConnectionLostError, UnreachableError, DeadlineError, PeerError) as error:
                if not _is_passing(error) or not waits.may_go_on:
                    raise
                await asyncio.sleep(waits.after_failure(getattr(error, "retry_after", 0.0)))
            if self.state != before:
                yield self.state

    @property
    def _has_outcome(self) -> bool:
        state = self.state
        return state.result is not None or state.error is not None or state.status == "cancelled"

    def _check_end(self) -> None:
        """
        Raises:
            ClientError: there will be no result.
        """
        if self.state.is_final and not self._has_outcome:
            raise ClientError(f"{self._name} has ended, as the server says, but the server gives no result of it.")

    async def _answer_questions(self, protocol: PromiseProtocol) -> None:
        """Answers the questions that it has not answered yet: a server may still list those whose answer it has."""
        asked = {key: question for key, question in self.state.questions.items() if key not in self._answered}
        if len(self._answered) + len(asked) > _MAX_QUESTIONS:
            raise PeerError(0, f"{self._name} asks more than {_MAX_QUESTIONS} questions.")
        if asked and self.token is not None:
            responses = (await self._callbacks.retry_params({"inputRequests": asked}))["inputResponses"]
            self.state = await protocol.answer(self.token, responses) or self.state
            self._answered |= asked.keys()


async def _report(state: CallState, progress: OnProgress | None) -> None:
    if progress is not None and (state.progress is not None or state.message is not None):
        try:
            done: Any = progress(state.progress or 0.0, state.total, state.message)
            if isawaitable(done):
                await done
        except Exception:
            logger.exception("a progress callback failed")


def _is_passing(error: Exception) -> bool:
    """Whether an error says nothing of the call, so that asking again may help."""
    if isinstance(error, PeerError):
        return isinstance(error.data, dict) and error.data.get("reason") in _BUSY_REASONS
    return not isinstance(error, UnauthorizedError)


def _cancelled_result() -> dict[str, JSON]:
    text = "The call was cancelled."
    error = {"code": ToolErrorCode.CANCELLED.value, "message": text, "retryable": False, "details": {}}
    return {"content": [{"type": "text", "text": text}], "isError": True, "error": error}


class _Waits:
    """How long the client waits before it asks again."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._next_seconds = _SOON_SECONDS
        self._last_answer = self._loop.time()
        self._polled_at = self._loop.time()
        self._answered_soon = False
        self._has_changed = False

    def before_poll(self, state: CallState, server_waits: bool) -> float:
        """Returns how long to wait before the next question.

        A server that waits for changes itself is asked at once, but for two reasons: it has just told a change, and the
        next one may be near; or it answered without waiting, and so does not wait.
        """
        now = self._loop.time()
        seconds = 0.0
        if not server_waits or self._answered_soon:
            seconds = self._seconds(state.retry_seconds)
        elif self._has_changed:
            seconds = _SOON_SECONDS
        self._polled_at = now + seconds
        return seconds

    def note_answer(self, *, has_changed: bool) -> None:
        self._last_answer = self._loop.time()
        self._has_changed = has_changed
        self._answered_soon = not has_changed and self._last_answer - self._polled_at < _SOON_SECONDS

    @property
    def may_go_on(self) -> bool:
        """Whether the server has answered lately."""
        return self._loop.time() - self._last_answer < _PATIENCE_SECONDS

    def after_failure(self, retry_after: float) -> float:
        return max(min(retry_after, _PATIENCE_SECONDS), self._seconds(None))

    def _seconds(self, told: float | None) -> float:
        if told is not None:
            return max(told, _LEAST_SECONDS) * random.uniform(1.0, 1.0 + _JITTER)  # noqa: S311 - no secret
        seconds, self._next_seconds = self._next_seconds, min(self._next_seconds * _WAIT_FACTOR, _MAX_WAIT_SECONDS)
        return seconds * random.uniform(1.0 - _JITTER, 1.0 + _JITTER)  # noqa: S311 - no secret
