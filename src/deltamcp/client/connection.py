"""One connection to a server: sends requests, matches responses to them, and answers the server's own requests."""

import asyncio
import itertools
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager, suppress
from inspect import isawaitable
from typing import Any, TypeAlias

from msgspec import Struct

from deltamcp.catalog.param_headers import ParameterHeader
from deltamcp.client.callbacks import ClientCallbacks, RequestSender
from deltamcp.client.dialect import UNNEGOTIATED, ClientDialect
from deltamcp.client.links.link import ClientLink, UnaddressedError, peer_error
from deltamcp.dialects.methods import LOG_LEVELS
from deltamcp.dialects.modern import LOG_LEVEL_KEY, SUBSCRIPTION_KEY
from deltamcp.errors import FAULTS, ArgumentsError, ClientError, ConnectionLostError, Fault, PeerError
from deltamcp.values import (
    JSON,
    Era,
    LogLevel,
    Malformed,
    Message,
    Notification,
    RawResult,
    Request,
    RequestId,
    Response,
)
from deltamcp.wire import jsonrpc

logger: logging.Logger = logging.getLogger("deltamcp")

OnProgress: TypeAlias = Callable[[float, float | None, str | None], Awaitable[None] | None]
"""Takes a progress notification: the progress so far, the total if known, and a message if there is one."""
OnNotification: TypeAlias = Callable[[str, dict[str, JSON]], None]
"""Takes a notification that belongs to no request."""
OnEnd: TypeAlias = "Callable[[ClientConnection, ClientError], None]"
"""Takes a connection whose link has ended by itself, and why."""

_LISTEN = "subscriptions/listen"
"""The request that stays open as long as the client listens."""
_CANCEL_SECONDS = 2.0
_LATE_SECONDS = 5.0
"""How long a server may take to answer a call whose caller has left with the id of a task, which is then cancelled."""
_LATE_STREAM_SECONDS = 0.2
"""The same where only closing the connection cancels the call: enough for an answer that is on its way."""
_MAX_LEFT_CALLS = 64
"""How many answers to such calls are awaited at once; further calls are only cancelled."""
_LOG_LEVEL_SECONDS = 2.0
_MAX_SERVER_REQUESTS = 64
"""How many requests of the server the client answers at once; it ignores further ones."""
_MAX_WAITING_NOTICES = 64
"""How many notifications of a request wait for a slow callback; of more, it gets the last."""
_MAX_ROUND_TRIPS = 50
"""How often the client sends one request again with answers to the server's input requests."""
_UNREADABLE = (-32700, -32600)
"""The codes of errors without an id that are about requests: JSON-RPC 2.0, 5."""


class _PendingRequest(Struct):
    method: str
    future: "asyncio.Future[Response]"
    progress: OnProgress | None
    sender: RequestSender | None
    on_acknowledgement: Callable[[], None] | None = None
    notices: "_Notices | None" = None

    def notify(self, callback: Callable[..., Awaitable[None] | None], *arguments: Any) -> None:
        """Calls back with a notification of this request, after those that came before it."""
        if self.notices is None:
            self.notices = _Notices()
        self.notices.add(callback, arguments)


