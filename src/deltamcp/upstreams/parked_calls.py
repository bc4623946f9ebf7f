"""Calls at upstreams of the handshake era that wait for a caller who answers by sending its request again.

The upstream asks by a request and waits; the caller, of the modern era or behind a promise, answers in a later request.
Between the two, the upstream's call is parked in this process: bounded in number and in time, and resumed once.
"""

import asyncio
import secrets
from collections.abc import Coroutine, Hashable
from contextlib import suppress
from typing import Any, NamedTuple

from msgspec import Struct

from deltamcp.context import CAPABILITY, Context, InputPending
from deltamcp.errors import FAULTS, Fault, PeerError, UpstreamError
from deltamcp.runtime.deadline import Deadline
from deltamcp.upstreams.relayed_messages import RelayedMessages, request_owner
from deltamcp.values import JSON, InputRequest, RawResult
from deltamcp.wire import jsonrpc

_MAX_PER_ACCOUNT = 32
_MAX_CALLS = 512
"""A parked call is a task here and a call in progress at its upstream."""
_SMALL_BYTES = 64 * 1024
_MAX_BYTES_PER_ACCOUNT = 16 * 1024 * 1024
_MAX_BYTES = 48 * 1024 * 1024
"""What the questions of parked calls that are not small may have; one is a message of at most 16 MB."""
_TOGETHER_SECONDS = 0.05
"""How long an upstream that has asked may take to ask more, so that its user answers all of it in one round."""
_GONE = "The server no longer waits for the answer to its question, so nothing more was done; make the call again."
_TOO_MANY = (
    "Too many calls wait for answers to their questions, so this one was cancelled; answer those, then try again."
)


class _OpenQuestion(Struct):
    request: InputRequest
    answer: "asyncio.Future[dict[str, JSON]]"


class ParkedCall:
    """A call at an upstream, as the sender that the upstream asks; it goes on while no request of its caller waits."""

    def __init__(self, context: Context, deadline: Deadline, messages: RelayedMessages) -> None:
        """`deadline` is that of the call, and does not run while the caller is asked."""
        self._messages = messages
        self.owner: Hashable = request_owner(context)
        self.account: str = context.terms.caller.account
        self._terms = context.terms
        self._context: Context | None = context
        self._deadline = deadline
        self._questions: dict[str, _OpenQuestion] = {}
        self._count = 0
        self._news: asyncio.Future[None] | None = None
        self._task: asyncio.Task[RawResult] | None = None

    def start(self, work: Coroutine[Any, Any, RawResult]) -> None:
        self._task = asyncio.get_running_loop().create_task(work)
        self._task.add_done_callback(self._end)

    def _end(self, task: "asyncio.Task[RawResult]") -> None:
        if not task.cancelled():
            task.exception()  # else asyncio logs that the exception was never retrieved, if nobody resumes the call
        self._wake()

    # What the upstream sends meanwhile

    async def answer(self, method: str, params: dict[str, JSON]) -> dict[str, JSON]:
        own = self._messages.own_answer(method, self._terms)
        if own is not None:
            return own
        request = self._messages.question(method, params, self._terms)
        self._count += 1
        key = f"{CAPABILITY[method]}-{self._count}"
        question = _OpenQuestion(request, asyncio.get_running_loop().create_future())
        self._questions[key] = question
        self._wake()
        try:
            with self._deadline.paused():
                return await question.answer
        finally:
            self._questions.pop(key, None)

    async def log(self, params: dict[str, JSON]) -> None:
        if self._context is not None:
            await self._messages.relay_log(params, self._context)

    async def progress(self, progress: float, total: float | None, message: str | None) -> None:
        if self._context is not None:
            await self._context.report_progress(progress, total, self._messages.progress(message))

    async def detach(self) -> None:
        """Does nothing: callers whose calls are parked have no streams that they reconnect to."""

    def _wake(self) -> None:
        if self._news is not None and not self._news.done():
            self._news.set_result(None)

    # What the caller does

    @property
    def questions(self) -> dict[str, InputRequest]:
        """The questions that the caller has yet to answer."""
        return {key: question.request for key, question in self._questions.items()}

    def resume(self, context: Context, answers: dict[str, dict[str, JSON]]) -> None:
        """Gives the upstream the caller's answers; the call goes on for the request of this context."""
        self._context = context
        for key, answer in answers.items():
            question = self._questions.pop(key, None)
            if question is not None and not question.answer.done():
                if isinstance(answer, dict):
                    question.answer.set_result(answer)
                else:
                    question.answer.set_exception(_refusal("The client's answer is no object."))

    async def wait(self, parked_calls: "ParkedCalls") -> RawResult:
        """Returns the result of the call.

        Raises:
            InputPending: the upstream asks something first; the call is parked.
        """
        assert self._task is not None, "the call has started"
        try:
            while not self._task.done():
                if self._questions:
                    await asyncio.wait([self._task], timeout=_TOGETHER_SECONDS)
                    if self._questions and not self._task.done():
                        return self._park(parked_calls)
                self._news = asyncio.get_running_loop().create_future()
                if not self._task.done() and not self._questions:
                    await self._news
        except asyncio.CancelledError:
            if not _has_result(self._task):
                self.cancel()
                raise
            # The result may be a task, which whoever waits for it cancels: it is cancelled at its next step.
            waiting = asyncio.current_task()
            assert waiting is not None, "it was just cancelled"
            waiting.uncancel()
            waiting.cancel()
        return self._task.result()

    def _park(self, parked_calls: "ParkedCalls") -> RawResult:
        questions = self.questions
        self._context = None
        raise InputPending(questions, {"parked": parked_calls.park(self)})

    def cancel(self) -> None:
        """Cancels the call at the upstream, and tells it that nobody answers its questions."""
        for question in self._questions.values():
            if question.answer.done():
                continue
            if question.request.method == "elicitation/create":
                question.answer.set_result({"action": "cancel"})
            else:
                question.answer.set_exception(_refusal("The client does not answer."))
        if self._task is not None and not self._task.done():
            self._task.cancel()


