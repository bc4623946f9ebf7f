"""Connects to one server, reconnects with growing waits, and never has the server do a call twice.

A request that is not repeatable is sent again only if the server certainly did not receive it.
"""

import asyncio
import math
import random
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import TypeVar

from deltamcp.catalog.param_headers import ParameterHeader
from deltamcp.client.callbacks import ClientCallbacks, RequestSender
from deltamcp.client.connection import ClientConnection, OnNotification, OnProgress
from deltamcp.client.links.link import ClientLink, RefusedForNowError, UserNeededError
from deltamcp.client.negotiation import ClientProfile, IntroductionRefusedError, ServerInfo, negotiate
from deltamcp.errors import (
    ClientError,
    ConnectionLostError,
    DeadlineError,
    HttpStatusError,
    UnauthorizedError,
    UnreachableError,
)
from deltamcp.values import JSON, Era, LogLevel, RawResult

T = TypeVar("T")
_MAX_SILENT_SECONDS = 300.0
"""How long a request without a timeout waits for a sign of life; a server of this library ends a tool as early."""
_MAX_SECONDS = 3600.0
"""How long a request without a timeout may take in any case."""
_MAX_ATTEMPTS = 6
_MAX_WAIT_SECONDS = 5.0
_FIRST_WAIT_SECONDS = 0.1
_CONNECT_RETRIES = 2
_MAX_LOGINS = 2
"""How often the user is asked to log in for one request: once for a token, once for a token that allows more."""
_MAYBE_DONE = " It may have been done all the same; check before you send it again."


