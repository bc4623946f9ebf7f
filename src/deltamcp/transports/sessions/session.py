"""The handshake session: its agreement, the resources that the client watches, and requests to the client.

A session belongs to a connection or an `Mcp-Session-Id`. The modern era has no sessions.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping
from typing import Any, Protocol

from msgspec.structs import replace

from deltamcp.calls.failures import encode_response
from deltamcp.dialects.dialect import Agreement, SessionDialect
from deltamcp.errors import Fault, InputDeclinedError, PeerError
from deltamcp.limits import Limits
from deltamcp.runtime.change_hub import Position
from deltamcp.values import (
    JSON,
    Answer,
    Ask,
    Caller,
    Done,
    Failure,
    Kind,
    Notification,
    Outcome,
    Principal,
    Request,
    RequestId,
    Response,
    SessionAsk,
    SetLevel,
    Terms,
    Watch,
)
from deltamcp.wire import jsonrpc

MAX_WATCHED = 1000
"""The resources that one session may subscribe to, whose URIs have up to 2,048 characters each."""
TOO_MANY_WATCHED = Failure(
    Fault.INVALID_PARAMS,
    f"A session may subscribe to at most {MAX_WATCHED} resources; unsubscribe from some first.",
)


class Outlet(Protocol):
    """Sends messages that belong to no request of the client."""

    def put(self, message: bytes) -> None:
        """Sends a message."""
        ...


class HandshakeSession:
    """Reads and writes in the client's dialect, and matches the client's responses to the server's requests."""

    __slots__ = ("_make_id", "_outlet", "_pending", "_sent", "agreement", "caller", "dialect", "watched")

    def __init__(
        self,
        dialect: SessionDialect,
        agreement: Agreement,
        outlet: Outlet,
        caller: Caller,
        make_id: Callable[[], str] | None = None,
    ) -> None:
        """`make_id` returns ids for requests to the client, where other processes send some in the same session."""
        self.dialect: SessionDialect = dialect
        self.agreement: Agreement = agreement
        self.caller: Caller = caller
        self.watched: set[str] | None = None
        self._outlet = outlet
        self._pending: dict[RequestId, asyncio.Future[JSON]] | None = None
        self._sent = 0
        self._make_id = make_id

    def read(self, request: Request) -> tuple[Terms, Ask] | Failure:
        """Returns the terms and the ask of a request, or the reason it is invalid."""
        if request.method == "initialize":
            return Failure(Fault.INVALID_REQUEST, "This session is initialized already.")
        return self.dialect.read(request, self.caller, self.agreement)

    def write(self, request: Request, outcome: Outcome) -> bytes:
        """Returns the response to a request."""
        return encode_response(self.dialect, request, outcome, self.agreement.version)

    def apply(self, ask: SessionAsk) -> Outcome:
        """Changes the log level or the watched resources."""
        match ask:
            case SetLevel():
                self.agreement = replace(self.agreement, log_level=ask.level)
            case Watch():
                if self.watched is None:
                    self.watched = set()
                if ask.on and ask.uri not in self.watched and len(self.watched) >= MAX_WATCHED:
                    return TOO_MANY_WATCHED
                (self.watched.add if ask.on else self.watched.discard)(ask.uri)
        return Answer(Done())

    # Requests to the client

    def open_request(self, method: str, params: dict[str, JSON]) -> tuple[bytes, "asyncio.Future[JSON]", RequestId]:
        """Makes a request to the client; returns its bytes, the future of its response, and its id."""
        if self._pending is None:
            self._pending = {}
        self._sent += 1
        id_ = f"s{self._sent if self._make_id is None else self._make_id()}"
        future = self._pending[id_] = asyncio.get_running_loop().create_future()
        return jsonrpc.encode_request(id_, method, params), future, id_

    async def await_response(self, id_: RequestId, future: "asyncio.Future[JSON]", seconds: float) -> JSON:
        """Waits for the client's response and returns its result.

        Raises:
            PeerError: the client responded with an error.
            InputDeclinedError: the client did not respond in time.
        """
        try:
            async with asyncio.timeout(seconds):
                return await future
        except TimeoutError:
            raise InputDeclinedError("The client did not answer in time.") from None
        finally:
            if self._pending is not None:
                self._pending.pop(id_, None)

    def withdraw_request(self, id_: RequestId) -> bytes:
        """Returns the message by which the client learns that nobody waits for its response any more."""
        return self.dialect.notify("notifications/cancelled", {"requestId": id_})

    @property
    def pending_ids(self) -> list[RequestId]:
        """The ids of the requests whose response this process waits for."""
        return list(self._pending or ())

    def resolve(self, response: Response) -> bool:
        """Passes the client's response to the call that waits for it; returns False for one to no open request."""
        future = self._pending.get(response.id) if self._pending else None
        if future is None or future.done():
            return False
        if response.error is None:
            future.set_result(response.result)
        else:
            code, message = response.error.get("code"), response.error.get("message")
            future.set_exception(
                PeerError(code if type(code) is int else 0, str(message)[:500], response.error.get("data"))
            )
        return True

    # Changes

    @property
    def principal(self) -> Principal:
        return self.caller.principal

    def wants(self, change: Kind | str) -> bool:
        return isinstance(change, Kind) or (self.watched is not None and change in self.watched)

    def watched_uris(self) -> Collection[str]:
        return self.watched or ()

    def notify(self, method: str, params: dict[str, JSON], position: Position | None = None) -> None:
        self._outlet.put(self.dialect.notify(method, params))


def cancelled_id(notification: Notification, limits: Limits) -> RequestId | None:
    """Returns the id of the request that `notifications/cancelled` names; None if no request can have it."""
    return jsonrpc.usable_id(notification.params.get("requestId"), limits)


def cancel_request(in_flight: Mapping[RequestId, "asyncio.Task[Any]"], id_: RequestId | None) -> bool:
    """Cancels a request; returns False for an unknown or finished one."""
    task = None if id_ is None else in_flight.get(id_)
    if task is not None:
        task.cancel()
    return task is not None
