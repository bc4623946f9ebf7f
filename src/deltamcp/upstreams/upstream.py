"""An upstream: one MCP server behind this one, which performs requests of this server's callers."""

import asyncio
import functools
import logging
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, nullcontext, suppress
from typing import TYPE_CHECKING, Any, Protocol

from msgspec.structs import replace

from deltamcp.catalog.text import prose
from deltamcp.catalog.text.clean_text import visible_line
from deltamcp.client.target import UnmadeServer
from deltamcp.context import Context
from deltamcp.errors import (
    ArgumentsError,
    ClientError,
    ConnectionLostError,
    DeadlineError,
    DeltaError,
    PeerError,
    RemoteError,
    UnreachableError,
    UpstreamError,
)
from deltamcp.limits import Limits
from deltamcp.runtime.local_sessions import LocalSessions
from deltamcp.runtime.process import collection_paused
from deltamcp.runtime.quota import Turns
from deltamcp.runtime.threads import Computations
from deltamcp.upstreams.client import (
    NotReadyError,
    Phase,
    UpstreamClient,
    UpstreamClients,
    UpstreamSettings,
    UpstreamState,
)
from deltamcp.upstreams.forwarded_request import CallCancelledError, OpenCalls, forward, needed_visits
from deltamcp.upstreams.listing import KINDS, UpstreamListing
from deltamcp.upstreams.parked_calls import ParkedCalls
from deltamcp.upstreams.relayed_messages import OutsideRequest, RelayedMessages
from deltamcp.upstreams.secrets import EntryValues, UpstreamSecrets, entry_values
from deltamcp.values import JSON, LOCAL, Era, Kind, LogLevel, Principal, RawResult
from deltamcp.wire import jsonrpc
from deltamcp.work import Work, WorkLimitError

if TYPE_CHECKING:
    from deltamcp.client.client import GatewayClient
    from deltamcp.client.links.process import ProcessGuard

logger: logging.Logger = logging.getLogger("deltamcp")

_MAX_SENDS = 3
"""How often a request is sent that may be sent again after a loss."""
_MAX_ERROR_CHARS = 500
_MAX_REASON_CHARS = 160
"""Of the reason why it does not run."""
_MAX_ERROR_STEPS = 100_000
"""The work of a search for secrets in the data of an error; data that takes more is left out."""
_MAX_MESSAGE_CHARS = 32_000
"""What is passed on of the message of an error."""
_ABANDON_SECONDS = 5.0
_TOOLS_SECONDS, _LIST_SECONDS, _LATE_LIST_SECONDS = 45.0, 20.0, 2.0
"""How long an upstream may take to list its tools; any other list; and one that it did not list in time before."""
_SHORTEST_TTL_SECONDS = 60.0
"""How often the lists of a server that runs are fetched again, at the most, because it says that they are outdated."""
_AGAIN = "try again later."
_CHECK = "check whether the call took effect before you try again."


class UpstreamListener(Protocol):
    """Whom an upstream tells of changes, and asks whether a server that was started may be called."""

    def receive_change(self, principal: Principal, change: Kind | str) -> None:
        """Takes the kind of a list that may have changed, or the URI of a resource that did, for a principal's login.

        After every start each list may have changed, unless a fetch of the lists is under way; and while the server
        runs, when the time has passed for which it says that its lists are valid.
        """
        ...

    def receive_announcement(self, kind: Kind) -> None:
        """Takes, before the change, the kind of a list that the server itself says has changed for the local user."""
        ...

    async def compare(self, principal: Principal, method: str, params: Mapping[str, JSON]) -> bool:
        """Compares the lists of a principal's connection with what was approved.

        It is called with each request until it returns True, in every life of the connection.

        Raises:
            UpstreamError: the request must not pass.
        """
        ...


