"""One server behind the gateway: its configuration, its connection, and what it is known to list.

What it lists is read from disk when the gateway starts, so that the gateway can offer it before any server has
started, then fetched where it may differ. What it is doing now is told in a resource, in notices, and by metrics.
"""

import asyncio
import contextlib
import datetime
import logging
import re
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

import msgspec
from msgspec import Struct

from deltamcp.catalog.items.remote_items import RemoteResource
from deltamcp.context import Context
from deltamcp.errors import DeltaError, UnreachableError, UpstreamError
from deltamcp.gateway.api_server import is_api
from deltamcp.gateway.config import UpstreamConfig
from deltamcp.gateway.trust.quarantine import Quarantine, StoredReview, check_withheld, not_comparable
from deltamcp.gateway.trust.review import Verdict
from deltamcp.gateway.upstream_items import STATUS_URI, UpstreamOffer
from deltamcp.runtime.files import read_own_file, replace_own_file
from deltamcp.runtime.log import RepeatedWarnings
from deltamcp.runtime.metric_values import Key
from deltamcp.upstreams.client import NotReadyError, Phase, UpstreamState
from deltamcp.upstreams.listing import UpstreamListing
from deltamcp.upstreams.login_upstream import MissingLoginError
from deltamcp.upstreams.upstream import Upstream, UpstreamListener
from deltamcp.values import ANONYMOUS, JSON, LOCAL, Kind, Principal, RawResult
from deltamcp.wire import jsonrpc
from deltamcp.wire.canonical import encode_canonical, sha256_digest

_FETCH_SECONDS = 120.0
"""How long an upstream may take to start and to list what it has."""
_START_SECONDS = 1.0
"""How long a start leaves servers alone that were asked before: each process takes some ms of the first replies."""
_BURST_SECONDS, _LONGEST_BURST_SECONDS = 0.05, 60.0
"""How long a refresh waits for further notices, as many servers announce each of their items. The wait doubles for one
that announces changes without end."""
_IDLE_SHARE = 10
"""How many times as long as a refresh took nothing must be announced for the next to wait as short as the first."""
_QUICK_SECONDS = 0.2
"""What is reviewed and offered so fast is not spaced; what takes longer, as 10,000 tools do, has a tenth of time."""
_FIRST_PAUSE, _LONGEST_PAUSE = 2.0, 300.0
"""Between attempts to see an upstream that was never seen."""
logger: logging.Logger = logging.getLogger("deltamcp")
CONFIGURATION_URI = "delta-mcp://gateway/configuration"
_ERROR_FOR_OTHERS = "It was lost or did not start; the gateway's log says why."
_ASK_LOG = "; the gateway's log says why"
_END = re.compile(r"ended (?:with|by) (exit code \d+|signal \d+)(?:: |[.]?$)")
STARTING = "still starting; a call waits for it"
_LIST_ITEM: dict[str, JSON] = {
    "uri": STATUS_URI,
    "name": "upstreams",
    "description": "What the servers behind this gateway are doing now, and whether its configuration is right.",
    "mimeType": "application/json",
}
_FORMAT = 6
"""The number of this form of the files; a change of `CachedListing` or `UpstreamListing` needs another."""
_MAX_BYTES = 256 * 1024 * 1024
_PLAIN_KEYS = ("type", "transport", "command", "args", "cwd", "url", "serverUrl", "httpUrl")
"""The members of an entry that identify an upstream; of `env` and `headers` only the names do."""
_SECRET_KEYS = ("headers", "credentials")
"""Those of an API's entry of which only the names do; its others say what it lists."""


class CachedListing(Struct, frozen=True, array_like=True):
    """What a file has."""

    format: int
    written_at: float
    """In seconds since 1970."""
    listing: UpstreamListing | None = None
    """None if the upstream has never answered."""
    review: StoredReview | None = None

    @property
    def age(self) -> float:
        """The seconds since the upstream was seen; without end if the clock has gone back."""
        age = time.time() - self.written_at
        return age if age >= 0 else float("inf")