class _Parked(NamedTuple):
    call: ParkedCall
    timer: asyncio.TimerHandle
    size: int
    """The bytes of its questions; 0 if these are small."""


class ParkedCalls:
    """The parked calls of this process."""

    def __init__(self, seconds: float) -> None:
        """`seconds` is how long a call waits for the caller's answer."""
        self._seconds = seconds
        self._calls: dict[str, _Parked] = {}

    def park(self, call: ParkedCall) -> str:
        """Keeps a call, and returns the id by which it is resumed, once.

        Raises:
            UpstreamError: too many calls are parked; this one is cancelled.
        """
        size = sum(len(jsonrpc.encode(question.params)) for question in call.questions.values())
        size = size if size > _SMALL_BYTES else 0
        every = list(self._calls.values())
        own = [other for other in every if other.call.account == call.account]
        bounds = ((every, _MAX_CALLS, _MAX_BYTES), (own, _MAX_PER_ACCOUNT, _MAX_BYTES_PER_ACCOUNT))
        for others, count, size_of_all in bounds:
            if len(others) >= count or (size and size + sum(other.size for other in others) > size_of_all):
                call.cancel()
                raise UpstreamError(_TOO_MANY, retryable=True)
        id_ = secrets.token_urlsafe(16)
        timer = asyncio.get_running_loop().call_later(self._seconds, self.drop, id_)
        self._calls[id_] = _Parked(call, timer, size)
        return id_

    def take(self, id_: JSON) -> ParkedCall:
        """Returns a call that is to go on, which then is no longer parked.

        Raises:
            UpstreamError: it has been resumed already, was cancelled because nobody answered, or is elsewhere.
        """
        found = self._calls.pop(id_, None) if isinstance(id_, str) else None
        if found is None:
            raise UpstreamError(_GONE, retryable=True)
        found.timer.cancel()
        return found.call

    def drop(self, id_: JSON) -> None:
        """Cancels a call, if it is parked here."""
        with suppress(UpstreamError):
            self.take(id_).cancel()

    def close(self) -> None:
        """Cancels all of them."""
        for parked in self._calls.values():
            parked.timer.cancel()
            parked.call.cancel()
        self._calls.clear()


def _has_result(task: "asyncio.Task[RawResult]") -> bool:
    return task.done() and not task.cancelled() and task.exception() is None


def _refusal(text: str) -> PeerError:
    return PeerError(FAULTS[Fault.INTERNAL].handshake, text)