class ClientConnection:
    """Matches responses to requests by their ids; any number of requests may be in flight."""

    def __init__(
        self, link: ClientLink, callbacks: ClientCallbacks, on_notification: OnNotification, on_end: OnEnd
    ) -> None:
        self.link = link
        self._on_end = on_end
        self.dialect: ClientDialect = UNNEGOTIATED
        self._callbacks = callbacks
        self._on_notification = on_notification
        self._ids = itertools.count(1)
        self._pending: dict[RequestId, _PendingRequest] = {}
        self._answer_tasks: dict[RequestId, asyncio.Task[None]] = {}
        self._has_notified = False
        self._open_questions = 0
        self.takes_log_level = False
        """Whether the server is of the handshake era, and says that it logs."""
        self._log_level: LogLevel | None = None
        """The lowest level that the server was asked for."""
        self.last_sign_of_life: float = 0.0
        """When the server last reported progress, or got an answer to a question; by the event loop's clock."""
        self._tasks: set[asyncio.Task[Any]] = set()
        self._left_calls: set[asyncio.Task[None]] = set()
        """What waits for the ids of tasks whose callers have left."""

    # Requests

    async def request(
        self,
        method: str,
        params: Mapping[str, JSON],
        meta: Mapping[str, JSON],
        *,
        progress: OnProgress | None = None,
        parameter_headers: tuple[ParameterHeader, ...] = (),
        dialect: ClientDialect | None = None,
        ends_at: float | None = None,
        on_acknowledgement: Callable[[], None] | None = None,
    ) -> dict[str, JSON]:
        """Sends a request and returns its result; answers the input requests of the modern era on the way.

        `ends_at` is when its caller gives up, by the event loop's clock. `on_acknowledgement` is called when the server
        says that the subscription is open which the request asks for.

        Raises:
            PeerError: the server answered with an error.
            ConnectionLostError: no answer will come.
        """
        dialect = dialect or self.dialect
        sent = params
        for _ in range(_MAX_ROUND_TRIPS):
            response = await self._request_once(
                method,
                sent,
                meta,
                progress,
                parameter_headers,
                dialect,
                ends_at,
                on_acknowledgement=on_acknowledgement,
            )
            result = dialect.read_result(response.result)
            if result.get("resultType") != "input_required" or dialect.era is not Era.MODERN:
                return result
            with self._answering():
                answers = await self._callbacks.retry_params(result)
            sent = {**params, **answers}
        raise PeerError(0, f"The server answered {method} with input requests {_MAX_ROUND_TRIPS} times in a row.")

    async def forward(
        self,
        method: str,
        params: Mapping[str, JSON],
        meta: Mapping[str, JSON],
        *,
        progress: OnProgress | None = None,
        parameter_headers: tuple[ParameterHeader, ...] = (),
        ends_at: float | None = None,
        capabilities: Mapping[str, JSON] | None = None,
        log_level: LogLevel | None = None,
        sender: RequestSender | None = None,
    ) -> RawResult:
        """Sends somebody else's request once, and returns its result as it came, also if it asks for input.

        `log_level` is the lowest level of log messages that the sender wants; None if it wants none.

        Raises:
            PeerError, ConnectionLostError: as in `request`.
        """
        dialect = self.dialect.for_sender(capabilities)
        if log_level is not None:
            if dialect.era is Era.MODERN:
                meta = {**meta, LOG_LEVEL_KEY: log_level}
            elif self._log_level != "debug":
                await self.lower_log_level(log_level)
        response = await self._request_once(method, params, meta, progress, parameter_headers, dialect, ends_at, sender)
        if dialect.is_lite:
            fields = dialect.read_result(response.result)
            return RawResult(jsonrpc.encode(fields), fields)
        return RawResult(jsonrpc.encoded_result(response), response.result)

    async def lower_log_level(self, wanted: LogLevel) -> None:
        """Asks the server for the lowest level that any sender wants, because it has one level for all requests.

        Raises:
            ConnectionLostError: as in `request`.
        """
        if not self.takes_log_level:
            return
        if self._log_level is not None and LOG_LEVELS.index(self._log_level) <= LOG_LEVELS.index(wanted):
            return
        self._log_level = wanted
        with suppress(PeerError, TimeoutError):
            async with asyncio.timeout(_LOG_LEVEL_SECONDS):
                await self._request_once("logging/setLevel", {"level": wanted}, {}, None, (), self.dialect, None)

    async def _request_once(
        self,
        method: str,
        params: Mapping[str, JSON],
        meta: Mapping[str, JSON],
        progress: OnProgress | None,
        parameter_headers: tuple[ParameterHeader, ...],
        dialect: ClientDialect,
        ends_at: float | None,
        sender: RequestSender | None = None,
        on_acknowledgement: Callable[[], None] | None = None,
    ) -> Response:
        """Returns a response whose result is an object."""
        id_ = next(self._ids)
        if progress is not None:
            meta = {**meta, "progressToken": id_}
        message = {"jsonrpc": "2.0", "id": id_, "method": method, "params": dialect.request_params(params, meta)}
        headers = dialect.headers(method, params, parameter_headers) if self.link.carries_headers else {}
        future: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        pending = self._pending[id_] = _PendingRequest(method, future, progress, sender, on_acknowledgement)
        exchange = self._exchange(id_, pending, message, headers, ends_at)
        if dialect.may_become_task(method, params):
            response = await self._await_task_call(id_, pending, exchange, dialect)
        else:
            try:
                response = await exchange
            except asyncio.CancelledError:
                if method != "initialize":  # MCP 2025-11-25, "Cancellation": a client MUST NOT cancel it
                    self._start_task(self._notify_cancelled(id_))
                raise
        if response.error is not None:
            raise peer_error(response.error)
        if not isinstance(response.result, dict):
            raise PeerError(0, f"The answer to {method} is no object.")
        return response

    async def _exchange(
        self,
        id_: RequestId,
        pending: _PendingRequest,
        message: dict[str, JSON],
        headers: Mapping[str, str],
        ends_at: float | None,
    ) -> Response:
        future = pending.future
        try:
            await self._send(message, headers, ends_at)
            response = await future
            if pending.notices is not None:
                await pending.notices.finish()
            return response
        finally:
            del self._pending[id_]
            if pending.notices is not None:
                pending.notices.cancel()
            if not future.cancel() and not future.cancelled():
                future.exception()  # else asyncio logs that the exception was never retrieved

    # Calls that may become tasks

    async def _await_task_call(
        self,
        id_: RequestId,
        pending: _PendingRequest,
        exchange: Coroutine[Any, Any, Response],
        dialect: ClientDialect,
    ) -> Response:
        """Returns the response to a call; if its caller leaves first, a task that the server makes is cancelled."""
        sending = asyncio.get_running_loop().create_task(exchange)
        try:
            return await asyncio.shield(sending)
        except asyncio.CancelledError:
            pending.progress = pending.sender = None
            if pending.notices is not None:
                pending.notices.cancel()
            if len(self._left_calls) < _MAX_LEFT_CALLS:
                left = asyncio.get_running_loop().create_task(self._end_left_call(id_, sending, dialect))
                self._left_calls.add(left)
                left.add_done_callback(self._left_calls.discard)
            else:
                sending.cancel()
                self._start_task(self._notify_cancelled(id_))
            raise

    async def _end_left_call(self, id_: RequestId, sending: "asyncio.Task[Response]", dialect: ClientDialect) -> None:
        """Cancels a call whose caller has left, and the task that the server may have made of it."""
        is_modern = dialect.era is Era.MODERN
        if is_modern:
            await self._notify_cancelled(id_)
        is_stream = is_modern and self.link.carries_headers
        _, late = await asyncio.wait([sending], timeout=_LATE_STREAM_SECONDS if is_stream else _LATE_SECONDS)
        if late:
            sending.cancel()
            if not is_modern:  # 2025-11-25, "Tasks": what is sent as a task is to be cancelled by its id
                await self._notify_cancelled(id_)
        elif not sending.cancelled() and sending.exception() is None:
            task = _task_id(sending.result())
            if task is not None:
                with suppress(ClientError, PeerError, TimeoutError):
                    async with asyncio.timeout(_CANCEL_SECONDS):
                        await self._request_once("tasks/cancel", {"taskId": task}, {}, None, (), dialect, None)

    async def _send(self, message: dict[str, JSON], headers: Mapping[str, str], ends_at: float | None) -> None:
        try:
            await self.link.send(message, headers, ends_at)
        except ValueError as error:
            raise ArgumentsError(f"The message cannot be encoded: {error}.") from None

    async def _notify_cancelled(self, id_: RequestId) -> None:
        """Sends `notifications/cancelled`; in the modern era over HTTP closing the connection has cancelled already."""
        if self.link.carries_headers and self.dialect.era is Era.MODERN:
            return
        with suppress(ClientError, TimeoutError):
            async with asyncio.timeout(_CANCEL_SECONDS):
                await self.notify("notifications/cancelled", {"requestId": id_})

    async def notify(self, method: str, params: Mapping[str, JSON], dialect: ClientDialect | None = None) -> None:
        """
        Raises:
            ClientError: the notification could not be sent.
        """
        self._has_notified = True
        dialect = dialect or self.dialect
        message: dict[str, JSON] = {"jsonrpc": "2.0", "method": method}
        if params or dialect.request_meta:
            message["params"] = dialect.request_params(params, {})
        await self.link.send(message, dialect.headers(method, params))

    # Messages from the server

    def is_awaiting(self, id_: RequestId) -> bool:
        pending = self._pending.get(id_)
        return pending is not None and not pending.future.done()

    def receive_detach(self, id_: RequestId) -> None:
        pending = self._pending.get(id_)
        if pending is not None and pending.sender is not None:
            pending.notify(pending.sender.detach)

    def receive(self, message: Message | UnaddressedError, request_id: RequestId | None = None) -> None:
        match message:
            case Response():
                pending = self._pending.get(message.id)
                if pending is not None and not pending.future.done():
                    pending.future.set_result(message)
            case Notification():
                self._receive_notification(message, request_id)
            case Request():
                if len(self._answer_tasks) >= _MAX_SERVER_REQUESTS or message.id in self._answer_tasks:
                    logger.debug("the server sent too many requests at once; one of them is ignored")
                    return
                task = self._start_task(self._answer_request(message, request_id))
                self._answer_tasks[message.id] = task
                task.add_done_callback(lambda _: self._answer_tasks.pop(message.id, None))
            case Malformed():
                pending = self._pending.get(message.id) if message.id is not None else None
                if pending is not None and not pending.future.done():
                    hint = " Allow a larger max_bytes if you trust it." if message.fault is Fault.TOO_LARGE else ""
                    error = {"message": f"The server's answer cannot be read. {message.reason}{hint}"}
                    pending.future.set_result(Response(message.id or 0, error=error))
                else:
                    logger.debug("the server sent something that is not a message: %s", message.reason)
            case UnaddressedError():
                self._fail_oldest(message.error)

    def _fail_oldest(self, error: dict[str, JSON]) -> None:
        """Fails the oldest request with an error that names none: a server that cannot read ids reads one by one.

        Some servers answer notifications, too, and say that they do not know the method.
        """
        if self._has_notified and error.get("code") not in _UNREADABLE:
            logger.debug("the server refused a notification: %s", error.get("message"))
            return
        for id_, pending in self._pending.items():
            if pending.method != _LISTEN and not pending.future.done():
                pending.future.set_result(Response(id_, error=error))
                return

    def fail_pending(self, error: ClientError) -> None:
        for pending in self._pending.values():
            if not pending.future.done():
                pending.future.set_exception(error)
        if self.link.ended:
            self._on_end(self, error)

    def _receive_notification(self, notification: Notification, request_id: RequestId | None) -> None:
        params = notification.params
        match notification.method:
            case "notifications/progress":
                token = params.get("progressToken")
                pending = self._pending.get(token) if type(token) in (int, str) else None  # type: ignore[arg-type]
                if pending is not None and pending.progress is not None:
                    self.last_sign_of_life = asyncio.get_running_loop().time()
                    arguments = _progress_arguments(params)
                    if arguments is not None:
                        pending.notify(pending.progress, *arguments)
            case "notifications/cancelled":
                id_ = params.get("requestId")
                task = self._answer_tasks.get(id_) if type(id_) in (int, str) else None  # type: ignore[arg-type]
                if task is not None:
                    task.cancel()
            case "notifications/subscriptions/acknowledged":
                meta = params.get("_meta")
                id_ = meta.get(SUBSCRIPTION_KEY) if isinstance(meta, dict) else None
                pending = self._pending.get(id_) if type(id_) in (int, str) else None  # type: ignore[arg-type]
                if pending is not None and pending.on_acknowledgement is not None:
                    pending.on_acknowledgement()
            case "notifications/message" if self._has_senders:
                pending = self._find_request(request_id)
                if pending is not None and pending.sender is None:
                    self._on_notification(notification.method, params)
                elif pending is not None and pending.sender is not None:
                    pending.notify(pending.sender.log, params)
            case method:
                self._on_notification(method, params)

    @property
    def is_answering(self) -> bool:
        """Whether the program or its user is answering a question of the server."""
        return self._open_questions > 0

    @contextmanager
    def _answering(self) -> Iterator[None]:
        self._open_questions += 1
        try:
            yield
        finally:
            self._open_questions -= 1
            self.last_sign_of_life = asyncio.get_running_loop().time()

    async def _answer_request(self, request: Request, request_id: RequestId | None) -> None:
        """Answers a request that the server sent; servers of the handshake era do."""
        message: dict[str, JSON] = {"jsonrpc": "2.0", "id": request.id}
        try:
            with self._answering():
                answer = self._find_answerer(request.method, request_id)
                message["result"] = await answer(request.method, request.params)
        except PeerError as error:
            message["error"] = _error_object(error)
        except Exception:
            logger.exception("a callback for %s failed", request.method)
            message["error"] = {"code": FAULTS[Fault.INTERNAL].handshake, "message": "The client failed to answer."}
        with suppress(ClientError):
            await self.link.send(message, self.dialect.headers("", {}))

    def _find_answerer(
        self, method: str, request_id: RequestId | None
    ) -> Callable[[str, dict[str, JSON]], Awaitable[dict[str, JSON]]]:
        """Returns what answers a question of the server.

        Raises:
            PeerError: it is not known whose request the question belongs to.
        """
        if method == "ping" or not self._has_senders:
            return self._callbacks.answer
        pending = self._find_request(request_id)
        if pending is None:
            raise PeerError(
                FAULTS[Fault.INTERNAL].handshake, "Requests of several users are open, and it is not known whom to ask."
            )
        return self._callbacks.answer if pending.sender is None else pending.sender.answer

    @property
    def _has_senders(self) -> bool:
        """Whether a request of somebody else is open."""
        return any(pending.sender is not None for pending in self._pending.values())

    def _find_request(self, request_id: RequestId | None) -> _PendingRequest | None:
        """Returns the request that a message of the server belongs to, of those that are open.

        Over HTTP that is the request on whose stream the message came. Where the link does not tell, it is the last
        one, if all are of one owner; None if they are not.
        """
        if request_id is not None:
            return self._pending.get(request_id)
        forwarded = [pending for pending in self._pending.values() if pending.sender is not None]
        owners = {pending.sender.owner for pending in forwarded if pending.sender is not None}
        return forwarded[-1] if len(owners) == 1 else None

    def _start_task(self, work: Any) -> "asyncio.Task[None]":
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    # Closing

    async def close_when_idle(self) -> None:
        """Closes the connection as soon as no request is pending."""
        try:
            while self._pending:
                await asyncio.wait([pending.future for pending in self._pending.values()])
                await asyncio.sleep(0)  # lets the answered requests remove themselves from `_pending`
        finally:
            await self.close()

    async def close(self) -> None:
        if self._left_calls and not self.link.ended and self.link.carries_headers:  # else the server ends, too
            await asyncio.wait(self._left_calls, timeout=_CANCEL_SECONDS)
        self.fail_pending(ConnectionLostError("The connection was closed."))
        try:
            pending = [task for task in self._tasks if not task.done()]
            if pending:
                _, late = await asyncio.wait(pending, timeout=0.1)
                for task in late:
                    task.cancel()
        finally:
            await self.link.close()


