"""A request of a caller that an upstream performs: its progress, its questions and its answers pass through.

The user who runs the gateway may see and end such requests (`OpenCalls`). How a question reaches the caller depends on
the eras on both sides; decision record 0011 has the table.
"""

import asyncio
import itertools
import time
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from deltamcp.calls.request_context import CONSENT_PREFIX, LOGIN_PREFIX
from deltamcp.context import Context, InputPending
from deltamcp.dialects import modern, progressive_disclosure, tasks
from deltamcp.errors import DeadlineError, DeltaError, InputDeclinedError, PeerError, UpstreamError
from deltamcp.runtime.deadline import Deadline, run_with_hook
from deltamcp.upstreams.parked_calls import ParkedCall, ParkedCalls
from deltamcp.upstreams.relayed_messages import RelayedMessages, request_owner
from deltamcp.values import JSON, SESSION_CONTEXT_KEY, Era, InputRequest, RawResult, Terms

if TYPE_CHECKING:
    from deltamcp.client.client import GatewayClient


_MAX_ROUNDS = 50
"""How often an upstream may ask for input in one request."""
_MAX_QUESTIONS = 64
"""How many inputs an upstream may ask for at once."""
_URL_ELICITATION_REQUIRED = -32042
"""MCP 2025-11-25 "Elicitation": the request is to be sent again once the user has been to some URLs."""
_OWN_META = frozenset(
    {
        "progressToken",
        modern.VERSION_KEY,
        modern.CLIENT_KEY,
        modern.CAPABILITIES_KEY,
        modern.LOG_LEVEL_KEY,
        SESSION_CONTEXT_KEY,
        tasks.RELATED_KEY,
    }
)
"""The members of a request's `_meta` that are between this server and its client, as are those of our own prefix."""
_OWN_PREFIX = "io.github.delta-mcp/"
_OWN_EXTENSIONS = frozenset({progressive_disclosure.NAME, tasks.EXTENSION})
"""The extensions that this server has itself, in front of whatever upstreams have."""
_MAX_SECONDS = 3600.0
_NO_META: Mapping[str, JSON] = MappingProxyType({})


class WaitingCaller:
    """A caller whose request waits, as the sender that an upstream asks: its client is asked at once."""

    def __init__(self, context: Context, deadline: Deadline | None, messages: RelayedMessages) -> None:
        """`deadline` is that of the call, and does not run while the caller is asked."""
        self._context = context
        self._deadline = deadline
        self._messages = messages

    @property
    def owner(self) -> Hashable:
        return request_owner(self._context)

    async def answer(self, method: str, params: dict[str, JSON]) -> dict[str, JSON]:
        own = self._messages.own_answer(method, self._context.terms)
        if own is not None:
            return own
        question = self._messages.question(method, params, self._context.terms)
        try:
            if self._deadline is None:
                answers = await self._context.ask(question=question)
            else:
                with self._deadline.paused():
                    answers = await self._context.ask(question=question)
        except InputDeclinedError as error:
            raise PeerError(0, str(error)) from None
        answer = answers["question"]
        if not isinstance(answer, dict):
            raise PeerError(0, "The client's answer is no object.")
        return answer

    async def log(self, params: dict[str, JSON]) -> None:
        await self._messages.relay_log(params, self._context)

    async def progress(self, progress: float, total: float | None, message: str | None) -> None:
        await self._context.report_progress(progress, total, self._messages.progress(message))

    async def detach(self) -> None:
        await self._context.detach()


