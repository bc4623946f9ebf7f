"""A handshake session: what one client agreed to once, and what is under way with it.

The handshake era ties this state to a connection or an `Mcp-Session-Id`; the modern era has none of it.
"""

import asyncio
from collections.abc import Mapping
from typing import Any, Protocol

from deltamcp.dialects import delta_mcp, handshake
from deltamcp.dialects.handshake import Agreement
from deltamcp.errors import Fault, InputDeclinedError, PeerError
from deltamcp.values import (
    ANONYMOUS,
    JSON,
    Answer,
    Ask,
    Done,
    Failure,
    Kind,
    LogLevel,
    Notification,
    Outcome,
    Principal,
    Request,
    RequestId,
    Response,
    SetLevel,
    Terms,
    Watch,
)
from deltamcp.wire import jsonrpc


class Outlet(Protocol):
    """Where messages go that belong to no request."""

    def put(self, message: bytes) -> None: ...


class Session:
    """Answers what concerns the session itself; matches the client's responses to our requests."""

    __slots__ = ("_outlet", "_pending", "_sent", "agreement", "log_level", "principal", "watched")

    def __init__(self, agreement: Agreement, outlet: Outlet, principal: Principal = ANONYMOUS) -> None:
        self.agreement = agreement
        self.principal = principal
        self.log_level: LogLevel = "info"
        self.watched: set[str] | None = None
        self._outlet = outlet
        self._pending: dict[RequestId, asyncio.Future[JSON]] | None = None
        self._sent = 0

    def read(self, request: Request) -> tuple[Terms, Ask] | Failure:
        """A request in this session's terms."""
        if request.method == "initialize":
            return Failure(Fault.INVALID_REQUEST, "This session is initialized already.")
        return handshake.read(request, self.agreement, self.log_level, self.principal)

    def retold(self, request: Request, outcome: Outcome) -> Outcome:
        """What came of a request, in the words this client's dialect has for it."""
        return delta_mcp.retold(request, outcome) if self.agreement.delta else outcome

    def settle(self, ask: Ask) -> Outcome | None:
        """The answer to what only changes the session; None where the ask is none of that."""
        match ask:
            case SetLevel():
                self.log_level = ask.level
            case Watch():
                if self.watched is None:
                    self.watched = set()
                (self.watched.add if ask.on else self.watched.discard)(ask.uri)
            case _:
                return None
        return Answer(Done())

    # Requests of ours

    def open_request(self, method: str, params: dict[str, JSON]) -> tuple[bytes, "asyncio.Future[JSON]", RequestId]:
        """A request to the client, the future of its answer, and the id to close it by."""
        if self._pending is None:
            self._pending = {}
        self._sent += 1
        id_ = f"s{self._sent}"
        future = self._pending[id_] = asyncio.get_running_loop().create_future()
        return jsonrpc.request(id_, method, params), future, id_

    async def answer_to(self, id_: RequestId, future: "asyncio.Future[JSON]", seconds: float) -> JSON:
        """
        Raises:
            PeerError: the client answered with an error.
            InputDeclinedError: it did not answer in time.
        """
        try:
            async with asyncio.timeout(seconds):
                return await future
        except TimeoutError:
            raise InputDeclinedError("The client did not answer in time.") from None
        finally:
            if self._pending is not None:
                self._pending.pop(id_, None)

    def resolve(self, response: Response) -> None:
        """The client's answer; one that nobody waits for is dropped."""
        future = self._pending.get(response.id) if self._pending else None
        if future is None or future.done():
            return
        if response.error is None:
            future.set_result(response.result)
        else:
            code, message = response.error.get("code"), response.error.get("message")
            future.set_exception(
                PeerError(code if type(code) is int else 0, str(message)[:500], response.error.get("data"))
            )

    # Changes

    def wants(self, change: Kind | str) -> bool:
        return isinstance(change, Kind) or (self.watched is not None and change in self.watched)

    def hear(self, method: str, params: dict[str, JSON]) -> None:
        self._outlet.put(jsonrpc.notification(method, params))


def cancel(in_flight: Mapping[RequestId, "asyncio.Task[Any]"], notification: Notification) -> None:
    """`notifications/cancelled`: an unknown id, or one just answered, is no error."""
    id_ = notification.params.get("requestId")
    # Not isinstance: True is an int, and equal to 1.
    task = in_flight.get(id_) if id_ is not None and type(id_) in (int, str) else None
    if task is not None:
        task.cancel()
