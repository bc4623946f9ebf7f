"""One connection's life: requests and their answers, what the server asks back, what it tells meanwhile."""

import asyncio
import itertools
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from inspect import isawaitable
from typing import Any, TypeAlias

from deltamcp.catalog.headers import ParameterHeader
from deltamcp.client.links.link import Link
from deltamcp.client.questions import Questions
from deltamcp.client.speech import UNSPOKEN, Speech
from deltamcp.errors import FAULTS, ArgumentsError, ClientError, ConnectionLostError, Fault, PeerError
from deltamcp.values import JSON, Era, Malformed, Message, Notification, Request, RequestId, Response

logger = logging.getLogger("deltamcp")

Progress: TypeAlias = Callable[[float, float | None, str | None], Awaitable[None] | None]
"""Told how far a call is: how much, of how much, and a word on it."""
Heard: TypeAlias = Callable[[str, dict[str, JSON]], None]
"""Takes a notification that belongs to no request."""

_FAREWELL_SECONDS = 2.0
_ROUNDS = 50
"""A request is sent again with answers at most so often; a server that asks on has no end."""


class Conversation:
    """Matches answers to requests by their ids; any number may be under way."""

    def __init__(self, link: Link, questions: Questions, heard: Heard) -> None:
        self.link = link
        self.speech: Speech = UNSPOKEN
        self._questions = questions
        self._heard = heard
        self._ids = itertools.count(1)
        self._waiting: dict[RequestId, asyncio.Future[Response]] = {}
        self._progress: dict[RequestId, Progress] = {}
        self._telling: dict[RequestId, asyncio.Task[None]] = {}
        self._answering: dict[RequestId, asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[Any]] = set()

    # Asking

    async def ask(
        self,
        method: str,
        params: Mapping[str, JSON],
        meta: Mapping[str, JSON],
        *,
        progress: Progress | None = None,
        parameters: tuple[ParameterHeader, ...] = (),
        speech: Speech | None = None,
    ) -> dict[str, JSON]:
        """A request's result; questions that the modern era asks in its place are answered on the way.

        Raises:
            PeerError: the server answered with an error.
            ConnectionLostError: no answer will come.
        """
        speech = speech or self.speech
        asked = params
        for _ in range(_ROUNDS):
            result = await self._once(method, asked, meta, progress, parameters, speech)
            if result.get("resultType") != "input_required" or speech.era is not Era.MODERN:
                return result
            asked = {**params, **await self._questions.retried(result)}
        raise PeerError(0, f"{method} was answered by questions {_ROUNDS} times over.")

    async def _once(
        self,
        method: str,
        params: Mapping[str, JSON],
        meta: Mapping[str, JSON],
        progress: Progress | None,
        parameters: tuple[ParameterHeader, ...],
        speech: Speech,
    ) -> dict[str, JSON]:
        id_ = next(self._ids)
        if progress is not None:
            meta = {**meta, "progressToken": id_}
            self._progress[id_] = progress
        message = {"jsonrpc": "2.0", "id": id_, "method": method, "params": speech.params(params, meta)}
        headers = speech.headers(method, params, parameters) if self.link.mirrors else {}
        future: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        self._waiting[id_] = future
        try:
            await self._send(message, headers)
            response = await future
            if id_ in self._telling:
                await self._telling[id_]
        except asyncio.CancelledError:
            if method != "initialize":  # which MUST NOT be cancelled, MCP 2025-11-25 "Cancellation"
                self._later(self._farewell(id_))
            raise
        finally:
            del self._waiting[id_]
            if progress is not None:
                del self._progress[id_]
                self._telling.pop(id_, None)
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

    async def _farewell(self, id_: RequestId) -> None:
        """Over HTTP the modern era cancels by hanging up, which has been done; everybody else is told."""
        if self.link.mirrors and self.speech.era is Era.MODERN:
            return
        with suppress(ClientError, TimeoutError):
            async with asyncio.timeout(_FAREWELL_SECONDS):
                await self.notify("notifications/cancelled", {"requestId": id_})

    async def notify(self, method: str, params: Mapping[str, JSON], speech: Speech | None = None) -> None:
        """
        Raises:
            ClientError: it could not be sent.
        """
        speech = speech or self.speech
        message: dict[str, JSON] = {"jsonrpc": "2.0", "method": method}
        if params or speech.own:
            message["params"] = speech.params(params, {})
        await self.link.send(message, speech.headers(method, params))

    # Hearing

    def awaits(self, id_: RequestId) -> bool:
        future = self._waiting.get(id_)
        return future is not None and not future.done()

    def hear(self, message: Message) -> None:
        match message:
            case Response():
                future = self._waiting.get(message.id)
                if future is not None and not future.done():
                    future.set_result(message)
            case Notification():
                self._note(message)
            case Request():
                task = self._later(self._answer(message))
                self._answering[message.id] = task
                task.add_done_callback(lambda _: self._answering.pop(message.id, None))
            case Malformed():
                future = self._waiting.get(message.id) if message.id is not None else None
                if future is not None and not future.done():
                    told = {"message": f"The answer makes no sense. {message.reason}"}
                    future.set_result(Response(message.id or 0, error=told))
                else:
                    logger.debug("the server sent what is no message: %s", message.reason)

    def lost(self, error: ClientError) -> None:
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(error)

    def _note(self, notification: Notification) -> None:
        params = notification.params
        match notification.method:
            case "notifications/progress":
                token = params.get("progressToken")
                told = self._progress.get(token) if type(token) in (int, str) else None  # type: ignore[arg-type]
                if told is not None:
                    self._tell_progress(told, params)
            case "notifications/cancelled":
                id_ = params.get("requestId")
                task = self._answering.get(id_) if type(id_) in (int, str) else None  # type: ignore[arg-type]
                if task is not None:
                    task.cancel()
            case method:
                self._heard(method, params)

    def _tell_progress(self, told: Progress, params: dict[str, JSON]) -> None:
        done, total, word = params.get("progress"), params.get("total"), params.get("message")
        if not isinstance(done, int | float):
            return
        try:
            going = told(
                done, total if isinstance(total, int | float) else None, word if isinstance(word, str) else None
            )
        except Exception:
            logger.exception("a progress callback failed")
            return
        if isawaitable(going):
            # One after the other, as they were told, and all before the result.
            token = params["progressToken"]
            self._telling[token] = self._later(_finished(going, self._telling.get(token)))

    async def _answer(self, request: Request) -> None:
        """A question of the handshake era."""
        message: dict[str, JSON] = {"jsonrpc": "2.0", "id": request.id}
        try:
            message["result"] = await self._questions.answer(request.method, request.params)
        except PeerError as error:
            message["error"] = {"code": error.code, "message": str(error)}
        except Exception:
            logger.exception("an answer to %s could not be given", request.method)
            message["error"] = {"code": FAULTS[Fault.INTERNAL].handshake, "message": "The client failed to answer."}
        with suppress(ClientError):
            await self.link.send(message, self.speech.headers("", {}))

    def _later(self, work: Any) -> "asyncio.Task[None]":
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    # The end

    async def leave(self) -> None:
        """Closes when nobody waits for an answer any more."""
        try:
            while self._waiting:
                await asyncio.wait(self._waiting.values())
                await asyncio.sleep(0)  # so that those who were answered can take themselves off the list
        finally:
            await self.close()

    async def close(self) -> None:
        self.lost(ConnectionLostError("The connection was closed."))
        try:
            pending = [task for task in self._tasks if not task.done()]
            if pending:
                _, late = await asyncio.wait(pending, timeout=0.1)
                for task in late:
                    task.cancel()
        finally:
            await self.link.close()


async def _finished(going: Awaitable[None], before: "asyncio.Task[None] | None") -> None:
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