class ForwardedRequest:
    """A request of a caller, as it is sent to an upstream."""

    def __init__(
        self,
        client: "GatewayClient",
        method: str,
        params: Mapping[str, JSON],
        context: Context,
        in_use: Callable[[], AbstractContextManager[None]],
        timeout: float | None,
        messages: RelayedMessages,
        meta: Mapping[str, JSON],
        options: Mapping[str, Any],
    ) -> None:
        """
        Args:
            messages: Passes on what the upstream sends for people to read.
            meta: What this server says to the upstream itself, in the request's `_meta`.
            in_use: Keeps the upstream from being stopped while a call of it is parked.
            timeout: The seconds that the upstream has, without those in which the caller answers its questions; None
                for the client's own bound.
            options: Further ones of `GatewayClient.forward`.
        """
        self._client, self._method, self._params, self._context = client, method, params, context
        self._in_use, self._timeout, self._meta, self._options = in_use, timeout, meta, options
        self._messages = messages

    async def perform(self, parked_calls: ParkedCalls) -> RawResult:
        if self._client.server.era is Era.MODERN:
            return await self._perform_in_rounds()
        terms = self._context.terms
        # What a server asks of the client itself, meanwhile, waits for no other request of the caller.
        relays = terms.asks_through_model and terms.capabilities.keys().isdisjoint(("sampling", "roots"))
        if self._context.runs_again_with_answers or relays:
            return await self._perform_parked(parked_calls)
        deadline = None if self._timeout is None else Deadline(self._timeout)
        return await self._send(self._params, WaitingCaller(self._context, deadline, self._messages), deadline)

    async def _send(
        self, params: Mapping[str, JSON], sender: WaitingCaller | ParkedCall, deadline: Deadline | None
    ) -> RawResult:
        terms = self._context.terms
        is_modern = self._client.server.era is Era.MODERN
        sending = self._client.forward(
            self._method,
            params,
            {**_relayed_meta(terms.meta), **self._meta} if terms.meta or self._meta else terms.meta,
            capabilities=_relayed_capabilities(terms, self._client.server.capabilities) if is_modern else None,
            timeout=None if deadline is None else _MAX_SECONDS,
            progress=sender.progress if self._context.takes_progress else None,
            log_level=terms.log_level,
            sender=sender,
            **self._options,
        )
        if deadline is None:
            return await sending
        try:
            return await run_with_hook(sending, deadline)
        except asyncio.CancelledError:
            if deadline.expired and deadline.undo_cancel():
                raise DeadlineError(f"{self._method} was not answered in time, and was cancelled.") from None
            raise

    # Upstreams of the modern era

    async def _perform_in_rounds(self) -> RawResult:
        context, memo, sent = self._context, self._context.memo, self._params
        has_answered = False
        if isinstance(memo, dict) and "requests" in memo:
            sent, has_answered = {**self._params, **await self._answer(memo)}, True
        for _ in range(_MAX_ROUNDS):
            deadline = None if self._timeout is None else Deadline(self._timeout)
            result = await self._send(sent, WaitingCaller(context, deadline, self._messages), deadline)
            if result.fields.get("resultType") != "input_required":
                return result
            memo = {"requests": _read_requests(result.fields.get("inputRequests"))}
            if "requestState" in result.fields:
                memo["state"] = result.fields["requestState"]
            # A client may send answers with its first request; those that did not do are not sent again.
            runs_again = context.runs_again_with_answers or context.terms.asks_through_model
            if memo["requests"] and runs_again and has_answered:
                raise InputPending(_relayed_questions(memo["requests"], context.terms, self._messages), memo)
            sent, has_answered = {**self._params, **await self._answer(memo)}, True
        raise UpstreamError(f"The server asked for input {_MAX_ROUNDS} times in a row.")

    async def _answer(self, memo: dict[str, Any]) -> dict[str, JSON]:
        """Returns what is added to the params when the request is sent again."""
        params: dict[str, JSON] = {"requestState": memo["state"]} if "state" in memo else {}
        if memo["requests"]:
            params["inputResponses"] = await ask_caller(self._context, memo["requests"], memo, self._messages)
        return params

    # Upstreams of the handshake era, callers that answer by another request

    async def _perform_parked(self, parked_calls: ParkedCalls) -> RawResult:
        context, memo = self._context, self._context.memo if isinstance(self._context.memo, dict) else {}
        if "parked" in memo:
            call = parked_calls.take(memo["parked"])
            try:
                answers = await context.ask(**call.questions)
            except InputPending as pending:
                raise InputPending(pending.requests, {"parked": parked_calls.park(call)}) from None
            except BaseException:  # the caller cannot be asked any more
                call.cancel()
                raise
            call.resume(context, answers)
        else:
            if "visits" in memo:
                await self._check_visits(memo["visits"])
            deadline = Deadline(_MAX_SECONDS if self._timeout is None else self._timeout)
            call = ParkedCall(context, deadline, self._messages)
            call.start(self._send_detached(call, deadline))
        try:
            return await call.wait(parked_calls)
        except PeerError as error:
            visits = needed_visits(error)
            if not visits or "visits" in memo:  # the upstream may not see that the user was there
                raise
            raise InputPending(self._visit_requests(dict(visits)), {"visits": dict(visits)}) from None

    async def _send_detached(self, call: ParkedCall, deadline: Deadline) -> RawResult:
        with self._in_use():
            return await self._send(self._params, call, deadline)

    async def _check_visits(self, visits: dict[str, Any]) -> None:
        """
        Raises:
            InputDeclinedError: the user does not want to open one of the URLs that the upstream named.
        """
        try:
            answers = await self._context.ask(**self._visit_requests(visits))
        except InputPending as pending:
            raise InputPending(pending.requests, {"visits": visits}) from None
        if not all(isinstance(answer, dict) and answer.get("action") == "accept" for answer in answers.values()):
            raise InputDeclinedError("The user did not open the address that the server needs visited.")

    def _visit_requests(self, visits: dict[str, Any]) -> dict[str, InputRequest]:
        ask, terms = self._messages.question, self._context.terms
        return {key: ask("elicitation/create", params, terms) for key, params in visits.items()}


