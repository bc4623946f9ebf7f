"""Whom the server tells of changes: a handshake session or, in the modern era, which has none, a subscription.

A session belongs to a connection or an `Mcp-Session-Id`; it has an agreement, the resources that the client watches,
and requests to the client. A subscription lasts as long as the request `subscriptions/listen`.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Protocol

from msgspec.structs import replace

from deltamcp.calls.engine import Engine
from deltamcp.calls.failures import encode_response
from deltamcp.dialects.dialect import Agreement, SessionDialect, StatelessDialect
from deltamcp.dialects.methods import subscription_filter
from deltamcp.errors import Fault, InputDeclinedError, PeerError
from deltamcp.limits import Limits
from deltamcp.runtime.change_hub import Position
from deltamcp.stores.store import StoreError
from deltamcp.values import (
    JSON,
    Answer,
    Ask,
    Caller,
    Done,
    Failure,
    Filter,
    Kind,
    Notification,
    Outcome,
    Principal,
    Promise,
    Request,
    RequestId,
    Response,
    SessionAsk,
    SetLevel,
    SubscriptionEnd,
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


class Subscription:
    """Sends the change notifications that pass the client's filter, each with the subscription's id."""

    __slots__ = ("_dialect", "_filter", "_request", "_send", "_version", "principal")

    def __init__(
        self,
        dialect: StatelessDialect,
        request: Request,
        version: str,
        accepted: Filter,
        send: Callable[[bytes], object],
        principal: Principal,
    ) -> None:
        self._dialect = dialect
        # Without the parameters, which the client may have filled with more than the filter.
        self._request = Request(request.id, request.method, {})
        self._version = version
        self._filter = accepted
        self._send = send
        self.principal: Principal = principal

    def acknowledge(self) -> None:
        """Sends the first message of a subscription."""
        self.notify("notifications/subscriptions/acknowledged", {"notifications": subscription_filter(self._filter)})

    def wants(self, change: Kind | str) -> bool:
        return change in (self._filter.kinds if isinstance(change, Kind) else self._filter.uris)

    def watched_uris(self) -> Collection[str]:
        return self._filter.uris

    def notify(self, method: str, params: dict[str, JSON], position: Position | None = None) -> None:
        self._send(self._dialect.notify(method, params, self._request.id))

    def notify_of_promise(self, promise: Promise) -> None:
        """Sends what a promise is now."""
        self._send(self._dialect.notify_of_promise(promise, self._version, self._request.id))

    def end(self) -> None:
        """Sends the last message of a subscription that the server ends."""
        self._send(self._dialect.write(self._request, Answer(SubscriptionEnd()), self._version))


_RETRY_SECONDS = 5.0
"""How long to wait for a store that does not answer; the client is told of what it missed."""

FOLLOWED_BYTES = 4096
"""The memory of a promise that is followed, beside its notifications."""


class FollowedPromises:
    """Tells of promises what each is, and then every change until its call has ended."""

    def __init__(
        self, engine: Engine, tokens: Iterable[str], caller: Caller, tell: Callable[[Promise], object]
    ) -> None:
        self._engine = engine
        self._caller = caller
        self._tell = tell
        self._tasks = [asyncio.get_running_loop().create_task(self._follow(token)) for token in tokens]

    async def _follow(self, token: str) -> None:
        promises = self._engine.promise_calls
        assert promises is not None, "a server without promises accepts no subscriptions to them"
        while True:
            try:
                async for promise in promises.follow(token, self._caller):
                    self._tell(promise)
                return
            except StoreError:
                await asyncio.sleep(_RETRY_SECONDS)

    def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