class _Notices:
    """Passes the notifications of one request to its callbacks, in their order and one after the other."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[Callable[..., Awaitable[None] | None], tuple[Any, ...]]] = deque(
            maxlen=_MAX_WAITING_NOTICES
        )
        self._running: asyncio.Future[None] | None = None

    def add(self, callback: Callable[..., Awaitable[None] | None], arguments: tuple[Any, ...]) -> None:
        self._waiting.append((callback, arguments))
        if self._running is None:
            self._call_back()

    def _call_back(self) -> None:
        while self._waiting and self._running is None:
            callback, arguments = self._waiting.popleft()
            try:
                awaitable = callback(*arguments)
            except Exception:
                logger.exception("a callback for notifications failed")
                continue
            if isawaitable(awaitable):
                self._running = asyncio.ensure_future(awaitable)
                self._running.add_done_callback(self._called_back)

    def _called_back(self, ended: "asyncio.Future[None]") -> None:
        self._running = None
        error = None if ended.cancelled() else ended.exception()
        if error is not None:
            logger.error("a callback for notifications failed", exc_info=error)
        self._call_back()

    async def finish(self) -> None:
        """Waits until the callbacks have got the last notification."""
        while self._running is not None:
            await asyncio.wait([self._running])

    def cancel(self) -> None:
        self._waiting.clear()
        if self._running is not None:
            self._running.cancel()


def _task_id(response: Response) -> str | None:
    """Returns the id of the task that a server answered a call with; None if that is its answer itself."""
    result = response.result
    if not isinstance(result, dict):
        return None
    task = result if result.get("resultType") == "task" else result.get("task")
    id_ = task.get("taskId") if isinstance(task, dict) else None
    return id_ if isinstance(id_, str) else None


def _progress_arguments(params: Mapping[str, JSON]) -> tuple[float, float | None, str | None] | None:
    """Returns what a progress notification says; None if it says nothing."""
    done, total, text = params.get("progress"), params.get("total"), params.get("message")
    if not isinstance(done, int | float):
        return None
    return done, total if isinstance(total, int | float) else None, text if isinstance(text, str) else None


def _error_object(error: PeerError) -> dict[str, JSON]:
    fields: dict[str, JSON] = {"code": error.code or FAULTS[Fault.INTERNAL].handshake, "message": str(error)}
    return fields if error.data is None else {**fields, "data": error.data}