async def forward(
    client: "GatewayClient",
    method: str,
    params: Mapping[str, JSON],
    context: Context,
    parked_calls: ParkedCalls,
    *,
    in_use: Callable[[], AbstractContextManager[None]],
    messages: RelayedMessages,
    timeout: float | None = None,
    meta: Mapping[str, JSON] = _NO_META,
    **options: Any,
) -> RawResult:
    """Has an upstream perform a request of a caller. The arguments are those of `ForwardedRequest`.

    Raises:
        InputPending: the caller has to answer the upstream's questions first.
        UpstreamError: the upstream no longer waits for the answers that came, or asks what cannot be answered.
        PeerError, ConnectionLostError, DeadlineError: as `GatewayClient.forward`.
    """
    request = ForwardedRequest(client, method, params, context, in_use, timeout, messages, meta, options)
    return await request.perform(parked_calls)


async def ask_caller(context: Context, requests: Any, memo: JSON, messages: RelayedMessages) -> dict[str, JSON]:
    """Returns a caller's answers to the `inputRequests` of an upstream, by their keys.

    Raises:
        InputPending: the caller has to answer first, and the function will then find `memo`.
        UpstreamError: the upstream asks what cannot be answered.
        InputDeclinedError: the client cannot be asked, or refused to answer.
    """
    read = _read_requests(requests)
    try:
        answers = await context.ask(**_relayed_questions(read, context.terms, messages))
    except InputPending as pending:
        raise InputPending(pending.requests, memo) from None
    except PeerError as error:  # the client's, for which the upstream has no form
        raise InputDeclinedError(f"The client refused to answer: {error}") from None
    return {key: answers[_own_key(key)] for key in read}


def _relayed_questions(requests: Mapping[str, Any], terms: Terms, messages: RelayedMessages) -> dict[str, InputRequest]:
    try:
        return {
            _own_key(key): messages.question(request["method"], request.get("params") or {}, terms)
            for key, request in requests.items()
        }
    except PeerError as error:
        raise UpstreamError(f"The server asks for input that cannot be had. {error}") from None


def _relayed_meta(meta: Mapping[str, JSON]) -> dict[str, JSON]:
    return {key: value for key, value in meta.items() if key not in _OWN_META and not key.startswith(_OWN_PREFIX)}