class ListingCache:
    """What upstreams listed when they were last seen, in a folder with a file for each.

    A file is named after a digest of what identifies the upstream. One that cannot be read, or that another version
    wrote, is as good as none.
    """

    def __init__(self, folder: Path | None) -> None:
        """`folder` is None to keep nothing."""
        self._folder = folder

    def load(self, name: str, entry: Mapping[str, Any]) -> CachedListing | None:
        """Returns what is known of an upstream; None if nothing is."""
        if self._folder is None:
            return None
        content = read_own_file(self._path(self._folder, name, entry), _MAX_BYTES)
        try:
            cached = msgspec.json.decode(content or b"", type=CachedListing)
        except (ValueError, RecursionError):
            return None
        return cached if cached.format == _FORMAT else None

    def store(
        self,
        name: str,
        entry: Mapping[str, Any],
        listing: UpstreamListing | None,
        review: StoredReview | None = None,
    ) -> None:
        """Writes what is known of an upstream, whole or not at all; logs why where it cannot."""
        if self._folder is None:
            return
        try:
            encoded = msgspec.json.encode(CachedListing(_FORMAT, time.time(), listing, review))
            replace_own_file(self._path(self._folder, name, entry), encoded)
        except (OSError, ValueError, RecursionError) as error:
            logger.warning("the list of %s is not kept: %s", name, getattr(error, "strerror", None) or error)

    @staticmethod
    def _path(folder: Path, name: str, entry: Mapping[str, Any]) -> Path:
        keys = entry.keys() - {*_SECRET_KEYS} if is_api(entry) else _PLAIN_KEYS
        identity = [
            name,
            {key: entry[key] for key in keys if key in entry},
            *(
                sorted(map(str, value)) if isinstance(value := entry.get(key), dict) else []
                for key in (_SECRET_KEYS if is_api(entry) else ("env", "headers"))
            ),
        ]
        digest = sha256_digest(encode_canonical(identity)).rpartition(":")[2]
        return folder / f"{digest[:32]}.catalog"


class ListingUser(Protocol):
    """Who offers what upstreams list."""

    async def replace_listing(
        self, upstream: "GatewayUpstream", listing: UpstreamListing, announced: Collection[Kind]
    ) -> None:
        """Offers what an upstream lists from now on; `announced` are the lists of which it said that they changed.

        Raises:
            Exception: it cannot be offered; then what was known before holds.
        """
        ...

    def receive_change(self, upstream: "GatewayUpstream", principal: Principal, change: Kind | str) -> None:
        """Takes a change of a resource, or of what a principal with a login of its own is listed."""
        ...

    async def compare_own(self, upstream: "GatewayUpstream", principal: Principal) -> Mapping[str, Verdict] | None:
        """Fetches and reviews what a principal with a login of its own is listed; returns what is kept out.

        Raises:
            UpstreamError: the upstream does not list it.
        """
        ...


