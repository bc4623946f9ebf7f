"""`PendingCall`: a call that the server goes on with after its reply."""

import asyncio
import logging
import random
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from inspect import isawaitable
from typing import Any

from deltamcp.client.call_state import CallState
from deltamcp.client.callbacks import ClientCallbacks
from deltamcp.client.connection import OnProgress
from deltamcp.client.links.link import peer_error
from deltamcp.client.promise_protocols import PromiseProtocol
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
from deltamcp.values import JSON

logger = logging.getLogger("deltamcp")

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
        self._name, self.state = name, state
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
