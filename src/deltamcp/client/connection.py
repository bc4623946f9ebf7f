"""One connection's life: requests and their answers, what the server asks back, what it tells meanwhile."""

import asyncio
import itertools
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from inspect import isawaitable
from typing import Any, TypeAlias

from deltamcp.catalog.param_headers import ParameterHeader
from deltamcp.client.callbacks import ClientCallbacks
from deltamcp.client.dialect import UNNEGOTIATED, ClientDialect
from deltamcp.client.links.link import ClientLink
from deltamcp.errors import FAULTS, ArgumentsError, ClientError, ConnectionLostError, Fault, PeerError
from deltamcp.values import JSON, Era, Malformed, Message, Notification, Request, RequestId, Response

logger = logging.getLogger("deltamcp")

OnProgress: TypeAlias = Callable[[float, float | None, str | None], Awaitable[None] | None]
"""Told how far a call is: how much, of how much, and a word on it."""
OnNotification: TypeAlias = Callable[[str, dict[str, JSON]], None]
"""Takes a notification that belongs to no request."""

_CANCEL_SECONDS = 2.0
_MAX_ROUND_TRIPS = 50
"""A request is sent again with answers at most so often; a server that asks on has no end."""


class ClientConnection:
    """Matches answers to requests by their ids; any number may be under way."""

    def __init__(self, link: ClientLink, callbacks: ClientCallbacks, on_notification: OnNotification) -> None:
        self.link = link
        self.dialect: ClientDialect = UNNEGOTIATED
        self._callbacks = callbacks
        self._on_notification = on_notification
        self._ids = itertools.count(1)
        self._pending: dict[RequestId, asyncio.Future[Response]] = {}
        self._progress_callbacks: dict[RequestId, OnProgress] = {}
        self._progress_tasks: dict[RequestId, asyncio.Task[None]] = {}
        self._answer_tasks: dict[RequestId, asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[Any]] = set()

    # Asking

    async def request(
        self,
        method: str,
        params: Mapping[str, JSON],
        meta: Mapping[str, JSON],
        *,
        progress: OnProgress | None = None,
        parameter_headers: tuple[ParameterHeader, ...] = (),
        dialect: ClientDialect | None = None,
    ) -> dict[str, JSON]:
        """A request's result; questions that the modern era asks in its place are answered on the way.

        Raises:
            PeerError: the server answered with an error.
            ConnectionLostError: no answer will come.
        """
        dialect = dialect or self.dialect
        asked = params
        for _ in range(_MAX_ROUND_TRIPS):
            result = await self._request_once(method, asked, meta, progress, parameter_headers, dialect)
            if result.get("resultType") != "input_required" or dialect.era is not Era.MODERN:
                return result
            asked = {**params, **await self._callbacks.retry_params(result)}
        raise PeerError(0, f"{method} was answered by questions {_MAX_ROUND_TRIPS} times over.")

    async def _request_once(
        self,
        method: str,
        params: Mapping[str, JSON],
        meta: Mapping[str, JSON],
        progress: OnProgress | None,
        parameter_headers: tuple[ParameterHeader, ...],
        dialect: ClientDialect,
    ) -> dict[str, JSON]:
        id_ = next(self._ids)
        if progress is not None:
            meta = {**meta, "progressToken": id_}
            self._progress_callbacks[id_] = progress
        message = {"jsonrpc": "2.0", "id": id_, "method": method, "params": dialect.request_params(params, meta)}
        headers = dialect.headers(method, params, parameter_headers) if self.link.carries_headers else {}
        future: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        self._pending[id_] = future
        try:
            await self._send(message, headers)
            response = await future
            if id_ in self._progress_tasks:
                await self._progress_tasks[id_]
        except asyncio.CancelledError:
            if method != "initialize":  # which MUST NOT be cancelled, MCP 2025-11-25 "Cancellation"
                self._start_task(self._notify_cancelled(id_))
            raise
        finally:
            del self._pending[id_]
            if progress is not None:
                del self._progress_callbacks[id_]
                self._progress_tasks.pop(id_, None)
            if not future.cancel() and not future.cancelled():
                future.exception()  # asyncio complains of failures nobody has looked at
        if response.error is not None:
            raise _peer_error(response.error)
        result = response.result
        if not isinstance(result, dict):
            raise PeerError(0, f"The answer to {method} is no object.")
        return result

    async def _send(self, message: dict[str, JSON], headers: Mapping[str, str]) -> None:
        try:
            await self.link.send(message, headers)
        except ValueError as error:
            raise ArgumentsError(f"What is to be sent cannot be written: {error}.") from None

    async def _notify_cancelled(self, id_: RequestId) -> None:
        """Over HTTP the modern era cancels by hanging up, which has been done; everybody else is told."""
        if self.link.carries_headers and self.dialect.era is Era.MODERN:
            return
        with suppress(ClientError, TimeoutError):
            async with asyncio.timeout(_CANCEL_SECONDS):
                await self.notify("notifications/cancelled", {"requestId": id_})

    async def notify(self, method: str, params: Mapping[str, JSON], dialect: ClientDialect | None = None) -> None:
        """
        Raises:
            ClientError: it could not be sent.
        """
        dialect = dialect or self.dialect
        message: dict[str, JSON] = {"jsonrpc": "2.0", "method": method}
        if params or dialect.request_meta:
            message["params"] = dialect.request_params(params, {})
        await self.link.send(message, dialect.headers(method, params))

    # Hearing

    def is_awaiting(self, id_: RequestId) -> bool:
        future = self._pending.get(id_)
        return future is not None and not future.done()

    def receive(self, message: Message) -> None:
        match message:
            case Response():
                future = self._pending.get(message.id)
                if future is not None and not future.done():
                    future.set_result(message)
            case Notification():
                self._receive_notification(message)
            case Request():
                task = self._start_task(self._answer_request(message))
                self._answer_tasks[message.id] = task
                task.add_done_callback(lambda _: self._answer_tasks.pop(message.id, None))
            case Malformed():
                future = self._pending.get(message.id) if message.id is not None else None
                if future is not None and not future.done():
                    told = {"message": f"The answer makes no sense. {message.reason}"}
                    future.set_result(Response(message.id or 0, error=told))
                else:
                    logger.debug("the server sent what is no message: %s", message.reason)

    def fail_pending(self, error: ClientError) -> None:
        for future in self._pending.values():
            if not future.done():
                future.set_exception(error)

    def _receive_notification(self, notification: Notification) -> None:
        params = notification.params
        match notification.method:
            case "notifications/progress":
                token = params.get("progressToken")
                callback = self._progress_callbacks.get(token) if type(token) in (int, str) else None  # type: ignore[arg-type]
                if callback is not None:
                    self._report_progress(callback, params)
            case "notifications/cancelled":
                id_ = params.get("requestId")
                task = self._answer_tasks.get(id_) if type(id_) in (int, str) else None  # type: ignore[arg-type]
                if task is not None:
                    task.cancel()
            case method:
                self._on_notification(method, params)

    def _report_progress(self, callback: OnProgress, params: dict[str, JSON]) -> None:
        done, total, word = params.get("progress"), params.get("total"), params.get("message")
        if not isinstance(done, int | float):
            return
        try:
            going = callback(
                done, total if isinstance(total, int | float) else None, word if isinstance(word, str) else None
            )
        except Exception:
            logger.exception("a progress callback failed")
            return
        if isawaitable(going):
            # One after the other, as they were told, and all before the result.
            token = params["progressToken"]
            self._progress_tasks[token] = self._start_task(_await_in_order(going, self._progress_tasks.get(token)))

    async def _answer_request(self, request: Request) -> None:
        """A question of the handshake era."""
        message: dict[str, JSON] = {"jsonrpc": "2.0", "id": request.id}
        try:
            message["result"] = await self._callbacks.answer(request.method, request.params)
        except PeerError as error:
            message["error"] = {"code": error.code, "message": str(error)}
        except Exception:
            logger.exception("an answer to %s could not be given", request.method)
            message["error"] = {"code": FAULTS[Fault.INTERNAL].handshake, "message": "The client failed to answer."}
        with suppress(ClientError):
            await self.link.send(message, self.dialect.headers("", {}))

    def _start_task(self, work: Any) -> "asyncio.Task[None]":
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    # The end

    async def close_when_idle(self) -> None:
        """Closes when nobody waits for an answer any more."""
        try:
            while self._pending:
                await asyncio.wait(self._pending.values())
                await asyncio.sleep(0)  # so that those who were answered can take themselves off the list
        finally:
            await self.close()

    async def close(self) -> None:
        self.fail_pending(ConnectionLostError("The connection was closed."))
        try:
            pending = [task for task in self._tasks if not task.done()]
            if pending:
                _, late = await asyncio.wait(pending, timeout=0.1)
                for task in late:
                    task.cancel()
        finally:
            await self.link.close()


async def _await_in_order(going: Awaitable[None], before: "asyncio.Task[None] | None") -> None:
    try:
        if before is not None:
            await before
        await going
    except Exception:
        logger.exception("a progress callback failed")


def _peer_error(error: Mapping[str, JSON]) -> PeerError:
    code, message = error.get("code"), error.get("message")
    told = message if isinstance(message, str) and message else "It failed and did not say why."
    return PeerError(code if type(code) is int else 0, told, error.get("data"))