class GatewayUpstream:
    """A server behind the gateway. It has a task of its own, so that none delays another.

    It is what its connection tells of changes, and what decides whether a server that was started may be called.
    """

    def __init__(
        self,
        config: UpstreamConfig,
        connect: Callable[[UpstreamConfig, UpstreamListener], Upstream],
        cache: ListingCache,
        quarantine: Quarantine,
        user: ListingUser,
    ) -> None:
        """
        Args:
            connect: Makes the connection, which is started when it is needed.
            quarantine: Reviews a catalog that was fetched, before anything else uses it.

        Raises:
            ConfigurationError: there can be no such connection.
        """
        self._config = config
        self.connection: Upstream = connect(config, self)
        self._listing: UpstreamListing | None = None
        self.fault: str = ""
        """Why its lists could not be had when that was last tried."""
        self.is_untried: bool = True
        """Whether nothing is known of it, nor why."""
        self._cache = cache
        self._quarantine = quarantine
        self._user = user
        self._warnings = RepeatedWarnings()
        self._is_unseen = False
        self._announced: set[Kind] = set()
        self._due = asyncio.Event()
        self._fetched = asyncio.Event()
        self._refreshing = asyncio.Lock()
        self._seconds = 0.0
        """How long it last took to review and to offer what it lists."""
        self._task: asyncio.Task[None] | None = None

    @property
    def config(self) -> UpstreamConfig:
        """What the configuration says of it now."""
        return self._config

    def configure(self, config: UpstreamConfig) -> None:
        """Follows another configuration, in which it is reached in the same way."""
        self._config = config

    @property
    def listing(self) -> UpstreamListing | None:
        """What it lists, as far as is known."""
        return self._listing

    def use_listing(self, listing: UpstreamListing | None) -> UpstreamListing | None:
        """Has it list this from now on, and returns what it listed before."""
        before, self._listing = self._listing, listing
        return before

    @property
    def name(self) -> str:
        return self.config.name

    @property
    def offer(self) -> UpstreamOffer | None:
        """What it lists, and what the operator says of it; None while nothing is known."""
        return None if self.listing is None else UpstreamOffer(self.config, self.connection, self.listing)

    async def wait_for_lists(self) -> None:
        """Waits until it has listed what it has, or failed, if nothing is known of it."""
        if self.is_untried:
            await self._fetched.wait()

    # Its life

    def load(self, max_age_seconds: float) -> None:
        """Reads what is known from disk.

        An upstream that is to be asked soon is marked as due: also one that was not seen for longer than
        `max_age_seconds`, although nothing else needs it.
        """
        cached = self._cache.load(self.name, self.config.entry)
        if cached is None:
            self._is_unseen = True
        elif cached.listing is not None:
            self._listing, self.is_untried = cached.listing, False
            self.connection.remember_protocol(cached.listing.protocol)
            if cached.review is not None:
                offer = UpstreamOffer(self.config, self.connection, cached.listing)
                self._quarantine.recall(offer, cached.review)
        is_old = cached is None or cached.listing is None or cached.age > max_age_seconds
        if is_old or self.config.start == "ahead":
            self._due.set()

    def start(self) -> None:
        """Lets requests use it, and keeps its lists up to date from now on."""
        self.connection.open()
        self._task = asyncio.get_running_loop().create_task(self._keep())

    async def stop_listing(self) -> None:
        """Asks for its lists no more, unless a request that was on its way to it needs them."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def wait_for_first_lists(self) -> None:
        """Waits until an upstream of which nothing is known has answered or failed."""
        if self._is_unseen:
            await self._fetched.wait()

    def note_silence(self) -> None:
        """Takes note that it has not answered by now, so that the next start does not wait for it again."""
        if self._is_unseen and self.listing is None:
            self._cache.store(self.name, self.config.entry, None)

    # What its connection tells and asks

    def receive_change(self, principal: Principal, change: Kind | str) -> None:
        if principal is LOCAL and isinstance(change, Kind):
            self.refresh()
        else:
            self._user.receive_change(self, principal, change)

    def receive_announcement(self, kind: Kind) -> None:
        self._announced.add(kind)

    async def compare(self, principal: Principal, method: str, params: Mapping[str, JSON]) -> bool:
        connection = self.connection
        if principal is LOCAL or (connection.has_logins and connection.login_of(principal) is LOCAL):
            await self._compare_lists()
            self._quarantine.check_request(connection, method, params)
            return connection.is_compared
        if connection.has_logins:
            check_withheld(await self._user.compare_own(self, principal), method, params)
            return True
        return await self._quarantine.compare(self.config, await connection.fetch_listing(principal), method, params)

    async def _compare_lists(self) -> None:
        """Fetches, reviews and offers what it lists now, unless that was done since it was started.

        Raises:
            UpstreamError: it does not list what it has.
        """
        async with self._refreshing:
            if self.connection.is_compared:
                return
            self._due.clear()
            if not await self._refresh():
                raise UpstreamError(not_comparable(self.name), retryable=True)

    # Its lists

    def refresh(self) -> None:
        """Has its lists fetched, soon and in the background."""
        self._due.set()

    async def _keep(self) -> None:
        due, now = self._due, asyncio.get_running_loop().time
        pause, burst, quiet_at = _FIRST_PAUSE, _BURST_SECONDS, 0.0
        if due.is_set() and not self._is_unseen:
            await asyncio.sleep(_START_SECONDS)
        while True:
            await due.wait()
            burst = min(2 * burst, _LONGEST_BURST_SECONDS) if now() < quiet_at else _BURST_SECONDS
            await asyncio.sleep(self._pause(burst))
            if not due.is_set():  # a call could not wait, and had it done
                continue
            began = now()
            async with self._refreshing:
                due.clear()
                is_known = await self._refresh()
            if is_known:
                pause = _FIRST_PAUSE
            elif self.listing is None:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(pause):
                        await due.wait()
                due.set()
                pause = min(2 * pause, _LONGEST_PAUSE)
            quiet_at = now() + max(2 * burst, _IDLE_SHARE * (now() - began))

    def _pause(self, burst: float) -> float:
        """Returns how long a refresh waits: so long that large lists take no more than their share of the time."""
        if self.listing is None:
            return 0.0
        share = _IDLE_SHARE * self._seconds if self._seconds > _QUICK_SECONDS else 0.0
        return min(max(burst, share), _LONGEST_BURST_SECONDS)

    async def _refresh(self) -> bool:
        """Fetches and offers what it lists; returns whether that succeeded. Others are not affected."""
        try:
            async with asyncio.timeout(_FETCH_SECONDS):
                fetched = await self.connection.fetch_listing()
                listing = fetched if self.listing is None else fetched.with_lists_of(self.listing)
                began = asyncio.get_running_loop().time()
                await self._quarantine.review(UpstreamOffer(self.config, self.connection, listing))
            await self._replace(listing)
            self._seconds = asyncio.get_running_loop().time() - began
        except (DeltaError, TimeoutError) as error:
            self.fault = str(error) or "it took too long."
            if isinstance(error, MissingLoginError) or not isinstance(error, UnreachableError | NotReadyError):
                self._warn(f"{self.name} does not list what it has: {self.fault}")
            return False
        except Exception:
            logger.exception("%s: what it lists cannot be offered", self.name)
            self.fault = "what it lists cannot be offered"
            return False
        finally:
            self._fetched.set()
            self.is_untried = False
        self.fault = ""
        if not listing.faults:
            self._warnings.clear()
        for kind, fault in listing.faults.items():
            self._warn(f"{self.name} does not list its {kind}: {fault}")
        return True

    def _warn(self, text: str) -> None:
        warning = self._warnings.add(text)
        if warning is not None:
            logger.warning("%s", warning)

    async def _replace(self, listing: UpstreamListing) -> None:
        announced, self._announced = self._announced, set()
        await self._user.replace_listing(self, listing, announced)
        if "tools" not in listing.faults:  # else a call of a tool is not compared with anything
            self.connection.note_comparison()
        review = self._quarantine.last_review(self.connection)
        await asyncio.to_thread(self._cache.store, self.name, self.config.entry, listing, review)


async def wait_for_first_lists(upstreams: Collection[GatewayUpstream], seconds: float) -> None:
    """Waits until those of which nothing is known have answered or failed, but no longer than some seconds."""
    waits = [asyncio.create_task(one.wait_for_first_lists()) for one in upstreams]
    if waits:
        _, late = await asyncio.wait(waits, timeout=seconds)
        for task in late:
            task.cancel()
    for one in upstreams:
        one.note_silence()


def status_resource(
    upstreams: Callable[[], Iterable[Upstream]],
    known: Callable[[Upstream, Principal], UpstreamListing | None],
    conflicts: Callable[[Upstream, Principal], list[str]],
    configuration: Callable[[bool], dict[str, JSON]] | None = None,
) -> RemoteResource:
    """Returns the resource that tells the states of upstreams, as the caller may know them; to read it starts none.

    Args:
        upstreams: Returns those that are there now.
        known: Returns what an upstream is known to list to a principal.
        conflicts: Returns the names of upstreams whose resources one claims.
        configuration: Returns what is known of the files of the gateway; its argument is whether the caller is who
            started it. It is a second content of the resource.
    """

    def describe(upstream: Upstream, principal: Principal) -> dict[str, JSON]:
        described = _describe(upstream.state_for(principal), known(upstream, principal), principal is LOCAL)
        claimed = conflicts(upstream, principal)
        return {**described, "claimsResourcesOf": claimed} if claimed else described

    async def read(uri: str, context: Context) -> RawResult:
        described: dict[str, JSON] = {uri: [describe(upstream, context.principal) for upstream in upstreams()]}
        if configuration is not None:
            described[CONFIGURATION_URI] = configuration(context.principal is LOCAL)
        contents: list[JSON] = [
            {"uri": place, "mimeType": "application/json", "text": jsonrpc.encode(value).decode()}
            for place, value in described.items()
        ]
        result: dict[str, JSON] = {"contents": contents}
        return RawResult(jsonrpc.encode(result), result)

    return RemoteResource(read, _LIST_ITEM)


def usability_notice(
    upstream: Upstream, listing: UpstreamListing | None, fault: str, principal: Principal, log_in: str
) -> str:
    """Says in a few words why an upstream cannot be used by a principal now; empty if it can, as far as is known.

    Only the local user is told what a server wrote or where it is.

    Args:
        catalog: What it is known to list to the principal.
        fault: Why it could not be asked for that.
        log_in: The name of the tool by which users log in there.
    """
    state, is_operator = upstream.state_for(principal), principal is LOCAL
    if upstream.lacks_login(principal):
        if upstream.login_of(principal) is ANONYMOUS:
            return "needs a login, and this gateway does not know who calls"
        return f"not logged in: call {log_in}" if principal is not ANONYMOUS else "its operator is not logged in"
    has_failed = state.phase is Phase.BACKING_OFF or (state.phase is Phase.STARTING and state.failures > 0)
    if has_failed:
        what = "needs a login" if state.wants_login else "not running"
        return f"{what}: {_short(state.last_reason)}" if is_operator and state.last_reason else f"{what}{_ASK_LOG}"
    fault = fault or ("" if listing is None else listing.faults.get("tools", ""))
    if fault:
        return (
            f"does not list its tools: {upstream.secrets.redact(fault)}"
            if is_operator
            else f"does not list its tools{_ASK_LOG}"
        )
    return STARTING if listing is None and state.phase is not Phase.CLOSED else ""


def _short(reason: str) -> str:
    """Returns `exit code 1, ImportError: ...` for `ended with exit code 1: ImportError: ...`, without advice."""
    found = _END.match(reason)
    if found is None:
        return reason.partition("; give one")[0]
    return f"{found[1]}{', ' if reason[found.end() :] else ''}{reason[found.end() :]}"


def _describe(state: UpstreamState, listing: UpstreamListing | None, is_operator: bool) -> dict[str, JSON]:
    """Returns a state for whoever may read resources: without the number of the process.

    What a server wrote to its stderr, or an address, is for the user who started the gateway.
    """
    described: dict[str, JSON] = {
        "name": state.name,
        "state": state.phase.value,
        "since": _time(state.since),
        "protocol": state.protocol,
        "restarts": state.restarts,
        "openCalls": state.open_calls,
        "waitingCalls": state.waiting_calls,
        "subscriptions": state.subscriptions,
        "principals": state.principals,
    }
    if state.retry_at is not None:
        described["retryAt"] = _time(state.retry_at)
    if state.last_error is not None:
        described["lastError"] = state.last_error if is_operator else _ERROR_FOR_OTHERS
    if listing is not None and listing.left_out:
        described["leftOut"] = {**listing.left_out}
    if listing is not None and listing.faults:
        described["notListed"] = {**listing.faults} if is_operator else [*listing.faults]
    return described


def _time(seconds: float) -> str:
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).isoformat(timespec="seconds")


def upstream_metrics(upstreams: Iterable[Upstream]) -> dict[Key, float]:
    """Returns the metrics of upstreams, as `Engine.own_metrics` has them."""
    from deltamcp.transports import metrics  # which has shown the page that wants them

    found: dict[Key, float] = {}
    for state in (upstream.state for upstream in upstreams):
        for phase in Phase:
            found[metrics.UPSTREAM_STATE, state.name, phase.value] = float(phase is state.phase)
        found[metrics.UPSTREAM_RESTARTS, state.name] = state.restarts
        found[metrics.UPSTREAM_CALLS, state.name] = state.open_calls
    return found