class Connector:
    """Sends requests to one server over connections that it opens, replaces and closes."""

    def __init__(
        self,
        label: str,
        link_factories: Sequence[Callable[[], ClientLink]],
        profile: ClientProfile,
        likely_profile: ClientProfile,
        callbacks: ClientCallbacks,
        on_notification: OnNotification,
        start_seconds: float,
        timeout: float | None,
        on_reconnect: Callable[[], None],
        on_end: Callable[[ClientError], None],
        reconnects: bool = True,
    ) -> None:
        """
        Args:
            label: the server's name in error messages.
            link_factories: make the links to try, the likeliest first.
            likely_profile: `profile`, or with the protocol that the server spoke before; a failure forgets it.
            start_seconds: how long starting the server and negotiating may take.
            timeout: how long a request may take that gives no timeout of its own; None for the default.
            on_reconnect: called after a new connection has replaced a lost one; the server may have forgotten
                subscriptions.
            on_end: called when the connection has ended by itself, if requests do not replace it.
            reconnects: whether requests replace a lost connection; else `open` does, and nobody else.
        """
        self._label, self._link_factories = label, link_factories
        self._chosen_profile, self._profile = profile, likely_profile
        self._callbacks, self._on_notification = callbacks, on_notification
        self._start_seconds = start_seconds
        self.timeout: float | None = timeout
        self._connection: ClientConnection | None = None
        self._connect_lock = asyncio.Lock()
        self._closed = False
        self._closing_tasks: set[asyncio.Task[None]] = set()
        self._on_reconnect, self._on_end, self._reconnects = on_reconnect, on_end, reconnects
        self._server: ServerInfo | None = None

    @property
    def server(self) -> ServerInfo:
        """
        Raises:
            ClientError: the client has not connected yet.
        """
        if self._server is None:
            raise ClientError("The client is not connected; use it within `async with`.")
        return self._server

    @property
    def connection(self) -> ClientConnection | None:
        return self._connection

    @property
    def is_connected(self) -> bool:
        return self._connection is not None and not self._connection.link.ended

    @property
    def is_progressive(self) -> bool:
        """Whether the client asks the server for names and summaries instead of definitions."""
        return self._profile.progressive

    @property
    def mirrors_arguments(self) -> bool:
        """Whether the client must repeat some arguments in headers: over HTTP, in the modern era."""
        connection, server = self._connection, self.server
        is_modern = server.era is Era.MODERN and not server.is_lite
        return is_modern and connection is not None and connection.link.carries_headers

    async def open(self) -> None:
        """
        Raises:
            ClientError: the server cannot be reached; the text says why and what to do.
        """
        logins = 0
        while True:
            try:
                async with self._connect_lock:
                    self._closed = False
                    await self._connect()
                    return
            except UserNeededError as error:
                needed = error
            logins += 1
            await _ask_user(needed, logins)

    async def request(
        self,
        method: str,
        params: Mapping[str, JSON],
        meta: Mapping[str, JSON] = {},
        *,
        repeatable: bool = True,
        timeout: float | None = None,
        progress: OnProgress | None = None,
        parameter_headers: tuple[ParameterHeader, ...] = (),
    ) -> dict[str, JSON]:
        """Sends a request and returns its result.

        If the connection breaks, the connector reconnects and sends the request again. It does so for a request that is
        not `repeatable` only if the server certainly did not receive it. While the user logs in, no deadline runs.

        Raises:
            PeerError: the server answered with an error.
            ConnectionLostError: the connection broke, and the request could not or must not be sent again.
            DeadlineError: the server did not answer in time.
        """
        meta = add_trace_context(meta)
        return await self._perform(
            method,
            lambda connection, ends_at: connection.request(
                method, params, meta, progress=progress, parameter_headers=parameter_headers, ends_at=ends_at
            ),
            repeatable,
            timeout,
        )

    async def forward(
        self,
        method: str,
        params: Mapping[str, JSON],
        meta: Mapping[str, JSON] = {},
        *,
        repeatable: bool = True,
        timeout: float | None = None,
        progress: OnProgress | None = None,
        parameter_headers: tuple[ParameterHeader, ...] = (),
        capabilities: Mapping[str, JSON] | None = None,
        log_level: LogLevel | None = None,
        sender: RequestSender | None = None,
    ) -> RawResult:
        """Sends somebody else's request as `request` does, and returns the result as it came, even one that asks.

        Args:
            capabilities: what the sender of the request can do; the client's own by default.
            log_level: the lowest level of log messages that the sender wants; None if it wants none.
            sender: answers what a server of the handshake era asks while it performs the request, and takes its logs.

        Raises:
            PeerError, ConnectionLostError, DeadlineError: as in `request`.
        """
        return await self._perform(
            method,
            lambda connection, ends_at: connection.forward(
                method,
                params,
                meta,
                progress=progress,
                parameter_headers=parameter_headers,
                ends_at=ends_at,
                capabilities=capabilities,
                log_level=log_level,
                sender=sender,
            ),
            repeatable,
            timeout,
        )

    async def notify(self, method: str, params: Mapping[str, JSON]) -> None:
        """
        Raises:
            ConnectionLostError: there is no connection now.
            ClientError: the notification could not be sent.
        """
        if self._connection is None or self._connection.link.ended:
            raise ConnectionLostError(f"{self._label} is not connected.", maybe_done=False)
        await self._connection.notify(method, params)

    async def _perform(
        self,
        method: str,
        send: "Callable[[ClientConnection, float | None], Awaitable[T]]",
        repeatable: bool,
        timeout: float | None,
    ) -> T:
        timeout = self.timeout if timeout is None else timeout
        logins = 0
        while True:
            seconds = _MAX_SECONDS if timeout is None else timeout
            deadline = asyncio.timeout(None if seconds == math.inf else seconds)
            watch = _SilenceWatch(self, deadline) if timeout is None else None
            ends_at = None if timeout is None or seconds == math.inf else asyncio.get_running_loop().time() + seconds
            try:
                async with deadline:
                    return await self._send_with_retries(send, repeatable, ends_at)
            except TimeoutError:
                if not deadline.expired():
                    raise
                if watch is not None and watch.has_ended:
                    seconds = _MAX_SILENT_SECONDS
                raise DeadlineError(f"{method} was not answered within {seconds:g} s, and was cancelled.") from None
            except UserNeededError as error:
                needed = error
            finally:
                if watch is not None:
                    watch.cancel()
            logins += 1
            await _ask_user(needed, logins)

    async def _send_with_retries(
        self,
        send: "Callable[[ClientConnection, float | None], Awaitable[T]]",
        repeatable: bool,
        ends_at: float | None,
    ) -> T:
        for attempt in range(_MAX_ATTEMPTS):
            is_last = attempt == _MAX_ATTEMPTS - 1
            try:
                connection = self._connection
                if connection is None or connection.link.ended:
                    connection = await self._ensure_connection()
                return await send(connection, ends_at)
            except HttpStatusError as error:
                # The server spoke MCP before, so a gateway answers for it and may have passed the request on.
                raise ConnectionLostError(f"{error}{'' if repeatable else _MAYBE_DONE}") from None
            except ConnectionLostError as lost:
                if lost.maybe_done and not repeatable:
                    raise ConnectionLostError(f"{lost}{_MAYBE_DONE}", retry_after=lost.retry_after) from None
                may_resend = not self._closed and (self._reconnects or self.is_connected)
                if not may_resend or is_last or lost.retry_after > _MAX_WAIT_SECONDS:
                    if isinstance(lost, RefusedForNowError):
                        raise lost.error from None
                    raise
                wait = lost.retry_after
            except UnreachableError as error:
                if is_last or isinstance(error, UnauthorizedError) or self._connection is not None:
                    raise
                wait = 0.0
            await asyncio.sleep(max(wait, _backoff_seconds(attempt)))
        raise AssertionError("the last attempt returns or raises")

    async def close(self) -> None:
        self._closed = True
        async with self._connect_lock:
            connection, self._connection = self._connection, None
            if connection is not None:
                await connection.close()
            for task in self._closing_tasks:
                task.cancel()
            if self._closing_tasks:
                await asyncio.wait(self._closing_tasks)

    async def _ensure_connection(self) -> ClientConnection:
        async with self._connect_lock:
            connection = self._connection
            if connection is not None and not connection.link.ended:
                return connection
            if self._closed:
                raise ConnectionLostError("This client is closed.", maybe_done=False)
            if not self._reconnects:
                raise ConnectionLostError(f"{self._label} is not connected.", maybe_done=False)
            self.disconnect()
            connection = await self._connect()
            self._on_reconnect()
            return connection

    def disconnect(self) -> None:
        """Gives up the connection; it closes when no request is in flight, which the server may still answer."""
        connection, self._connection = self._connection, None
        if connection is not None:
            task = asyncio.get_running_loop().create_task(connection.close_when_idle())
            self._closing_tasks.add(task)
            task.add_done_callback(self._closing_tasks.discard)

    def _receive_end(self, connection: ClientConnection, error: ClientError) -> None:
        if connection is self._connection and not self._reconnects:
            self.disconnect()
            self._on_end(error)

    async def _connect(self) -> ClientConnection:
        """
        Raises:
            UnreachableError: the server cannot be reached.
        """
        try:
            async with asyncio.timeout(self._start_seconds):
                return await self._connect_as_known()
        except TimeoutError:
            self._profile = self._chosen_profile
            raise UnreachableError(
                f"{self._label} did not introduce itself within {self._start_seconds:g} s; is it an MCP server, or "
                "does it need longer?"
            ) from None
        except (ConnectionLostError, HttpStatusError) as error:
            raise UnreachableError(str(error)) from None

    async def _connect_as_known(self) -> ClientConnection:
        """Begins in the era that the server had before; a server that refuses that is probed, one that fails next time.

        Raises:
            UnreachableError, ConnectionLostError: the server cannot be reached.
        """
        try:
            return await self._connect_with_retries()
        except UnauthorizedError:
            raise
        except (UnreachableError, ConnectionLostError) as error:
            is_known, self._profile = self._profile != self._chosen_profile, self._chosen_profile
            if not is_known or not isinstance(error, IntroductionRefusedError | HttpStatusError):
                raise
        return await self._connect_with_retries()

    async def _connect_with_retries(self) -> ClientConnection:
        """Tries again after answers such as HTTP 503, which do not say which protocol the server speaks."""
        for attempt in range(_CONNECT_RETRIES):
            try:
                return await self._try_links()
            except ConnectionLostError as lost:
                is_answer = lost.maybe_done or isinstance(lost, RefusedForNowError)
                if not is_answer or lost.retry_after > _MAX_WAIT_SECONDS:
                    raise
                await asyncio.sleep(max(lost.retry_after, _backoff_seconds(attempt)))
        return await self._try_links()

    async def _try_links(self) -> ClientConnection:
        likeliest, *others = self._link_factories
        link = likeliest()
        try:
            return await self._open_connection(link, self._profile)
        except ConnectionLostError as lost:
            if link.carries_headers:
                raise
            if self._profile.protocol_choice != "auto" or not lost.maybe_done:
                raise UnreachableError(str(lost)) from None
            return await self._connect_by_handshake(likeliest())
        except UnauthorizedError:
            raise
        except UnreachableError:
            for make in others if self._profile.protocol_choice in ("auto", "handshake") else ():
                with suppress(UnreachableError, ConnectionLostError):
                    connection = await self._open_connection(make(), self._profile.choose_protocol("handshake"))
                    self._link_factories, self._chosen_profile = [make], self._profile
                    return connection
            raise

    async def _connect_by_handshake(self, link: ClientLink) -> ClientConnection:
        """Starts the server again and begins with `initialize`: some handshake servers exit at any other message."""
        try:
            return await self._open_connection(link, self._profile.choose_protocol("handshake"))
        except ConnectionLostError as lost:
            raise UnreachableError(str(lost)) from None

    async def _open_connection(self, link: ClientLink, profile: ClientProfile) -> ClientConnection:
        connection = ClientConnection(link, self._callbacks, self._on_notification, self._receive_end)
        try:
            await connection.link.open(connection)
            self._server = await negotiate(connection, profile, self._label)
        except BaseException:
            await connection.close()
            raise
        self._connection = connection
        if profile.protocol_choice in ("auto", "handshake"):
            # MCP 2026-07-28 "Versioning": the era is a property of the server, so the client probes once.
            is_delta = connection.dialect.is_delta
            is_modern = self.server.era is Era.MODERN
            self._profile = profile.choose_protocol("delta-mcp" if is_delta else "modern" if is_modern else "handshake")
        return connection