class Upstream:
    """A server that is started on first use and after it was lost, and stopped when nobody uses it.

    Requests may run concurrently. What fails is told in one sentence that has nothing of the command line, the
    environment or a secret in it.
    """

    has_logins = False
    """Whether principals have logins of their own here, and so lists and subscriptions of their own."""

    def __init__(
        self,
        name: str,
        target: dict[str, Any] | UnmadeServer,
        settings: UpstreamSettings = UpstreamSettings(),  # noqa: B008 - it is frozen
        *,
        listener: UpstreamListener | None = None,
        guard: "ProcessGuard | None" = None,
        secrets: UpstreamSecrets | None = None,
        redacts_results: bool = False,
        computations: Computations | None = None,
        parked_calls: ParkedCalls | None = None,
        local_sessions: Callable[[], LocalSessions] = LocalSessions,
        roots: Sequence[str] = (),
        options_for: Callable[[Principal], Mapping[str, Any]] | None = None,
        **options: Any,
    ) -> None:
        """
        Args:
            target: An entry of an `mcpServers` file, with its variables filled in, or a server for this process.
            listener: Is told of changes; without one, nothing is compared before it is called.
            guard: Ends the server's process if this one is killed.
            secrets: What nobody is told; by default the values of the entry.
            redacts_results: Whether results must not show them either; errors never do.
            computations: Searches large results for them.
            parked_calls: Where calls wait for answers of their callers; those of all upstreams of a server.
            local_sessions: Returns the sessions of the local user, who is told what it sends outside of calls.
            roots: As of `RelayedMessages`.
            options_for: Returns options of the `GatewayClient` that differ by principal, such as credentials; each
                principal then has a connection of its own.
            options: Further options of the `GatewayClient`.

        Raises:
            ConfigurationError: the target is no entry of a server.
        """
        self.name = name
        self._parked_calls = ParkedCalls(Limits().input_seconds) if parked_calls is None else parked_calls
        self._settings = settings
        values = entry_values(target) if isinstance(target, dict) else EntryValues(frozenset(), frozenset())
        self.secrets: UpstreamSecrets = secrets or UpstreamSecrets(values, [name])
        self._target = target
        self._redact = self.secrets.redact
        self._redacts_results = redacts_results
        self._computations = computations or Computations(Limits().work_steps)
        self._messages = RelayedMessages(name, self.secrets.credentials, redacts_data=redacts_results, roots=roots)
        options["sender"] = OutsideRequest(self._messages, local_sessions)

        self._known_protocol = ""

        def make_client(principal: Principal) -> UpstreamClient:
            known = {"known_protocol": self._known_protocol}
            own = {**options, **known} if options_for is None else {**options, **known, **options_for(principal)}
            if principal is not LOCAL and options_for is None:  # all have the lists of the local user
                return UpstreamClient(name, target, settings, self._redact, guard, **own)
            own["on_change"] = functools.partial(self._receive_change, principal)
            on_ready = functools.partial(self._receive_ready, principal)
            return UpstreamClient(name, target, settings, self._redact, guard, on_ready, **own)

        is_shared = settings.process_for == "all" and options_for is None
        self._clients = UpstreamClients(make_client, is_shared=is_shared, max_principals=settings.max_principals)
        self.calls: OpenCalls = OpenCalls()
        """The requests that callers wait for."""
        self._listener = listener
        self._turns = None if settings.concurrency is None else Turns(settings.concurrency)
        self._open_calls: Counter[str] = Counter()
        """By the owners of those who called."""
        self._fetches: Counter[str] = Counter()
        self._late_lists: set[str] = set()
        """The lists that did not come in time when they were last fetched."""
        self._expiries: dict[str, asyncio.TimerHandle] = {}
        self._subscriptions: dict[str, _Subscriptions] = {}
        """By the owner of the connection that has them."""

    @property
    def state(self) -> UpstreamState:
        """What the upstream is doing now; of one that each principal has for itself, what one of them is doing."""
        local, *others = [client.state for client in self._clients]
        shown = next((state for state in (local, *others) if state.phase is Phase.READY), local)
        return replace(
            shown,
            starts=sum(state.starts for state in (local, *others)),
            restarts=sum(state.restarts for state in (local, *others)),
            open_calls=self._open_calls.total(),
            waiting_calls=0 if self._turns is None else self._turns.waiting_count,
            subscriptions=sum(len(held.uris) for held in self._subscriptions.values()),
            principals=len(others),
        )

    def state_for(self, principal: Principal) -> UpstreamState:
        """Returns the state as a principal may know it."""
        return self.state

    def lacks_login(self, principal: Principal) -> bool:
        """Returns whether a principal has to log in, as far as is known."""
        return False

    def remember_protocol(self, protocol: str) -> None:
        """Has first connections begin with the protocol that the server spoke when it was last seen."""
        self._known_protocol = protocol
        self._clients.local.remember_protocol(protocol)

    def start(self) -> None:
        """Begins to start the server, if it is not there, and does not wait for it."""
        self._clients.local.start()

    def restart(self) -> None:
        """Begins to start it anew for all who use it; calls in flight end as they would."""
        for client in self._clients:
            client.restart()

    @property
    def stderr_lines(self) -> list[tuple[float, str]]:
        """The last lines that it wrote to stderr, without secrets, each with its time in seconds since 1970."""
        return sorted((line for client in self._clients for line in client.stderr.last), key=lambda line: line[0])

    async def forward(
        self,
        method: str,
        params: Mapping[str, JSON],
        context: Context,
        *,
        repeatable: bool = False,
        timeout: float | None = None,
        **options: Any,
    ) -> RawResult:
        """Has the upstream perform a request of a caller.

        Args:
            repeatable: Whether the request may be sent again if the upstream is lost before it has answered.
            timeout: The seconds that it may take; those of the settings by default.
            options: Further ones of `GatewayClient.forward`; `meta` is what this server says to the upstream itself.

        Raises:
            RemoteError: it answered with a JSON-RPC error.
            UpstreamError: it ended, cannot be reached, is busy, or took too long.
        """
        timeout = self._settings.timeout if timeout is None else timeout
        connection = self._clients.get(context.principal)
        if connection is None:
            raise self._failure(f"serves as many users as it can; {_AGAIN}")
        try:
            with connection.in_use(), self.calls.entered(method, params):
                async with self._turn(context, timeout):
                    result = await self._send(connection, method, params, context, repeatable, timeout, options)
            if self._redacts_results or result.fields.get("isError") is True:
                return await self._without_secrets(result, context)
            return result
        except CallCancelledError:
            what = "was told to stop by the user who runs this gateway"
            raise UpstreamError(f"The server {self.name} behind this operation {what}; {_CHECK}") from None
        except DeadlineError:
            seconds = "too long" if timeout is None else f"longer than {timeout:g} s"
            raise self._failure(f"took {seconds}; {_AGAIN if repeatable else _CHECK}") from None
        except PeerError as error:
            raise self._remote_error(error, method) from None
        except ConnectionLostError as lost:
            what_to_do = _AGAIN if repeatable else _CHECK if lost.maybe_done else f"the call had no effect; {_AGAIN}"
            raise self._failure(f"ended before it answered; {what_to_do}") from None
        except NotReadyError as error:
            when = f"try again in {max(1, round(error.seconds))} s."
            raise self._failure(f"is started again after failures{_reason(connection, context)}; {when}") from None
        except UnreachableError:
            reason = _reason(connection, context)
            what = f"cannot be used{reason}" if reason else "did not start, or cannot be reached"
            raise self._failure(f"{what}; {_AGAIN}") from None
        except ArgumentsError as error:
            raise UpstreamError(self._redact(str(error))[:_MAX_ERROR_CHARS]) from None
        except ClientError as error:
            logger.warning("%s: %s", self.name, self._redact(str(error)))
            raise UpstreamError(
                f"The server {self.name} behind this operation answered with more than can be read; check whether the "
                "call took effect, and ask for less."
            ) from None

    async def abandon(self, memo: JSON, principal: Principal) -> None:
        """Ends what a request of a principal left for its next round, which does not come: a parked call, a task."""
        if not isinstance(memo, dict):
            return
        if "parked" in memo:
            self._parked_calls.drop(memo["parked"])
        connection = self._clients.get(principal)
        if "task" in memo and connection is not None:
            from deltamcp.upstreams.task import cancel_task

            with connection.in_use(), suppress(NotReadyError, UnreachableError, TimeoutError):
                async with asyncio.timeout(_ABANDON_SECONDS):
                    await cancel_task(await connection.ready(), memo["task"])

    def _remote_error(self, error: PeerError, method: str) -> RemoteError:
        """Returns the upstream's error for the caller, without secrets."""
        visits = needed_visits(error)
        try:
            if visits:  # a client shows them as it shows questions
                shown = [self._messages.visit(params) for _, params in visits]
                error = PeerError(error.code, str(error), {**error.data, "elicitations": shown})
            data = self.secrets.all.redact_result(error.data, Work(_MAX_ERROR_STEPS))
        except (PeerError, WorkLimitError):
            data = None
        text = str(error)
        is_whole = len(text) <= _MAX_MESSAGE_CHARS
        text = self.secrets.all.redact_excerpt(text[:_MAX_MESSAGE_CHARS], is_whole, _MAX_MESSAGE_CHARS)
        return RemoteError(PeerError(error.code, text, data), method)

    async def _without_secrets(self, result: RawResult, context: Context) -> RawResult:
        """
        Raises:
            UpstreamError: the result is too large to be searched for secrets.
        """
        try:
            fields = await self._computations.run(
                context.terms.caller.account, lambda work: self.secrets.all.redact_result(result.fields, work)
            )
        except WorkLimitError:
            raise UpstreamError(
                f"The server {self.name} behind this operation answered with too much; ask for less."
            ) from None
        return result if fields is result.fields else RawResult(jsonrpc.encode(fields), fields)

    def _failure(self, what: str) -> UpstreamError:
        return UpstreamError(f"The server {self.name} behind this operation {what}", retryable=True)

    async def _send(
        self,
        connection: UpstreamClient,
        method: str,
        params: Mapping[str, JSON],
        context: Context,
        repeatable: bool,
        timeout: float | None,
        options: Mapping[str, Any],
    ) -> RawResult:
        from deltamcp.upstreams.task import call_tool  # with the client, without which a gateway lists tools

        sends = 0
        perform = call_tool if method == "tools/call" else forward
        while True:
            client = await self._ready(connection, timeout)
            life = connection.life
            if self._listener is not None and connection.compared_life != life:
                await self._compare(self._listener, connection, method, params, context, timeout)
                if connection.life != life:
                    continue
            sends += 1
            try:
                return await perform(
                    client,
                    method,
                    params,
                    context,
                    self._parked_calls,
                    in_use=connection.in_use,
                    messages=self._messages,
                    timeout=timeout,
                    repeatable=repeatable,
                    **options,
                )
            except ConnectionLostError as lost:
                if not (lost.maybe_done and connection.is_connected):
                    connection.lose(life, lost)
                if sends == _MAX_SENDS or (lost.maybe_done and not repeatable):
                    raise

    async def _compare(
        self,
        listener: UpstreamListener,
        connection: UpstreamClient,
        method: str,
        params: Mapping[str, JSON],
        context: Context,
        timeout: float | None,
    ) -> None:
        """
        Raises:
            UpstreamError: the request must not pass, or the server takes longer to list what it has than that may take.
        """
        life = connection.life
        principal = LOCAL if connection is self._clients.local else context.principal
        try:
            async with asyncio.timeout(timeout):
                if await listener.compare(principal, method, params):
                    connection.compared_life = life
        except TimeoutError:
            raise self._failure(f"is still starting; {_AGAIN}") from None

    def note_comparison(self, principal: Principal = LOCAL) -> None:
        """Lets requests of a principal pass: the lists that were fetched last were compared with what was approved."""
        connection = self._clients.get(principal)
        if connection is not None:
            connection.compared_life = connection.listed_life

    @property
    def is_compared(self) -> bool:
        """Whether the lists of the server that runs now, as it shows them to the local user, were compared."""
        return self._clients.local.compared_life == self._clients.local.life

    async def _ready(self, connection: UpstreamClient, timeout: float | None) -> "GatewayClient":
        """Returns the client, connected.

        Raises:
            UpstreamError: the server takes longer to start than the request may take.
            NotReadyError, UnreachableError: as `UpstreamClient.ready`.
        """
        if connection.is_ready or timeout is None:
            return await connection.ready()
        try:
            async with asyncio.timeout(timeout):
                return await connection.ready()
        except TimeoutError:
            raise self._failure(f"is still starting; {_AGAIN}") from None

    @asynccontextmanager
    async def _turn(self, context: Context, timeout: float | None) -> AsyncIterator[None]:
        """Waits until the upstream may perform one more request.

        Raises:
            UpstreamError: too many requests wait already, or the turn did not come in time.
        """
        turns = self._turns
        owner = context.principal.owner
        self._open_calls[owner] += 1
        try:
            if turns is not None:
                await self._take_turn(turns, context, timeout)
            try:
                yield
            finally:
                if turns is not None:
                    turns.release()
        finally:
            self._open_calls[owner] -= 1
            if not self._open_calls[owner]:
                del self._open_calls[owner]

    async def _take_turn(self, turns: Turns, context: Context, timeout: float | None) -> None:
        if turns.waiting_count >= self._settings.max_waiting:
            raise self._failure(f"is busy; {_AGAIN}")
        try:
            async with asyncio.timeout(timeout):
                await turns.take(context.terms.caller.account)
        except TimeoutError:
            raise self._failure(f"is busy; {_AGAIN}") from None

    async def fetch_listing(self, principal: Principal = LOCAL) -> UpstreamListing:
        """Returns what the upstream lists now, for a principal, within bounds. That does not keep it running.

        Raises:
            ClientError, PeerError, NotReadyError, UpstreamError: it cannot be reached or does not list it.
        """
        connection = self._clients.get(principal)
        if connection is None:
            raise self._failure(f"serves as many users as it can; {_AGAIN}")
        self._fetches[principal.owner] += 1
        try:
            with connection.kept():
                client = await connection.ready()
                life = connection.life
                with collection_paused() if isinstance(self._target, UnmadeServer) else nullcontext():
                    listed = await self._fetch_lists(client)  # of a server here it takes no time but to make objects
                connection.listed_life = life
                self._await_expiry(principal, connection, client)
            return await asyncio.to_thread(listed.of_operations().within_bounds().without, self.secrets.credentials)
        finally:
            self._fetches[principal.owner] -= 1
            if not self._fetches[principal.owner]:
                del self._fetches[principal.owner]

    async def _fetch_lists(self, client: "GatewayClient") -> UpstreamListing:
        """Fetches all lists at once. One that fails, or takes too long, is not in the way of the others.

        Raises:
            ClientError, PeerError, UpstreamError: there is no list that could be had.
        """
        has = client.server.capabilities.keys()
        fetches: dict[str, tuple[str, Callable[[], Awaitable[list[dict[str, JSON]]]]]] = {
            "tools": ("tools", client.fetch_tools),
            "resources": ("resources", client.list_resources),
            "templates": ("resources", client.list_resource_templates),
            "prompts": ("prompts", client.list_prompts),
        }
        offered = {kind: fetch for kind, (capability, fetch) in fetches.items() if capability in has}
        fetching = (self._fetch_list(kind, fetch) for kind, fetch in offered.items())
        found = dict(zip(offered, await asyncio.gather(*fetching, return_exceptions=True), strict=True))
        problems = {kind: one for kind, one in found.items() if isinstance(one, BaseException)}
        for problem in problems.values():
            is_end = isinstance(problem, ConnectionLostError) and not client.is_connected
            if is_end or len(problems) == len(found) or not isinstance(problem, DeltaError):
                raise problem
        faults = {kind: self._redact(str(problem))[:_MAX_ERROR_CHARS] for kind, problem in problems.items()}
        lists: dict[str, Any] = {kind: one for kind, one in found.items() if kind not in problems}
        ids = {**client.operation_ids} if "tools" in lists else {}
        requests = self._target.requests if isinstance(self._target, UnmadeServer) else None
        about, protocol = client.server.raw, client.server.protocol
        return UpstreamListing(about, protocol, **lists, ids=ids, faults=faults, requests=requests)

    async def _fetch_list(
        self, kind: str, fetch: Callable[[], Awaitable[list[dict[str, JSON]]]]
    ) -> list[dict[str, JSON]]:
        """
        Raises:
            ClientError, PeerError, UpstreamError: the list cannot be had.
        """
        seconds = _TOOLS_SECONDS if kind == "tools" else _LIST_SECONDS
        seconds = _LATE_LIST_SECONDS if kind in self._late_lists and kind != "tools" else seconds
        try:
            async with asyncio.timeout(seconds):
                listed = await fetch()
        except TimeoutError:
            self._late_lists.add(kind)
            raise UpstreamError(f"It did not list its {kind} within {seconds:g} s.") from None
        self._late_lists.discard(kind)
        return listed

    def _await_expiry(self, principal: Principal, connection: UpstreamClient, client: "GatewayClient") -> None:
        """Tells when lists are outdated that were fetched just now, if the server still runs then."""
        self._forget_expiry(principal.owner)
        life, seconds = connection.life, client.lists_ttl_seconds

        def expire() -> None:
            del self._expiries[principal.owner]
            if connection.is_ready and connection.life == life:
                self._tell_lists(principal, client)

        if seconds is not None:
            delay = max(seconds, _SHORTEST_TTL_SECONDS)
            self._expiries[principal.owner] = asyncio.get_running_loop().call_later(delay, expire)

    def _forget_expiry(self, owner: str) -> None:
        expiry = self._expiries.pop(owner, None)
        if expiry is not None:
            expiry.cancel()

    async def tell_roots_changed(self) -> None:
        """Tells the server, if it is of the handshake era and runs, that it may ask for the client's roots again."""
        for connection in [one for one in self._clients if one.is_ready]:
            client = await connection.ready()
            if client.server.era is Era.HANDSHAKE:
                with suppress(ClientError):
                    await client.notify("notifications/roots/list_changed")

    async def lower_log_level(self, level: LogLevel) -> None:
        """Asks the server, if it is of the handshake era and runs, for log messages of a level of the local user's."""
        connection = self._clients.local
        if connection.is_ready:
            client = await connection.ready()
            with suppress(ClientError):
                await client.lower_log_level(level)

    # Changes

    def login_of(self, principal: Principal) -> Principal:
        """Returns whose lists and subscriptions a principal has here; the local user's, unless logins differ."""
        return LOCAL

    async def subscribe(self, uri: str, principal: Principal = LOCAL) -> None:
        """Has the listener told when a resource changes; the connection of the principal is then kept.

        Raises:
            ClientError, PeerError, NotReadyError, UpstreamError: the upstream cannot be reached, or refuses.
        """
        connection = self._clients.get(principal)
        if connection is None:
            raise self._failure(f"serves as many users as it can; {_AGAIN}")
        held = self._subscriptions.get(principal.owner)
        if held is None:
            held = self._subscriptions[principal.owner] = _Subscriptions(connection)
        if uri in held.uris:
            return
        held.uris.add(uri)
        try:
            client = await connection.ready()
            await client.subscribe(uri)
        except BaseException:
            self._forget_subscription(principal, held, uri)
            raise

    async def unsubscribe(self, uri: str, principal: Principal = LOCAL) -> None:
        """Ends a subscription; at an upstream that is away, it is not begun again.

        Raises:
            ClientError, PeerError: the upstream cannot be told.
        """
        held = self._subscriptions.get(principal.owner)
        if held is not None and uri in held.uris:
            self._forget_subscription(principal, held, uri)
            await held.connection.unsubscribe(uri)

    def _forget_subscription(self, principal: Principal, held: "_Subscriptions", uri: str) -> None:
        held.uris.discard(uri)
        if not held.uris and self._subscriptions.get(principal.owner) is held:
            del self._subscriptions[principal.owner]
            held.use.close()
            held.connection.keeps_warm = self._settings.start == "ahead"

    def _receive_change(self, principal: Principal, kind_or_uri: str) -> None:
        for change in KINDS.get(kind_or_uri, (kind_or_uri,)):
            if isinstance(change, Kind) and principal is LOCAL and self._listener is not None:
                self._listener.receive_announcement(change)
            self._tell(principal, change)

    def _receive_ready(self, principal: Principal, client: "GatewayClient") -> None:
        """Tells what may have changed while nobody listened."""
        if not self._fetches[principal.owner]:
            self._tell_lists(principal, client)
        held = self._subscriptions.get(principal.owner)
        for uri in () if held is None else tuple(held.uris):
            self._tell(principal, uri)

    def _tell_lists(self, principal: Principal, client: "GatewayClient") -> None:
        """Tells that all lists of the server may have changed."""
        for capability, kinds in KINDS.items():
            for kind in kinds if capability in client.server.capabilities else ():
                self._tell(principal, kind)

    def _tell(self, principal: Principal, change: Kind | str) -> None:
        if self._listener is not None:
            self._listener.receive_change(principal, change)

    def open(self) -> None:
        """Lets requests start the upstream again after `close`."""
        self._clients.open()

    def retire(self) -> None:
        """Has the upstream stop as soon as nobody uses it, because another one has its place.

        What was begun on it ends on it: a call that reaches it late starts it once more.
        """
        self._end_subscriptions()
        self._clients.retire()

    async def close(self) -> None:
        """Ends the connection and the process, if there is one; the upstream is started no more."""
        self._end_subscriptions()
        await self._clients.close()

    def _end_subscriptions(self) -> None:
        for owner in tuple(self._expiries):
            self._forget_expiry(owner)
        for held in self._subscriptions.values():
            held.use.close()
        self._subscriptions.clear()


def _reason(connection: UpstreamClient, context: Context) -> str:
    """Says why a server does not run, to the user who started this process; it may have written that itself."""
    reason = connection.state.last_reason if context.principal is LOCAL else ""
    return f": {prose.cut(visible_line(reason), _MAX_REASON_CHARS).rstrip('.')}" if reason else ""


class _Subscriptions:
    """The subscriptions of one connection, which is kept as long as there are some."""

    def __init__(self, connection: UpstreamClient) -> None:
        self.connection = connection
        self.uris: set[str] = set()
        self.use = ExitStack()
        self.use.enter_context(connection.in_use())
        connection.keeps_warm = True
