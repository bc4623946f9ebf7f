"""Sessions that any replica serves: their records are in the store, and replicas pass on what another one has to know.

A process makes its live part of a session from the record when the first request of the session reaches it. What a
replica does not have, such as a call that the client cancels, it tells to all of them.
"""

import asyncio
import contextlib
import logging
from collections.abc import Coroutine
from typing import Any

from msgspec.structs import replace

from deltamcp.calls.engine import Engine
from deltamcp.calls.lists import Capabilities
from deltamcp.dialects.dialect import Agreement, SessionDialect
from deltamcp.dialects.registry import Dialects
from deltamcp.errors import Fault
from deltamcp.limits import Limits
from deltamcp.replicas import (
    RequestCancelled,
    ResponseStored,
    SessionChanged,
    SessionEnded,
    SessionMessage,
    StreamMoved,
    raise_if_cancelled,
)
from deltamcp.runtime.change_hub import ChangeHub, Position
from deltamcp.runtime.quota import HttpQuotas
from deltamcp.stores.store import StoreError
from deltamcp.transports.http.exchange import Exchange
from deltamcp.transports.sessions.directory import (
    SESSION_HEADER,
    SESSION_REQUIRED,
    SESSION_UNKNOWN,
    HttpSession,
    HttpSessions,
    NoSessions,
    SessionDirectory,
    is_primed,
)
from deltamcp.transports.sessions.records import SessionRecord, SessionRecords, StreamCopies
from deltamcp.transports.sessions.session import MAX_WATCHED, TOO_MANY_WATCHED, cancel_request
from deltamcp.transports.sessions.shared_streams import ChangeStream, RelayedStream, is_change_event, read_position
from deltamcp.transports.sessions.streams import FollowedStream, read_event_id
from deltamcp.values import (
    Answer,
    Caller,
    Done,
    Failure,
    Kind,
    Outcome,
    Principal,
    Request,
    RequestId,
    Response,
    SessionAsk,
    SetLevel,
    Watch,
)

_REPLICA_LOST = Failure(
    Fault.INTERNAL, "The process that ran this call has stopped; the call may have been executed, in part or whole."
)
_ID_CHARS = 32
_RETRY_SECONDS = 1.0

logger: logging.Logger = logging.getLogger("deltamcp.http")