class _SilenceWatch:
    """Ends a request's deadline early if the server neither reports progress nor waits for an answer for long.

    MCP 2025-11-25, "Timeouts": progress may restart the clock, and a maximum stays.
    """

    def __init__(self, connector: Connector, deadline: asyncio.Timeout) -> None:
        self._connector, self._deadline = connector, deadline
        self._loop = asyncio.get_running_loop()
        self._start = self._loop.time()
        self.has_ended = False
        """Whether the deadline was ended."""
        self._timer = self._loop.call_later(_MAX_SILENT_SECONDS, self._check)

    def _check(self) -> None:
        connection, now = self._connector.connection, self._loop.time()
        last = self._start if connection is None else max(self._start, connection.last_sign_of_life)
        if connection is not None and connection.is_answering:
            last = now
        if now - last >= _MAX_SILENT_SECONDS:
            self.has_ended = True
            self._deadline.reschedule(now)
        else:
            self._timer = self._loop.call_at(last + _MAX_SILENT_SECONDS, self._check)

    def cancel(self) -> None:
        self._timer.cancel()


async def _ask_user(needed: UserNeededError, logins: int) -> None:
    """Asks the user to log in, for the `logins`-th time for the same request.

    Raises:
        UnauthorizedError: the server refuses what the user has just allowed, or the user did not log in.
    """
    if logins > _MAX_LOGINS or (logins > 1 and not needed.is_step_up):
        raise needed
    await needed.ask_user()


def _backoff_seconds(attempt: int) -> float:
    """Returns 0 for the first attempt, then a wait that doubles with each attempt, with jitter."""
    if attempt == 0:
        return 0.0
    return min(_MAX_WAIT_SECONDS, _FIRST_WAIT_SECONDS * 2.0**attempt) * random.uniform(0.5, 1.0)  # noqa: S311 - no secret


def add_trace_context(meta: Mapping[str, JSON]) -> Mapping[str, JSON]:
    """Returns a request's `_meta` with the current trace context, if the program uses OpenTelemetry and has one."""
    if "opentelemetry.trace" not in sys.modules:
        return meta
    from opentelemetry import propagate

    carrier: dict[str, str] = {}
    propagate.inject(carrier)
    known: dict[str, JSON] = {key: carrier[key] for key in ("traceparent", "tracestate", "baggage") if key in carrier}
    return {**known, **meta} if known else meta