def _relayed_capabilities(terms: Terms, offered: Mapping[str, JSON]) -> dict[str, JSON]:
    """Returns what the caller can do, without what concerns this server alone, and with tasks, which it awaits.

    `offered` is what the upstream can do.
    """
    kept = {key: value for key, value in terms.capabilities.items() if key not in ("experimental", "tasks")}
    extensions = kept.get("extensions")
    if isinstance(extensions, dict) and not _OWN_EXTENSIONS.isdisjoint(extensions):
        kept["extensions"] = {key: value for key, value in extensions.items() if key not in _OWN_EXTENSIONS}
    if terms.asks_through_model:
        kept["elicitation"] = {"form": {}}
    if tasks.is_declared(offered.get("extensions")):
        kept["extensions"] = {**kept.get("extensions", {}), tasks.EXTENSION: {}}
    return kept


def _own_key(key: str) -> str:
    """Returns the key under which a client is asked: the upstream's, unless it would pass for a question of ours."""
    return f"upstream {key}" if key.startswith((CONSENT_PREFIX, LOGIN_PREFIX)) else key


def _read_requests(requests: Any) -> dict[str, dict[str, JSON]]:
    """Returns the questions of an `input_required` result; there may be none.

    Raises:
        UpstreamError: they cannot be read.
    """
    if requests is None:
        return {}
    if not isinstance(requests, dict) or len(requests) > _MAX_QUESTIONS:
        raise UpstreamError("The server asks for input in a form that is not known here.")
    for request in requests.values():
        params = request.get("params") if isinstance(request, dict) else 0
        if not isinstance(params, dict | None) or not isinstance(request.get("method"), str):
            raise UpstreamError("The server asks for input in a form that is not known here.")
    return requests


def needed_visits(error: PeerError) -> list[tuple[str, dict[str, JSON]]]:
    """Returns the URLs that the user has to open first, as the params of elicitations with their keys."""
    found = error.data.get("elicitations") if isinstance(error.data, dict) else None
    if error.code != _URL_ELICITATION_REQUIRED or not isinstance(found, list):
        return []
    return [(f"visit-{at}", params) for at, params in enumerate(found[:_MAX_QUESTIONS], 1) if isinstance(params, dict)]


class CallCancelledError(DeltaError):
    """The user who runs the gateway has ended a request."""


_ids = itertools.count(1)


class OpenCall:
    """One request that a caller waits for."""

    __slots__ = ("id", "is_cancelled", "method", "name", "since", "task")

    def __init__(self, method: str, name: str, task: "asyncio.Task[Any]") -> None:
        self.id: int = next(_ids)
        """A number that no other request of this process has."""
        self.method: str = method
        self.name: str = name
        self.task: asyncio.Task[Any] = task
        """The name is that of the tool or prompt, or the URI, at the upstream."""
        self.since: float = time.time()
        self.is_cancelled: bool = False


class OpenCalls:
    """The requests of one upstream."""

    def __init__(self) -> None:
        self._calls: dict[int, OpenCall] = {}

    def __iter__(self) -> Iterator[OpenCall]:
        return iter(self._calls.values())

    @contextmanager
    def entered(self, method: str, params: Mapping[str, JSON]) -> Iterator[None]:
        """Lists a request inside the `with` block.

        Raises:
            CallCancelledError: the user has ended it.
        """
        task = asyncio.current_task()
        assert task is not None, "requests are performed in tasks"
        call = OpenCall(method, str(params.get("name") or params.get("uri") or ""), task)
        self._calls[call.id] = call
        try:
            yield
        except asyncio.CancelledError:
            if not call.is_cancelled or task.uncancel():  # the caller went, too
                raise
            raise CallCancelledError from None
        finally:
            del self._calls[call.id]

    def cancel(self, id: int) -> bool:
        """Ends a request; returns False if there is none of this id."""
        call = self._calls.get(id)
        if call is None:
            return False
        if not call.is_cancelled:
            call.is_cancelled = True
            call.task.cancel()
        return True