class SharedSessions(SessionDirectory):
    """Sessions whose records are in the store; `live` has what this process has of them."""

    def __init__(
        self,
        live: HttpSessions,
        hub: ChangeHub,
        copies: StreamCopies,
        limits: Limits,
        quotas: HttpQuotas,
        dialects: Dialects,
        capabilities: Capabilities,
    ) -> None:
        super().__init__(live, hub)
        replica = self._replica = copies.replica
        self._copies = copies
        self._limits = limits
        self._quotas = quotas
        self._dialects = dialects
        self._capabilities = capabilities
        self._records = SessionRecords(replica.store, replica.server, limits.session_idle_seconds)
        self._listening: dict[str, ChangeStream] = {}
        """The GET streams by session."""
        self._relayed: dict[str, set[RelayedStream]] = {}
        """The streams of other replicas that clients resumed here, by session."""
        self._tasks: set[asyncio.Task[None]] = set()
        replica.add_receiver(self._receive)

    async def open(
        self, dialect: SessionDialect, agreement: Agreement, principal: Principal, account: str
    ) -> HttpSession | Failure:
        opened = self._live.open(dialect, agreement, principal, account)
        if isinstance(opened, Failure):
            return opened
        try:
            if not self._replica.changes.number:
                await self._replica.changes.catch_up()
            heard = self._replica.changes.position
            await self._records.write(opened.id, SessionRecord(principal.key, account, dialect.name, agreement, heard))
        except StoreError as error:
            self._forget(opened)
            return _unavailable(error)
        return opened

    async def find(self, exchange: Exchange) -> HttpSession | Failure:
        id_, principal = exchange.headers.get(SESSION_HEADER), exchange.caller.principal
        if id_ is None:
            return SESSION_REQUIRED
        if len(id_) != _ID_CHARS:
            return SESSION_UNKNOWN
        name = id_.decode("latin-1")
        try:
            record = await self._records.read(name)
        except StoreError as error:
            # Whoever has ended the session meanwhile was this principal too, so that going on harms nobody.
            found = self._live.find(id_, principal)
            return found if isinstance(found, HttpSession) else _unavailable(error)
        opened = self._live.get(name)
        if record is None:
            if opened is not None:
                self._forget(opened)
            return SESSION_UNKNOWN
        if record.principal != principal.key:
            return SESSION_UNKNOWN
        if opened is None:
            dialect = self._dialects.session_dialect(record.dialect)
            return self._live.add(name, dialect, record.agreement, principal, record.account)
        opened.session.agreement = record.agreement
        self._live.touch(opened, principal)
        return opened

    async def end(self, opened: HttpSession) -> Failure | None:
        try:
            await self._records.delete(opened.id)
            self._forget(opened)
            await self._replica.publish(SessionEnded(opened.id))
        except StoreError as error:
            return _unavailable(error)
        return None

    def _forget(self, opened: HttpSession) -> None:
        self._live.forget(opened)
        if opened.id in self._listening:
            self._listening[opened.id].end()
        for stream in self._relayed.get(opened.id, ()):
            stream.end()

    async def run(self) -> None:
        """Keeps the records of sessions with open requests and streams, as long as the server runs."""
        self._copies.is_closed = False
        try:
            while True:
                await asyncio.sleep(self._limits.session_idle_seconds / 3)
                for opened in self._live.busy():
                    with contextlib.suppress(StoreError):
                        await self._keep(opened)
                    raise_if_cancelled()
        finally:
            if self._tasks:
                await asyncio.wait(self._tasks)
            await self._copies.close()

    async def _keep(self, opened: HttpSession) -> None:
        record = await self._records.read(opened.id)
        if record is None:
            self._forget(opened)
        elif record.watches:
            await self._records.read_watched(opened.id)

    # What a client changes

    def start_listening(self, opened: HttpSession) -> None:
        """Does nothing: only GET streams hear of changes, and the log has them until there is one."""

    async def apply(self, opened: HttpSession, ask: SessionAsk) -> Outcome:
        try:
            async with self._records.locked(opened.id):
                record = await self._records.read(opened.id)
                if record is None:
                    self._forget(opened)
                    return SESSION_UNKNOWN
                match ask:
                    case SetLevel():
                        record.agreement = replace(record.agreement, log_level=ask.level)
                    case Watch():
                        watched = await self._records.read_watched(opened.id)
                        if ask.on and ask.uri not in watched and len(watched) >= MAX_WATCHED:
                            return TOO_MANY_WATCHED
                        (watched.add if ask.on else watched.discard)(ask.uri)
                        await self._records.write_watched(opened.id, record, watched)
                        record.watches = bool(watched)
                await self._records.write(opened.id, record)
                opened.session.agreement = record.agreement
            if isinstance(ask, Watch):
                await self._replica.publish(SessionChanged(opened.id))
        except StoreError as error:
            return _unavailable(error)
        return Answer(Done())

    async def resolve(self, opened: HttpSession, response: Response) -> Failure | None:
        if opened.session.resolve(response) or not self._is_of_another(response.id):
            return None
        try:
            await self._records.put_response(opened.id, response, opened.account)
            await self._replica.publish(ResponseStored(opened.id, str(response.id)))
        except StoreError as error:
            return _unavailable(error)
        return None

    def _is_of_another(self, id_: RequestId) -> bool:
        return isinstance(id_, str) and id_.startswith("s") and not id_.startswith(f"s{self._replica.id}-")

    async def cancel(self, opened: HttpSession, id_: RequestId | None) -> Failure | None:
        if id_ is None or cancel_request(opened.in_flight, id_):
            return None
        try:
            await self._replica.publish(RequestCancelled(opened.id, id_))
        except StoreError as error:
            return _unavailable(error)
        return None

    # Messages of other replicas

    async def _receive(self, message: SessionMessage | None) -> None:
        match message:
            case None:
                await self._look_for_missed()
            case ResponseStored(session, request):
                await self._take_response(self._live.get(session), request)
            case RequestCancelled(session, request):
                opened = self._live.get(session)
                if opened is not None:
                    cancel_request(opened.in_flight, request)
            case SessionEnded(session):
                opened = self._live.get(session)
                if opened is not None:
                    self._forget(opened)
            case SessionChanged(session):
                if session in self._listening:
                    await self._read_watched(session)
            case StreamMoved(session, number):
                if session in self._listening and self._listening[session].number < number:
                    self._listening[session].end()

    async def _take_response(self, opened: HttpSession | None, request: RequestId) -> None:
        if opened is not None and request in opened.session.pending_ids:
            response = await self._records.take_response(opened.id, str(request))
            if response is not None:
                opened.session.resolve(response)

    async def _read_watched(self, session: str) -> None:
        watched = await self._records.read_watched(session)
        stream = self._listening.get(session)
        if stream is None:
            return
        before = stream.watched_uris()
        if not stream.watch(watched):
            stream.end()
        self._hub.watch(stream, {*before} ^ {*stream.watched_uris()})

    async def _look_for_missed(self) -> None:
        for session in tuple(self._listening):
            await self._read_watched(session)
        for opened in self._live.busy():
            for request in opened.session.pending_ids:
                await self._take_response(opened, request)

    # GET streams

    async def listen(self, opened: HttpSession, last_event: str | None) -> FollowedStream | Failure:
        resumed = None if last_event is None else opened.streams.resume(last_event)
        if resumed is not None:
            return FollowedStream(*resumed, primed=is_primed(opened))
        try:
            relayed = None if last_event is None else await self._relay(opened, last_event)
            return relayed or await self._listen_to_changes(opened, last_event)
        except StoreError as error:
            return _unavailable(error)

    async def _relay(self, opened: HttpSession, last_event: str) -> FollowedStream | None:
        """Returns the stream of another replica that a client resumes here; None if there is none."""
        event = read_event_id(last_event)
        if event is None or is_change_event(last_event):
            return None
        id_, number = event
        session = opened.session

        def error(request: RequestId) -> bytes:
            return session.write(Request(request, "", {}), _REPLICA_LOST)

        stream = RelayedStream(id_, opened.id, number, self._copies, error)
        if not await stream.exists():
            return None
        self._relayed.setdefault(opened.id, set()).add(stream)
        stream.start()

        def leave() -> None:
            stream.stop()
            streams = self._relayed[opened.id]
            streams.discard(stream)
            if not streams:
                del self._relayed[opened.id]

        return FollowedStream(stream, number, primed=is_primed(opened), close=stream.end, on_leave=leave)

    async def _listen_to_changes(self, opened: HttpSession, last_event: str | None) -> FollowedStream | Failure:
        async with self._records.locked(opened.id):
            record = await self._records.read(opened.id)
            if record is None:
                return SESSION_UNKNOWN
            record.listens += 1
            await self._records.write(opened.id, record)
        session = opened.session
        kinds = self._capabilities.offered_kinds(Kind, session.principal)
        stream = ChangeStream(self._limits, self._quotas, opened.account, session.dialect, kinds, session.principal)
        stream.number = record.listens
        if record.watches and not stream.watch(await self._records.read_watched(opened.id)):
            return Failure(Fault.OVERLOADED, "Too many resources are subscribed to; unsubscribe from some first.")
        stream.position = start = record.heard
        if last_event is not None and is_change_event(last_event):
            stream.position = read_position(last_event) or (0, 0)
        log = self._replica.changes
        try:
            missed = await log.missed_since(stream.position)
        except BaseException:
            stream.leave()
            raise
        # From here on nothing waits, so that the hub delivers whatever comes after what was missed.
        if missed is None:
            stream.notify_of_all(log.number)
        for position, change in missed or ():
            stream.notify_of(change, position)
        replaced = self._listening.get(opened.id)
        if replaced is not None:
            replaced.end()
        self._listening[opened.id] = stream
        self._hub.subscribe(stream)

        def leave() -> None:
            self._hub.unsubscribe(stream)
            stream.leave()
            if self._listening.get(opened.id) is stream:
                del self._listening[opened.id]
            if stream.heard > start:
                self._start(self._write_heard(opened.id, stream.heard))

        self._start(self._replica.publish(StreamMoved(opened.id, stream.number)))
        return FollowedStream(stream, 0, primed=is_primed(opened), close=stream.end, on_leave=leave)

    async def _write_heard(self, session: str, heard: Position) -> None:
        async with self._records.locked(session):
            record = await self._records.read(session)
            if record is not None and heard > record.heard:
                record.heard = heard
                await self._records.write(session, record)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        if self._copies.is_closed:
            work.close()
            return
        task = asyncio.get_running_loop().create_task(_without_store_errors(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _without_store_errors(work: Coroutine[Any, Any, None]) -> None:
    try:
        await work
    except StoreError as error:
        logger.debug("other replicas were not told of a stream: %s", error)


def _unavailable(error: StoreError) -> Failure:
    logger.warning("a session could not be served: %s", error)
    return Failure(
        Fault.OVERLOADED, "Sessions cannot be reached now; try again in a few seconds.", retry_seconds=_RETRY_SECONDS
    )


def make_directory(engine: Engine, quotas: HttpQuotas, keep_sessions: bool = True) -> SessionDirectory:
    """Returns the sessions of a server: its own, those that it shares with its replicas, or none."""
    replica = engine.replica
    if replica is None or not keep_sessions:
        live = HttpSessions(engine.limits, quotas, engine.hub, engine.identify)
        if keep_sessions:
            return SessionDirectory(live, engine.hub)
        return NoSessions(live, engine.hub, engine.limits, quotas, engine.dialects)
    copies = StreamCopies(replica, engine.limits)

    def identify(principal: Principal, id_: str, address: str, opener: str) -> Caller:
        return replace(engine.identify(principal, id_, address, opener), moves=True)

    live = HttpSessions(engine.limits, quotas, engine.hub, identify, copies)
    shared = SharedSessions(live, engine.hub, copies, engine.limits, quotas, engine.dialects, engine.capabilities)
    engine.lifespan.add_task(shared.run)
    return shared
